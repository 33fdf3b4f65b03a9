"""The operators of the dialect my as functions of arrays, also inside of traced functions."""

from __future__ import annotations

from typing import Any

import cvm


def squared_distance(a: Any, b: Any) -> Any:
    """The squared differences of two vectors of f32 of one size."""
    return cvm.ops.my.squared_distance(a, b)


def thrice(x: Any) -> Any:
    """Three times the elements of an array of f32."""
    return cvm.ops.my.thrice(x)
