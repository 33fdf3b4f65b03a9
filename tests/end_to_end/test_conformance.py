"""Every recorded case holds on every target; without `--all` a few of each operator."""

from __future__ import annotations

import pytest
from available_targets import EVERY
from conformance_cases import cases, failures
from cvm.commands.ops import by_dialect

FEW = 3  # cases of an operator on each target in the quick tier


@pytest.mark.filterwarnings("error", r"ignore:.*\[cog\.feedback\.trimmed\]")  # some cases have drivers that are trimmed
@pytest.mark.parametrize("target", EVERY)
@pytest.mark.parametrize("op", cases())
def test(op: str, target: str) -> None:
    wrong = list(failures(op, target, FEW))
    assert not wrong, f"{len(wrong)} of {len(cases()[op])} cases do not hold\n\n" + "\n".join(wrong)


def test_every_case_counts_for_an_operator() -> None:
    names = {op.name for ops in by_dialect().values() for op in ops}
    assert cases().keys() <= names
