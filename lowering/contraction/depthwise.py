"""Windows that move over one array for each channel, as words of their terms:

    for c { for p { for q {
      acc = 0
      for k { for l { acc = acc + x[c, p + k, q + l] * w[c, k, l] } }
      y[c, p, q] = f(acc)
    } } }
    =>  for c {
          words[h, q] = bytes x[c, 2 h, q], ... x[c, 2 h + 3, q]     zeros beyond the edges
          for h { for u of 2 { for q {
            acc = 0
            for l { acc = acc + dot(words[h, q + l], w[c, u, l]) }
            y[c, 2 h + u, q] = f(acc)
          } } }
        }

Weights are constants, packed here. Words are of bytes where no value has a sign and no sum of two
products is beyond 16 bits, else of two terms of 16 bits. Where a word has room for more terms than
a window has rows, several rows of results are computed from it: their weights stand in other places
of a word, with zeros in the rest. The loops are for the passes. Where channels come last, vectors
go along these, and words are made for some lines of results at a time.
"""

from dataclasses import replace
from math import prod

import numpy as np

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.affine import affine
from ...dialect.kernel_ir.expressions import Expr, Index, Tensor, Var, apply, as_index, constant
from ...dialect.kernel_ir.traverse import substitute
from ...dialect.types.sizes import product
from ...dialect.types.tensor_types import I8, I16, I32, I64, UI8
from ..analysis.accesses import depends
from ..analysis.integer_ranges import interval
from ..loops.clone import clone
from ..processor import processor
from . import vnni_packing as vp
from .contraction_problem import Problem, Strategy
from .match_contraction import LoweredContraction, SumOfProducts, kernel_from_body, windowed
from .micro_kernel import INT8_DOT_PRODUCT
from .packed_product import ONES, fit


