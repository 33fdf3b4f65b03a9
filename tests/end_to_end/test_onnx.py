"""ONNX models become programs that give what ONNX's own reference gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvm
from cvm import cli
from cvm.importers.onnx_model import import_onnx

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper

F, I64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def model(
    nodes: Sequence[Any],
    inputs: dict[str, tuple[Any, ...]],
    constants: dict[str, np.ndarray],
    outputs: Sequence[str] = ("y",),
) -> Any:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, F, shape) for n, shape in inputs.items()],
        [helper.make_tensor_value_info(n, F, ()) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def agree(folder: Path, made: Any, *arrays: np.ndarray) -> None:
    """The program gives what the reference of ONNX gives, from a file and from standard output's text."""
    from onnx.reference import ReferenceEvaluator

    path = folder / "m.onnx"
    onnx.save(made, str(path))
    wanted = ReferenceEvaluator(made).run(None, {i.name: a for i, a in zip(made.graph.input, arrays, strict=True)})
    assert cli.main(["import", str(path), "-o", str(folder / "m.cvm")]) == 0
    module, _ = import_onnx(path, None)
    for program in (folder / "m.cvm", module):
        got = cvm.compile(program)(*arrays)
        for g, w in zip(got if isinstance(got, tuple) else (got,), wanted, strict=True):
            assert g.shape == w.shape and g.dtype == w.dtype
            np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-6)


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


X = array(2, 4, 7, 6)
K = {"w": array(6, 4, 3, 3), "b": array(6)}
ONE: dict[str, tuple[str, dict[str, Any], dict[str, np.ndarray], np.ndarray]] = {
    "conv": ("Conv", {"pads": [1, 1, 1, 1]}, K, X),
    "conv, strides and dilations": ("Conv", {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 2, 1, 2]}, K, X),
    "conv, one-sided pads": ("Conv", {"pads": [0, 1, 2, 0], "strides": [2, 2]}, K, X),
    "conv, SAME_UPPER": ("Conv", {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, K, X),
    "conv, SAME_LOWER": ("Conv", {"auto_pad": "SAME_LOWER", "strides": [2, 3]}, K, X),
    "conv, groups": ("Conv", {"group": 2}, {"w": array(6, 2, 3, 3)}, X),
    "max pool": ("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]}, {}, X),
    "max pool, ceil": ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, {}, X),
    "average pool": ("AveragePool", {"kernel_shape": [2, 3], "strides": [1, 2]}, {}, X),
    "average pool, pads": ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, {}, X),
    "average pool, pads counted": ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}, {}, X),
    "global average": ("GlobalAveragePool", {}, {}, X),
    "global max": ("GlobalMaxPool", {}, {}, X),
    "batch norm": ("BatchNormalization", {"epsilon": 1e-3}, {"s": array(4), "t": array(4), "m": array(4), "v": array(4) ** 2}, X),
    "gemm": ("Gemm", {"transB": 1}, {"w": array(3, 5), "b": array(3)}, array(4, 5)),
    "gemm, scaled": ("Gemm", {"transA": 1, "alpha": 0.5, "beta": 2.0}, {"w": array(4, 3), "b": array(1, 3)}, array(4, 5)),
    "matmul": ("MatMul", {}, {"w": array(5, 3)}, array(4, 5)),
    "matmul of a batch": ("MatMul", {}, {"w": array(5, 3)}, array(2, 4, 5)),
    "softmax": ("Softmax", {"axis": 1}, {}, X),
    "log softmax": ("LogSoftmax", {}, {}, X),
    "reduce mean": ("ReduceMean", {"axes": [-1, 1]}, {}, X),
    "reduce max": ("ReduceMax", {"keepdims": 0}, {}, X),
    "reduce sum": ("ReduceSum", {"keepdims": 0}, {"a": ints(0, 2)}, X),
    "relu": ("Relu", {}, {}, X),
    "leaky relu": ("LeakyRelu", {"alpha": 0.2}, {}, X),
    "sigmoid": ("Sigmoid", {}, {}, X),
    "tanh": ("Tanh", {}, {}, X),
    "erf": ("Erf", {}, {}, X),
    "reciprocal": ("Reciprocal", {}, {}, X),
    "clip": ("Clip", {}, {"l": np.float32(-0.5), "h": np.float32(0.25)}, X),
    "add, broadcast": ("Add", {}, {"b": array(4, 1, 1)}, X),
    "div": ("Div", {}, {"b": array(6)}, X),
    "pow": ("Pow", {}, {"b": np.float32(2)}, X),
    "max of three": ("Max", {}, {"a": array(6), "b": array(1)}, X),
    "flatten": ("Flatten", {"axis": 2}, {}, X),
    "reshape": ("Reshape", {}, {"s": ints(0, -1, 3)}, X),
    "unsqueeze": ("Unsqueeze", {}, {"a": ints(0, -1)}, X),
    "squeeze": ("Squeeze", {}, {"a": ints(1)}, array(2, 1, 3)),
    "transpose": ("Transpose", {"perm": [0, 3, 1, 2]}, {}, X),
    "slice": ("Slice", {}, {"s": ints(1, -1), "e": ints(2**62, -(2**62)), "a": ints(1, 3), "p": ints(2, -1)}, X),
    "gather": ("Gather", {"axis": 2}, {"i": np.array([[0, -1], [3, 3]], np.int64)}, X),
    "pad": ("Pad", {}, {"p": ints(0, 1, 0, 2, 0, 0, 3, 1)}, X),
    "identity": ("Identity", {}, {}, X),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_an_operator(name: str, tmp_path: Path) -> None:
    op, attributes, constants, x = ONE[name]
    node = helper.make_node(op, ["x", *constants], ["y"], **attributes)
    agree(tmp_path, model([node], {"x": x.shape}, {n: np.asarray(a) for n, a in constants.items()}), x)


