"""The parser's tables are those that the grammar gives."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from cvm.parser.actions import PROGRAMS
from cvm.parser.kernel_actions import KERNELS
from cvm.parser.lalr import Language, Parser, Stuck
from cvm.parser.lalr_tables import END, FOLDER, STARTS, make, tables, text_of
from cvm.parser.recovery import scanner
from cvm.parser.syntax_tree import Token

from cvm import grammar
from cvm.importers.stablehlo.text import HLO


@pytest.mark.parametrize("name", STARTS)
def test_tables_are_up_to_date(name: str) -> None:
    made = make(grammar.read(f"{name}.lark"), STARTS[name])
    assert (FOLDER / f"{name}_tables.json").read_text("utf-8") == text_of(made), (
        "run python -m cvm.parser.lalr_tables"
    )


def test_a_changed_grammar_gives_other_tables() -> None:
    changed = make(grammar.read().replace('FUNC: "func"', 'FUNC: "function"'))
    assert changed.keywords["function"] == "FUNC" and "func" not in changed.keywords
    assert changed.states == tables().states


@pytest.mark.parametrize("language", [PROGRAMS, KERNELS, HLO], ids=lambda language: language.name)
def test_every_rule_has_a_method_or_one_part(language: Language) -> None:
    for rule in tables(language.name).rules:
        made = rule.makes is None or rule.single or hasattr(language.actions, rule.makes)
        assert made, rule
    assert all(re.compile(pattern) for _, pattern in tables(language.name).terminals)


KERNEL = (
    "kernel @k(%x: tensor<2xi32>) -> (%y: tensor<2xi32>) { for %i in 0..2 { %y[%i] = %x[%i] } }"
)
FORMULAS = "formulas @f(%x: tensor<2xi32>) { %y[%i]: tensor<2xi32> = %x[%i] + 1 return %y }"


@pytest.mark.parametrize(
    "read",
    [
        "import cvm; cvm.parse('func @f(%x: tensor<2xi32>) { return %x }')",
        f"from cvm.parser.kernels import read_kernels; read_kernels({KERNEL!r})",
        f"from cvm.parser.formulas import parse_formulas; parse_formulas({FORMULAS!r})",
    ],
    ids=["program", "kernels", "formulas"],
)
def test_parsing_imports_no_lark(read: str) -> None:
    code = f"import sys; {read}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "cvm.parser.lalr" in run.stdout.split() and "lark" not in run.stdout.split()


def test_the_parser_tells_what_it_accepts() -> None:
    parser = Parser(PROGRAMS)
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
