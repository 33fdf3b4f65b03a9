"""Sums of products, seen in a nest by their structure:

    for o.. { for r { for p { for q {
        acc = 0
        for k.. { if guard(p, q, k) { acc = acc + a(o, r, k) * b(o, p, q, k) } }
        y[o, r, p, q] = f(acc, ...)
    } } } }

One factor, `b`, depends on the innermost index q, the other does not; r is an index that only `a`
depends on. The guard is b's: a is read whether it holds or not. Dense layers and convolutions are
such nests, as are products before a sum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.expressions import (
    Apply,
    Const,
    Expr,
    Index,
    Read,
    Tensor,
    Var,
    conjunction,
    unflatten,
)
from ...dialect.kernel_ir.traverse import walk
from ...dialect.types.sizes import Dim, product
from ..analysis.accesses import allocated, depends, is_straight, reads, stores, stride
from ..loops.build_loops import sorted_tensors
from .vnni_packing import is_edge


@dataclass(frozen=True, eq=False)
class ReductionNest:
    """A nest of loops around a reduction into one accumulator: its axes, the guard of its terms,
    and the epilogue.
    """

    loops: tuple[Index, ...]
    reduction_axes: tuple[Index, ...]
    guard: tuple[Expr, ...]
    accumulator: Tensor
    epilogue: ir.Block


@dataclass(frozen=True, eq=False)
class Reduction(ReductionNest):
    """Any reduction, by its initial value and its update."""

    start: Expr
    update: ir.Block


@dataclass(frozen=True, eq=False)
class SumOfProducts(ReductionNest):
    """A sum of products of two factors."""

    a: Expr
    b: Expr

    def with_b_along(self, indices: set[Expr]) -> "SumOfProducts":
        """The contraction with its factors swapped unless b depends on the indices."""
        return self if depends(self.b, indices) else replace(self, a=self.b, b=self.a)

    def guards_b(self, indices: set[Expr]) -> bool:
        """Test whether the guard protects the read of b alone: it depends on these indices of b, or
        is an edge of its array.
        """
        reads_of_b = [r for r in walk(self.b) if isinstance(r, Read)]
        return all(
            depends(g, indices) or any(is_edge(g, r) for r in reads_of_b) for g in self.guard
        )


@dataclass(frozen=True, eq=False)
class Contraction(SumOfProducts):
    """A sum of products whose rows depend on `a` alone, and whose columns, in `window` lines if
    there are any, on `b`.
    """

    row: Index
    window: Index | None
    column: Index

    @property
    def outer(self) -> tuple[Index, ...]:
        """The other loops, from the outside in."""
        return tuple(i for i in self.loops if i not in (self.row, self.window, self.column))

    @property
    def columns(self) -> tuple[Index, ...]:
        return (self.column,) if self.window is None else (self.window, self.column)

    @property
    def unknown(self) -> set[Index]:
        """The inner indices whose extents are known at a call only."""
        return {
            i
            for i in (self.row, *self.columns, *self.reduction_axes)
            if not isinstance(i.extent, int)
        }

    def finish(self, sum: Expr, values: Mapping[Expr, Expr]) -> ir.Block:
        """The epilogue of a sum, with values for the contraction's indices."""
        return ir.substitute_block(
            ir.replace_reads(self.epilogue, {self.accumulator: sum}), {**values}
        )


@dataclass(frozen=True, eq=False)
class LoweredContraction:
    """Kernels in place of one, views of tensors, and constants packed at compile time.

    Those that are `ready` have their schedule; loop passes run on the others. Some compute only
    `where` a condition holds; all together compute the contraction where `exact` holds.
    """

    kernels: tuple[ir.Kernel, ...]
    views: Mapping[Tensor, Tensor] = field(default_factory=dict)
    constants: Mapping[Tensor, np.ndarray] = field(default_factory=dict)
    ready: frozenset[ir.Kernel] = frozenset()
    where: Mapping[ir.Kernel, Expr] = field(default_factory=dict)
    exact: Expr | bool = True

    def only(self, condition: Expr) -> "LoweredContraction":
        """Restrict to where a condition holds."""
        conditions = {
            k: self.where[k] & condition if k in self.where else condition for k in self.kernels
        }
        return replace(self, where=conditions, exact=True)

    def or_else(self, condition: Expr, other: "LoweredContraction") -> "LoweredContraction":
        """Use this form where a condition holds, and another elsewhere."""
        return self.only(condition).beside(other.only(~condition))

    def beside(self, other: "LoweredContraction") -> "LoweredContraction":
        """The kernels of both."""
        return LoweredContraction(
            (*self.kernels, *other.kernels),
            {**self.views, **other.views},
            {**self.constants, **other.constants},
            self.ready | other.ready,
            {**self.where, **other.where},
        )


def parallel_loop(name: str, places: Sequence[tuple[Var, Dim]], body: ir.Block) -> ir.For:
    """One parallel loop over all places, with a name for each of a place's indices."""
    shape = tuple(extent for _, extent in places)
    flat = Index(name, product(shape))
    lets = [ir.Let(var, e) for (var, _), e in zip(places, unflatten(flat, shape), strict=True)]
    return ir.For(flat, (*lets, *body), kind="parallel")


def kernel_from_body(
    kernel: ir.Kernel, name: str, body: ir.Block, result: Sequence[Tensor]
) -> ir.Kernel:
    """A kernel that takes part in another one's work."""
    own = {s.tensor for s in stores(body)}
    arrays = dict.fromkeys(
        r.tensor for r in reads(body)
    )  # the first one read goes first, of equal names
    inputs = sorted_tensors(
        [t for t in arrays if t not in own and t.space in ("argument", "constant", "heap")]
    )
    return ir.Kernel(
        f"{kernel.name}.{name}",
        (*inputs, *result),
        body,
        len(result),
        kernel.span,
        spans=kernel.spans,
    )


