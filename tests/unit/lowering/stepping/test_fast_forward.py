"""Counters that leap many ticks at once: the bits of adding tick by tick."""

from __future__ import annotations

import numpy as np
import pytest
from cvm.lowering.analysis.verify_kernel import check_kernel
from cvm.lowering.processor import Tuning

import cvm

STARTS = [
    0.0,
    -0.0,
    5.0,
    -2000.0,
    0.25,
    0.3,
    1e-45,
    2.0**24 - 1500,
    -(2.0**24),
    2.0**24,
    1e30,
    np.inf,
    np.nan,
]
STEPS = [1.0, -1.0, 0.75, -3.0, 96.0, 0.1, 2.0**-140, 2.0**100, 2.0**120, 0.0]

TICKS_AT_ONCE = Tuning().ticks_at_once


def counters(steps: dict[str, float], operation: str = "add") -> str:
    lines = []
    for name, step in steps.items():
        lines.append(f'%{name} = cog.field "{name}" : !cog.field<[], f32>')
        lines.append(f"%{name}.next = cog.{operation} %{name}, {step!r}")
        lines.append(f"cog.feedback %{name}, %{name}.next")
    return "\n".join(["graph @main {", *lines, "}"])


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.filterwarnings("ignore:overflow")
def test_every_start_and_step(step: float) -> None:
    native = cvm.compile(counters({"n": step}))
    for kernel in native.step_plan.several.kernels if native.step_plan.several else ():
        check_kernel(kernel)
    for start in np.array(STARTS, np.float32):
        native.write("n", start)
        native.step(2 * TICKS_AT_ONCE + 300)
        expected = np.asarray(counted(start, np.float32(step), 2 * TICKS_AT_ONCE + 300))
        np.testing.assert_array_equal(
            native.read("n").view("u4"), expected.view("u4"), err_msg=f"from {start}"
        )


def counted(number: np.float32, step: np.float32, ticks: int) -> np.float32:
    for _ in range(ticks):
        number = number + step
    return number


def test_several_counters_leap_together_or_not_at_all() -> None:
    native = cvm.compile(counters({"a": 1.0, "b": -0.5}))
    for start in (8.0, 0.3):
        native.write("a", np.float32(start))
        native.write("b", np.float32(-8.0))
        native.step(3 * TICKS_AT_ONCE + 5)
        assert native.read("a") == counted(np.float32(start), np.float32(1), 3 * TICKS_AT_ONCE + 5)
        assert native.read("b") == counted(np.float32(-8), np.float32(-0.5), 3 * TICKS_AT_ONCE + 5)


def test_which_programs_leap() -> None:
    def leaps(text: str) -> bool:
        return cvm.compile(text).step_plan.ticks == TICKS_AT_ONCE

    assert leaps(counters({"a": 1.0, "b": -0.5}))
    assert leaps(counters({"a": 1.0}, "sub"))
    assert not leaps(counters({"a": 0.1})), "a sum of tenths is rounded"
    assert not leaps(counters({"a": 1.0}, "mul"))
