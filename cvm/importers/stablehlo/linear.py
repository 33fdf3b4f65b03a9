"""Products, convolutions, Fourier transforms, systems of equations and batch normalization of
StableHLO.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import ELEMENT_TYPES
from cvm.importers.graph.contractions import FAST, Window, contract, convolution
from cvm.importers.graph.elementwise import ufunc
from cvm.importers.graph.loops import iterated
from cvm.importers.graph.movement import at_step
from cvm.importers.graph.reductions import total
from cvm.importers.graph.rules import MAX_CONSTANT, Array, Unsupported, known_size, static

from .elementwise import cast
from .importer import At, choose, rule, scalar_like, spread
from .shapes import flipped, padded, to_shape

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def dimensions(at: At, *names: str) -> list[tuple[int, ...]]:
    """Lists of dimensions by their names in an attribute of the generic form."""
    given = at.attribute(*names)
    if not isinstance(given, dict):
        raise ValueError(f"{names[0]} is no list of dimensions")
    keys = [
        f"{side}_{kind}_dimensions"
        for kind in ("batching", "contracting")
        for side in ("lhs", "rhs")
    ]
    return [tuple(np.reshape(given.get(k, ()), -1).astype(int).tolist()) for k in keys]


@rule("dot_general")
def dot_general(at: At, a: Node, b: Node) -> Node:
    if at.has("dot_dimension_numbers"):
        batch_a, batch_b, inner_a, inner_b = dimensions(at, "dot_dimension_numbers")
    else:  # [0] x [1], of each side
        pairs = [
            at.attribute(n, default=[[], "x", []]) for n in ("batching_dims", "contracting_dims")
        ]
        batch_a, batch_b, inner_a, inner_b = (tuple(p[k]) for p in pairs for k in (0, 2))
    at.demand(
        1,
        "as many batching dimensions of each",
        len(batch_a) == len(batch_b),
        f"{[*batch_a]} and {[*batch_b]}",
    )
    at.demand(
        2,
        "as many contracting dimensions of each",
        len(inner_a) == len(inner_b),
        f"{[*inner_a]} and {[*inner_b]}",
    )
    for number, x, own in ((3, a, (*batch_a, *inner_a)), (4, b, (*batch_b, *inner_b))):
        at.demand(number, "dimensions that differ", len({*own}) == len(own), [*own])
        at.demand(
            number + 2, f"dimensions in [0, {x.rank})", all(0 <= d < x.rank for d in own), [*own]
        )
    for number, pairs in (
        (9, zip(batch_a, batch_b, strict=True)),
        (10, zip(inner_a, inner_b, strict=True)),
    ):
        for i, j in pairs:
            n, m = a.shape[i], b.shape[j]
            same = n == m or not (isinstance(n, int) and isinstance(m, int))
            at.demand(number, f"dimension {i} of {n} elements in both", same, m)
    return product_of(
        at, cast(a, at.element), cast(b, at.element), batch_a, batch_b, inner_a, inner_b
    )


def product_of(
    at: At,
    a: Node,
    b: Node,
    batch_a: Sequence[int],
    batch_b: Sequence[int],
    inner_a: Sequence[int],
    inner_b: Sequence[int],
) -> Node:
    free_a = [d for d in range(a.rank) if d not in (*batch_a, *inner_a)]
    free_b = [d for d in range(b.rank) if d not in (*batch_b, *inner_b)]
    matrices = not batch_a and len(inner_a) == 1 and a.element in FAST
    if matrices and all(isinstance(n, int) and n for n in (*a.shape, *b.shape)):
        rows, columns = a.dimshuffle([*free_a, *inner_a]), b.dimshuffle([*free_b, *inner_b])
        k = b.shape[inner_b[0]]
        flat = [
            x if x.rank == 2 else at.apply("cvm.reshape", x, target_shape=(-1, k))
            for x in (rows, columns)
        ]
        y = at.apply("cvm.dense", *flat)
        shape = tuple(x.shape[d] for x, free in ((a, free_a), (b, free_b)) for d in free)
        return y if len(shape) == 2 else to_shape(at, y, shape)
    if a.rank + b.rank > len(LETTERS):
        raise Unsupported(f"a product of {a.rank} and {b.rank} dimensions")
    left = LETTERS[: a.rank]
    right = list(LETTERS[a.rank : a.rank + b.rank])
    for i, j in zip((*batch_a, *inner_a), (*batch_b, *inner_b), strict=True):
        right[j] = left[i]
    to = "".join([*(left[d] for d in (*batch_a, *free_a)), *(right[d] for d in free_b)])
    return contract(a, b, left, "".join(right), to)


# Convolutions


def conv_dimensions(at: At) -> tuple[list[Any], list[Any], list[Any]]:
    """The dimensions of both operands and of the result, as `b`, `f`, `i`, `o` and numbers."""
    given = at.attribute("dimension_numbers", "dim_numbers")
    if isinstance(given, dict):  # the long form of the generic one
        return tuple(_long(given, side) for side in ("input", "kernel", "output"))  # type: ignore[return-value]
    lists = [part for part in given if isinstance(part, list)]
    if len(lists) != 3:
        raise ValueError("dim_numbers are three lists")
    return lists[0], lists[1], lists[2]


def _long(given: dict[str, Any], side: str) -> list[Any]:
    spatial = [int(n) for n in np.reshape(given.get(f"{side}_spatial_dimensions", ()), -1)]
    names = {"b": "batch", "f": "feature"}
    if side == "kernel":
        names = {"i": "input_feature", "o": "output_feature"}
    found: dict[int, Any] = {int(given[f"{side}_{n}_dimension"]): k for k, n in names.items()}
    found |= {d: k for k, d in enumerate(spatial)}
    return [found[d] for d in sorted(found)]


@rule("convolution")
def convolution_(at: At, x: Node, w: Node) -> Node:
    return convolved(at, x, w, None)


@rule("dynamic_conv")
def dynamic_conv(at: At, x: Node, w: Node, pads: Array) -> Node:
    return convolved(at, x, w, pads)


def convolved(at: At, x: Node, w: Node, pads: object) -> Node:
    of_x, of_w, of_y = conv_dimensions(at)
    rank = x.rank - 2
    at.demand(
        1,
        f"operands of rank {len(of_x)}",
        x.rank == w.rank == len(of_x) == len(of_w) == len(of_y),
        f"{x.rank} and {w.rank}",
    )
    window = at.attribute("window", default={})
    window = window if isinstance(window, dict) else {}

    def numbers(number: int, generic: str, pretty: str) -> list[int]:
        value = window[pretty] if pretty in window else at.attribute(generic, default=[1] * rank)
        found = (
            [int(n) for n in np.broadcast_to(np.reshape(value, -1), (rank,))]
            if np.size(value) in (1, rank)
            else []
        )
        at.demand(number, f"{rank} of {generic}", len(found) == rank, value)
        at.demand(
            number + 1,
            f"0 < {generic}",
            generic == "window_reversal" or all(n > 0 for n in found),
            found,
        )
        return found

    strides = numbers(2, "window_strides", "stride")
    base = numbers(5, "lhs_dilation", "lhs_dilate")
    dilations = numbers(7, "rhs_dilation", "rhs_dilate")
    reverse = window.get("reverse", at.attribute("window_reversal", default=[False] * rank))
    reverse = (
        np.broadcast_to(np.reshape(reverse, -1).astype(bool), (rank,)).tolist() if rank else []
    )
    if pads is None:
        pads = window.get("pad", at.attribute("padding", default=np.zeros((rank, 2), int)))
    pads = np.asarray(pads)
    at.demand(4, f"padding of shape [{rank}, 2]", pads.size in (1, 2 * rank), [*pads.shape])
    before, after = (
        np.broadcast_to(
            pads.reshape(-1, 2) if pads.size > 1 else pads.reshape(1, 1), (rank, 2)
        ).T.tolist()
        if rank
        else ([], [])
    )
    groups, batches = (at.ints(f"{n}_group_count", default=(1,))[0] for n in ("feature", "batch"))
    at.demand(21, "0 < feature_group_count", groups > 0, groups)
    at.demand(22, "0 < batch_group_count", batches > 0, batches)
    at.demand(
        23,
        "feature_group_count = 1 or batch_group_count = 1",
        1 in (groups, batches),
        f"{groups} and {batches}",
    )
    x = cast(x, at.element).dimshuffle([of_x.index(n) for n in ("b", "f", *range(rank))])
    w = cast(w, at.element).dimshuffle([of_w.index(n) for n in ("o", "i", *range(rank))])
    n, c = (known_size(m, "a convolution") for m in x.shape[:2])
    o, i = (known_size(m, "a convolution") for m in w.shape[:2])
    at.demand(10, f"a batch that {batches} divides", n % batches == 0, n)
    at.demand(11, f"features that {groups} divides", c % groups == 0, c)
    at.demand(14, f"{c // groups} input features of the kernel", i == c // groups, i)
    at.demand(15, f"output features that {batches} divides", o % batches == 0, o)
    at.demand(16, f"output features that {groups} divides", o % groups == 0, o)
    sizes = static(x, "a convolution", range(2, x.rank))
    kernel = static(w, "a convolution", range(2, w.rank))
    w = flipped(w, [k + 2 for k, r in enumerate(reverse) if r])
    if any(b > 1 for b in base) or min((*before, *after), default=0) < 0:
        zero = at.node(np.zeros((), x.element.dtype))
        inside = (0, 0, *(b - 1 for b in base))
        x = padded(at, x, zero, (0, 0, *before), (0, 0, *after), inside)
        before = after = [0] * rank
        sizes = static(x, "a convolution", range(2, x.rank))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    counts = [
        (m + p + q - s) // t + 1 if m + p + q >= s else 0
        for m, p, q, s, t in zip(sizes, before, after, spans, strides, strict=True)
    ]
    labels = ["b", "f", *range(rank)]
    if 0 in (n, c, o, *counts, *kernel):
        shape = [
            {"b": n // batches, "f": o}.get(k, counts[k] if isinstance(k, int) else 0) for k in of_y
        ]
        return at.node(np.zeros(shape, x.element.dtype))
    if batches > 1:  # parts of the batch become groups of features
        x = at.apply("builtin.reshape", x, split=((batches, n // batches), *[(-1,)] * (rank + 1)))
        x = x.dimshuffle([1, 0, *range(2, x.rank)])
        x = at.apply("builtin.reshape", x, merge=(1, 2, *[1] * rank))
        groups = batches
    if not rank:
        y = convolution(
            at, x.with_ones((2,)), w.with_ones((2,)), None, Window([1], [1], [0], [0]), groups
        )
        y = y.dimshuffle((0, 1))
    else:
        y = convolution(at, x, w, None, Window(strides, dilations, before, after), groups)
    return y.cast(at.element).dimshuffle([labels.index(k) for k in of_y])


# Fourier transforms


@rule("fft")
def fft(at: At, x: Node) -> Node:
    """By products with matrices of roots of unity, an axis after the other."""
    kind = str(at.attribute("fft_type", "type")).split()[-1]
    lengths = at.ints("fft_length", "length")
    at.demand(1, f"up to {x.rank} lengths", len(lengths) <= x.rank, len(lengths))
    at.demand(3, "1 to 3 lengths", 1 <= len(lengths) <= 3, len(lengths))
    if kind not in ("FFT", "IFFT", "RFFT", "IRFFT"):
        raise ValueError(f"it has no type {kind}")
    axes = [*range(x.rank - len(lengths), x.rank)]
    real = (x if x.element.kind != "complex" else x.scalar("real")).element
    wide = ELEMENT_TYPES[f"complex<{real}>"]
    sizes = static(x, "a transform", axes)
    expected = (*lengths[:-1], lengths[-1] // 2 + 1) if kind == "IRFFT" else lengths
    at.demand(
        5 if kind == "IRFFT" else 4,
        f"{[*expected]} elements along the last axes",
        sizes == tuple(expected),
        [*sizes],
    )
    inverse = kind.startswith("I")
    y = x.cast(wide)
    order = list(zip(axes, lengths, strict=True))
    for axis, n in order if inverse else order[::-1]:
        count = y.shape[axis]
        last = axis == x.rank - 1
        if kind == "IRFFT" and last:
            y = real_inverse(at, y, n, real)
        else:
            y = turned(
                at, y, axis, roots(count, n // 2 + 1 if kind == "RFFT" and last else n, n, inverse)
            )
    return y


def roots(rows: Any, columns: int, n: int, inverse: bool) -> np.ndarray:
    """The roots of unity by which the elements of an axis go into the result's."""
    if rows * columns > MAX_CONSTANT:
        raise Unsupported(f"a transform of {n} numbers")
    turns = np.outer(np.arange(rows), np.arange(columns)) % n / n * (2 if inverse else -2) * np.pi
    return np.exp(1j * turns) / (n if inverse else 1)


