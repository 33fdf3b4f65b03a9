"""Transpose through shared memory, in tiles of about 64 x 64 elements.

    for i { for j { y[i, j] = f(x[j, i]) } }
    =>  for b in tiles block {
          alloc shared tile: tensor<4x16x68xf32>
          for t in 0..256 thread {                                      c = t % 16, r = t // 16
            for l in 0..4 vector 4 { x0[l] = x[j0 + r * 4, i0 + c * 4 + l] }    likewise x1, x2, x3
            for l in 0..4 vector 4 { tile[0, r, c * 4 + l] = x0[l] }            likewise 1, 2, 3
          }
          for t in 0..256 thread {                                      c = t // 16, r = t % 16
            for l in 0..4 vector 4 { t0[l] = tile[0, r, c * 4 + l] }            likewise t1, t2, t3
            for s in 0..4 unrolled {
              y0[0] = f(t0[s]); y0[1] = f(t1[s])                                likewise 2, 3
              for l in 0..4 vector 4 { y[i0 + c * 4 + s, j0 + r * 4 + l] = y0[l] }
            }
          }
        }

Legal for pure elementwise kernels. Pays if some read is contiguous along one index and the store
along another: both then coalesce, by 16 bytes or four elements if rows are aligned, otherwise by
single elements. Rows of the tile are padded by a pack, and elements of equal position in their
packs follow each other, against bank conflicts.
"""

from collections.abc import Callable

from ...dialect.kernel_ir.affine import affine
from ...dialect.kernel_ir.expressions import Expr, Index, Read, Tensor, as_index, both, unflatten
from ...dialect.kernel_ir.index_bounds import inside
from ...dialect.kernel_ir.loops import Alloc, Block, For, Kernel, Statement, Store, vector_loop
from ...dialect.kernel_ir.simplify_node import linear_index
from ...dialect.kernel_ir.traverse import rewrite, substitute, walk
from ...dialect.types.sizes import product
from ..analysis.accesses import depends, stride
from ..analysis.parallel_loops import THREADS, independent_loops
from ..contraction.vnni_packing import divided
from ..passes import scheduled_gpu_pass
from ..processor import processor
from .thread_block_tile import guarded, may_reach

SMALLEST = 8  # elements along an axis that are worth a tile; counted, not timed on a GPU
MOST = 4  # arrays read across, at most; counted, not timed on a GPU
WIDEST = 4  # elements of a pack; counted, not timed on a GPU


@scheduled_gpu_pass
def shared_memory_transpose(kernel: Kernel) -> Kernel | None:
    """The kernel by tiles, if it computes elements one by one and reads across."""
    indices, block = independent_loops(kernel)
    if len(indices) < 2 or len(block) != 1 or not isinstance(store := block[0], Store):
        return None
    *around, last = indices
    if stride(store.tensor, store.indices, last) != 1:
        return None
    reads = [e for e in walk(store.value) if isinstance(e, Read)]
    far = [r for r in reads if stride(r.tensor, r.indices, last) not in (0, 1)]
    partner = next(
        (i for i in around if all(stride(r.tensor, r.indices, i) == 1 for r in far)), None
    )
    if (
        not far
        or len(far) > MOST
        or partner is None
        or not all(may_reach(i.extent, SMALLEST) for i in (partner, last))
    ):
        return None
    return kernel.with_body(
        (_tiles(store, far, [i for i in around if i is not partner], partner, last),)
    )


