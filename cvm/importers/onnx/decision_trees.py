"""Decision trees whose nodes test X <= split alone, of nodes of ONNX, which compare in more ways.

A comparison becomes X <= split, or several of them, that decide alike for every number of the type
in which the model stores its splits: X < t is X <= the number before t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

MAX_DEPTH = 4096  # steps from a root to a leaf, at most; more would be a cycle
# nodes at all depths, at most, where trees share nodes; bounds the time that a cycle takes to find
MAX_VISITED = 1 << 26
SIMPLE = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT")
MODES = (*SIMPLE, "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF")  # by the numbers of version 5


def before(t: np.ndarray) -> np.ndarray:
    """The number before each one; NaN, which no X is at most, before -infinity."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(t == -np.inf, np.nan, np.nextafter(t, t.dtype.type(-np.inf)))


@dataclass
class Trees:
    """Nodes of all trees, leaves among them: the feature, the split, and the nodes that follow."""

    features: np.ndarray
    splits: np.ndarray
    below: np.ndarray  # where X <= split
    above: np.ndarray  # elsewhere, so for NaN
    roots: np.ndarray

    @property
    def is_leaf(self) -> np.ndarray:
        return (self.below == np.arange(len(self.below))) & (self.above == self.below)

    @cached_property
    def reached(self) -> tuple[int, np.ndarray, np.ndarray]:
        """The depth, and the trees and the nodes of all leaves that a row may reach."""
        trees, nodes = np.arange(len(self.roots)), self.roots
        found: list[tuple[np.ndarray, np.ndarray]] = []
        ends, visited = self.is_leaf, 0
        for depth in range(MAX_DEPTH):
            is_leaf = ends[nodes]
            if (visited := visited + len(nodes)) > MAX_VISITED:
                break
            found.append((trees[is_leaf], nodes[is_leaf]))
            if is_leaf.all():
                trees, nodes = (np.concatenate(c) for c in zip(*found, strict=True))
                return depth, trees, nodes
            trees, nodes = trees[~is_leaf], nodes[~is_leaf]
            following = np.concatenate([self.below[nodes], self.above[nodes]])
            pairs = np.unique(np.tile(trees, 2) * len(self.below) + following)
            trees, nodes = np.divmod(pairs, len(self.below))
        raise ValueError(f"its trees are deeper than {MAX_DEPTH}, or have a cycle")

    def negated(self, nodes: np.ndarray, features: int) -> None:
        """Compare -X, which stands behind all features, such that NaN takes the other way."""
        splits = self.splits[nodes]
        self.features[nodes] += features
        self.splits[nodes] = np.where(np.isnan(splits), np.inf, before(-splits))
        self.below[nodes], self.above[nodes] = self.above[nodes], self.below[nodes]


def trees_of(
    modes: np.ndarray,
    features: np.ndarray,
    splits: np.ndarray,
    true: np.ndarray,
    false: np.ndarray,
    missing: np.ndarray,
    roots: np.ndarray,
    members: Sequence[np.ndarray],
    width: int,
    may_be_nan: bool,
) -> tuple[Trees, bool]:
    """The trees of ONNX's nodes, and whether they compare negated features, too.

    A node that tests whether the feature is among some numbers becomes a binary search; EQ and NEQ
    test one number, and the k-th MEMBER the k-th of `members`.
    """
    count = len(modes)
    is_leaf = modes == MODES.index("LEAF")
    own = np.arange(count)
    for ids, size, what in (
        (true, count, "node"),
        (false, count, "node"),
        (features, width, "feature"),
    ):
        inner = ids[~is_leaf]
        if inner.size and not (inner.min() >= 0 and inner.max() < size):
            raise ValueError(f"a {what} is outside of the {size} that there are")
    if (((true == own) | (false == own)) & ~is_leaf).any():
        raise ValueError("a node leads to itself")
    swapped = np.isin(modes, [MODES.index(m) for m in ("BRANCH_GTE", "BRANCH_GT")])
    strict = np.isin(modes, [MODES.index(m) for m in ("BRANCH_LT", "BRANCH_GTE")])
    # no number is beyond NaN, so that all are at most the split
    tested = np.where(strict, before(splits), splits)
    tested = np.where(swapped & np.isnan(splits), np.inf, tested)
    trees = Trees(
        np.where(is_leaf, 0, features),
        np.where(is_leaf, 0, tested).astype(splits.dtype),
        np.where(is_leaf, own, np.where(swapped, false, true)),
        np.where(is_leaf, own, np.where(swapped, true, false)),
        roots,
    )
    is_simple = modes < len(SIMPLE)
    turned = is_simple & (swapped != missing) if may_be_nan else np.zeros(count, bool)
    trees.negated(turned.nonzero()[0], width)
    more = []  # nodes behind the others
    sets = iter(members)
    for i in (~is_simple & ~is_leaf).nonzero()[0].tolist():
        is_member = MODES[modes[i]] == "BRANCH_MEMBER"
        numbers = np.unique(next(sets)) if is_member else splits[i : i + 1]
        outside, inside = (true[i], false[i])[:: 1 if MODES[modes[i]] == "BRANCH_NEQ" else -1]
        boundaries = np.stack([before(numbers), numbers], 1).reshape(-1).tolist()
        outcomes = [int(outside), *[int(inside), int(outside)] * len(numbers)]
        if missing[i] and outcomes[-1] != true[i]:  # NaN alone is beyond infinity
            boundaries, outcomes = [*boundaries, np.inf], [*outcomes, int(true[i])]
        tests = search(boundaries, outcomes, count + len(more))
        if isinstance(tests, int):  # nothing is among no numbers
            trees.below[i], trees.above[i] = tests, tests
        else:
            trees.splits[i], trees.below[i], trees.above[i] = tests[0]
            more += [(int(trees.features[i]), *t) for t in tests[1:]]
    return (extended(trees, more) if more else trees), bool(turned.any())


def search(
    boundaries: list[float], outcomes: list[int], first: int
) -> list[tuple[float, int, int]] | int:
    """The nodes of a binary search for the interval of a feature between ascending boundaries, to
    the outcome of each: those after the root are numbered from `first` on. Without boundaries, it
    is the only outcome.
    """
    nodes = []

    def node(low: int, high: int) -> int:
        """The node that decides between the outcomes from one to another."""
        if low == high:
            return outcomes[low]
        number, middle = len(nodes), (low + high) // 2
        nodes.append(None)
        nodes[number] = boundaries[middle], node(low, middle), node(middle + 1, high)
        return first + number - 1

    only = node(0, len(boundaries))
    return nodes if nodes else only


def extended(trees: Trees, more: Sequence[tuple[int, object, int, int]]) -> Trees:
    features, splits, below, above = (np.array(c) for c in zip(*more, strict=True))
    return Trees(
        np.concatenate([trees.features, features]),
        np.concatenate([trees.splits, splits.astype(trees.splits.dtype)]),
        np.concatenate([trees.below, below]),
        np.concatenate([trees.above, above]),
        trees.roots,
    )
