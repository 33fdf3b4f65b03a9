"""Arrays of special values among others: zeros, NaN, infinities, halves and limits of types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def special_values(random: np.random.Generator, shape: Sequence[int], dtype: Any) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return random.random(shape) < 0.5
    rare = (
        random.random(shape) < (0.1, 0.5, 1.0)[int(random.integers(3 if kind.kind == "f" else 2))]
    )
    if kind.kind == "f":
        info = np.finfo(kind)
        zeros = [0.0, -0.0, 0.0, -0.0, np.nan, np.inf, -np.inf]
        halves = [0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0, 3.0]
        far = [3e9, -3e9, 2.0**31, -(2.0**31), 2.0**63, 300.0, -129.0, 65504.0]
        edges = [info.max, info.min, info.tiny, -info.tiny, info.smallest_subnormal]
        special = np.array([*zeros, *halves, *far, *edges])
        others = random.standard_normal(shape) * (1, 4, 100)[int(random.integers(3))]
    else:
        limits = np.iinfo(kind)
        most = limits.max
        special = np.array([0, 1, most, limits.min, most - 1, most // 2], kind)
        others = random.integers(limits.min, most, shape, dtype=kind, endpoint=True)
    with np.errstate(all="ignore"):
        chosen = special[random.integers(len(special), size=shape)]
        return np.where(rare, chosen, others).astype(kind)


def moderate_values(random: np.random.Generator, shape: Sequence[int], dtype: Any) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        return random.integers(0 if kind.kind == "u" else -9, 10, shape).astype(kind)
    values = random.standard_normal(shape)
    return (
        (values * (1, 4, 100)[int(random.integers(3))]).astype(kind)
        if kind.kind == "f"
        else values < 0
    )
