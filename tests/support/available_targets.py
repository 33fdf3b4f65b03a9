"""The targets that can run here, and why others cannot."""

from __future__ import annotations

import pytest
from cvm.jit.host_processor import check_runs_here, resolve
from cvm.jit.targets import TARGETS

import cvm


def _mark(target: str) -> object:
    marks = [pytest.mark.gpu] if target == "cuda" else []
    lacking = TARGETS[target].missing()
    return pytest.param(
        target, marks=[*marks, pytest.mark.skipif(bool(lacking), reason=lacking or "it can run")]
    )


HERE = tuple(t for t in TARGETS if not TARGETS[t].missing())
EVERY = [_mark(t) for t in TARGETS]


def _runs(cpu: str) -> bool:
    try:
        check_runs_here(resolve(cpu))
    except cvm.TargetError:
        return False
    return True


WIDTHS = tuple(cpu for cpu in ("x86-64-v2", "x86-64-v3", "x86-64-v4") if _runs(cpu))
