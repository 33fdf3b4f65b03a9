"""The parser's tables are those that the grammar gives."""

from __future__ import annotations

import re
import subprocess
import sys

from cvm.parser.actions import Tree
from cvm.parser.lalr import Parser, Stuck
from cvm.parser.lalr_tables import END, PLACE, make, tables, text_of
from cvm.parser.recovery import scanner
from cvm.parser.syntax_tree import Token

from cvm import grammar


def test_tables_are_up_to_date() -> None:
    assert PLACE.read_text("utf-8") == text_of(make(grammar.read())), (
        "run python -m cvm.parser.lalr_tables"
    )


def test_a_changed_grammar_gives_other_tables() -> None:
    changed = make(grammar.read().replace('FUNC: "func"', 'FUNC: "function"'))
    assert changed.keywords["function"] == "FUNC" and "func" not in changed.keywords
    assert changed.states == tables().states


def test_every_rule_has_a_method_or_one_part() -> None:
    for rule in tables().rules:
        assert rule.makes is None or rule.single or hasattr(Tree, rule.makes), rule
        assert all(re.compile(pattern) for _, pattern in tables().terminals)


def test_reading_takes_no_lark() -> None:
    code = (
        "import sys, cvm; cvm.parse('func @f(%x: tensor<2xi32>) { return %x }'); "
        "print(*sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "lark" not in run.stdout.split()


def test_the_parser_tells_what_it_accepts() -> None:
    parser = Parser()
    for token in scanner().tokens("func @f("):
        parser.feed(token)
    assert parser.accepts("VALUE") and parser.accepts("RPAR") and not parser.accepts("LBRACE")
    before = list(parser.states)
    try:
        parser.feed(Token(END, "", 8, 8))
    except Stuck:
        pass
    else:
        raise AssertionError("a program does not end here")
    assert parser.states[: len(before)] == before
