"""ONNX models become programs that give what ONNX's own reference gives."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvm
from cvm import cli

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper

F, I64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def model(
    nodes: Sequence[Any],
    inputs: dict[str, tuple[Any, ...]],
    constants: dict[str, np.ndarray],
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
    element: int = F,
) -> Any:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, element, shape) for n, shape in inputs.items()],
        [helper.make_tensor_value_info(n, element, ()) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def run(made: Any, *arrays: np.ndarray, **given: Any) -> Any:
    """The results of a model's program, by the reference and compiled, which must agree."""
    module = cvm.from_onnx(made, **given)
    found = [cvm.compile(module, target=target)(*arrays) for target in ("reference", "cpu")]
    np.testing.assert_allclose(found[1], found[0], 1e-6)
    return found[1]


def agree(folder: Path, made: Any, *arrays: np.ndarray) -> None:
    """The program gives what the reference of ONNX gives, from a file and from standard output's
    text.
    """
    from onnx.reference import ReferenceEvaluator

    path = folder / "m.onnx"
    onnx.save(made, str(path))
    wanted = ReferenceEvaluator(made).run(
        None, {i.name: a for i, a in zip(made.graph.input, arrays, strict=True)}
    )
    assert cli.main(["import", str(path), "-o", str(folder / "m.cvm")]) == 0
    module = cvm.from_onnx(path)
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
    "conv, strides and dilations": (
        "Conv",
        {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 2, 1, 2]},
        K,
        X,
    ),
    "conv, one-sided pads": ("Conv", {"pads": [0, 1, 2, 0], "strides": [2, 2]}, K, X),
    "conv, SAME_UPPER": ("Conv", {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, K, X),
    "conv, SAME_LOWER": ("Conv", {"auto_pad": "SAME_LOWER", "strides": [2, 3]}, K, X),
    "conv, groups": ("Conv", {"group": 2}, {"w": array(6, 2, 3, 3)}, X),
    "max pool": (
        "MaxPool",
        {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {},
        X,
    ),
    "max pool, ceil": (
        "MaxPool",
        {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1},
        {},
        X,
    ),
    "average pool": ("AveragePool", {"kernel_shape": [2, 3], "strides": [1, 2]}, {}, X),
    "average pool, pads": ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, {}, X),
    "average pool, pads counted": (
        "AveragePool",
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
        {},
        X,
    ),
    "global average": ("GlobalAveragePool", {}, {}, X),
    "global max": ("GlobalMaxPool", {}, {}, X),
    "batch norm": (
        "BatchNormalization",
        {"epsilon": 1e-3},
        {"s": array(4), "t": array(4), "m": array(4), "v": array(4) ** 2},
        X,
    ),
    "gemm": ("Gemm", {"transB": 1}, {"w": array(3, 5), "b": array(3)}, array(4, 5)),
    "gemm, scaled": (
        "Gemm",
        {"transA": 1, "alpha": 0.5, "beta": 2.0},
        {"w": array(4, 3), "b": array(1, 3)},
        array(4, 5),
    ),
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
    "slice": (
        "Slice",
        {},
        {"s": ints(1, -1), "e": ints(2**62, -(2**62)), "a": ints(1, 3), "p": ints(2, -1)},
        X,
    ),
    "gather": ("Gather", {"axis": 2}, {"i": np.array([[0, -1], [3, 3]], np.int64)}, X),
    "pad": ("Pad", {}, {"p": ints(0, 1, 0, 2, 0, 0, 3, 1)}, X),
    "identity": ("Identity", {}, {}, X),
}


