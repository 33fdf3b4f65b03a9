"""Sums of products, seen in a nest by their structure:

    for o.. { for r { for p { for q {
        acc = 0
        for k.. { if guard(p, q, k) { acc = acc + a(o, r, k) * b(o, p, q, k) } }
        y[o, r, p, q] = f(acc, ...)
    } } } }

One factor, `b`, depends on the innermost index q, the other does not; r is an index that only `a` depends on. The guard is
b's: a is read whether it holds or not. Dense layers and convolutions are such nests, and so is a product followed by a sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from ...dialect.notation.expressions import Apply, Const, Expr, Index, Read, Tensor, conjunction
from ...dialect.notation.loops import Alloc, Assert, Block, For, If, Kernel, Store, statements
from ...dialect.notation.traverse import walk
from ..analysis.accesses import allocated, depends, is_straight, reads, stores, stride
from ..loops.build_loops import sorted_tensors
from ..loops.collapse import is_whole
from .vnni_packing import is_edge


@dataclass(frozen=True, eq=False)
class Contraction:
    """A nest taken apart. `outer` are its other loops, from the outside in; `windows` is p, if there is one."""

    outer: tuple[Index, ...]
    row: Index
    window: Index | None
    column: Index
    reduction_axes: tuple[Index, ...]
    guard: tuple[Expr, ...]
    a: Expr
    b: Expr
    accumulator: Tensor
    epilogue: Block

    @property
    def unknown(self) -> set[Index]:
        """The indices but the outer ones of which it is only known when called how far they go."""
        inner = (self.row, self.window, self.column, *self.reduction_axes)
        return {i for i in inner if i is not None and not isinstance(i.extent, int)}


@dataclass(frozen=True, eq=False)
class Windowed:
    """A nest that moves a window over one array for each of its outer loops: `places` are the other two loops."""

    outer: tuple[Index, ...]
    places: tuple[Index, ...]
    reduction_axes: tuple[Index, ...]
    guard: tuple[Expr, ...]
    weights: Expr
    values: Expr
    accumulator: Tensor
    epilogue: Block


@dataclass(frozen=True, eq=False)
class LoweredContraction:
    """Kernels in place of one, tensors that are others' storage seen differently, and constants packed beforehand.

    Those that are `ready` have their loops as they should be; the others are for the passes. Some compute only `where` a
    condition holds.
    """

    kernels: tuple[Kernel, ...]
    views: dict[Tensor, Tensor]
    constants: dict[Tensor, np.ndarray] = field(default_factory=dict)
    ready: frozenset[Kernel] = frozenset()
    where: Mapping[Kernel, Expr] = field(default_factory=dict)

    def only(self, condition: Expr) -> LoweredContraction:
        """The same, where a condition holds."""
        return replace(
            self, where={k: self.where[k] & condition if k in self.where else condition for k in self.kernels}
        )

    def beside(self, others: LoweredContraction) -> LoweredContraction:
        """The same, and others as well."""
        return LoweredContraction(
            (*self.kernels, *others.kernels),
            {**self.views, **others.views},
            {**self.constants, **others.constants},
            self.ready | others.ready,
            {**self.where, **others.where},
        )


def kernel_from_body(kernel: Kernel, name: str, body: Block, result: Sequence[Tensor]) -> Kernel:
    """A kernel that takes part in another one's work."""
    own = {s.tensor for s in stores(body)}
    given = dict.fromkeys(
        r.tensor for r in reads(body)
    )  # in the order of their reads, which decides between equal names
    inputs = sorted_tensors([t for t in given if t not in own and t.space in ("argument", "constant", "heap")])
    return Kernel(f"{kernel.name}.{name}", (*inputs, *result), body, len(result), kernel.span, spans=kernel.spans)


@lru_cache(maxsize=8)
def match_contraction(kernel: Kernel) -> Contraction | None:
    """The contraction that a kernel is; None if it is none."""
    parts = sum_of_products(kernel)
    if parts is None:
        return None
    loops, reduction_axes, guard, factors, acc, epilogue = parts
    if any(isinstance(i.extent, int) and i.extent < 1 for i in (*loops, *reduction_axes)):
        return None
    column = loops[-1]
    a, b = factors if depends(factors[1], {column}) else factors[::-1]
    if depends(a, {column}) or not depends(b, {column}):
        return None
    if not _is_guarded(b, guard, {i for i in loops if not depends(a, {i})}):
        return None
    mentioned = [e for e in (b, *guard) if isinstance(e, Expr)]
    only_a = [i for i in loops if depends(a, {i}) and not any(depends(e, {i}) for e in mentioned)]
    only_b = [i for i in loops[:-1] if depends(b, {i}) and not depends(a, {i})]
    if not only_a or not stores_columns(epilogue, column):
        return None
    row, window = only_a[-1], only_b[-1] if only_b else None
    outer = tuple(i for i in loops if i not in (row, window, column))
    return Contraction(outer, row, window, column, tuple(reduction_axes), tuple(guard), a, b, acc, epilogue)


