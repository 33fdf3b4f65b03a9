"""What a function does when it is called: operations and bytes, counted from its kernels. An estimate for people and scheduling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..dialect.index import Apply, Expr, Read, Tensor
from ..dialect.loops import Alloc, Block, For, If, Store, expressions, is_rare
from ..dialect.sizes import evaluate, product
from ..dialect.traverse import walk
from .plan import Plan


@dataclass(frozen=True)
class Cost:
    """Per call: scalar operations on elements, bytes of the arrays that kernels read and write, and of intermediates."""

    operations: int
    bytes_read: int
    bytes_written: int
    workspace: int


def cost(plan: Plan, sizes: Mapping[Any, int] | None = None) -> Cost:
    """The cost of a plan. `sizes` gives the sizes that are unknown while compiling; each of them counts as 1 without."""
    known = _Sizes(sizes or {})
    read = sum(_bytes(t, known) for k in plan.kernels for t in k.inputs)
    written = sum(_bytes(t, known) for k in plan.kernels for t in k.outputs)
    operations = sum(block_operations(k.body, known) for k in plan.kernels)
    return Cost(operations, read, written, evaluate(plan.workspace, known))


def _bytes(t: Tensor, known: Mapping[Any, int]) -> int:
    return evaluate(product(t.shape), known) * t.element.bytes


class _Sizes(dict[Any, int]):
    def __missing__(self, atom: Any) -> int:
        return 1


UNKNOWN: Mapping[Any, int] = _Sizes()  # every size


def block_operations(block: Block, known: Mapping[Any, int], moved: int = 0) -> int:
    """The scalar operations that a block of statements does, at most; an element written to memory counts as `moved`."""
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


def _work(e: Expr) -> int:
    """The operations of an expression, the arithmetic of indices left out."""
    inside = {id(x) for r in walk(e) if isinstance(r, Read) for i in r.indices for x in walk(i)}
    return sum(1 for x in walk(e) if isinstance(x, Apply) and id(x) not in inside)