@pytest.mark.parametrize("name", ONE)
def test_an_operator(name: str, tmp_path: Path) -> None:
    op, attributes, constants, x = ONE[name]
    node = helper.make_node(op, ["x", *constants], ["y"], **attributes)
    agree(
        tmp_path, model([node], {"x": x.shape}, {n: np.asarray(a) for n, a in constants.items()}), x
    )


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
        "k": array(4, 3, 3, 3), "kb": array(4), "s": array(4), "t": array(4), "m": array(4),
         "v": array(4) ** 2,
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
            [("Conv", ["x", "x"], {"auto_pad": "SAME_UPPER", "group": 3})],
            "1 x Conv: C = IC * groups, but C = 4",
        ),
        (
            [("Reshape", ["x", "x"], {})],
            "1 x Reshape: shape that is not a constant is not supported (node number 0)",
        ),
        (
            [("Constant", [], {"value_ints": [0, -6]}), ("Unsqueeze", ["x", "y"], {})],
            "expected axes of 6 dimensions, each once, got [0, -6]",
        ),
        (
            [("Constant", [], {"value_ints": [5]}), ("Unsqueeze", ["x", "y"], {})],
            "expected axes of 5 dimensions",
        ),
        ([("NonMaxSuppression", ["x", "x"], {})], "how much it gives depends on the data"),
        ([("RandomNormalLike", ["x"], {})], "it draws random numbers"),
        ([("Relu", ["x"], {"wrong": 3})], "the model cannot be read"),
    ],
)
def test_what_is_refused(
    nodes: list[Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [
        helper.make_node(op, given, ["y" if n == 0 else f"y{n}"], **more)
        for n, (op, given, more) in enumerate(nodes)
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


# What went wrong once


def test_names_that_look_alike_are_two() -> None:
    nodes = [
        helper.make_node("Add", ["a.b", "a.b"], ["s.t"]),
        helper.make_node("Mul", ["a_b", "a_b"], ["s_t"]),
        helper.make_node("Sub", ["s.t", "s_t"], ["y"]),
    ]
    made = model(nodes, {"a.b": (1,), "a_b": (1,)}, {})
    assert run(made, np.float32([3]), np.float32([5])) == 6 - 25


@pytest.mark.parametrize("name", ["x:0", "a/b", "1", "long" * 40, "\n", "é"])
def test_names_of_all_kinds(name: str, tmp_path: Path) -> None:
    made = model([helper.make_node("Neg", [name], ["y"])], {name: (2,)}, {})
    onnx.save(made, str(tmp_path / "m.onnx"))
    assert cli.main(["import", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.cvm")]) == 0
    assert list(cvm.compile(tmp_path / "m.cvm")(np.float32([1, 2]))) == [-1, -2]
    assert name == "long" * 40 or " is " in (tmp_path / "m.cvm").read_text().splitlines()[0]


def test_sizes_that_look_alike_are_two() -> None:
    nodes = [helper.make_node("Identity", ["a"], ["y"]), helper.make_node("Identity", ["b"], ["z"])]
    made = model(nodes, {"a": ("batch-a",), "b": ("batcha",)}, {}, ("y", "z"))
    y, z = cvm.compile(cvm.from_onnx(made))(np.ones(2, np.float32), np.ones(3, np.float32))
    assert y.shape == (2,) and z.shape == (3,)


@pytest.mark.parametrize("stated", [-1, 0, None])
def test_sizes_that_are_not_known(stated: int | None) -> None:
    made = model([helper.make_node("Neg", ["x"], ["y"])], {"x": (stated, 2)}, {})
    assert run(made, np.ones((3, 2), np.float32)).shape == (3, 2)
    fixed = cvm.from_onnx(made, sizes={"x": [4, 2]})
    assert "tensor<4x2xf32>" in str(fixed)


@pytest.mark.parametrize("cleared", ("shape", "type"))
def test_outputs_need_no_shape(cleared: str) -> None:
    made = model([helper.make_node("Neg", ["x"], ["y"])], {"x": ("N", 2)}, {})
    output = made.graph.output[0]
    (output.type.tensor_type if cleared == "shape" else output).ClearField(cleared)
    assert run(made, np.ones((3, 2), np.float32)).shape == (3, 2)


def test_sizes_that_have_to_be_given() -> None:
    made = model(
        [
            helper.make_node(
                "MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[3, 3], auto_pad="SAME_UPPER"
            )
        ],
        {"x": ("N", 2, "H", "W")},
        {},
    )
    with pytest.raises(cvm.ParseError) as caught:
        cvm.from_onnx(made)
    assert "--size NAME=N" in caught.value.diagnostics[0].notes[-1].message
    y = run(made, np.ones((1, 2, 3, 3), np.float32), sizes={"H": 3, "W": 3})
    assert y.shape == (1, 2, 1, 1)
    with pytest.raises(
        cvm.ParseError, match="a size is of an input or a dimension of one, H, N, W, x, got 'M'"
    ):
        cvm.from_onnx(made, sizes={"M": 3})


def of_shape(axis: int, *more: Any) -> list[Any]:
    """Nodes that compute the size t of an axis of x, and more."""
    take = helper.make_node("Gather", ["shape", f"axis{axis}"], ["t"])
    return [helper.make_node("Shape", ["x"], ["shape"]), take, *more]


IMAGES = ("N", 2, "H", "W")
AXES = {f"axis{k}": np.array([k]) for k in range(4)}
HALVES = {"kernel_shape": [3, 3], "strides": [2, 2]}
OPEN: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, np.ndarray]]] = {
    "mean": ([helper.make_node("GlobalAveragePool", ["x"], ["y"])], IMAGES, {}),
    "instances": (
        [helper.make_node("InstanceNormalization", ["x", "s", "s"], ["y"])],
        IMAGES,
        {"s": np.array([2, 3], np.float32)},
    ),
    "transposed": (
        [helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], pads=[1, 0, 0, 1])],
        IMAGES,
        {"w": np.arange(36, dtype=np.float32).reshape(2, 2, 3, 3)},
    ),
    "reflected": (
        [helper.make_node("Pad", ["x", "pads"], ["y"], mode="reflect")],
        IMAGES,
        {"pads": np.array([0, 0, 2, 1, 0, 0, 1, 2])},
    ),
    "edges": (
        [helper.make_node("Pad", ["x", "pads"], ["y"], mode="edge")],
        IMAGES,
        {"pads": np.array([0, 0, 2, 1, 0, 0, 9, 2])},
    ),
    "last windows": (
        [helper.make_node("MaxPool", ["x"], ["y"], ceil_mode=1, **HALVES)],
        IMAGES,
        {},
    ),
    "means at edges": (
        [helper.make_node("AveragePool", ["x"], ["y"], pads=[1, 1, 1, 1], **HALVES)],
        IMAGES,
        {},
    ),
    "same padding": (
        [helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME_LOWER", **HALVES)],
        IMAGES,
        {"w": np.arange(36, dtype=np.float32).reshape(2, 2, 3, 3)},
    ),
    "same padding of each size": (
        [
            helper.make_node("Conv", ["x", "w"], ["c"], auto_pad="SAME_UPPER", **HALVES),
            helper.make_node("MaxPool", ["c"], ["y"], auto_pad="SAME_UPPER", **HALVES),
        ],
        IMAGES,
        {"w": np.arange(36, dtype=np.float32).reshape(2, 2, 3, 3) - 18},
    ),
    "twice as high and half as wide": (
        [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")],
        IMAGES,
        {"scales": np.array([1, 1, 2, 0.5], np.float32)},
    ),
    "nearest": (
        [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest")],
        IMAGES,
        {"scales": np.array([1, 1, 2, 1.5], np.float32)},
    ),
    "resized to a computed size": (
        of_shape(
            2,
            helper.make_node("Shape", ["x"], ["first"], end=2),
            helper.make_node("Mul", ["t", "axis3"], ["w"]),
            helper.make_node("Concat", ["first", "t", "w"], ["sizes"], axis=0),
            helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="cubic"),
        ),
        IMAGES,
        {},
    ),
    **{
        f"{mode} of computed widths": (
            of_shape(
                3,
                helper.make_node("Div", ["t", "axis2"], ["half"]),
                helper.make_node("Sub", ["t", "half"], ["other"]),
                helper.make_node("Sub", ["other", "axis1"], ["less"]),
                helper.make_node("Concat", ["none", "half", "none", "less"], ["pads"], axis=0),
                helper.make_node("Pad", ["x", "pads"], ["y"], mode=mode),
            ),
            IMAGES,
            {"none": np.zeros(3, np.int64)},
        )
        for mode in ("constant", "edge", "reflect")
    },
    "range from a size": (
        of_shape(
            3,
            helper.make_node("Squeeze", ["t"], ["t0"]),
            helper.make_node("Add", ["t0", "five"], ["u"]),
            helper.make_node("Range", ["t0", "u", "two"], ["r"]),
            helper.make_node("Cast", ["r"], ["y"], to=F),
        ),
        IMAGES,
        {"five": np.array(5), "two": np.array(2)},
    ),
    "slice to a size": (
        of_shape(2, helper.make_node("Slice", ["table", "axis0", "t", "axis0"], ["y"])),
        IMAGES,
        {"table": np.arange(20, dtype=np.float32)},
    ),
    "tiles": (
        of_shape(
            2,
            helper.make_node("Concat", ["axis1", "axis1", "t", "axis2"], ["all"], axis=0),
            helper.make_node("Tile", ["x", "all"], ["y"]),
        ),
        IMAGES,
        {},
    ),
    "pairs of rows": (
        of_shape(
            2,
            helper.make_node("Div", ["t", "axis2"], ["half"]),
            helper.make_node("Concat", ["axis0", "axis0", "half", "eight"], ["all"], axis=0),
            helper.make_node("Reshape", ["x", "all"], ["y"]),
        ),
        ("N", 2, "H", 4),
        {"eight": np.array([8])},
    ),
}


@pytest.mark.parametrize("name", OPEN)
def test_open_sizes(name: str) -> None:
    """One program for all sizes gives what the reference of ONNX gives."""
    from onnx.reference import ReferenceEvaluator

    nodes, shape, constants = OPEN[name]
    made = model(nodes, {"x": shape}, {**AXES, **constants})
    f = cvm.compile(cvm.from_onnx(made))
    for n, h, w in ((1, 4, 4), (2, 8, 5), (3, 6, 7)):
        sizes = {"N": n, "H": h, "W": w}
        x = np.resize(np.arange(13, dtype=np.float32), [sizes.get(d, d) for d in shape])
        (wanted,) = ReferenceEvaluator(made).run(None, {"x": x})
        np.testing.assert_allclose(f(x), wanted, 1e-5, 1e-5)


def test_slices_beyond_an_axis_fail_where_sizes_are_open() -> None:
    """ONNX would take fewer elements: a result of another size."""
    nodes, shape, constants = OPEN["slice to a size"]
    f = cvm.compile(cvm.from_onnx(model(nodes, {"x": shape}, {**AXES, **constants})))
    with pytest.raises(cvm.Error, match="an index is outside of its axis"):
        f(np.ones((1, 2, 21, 2), np.float32))


def test_sizes_and_constants_that_the_caller_gives(tmp_path: Path) -> None:
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)]
    made = model(nodes, {"x": ("N", 3), "axes": (1,)}, {})
    made.graph.input[1].type.tensor_type.elem_type = I64
    with pytest.raises(cvm.ParseError, match="these inputs could be given as constants: axes"):
        cvm.from_onnx(made)
    assert list(run(made, np.ones((2, 3), np.float32), constants={"axes": [1]})) == [3, 3]
    onnx.save(made, str(tmp_path / "m.onnx"))
    options = ["--size", "N=2", "--constant", "axes=[0]", "-o", str(tmp_path / "m.cvm")]
    assert cli.main(["import", str(tmp_path / "m.onnx"), *options]) == 0
    assert "tensor<2x3xf32>" in (tmp_path / "m.cvm").read_text()
    for wrong in (["--size", "M=2"], ["--constant", "z=[1]"], ["--size", "N=-7"]):
        assert cli.main(["import", str(tmp_path / "m.onnx"), *wrong]) == 1
    for wrong in (["--size", "N"], ["--constant", "axes=[[1]"], ["--constant", 'axes=["a"]']):
        assert cli.main(["import", str(tmp_path / "m.onnx"), *wrong]) == 2


