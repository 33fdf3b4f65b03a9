"""The linear models of ONNX's domain `ai.onnx.ml`."""

from __future__ import annotations

from typing import Any

from cvm.dialect.ir.builder import Node
from cvm.importers.graph.rules import Known, known_size

from .importer import At
from .rules import rule
from .scores import (
    class_labels,
    floats,
    label_of_largest,
    label_of_sign,
    of_two_classes,
    post_transform,
    rows_of,
    transformed,
    transformed_alone,
)


def linear_scores(at: At, x: Node, targets: int) -> Node:
    """The product with the node's coefficients, a row for each target, and its intercepts."""
    rows = rows_of(x)
    coefficients = floats(at, "coefficients")
    features = known_size(rows.shape[1], "a row of features")
    if coefficients.size != targets * features:
        raise ValueError(
            f"{coefficients.size} coefficients of {targets} targets and {features} features"
        )
    weights = coefficients.reshape(targets, features)
    intercepts = floats(at, "intercepts")
    bias = [intercepts] if len(intercepts) == targets else []
    return at.apply("cvm.dense", rows, weights, *bias)


@rule("ai.onnx.ml.LinearRegressor")
def linear_regressor(at: At, x: Node) -> Known:
    targets = at["targets"] or 1
    scores = linear_scores(at, x, targets)
    return (transformed if targets > 1 else transformed_alone)(scores, post_transform(at))


@rule("ai.onnx.ml.LinearClassifier")
def linear_classifier(at: At, x: Node) -> Any:
    """Labels of strings are the index of the label, and the strings stand in `module.labels`."""
    _ = at["multi_class"]  # which says how the model was trained
    labels = class_labels(at, "classlabels_ints", "classlabels_strings")
    targets = len(at["intercepts"] or []) or len(labels)
    scores = linear_scores(at, x, targets)
    if targets > 1:
        return [label_of_largest(at, labels, scores), transformed(scores, post_transform(at))]
    label = label_of_sign(at, labels, scores.dimshuffle((0,)).scalar("gt", 0.0))
    if len(labels) != 2:
        return [label, transformed_alone(scores, post_transform(at))]
    return [label, of_two_classes(at, scores, post_transform(at), True)]
