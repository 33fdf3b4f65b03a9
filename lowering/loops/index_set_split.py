"""Split loops where remainders and extremes of their index change, so that no part computes them
(index-set splitting).

    for i in 0..n { y[i] = x[(i + n - 1) mod n] }
    =>  y[0] = x[n - 1]; for i of n in 1..n { y[i] = x[i - 1] }

Legal always. Pays in innermost loops, and in any loop whose index is compared with a constant by a
select; guards are left to `loop_partition`. A remainder by an unknown size, over a known number of
rounds, becomes a loop over rounds:

    for i in 0..2 * n { y[i] = x[i mod n] }
    =>  for r in 0..2 { for i in 0..n { y[r * n + i] = x[i] } }
"""

from collections.abc import Iterator
from itertools import pairwise

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.affine import Affine, affine
from ...dialect.kernel_ir.expressions import Apply, Const, Expr, Extent, Index, as_index
from ...dialect.kernel_ir.traverse import rewrite
from ...dialect.types.sizes import Size, same_size
from ...dialect.types.tensor_types import I64
from ..analysis.accesses import allocated, stores
from ..passes import kernel_pass
from .clone import clone
from .simplify_with_bounds import simplify_with_bounds

MAX_PARTS = 8  # parts of one loop, at most; bounds compile time (by hand)
MAX_NODES = 4000  # nodes of a kernel after splitting, at most; bounds compile time (by hand)
# cuts for one remainder, at most: beyond, it stays in the loop; bounds compile time (by hand)
MAX_CUTS_PER_REMAINDER = 4
ROUNDS = 64  # rounds of a remainder by an unknown size, at most; bounds compile time (by hand)


@kernel_pass
def index_set_split(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with its loops split, unless it has a reduction, whose loops are left to
    `contraction`.
    """
    return kernel if _reduces(kernel.body) else kernel.with_body(_block(kernel.body, MAX_NODES))


def _reduces(block: ir.Block) -> bool:
    """Test whether a loop updates an accumulator from outside of it."""
    bodies = [s.body for s in ir.statements(block) if isinstance(s, ir.For)]
    return any(
        not {s.tensor for s in stores(b) if s.tensor.space == "register"} <= allocated(b)
        for b in bodies
    )


def _block(block: ir.Block, room: int) -> ir.Block:
    return ir.rewrite_block(block, lambda s: _loop(s, room) if isinstance(s, ir.For) else None)


def _loop(loop: ir.For, room: int) -> ir.Block:
    first, last = loop.start, loop.end
    if (rounds := _rounds(loop)) is not None:
        return (rounds,)
    if loop.kind == "serial" and isinstance(first, Const) and isinstance(last, Const):
        cuts = sorted(_cuts(loop, first.value, last.value))
        parts = len(cuts) + 1
        if 1 < parts <= MAX_PARTS and sum(1 for _ in ir.nodes(loop.body)) * parts <= room:
            ranges = enumerate(pairwise([first.value, *cuts, last.value]))
            return tuple(
                s
                for k, (low, high) in ranges
                for s in _part(loop, low, high, str(k), room // parts)
            )
    return (ir.replace(loop, body=_block(loop.body, room)),)


def _rounds(loop: ir.For) -> ir.For | None:
    """An innermost loop over a multiple of a remainder's divisor as a loop over rounds."""
    if isinstance(extent := loop.index.extent, int) or not loop.is_whole or ir.has_loops(loop.body):
        return None
    for e in ir.nodes(loop.body):
        match e:
            case Apply("floormod", (Index() as i, Extent(n))) if i is loop.index:
                for count in (k for k in range(1, ROUNDS + 1) if same_size(n * k, extent)):
                    return _by_rounds(loop, n, count)
    return None


def _by_rounds(loop: ir.For, n: Size, count: int) -> ir.For:
    turn, within = Index("r", count), Index(loop.index.name, n)
    at = turn * as_index(n) + within

    def change(e: Expr) -> Expr | None:
        match e:
            case Apply("floormod" | "floordiv" as which, (i, Extent(size)), _) if (
                i is loop.index and size.key == n.key
            ):
                return within if which == "floormod" else turn
        return at if e is loop.index else None

    body = ir.map_expressions(loop.body, lambda e: rewrite(e, change))
    return ir.For(turn, (ir.replace(loop, index=within, body=body),))


def _part(loop: ir.For, low: int, high: int, mark: str, room: int) -> ir.Block:
    """The iterations of a loop from low to high."""
    if high - low == 1:
        return _block(
            simplify_with_bounds(clone(loop.body, {loop.index: as_index(low)}, mark)), room
        )
    within = Index(loop.index.name, high - low)  # its extent carries the bounds
    body = simplify_with_bounds(clone(loop.body, {loop.index: within + low}, mark))
    index = Index(f"{loop.index.name}.{mark}", loop.index.extent)
    body = simplify_with_bounds(ir.substitute_block(body, {within: index - low}))
    return _loop(
        ir.replace(loop, index=index, body=body, start=as_index(low), stop=as_index(high)), room
    )


def _cuts(loop: ir.For, first: int, last: int) -> set[int]:
    """The values of the loop's index at which conditions on it change."""
    innermost = not ir.has_loops(loop.body)
    cuts: set[int] = set()
    for e in dict.fromkeys(ir.nodes(loop.body)):
        places = {c for c in _changes(e, loop.index, last, innermost) if first < c < last}
        if len(places) <= MAX_CUTS_PER_REMAINDER:
            cuts |= places
    return cuts


def _changes(e: Expr, index: Index, n: int, innermost: bool) -> Iterator[int]:
    """The values of the index from which on a node simplifies differently."""
    match e:
        case Apply("eq" | "ne", (a, b), _) if a.type is I64:
            sign, number = _alone(affine(a) - affine(b), index)
            if sign:
                yield from (-number * sign, -number * sign + 1)
        case Apply("min" | "max", (a, b), _) if a.type is I64 and innermost:
            sign, number = _alone(affine(a) - affine(b), index)
            if sign:
                yield -number * sign
        case Apply("floormod" | "floordiv", (a, Const(m)), _) if (
            a.type is I64 and m > 0 and innermost
        ):
            sign, number = _alone(affine(a), index)
            if sign and n // m <= MAX_CUTS_PER_REMAINDER:
                for k in range(
                    number // m - MAX_CUTS_PER_REMAINDER - 1,
                    number // m + MAX_CUTS_PER_REMAINDER + 2,
                ):
                    yield k * m - number if sign > 0 else number - k * m + 1


def _alone(sum: Affine, index: Index) -> tuple[int, int]:
    """The affine form as sign * index + number; the sign is 0 if it is not of that form."""
    factor = sum.factor(index)
    return (factor, sum.constant) if abs(factor) == 1 and len(sum.terms) == 1 else (0, 0)
