"""A verified function to formulas: each operation says of its result, in index notation, what every element is.

Operations with a hand-written nest stay statements; constants become data; an operator that keeps its operand's elements in
row-major order becomes a view, which shares its operand's storage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ...dialect.builtin import Const
from ...dialect.ir.diagnostics import NOWHERE, Span
from ...dialect.notation.index import Check, Expr, Index, Read, Tensor
from ...dialect.notation.index import Const as Number
from ...dialect.notation.loops import Block, map_expressions, nodes
from ...dialect.notation.traverse import children, walk
from ...dialect.program.module import Function, Literal, Value
from ..math import in_primitives
from .propagate_constants import propagate_constants


@dataclass(frozen=True, eq=False)
class Formula:
    """tensor[indices] = value"""

    tensor: Tensor
    indices: tuple[Index, ...]
    value: Expr
    span: Span = NOWHERE


@dataclass(frozen=True, eq=False)
class Nest:
    """Several tensors, and the statements that fill them from others."""

    tensors: tuple[Tensor, ...]
    operands: tuple[Tensor, ...]
    body: Block
    span: Span = NOWHERE


@dataclass(frozen=True, eq=False)
class View:
    """tensor is `of`, the same elements in the same order, under another shape."""

    tensor: Tensor
    of: Tensor
    formula: Formula


Step: TypeAlias = Formula | Nest | View


@dataclass(frozen=True, eq=False)
class Formulas:
    """A function as formulas, in the order of its operations."""

    name: str
    arguments: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    constants: dict[Tensor, np.ndarray]
    steps: tuple[Step, ...]
    requirements: tuple[tuple[str, Span], ...]  # of the checks in the steps as they were at first


def formulas(function: Function) -> Formulas:
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
            operands = tuple(t for _, t in typed.operands() if t in seen)  # of others, only the shape matters
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
    return Formulas(function.name, arguments, results, constants, tuple(steps), requirements)


def _unique(name: str, used: dict[str, int]) -> str:
    """The name, with a number after it where it was used; `used` says which number each name came to."""
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
    """How many operations a formula does at an element, index arithmetic left out: 0 for a mere rearrangement. Beyond `most`
    it is not counted how many."""
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
