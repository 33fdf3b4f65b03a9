"""Programs of the scheme qdq as ONNX models: QLinearConv for layers, and conversions between
integers and floats around the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

import cvm
from cvm.dialect.ir.builder import Builder, Node
from cvm.dialect.ir.function import Value
from cvm.dialect.ir.module import Module
from cvm.dialect.types.tensor_types import F32, I8, I32, ElementType, TensorType
from cvm.importers.onnx.quantized import dequantized, quantized

from .float_graph import scalar_function
from .model_writer import SHARED, ModelWriter, Unstated, natural, same, sizes_of
from .qdq import onnx_softmax, parameters
from .scheme import Parameters

OPSET, IR_VERSION = 17, 8  # of 2022, which all of onnxruntime, OpenVINO and TensorRT read
MICROSOFT = "com.microsoft"
NEIGHBORS = 4  # numbers of f32 on both sides in which a scale of weights is looked for
FLOAT_OPERATORS = {"add": "Add", "sub": "Sub", "mul": "Mul"}


def onnx_model(module: Module, entry: str = "main") -> bytes:
    """The bytes of an ONNX model that computes what a function of quantized numbers does.

    The function is one of `cvm.quantize` with the scheme qdq: arguments and results are i8.
    Raises Error with the first operation that the operators of ONNX cannot state, and its line.
    """
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise cvm.Error("ONNX models need onnx: pip install 'cvm-lang[onnx]'") from None
    return _Writer(module, entry).bytes()


class _Writer(ModelWriter):
    """A model while it is written."""

    suffix: ClassVar[str] = ".onnx"

    def __init__(self, module: Module, entry: str) -> None:
        super().__init__(module, entry)
        self.count = 0
        self.arrays: dict[int, np.ndarray] = {}
        self.nodes: list[tuple[str, list[int | None], int, dict[str, Any]]] = []

    def bytes(self) -> bytes:
        from onnx import helper, numpy_helper

        inputs, outputs = self.walk()
        taken = {*inputs, *self.arrays}
        for n, index in enumerate(outputs):  # a result is a tensor of its own
            outputs[n] = self.operation("Identity", [index]) if index in taken else index
            self.names.setdefault(outputs[n], self.function.results[n].name)
            taken.add(outputs[n])
        nodes: list[Any] = []
        names, read = self.unique_names(self.count), {*outputs}
        for op, given, y, attributes in reversed(self.nodes):
            if y in read:
                read.update(i for i in given if i is not None)
                of = ["" if i is None else names[i] for i in given]
                nodes.append(helper.make_node(op, of, [names[y]], **attributes))
        arguments, results = self.function.arguments, self.function.results
        graph = helper.make_graph(
            nodes[::-1],
            "main",
            [_info(names[i], a) for i, a in zip(inputs, arguments, strict=True)],
            [_info(names[i], r) for i, r in zip(outputs, results, strict=True)],
            [numpy_helper.from_array(a, names[i]) for i, a in self.arrays.items() if i in read],
        )
        domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=domains, ir_version=IR_VERSION)
        return bytes(model.SerializeToString())

    # Tensors

    def held(self, array: Any) -> int:
        self.count += 1
        self.arrays[self.count - 1] = np.ascontiguousarray(array).reshape(np.shape(array))
        return self.count - 1

    def operation(self, op: str, inputs: Sequence[int | None], **attributes: Any) -> int:
        """The tensor that an operator makes."""
        self.count += 1
        self.nodes.append((op, list(inputs), self.count - 1, attributes))
        return self.count - 1

    def argument(self, value: Value) -> int:
        _of_i8(value)
        self.count += 1
        return self.count - 1

    def constant(self, value: Value, array: np.ndarray) -> int:
        return self.held(array)

    def transposed(self, index: int, order: Sequence[int]) -> int:
        if list(order) == list(range(len(order))):
            return index
        return self.operation("Transpose", [index], perm=list(order))

    def shaped(self, index: int, y: Value) -> int:
        return self.reshaped(index, sizes_of(y))

    def reshaped(self, index: int, shape: Sequence[int]) -> int:
        if sum(n < 0 for n in shape) > 1:
            raise Unstated("it is reshaped to several unknown sizes")
        sizes = self.held(np.array(shape, np.int64))
        return self.operation("Reshape", [index, sizes], allowzero=int(0 in shape))

    def sliced(self, index: int, begin: Sequence[int], shape: Sequence[int]) -> int:
        ends = [b + n for b, n in zip(begin, shape, strict=True)]
        return self.operation("Slice", [index, *(self.held(np.array(n)) for n in (begin, ends))])

    def padded(self, index: int, before: Sequence[int], after: Sequence[int], fill: int) -> int:
        sides = self.held(np.array([*before, *after], np.int64))
        return self.operation("Pad", [index, sides, self.held(np.int8(fill))])

    def joined(self, inputs: Sequence[int], axis: int, shape: Sequence[int]) -> int:
        return self.operation("Concat", inputs, axis=axis)

    def operand(self, value: Value) -> int:
        """A tensor of a value, or of a literal."""
        return self.tensor(value) if value in self.laid else self.held(self.array(value))

    # Quantities

    def quantities(self, value: Value) -> Parameters:
        scale, zero_point = (value.attributes.get(n) for n in ("scale", "zero_point"))
        if scale is None or zero_point is None:
            raise Unstated(f"%{value.name} has no scale and zero point")
        return Parameters(float(scale), int(zero_point), *I8.limits)

    def numbers(self, p: Parameters) -> list[int]:
        return [self.held(np.float32(p.scale)), self.held(np.int8(p.zero_point))]

    def factors_of_f32(self, o: Any) -> np.ndarray:
        if o.rounding != "half_even_f32":
            raise Unstated(f"its rounding is {o.rounding}, and that of onnxruntime half_even_f32")
        return self.array(o.multiplier)

    def limited(self, index: int, low: int | None, high: int | None) -> int:
        ends = zip((low, high), I8.limits, strict=True)
        limits = [None if n in (None, end) else self.held(np.int8(n)) for n, end in ends]
        return (
            self.operation("Clip", [index, *limits])
            if any(n is not None for n in limits)
            else index
        )

    def layer(
        self,
        y: Value,
        x: Value,
        index: int,
        w: np.ndarray,
        bias: np.ndarray | None,
        **attributes: object,
    ) -> int:
        """A QLinearConv whose scales of weights give the factors of a requantization."""
        o: Any = self.made[y].operator
        p, q = self.quantities(x), self.quantities(y)
        self.check(o.zero_point, q.zero_point, "the zero point")
        factors = self.factors_of_f32(o)
        scales = _scales(factors.reshape(-1), np.float32(p.scale), np.float32(q.scale))
        scales = scales if factors.ndim else scales[0]
        kernel = [self.held(w), self.held(scales), self.held(np.zeros(np.shape(scales), np.int8))]
        biases = [] if bias is None else [self.held(bias)]
        inputs = [index, *self.numbers(p), *kernel, *self.numbers(q), *biases]
        found = self.operation("QLinearConv", inputs, kernel_shape=w.shape[2:], **attributes)
        return self.limited(found, o.min, o.max)


def _scales(factors: np.ndarray, x: object, y: object) -> np.ndarray:
    """The scale of weights of each factor: a number of f32 that gives it."""
    found = (factors * y / x).astype(np.float32)
    for n, factor in enumerate(factors):
        near = [found[n]]
        for to in (np.float32(0), np.float32(np.inf)):
            w = found[n]
            near += [w := np.nextafter(w, to) for _ in range(NEIGHBORS)]
        fitting = [w for w in near if x * w / y == factor]
        if not fitting:
            raise Unstated(f"no scale of weights gives the factor {factor}")
        found[n] = fitting[0]
    return found


def _of_i8(value: Value) -> TensorType:
    type = value.known_type
    if not isinstance(type, TensorType) or type.element is not I8:
        raise Unstated(f"%{value.name} is {type}, and not of i8")
    return type


def _info(name: str, value: Value) -> Any:
    """The description of an argument or a result, whose unknown sizes have names."""
    from onnx import TensorProto, helper

    type = _of_i8(value)
    sizes = [n if isinstance(n, int) else str(n) for n in type.array_shape]
    return helper.make_tensor_value_info(name, TensorProto.INT8, sizes)


def _element(value: Value) -> ElementType:
    return value.known_type.element  # type: ignore[union-attr]


# Rules


def requantize(to: _Writer, y: Value, o: Any) -> None:
    """A requantization with the layer that it ends, or of other sums, or a change of scale."""
    made: Any = to.made.get(o.x)
    name = made.operator.name if made else ""
    if name in ("quant.conv2d", "quant.dense"):
        layer(to, y, made.operator)
        return
    if name in ("theano.sum", "cvm.sum") and made.operator.x not in to.laid:
        window_sums(to, y, made.operator)
        return
    index, factors = to.tensor(o.x), to.factors_of_f32(o)
    zero = [to.held(np.int8(o.input_zero_point))] if _element(o.x) is I8 else []
    if not zero and o.input_zero_point:
        index = to.operation("Sub", [index, to.held(np.int32(o.input_zero_point))])
    axis = {"axis": o.axis} if factors.ndim else {}
    floats = to.operation("DequantizeLinear", [index, to.held(factors), *zero], **axis)
    ends = to.numbers(Parameters(1.0, o.zero_point, *I8.limits))
    found = to.operation("QuantizeLinear", [floats, *ends])
    to.give(y, to.limited(found, o.min, o.max))


def layer(to: _Writer, y: Value, sums: Any) -> None:
    index, w, p = to.tensor(sums.x), to.array(sums.w), to.quantities(sums.x)
    zeros = [int(to.array(v)) for v in (sums.x_zero_point, sums.w_zero_point)]
    to.check(zeros, [p.zero_point, 0], "zero points of the operands")
    bias = None if sums.bias is None else to.array(sums.bias)
    if w.dtype != np.int8 or to.made[y].operator.input_zero_point:  # type: ignore[attr-defined]
        raise Unstated("its weights are not of i8, or its sums have a zero point")
    if sums.name == "quant.dense":  # QLinearMatMul has no bias
        place = to.reshaped(index, (sizes_of(sums.x)[0], w.shape[1], 1, 1))
        found = to.layer(y, sums.x, place, w[:, :, None, None], bias)
        to.give(y, to.shaped(found, y))
        return
    if sums.layout != "NCHW":
        raise Unstated(f"its layout is {sums.layout}")
    window = {"pads": sums.padding, "strides": sums.stride, "dilations": sums.dilation}
    to.give(y, to.layer(y, sums.x, index, w, bias, group=sums.groups, **window))


def window_sums(to: _Writer, y: Value, sums: object) -> None:
    """The sum of each window over rows and columns, as a layer of weights that are 1."""
    windows = to.summed(sums)[2]
    index, p = to.tensor(windows.x), to.quantities(windows.x)
    channels = sizes_of(windows.x)[1]
    zero_point = int(np.prod(windows.sizes)) * p.zero_point
    to.check(to.made[y].operator.input_zero_point, zero_point, "the zero point of sums")  # type: ignore[attr-defined]
    if any((*windows.before, *windows.after)):
        to.check(windows.fill, p.zero_point, "the padding")
    if channels < 1:
        raise Unstated("its channels are not known")
    ones = np.ones((channels, 1, *windows.sizes), np.int8)
    window = {"pads": (*windows.before, *windows.after), "strides": windows.strides}
    window |= {"dilations": windows.dilations, "group": channels}
    to.give(y, to.layer(y, windows.x, index, ones, None, **window))


def total(to: _Writer, y: Value, o: Any) -> None:
    if o.x not in to.laid:
        return  # of windows, which the requantization states
    if getattr(o, "exclude", False) or _element(y) is not I32:
        raise Unstated("it is no sum of i32 over the axes")
    rank = len(natural(o.x))
    along = getattr(o, "axis", None) or getattr(o, "axes", None) or range(rank)
    axes = to.held(np.array([a % rank for a in along], np.int64))
    to.give(y, to.operation("ReduceSum", [to.tensor(o.x), axes], keepdims=0))


def cast(to: _Writer, y: Value, o: Any) -> None:
    (_, x), *_ = o.operands()
    if _element(y) is I8:
        quantize(to, y)
    elif to.is_readable(x) and (_element(x), _element(y)) == (I8, I32):
        from onnx import TensorProto

        to.give(y, to.operation("Cast", [to.tensor(x)], to=TensorProto.INT32))


def first_operands(to: _Writer, value: Value) -> list[Value]:
    """A value, the first operand of its operation, and so on."""
    found = [value]
    while (made := to.made.get(found[-1])) is not None and (operands := made.operator.operands()):
        found.append(operands[0][1])
    return found


def quantize(to: _Writer, y: Value) -> None:
    """A conversion of floats that were computed, or the end of a softmax."""
    p, before = to.quantities(y), first_operands(to, y)
    for v in before:
        made = to.made.get(v)
        if made is not None and scalar_function(made) == "true_div" and _element(v) is F32:
            x = made.operator.operands()[0][1]
            node = Node(Builder(), x)
            if x in to.laid and same(y, quantized(node, *parameters(node, p), I8), to.made):
                inputs = [to.tensor(x), *to.numbers(p)]
                to.give(y, to.operation("QuantizeLinear", inputs))
                return
    places = [o.operator for v in before if (o := to.made.get(v)) is not None]
    for indices in (o.indices[0] for o in places if o.name == "builtin.gather"):  # type: ignore[attr-defined]
        for x in first_operands(to, indices):
            if x not in to.laid or _element(x) is not I8:
                continue
            q = to.quantities(x)
            if same(y, onnx_softmax(Node(Builder(), x), q), to.made):
                inputs = [to.tensor(x), *to.numbers(q), *to.numbers(p)]
                attributes = {"domain": MICROSOFT, "axis": -1, "opset": OPSET}
                to.give(y, to.operation("QLinearSoftmax", inputs, **attributes))
                return
    raise Unstated("it is no conversion of floats")


def arithmetic(to: _Writer, y: Value, o: Any) -> None:
    """A sum, a difference or a product of i32 or f32, or the end of a conversion to f32."""
    if _element(y) is F32 and scalar_function(to.made[y]) == "mul":
        for x in first_operands(to, y):
            if to.is_readable(x) and _element(x) is I8 and "scale" in x.attributes:
                p, node = to.quantities(x), Node(Builder(), x)
                if same(y, dequantized(node, *parameters(node, p)), to.made):
                    inputs = [to.tensor(x), *to.numbers(p)]
                    to.give(y, to.operation("DequantizeLinear", inputs))
                    return
    if _element(y) in (F32, I32):
        try:
            operands = [to.operand(v) for _, v in o.operands()]
        except Unstated:
            return  # refused where it is read, unless a conversion states it with others
        to.give(y, to.operation(FLOAT_OPERATORS[str(scalar_function(to.made[y]))], operands))


def limit(to: _Writer, y: Value, o: Any) -> None:
    """A limit of i8."""
    if _element(y) is I8:
        x, n = (v for _, v in o.operands())
        ends = (int(to.array(n)), None)
        ends = ends if scalar_function(to.made[y]) == "maximum" else ends[::-1]
        to.give(y, to.limited(to.tensor(x), *ends))


def max_pool(to: _Writer, y: Value, o: Any) -> None:
    if o.layout != "NCHW":
        raise Unstated(f"its layout is {o.layout}")
    window = {"kernel_shape": o.pool_size, "strides": o.stride, "pads": o.padding}
    to.give(y, to.limited(to.operation("MaxPool", [to.tensor(o.x)], **window), o.min, o.max))


def table(to: _Writer, y: Value, o: Any) -> None:
    from onnx import TensorProto

    if o.interpolate or (entries := to.array(o.table)).dtype != np.int8:
        raise Unstated("its table is not of i8")
    wide = to.operation("Cast", [to.tensor(o.x)], to=TensorProto.INT32)
    place = to.operation("Add", [wide, to.held(np.int32(-I8.limits[0]))])
    to.give(y, to.operation("Gather", [to.held(entries), place], axis=0))


_Writer.rules = {
    **SHARED,
    "quant.requantize": requantize,
    "quant.max_pool2d": max_pool,
    "quant.table": table,
    "theano.sum": total,
    "cvm.sum": total,
    "cast": cast,
    **dict.fromkeys(FLOAT_OPERATORS, arithmetic),
    **dict.fromkeys(("maximum", "minimum"), limit),
}
