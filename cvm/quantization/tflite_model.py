"""Programs of the scheme tflite as .tflite models.

The operators of a model compute multipliers from the scales of their tensors. A value of the
program has its scale as an attribute, the scales of weights follow from multipliers, and each
operator is written only where the importer computes the program's multipliers from these scales:
read back, the model has the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from cvm.dialect.ir.builder import Builder, Node
from cvm.dialect.ir.function import Value
from cvm.dialect.ir.module import Module
from cvm.dialect.types.tensor_types import I8, TensorType
from cvm.importers.graph.contractions import halves, same_padding
from cvm.importers.tflite.contractions import TO_NHWC
from cvm.importers.tflite.quantization import LIMITS, limits_of, quantized_multiplier
from cvm.importers.tflite.rules import Tensor as Typed
from cvm.importers.tflite.schema import ACTIVATIONS, TYPES
from cvm.importers.tflite.writer import Operator, Tensor, model

from .model_writer import SHARED, ModelWriter, Unstated, same, sizes_of
from .tflite import LEFT_SHIFT, SOFTMAX, integer_softmax

SAME, VALID = 0, 1  # the numbers of Padding in the schema of .tflite
BELOW_ALL = -33  # the exponent of a factor whose multiplier is 0
# the versions of operators that have i8 in the schema of .tflite; of those that are not here, 1
VERSIONS = {
    "CONV_2D": 3,
    "DEPTHWISE_CONV_2D": 3,
    **dict.fromkeys(("ADD", "CONCATENATION", "GATHER", "MAXIMUM", "MAX_POOL_2D", "MINIMUM"), 2),
    **dict.fromkeys(("MUL", "PAD", "PADV2", "QUANTIZE", "SLICE", "SOFTMAX", "SUB", "TRANSPOSE"), 2),
}
Quantities = tuple[float, int]  # a scale and a zero point


def tflite_model(module: Module, entry: str = "main") -> bytes:
    """The bytes of a .tflite model that computes what a function of integers does.

    The function is one of `cvm.quantize` with the scheme tflite: arguments and results are i8 with
    a scale and a zero point. An unknown size is one of the model's, and 1 until it is set. Raises
    Error with the first operation that the operators of .tflite cannot state, and its line.
    """
    return _Writer(module, entry).bytes()


class _Writer(ModelWriter):
    """A model while it is written."""

    suffix: ClassVar[str] = ".tflite"

    def __init__(self, module: Module, entry: str) -> None:
        super().__init__(module, entry)
        self.tensors: list[Tensor] = []
        self.operators: list[Operator] = []

    def bytes(self) -> bytes:
        inputs, outputs = self.walk()
        for index, name in self.names.items():
            self.tensors[index].name = name
        return model(self.tensors, self.operators, inputs, outputs)

    # Tensors

    def add(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def typed(self, value: Value) -> tuple[str, float, int]:
        """The element type of a value with its scale and zero point."""
        type = value.known_type
        if not isinstance(type, TensorType) or type.element is not I8:
            raise Unstated(f"%{value.name} is {type}, and not of i8")
        scale, zero_point = (value.attributes.get(n) for n in ("scale", "zero_point"))
        if scale is None or zero_point is None:
            raise Unstated(f"%{value.name} has no scale and zero point")
        if float(np.float32(scale)) != scale:
            raise Unstated(f"the scale {scale} of %{value.name} is no number of f32")
        return "INT8", float(scale), int(zero_point)

    def quantities(self, index: int) -> Quantities:
        t: Any = self.tensors[index]
        return t.scale, t.zero_point

    def numbers(self, values: Any) -> int:
        array = np.array(values, np.int32)
        return self.add(Tensor(array.shape, "INT32", data=array))

    def argument(self, value: Value) -> int:
        return self.add(Tensor(sizes_of(value), *self.typed(value)))

    def constant(self, value: Value, array: np.ndarray) -> int:
        return self.add(Tensor(array.shape, *self.typed(value), data=array))

    def operation(
        self,
        op: str,
        inputs: Sequence[int],
        shape: Sequence[int],
        quantities: Quantities | None,
        options: Mapping[str, object] | None = None,
        type: str = "INT8",
    ) -> int:
        """The tensor that an operator makes."""
        y = self.add(Tensor(shape, type, *(quantities or (None, 0))))
        self.operators.append(Operator(op, inputs, [y], options or {}, VERSIONS.get(op, 1)))
        return y

    def transposed(self, index: int, order: Sequence[int]) -> int:
        if list(order) == list(range(len(order))):
            return index
        to = [self.tensors[index].shape[a] for a in order]
        return self.operation("TRANSPOSE", [index, self.numbers(order)], to, self.quantities(index))

    def reshaped(
        self, index: int, shape: Sequence[int], quantities: Quantities | None = None
    ) -> int:
        quantities = quantities or self.quantities(index)
        if list(self.tensors[index].shape) == list(shape) and quantities == self.quantities(index):
            return index
        if sum(n < 0 for n in shape) > 1:
            raise Unstated("it is reshaped to several unknown sizes")
        # a tensor without elements is no constant: rank 0 stands in the options alone
        sizes = [self.numbers(shape)] if shape else []
        options = {"new_shape": list(shape)}
        return self.operation("RESHAPE", [index, *sizes], shape, quantities, options)

    def shaped(self, index: int, y: Value) -> int:
        quantities = None
        if "scale" in y.attributes:
            _, scale, zero_point = self.typed(y)
            quantities = scale, zero_point
        return self.reshaped(index, sizes_of(y), quantities)

    def sliced(self, index: int, begin: Sequence[int], shape: Sequence[int]) -> int:
        inputs = [index, self.numbers(begin), self.numbers(shape)]
        return self.operation("SLICE", inputs, shape, self.quantities(index))

    def joined(self, inputs: Sequence[int], axis: int, shape: Sequence[int]) -> int:
        scales = {self.quantities(i) for i in inputs}
        if len(scales) != 1:
            raise Unstated(f"its operands have {len(scales)} different scales or zero points")
        return self.operation("CONCATENATION", inputs, shape, scales.pop(), {"axis": axis})

    def clamped(
        self,
        op: str,
        inputs: Sequence[int],
        shape: Sequence[int],
        quantities: Quantities,
        limits: tuple[int | None, int | None],
        options: dict[str, object],
        activations: bool = True,
    ) -> int:
        """An operator whose result is held within limits: by its activation where one has these."""
        least, most = I8.limits
        low = least if limits[0] is None else limits[0]
        high = most if limits[1] is None else limits[1]
        scale, zero_point = quantities
        zeros = np.array([zero_point])
        y = Typed("", (), "INT8", np.array([scale], np.float32), zeros, 0, False)
        for name in LIMITS if activations else ():
            if name in ACTIVATIONS and limits_of(y, name) == (low, high):
                options = {**options, "activation": ACTIVATIONS.index(name)}
                return self.operation(op, inputs, shape, quantities, options)
        index = self.operation(op, inputs, shape, quantities, options)
        for name, limit, end in (("MAXIMUM", low, least), ("MINIMUM", high, most)):
            if limit != end:
                data = np.array(limit, np.int8)
                bound = self.add(Tensor((), "INT8", scale, zero_point, data=data))
                index = self.operation(name, [index, bound], shape, quantities)
        return index

    # Layers

    def window(
        self,
        index: int,
        pads: Sequence[int],
        kernel: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        fill: int,
    ) -> tuple[int, dict[str, Any]]:
        """The tensor that a window passes over, padded unless the padding is SAME, and options."""
        options = {"padding": VALID, "stride_h": strides[0], "stride_w": strides[1]}
        sizes = self.tensors[index].shape[1:3]
        if not any(pads):
            return index, options
        if min(sizes) >= 0:
            before, after = halves(same_padding(sizes, kernel, strides, dilations))
            if tuple(pads) == (*before, *after):
                return index, {**options, "padding": SAME}
        before, after = (0, *pads[:2], 0), (0, *pads[2:], 0)
        return self.padded(index, before, after, fill), options

    def padded(self, index: int, before: Sequence[int], after: Sequence[int], fill: int) -> int:
        scale, zero_point = self.quantities(index)
        sizes = zip(before, self.tensors[index].shape, after, strict=True)
        shape = [n if n < 0 else b + n + a for b, n, a in sizes]
        inputs = [index, self.numbers(np.stack([before, after], 1))]
        if fill != zero_point:
            value = np.array([fill], np.int8)
            inputs.append(self.add(Tensor((1,), "INT8", scale, zero_point, data=value)))
        op = "PAD" if fill == zero_point else "PADV2"
        return self.operation(op, inputs, shape, (scale, zero_point))

    def contraction(
        self,
        y: Value,
        index: int,
        w: np.ndarray,
        bias: np.ndarray | None,
        shape: Sequence[int],
        window: dict[str, Any],
    ) -> int:
        """A convolution of a tensor in NHWC. Its kernel is (channels, H, W, inputs), or where the
        options `window` have a depth_multiplier, (1, H, W, channels).
        """
        deep = "depth_multiplier" in window
        o: Any = self.made[y].operator
        _, scale, zero_point = self.typed(y)
        x_scale = self.quantities(index)[0]
        axis = w.ndim - 1 if deep else 0
        scales = self.weight_scales(o, w.shape[axis], x_scale, scale)
        kernel = self.add(Tensor(w.shape, "INT8", scales, 0, axis, w.astype(np.int8)))
        # LiteRT's kernel of i8 wants a bias
        bias = np.zeros(len(scales), np.int32) if bias is None else bias
        of_bias = [float(np.float32(x_scale * s)) for s in scales]
        inputs = [index, kernel, self.add(Tensor(bias.shape, "INT32", of_bias, data=bias))]
        op = "DEPTHWISE_CONV_2D" if deep else "CONV_2D"
        limits = o.min, o.max
        return self.clamped(op, inputs, shape, (scale, zero_point), limits, window)

    def weight_scales(self, o: object, channels: int, x: float, y: float) -> list[float]:
        """The scale of each channel's weights: the number of f32 that gives its multiplier."""
        pairs = self.factors(o)
        found = []
        for m, s in pairs if len(pairs) == channels else pairs * channels:
            factor = m * 2.0**-s if m else 2.0**BELOW_ALL
            w = float(np.float32(factor * y / x))
            if quantized_multiplier(x * w / y) != (m, s):
                raise Unstated(f"no scale of weights gives the multiplier {m} and the shift {s}")
            found.append(w)
        return found


