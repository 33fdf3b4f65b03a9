"""Vectorize memory accesses: a thread computes adjacent elements and loads and stores them 16 bytes
at once (CUDA: float4 accesses).

    for i in 0..1024 { y[i] = f(x[i]) }
    =>  for t in 0..256 parallel {
          alloc pack xs: tensor<4xf32>; alloc pack ys: tensor<4xf32>
          for l in 0..4 vector 4 { xs[l] = x[t * 4 + l] }
          for l in 0..4 { ys[l] = f(xs[l]) }
          for l in 0..4 vector 4 { y[t * 4 + l] = ys[l] }
        }

Legal for straight-line code whose accesses are contiguous or uniform along its last index; rare
branches may access other elements. The remainder of a single axis is computed by single
elements.
"""

from collections.abc import Callable

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.affine import key
from ...dialect.kernel_ir.expressions import Const, Expr, Index, Read, Tensor, as_index, unflatten
from ...dialect.kernel_ir.traverse import rewrite, substitute
from ...dialect.types.sizes import Dim, product, same_size
from ..analysis.accesses import accumulators, depends, is_straight, reads, stride
from ..analysis.parallel_loops import independent_loops
from ..passes import scheduled_gpu_pass
from ..processor import processor
from .thread_block_tile import may_reach

MOST = 12  # arrays of a kernel, at most; bounds compile time (by hand)

Place = tuple[
    Tensor, tuple[Expr, ...], bool
]  # an array, the indices of an access to it, whether it is stored


@scheduled_gpu_pass
def vectorize_accesses(kernel: ir.Kernel) -> ir.Kernel | None:
    """The kernel by packs, if it is straight-line code along contiguous memory."""
    indices, block = independent_loops(kernel)
    if not indices or not is_straight(block):
        return None
    return _along(kernel, indices, block) or _through(kernel, indices, block)


