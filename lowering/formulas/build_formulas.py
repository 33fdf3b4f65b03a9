"""Lower a verified function to formulas: index notation that defines every element of each result.

    %y = cvm.dense %x, %w  =>  y[i, j] = sum over k of x[i, k] * w[j, k]

An operation with a hand-written nest stays a list of statements; constants become data; an operator that keeps the
row-major order of its operand's elements becomes a view, which shares the operand's storage. TVM calls these compute
definitions.
"""

from __future__ import annotations

import os
from functools import cache

import numpy as np

from ...dialect.builtin import Const
from ...dialect.notation.expressions import Check, Expr, Index, Read, Tensor
from ...dialect.notation.expressions import Const as Number
from ...dialect.notation.formulas import Formula, Formulas, Nest, Step, View
from ...dialect.notation.loops import map_expressions, nodes
from ...dialect.notation.traverse import children, walk
from ...dialect.program.function import Function, Literal, Value
from ..math import in_primitives
from .propagate_constants import propagate_constants


def build_formulas(function: Function) -> Formulas:
    """The formulas of a function without calls."""
    tensors: dict[Value, Tensor] = {}
    constants: dict[Tensor, np.ndarray] = {}
    used: dict[str, int] = {}

    def tensor(value: Value, space: str) -> Tensor:
        type = value.known_type
        made = Tensor(_unique(value.name, used), type.array_shape, type.element, space)
        tensors[value] = made
        return made

    def operand(value: Value) -> Tensor:
        if value not in tensors:
            assert isinstance(value, Literal)
            constants[tensor(value, "constant")] = value.array
        return tensors[value]

    arguments = tuple(tensor(a, "argument") for a in function.arguments)
    steps: list[Step] = []
    for operation in function.operations:
        if isinstance(operation.operator, Const):
            constants[tensor(operation.results[0], "constant")] = operation.operator.data.array
            continue
        typed = operation.operator.map(operand)
        results = tuple(tensor(r, "heap") for r in operation.results)
        if typed.has_nest():
            body = map_expressions(typed.nest(*results), in_primitives)
            seen = {e.tensor for e in nodes(body) if isinstance(e, Read)}
            operands = tuple(t for _, t in typed.operands() if t in seen)  # of others, only the shape is used
            steps.append(Nest(results, operands, body, operation.span))
            continue
        element = typed.element(results[0])
        formula = Formula(
            results[0], element.indices, propagate_constants(element.value, constants, operation.span), operation.span
        )
        if typed.view:
            steps.append(View(results[0], next(t for _, t in typed.operands()), formula))
        else:
            steps.append(formula)
    results = tuple(operand(r) for r in function.results)
    checks = [e for s in steps if isinstance(s, Formula) for e in walk(s.value) if isinstance(e, Check)]
    requirements = tuple((check.message, check.span) for check in checks)
    if (size := sum(array.nbytes for array in constants.values())) > physical_memory():
        raise MemoryError(f"its constants have {size} bytes")
    return Formulas(function.name, arguments, results, constants, tuple(steps), requirements)


@cache
def physical_memory() -> int:
    """The bytes of this machine's memory, or an estimate."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 36


def _unique(name: str, used: dict[str, int]) -> str:
    """A unique name: the name itself, or with a number appended; `used` maps each name to its last number."""
    found, n = name, used.get(name, 0)
    while found in used:
        n += 1
        found = f"{name}.{n}"
    used[name] = n
    used[found] = used.get(found, 0)
    return found


def reads(value: Expr) -> set[Tensor]:
    return {e.tensor for e in walk(value) if isinstance(e, Read)}


def cost(value: Expr, most: int | None = None) -> int:
    """The operations of a formula per element, index arithmetic left out: 0 for a pure rearrangement. Counting stops at
    `most`.
    """
    count = 0
    seen: set[int] = set()
    stack = [value]
    while stack and (most is None or count <= most):
        e = stack.pop()
        if id(e) in seen:
            continue
        seen.add(id(e))
        if isinstance(e, Read):
            continue
        if not isinstance(e, (Number, Index)):
            count += 1
        stack.extend(children(e))
    return count
