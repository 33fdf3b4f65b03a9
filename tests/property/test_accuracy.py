"""docs/accuracy.md: what it says was measured of the functions as they are, and they are no worse
anywhere that is quickly looked.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cvm.dialect.types.tensor_types import F16, F32, F64, ElementType
from cvm.lowering.math import FUNCTIONS
from exact_functions import LONG, NUMPY, in_mpmath, in_numpy
from ulps import arguments, digest, exact, run, ulps, worst

DOCS = Path(__file__).parents[2] / "docs"
sys.path.append(str(DOCS))

import accuracy  # noqa: E402

FOUND: dict[str, Any] = json.loads((DOCS / "accuracy.json").read_text("utf-8"))
EVERY = [(f, e) for f in FUNCTIONS for e in (F16, F32, F64)]


def judged(function: str, *operands: np.ndarray) -> np.ndarray:
    """Errors by what does not come from here: NumPy, or mpmath."""
    known = function in NUMPY and (operands[0].dtype.itemsize < 8 or LONG)
    if known:
        return ulps(run(function, *operands), in_numpy(function, *operands))
    return ulps(
        run(function, *operands), in_mpmath(function, *(o.astype(np.float64) for o in operands))
    )


@pytest.mark.sample(30)
@pytest.mark.parametrize(("function", "element"), EVERY, ids=str)
def test_what_was_measured_is_what_there_is(function: str, element: ElementType) -> None:
    row = FOUND[function][str(element)]
    again = f"`python docs/accuracy.py {function}` measures it again"
    assert row["bits"] == digest(function, element), (
        f"the function gives other bits than when it was measured: {again}"
    )
    assert row["tried"] >= accuracy.total(function, element), again
    assert row["ulps"] <= (0.51 if element is F16 else 2)
    worst_one = [np.full(1, x, element.dtype) for x in row["at"]]
    assert judged(function, *worst_one)[0] == pytest.approx(row["ulps"], abs=0.003), again


@pytest.mark.sample(30)
@pytest.mark.parametrize(("function", "element"), EVERY, ids=str)
def test_no_other_argument_is_worse(function: str, element: ElementType) -> None:
    quick = element is not F64 or (LONG and function in NUMPY)
    operands = arguments(function, element, 20_000 if quick else 500, seed=987_654)
    error, where = worst(ulps(run(function, *operands), exact(function, *operands)), operands)
    assert error <= FOUND[function][str(element)]["ulps"] + 0.005, f"{error} ulp at {where}"


def test_the_page_is_what_was_found() -> None:
    assert (DOCS / "accuracy.md").read_text("utf-8") == accuracy.page(FOUND), (
        "python docs/accuracy.py writes it"
    )


def test_a_measurement_goes_on_where_it_stopped() -> None:
    """Each chunk counts once, and other bits start anew."""
    deadline = float("inf")
    known = FOUND["exp"]["f16"]
    assert accuracy.measure("exp", F16, dict(known), deadline) == known
    assert accuracy.measure("exp", F16, {**known, "tried": 0, "ulps": 0.0}, deadline) == known
    assert accuracy.measure("exp", F16, {**known, "bits": "others", "ulps": 7.0}, deadline) == known
    stopped = accuracy.measure("exp", F16, {}, deadline=0)
    assert (stopped["tried"], stopped["ulps"]) == (0, 0.0)
