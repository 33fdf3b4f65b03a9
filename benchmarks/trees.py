"""Ensembles of 100 decision trees over 20 features, for one row and for 1,000, on one thread."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx_models import on_onnxruntime
from side_by_side import Case, installed

import cvm

TREES, FEATURES = 100, 20


def model(depth: int, classes: int) -> bytes:
    """Whole trees of random comparisons, as ONNX's regressor, or its classifier."""
    random = np.random.default_rng(depth)
    helper: Any = installed("onnx").helper
    inner, nodes = 2**depth - 1, 2 ** (depth + 1) - 1  # in the order of their levels
    number = np.arange(nodes)
    is_leaf = number >= inner
    prefix, targets = ("class", classes) if classes else ("target", 1)
    leaves = TREES * (nodes - inner) * targets
    attributes = {
        "nodes_treeids": np.repeat(np.arange(TREES), nodes),
        "nodes_nodeids": np.tile(number, TREES),
        "nodes_featureids": random.integers(0, FEATURES, TREES * nodes),
        "nodes_values": random.normal(size=TREES * nodes),
        "nodes_truenodeids": np.tile(np.where(is_leaf, 0, 2 * number + 1), TREES),
        "nodes_falsenodeids": np.tile(np.where(is_leaf, 0, 2 * number + 2), TREES),
        f"{prefix}_treeids": np.repeat(np.arange(TREES), (nodes - inner) * targets),
        f"{prefix}_nodeids": np.tile(np.repeat(number[inner:], targets), TREES),
        f"{prefix}_ids": np.tile(np.arange(targets), leaves // targets),
        f"{prefix}_weights": random.random(leaves) / TREES,
    }
    given: dict[str, Any] = {n: a.tolist() for n, a in attributes.items()}
    given["nodes_modes"] = np.tile(np.where(is_leaf, "LEAF", "BRANCH_LEQ"), TREES).tolist()
    given |= {"classlabels_int64s": [*range(classes)]} if classes else {"n_targets": 1}
    outputs = ["label", "y"] if classes else ["y"]
    op = "TreeEnsembleClassifier" if classes else "TreeEnsembleRegressor"
    node = helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **given)
    values = [helper.make_tensor_value_info("x", 1, ["N", FEATURES])]
    results = [helper.make_tensor_value_info(n, 1 if n == "y" else 7, ()) for n in outputs]
    graph = helper.make_graph([node], "trees", values, results)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def ensemble(depth: int, classes: int, rows: int) -> Case:
    proto = model(depth, classes)
    x = np.random.default_rng(rows).normal(size=(rows, FEATURES)).astype(np.float32)
    f = cvm.compile(cvm.from_onnx(proto))
    case = Case({"cvm": lambda: f(x)}, before={"cvm": lambda: cvm.set_num_threads(1)})
    on_onnxruntime(case.contenders, proto, x)
    if classes:  # the labels are compared
        case.results |= {**case.contenders, "cvm": lambda: f(x)[0]}
    return case


WORK = {
    f"{'classifier' if classes else 'regressor'}, depth {depth}, {rows:,} row{'s' * (rows > 1)}": (
        lambda depth=depth, classes=classes, rows=rows: ensemble(depth, classes, rows)
    )
    for classes, depth in ((0, 6), (0, 8), (0, 10), (4, 8))
    for rows in (1, 1000)
}
