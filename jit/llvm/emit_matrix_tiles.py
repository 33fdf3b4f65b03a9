"""Matrix loops by the tiles of x86 (AMX), in LLVM's own type for them.

    for r in 0..32 matrix { for v in 0..2 {
      sums[r, v] = 0
      for k { sums[r, v] = sums[r, v] + quaddot_us(panel[k, v], rows[r, k]) }
    } }
    =>  loop over k by 16:  a = tileload(rows), b = tileload(panel), sums = tdpbsud(sums, a, b)
        tilestore(sums)

The sums of all tiles of the block are phi nodes of the loop. Every register has one shape until it
is configured again, so that all tiles of a factor are alike, and LLVM configures them once, before
all loops. A tile has at most 16 rows of 16 words. Nothing beyond an array's end is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.affine import affine
from ...dialect.kernel_ir.expressions import Apply, Const, Expr, Read, Tensor, as_index
from ...dialect.kernel_ir.simplify_node import linear_index
from ...dialect.kernel_ir.traverse import substitute, walk
from ...dialect.types.tensor_types import I32
from ...lowering.analysis.accesses import stride
from ...lowering.contraction.matrix_tiles import even_sides, even_steps, fits
from . import ir_builder as ll
from .addresses import Addresses

TILE, SHORT = ll.ir_type("x86_amx"), ll.ir_type("i16")
ZERO = ll.Declaration(TILE, "llvm.x86.tilezero.internal", (SHORT, SHORT))
LOAD = ll.Declaration(TILE, "llvm.x86.tileloadd64.internal", (SHORT, SHORT, ll.POINTER, ll.WORD))
STORE = ll.Declaration(
    ll.VOID, "llvm.x86.tilestored64.internal", (SHORT, SHORT, ll.POINTER, ll.WORD, TILE)
)
NOT_UNROLLED = "1"  # of `kernels.METADATA`
SIGNS = {"quaddot": "ss", "quaddot_us": "us", "quaddot_su": "su", "quaddot_uu": "uu"}
PRODUCTS = {
    signs: ll.Declaration(
        TILE, f"llvm.x86.tdpb{signs}d.internal", (SHORT, SHORT, SHORT, TILE, TILE, TILE)
    )
    for signs in SIGNS.values()
}


class Side(NamedTuple):
    """A factor, or the sums, of a matrix product: the first element, and how far lines of 16 words
    are apart in memory, in words.
    """

    first: Read
    pitch: int


class MatrixProduct(NamedTuple):
    """The product that a matrix loop is: its extents, the signs of the factors, and the sides."""

    rows: int
    columns: int
    words: int
    signs: str
    sums: Side
    row: Side
    column: Side

    @property
    def fits(self) -> bool:
        """Test whether registers hold its tiles, which are alike, and rows of sums lie apart."""
        down, along = (even_sides(n)[0] for n in (self.rows, self.columns))
        apart = self.rows == 1 or abs(self.sums.pitch) >= self.columns
        return apart and even_steps(self.words)[0] == self.words and fits(down, along)


def matrix_product(loop: ir.For) -> MatrixProduct | None:
    """The product that a matrix loop is; None where it is another nest, or takes too many tiles."""
    match loop.body:
        case (
            ir.For(
                v,
                (
                    ir.For(lane, (ir.Store() as clear,)) as cleared,
                    ir.For(k, (ir.For(again, (ir.Store() as add,)) as lanes,)) as steps,
                ),
            ) as around,
        ):
            loops = (loop, around, cleared, steps, lanes)
        case _:
            return None
    match clear.value, add.value:
        case Const(0), Apply("add", (Read() as sum, Apply(f, (Read() as a, Read() as b)))) if (
            f in SIGNS
        ):
            pass
        case _:
            return None
    rows, blocks, wide, words, width = (
        n if isinstance(n := s.index.extent, int) else 0 for s in loops
    )
    r, within = loop.index, [*add.indices, *a.indices, *b.indices]
    if not (
        all(isinstance(s.start, Const) and s.start.value == 0 and s.stop is None for s in loops)
        and min(rows, blocks, words) > 0
        and all(s.kind in ("serial", "unrolled") for s in (around, steps))
        and cleared.kind == lanes.kind == "vector"
        and cleared.width == lanes.width == wide == width
        and add.tensor is clear.tensor is sum.tensor
        and all(t.element is I32 for t in (add.tensor, a.tensor, b.tensor))
        and not {a.tensor, b.tensor, *_read(within)} & {add.tensor}
    ):
        return None
    sums = Read(add.tensor, add.indices)
    zero = tuple(substitute(e, {lane: again}) for e in clear.indices)
    places = [
        affine(linear_index(at, sums.tensor.shape)) for at in (sums.indices, sum.indices, zero)
    ]
    if any((place - places[0]).divisor for place in places[1:]):
        return None

    def side(access: Read, *moves: int | None) -> Side | None:
        """An access whose element moves by these numbers of words with the indices; the first one
        that is None is the pitch.
        """
        indices = (r, v, again, k)
        found = [stride(access.tensor, access.indices, i) for i in indices]
        pitch = found[moves.index(None)]
        fits = (
            m in (None, n) or i.extent == 1 for m, n, i in zip(moves, found, indices, strict=True)
        )
        if pitch is None or not all(fits):
            return None
        first: dict[Expr, Expr] = dict.fromkeys((r, v, again, k), as_index(0))
        return Side(Read(access.tensor, tuple(substitute(e, first) for e in access.indices)), pitch)

    signs = SIGNS[f]
    stored = side(sums, None, wide, 1, 0)
    for row, column, order in ((a, b, signs), (b, a, signs[::-1])):
        left, right = side(row, None, 0, 0, 1), side(column, 0, wide, 1, None)
        if stored is not None and left is not None and right is not None:
            found = MatrixProduct(rows, blocks * wide, words, order, stored, left, right)
            return found if found.fits else None
    return None


def _read(indices: Sequence[Expr]) -> Iterator[Tensor]:
    return (e.tensor for index in indices for e in walk(index) if isinstance(e, Read))


def emit_matrix_tiles(
    p: MatrixProduct,
    b: ll.IRBuilder,
    addresses: Addresses,
    counting: Callable[..., AbstractContextManager[tuple[ll.Value, ll.Block]]],
) -> None:
    """Emit a matrix loop by tiles; `counting` makes the loop over its steps."""
    (down, height), (along, width) = even_sides(p.rows), even_sides(p.columns)
    words, depth = even_steps(p.words)
    b.declarations |= {ZERO, LOAD, STORE, PRODUCTS[p.signs]}
    rows, columns, terms = (_short(n) for n in (height, I32.bytes * width, I32.bytes * depth))
    starts = [addresses.pointer(s.first.tensor, s.first.indices) for s in (p.row, p.column, p.sums)]
    pitches = [ll.index(I32.bytes * s.pitch) for s in (p.row, p.column, p.sums)]

    def beyond(pointer: ll.Value, words: int) -> ll.Value:
        return b.add(ll.element_pointer(ll.STATUS, pointer, ll.index(words))) if words else pointer

    def added(sums: list[ll.Value], row: ll.Value, column: ll.Value) -> list[ll.Value]:
        """The sums with the products of the words of a step, that begin at these places."""

        def of_row(n: int) -> ll.Value:
            at = beyond(row, n * height * p.row.pitch)
            return b.add(ll.call(LOAD, rows, terms, at, pitches[0]))

        def of_column(n: int) -> ll.Value:
            lines = _short(depth)
            return b.add(ll.call(LOAD, lines, columns, beyond(column, n * width), pitches[1]))

        by_rows = down <= along  # the tiles of fewer are held
        held = [of_row(n) for n in range(down)] if by_rows else [of_column(n) for n in range(along)]
        sums = [*sums]
        for m in range(along if by_rows else down):
            other = of_column(m) if by_rows else of_row(m)
            for n, one in enumerate(held):
                at = n * along + m if by_rows else m * along + n
                factors = (one, other) if by_rows else (other, one)
                product = ll.call(PRODUCTS[p.signs], rows, columns, terms, sums[at], *factors)
                sums[at] = b.add(product)
        return sums

    zeros = [b.add(ll.call(ZERO, rows, columns)) for _ in range(down * along)]
    before, held = b.block, [b.fresh(TILE) for _ in zeros]
    with counting(ll.ZERO, ll.index(words // depth), 1, NOT_UNROLLED) as (step, _):
        body = b.block
        moved = [b.linear("mul", step, ll.index(n)) for n in (depth, depth * p.column.pitch)]
        at = [
            b.add(ll.element_pointer(ll.STATUS, start, n, flags=""))
            for start, n in zip(starts, moved, strict=False)
        ]
        sums = added(list(held), *at)
        phis = zip(held, zeros, sums, strict=True)
        body.items[:0] = [(t, ll.phi((zero, before), (sum, b.block))) for t, zero, sum in phis]
    for n, sum in enumerate(sums):
        to = beyond(starts[2], n // along * height * p.sums.pitch + n % along * width)
        b.do(ll.call(STORE, rows, columns, to, pitches[2], sum))


def _short(number: int) -> ll.Constant:
    return ll.Constant(str(number), SHORT)
