"""The scheme qdq: 8 bits as onnxruntime computes on them, whose factors are numbers of f32."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.ir.function import Operation
from cvm.dialect.types.tensor_types import I8, ElementType
from cvm.importers.onnx.microsoft import qlinear_softmax
from cvm.importers.onnx.quantized import dequantized, quantized

from .float_graph import scalar_function
from .scheme import Parameters, Quantized
from .tflite import SOFTMAX, Program, Tflite


class Qdq(Tflite):
    """Layers and sums are of integers, and are scaled by factors of f32; operations on two values
    are those of floats, between conversions.
    """

    name: ClassVar[str] = "qdq"
    widths: ClassVar[tuple[int, ...]] = (8,)

    def ratio(self, x: float, w: object, y: float) -> Any:
        return np.float32(x) * np.asarray(w, np.float32) / np.float32(y)

    def rescaled(
        self,
        x: Node,
        factors: object,
        p: Parameters,
        bound: int,
        input_zero: int = 0,
        limits: tuple[int, int] | None = None,
        to: ElementType | None = None,
    ) -> Node:
        factor = self.constant(np.asarray(factors, np.float32))
        low, high = limits or (p.low, p.high)
        attributes = {"zero_point": p.zero_point, "min": low, "max": high, "to": to or I8}
        return self.apply(
            "quant.requantize",
            x,
            factor,
            input_zero_point=input_zero,
            rounding="half_even_f32",
            axis=1 if factor.rank else -1,
            **attributes,
        )

    def sum(self, operation: Operation) -> Quantized:
        x, z = self.pair(operation)
        p, (low, high) = self.own(operation), self.limits(operation)
        a, b = (dequantized(t.node, *parameters(t.node, t.parameters)) for t in (x, z))
        y = a.scalar(str(scalar_function(operation)), b)
        made = Quantized(quantized(y, *parameters(y, p), I8), p)
        for name, limit, end in (("maximum", low, p.low), ("minimum", high, p.high)):
            if limit != end:
                bounded = made.node.scalar(name, made.node.constant(np.array(limit, np.int8)))
                made = Quantized(bounded, p)
        return made

    def product(self, operation: Operation) -> Quantized:
        return self.sum(operation)

    def softmax(self, operation: Operation) -> Quantized:
        x = self.value(self.graph.merged[operation].operands[0])
        return Quantized(onnx_softmax(x.node, x.parameters), SOFTMAX)


def parameters(like: Node, p: Parameters) -> tuple[Node, Node]:
    """A scale and a zero point as operands."""
    scale, zero_point = np.array(p.scale, np.float32), np.array(p.zero_point, np.int8)
    return like.constant(scale), like.constant(zero_point)


def onnx_softmax(x: Node, p: Parameters) -> Node:
    """The softmax of the last axis of i8 of a scale, as onnxruntime computes it."""
    numbers = []
    for q in (p, SOFTMAX):
        numbers += [np.array(q.scale, np.float32), np.array(q.zero_point, np.int8)]
    made = qlinear_softmax(cast(Any, Program(x)), x, *numbers)
    assert isinstance(made, Node)
    return made
