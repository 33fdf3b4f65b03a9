"""Outline a parallel loop: its body as a kernel of its own, which other threads can run.

    s = ...; for i in a..b parallel { y[i] = s * x[i] }
    =>  kernel(x, s, y) { for i in 0..b - a parallel { let t = s[]; y[i + a] = t * x[i + a] } }

Numbers that the loop reads from around it, variables, indices and accumulators, are parameters of
rank 0. (LLVM's CodeExtractor, MLIR's async-parallel-for.)
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ..analysis.accesses import allocated, every_access, stores


@dataclass(frozen=True, eq=False)
class Outlined:
    """The kernel, its parameters of rank 0 with the numbers that they stand for, and the arrays
    that its others are.
    """

    kernel: ir.Kernel
    numbers: Mapping[ex.Tensor, ex.Expr]
    arrays: Mapping[ex.Tensor, ex.Tensor]


def outlined(kernel: ir.Kernel, loop: ir.For) -> Outlined:
    """The kernel of a loop in another kernel; its iterations count from 0."""
    starts_at_zero = isinstance(loop.start, ex.Const) and loop.start.value == 0
    body = loop.body
    if not starts_at_zero:
        place = ex.Var(loop.index.name, loop.index.type)
        body = (
            ir.Let(place, loop.index + loop.start),
            *ir.substitute_block(body, {loop.index: place}),
        )
    inside = ir.statements(body)
    bound: set[ex.Expr] = {loop.index}
    bound |= {s.var for s in inside if isinstance(s, ir.Let)}
    bound |= {s.index for s in inside if isinstance(s, ir.For)}
    own = allocated(body)
    used = dict.fromkeys(t for t, _ in every_access(body) if t not in own)
    registers = [t for t in used if t.space == "register" and not t.rank]
    free = dict.fromkeys(
        e for e in ir.nodes(body) if isinstance(e, (ex.Index, ex.Var)) and e not in bound
    )
    given: dict[ex.Tensor, ex.Expr] = {}
    lets: list[ir.Statement] = []

    def let(value: ex.Expr, name: str) -> ex.Var:
        cell, var = ex.Tensor(name, (), value.type), ex.Var(name, value.type)
        given[cell] = value
        lets.append(ir.Let(var, cell[()]))
        return var

    body = ir.replace_reads(body, {t: let(t[()], t.name) for t in registers})
    body = ir.substitute_block(body, {e: let(e, e.name) for e in free})
    arrays = {t: ex.Tensor(t.name, t.shape, t.element) for t in used if t not in registers}
    body = ir.replace_arrays(body, arrays)
    stored = dict.fromkeys(arrays[s.tensor] for s in stores(loop.body) if s.tensor in arrays)
    read = [t for t in arrays.values() if t not in stored]
    made = replace(
        kernel,
        parameters=(*given, *read, *stored),
        body=(replace(loop, body=(*lets, *body), start=ex.ZERO, stop=None),),
        results=len(stored),
        condition=None,
    )
    return Outlined(made, given, {new: old for old, new in arrays.items()})
