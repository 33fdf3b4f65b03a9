"""Every recorded case holds on every target."""

from __future__ import annotations

import pytest
from cases import cases, failures
from targets import EVERY


@pytest.mark.parametrize("target", EVERY)
@pytest.mark.parametrize("op", cases())
def test(op: str, target: str) -> None:
    wrong = list(failures(op, target))
    assert not wrong, f"{len(wrong)} of {len(cases()[op])} cases do not hold\n\n" + "\n".join(wrong)
