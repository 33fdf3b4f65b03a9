"""Bounds of index expressions, from the extents of their indices."""

from __future__ import annotations

from ..ir.sizes import Dim, same_size
from .index import Apply, Const, Expr, Extent, Index, Misalignment, as_index, both


def interval(expr: Expr) -> tuple[int | None, int | None]:
    """Bounds of an index expression over all values of its indices; None where unknown."""
    match expr:
        case Const(value, _):
            return value, value
        case Index(extent=extent):
            return 0, (extent - 1 if isinstance(extent, int) else None)
        case Extent():
            return 0, None
        case Misalignment(_, line):
            return 0, line - 1
        case Apply("add", (a, b), _):
            (al, ah), (bl, bh) = interval(a), interval(b)
            return _plus(al, bl), _plus(ah, bh)
        case Apply("sub", (a, b), _):
            (al, ah), (bl, bh) = interval(a), interval(b)
            return _plus(al, None if bh is None else -bh), _plus(ah, None if bl is None else -bl)
        case Apply("mul", (a, Const(c)), _) | Apply("mul", (Const(c), a), _):
            low, high = (None if v is None else v * c for v in interval(a))
            return (low, high) if c >= 0 else (high, low)
        case Apply("floordiv", (a, Const(c)), _) if c > 0:
            low, high = interval(a)
            return None if low is None else low // c, None if high is None else high // c
        case Apply("floormod", (_, Const(c)), _) if c > 0:
            return 0, c - 1
        case Apply("max", (a, b), _):
            (al, ah), (bl, bh) = interval(a), interval(b)
            lows = [v for v in (al, bl) if v is not None]
            return (max(lows) if lows else None), (None if ah is None or bh is None else max(ah, bh))
        case Apply("min", (a, b), _):
            (al, ah), (bl, bh) = interval(a), interval(b)
            highs = [v for v in (ah, bh) if v is not None]
            return (None if al is None or bl is None else min(al, bl)), (min(highs) if highs else None)
    return None, None


def _plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def inside(index: Expr, extent: Dim) -> Expr | bool:
    """0 <= index < extent, without the comparisons that hold for every value of the indices."""
    low, high = interval(index)
    lower = True if low is not None and low >= 0 else index >= 0
    upper = True if high is not None and isinstance(extent, int) and high < extent else index < as_index(extent)
    if isinstance(index, Index) and (same_size(index.extent, extent)):
        upper = True
    return both(lower, upper)
