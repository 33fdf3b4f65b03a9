"""Random programs give the same without any optimization as with all of it: each compiler checks
the other.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from available_targets import HERE
from cvm.dialect.ir.module import Module
from hypothesis import given, settings, strategies as st
from outcomes import arguments, assert_same, outcome
from random_programs import modules
from tiers import examples

import cvm


@settings(deadline=None)
@given(modules(), st.integers(0, 2**32 - 1))
def test_random_programs(module: Module, seed: int) -> None:
    for function in module.functions.values():
        arrays = arguments(function, np.random.default_rng(seed))
        optimized, plain = (
            outcome(module, function.name, arrays, "cpu", level) for level in (2, 0)
        )
        assert_same(plain, optimized, str(module))


@pytest.mark.skipif("cuda-sim" not in HERE, reason="NVRTC is not installed")
@examples(10)
@given(modules(), st.integers(0, 2**32 - 1))
def test_random_programs_on_a_simulated_gpu(module: Module, seed: int) -> None:
    arrays = arguments(module.functions["main"], np.random.default_rng(seed))
    wanted, found = (outcome(module, "main", arrays, target, 0) for target in ("cpu", "cuda-sim"))
    assert_same(found, wanted, str(module))


def scaled(x: Any, w: Any) -> Any:
    return (x @ w * x.sum()).sum()


def test_traced_functions_and_their_derivatives() -> None:
    x, w = np.arange(6, dtype=np.float64).reshape(2, 3), np.ones((3, 2))
    plain, optimized = cvm.compile(scaled, optimize=0), cvm.compile(scaled)
    assert plain(x, w) == optimized(x, w) == (x @ w * x.sum()).sum()
    assert "vector" not in plain.lower("loops") and plain.lower("llvm") != optimized.lower("llvm")
    again = pickle.loads(pickle.dumps(plain))
    assert again.options.compile.optimize == 0 and again(x, w) == plain(x, w)
    for one, other in zip(
        cvm.grad(plain, (0, 1))(x, w), cvm.grad(optimized, (0, 1))(x, w), strict=True
    ):
        np.testing.assert_array_equal(one, other, strict=True)


@pytest.mark.parametrize("level", [1, 3, -1, True, "0", None])
def test_there_are_two_levels(level: Any) -> None:
    with pytest.raises(
        cvm.TargetError,
        match="the optimization levels are 0, the plain way, and 2, the default; got ",
    ):
        cvm.compile("func @main(%x: tensor<2xi32>) { return %x }", optimize=level)
