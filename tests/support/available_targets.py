"""The targets that can run here, and why others cannot."""

from __future__ import annotations

import pytest
from cvm.jit.targets import TARGETS


def _mark(target: str) -> object:
    marks = [pytest.mark.gpu] if target == "cuda" else []
    lacking = TARGETS[target].missing()
    return pytest.param(
        target, marks=[*marks, pytest.mark.skipif(bool(lacking), reason=lacking or "it can run")]
    )


HERE = tuple(t for t in TARGETS if not TARGETS[t].missing())
EVERY = [_mark(t) for t in TARGETS]