# Rules


def requantize(to: _Writer, y: Value, o: Any) -> None:
    """A requantization with what it ends: a layer, a sum, a softmax, or a change of scale."""
    made, multiplier = to.made.get(o.x), to.made.get(o.multiplier)
    if multiplier is not None and multiplier.operator.name == "quant.reciprocal":
        softmax(to, y, o)
        return
    _, scale, zero_point = to.typed(y)
    to.check(o.zero_point, zero_point, "the zero point")
    if o.rounding != "tflite_double":
        raise Unstated(f"its rounding is {o.rounding}, and that of LiteRT tflite_double")
    if made is not None and made.operator.name in LAYERS:
        LAYERS[made.operator.name](to, y, made.operator)
    elif o.x.known_type.element is I8:
        order = to.layout(o.x)
        index = to.tensor(o.x, order)
        x_scale, x_zero = to.quantities(index)
        to.check(o.input_zero_point, x_zero, "the zero point of the operand")
        to.check(to.factors(o), [quantized_multiplier(x_scale / scale)], "the multiplier")
        shape, quantities, limits = sizes_of(y, order), (scale, zero_point), (o.min, o.max)
        found = to.clamped("QUANTIZE", [index], shape, quantities, limits, {}, activations=False)
        to.give(y, found, order)
    else:
        raise Unstated(f"no operator ends with a requantization of %{o.x.name}")