@lru_cache(maxsize=8)
def match_contraction(kernel: ir.Kernel) -> Contraction | None:
    """Match a kernel as a contraction; None if it is not one."""
    nest = sum_of_products(kernel)
    if nest is None or any(
        isinstance(i.extent, int) and i.extent < 1 for i in (*nest.loops, *nest.reduction_axes)
    ):
        return None
    column = nest.loops[-1]
    nest = nest.with_b_along({column})
    loops, a, b = nest.loops, nest.a, nest.b
    if depends(a, {column}) or not depends(b, {column}):
        return None
    if not nest.guards_b({i for i in loops if not depends(a, {i})}):
        return None
    only_a = [
        i for i in loops if depends(a, {i}) and not any(depends(e, {i}) for e in (b, *nest.guard))
    ]
    only_b = [i for i in loops[:-1] if depends(b, {i}) and not depends(a, {i})]
    if not only_a or not stores_columns(nest.epilogue, column):
        return None
    return Contraction(
        **vars(nest), row=only_a[-1], window=only_b[-1] if only_b else None, column=column
    )


def factors_of(kernel: ir.Kernel) -> tuple[list[Index], list[Index]] | None:
    """The loop indices on which only one factor of a float sum of products depends, and those of
    the other.
    """
    if (nest := sum_of_products(kernel)) is None or nest.accumulator.element.kind != "float":
        return None
    of_a, of_b = ([i for i in nest.loops if depends(factor, {i})] for factor in (nest.a, nest.b))
    return [i for i in of_a if i not in of_b], [i for i in of_b if i not in of_a]


def windowed(kernel: ir.Kernel, channels_last: bool = False) -> SumOfProducts | None:
    """The sum of products that moves a window `a` over an array `b` along the last two loops, or
    those before the last.
    """
    if (nest := sum_of_products(kernel)) is None or len(nest.loops) < 3:
        return None
    places: set[Expr] = {*(nest.loops[-3:-1] if channels_last else nest.loops[-2:])}
    nest = nest.with_b_along(places)
    loops, reduction_axes = nest.loops, nest.reduction_axes
    if not all(isinstance(i.extent, int) and i.extent > 0 for i in (*loops, *reduction_axes)):
        return None
    if depends(nest.a, places) or any(
        depends(g, {i}) for g in nest.guard for i in loops if i not in places
    ):
        return None
    moves = all(depends(nest.b, {i}) for i in (*places, *reduction_axes)) and nest.guards_b(places)
    return nest if moves and stores_columns(nest.epilogue, loops[-1]) else None


@lru_cache(maxsize=8)
def match_reduction(kernel: ir.Kernel, least_loops: int = 2) -> Reduction | None:
    """Match a kernel as a reduction; None if it is not one."""
    loops, block = ir.outer_loops(kernel.body)
    match block:
        case (ir.Alloc(acc), ir.Store(again, (), start), ir.For() as loop, *epilogue) if (
            again is acc
        ):
            reduction_axes, inner = ir.outer_loops((loop,))
        case _:
            return None
    guard: tuple[Expr, ...] = ()
    match inner:
        case (ir.If(condition, then, ()),):
            guard = tuple(conjunction(condition))
            inner = then
    if len(loops) < least_loops or not _is_plain(tuple(epilogue)):
        return None
    return Reduction(tuple(loops), tuple(reduction_axes), guard, acc, tuple(epilogue), start, inner)


def sum_of_products(kernel: ir.Kernel, least_loops: int = 2) -> SumOfProducts | None:
    """Match a kernel as a sum of products; None if it is not one."""
    if (r := match_reduction(kernel, least_loops)) is None or not (
        isinstance(r.start, Const) and r.start.value == 0
    ):
        return None
    factors = factors_of_update(r.update, r.accumulator)
    around = r.loops, r.reduction_axes, r.guard, r.accumulator, r.epilogue
    return None if factors is None else SumOfProducts(*around, *factors)


def factors_of_update(block: ir.Block, acc: Tensor) -> tuple[Expr, Expr] | None:
    """a and b of acc = acc + a * b, or acc = fma(a, b, acc)."""
    match block:
        case (ir.Store(t, (), Apply("add", (Read(again, ()), Apply("mul", (a, b), _)), _)),) if (
            t is again is acc
        ):
            pass
        case (ir.Store(tensor, (), Apply("fma", (a, b, Read(again, ())), _)),) if (
            tensor is again is acc
        ):
            pass
        case _:
            return None
    return (
        None
        if any(isinstance(n, Read) and n.tensor is acc for e in (a, b) for n in walk(e))
        else (a, b)
    )


def _is_plain(block: ir.Block) -> bool:
    """Test whether the epilogue computes and stores values without reading an array that it
    writes.
    """
    written = {s.tensor for s in _results(block)}
    requires = any(isinstance(s, ir.Assert) for s in ir.statements(block))
    return (
        is_straight(block)
        and bool(written)
        and not requires
        and not any(r.tensor in written for r in reads(block))
    )


def _results(epilogue: ir.Block) -> list[ir.Store]:
    """The stores to arrays other than the kernel's own buffers."""
    own = allocated(epilogue)
    return [s for s in stores(epilogue) if s.tensor not in own]


def stores_columns(epilogue: ir.Block, column: Index) -> bool:
    return all(
        stride(s.tensor, s.indices, column) == 1 and column in s.indices for s in _results(epilogue)
    )
