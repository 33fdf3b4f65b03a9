"""Operators with an effect: `builtin.print` and `builtin.assert`.

An effect is what the reference does beside its results, which are the first operands. Effects keep
the order of the program, through calls and loops, and are neither left out nor shared.
"""

from typing import TYPE_CHECKING

import numpy as np

from ..spec.operator import C, Operator, T, operator
from ..spec.unmet import Unmet
from ..types.tensor_types import I1, TensorType

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes


class Effect(Operator[T]):
    """The family of operators with an effect. Their derivatives are those of the identity."""

    has_effect = True
    is_expanded = True  # it has no formula

    placement = (
        C(0, "an effect stands in a function, not in a graph", lambda _, f: not f.is_graph),
    )

    def constant_folding(self) -> bool:
        return False

    def pullback(self: "Effect[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        return [*cotangents, *[None] * (len(self.operands()) - len(cotangents))]


@operator
class Print(Effect[T]):
    """Y = X, after X and its label were written to the standard output."""

    x: T
    label: str = ""

    example = (
        '%x {label = "x"}',
        "%x: 2xf32",
    )

    def reference(self: "Print[np.ndarray]") -> np.ndarray:
        label = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in self.label)
        text = np.array2string(np.asarray(self.x), separator=", ")
        print(f"{label} = {text}" if label else text, flush=True)
        return self.x


@operator
class Assert(Effect[T]):
    """Y = X, of truth values; a call fails with the message unless every element holds."""

    x: T
    message: str = "an assertion does not hold"

    constraints = (
        C(
            1,
            "element(x) = i1",
            lambda o: isinstance(o.x, TensorType) and o.x.element is I1,
        ),
    )
    example = (
        '%x {message = "x holds"}',
        "%x: 2xi1",
    )

    def reference(self: "Assert[np.ndarray]") -> np.ndarray:
        if not np.all(self.x):
            raise Unmet(self.message)
        return self.x


def effectful(cls: type[Operator[object]]) -> None:
    """Have an operator of another package be one with an effect."""
    for name in ("has_effect", "is_expanded", "constant_folding"):
        setattr(cls, name, Effect.__dict__[name])
    cls.placement = (*Effect.placement, *cls.placement)
    if cls.pullback is Operator.pullback:
        cls.pullback = Effect.pullback  # type: ignore[method-assign]
