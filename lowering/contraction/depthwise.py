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

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from ...dialect.ir.sizes import product
from ...dialect.ir.types import I8, I16, I32, UI8
from ...dialect.notation.affine import affine
from ...dialect.notation.expressions import Expr, Index, Tensor, apply, as_index, constant
from ...dialect.notation.loops import Alloc, Block, For, Kernel, assign, substitute_block, update
from ...dialect.notation.traverse import substitute
from ..analysis.accesses import depends
from ..analysis.integer_ranges import Ranges, interval
from ..loops.clone import clone
from ..processor import processor
from .match import LoweredContraction, Windowed, kernel_from_body, windowed
from .micro_kernel import INT8_DOT_PRODUCT
from .packed_product import ONES, fit
from .vnni_packing import extent_of, image_of, known_terms, loops_of, only_read, packed_words, words_along


def lower_depthwise(
    kernel: Kernel, constants: Mapping[Tensor, np.ndarray], ranges: Ranges
) -> LoweredContraction | None:
    """The kernel over words; None where it moves no window, or that does not pay."""
    w = windowed(kernel)
    if (
        w is None
        or w.accumulator.element is not I32
        or not processor().tuning.depthwise_terms[0]
        <= prod(map(extent_of, w.reduction_axes))
        <= processor().tuning.depthwise_terms[1]
    ):
        return None
    lines = tuple(i for i in w.outer if depends(w.weights, {i}))
    known = known_terms(w.weights, constants, (*lines, *w.reduction_axes))
    many = _terms_of_a_word(w, constants, ranges, processor().has_int8_dot_product)
    if known is None or many is None or extent_of(w.places[-1]) < processor().tuning.depthwise_columns:
        return None
    rows = _rows_of_a_word(w, many)
    first, k = w.places[0], w.reduction_axes[0]
    if rows > 1:
        h, term = Index("h", -(-extent_of(first) // rows)), Index(k.name, many)
        known = _in_places(known, len(lines), rows, many)
    else:
        h, term = first, k
    at: dict[Expr, Expr] = {first: h * rows, k: term} if rows > 1 else {}
    values, guard = substitute(w.values, at), [substitute(g, at) for g in w.guard]
    words = words_along(term, (term, *w.reduction_axes[1:]), many)
    read = only_read(values)
    moving: set[Expr] = {h, *w.places[1:], term, *w.reduction_axes[1:]}
    inside = [] if read is None else [n for n, e in enumerate(read.indices) if depends(e, moving)]
    image = image_of(values, guard, words, inside, "stack")
    if image is None or product(image.words.shape) > processor().l2_bytes // 2 // I32.bytes:
        return None
    packed = packed_words(known, words.reduction_axes.index(words.part) - len(words.reduction_axes), many)
    weights = Tensor("weights", packed.shape, I32, "constant")

    def windows(u: int) -> Block:
        own = (as_index(u),) if rows > 1 else ()
        factors = image.words[image.at], weights[(*lines, *own, *words.reduction_axes)]
        return loops_of(
            w.places[1:], _window(w, words.reduction_axes, _product(many, processor().has_int8_dot_product, *factors))
        )

    def of_rows(h: Expr, count: int) -> Block:
        return tuple(s for u in range(count) for s in clone(windows(u), {first: h * rows + u}, f"{u}"))

    if rows > 1:
        whole, left = divmod(extent_of(first), rows)
        last = substitute_block(clone(of_rows(h, left), {}, "last"), {h: as_index(whole)})
        body = (For(h, of_rows(h, rows), stop=as_index(whole) if left else None), *last)
    else:
        body = loops_of((first,), windows(0))
    body = (Alloc(image.words), *image.body, *body)
    results = kernel.outputs
    return LoweredContraction(
        (kernel_from_body(kernel, "windows", loops_of(w.outer, body), results),), {}, {weights: packed}
    )


def _rows_of_a_word(w: Windowed, many: int) -> int:
    """The number of result rows for which words of this many terms serve."""
    first, k, read = w.places[0], w.reduction_axes[0], only_read(w.values)
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


def _terms_of_a_word(w: Windowed, constants: Mapping[Tensor, np.ndarray], ranges: Ranges, quads: bool) -> int | None:
    """The number of terms of these ranges that fit a word; None if none do."""
    values, weights = (interval(e, ranges, constants) for e in (w.values, w.weights))
    if values.within(UI8) and weights.within(I8) and (quads or fit(values.high, weights)):
        return INT8_DOT_PRODUCT.terms
    return 2 if values.within(I16) and weights.within(I16) else None


def _product(many: int, quads: bool, values: Expr, weights: Expr) -> Expr:
    """The dot product of two words."""
    if many == INT8_DOT_PRODUCT.terms and quads:
        return apply("quaddot_us", values, weights)
    if many == INT8_DOT_PRODUCT.terms:
        return apply("pairdot", apply("bytepairs", values, weights), constant(ONES, I32))
    return apply("pairdot", values, weights)


def _window(w: Windowed, reduction_axes: Sequence[Index], term: Expr) -> Block:
    """The sum over a window, and what follows."""
    sum: Block = (update("add", w.accumulator, term),)
    return (Alloc(w.accumulator), assign(w.accumulator, 0), *loops_of(reduction_axes, sum), *w.epilogue)