@pytest.mark.parametrize(
    "element", [onnx.TensorProto.FLOAT8E5M2, onnx.TensorProto.STRING, onnx.TensorProto.INT4]
)
def test_element_types_that_the_language_lacks(element: int) -> None:
    made = model([helper.make_node("Identity", ["x"], ["y"])], {"x": (2,)}, {}, element=element)
    name = onnx.TensorProto.DataType.Name(element)
    with pytest.raises(cvm.ParseError, match=f"elements of type {name}"):
        cvm.from_onnx(made)


def test_constants_keep_their_rank() -> None:
    node = helper.make_node("Gather", ["x", "i"], ["y"], axis=1)
    made = model([node], {"x": (2, 3)}, {"i": np.array(2, np.int64)})
    assert list(run(made, np.arange(6, dtype=np.float32).reshape(2, 3))) == [2, 5]


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [11, 13])
def test_softmax_means_what_its_opset_says(op: str, opset: int) -> None:
    x = array(2, 3, 4)
    got = run(
        model([helper.make_node(op, ["x"], ["y"], axis=1)], {"x": x.shape}, {}, opset=opset), x
    )
    rows = (
        x.reshape(2, 12).astype(np.float64) if opset == 11 else x.swapaxes(1, 2).astype(np.float64)
    )
    powers = np.exp(rows - rows.max(-1, keepdims=True))
    soft = powers / powers.sum(-1, keepdims=True)
    top = np.arange(rows.shape[-1]) == rows.argmax(-1)[..., None]
    wanted = {"Softmax": soft, "LogSoftmax": np.log(soft), "Hardmax": top}[op]
    wanted = wanted.reshape(2, 3, 4) if opset == 11 else wanted.swapaxes(1, 2)
    np.testing.assert_allclose(got, wanted, 1e-5, 1e-7)


