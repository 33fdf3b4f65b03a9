"""A sample of the list of NumPy's expressions: a traced function gives NumPy's types and values, or says that it does not."""

from __future__ import annotations

from collections import Counter

import pytest
from numpy_expressions import expressions, judge

STEP = 7  # of so many expressions one is judged; python tests/support/numpy_expressions.py judges all


@pytest.mark.parametrize("plain", [True, False], ids=["ordinary", "edges"])
def test_expressions_mean_what_numpy_means(plain: bool) -> None:
    verdicts = judge(expressions(plain)[plain::STEP])
    counts = Counter(v.partition(":")[0] for v in verdicts.values())
    assert not {n: v for n, v in verdicts.items() if v.startswith("different") or "CRASH" in v}
    assert counts["same"] > 1000
    assert counts["refused"] <= 0.01 * counts["same"]
