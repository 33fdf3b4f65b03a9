"""Class labels and post-transforms of scores, which the models of ONNX's domain `ai.onnx.ml`
share.

Scores are computed in f32, as onnxruntime does. A label that is a string is its index: the strings
are kept beside the program.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import F32, F64, I64
from cvm.importers.graph.elementwise import number, where
from cvm.importers.graph.indexing import gathered
from cvm.importers.graph.movement import joined
from cvm.importers.graph.reductions import softmax_along, total
from cvm.importers.graph.rules import Unsupported

from .importer import At

NEAR_ZERO = np.float32(1e-7)  # scores within it are zeros to SOFTMAX_ZERO (onnxruntime)


def rows_of(x: Node, wide: bool = False) -> Node:
    """The samples as rows of f32, or of f64 where those are given and kept; a vector is a row."""
    if x.rank not in (1, 2):
        raise ValueError(f"expected samples of rank 1 or 2, got {x.rank}")
    x = x if wide and x.element is F64 else x.cast(F32)
    return x if x.rank == 2 else x.with_ones((0,))


def floats(at: At, name: str, dtype: type[np.floating] = np.float32) -> np.ndarray:
    """An attribute of floats, empty where the node has none."""
    return np.array(at[name] or [], dtype)


def class_labels(at: At, *names: str) -> np.ndarray:
    """The labels of the first attribute that has some, integers or strings."""
    given = [np.array(at[n]) for n in names if at[n]]
    if not given:
        raise ValueError(f"expected labels in one of {', '.join(names)}")
    return given[0]


def labels_at(at: At, labels: np.ndarray, index: Node) -> Node:
    """The label at an index: a number, or the index itself, whose strings are kept."""
    if labels.dtype.kind != "U":
        return gathered(at, labels.astype(np.int64), index.cast(I64), 0)
    index = index.cast(I64)
    at.importer.labels[index.value] = tuple(labels.tolist())
    return index


def label_of_largest(at: At, labels: np.ndarray, scores: Node) -> Node:
    """The label of the first of the largest scores of each row."""
    if scores.shape[1] != len(labels):
        raise ValueError(f"{len(labels)} labels for {scores.shape[1]} scores")
    return labels_at(at, labels, at.apply("builtin.argmax", scores, axis=1))


def label_of_sign(at: At, labels: np.ndarray, is_positive: Node) -> Node:
    """The second of two labels where a condition on the only score holds; of others 1 and 0."""
    two = (
        labels if len(labels) == 2 else np.array(["0", "1"] if labels.dtype.kind == "U" else [0, 1])
    )
    return labels_at(at, two, is_positive)


# Post-transforms


def probit(x: Node) -> Node:
    """The inverse of the normal distribution, as onnxruntime approximates that of erf."""
    v = x.cast(F32) * 2.0 - 1.0
    log = ((1.0 - v) * (v + 1.0)).cast(F64).scalar("log").cast(F32)
    half = log * 0.5 + float(2 / (np.float32(3.14159) * np.float32(0.147)))
    root = ((half * half - log * float(1 / np.float32(0.147))).scalar("sqrt") - half).scalar("sqrt")
    return where(v.scalar("lt", 0.0), -root, root) * 1.41421356


def softmax_zero(x: Node) -> Node:
    """Softmax in which a score of zero has no part in the sum."""
    largest = x.reduce("max", (1,)).with_ones((1,))
    is_zero = x.scalar("abs_").scalar("le", number(x, float(NEAR_ZERO)))
    powers = (x - largest).scalar("exp")
    whole = total(where(is_zero, 0.0, powers), (1,)).with_ones((1,))
    return where(is_zero, x * (-largest).scalar("exp"), powers) / whole


POST_TRANSFORMS: dict[str, Callable[[Node], Node]] = {
    "NONE": lambda x: x,
    "LOGISTIC": lambda x: x.scalar("sigmoid"),
    "SOFTMAX": lambda x: softmax_along(x, 1),
    "SOFTMAX_ZERO": softmax_zero,
    "PROBIT": probit,
}


def post_transform(at: At) -> str:
    if (name := at["post_transform"] or "NONE") not in POST_TRANSFORMS:
        raise Unsupported(f"the post-transform {name!r}")
    return name


def transformed(scores: Node, name: str) -> Node:
    """The scores of each row after a post-transform."""
    return POST_TRANSFORMS[name](scores)


def transformed_alone(score: Node, name: str) -> Node:
    """The only score of each row; onnxruntime transforms it for PROBIT alone."""
    return probit(score) if name == "PROBIT" else score


def of_two_classes(at: At, score: Node, name: str, is_probability: bool) -> Node:
    """The scores of two classes from that of the second, by the cases of onnxruntime."""
    if name == "PROBIT":
        raise Unsupported("PROBIT of the only score of two classes")
    if name == "LOGISTIC":
        return transformed(joined(at, [-score, score], 1), name)
    return joined(at, [1.0 - score if is_probability else -score, score], 1)