def test_pad_before_opset_11() -> None:
    node = helper.make_node("Pad", ["x"], ["y"], pads=[1, 2], value=7.0)
    assert list(run(model([node], {"x": (1,)}, {}, opset=2), np.float32([3]))) == [7, 3, 7, 7]


@pytest.mark.parametrize("dtype", ["i4", "i8"])
def test_clip_of_integers_is_exact(dtype: str) -> None:
    large = np.array(np.iinfo(dtype).max - 2, dtype)
    node = helper.make_node("Clip", ["x", "low", "high"], ["y"])
    element = helper.np_dtype_to_tensor_dtype(large.dtype)
    made = model([node], {"x": (3,)}, {"low": np.array(-1, dtype), "high": large}, element=element)
    got = run(made, np.array([large + 1, large - 1, -5], dtype))
    assert got.dtype == dtype and list(got) == [large, large - 1, -1]


@pytest.mark.parametrize("constant", [False, True])
def test_quotients_of_integers_are_truncated(constant: bool) -> None:
    a, b = ints(7, -7, 7, -7), ints(2, 2, -2, -2)
    node = helper.make_node("Div", ["a", "b"], ["y"])
    given = {"a": a, "b": b} if constant else {}
    made = model([node], {} if constant else {"a": (4,), "b": (4,)}, given, element=I64)
    assert list(run(made, *([] if constant else [a, b]))) == [3, -3, -3, 3]


