"""Vectorize loops over elements, accumulators included (outer-loop vectorization).

    for j in 0..100 { acc = 0; for k { acc = acc + x[k, j] }; y[j] = acc }
    =>  for j of 100 in 0..96 vector 8 { acc = 0; for k { acc = acc + x[k, j] }; y[j] = acc }
        for j of 100 in 92..100 vector 8 { ... }

Legal if iterations are independent and uniform, and every access is contiguous, uniform, a shuffle
of close elements, or a gather. The innermost such loop is vectorized. The remainder is one more
vector that overlaps the last (elements are computed twice, to the same value), or the original
loop; for an unknown extent a run-time test checks that a vector fits. A vector has 32 bytes of the
widest element; a loop takes several where a reduction needs more sums in flight, and two where a
long dependence chain leaves units idle. A loop that reads backwards runs backwards.
"""

from collections.abc import Iterator
from math import lcm

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.affine import affine, key
from ...dialect.kernel_ir.expressions import Apply, Expr, Index, Read, maximum
from ...dialect.kernel_ir.index_bounds import index_bounds
from ...dialect.kernel_ir.traverse import children, walk
from ...dialect.types.tensor_types import I1
from ..analysis.accesses import (
    allocated,
    depends,
    every_access,
    reads,
    stores,
    stride,
    varies,
    varying_values,
)
from ..analysis.cost import chain
from ..analysis.lane_offsets import VECTORS, Lanes, begins, offsets, period, windows
from ..analysis.reduction_order import has_lanes
from ..analysis.vector_alignment import overlaps
from ..passes import statement_pass
from ..processor import processor

# cost model: dependent float operations whose latency leaves room for a second vector; tuned by
# hand (Zen 4, Zen 5)
CHAIN = 7
# lanes of a vector, at least, for rows shorter than a full vector; tuned by hand (Zen 4, Zen 5)
MIN_LANES = 4
# iterations from which on a loop takes two vectors at once; tuned by hand (Zen 4, Zen 5)
MIN_ITERATIONS_FOR_TWO_VECTORS = 4


@statement_pass
def vectorize(s: ir.Statement) -> ir.Block | None:
    match s:
        case ir.For(kind="serial") if can_be_vector(s):
            return tuple(_backwards(w) for w in widen(s, lanes(s)))
        case ir.For(kind="vector" | "unrolled"):
            return (s,)
    return None


def can_be_vector(s: ir.For) -> bool:
    """Test whether iterations are independent, uniform and contiguous in memory, and lanes order no
    reduction.
    """
    ordered = any(
        isinstance(b, ir.For) and (b.kind != "serial" or has_lanes(b))
        for b in ir.statements(s.body)
    )
    return not ordered and independent(s) and _alike(s) and _beside(s)


def independent(s: ir.For) -> bool:
    """Test whether every iteration writes its own elements and reads none that another writes."""
    own = allocated(s.body)
    if not (written := [t for t in stores(s.body) if t.tensor not in own]):
        return False
    places: dict[object, set[object]] = {}
    for tensor, at in every_access(s.body):
        places.setdefault(tensor, set()).add(tuple(map(key, at)))
    inner = [b for b in ir.statements(s.body) if isinstance(b, (ir.For, ir.Let))]
    bound: set[Expr] = {b.index if isinstance(b, ir.For) else b.var for b in inner}
    return all(
        len(places[t.tensor]) == 1 and any(_moves(i, s.index, bound) for i in t.indices)
        for t in written
    )


def _moves(e: Expr, index: Index, bound: set[Expr]) -> bool:
    """Test whether an index expression differs between any two iterations of the loop over this
    index.
    """
    sum = affine(e)
    return bool(sum.factor(index)) and not depends(sum.without(index).expression(), {index, *bound})


def _alike(s: ir.For) -> bool:
    """Test whether no branch, loop bound or buffer index differs between iterations."""
    varying = varying_values(s.body, s.index)
    own = allocated(s.body)

    def differs(e: Expr) -> bool:
        if isinstance(e, Apply) and e.function == "any":
            return False  # all lanes take one branch
        return any(varies(n, varying) for n in walk(e))

    tests = (
        e
        for b in ir.statements(s.body)
        if isinstance(b, (ir.If, ir.For))
        for e in ir.expressions(b)
    )
    places = (i for t, at in every_access(s.body) if t in own for i in at)
    return not (any(map(differs, tests)) or any(map(differs, places)))


def _beside(s: ir.For) -> bool:
    """Test whether accesses are contiguous, uniform, shuffles of close elements, or gathers."""
    own = allocated(s.body)
    if any(
        stride(t.tensor, t.indices, s.index) != 1 for t in stores(s.body) if t.tensor not in own
    ):
        return False
    several = Lanes(
        s.index,
        begins(s.start, s.end, width := lanes(s)),
        width,
        lambda e: not depends(e, {s.index}),
    )
    return all(
        _loads_windows(r, several) or _is_gather(r, s.index)
        for r in reads(s.body)
        if r.tensor not in own
    )


def _loads_windows(r: Read, lanes: Lanes) -> bool:
    if (n := stride(r.tensor, r.indices, lanes.index)) is not None:
        return abs(n) <= VECTORS
    distances = offsets(r.tensor, r.indices, lanes)
    return distances is not None and windows(distances) is not None


def _is_gather(r: Read, index: Index) -> bool:
    """Test whether an element is read at an index that is itself loaded contiguously."""
    where = [x for i in r.indices for x in walk(i) if isinstance(x, Read) and depends(x, {index})]
    plain = [i for i in r.indices if not any(isinstance(x, Read) for x in walk(i))]
    return bool(where) and not any(depends(i, {index}) for i in plain)


