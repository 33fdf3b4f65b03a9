"""Lower a contraction to packed operands and a micro-kernel, one function for each product.

    for r { for q { acc = 0; for k { acc = acc + a[r, k] * b[k, q] }; y[r, q] = f(acc) } }
    =>  rows[r, k / 2] = a[r, k] and a[r, k + 1] as halves of a word
        columns, the same, as an image or as panels
        for panel in columns parallel {
          panel[k / 2, q] = those words of these columns
          for tile in rows {
            sums[6, 16] = 0 in registers
            for k / 2 { sums[r, q] = sums[r, q] + pairdot(rows[r, k / 2], panel[k / 2, q]) }
            y[r, q] = f(sums[r, q])
          }
        }

Words are of two 16-bit terms, or of four bytes. Whether factors fit is known from their ranges or
found by kernels that look at all of them first; the result does not depend on it. Blocks and tiles
that would reach beyond the end move back and compute elements again, so that nothing is masked;
guards become zeros of the panel. Constants are packed beforehand.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.expressions import Expr, Index, apply, both, constant
from ...dialect.kernel_ir.integer_interval import Interval
from ...dialect.kernel_ir.loops import Block, If
from ...dialect.kernel_ir.traverse import substitute
from ...dialect.types.tensor_types import F32, F64, I8, I16, I32, UI8
from ..analysis.integer_ranges import interval
from ..analysis.reduction_order import length
from ..processor import processor
from .contraction_problem import (
    Problem,
    Strategy,
    why_not_bytes,
    why_not_integers,
    why_not_of,
    why_not_panels,
)
from .macro_kernel import PanelTiling
from .match_contraction import Contraction, LoweredContraction
from .micro_kernel import (
    FMA,
    INT8_DOT_PRODUCT,
    INT8_PAIR_PRODUCTS,
    MUL_I32,
    MicroKernel,
    Product,
    pairdot,
)
from .pack_panels import PanelPacking
from .sign_offset import are_bytes, offset_bytes, with_sign_offset
from .vnni_packing import Terms, is_plain, known_terms, only_read, size_of

ONES = 0x10001  # both halves of a word, to widen with
LIMITS = (UI8.limits[1], I8.limits[1])  # of a factor without a sign of which nothing is known
# words whose 16-bit products may be added before they are widened; the ranges decide which
WORDS_PER_WIDENING = (8, 4, 2)
# cost model: factor of byte products whose operands only a call can tell to be bytes: rarely, or
# a range would say so; tuned by hand (Zen 4, Zen 5)
UNPROVED = 1.5
# cost model: factor of panels whose columns are gathered from an image; tuned by hand (Zen 4,
# Zen 5)
GATHERED = 1.15
WordPairs = Sequence[tuple[Expr, Expr]]  # of a row and of columns


def micro_kernel(product: Product, c: Contraction) -> MicroKernel:
    """The micro-kernel of a contraction's panels with the least cost."""
    return product.best(c.row.extent, blocks_of(c))


