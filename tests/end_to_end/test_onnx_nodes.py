"""ONNX's own tests of its operators: most are right, none is wrong, and what is refused is refused
with a reason.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
import tiers

pytest.importorskip("onnx")

from onnx_node_tests import network_tests, node_tests, results

PAGE = Path(__file__).parents[2] / "docs" / "onnx.md"
RIGHT = 1582  # of those of onnx 1.23, and of every later one


@pytest.mark.parametrize("target", ["reference", pytest.param("cpu", marks=pytest.mark.slow)])
def test_node_tests(target: str) -> None:
    import onnx

    every = (1 if target == "cpu" else 4) if tiers.everything else 12
    found = list(results(islice(node_tests(), 0, None, every), target))
    count = Counter(r.outcome for r in found)
    assert [r for r in found if r.outcome in ("wrong", "failed")] == []
    known = every == 1 and onnx.__version__ >= "1.23"
    assert count["right"] >= (RIGHT if known else 0.75 * len(found)), count
    for r in found:
        assert r.outcome != "refused" or re.search(
            "cannot be (imported|read)|is a sequence", r.reason
        ), r


@pytest.mark.parametrize(
    ("kind", "right"), [("pytorch-converted", 82), ("pytorch-operator", 35), ("simple", 14)]
)
def test_small_networks(kind: str, right: int) -> None:
    found = list(results(network_tests(kind), "cpu"))
    assert [r for r in found if r.outcome in ("wrong", "failed")] == []
    assert sum(r.outcome == "right" for r in found) >= right


def test_operators_are_documented() -> None:
    import runpy

    import onnx

    if f"onnx {onnx.__version__}," in PAGE.read_text("utf-8"):
        page = runpy.run_path(str(PAGE.parent / "onnx_operators.py"))["page"]()
        assert PAGE.read_text("utf-8") == page, (
            "python docs/onnx_operators.py brings the page up to date"
        )