def turned(at: At, x: Node, axis: int, matrix: np.ndarray) -> Node:
    left = LETTERS[: x.rank]
    return contract(
        x,
        at.node(matrix.astype(x.element.dtype)),
        left,
        f"{left[axis]}z",
        left.replace(left[axis], "z"),
    )


def real_inverse(at: At, x: Node, n: int, real: Any) -> Node:
    """The inverse of half of a spectrum, whose other half is conjugate to it."""
    half = n // 2 + 1
    matrix = roots(half, n, n, True)
    matrix[1 : (n + 1) // 2] *= 2
    left = LETTERS[: x.rank]
    to = left[:-1] + "z"
    parts = [
        contract(x.scalar(name), at.node(m.astype(real.dtype)), left, f"{left[-1]}z", to)
        for name, m in (("real", np.real(matrix)), ("imag", np.imag(matrix)))
    ]
    return parts[0] - parts[1]


# Systems of equations


def matrix_transposed(x: Node) -> Node:
    return x.dimshuffle([*range(x.rank - 2), x.rank - 1, x.rank - 2])


def conjugate(x: Node) -> Node:
    return ufunc("conjugate", x) if x.element.kind == "complex" else x


@rule("triangular_solve")
def triangular_solve(at: At, a: Node, b: Node) -> Node:
    """By substitution, a row after the other: from the first one where the matrix is lower."""
    at.demand(
        1, "operands of one element type", a.element is b.element, f"{a.element} and {b.element}"
    )
    at.demand(2, "2 <= rank(a) = rank(b)", a.rank == b.rank >= 2, f"{a.rank} and {b.rank}")
    n, m = static(a, "a matrix", (a.rank - 2, a.rank - 1))
    at.demand(4, "a square matrix", n == m, f"{n}x{m}")
    left, lower, unit = (
        bool(at.attribute(k, default=False) or False)
        for k in ("left_side", "lower", "unit_diagonal")
    )
    how = str(at.attribute("transpose_a", default="NO_TRANSPOSE")).split()[-1]
    side = b.shape[b.rank - (2 if left else 1)]
    at.demand(3, f"{n} rows or columns of b", side == n, side)
    if 0 in b.shape:
        return b
    transposed = how in ("TRANSPOSE", "ADJOINT")
    if how == "ADJOINT":
        a = conjugate(a)
    if not left:  # X A = B is A' X' = B'
        b, transposed = matrix_transposed(b), not transposed
    if transposed:
        a, lower = matrix_transposed(a), not lower
    rank = a.rank
    batch = [*range(rank - 2)]
    rows = [x.dimshuffle([rank - 2, *batch, rank - 1]) for x in (a, b)]
    numbers = at.node(np.arange(n))
    letters = LETTERS[: rank - 2]

    def step(values: list[Node]) -> list[Node]:
        x, of_a, of_b, k = values
        here = ufunc("equal", numbers, k)  # along the rows
        known = ufunc("less" if lower else "greater", numbers, k)
        zero = scalar_like(of_a, 0)
        factors = choose(known, of_a, zero)
        rest = of_b - contract(factors, x, f"{letters}y", f"{letters}yz", f"{letters}z")
        if not unit:
            diagonal = total(choose(here, of_a, zero), (rank - 2,))
            rest = ufunc("divide", rest, diagonal.with_ones((rank - 2,)))
        at_row = here.dimshuffle([*["x"] * (rank - 2), 0, "x"])
        return [choose(at_row, rest.with_ones((rank - 2,)), x)]

    zeros = spread(at, at.node(np.zeros((), b.element.dtype)), b.shape)
    found = at.node(iterated(at, [zeros], [*rows, numbers], step, n, not lower)[0])
    return found if left else matrix_transposed(found)


@rule("cholesky")
def cholesky(at: At, a: Node) -> Node:
    """A column after the other; of the other half of the matrix nothing is read, and zeros are
    returned there.
    """
    at.demand(2, "2 <= rank(a)", a.rank >= 2, a.rank)
    n, m = static(a, "a matrix", (a.rank - 2, a.rank - 1))
    at.demand(3, "a square matrix", n == m, f"{n}x{m}")
    lower = bool(at.attribute("lower", default=False) or False)
    if 0 in a.shape:
        return a
    a = a if lower else conjugate(matrix_transposed(a))
    rank, letters, numbers = a.rank, LETTERS[: a.rank - 2], at.node(np.arange(n))
    columns = a.dimshuffle([rank - 1, *range(rank - 1)])

    def step(values: list[Node]) -> list[Node]:
        x, column, k = values
        here, zero = ufunc("equal", numbers, k), scalar_like(column, 0)
        at_row = here.dimshuffle([*["x"] * (rank - 2), 0, "x"])
        row = total(choose(at_row, x, zero), (rank - 2,))
        rest = column - contract(x, conjugate(row), f"{letters}yz", f"{letters}z", f"{letters}y")
        pivot = total(choose(here, rest, zero), (rank - 2,))
        root = ufunc(
            "sqrt", pivot.scalar("real") if pivot.element.kind == "complex" else pivot
        ).cast(pivot.element)
        new = ufunc("divide", rest, root.with_ones((rank - 2,)))
        new = choose(ufunc("greater_equal", numbers, k), new, zero)
        at_column = here.dimshuffle([*["x"] * (rank - 2), "x", 0])
        return [choose(at_column, new.with_ones((rank - 1,)), x)]

    zeros = spread(at, at.node(np.zeros((), a.element.dtype)), a.shape)
    found = at.node(iterated(at, [zeros], [columns, numbers], step, n)[0])
    return found if lower else conjugate(matrix_transposed(found))


# Batch normalization


def feature_index(at: At, x: Node) -> tuple[list[int], list[Any], int]:
    """The dimensions that are summed, how features are placed, and how many elements go into
    each.
    """
    (axis,) = at.ints("feature_index")
    at.demand(1, f"feature_index in [0, {x.rank})", 0 <= axis < x.rank, axis)
    over = [a for a in range(x.rank) if a != axis]
    count = int(np.prod([known_size(x.shape[a], "a batch") for a in over], dtype=object))
    return over, [0 if a == axis else "x" for a in range(x.rank)], count


def number(at: At, name: str, x: Node) -> Node:
    return scalar_like(x, float(at.attribute(name)))


@rule("batch_norm_inference")
def batch_norm_inference(
    at: At, x: Node, scale: Node, offset: Node, mean: Node, variance: Node
) -> Node:
    _, order, _ = feature_index(at, x)
    scale, offset, mean, variance = (n.dimshuffle(order) for n in (scale, offset, mean, variance))
    deviation = ufunc("sqrt", ufunc("add", variance, number(at, "epsilon", x)))
    return ufunc("add", ufunc("multiply", ufunc("divide", x - mean, deviation), scale), offset)


@rule("batch_norm_training")
def batch_norm_training(at: At, x: Node, scale: Node, offset: Node) -> list[Node]:
    over, order, count = feature_index(at, x)
    size = scalar_like(x, count)
    mean = ufunc("divide", total(x, over), size)
    centered = x - mean.dimshuffle(order)
    variance = ufunc("divide", total(centered * centered, over), size)
    return [batch_norm_inference(at, x, scale, offset, mean, variance), mean, variance]


@rule("batch_norm_grad")
def batch_norm_grad(
    at: At, x: Node, scale: Node, mean: Node, variance: Node, g: Node
) -> list[Node]:
    over, order, count = feature_index(at, x)
    size = scalar_like(x, count)
    deviation = ufunc("sqrt", ufunc("add", variance, number(at, "epsilon", x))).dimshuffle(order)
    centered = x - mean.dimshuffle(order)
    scaled = ufunc("divide", centered, deviation)
    of_offset, of_scale = total(g, over), total(g * scaled, over)
    inner = g * size - of_offset.dimshuffle(order) - scaled * of_scale.dimshuffle(order)
    outer = ufunc("divide", ufunc("divide", scale.dimshuffle(order), deviation), size)
    return [outer * inner, of_scale, of_offset]


@rule("chlo.ragged_dot")
def ragged_dot(at: At, a: Node, b: Node, sizes: Node) -> Node:
    """Rows in groups, each times the matrix of its group."""
    given = at.attribute("ragged_dot_dimension_numbers")
    keys = (
        "lhs_batching",
        "rhs_batching",
        "lhs_contracting",
        "rhs_contracting",
        "lhs_ragged",
        "rhs_group",
    )
    batch_a, batch_b, inner_a, inner_b, ragged, group = (
        tuple(np.reshape(given.get(f"{k}_dimensions", ()), -1).astype(int).tolist()) for k in keys
    )
    if len(ragged) != 1 or ragged[0] in (*batch_a, *inner_a) or len(group) != 1 or sizes.rank != 1:
        raise Unsupported("groups along a dimension that is summed, or of the batch,")
    (r,), (g,) = ragged, group
    a, b = cast(a, at.element), cast(b, at.element)
    groups, rows = static(b, "groups", (g,))[0], static(a, "rows", (r,))[0]
    ends = sizes.apply("builtin.cumulative", axis=0)
    numbers = at.node(np.arange(rows).astype(sizes.element.dtype))
    found: Node | None = None
    free = [d for d in range(a.rank) if d not in (*batch_a, *inner_a)]
    place = len(batch_a) + free.index(r)
    drop = [d - (d > g) for d in batch_b], [d - (d > g) for d in inner_b]
    for k in range(groups):
        y = product_of(at, a, at_step(at, b, g, k), batch_a, drop[0], inner_a, drop[1])
        end = at_step(at, ends, 0, k)
        inside = ufunc("less", numbers, end)
        if k:
            inside = ufunc(
                "logical_and", inside, ufunc("greater_equal", numbers, at_step(at, ends, 0, k - 1))
            )
        here = inside.dimshuffle([0 if d == place else "x" for d in range(y.rank)])
        part = choose(here, y, scalar_like(y, 0))
        found = part if found is None else found + part
    if found is None:
        raise Unsupported("no groups")
    return found
