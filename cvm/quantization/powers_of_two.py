"""The scheme cvm: operators of the cvm dialect alone, whose scales are powers of two."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from cvm.dialect.cvm.elementwise import alpha
from cvm.dialect.ir.builder import Node
from cvm.dialect.ir.function import Operation
from cvm.dialect.types.tensor_types import I32, ElementType

from .float_graph import Unquantizable, scalar_function
from .scheme import Parameters, Quantized, Scheme, bound_of, rounded_bias

BITS = 8
LIMIT = alpha(BITS)
WIDE = (
    16  # bits of a result that nothing else reads, and most bits that a sum's operand is shifted by
)
POWER_BITS, SHARE_BITS = 15, 7  # of softmax: of an exponential and of a share


def of_bits(bits: int, limit: int = LIMIT) -> Parameters:
    return Parameters(2.0**-bits, 0, -limit, limit)


def bits_of(p: Parameters) -> int:
    return -round(math.log2(p.scale))


class PowersOfTwo(Scheme):
    """Integers of 8 bits in i32, each times a power of two; weights have one scale a layer."""

    name: ClassVar[str] = "cvm"
    element: ClassVar[ElementType] = I32

    @staticmethod
    def chosen(low: float, high: float, bits: int = BITS) -> Parameters:
        largest, limit = max(-low, high), alpha(bits)
        # a scale that cuts the largest by up to an eighth is finer for all others
        fraction = math.floor(math.log2(limit / largest) + 0.17) if largest > 2.0**-100 else 0
        return of_bits(fraction, limit)

    @staticmethod
    def widened(p: Parameters) -> Parameters:
        return of_bits(bits_of(p) + WIDE - BITS, alpha(WIDE)) if p.high <= LIMIT else p

    def shifted(self, x: Node, shift: int, bits: int = BITS) -> Node:
        """Integers divided by a power of two, rounded, halves up, and clipped."""
        if shift > 0:
            return self.apply("cvm.cvm_right_shift", x, precision=bits, shift_bit=min(shift, 32))
        if shift < 0:
            return self.apply("cvm.cvm_left_shift", x, precision=bits, shift_bit=min(-shift, 32))
        return self.apply("cvm.cvm_clip", x, precision=bits)

    def finished(self, operation: Operation, sums: Node, bits: int, bound: int) -> Quantized:
        """A sum as numbers of the result, through the clamp that is fused to it."""
        self.prove(operation, bound)
        p, (low, high) = self.own(operation), self.limits(operation)
        y = self.shifted(sums, bits - bits_of(p), p.high.bit_length() + 1)
        if (low, high) == (0, p.high):
            y = self.apply("cvm.relu", y)
        elif low < high and (low, high) != (p.low, p.high):
            y = self.apply("cvm.clip", y, a_min=low, a_max=high)
        elif low >= high:
            raise Unquantizable("its result is one number")
        return Quantized(y, p)

    def is_scale(self, factor: float) -> bool:
        return math.frexp(factor)[0] == 0.5

    @staticmethod
    def fraction_bits(w: np.ndarray, limit: int) -> int:
        """The bits after the point of weights within a limit, with the least squared error."""
        largest = float(np.abs(w).max(initial=0))
        fine = math.floor(math.log2(limit / largest)) if largest > 2.0**-100 else 0
        errors = {
            b: np.square(of_bits(b, limit).numbers(of_bits(b, limit).integers(w)) - w).sum()
            for b in (fine, fine + 1)
        }
        return min(errors, key=lambda b: errors[b])

    @staticmethod
    def rounded(w: np.ndarray, bits: int) -> np.ndarray:
        limit = alpha(bits)
        p = of_bits(PowersOfTwo.fraction_bits(w, limit), limit)
        return p.numbers(p.integers(w))

    # Rules

    def weighted(self, operation: Operation) -> Quantized:
        layer = self.layer(operation)
        o = operation.operator
        x, w, into = layer.x.parameters, layer.w, bits_of(layer.x.parameters)
        bits = self.fraction_bits(w, limit := alpha(self.bits_of_weights(layer)))
        most = float(np.abs(layer.b).max(initial=0))
        if most:  # the bias stays within i32
            bits = min(bits, math.floor(30 - math.log2(most)) - into)
        q = of_bits(bits, limit).integers(w)
        b = layer.b - self.correction(layer, of_bits(bits).numbers(q) - w)
        bias = rounded_bias(b, 2.0 ** -(bits + into))
        name = operation.results[0].name
        operands = [layer.x.node, self.constant(q.astype(np.int32), f"{name}.weight")]
        if bias.any():
            operands.append(self.constant(bias.astype(np.int32), f"{name}.bias"))
        if o.name == "cvm.dense":
            sums = self.apply("cvm.dense", *operands)
        else:
            kept = {n: getattr(o, n) for n in ("padding", "stride", "dilation", "groups")}
            sums = self.apply("cvm.conv2d", *operands, **kept)
        return self.finished(operation, sums, into + bits, bound_of(q, x, bias))

    def pooled(self, operation: Operation) -> Quantized:
        o: Any = operation.operator
        x = self.value(o.x)
        return Quantized(self.mapped(operation, x.node), x.parameters)

    def total(self, operation: Operation) -> Quantized:
        o: Any = operation.operator
        x = self.value(o.x)
        bound = self.count(operation) * x.parameters.magnitude
        return self.added_up(operation, x.node, bits_of(x.parameters), bound)

    def contracted(self, operation: Operation) -> Quantized:
        x, z = self.pair(operation)
        product = self.apply("cvm.broadcast_mul", x.node, z.node)
        bits = bits_of(x.parameters) + bits_of(z.parameters)
        bound = self.count(operation) * x.parameters.magnitude * z.parameters.magnitude
        return self.added_up(operation, product, bits, bound)

    def added_up(self, operation: Operation, x: Node, bits: int, bound: int) -> Quantized:
        """The sum along the axes of a reduction."""
        o: Any = operation.operator
        axes = tuple(o.axis or range(x.rank)) if o.name == "theano.sum" else o.axes
        kept = o.keepdims if o.name == "cvm.sum" else False
        if o.name == "theano.sum" and len(axes) == x.rank:
            raise Unquantizable("its result has no axes")
        sums = self.apply("cvm.sum", x, axes=axes, keepdims=kept)
        return self.finished(operation, sums, bits, bound)

    def sum(self, operation: Operation) -> Quantized:
        x, z = self.pair(operation)
        parameters = x.parameters, z.parameters
        room = min(bits_of(p) + min(WIDE, 30 - p.magnitude.bit_length()) for p in parameters)
        bits = min(max(map(bits_of, parameters)), room)
        bound = sum(p.magnitude << max(bits - bits_of(p), 0) for p in parameters)
        terms = [
            self.shifted(t.node, bits_of(t.parameters) - bits, 32)
            if bits != bits_of(t.parameters)
            else t.node
            for t in (x, z)
        ]
        name = f"cvm.broadcast_{scalar_function(operation)}"
        return self.finished(operation, self.apply(name, *terms), bits, bound)

    def product(self, operation: Operation) -> Quantized:
        x, z = self.pair(operation)
        product = self.apply("cvm.broadcast_mul", x.node, z.node)
        bits = bits_of(x.parameters) + bits_of(z.parameters)
        return self.finished(
            operation, product, bits, x.parameters.magnitude * z.parameters.magnitude
        )

    def joined(self, operation: Operation) -> Quantized:
        o: Any = operation.operator
        p = self.parameters[operation.results[0], ()]
        parts = [self.value(v) for v in o.xs]
        shifts = [bits_of(x.parameters) - bits_of(p) for x in parts]
        nodes = [
            self.shifted(x.node, s, p.high.bit_length() + 1) if s else x.node
            for x, s in zip(parts, shifts, strict=True)
        ]
        return Quantized(self.apply("cvm.concatenate", *nodes, axis=o.axis), p)

    def softmax(self, operation: Operation) -> Quantized:
        """Exponentials from a table, of 15 bits, divided by their sum."""
        x = self.value(self.graph.merged[operation].operands[0])
        size = x.node.shape[-1]
        if not isinstance(size, int) or size >= 1 << (31 - POWER_BITS):
            raise Unquantizable("its rows have too many elements, or an unknown number")
        axis = x.node.rank - 1
        largest = self.apply("cvm.max", x.node, axes=(axis,), keepdims=True)
        below = self.apply("cvm.broadcast_sub", largest, x.node)
        powers = np.rint(
            2.0**POWER_BITS * np.exp(-np.arange(2 * x.parameters.high + 1) * x.parameters.scale)
        )
        terms = self.apply("cvm.cvm_lut", self.constant(powers.astype(np.int32)), below)
        sums = self.apply("cvm.sum", terms, axes=(axis,), keepdims=True)
        self.prove(operation, size << POWER_BITS)
        wide = self.apply("cvm.cvm_left_shift", terms, precision=32, shift_bit=SHARE_BITS)
        half = self.apply("cvm.cvm_right_shift", sums, precision=32, shift_bit=1)
        shares = self.apply("cvm.broadcast_div", self.apply("cvm.broadcast_add", wide, half), sums)
        y = self.apply("cvm.cvm_clip", shares, precision=BITS)
        return Quantized(y, of_bits(SHARE_BITS))

    def table(self, x: Quantized, entries: np.ndarray, y: Parameters) -> Node:
        places = self.apply(
            "cvm.broadcast_add", x.node, self.constant(np.array([-x.parameters.low], np.int32))
        )
        return self.apply("cvm.cvm_lut", self.constant(entries.astype(np.int32)), places)

    def move(self, operation: Operation, x: Quantized) -> Node:
        o: Any = operation.operator
        if o.name == "theano.dimshuffle":
            kept = [j for j in o.new_order if j != "x"]
            dropped = tuple(j for j in range(x.node.rank) if j not in kept)
            node = self.apply("cvm.squeeze", x.node, axes=dropped) if dropped else x.node
            order = tuple(sorted(kept).index(j) for j in kept)
            node = (
                self.apply("cvm.transpose", node, axes=order)
                if order != tuple(range(len(order)))
                else node
            )
            for place, j in enumerate(o.new_order):
                node = self.apply("cvm.expand_dims", node, axis=place) if j == "x" else node
            return node
        if o.name == "builtin.reshape":
            shape = operation.results[0].known_type.array_shape
            if sum(not isinstance(n, int) for n in shape) > 1:
                raise Unquantizable("its result has several unknown sizes")
            target = tuple(n if isinstance(n, int) else -1 for n in shape)
            return self.apply("cvm.reshape", x.node, target_shape=target)
        return self.mapped(operation, x.node)
