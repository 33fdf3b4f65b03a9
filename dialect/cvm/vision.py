"""The formalization's vision operators. They sort and filter rows by what these hold: nests, not
formulas.
"""

import numpy as np

from ..kernel_ir.expressions import (
    Expr,
    Tensor,
    Var,
    apply,
    as_index,
    cast,
    constant,
    indices,
    maximum,
    minimum,
    select,
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
    update,
)
from ..spec.operator import C, T, operator
from ..types.tensor_types import I1, I32, I64, TensorType
from .cvm_operator import CvmOperator, i32

ID, SCORE, LEFT, TOP, RIGHT, BOTTOM = range(6)  # the columns of a row
MOST = 2**63 - 1  # of an i64: attributes beyond it mean the same


@operator
class GetValidCount(CvmOperator[T]):
    """valid_count[b] = card{q ∈ [0, N) | X[b, q, 1] > score_threshold}   (Vision Operators,
    get_valid_count)

    Y[b, idx, k] = X[b, n, k] where X[b, n, 1] > score_threshold, idx = card{q ∈ [0, n) | X[b, q, 1]
    > score_threshold}. The rows from valid_count[b] on are -1.
    """

    x: T  # (B, N, K): rows of an identifier, a score, and more
    score_threshold: int = 0

    results = ("valid_count", "y")
    constraints = (
        i32("x"),
        C(1, "rank(x) = 3", lambda o: o.x.rank == 3),
        C(2, "2 <= dim(x, 2) <= 32", lambda o: 2 <= o.x.shape[2] <= 32),
    )
    example = ("%x {score_threshold = 30}", "%x: 1x4x6xi32", "(tensor<1xi32>, tensor<1x4x6xi32>)")

    def infer(self: "GetValidCount[TensorType]") -> tuple[TensorType, TensorType]:
        return self.x.with_shape(self.x.shape[0]), self.x

    def reference(self: "GetValidCount[np.ndarray]") -> tuple[np.ndarray, np.ndarray]:
        valid_count = np.zeros(len(self.x), np.int32)
        y = np.full_like(self.x, -1)
        for b, rows in enumerate(self.x):
            valid = [row for row in rows if int(row[SCORE]) > self.score_threshold]
            valid_count[b] = len(valid)
            for idx, row in enumerate(valid):
                y[b, idx] = row
        return valid_count, y

    def nest(self: "GetValidCount[Tensor]", *results: Tensor) -> Block:
        valid_count, y = results
        b, n, k = indices("b n k", self.x.shape)
        count = accumulator("count", I64)
        valid = cast(self.x[b, n, SCORE], I64) > min(self.score_threshold, MOST)
        copy = For(k, (Store(y, (b, count[()], k), self.x[b, n, k]),))
        body = (
            Alloc(count),
            assign(count, 0),
            fill(y, b),
            For(n, (If(valid, (copy, update("add", count, as_index(1)))),)),
            Store(valid_count, (b,), cast(count[()], I32)),
        )
        return (For(b, body),)


def fill(y: Tensor, b: Expr) -> Statement:
    """Y[b, n, k] = -1 for all n. It comes first, so that every element is proved to be written."""
    n, k = indices("n k", y.shape[1:])
    return For(n, (For(k, (Store(y, (b, n, k), constant(-1, I32)),)),))


