"""Elements that are read across through shared memory, in tiles of 32 x 32:

    for i { for j { y[i, j] = f(x[j, i]) } }
    =>  for b in tiles block {
          alloc shared tile: tensor<32x33xf32>
          for t in 0..256 thread { for s in 0..4 { tile[s * 8 + t // 32, t % 32] = x[j0 + s * 8 + t // 32, i0 + t % 32] } }
          for t in 0..256 thread { for s in 0..4 { y[i0 + s * 8 + t // 32, j0 + t % 32] = f(tile[t % 32, s * 8 + t // 32]) } }
        }

so that threads side by side read neighbours and write neighbours. A row of the tile has one element more, to lie in other
banks than the row above it.
"""

from __future__ import annotations

from ..dialect.bounds import inside
from ..dialect.index import Expr, Index, Read, Tensor, both, unflatten
from ..dialect.loops import Alloc, Block, For, If, Kernel, Store
from ..dialect.sizes import Dim, product
from ..dialect.traverse import rewrite, substitute, walk
from .accesses import stride
from .grid import THREADS, independent_loops

TILE = 32
ROWS = THREADS // TILE  # of a tile that the threads touch at once
SMALLEST = 8  # along an axis, to be worth a tile
MOST = 4  # arrays that are read across


def transpose(kernel: Kernel) -> Kernel | None:
    """The kernel by tiles, if it is one element each and reads across."""
    indices, block = independent_loops(kernel)
    if len(indices) < 2 or len(block) != 1 or not isinstance(store := block[0], Store):
        return None
    *others, last = indices
    if stride(store.tensor, store.indices, last) != 1:
        return None
    reads = [e for e in walk(store.value) if isinstance(e, Read)]
    far = [r for r in reads if stride(r.tensor, r.indices, last) not in (0, 1)]
    partner = next((i for i in others if all(stride(r.tensor, r.indices, i) == 1 for r in far)), None)
    if not far or len(far) > MOST or partner is None or any(_small(i.extent) for i in (partner, last)):
        return None
    return kernel.with_body((_tiles(store, far, [i for i in others if i is not partner], partner, last),))


def _small(extent: Dim) -> bool:
    return isinstance(extent, int) and extent < SMALLEST


def _tiles(store: Store, far: list[Read], others: list[Index], partner: Index, last: Index) -> For:
    shape = (*(i.extent for i in others), *(_ceil(i.extent) for i in (partner, last)))
    block = Index("b", product(shape))
    *outer, across, along = unflatten(block, shape)
    tiles = {r: Tensor("tile", (TILE, TILE + 1), r.tensor.element, "shared") for r in far}

    def part(fast: Index, tile_of_fast: Expr, slow: Index, tile_of_slow: Expr, writes: bool) -> For:
        """Every element of the tile once: `fast` is the index that differs between neighbouring threads."""
        thread, step = Index("t", THREADS), Index("s", TILE // ROWS)
        column, row = thread % TILE, step * ROWS + thread // TILE
        places: dict[Expr, Expr] = dict(zip(others, outer, strict=True))
        places[fast], places[slow] = tile_of_fast * TILE + column, tile_of_slow * TILE + row

        def there(e: Expr) -> Expr | None:
            return tiles[e][column, row] if isinstance(e, Read) and e in tiles else None

        body: Block
        if writes:
            value = substitute(rewrite(store.value, there), places)
            body = (Store(store.tensor, tuple(substitute(i, places) for i in store.indices), value),)
        else:
            body = tuple(Store(tile, (row, column), substitute(r, places)) for r, tile in tiles.items())
        held = both(inside(places[fast], fast.extent), inside(places[slow], slow.extent))
        if isinstance(held, Expr):
            body = (If(held, body),)
        return For(thread, (For(step, body, kind="unrolled"),), kind="thread")

    load = part(partner, across, last, along, writes=False)
    write = part(last, along, partner, across, writes=True)
    return For(block, (*(Alloc(t) for t in tiles.values()), load, write), kind="block")


def _ceil(extent: Dim) -> Dim:
    return (extent + (TILE - 1)) // TILE
