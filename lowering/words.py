"""Factors of a contraction as words of two 16-bit terms each, as `pairdot` multiplies them:

    rows[r, j, k] = a[r, 2 j, k] & 0xffff | a[r, 2 j + 1, k] << 16
    image[j, h, w] = x[2 j, h - 1, w - 1] & 0xffff | x[2 j + 1, h - 1, w - 1] << 16      zeros beyond the edges of x

One index of the fold is taken two by two; where its extent is odd, a zero goes with the last. The rows are a matrix with a
line for each row. The image has the axes of the array that the columns are read from, as far as they are reached, so that
reading it needs no guard. Constants are packed here. How large factors are that nothing is known of is found by kernels of
their own, as `bits`: the magnitudes of all elements, ored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd, prod

import numpy as np

from ..dialect.index import (
    Const,
    Expr,
    Index,
    Read,
    Tensor,
    as_index,
    both,
    constant,
    flat_index,
    interval,
    rewrite,
    substitute,
    walk,
)
from ..dialect.loops import Block, For, If, Store
from ..dialect.types import I32
from .affine import Affine, affine, affine_conditions

HALF = 0xFFFF


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of a sum as they are, one in each step."""

    folds: tuple[Index, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(extent_of, self.folds))

    @property
    def steps(self) -> int:
        return prod(self.shape)

    @property
    def step(self) -> Expr:
        return flat_index(self.folds, self.shape)

    @property
    def odd(self) -> bool:
        """Whether the last step is not whole."""
        return False

    def value(self, e: Expr) -> Expr:
        """What a step has of a factor."""
        return e

    def packed(self, array: np.ndarray) -> np.ndarray:
        """The same of known factors, whose last axes are the fold's."""
        return array.reshape(*array.shape[: array.ndim - len(self.folds)], self.steps)


@dataclass(frozen=True, eq=False)
class Pairs(Terms):
    """The terms of a sum, one index of the fold two by two: `index` takes `half` * 2 and `half` * 2 + 1."""

    index: Index
    half: Index

    @property
    def odd(self) -> bool:
        return extent_of(self.index) % 2 == 1

    def value(self, e: Expr) -> Expr:
        return word(*self.both(e))

    def packed(self, array: np.ndarray) -> np.ndarray:
        return super().packed(packed_words(array, self.folds.index(self.half) - len(self.folds)))

    def both(self, e: Expr) -> tuple[Expr, Expr]:
        """An expression at the first and at the second of two terms."""
        return substitute(e, {self.index: self.half * 2}), substitute(e, {self.index: self.half * 2 + 1})


