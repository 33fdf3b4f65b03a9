"""Factors of a contraction as words of two 16-bit terms each, as `pairdot` multiplies them, or of
four bytes:

    rows[r, j, k] = a[r, 2 j, k] & 0xffff | a[r, 2 j + 1, k] << 16
    image[j, h, w] = x[2 j, h - 1, w - 1] & 0xffff | x[2 j + 1, h - 1, w - 1] << 16
                     zeros beyond the edges of x

One reduction axis is taken two by two, or four by four; where its extent is no multiple, zeros go
with the last. The rows are a matrix with a line for each row. The image has the axes of the array
that the columns are read from, as far as they are reached, so that reading it needs no guard.
Constants are packed here.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby, pairwise
from math import gcd

import numpy as np

from ...dialect.kernel_ir import expressions as ex
from ...dialect.kernel_ir.affine import Affine, affine, affine_conditions
from ...dialect.kernel_ir.index_bounds import index_bounds
from ...dialect.kernel_ir.loops import Block, For, If, Store, nested, substitute_block
from ...dialect.kernel_ir.traverse import rewrite, substitute, walk
from ...dialect.types.sizes import Dim, Shape, key_of, larger, product, same_size, smaller
from ...dialect.types.tensor_types import I8, I32, UI8

WORD = 32  # bits
QUADS = {  # the products of four bytes, by whether the factors have a sign
    (I8, I8): "quaddot",
    (UI8, UI8): "quaddot_uu",
    (UI8, I8): "quaddot_us",
    (I8, UI8): "quaddot_su",
}


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of a sum as they are, one in each step."""

    reduction_axes: tuple[ex.Index, ...]

    @property
    def shape(self) -> Shape:
        return tuple(i.extent for i in self.reduction_axes)

    @property
    def steps(self) -> Dim:
        return product(self.shape)

    @property
    def step(self) -> ex.Expr:
        return ex.flat_index(self.reduction_axes, self.shape)

    def value(self, e: ex.Expr) -> ex.Expr:
        """A step's value of a factor."""
        return e

    def packed(self, array: np.ndarray) -> np.ndarray:
        """Pack known factors, whose last axes are reduced."""
        return array.reshape(*array.shape[: array.ndim - len(self.reduction_axes)], -1)


@dataclass(frozen=True, eq=False)
class Words(Terms):
    """The terms of a sum, one reduction axis `many` by `many`: `index` goes over those from `part`
    * many on.
    """

    index: ex.Index
    part: ex.Index
    many: int

    @property
    def partial(self) -> bool:
        """Test whether the last step may be partial."""
        return not is_multiple(self.index.extent, self.many)

    def value(self, e: ex.Expr) -> ex.Expr:
        return word(self.each(e), self.many)

    def packed(self, array: np.ndarray) -> np.ndarray:
        axis = self.reduction_axes.index(self.part) - len(self.reduction_axes)
        return super().packed(packed_words(array, axis, self.many))

    def each(self, e: ex.Expr) -> list[ex.Expr]:
        """An expression at each of the terms of a word."""
        extent = self.index.extent
        count = min(self.many, extent) if isinstance(extent, int) else self.many
        return [substitute(e, {self.index: self.part * self.many + n}) for n in range(count)]