def test_powers_have_the_type_of_the_base() -> None:
    made = model([helper.make_node("Pow", ["x", "n"], ["y"])], {"x": (3,)}, {"n": ints(2)})
    got = run(made, np.float32([1, -2, 3]))
    assert got.dtype == np.float32 and list(got) == [1, 4, 9]


def test_dropout_in_training_is_refused() -> None:
    node = helper.make_node("Dropout", ["x", "ratio", "training"], ["y"])
    constants = {"ratio": np.array(0.5, np.float32), "training": np.array(True)}
    with pytest.raises(cvm.ParseError, match="training mode, which draws random numbers"):
        cvm.from_onnx(model([node], {"x": (2,)}, constants))


def test_windows_begin_within_the_data() -> None:
    node = helper.make_node(
        "MaxPool", ["x"], ["y"], kernel_shape=[1], strides=[2], ceil_mode=1, pads=[0, 1]
    )
    got = run(model([node], {"x": (1, 1, 3)}, {}), np.float32([[[1, 2, 3]]]))
    assert got.tolist() == [[[1, 3]]]


def test_attributes_that_are_not_looked_at_are_refused() -> None:
    node = helper.make_node("LSTM", ["x", "w", "r"], ["", "y"], hidden_size=2, input_forget=1)
    constants = {"w": array(1, 8, 3), "r": array(1, 8, 2)}
    with pytest.raises(cvm.ParseError, match="input_forget"):
        cvm.from_onnx(model([node], {"x": (4, 1, 3)}, constants))