def _along(kernel: ir.Kernel, indices: list[Index], block: ir.Block) -> ir.Kernel | None:
    """The kernel by packs along the last index."""
    *outer, last = indices
    places = _contiguous(block, last)
    width = _width(places)
    if not all(_begins_packs(tensor, at, width) for tensor, at, _ in places):
        return None
    even = isinstance(last.extent, int) and last.extent % max(width, 1) == 0
    if width < 2 or not (even or (not outer and may_reach(last.extent, 4 * width))):
        return None
    shape = (*(i.extent for i in outer), (last.extent + (width - 1)) // width)
    thread = Index("t", product(shape))
    *around, pack = unflatten(thread, shape)
    body = _packed(block, places, last.extent, width, pack * width, lambda at: {last: at})
    body = ir.substitute_block(body, dict(zip(outer, around, strict=True)))
    return kernel.with_body((ir.For(thread, body, kind="parallel"),))


def _through(kernel: ir.Kernel, indices: list[Index], block: ir.Block) -> ir.Kernel | None:
    """The kernel by packs through whole arrays, across rows; other arrays are read by single
    elements.
    """
    shape = tuple(i.extent for i in indices)
    places = _whole(block, indices)
    width, count = _width(places), product(shape)
    if width < 2 or len(indices) < 2 or not may_reach(count, 4 * width):
        return None
    thread = Index("t", (count + (width - 1)) // width)

    def place(at: Expr) -> dict[Expr, Expr]:
        return dict(zip(indices, unflatten(at, shape), strict=True))

    packed = _packed(block, places, count, width, thread * width, place)
    return kernel.with_body((ir.For(thread, packed, kind="parallel"),))


def _width(places: list[Place]) -> int:
    """The elements of a pack; 0 if there are no packs."""
    return (
        processor().gpu.access_bytes // max(t.element.bytes for t, _, _ in places)
        if 0 < len(places) <= MOST
        else 0
    )


def _begins_packs(tensor: Tensor, at: tuple[Expr, ...], width: int) -> bool:
    """Test whether the rows of an access begin at multiples of a pack from the array's
    beginning.
    """
    row = tensor.shape[-1]
    fills = isinstance(row, int) and row % max(width, 1) == 0
    return fills or all(isinstance(i, Const) and i.value == 0 for i in at[:-1])


def _accesses(block: ir.Block) -> list[tuple[ir.Statement, list[Place]]] | None:
    """The accesses of each statement to arrays; None if an array is read, or stored again, after it
    is stored.
    """
    accessed: list[tuple[ir.Statement, list[Place]]] = []
    own = accumulators(block)
    stored = set[Tensor]()
    for s in block:
        here = [(r.tensor, r.indices, False) for r in reads((s,)) if r.tensor.space != "register"]
        if isinstance(s, ir.Store) and s.tensor not in own:
            here.append((s.tensor, s.indices, True))
        if any(tensor in stored for tensor, _, _ in here):
            return None
        stored.update(tensor for tensor, _, writes in here if writes)
        accessed.append((s, here))
    return accessed


def _contiguous(block: ir.Block, last: Index) -> list[Place]:
    """The accesses that move with the index by one element; empty if any moves otherwise."""
    places: list[Place] = []
    for s, here in _accesses(block) or ():
        for tensor, at, writes in () if ir.is_rare(s) else here:
            if (step := stride(tensor, at, last)) not in (0, 1) or (writes and step == 0):
                return []
            if step == 1 and not any(
                t is tensor and w == writes and _same(a, at) for t, a, w in places
            ):
                if at[-1] is not last:
                    return []
                places.append((tensor, at, writes))
    return places


def _whole(block: ir.Block, indices: list[Index]) -> list[Place]:
    """The accesses to arrays that are indexed by all indices in order; empty if any other access
    depends on all indices.
    """
    places: list[Place] = []
    for s, here in _accesses(block) or ():
        whole = [p for p in here if _is_whole(p[0], p[1], indices)]
        partial = [p for p in here if p not in whole]
        if any(writes for _, _, writes in partial):
            return []
        places += (p for p in whole if p[2])
        if not ir.is_rare(s):
            if any(all(any(depends(e, {i}) for e in p[1]) for i in indices) for p in partial):
                return []  # an array as large, with scattered reads
            new = [p for p in whole if not p[2] and all(t is not p[0] or w for t, _, w in places)]
            places += {p[0]: p for p in new}.values()
    return places


def _is_whole(tensor: Tensor, at: tuple[Expr, ...], indices: list[Index]) -> bool:
    pairs = zip(at, indices, tensor.shape, strict=False)
    return len(at) == len(indices) and all(e is i and same_size(d, i.extent) for e, i, d in pairs)


def _same(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    return all(key(x) == key(y) for x, y in zip(a, b, strict=True))


def _packed(
    block: ir.Block,
    places: list[Place],
    count: Dim,
    width: int,
    first: Expr,
    place: Callable[[Expr], dict[Expr, Expr]],
) -> ir.Block:
    """Load packs, compute their elements at a position each, and store packs, a partial last one by
    elements.
    """
    packs = [(p, Tensor(p[0].name, (width,), p[0].element, "pack")) for p in places]
    lane = Index("l", width)

    def pack_of(tensor: Tensor, at: tuple[Expr, ...], writes: bool) -> Tensor | None:
        return next(
            (x for (t, a, w), x in packs if t is tensor and w == writes and _same(a, at)), None
        )

    def change(e: Expr) -> Expr | None:
        if (
            isinstance(e, Read)
            and e.indices
            and (pack := pack_of(e.tensor, e.indices, False)) is not None
        ):
            return pack[lane]
        return None

    body: list[ir.Statement] = []
    for s in ir.map_expressions(block, lambda e: rewrite(e, change)):
        if isinstance(s, ir.Store) and (pack := pack_of(s.tensor, s.indices, True)) is not None:
            s = ir.Store(pack, (lane,), s.value)
        body.append(s)
    computed = ir.For(lane, ir.substitute_block(tuple(body), place(first + lane)), kind="unrolled")
    copies: dict[bool, list[ir.Statement]] = {False: [], True: []}
    for (tensor, at, writes), pack in packs:
        by = Index("l", width)
        values = place(first + by)
        element = Read(tensor, tuple(substitute(i, values) for i in at))
        to, value = (element, pack[by]) if writes else (pack[by], element)
        copies[writes].append(ir.vector_loop(by, ir.Store(to.tensor, to.indices, value)))
    whole = (*(ir.Alloc(pack) for _, pack in packs), *copies[False], computed, *copies[True])
    if isinstance(count, int) and count % width == 0:
        return whole
    n = Index("l", width)
    remainder = ir.If(first + n < as_index(count), ir.substitute_block(block, place(first + n)))
    return (ir.If(first + width <= as_index(count), whole, (ir.For(n, (remainder,)),)),)
