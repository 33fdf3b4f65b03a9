"""Two products of words by one, after Winograd (1968):

    x0 y0 + x1 y1 = (x0 + y1) (x1 + y0) - x0 x1 - y0 y1

Of a sum of many, what is taken away depends on the rows alone, or on the columns alone, and is computed once. As many
instructions do the same, but half as many of them are products, for which a processor has fewer places. Exact modulo 2^32
where sums of two factors fit 16 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...dialect.index import Expr, apply, both
from ...dialect.types import I16
from .widths import Sizes


def crossed(row: Sequence[Expr], column: Sequence[Expr]) -> Expr:
    """The products of two words of a row and two of a column, and of both words of each with each other."""
    (x0, x1), (y0, y1) = row, column
    return apply("pairdot", apply("addhalves", x0, y1), apply("addhalves", x1, y0))


def taken(words: Sequence[np.ndarray]) -> np.ndarray:
    """The negative sums of products of known words, halves of both along the last axis, with each other, modulo 2^32."""
    first, second = (w.astype(np.int64) for w in words)
    return (-(first * second).sum(-1)).astype(np.int32)


def fit(sizes: Sizes, times: int) -> Expr | bool:
    """Whether sums of two factors fit 16 bits, each of so many numbers; magnitudes of negative ones count one less."""
    most = I16.limits[1] // times
    if isinstance(sizes.rows, int) and isinstance(sizes.columns, int):
        return sizes.rows + sizes.columns + 2 <= most
    return both(sizes.rows < most // 2, sizes.columns < most // 2)