# What a model may refer to, and how much of it is told


def test_all_refusals_come_at_once() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["a"], name="first"),
        helper.make_node("Bernoulli", ["x"], ["b"], name="second"),
        helper.make_node("NonZero", ["x"], ["c"], name="third"),
        helper.make_node("Cast", ["a"], ["d"], to=F),
        helper.make_node("Sum", ["b", "d"], ["y"]),
    ]
    with pytest.raises(cvm.ParseError) as e:
        cvm.from_onnx(model(nodes, {"x": (2,)}, {}))
    text = str(e.value)
    assert (
        "3 nodes of the model cannot be imported" in text
        and "2 x NonZero: x that is not a constant" in text
    )
    assert (
        "(nodes 'first', 'third')" in text
        and "1 x Bernoulli" in text
        and "given as constants: x" in text
    )


def test_external_data_is_read_from_the_folder_only(tmp_path: Path) -> None:
    made = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (64,)}, {"w": array(64)})
    folder = tmp_path / "model"
    folder.mkdir()
    onnx.save(
        made, str(folder / "m.onnx"), save_as_external_data=True, size_threshold=0, location="w.bin"
    )
    x = array(64, seed=1)
    np.testing.assert_array_equal(cvm.compile(cvm.from_onnx(folder / "m.onnx"))(x), x + array(64))
    outside = onnx.load(str(folder / "m.onnx"), load_external_data=False)
    (tmp_path / "w.bin").write_bytes((folder / "w.bin").read_bytes())
    for location in ("../w.bin", str(tmp_path / "w.bin"), "none.bin", ""):
        outside.graph.initializer[0].external_data[0].value = location
        (folder / "n.onnx").write_bytes(outside.SerializeToString())
        with pytest.raises(cvm.ParseError, match="which is no file in the model's folder"):
            cvm.from_onnx(folder / "n.onnx")
    with pytest.raises(cvm.ParseError, match="the model comes without a folder"):
        cvm.from_onnx((folder / "m.onnx").read_bytes())