def _tile(
    store: Store, far: list[Read], around: list[Index], partner: Index, last: Index
) -> tuple[int, int]:
    """The elements of a pack, and the packs of a tile's side: rows of 128 bytes if the array has as
    many.
    """
    sizes = [t.element.bytes for t in (store.tensor, *(r.tensor for r in far))]
    width = min(WIDEST, processor().gpu.access_bytes // max(sizes))
    rows = any(
        depends(e, {last})
        for r in walk(store.value)
        if isinstance(r, Read) and r not in far
        for e in r.indices
    )
    whole = all(_begins(r.tensor, r.indices, partner, width) for r in far) and all(
        may_reach(i.extent, 8 * width) and isinstance(i.extent, int) and i.extent % width == 0
        for i in (partner, last)
    )
    if rows or not whole or not _begins(store.tensor, store.indices, last, width):
        width = 1

    def fits(side: int) -> bool:
        tiles = sum(
            _row(side, width, r.tensor) * side * width * r.tensor.element.bytes for r in far
        )
        return tiles <= processor().gpu.shared_bytes

    if width > 1:
        return width, 32 if 16 * width * min(sizes) < processor().gpu.line_bytes and fits(
            32
        ) else 16
    tiles = product(
        (*(i.extent for i in around), *(divided(i.extent, 64) for i in (partner, last)))
    )
    return width, 64 if may_reach(tiles, processor().gpu.multiprocessors) and fits(64) else 32


def _begins(tensor: Tensor, at: tuple[Expr, ...], fast: Index, width: int) -> bool:
    """Test whether packs of an access are aligned if the index is."""
    return not affine(linear_index(at, tensor.shape)).without(fast).divisor % width


def _row(side: int, width: int, tensor: Tensor) -> int:
    """The elements of a row of a tile, padded by a pack or a word so that rows begin in different
    banks.
    """
    return side * width + max(width, processor().gpu.bank_bytes // tensor.element.bytes)


def _tiles(store: Store, far: list[Read], around: list[Index], partner: Index, last: Index) -> For:
    width, side = _tile(store, far, around, partner, last)
    shape = (
        *(i.extent for i in around),
        *(divided(i.extent, side * width) for i in (partner, last)),
    )
    block = Index("b", product(shape))
    *outer, across, along = unflatten(block, shape)
    tiles = {
        r: Tensor("tile", (width, side, _row(side, width, r.tensor)), r.tensor.element, "shared")
        for r in far
    }
    packs = {
        r: [Tensor(f"x{n}", (width,), r.tensor.element, "pack") for n in range(width)] for r in far
    }

    elements = [(n, r) for n in range(width) for r in far]

    def places(column: Expr, row: Expr) -> dict[Expr, Expr]:
        """The indices of an element at a column and a row of the tile."""
        values: dict[Expr, Expr] = dict(zip(around, outer, strict=True))
        return {
            **values,
            partner: across * (side * width) + column,
            last: along * (side * width) + row,
        }

    def threads(turned: bool, body: Callable[[Expr, Expr], Block]) -> For:
        """The loop over a tile's packs, one per thread; neighboring threads have packs of one row,
        or of one column.
        """
        thread = Index("t", THREADS)
        once = THREADS // side  # rows per iteration
        step = Index("s", side // once)
        fast = thread % side
        slow = thread // side if once == side else step * once + thread // side
        column, row = (slow, fast) if turned else (fast, slow)
        end = places(column * width + (width - 1), row * width + (width - 1))
        block = guarded(
            body(column, row), both(*(inside(end[i], i.extent) for i in (partner, last)))
        )
        return For(
            thread, block if once == side else (For(step, block, kind="unrolled"),), kind="thread"
        )

    def value_of(read: dict[Read, Read], at: dict[Expr, Expr]) -> Expr:
        """The stored value, from the transposed elements."""
        return substitute(
            rewrite(store.value, lambda e: read.get(e) if isinstance(e, Read) else None), at
        )

    def load(column: Expr, row: Expr) -> Block:
        if width == 1:
            at = places(column, row)
            return tuple(
                Store(tile, (as_index(0), row, column), substitute(r, at))
                for r, tile in tiles.items()
            )
        loads: list[Statement] = []
        for n, r in elements:
            lane = Index("l", width)
            pack = packs[r][n]
            value = substitute(r, places(column * width + lane, row * width + n))
            loads += [Alloc(pack), _moved(lane, pack[lane], value)]
        for n, r in elements:
            lane = Index("l", width)
            loads.append(_moved(lane, tiles[r][n, row, column * width + lane], packs[r][n][lane]))
        return tuple(loads)

    def write(column: Expr, row: Expr) -> Block:
        if width == 1:
            at = places(column, row)
            value = value_of({r: tile[0, row, column] for r, tile in tiles.items()}, at)
            return (Store(store.tensor, tuple(substitute(i, at) for i in store.indices), value),)
        loads: list[Statement] = []
        for n, r in elements:
            lane = Index("l", width)
            pack = packs[r][n]
            loads += [
                Alloc(pack),
                _moved(lane, pack[lane], tiles[r][n, row, column * width + lane]),
            ]
        s = Index("s", width)
        lane = Index("l", width)
        y = Tensor("y", (width,), store.tensor.element, "pack")
        body: list[Statement] = [Alloc(y)]
        for n in range(width):
            value = value_of(
                {r: packs[r][n][s] for r in far}, places(column * width + s, row * width + n)
            )
            body.append(Store(y, (as_index(n),), value))
        place = places(column * width + s, row * width + lane)
        body.append(
            _moved(lane, store.tensor[tuple(substitute(i, place) for i in store.indices)], y[lane])
        )
        return (*loads, For(s, tuple(body), kind="unrolled"))

    return For(
        block,
        (*map(Alloc, tiles.values()), threads(False, load), threads(True, write)),
        kind="block",
    )


def _moved(lane: Index, to: Read, of: Expr) -> For:
    return vector_loop(lane, Store(to.tensor, to.indices, of))