def test_a_network_of_any_batch(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "k", "kb"], ["c/out:0"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c/out:0", "s", "t", "m", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", "d"], ["e"], group=4),
        helper.make_node("GlobalAveragePool", ["e"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w", "b"], ["l"], transB=1),
        helper.make_node("Softmax", ["l"], ["y"]),
    ]
    constants = {
        "k": array(4, 3, 3, 3), "kb": array(4), "s": array(4), "t": array(4), "m": array(4), "v": array(4) ** 2,
        "d": array(4, 1, 3, 3), "w": array(10, 4), "b": array(10),
    }  # fmt: skip
    made = model(nodes, {"x": ("batch", 3, 12, 12)}, constants)
    agree(tmp_path, made, array(3, 3, 12, 12))
    text = (tmp_path / "m.cvm").read_text()
    assert "%x: tensor<?BATCH x 3 x 12 x 12 x f32>" in text and "%c_out_0 = cvm.conv2d" in text
    assert 'file("m.npz", ' in text


def test_shapes_are_computed(tmp_path: Path) -> None:
    """Shape arithmetic that exporters write for a view of a tensor is evaluated."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "zero"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["z"]),
        helper.make_node("Constant", [], ["half"], value_float=0.5),
        helper.make_node("Mul", ["z", "half"], ["h"]),
        helper.make_node("Concat", ["h", "z"], ["y"], axis=1),
    ]
    constants = {"first": np.array(0, np.int64), "zero": ints(0), "rest": ints(-1)}
    agree(tmp_path, model(nodes, {"x": X.shape}, constants), X)


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        (
            [("Hardmax", ["x"], {}), ("Einsum", ["x"], {"equation": "ii"})],
            "operators that are not taken: Einsum, Hardmax",
        ),
        ([("Conv", ["x", "x"], {"auto_pad": "SAME_UPPER", "group": 3})], "node 0, Conv '': C = IC * groups, but C = 4"),
        ([("Reshape", ["x", "x"], {})], "node 0, Reshape '': a shape that is not a constant is not taken"),
        (
            [("Constant", [], {"value_ints": [0, -6]}), ("Unsqueeze", ["x", "y"], {})],
            "expected axes of 6 dimensions, each once, got [0, -6]",
        ),
        ([("Constant", [], {"value_ints": [5]}), ("Unsqueeze", ["x", "y"], {})], "expected axes of 5 dimensions"),
        (
            [("MaxPool", ["x"], {"kernel_shape": [2, 2], "dilations": [2, 2]})],
            "windows that are not plain rectangles is not taken",
        ),
    ],
)
def test_what_is_not_taken(nodes: list[Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = [
        helper.make_node(op, given, ["y" if n == 0 else f"y{n}"], **more) for n, (op, given, more) in enumerate(nodes)
    ]
    graph = model(made, {"x": X.shape}, {})
    (tmp_path / "m.onnx").write_bytes(graph.SerializeToString())
    assert cli.main(["import", str(tmp_path / "m.onnx")]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("data", [b"", b"no model", b"\x08\x07" * 50])
def test_what_is_no_model(data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_bytes(data)
    assert cli.main(["import", str(tmp_path / "m.onnx")]) == 1
    assert "m.onnx:1:1: error[import]: the model cannot be read" in capsys.readouterr().err
