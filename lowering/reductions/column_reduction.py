"""Reduce along columns row by row, with the sums of a block of columns in cache (loop interchange
by blocks).

    for j in 0..n { acc = 0; for k in 0..m { acc = acc + x[k, j] }; y[j] = f(acc) }
    =>  for b in 0..ceil(n / 1024) {
          alloc stack acc: tensor<1024xf32>
          for j { acc[j] = 0 }                                    j in b * 1024..b * 1024 + 1024
          for r in 0..m // 8 { for j { for u in 0..8 { acc[j] = acc[j] + x[r * 8 + u, j] } } }
          for k in m // 8 * 8..m { for j { acc[j] = acc[j] + x[k, j] } }
          for j { y[j] = f(acc[j]) }
        }

Legal always: every sum keeps the order of its terms. Pays where rows lie far apart, since memory is
then read along rows, and where each element is read once; elements that are read again are better
kept in registers.
"""

from collections.abc import Callable, Iterator
from itertools import groupby

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.expressions import (
    Const,
    Expr,
    Index,
    Read,
    Tensor,
    Var,
    as_index,
    cast,
    maximum,
    minimum,
)
from ...dialect.types.tensor_types import ElementType
from ..analysis.accesses import depends, reads, stores, stride
from ..loops.parallelize import block_bounds
from ..loops.vectorize import can_be_vector
from ..passes import kernel_pass
from ..processor import MIN_BLOCKS, ROWS_AT_ONCE, processor
from .blocked_sums import blocked, has_order, in_blocks, in_branches, reduction_accumulators
from .widen_in_steps import narrow_sum

NARROWEST = 256  # columns of a block, at least; tuned by hand (Zen 4, Zen 5)


@kernel_pass
def column_reduction(kernel: ir.Kernel) -> ir.Kernel:
    in_order = kernel.sum_order == "terms"
    match kernel.body:
        case (ir.For(kind="serial") as loop,) if (
            blocks := _swept(loop, set(), in_order)
        ) is not None:
            return kernel.with_body(
                (ir.replace(blocks, kind="parallel"),)
            )  # blocks write disjoint elements
    return kernel.with_body(ir.rewrite_block(kernel.body, _inside(set(), in_order)))


def _inside(around: set[Index], in_order: bool) -> Callable[[ir.Statement], ir.Block | None]:
    """A rewriting of loops inside of the loops over these indices."""

    def change(s: ir.Statement) -> ir.Block | None:
        if not isinstance(s, ir.For):
            return None
        blocks = _swept(s, around, in_order) if s.kind == "serial" else None
        inside = _inside({*around, s.index}, in_order)
        return (ir.rewrite_within(s, inside) if blocks is None else blocks,)

    return change


def _swept(loop: ir.For, around: set[Index], in_order: bool) -> ir.For | None:
    """The loop over columns by blocks, if it reduces over rows; all sums `in_order` of their terms,
    if said.
    """
    reductions = [s for s in loop.body if isinstance(s, ir.For)]
    if not reductions or not loop.is_whole or _short(loop) or not can_be_vector(loop):
        return None
    if not all(is_plain(s) for s in reductions) or any(
        isinstance(s, ir.Alloc) and s.tensor.rank for s in loop.body
    ):
        return None
    if not all(reads_rows(s, loop.index, around) for s in reductions):
        return None
    return _Columns(loop, not around, in_order).blocks()


def _short(s: ir.For) -> bool:
    return isinstance(s.index.extent, int) and s.index.extent < processor().tuning.column_extent


def is_plain(reduction: ir.For) -> bool:
    """Test whether a reduction is loops around statements without branches and buffers."""
    inner = reduction.body
    if reduction.kind != "serial":
        return False
    if len(inner) == 1 and isinstance(inner[0], ir.For):
        return is_plain(inner[0])
    return all(
        isinstance(s, ir.Let) or (isinstance(s, ir.Store) and not s.tensor.rank) for s in inner
    )


