"""The schemes tflite and tosa: 8 bits with a zero point for values, 8 bits by channel for weights,
sums of i32, and a multiplier with a shift for each scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np

from cvm.dialect.cvm.elementwise import alpha
from cvm.dialect.ir.builder import Node
from cvm.dialect.ir.function import Operation
from cvm.dialect.types.tensor_types import I8, I16, I32, ElementType
from cvm.importers.tflite.quantization import quantized_multiplier
from cvm.importers.tflite.softmax import of_8_bits

from .float_graph import Unquantizable, scalar_function
from .scheme import ACCUMULATOR, Parameters, Quantized, Scheme, bound_of, rounded_bias

LEFT_SHIFT, LEFT_SHIFT_16 = 20, 15  # of the operands of a sum, as LiteRT has it
SOFTMAX = Parameters(1 / 256, -128, -128, 127)  # of its result, as LiteRT has it


class Tflite(Scheme):
    """8 bits as LiteRT's specification of quantization has them, and its rounding."""

    name: ClassVar[str] = "tflite"
    element: ClassVar[ElementType] = I8
    rounding: ClassVar[str] = "tflite_double"
    rules: ClassVar[Mapping[str, str]] = {
        **Scheme.rules,
        "builtin.pad": "padded",
        "builtin.windows": "padded",
    }

    @classmethod
    def element_of(cls, p: Parameters) -> ElementType:
        return I8 if p.high <= I8.limits[1] else I16

    @staticmethod
    def chosen(low: float, high: float, bits: int = 8) -> Parameters:
        low, high = min(low, 0.0), max(high, 0.0)
        if bits == 16:  # LiteRT's have no zero point
            high = max(-low, high)
            low = -high
        least, most = (I8 if bits == 8 else I16).limits
        scale = float(np.float32((high - low) / (most - least)))
        if not scale >= 1e-30:  # of zeros alone, or of numbers too small for a scale of f32
            return Parameters(1.0, 0, least, most)
        if bits == 16:
            return Parameters(scale, 0, least, most)
        zero = int(np.clip(np.rint(least - low / scale), least, most))
        return Parameters(scale, zero, least, most)

    def ratio(self, x: float, w: Any, y: float) -> Any:
        """The factor of products of numbers with the scales x and w, for those with the scale y."""
        return x * w / y

    def requantized(
        self, operation: Operation, x: Node, factors: object, bound: int, input_zero: int = 0
    ) -> Quantized:
        """Accumulators times a factor, or one for each channel, as numbers of the result."""
        p, (low, high) = self.own(operation), self.limits(operation)
        return Quantized(self.rescaled(x, factors, p, bound, input_zero, (low, high)), p)

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
        to = to or self.element_of(p)
        given = np.asarray(factors)
        pairs = [quantized_multiplier(float(f)) for f in given.reshape(-1)]
        m, s = (np.array(c, np.int32).reshape(given.shape) for c in zip(*pairs, strict=True))
        # LiteRT shifts i32 to the left: where that may overflow, one rounding of i64 is exact
        left = max(31 - min(int(shift) for _, shift in pairs), 0)
        rounding = self.rounding if bound << left <= ACCUMULATOR else "single"
        low, high = limits or (p.low, p.high)
        attributes = {
            "to": to,
            "rounding": rounding,
            "zero_point": p.zero_point,
            "axis": 1 if given.ndim else -1,
        }
        attributes |= {"min": low, "max": high} if to is not I32 else {}
        return self.apply(
            "quant.requantize",
            x,
            self.constant(m),
            self.constant(s),
            input_zero_point=input_zero,
            **attributes,
        )

    def times(self, x: Quantized, factor: float) -> Quantized:
        """A value of its own, whose scale is one of f32 as LiteRT has it."""
        scale = x.parameters.scale * factor
        if 1e-30 < scale < 1e30:  # well within f32
            scale = float(np.float32(scale))
        order = tuple(range(x.node.rank))
        y = x.node.apply("theano.dimshuffle", new_order=order)
        return Quantized(y, replace(x.parameters, scale=scale))

    def as_parameters(self, x: Quantized, p: Parameters) -> Node:
        """Numbers of one scale as those of another."""
        if x.parameters == p:
            return x.node
        factor = self.ratio(x.parameters.scale, 1.0, p.scale)
        y = self.rescaled(x.node, factor, p, x.parameters.magnitude, x.parameters.zero_point)
        return Quantized(y, p).node

    def number(self, value: int) -> Node:
        return self.constant(np.array(value, np.int32))

    @staticmethod
    def by_channel(
        w: np.ndarray, bits: int, least: np.ndarray | float = 0.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Weights as integers, and the scale of each channel, of no less than `least`."""
        most = alpha(bits)
        largest = np.abs(w.reshape(len(w), -1)).max(1, initial=0)
        scales = np.maximum(np.maximum(largest / most, least), 1e-30).astype(np.float32)
        rows = scales.astype(np.float64).reshape(-1, *(1,) * (w.ndim - 1))
        return np.clip(np.rint(w / rows), -most, most).astype(np.int8), rows

    @staticmethod
    def rounded(w: np.ndarray, bits: int) -> np.ndarray:
        q, rows = Tflite.by_channel(w, bits)
        return q * rows

    # Rules

    def weighted(self, operation: Operation) -> Quantized:
        layer = self.layer(operation)
        o: Any = operation.operator
        x, w = layer.x.parameters, layer.w
        least = np.abs(layer.b) / (x.scale * 2.0**30)  # the bias stays within i32
        q, rows = self.by_channel(w, self.bits_of_weights(layer), least)
        scales = rows.reshape(-1)
        b = layer.b - self.correction(layer, q * rows - w)
        bias = rounded_bias(b, x.scale * scales)
        bound = bound_of(q.astype(np.int64), x, bias)
        self.prove(operation, bound)
        name = operation.results[0].name
        kernel = self.constant(q, f"{name}.weight")
        operands = (layer.x.node, kernel, self.number(x.zero_point), self.number(0))
        operands = (*operands, self.constant(bias.astype(np.int32), f"{name}.bias"))
        accumulator = {"acc_dtype": I32} if self.element_of(x) is I16 else {}
        if o.name == "cvm.dense":
            sums = self.apply("quant.dense", *operands, **accumulator)
        else:
            sums = self.apply(
                "quant.conv2d",
                *operands,
                padding=(*o.padding, *o.padding),
                stride=o.stride,
                dilation=o.dilation,
                groups=o.groups,
                layout="NCHW",
                **accumulator,
            )
        factors = self.ratio(x.scale, scales, self.own(operation).scale)
        return self.requantized(operation, sums, factors, bound)

    def pooled(self, operation: Operation) -> Quantized:
        o: Any = operation.operator
        x = self.value(o.x)
        after = [p + (s - 1 if o.ceil_mode else 0) for p, s in zip(o.pads, o.strides, strict=True)]
        node = self.apply(
            "quant.max_pool2d",
            x.node,
            pool_size=o.pool_size,
            padding=(*o.pads, *after),
            stride=o.strides,
            layout="NCHW",
        )
        return Quantized(node, x.parameters)

    def total(self, operation: Operation) -> Quantized:
        o: Any = operation.operator
        x, count = self.value(o.x), self.count(operation)
        types = {"dtype": I32, "acc_dtype": I32} if o.name == "theano.sum" else {}
        sums = self.mapped(operation, x.node.cast(I32), **types)
        bound = count * max(-x.parameters.low, x.parameters.magnitude)
        self.prove(operation, bound)
        factor = self.ratio(x.parameters.scale, 1.0, self.own(operation).scale)
        return self.requantized(operation, sums, factor, bound, count * x.parameters.zero_point)

    def contracted(self, operation: Operation) -> Quantized:
        (x, z), o = self.pair(operation), operation.operator
        differences = (t.node.cast(I32) - self.number(t.parameters.zero_point) for t in (x, z))
        first, second = differences
        types = {"dtype": I32, "acc_dtype": I32} if o.name == "theano.sum" else {}
        sums = self.mapped(operation, first * second, **types)
        bound = self.count(operation) * x.parameters.magnitude * z.parameters.magnitude
        self.prove(operation, bound)
        scales = x.parameters.scale, z.parameters.scale
        factor = self.ratio(*scales, self.own(operation).scale)
        return self.requantized(operation, sums, factor, bound)

    def sum(self, operation: Operation) -> Quantized:
        x, z = self.pair(operation)
        p, (low, high) = self.own(operation), self.limits(operation)
        common = 2 * max(x.parameters.scale, z.parameters.scale)
        wide = I16 in (self.element_of(x.parameters), self.element_of(z.parameters))
        left_shift = LEFT_SHIFT_16 if wide else LEFT_SHIFT
        factors = [
            x.parameters.scale / common,
            z.parameters.scale / common * (-1 if scalar_function(operation) == "sub" else 1),
            common / (2.0**left_shift * p.scale),
        ]
        bound = (x.parameters.magnitude + z.parameters.magnitude) << (left_shift - 1)
        self.prove(operation, bound)
        return Quantized(self.added(x, z, factors, p, (low, high), bound, left_shift), p)

    def added(
        self,
        x: Quantized,
        z: Quantized,
        factors: list[float],
        p: Parameters,
        limits: tuple[int, int],
        bound: int,
        left_shift: int,
    ) -> Node:
        pairs = [quantized_multiplier(f) for f in factors]
        return self.apply(
            "quant.add",
            x.node,
            z.node,
            zero_points=(x.parameters.zero_point, z.parameters.zero_point, p.zero_point),
            multipliers=tuple(m for m, _ in pairs),
            shifts=tuple(s for _, s in pairs),
            left_shift=left_shift,
            rounding=self.rounding,
            to=self.element_of(p),
            min=limits[0],
            max=limits[1],
        )

    def product(self, operation: Operation) -> Quantized:
        x, z = self.pair(operation)
        p, (low, high) = self.own(operation), self.limits(operation)
        bound = x.parameters.magnitude * z.parameters.magnitude
        self.prove(operation, bound)
        # LiteRT computes this factor in f32
        scales = (np.float32(t.scale) for t in (x.parameters, z.parameters, p))
        first, second, result = scales
        m, s = quantized_multiplier(float(first * second / result))
        node = self.apply(
            "quant.mul",
            x.node,
            z.node,
            zero_points=(x.parameters.zero_point, z.parameters.zero_point, p.zero_point),
            multiplier=m,
            shift=s,
            rounding=self.rounding if bound << max(31 - s, 0) <= ACCUMULATOR else "single",
            to=self.element_of(p),
            min=low,
            max=high,
        )
        return Quantized(node, p)

    def joined(self, operation: Operation) -> Quantized:
        o: Any = operation.operator
        p = self.parameters[operation.results[0], ()]
        parts = [self.as_parameters(self.value(v), p) for v in o.xs]
        return Quantized(self.apply("cvm.concatenate", *parts, axis=o.axis), p)

    def padded(self, operation: Operation) -> Quantized:
        """Zeros, which are the zero point."""
        o: Any = operation.operator
        x = self.value(o.x)
        zero = x.parameters.zero_point
        if o.name == "builtin.windows":
            if o.fill and any(n > 0 for n in (*o.before, *o.after)):
                raise Unquantizable(f"it is filled with {o.fill}")
            return Quantized(self.mapped(operation, x.node, fill=float(zero)), x.parameters)
        if any(n < 0 for n in (*o.before, *o.after)):
            raise Unquantizable("it takes elements away")
        node = self.apply("quant.pad", x.node, self.number(zero), before=o.before, after=o.after)
        return Quantized(node, x.parameters)

    def softmax(self, operation: Operation) -> Quantized:
        x = self.value(self.graph.merged[operation].operands[0])
        if self.element_of(p := x.parameters) is I16:
            p = self.chosen(float(p.numbers(p.low)), float(p.numbers(p.high)))
            x = Quantized(self.as_parameters(x, p), p)
        shape, size = x.node.shape, x.node.shape[-1]
        if sum(not isinstance(n, int) for n in shape) > 1:
            raise Unquantizable("it has several unknown sizes")
        if not isinstance(size, int) or size > 1 << 11:  # terms of at most 2^19 fill i32 then
            raise Unquantizable("its rows have too many elements, or an unknown number")
        rows = x.node
        if len(shape) != 2:
            rows = self.apply("cvm.reshape", rows, target_shape=(-1, size))
        y = integer_softmax(rows, x.parameters.scale)
        if len(shape) != 2:
            target = tuple(n if isinstance(n, int) else -1 for n in shape)
            y = self.apply("cvm.reshape", y, target_shape=target)
        return Quantized(y, SOFTMAX)

    def table(self, x: Quantized, entries: np.ndarray, y: Parameters) -> Node:
        p, (low, high) = x.parameters, self.element_of(x.parameters).limits
        padded = np.pad(entries, (p.low - low, high - p.high), "edge")
        return self.apply(
            "quant.table", x.node, self.constant(padded.astype(self.element_of(y).dtype))
        )

    def move(self, operation: Operation, x: Quantized) -> Node:
        return self.mapped(operation, x.node)


class Tosa(Tflite):
    """8 bits with the single rounding of TOSA's RESCALE, also before sums and products."""

    name: ClassVar[str] = "tosa"
    widths: ClassVar[tuple[int, ...]] = (8,)
    rounding: ClassVar[str] = "single"

    def added(
        self,
        x: Quantized,
        z: Quantized,
        factors: list[float],
        p: Parameters,
        limits: tuple[int, int],
        bound: int,
        left_shift: int,
    ) -> Node:
        wide = Parameters(1.0, 0, *I32.limits)
        first, second = (
            self.rescaled(
                t.node,
                abs(f) * 2.0**left_shift,  # TOSA has no negative multipliers
                wide,
                t.parameters.magnitude,
                t.parameters.zero_point,
                to=I32,
            )
            for t, f in zip((x, z), factors, strict=False)
        )
        terms = first - second if factors[1] < 0 else first + second
        return self.rescaled(terms, factors[2], p, bound, 0, limits)


def integer_softmax(rows: Node, scale: float) -> Node:
    """The softmax of rows of i8 of a scale, as LiteRT computes it."""
    below = rows.reduce("max", (1,)).with_ones((1,)).cast(I32) - rows.cast(I32)
    return of_8_bits(cast(Any, Program(rows, scale)), below, 1.0)


class Program:
    """A program in the place of an importer's operator without attributes, whose softmax it
    shares.
    """

    def __init__(self, rows: Node, scale: float = 1.0) -> None:
        self.node, self.builder = rows.constant, rows.builder
        self.x, self.y = _Tensor(scale), _Tensor(SOFTMAX.scale)

    def __getitem__(self, name: str) -> None:
        return None

    def apply(self, name: str, *operands: Any, **attributes: Any) -> Node:
        nodes = (o if isinstance(o, Node) else self.node(o) for o in operands)
        return self.builder.apply(name, *nodes, **attributes)


class _Tensor:
    element = I8

    def __init__(self, scale: float) -> None:
        self.scale = scale