def lower_depthwise(problem: Problem) -> LoweredContraction | None:
    """The kernel over words; None where it moves no window, or that does not pay."""
    kernel = problem.kernel
    tuning = processor().tuning
    nest = windowed(kernel) or windowed(kernel, channels_last=True)
    if nest is None or nest.accumulator.element is not I32:
        return None
    least, most = tuning.depthwise_terms
    if not least <= prod(map(vp.extent_of, nest.reduction_axes)) <= most:
        return None
    if windowed(kernel) is None:
        return _lower_channels_last(problem, nest)
    (*outer, first, column), (k, *inner) = nest.loops, nest.reduction_axes
    if vp.extent_of(column) < tuning.depthwise_columns:
        return None
    lines = tuple(i for i in outer if depends(nest.a, {i}))
    taps = vp.known_terms(nest.a, problem.constants, (*lines, *nest.reduction_axes))
    many = _terms_of_a_word(nest, problem)
    if taps is None or many is None:
        return None
    at: dict[Expr, Expr] = {}
    rows, h, term = _rows_of_a_word(nest, first, many), first, k
    if rows > 1:
        h, term = Index("h", -(-vp.extent_of(first) // rows)), Index(k.name, many)
        taps = _in_places(taps, len(lines), rows, many)
        at = {first: h * rows, k: term}
    values = substitute(nest.b, at)
    guard = [substitute(g, at) for g in nest.guard]
    words = vp.words_along(term, (term, *inner), many)
    read = vp.only_read(values)
    moving: set[Expr] = {h, column, term, *inner}
    inside = [] if read is None else [n for n, e in enumerate(read.indices) if depends(e, moving)]
    image = vp.image_of(values, guard, words, inside, "stack")
    if image is None or product(image.words.shape) > processor().l2_bytes // 2 // I32.bytes:
        return None
    packed = vp.packed_words(
        taps, words.reduction_axes.index(words.part) - len(words.reduction_axes), many
    )
    weights, sum = Tensor("weights", packed.shape, I32, "constant"), nest.accumulator

    def windows(u: int) -> ir.Block:
        """The sum over a window, and its epilogue, for each column."""
        own = (as_index(u),) if rows > 1 else ()
        term = _product(many, image.words[image.at], weights[(*lines, *own, *words.reduction_axes)])
        terms = ir.nested(words.reduction_axes, (ir.update("add", sum, term),))
        return ir.nested((column,), (ir.Alloc(sum), ir.assign(sum, 0), *terms, *nest.epilogue))

    def of_rows(h: Expr, count: int) -> ir.Block:
        return tuple(
            s for u in range(count) for s in clone(windows(u), {first: h * rows + u}, f"{u}")
        )

    if rows > 1:
        whole, left = divmod(vp.extent_of(first), rows)
        last = ir.substitute_block(clone(of_rows(h, left), {}, "last"), {h: as_index(whole)})
        body = (ir.For(h, of_rows(h, rows), stop=as_index(whole) if left else None), *last)
    else:
        body = ir.nested((first,), windows(0))
    body = ir.nested(outer, (ir.Alloc(image.words), *image.body, *body))
    return LoweredContraction(
        (kernel_from_body(kernel, "windows", body, kernel.outputs),), {}, {weights: packed}
    )


def _lower_channels_last(problem: Problem, nest: SumOfProducts) -> LoweredContraction | None:
    """Lower depthwise windows of arrays with channels last, for lines and a vector of channels at a
    time; None where that does not pay.
    """
    (*outer, first, column, lane), (k, *inner) = nest.loops, nest.reduction_axes
    values = interval(nest.b, problem.ranges, problem.constants)
    sign = min(values.low, 0) * (values.high - values.low <= UI8.limits[1])
    nest = replace(nest, b=nest.b - sign)
    taps = vp.known_terms(nest.a, problem.constants, (*nest.reduction_axes, lane))
    read = vp.only_read(nest.b)
    many = _terms_of_a_word(nest, problem)
    channels, lanes = vp.extent_of(lane), processor().line_bytes // I32.bytes
    if (
        nest.guard
        or read is None
        or taps is None
        or many is None
        or read.indices[-1] is not lane
        or channels < lanes
    ):
        return None
    moving: set[Expr] = {column, *inner}
    across, *rest = [n for n, e in enumerate(read.indices) if depends(e, moving)]
    place = affine(read.indices[across])
    low = place.constant
    if (
        rest
        or not isinstance(low, int)
        or any(i not in moving or f < 1 for i, f in place.terms.values())
    ):
        return None
    width = 1 + sum(
        f * (vp.extent_of(i) - 1) for i, f in place.terms.values() if isinstance(i, Index)
    )
    if many < INT8_DOT_PRODUCT.terms and width >= 2 * vp.extent_of(
        column
    ):  # words are read too rarely
        return None
    rows, lines, acc = _rows_of_a_word(nest, first, many), vp.extent_of(first), nest.accumulator
    packed = vp.packed_words(taps[None] if rows == 1 else _in_places(taps, 0, rows, many), 1, many)
    start = taps.reshape(-1, channels).sum(0, dtype=np.int32) * np.int32(sign)
    weights, more = (
        Tensor(n, e.shape, I32, "constant") for n, e in (("weights", packed), ("more", start))
    )
    h, panel, part, w = map(
        Index,
        ("h", "panel", "part", "w"),
        (-(-lines // rows), -(-channels // lanes), packed.shape[1], width),
    )
    image, c, d = (
        Tensor("image", (packed.shape[1], width, lanes), I32, "stack"),
        Var("c", I64),
        Index("d", lanes),
    )
    if product(image.shape) > processor().l2_bytes // 2 // I32.bytes:
        return None
    value = vp.read_at(
        nest.b, read, [w + low if n == across else e for n, e in enumerate(read.indices)]
    )

    def lines_of(h: Expr, count: int) -> ir.Block:
        """Pack the words of the lines that are read, then sum at each place for `count` lines of
        results.
        """
        inputs = range(vp.extent_of(k) + count - 1)
        terms = [substitute(value, {first: h * rows, k: as_index(n), lane: c + d}) for n in inputs]
        words = [vp.word(terms[n : n + many], many) for n in range(0, len(terms), many)]
        fill = ir.vector_loop(
            d, *(ir.Store(image, (as_index(n), w, d), e) for n, e in enumerate(words))
        )
        sums: ir.Block = ()
        for u in range(count):
            at = image[part, place.plus(-low).expression(), d]
            term = _product(many, at, weights[(as_index(u), part, *inner, lane)])
            terms_of = ir.nested((part, *inner), (ir.update("add", acc, term),), "unrolled")
            window = ir.Alloc(acc), ir.assign(acc, more[lane]), *terms_of, *nest.epilogue
            sums += clone(window, {first: h * rows + u, lane: c + d}, f"{u}")
        body = (ir.Alloc(image), ir.For(w, (fill,)), ir.For(column, (ir.vector_loop(d, *sums),)))
        return ir.nested((panel,), (ir.Let(c, vp.tile_start(panel, channels, lanes)), *body))

    whole, left = divmod(lines, rows)
    last = clone(lines_of(as_index(whole), left), {}, "last") if left else ()
    body = (ir.If(h < whole, lines_of(h, rows), last),) if left else lines_of(h, rows)
    lowered = ir.nested(outer, (ir.For(h, body, kind="serial" if outer else "parallel"),))
    windows = kernel_from_body(problem.kernel, "windows", lowered, problem.kernel.outputs)
    return LoweredContraction((windows,), {}, {weights: packed, more: start})


def _rows_of_a_word(nest: SumOfProducts, first: Index, many: int) -> int:
    """The number of result rows for which words of this many terms serve."""
    k = nest.reduction_axes[0]
    read = vp.only_read(nest.b)
    places = [] if read is None else [affine(e) for e in read.indices if depends(e, {first, k})]
    if len(places) != 1 or places[0].factor(first) != places[0].factor(k):
        return 1
    plain = all(isinstance(atom, Index) for atom, _ in places[0].terms.values())
    return max(1, min(many - vp.extent_of(k) + 1, vp.extent_of(first))) if plain else 1


def _in_places(weights: np.ndarray, axis: int, rows: int, many: int) -> np.ndarray:
    """The weights of `rows` rows of results, along an axis before that of the terms of a word, with
    zeros around them.
    """
    spare = many - weights.shape[axis]
    sides = [
        [(u, spare - u) if n == axis else (0, 0) for n in range(weights.ndim)] for u in range(rows)
    ]
    return np.stack([np.pad(weights, side) for side in sides], axis)


def _terms_of_a_word(nest: SumOfProducts, problem: Problem) -> int | None:
    """The number of terms of these ranges that fit a word; None if none do."""
    weights, values = (interval(e, problem.ranges, problem.constants) for e in (nest.a, nest.b))
    if (
        values.within(UI8)
        and weights.within(I8)
        and (processor().has_int8_dot_product or fit(values.high, weights))
    ):
        return INT8_DOT_PRODUCT.terms
    return 2 if values.within(I16) and weights.within(I16) else None


def _product(many: int, values: Expr, weights: Expr) -> Expr:
    """The dot product of two words."""
    if many != INT8_DOT_PRODUCT.terms:
        return apply("pairdot", values, weights)
    if processor().has_int8_dot_product:
        return apply("quaddot_us", values, weights)
    return apply("pairdot", apply("bytepairs", values, weights), constant(ONES, I32))


def _why_not_windows(problem: Problem) -> str:
    if problem.c is not None:
        return "a factor has rows of its own"
    nest = windowed(problem.kernel) or windowed(problem.kernel, channels_last=True)
    return "" if nest is not None else "no window moves over one array"


DEPTHWISE = Strategy("depthwise", _why_not_windows, lambda problem: 0, lower_depthwise)