def pair_up(folds: Sequence[Index]) -> Pairs:
    """The outermost even index two by two; where there is none, the longest, that is the last of the longest."""
    even = [i for i in folds if extent_of(i) % 2 == 0]
    index = even[0] if even else max(reversed(folds), key=extent_of)
    half = Index(index.name, (extent_of(index) + 1) // 2)
    return Pairs(tuple(half if i is index else i for i in folds), index, half)


def extent_of(index: Index | None) -> int:
    if index is None:
        return 1
    assert isinstance(index.extent, int)
    return index.extent


def word(low: Expr, high: Expr) -> Expr:
    return (low & HALF) | (high << 16)


def packed_words(terms: np.ndarray, axis: int) -> np.ndarray:
    """The words of an array of terms, two along an axis in each."""
    if terms.shape[axis] % 2:
        terms = np.concatenate([terms, np.zeros_like(terms.take([0], axis))], axis)
    halves = np.moveaxis(terms, axis, -1).astype(np.int16)
    return np.moveaxis(np.ascontiguousarray(halves).view(np.int32), -1, axis)


# what is read


def only_read(e: Expr) -> Read | None:
    """The one array that a factor is a function of, the place of the read being all that indices have a part in."""
    found = [n for n in walk(e) if isinstance(n, Read)]
    if len(found) != 1:
        return None
    rest = rewrite(e, lambda n: constant(0, n.type) if n is found[0] else None)
    return None if any(isinstance(n, Index) for n in walk(rest)) else found[0]


def read_at(e: Expr, read: Read, at: Sequence[Expr]) -> Expr:
    """The factor with another place in the place of what it reads."""
    return rewrite(e, lambda n: Read(read.tensor, tuple(at)) if n is read else None)


def is_plain(read: Read) -> bool:
    """Whether an array is read along indices of loops, each once."""
    plain = [i for i in read.indices if isinstance(i, Index)]
    return len(set(plain)) == len(plain) and all(isinstance(i, (Index, Const)) for i in read.indices)


def known_terms(e: Expr, constants: Mapping[Tensor, np.ndarray], order: Sequence[Index]) -> np.ndarray | None:
    """A constant factor's values, an axis for each of these indices."""
    if not (isinstance(e, Read) and e.tensor in constants and is_plain(e)):
        return None
    array = constants[e.tensor].reshape([d for d in e.tensor.shape if isinstance(d, int)])
    array = array[tuple(i.value if isinstance(i, Const) else slice(i.extent) for i in e.indices)]  # type: ignore[attr-defined]
    plain = [i for i in e.indices if isinstance(i, Index)]
    return array.transpose([plain.index(i) for i in order]) if set(plain) == set(order) else None


def loops_of(indices: Sequence[Index], body: Block) -> Block:
    for index in reversed(indices):
        body = (For(index, body),)
    return body


# rows


def row_words(a: Expr, pairs: Pairs, rows: Sequence[Index]) -> tuple[Tensor, Block]:
    """The words of the rows, and the loops that write them."""
    words = Tensor("rows", (*(i.extent for i in rows), *pairs.shape), I32, "heap")
    at = (*rows, *pairs.folds)
    low, high = pairs.both(a)
    if not pairs.odd:
        return words, loops_of(at, (Store(words, at, word(low, high)),))
    last = extent_of(pairs.half) - 1
    whole = [Index(i.name, i.extent) if i is not pairs.half else Index(i.name, last) for i in at]
    new: dict[Expr, Expr] = dict(zip(at, whole, strict=True))
    store = Store(words, tuple(whole), substitute(word(low, high), new))
    end: dict[Expr, Expr] = {pairs.half: as_index(last)}
    alone = Store(words, tuple(substitute(i, end) for i in at), substitute(low & HALF, end))
    others = [i for i in at if i is not pairs.half]
    return words, (*loops_of(whole, (store,)), *loops_of(others, (alone,)))


# columns


@dataclass(frozen=True, eq=False)
class Image:
    """The words of all that columns are read from; `at` gives the place of those of one step."""

    words: Tensor
    at: tuple[Expr, ...]
    body: Block


@dataclass(frozen=True, eq=False)
class _Axis:
    """One axis of an image: where the array is read at 0 (`low`), how far apart (`apart`), and the second term from the first."""

    index: Index
    low: int
    apart: int
    second: int
    place: Expr  # of the words of a step
    size: int  # of the array

    def within(self, second: bool) -> tuple[int, int]:
        """Where the image is read from inside of the array."""
        low = self.low + (self.second if second else 0)
        stop = (self.size - 1 - low) // self.apart + 1
        return max(0, -(low // self.apart)), max(0, min(extent_of(self.index), stop))

    def read(self, second: bool) -> Expr:
        low = self.low + (self.second if second else 0)
        return self.index * self.apart + low if low >= 0 else self.index * self.apart - -low


def image_of(b: Expr, guard: Sequence[Expr], pairs: Pairs) -> Image | None:
    """The image of a factor that is read along sums of indices; None where it is read otherwise."""
    read = only_read(b)
    if read is None:
        return None
    found = [_axis(e, d, n, pairs) for n, (e, d) in enumerate(zip(read.indices, read.tensor.shape, strict=True))]
    image = [a for a in found if a is not None]
    if len(image) < len(found) or not all(is_edge(g, read) for g in guard):
        return None
    words = Tensor("image", tuple(a.index.extent for a in image), I32, "heap")
    parts = [read_at(b, read, [a.read(second) for a in image]) for second in (False, True)]
    within = [[a.within(second) for a in image] for second in (False, True)]
    place = tuple(a.index for a in image)

    def filled(value: Expr, ranges: list[tuple[int, int]]) -> Block:
        return _ranged(image, ranges, (Store(words, place, value),))

    low, high = parts
    if within[0] == within[1]:
        body = filled(word(low, high), within[0])
    else:
        body = (*filled(low & HALF, within[0]), *filled(words[place] | (high << 16), within[1]))
    if any(r != (0, extent_of(a.index)) for r, a in zip(within[0], image, strict=True)):
        body = (*loops_of(place[1:], (Store(words, place, constant(0, I32)),)), *body)
    return Image(words, tuple(a.place for a in image), (For(image[0].index, body),))


def _axis(e: Expr, size: object, n: int, pairs: Pairs) -> _Axis | None:
    first, second = (affine(x) for x in pairs.both(e))
    bounds = [interval(atom) for atom, _ in first.terms.values()]
    if (second - first).terms or not isinstance(size, int) or any(None in b for b in bounds):
        return None
    low = first.constant
    high = low
    for (_, factor), (least, most) in zip(first.terms.values(), bounds, strict=True):
        assert least is not None and most is not None
        low += factor * (least if factor > 0 else most)
        high += factor * (most if factor > 0 else least)
    apart = reduce(gcd, (abs(f) for _, f in first.terms.values()), 0) or 1
    place = Affine({k: (a, f // apart) for k, (a, f) in first.terms.items()}, (first.constant - low) // apart)
    index = Index(f"i{n}", (high - low) // apart + 1)
    return _Axis(index, low, apart, (second - first).constant, place.expression(), size)


def is_edge(condition: Expr, read: Read) -> bool:
    """Whether a guard says no more than that the read is inside of its array."""
    sums = affine_conditions(condition)
    edges = [affine(e) for e in read.indices]
    edges += [
        (affine(e) * -1).plus(d - 1) for e, d in zip(read.indices, read.tensor.shape, strict=True) if isinstance(d, int)
    ]
    same = [[d for edge in edges if not (d := s - edge).terms and not d.constant] for s in sums or []]
    return bool(same) and all(same)


def _ranged(axes: Sequence[_Axis], ranges: Sequence[tuple[int, int]], body: Block) -> Block:
    """Loops over the parts of an image's axes for which something is wanted; of the outermost one, which is there, a branch."""
    for a, (start, stop) in reversed(list(zip(axes[1:], ranges[1:], strict=True))):
        end = None if stop == a.index.extent else as_index(stop)
        body = (For(a.index, body, as_index(start), end),)
    first, (start, stop) = axes[0].index, ranges[0]
    held = both(first >= start if start else True, first < stop if stop < extent_of(first) else True)
    return (If(held, body),) if isinstance(held, Expr) else body