@operator
class NonMaxSuppression(CvmOperator[T]):
    """Y[b, n, :] = R[b, IDX(n), :] for n < min{T, MOS, card{U}}, else -1   (Vision Operators,
    non_max_suppression)

    R are the first T = max{min(N, valid_count[b]), 0} rows of X[b], by descending score, equal ones
    in their order. U = {p ∈ [0, min{TK, T}) | R[b, p, 0] ≥ 0 ∧ iou(p, q) < iou_threshold, ∀ q ∈ U ∧
    q < p}, and IDX enumerates it. TK and MOS are top_k and max_output_size, negative ones meaning
    +∞.

    iou is 0 for different classes unless force_suppress is true, else OLR in percent: ⌊100 · o /
    u⌋, o and u being the areas of intersection and union, or 0 where the sum of the two areas or u
    is not positive. Differences of coordinates wrap modulo 2^32 and areas modulo 2^64; where 100 ·
    o exceeds 2^63 - 1, OLR is ⌊o / max(1, ⌊u / 100⌋)⌋.
    """

    x: T  # (B, N, 6): class, score, left, top, right, bottom
    valid_count: T  # (B,)
    iou_threshold: int = 50
    max_output_size: int = -1
    force_suppress: bool = False
    top_k: int = -1

    constraints = (
        i32("x", "valid_count"),
        C(1, "rank(x) = 3", lambda o: o.x.rank == 3),
        C(2, "dim(x, 2) = 6", lambda o: o.x.shape[2] == 6),
        C(3, "rank(valid_count) = 1", lambda o: o.valid_count.rank == 1),
        C(4, "dim(valid_count, 0) = dim(x, 0)", lambda o: o.valid_count.shape[0] == o.x.shape[0]),
        C(5, "iou_threshold > 0", lambda o: o.iou_threshold > 0, at="iou_threshold"),
    )
    example = (
        "%x, %valid_count {iou_threshold = 45, max_output_size = 10}",
        "%x: 1x4x6xi32, %valid_count: 1xi32",
        "1x4x6xi32",
    )

    def reference(self: "NonMaxSuppression[np.ndarray]") -> np.ndarray:
        y = np.full_like(self.x, -1)
        for b, rows in enumerate(self.x.tolist()):
            t = max(min(len(rows), int(self.valid_count[b])), 0)
            best_first = sorted(rows[:t], key=lambda row: -row[SCORE])
            candidates = best_first if self.top_k < 0 else best_first[: self.top_k]
            kept: list[list[int]] = []
            for row in candidates:
                rivals = [u for u in kept if self.force_suppress or u[ID] == row[ID]]
                if row[ID] >= 0 and all(overlap_ratio(u, row) < self.iou_threshold for u in rivals):
                    kept.append(row)
            for n, row in enumerate(
                kept if self.max_output_size < 0 else kept[: self.max_output_size]
            ):
                y[b, n] = row
        return y

    def nest(self: "NonMaxSuppression[Tensor]", *results: Tensor) -> Block:
        (y,) = results
        b, i, p = indices("b i p", (*self.x.shape[:2], self.x.shape[1]))
        order = Tensor("order", self.x.shape[:2], I64, "heap")
        t, row = Var("t", I64), Var("row", I64)
        count = accumulator("count", I64)
        given = maximum(minimum(cast(self.valid_count[b], I64), self.x.shape[1]), 0)
        candidate = (count[()] < _at_most(self.max_output_size, t)) & (self.x[b, row, ID] >= 0)
        (n,) = indices("n", (self.x.shape[1],))
        body = (
            Let(t, given),
            For(n, (Store(order, (b, n), as_index(0)),), stop=t),
            For(i, self._place(order, b, i, t), stop=t),
            fill(y, b),
            Alloc(count),
            assign(count, 0),
            For(
                p,
                (Let(row, order[b, p]), If(candidate, self._keep(y, b, row, count))),
                stop=_at_most(self.top_k, t),
            ),
        )
        return Alloc(order), For(b, body)

    def _place(
        self: "NonMaxSuppression[Tensor]", order: Tensor, b: Expr, i: Expr, t: Expr
    ) -> Block:
        """Row i's place in R: as many rows go before it as have a larger score, or an equal one and
        stand before it.
        """
        (j,) = indices("j", (self.x.shape[1],))
        place = accumulator("place", I64)
        mine, other = self.x[b, i, SCORE], self.x[b, j, SCORE]
        before = (other > mine) | (apply("eq", other, mine) & (j < i))
        return (
            Alloc(place),
            assign(place, 0),
            For(j, (update("add", place, cast(before, I64)),), stop=t),
            Store(order, (b, place[()]), i),
        )

    def _keep(
        self: "NonMaxSuppression[Tensor]", y: Tensor, b: Expr, row: Expr, count: Tensor
    ) -> Block:
        """The row enters Y, which holds U so far, unless it overlaps one of its rows too much."""
        u, k = indices("u k", y.shape[1:])
        suppressed = accumulator("suppressed", I1)
        found, ratio = _overlap_ratio(
            [y[b, u, c] for c in range(6)], [self.x[b, row, c] for c in range(6)]
        )
        compare: Block = (*found, update("or", suppressed, ratio >= min(self.iou_threshold, MOST)))
        if not self.force_suppress:
            compare = (If(y[b, u, ID].eq(self.x[b, row, ID]), compare),)
        enter = (
            For(k, (Store(y, (b, count[()], k), self.x[b, row, k]),)),
            update("add", count, as_index(1)),
        )
        return (
            Alloc(suppressed),
            Store(suppressed, (), constant(False, I1)),
            For(u, compare, stop=count[()]),
            If(~suppressed[()], enter),
        )


def _at_most(limit: int, t: Expr) -> Expr:
    return t if limit < 0 else minimum(t, min(limit, MOST))


def overlap_ratio(p: list[int], q: list[int]) -> int:
    """OLR of two rows in exact integers, wrapped where the definition wraps."""

    def difference(a: int, b: int) -> int:
        return wrap(a - b, 32)

    area_p = difference(p[RIGHT], p[LEFT]) * difference(p[BOTTOM], p[TOP])
    areas = wrap(area_p + difference(q[RIGHT], q[LEFT]) * difference(q[BOTTOM], q[TOP]), 64)
    width = max(0, difference(min(p[RIGHT], q[RIGHT]), max(p[LEFT], q[LEFT])))
    o = width * max(0, difference(min(p[BOTTOM], q[BOTTOM]), max(p[TOP], q[TOP])))
    u = areas - o
    if areas <= 0 or u <= 0:
        return 0
    return 100 * o // u if 100 * o <= MOST else o // max(1, u // 100)


def wrap(value: int, bits: int) -> int:
    """The signed integer of `bits` bits that is equal to `value` modulo 2^bits."""
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def _overlap_ratio(p: list[Expr], q: list[Expr]) -> tuple[list[Statement], Expr]:
    """OLR in the loop language: names for the areas, and their ratio."""

    def area(right: Expr, left: Expr, bottom: Expr, top: Expr, *, least: bool = False) -> Expr:
        width, height = (
            cast(maximum(s, 0) if least else s, I64) for s in (right - left, bottom - top)
        )
        return width * height

    areas, o, u = Var("areas", I64), Var("o", I64), Var("u", I64)
    edges = ((RIGHT, minimum), (LEFT, maximum), (BOTTOM, minimum), (TOP, maximum))
    both = area(*(inner(p[c], q[c]) for c, inner in edges), least=True)
    area_p, area_q = (area(*(r[c] for c, _ in edges)) for r in (p, q))
    named: list[Statement] = [Let(areas, area_p + area_q), Let(o, both), Let(u, areas - o)]
    too_large = o > MOST // 100
    ratio = select(too_large, o, o * 100) / maximum(select(too_large, u / 100, u), 1)
    return named, select((areas > 0) & (u > 0), ratio, 0)