def layer(to: _Writer, y: Value, sums: Any, index: int) -> tuple[np.ndarray, np.ndarray | None]:
    """The weights and the bias of a layer."""
    o: Any = to.made[y].operator
    to.check(o.input_zero_point, 0, "the zero point of sums")
    zeros = [int(to.array(v)) for v in (sums.x_zero_point, sums.w_zero_point)]
    to.check(zeros, [to.quantities(index)[1], 0], "zero points of the operands")
    if sums.acc_dtype is not None and sums.acc_dtype.name != "i32":
        raise Unstated(f"its sums are of {sums.acc_dtype}")
    if (w := to.array(sums.w)).dtype != np.int8:
        raise Unstated(f"its weights are {sums.w.known_type}")
    return w, None if sums.bias is None else to.array(sums.bias)


def convolution(to: _Writer, y: Value, sums: Any) -> None:
    if sums.layout != "NCHW":
        raise Unstated(f"its layout is {sums.layout}")
    index = to.tensor(sums.x, TO_NHWC)
    w, bias = layer(to, y, sums, index)
    channels, fill = to.tensors[index].shape[3], to.quantities(index)[1]
    window = sums.padding, w.shape[2:], sums.stride, sums.dilation
    index, options = to.window(index, *window, fill)
    options |= {"dilation_h": sums.dilation[0], "dilation_w": sums.dilation[1]}
    if sums.groups == channels > 1:
        options["depth_multiplier"] = len(w) // channels
        w = w.transpose(1, 2, 3, 0)
    else:
        w = w.transpose(TO_NHWC)
    found = to.contraction(y, index, w, bias, sizes_of(y, TO_NHWC), options)
    to.give(y, found, TO_NHWC)


