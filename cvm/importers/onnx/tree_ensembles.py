"""The decision trees of ONNX's domain `ai.onnx.ml`, which become `builtin.tree_ensemble`.

Features are converted to the type in which the model stores its splits, as onnxruntime does. Leaf
values add in the order of the trees, and each sum is rounded; on several threads, onnxruntime adds
the values of one row in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import F32, F64
from cvm.importers.exactness import Exactness
from cvm.importers.graph.elementwise import where
from cvm.importers.graph.indexing import gathered
from cvm.importers.graph.movement import joined
from cvm.importers.graph.rules import Known, Unsupported, known_size

from .decision_trees import MODES, Trees, trees_of
from .elements import to_array
from .importer import At
from .rules import rule
from .scores import (
    class_labels,
    label_of_sign,
    labels_at,
    of_two_classes,
    post_transform,
    rows_of,
    transformed,
    transformed_alone,
)

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
REDUCED = {"MIN": "minimum", "MAX": "maximum"}  # else the sum


@dataclass
class Ensemble:
    """The trees of a node over rows of features, and the weights of leaves for targets."""

    at: At
    rows: Node
    trees: Trees
    targets: int
    leaves: np.ndarray  # of each weight
    ids: np.ndarray  # the target of each weight
    weights: np.ndarray

    @cached_property
    def columns(self) -> tuple[int, np.ndarray]:
        """The number of adjoining targets that holds those of every tree, and the first of each
        tree's.
        """
        _, trees, leaves = self.trees.reached
        least, most = (np.full(len(self.trees.splits), v) for v in (self.targets, -1))
        np.minimum.at(least, self.leaves, self.ids)
        np.maximum.at(most, self.leaves, self.ids)
        low, high = (np.full(len(self.trees.roots), v) for v in (self.targets, -1))
        np.minimum.at(low, trees, least[leaves])
        np.maximum.at(high, trees, most[leaves])
        width = max(1, int((high - low).max(initial=0)) + 1)
        return width, np.clip(low, 0, self.targets - width)

    def first_of_leaves(self) -> np.ndarray:
        """The first column of each leaf, which it has as a part of a tree."""
        _, trees, leaves = self.trees.reached
        first = np.zeros(len(self.trees.splits), np.int64)
        first[leaves] = self.columns[1][trees]
        return first

    def table(self, weights: np.ndarray, absent: float) -> np.ndarray:
        """Weights by node and column."""
        table = np.full((len(self.trees.splits), self.columns[0]), absent, weights.dtype)
        column = self.ids - self.first_of_leaves()[self.leaves]
        is_reached = (column >= 0) & (column < self.columns[0])  # else its leaf is of no tree
        table[self.leaves[is_reached], column[is_reached]] = weights[is_reached]
        return table

    def reduced(self, table: np.ndarray, scalar_op: str = "add") -> Node:
        """The reduction of a table's rows at the leaves of all trees, in their order."""
        trees = self.trees
        links = np.stack([trees.features, trees.below, trees.above], 1).astype(np.int32)
        ensemble = np.stack([trees.roots, self.columns[1]], 1).astype(np.int32)
        return self.at.apply(
            "builtin.tree_ensemble",
            self.rows,
            trees.splits,
            links,
            ensemble,
            table,
            columns=self.targets,
            depth=trees.reached[0],
            scalar_op=scalar_op,
        )

    @cached_property
    def always_scored(self) -> np.ndarray:
        """Test for each target whether all leaves of some tree have a weight for it."""
        _, trees, leaves = self.trees.reached
        width, first = self.columns
        lacks = self.table(np.ones(len(self.weights), np.float32), 0)[leaves] == 0
        missing = np.zeros((len(first), width), np.int64)
        np.add.at(missing, trees, lacks)
        scored = np.zeros(self.targets, bool)
        tree, column = (missing == 0).nonzero()
        scored[first[tree] + column] = True
        return scored

    def is_scored(self) -> Node | None:
        """Test for each row and target whether some leaf has a weight for it; None if one has
        always.
        """
        if self.always_scored.all():
            return None
        votes = self.table(np.ones(len(self.weights), np.float32), 0)
        return self.reduced(votes).scalar("gt", 0.0)

    def scores(self, aggregate: str, base: np.ndarray) -> Node:
        """The aggregate of each target and its base value, or 0 where no leaf has a weight for
        it.
        """
        if aggregate in REDUCED:
            absent = np.inf if aggregate == "MIN" else -np.inf
            scores = self.reduced(self.table(self.weights, absent), REDUCED[aggregate])
        else:
            scores = self.reduced(self.table(self.weights, 0))
        if aggregate == "AVERAGE":
            scores = scores / float(len(self.trees.roots))
        scores = scores + self.at.node(base) if len(base) else scores
        if aggregate not in REDUCED and not len(base):
            return scores
        is_scored = self.is_scored()
        return scores if is_scored is None else where(is_scored, scores, 0.0)


