"""Parallel loops of kernels: `for i in cvm.prange(...)`.

    for i in prange(n) { y[i] = f(x[i]); s += y[i] }
    =>  for chunk { for block in 0..1024 parallel {
                        s' = -0.0; status[block] = 0
                        for i in first..stop { y[i] = f(x[i]); s' = s' + y[i] }  # errors: status
                        parts[block] = s' }
                    for block in 0..1024 { fail by status[block]; s = s + parts[block] } }

Iterations run in blocks, in their order; the numbers of reductions are combined block by block, so
they do not depend on threads, and the first block with an error has that of the lowest iteration.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cvm.dialect.kernel_ir import expressions as ex, loops as ir
from cvm.dialect.kernel_ir.affine import affine
from cvm.dialect.types.tensor_types import I1, I64, ElementType
from cvm.lowering.analysis.cost import Sizes, block_operations
from cvm.lowering.analysis.dependence import dependence
from cvm.lowering.analysis.instances import Nest
from cvm.lowering.loops.parallelize import MOVED, UNKNOWN

from .array_expressions import BLOCKS_WITH_ARRAYS
from .blocks import FAULT, Region
from .definitions import UNDEFINED
from .functions import prange
from .iteration import Loop
from .source import FunctionSource

if TYPE_CHECKING:
    from .build import Builder

BLOCK = 1024  # iterations that a reduction combines in their order: part of what it means
BLOCKS = 1024  # blocks that run at once, whose numbers and errors have places (by hand)
LEAST = 2048  # operations of a block of a loop without reductions, at least; estimated, not timed


_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
}
_CALLS: dict[Any, str] = {min: "min", max: "max", np.minimum: "minimum", np.maximum: "maximum"}


def parallel_loops(source: FunctionSource) -> dict[ast.For, dict[str, str]]:
    """The loops over prange(...), with the numbers that each reduces and the functions that do."""
    function = source.tree
    own = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and _is_stored(n)}
    own |= {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}

    def known(node: ast.AST) -> Any:
        match node:
            case ast.Name(name) if name not in own:
                return source.values.get(name)
            case ast.Attribute(of, name):
                return getattr(known(of), name, None)
        return None

    found: dict[ast.For, dict[str, str]] = {}
    for s in ast.walk(function):
        if isinstance(s, ast.For) and isinstance(s.iter, ast.Call) and known(s.iter.func) is prange:
            _check_jumps(source, s, s.body)
            found[s] = _reductions(s, known)
    return found


def _is_stored(n: ast.Name) -> bool:
    return isinstance(n.ctx, ast.Store)


def _check_jumps(source: FunctionSource, loop: ast.For, block: list[ast.stmt]) -> None:
    """All iterations run: no jump leaves a parallel loop, but for errors."""
    for s in block:
        if isinstance(s, (ast.Break, ast.Return)):
            said = type(s).__name__.lower()
            raise source.mistake(
                f"no {said} leaves a loop over cvm.prange: its iterations run at once",
                s,
                ("the loop", loop),
            )
        for part in ("body", "orelse"):
            inner: list[ast.stmt] = getattr(s, part, [])
            if part == "body" and isinstance(s, (ast.For, ast.While)):
                inner = [t for n in inner for t in ast.walk(n) if isinstance(t, ast.Return)]
            _check_jumps(source, loop, inner)


def _reductions(loop: ast.For, known: Any) -> dict[str, str]:
    """The names that a loop's body has in updates by one function alone."""
    updates: dict[str, list[tuple[str, int]]] = {}  # the function, and how often it has the name
    counts: dict[str, int] = {}
    for n in (n for s in loop.body for n in ast.walk(s)):
        match n:
            case ast.Name(name):
                counts[name] = counts.get(name, 0) + 1
            case ast.AugAssign(ast.Name(name), op) if type(op) in _OPERATORS:
                updates.setdefault(name, []).append((_OPERATORS[type(op)], 1))
            case ast.Assign([ast.Name(name)], ast.BinOp(ast.Name(left), op, _)) if (
                left == name and type(op) in _OPERATORS
            ):
                updates.setdefault(name, []).append((_OPERATORS[type(op)], 2))
            case ast.Assign([ast.Name(name)], ast.BinOp(_, op, ast.Name(right))) if (
                right == name and type(op) in _OPERATORS and not isinstance(op, ast.Sub)
            ):
                updates.setdefault(name, []).append((_OPERATORS[type(op)], 2))
            case ast.Assign([ast.Name(name)], ast.Call(called, [first, second], [])) if any(
                isinstance(a, ast.Name) and a.id == name for a in (first, second)
            ):
                function = known(called)
                if isinstance(function, (type(min), np.ufunc)) and function in _CALLS:
                    updates.setdefault(name, []).append((_CALLS[function], 2))
    return {
        name: found[0][0]
        for name, found in updates.items()
        if len({f for f, _ in found}) == 1 and counts[name] == sum(n for _, n in found)
    }


def _of_type(function: str, element: ElementType) -> str:
    """The scalar function that combines the numbers of a reduction."""
    function = {"sub": "add"}.get(function, function)
    if element is I1:
        function = {"add": "or", "mul": "and"}.get(function, function)
    return function[:3] if function.endswith("imum") and element.kind != "float" else function


