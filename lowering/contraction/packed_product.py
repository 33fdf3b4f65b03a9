"""Lower a contraction to packed operands and a micro-kernel, one function for each product.

    for r { for q { acc = 0; for k { acc = acc + a[r, k] * b[k, q] }; y[r, q] = f(acc) } }
    =>  rows[r, k / 2] = a[r, k] and a[r, k + 1] as halves of a word       the same for the columns, as an image or as panels
        for panel in columns parallel {
          panel[k / 2, q] = those words of these columns
          for tile in rows {
            sums[6, 16] = 0 in registers
            for k / 2 { sums[r, q] = sums[r, q] + pairdot(rows[r, k / 2], panel[k / 2, q]) }
            y[r, q] = f(sums[r, q])
          }
        }

Words are of two 16-bit terms, or of four bytes. Whether factors fit is known from their ranges or found by kernels that look
at all of them first; the result does not depend on it. Blocks and tiles that would reach beyond the end move back and
compute elements again, so that nothing is masked; guards become zeros of the panel. Constants are packed beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import numpy as np

from ...dialect.ir.sizes import product
from ...dialect.ir.types import I8, I16, I32, UI8
from ...dialect.notation.expressions import Expr, Index, Tensor, apply, both, constant
from ...dialect.notation.interval import Interval
from ...dialect.notation.loops import Block, If, Kernel
from ...dialect.notation.traverse import substitute
from ..analysis.integer_ranges import Ranges, interval
from ..processor import processor
from .macro_kernel import PanelTiling
from .match import Contraction, LoweredContraction
from .micro_kernel import FMA, INT8_DOT_PRODUCT, INT8_PAIR_PRODUCTS, MIN_ORDERED, MUL_I32, MicroKernel, Product, pairdot
from .operand_bitwidths import OperandMagnitudes
from .pack_panels import PanelPacking
from .sign_offset import Version, offset_bytes, with_sign_offset
from .vnni_packing import Terms, at_least, known_terms, size_of

ONES = 0x10001  # both halves of a word, to widen with
LIMITS = (UI8.limits[1], I8.limits[1])  # of a factor without a sign of which nothing is known
WORDS_PER_WIDENING = (8, 4, 2)  # whose products may be added before they are widened
Constants = Mapping[Tensor, np.ndarray]
Words = Sequence[tuple[Expr, Expr]]  # of a row and of columns


def worth_packing(c: Contraction) -> Expr | bool:
    """Test whether tiles are filled and there are enough products; a run-time condition for unknown sizes."""
    rows, columns, terms = c.row.extent, c.column.extent, product(tuple(i.extent for i in c.reduction_axes))
    work = rows * columns * size_of(c.window) * terms
    exact = c.accumulator.element.is_integer and isinstance(rows, int)
    wanted = (
        (rows, processor().tuning.packed_rows if exact else MIN_ORDERED),
        (columns, max(processor().lanes, MIN_ORDERED)),
        (terms, processor().tuning.packed_terms),
        (work, processor().packing_products),
    )
    return both(*(at_least(n, least) for n, least in wanted))


def micro_kernel(product: Product, c: Contraction) -> MicroKernel:
    """The micro-kernel of a contraction's panels with the least cost."""
    return product.best(c.row.extent, blocks_of(c))


def product_cost(product: Product, c: Contraction) -> float:
    """The vector instructions of a step of all tiles."""
    return micro_kernel(product, c).cost(c.row.extent, blocks_of(c))


