"""Widen sums of narrow integers in several steps, by an intermediate type.

    for k in 0..65536 { acc = acc + i64(x[k]) }                             x of i8
    =>  alloc register sums: tensor<16xi64>, zero; alloc register part: tensor<64xi16>
        for c in 0..4 {
          for l in 0..64 vector 64 { part[l] = 0 }
          for b of 1024 in c * 256..min(c * 256 + 256, 1024) {
            for l { part[l] = part[l] + i16(x[b * 64 + l]) }
          }
          for q in 0..4 unrolled {
            for l in 0..16 vector 16 { sums[l] = sums[l] + i64(part[q * 16 + l]) }
          }
        }
        for q in 0..16 unrolled { acc = acc + sums[q] }
        and the original loop for the remainder

Legal for as many terms as cannot overflow the intermediate type (256 here). Pays from
`widening_steps` steps of contiguous memory; `column_reduction` does the same for rows that lie far
apart.
"""

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.expressions import (
    Cast,
    Const,
    Expr,
    Index,
    Tensor,
    cast,
    constant,
    maximum,
    minimum,
)
from ...dialect.types.tensor_types import I8, I16, I32, UI8, UI16, UI32, ElementType
from ..analysis.accesses import reads, stride
from ..analysis.reduction_order import reduction_update
from ..passes import statement_pass
from ..processor import processor

BETWEEN: dict[ElementType, tuple[ElementType, int]] = {
    I8: (I16, 1 << 8),
    UI8: (UI16, 1 << 8),
    I16: (I32, 1 << 16),
    UI16: (UI32, 1 << 16),
}
# cost model: vectors of intermediate sums, each of which waits for the one before; tuned by hand
# (Zen 4, Zen 5)
VECTORS = 4


def narrow_sum(s: ir.Statement) -> tuple[Tensor, Expr, ElementType, int] | None:
    """The accumulator, term, intermediate type and number of terms of a sum of narrow integers, or
    None.
    """
    if not isinstance(s, ir.Store) or (found := reduction_update(s)) is None or found[0] != "add":
        return None
    match found[1]:
        case Cast(value, type) if type.is_integer and value.type in BETWEEN:
            between, most = BETWEEN[value.type]
            return (s.tensor, value, between, most) if between.bits < type.bits else None
    return None


@statement_pass
def widen_in_steps(s: ir.Statement) -> ir.Block | None:
    match s:
        case ir.For(body=(ir.Store() as store,), kind="serial") if (
            found := narrow_sum(store)
        ) is not None:
            acc, value, between, most = found
            sums = VECTORS * processor().vector_bytes
            width = sums // between.bytes
            wide = sums // acc.element.bytes
            whole = maximum(s.end - s.start, 0) // width
            strides = {
                stride(r.tensor, r.indices, s.index) for r in reads((ir.Store(acc, (), value),))
            }
            extent = s.index.extent
            if (
                strides != {1}
                or not isinstance(extent, int)
                or extent < processor().tuning.widening_steps * width
            ):
                return None
        case ir.For(kind="vector"):
            return (s,)
        case _:
            return None
    part = Tensor("part", (width,), between, "register")
    sums = Tensor("sums", (wide,), acc.element, "register")
    turns = Index("c", -(-extent // (width * most)))
    turn = Index("b", extent // width)
    lane = Index("l", width)
    piece = Index("q", width // wide)
    column = Index("l", wide)
    (moved,) = ir.substitute_block(
        (ir.Store(acc, (), value),), {s.index: s.start + turn * width + lane}
    )
    assert isinstance(moved, ir.Store)
    adds = ir.Store(part, (lane,), part[lane] + cast(moved.value, between))
    widens = ir.Store(
        sums, (column,), sums[column] + cast(part[piece * wide + column], acc.element)
    )
    first = turns * most
    every = Index("q", wide)
    left = s.start + whole * width
    exact = isinstance(left, Const) and isinstance(s.end, Const) and left.value == s.end.value
    clear = ir.vector_loop(lane, ir.Store(part, (lane,), constant(0, between)))
    several = ir.For(
        turn, (ir.vector_loop(lane, adds),), start=first, stop=minimum(first + most, whole)
    )
    return (
        ir.Alloc(sums),
        ir.vector_loop(column, ir.Store(sums, (column,), constant(0, acc.element))),
        ir.Alloc(part),
        ir.For(
            turns,
            (clear, several, ir.For(piece, (ir.vector_loop(column, widens),), kind="unrolled")),
        ),
        ir.For(every, (ir.update("add", acc, sums[every]),), kind="unrolled"),
        *(() if exact else (ir.replace(s, start=left),)),
    )