def factors_of(kernel: Kernel) -> tuple[list[Index], list[Index]] | None:
    """The loop indices on which only one factor of a float sum of products depends, and those of the other."""
    parts = sum_of_products(kernel)
    if parts is None or parts[4].element.kind != "float":
        return None
    loops, _, _, (a, b), *_ = parts
    one, other = ([i for i in loops if depends(x, {i}) and not depends(y, {i})] for x, y in ((a, b), (b, a)))
    return one, other


def windowed(kernel: Kernel) -> Windowed | None:
    """The window that a kernel moves over an array, all of whose sizes are known; None if it does not."""
    parts = sum_of_products(kernel)
    if parts is None or not all(isinstance(i.extent, int) and i.extent > 0 for i in (*parts[0], *parts[1])):
        return None
    loops, reduction_axes, guard, factors, acc, epilogue = parts
    places: set[Expr] = set(loops[-2:])
    weights, values = factors if depends(factors[1], places) else factors[::-1]
    if len(loops) < 3 or depends(weights, places) or any(depends(g, {i}) for g in guard for i in loops[:-2]):
        return None
    moves = all(depends(values, {i}) for i in (*loops[-2:], *reduction_axes)) and _is_guarded(values, guard, places)
    found = Windowed(
        tuple(loops[:-2]), tuple(loops[-2:]), tuple(reduction_axes), tuple(guard), weights, values, acc, epilogue
    )
    return found if moves and stores_columns(epilogue, loops[-1]) else None


@dataclass(frozen=True, eq=False)
class Reduction:
    """A reduction into one accumulator, in loops that hold nothing else: the loops, those of the reduction, its guard, where
    the accumulator starts, its update, and what follows."""

    loops: list[Index]
    reduction_axes: list[Index]
    guard: list[Expr]
    accumulator: Tensor
    start: Expr
    update: Block
    epilogue: Block


@lru_cache(maxsize=8)
def match_reduction(kernel: Kernel, least_loops: int = 2) -> Reduction | None:
    """The reduction that a kernel is; None if it is none."""
    loops, block = _chain(kernel.body)
    match block:
        case (Alloc(acc), Store(again, (), start), For() as fold, *epilogue) if again is acc:
            reduction_axes, inner = _chain((fold,))
        case _:
            return None
    guard, inner = _guard(inner)
    if len(loops) < least_loops or not _is_plain(tuple(epilogue)):
        return None
    return Reduction(loops, reduction_axes, guard, acc, start, inner, tuple(epilogue))


def sum_of_products(
    kernel: Kernel, least_loops: int = 2
) -> tuple[list[Index], list[Index], list[Expr], tuple[Expr, Expr], Tensor, Block] | None:
    """The loops, those of the fold, its guard and factors, the sum, and what follows."""
    found = match_reduction(kernel, least_loops)
    factors = None if found is None else factors_of_update(found.update, found.accumulator)
    if found is None or factors is None or not (isinstance(found.start, Const) and found.start.value == 0):
        return None
    return found.loops, found.reduction_axes, found.guard, factors, found.accumulator, found.epilogue


def _chain(block: Block) -> tuple[list[Index], Block]:
    """The indices of loops that hold nothing but each other, and the innermost body."""
    found: list[Index] = []
    while len(block) == 1 and isinstance(s := block[0], For) and is_whole(s):
        found.append(s.index)
        block = s.body
    return found, block


def _guard(block: Block) -> tuple[list[Expr], Block]:
    match block:
        case (If(condition, then, ()),):
            return conjunction(condition), then
    return [], block


def _is_guarded(b: Expr, guard: Sequence[Expr], own: set[Expr]) -> bool:
    """Test whether the guard protects the read of b alone: b has the guard's indices for its own, or the guard is an
    edge of its array.
    """
    return all(depends(g, own) or any(isinstance(r, Read) and is_edge(g, r) for r in walk(b)) for g in guard)


def factors_of_update(block: Block, acc: Tensor) -> tuple[Expr, Expr] | None:
    """a and b of acc = acc + a * b, or acc = fma(a, b, acc)."""
    match block:
        case (Store(tensor, (), Apply("add", (Read(again, ()), Apply("mul", (a, b), _)), _)),) if (
            tensor is again is acc
        ):
            pass
        case (Store(tensor, (), Apply("fma", (a, b, Read(again, ())), _)),) if tensor is again is acc:
            pass
        case _:
            return None
    return None if any(isinstance(n, Read) and n.tensor is acc for e in (a, b) for n in walk(e)) else (a, b)


def _is_plain(block: Block) -> bool:
    """Test whether the epilogue computes and stores values without reading an array that it writes."""
    written = {s.tensor for s in _results(block)}
    requires = any(isinstance(s, Assert) for s in statements(block))
    return is_straight(block) and bool(written) and not requires and not any(r.tensor in written for r in reads(block))


def _results(epilogue: Block) -> list[Store]:
    """The stores to arrays other than the kernel's own buffers."""
    own = allocated(epilogue)
    return [s for s in stores(epilogue) if s.tensor not in own]


def stores_columns(epilogue: Block, column: Index) -> bool:
    return all(stride(s.tensor, s.indices, column) == 1 and column in s.indices for s in _results(epilogue))
