"""`builtin.tree_ensemble`: decision trees over rows of features, whose leaves are reduced."""

from itertools import product
from typing import Any

import numpy as np

from ..kernel_ir.expressions import (
    Expr,
    Index,
    Tensor,
    Var,
    apply,
    as_index,
    cast,
    maximum,
    minimum,
)
from ..kernel_ir.loops import (
    Alloc,
    Block,
    For,
    If,
    Let,
    Statement,
    Store,
    accumulator,
    assign,
    identity,
    update,
)
from ..kernel_ir.scalar_functions import SCALARS
from ..spec.operator import C, Operator, T, operator
from ..types.sizes import Dim
from ..types.tensor_types import BY_DTYPE, I1, I32, I64, MAX_SIZE, TensorType
from .gather_scatter import combined

REDUCED = ("add", "minimum", "maximum")
FEATURE, BELOW = range(2)  # columns of links; the last is the node above
ROOT, COLUMN = range(2)  # the columns of trees
# trees or rows that are walked side by side, which hides the latency of loads; tuned by hand
# (Zen 5)
LANES = 8
FEW = 4  # trees from which on they are walked side by side; tuned by hand (Zen 5)


@operator
class TreeEnsemble(Operator[T]):
    """Y[n, c] = the reduction by `scalar_op`, over all trees t in their order, of values[leaf(n,
    t), w] where c = trees[t, 1] + w.

    leaf(n, t) is reached from node trees[t, 0] by `depth` steps, each from a node i to links[i, 1]
    where X[n, links[i, 0]] <= splits[i], else, so for NaN, to links[i, 2]. A leaf leads to itself.
    A node, a feature or a column outside of its axis is the nearest one.
    """

    x: T  # (N, F)
    splits: T  # (M,): of every node
    links: T  # (M, 3): the feature, and the nodes that follow
    trees: T  # (K, 2): the root, and the column of Y to which values[i, 0] belongs
    values: T  # (M, W)
    columns: int
    depth: int
    scalar_op: str = "add"

    constraints = (
        C(
            1,
            "rank(x) = rank(links) = rank(trees) = rank(values) = 2",
            lambda o: all(t.rank == 2 for t in (o.x, o.links, o.trees, o.values)),
        ),
        C(2, "rank(splits) = 1", lambda o: o.splits.rank == 1),
        C(
            3,
            "element(x) = element(splits) is a float",
            lambda o: o.x.element.kind == "float" and o.splits.element is o.x.element,
        ),
        C(4, "element(values) is a float", lambda o: o.values.element.kind == "float"),
        C(
            5,
            "element(links) and element(trees) are i32",
            lambda o: o.links.element is I32 and o.trees.element is I32,
        ),
        C(
            6,
            "dim(links, 1) = 3 and dim(trees, 1) = 2",
            lambda o: (o.links.shape[1] == 3) & (o.trees.shape[1] == 2),
        ),
        C(7, "dim(splits, 0) = dim(links, 0)", lambda o: o.splits.shape[0] == o.links.shape[0]),
        C(8, "dim(values, 0) = dim(links, 0)", lambda o: o.values.shape[0] == o.links.shape[0]),
        C(
            9,
            "dim(x, 1) >= 1 and dim(links, 0) >= 1",
            lambda o: (o.x.shape[1] >= 1) & (o.links.shape[0] >= 1),
        ),
        C(
            10,
            "1 <= dim(values, 1) <= columns <= 2^40",
            lambda o: (
                (o.values.shape[1] >= 1)
                & (o.values.shape[1] <= o.columns)
                & (o.columns <= MAX_SIZE)
            ),
            at="columns",
        ),
        C(11, "depth in [0, 2^20]", lambda o: 0 <= o.depth <= 1 << 20, at="depth"),
        C(
            12,
            "scalar_op is add, minimum or maximum",
            lambda o: o.scalar_op in REDUCED,
            "scalar_op",
            REDUCED,
        ),
    )
    example = (
        "%x, %splits, %links, %trees, %values {columns = 2, depth = 3}",
        "%x: ?N x 4 x f32, %splits: 15xf32, %links: 15x3xi32, %trees: 1x2xi32, %values: 15x2xf32",
        "?N x 2 x f32",
    )

    def infer(self: "TreeEnsemble[TensorType]") -> TensorType:
        return TensorType((self.x.shape[0], self.columns), self.values.element)

    def reference(self: "TreeEnsemble[np.ndarray]") -> np.ndarray:
        row = SCALARS[combined(self.scalar_op, BY_DTYPE[self.values.dtype])]
        assert row.identity is not None
        start = row.identity(BY_DTYPE[self.values.dtype])
        y = np.full((len(self.x), self.columns), start, self.values.dtype)
        width = self.values.shape[1]
        for n, x in enumerate(self.x):
            for root, column in self.trees.tolist():
                node, first = (
                    nearest(root, len(self.links)),
                    nearest(column, self.columns - width + 1),
                )
                for _ in range(self.depth):
                    feature, below, above = self.links[node].tolist()
                    is_below = x[nearest(feature, len(x))] <= self.splits[node]
                    node = nearest(below if is_below else above, len(self.links))
                reached = y[n, first : first + width]
                reached[:] = row.numpy(reached, self.values[node])
        return y

    def nest(self: "TreeEnsemble[Tensor]", *results: Tensor) -> Block:
        """Row by row, and trees side by side in groups and a smaller last one; of few trees, rows
        side by side instead.
        """
        (y,) = results
        rows, count = self.x.shape[0], self.trees.shape[0]
        n, g, t = Index("n", rows), Index("g", count // LANES), Index("t", count)
        done = count // LANES * LANES
        if isinstance(count, int) and count < FEW:
            block = Index("b", rows // LANES)
            side_by_side = [block * LANES + lane for lane in range(LANES)]
            lane, start = Index("lane", LANES), as_index(rows // LANES * LANES)
            zeros = For(lane, self.zero(y, block * LANES + lane))
            return (
                For(block, (zeros, For(t, self.walk(y, side_by_side, [t])))),
                For(n, (*self.zero(y, n), For(t, self.walk(y, [n], [t]))), start),
            )
        group = For(g, self.walk(y, [n], [g * LANES + lane for lane in range(LANES)]))
        if isinstance(count, int):
            last = range(done, count)
            rest = self.walk(y, [n], [as_index(k) for k in last]) if last else ()
        else:
            rest = (For(t, self.walk(y, [n], [t]), as_index(done)),)
        return (For(n, (*self.zero(y, n), group, *rest)),)

    def zero(self, y: Tensor, row: Expr) -> Block:
        """Begin the reductions of a row."""
        c = Index("c", self.columns)
        start = identity(combined(self.scalar_op, y.element), y.element)
        return (For(c, (Store(y, (row, c), start),)),)

    def walk(self: "TreeEnsemble[Any]", y: Tensor, rows: list[Expr], trees: list[Expr]) -> Block:
        """Some trees over a row, or a tree over some rows, side by side until each is at a leaf;
        then their values are added in their order.
        """
        nodes, width = self.links.shape[0], self.values.shape[1]
        lanes = [*product(rows, trees)]
        place = Tensor("place", (len(lanes),), I64, "register")
        goes_on = accumulator("goes_on", I1)
        w, step = Index("w", width), Index("s", self.depth)
        begin: list[Statement] = []
        moves: list[Statement] = [assign(goes_on, 0)]
        adds: list[Statement] = []
        for lane, (n, tree) in enumerate(lanes):
            at, after = place[lane], Var("after", I64)
            feature = within(self.links[at, FEATURE], self.x.shape[1])
            follows = cast(~(self.x[n, feature] <= self.splits[at]), I64) + BELOW
            column = within(self.trees[tree, COLUMN], self.columns - width + 1) + w
            value = apply(combined(self.scalar_op, y.element), y[n, column], self.values[at, w])
            begin.append(Store(place, (as_index(lane),), within(self.trees[tree, ROOT], nodes)))
            moves += (
                Let(after, within(self.links[at, follows], nodes)),
                update("or", goes_on, after.ne(at)),
                Store(place, (as_index(lane),), after),
            )
            adds.append(For(w, (Store(y, (n, column), value),)))
        return (
            Alloc(place),
            *begin,
            Alloc(goes_on),
            assign(goes_on, 1),
            For(step, (If(goes_on[()], tuple(moves)),)),
            *adds,
        )


def nearest(k: int, size: int) -> int:
    """The nearest index of an axis of this size."""
    return min(max(k, 0), size - 1)


def within(k: Expr, size: Dim) -> Expr:
    """The nearest index of an axis of this size."""
    return minimum(maximum(cast(k, I64), 0), size - 1)
