"""Operators of StableHLO that read and write windows at places which other tensors hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import I1, I32, I64
from cvm.importers.graph.elementwise import ufunc
from cvm.importers.graph.loops import iterated
from cvm.importers.graph.movement import cut, joined, part as slice_of
from cvm.importers.graph.rules import Ints, static

from .importer import At, choose, rule, scalar_like, spread
from .regions import applied, combination, slice_along, window, windows

COMBINED = {"add": "add", "multiply": "mul", "maximum": "maximum", "minimum": "minimum"}


@dataclass
class Windows:
    """Windows into a tensor, one for each index of a batch: the axes along which they are not
    whole, and for each of these the place of every element, over the batch and such axes.
    """

    axes: tuple[int, ...]
    places: list[Node]
    inner: tuple[int, ...]  # of the axes, those along which windows extend

    def layout(self, rank: int, batch: int) -> list[Any]:
        """Numbers of batch axes and `(axis,)` of the tensor's, in the order of what
        builtin.gather gives.
        """
        first = self.axes[0]
        before = [(a,) for a in range(first)]
        after = [(a,) for a in range(first, rank) if a not in self.axes]
        return [*before, *range(batch), *((a,) for a in self.inner), *after]


def windows_at(
    at: At,
    shape: Sequence[int],
    sizes: Sequence[int],
    starts: dict[int, Node],
    dropped: Sequence[int],
    batch: Sequence[int],
    clamped: bool,
) -> Windows:
    """The places of windows that begin at `starts`, i64 in the shape of the batch, along some
    axes; `dropped` axes are not among those of the windows.
    """
    axes = tuple(
        a for a, n in enumerate(shape) if a in starts or a in dropped or sizes[a] != n
    ) or (0,)
    inner = tuple(a for a in axes if a not in dropped)
    whole = (*batch, *(sizes[a] for a in inner))
    rank, places = len(whole), []
    for a in axes:
        place = starts.get(a, at.node(np.zeros((1,) * len(batch), np.int64)))
        if clamped and a in starts:
            low, high = scalar_like(place, 0), scalar_like(place, max(shape[a] - sizes[a], 0))
            place = ufunc("minimum", ufunc("maximum", place, low), high)
        place = place.dimshuffle([*range(len(batch)), *["x"] * len(inner)])
        if a in inner and sizes[a] != 1:
            steps = at.node(np.arange(sizes[a], dtype=np.int64))
            order = [0 if k == len(batch) + inner.index(a) else "x" for k in range(rank)]
            place = ufunc("add", place, steps.dimshuffle(order))
        places.append(spread(at, place, whole))
    return Windows(axes, places, inner)


def index_starts(
    at: At, indices: Node, vector: int, index_map: Sequence[int], batching: dict[int, int]
) -> tuple[dict[int, Node], tuple[int, ...]]:
    """The first place of windows along each axis, and the shape of the batch; `batching` has axes
    of the tensor that go along with an axis of the indices.
    """
    if not 0 <= vector <= indices.rank:
        raise ValueError(f"index_vector_dim {vector} of {indices.rank} dimensions")
    rest = [a for a in range(indices.rank) if a != vector]
    batch = static(indices, "indices", rest)
    count = 1 if vector == indices.rank else static(indices, "indices", (vector,))[0]
    if count != len(index_map):
        raise ValueError(f"{count} coordinates for {len(index_map)} dimensions")
    starts: dict[int, Node] = {}
    for k, axis in enumerate(index_map):
        row = (
            indices
            if vector == indices.rank
            else slice_of(at, indices, vector, k, k + 1).dimshuffle(rest)
        )
        starts[axis] = row.cast(I64)
    for axis, along in batching.items():
        n = batch[rest.index(along)]
        order = [0 if a == along else "x" for a in rest]
        starts[axis] = spread(at, at.node(np.arange(n)).dimshuffle(order), batch)
    return starts, batch


def numbers_of(at: At, name: str, *names: str) -> dict[str, tuple[int, ...]]:
    """Lists of an attribute, of which the empty ones may be left out."""
    given = at.attribute(name)
    if not isinstance(given, dict):
        raise ValueError(f"{name} is no list of dimensions")
    return {n: tuple(np.reshape(given.get(n, ()), -1).astype(int).tolist()) for n in names}


@rule("gather")
def gather(at: At, x: Node, indices: Node) -> Node:
    return gathered(at, x, indices, at.ints("slice_sizes"))


@rule("dynamic_gather")
def dynamic_gather(at: At, x: Node, indices: Node, sizes: Ints) -> Node:
    return gathered(at, x, indices, sizes)  # type: ignore[arg-type]


def gathered(at: At, x: Node, indices: Node, sizes: Sequence[int]) -> Node:
    of = numbers_of(
        at,
        "dimension_numbers",
        *(
            "offset_dims",
            "collapsed_slice_dims",
            "operand_batching_dims",
            "start_indices_batching_dims",
        ),
        *("start_index_map", "index_vector_dim"),
    )
    shape = static(x, "what is gathered")
    at.demand(20, f"{x.rank} slice_sizes", len(sizes) == x.rank, len(sizes))
    inside = all(0 <= s <= n for s, n in zip(sizes, shape, strict=True))
    at.demand(21, f"slice_sizes up to {[*shape]}", inside, [*sizes])
    dropped = (*of["collapsed_slice_dims"], *of["operand_batching_dims"])
    at.demand(
        9,
        "slice_sizes of 1 or less of what is collapsed",
        all(sizes[d] <= 1 for d in dropped if d < x.rank),
        [*sizes],
    )
    at.demand(
        1,
        f"{x.rank} offset, collapsed and batching dimensions",
        len(of["offset_dims"]) + len(dropped) == x.rank,
        len(of["offset_dims"]) + len(dropped),
    )
    (vector,) = of["index_vector_dim"] or (0,)
    batching = dict(
        zip(of["operand_batching_dims"], of["start_indices_batching_dims"], strict=True)
    )
    starts, batch = index_starts(at, indices, vector, of["start_index_map"], batching)
    rank = len(batch) + len(of["offset_dims"])
    kept = [(a,) for a in range(x.rank) if a not in dropped]
    labels: list[Any] = [None] * rank
    at.demand(
        5,
        f"offset_dims in [0, {rank})",
        all(0 <= d < rank for d in of["offset_dims"]),
        [*of["offset_dims"]],
    )
    for place, label in zip(of["offset_dims"], kept, strict=True):
        labels[place] = label
    numbers = iter(range(len(batch)))
    labels = [next(numbers) if n is None else n for n in labels]
    if 0 in (*batch, *sizes):
        return at.node(
            np.zeros(
                tuple(batch[n] if isinstance(n, int) else sizes[n[0]] for n in labels),
                x.element.dtype,
            )
        )
    if not x.rank:
        return spread(at, x, batch)
    w = windows_at(at, shape, sizes, starts, dropped, batch, clamped=True)
    y = x.apply("builtin.gather", *w.places, axes=w.axes, mode="clip")
    layout = w.layout(x.rank, len(batch))
    return y.dimshuffle([layout.index(n) for n in labels])


def scalar_starts(at: At, indices: Sequence[Node]) -> dict[int, Node]:
    return {a: i.cast(I64) for a, i in enumerate(indices)}


@rule("dynamic_slice")
def dynamic_slice(at: At, x: Node, *indices: Node) -> Node:
    sizes, shape = at.ints("slice_sizes", "sizes"), static(x, "what is sliced")
    counts = len(indices) == len(sizes) == x.rank
    at.demand(2, f"{x.rank} indices and sizes", counts, f"{len(indices)} and {len(sizes)}")
    at.demand(
        4,
        f"slice_sizes up to {[*shape]}",
        all(0 <= s <= n for s, n in zip(sizes, shape, strict=True)),
        [*sizes],
    )
    if sizes == shape:
        return x
    known = [at.importer.builder.constants.get(i.value) for i in indices]
    moved = [a for a in range(x.rank) if sizes[a] != shape[a]]
    if all(known[a] is not None for a in moved):
        first = [
            min(max(int(k), 0), n - s) if k is not None else 0
            for k, n, s in zip(known, shape, sizes, strict=True)
        ]
        return cut(at, x, first, [f + s for f, s in zip(first, sizes, strict=True)], [1] * x.rank)
    starts = {a: s for a, s in scalar_starts(at, indices).items() if a in moved}
    if 0 in sizes:
        return at.node(np.zeros(sizes, x.element.dtype))
    w = windows_at(at, shape, sizes, starts, (), (), clamped=True)
    y = x.apply("builtin.gather", *w.places, axes=w.axes, mode="clip")
    layout = w.layout(x.rank, 0)
    return y.dimshuffle([layout.index((a,)) for a in range(x.rank)])


@rule("dynamic_update_slice")
def dynamic_update_slice(at: At, x: Node, update: Node, *indices: Node) -> Node:
    sizes, shape = static(update, "an update"), static(x, "what is updated")
    at.demand(3, f"an update of rank {x.rank}", update.rank == x.rank, update.rank)
    at.demand(4, f"{x.rank} indices", len(indices) == x.rank, len(indices))
    at.demand(
        6,
        f"an update up to {[*shape]}",
        all(s <= n for s, n in zip(sizes, shape, strict=True)),
        [*sizes],
    )
    if sizes == shape:
        return update
    if 0 in sizes:
        return x
    starts = {a: s for a, s in scalar_starts(at, indices).items() if sizes[a] != shape[a]}
    w = windows_at(at, shape, sizes, starts, (), (), clamped=True)
    updates = update.dimshuffle([a for (a,) in w.layout(x.rank, 0)])
    return x.apply("builtin.scatter", updates, *w.places, axes=w.axes, mode="clip")


@rule("scatter")
def scatter(at: At, *operands: Node) -> list[Node]:
    """Updates that are outside of the tensor are left out."""
    count = (len(operands) - 1) // 2
    xs, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    at.demand(1, "as many updates as operands", len(updates) == len(xs) > 0, len(updates))
    of = numbers_of(
        at,
        "scatter_dimension_numbers",
        *(
            "update_window_dims",
            "inserted_window_dims",
            "input_batching_dims",
            "scatter_indices_batching_dims",
        ),
        *("scatter_dims_to_operand_dims", "index_vector_dim"),
    )
    shape = static(xs[0], "what is scattered into")
    rank, dropped = len(shape), (*of["inserted_window_dims"], *of["input_batching_dims"])
    at.demand(
        2,
        f"{rank} window, inserted and batching dimensions",
        len(of["update_window_dims"]) + len(dropped) == rank,
        len(of["update_window_dims"]) + len(dropped),
    )
    (vector,) = of["index_vector_dim"] or (0,)
    batching = dict(
        zip(of["input_batching_dims"], of["scatter_indices_batching_dims"], strict=True)
    )
    starts, batch = index_starts(at, indices, vector, of["scatter_dims_to_operand_dims"], batching)
    kept = [a for a in range(rank) if a not in dropped]
    found = static(updates[0], "updates")
    sizes = [1] * rank
    for place, a in zip(of["update_window_dims"], kept, strict=True):
        sizes[a] = found[place]
    within = all(s <= n for s, n in zip(sizes, shape, strict=True))
    at.demand(4, f"windows of updates up to {[*shape]}", within, [*found])
    if 0 in found:
        return [*xs]
    labels: list[object] = [None] * len(found)
    for place, a in zip(of["update_window_dims"], kept, strict=True):
        labels[place] = (a,)
    numbers = iter(range(len(batch)))
    labels = [next(numbers) if n is None else n for n in labels]
    if not rank:
        flat = [x.dimshuffle(["x"]) for x in xs]
        rows = [at.apply("cvm.reshape", u, target_shape=(-1,)) for u in updates]
        zeros = spread(at, at.node(np.zeros((), np.int64)), rows[0].shape)
        return [y.dimshuffle([]) for y in scatter_at(at, flat, rows, [zeros], (0,), 0)]
    w = windows_at(at, shape, sizes, starts, dropped, batch, clamped=False)
    order = [labels.index(n) for n in w.layout(rank, len(batch))]
    return scatter_at(at, xs, [u.dimshuffle(order) for u in updates], w.places, w.axes, 0)


def scatter_at(
    at: At,
    xs: Sequence[Node],
    updates: Sequence[Node],
    places: list[Node],
    axes: tuple[int, ...],
    number: int,
) -> list[Node]:
    """Tensors with updates at places, combined by a region; places outside are those of a row that
    is added and taken off again.
    """
    first, n = axes[0], static(xs[0], "a scatter", axes)
    outside: Node | None = None
    for place, size in zip(places, n, strict=True):
        constant = at.importer.builder.constants.get(place.value)
        if constant is not None and constant.min() >= 0 and constant.max() < size:
            continue
        wrong = ufunc(
            "logical_or",
            ufunc("less", place, scalar_like(place, 0)),
            ufunc("greater_equal", place, scalar_like(place, size)),
        )
        outside = wrong if outside is None else ufunc("logical_or", outside, wrong)
    rank = xs[0].rank
    if outside is not None:
        places = [choose(outside, scalar_like(places[0], n[0]), places[0]), *places[1:]]
        more = tuple(int(a == first) for a in range(rank))
        xs = [x.apply("builtin.pad", before=(0,) * rank, after=more) for x in xs]
    results = combined_at(at, xs, updates, places, axes, number)
    if outside is not None:
        results = [slice_of(at, y, first, 0, n[0]) for y in results]
    return results


def combined_at(
    at: At,
    xs: Sequence[Node],
    updates: Sequence[Node],
    places: list[Node],
    axes: tuple[int, ...],
    number: int,
) -> list[Node]:
    block = at.operation.regions[number]
    given = {"axes": axes, "mode": "clip"}
    names, returned = [n for n, _ in block.arguments], block.operations[-1].operands
    if returned == names[len(xs) :]:
        return [
            x.apply("builtin.scatter", u, *places, **given)
            for x, u in zip(xs, updates, strict=True)
        ]
    name, x = combination(block) if len(xs) == 1 else None, xs[0]
    if name is not None and x.element is I1:  # and is the least of two, or the largest
        name = (
            {"and": "minimum", "multiply": "minimum"}.get(name, "maximum")
            if name != "xor"
            else name
        )
        wide = [n.cast(I32) for n in (x, updates[0])]
        if name in COMBINED:
            y = wide[0].apply("builtin.scatter", wide[1], *places, scalar_op=name, **given)
            return [ufunc("not_equal", y, scalar_like(y, 0))]
    if name in COMBINED and x.element.kind != "complex":
        return [x.apply("builtin.scatter", updates[0], *places, scalar_op=COMBINED[name], **given)]
    return stepwise(at, xs, updates, places, axes, number)


def stepwise(
    at: At,
    xs: Sequence[Node],
    updates: Sequence[Node],
    places: list[Node],
    axes: tuple[int, ...],
    number: int,
) -> list[Node]:
    """One update after the other, by a loop of the program."""
    first, rank = axes[0], places[0].rank
    if not rank:
        places = [p.dimshuffle(["x"]) for p in places]
        updates = [u.with_ones((first,)) for u in updates]
        rank = 1
    merge = (rank,)
    rows = [at.apply("builtin.reshape", p, merge=merge) if rank > 1 else p for p in places]
    moved = []
    for u in updates:
        order = [*range(first, first + rank), *range(first), *range(first + rank, u.rank)]
        u = u.dimshuffle(order)
        moved.append(
            at.apply("builtin.reshape", u, merge=(rank, *[1] * (u.rank - rank))) if rank > 1 else u
        )
    count, given = len(xs), {"axes": axes, "mode": "clip"}

    def step(values: list[Node]) -> list[Any]:
        tensors, here, new = (
            values[:count],
            values[count : count + len(axes)],
            values[count + len(axes) :],
        )
        old = [x.apply("builtin.gather", *here, **given) for x in tensors]
        found = applied(at, number, [*old, *new], old[0].rank)
        return [
            x.apply("builtin.scatter", y, *here, **given)
            for x, y in zip(tensors, found, strict=True)
        ]

    steps = static(rows[0], "updates", (0,))[0]
    return [at.node(v) for v in iterated(at, [*xs], [*rows, *moved], step, steps)][:count]


@rule("select_and_scatter")
def select_and_scatter(at: At, x: Node, source: Node, initial: Node) -> Node:
    """Each element of the source is combined with the element that its window selects;
    padding is never selected.
    """
    rank, sizes = x.rank, static(x, "windows")
    if not rank:
        return applied(at, 1, [initial, source], 0)[0]
    of = window(at, rank)
    number = np.arange(int(np.prod(sizes)), dtype=np.int64).reshape(sizes)
    places = at.apply(
        "builtin.windows",
        number,
        axes=tuple(range(rank)),
        fill=-1.0,
        **{k: v for k, v in of.items() if k != "base"},
    )
    values = windows(at, x, of, 0.0)
    count = int(np.prod(of["sizes"]))
    merge = (*[1] * rank, rank)
    rows, where_ = (
        at.apply("builtin.reshape", n, merge=merge).dimshuffle([rank, *range(rank)])
        for n in (values, places)
    )
    while count > 1:
        half = count // 2
        (a, b), (i, j) = (
            [slice_along(n, k, 2 * half, 2) for k in range(2)] for n in (rows, where_)
        )
        first = ufunc(
            "logical_and", _selected(at, a, b), ufunc("greater_equal", i, scalar_like(i, 0))
        )
        first = ufunc("logical_or", first, ufunc("less", j, scalar_like(j, 0)))
        found = [choose(first, a, b), choose(first, i, j)]
        if count % 2:
            found = [
                joined(at, [f, slice_of(at, n, 0, count - 1, count)], 0)
                for f, n in zip(found, (rows, where_), strict=True)
            ]
        (rows, where_), count = found, half + count % 2
    chosen = where_.dimshuffle([*range(1, rank + 1)])
    at.demand(
        11, f"a source of shape {[*chosen.shape]}", chosen.shape == source.shape, [*source.shape]
    )
    return scattered_flat(at, spread(at, initial, sizes), source, chosen, 1)


def _selected(at: At, a: Node, b: Node) -> Node:
    return applied(at, 0, [a, b], a.rank)[0]


def scattered_flat(at: At, x: Node, updates: Node, places: Node, number: int) -> Node:
    """Updates at places counted over all elements, combined by a region."""
    flat = at.apply("cvm.reshape", x, target_shape=(-1,))
    rows = [at.apply("cvm.reshape", n, target_shape=(-1,)) for n in (updates, places)]
    (y,) = scatter_at(at, [flat], [rows[0]], [rows[1]], (0,), number)
    return at.apply("cvm.reshape", y, target_shape=static(x, "a scatter"))
