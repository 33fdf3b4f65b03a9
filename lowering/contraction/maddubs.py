"""Contractions of bytes, where one factor is known to have no sign: sums of products in 16 bits, then in 32:

    for s / 2 {
      low = bytepairs(panel[s, q], rows[r, s]); high = bytepairs(panel[s + 1, q], rows[r, s + 1])
      sums[r, q] = sums[r, q] + pairdot(addhalves(low, high), 0x10001)
    }

A word has four terms; `bytepairs` makes two sums of them, of 16 bits each. As long as those of several words fit, they are
added before they are widened: exact where the factors' ranges say so, u * s * 2 for numbers in [0, u] and [-s, s], or the
very numbers of a constant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np

from ...dialect.ir.types import I8, I32, UI8
from ...dialect.notation.expressions import Expr, Index, Tensor, apply, both, constant
from ...dialect.notation.interval import Interval
from ...dialect.notation.loops import Kernel
from ...dialect.notation.traverse import substitute
from ..analysis.integer_ranges import Ranges, interval
from .k_packing import known_terms, pack_k_axis
from .match import Contraction, LoweredContraction
from .operand_bitwidths import OperandMagnitudes
from .pack_panels import PackedContraction

TERMS_PER_WORD = 4  # terms of a word
HEIGHT = 4  # rows of a tile: 8 sums, 4 vectors of the panel and two factors fill 16 registers
ONES = 0x10001  # both halves, to widen with
POSITIVE, NEGATIVE = (1 << 15) - 1, 1 << 15  # the largest sums of 16 bits
LIMITS = (UI8.limits[1], I8.limits[1])  # of a factor without a sign of which nothing is known
TOGETHER = (8, 4, 2)  # words whose products are added before they are widened


def lower_maddubs(
    kernel: Kernel, c: Contraction, sizes: OperandMagnitudes, constants: Mapping[Tensor, np.ndarray], ranges: Ranges
) -> tuple[LoweredContraction, Expr | bool] | None:
    """The kernels that multiply bytes, and where they compute what they should; None where they never do."""
    rows, columns = (interval(e, ranges, constants) for e in (c.a, c.b))
    below, under = sizes.negative
    for unsigned, size, signed, others, sign, swapped in (
        (columns, sizes.columns, rows, sizes.rows, under, False),
        (rows, sizes.rows, columns, sizes.columns, below, True),
    ):
        signed = signed if isinstance(others, int) else Interval(*I8.limits)
        limits = (unsigned.high,) if isinstance(size, int) else LIMITS
        limit = next((u for u in limits if u <= UI8.limits[1] and fit(u, signed)), None)
        if sign is not True and limit is not None and signed.within(I8):
            known = both(*([] if sign is False else [~sign]), size <= limit, others <= I8.limits[1])
            made = _Bytes(kernel, c, constants, limit, signed, swapped).made()
            return None if made is None else (made, known)
    return None


def fit(limit: int, signed: Interval, words: int = 1) -> bool:
    """Test whether sums of the products of this many words fit 16 bits for all bytes."""
    products = 2 * words * limit
    return products * signed.high <= POSITIVE and products * -signed.low <= NEGATIVE


class _Bytes(PackedContraction):
    """One factor is in [0, limit], that of the rows where they are `swapped`, the other in `signed`."""

    def __init__(
        self,
        kernel: Kernel,
        c: Contraction,
        constants: Mapping[Tensor, np.ndarray],
        limit: int,
        signed: Interval,
        swapped: bool,
    ) -> None:
        super().__init__(kernel, c, constants, pack_k_axis(c.folds, TERMS_PER_WORD))
        self.limit, self.signed, self.swapped = limit, signed, swapped
        self.most = (POSITIVE // max(limit, 1), min(POSITIVE, NEGATIVE // max(limit, 1)))  # i16 too, as the sums are

    def made(self) -> LoweredContraction | None:
        height = self.height(HEIGHT)
        self.share_rows(height, self.words.steps)
        columns = self.columns()
        if columns is None:
            return None
        fill, column = columns
        known = self.known_words()
        words = self.neighbours(known)
        row = self.rows(height)
        group = Index("g", self.words.steps // words)
        at: list[dict[Expr, Expr]] = [{self.step: group * words + n} for n in range(words)]

        def sum(before: Expr, tile: Expr, start: Expr, r: Expr) -> Expr:
            a = row(tile, start, r)
            return before + self.products([(substitute(a, n), substitute(column, n)) for n in at])

        return self.contracted((*fill, *self.tiles((group,), height, sum, self.parts(self.words.steps))))

    def products(self, words: Sequence[tuple[Expr, Expr]]) -> Expr:
        """The sum of the products of words of rows and columns."""
        pairs = [apply("bytepairs", *(ab if self.swapped else ab[::-1])) for ab in words]
        return apply("pairdot", reduce(lambda a, b: apply("addhalves", a, b), pairs), constant(ONES, I32))

    def known_words(self) -> np.ndarray | None:
        """A constant signed factor's words, its lines first."""
        factor, lines = (
            (self.c.b, (*self.beside, *self.lines)) if self.swapped else (self.c.a, (*self.around, self.c.row))
        )
        known = known_terms(factor, self.known, (*lines, *self.c.folds))
        return None if known is None else self.words.packed(known)

    def neighbours(self, known: np.ndarray | None) -> int:
        """The number of consecutive words that are adjacent everywhere."""
        for words in TOGETHER:
            if self.words.steps % words == 0:
                if fit(self.limit, self.signed, words):
                    return words
                if known is not None:
                    sums = (s.reshape(-1, words, 2).sum(1) for s in _sums(known))
                    if all(s.max() <= most for s, most in zip(sums, self.most, strict=True)):
                        return words
        return 1


def _sums(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sums of the positive and of the negative numbers in the two halves of words, which are a last axis."""
    halves = np.ascontiguousarray(words).view(np.int8).reshape(*words.shape, 2, 2).astype(np.int16)
    return np.maximum(halves, 0).sum(-1, dtype=np.int16), np.maximum(-halves, 0).sum(-1, dtype=np.int16)
