"""Operators of StableHLO with regions: functions of elements, branches and loops.

A region over elements is computed on whole tensors: its operations broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.sizes import product
from cvm.dialect.types.tensor_types import I1, I32, compute_type
from cvm.importers.graph.elementwise import ufunc
from cvm.importers.graph.indexing import element_places, largest
from cvm.importers.graph.loops import branch, iterated, while_loop
from cvm.importers.graph.movement import joined, part as slice_of
from cvm.importers.graph.reductions import total
from cvm.importers.graph.rules import Items, Known, Unsupported, known_size, static
from cvm.parser.syntax_tree import Token

from .elementwise import computed, total_order
from .importer import At, choose, rule, scalar_like, spread
from .shapes import padded
from .text import Block, Operation, array

MAX_COMPARED = 1 << 24  # pairs of elements that a sort by a general comparison looks at
COMBINATIONS = {  # of two elements, by an operator: the reduction, and that of truth values
    "add": ("add", "any"),
    "and": ("and_", "all"),
    "maximum": ("maximum", "any"),
    "minimum": ("minimum", "all"),
    "multiply": ("mul", "all"),
    "or": ("or_", "any"),
    "xor": ("xor", ""),
}
IDENTITIES: dict[str, Callable[[Any], Any]] = {  # of the element type
    "add": lambda e: 0,
    "multiply": lambda e: 1,
    "maximum": lambda e: -np.inf if e.kind == "float" else e.limits[0],
    "minimum": lambda e: np.inf if e.kind == "float" else e.limits[1],
    "and": lambda e: -1 if e.kind == "int" else e.limits[1],
    "or": lambda e: 0,
    "xor": lambda e: 0,
}


def combination(block: Block) -> str | None:
    """The operator by which a region of two elements combines them, if it does nothing else."""
    body = block.operations
    if len(block.arguments) != 2 or len(body) != 2 or len(body[0].results) != 1:
        return None
    names = [name for name, _ in block.arguments]
    name = body[0].name.removeprefix("stablehlo.")
    plain = sorted(body[0].operands) == sorted(names) and body[1].operands == body[0].results
    return name if plain and name in COMBINATIONS else None


def applied(at: At, number: int, arguments: Sequence[Node], rank: int) -> list[Node]:
    """A region over elements, for tensors of this rank."""
    flat = rank or 1  # rank 0 would be as outside of such regions
    lifted = [x if rank else x.dimshuffle(["x"]) for x in arguments]
    shape = lifted[0].shape
    found = [at.node(y) for y in at.region(number, lifted, flat)]
    whole = [spread(at, y, shape) for y in found]
    return whole if rank else [y.dimshuffle([]) for y in whole]


@rule("map")
def mapped(at: At, *xs: Node) -> list[Node]:
    at.demand(2, "operands", bool(xs), "none")
    axes = at.ints("dimensions")
    at.demand(3, f"dimensions = {[*range(xs[0].rank)]}", axes == (*range(xs[0].rank),), [*axes])
    return applied(at, 0, xs, xs[0].rank)


@rule("reduce")
def reduce_(at: At, *operands: Node) -> list[Node]:
    count = len(operands) // 2
    xs, initial = operands[:count], operands[count:]
    at.demand(3, "as many operands as initial values", len(xs) == len(initial) > 0, len(operands))
    for x, i in zip(xs, initial, strict=True):
        at.demand(2, f"an initial value of {x.element}", i.element is x.element, i.element)
    axes = at.ints("dimensions")
    at.demand(
        4, f"dimensions in [0, {xs[0].rank})", all(0 <= a < xs[0].rank for a in axes), [*axes]
    )
    at.demand(5, "dimensions that differ", len({*axes}) == len(axes), [*axes])
    words = at.operation.words
    if not at.operation.regions and "applies" in words:
        at.operation.regions = [_of_two(at, words[words.index("applies") + 1])]
    return reduced(at, xs, initial, axes)


def _of_two(at: At, name: str) -> Block:
    """The region that `applies` stands for."""
    head = at.operation.head
    token = type(head)(head.type, name, head.start, head.end)
    last = type(head)(head.type, "stablehlo.return", head.start, head.end)
    scalar = at.operation.types[-1]
    body = [
        Operation(token, ["%result"], ["%a", "%b"], result_types=[scalar], types=[scalar]),
        Operation(last, [], ["%result"]),
    ]
    return Block([("%a", scalar), ("%b", scalar)], body)


def reduced(
    at: At, xs: Sequence[Node], initial: Sequence[Node], axes: Sequence[int], number: int = 0
) -> list[Node]:
    """The elements along axes combined by a region, in pairs of neighbors, pairs of pairs and so
    on; sums and the like as reductions.
    """
    if number >= len(at.operation.regions):
        raise ValueError("it has no region")
    axes = sorted(axes)
    name = combination(at.operation.regions[number]) if len(xs) == 1 else None
    (x, *_), (start, *_) = xs, initial
    if name is not None and not (x.element is I1 and name == "xor"):
        if any(isinstance(x.shape[a], int) and x.shape[a] == 0 for a in axes):
            kept = [n for a, n in enumerate(x.shape) if a not in axes]
            return [spread(at, start, kept)]
        y = combined(x, name, axes)
        array = at.importer.builder.constants.get(start.value)
        is_identity = (
            array is not None
            and x.element is not I1
            and (
                array.item() == np.array(IDENTITIES[name](x.element)).astype(x.element.dtype).item()
                if x.element.kind != "complex" or name in ("add", "multiply")
                else False
            )
        )
        return [y if is_identity else computed(_ufunc(name), start, y)]
    kept = [a for a in range(x.rank) if a not in axes]
    count = known_size(product(tuple(x.shape[a] for a in axes)), "a reduction")
    sizes = tuple(x.shape[a] for a in kept)
    rows = [x.dimshuffle([*axes, *kept]) for x in xs]
    if len(axes) != 1:
        rows = [_rows(at, r, count, len(axes)) for r in rows]
    first = [spread(at, i, sizes) for i in initial]
    while count > 1:
        half = count // 2
        pairs = [slice_along(r, k, 2 * half, 2) for k in range(2) for r in rows]
        found = applied(at, number, pairs, rows[0].rank)
        if count % 2:
            rest = [slice_of(at, r, 0, count - 1, count) for r in rows]
            found = [joined(at, [f, r], 0) for f, r in zip(found, rest, strict=True)]
        rows, count = found, half + count % 2
    if not count:
        return first
    last = [r.dimshuffle([*range(1, r.rank)]) for r in rows]
    return applied(at, number, [*first, *last], len(kept))


def _rows(at: At, x: Node, count: int, merged: int) -> Node:
    if not merged:
        return x.dimshuffle(["x", *range(x.rank)])
    return at.apply("builtin.reshape", x, merge=(merged, *[1] * (x.rank - merged)))


def slice_along(x: Node, start: int, stop: int, step: int) -> Node:
    """Elements along the first axis, at equal distances."""
    sizes = static(x, "a reduction")
    return x.apply(
        "cvm.slice",
        begin=(start, *[0] * (x.rank - 1)),
        end=(stop, *sizes[1:]),
        strides=(step, *[1] * (x.rank - 1)),
    )


def combined(x: Node, name: str, axes: Sequence[int]) -> Node:
    """A reduction by an operator."""
    function, of_bools = COMBINATIONS[name]
    if x.element is I1:
        return x.reduce(of_bools, axes) if axes else x
    if not axes:
        return x
    if name == "add":
        return total(x, axes)
    if name == "multiply":
        return x.reduce("prod", axes, dtype=x.element, acc_dtype=compute_type(x.element))
    if name in ("maximum", "minimum"):
        return x.reduce(name[:3], axes)
    return x.reduce("careduce", axes, scalar_op=function)


def _ufunc(name: str) -> str:
    return f"bitwise_{name}" if name in ("and", "or", "xor") else name


# Windows


def window(at: At, rank: int) -> dict[str, tuple[int, ...]]:
    """The attributes of windows, each with an entry for every dimension."""
    ones = (1,) * rank
    found = {
        "sizes": at.ints("window_dimensions"),
        "strides": at.ints("window_strides", default=ones),
        "base": at.ints("base_dilations", default=ones),
        "dilations": at.ints("window_dilations", default=ones),
    }
    pads = np.asarray(at.attribute("padding", default=np.zeros((rank, 2), int)))
    lengths = {len(v) for v in found.values()} | {len(pads)}
    at.demand(
        4, f"{rank} of window_dimensions, and of the others", lengths == {rank}, sorted(lengths)
    )
    at.demand(5, "0 < window_dimensions", all(n > 0 for n in found["sizes"]), [*found["sizes"]])
    for number, name in ((7, "strides"), (9, "base"), (11, "dilations")):
        at.demand(number, f"0 < {name}", all(n > 0 for n in found[name]), [*found[name]])
    before, after = (
        np.broadcast_to(pads.reshape(rank, -1), (rank, 2)).T.tolist() if rank else ([], [])
    )
    return {**found, "before": tuple(before), "after": tuple(after)}


def windows(at: At, x: Node, of: dict[str, tuple[int, ...]], fill: Any) -> Node:
    """The elements in windows, along new axes at the end."""
    axes = tuple(range(x.rank))
    before, after = of["before"], of["after"]
    if isinstance(fill, Node):
        array = at.importer.builder.constants.get(fill.value)
        exact = (
            array is not None
            and x.element.kind != "complex"
            and float(array.item()) == array.item()
        )
        if array is not None and exact and max(of["base"], default=1) == 1:
            fill = float(array.item())
        else:
            x = padded(at, x, fill, before, after, [n - 1 for n in of["base"]])
            before = after = (0,) * x.rank
            fill = 0.0
    given = {n: of[n] for n in ("sizes", "strides", "dilations")}
    return x.apply("builtin.windows", axes=axes, before=before, after=after, fill=fill, **given)


@rule("reduce_window")
def reduce_window(at: At, *operands: Node) -> list[Node]:
    count = len(operands) // 2
    xs, initial = operands[:count], operands[count:]
    at.demand(1, "as many operands as initial values", len(xs) == len(initial) > 0, len(operands))
    rank = xs[0].rank
    of = window(at, rank)
    if (y := prefix(at, xs, initial, of)) is not None:
        return [y]
    sizes = static(xs[0], "windows")
    wide = [
        max((n - 1) * b + 1, 0) + p + q
        for n, b, p, q in zip(sizes, of["base"], of["before"], of["after"], strict=True)
    ]
    spans = [(n - 1) * d + 1 for n, d in zip(of["sizes"], of["dilations"], strict=True)]
    if any(n < s for n, s in zip(wide, spans, strict=True)):
        shape = [
            max((n - s) // t + 1, 0) for n, s, t in zip(wide, spans, of["strides"], strict=True)
        ]
        return [spread(at, i, shape) for i in initial]
    if not rank:
        return reduced(at, xs, initial, ())
    parts = [windows(at, x, of, i) for x, i in zip(xs, initial, strict=True)]
    return reduced(at, parts, initial, range(rank, 2 * rank))


def prefix(at: At, xs: Sequence[Node], initial: Sequence[Node], of: dict[str, Any]) -> Node | None:
    """Windows that reach from each element to an end of one axis: a sum of all before, and the
    like.
    """
    name = combination(at.operation.regions[0]) if len(xs) == 1 and at.operation.regions else None
    long = [a for a, n in enumerate(of["sizes"]) if n > 1]
    x, array = xs[0], at.importer.builder.constants.get(initial[0].value)
    plain = all(n == 1 for key in ("strides", "base", "dilations") for n in of[key])
    if (
        name not in ("add", "multiply", "maximum", "minimum")
        or len(long) != 1
        or not plain
        or array is None
    ):
        return None
    (axis,) = long
    n = of["sizes"][axis]
    sides = [(of["before"][a], of["after"][a]) for a in range(x.rank)]
    others = all(s == (0, 0) for a, s in enumerate(sides) if a != axis)
    identity = (
        x.element.kind != "complex"
        and x.element is not I1
        and (array.item() == np.array(IDENTITIES[name](x.element)).astype(x.element.dtype).item())
    )
    if (
        n != x.shape[axis]
        or not others
        or not identity
        or sides[axis] not in ((n - 1, 0), (0, n - 1))
    ):
        return None
    function = {"multiply": "mul"}.get(name, name)
    return x.apply("builtin.cumulative", axis=axis, scalar_op=function, reverse=sides[axis][0] == 0)


# Order


@rule("sort")
def sort(at: At, *xs: Node) -> list[Node]:
    (axis,) = at.ints("dimension", default=(-1,))
    rank = xs[0].rank if xs else 0
    at.demand(1, "operands", bool(xs), "none")
    at.demand(4, f"dimension in [{-rank}, {rank})", -rank <= axis < rank, axis)
    axis %= rank
    if xs[0].shape[axis] in (0, 1):
        return [*xs]
    order = ordering(at, xs, axis)
    places = element_places(at, order, axis)
    return [x.apply("builtin.gather", *places, axes=tuple(range(rank)), mode="clip") for x in xs]


def ordering(at: At, xs: Sequence[Node], axis: int) -> Node:
    """The places of elements in their order: by a key, where the region compares one of each side;
    else by how many come before.
    """
    block = at.operation.regions[0] if at.operation.regions else None
    if block is None or not block.operations:
        raise ValueError("it has no comparison")
    key = sort_key(at, block, xs)
    if key is not None:
        values, descending = key
        return at.apply("builtin.argsort", values, axis=axis, descending=descending)
    n = known_size(xs[0].shape[axis], "a sort")
    if n * known_size(product(xs[0].shape), "a sort") > MAX_COMPARED:
        raise Unsupported(f"a comparison that is not by one key, of {n} elements along an axis,")
    rank = xs[0].rank
    rows = [x.dimshuffle([*[a for a in range(rank) if a != axis], axis]) for x in xs]
    shape = (*rows[0].shape, n)
    a = [spread(at, r.with_ones((rank,)), shape) for r in rows]  # along the axis before the last
    b = [spread(at, r.with_ones((rank - 1,)), shape) for r in rows]
    before = applied(at, 0, [v for pair in zip(b, a, strict=True) for v in pair], rank + 1)[0]
    after = applied(at, 0, [v for pair in zip(a, b, strict=True) for v in pair], rank + 1)[0]
    earlier = at.node(np.tri(n, k=-1, dtype=bool))
    tied = ufunc("logical_and", ufunc("logical_not", after), earlier)
    rank_of = ufunc("logical_or", before, tied).cast(I32).sum((rank,), dtype=I32, acc_dtype=I32)
    order = at.apply("builtin.argsort", rank_of, axis=rank - 1)
    back = [*range(rank - 1)]
    back.insert(axis, rank - 1)
    return order.dimshuffle(back)


def sort_key(at: At, block: Block, xs: Sequence[Node]) -> tuple[Node, bool] | None:
    """The values by which a region orders, and whether the largest is first; None where it does
    more than compare the same function of two elements.
    """
    *body, last = block.operations
    made = {r: o for o in body for r in o.results}
    if len(last.operands) != 1 or (compare := made.get(last.operands[0])) is None:
        return None
    if not compare.name.endswith(".compare") or len(compare.operands) != 2:
        return None
    words = [
        *compare.words,
        *(str(compare.attributes.get(n, "")) for n in ("comparison_direction", "compare_type")),
    ]
    words = [w.split()[-1] for w in words if w]
    if not {"LT", "GT"} & {*words}:
        return None
    names = [name for name, _ in block.arguments]
    sides = [_tree(made, names, name, k) for k, name in enumerate(compare.operands)]
    if sides[0] is None or sides[0] != sides[1]:
        return None
    shape_of = {name: n // 2 for n, name in enumerate(names)}
    key = Block(
        block.arguments,
        [*(o for o in body if o is not compare), Operation(last.head, [], [compare.operands[0]])],
    )
    arguments = [xs[shape_of[name]] for name in names]
    (values,) = at.importer.block(key, arguments, at.values, xs[0].rank)
    values = spread(at, at.node(values), xs[0].shape)
    if "TOTALORDER" in words and values.element.kind == "float":
        values = total_order(values)
    if values.element is I1:
        values = values.cast(I32)
    if values.element.kind == "complex":
        return None
    return values, "GT" in words


def _tree(made: dict[str, Operation], names: list[str], name: str, side: int) -> Any:
    """The operations that make a value of the arguments of one side of a comparison; None where
    others go in.
    """
    if name in names:
        place = names.index(name)
        return ("argument", place // 2) if place % 2 == side else None
    if (o := made.get(name)) is None:
        return ("outside", name)
    parts = [_tree(made, names, n, side) for n in o.operands]
    value = o.attributes.get("value")
    said = (
        value.text
        if isinstance(value, Token)
        else value.tobytes()
        if isinstance(value, np.ndarray)
        else ""
    )
    attributes = tuple(sorted((k, str(v)) for k, v in o.attributes.items() if k != "value"))
    if any(p is None for p in parts) or o.regions:
        return None
    types = tuple(t.text for t in o.result_types)
    return (o.name, *o.words, said, attributes, types, *parts)


@rule("chlo.top_k")
def top_k(at: At, x: Node) -> list[Node]:
    (k,) = at.ints("k")
    at.demand(1, f"k in [0, {x.shape[-1] if x.rank else 0}]", bool(x.rank) and k >= 0, k)
    values, places = largest(at, x, k, x.rank - 1)
    return [values, places.cast(I32)]


# Branches and loops


@rule("if")
def if_(at: At, condition: Known) -> list[Any]:
    if isinstance(condition, np.ndarray):
        return at.region(0 if condition.reshape(()) else 1)
    flag = at.node(condition)
    return branched(at, 0, 2, lambda _: flag)


@rule("case")
def case(at: At, index: Known) -> list[Any]:
    """The last branch is taken for every number that stands for none."""
    count = len(at.operation.regions)
    at.demand(1, "branches", count > 0, "none")
    if isinstance(index, np.ndarray):
        n = int(index.reshape(()))
        return at.region(n if 0 <= n < count else count - 1)
    node = at.node(index)
    last = scalar_like(node, count - 1)
    number = choose(ufunc("less", node, scalar_like(node, 0)), last, node)
    return branched(at, 0, count, lambda n: ufunc("less", number, scalar_like(node, n)))


def branched(at: At, first: int, after: int, is_before: Callable[[int], Node]) -> list[Any]:
    """The results of one of the regions from `first` to before `after`, chosen by halves; with
    `lift`, all are computed.
    """
    if after - first < 2:
        return at.region(first)
    middle = (first + after) // 2
    condition = is_before(middle)
    halves = [partial(branched, at, *of, is_before) for of in ((first, middle), (middle, after))]
    if not at.lift:
        return branch(at.importer, at.op, condition, halves)
    then, otherwise = (map(at.node, half()) for half in halves)
    return [choose(condition, a, b) for a, b in zip(then, otherwise, strict=True)]


@rule("while")
def while_(at: At, *known: Known) -> list[Any]:
    condition, body = at.operation.regions
    names = [name for name, _ in body.arguments]
    returned = body.operations[-1].operands
    if len(names) != len(known) or len(returned) != len(known):
        raise ValueError("its values are not as many as those that its regions take and return")
    if any(isinstance(v, Items) for v in known):
        raise Unsupported("a tuple that a loop carries")
    # what stays as it is at every step is no part of the loop
    moving = [k for k, name in enumerate(names) if returned[k] != name]

    def filled(carried: Sequence[Any]) -> list[Any]:
        values: list[Any] = [*known]
        for k, v in zip(moving, carried, strict=True):
            values[k] = v
        return values

    def step(carried: list[Node]) -> list[Any]:
        results = at.region(1, filled(carried))
        return [results[k] for k in moving]

    start = [known[k] for k in moving]
    trips = trip_count(at, condition, body, known)
    if trips is not None:
        last = iterated(at, start, [], step, trips) if moving else []
        return filled(last)
    if not moving:
        raise Unsupported("a loop that changes nothing")

    def going(carried: list[Node]) -> list[Any]:
        results = step(carried)
        return [at.region(0, filled(results))[0], *results]

    first = at.node(at.region(0, known)[0])
    return filled(while_loop(at.importer, at.op, first, [at.node(v) for v in start], going))


COMPARED: dict[str, Callable[[int, int, int], int | None]] = {
    "LT": lambda i, n, s: max(-(-(n - i) // s), 0) if s > 0 else None,
    "LE": lambda i, n, s: max((n - i) // s + 1, 0) if s > 0 else None,
    "GT": lambda i, n, s: max(-(-(i - n) // -s), 0) if s < 0 else None,
    "GE": lambda i, n, s: max((i - n) // -s + 1, 0) if s < 0 else None,
    "NE": lambda i, n, s: (n - i) // s if s and (n - i) % s == 0 and (n - i) // s >= 0 else None,
}


def trip_count(at: At, condition: Block, body: Block, known: Sequence[Known]) -> int | None:
    """The number of steps of a loop whose condition compares a counter with a constant."""
    compare = _made_by(condition, condition.operations[-1].operands[0])
    if compare is None or not compare.name.endswith(".compare"):
        return None
    words = [*compare.words, str(compare.attributes.get("comparison_direction", ""))]
    direction = next((w.split()[-1] for w in words if w and w.split()[-1] in COMPARED), None)
    names = [name for name, _ in condition.arguments]
    counter = compare.operands[0]
    if direction is None or counter not in names:
        return None
    k = names.index(counter)
    limit = _number(at, condition, body, known, compare.operands[1])
    step = _made_by(body, body.operations[-1].operands[k])
    if limit is None or step is None or step.name.rpartition(".")[2] not in ("add", "subtract"):
        return None
    own = body.arguments[k][0]
    operands = [n for n in step.operands if n != own]
    by = _number(at, body, body, known, operands[0]) if len(operands) == 1 else None
    start = known[k]
    if (
        by is None
        or not isinstance(start, np.ndarray)
        or start.dtype.kind not in "iu"
        or start.ndim
    ):
        return None
    if step.name.endswith("subtract"):
        by = -by if step.operands[0] == own else None
    count = None if by is None else COMPARED[direction](int(start), limit, by)
    limits = np.iinfo(start.dtype)
    if count is None or by is None or not limits.min <= int(start) + count * by <= limits.max:
        return None
    return count


def _made_by(block: Block, name: str) -> Operation | None:
    return next((o for o in block.operations if name in o.results), None)


def _number(at: At, block: Block, body: Block, known: Sequence[Known], name: str) -> int | None:
    """The integer that a name stands for in a loop at every step."""
    names = [n for n, _ in block.arguments]
    if name in names:
        k = names.index(name)
        stays = body.operations[-1].operands[k] == body.arguments[k][0]
        value: Any = known[k] if stays else None
    elif (made := _made_by(block, name)) is not None:
        if not made.name.endswith(".constant"):
            return None
        value = made.attributes.get("value")
        value = value if isinstance(value, np.ndarray) else array(value, made.result_types[0])
    else:
        value = at.values.get(name)
    is_number = isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "iu"
    return int(value.reshape(())) if is_number else None


@rule("chlo.scan")
def scan(at: At, *operands: Node) -> list[Any]:
    (axis,) = at.ints("dimension", "scan_dimension")
    count = at.ints("inits", "operandSegmentSizes")[-1]
    xs, start = operands[: len(operands) - count], operands[len(operands) - count :]
    reverse = bool(at.attribute("is_reverse", default=False) or False)
    rows = [x.dimshuffle([axis, *[a for a in range(x.rank) if a != axis]]) for x in xs]

    def step(values: list[Node]) -> list[Any]:
        carried, slices = values[:count], values[count:]
        results = at.region(0, [*slices, *carried])
        outputs = len(results) - count
        return [*results[outputs:], *results[:outputs]]

    if not rows:
        raise Unsupported("a scan of nothing")
    n = known_size(rows[0].shape[0], "a scan")
    if not n:
        raise Unsupported("a scan of no steps")
    found = iterated(at, start, rows, step, n, reverse)
    outputs = []
    for y in (at.node(v) for v in found[count:]):
        order = [*range(1, y.rank)]
        order.insert(axis, 0)
        outputs.append(y.dimshuffle(order))
    return [*outputs, *found[:count]]