def pack_k_axis(reduction_axes: Sequence[ex.Index], many: int) -> Words:
    """Pack the outermost axis that is a multiple; else the outermost unknown one, or that with
    fewest zeros.
    """
    whole = [i for i in reduction_axes if is_multiple(i.extent, many)]
    if axes := whole or [i for i in reduction_axes if not isinstance(i.extent, int)]:
        return words_along(axes[0], reduction_axes, many)
    index = min(
        reversed(reduction_axes), key=lambda i: -(-extent_of(i) // many) * many / extent_of(i)
    )
    return words_along(index, reduction_axes, many)


def words_along(index: ex.Index, reduction_axes: Sequence[ex.Index], many: int) -> Words:
    """Split an index into groups of `many`, each of which fills a word."""
    part = ex.Index(index.name, divided(index.extent, many))
    return Words(tuple(part if i is index else i for i in reduction_axes), index, part, many)


def extent_of(index: ex.Index | None) -> int:
    extent = size_of(index)
    assert isinstance(extent, int)
    return extent


def size_of(index: ex.Index | None) -> Dim:
    return 1 if index is None else index.extent


def at_least(size: Dim, least: int) -> ex.Expr | bool:
    """Test whether a size is at least `least`; a run-time condition for an unknown size."""
    return size >= least if isinstance(size, int) else ex.as_index(size) >= least


def divided(size: Dim, by: int) -> Dim:
    """The number of pieces of a size, the last one possibly smaller."""
    return (size + (by - 1)) // by


def is_multiple(size: Dim, of: int) -> bool:
    """Test whether a size is known to be a multiple."""
    rest = size % of
    return isinstance(rest, int) and rest == 0


def tile_start(tile: ex.Expr, size: Dim, each: int) -> ex.Expr:
    """The first element of a tile; a last one that would reach beyond the end moves back."""
    return tile * each if is_multiple(size, each) else ex.minimum(tile * each, size - each)


def tile_elements(size: int, tiles: int, each: int) -> np.ndarray:
    """The elements of each tile, of which the last ones move back."""
    return np.minimum(np.arange(tiles) * each, size - each)[:, None] + np.arange(each)


def word(terms: Sequence[ex.Expr], many: int, first: int = 0) -> ex.Expr:
    """Pack terms side by side into a word of `many`, with zeros in the other places."""
    bits = WORD // many
    placed: list[ex.Expr] = []
    for n, term in enumerate(terms, first):
        term = term & ((1 << bits) - 1) if n < many - 1 else term
        placed.append(term << (bits * n) if n else term)
    return reduce(lambda a, b: a | b, placed)


def flipped(word: ex.Expr, bits: ex.Expr | None) -> ex.Expr:
    return word if bits is None else word ^ bits


def packed_words(terms: np.ndarray, axis: int, many: int) -> np.ndarray:
    """Pack an array of terms into words, `many` along an axis in each."""
    terms = np.moveaxis(terms, axis, -1)
    terms = np.pad(terms, [(0, 0)] * (terms.ndim - 1) + [(0, -terms.shape[-1] % many)])
    return np.moveaxis(
        np.ascontiguousarray(terms.astype(np.int16 if many == 2 else np.int8)).view(np.int32),
        -1,
        axis,
    )


# what is read


def only_read(e: ex.Expr) -> ex.Read | None:
    """The one array that a factor is a function of, the place of the read being all that indices
    have a part in.
    """
    reads = [n for n in walk(e) if isinstance(n, ex.Read)]
    if len(reads) != 1:
        return None
    rest = rewrite(e, lambda n: ex.constant(0, n.type) if n is reads[0] else None)
    return None if any(isinstance(n, ex.Index) for n in walk(rest)) else reads[0]


def read_at(e: ex.Expr, read: ex.Read, at: Sequence[ex.Expr]) -> ex.Expr:
    """The factor with another place in the place of what it reads."""
    return rewrite(e, lambda n: ex.Read(read.tensor, tuple(at)) if n is read else None)


def is_plain(read: ex.Read) -> bool:
    """Test whether an array is read along loop indices, each once."""
    plain = [i for i in read.indices if isinstance(i, ex.Index)]
    return len(set(plain)) == len(plain) and all(
        isinstance(i, (ex.Index, ex.Const)) for i in read.indices
    )


def known_terms(
    e: ex.Expr, constants: Mapping[ex.Tensor, np.ndarray], order: Sequence[ex.Index]
) -> np.ndarray | None:
    """A constant factor's values, an axis for each of these indices."""
    if (
        isinstance(e, ex.Cast)
        and e.type.is_integer
        and e.operand.type.is_integer
        and e.operand.type.bits < e.type.bits
    ):
        terms = known_terms(e.operand, constants, order)
        return None if terms is None else terms.astype(e.type.dtype)
    if not (isinstance(e, ex.Read) and e.tensor in constants and is_plain(e)):
        return None
    if not all(isinstance(i.extent, int) for i in order):
        return None
    array = constants[e.tensor].reshape([d for d in e.tensor.shape if isinstance(d, int)])
    array = array[tuple(i.value if isinstance(i, ex.Const) else slice(i.extent) for i in e.indices)]  # type: ignore[attr-defined]
    plain = [i for i in e.indices if isinstance(i, ex.Index)]
    return array.transpose([plain.index(i) for i in order]) if set(plain) == set(order) else None


def by_words(
    words: Terms, e: ex.Expr, order: Sequence[ex.Index], store: Callable[[ex.Expr], Block]
) -> Block:
    """Loops over indices around the store of a factor's words; a last word that may be partial is
    stored by itself.
    """
    if not isinstance(words, Words) or not words.partial:
        return nested(order, store(words.value(e)))
    terms = words.each(e)
    last = words.index.extent // words.many
    rest = words.index.extent % words.many
    n = order.index(words.part)
    before = order[:n]
    after = order[n + 1 :]
    whole = ex.Index(words.part.name, last)
    block = substitute_block(nested(after, store(word(terms, words.many))), {words.part: whole})
    body: Block = (For(whole, block),)
    for left in range(1, words.many) if not isinstance(rest, int) else (rest,):
        inner = [ex.Index(i.name, i.extent) for i in after]
        values: dict[ex.Expr, ex.Expr] = {
            words.part: ex.as_index(last),
            **dict(zip(after, inner, strict=True)),
        }
        alone = nested(inner, substitute_block(store(word(terms[:left], words.many)), values))
        body += alone if isinstance(rest, int) else (If(ex.as_index(rest).eq(left), alone),)
    return nested(before, body)


# columns


@dataclass(frozen=True, eq=False)
class PackedInput:
    """The words of all that columns are read from; `at` gives the place of those of one step."""

    words: ex.Tensor
    at: tuple[ex.Expr, ...]
    body: Block


@dataclass(frozen=True, eq=False)
class _Axis:
    """One axis of an image: where the array is read at 0 (`low`), how far apart (`apart`), and a
    word's terms (`between`).
    """

    index: ex.Index
    low: int
    apart: int
    between: int
    place: ex.Expr  # of the words of a step
    size: Dim  # of the array

    def within(self, term: int) -> tuple[int, Dim]:
        """The condition that the packed input is read inside of the array."""
        low = self.low + self.between * term
        stop = (self.size - 1 - low + self.apart) // self.apart
        return max(0, -(low // self.apart)), larger(0, smaller(self.index.extent, stop))

    def is_all(self, stop: Dim) -> bool:
        return same_size(stop, self.index.extent)

    def read(self, term: int) -> ex.Expr:
        low = self.low + self.between * term
        return self.index * self.apart + low if low >= 0 else self.index * self.apart - -low


def image_of(
    b: ex.Expr,
    guard: Sequence[ex.Expr],
    words: Words,
    inside: Collection[int] | None = None,
    space: str = "heap",
    bits: ex.Expr | None = None,
) -> PackedInput | None:
    """The image of a factor that is read along sums of indices, with these of its axes, these bits
    flipped; None otherwise.
    """
    if (read := only_read(b)) is None or not all(is_edge(g, read) for g in guard):
        return None
    along = range(read.tensor.rank) if inside is None else inside
    axis_of = {n: _axis(read.indices[n], read.tensor.shape[n], n, words) for n in along}
    axes = [a for a in axis_of.values() if a is not None]
    if len(axes) < len(axis_of) or not axes:
        return None

    def read_in(term: int) -> ex.Expr:
        at = [
            e if (a := axis_of.get(n)) is None else a.read(term) for n, e in enumerate(read.indices)
        ]
        return read_at(b, read, at)

    image = ex.Tensor("image", tuple(a.index.extent for a in axes), I32, space)
    place = tuple(a.index for a in axes)
    terms = range(len(words.each(b)))
    within = [[a.within(n) for a in axes] for n in terms]

    def filled(some: Sequence[int], more: bool) -> Block:
        value = word([read_in(n) for n in some], words.many, some[0])
        if more:
            return (
                Store(image, place, image[place] | value if bits is None else image[place] ^ value),
            )
        return (Store(image, place, flipped(value, bits)),)

    same = all(
        key_of(ranges[1:]) == key_of(within[0][1:]) for ranges in within[1:]
    )  # but along the first axis
    body: Block = ()
    if same and (parts := _parts([ranges[0] for ranges in within])):
        for part, some in parts:
            body = _ranged(axes, [part, *within[0][1:]], filled(some, False), body)
    else:
        for _, group in groupby(terms, key=lambda n: key_of(within[n])):
            some = list(group)
            ranges = within[some[0]]
            if (
                not any(isinstance(stop, int) and start >= stop for start, stop in ranges)
                or not body
            ):
                body = (*body, *_ranged(axes, ranges, filled(some, bool(body))))
        if same:  # mostly all terms are there
            first = (
                max(ranges[0][0] for ranges in within),
                reduce(smaller, (ranges[0][1] for ranges in within)),
            )
            body = _ranged(
                axes, [first, *within[0][1:]], filled(terms, False), body if len(body) > 1 else ()
            )
    around = len(_around(axes))
    if not all(
        start == 0 and a.is_all(stop) for (start, stop), a in zip(within[0], axes, strict=True)
    ):
        body = (
            *nested(place[around:], (Store(image, place, flipped(ex.constant(0, I32), bits)),)),
            *body,
        )
    return PackedInput(image, tuple(a.place for a in axes), nested(place[:around], body))


def _parts(ranges: Sequence[tuple[int, Dim]]) -> list[tuple[tuple[int, int], list[int]]]:
    """The parts of an axis in which the same terms are read, and those, fewest first; none where
    ends are not bounds.
    """
    bounds = [(start, stop) for start, stop in ranges if isinstance(stop, int)]
    if len(bounds) < len(ranges):
        return []
    parts: list[tuple[tuple[int, int], list[int]]] = []
    for start, stop in pairwise(sorted({end for ends in bounds for end in ends})):
        if some := [n for n, (first, last) in enumerate(bounds) if first <= start and stop <= last]:
            parts.append(((start, stop), some))
    together = all(some[-1] - some[0] == len(some) - 1 for _, some in parts)
    return sorted(parts, key=lambda part: len(part[1])) if together else []


def _axis(e: ex.Expr, size: Dim, n: int, words: Words) -> _Axis | None:
    first, second, *_ = (affine(x) for x in words.each(e))
    bounds = [
        (0, a.extent - 1) if isinstance(a, ex.Index) else index_bounds(a)
        for a, _ in first.terms.values()
    ]
    low = high = first.constant
    for (_, factor), (least, most) in zip(first.terms.values(), bounds, strict=True):
        if least is None or most is None:
            return None
        low += factor * (least if factor > 0 else most)
        high += factor * (most if factor > 0 else least)
    if (second - first).terms or not isinstance(low, int):
        return None
    moves = {
        k: (a, f)
        for k, (a, f) in first.terms.items()
        if not (isinstance(a, ex.Index) and same_size(a.extent, 1))
    }
    apart = reduce(gcd, (abs(f) for _, f in moves.values()), 0) or 1
    place = Affine(
        {k: (a, f // apart) for k, (a, f) in moves.items()}, (first.constant - low) // apart
    )
    index = ex.Index(f"i{n}", (high - low) // apart + 1)
    return _Axis(index, low, apart, (second - first).constant, place.expression(), size)


def is_edge(condition: ex.Expr, read: ex.Read) -> bool:
    """Test whether a guard only keeps the read inside of its array."""
    sums = affine_conditions(condition)
    edges = [affine(e) for e in read.indices]
    edges += [
        affine(ex.as_index(d)).plus(-1) - affine(e)
        for e, d in zip(read.indices, read.tensor.shape, strict=True)
    ]
    same = [
        [d for edge in edges if not (d := s - edge).terms and not d.constant] for s in sums or []
    ]
    return bool(same) and all(same)


def _around(axes: Sequence[_Axis]) -> Sequence[_Axis]:
    """The axes whose loops enclose all parts, so that elements written several times are still in
    cache.
    """
    return axes[: max(1, len(axes) - 1)]


def _ranged(
    axes: Sequence[_Axis], ranges: Sequence[tuple[int, Dim]], body: Block, otherwise: Block = ()
) -> Block:
    """The parts of an image's axes that a body is for: branches in the loops that are around, or a
    loop.
    """
    tests: list[ex.Expr | bool] = []
    for n, (a, (start, stop)) in enumerate(zip(axes, ranges, strict=True)):
        if n >= len(_around(axes)):
            body = (
                For(
                    a.index, body, ex.as_index(start), None if a.is_all(stop) else ex.as_index(stop)
                ),
            )
        else:
            tests += [
                a.index >= start if start else True,
                True if a.is_all(stop) else a.index < ex.as_index(stop),
            ]
    inside = ex.both(*tests)
    return (If(inside, body, otherwise),) if isinstance(inside, ex.Expr) else body
