"""The operators' examples and the programs in examples/: each runs alike on every target."""

from __future__ import annotations

from pathlib import Path

import pytest
from cvm.dialect.spec.operator import OPERATORS
from targets_agree import agree

import cvm
from cvm.terminal.operator_pages import by_dialect, page, summary

ROOT = Path(__file__).parents[2]
OPS = sorted(name for members in by_dialect().values() for name in (op.name for op in members))
PROGRAMS = sorted(
    p for p in (ROOT / "examples").rglob("*.cvm") if p.parts[-2] not in ("tests", "passes")
)


@pytest.mark.parametrize("name", OPS)
def test_operator_page(name: str) -> None:
    op = OPERATORS[name]
    assert summary(op), "it has no docstring"
    assert op.example, "it has no example"
    assert f" {name} " in op.example or f'"{name}"' in op.example
    assert all(f"C{c.number} " in page(op) and c.text in page(op) for c in op.constraints)
    agree(cvm.parse(op.example, f"{name}.cvm"))


@pytest.mark.parametrize("path", PROGRAMS, ids=[str(p.relative_to(ROOT)) for p in PROGRAMS])
def test_program(path: Path) -> None:
    agree(cvm.load(path))
