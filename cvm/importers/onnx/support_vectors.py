"""The support vector machines of ONNX's domain `ai.onnx.ml`.

Scores of pairs of classes are summed in f64, as onnxruntime does, and probabilities of several
classes are coupled by the iteration of Wu, Lin and Weng (2004), until each row's has converged.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import F32, F64, I32
from cvm.importers.graph.elementwise import clipped, number, where
from cvm.importers.graph.indexing import gathered
from cvm.importers.graph.loops import while_loop
from cvm.importers.graph.reductions import total
from cvm.importers.graph.rules import Known, Unsupported, known_size

from .importer import At
from .rules import rule
from .scores import (
    class_labels,
    floats,
    labels_at,
    of_two_classes,
    post_transform,
    rows_of,
    transformed,
)

ITERATIONS = 100  # of the coupling, at most (onnxruntime)
TOLERANCE = 0.005  # of the coupling, for all classes together (onnxruntime)
LEAST = 1e-7  # probability of a class beside another one (onnxruntime)
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def kernel(at: At, x: Node, vectors: np.ndarray) -> Node:
    """The node's kernel of each row and each support vector."""
    name = at["kernel_type"] or "LINEAR"
    gamma, coef0, degree = [float(v) for v in floats(at, "kernel_params")[:3]] or [0.0] * 3
    if name not in KERNELS:
        raise Unsupported(f"the kernel {name!r}")
    if name == "RBF":
        away = x.with_ones((2,)) - at.node(np.ascontiguousarray(vectors.T))
        return (total(away * away, (1,)) * -gamma).scalar("exp")
    product = at.apply("cvm.dense", x, vectors)
    if name == "LINEAR":
        return product
    inner = product * gamma + coef0
    if name == "SIGMOID":
        return inner.scalar("tanh")
    if degree in (2, 3):
        return inner * inner if degree == 2 else inner * inner * inner
    return inner.scalar("pow", degree)


def support_vectors(at: At, x: Node, count: int) -> np.ndarray:
    """The node's support vectors, in rows."""
    vectors = floats(at, "support_vectors")
    features = known_size(x.shape[1], "a row of features")
    if vectors.size != count * features:
        raise ValueError(f"{vectors.size} numbers of {count} vectors of {features} features")
    return vectors.reshape(count, features)


def matrix(at: At, rows: int, columns: int) -> np.ndarray:
    """The node's coefficients, of which more may be given."""
    coefficients = floats(at, "coefficients")
    if coefficients.size < max(rows * columns, 1):
        raise ValueError(f"{coefficients.size} coefficients of {rows} x {columns}")
    return coefficients[: rows * columns].reshape(rows, columns)


def offsets(at: At, count: int) -> np.ndarray:
    rho = floats(at, "rho")
    if len(rho) < count:
        raise ValueError(f"{len(rho)} numbers in rho, which are {count}")
    return rho[:count]


@rule("ai.onnx.ml.SVMRegressor")
def svm_regressor(at: At, x: Node) -> Known:
    """Scores without a post-transform, as in onnxruntime."""
    _ = at["post_transform"], at["kernel_type"], at["kernel_params"], at["support_vectors"]
    x, count = rows_of(x), at["n_supports"] or 0
    of = kernel(at, x, support_vectors(at, x, count)) if count else x
    weights = matrix(at, 1, known_size(of.shape[1], "a row of features"))
    score = at.apply("cvm.dense", of, weights, offsets(at, 1))
    if not at["one_class"]:
        return score
    return score.scalar("gt", 0.0).scalar("switch", number(score, 1), number(score, -1))


@rule("ai.onnx.ml.SVMClassifier")
def svm_classifier(at: At, x: Node) -> Any:
    """Labels of strings are the index of the label, and the strings stand in `module.labels`."""
    _ = at["kernel_type"], at["kernel_params"], at["support_vectors"]
    _ = at["prob_a"], at["prob_b"], at["vectors_per_class"]
    labels = class_labels(at, "classlabels_strings", "classlabels_ints")
    if (classes := len(labels)) < 2:
        raise Unsupported("one class")
    x, sizes = rows_of(x), np.array(at["vectors_per_class"] or [0] * classes, np.int64)
    if len(sizes) != classes or (sizes < 0).any():
        raise ValueError(f"numbers of support vectors of {len(sizes)} classes, not {classes}")
    if not sizes.sum():
        return linear_classes(at, x, labels)
    pairs = [*combinations(range(classes), 2)]
    scores = pair_scores(at, x, sizes, pairs)
    votes = at.apply("builtin.argmax", votes_of(at, scores, pairs, classes), axis=1)
    label, scores, name = labels_at(at, labels, votes), scores.cast(F32), post_transform(at)
    if at["prob_a"]:
        return [label, transformed(probabilities(at, scores, pairs, classes), name)]
    if classes > 2:
        return [label, transformed(scores, name)]
    return [label, of_two_classes(at, scores, name, name != "NONE")]


