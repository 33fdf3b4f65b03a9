"""The targets that can run here, and why others cannot."""

from __future__ import annotations

import pytest
from cvm.jit.cuda import nvrtc
from cvm.jit.targets import TARGETS


def missing(target: str) -> str:
    """The missing requirement of a target, or an empty text."""
    if target == "cuda-sim" and not nvrtc.available():
        return f"NVRTC is not installed: {nvrtc.HOW}"
    if target == "cuda":
        from cvm.jit.cuda.device import missing as missing_device

        return missing_device()
    return ""


def _mark(target: str) -> object:
    marks = [pytest.mark.gpu] if target == "cuda" else []
    return pytest.param(
        target, marks=[*marks, pytest.mark.skipif(bool(missing(target)), reason=missing(target) or "it can run")]
    )


HERE = tuple(t for t in TARGETS if not missing(t))
EVERY = [_mark(t) for t in TARGETS]