def _identity(function: str, element: ElementType) -> ex.Const:
    """The number that a block begins with: -0.0 + x is x for every float."""
    if function == "add" and element.kind in ("float", "complex"):
        return ex.Const(-0.0 if element.kind == "float" else complex(-0.0, -0.0), element)
    return ir.identity(function, element)


@dataclass(frozen=True, eq=False)
class Reduction:
    """A number that a loop updates, and the number of a block, by a function."""

    number: ex.Tensor
    part: ex.Tensor
    function: str

    def start(self) -> ir.Block:
        return ir.Alloc(self.part), ir.assign(
            self.part, _identity(self.function, self.part.element)
        )

    def combined(self, part: ex.Expr) -> ir.Store:
        """The number with that of a further block; Python's min and max take the earlier of equal
        ones.
        """
        whole = self.number[()]
        operands = (part, whole) if self.function in ("min", "max") else (whole, part)
        return ir.assign(self.number, ex.apply(self.function, *operands))


def build_loop(b: Builder, s: ast.For, found: Loop) -> bool:
    """Build a loop over prange(...) from the parts of the same loop over range(...)."""
    index, whole = found.index, found.around(())
    _share_registers(b, s)
    reductions = _begin_reductions(b, s)
    first, stop = (ex.Var(f"{index.name}.{end}", I64) for end in ("first", "stop"))
    within = [affine(first) - affine(whole.start), affine(whole.end) - affine(stop)]
    inside = [affine(index) - affine(first), (affine(stop) - affine(index)).plus(-1)]
    outer, outside = b.region, b.allocations
    if outer is None:
        block = index if b.plain else ex.Index("block", BLOCKS)
        b.region = Region(block, ex.Tensor("status", (BLOCKS, 3), I64, "stack"))
    region = b.region
    assert region is not None
    b.allocations = [a for r in reductions for a in r.start()]
    for e in (first, stop, index):
        b.rank(e)
    b.around.append(None)
    with b.nested(*found.facts, *([] if b.plain else [*within, *inside])) as body:
        b.small.update((index, first, stop))
        target = found.target()
        b.attempt(lambda: b.store(s.target, target, s.iter))
        b.statements(s.body)
    b.around.pop()
    for v, register in b.registers.items():
        b.registers[v] = next((r.number for r in reductions if r.part is register), register)
    own, b.allocations, b.region = tuple(b.allocations), outside, outer
    if b.plain:
        loop = ir.replace(found.around((*own, *body)), kind="parallel")
        b.out.append(loop)
        b.parallel.append((loop, b.source.span(s.iter)))
        return b.otherwise(s.orelse, None)
    inner = ir.replace(whole, start=first, stop=stop, body=tuple(body))
    values = found.values(target, index, first, stop - 1)
    b.hoistable[id(inner)] = inner, values, [*b.facts, *within], {*b.small, first, stop}
    b.kept.append(inner)  # its id is in use
    blocked = BlockedLoop(s, whole, inner, own, reductions)
    if outer is None:
        blocked.emit_parallel(b, region)
    else:
        blocked.emit_serial(b)
    return b.otherwise(s.orelse, None)


def _share_registers(b: Builder, s: ast.For) -> None:
    """Make the registers of variables that other parts of the function have, too, outside of the
    loop.
    """
    defined = b.definitions
    names = [n for t in s.body for n in ast.walk(t) if isinstance(n, ast.Name)]
    inside: set[ast.AST] = {*names, *ast.walk(s.target)}
    used = {d for n in names for d in defined.reaching.get(n, ()) if d is not UNDEFINED}
    for v in dict.fromkeys(defined.variable(d) for d in defined.every if d in used):
        elsewhere = any(d not in inside for d in defined.every if defined.variable(d) is v)
        if elsewhere and v in b.stored and (kind := b.types.get(v)) is not None:
            b.register(v, kind)
            if v in defined.may_be_undefined:
                b.flag(v)


def _begin_reductions(b: Builder, s: ast.For) -> list[Reduction]:
    """The reductions of a loop, whose variables stand for the numbers of a block from here on."""
    found: list[Reduction] = []
    for name, function in b.definitions.parallel[s].items():
        uses = (n for t in s.body for n in ast.walk(t) if isinstance(n, ast.Name) and n.id == name)
        known = (d for n in uses for d in b.definitions.reaching.get(n, ()) if d is not UNDEFINED)
        variables = (b.definitions.variable(d) for d in known)
        if (v := next((v for v in variables if v in b.registers), None)) is not None:
            number = b.registers[v]
            part = ir.accumulator(f"{name}.part", number.element)
            found.append(Reduction(number, part, _of_type(function, part.element)))
            b.registers[v] = part
    return found


def named(b: Builder, value: ex.Expr, name: str) -> ex.Expr:
    """A value that is computed here, and not where it is used."""
    if isinstance(value, ex.Const):
        return value
    var = ex.Var(name, value.type)
    b.out.append(ir.Let(var, value))
    return var