def _one_vector(s: ir.For) -> int:
    widest = max((e.type.bytes for e in _computed(s.body) if e.type is not I1), default=1)
    return lcm(processor().vector_bytes // widest, period(reads(s.body), s.index))


def lanes(s: ir.For) -> int:
    """The elements computed at once: one or several vectors."""
    least = _one_vector(s)
    extent = s.index.extent
    if not ir.has_loops(s.body):
        count = s.length
        long = bool(count.terms) or count.constant >= MIN_ITERATIONS_FOR_TWO_VECTORS * 2 * least
        return 2 * least if long and chain(s.body) >= CHAIN else least
    if not isinstance(extent, int):
        return 2 * least
    choices = [least * n for n in (4, 2, 1) if least * n <= extent]
    return min(choices, key=lambda w: (-(-extent // w) * w, -w), default=least)


def _computed(block: ir.Block) -> Iterator[Expr]:
    """The nodes that are computed per lane; index arithmetic of accesses is not."""
    for s in ir.usual(block):
        match s:
            case ir.Store(_, _, value) | ir.Let(_, value) | ir.Assert(value, _, _):
                stack = [value]
                while stack:
                    n = stack.pop()
                    yield n
                    if not isinstance(n, Read):
                        stack.extend(children(n))


def widen(s: ir.For, width: int) -> ir.Block:
    """Vectorize the loop by this width, with its remainder."""
    start, end = s.start, s.end
    difference = affine(end) - affine(start)
    if not difference.terms:
        count = difference.constant
        whole = count % (parts := period(reads(s.body), s.index)) == 0
        if count < width:
            return widen(s, width // 2) if count >= 2 and width >= 4 and parts == 1 else (s,)
        if count >= 8 * width and (early := _early(s, width)):
            first = ir.replace(s, stop=start + width, kind="vector", width=width)
            return (first, *widen(ir.replace(s, start=start + (width - early)), width))
        middle = start + (count - count % width)
        vectors = ir.replace(s, stop=middle, kind="vector", width=width)
        if not count % width:
            return (vectors,)
        if not (whole and overlaps(s)):
            rest = ir.replace(s, start=middle, stop=end)
            least = _one_vector(s)
            return vectors, *(widen(rest, least) if least < width else (rest,))
        return vectors, ir.replace(
            s, start=start + (count - width), stop=end, kind="vector", width=width
        )
    ends = (affine(start), affine(end))
    parts = period(reads(s.body), s.index)
    whole = not any(e.divisor % parts for e in ends)
    if not (whole and overlaps(s)):
        return _by_halves(s, width, parts)
    return _of_any_length(s, difference.expression(), width)


def _by_halves(s: ir.For, width: int, parts: int) -> ir.Block:
    """Vectors, and the original loop for the rest; that of a reduction takes vectors of half the
    width, repeatedly.
    """
    loops: list[ir.Statement] = []
    start = s.start
    count = maximum(s.end - s.start, 0)
    least = MIN_LANES if parts == 1 and ir.has_loops(s.body) else width
    while width >= least:
        middle = s.start + count // width * width
        loops.append(ir.replace(s, start=start, stop=middle, kind="vector", width=width))
        start = middle
        width = width // 2
    return *loops, ir.replace(s, start=start, stop=s.end)


def _of_any_length(s: ir.For, count: Expr, width: int) -> ir.Block:
    """Vectors and an overlapping last one, or if the extent is too short narrower ones or the
    original loop.
    """

    def vectors(width: int, middle: Expr, short: ir.Block) -> ir.Block:
        known = [n for n in (index_bounds(count)[1], s.index.extent) if isinstance(n, int)]
        if min(known, default=width) < width:
            return short
        first = ir.replace(s, stop=middle, kind="vector", width=width)
        last = ir.replace(s, start=s.end - width, stop=s.end, kind="vector", width=width)
        return (ir.If(count >= width, (first, last), short),)

    half = width // 2
    short = (
        vectors(half, s.start + half, (s,)) if half >= MIN_LANES and ir.has_loops(s.body) else (s,)
    )
    return vectors(width, s.start + (count - 1) // width * width, short)


def _backwards(s: ir.Statement) -> ir.Statement:
    """Vectors from last to first where memory is read backwards, so that the hardware prefetcher
    keeps up.
    """
    if not isinstance(s, ir.For) or s.kind != "vector" or ir.has_loops(s.body):
        return s
    steps = {stride(r.tensor, r.indices, s.index) for r in reads(s.body)} - {0}
    length = s.length
    if (
        not steps
        or any(n is None or n > 0 for n in steps)
        or length.terms
        or length.constant < 2 * s.width
    ):
        return s
    block = Index("b", length.constant // s.width)
    lane = Index("l", s.width)
    place: dict[Expr, Expr] = {
        s.index: s.start + (length.constant - s.width) - block * s.width + lane
    }
    return ir.For(block, (ir.vector_loop(lane, *ir.substitute_block(s.body, place)),))


def _early(s: ir.For, width: int) -> int:
    """The elements by which the loop begins past a multiple of the width, if it may begin
    earlier.
    """
    begin = affine(s.start)
    rows = [t.tensor.shape[-1] for t in stores(s.body) if t.indices and t.indices[-1] is s.index]
    whole = all(isinstance(n, int) and n % width == 0 for n in rows)
    return begin.constant % width if rows and whole and not begin.terms and overlaps(s) else 0