def tensor_or_floats(at: At, name: str, dtype: Any) -> np.ndarray:
    """An attribute that is a list of f32, or a tensor of f64 under another name."""
    floats, tensor = at[name], at[f"{name}_as_tensor"]
    if tensor is not None and len(tensor.dims):
        return to_array(tensor).reshape(-1).astype(dtype)
    return np.array(floats or [], np.float32).astype(dtype)


def stored_type(at: At, x: Node, names: Sequence[str]) -> Any:
    """The type that splits and weights are stored in: f64 where they or the features are."""
    tensors = [at[f"{n}_as_tensor"] for n in names]
    is_wide = x.element is F64 or any(t is not None and t.data_type == 11 for t in tensors)
    return np.float64 if is_wide else np.float32


def ensemble_of_nodes(at: At, x: Node, targets: int, prefix: str) -> Ensemble:
    """The ensemble of versions 1 and 3, which number the nodes of each tree."""
    names = ("nodes_values", f"{prefix}_weights", "base_values")
    dtype = stored_type(at, x, names)
    _ = at["nodes_hitrates"], at["nodes_hitrates_as_tensor"]  # of use for speed alone
    columns = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    tree, node, features, true, false = (
        np.array(at[f"nodes_{c}"] or [], np.int64) for c in columns
    )
    splits = tensor_or_floats(at, "nodes_values", dtype)
    numbers = {m: n for n, m in enumerate(MODES) if m != "BRANCH_MEMBER"}
    modes = np.array([numbers.get(m, -1) for m in at["nodes_modes"] or []], np.int64)
    if len({len(a) for a in (tree, node, features, true, false, splits, modes)}) > 1 or not len(
        tree
    ):
        raise ValueError("its lists of nodes are empty, or of different lengths")
    if (modes < 0).any():
        raise Unsupported(f"a node of mode {at['nodes_modes'][int((modes < 0).argmax())]!r}")
    places = {key: n for n, key in enumerate(zip(tree.tolist(), node.tolist(), strict=True))}
    if len(places) < len(tree):
        raise ValueError("two nodes of a tree have one number")

    def positions(trees: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        pairs = zip(trees.tolist(), nodes.tolist(), strict=True)
        return np.array([places.get(p, -1) for p in pairs], np.int64)

    roots = np.concatenate([[0], (tree[1:] != tree[:-1]).nonzero()[0] + 1])
    of = {c: np.array(at[f"{prefix}_{c}"] or [], np.int64) for c in ("treeids", "nodeids", "ids")}
    weights = tensor_or_floats(at, f"{prefix}_weights", dtype)
    if len({len(a) for a in (*of.values(), weights)}) > 1:
        raise ValueError("its lists of weights are of different lengths")
    leaves = positions(of["treeids"], of["nodeids"])
    if leaves.size and leaves.min() < 0:
        raise ValueError("a weight is of a node that does not exist")
    rows, width = features_of(at, x, dtype)
    trees, is_doubled = trees_of(
        modes,
        features,
        splits,
        positions(tree, true),
        positions(tree, false),
        missing_tracks(at, len(tree)),
        roots,
        (),
        width,
        x.element.kind == "float",
    )
    return ensemble(at, rows, trees, is_doubled, targets, leaves, of["ids"], weights)


def missing_tracks(at: At, count: int) -> np.ndarray:
    """Test for each node whether NaN follows the branch of a true comparison."""
    given = np.array(at["nodes_missing_value_tracks_true"] or [], np.int64)[:count] == 1
    return np.concatenate([given, np.zeros(count - len(given), bool)])


def features_of(at: At, x: Node, dtype: object) -> tuple[Node, int]:
    """The rows of features in the type that splits are stored in, and their number."""
    rows = rows_of(x, wide=True)
    rows = rows.cast(F64 if dtype == np.float64 else F32)
    return rows, known_size(rows.shape[1], "a row of features")


def ensemble(
    at: At,
    rows: Node,
    trees: Trees,
    is_doubled: bool,
    targets: int,
    leaves: np.ndarray,
    ids: np.ndarray,
    weights: np.ndarray,
) -> Ensemble:
    if ids.size and not (ids.min() >= 0 and ids.max() < targets):
        raise ValueError(f"a weight is of a target outside of the {targets} that there are")
    if len(np.unique(leaves * targets + ids)) < len(ids):
        raise Unsupported("a leaf with two weights for one target")
    rows = joined(at, [rows, -rows], 1) if is_doubled else rows
    return Ensemble(at, rows, trees, targets, leaves, ids, weights)


@rule("ai.onnx.ml.TreeEnsembleRegressor")
def tree_ensemble_regressor(at: At, x: Node) -> Known:
    """Leaf values add in the order of the trees. onnxruntime adds those of one row in another order
    where it has several threads.
    """
    targets = at["n_targets"] or 1
    aggregate = at["aggregate_function"] or "SUM"
    if aggregate not in AGGREGATES:
        raise Unsupported(f"the aggregate {aggregate!r}")
    trees = ensemble_of_nodes(at, x, targets, "target")
    base = tensor_or_floats(at, "base_values", trees.weights.dtype)
    if len(base) not in (0, targets):
        raise ValueError(f"{len(base)} base values of {targets} targets")
    return regressed(at, trees, aggregate, base, post_transform(at)).cast(F32)


def regressed(at: At, trees: Ensemble, aggregate: str, base: np.ndarray, transform: str) -> Node:
    scores = trees.scores(aggregate, base)
    return (
        transformed(scores, transform)
        if trees.targets > 1
        else transformed_alone(scores, transform)
    )


@rule("ai.onnx.ml.TreeEnsemble", since=5)
def tree_ensemble(at: At, x: Node) -> Known:
    """Sums of f16 are in f32. ONNX numbers SOFTMAX 1 and LOGISTIC 2; onnxruntime has them the other
    way round.
    """
    _ = at["nodes_hitrates"]
    aggregate, transform = at["aggregate_function"], at["post_transform"]
    if aggregate not in range(len(AGGREGATES)) or transform not in range(len(TRANSFORMS)):
        raise Unsupported(f"the aggregate {aggregate} or the post-transform {transform}")
    dtype = np.float64 if x.element is F64 else np.float32
    modes, splits, weights = (
        to_array(at[n]).reshape(-1) for n in ("nodes_modes", "nodes_splits", "leaf_weights")
    )
    lists = ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    features, true, false, to_leaf, else_leaf = (
        np.array(at[f"nodes_{c}"] or [], np.int64) for c in lists
    )
    count, leaves = len(modes), len(weights)
    if (
        len({len(a) for a in (modes, splits, features, true, false, to_leaf, else_leaf)}) > 1
        or not count
    ):
        raise ValueError("its lists of nodes are empty, or of different lengths")
    members = np.zeros(0) if at["membership_values"] is None else to_array(at["membership_values"])
    ends = np.isnan(members.astype(dtype)).nonzero()[0]
    sets = [s[~np.isnan(s)] for s in np.split(members.astype(dtype).reshape(-1), ends)]
    is_member = modes == MODES.index("BRANCH_MEMBER")
    if is_member.sum() > len(sets) or (modes >= MODES.index("LEAF")).any():
        raise ValueError("a node has an unknown mode, or no numbers to be among")
    rows, width = features_of(at, x, dtype)
    roots = np.array(at["tree_roots"] or [], np.int64)
    if not roots.size or not (roots.min() >= 0 and roots.max() < count):
        raise ValueError("it has no roots, or one outside of its nodes")
    of_leaf = np.full(leaves, MODES.index("LEAF"))
    nothing = np.zeros(leaves, np.int64)

    def following(nodes: np.ndarray, is_leaf: np.ndarray) -> np.ndarray:
        """Positions among the nodes and the leaves behind them."""
        size = np.where(is_leaf == 0, count, leaves)
        return np.where((nodes < 0) | (nodes >= size), -1, nodes + np.where(is_leaf == 0, 0, count))

    trees, is_doubled = trees_of(
        np.concatenate([modes.astype(np.int64), of_leaf]),
        np.concatenate([features, nothing]),
        np.concatenate([splits.astype(dtype), nothing]).astype(dtype),
        np.concatenate([following(true, to_leaf), nothing]),
        np.concatenate([following(false, else_leaf), nothing]),
        missing_tracks(at, count + leaves),
        roots,
        sets,
        width,
        True,
    )
    ids = np.array(at["leaf_targetids"] or [], np.int64)
    if len(ids) != leaves:
        raise ValueError(f"{leaves} weights of leaves, and {len(ids)} targets")
    of = np.arange(count, count + leaves)
    made = ensemble(
        at, rows, trees, is_doubled, at["n_targets"] or 1, of, ids, weights.astype(dtype)
    )
    if made.targets > 1 and TRANSFORMS[transform] in ("SOFTMAX", "LOGISTIC"):
        at.rule_exactness = Exactness(bound="unlike onnxruntime, which takes one for the other")
    y = regressed(at, made, AGGREGATES[aggregate], np.zeros(0, dtype), TRANSFORMS[transform])
    return y.cast(x.element)


@rule("ai.onnx.ml.TreeEnsembleClassifier")
def tree_ensemble_classifier(at: At, x: Node) -> Any:
    """Labels of strings are the index of the label, and the strings stand in `module.labels`."""
    labels = class_labels(at, "classlabels_strings", "classlabels_int64s")
    trees = ensemble_of_nodes(at, x, len(labels), "class")
    base = tensor_or_floats(at, "base_values", trees.weights.dtype)
    if len(base) not in ((0, 1, 2) if len(labels) == 2 else (0, len(labels))):
        raise ValueError(f"{len(base)} base values of {len(labels)} classes")
    scores = trees.scores("SUM", base[:0])
    if len(labels) <= 2:
        return two_classes(at, trees, scores, labels, base)
    is_scored = None if len(base) else trees.is_scored()
    scores = scores + at.node(base) if len(base) else scores
    among = scores if is_scored is None else where(is_scored, scores, float("-inf"))
    label = labels_at(at, labels, at.apply("builtin.argmax", among, axis=1))
    return [label, transformed(scores, post_transform(at)).cast(F32)]


def two_classes(at: At, trees: Ensemble, scores: Node, labels: np.ndarray, base: np.ndarray) -> Any:
    """The label and the scores of at most two classes, by the cases of onnxruntime."""
    transform = post_transform(at)
    used = np.unique(trees.ids)
    has_first, has_second = ((used == c).any() for c in (0, 1))
    if not trees.always_scored[used].all():
        raise Unsupported("a leaf without a weight for each class, of at most two,")
    first, second = (gathered(at, scores, np.array([c]), 1) for c in (0, len(labels) - 1))
    both: Node | None = None
    if len(base) == 2 and has_second:  # the first base value is of no use
        score = first + float(base[1])
        both = joined(at, [-score if has_first else first, score], 1)
    else:
        first = first + float(base[0]) if len(base) and has_first else first
        score = second if has_second else first
        if has_second or len(base) == 2:
            both = joined(at, [first, second], 1)
    is_binary = len(labels) == 2 and len(used) == 1
    all_positive = is_binary and not (trees.weights < 0).any()
    is_second = score.scalar("gt", 0.5 if all_positive else 0.0).dimshuffle((0,))
    numbers = labels if is_binary or labels.dtype.kind == "U" else np.array([0, 1])
    label = label_of_sign(at, numbers, is_second)
    if both is not None:
        return [label, transformed(both, transform).cast(F32)]
    if len(labels) == 1:
        return [label, transformed_alone(score, transform).cast(F32)]
    return [label, of_two_classes(at, score, transform, all_positive).cast(F32)]
