"""Kernels beside the Python functions that they are compiled from."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvm


def check(function: Callable[..., Any], *arguments: Any) -> None:
    """Require that a kernel returns and stores what its function does."""
    kernel = cvm.kernel(function)
    for _ in range(2):  # the first call of a version goes through Python
        ours, pythons = (
            [np.copy(a) if isinstance(a, np.ndarray) else a for a in arguments] for _ in range(2)
        )
        with np.errstate(all="ignore"):
            wanted = function(*pythons)
        np.testing.assert_equal(kernel(*ours), wanted)
        np.testing.assert_equal(ours, pythons)


def check_mistake(message: str, text: str, folder: Path, *arguments: Any) -> None:
    """Require an error with a message in the second line of a function `f`, given as text."""
    source = folder / "k.py"
    source.write_text(text)
    space: dict[str, Any] = {"np": np, "math": math}
    exec(compile(text, str(source), "exec"), space)
    with pytest.raises(cvm.Error, match=message) as found:
        cvm.kernel(space["f"])(*arguments)
    assert "k.py:2:" in str(found.value)