def reads_rows(reduction: ir.For, column: Index, around: set[Index]) -> bool:
    """Test whether a reduction reads every element along the columns once, from rows that lie far
    apart.
    """
    *_, last = chain = ir.perfect_nest(reduction)
    shared = {
        i for i in around if any(depends(s.start, {i}) for s in chain)
    }  # each of these indices has its own rows
    needed = {*around - shared, column, *(s.index for s in chain)}
    if _short(last):
        return False
    beside = [r for r in reads(reduction.body) if r.tensor.rank and depends(r, {column})]
    for r in beside:
        if stride(r.tensor, r.indices, column) != 1 or not needed <= {
            i for i in r.indices if isinstance(i, Index)
        }:
            return False
        apart = stride(r.tensor, r.indices, last.index)
        if (
            apart is not None
            and apart * r.tensor.element.bytes < processor().tuning.column_pitch_bytes
        ):
            return False
    return bool(beside)


class _Columns:
    """The distribution of one loop over columns; values that its parts share become buffers of a
    block's columns.
    """

    def __init__(self, loop: ir.For, alone: bool, in_order: bool) -> None:
        self.loop, self.in_order = loop, in_order
        self.parts = list(_parts(loop.body))
        shared = [
            *(s.tensor for s in loop.body if isinstance(s, ir.Alloc)),
            *_shared_names(self.parts),
        ]
        n = loop.index.extent
        most = processor().l1_bytes // max(_element(t).bytes for t in shared) // len(shared)
        few = (
            -(-n // (MIN_BLOCKS * NARROWEST)) * NARROWEST if alone and isinstance(n, int) else most
        )
        self.width = max(NARROWEST, min(most, few))
        self.index = Index("b", (n + (self.width - 1)) // self.width)
        self.first, self.stop = block_bounds(n, self.width, self.index)
        self.place = (loop.index - self.first,)
        self.buffers = {t: Tensor(t.name, (self.width,), _element(t), "stack") for t in shared}

    def blocks(self) -> ir.For:
        statements: list[ir.Statement] = []
        for part in self.parts:
            statements += (
                self.rows(part[0]) if isinstance(part[0], ir.For) else (self.columns(part),)
            )
        return ir.For(self.index, (*map(ir.Alloc, self.buffers.values()), *statements))

    def columns(self, block: ir.Block) -> ir.For:
        """Statements for every column of the block; shared values are loaded from their buffers and
        stored back.
        """
        named = {s.var for s in block if isinstance(s, ir.Let)}
        changed = {s.tensor for s in stores(block)}
        used = _shared(block) | changed
        before: list[ir.Statement] = []
        after: list[ir.Statement] = []
        for shared, buffer in self.buffers.items():
            if isinstance(shared, Var):
                if shared in named:
                    after.append(ir.Store(buffer, self.place, shared))
                elif shared in used:
                    before.append(ir.Let(shared, buffer[self.place]))
            elif shared in used:
                before += [ir.Alloc(shared), ir.Store(shared, (), buffer[self.place])]
                after += [ir.Store(buffer, self.place, shared[()])] if shared in changed else []
        return ir.replace(
            self.loop, body=(*before, *block, *after), start=self.first, stop=self.stop
        )

    def rows(self, reduction: ir.For) -> ir.Block:
        """A reduction, several rows at a time, and the remaining rows."""
        found = reduction_accumulators(reduction)
        if self.in_order or found is None or not has_order(found):
            return self.some_rows(reduction)
        long = in_blocks(reduction, found, lambda reduction: self.blocked_rows(reduction, found))
        return in_branches(reduction, long, self.some_rows(reduction))

    def blocked_rows(self, reduction: ir.For, accumulators: dict[Tensor, str]) -> ir.Block:
        """A long reduction, one block of rows after the other."""
        long = blocked(reduction, accumulators)
        *_, within = (n for n, s in enumerate(long.body) if isinstance(s, ir.For))
        clear = long.body[:within]
        reduction_of_block = long.body[within]
        add = long.body[within + 1 :]
        parts = {s.tensor for s in clear if isinstance(s, ir.Alloc)}
        self.buffers.update((t, Tensor(t.name, (self.width,), t.element, "stack")) for t in parts)
        assert isinstance(reduction_of_block, ir.For)
        zeros = tuple(s for s in clear if not isinstance(s, ir.Alloc))
        return (
            ir.replace(
                long,
                body=(self.columns(zeros), *self.some_rows(reduction_of_block), self.columns(add)),
            ),
        )

    def some_rows(self, reduction: ir.For) -> ir.Block:
        if isinstance(inner := reduction.body[0], ir.For):
            return (ir.replace(reduction, body=self.some_rows(inner)),)
        length = reduction.length
        n = (
            maximum(reduction.end - reduction.start, 0)
            if length.terms
            else as_index(length.constant)
        )
        block = Index("r", reduction.index.extent // ROWS_AT_ONCE)
        row = Index("u", ROWS_AT_ONCE)
        at = reduction.start + block * ROWS_AT_ONCE + row
        group = ir.For(row, ir.substitute_block(reduction.body, {reduction.index: at}))
        if (narrow := narrow_sum(group.body[-1]) if len(group.body) == 1 else None) is None:
            some = ir.For(block, (self.columns((group,)),), stop=n // ROWS_AT_ONCE)
        else:
            some = self.between(block, row, n // ROWS_AT_ONCE, *narrow)
        first = reduction.start + n // ROWS_AT_ONCE * ROWS_AT_ONCE
        rest = ir.replace(reduction, body=(self.columns(reduction.body),), start=first)
        return (some,) if isinstance(n, Const) and n.value % ROWS_AT_ONCE == 0 else (some, rest)

    def between(
        self,
        block: Index,
        row: Index,
        blocks: Expr,
        acc: Tensor,
        value: Expr,
        element: ElementType,
        most: int,
    ) -> ir.For:
        """Add narrow integers in an intermediate type, for as many terms as it holds, then widen
        them into the sums.
        """
        part = ir.accumulator("part", element)
        self.buffers[part] = Tensor(part.name, (self.width,), element, "stack")
        length = most // ROWS_AT_ONCE
        turn = Index("c", (block.extent + (length - 1)) // length)
        first = turn * length
        adds = self.columns((ir.For(row, (ir.update("add", part, cast(value, element)),)),))
        widens = self.columns((ir.update("add", acc, cast(part[()], acc.element)),))
        several = ir.For(block, (adds,), start=first, stop=minimum(first + length, blocks))
        stop = (blocks + (length - 1)) // length
        return ir.For(turn, (self.columns((ir.assign(part, 0),)), several, widens), stop=stop)


def _parts(block: ir.Block) -> Iterator[ir.Block]:
    """The loops of a block, and the statements between them, without its buffers."""
    for is_loop, found in groupby(
        (s for s in block if not isinstance(s, ir.Alloc)), lambda s: isinstance(s, ir.For)
    ):
        part = tuple(found)
        yield from ((s,) for s in part) if is_loop else (part,)


def _shared_names(parts: list[ir.Block]) -> list[Var]:
    """The variables that one part defines and another uses."""
    uses = [(p, _shared(p)) for p in parts]
    lets = ((part, s.var) for part in parts for s in part if isinstance(s, ir.Let))
    return [var for part, var in lets if any(var in used for p, used in uses if p is not part)]


def _shared(block: ir.Block) -> set[Tensor | Var]:
    return {
        x.tensor if isinstance(x, Read) else x
        for x in ir.nodes(block)
        if isinstance(x, (Read, Var))
    }


def _element(shared: Tensor | Var) -> ElementType:
    return shared.type if isinstance(shared, Var) else shared.element
