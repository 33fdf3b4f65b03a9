"""A scalar operation of Theano, as a row of one table: arity, types, NumPy meaning, formula and
derivative.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..kernel_ir.expressions import Expr
from ..spec.operator import NoRule
from ..spec.unmet import Unmet
from ..types.tensor_types import C64, ElementType, compute_type
from .complex_arithmetic import Z
from .type_rules import RULES, Elements, TypeRule
from .wrapping_casts import cast_to_element, to_element

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes, Tangents

# the cotangents of the operands, from the result's, the operands and the result; None is zero,
# UNKNOWN has no rule
Gradient: TypeAlias = "Callable[[Node, Nodes, Node], Cotangents]"
Numpy: TypeAlias = Callable[..., np.ndarray]  # the meaning on arrays
OnComplex: TypeAlias = "str | Callable[..., Expr | Z] | None"


@dataclass(frozen=True)
class ByParts:
    """The derivatives of an operation on complex numbers that is not a complex derivative times
    what comes in: the cotangents of the operands as `Gradient` gives them, and the result's tangent
    from those of the operands, the operands and the result.
    """

    pull: Gradient
    push: "Callable[..., Node]"


UNKNOWN = NoRule()


@dataclass(frozen=True)
class ScalarOp:
    """One row. `arity` None is any number from one on.

    `numpy` takes arrays and `formula` expressions, both of the rule's working types. `on_complex`
    is the formula over complex numbers: "same" where the formula serves them too, None where the
    operation does not take them. `reduction` is the scalar
    function of a reduction by this operation.
    """

    name: str
    arity: int | None
    rule: TypeRule
    numpy: Numpy
    formula: Callable[..., Expr]
    doc: str = ""
    on_complex: OnComplex = None
    gradient: "Gradient | None" = None
    by_parts: ByParts | None = None
    reduction: str | None = None
    check: Callable[..., str | None] | None = (
        None  # of arrays: what does not hold of them when the program runs
    )

    def pulled(self, g: "Node", xs: "Nodes", y: "Node") -> "Cotangents":
        """The operands' cotangents from the result's. That of x + i y is dL/dx + i dL/dy: g times
        the conjugate derivative.
        """
        if self.gradient is None:
            raise NotImplementedError(f"theano.elemwise of {self.name}")
        if not _some_complex(*xs, y):
            return self.gradient(g, xs, y)[: len(xs)]
        if self.by_parts is not None:
            return self.by_parts.pull(g, xs, y)
        found = self.gradient(g.scalar("conj"), xs, y)[: len(xs)]
        return [d if d is None or isinstance(d, NoRule) else d.scalar("conj") for d in found]

    def pushed(self, tangents: "Tangents", xs: "Nodes", y: "Node") -> "Node | None":
        """The tangent of the result from those of the operands, None being zero."""
        if self.gradient is None:
            raise NotImplementedError(f"theano.elemwise of {self.name}")
        if self.by_parts is not None and _some_complex(*xs, y):
            return self.by_parts.push(tangents, xs, y)
        total = None
        for n, t in enumerate(tangents):
            part = None if t is None else self.gradient(t.like(y).into(y.element), xs, y)[n]
            if isinstance(part, NoRule):
                raise NotImplementedError(f"theano.elemwise of {self.name}")
            if total is None:
                total = part
            elif part is not None:
                total = total + part
        return total

    def takes(self, *elements: ElementType) -> bool:
        if not self.rule.takes(*elements):
            return False
        return self.on_complex is not None or all(e.kind != "complex" for e in elements)

    @property
    def wanted(self) -> str:
        if self.on_complex is None and self.rule.takes(*(C64,) * (self.arity or 2)):
            return self.rule.wanted + (
                ", nor complex" if "not" in self.rule.wanted else " that are not complex"
            )
        return self.rule.wanted

    def working(self, elements: Elements) -> Elements:
        """The types to which operands are converted: f16 and bf16 are computed in f32, and rounded
        once.
        """
        return tuple(
            compute_type(e) for e in self.rule.working(elements, self.rule.result(*elements))
        )

    def evaluate(
        self, arrays: Sequence[np.ndarray], elements: Elements, result: ElementType
    ) -> np.ndarray:
        """The operation on arrays of one shape."""
        operands = [to_element(a, w) for a, w in zip(arrays, self.working(elements), strict=True)]
        if self.check is not None and (wrong := self.check(*operands)) is not None:
            raise Unmet(wrong)
        return to_element(self.numpy(*operands), result)

    def expression(self, operands: Sequence[Expr], result: ElementType) -> Expr:
        working = self.working(tuple(o.type for o in operands))
        given = [cast_to_element(o, w) for o, w in zip(operands, working, strict=True)]
        if not isinstance(self.on_complex, (str, type(None))) and any(
            w.kind == "complex" for w in working
        ):
            found = self.on_complex(*map(Z.of, given))
            return (
                found.expression(result) if isinstance(found, Z) else cast_to_element(found, result)
            )
        return cast_to_element(self.formula(*given), result)


def of_one(derivative: "Callable[[Node, Node, Node], Node]") -> Gradient:
    """The gradient of a function of one operand, by its cotangent from g, x in the result's type,
    and y.
    """
    return lambda g, xs, y: (derivative(g, xs[0].cast(y.element), y),)


def _some_complex(*nodes: "Node") -> bool:
    return any(n.element.kind == "complex" for n in nodes)


SCALAR_OPS: dict[str, ScalarOp] = {}


def row(
    name: str,
    arity: int | None,
    rule: str,
    numpy: Numpy,
    formula: Callable[..., Expr],
    doc: str = "",
    *,
    on_complex: OnComplex = None,
    gradient: "Gradient | None" = None,
    by_parts: ByParts | None = None,
    reduction: str | None = None,
    check: Callable[..., str | None] | None = None,
) -> None:
    """Enters an operation into the table."""
    assert name not in SCALAR_OPS, f"{name} is there twice"
    SCALAR_OPS[name] = ScalarOp(
        name,
        arity,
        RULES[rule],
        numpy,
        formula,
        doc,
        on_complex,
        gradient,
        by_parts,
        reduction,
        check,
    )