def by_rows(
    to: _Writer, y: Value, index: int, w: np.ndarray, bias: np.ndarray | None, rows: int
) -> None:
    """A product of rows and weights, as a convolution of one place.

    The operator FULLY_CONNECTED rounds once, from f64, and not as the program does.
    """
    place = to.reshaped(index, (rows, 1, 1, w.shape[1]))
    window = {"padding": VALID, "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1}
    kernel, shape = w[:, None, None, :], (rows, 1, 1, len(w))
    found = to.contraction(y, place, kernel, bias, shape, window)
    to.give(y, to.reshaped(found, sizes_of(y)))


def dense(to: _Writer, y: Value, sums: Any) -> None:
    index = to.tensor(sums.x)
    w, bias = layer(to, y, sums, index)
    by_rows(to, y, index, w, bias, to.tensors[index].shape[0])


def total(to: _Writer, y: Value, sums: Any) -> None:
    """A sum, as a layer whose weights are 1: the kernel of SUM reads signed numbers as unsigned."""
    x, along, windows = to.summed(sums)
    if windows is not None:
        window_sums(to, y, windows)
        return
    index = to.tensor(x)
    shape, zero_point = sizes_of(x), to.quantities(index)[1]
    if any(shape[a] < 1 for a in along):
        raise Unstated("it is a sum of an unknown number of elements, or of none")
    count = int(np.prod([shape[a] for a in along]))
    o: Any = to.made[y].operator
    to.check(o.input_zero_point, count * zero_point, "the zero point of sums")
    kept = [a for a in range(len(shape)) if a not in along]
    moved = to.transposed(index, [*kept, *along])
    rows = -1 if any(shape[a] < 0 for a in kept) else int(np.prod([shape[a] for a in kept]))
    by_rows(to, y, moved, np.ones((1, count), np.int8), None, rows)


def window_sums(to: _Writer, y: Value, windows: Any) -> None:
    """The sum of each window over rows and columns, as a depthwise layer whose weights are 1."""
    index = to.tensor(windows.x, TO_NHWC)
    channels, zero_point = to.tensors[index].shape[3], to.quantities(index)[1]
    o: Any = to.made[y].operator
    expected = int(np.prod(windows.sizes)) * zero_point
    to.check(o.input_zero_point, expected, "the zero point of sums")
    pads = (*windows.before, *windows.after)
    if any(pads):
        to.check(windows.fill, zero_point, "the padding")
    if channels < 1 or any(n < 0 for n in pads):
        raise Unstated("its channels are not known, or its padding is negative")
    window = windows.sizes, windows.strides, windows.dilations
    index, options = to.window(index, pads, *window, zero_point)
    dilations = {"dilation_h": windows.dilations[0], "dilation_w": windows.dilations[1]}
    options |= {**dilations, "depth_multiplier": 1}
    w = np.ones((1, *windows.sizes, channels), np.int8)
    found = to.contraction(y, index, w, None, sizes_of(y, TO_NHWC), options)
    to.give(y, found, TO_NHWC)


def softmax(to: _Writer, y: Value, o: Any) -> None:
    """The operations of a softmax: those that would be emitted for its operand."""
    gather: object = to.made.get(o.x)
    indices = getattr(gather.operator, "indices", ()) if gather is not None else ()
    below = to.made.get(indices[0]) if indices else None
    casts = [v for _, v in below.operator.operands()] if below is not None else []
    cast = to.made.get(casts[-1]) if casts else None
    x: object = cast.operator.operands()[0][1] if cast is not None else None
    if x is None or x.known_type.rank != 2 or x.known_type.element is not I8:
        raise Unstated("it is no softmax of rows")
    index = to.tensor(x)
    made = integer_softmax(Node(Builder(), x), to.quantities(index)[0])
    if not same(y, made, to.made):
        raise Unstated("it is no softmax as LiteRT computes it")
    quantities = SOFTMAX.scale, SOFTMAX.zero_point
    to.give(y, to.operation("SOFTMAX", [index], sizes_of(y), quantities, {"beta": 1.0}))


def max_pool(to: _Writer, y: Value, o: Any) -> None:
    if o.layout != "NCHW":
        raise Unstated(f"its layout is {o.layout}")
    index = to.tensor(o.x, TO_NHWC)
    least = I8.limits[0]
    index, options = to.window(index, o.padding, o.pool_size, o.stride, (1, 1), least)
    options |= {"filter_height": o.pool_size[0], "filter_width": o.pool_size[1]}
    shape, quantities = sizes_of(y, TO_NHWC), to.quantities(index)
    found = to.clamped("MAX_POOL_2D", [index], shape, quantities, (o.min, o.max), options)
    to.give(y, found, TO_NHWC)


def binary(to: _Writer, y: Value, o: Any) -> None:
    """A sum, a difference or a product of two values, of which one may be repeated."""
    order = to.common_layout(y, (o.x, o.z))
    inputs = [to.tensor(v, order if v.known_type.rank == len(order) else None) for v in (o.x, o.z)]
    (x, x_zero), (z, z_zero) = map(to.quantities, inputs)
    _, scale, zero_point = to.typed(y)
    to.check(tuple(o.zero_points), (x_zero, z_zero, zero_point), "zero points")
    if o.rounding != "tflite_double":
        raise Unstated(f"its rounding is {o.rounding}, and that of LiteRT tflite_double")
    if o.name == "quant.mul":
        op = "MUL"
        factor = np.float32(x) * np.float32(z) / np.float32(scale)  # in f32, as LiteRT does
        to.check((o.multiplier, o.shift), quantized_multiplier(float(factor)), "the multiplier")
    else:
        op, sign = ("SUB", -1) if o.multipliers[1] < 0 else ("ADD", 1)
        whole = 2 * max(x, z)
        factors = x / whole, sign * z / whole, whole / (2.0**LEFT_SHIFT * scale)
        to.check(o.left_shift, LEFT_SHIFT, "the shift to the left")
        given = [*zip(o.multipliers, o.shifts, strict=True)]
        to.check(given, [quantized_multiplier(f) for f in factors], "the multipliers")
    shape, limits = sizes_of(y, order), (o.min, o.max)
    to.give(y, to.clamped(op, inputs, shape, (scale, zero_point), limits, {}), order)


def table(to: _Writer, y: Value, o: Any) -> None:
    """A table of all numbers, as a gathering of its entries."""
    if o.interpolate or (entries := to.array(o.table)).dtype != np.int8:
        raise Unstated("its table is not of i8")
    _, scale, zero_point = to.typed(y)
    order = to.layout(o.x)
    index, shape = to.tensor(o.x, order), sizes_of(y, order)
    options = {"in_data_type": TYPES.index("INT8"), "out_data_type": TYPES.index("INT32")}
    wide = to.operation("CAST", [index], shape, None, options, "INT32")
    first = to.numbers(-I8.limits[0])
    place = to.operation("ADD", [wide, first], shape, None, {}, "INT32")
    held = to.add(Tensor(entries.shape, "INT8", scale, zero_point, data=entries))
    found = to.operation("GATHER", [held, place], shape, (scale, zero_point), {"axis": 0})
    to.give(y, found, order)


LAYERS: dict[str, Callable[[_Writer, Value, object], None]] = {
    "quant.conv2d": convolution,
    "quant.dense": dense,
    "theano.sum": total,
    "cvm.sum": total,
}
_Writer.rules = {
    **SHARED,
    "quant.requantize": requantize,
    "quant.max_pool2d": max_pool,
    "quant.add": binary,
    "quant.mul": binary,
    "quant.table": table,
}
