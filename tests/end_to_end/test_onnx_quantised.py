"""Quantized ONNX: models quantized by onnxruntime give its bits, and every operator of its own
agrees on the targets.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvm

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from quantised_onnx import NETWORKS, WAYS, inputs, onnxruntime_result, quantised  # noqa: E402

U8, S8, F32 = TensorProto.UINT8, TensorProto.INT8, TensorProto.FLOAT
SCALES = {"x": 0.05, "a": 0.03, "y": 0.04}


def model(
    nodes: list[Any],
    given: dict[str, tuple[int, list[int]]],
    constants: dict[str, np.ndarray],
    out: int,
) -> bytes:
    values = [helper.make_tensor_value_info(n, t, s) for n, (t, s) in given.items()]
    result = helper.make_tensor_value_info("out", out, None)
    initializers = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "g", values, [result], initializers)
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=8).SerializeToString()


def shaped(data: bytes) -> bytes:
    """The model with the shape of its result, which its types imply."""
    proto = onnx.load_from_string(data)
    proto.graph.output[0].type.tensor_type.shape.SetInParent()
    return proto.SerializeToString()


PARAMETERS = {
    **{f"{n}s": np.float32(s) for n, s in SCALES.items()},
    "xz": np.uint8(120),
    "az": np.uint8(7),
    "yz": np.uint8(99),
    "w": np.arange(-12, 12, dtype=np.int8).reshape(6, 4),
    "ws": np.float32(0.02),
    "wz": np.int8(0),
    "b": np.arange(6, dtype=np.int32),
}
PAIR = ["x", "xs", "xz", "a", "as", "az", "ys", "yz"]
ONE = ["x", "xs", "xz", "ys", "yz"]
MICROSOFT: dict[str, tuple[list[str], dict[str, Any], list[int]]] = {
    "QLinearAdd": (PAIR, {}, [3, 4]),
    "QLinearMul": (PAIR, {}, [3, 4]),
    "QLinearGlobalAveragePool": (ONE, {}, [2, 3, 4, 5]),
    "QLinearSoftmax": (ONE, {"axis": -1, "opset": 13}, [3, 4]),
    "QLinearSigmoid": (ONE, {}, [3, 4]),
    "QLinearLeakyRelu": (ONE, {"alpha": 0.2}, [3, 4]),
    "QLinearConcat": (["ys", "yz", "x", "xs", "xz", "a", "as", "az"], {"axis": 1}, [3, 4]),
    "QGemm": (["x", "xs", "xz", "w", "ws", "wz", "b", "ys", "yz"], {"transB": 1}, [3, 4]),
}


def of_microsoft(op: str) -> tuple[bytes, list[np.ndarray]]:
    names, attributes, shape = MICROSOFT[op]
    given = [n for n in ("x", "a") if n in names]
    constants = {n: a for n, a in PARAMETERS.items() if n in names}
    node = helper.make_node(op, names, ["out"], domain="com.microsoft", **attributes)
    random = np.random.default_rng(5)
    arrays = [random.integers(0, 256, shape).astype(np.uint8) for _ in given]
    return shaped(model([node], {n: (U8, shape) for n in given}, constants, U8)), arrays


@pytest.mark.parametrize("op", sorted(MICROSOFT))
def test_targets_agree(op: str) -> None:
    data, arrays = of_microsoft(op)
    module = cvm.from_onnx(data)
    wanted = cvm.compile(module, target="reference")(*arrays)
    np.testing.assert_array_equal(cvm.compile(module)(*arrays), wanted, strict=True)
    assert len(np.unique(wanted)) > 2


@pytest.mark.parametrize("op", sorted(MICROSOFT))
def test_agrees_with_onnxruntime(op: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    data, arrays = of_microsoft(op)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(
        None, {i.name: a for i, a in zip(session.get_inputs(), arrays, strict=True)}
    )
    np.testing.assert_array_equal(cvm.compile(cvm.from_onnx(data))(*arrays), wanted, strict=True)


def dequantise_multiply_quantise(kind: int, readers: int) -> cvm.Module:
    """The program of a product between DequantizeLinear and QuantizeLinear, whose operand has so
    many readers.
    """
    dtype = np.uint8 if kind == U8 else np.int8
    zeros = {n: np.asarray(PARAMETERS[n]).astype(dtype) for n in ("xz", "yz")}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["wt", "ws", "wz"], ["wf"]),
        helper.make_node("MatMul", ["xf", "wf"], ["yf"], name="product"),
        helper.make_node("QuantizeLinear", ["yf", "ys", "yz"], ["out" if readers == 1 else "q"]),
    ]
    if readers > 1:
        nodes += [
            helper.make_node("DequantizeLinear", ["q", "ys", "yz"], ["d"]),
            helper.make_node("Relu", ["d"], ["r"]),
            helper.make_node("Add", ["d", "r"], ["out"]),
        ]
    given = {n: PARAMETERS[n] for n in ("xs", "ys", "ws", "wz")}
    constants = {**given, **zeros, "wt": PARAMETERS["w"].T.copy()}
    return cvm.from_onnx(
        shaped(model(nodes, {"x": (kind, [3, 4])}, constants, kind if readers == 1 else F32))
    )


def test_what_is_between_dequantisation_and_quantisation_is_fused() -> None:
    for kind, readers in ((U8, 1), (U8, 2), (S8, 1)):
        found = dequantise_multiply_quantise(kind, readers)
        assert "quant.dense" in str(found)
        lines = [
            o.span.source.text[o.span.start : o.span.end]
            for o in found.functions["main"].operations
            if o.span
        ]
        assert any(line.endswith("// QLinearMatMul product") for line in lines), lines
    assert "quant.dense" not in str(dequantise_multiply_quantise(S8, 2))  # as onnxruntime leaves it


@pytest.mark.parametrize("scale", ["xs", "ys"])
def test_pooling_between_dequantisation_and_quantisation_chooses_bytes(scale: str) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node(
            "MaxPool", ["xf"], ["yf"], kernel_shape=[2, 3], strides=[1, 2], pads=[1, 0, 0, 1]
        ),
        helper.make_node("QuantizeLinear", ["yf", scale, "xz"], ["out"]),
    ]
    shape = [1, 2, 4, 6]
    constants = {n: PARAMETERS[n] for n in {"xs", "xz", scale}}
    data = shaped(model(nodes, {"x": (U8, shape)}, constants, U8))
    x = np.random.default_rng(3).integers(0, 256, shape).astype(np.uint8)
    module = cvm.from_onnx(data)
    assert ("f32" in str(module)) == (scale == "ys")  # numbers of another scale are computed
    found = cvm.compile(module)(x)
    around = np.pad(x, [(0, 0), (0, 0), (1, 0), (0, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(around, (2, 3), (2, 3))[:, :, :, ::2].max(
        (-1, -2)
    )
    if scale == "xs":
        np.testing.assert_array_equal(found, windows, strict=True)
    if importlib.util.find_spec("onnxruntime"):
        np.testing.assert_array_equal(found, onnxruntime_result(data, x), strict=True)


MOVING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "DepthToSpace": ({"blocksize": 2}, {}),
    "Expand": ({}, {"n": [3, 4, 4, 6]}),
    "Flatten": ({"axis": 2}, {}),
    "Gather": ({"axis": 3}, {"n": [5, 0, 0]}),
    "Reshape": ({}, {"n": [0, -1, 3]}),
    "Slice": ({}, {"n": [1], "m": [3], "k": [3]}),
    "SpaceToDepth": ({"blocksize": 2}, {}),
    "Squeeze": ({}, {"n": [0]}),
    "Tile": ({}, {"n": [1, 2, 1, 1]}),
    "Transpose": ({"perm": [3, 1, 0, 2]}, {}),
    "Unsqueeze": ({}, {"n": [1]}),
}


@pytest.mark.parametrize("kind", [U8, S8])
@pytest.mark.parametrize("op", MOVING)
def test_what_moves_elements_between_equal_scales_moves_bytes(op: str, kind: int) -> None:
    attributes, more = MOVING[op]
    dtype = np.uint8 if kind == U8 else np.int8
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node(op, ["xf", *more], ["yf"], name="moves", **attributes),
        helper.make_node("QuantizeLinear", ["yf", "ys", "yz"], ["out"]),
    ]
    shape, scale, zero = [1, 4, 4, 6], np.float32(0.05), dtype(12)
    given = {"x": (kind, shape)}
    constants = {"xs": scale, "xz": zero, "ys": scale, "yz": zero}
    constants |= {n: np.array(a) for n, a in more.items()}
    x = np.random.default_rng(3).integers(0, 256, shape).astype(dtype)
    data = shaped(model(nodes, given, constants, kind))
    module = cvm.from_onnx(data)
    assert "f32" not in str(module)
    found = cvm.compile(module)(x)
    for other in ({"ys": np.float32(0.06)}, {"yz": dtype(13)}):  # whose numbers are computed
        assert "f32" in str(cvm.from_onnx(shaped(model(nodes, given, constants | other, kind))))
    if importlib.util.find_spec("onnxruntime"):
        np.testing.assert_array_equal(found, onnxruntime_result(data, x), strict=True)


def test_a_scale_whose_products_overflow_stays_in_floats() -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xf"]),
        helper.make_node("Flatten", ["xf"], ["yf"]),
        helper.make_node("QuantizeLinear", ["yf", "s", "z"], ["out"]),
    ]
    constants = {"s": np.float32(3e38), "z": np.uint8(0)}
    module = cvm.from_onnx(shaped(model(nodes, {"x": (U8, [1, 3])}, constants, U8)))
    found = cvm.compile(module)(np.array([[0, 1, 2]], np.uint8))
    np.testing.assert_array_equal(found, [[0, 1, 255]])


EQUAL = [(n, w) for n in NETWORKS for w in WAYS if (n, w) != ("transformer", "dynamic")]


@pytest.mark.parametrize(("network", "way"), EQUAL, ids=["_".join(e) for e in EQUAL])
def test_quantised_networks_equal_onnxruntime(network: str, way: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    float_model = NETWORKS[network]()
    data = quantised(float_model, way, tmp_path)
    run = cvm.compile(cvm.from_onnx(data))
    for seed in range(4):
        x = inputs(float_model, 100 + seed)
        np.testing.assert_array_equal(
            run(x).view(np.int32), onnxruntime_result(data, x).view(np.int32)
        )


@pytest.mark.parametrize("sizes", [(2, 2), (3, 3), (7, 7), (9, 11)])
def test_averages_among_integer_convolutions_equal_onnxruntime(sizes: tuple[int, int]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("ConvInteger", ["q", "k", "z"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=F32),
        helper.make_node("Mul", ["f", "s"], ["y"]),
        helper.make_node("GlobalAveragePool", ["y"], ["out"]),
    ]
    kernel = np.random.default_rng(0).integers(-64, 64, (5, 3, 1, 1)).astype(np.int8)
    data = shaped(model(nodes, {"x": (F32, [2, 3, *sizes])}, {"k": kernel}, F32))
    module, session = (
        cvm.from_onnx(data),
        onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]),
    )
    for seed in range(20):
        x = np.random.default_rng(seed).normal(0, 1, (2, 3, *sizes)).astype(np.float32)
        (wanted,) = session.run(None, {"x": x})
        for target in ("cpu", "reference"):
            found = cvm.compile(module, target=target)(x)
            np.testing.assert_array_equal(found.view(np.int32), wanted.view(np.int32), strict=True)


def resized(sizes: list[int], x: np.ndarray, opset: int = 19, **attributes: Any) -> bytes:
    kind = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", **attributes)
    given = helper.make_tensor_value_info("x", kind, x.shape)
    made = helper.make_tensor_value_info("y", kind, sizes)
    constant = numpy_helper.from_array(np.array(sizes), "sizes")
    graph = helper.make_graph([node], "g", [given], [made], [constant])
    sets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=sets, ir_version=9).SerializeToString()


def test_bytes_between_others_are_truncated() -> None:
    x = np.array([[10, 21]], np.uint8)
    y = cvm.compile(cvm.from_onnx(resized([1, 4], x)))(x)
    np.testing.assert_array_equal(y, [[10, 12, 18, 21]])
    signed = np.array([[-10, -21]], np.int8)  # toward zero
    y = cvm.compile(cvm.from_onnx(resized([1, 4], signed)))(signed)
    np.testing.assert_array_equal(y, [[-10, -12, -18, -21]])


PLACES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
RESIZED = [([5, 7], [9, 4]), ([4, 1, 5], [3, 6, 9]), ([2, 3, 6, 5], [2, 3, 13, 5])]
RESIZED += [([1, 6, 5, 3], [1, 4, 11, 3]), ([1, 2, 3, 4, 5], [1, 2, 5, 4, 7])]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
@pytest.mark.parametrize(("shape", "sizes"), RESIZED, ids=str)
def test_integers_between_others_equal_onnxruntime(
    dtype: type[np.integer[Any]], shape: list[int], sizes: list[int]
) -> None:
    pytest.importorskip("onnxruntime")
    bounds = np.iinfo(dtype)
    x = np.random.default_rng(1).integers(bounds.min, bounds.max, shape, dtype)
    for places in PLACES:
        data = resized(sizes, x, coordinate_transformation_mode=places)
        found = cvm.compile(cvm.from_onnx(data))(x)
        np.testing.assert_array_equal(found, onnxruntime_result(data, x), strict=True)


def test_integers_that_are_not_interpolated_are_refused() -> None:
    x = np.zeros((1, 1, 4, 4), np.uint8)
    with pytest.raises(cvm.ParseError, match=r"Resize.*integers between others"):
        cvm.from_onnx(resized([1, 1, 8, 8], x, antialias=1))
    with pytest.raises(cvm.ParseError, match=r"Resize.*integers resized in the axes \[0, 2\] of 4"):
        cvm.from_onnx(resized([2, 1, 8, 4], x))
