"""Operators of ONNX's domain ai.onnx.ml give what plain Python computes by their definitions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import cvm

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper

ML = "ai.onnx.ml"
CODES = {"f4": 1, "i4": 6, "i8": 7, "f8": 11}
RANDOM = np.random.default_rng(5)


def model(
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[str, Sequence[Any]]],
    outputs: Sequence[str] = ("y",),
    constants: Sequence[Any] = (),
    version: int = 3,
) -> Any:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, CODES[t], shape) for n, (t, shape) in inputs.items()],
        [helper.make_tensor_value_info(n, 1, ()) for n in outputs],
        list(constants),
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(ML, version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def node(op: str, *, outputs: Sequence[str] = ("y",), **attributes: Any) -> Any:
    return helper.make_node(op, ["x"], outputs, domain=ML, **attributes)


def run(made: Any, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """The results on all targets, which have equal integers and close floats."""
    module = cvm.from_onnx(made)
    found = [cvm.compile(module, target=t)(*arrays) for t in ("reference", "cpu")]
    found = [f if isinstance(f, tuple) else (f,) for f in found]
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-7)
    return found[1]


def apply(op: str, x: np.ndarray, version: int = 3, **attributes: Any) -> np.ndarray:
    """The only result of one operator, with an open number of rows."""
    shape = ("N", *x.shape[1:]) if x.ndim > 1 else x.shape
    given = {"x": (x.dtype.str[1:], shape)}
    return run(model([node(op, **attributes)], given, version=version), x)[0]


def floats(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def logistic(v: float) -> float:
    return 1 / (1 + math.exp(-v))


def softmax(row: Sequence[float]) -> list[float]:
    powers = [math.exp(v - max(row)) for v in row]
    return [p / sum(powers) for p in powers]


def softmax_zero(row: Sequence[float]) -> list[float]:
    """Softmax over the scores that are not zero."""
    powers = [math.exp(v - max(row)) if abs(v) > 1e-7 else 0.0 for v in row]
    return [p / sum(powers) for p in powers]


TRANSFORMS = {
    "NONE": list,
    "LOGISTIC": lambda row: [logistic(v) for v in row],
    "SOFTMAX": softmax,
    "SOFTMAX_ZERO": softmax_zero,
}


# Preprocessing


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "i4"])
def test_scaler(dtype: str) -> None:
    x = (RANDOM.normal(size=(5, 3)) * 9).astype(dtype)
    offset, scale = [0.5, -1.0, 2.0], [2.0, 0.25, 3.0]
    y = apply("Scaler", x, offset=offset, scale=scale)
    wanted = (x - np.array(offset, np.float32)) * np.array(scale, np.float32)
    np.testing.assert_array_equal(y, wanted.astype(np.float32))
    one = apply("Scaler", x, offset=[1.0], scale=[0.5])
    np.testing.assert_array_equal(one, ((x - 1) * 0.5).astype(np.float32))


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str) -> None:
    x = floats(4, 5)
    x[1] = 0
    sizes = {"MAX": max, "L1": lambda r: sum(map(abs, r)), "L2": lambda r: math.hypot(*r)}
    wanted = [[v / (sizes[norm](row) or 1) for v in row] for row in x.tolist()]
    np.testing.assert_allclose(apply("Normalizer", x, norm=norm), wanted, rtol=1e-6)


def test_binarizer() -> None:
    x = np.array([[-1, 0.25, np.nan], [0.3, 7, 0.25]], np.float32)
    y = apply("Binarizer", x, threshold=0.25)
    np.testing.assert_array_equal(y, [[0, 0, 0], [1, 1, 0]])


def test_imputer() -> None:
    x = np.array([[1, np.nan, 3], [np.nan, 5, np.nan]], np.float32)
    each = apply("Imputer", x, imputed_value_floats=[7.0, 8.0, 9.0], replaced_value_float=math.nan)
    np.testing.assert_array_equal(each, [[1, 8, 3], [7, 5, 9]])
    one = apply("Imputer", x, imputed_value_floats=[7.0], replaced_value_float=3.0)
    np.testing.assert_array_equal(one, [[1, np.nan, 7], [np.nan, 5, np.nan]])
    whole = np.array([[1, -1], [-1, 4]], np.int64)
    y = apply("Imputer", whole, imputed_value_int64s=[10, 20], replaced_value_int64=-1)
    np.testing.assert_array_equal(y, [[1, 20], [10, 4]])


@pytest.mark.parametrize("places", [[2, 0, 2], [[1]]])
def test_array_feature_extractor(places: Any) -> None:
    x, index = floats(4, 3), np.array(places, np.int64)
    made = model(
        [helper.make_node("ArrayFeatureExtractor", ["x", "i"], ["y"], domain=ML)],
        {"x": ("f4", ("N", 3))},
        constants=[numpy_helper.from_array(index, "i")],
    )
    np.testing.assert_array_equal(run(made, x)[0], x[:, index.reshape(-1)])


def test_feature_vectorizer() -> None:
    made = model(
        [
            helper.make_node(
                "FeatureVectorizer", ["x", "z"], ["y"], domain=ML, inputdimensions=[2, 3]
            )
        ],
        {"x": ("f4", ("N", 4)), "z": ("i8", ("N", 1))},
    )
    x, z = floats(3, 4), np.array([[1], [2], [3]], np.int64)
    wanted = np.concatenate([x[:, :2], z, np.zeros((3, 2))], 1).astype(np.float32)
    np.testing.assert_array_equal(run(made, x, z)[0], wanted)


def test_one_hot_encoder() -> None:
    x = np.array([[3, 9], [5, 4]], np.int64)
    y = apply("OneHotEncoder", x, cats_int64s=[3, 4, 5], zeros=1)
    wanted = [[[float(v == c) for c in (3, 4, 5)] for v in row] for row in x.tolist()]
    np.testing.assert_array_equal(y, wanted)
    given = {"x": ("i8", ("N", 2))}
    strict = cvm.compile(
        cvm.from_onnx(model([node("OneHotEncoder", cats_int64s=[3, 4], zeros=0)], given))
    )
    np.testing.assert_array_equal(strict(np.array([[3, 4]])), [[[1, 0], [0, 1]]])
    with pytest.raises(cvm.Error, match="outside of its axis"):
        strict(x)


ENCODERS: dict[str, tuple[dict[str, Any], Any, Any, int]] = {
    "integers": ({"keys_int64s": [4, 7, 4], "values_int64s": [1, 2, 3]}, [4, 7, 5], [1, 2, -1], 2),
    "floats": (
        {"keys_int64s": [4, 7], "values_floats": [0.5, 2.5], "default_float": 9.0},
        [7, 4, 0],
        [2.5, 0.5, 9.0],
        4,
    ),
    "NaN": (
        {"keys_floats": [math.nan, 1.5], "values_int64s": [3, 4], "default_int64": 0},
        [1.5, math.nan, 2.0],
        [4, 3, 0],
        2,
    ),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_label_encoder(name: str) -> None:
    attributes, x, wanted, version = ENCODERS[name]
    x = np.array(x, np.int64 if "keys_int64s" in attributes else np.float32)
    y = apply("LabelEncoder", x, version, **attributes)
    np.testing.assert_array_equal(y, np.array(wanted, y.dtype))


def test_label_encoder_of_tensors() -> None:
    tensors = {
        "keys_tensor": np.array([1.0, 2.0]),
        "values_tensor": np.array([5, 6], np.int32),
        "default_tensor": np.array([-7], np.int32),
    }
    given = {k: numpy_helper.from_array(v) for k, v in tensors.items()}
    y = apply("LabelEncoder", np.array([2.0, 3.0]), 4, **given)
    assert y.dtype == np.int32 and y.tolist() == [6, -7]


# Strings


def test_labels_of_strings() -> None:
    """Strings are indices, which may be moved and encoded; other uses are refused by name."""
    names = helper.make_tensor("names", 8, [3], [b"red", b"green", b"blue"])
    chain = [
        helper.make_node("ArgMax", ["x"], ["i"], axis=1),
        helper.make_node("ArrayFeatureExtractor", ["names", "i"], ["s"], domain=ML),
        helper.make_node("Reshape", ["s", "flat"], ["color"]),
        helper.make_node(
            "LabelEncoder",
            ["color"],
            ["number"],
            domain=ML,
            keys_strings=["blue", "red"],
            values_int64s=[10, 20],
            default_int64=-5,
        ),
        helper.make_node(
            "LabelEncoder", ["i"], ["word"], domain=ML, keys_int64s=[1], values_strings=["one"]
        ),
    ]
    constants = [names, numpy_helper.from_array(np.array([-1], np.int64), "flat")]
    made = model(chain, {"x": ("f4", ("N", 3))}, ("color", "number", "word"), constants, 2)
    color, number, word = run(made, np.eye(3, dtype=np.float32))
    labels = cvm.from_onnx(made).labels
    assert [labels["color"][k] for k in color] == ["red", "green", "blue"]
    assert number.tolist() == [20, -5, 10]
    assert [labels["word"][k] for k in word.reshape(-1)] == ["_Unused", "one", "_Unused"]
    compared = [*chain[:3], helper.make_node("Equal", ["color", "names"], ["y"])]
    with pytest.raises(cvm.ParseError, match="Equal: strings is not supported"):
        cvm.from_onnx(model(compared, {"x": ("f4", ("N", 3))}, constants=constants))


# Linear models


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_classifier(transform: str) -> None:
    x, w, b = floats(6, 4), floats(3, 4), floats(3)
    attributes = {
        "coefficients": w.ravel().tolist(),
        "intercepts": b.tolist(),
        "post_transform": transform,
    }
    scores = (x.astype(float) @ w.T.astype(float) + b).tolist()
    for labels in ({"classlabels_ints": [7, -2, 5]}, {"classlabels_strings": ["a", "b", "c"]}):
        classifier = node("LinearClassifier", outputs=("label", "y"), **attributes, **labels)
        made = model([classifier], {"x": ("f4", ("N", 4))}, ("label", "y"))
        label, y = run(made, x)
        best = [row.index(max(row)) for row in scores]
        wanted = [7, -2, 5] if "classlabels_ints" in labels else [0, 1, 2]
        assert label.dtype == np.int64 and label.tolist() == [wanted[k] for k in best]
        np.testing.assert_allclose(y, [TRANSFORMS[transform](r) for r in scores], rtol=1e-5)
    assert cvm.from_onnx(made).labels == {"label": ("a", "b", "c")}


def test_linear_classifier_of_one_score() -> None:
    x, w = floats(6, 4), floats(1, 4)
    scores = (x.astype(float) @ w[0].astype(float) + 0.25).tolist()
    classifier = node(
        "LinearClassifier",
        outputs=("label", "y"),
        coefficients=w.ravel().tolist(),
        intercepts=[0.25],
        classlabels_ints=[3, 8],
    )
    label, y = run(model([classifier], {"x": ("f4", ("N", 4))}, ("label", "y")), x)
    assert label.tolist() == [8 if s > 0 else 3 for s in scores]
    np.testing.assert_allclose(y, [[1 - s, s] for s in scores], rtol=1e-5)


@pytest.mark.parametrize("targets", [1, 2])
def test_linear_regressor(targets: int) -> None:
    x, w, b = floats(5, 4), floats(targets, 4), floats(targets)
    attributes = {"coefficients": w.ravel().tolist(), "intercepts": b.tolist(), "targets": targets}
    y = apply("LinearRegressor", x, **attributes)
    np.testing.assert_allclose(y, x.astype(float) @ w.T.astype(float) + b, rtol=1e-5, atol=1e-6)


REFUSED = {
    "5 coefficients of 2 targets and 4 features": node(
        "LinearRegressor", coefficients=[1.0] * 5, targets=2
    ),
    "expected a value for each of 4 features, got 3": node("Scaler", offset=[0.0], scale=[1.0] * 3),
    "the norm 'L3' is not supported": node("Normalizer", norm="L3"),
    "strings as categories is not supported": node("OneHotEncoder", cats_strings=["a"]),
    "strings as keys is not supported": node("LabelEncoder", keys_strings=["a"], values_int64s=[1]),
    "the language has no maps": node("DictVectorizer", int64_vocabulary=[1]),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refused(reason: str) -> None:
    with pytest.raises(cvm.ParseError) as caught:
        cvm.from_onnx(model([REFUSED[reason]], {"x": ("f4", ("N", 4))}))
    assert reason in str(caught.value)
