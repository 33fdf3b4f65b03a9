"""Every recorded case holds on every target; without `--all` a few of each operator.

On the cpu, arrays lie beside pages whose access ends the process, and each case is called in a
batch, too.
"""

from __future__ import annotations

import guard_pages
import pytest
from available_targets import EVERY
from conformance_cases import cases, failures

from cvm.terminal.operator_pages import by_dialect

FEW = 3  # cases of an operator on each target in the quick tier


@pytest.mark.filterwarnings(
    "error", r"ignore:.*\[cog\.feedback\.trimmed\]"
)  # some cases have drivers that are trimmed
@pytest.mark.parametrize("target", EVERY)
@pytest.mark.parametrize("op", cases())
def test(op: str, target: str) -> None:
    with guard_pages.beside(target == "cpu"):
        wrong = list(failures(op, target, FEW))
    assert not wrong, f"{len(wrong)} of {len(cases()[op])} cases do not hold\n\n" + "\n".join(wrong)


def test_every_case_counts_for_an_operator() -> None:
    names = {op.name for ops in by_dialect().values() for op in ops}
    assert cases().keys() <= names
