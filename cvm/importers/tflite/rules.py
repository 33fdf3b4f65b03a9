"""The table of the importer: for each builtin operator of TensorFlow Lite, the function that makes our operations of one.

    @rule("SOFTMAX")
    def softmax(at: At, x: Node) -> Known: ...

The parameters after the first are the operator's inputs, as in the rules of the ONNX importer. `at["beta"]` is an option, `at.inputs`
and `at.outputs` are tensors with their quantisation, and `at.onnx` applies a rule of the ONNX importer. `exact` and `floats` say how
results compare with the reference kernels, of integers and where there are floats; a rule that decides this sets `at.found`.
docs/tflite.md is made of this table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

from cvm.dialect.ir.types import ElementType
from cvm.dialect.program.builder import Node
from cvm.importers.exactness import EXACT, ROUNDED, Exactness
from cvm.importers.flatbuffer import Table, options
from cvm.importers.onnx import importer as onnx_importer
from cvm.importers.onnx.rules import LATEST, Because, Function, Known, Rule, Unsupported, find_rule, parameters

from .schema import ELEMENTS, SCHEMA

RULES: dict[str, Rule] = {}
Ints: TypeAlias = tuple[int, ...]  # an input that is constant integers
EXACTNESS: dict[str, tuple[Exactness, Exactness]] = {}  # by operator: of integers, and where there are floats

REFUSED = {
    **dict.fromkeys(("CUSTOM", "DELEGATE"), "it is no builtin operator"),
    **dict.fromkeys(("WHERE", "UNIQUE", "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5"), "its output's shape depends on the data"),
    **dict.fromkeys(("RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "MULTINOMIAL"), "it draws random numbers"),
    **dict.fromkeys(("HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE", "HASHTABLE_LOOKUP"), "the language has no tables of strings"),
    **dict.fromkeys(("IF", "WHILE"), "the language has no loops over whole tensors"),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of the model: q stands for (q - zero_point) * scale, of the whole tensor or of each place along `axis`."""

    name: str
    shape: tuple[int, ...]
    type: str
    scales: np.ndarray
    zero_points: np.ndarray
    axis: int
    is_variable: bool

    @property
    def element(self) -> ElementType:
        if self.type not in ELEMENTS:
            raise Unsupported(f"elements of type {self.type}")
        return ELEMENTS[self.type]

    @property
    def is_quantised(self) -> bool:
        return len(self.scales) > 0 and self.element.is_integer

    @property
    def scale(self) -> np.float32:
        if len(self.scales) != 1:
            raise Unsupported(f"{len(self.scales)} scales of {self.name!r} in the place of one")
        return np.float32(self.scales[0])

    @property
    def zero_point(self) -> int:
        return int(self.zero_points[0]) if len(self.zero_points) else 0


def rule(*names: str, exact: Exactness = EXACT, floats: Exactness = EXACT) -> Callable[[Function], Function]:
    """Enter a function into the table."""

    def enter(function: Function) -> Function:
        doc = " ".join((function.__doc__ or "").split())
        for name in names:
            RULES[name] = Rule(name, 1, LATEST, function, parameters(function), None, doc)
            EXACTNESS[name] = exact, floats
        return function

    return enter


@dataclass
class At(onnx_importer.At):
    """An operator of the model, while it is imported."""

    tensors: Sequence[Tensor] = ()
    operator: Table | None = None
    rounding: str = "tflite_double"
    model: Any = None
    found: Exactness | None = None

    def __post_init__(self) -> None:
        assert self.operator is not None
        self.op = self.node_proto.op_type
        self.inputs = [self.tensors[n] if n >= 0 else None for n in self.operator.inputs]
        self.outputs = [self.tensors[n] for n in self.operator.outputs]

    def __getitem__(self, name: str) -> Any:
        assert self.operator is not None
        return getattr(options(self.operator.builtin_options, self.op, SCHEMA), name)

    @property
    def x(self) -> Tensor:
        """The first input."""
        return self.input(0)

    @property
    def y(self) -> Tensor:
        """The first output."""
        return self.outputs[0]

    def input(self, number: int) -> Tensor:
        found = self.inputs[number]
        if found is None:
            raise ValueError(f"input {number} is absent")
        return found

    def exactness(self) -> Exactness:
        """The exactness that the rule of this operator has found, or that the table has."""
        floats = any(t is not None and t.type.startswith(("FLOAT", "COMPLEX")) for t in (*self.inputs, *self.outputs))
        return self.found or EXACTNESS[self.op][floats]

    def reads(self) -> set[str]:
        return {name for name in self.node_proto.input if name}

    def overlooked(self) -> str:
        return ""

    def run(self) -> Any:
        found = RULES.get(self.op)
        if found is None:
            raise Because(REFUSED.get(self.op, "it has no rule"))
        return self.call(found, [self.values[name] if name else None for name in self.node_proto.input])

    def onnx(self, op: str, *inputs: Any, **attributes: Any) -> Any:
        """The operations of an ONNX operator with these attributes."""
        found = find_rule(op, LATEST - 1)
        assert found is not None, op
        return found.function(OnnxAt(self, op, attributes), *inputs)


class OnnxAt:
    """An ONNX node as its rule sees it, made of an operator of TensorFlow Lite."""

    def __init__(self, at: At, op: str, attributes: dict[str, Any]) -> None:
        self.importer, self.op, self.opset, self.attributes = at.importer, op, LATEST - 1, attributes
        self.apply, self.node, self.like, self.node_proto = at.apply, at.node, at.like, SimpleNamespace(output=[""])

    def __getitem__(self, name: str) -> Any:
        return self.attributes.get(name)

    def wants(self, output: int) -> bool:
        return output == 0


__all__ = ["EXACTNESS", "REFUSED", "ROUNDED", "RULES", "At", "Ints", "Known", "Node", "Tensor", "Unsupported", "rule"]