def test_unknown_sizes_go_through_shapes() -> None:
    """A view of all heads of a batch of sequences, neither size being known."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["n"]),
        helper.make_node("Gather", ["shape", "one"], ["m"]),
        *(helper.make_node("Unsqueeze", [k, "first"], [f"{k}1"]) for k in "nm"),
        helper.make_node("Concat", ["n1", "m1", "heads"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["split"]),
        helper.make_node("Transpose", ["split"], ["turned"], perm=[0, 2, 1, 3]),
        helper.make_node("Mul", ["n", "m"], ["count"]),
        helper.make_node("Unsqueeze", ["count", "first"], ["count1"]),
        helper.make_node("Concat", ["count1", "minus"], ["flat"], axis=0),
        helper.make_node("Reshape", ["x", "flat"], ["rows"]),
        helper.make_node("ReduceSum", ["rows", "first"], ["sums"], keepdims=0),
        helper.make_node("ConstantOfShape", ["n1"], ["zeros"]),
        helper.make_node("Shape", ["turned"], ["later"]),
        helper.make_node("Slice", ["later", "first", "two"], ["front"]),
        helper.make_node("ConstantOfShape", ["front"], ["zeros2"]),
    ]
    constants = {
        "zero": np.array(0),
        "one": np.array(1),
        "first": ints(0),
        "two": ints(2),
        "heads": ints(2, -1),
        "minus": ints(-1),
    }
    outputs = ("turned", "sums", "zeros", "zeros2")
    x = array(3, 5, 8)
    found = cvm.compile(cvm.from_onnx(model(nodes, {"x": ("N", "S", 8)}, constants, outputs)))(x)
    np.testing.assert_array_equal(found[0], x.reshape(3, 5, 2, 4).transpose(0, 2, 1, 3))
    np.testing.assert_allclose(found[1], x.reshape(15, 8).sum(0), 1e-5, 1e-6)
    assert found[2].shape == (3,) and found[3].shape == (3, 2)


def test_functions_of_a_model_are_expanded() -> None:
    twice = helper.make_function(
        "own",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )
    made = model([helper.make_node("Twice", ["x"], ["y"], domain="own")], {"x": (2,)}, {})
    made.functions.append(twice)
    made.opset_import.append(helper.make_opsetid("own", 1))
    assert list(run(made, np.float32([1, 2]))) == [2, 4]


def test_loops_and_branches() -> None:
    count = helper.make_tensor_value_info("k", I64, ())
    truth = helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, ())
    state, state_out = (helper.make_tensor_value_info(n, F, (2,)) for n in ("s", "t"))
    going = helper.make_tensor_value_info("d", onnx.TensorProto.BOOL, ())
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "x"], ["t"]),
            helper.make_node("Identity", ["c"], ["d"]),
            helper.make_node("Neg", ["t"], ["u"]),
        ],
        "body",
        [count, truth, state],
        [going, state_out, helper.make_tensor_value_info("u", F, (2,))],
    )
    made = model(
        [helper.make_node("Loop", ["n", "", "x"], ["y", "z"], body=body)],
        {"x": (2,)},
        {"n": np.array(3)},
        ("y", "z"),
    )
    y, z = cvm.compile(cvm.from_onnx(made))(np.float32([1, 2]))
    assert y.tolist() == [4, 8] and z.tolist() == [[-2, -4], [-3, -6], [-4, -8]]


def test_sequences_within_a_model() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x", "two"], ["parts"], axis=0),
        helper.make_node("SequenceAt", ["parts", "last"], ["end"]),
        helper.make_node("SequenceInsert", ["parts", "end", "first"], ["longer"]),
        helper.make_node("ConcatFromSequence", ["longer"], ["y"], axis=0),
    ]
    constants = {"two": np.array(2), "last": np.array(-1), "first": np.array(0)}
    assert run(model(nodes, {"x": (5,)}, constants), np.float32([1, 2, 3, 4, 5])).tolist() == [
        5,
        1,
        2,
        3,
        4,
        5,
    ]


def test_a_profile_names_the_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="layer/conv"),
        helper.make_node("Relu", ["c"], ["c.1"], name="layer/act"),
        helper.make_node("ReduceMax", ["c.1"], ["y"], keepdims=0),
    ]
    made = model(nodes, {"x": (1, 3, 8, 8)}, {"w": np.ones((4, 3, 3, 3), np.float32)})
    path, program = tmp_path / "model.onnx", tmp_path / "model.cvm"
    path.write_bytes(made.SerializeToString())
    assert cli.main(["import", str(path), "-o", str(program)]) == 0
    assert "%c_1 = cvm.relu %c  // Relu layer/act: c.1" in program.read_text()
    assert cli.main(["run", str(program), "--random-inputs", "0", "--profile"]) == 0
    said = capsys.readouterr().out
    assert "// Conv layer/conv; Relu layer/act\n" in said and "// ReduceMax y\n" in said


def test_an_error_of_a_call_names_the_node() -> None:
    node = helper.make_node("Gather", ["table", "x"], ["y"], name="embedding")
    f = cvm.compile(
        cvm.from_onnx(model([node], {"x": (2,)}, {"table": np.ones(5, np.float32)}, element=I64))
    )
    with pytest.raises(cvm.CallError, match="embedding"):
        f(np.array([0, 5]))


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_a_product_of_one_row_is_computed_in_vectors(op: str) -> None:
    weights = np.random.default_rng(0).normal(size=(64, 96)).astype(np.float32)
    node = helper.make_node(op, ["x", "w"], ["y"], **({"transB": 1} if op == "Gemm" else {}))
    f = cvm.compile(
        cvm.from_onnx(model([node], {"x": (1, 64)}, {"w": weights.T if op == "Gemm" else weights}))
    )
    assert re.search(r"vector (4|8|16|32)\b", f.lower("schedule"))
    x = np.random.default_rng(1).normal(size=(1, 64)).astype(np.float32)
    np.testing.assert_allclose(f(x), x @ weights, atol=1e-5)


COLUMNS = np.arange(1, 10, dtype=np.float32).reshape(1, 3, 3)  # of 3 blocks of 3 elements


@pytest.mark.parametrize(
    ("attributes", "size", "expected"),
    [
        ({}, 5, [1, 6, 15, 14, 9]),
        ({"pads": [1, 1]}, 3, [6, 15, 14]),
        ({"strides": [2]}, 7, [1, 4, 9, 5, 11, 6, 9]),
        ({"dilations": [2]}, 7, [1, 2, 7, 5, 13, 8, 9]),
    ],
)
def test_blocks_are_added_where_they_overlap(
    attributes: dict[str, list[int]], size: int, expected: list[int]
) -> None:
    found = cvm.compile(cvm.from_onnx(col2im(COLUMNS.shape, size, **attributes)))(COLUMNS)
    np.testing.assert_array_equal(found, np.array([[expected]], np.float32))


def test_columns_that_do_not_fit_are_refused() -> None:
    for shape, size, message in (
        ((1, 4, 3), 5, r"columns of shape \(1, 4, 3\), expected \(N, C \* 3, 3\)"),
        ((1, 3, 3), 6, r"columns of shape \(1, 3, 3\), expected \(N, C \* 3, 4\)"),
        ((1, 3, 3), 2, "blocks of 3 elements in 2"),
    ):
        with pytest.raises(cvm.ParseError, match=f"Col2Im.*{message}"):
            cvm.from_onnx(col2im(shape, size))


def col2im(shape: tuple[int, ...], size: int, **attributes: list[int]) -> bytes:
    node = helper.make_node("Col2Im", ["x", "size", "block"], ["y"], **attributes)
    x, y = (helper.make_tensor_value_info(n, 1, s) for n, s in (("x", shape), ("y", [1, 1, size])))
    sizes = [numpy_helper.from_array(np.array([n]), k) for n, k in ((size, "size"), (3, "block"))]
    graph = helper.make_graph([node], "g", [x], [y], sizes)
    sets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=sets, ir_version=9).SerializeToString()
