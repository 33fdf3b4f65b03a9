"""Count the operations and bytes of a call exactly, kernel by kernel.

    for i in 0..9 { for k in 0..3 { if i + k >= 1 { acc = acc + x[i + k - 1] * w[k] } } }
    =>  26 mul, 26 add

An operation is an application of a scalar function to elements; a fused product and sum are two, a
dot product of four bytes is seven. Index arithmetic, conversions and moves are none. Guards on
indices are counted by enumeration; a guard on data counts as if it held, and the count is then an
upper bound. Each array is read and written once, as far as it is accessed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ...dialect.kernel_ir import expressions as ex
from ...dialect.kernel_ir.execution_plan import Loop, Plan
from ...dialect.kernel_ir.loops import Block, For, If, Kernel, Let, Store, expressions, is_rare
from ...dialect.kernel_ir.traverse import rewrite, walk
from ...dialect.types.sizes import evaluate
from ...dialect.types.tensor_types import I1, I64
from .cost import Sizes
from .enumerate_points import conditions_by_index, points_where

# points of indices that depend on each other, counted one by one; bounds compile time (by hand)
MAX_POINTS = 1 << 22
# functions that are more than one operation
SEVERAL = {"fma": 2, "pairdot": 3, "bytepairs": 6, "addhalves": 2, "subhalves": 2}
SEVERAL |= {f"quaddot{signs}": 7 for signs in ("", "_uu", "_us", "_su")}


@dataclass(frozen=True)
class Cost:
    """The cost of a call, or of one of its operations or kernels.

    `functions` counts the applications of each scalar function; `workspace` are the bytes of
    intermediate arrays, `memory` those of all arrays at once. `is_exact` is False where a guard
    depends on data: the operations are then an upper bound.
    """

    operations: int
    bytes_read: int
    bytes_written: int
    workspace: int = 0
    memory: int = 0
    name: str = ""
    functions: Mapping[str, int] = field(default_factory=dict[str, int])
    is_exact: bool = True
    parts: "tuple[Cost, ...]" = ()

    @property
    def bytes(self) -> int:
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> float:
        """Operations for each byte that is moved."""
        return self.operations / max(1, self.bytes)


def cost(plan: Plan, sizes: Mapping[Any, int] | None = None) -> Cost:
    """The cost of a plan, its parts being its kernels. `sizes` binds unknown sizes; one without a
    value counts as 1.
    """
    known = Sizes(sizes or {})
    workspace = evaluate(plan.workspace, known)
    own = dict.fromkeys((*plan.arguments, *plan.results, *plan.constants))
    memory = workspace + sum(evaluate(t.bytes, known) for t in own)
    return sum_of([kernel_cost(k, known) for k in plan.kernels], plan.name, workspace, memory)


def sum_of(parts: Iterable[Cost], name: str = "", workspace: int = 0, memory: int = 0) -> Cost:
    """The cost of several parts together."""
    parts = tuple(parts)
    functions = sum((Counter(p.functions) for p in parts), Counter[str]())
    read = sum(p.bytes_read for p in parts)
    written = sum(p.bytes_written for p in parts)
    operations = sum(p.operations for p in parts)
    return Cost(
        operations,
        read,
        written,
        workspace,
        memory,
        name,
        functions,
        all(p.is_exact for p in parts),
        parts,
    )


def kernel_cost(kernel: Kernel, sizes: Mapping[Any, int]) -> Cost:
    """The cost of one kernel; of a loop over a plan that of its steps, which are one if their
    number depends on data.
    """
    if isinstance(kernel, Loop):
        step = cost(kernel.plan, sizes)
        trips = kernel.steps.trips
        n = 1 if trips is None else evaluate(trips, sizes)
        functions = {f: n * m for f, m in step.functions.items()}
        moved = n * step.operations, n * step.bytes_read, n * step.bytes_written
        return Cost(
            *moved,
            name=kernel.name,
            functions=functions,
            is_exact=step.is_exact and trips is not None,
        )
    counting = _Counting(sizes)
    counting.block(kernel.body, (), ())
    read, written = (
        sum(min(evaluate(t.bytes, sizes), accesses[t] * t.element.bytes) for t in kernel.parameters)
        for accesses in (counting.loads, counting.stores)
    )
    functions = {f: n for f, n in counting.functions.most_common() if n}
    operations = sum(n * SEVERAL.get(function, 1) for function, n in functions.items())
    return Cost(
        operations, read, written, name=kernel.name, functions=functions, is_exact=counting.is_exact
    )


class _Counting:
    """The counts of one kernel."""

    def __init__(self, known: Mapping[Any, int]) -> None:
        self.known = known
        self.functions: Counter[str] = Counter()
        self.loads: Counter[ex.Tensor] = Counter()
        self.stores: Counter[ex.Tensor] = Counter()
        self.is_exact = True
        self.lets: dict[ex.Expr, ex.Expr] = {}

    def block(self, block: Block, loops: tuple[For, ...], tests: tuple[ex.Expr, ...]) -> None:
        """The statements of a block inside loops, where the tests hold."""
        times = self.times(loops, tests)
        for s in block:
            match s:
                case For(_, body):
                    self.block(body, (*loops, s), tests)
                case If(condition, then, otherwise):
                    self.add(condition, times)
                    self.is_exact = self.is_exact and not is_rare(s)
                    holds = self.plain(condition)
                    self.block(() if is_rare(s) else then, loops, (*tests, *ex.conjunction(holds)))
                    self.block(otherwise, loops, (*tests, ~holds))
                case _:
                    if isinstance(s, Let):
                        self.lets[s.var] = self.plain(s.value)
                    for e in (s.value,) if isinstance(s, Store) else expressions(s):
                        self.add(e, times)
                    if isinstance(s, Store):
                        self.stores[s.tensor] += times

    def plain(self, e: ex.Expr) -> ex.Expr:
        """The expression without variables and sizes."""

        def replaced(x: ex.Expr) -> ex.Expr | None:
            if isinstance(x, ex.Extent):
                return ex.Const(evaluate(x.size, self.known), I64)
            return self.lets.get(x)

        return rewrite(e, replaced)

    def add(self, e: ex.Expr, times: int) -> None:
        """The functions and loads of an expression."""
        every = walk(e)
        indices = {
            id(x) for r in every if isinstance(r, ex.Read) for i in r.indices for x in walk(i)
        }
        for x in every:
            if isinstance(x, ex.Read):
                self.loads[x.tensor] += times
            elif isinstance(x, ex.Apply) and id(x) not in indices and not self.is_index(x):
                self.functions[x.function] += times

    def is_index(self, e: ex.Apply) -> bool:
        """Test whether an expression is arithmetic on indices, or a condition on them."""
        return e.type in (I64, I1) and not _reads(self.plain(e))

    def times(self, loops: tuple[For, ...], tests: tuple[ex.Expr, ...]) -> int:
        """The number of iterations of the loops in which the tests hold."""
        count = 1
        conditions = [t for t in tests if not _reads(t)]
        self.is_exact = self.is_exact and len(conditions) == len(tests)
        ranges: dict[ex.Index, int] = {}
        shifted: dict[ex.Expr, ex.Expr] = {}
        bounds = [e for s in loops for e in (s.start, s.end)]
        for s in loops:
            start, end = self.plain(s.start), self.plain(s.end)
            if isinstance(start, ex.Const) and isinstance(end, ex.Const):
                ranges[s.index] = max(0, end.value - start.value)
                shifted[s.index] = s.index + start
            elif any(s.index in walk(e) for e in (*conditions, *bounds)):
                ranges[s.index] = evaluate(s.index.extent, self.known)
                conditions += [s.index >= start, s.index < end]
            else:
                conditions.append(ex.maximum(end - start, 0))  # a weight
        for indices, part in conditions_by_index(rewrite(t, shifted.get) for t in conditions):
            order = tuple(i for i in ranges if i in indices)
            extents = [ranges.pop(i) for i in order]
            if prod(extents) > MAX_POINTS or any(
                isinstance(n, ex.Misalignment) for t in part for n in walk(t)
            ):
                self.is_exact = False
                count *= prod(extents)
            else:
                count *= int(points_where(part, dict(zip(order, extents, strict=True))).sum())
        return count * prod(ranges.values())


def _reads(e: ex.Expr) -> bool:
    return any(isinstance(n, ex.Read) for n in walk(e))
