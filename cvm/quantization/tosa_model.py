"""Programs of the scheme tosa as TOSA models, operation by operation.

The specification leaves a result open where a number leaves its type or the reach of a rescaling:
the largest magnitude of every sum is computed, and an operation that may get there is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from cvm.dialect.ir.function import Value
from cvm.dialect.ir.module import Module
from cvm.dialect.types.tensor_types import I8, I32, ElementType, TensorType
from cvm.importers.tflite.contractions import TO_NHWC
from cvm.importers.tosa.schema import TYPES, Graph, Operator, Tensor
from cvm.importers.tosa.writer import write

from .model_writer import SHARED, ModelWriter, Unstated, sizes_of
from .scheme import ACCUMULATOR, Parameters, bound_of

TYPE_OF: dict[ElementType, str] = {I8: "INT8", I32: "INT32"}
ELEMENT_OF = {name: element for element, name in TYPE_OF.items()}
# numbers of enumerations of the schema: RoundingMode, NanPropagationMode, and the type of sums
ROUNDINGS = {"single": 1, "tosa_double": 3}
PROPAGATE = 1
SUMS_OF_I32 = TYPES.index("INT32")
SHIFTS = (2, 62)  # of RESCALE


def tosa_model(module: Module, entry: str = "main") -> bytes:
    """The bytes of a TOSA flatbuffer that computes what a function of integers does.

    The function is one of `cvm.quantize` with the scheme tosa. Raises Error with the first
    operation that the operators of TOSA cannot state, or for which the specification leaves the
    result open, and its line; also for a tensor of unknown size, because sizes of TOSA are known.
    """
    return _Writer(module, entry).bytes()


class _Writer(ModelWriter):
    """A model while it is written."""

    suffix: ClassVar[str] = ".tosa"

    def __init__(self, module: Module, entry: str) -> None:
        super().__init__(module, entry)
        self.tensors: list[Tensor] = []
        self.operators: list[tuple[str, dict[str, Any], Sequence[int], int]] = []
        self.bounds: dict[int, int] = {}  # the largest magnitudes of tensors

    def bytes(self) -> bytes:
        inputs, outputs = self.walk()
        names = self.unique_names(len(self.tensors))

        def named(indices: Sequence[int]) -> tuple[str, ...]:
            return tuple(names[i] for i in indices)

        operators = [Operator(op, a, named(x), named([y])) for op, a, x, y in self.operators]
        tensors = {n: replace(t, name=n) for n, t in zip(names, self.tensors, strict=True)}
        return write(Graph(tensors, operators, named(inputs), named(outputs)))

    # Tensors

    def add(self, shape: Sequence[int], type: str, data: np.ndarray | None = None) -> int:
        if any(n < 0 for n in shape):
            raise Unstated("its size is unknown, which --size sets")
        if 0 in shape and type != "SHAPE":
            raise Unstated("it has no elements")
        self.tensors.append(Tensor("", tuple(shape), type, data))
        return len(self.tensors) - 1

    def held(self, values: Any, type: str) -> int:
        """A constant."""
        dtype = np.int64 if type == "SHAPE" else ELEMENT_OF[type].dtype
        array = np.asarray(values).astype(dtype)
        index = self.add(array.shape, type, array)
        op = "CONST_SHAPE" if type == "SHAPE" else "CONST"
        self.operators.append((op, {}, (), index))
        self.bounds[index] = int(np.abs(array.astype(np.int64)).max(initial=0))
        return index

    def operation(
        self,
        op: str,
        inputs: Sequence[int],
        shape: Sequence[int],
        type: str,
        bound: int | None = None,
        **attributes: Any,
    ) -> int:
        """The tensor that an operator makes; i32 has a bound."""
        if bound is not None and bound > ACCUMULATOR:
            raise Unstated(f"its elements may reach {bound}, beyond i32")
        y = self.add(shape, type)
        self.operators.append((op, attributes, tuple(inputs), y))
        self.bounds[y] = -I8.limits[0] if bound is None else bound
        return y

    def changed(
        self, op: str, index: int, inputs: Sequence[int], shape: Sequence[int], **attributes: Any
    ) -> int:
        """The tensor of an operator whose elements have the type and the bound of the first."""
        type, bound = self.tensors[index].type, self.bounds[index]
        return self.operation(op, (index, *inputs), shape, type, bound, **attributes)

    def type(self, value: Value) -> str:
        type = value.known_type
        if not isinstance(type, TensorType) or type.element not in TYPE_OF:
            raise Unstated(f"%{value.name} is {type}, neither of i8 nor of i32")
        return TYPE_OF[type.element]

    def argument(self, value: Value) -> int:
        index = self.add(sizes_of(value), self.type(value))
        self.bounds[index] = -ELEMENT_OF[self.tensors[index].type].limits[0]
        return index

    def constant(self, value: Value, array: np.ndarray) -> int:
        return self.held(array, self.type(value))

    def transposed(self, index: int, order: Sequence[int]) -> int:
        if list(order) == list(range(len(order))):
            return index
        shape = [self.tensors[index].shape[a] for a in order]
        return self.changed("TRANSPOSE", index, (), shape, perms=list(order))

    def reshaped(self, index: int, shape: Sequence[int]) -> int:
        if self.tensors[index].shape == tuple(shape):
            return index
        return self.changed("RESHAPE", index, [self.held(shape, "SHAPE")], shape)

    def shaped(self, index: int, y: Value) -> int:
        return self.reshaped(index, sizes_of(y))

    def sliced(self, index: int, begin: Sequence[int], shape: Sequence[int]) -> int:
        ends = self.held(begin, "SHAPE"), self.held(shape, "SHAPE")
        return self.changed("SLICE", index, ends, shape)

    def padded(self, index: int, before: Sequence[int], after: Sequence[int], fill: int) -> int:
        t = self.tensors[index]
        shape = [b + n + a for b, n, a in zip(before, t.shape, after, strict=True)]
        sides = self.held(np.stack([before, after], 1).reshape(-1), "SHAPE")
        return self.changed("PAD", index, [sides, self.held([fill], t.type)], shape)

    def joined(self, inputs: Sequence[int], axis: int, shape: Sequence[int]) -> int:
        type, bound = self.tensors[inputs[0]].type, max(self.bounds[i] for i in inputs)
        return self.operation("CONCAT", inputs, shape, type, bound, axis=axis)

    def together(self, values: Sequence[Value], y: Value) -> tuple[list[int], tuple[int, ...]]:
        """The tensors of operands, a number in the rank of the result, and the order of axes."""
        order = self.common_layout(y, values)
        found: list[int] = []
        for v in values:
            rank, made = v.known_type.rank, self.made.get(v)  # type: ignore[union-attr]
            if (v not in self.laid and made is None) or rank == 0:
                array = self.array(v)
                found.append(
                    self.held(array.reshape((1,) * len(order)), TYPE_OF[v.known_type.element])
                )  # type: ignore[union-attr]
            elif rank != len(order):
                raise Unstated(f"an operand has {rank} axes, and the result {len(order)}")
            else:
                found.append(self.tensor(v, order))
        return found, order

    # Arithmetic

    def less(self, index: int, number: int) -> int:
        """A tensor as i32 less a number."""
        t = self.tensors[index]
        if t.type != "INT32":
            index = self.operation("CAST", [index], t.shape, "INT32", self.bounds[index])
        if not number:
            return index
        held = self.held(np.full((1,) * len(t.shape), number), "INT32")
        bound = self.bounds[index] + abs(number)
        return self.operation("SUB", [index, held], t.shape, "INT32", bound)

    def rescaled(self, index: int, pairs: Sequence[tuple[int, int]], o: Any, type: str) -> int:
        """A tensor times factors: one, or one for each element of the last axis."""
        if o.rounding not in ROUNDINGS:
            raise Unstated(f"its rounding is {o.rounding}, and that of TOSA single")
        zero = getattr(o, "input_zero_point", 0)
        if self.tensors[index].type == "INT32":
            index, zero = self.less(index, zero), 0
        pairs = [(m, s) if m else (0, SHIFTS[1]) for m, s in pairs]
        bound = self.bounds[index] + abs(zero)
        for m, s in pairs:
            if not (m >= 0 and SHIFTS[0] <= s <= SHIFTS[1] and bound < 1 << (s - 1)):
                raise Unstated(
                    f"the multiplier {m} with the shift {s} is beyond RESCALE's for {bound}"
                )
        t = self.tensors[index]
        if o.zero_point and type != "INT8":
            raise Unstated("sums with a zero point")
        parameters = [
            self.held([m for m, _ in pairs], "INT32"),
            self.held([s for _, s in pairs], "INT8"),
            self.held([zero], t.type),
            self.held([o.zero_point], type),
        ]
        found = max((bound * m >> s) + 1 for m, s in pairs) if type == "INT32" else None
        y = self.operation(
            "RESCALE",
            [index, *parameters],
            t.shape,
            type,
            found,
            scale32=True,
            rounding_mode=ROUNDINGS[o.rounding],
            per_channel=len(pairs) > 1,
            input_unsigned=False,
            output_unsigned=False,
        )
        return self.clamped(y, o.min, o.max)

    def clamped(self, index: int, low: int | None, high: int | None) -> int:
        element = ELEMENT_OF[self.tensors[index].type]
        limits = [e if n is None else n for n, e in zip((low, high), element.limits, strict=True)]
        if tuple(limits) == element.limits:
            return index
        ends = [np.frombuffer(np.array(n, element.dtype).tobytes(), np.uint8) for n in limits]
        shape, limits = self.tensors[index].shape, {"min_val": ends[0], "max_val": ends[1]}
        return self.changed("CLAMP", index, (), shape, **limits, nan_mode=PROPAGATE)

    # Windows

    def window(
        self,
        index: int,
        pads: Sequence[int],
        kernel: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
    ) -> tuple[int, list[int], list[int]]:
        """The tensor that a window passes over, its padding, and the sizes of the result.

        The last window ends where the padded input does.
        """
        shape, pads = list(self.tensors[index].shape), list(pads)
        sizes: list[int] = []
        for a in range(2):
            free = pads[a] + shape[1 + a] + pads[2 + a] - (kernel[a] - 1) * dilations[a] - 1
            sizes.append(free // strides[a] + 1)
            rest = free % strides[a]
            pads[2 + a], rest = max(pads[2 + a] - rest, 0), max(rest - pads[2 + a], 0)
            shape[1 + a] -= rest
        if min(pads) < 0:
            raise Unstated("its padding is negative")
        if shape != list(self.tensors[index].shape):
            index = self.sliced(index, [0] * len(shape), shape)
        return index, [pads[0], pads[2], pads[1], pads[3]], sizes

    def convolved(
        self,
        index: int,
        w: np.ndarray,
        bias: np.ndarray | None,
        zeros: tuple[int, int],
        window: tuple[Sequence[int], Sequence[int], Sequence[int]],
        groups: int,
    ) -> int:
        """The sums of a convolution with weights (channels, inputs, H, W) by their padding, stride
        and dilation.
        """
        pads, strides, dilations = window
        if w.dtype != np.int8 or zeros[1]:
            raise Unstated("its weights are not of i8 with the zero point 0")
        bias = np.zeros(len(w), np.int32) if bias is None else bias
        bound = bound_of(w.astype(np.int64), Parameters(1.0, zeros[0], *I8.limits), bias)
        index, pad, sizes = self.window(index, pads, w.shape[2:], strides, dilations)
        n, channels = self.tensors[index].shape[0], self.tensors[index].shape[3]
        if groups == channels > 1:
            op = "DEPTHWISE_CONV2D"
            kernel = w.reshape(channels, -1, *w.shape[2:]).transpose(2, 3, 0, 1)
        elif groups == 1:
            op, kernel = "CONV2D", w.transpose(TO_NHWC)
        else:
            raise Unstated(f"it has {groups} groups of {channels} channels")
        held = [self.held(kernel, "INT8"), self.held(bias, "INT32")]
        inputs = [index, *held, *(self.held([z], "INT8") for z in zeros)]
        return self.operation(
            op,
            inputs,
            (n, *sizes, len(w)),
            "INT32",
            bound,
            pad=pad,
            stride=list(strides),
            dilation=list(dilations),
            local_bound=False,
            acc_type=SUMS_OF_I32,
        )


# Rules


def convolution(to: _Writer, y: Value, o: Any) -> None:
    if o.layout != "NCHW":
        raise Unstated(f"its layout is {o.layout}")
    index, zeros = to.tensor(o.x, TO_NHWC), zero_points(to, o)
    bias = None if o.bias is None else to.array(o.bias)
    window = o.padding, o.stride, o.dilation
    sums = to.convolved(index, to.array(o.w), bias, zeros, window, o.groups)
    to.give(y, sums, TO_NHWC)


def dense(to: _Writer, y: Value, o: Any) -> None:
    index, w = to.tensor(o.x), to.array(o.w)
    rows = to.reshaped(index, (to.tensors[index].shape[0], 1, 1, w.shape[1]))
    bias = None if o.bias is None else to.array(o.bias)
    window = (0, 0, 0, 0), (1, 1), (1, 1)
    sums = to.convolved(rows, w[:, :, None, None], bias, zero_points(to, o), window, 1)
    to.give(y, to.shaped(sums, y))


def zero_points(to: _Writer, o: Any) -> tuple[int, int]:
    return int(to.array(o.x_zero_point)), int(to.array(o.w_zero_point))


def requantize(to: _Writer, y: Value, o: Any) -> None:
    order, factors = to.layout(o.x), to.factors(o)
    if len(factors) > 1:
        axis = o.axis % len(order)
        order = order if order[-1] == axis else (*(a for a in order if a != axis), axis)
    to.give(y, to.rescaled(to.tensor(o.x, order), factors, o, to.type(y)), order)


def product(to: _Writer, y: Value, o: Any) -> None:
    """A product of two values less their zero points."""
    inputs, order = to.together((o.x, o.z), y)
    x, z = (to.less(i, zero) for i, zero in zip(inputs, o.zero_points, strict=False))
    wide = times(to, x, z, sizes_of(y, order))
    to.give(y, to.rescaled(wide, [(o.multiplier, o.shift)], o, to.type(y)), order)


def times(to: _Writer, x: int, z: int, shape: Sequence[int]) -> int:
    bound = to.bounds[x] * to.bounds[z]
    return to.operation("MUL", [x, z, to.held([0], "INT8")], shape, "INT32", bound)


def arithmetic(to: _Writer, y: Value, o: Any) -> None:
    """A sum, a difference or a product of i32."""
    inputs, order = to.together(o.xs, y)
    shape = sizes_of(y, order)
    if to.type(y) != "INT32" or len(inputs) != 2:
        raise Unstated("it is no operation on two values of i32")
    if o.scalar_op == "mul":
        found = times(to, inputs[0], inputs[1], shape)
    else:
        bound = sum(to.bounds[i] for i in inputs)
        found = to.operation(o.scalar_op.upper(), inputs, shape, "INT32", bound)
    to.give(y, found, order)


def cast(to: _Writer, y: Value, o: Any) -> None:
    (_, x), *_ = o.operands()
    if not to.is_readable(x):
        return  # of windows, which their sum reads
    if (to.type(x), to.type(y)) != ("INT8", "INT32"):
        raise Unstated("it is no conversion of i8 to i32")
    order = to.layout(x)
    to.give(y, to.less(to.tensor(x, order), 0), order)


def total(to: _Writer, y: Value, o: Any) -> None:
    if o.x not in to.laid:
        windows = to.summed(o)[2]
        fill = int(windows.fill)
        index = to.tensor(windows.x, TO_NHWC)
        channels, count = to.tensors[index].shape[3], int(np.prod(windows.sizes))
        ones = np.ones((channels, 1, *windows.sizes), np.int8)
        # each factor is less the fill, which padding adds nothing of
        bias = np.full(channels, count * fill, np.int32)
        window = (*windows.before, *windows.after), windows.strides, windows.dilations
        sums = to.convolved(index, ones, bias, (fill, 0), window, channels)
        to.give(y, sums, TO_NHWC)
        return
    order = to.layout(o.x)
    index, rank = to.tensor(o.x, order), len(order)
    along = getattr(o, "axis", None) or getattr(o, "axes", None) or range(rank)
    if getattr(o, "exclude", False) or to.tensors[index].type != "INT32":
        raise Unstated("it is no sum of i32 over the axes")
    along = {a % rank for a in along}
    for a in sorted(along):
        axis, shape = order.index(a), list(to.tensors[index].shape)
        bound, shape[axis] = to.bounds[index] * shape[axis], 1
        index = to.operation("REDUCE_SUM", [index], shape, "INT32", bound, axis=axis)
    kept = [a for a in order if a not in along]
    if kept != sorted(kept):
        index = to.transposed(index, [order.index(a) for a in range(rank)])
    to.give(y, to.shaped(index, y))


def max_pool(to: _Writer, y: Value, o: Any) -> None:
    if o.layout != "NCHW":
        raise Unstated(f"its layout is {o.layout}")
    index = to.tensor(o.x, TO_NHWC)
    index, pad, sizes = to.window(index, o.padding, o.pool_size, o.stride, (1, 1))
    n, _, _, channels = to.tensors[index].shape
    attributes = {"kernel": list(o.pool_size), "stride": list(o.stride), "pad": pad}
    shape = (n, *sizes, channels)
    found = to.changed("MAX_POOL2D", index, (), shape, **attributes, nan_mode=PROPAGATE)
    to.give(y, to.clamped(found, o.min, o.max), TO_NHWC)


def table(to: _Writer, y: Value, o: Any) -> None:
    if o.interpolate or (entries := to.array(o.table)).dtype != np.int8:
        raise Unstated("its table is not of i8")
    order = to.layout(o.x)
    index = to.tensor(o.x, order)
    to.give(y, to.changed("TABLE", index, [to.held(entries, "INT8")], sizes_of(y, order)), order)


_Writer.rules = {
    **SHARED,
    "quant.conv2d": convolution,
    "quant.dense": dense,
    "quant.requantize": requantize,
    "quant.mul": product,
    "quant.max_pool2d": max_pool,
    "quant.table": table,
    "theano.sum": total,
    "cvm.sum": total,
    "cast": cast,
    **dict.fromkeys(("add", "sub", "mul"), arithmetic),
}