def linear_classes(at: At, x: Node, labels: np.ndarray) -> Any:
    """The label and the scores of a linear machine, of which only the first offset is of use."""
    weights = matrix(at, len(labels), known_size(x.shape[1], "a row of features"))
    scores = at.apply("cvm.dense", x, weights, np.repeat(offsets(at, 1), len(labels)))
    best = at.apply("builtin.argmax", scores, axis=1)
    if len(labels) == 2:
        limit = ("ge", 0.5) if (floats(at, "coefficients") >= 0).all() else ("gt", 0.0)
        is_second = scores.reduce("max", (1,)).scalar(*limit)
        best = where(is_second, best.constant(np.array(1, np.int64)), best)
    return [labels_at(at, labels, best), transformed(scores, post_transform(at))]


def pair_scores(at: At, x: Node, sizes: np.ndarray, pairs: list[tuple[int, int]]) -> Node:
    """The decision of each pair of classes in f64, positive for the first."""
    count = int(sizes.sum())
    coefficients = matrix(at, len(sizes) - 1, count)
    ends = np.cumsum(sizes)
    weights = np.zeros((len(pairs), count))
    for row, (i, j) in zip(weights, pairs, strict=True):
        for own, other in ((i, j - 1), (j, i)):
            span = slice(ends[own] - sizes[own], ends[own])
            row[span] = coefficients[other, span]
    of = kernel(at, x, support_vectors(at, x, count)).cast(F64)
    return at.apply("cvm.dense", of, weights, offsets(at, len(pairs)).astype(np.float64))


def votes_of(at: At, scores: Node, pairs: list[tuple[int, int]], classes: int) -> Node:
    """The number of pairs that each class wins."""
    first, second = (np.eye(classes, dtype=np.int32)[[p[k] for p in pairs]] for k in (0, 1))
    wins = scores.scalar("gt", 0.0).cast(I32)
    return at.apply(
        "cvm.dense", wins, np.ascontiguousarray((first - second).T), second.sum(0, np.int32)
    )


def probabilities(at: At, scores: Node, pairs: list[tuple[int, int]], classes: int) -> Node:
    """The probability of each class of those that pairs give (Platt), coupled."""
    a, b = (floats(at, name) for name in ("prob_a", "prob_b"))
    if len(a) != len(b) or len(a) < len(pairs):
        raise ValueError(
            f"{len(a)} and {len(b)} numbers in prob_a and prob_b of {len(pairs)} pairs"
        )
    inner = scores * at.node(a[: len(pairs)]) + at.node(b[: len(pairs)])
    of_first = clipped(
        1.0 - inner.scalar("sigmoid"), LEAST, float(np.float32(1) - np.float32(LEAST))
    )
    # of a class, in rows, beside another one, in columns
    place = np.zeros((classes, classes), np.int64)
    upper = np.zeros((classes, classes), bool)
    for k, (i, j) in enumerate(pairs):
        place[i, j] = place[j, i] = k
        upper[i, j] = True
    given = at.apply("builtin.gather", of_first, place, axes=(1,), mode="clip")
    beside = where(at.node(upper), given, 1.0 - given)
    other = beside.dimshuffle((0, 2, 1))
    diagonal = at.node(np.eye(classes, dtype=bool))
    squares = where(diagonal, 0.0, other * other)
    q = where(diagonal, total(squares, (2,)).with_ones((2,)), -(other * beside))
    return coupled(at, q, classes)


def coupled(at: At, q: Node, classes: int) -> Node:
    """The probabilities p of each row that minimize p' q p, by coordinates in turn."""
    tolerance = float(np.float32(TOLERANCE) / np.float32(classes))
    start = gathered(at, q, np.array(0), 2)
    uniform = start.scalar("second", float(np.float32(1) / np.float32(classes)))

    def error(p: Node) -> tuple[Node, Node, Node]:
        """q p, p' q p, and whether the coupling has converged, for each row."""
        qp = total(q * p.with_ones((1,)), (2,))
        pqp = total(p * qp, (1,))
        largest = (qp - pqp.with_ones((1,))).scalar("abs_").reduce("max", (1,))
        return qp, pqp, largest.scalar("lt", tolerance)

    def step(values: list[Node]) -> list[Node]:
        p, number = values
        qp, pqp, is_done = error(p)
        moved = p
        for i in range(classes):
            row = gathered(at, q, np.array(i), 1)
            own, of = (gathered(at, v, np.array(i), 1) for v in (row, qp))
            diff = (pqp - of) / own
            scale = diff + 1.0
            unit = at.node(np.eye(classes, dtype=bool)[i])
            wide, by = diff.with_ones((1,)), scale.with_ones((1,))
            moved = (where(unit, moved + wide, moved)) / by
            pqp = (pqp + diff * (diff * own + of * 2.0)) / scale / scale
            qp = (qp + wide * row) / by
        after = where(is_done.with_ones((1,)), p, moved)
        following = number + 1
        _, _, finished = error(after)
        goes_on = finished.scalar("invert").reduce("any", (0,))
        return [
            goes_on.scalar("and_", following.scalar("lt", ITERATIONS)),
            after,
            following.cast(I32),
        ]

    going = error(uniform)[2].scalar("invert").reduce("any", (0,))
    first = at.node(np.array(0, np.int32))
    return while_loop(at.importer, "coupled", going, [uniform, first], step)[0]
