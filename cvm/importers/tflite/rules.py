"""The table of the importer: for each builtin operator of TensorFlow Lite, the function that makes
our operations of one.

    @rule("SOFTMAX")
    def softmax(at: At, x: Node) -> Known: ...

The parameters after the first are the operator's inputs, as in `graph/rules.py`. `at["beta"]` is an
option, `at.inputs` and `at.outputs` are tensors with their quantization. `exact` and `floats` say
how results compare with the reference kernels, of integers and where there are floats; a rule that
decides this sets `at.rule_exactness`. docs/tflite.md is made of this table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from cvm.dialect.types.tensor_types import ElementType
from cvm.importers.exactness import ROUNDED, Exactness
from cvm.importers.flatbuffer import Table, options
from cvm.importers.graph import importer as graph
from cvm.importers.graph.rules import ImportRule, Known, Unsupported, table

from .schema import ELEMENTS, SCHEMA

RULES: dict[str, ImportRule] = {}
# kernels clip results to finite numbers, and choose between equal zeros in their own order
FINITE = Exactness("every element and result is finite, and none is -0.0")
Ints: TypeAlias = tuple[int, ...]  # an input that is constant integers

REFUSED = {
    **dict.fromkeys(("CUSTOM", "DELEGATE"), "it is no builtin operator"),
    **dict.fromkeys(
        ("WHERE", "UNIQUE", "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5"),
        "its output's shape depends on the data",
    ),
    **dict.fromkeys(
        ("RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "MULTINOMIAL"), "it draws random numbers"
    ),
    **dict.fromkeys(
        ("HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE", "HASHTABLE_LOOKUP"),
        "the language has no tables of strings",
    ),
    **dict.fromkeys(("IF", "WHILE"), "the language has no loops over whole tensors"),
}


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of the model: q stands for (q - zero_point) * scale, of the whole tensor or of each
    place along `axis`.
    """

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


rule = table(RULES)


@dataclass
class At(graph.At):
    """An operator of the model, while it is imported."""

    tensors: Sequence[Tensor]
    operator: Table
    rounding: str
    model: Any
    rules, refused = RULES, REFUSED

    def __post_init__(self) -> None:
        super().__post_init__()
        self.inputs = [self.tensors[n] if n >= 0 else None for n in self.operator.inputs]
        self.outputs = [self.tensors[n] for n in self.operator.outputs]

    def __getitem__(self, name: str) -> Any:
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
        if (tensor := self.inputs[number]) is None:
            raise ValueError(f"input {number} is absent")
        return tensor


def same_scale(at: At) -> None:
    """Take numbers of one scale."""
    quantised = [
        t
        for t in (*at.inputs, *at.outputs)
        if t is not None and t.is_quantised and t.element.bits < 32
    ]
    if any(
        t.scale != quantised[0].scale or t.zero_point != quantised[0].zero_point for t in quantised
    ):
        raise Unsupported("operands of different scales")


def plain(at: At) -> None:
    """Take floats and plain integers."""
    if at.y.is_quantised:
        raise Unsupported("quantised numbers")


__all__ = ["ROUNDED", "Known", "Unsupported"]
