"""Every constraint of every operator is broken by a filetest, at the offending line."""

from __future__ import annotations

from pathlib import Path

import pytest
from cvm.dialect.spec.operator import OPERATORS

from cvm.testing.commands import calls_of
from cvm.testing.filetest import Filetest

FOLDER = Path(__file__).parents[2] / "filetests"
FILES = [Filetest.load(p) for p in sorted(FOLDER.rglob("*.cvm"))]
BROKEN = {e.code for f in FILES for e in f.expected("error") if "check" in f.commands}
BROKEN |= {
    call.error.partition(":")[0].strip()
    for f in FILES
    for _, _, call in calls_of(f)
    if "run" in f.commands
}


@pytest.mark.parametrize(
    "name", sorted(n for n, op in OPERATORS.items() if op.constraints or op.placement)
)
def test_every_constraint_is_broken(name: str) -> None:
    if not (FOLDER / OPERATORS[name].dialect).is_dir():
        pytest.skip("the dialect has no filetests yet")
    rules = (*OPERATORS[name].placement, *OPERATORS[name].constraints, *OPERATORS[name].afterwards)
    unbroken = [
        f"{name}.C{c.number}: {c.text}" for c in rules if f"{name}.C{c.number}" not in BROKEN
    ]
    assert not unbroken, "no filetest breaks " + "; ".join(unbroken)