@dataclass(frozen=True, eq=False)
class BlockedLoop:
    """A parallel loop in blocks of iterations: the statement, the loop over all of its iterations
    and that over those of a block, what each block allocates, and what the loop reduces.
    """

    statement: ast.For
    whole: ir.For
    inner: ir.For
    own: ir.Block
    reductions: list[Reduction]

    def blocks(self, b: Builder, width: int) -> tuple[ex.Expr, ex.Expr]:
        """The iterations of a block, and the number of blocks."""
        count = ex.maximum(0, self.whole.end - self.whole.start)
        if not (exact := b.is_exact(count)):
            whole = self.whole
            count = ex.select(whole.start < whole.end, whole.end - whole.start, 0)
        count = named(b, count, "iterations")
        if not exact:
            too_many = count > ir.MAX_STEPS
            b.fail_if(
                too_many, "OverflowError", "too many iterations of cvm.prange", self.statement.iter
            )
        size: ex.Expr = ex.constant(BLOCK, I64)
        if not self.reductions:
            operations = block_operations(self.inner.body, Sizes(default=UNKNOWN), MOVED)
            least = max(1, -(-LEAST // max(1, operations)))
            size = ex.maximum(least, (count + (width - 1)) // width)
        size = named(b, size, "size")
        return size, named(b, (count + (size - 1)) // size, "blocks")

    def bounds(self, number: ex.Expr, size: ex.Expr) -> ir.Block:
        """The first iteration of a block of this number, and the one after its last."""
        first, stop = self.inner.start, self.inner.end
        assert isinstance(first, ex.Var) and isinstance(stop, ex.Var)
        return (
            ir.Let(first, self.whole.start + number * size),
            ir.Let(stop, ex.minimum(first + size, self.whole.end)),
        )

    def emit_serial(self, b: Builder) -> None:
        """A loop inside of another parallel one, whose reductions have the same order."""
        size, blocks = self.blocks(b, 1)
        block = ex.Index("part", ir.UNBOUNDED)
        combined = [r.combined(r.part[()]) for r in self.reductions]
        body = (*self.own, *self.bounds(block, size), self.inner, *combined)
        b.out.append(ir.For(block, body, ex.ZERO, blocks))

    def emit_parallel(self, b: Builder, region: Region) -> None:
        width = BLOCKS_WITH_ARRAYS if region.has_arrays else BLOCKS
        size, blocks = self.blocks(b, width)
        chunk, block, again = (
            ex.Index("chunk", ir.UNBOUNDED),
            region.block,
            ex.Index("block", BLOCKS),
        )
        assert isinstance(block, ex.Index)
        base = ex.Var("base", I64) if self.reductions else ex.ZERO
        number = ex.Var("number", I64)
        parts = [ex.Tensor("parts", (BLOCKS,), r.part.element, "stack") for r in self.reductions]
        b.allocations += map(ir.Alloc, [region.status] * bool(region.failures) + parts)
        body = [
            *self.own,
            *self.bounds(base + block, size),
            self.inner,
            *(
                ir.Store(t, (block,), r.part[()])
                for t, r in zip(parts, self.reductions, strict=True)
            ),
        ]
        after: list[ir.Statement] = []
        if region.failures:
            body.insert(0, ir.Store(region.status, (block, ex.ZERO), ex.ZERO))
            code = ex.Var("code", I64)
            failed: list[ir.Statement] = [
                ir.Store(FAULT, (ex.as_index(n),), region.status[again, n + 1]) for n in range(2)
            ]
            failed += [
                ir.If(code.eq(n), (ir.Fail(message, span),))
                for n, (message, span) in enumerate(region.failures, 1)
            ]
            after += [ir.Let(code, region.status[again, 0]), ir.If(code.ne(0), tuple(failed))]
        after += [r.combined(t[again]) for t, r in zip(parts, self.reductions, strict=True)]
        steps: list[ir.Statement] = [
            *([ir.Let(base, chunk * width)] if isinstance(base, ex.Var) else []),
            ir.Let(number, ex.minimum(blocks - base, width)),
            ir.For(block, tuple(body), ex.ZERO, number, "parallel"),
        ]
        if after:
            steps.append(ir.For(again, tuple(after), ex.ZERO, number))
        chunks = (blocks + (width - 1)) // width
        b.out += [ir.For(chunk, tuple(steps), ex.ZERO, chunks)] if self.reductions else steps


def check_races(b: Builder, body: ir.Block) -> None:
    """Refuse parallel loops of which an iteration writes what another one reads or writes."""
    nest = Nest(body)
    for loop, place in b.parallel:
        if (found := dependence(nest, loop)) is None:
            continue
        store, other = found
        places = [b.places.get(id(a.statement), (None, place))[1] for a in found]
        name = next((n for n, a in b.arrays.items() if a.tensor is store.tensor), "")
        what = name if name and not name.startswith("made.") else "an array"
        how = "also written" if other.writes else "read"
        raise b.source.mistake(
            f"iterations of cvm.prange may meet at one element of {what}: it is written here, and "
            f"{how} by another iteration, so they cannot run at once",
            places[0],
            (f"it is {how} here", places[1]),
            ("the loop", place),
        )
