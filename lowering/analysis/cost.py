"""Cost model of passes: estimates of scalar operations, bytes and dependent operations.
`count_operations` counts exactly.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ...dialect.kernel_ir.execution_plan import Loop, Plan
from ...dialect.kernel_ir.expressions import Apply, Expr, Read, Tensor, Var
from ...dialect.kernel_ir.loops import (
    Alloc,
    Block,
    For,
    If,
    Let,
    Store,
    expressions,
    is_rare,
    usual,
)
from ...dialect.kernel_ir.traverse import children, walk
from ...dialect.types.sizes import evaluate


def estimated_work(plan: Plan) -> int:
    """An upper bound on the operations of a call, and the bytes of the arrays of its kernels; each
    unknown size counts as 1.
    """
    work = 0
    for kernel in plan.kernels:
        if isinstance(kernel, Loop):
            trips = 1 if kernel.steps.trips is None else evaluate(kernel.steps.trips, UNKNOWN)
            work += trips * estimated_work(kernel.plan)
        else:
            work += sum(evaluate(t.bytes, UNKNOWN) for t in kernel.parameters)
            work += block_operations(kernel.body, UNKNOWN)
    return work


class Sizes(dict[Any, int]):
    """The values of sizes, and a default for one without."""

    def __init__(
        self, values: Mapping[object, int] = MappingProxyType({}), default: int = 1
    ) -> None:
        super().__init__(values)
        self.default = default

    def __missing__(self, atom: object) -> int:
        return self.default


UNKNOWN: Mapping[Any, int] = Sizes()  # binds every size to 1


def block_operations(block: Block, sizes: Mapping[Any, int], moved: int = 0) -> int:
    """An upper bound on the scalar operations of a block; each element written to memory adds
    `moved`.
    """
    count = 0
    for s in block:
        match s:
            case For(index, body):
                count += evaluate(index.extent, sizes) * block_operations(body, sizes, moved)
            case If() if is_rare(s):
                count += sum(map(operations, expressions(s)))
            case If(_, then, otherwise):
                count += max(
                    block_operations(then, sizes, moved), block_operations(otherwise, sizes, moved)
                )
            case Alloc():
                pass
            case Store(tensor, _, value):
                count += operations(value) + (0 if tensor.space == "register" else moved)
            case _:
                count += sum(map(operations, expressions(s)))
    return count


FLOAT_OPERATIONS = frozenset({"add", "sub", "mul", "fma", "div", "sqrt"})


def chain(block: Block) -> int:
    """The length of the critical path: dependent float operations of a block, rare branches left
    out.
    """
    before: dict[Var | Tensor, int] = {}
    done: dict[int, int] = {}

    def depth(e: Expr) -> int:
        if id(e) not in done:
            match e:
                case Var():
                    return before.get(e, 0)
                case Read(tensor, _):
                    return before.get(tensor, 0)
                case Apply(function, operands, type):
                    done[id(e)] = max(map(depth, operands)) + (
                        function in FLOAT_OPERATIONS and type.kind == "float"
                    )
                case _:
                    done[id(e)] = max(map(depth, children(e)), default=0)
        return done[id(e)]

    for s in usual(block):
        match s:
            case Let(var, value):
                before[var] = depth(value)
            case Store(tensor, _, value):
                before[tensor] = max(before.get(tensor, 0), depth(value))
    return max(before.values(), default=0)


def operations(e: Expr) -> int:
    """The operations of an expression, index arithmetic left out."""
    inside = {n for r in walk(e) if isinstance(r, Read) for i in r.indices for n in walk(i)}
    return sum(1 for x in walk(e) if isinstance(x, Apply) and x not in inside)
