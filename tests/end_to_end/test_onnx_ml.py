"""Operators of ONNX's domain ai.onnx.ml give what plain Python computes by their definitions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvm
from cvm import cli

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


def test_labels_of_strings(tmp_path: Path) -> None:
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
    onnx.save(made, str(tmp_path / "m.onnx"))
    assert cli.main(["import", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.cvm")]) == 0
    said = '// color is an index of ["red", "green", "blue"]\n'
    assert said in (tmp_path / "m.cvm").read_text()
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


# Trees

MODES = {
    "BRANCH_LEQ": lambda v, t: v <= t,
    "BRANCH_LT": lambda v, t: v < t,
    "BRANCH_GTE": lambda v, t: v >= t,
    "BRANCH_GT": lambda v, t: v > t,
    "BRANCH_EQ": lambda v, t: v == t,
    "BRANCH_NEQ": lambda v, t: v != t,
}
# thresholds, of which features and the numbers beside them are drawn
SPLITS = (0.0, -0.0, 1.0, 0.1, -2.5, 3.0, math.inf, -math.inf, 1e-45, math.nan, 1.1754944e-38)
WEIGHTS = (1.0, -0.75, 0.1, 1e-3, 7.25, 1 / 3)


class Forest:
    """Random trees as ONNX numbers their nodes, and their scores by definition."""

    def __init__(self, seed: int, trees: int, targets: int, dtype: Any, depth: int = 4) -> None:
        self.random = np.random.default_rng(seed)
        self.dtype, self.targets, self.features = dtype, targets, 3
        self.nodes: list[list[Any]] = [[] for _ in range(trees)]
        for tree in self.nodes:
            self.grow(tree, int(self.random.integers(1, depth + 1)))

    def pick(self, values: Sequence[Any]) -> Any:
        return values[int(self.random.integers(len(values)))]

    def grow(self, tree: list[Any], depth: int) -> int:
        """A node with those below it: mode, feature, threshold, missing value, true and false
        node; or the weight of a leaf for each target.
        """
        number = len(tree)
        tree.append([self.dtype(self.pick(WEIGHTS)) for _ in range(self.targets)])
        if depth and (not number or self.random.random() < 0.8):
            mode, split = self.pick([*MODES]), self.dtype(self.pick(SPLITS))
            feature, missing = (int(self.random.integers(n)) for n in (self.features, 2))
            below = self.grow(tree, depth - 1), self.grow(tree, depth - 1)
            tree[number] = (mode, feature, split, missing, *below)
        return number

    def rows(self, count: int) -> np.ndarray:
        near = [np.nextafter(self.dtype(s), self.dtype(d)) for s in SPLITS for d in (-9, 9)]
        return self.random.choice(np.array([*SPLITS, *near], self.dtype), (count, self.features))

    def leaf(self, tree: list[Any], row: np.ndarray) -> list[Any]:
        number = 0
        while isinstance(node := tree[number], tuple):
            mode, feature, split, missing, true, false = node
            holds = MODES[mode](row[feature], split) or (missing and np.isnan(row[feature]))
            number = true if holds else false
        return node

    def scores(self, rows: np.ndarray, aggregate: str = "SUM") -> np.ndarray:
        """The aggregate of each target, in the order of the trees, each sum rounded."""
        y = np.zeros((len(rows), self.targets), self.dtype)
        for n, row in enumerate(rows):
            for c, values in enumerate(zip(*(self.leaf(t, row) for t in self.nodes), strict=True)):
                for k, v in enumerate(values):
                    joins = {"MIN": min, "MAX": max}.get(aggregate, lambda a, b: a + b)
                    y[n, c] = v if k == 0 else joins(y[n, c], v)
        return y / self.dtype(len(self.nodes)) if aggregate == "AVERAGE" else y

    def attributes(self, prefix: str, tensors: bool = False) -> dict[str, Any]:
        """The attributes of versions 1 and 3."""
        every = [(t, n, node) for t, tree in enumerate(self.nodes) for n, node in enumerate(tree)]
        inner = [
            (*node, 0) if isinstance(node, tuple) else ("LEAF", 0, 0, 0, 0, 0) for *_, node in every
        ]
        modes, features, splits, missing, true, false = zip(*(i[:6] for i in inner), strict=True)
        weights = [
            (t, n, c, w)
            for t, n, node in every
            if isinstance(node, list)
            for c, w in enumerate(node)
        ]
        trees, nodes, ids, values = zip(*weights, strict=True)
        found: dict[str, Any] = {
            "nodes_treeids": [t for t, _, _ in every],
            "nodes_nodeids": [n for _, n, _ in every],
            "nodes_modes": modes,
            "nodes_featureids": features,
            "nodes_truenodeids": true,
            "nodes_falsenodeids": false,
            "nodes_missing_value_tracks_true": missing,
            f"{prefix}_treeids": trees,
            f"{prefix}_nodeids": nodes,
            f"{prefix}_ids": ids,
        }
        for name, numbers in (("nodes_values", splits), (f"{prefix}_weights", values)):
            if tensors:
                tensor = numpy_helper.from_array(np.array(numbers, np.float64))
                found[f"{name}_as_tensor"] = tensor
            else:
                found[name] = [float(v) for v in numbers]
        return found


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("trees", [1, 3, 9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tree_ensemble_regressor(aggregate: str, trees: int, dtype: Any) -> None:
    forest = Forest(trees, trees, 1 + trees % 2, dtype)
    attributes = forest.attributes("target", tensors=dtype is np.float64)
    attributes |= {"aggregate_function": aggregate, "n_targets": forest.targets}
    x = forest.rows(40)
    y = apply("TreeEnsembleRegressor", x, **attributes)
    np.testing.assert_array_equal(y, forest.scores(x, aggregate).astype(np.float32))


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_tree_ensemble_classifier(transform: str) -> None:
    forest = Forest(7, 5, 3, np.float32)
    x = forest.rows(30)
    base = np.array([0.5, -0.25, 0.125], np.float32)
    attributes = {
        **forest.attributes("class"),
        "classlabels_strings": ["low", "mid", "high"],
        "base_values": base.tolist(),
        "post_transform": transform,
    }
    classifier = node("TreeEnsembleClassifier", outputs=("label", "y"), **attributes)
    made = model([classifier], {"x": ("f4", ("N", 3))}, ("label", "y"))
    label, y = run(made, x)
    scores = forest.scores(x) + base
    np.testing.assert_array_equal(label, scores.argmax(1))
    assert cvm.from_onnx(made).labels == {"label": ("low", "mid", "high")}
    wanted = [TRANSFORMS[transform](r) for r in scores.tolist()]
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("positive", [False, True])
def test_tree_ensemble_of_two_classes(transform: str, positive: bool) -> None:
    """One score decides: at a half where all weights are positive, else by its sign."""
    forest = Forest(2, 4, 1, np.float32)
    if positive:
        for tree in forest.nodes:
            tree[:] = [[abs(n[0]) / 8] if isinstance(n, list) else n for n in tree]
    x = forest.rows(30)
    attributes = {**forest.attributes("class"), "classlabels_int64s": [3, 8]}
    classifier = node(
        "TreeEnsembleClassifier", outputs=("label", "y"), post_transform=transform, **attributes
    )
    label, y = run(model([classifier], {"x": ("f4", ("N", 3))}, ("label", "y")), x)
    scores = forest.scores(x)[:, 0].tolist()
    assert label.tolist() == [8 if s > (0.5 if positive else 0) else 3 for s in scores]
    pairs = {True: lambda s: (1 - s, s), False: lambda s: (-s, s)}
    if transform == "LOGISTIC":
        pairs[positive] = lambda s: (logistic(-s), logistic(s))
    np.testing.assert_allclose(y, [pairs[positive](s) for s in scores], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tree_ensemble_of_version_5(dtype: Any) -> None:
    """Leaves stand apart from nodes, one of which tests a set of numbers."""
    splits = np.array([0.5, 0.0, 2.0], dtype)
    weights = np.array([1.0, 2.0, 4.0, 8.0], dtype)
    members = np.array([1.0, 4.0, -2.0, math.nan], dtype)
    tensors = {"nodes_splits": splits, "leaf_weights": weights, "membership_values": members}
    tensors["nodes_modes"] = np.array([0, 6, 5], np.uint8)  # LEQ, MEMBER, NEQ
    attributes: dict[str, Any] = {n: numpy_helper.from_array(a) for n, a in tensors.items()}
    attributes |= {
        "n_targets": 2,
        "tree_roots": [0, 2],
        "nodes_featureids": [0, 1, 1],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_truenodeids": [1, 0, 2],
        "nodes_falseleafs": [1, 1, 1],
        "nodes_falsenodeids": [3, 1, 3],
        "nodes_missing_value_tracks_true": [1, 1, 0],
        "leaf_targetids": [0, 1, 1, 0],
    }
    numbers = [math.nan, -math.inf, -2.0, 0.5, 1.0, 1.5, 2.0, 4.0, math.inf]
    x = np.array([[a, b] for a in numbers for b in numbers], dtype)
    wanted = np.zeros((len(x), 2))
    for n, (a, b) in enumerate(x.tolist()):
        is_member = b in (1.0, 4.0, -2.0) or math.isnan(b)
        first = (0 if is_member else 1) if a <= 0.5 or math.isnan(a) else 3
        for leaf in (first, 2 if b != 2.0 else 3):
            wanted[n, [0, 1, 1, 0][leaf]] += weights[leaf]
    y = apply("TreeEnsemble", x, version=5, **attributes)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, wanted)


def test_integers_compare_as_floats() -> None:
    forest = Forest(3, 2, 1, np.float32)
    attributes = {**forest.attributes("target"), "n_targets": 1}
    x = np.array([[k, k - 2, 5 - k] for k in range(-3, 6)], np.int64)
    y = apply("TreeEnsembleRegressor", x, **attributes)
    np.testing.assert_array_equal(y, forest.scores(x.astype(np.float32)))


def broken(**changes: Any) -> Any:
    """A tree of one comparison with other attributes."""
    attributes = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.5, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
        "n_targets": 1,
    }
    return node("TreeEnsembleRegressor", **{**attributes, **changes})


BROKEN = {
    "a feature is outside of the 4 that there are": broken(nodes_featureids=[4, 0, 0]),
    "a node is outside of the 3 that there are": broken(nodes_truenodeids=[7, 0, 0]),
    "a node leads to itself": broken(nodes_truenodeids=[0, 0, 0]),
    "or have a cycle": broken(
        nodes_modes=["BRANCH_LEQ", "BRANCH_LT", "LEAF"],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 2, 0],
    ),
    "two nodes of a tree have one number": broken(nodes_nodeids=[0, 1, 1]),
    "a weight is of a node that does not exist": broken(target_nodeids=[1, 5]),
    "a weight is of a target outside of the 1 that there are": broken(target_ids=[0, 1]),
    "lists of nodes are empty, or of different lengths": broken(nodes_values=[0.5]),
    "a leaf with two weights for one target": broken(target_nodeids=[1, 1]),
    "a node of mode 'BRANCH_XOR'": broken(nodes_modes=["BRANCH_XOR", "LEAF", "LEAF"]),
    "a node of mode 'BRANCH_MEMBER'": broken(nodes_modes=["BRANCH_MEMBER", "LEAF", "LEAF"]),
}


@pytest.mark.parametrize("reason", BROKEN)
def test_trees_that_are_refused(reason: str) -> None:
    with pytest.raises(cvm.ParseError) as caught:
        cvm.from_onnx(model([BROKEN[reason]], {"x": ("f4", ("N", 4))}))
    assert reason in str(caught.value)


# Support vector machines

GAMMA, COEF0 = 0.25, 0.5
KERNELS = {
    "LINEAR": lambda a, b: sum(p * q for p, q in zip(a, b, strict=True)),
    "POLY": lambda a, b: (GAMMA * KERNELS["LINEAR"](a, b) + COEF0) ** 3,
    "RBF": lambda a, b: math.exp(-GAMMA * sum((p - q) ** 2 for p, q in zip(a, b, strict=True))),
    "SIGMOID": lambda a, b: math.tanh(GAMMA * KERNELS["LINEAR"](a, b) + COEF0),
}


def machine(kernel: str, vectors: np.ndarray, coefficients: np.ndarray, rho: Any) -> dict[str, Any]:
    return {
        "kernel_type": kernel,
        "kernel_params": [GAMMA, COEF0, 3.0],
        "support_vectors": vectors.ravel().tolist(),
        "coefficients": coefficients.ravel().tolist(),
        "rho": np.asarray(rho, np.float32).tolist(),
    }


@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("kernel", KERNELS)
def test_svm_regressor(kernel: str, one_class: int) -> None:
    x, vectors, coefficients = floats(6, 3), floats(5, 3), floats(5)
    attributes = machine(kernel, vectors, coefficients, [0.125])
    y = apply("SVMRegressor", x, n_supports=5, one_class=one_class, **attributes)
    pairs = [[KERNELS[kernel](a, v) for v in vectors.tolist()] for a in x.tolist()]
    wanted = np.array(pairs) @ coefficients.astype(float)[:, None] + 0.125
    wanted = np.where(wanted > 0, 1, -1) if one_class else wanted
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)


def pair_scores(
    x: np.ndarray, vectors: np.ndarray, coefficients: np.ndarray, rho: Sequence[float]
) -> list[list[float]]:
    """The decisions between all pairs of three classes of two vectors each, by RBF."""
    found: list[list[float]] = []
    for row in x.tolist():
        of = [KERNELS["RBF"](row, v) for v in vectors.tolist()]
        scores: list[float] = []
        for i in range(3):
            for j in range(i + 1, 3):
                of_i = sum(coefficients[j - 1, m] * of[m] for m in (2 * i, 2 * i + 1))
                of_j = sum(coefficients[i, m] * of[m] for m in (2 * j, 2 * j + 1))
                scores.append(float(of_i + of_j) + rho[len(scores)])
        found.append(scores)
    return found


def votes(scores: Sequence[float]) -> int:
    """The class that wins most pairs, the first of several."""
    won = [0, 0, 0]
    for score, (i, j) in zip(scores, ((0, 1), (0, 2), (1, 2)), strict=True):
        won[i if score > 0 else j] += 1
    return won.index(max(won))


def coupled(scores: Sequence[float], a: Sequence[float], b: Sequence[float]) -> list[float]:
    """Probabilities of three classes from those of pairs, by the iteration of libsvm."""
    r = np.zeros((3, 3))
    for n, (i, j) in enumerate(((0, 1), (0, 2), (1, 2))):
        r[i, j] = min(max(logistic(-(scores[n] * a[n] + b[n])), 1e-7), 1 - 1e-7)
        r[j, i] = 1 - r[i, j]
    q = np.array([[-r[j, i] * r[i, j] for j in range(3)] for i in range(3)])
    for i in range(3):
        q[i, i] = sum(r[j, i] ** 2 for j in range(3) if j != i)
    p = np.full(3, 1 / 3)
    for _ in range(100):
        qp = q @ p
        pqp = p @ qp
        if np.abs(qp - pqp).max() < 0.005 / 3:
            break
        for i in range(3):
            diff = (pqp - qp[i]) / q[i, i]
            p[i] += diff
            pqp = (pqp + diff * (diff * q[i, i] + 2 * qp[i])) / (1 + diff) ** 2
            qp = (qp + diff * q[i]) / (1 + diff)
            p /= 1 + diff
    return p.tolist()


@pytest.mark.parametrize("probable", [False, True])
def test_svm_classifier(probable: bool) -> None:
    x, vectors, coefficients = floats(9, 2), floats(6, 2), floats(2, 6)
    rho, a, b = [0.125, -0.25, 0.5], [-1.5, -0.75, -2.0], [0.25, 0.0, -0.125]
    attributes = machine("RBF", vectors, coefficients, rho)
    if probable:
        attributes |= {"prob_a": a, "prob_b": b}
    classifier = node(
        "SVMClassifier",
        outputs=("label", "y"),
        classlabels_strings=["a", "b", "c"],
        vectors_per_class=[2, 2, 2],
        **attributes,
    )
    made = model([classifier], {"x": ("f4", ("N", 2))}, ("label", "y"))
    label, y = run(made, x)
    scores = pair_scores(x, vectors, coefficients, rho)
    assert label.tolist() == [votes(s) for s in scores]
    wanted = [coupled(s, a, b) for s in scores] if probable else scores
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)
    assert cvm.from_onnx(made).labels == {"label": ("a", "b", "c")}


def test_svm_classifier_without_vectors() -> None:
    """A linear machine decides between two classes by its larger score."""
    x, w = floats(7, 3), floats(2, 3)
    attributes = {"coefficients": w.ravel().tolist(), "rho": [0.25]}
    classifier = node(
        "SVMClassifier", outputs=("label", "y"), classlabels_ints=[4, 9], **attributes
    )
    label, y = run(model([classifier], {"x": ("f4", ("N", 3))}, ("label", "y")), x)
    scores = x.astype(float) @ w.T.astype(float) + 0.25
    assert label.tolist() == [9 if max(s) > 0 else [4, 9][int(s.argmax())] for s in scores]
    np.testing.assert_allclose(y, scores, rtol=1e-5, atol=1e-6)
