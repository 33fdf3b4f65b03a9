"""Windows that move over one array for each channel, as words of their terms:

    for c { for p { for q { acc = 0; for k { for l { acc = acc + x[c, p + k, q + l] * w[c, k, l] } }; y[c, p, q] = f(acc) } } }
    =>  for c {
          words[h, q] = the bytes x[c, h, q], x[c, h + 1, q], x[c, h + 2, q]     zeros beyond the edges
          for p { for q { acc = 0; for l { acc = acc + the dot product of words[p, q + l] and w[c, l] }; y[c, p, q] = f(acc) } }
        }

Weights are constants, packed here. Words are of bytes where no value has a sign and no sum of two products is beyond 16
bits, else of two terms of 16 bits. The loops are for the passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from ...dialect.index import Expr, Index, Tensor, apply, constant
from ...dialect.loops import Alloc, Block, Kernel, assign, update
from ...dialect.sizes import product
from ...dialect.types import I8, I16, I32, UI8
from ..accesses import depends
from ..ranges.infer import Ranges, interval
from .bytewise import MANY, ONES, fit
from .structure import Contracted, Windowed, made, windowed
from .words import extent_of, image_of, known_terms, loops_of, only_read, packed_words, words_along

LARGEST = 1 << 16  # words of a channel, on the stack
LEAST = 8  # places in a row
TERMS = 4, 64  # of a window


def slide(kernel: Kernel, constants: Mapping[Tensor, np.ndarray], ranges: Ranges) -> Contracted | None:
    """The kernel over words; None where it moves no window, or that does not pay."""
    w = windowed(kernel)
    if w is None or w.accumulator.element is not I32 or not TERMS[0] <= prod(map(extent_of, w.folds)) <= TERMS[1]:
        return None
    lines = tuple(i for i in w.outer if depends(w.weights, {i}))
    known = known_terms(w.weights, constants, (*lines, *w.folds))
    many = _terms_of_a_word(w, constants, ranges)
    if known is None or many is None or extent_of(w.places[-1]) < LEAST:
        return None
    words = words_along(w.folds[0], w.folds, many)
    read = only_read(w.values)
    moving: set[Expr] = {*w.places, *w.folds}
    inside = [] if read is None else [n for n, e in enumerate(read.indices) if depends(e, moving)]
    image = image_of(w.values, w.guard, words, inside, "stack")
    if image is None or product(image.words.shape) > LARGEST:
        return None
    packed = packed_words(known, len(lines) + words.folds.index(words.part), many)
    weights = Tensor("weights", packed.shape, I32, "constant")
    factors = image.words[image.at], weights[(*lines, *words.folds)]
    body = (Alloc(image.words), *image.body, *_windows(w, words.folds, _product(many, *factors)))
    results = kernel.outputs
    return Contracted((made(kernel, "windows", loops_of(w.outer, body), results),), {}, {weights: packed})


def _terms_of_a_word(w: Windowed, constants: Mapping[Tensor, np.ndarray], ranges: Ranges) -> int | None:
    """How many terms of these ranges go in a word, if any do."""
    values, weights = (interval(e, ranges, constants) for e in (w.values, w.weights))
    if values.within(UI8) and weights.within(I8) and fit(values.high, weights):
        return MANY
    return 2 if values.within(I16) and weights.within(I16) else None


def _product(many: int, values: Expr, weights: Expr) -> Expr:
    """The dot product of two words."""
    if many == MANY:
        return apply("pairdot", apply("bytepairs", values, weights), constant(ONES, I32))
    return apply("pairdot", values, weights)


def _windows(w: Windowed, folds: Sequence[Index], term: Expr) -> Block:
    """The loops over all places, with the sum over a window."""
    sum: Block = (update("add", w.accumulator, term),)
    block = (Alloc(w.accumulator), assign(w.accumulator, 0), *loops_of(folds, sum), *w.epilogue)
    return loops_of(w.places, block)
