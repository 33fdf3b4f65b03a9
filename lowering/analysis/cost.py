"""Cost model: scalar operations and bytes of a call, counted from its kernels. An estimate for users and for
scheduling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...dialect.ir.sizes import evaluate, product
from ...dialect.notation.expressions import Apply, Expr, Read, Tensor, Var
from ...dialect.notation.loops import Alloc, Block, For, If, Let, Loop, Store, expressions, is_rare, usual
from ...dialect.notation.plan import Plan
from ...dialect.notation.traverse import children, walk


@dataclass(frozen=True)
class Cost:
    """The cost of a call: scalar operations on elements, bytes read and written by kernels, bytes of intermediates."""

    operations: int
    bytes_read: int
    bytes_written: int
    workspace: int


def cost(plan: Plan, sizes: Mapping[Any, int] | None = None) -> Cost:
    """The cost of a plan. `sizes` binds the sizes that are unknown at compile time; an unbound size counts as 1."""
    known = _Sizes(sizes or {})
    plain = [k for k in plan.kernels if not isinstance(k, Loop)]
    read = sum(_bytes(t, known) for k in plain for t in k.inputs)
    written = sum(_bytes(t, known) for k in plain for t in k.outputs)
    operations = sum(block_operations(k.body, known) for k in plain)
    for loop in plan.kernels:
        if isinstance(loop, Loop):
            step, trips = cost(loop.plan, sizes), evaluate(1 if loop.steps.trips is None else loop.steps.trips, known)
            operations += trips * step.operations
            read, written = read + trips * step.bytes_read, written + trips * step.bytes_written
    return Cost(operations, read, written, evaluate(plan.workspace, known))


def _bytes(t: Tensor, known: Mapping[Any, int]) -> int:
    return evaluate(product(t.shape), known) * t.element.bytes


class _Sizes(dict[Any, int]):
    def __missing__(self, atom: Any) -> int:
        return 1


UNKNOWN: Mapping[Any, int] = _Sizes()  # binds every size to 1


def block_operations(block: Block, known: Mapping[Any, int], moved: int = 0) -> int:
    """An upper bound on the scalar operations of a block; each element written to memory adds `moved`."""
    count = 0
    for s in block:
        match s:
            case For(index, body):
                count += evaluate(index.extent, known) * block_operations(body, known, moved)
            case If() if is_rare(s):
                count += sum(map(_work, expressions(s)))
            case If(_, then, otherwise):
                count += max(block_operations(then, known, moved), block_operations(otherwise, known, moved))
            case Alloc():
                pass
            case Store(tensor, _, value):
                count += _work(value) + (0 if tensor.space == "register" else moved)
            case _:
                count += sum(map(_work, expressions(s)))
    return count


FLOAT_OPERATIONS = frozenset({"add", "sub", "mul", "fma", "div", "sqrt"})


def chain(block: Block) -> int:
    """The length of the critical path: dependent float operations of a block, rare branches left out."""
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
                    is_step = function in FLOAT_OPERATIONS and type.kind == "float"
                    done[id(e)] = max(map(depth, operands)) + is_step
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


def _work(e: Expr) -> int:
    """The operations of an expression, index arithmetic left out."""
    inside = {id(x) for r in walk(e) if isinstance(r, Read) for i in r.indices for x in walk(i)}
    return sum(1 for x in walk(e) if isinstance(x, Apply) and id(x) not in inside)