def blocks_of(c: Contraction) -> int | None:
    """The vectors of columns, as long as the columns of a window go."""
    lanes = processor().tile_vector_bytes // c.accumulator.element.bytes
    columns = c.column.extent
    windows = size_of(c.window)
    return (
        -(-columns // lanes) * windows
        if isinstance(columns, int) and isinstance(windows, int)
        else None
    )


def packing_of(problem: Problem, product: Product) -> PanelPacking:
    c = problem.contraction
    return PanelPacking(PanelTiling(problem.kernel, c, micro_kernel(product, c)), problem.constants)


def lower_mul_i32(problem: Problem) -> LoweredContraction:
    """The kernels of a contraction by products of single 32-bit integers."""
    packing = packing_of(problem, MUL_I32)
    return packing.contracted(_single_integers(packing))


def lower_fma(problem: Problem) -> LoweredContraction:
    """The kernels of a contraction of floats: sums in the order of the terms, or by blocks of them,
    each product rounded with its sum.
    """
    c, packing = problem.contraction, packing_of(problem, FMA)
    tiling = packing.tiling
    terms = Terms(c.reduction_axes)
    if (columns := packing.some_panels(terms)) is None:
        packing.share_rows(tiling.sizes.terms)
        element = packing.panels_of(terms, tiling.k)
        columns = packing.unpacked() if element is None else ((), element)
    fill, column = columns

    def added(sum: Expr, tile: Expr, at: Expr, r: Expr) -> Expr:
        return apply("fma", substitute(c.a, {c.row: at}), column, sum)

    if problem.kernel.sum_order == "blocks":
        first, *inner = c.reduction_axes
        each = length(ir.For(first, ir.nested(inner, ())))
        tiles = tiling.tiles_of_blocks(c.reduction_axes, added, each)
    else:
        tiles = tiling.tiles(c.reduction_axes, added, tiling.parts(tiling.sizes.terms))
    return packing.contracted((*fill, *tiling.order.each_of_group(tiles)))


def _single_integers(packing: PanelPacking) -> Block:
    """The loops of a panel of 32-bit integers."""
    tiling, c = packing.tiling, packing.c
    fill, column = packing.unpacked()

    def added(sum: Expr, tile: Expr, at: Expr, r: Expr) -> Expr:
        return sum + substitute(c.a, {c.row: at}) * column

    return *fill, *tiling.tiles(c.reduction_axes, added, tiling.parts(tiling.sizes.terms))


def panel_of_words(
    packing: PanelPacking, products: Callable[[WordPairs], Expr], words: int = 1
) -> Block | None:
    """The loops of a panel that add `words` words before the sum; None if columns are not read by
    panels.
    """
    steps = packing.words.steps
    packing.share_rows(steps)
    row, columns, step = packing.rows(), packing.columns(), packing.step
    if columns is None:
        return None
    fill, column = columns
    group = step if words == 1 else Index("g", steps // words)
    at: list[dict[Expr, Expr]] = [
        {step: group * words + n} if words > 1 else {} for n in range(words)
    ]

    def added(sum: Expr, tile: Expr, start: Expr, r: Expr) -> Expr:
        a = row(tile, start, r)
        return sum + products([(substitute(a, n), substitute(column, n)) for n in at])

    return *fill, *packing.tiling.tiles((group,), added, packing.tiling.parts(steps))


def lower_pairdot(problem: Problem) -> LoweredContraction | None:
    """The kernels by pairs of 16-bit terms, or single terms where these do not fit; None if they
    never do.
    """
    fits = both(
        *(factor.size <= I16.limits[1] for factor in (problem.sizes.rows, problem.sizes.columns))
    )
    if fits is False:
        return None
    packing = packing_of(problem, pairdot())
    if (body := panel_of_words(packing, lambda words: apply("pairdot", *words[0]))) is None:
        return None
    return packing.contracted(
        body if fits is True else (If(fits, body, _single_integers(packing)),)
    )


@dataclass(frozen=True)
class _Int8DotProduct:
    """The kernels of products of four bytes; the factor of the columns has no sign, or that of the
    rows where `swapped`.
    """

    packing: PanelPacking
    swapped: bool
    function: str = "quaddot_us"

    def offset(self, sign: Expr | bool) -> bool:
        return offset_bytes(self.packing, self.swapped, sign)

    def lower(self) -> LoweredContraction | None:
        body = panel_of_words(
            self.packing,
            lambda words: apply(self.function, *words[0][:: 1 if self.swapped else -1]),
        )
        return None if body is None else self.packing.contracted(body)


def lower_int8_dot_product(problem: Problem) -> LoweredContraction | None:
    """The kernels where the processor adds the products of four bytes to a sum by one
    instruction.
    """
    sizes = problem.sizes
    signed = all(
        isinstance(n, int) and n <= I8.limits[1] for n in (sizes.rows.size, sizes.columns.size)
    )
    if processor().int8_dot_product_is_signed and signed:
        return _Int8DotProduct(packing_of(problem, INT8_DOT_PRODUCT), False, "quaddot").lower()
    return with_sign_offset(
        sizes, lambda swapped: _Int8DotProduct(packing_of(problem, INT8_DOT_PRODUCT), swapped)
    )


# bytes without VNNI: sums of two products in 16 bits, of as many words as fit, then widened


def lower_int8_pair_products(problem: Problem) -> LoweredContraction | None:
    """The kernels that multiply bytes to sums of 16 bits, widened to 32; None where these are never
    exact.

        low = bytepairs(panel[s, q], rows[r, s]); high = bytepairs(panel[s + 1, q], rows[r, s + 1])
        sums[r, q] = sums[r, q] + pairdot(addhalves(low, high), 0x10001)

    One factor has no sign. Words are added before they are widened as long as the factors' ranges,
    u * s * 2 for numbers in [0, u] and [-s, s], or the very numbers of a constant say that sums
    fit.
    """
    c, sizes = problem.contraction, problem.sizes
    sides = (c.a, sizes.rows), (c.b, sizes.columns)
    rows, columns = (
        (interval(e, problem.ranges, problem.constants), magnitude) for e, magnitude in sides
    )
    for (values, unsigned), (signed_values, signed), swapped in (
        (columns, rows, False),
        (rows, columns, True),
    ):
        signed_values = signed_values if isinstance(signed.size, int) else Interval(*I8.limits)
        limits = (values.high,) if isinstance(unsigned.size, int) else LIMITS
        limit = next((u for u in limits if u <= UI8.limits[1] and fit(u, signed_values)), None)
        if (
            (sign := unsigned.negative) is not True
            and limit is not None
            and signed_values.within(I8)
        ):
            no_sign = () if sign is False else (~sign,)
            exact = both(*no_sign, unsigned.size <= limit, signed.size <= I8.limits[1])
            packing = packing_of(problem, INT8_PAIR_PRODUCTS)
            words = _words_per_widening(packing, limit, signed_values, swapped)
            body = panel_of_words(packing, partial(_widened, swapped), words)
            return None if body is None else replace(packing.contracted(body), exact=exact)
    return None


def fit(limit: int, signed: Interval, words: int = 1) -> bool:
    """Test whether sums of the products of this many words fit 16 bits for all bytes."""
    products = 2 * words * limit
    return products * signed.high <= I16.limits[1] and products * -signed.low <= -I16.limits[0]


def _widened(swapped: bool, words: WordPairs) -> Expr:
    """The sum of the products of words of rows and columns."""
    pairs = [apply("bytepairs", *(ab if swapped else ab[::-1])) for ab in words]
    return apply(
        "pairdot", reduce(lambda a, b: apply("addhalves", a, b), pairs), constant(ONES, I32)
    )


def _words_per_widening(packing: PanelPacking, limit: int, signed: Interval, swapped: bool) -> int:
    """The number of consecutive words whose sums of products fit 16 bits everywhere, one factor in
    [0, limit].
    """
    c = packing.c
    factor, lines = (
        (c.b, (*packing.beside, *c.columns)) if swapped else (c.a, (*packing.around, c.row))
    )
    constants = known_terms(factor, packing.known, (*lines, *c.reduction_axes))
    sums = None if constants is None else _sums(packing.words.packed(constants))
    largest = (
        I16.limits[1] // max(limit, 1),
        min(I16.limits[1], -I16.limits[0] // max(limit, 1)),
    )  # as i16
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
    """The sums of the positive and of the negative numbers in the two halves of words, which are a
    last axis.
    """
    halves = np.ascontiguousarray(words).view(np.int8).reshape(*words.shape, 2, 2).astype(np.int16)
    return np.maximum(halves, 0).sum(-1, dtype=np.int16), np.maximum(-halves, 0).sum(
        -1, dtype=np.int16
    )


# the strategies


def unproved(problem: Problem) -> float:
    return 1 if are_bytes(problem) else UNPROVED


def _packed(
    name: str,
    applies: Callable[[Problem], str],
    product: Callable[[], Product],
    lower: Callable[[Problem], LoweredContraction | None],
    adds_blocks: bool = False,
) -> Strategy:
    """The strategy that packs panels for the micro-kernel of a product; panels that are gathered
    from an image cost more.
    """

    def cost(problem: Problem) -> float:
        c = problem.panels.contraction
        own = product()
        read = only_read(c.b)
        gathered = 1 if read is None or is_plain(read) else GATHERED
        vectors = micro_kernel(own, c).cost(c.row.extent, blocks_of(c)) * problem.terms / own.terms
        return vectors * gathered * (unproved(problem) if own is INT8_DOT_PRODUCT else 1)

    return Strategy(
        name,
        applies,
        cost,
        lambda problem: problem.panels.viewed(lower(problem.panels)),
        adds_blocks,
    )


def _why_not_vnni(required: bool, problem: Problem) -> str:
    if why := why_not_bytes(problem):
        return why
    present = processor().has_int8_dot_product
    if present is required:
        return ""
    return f"the processor has {'a' if present else 'no'} dot product of four bytes"


def _why_not_fma(problem: Problem) -> str:
    guarded = problem.c is not None and problem.c.guard
    zeros = "a zero in place of a guarded operand could make a NaN" if guarded else ""
    axes = () if problem.c is None else problem.c.reduction_axes
    open_blocks = problem.kernel.sum_order == "blocks" and any(
        not isinstance(i.extent, int) for i in axes
    )
    branch = "blocks are of inner terms where the outer loop turns out to have one iteration"
    blocks = branch if open_blocks and len(axes) > 1 else ""
    return why_not_of(problem, F32, F64) or zeros or blocks or why_not_panels(problem)


PACKED = (
    _packed(
        "int8_dot_product",
        partial(_why_not_vnni, True),
        lambda: INT8_DOT_PRODUCT,
        lower_int8_dot_product,
    ),
    _packed(
        "int8_pair_products",
        partial(_why_not_vnni, False),
        lambda: INT8_PAIR_PRODUCTS,
        lower_int8_pair_products,
    ),
    _packed("pairdot", lambda p: why_not_integers(p) or why_not_panels(p), pairdot, lower_pairdot),
    _packed(
        "mul_i32", lambda p: why_not_of(p, I32) or why_not_panels(p), lambda: MUL_I32, lower_mul_i32
    ),
    _packed("fma", _why_not_fma, lambda: FMA, lower_fma, adds_blocks=True),
)
