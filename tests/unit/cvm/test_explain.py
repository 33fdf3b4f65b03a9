"""`cvm explain`: every rule has a text, a wrong program breaks it, and a right one does not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cvm.dialect.ir.warn_unused_values import unused_values
from cvm.dialect.spec.operator import OPERATORS
from cvm.parser import check
from cvm.parser.error_examples import snippets

from cvm import cli
from cvm.commands.explain import GENERAL, rule_of, rules, violations

ROOT = Path(__file__).parents[3]
CODES = re.compile(
    r'"((?:parse|op|value|func|call|const|graph|kernel|limit|program|pass|pattern|rewrite|lowering|strategy)\.[a-z_]+)"'
)
NO_CODES = {
    "func.func",
    "func.call",
    "program.o",
    "program.so",
    "program.cu",
    "kernel.fault",
    "kernel.shapes",
}  # names that only look like one


def codes(program: str) -> set[str]:
    module, mistakes = check(program)
    found = {d.code for d in mistakes} or {
        d.code for f in module.functions.values() for d in unused_values(f)
    }
    return found or ({"program.empty"} if not module.functions else set())


@pytest.mark.parametrize("code", rules())
def test_general_rules(code: str) -> None:
    _, wrong, right = rules()[code]
    if wrong or code == "program.empty":
        assert code in codes(wrong)
    assert not right or codes(right) == set()


def stated(text: str) -> Iterator[str]:
    """The codes that calls of `Diagnostic` state, of f-strings the part after an operator's
    name.
    """
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Diagnostic":
            for code in (*node.args[2:3], *(k.value for k in node.keywords if k.arg == "code")):
                last = code.values[-1] if isinstance(code, ast.JoinedStr) else code
                if isinstance(last, ast.Constant):
                    yield last.value


def test_every_code_has_a_rule() -> None:
    used = {said.code for said, _, _ in snippets()}
    for folder in ("parser", "dialect", "lowering", "cvm", "jit"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text("utf-8")
            used |= {*CODES.findall(text), *stated(text)}
    general = {f".{suffix}" for suffix in GENERAL}  # after an operator's name
    assert {".overflow", ".destroyed"} <= used & general
    assert used - NO_CODES - general == set(rules())


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_constraints(name: str) -> None:
    operator = OPERATORS[name]
    for rule in (*operator.placement, *operator.constraints, *operator.afterwards):
        code = f"{name}.C{rule.number}"
        found = rule_of(code)
        assert found is not None and found.text == rule.text and found.right
        assert "// called as" in found.wrong or codes(found.wrong) == {code}, code


def test_violations_are_of_rules_that_there_are() -> None:
    assert [code for code in violations() if rule_of(code) is None] == []


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "cvm.dense.C2"]) == 0
    said = capsys.readouterr().out
    assert (
        said.startswith("cvm.dense.C2: dim(x, 1) = dim(w, 1)\n\nwrong\n  func @")
        and "\n\nright\n  func @main" in said
    )
    assert cli.main(["explain", "cvm.dense.attributes"]) == 0
    assert GENERAL["attributes"] in capsys.readouterr().out
    assert cli.main(["explain", "parse.brase"]) == 2
    assert "did you mean parse.brace" in capsys.readouterr().err
