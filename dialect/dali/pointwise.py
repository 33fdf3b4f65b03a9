"""Common parts of the dialect's operators: promotion of element types, and NumPy's broadcasting
with DALI's limit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..kernel_ir.expressions import Element, Expr, Tensor, apply, axes, cast
from ..kernel_ir.scalar_functions import SCALARS
from ..spec.broadcasting import aligned, broadcast, broadcastable, cannot_broadcast, source
from ..spec.operator import C, Operator, T, snake_case
from ..types.cast_arrays import converted
from ..types.sizes import Shape
from ..types.tensor_types import BY_DTYPE, ElementType, TensorType
from .promotion import RULES, SUPPORTED, PromotionRule

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes

MOST_GROUPS = 6


@dataclass(frozen=True, eq=False)
class Pointwise(Operator[T]):
    """Y[i...] = f of the operands at i..., each repeated along the axes where its size is 1.

    Operands are cast to the working type (by default the result's), in which f is computed. A
    subclass that is no scalar
    function defines f twice: `exact` over arrays and `formula` over elements.
    """

    names: ClassVar[tuple[str, ...]] = ()
    rule: ClassVar[PromotionRule]  # of element types
    symbol: ClassVar[str] = ""  # how expressions write the operator
    scalar: ClassVar[str] = ""  # f as a scalar function, for operators that are one
    exact: ClassVar[Callable[..., Any]] = lambda self, *xs: SCALARS[self.scalar].numpy(
        *xs
    )  # f of arrays
    derivative: ClassVar[str] = ""  # Theano's scalar operation that has the same derivative
    shown: ClassVar[tuple[str, ...]] = ("2x3xf32", "3xui8", "ui8")  # the operands of the example
    symbols: ClassVar = {"groups": lambda o: groups(*_shapes(o))}

    def __init_subclass__(cls, kind: str = "", symbol: str = "", **more: object) -> None:
        super().__init_subclass__(**more)
        if not kind:
            return
        cls.rule = RULES[kind]
        if kind == "bitwise":
            cls.shown = "2x3xui8", "3xi32"
        cls.symbol = symbol or snake_case(cls.__name__)
        if "constraints" not in cls.__dict__:
            cls.constraints = constraints(cls.names, cls.rule, cls.symbol)
        arguments = ", ".join(f"%{n}: {t}" for n, t in zip(cls.names, cls.shown, strict=False))
        cls.example = ", ".join(f"%{n}" for n in cls.names), arguments

    def working(self, *elements: ElementType) -> ElementType:
        """The type in which the operator computes, of its operands' types."""
        return self.rule.result(*elements)

    def formula(self, *operands: Any, **_: Any) -> Expr:
        """f, of elements of the operands in the working type."""
        return apply(self.scalar, *operands)

    def infer(self: "Pointwise[TensorType]") -> TensorType:
        types = [t for _, t in self.operands()]
        return TensorType(
            broadcast(*(t.shape for t in types)), self.rule.result(*(t.element for t in types))
        )

    def reference(self: "Pointwise[np.ndarray]") -> np.ndarray:
        arrays = [a for _, a in self.operands()]
        elements = [BY_DTYPE[a.dtype] for a in arrays]
        operands = self.prepared(elements, np.broadcast_arrays(*arrays), converted)
        return converted(self.exact(*operands), self.rule.result(*elements))

    def element(self: "Pointwise[Tensor]", y: Tensor) -> Element:
        tensors = [t for _, t in self.operands()]
        at = axes(y.shape)
        operands = self.prepared(
            [t.element for t in tensors], [t[source(at, t)] for t in tensors], cast
        )
        return Element(at, cast(self.formula(*operands), y.element))

    def pullback(self: "Pointwise[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        """By `gradient`, of the operands in the result's type."""
        (y,), (g,) = results, cotangents
        given = [o for _, o in self.operands()]
        gradients = self.gradient(g, [o.cast(y.element).stretched(y) for o in given], y)
        return [None if d is None else d.gathered(o) for d, o in zip(gradients, given, strict=True)]

    def gradient(self, g: Any, operands: Any, y: Any) -> Any:
        """The cotangents of operands of the result's type and shape; by default those of Theano's
        `derivative`.
        """
        if not self.derivative:
            raise NotImplementedError(self.name)
        return g.gradient_of(self.derivative, operands, y)

    def constant_folding(self) -> bool:
        rounded = (
            not self.scalar or not SCALARS[self.scalar].ulps
        )  # what is not, only the compiled code computes
        return rounded and super().constant_folding()

    def prepared(
        self, elements: Any, operands: Any, convert: Callable[[Any, ElementType], Any]
    ) -> list[Any]:
        """The operands in the type, or types, that f takes."""
        working = self.working(*elements)
        return [convert(o, working) for o in operands]


@dataclass(frozen=True, eq=False)
class Unary(Pointwise[T]):
    x: T

    names = ("x",)


@dataclass(frozen=True, eq=False)
class Binary(Pointwise[T]):
    a: T
    b: T

    names = ("a", "b")


# Constraints

_TYPES = ", ".join(e.name for e in SUPPORTED)


def constraints(names: tuple[str, ...], rule: PromotionRule, symbol: str) -> tuple[C, ...]:
    """The dialect's constraints on operands of these names; a rule without a condition has no
    number.
    """
    conditions = [supported(names)]
    if rule.takes:
        all_are = f"{_each('element', names)} {'is' if len(names) == 1 else 'are'}"
        text = rule.takes.format(all=all_are, every="all " if len(names) > 1 else "", symbol=symbol)
        conditions.append(C(2, text, lambda o: rule.holds(*(t.element for _, t in o.operands()))))
    if len(names) > 1:
        shapes = _each("shape", names)
        text = f"{shapes} broadcast: aligned on the right, sizes that meet are equal or 1"
        conditions.append(
            C(
                3,
                text,
                lambda o: broadcastable(*_shapes(o)),
                plainly=lambda o: cannot_broadcast(*_shapes(o)),
            )
        )
        text = (
            f"{shapes} broadcast in groups <= {MOST_GROUPS}, runs of axes alike in which "
            "operands have size 1"
        )
        conditions += [
            C(
                4,
                text,
                lambda o: (
                    max(map(len, _shapes(o))) <= MOST_GROUPS or groups(*_shapes(o)) <= MOST_GROUPS
                ),
            )
        ]
    return tuple(conditions)


def supported(names: tuple[str, ...], elements: tuple[ElementType, ...] = SUPPORTED) -> C:
    """Constraint 1: the operands are tensors of these element types."""
    text = (
        f"{_each('type', names)} {'is a tensor' if len(names) == 1 else 'are tensors'} of {_TYPES}"
    )
    return C(
        1,
        text,
        lambda o: all(isinstance(t, TensorType) and t.element in elements for _, t in o.operands()),
    )


def _each(what: str, names: tuple[str, ...]) -> str:
    return ", ".join(f"{what}({n})" for n in names)


def _shapes(o: Any) -> list[Shape]:
    return [t.shape for _, t in o.operands()]


def groups(*shapes: Shape) -> int:
    """The number of runs of axes on which the same operands have size 1, without axes where all
    have.
    """
    repeats = [tuple(dim == 1 for dim in dims) for dims in aligned(*shapes)]
    return sum(1 for _ in groupby(r for r in repeats if not all(r)))
