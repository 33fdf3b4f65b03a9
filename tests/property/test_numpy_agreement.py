"""A sample of the list of NumPy's expressions: a traced function gives NumPy's types and values, or
says that it does not.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import tiers
from numpy_expressions import expressions, judge, of_edges
from tiers import some

import cvm

STEP = (
    7  # of so many expressions one is judged; python tests/support/numpy_expressions.py judges all
)
QUICK = 120  # expressions in the quick tier


@pytest.mark.parametrize("plain", [True, False], ids=["ordinary", "edges"])
def test_expressions_mean_what_numpy_means(plain: bool) -> None:
    verdicts = judge(some(expressions(plain)[plain::STEP], QUICK))
    counts = Counter(v.partition(":")[0] for v in verdicts.values())
    assert not {n: v for n, v in verdicts.items() if v.startswith("different") or "CRASH" in v}
    assert counts["same"] > (1000 if tiers.everything else QUICK // 2)
    assert counts["refused"] <= 0.01 * counts["same"]


def test_arrays_of_few_elements_and_arguments_at_the_edges() -> None:
    """An array of NumPy's type, shape and values, or an error; where NumPy raises, an error."""
    verdicts = judge(some([*of_edges()], 100))
    assert not {n: v for n, v in verdicts.items() if v.startswith("different") or "CRASH" in v}
    counts = Counter(v.partition(":")[0] for v in verdicts.values())
    assert counts["same"] + counts["numpy refuses"] > 0.9 * len(verdicts)


@pytest.mark.parametrize("keepdims", [True, False])
def test_deviations_of_unknown_sizes(keepdims: bool) -> None:
    deviation = cvm.compile(lambda x: np.std(x, axis=1, ddof=1, keepdims=keepdims), rules="numpy")
    arrays = [np.random.default_rng(n).normal(size=(n, n + 2)) for n in (4, 3)]
    for found, x in zip(deviation.batch(arrays), arrays, strict=True):
        wanted = np.std(x, axis=1, ddof=1, keepdims=keepdims)
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-14)
