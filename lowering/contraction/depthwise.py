"""Windows that move over one array for each channel, as words of their terms:

    for c { for p { for q { acc = 0; for k { for l { acc = acc + x[c, p + k, q + l] * w[c, k, l] } }; y[c, p, q] = f(acc) } } }
    =>  for c {
          words[h, q] = the bytes x[c, 2 h, q], x[c, 2 h + 1, q], ... x[c, 2 h + 3, q]     zeros beyond the edges
          for h { for u of 2 { for q {
            acc = 0; for l { acc = acc + the dot product of words[h, q + l] and w[c, u, l] }; y[c, 2 h + u, q] = f(acc)
          } } }
        }

Weights are constants, packed here. Words are of bytes where no value has a sign and no sum of two products is beyond 16
bits, else of two terms of 16 bits. Where a word has room for more terms than a window has rows, several rows of results are
computed from it: their weights stand in other places of a word, with zeros in the rest. The loops are for the passes.
"""

from math import prod

import numpy as np

from ...dialect.ir.sizes import product
from ...dialect.ir.types import I8, I16, I32, UI8
from ...dialect.notation.affine import affine
from ...dialect.notation.expressions import Expr, Index, Tensor, apply, as_index, constant
from ...dialect.notation.loops import Alloc, Block, For, assign, nested, substitute_block, update
from ...dialect.notation.traverse import substitute
from ..analysis.accesses import depends
from ..analysis.integer_ranges import interval
from ..loops.clone import clone
from ..processor import processor
from .match import LoweredContraction, SumOfProducts, kernel_from_body, windowed
from .micro_kernel import INT8_DOT_PRODUCT
from .packed_product import ONES, fit
from .problem import Problem, Strategy
from .vnni_packing import extent_of, image_of, known_terms, only_read, packed_words, words_along


def lower_depthwise(problem: Problem) -> LoweredContraction | None:
    """The kernel over words; None where it moves no window, or that does not pay."""
    kernel, tuning = problem.kernel, processor().tuning
    if (nest := windowed(kernel)) is None or nest.accumulator.element is not I32:
        return None
    (*outer, first, column), (k, *inner) = nest.loops, nest.reduction_axes
    least, most = tuning.depthwise_terms
    if not least <= prod(map(extent_of, nest.reduction_axes)) <= most or extent_of(column) < tuning.depthwise_columns:
        return None
    lines = tuple(i for i in outer if depends(nest.a, {i}))
    known = known_terms(nest.a, problem.constants, (*lines, *nest.reduction_axes))
    many = _terms_of_a_word(nest, problem)
    if known is None or many is None:
        return None
    at: dict[Expr, Expr] = {}
    rows, h, term = _rows_of_a_word(nest, many), first, k
    if rows > 1:
        h, term = Index("h", -(-extent_of(first) // rows)), Index(k.name, many)
        known = _in_places(known, len(lines), rows, many)
        at = {first: h * rows, k: term}
    values, guard = substitute(nest.b, at), [substitute(g, at) for g in nest.guard]
    words = words_along(term, (term, *inner), many)
    read = only_read(values)
    moving: set[Expr] = {h, column, term, *inner}
    inside = [] if read is None else [n for n, e in enumerate(read.indices) if depends(e, moving)]
    image = image_of(values, guard, words, inside, "stack")
    if image is None or product(image.words.shape) > processor().l2_bytes // 2 // I32.bytes:
        return None
    packed = packed_words(known, words.reduction_axes.index(words.part) - len(words.reduction_axes), many)
    weights, sum = Tensor("weights", packed.shape, I32, "constant"), nest.accumulator

    def windows(u: int) -> Block:
        """The sum over a window, and its epilogue, for each column."""
        own = (as_index(u),) if rows > 1 else ()
        term = _product(many, image.words[image.at], weights[(*lines, *own, *words.reduction_axes)])
        terms = nested(words.reduction_axes, (update("add", sum, term),))
        return nested((column,), (Alloc(sum), assign(sum, 0), *terms, *nest.epilogue))

    def of_rows(h: Expr, count: int) -> Block:
        return tuple(s for u in range(count) for s in clone(windows(u), {first: h * rows + u}, f"{u}"))

    if rows > 1:
        whole, left = divmod(extent_of(first), rows)
        last = substitute_block(clone(of_rows(h, left), {}, "last"), {h: as_index(whole)})
        body = (For(h, of_rows(h, rows), stop=as_index(whole) if left else None), *last)
    else:
        body = nested((first,), windows(0))
    body = nested(outer, (Alloc(image.words), *image.body, *body))
    return LoweredContraction((kernel_from_body(kernel, "windows", body, kernel.outputs),), {}, {weights: packed})


def _rows_of_a_word(nest: SumOfProducts, many: int) -> int:
    """The number of result rows for which words of this many terms serve."""
    first, k, read = nest.loops[-2], nest.reduction_axes[0], only_read(nest.b)
    found = [] if read is None else [affine(e) for e in read.indices if depends(e, {first, k})]
    if len(found) != 1 or found[0].factor(first) != found[0].factor(k):
        return 1
    plain = all(isinstance(atom, Index) for atom, _ in found[0].terms.values())
    return max(1, min(many - extent_of(k) + 1, extent_of(first))) if plain else 1


def _in_places(known: np.ndarray, axis: int, rows: int, many: int) -> np.ndarray:
    """The weights of so many rows of results, along an axis before that of the terms of a word, with zeros around them."""
    spare = many - known.shape[axis]
    sides = [[(u, spare - u) if n == axis else (0, 0) for n in range(known.ndim)] for u in range(rows)]
    return np.stack([np.pad(known, side) for side in sides], axis)


def _terms_of_a_word(nest: SumOfProducts, problem: Problem) -> int | None:
    """The number of terms of these ranges that fit a word; None if none do."""
    weights, values = (interval(e, problem.ranges, problem.constants) for e in (nest.a, nest.b))
    if values.within(UI8) and weights.within(I8) and (processor().has_int8_dot_product or fit(values.high, weights)):
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
    return "" if windowed(problem.kernel) is not None else "no window moves over one array"


DEPTHWISE = Strategy("depthwise", _why_not_windows, lambda problem: 0, lower_depthwise)