def blocks_of(c: Contraction) -> int | None:
    """The vectors of columns, as long as the columns of a window go."""
    lanes = processor().tile_vector_bytes // c.accumulator.element.bytes
    columns, windows = c.column.extent, size_of(c.window)
    return -(-columns // lanes) * windows if isinstance(columns, int) and isinstance(windows, int) else None


def packing_of(kernel: Kernel, c: Contraction, constants: Constants, product: Product) -> PanelPacking:
    return PanelPacking(PanelTiling(kernel, c, micro_kernel(product, c)), constants)


def lower_single_terms(kernel: Kernel, c: Contraction, constants: Constants) -> LoweredContraction:
    """The kernels of a contraction whose products are of single terms, of 32-bit integers or floats. Sums of floats go in the
    order of the terms, each product rounded with its sum."""
    if c.accumulator.element is I32:
        packing = packing_of(kernel, c, constants, MUL_I32)
        return packing.contracted(_single_integers(packing))
    packing, terms = packing_of(kernel, c, constants, FMA), Terms(c.reduction_axes)
    tiling, columns = packing.tiling, packing.some_panels(terms)
    if columns is None:
        packing.share_rows(tiling.terms)
        element = packing.panels_of(terms, tiling.k)
        columns = packing.unpacked() if element is None else ((), element)
    fill, column = columns

    def added(sum: Expr, tile: Expr, at: Expr, r: Expr) -> Expr:
        return apply("fma", substitute(c.a, {c.row: at}), column, sum)

    tiles = tiling.tiles(c.reduction_axes, added, tiling.parts(tiling.terms))
    return packing.contracted((*fill, *tiling.each_of_group(tiles)))


def _single_integers(packing: PanelPacking) -> Block:
    """The loops of a panel of 32-bit integers."""
    tiling, c = packing.tiling, packing.c
    fill, column = packing.unpacked()

    def added(sum: Expr, tile: Expr, at: Expr, r: Expr) -> Expr:
        return sum + substitute(c.a, {c.row: at}) * column

    return *fill, *tiling.tiles(c.reduction_axes, added, tiling.parts(tiling.terms))


def _words(packing: PanelPacking, products: Callable[[Words], Expr], words: int = 1) -> Block | None:
    """The loops of a panel of words, of which so many are multiplied and added before the sum; None where columns cannot be
    read so."""
    packing.share_rows(packing.words.steps)
    row, columns, step = packing.rows(), packing.columns(), packing.step
    if columns is None:
        return None
    fill, column = columns
    group = step if words == 1 else Index("g", packing.words.steps // words)
    at: list[dict[Expr, Expr]] = [{step: group * words + n} if words > 1 else {} for n in range(words)]

    def added(sum: Expr, tile: Expr, start: Expr, r: Expr) -> Expr:
        a = row(tile, start, r)
        return sum + products([(substitute(a, n), substitute(column, n)) for n in at])

    return *fill, *packing.tiling.tiles((group,), added, packing.tiling.parts(packing.words.steps))


def lower_pairdot(
    kernel: Kernel, c: Contraction, sizes: OperandMagnitudes, constants: Constants
) -> LoweredContraction | None:
    """The kernels of an integer contraction by pairs of terms, where they fit 16 bits, and else by single terms; None where
    operands cannot be read so, or never fit."""
    held = both(*(n <= I16.limits[1] for n in (sizes.rows, sizes.columns)))
    if held is False:
        return None
    packing = packing_of(kernel, c, constants, pairdot())
    body = _words(packing, lambda words: apply("pairdot", *words[0]))
    if body is None:
        return None
    return packing.contracted(body if held is True else (If(held, body, _single_integers(packing)),))


class _Int8DotProduct:
    """The kernels of products of four bytes; the factor of the columns has no sign, or that of the rows where `swapped`."""

    def __init__(self, packing: PanelPacking, swapped: bool, function: str = "quaddot_us") -> None:
        self.packing, self.swapped, self.function = packing, swapped, function

    def offset(self, sign: Expr | bool) -> bool:
        return offset_bytes(self.packing, self.swapped, sign)

    def lower(self) -> LoweredContraction | None:
        body = _words(self.packing, lambda words: apply(self.function, *words[0][:: 1 if self.swapped else -1]))
        return None if body is None else self.packing.contracted(body)


def lower_int8_dot_product(
    kernel: Kernel, c: Contraction, sizes: OperandMagnitudes, constants: Constants
) -> Version | None:
    """The kernels where the processor adds the products of four bytes to a sum by one instruction, and where they are exact."""

    def kernels(swapped: bool, function: str = "quaddot_us") -> _Int8DotProduct:
        return _Int8DotProduct(packing_of(kernel, c, constants, INT8_DOT_PRODUCT), swapped, function)

    if processor().int8_dot_product_is_signed and all(
        isinstance(n, int) and n <= I8.limits[1] for n in (sizes.rows, sizes.columns)
    ):
        made = kernels(False, "quaddot").lower()
        return None if made is None else (made, True)
    return with_sign_offset(sizes, kernels)


# bytes without VNNI: sums of two products in 16 bits, of as many words as fit, then widened


def lower_int8_pair_products(
    kernel: Kernel, c: Contraction, sizes: OperandMagnitudes, constants: Constants, ranges: Ranges
) -> Version | None:
    """The kernels that multiply bytes to sums of 16 bits, widened to 32, and where these are exact; None where never.

        low = bytepairs(panel[s, q], rows[r, s]); high = bytepairs(panel[s + 1, q], rows[r, s + 1])
        sums[r, q] = sums[r, q] + pairdot(addhalves(low, high), 0x10001)

    One factor has no sign. Words are added before they are widened as long as the factors' ranges, u * s * 2 for numbers in
    [0, u] and [-s, s], or the very numbers of a constant say that sums fit.
    """
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
            packing = packing_of(kernel, c, constants, INT8_PAIR_PRODUCTS)
            words = _words_per_widening(packing, limit, signed, swapped)
            body = _words(packing, lambda words, swapped=swapped: _widened(words, swapped), words)
            return None if body is None else (packing.contracted(body), known)
    return None


def fit(limit: int, signed: Interval, words: int = 1) -> bool:
    """Test whether sums of the products of this many words fit 16 bits for all bytes."""
    products = 2 * words * limit
    return products * signed.high <= I16.limits[1] and products * -signed.low <= -I16.limits[0]


def _widened(words: Words, swapped: bool) -> Expr:
    """The sum of the products of words of rows and columns."""
    pairs = [apply("bytepairs", *(ab if swapped else ab[::-1])) for ab in words]
    return apply("pairdot", reduce(lambda a, b: apply("addhalves", a, b), pairs), constant(ONES, I32))


def _words_per_widening(packing: PanelPacking, limit: int, signed: Interval, swapped: bool) -> int:
    """The number of consecutive words whose sums of products fit 16 bits everywhere, one factor in [0, limit]."""
    c = packing.c
    factor, lines = (c.b, (*packing.beside, *packing.tiling.lines)) if swapped else (c.a, (*packing.around, c.row))
    known = known_terms(factor, packing.known, (*lines, *c.reduction_axes))
    sums = None if known is None else _sums(packing.words.packed(known))
    largest = I16.limits[1] // max(limit, 1), min(I16.limits[1], -I16.limits[0] // max(limit, 1))  # as i16
    for words in WORDS_PER_WIDENING:
        if packing.words.steps % words == 0:
            if fit(limit, signed, words):
                return words
            if sums is not None:
                added = (s.reshape(-1, words, 2).sum(1) for s in sums)
                if all(s.max() <= most for s, most in zip(added, largest, strict=True)):
                    return words
    return 1


def _sums(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sums of the positive and of the negative numbers in the two halves of words, which are a last axis."""
    halves = np.ascontiguousarray(words).view(np.int8).reshape(*words.shape, 2, 2).astype(np.int16)
    return np.maximum(halves, 0).sum(-1, dtype=np.int16), np.maximum(-halves, 0).sum(-1, dtype=np.int16)
