"""Random programs give the same without any optimization as with all of it: each compiler checks the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from available_targets import missing
from cvm.dialect.ir.sizes import Dim, Size
from cvm.dialect.ir.types import Type
from cvm.dialect.program.module import Function, Module, Value
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import modules

import cvm

LARGEST = 3  # of the sizes that a program leaves open


@settings(deadline=None)
@given(modules(), st.integers(0, 2**32 - 1))
def test_random_programs(module: Module, seed: int) -> None:
    for function in module.functions.values():
        arrays = arguments(function, np.random.default_rng(seed))
        optimized, plain = (outcome(module, function.name, arrays, "cpu", level) for level in (2, 0))
        assert_same(plain, optimized, str(module))


@pytest.mark.skipif(bool(missing("cuda-sim")), reason=missing("cuda-sim") or "it can run")
@settings(deadline=None, max_examples=10)
@given(modules(), st.integers(0, 2**32 - 1))
def test_random_programs_on_a_simulated_gpu(module: Module, seed: int) -> None:
    arrays = arguments(module.functions["main"], np.random.default_rng(seed))
    wanted, found = (outcome(module, "main", arrays, target, 0) for target in ("cpu", "cuda-sim"))
    assert_same(found, wanted, str(module))


def outcome(module: Module, name: str, arrays: list[np.ndarray], target: str, optimize: int) -> list[Any]:
    """The results of a call and its arguments afterwards, or why it fails."""
    given = [a.copy() for a in arrays]
    try:
        returned = cvm.compile(module, name, target, optimize=optimize)(*given)
    except cvm.CallError as e:
        return [str(d) for d in e.diagnostics]
    return [*(returned if isinstance(returned, tuple) else (returned,)), *given]


def assert_same(found: list[Any], wanted: list[Any], program: str) -> None:
    assert len(found) == len(wanted), f"{found} instead of {wanted}\n{program}"
    for one, other in zip(found, wanted, strict=True):
        assert type(one) is type(other), f"{one} instead of {other}\n{program}"
        np.testing.assert_array_equal(one, other, program, strict=isinstance(one, np.ndarray))


def arguments(function: Function, random: np.random.Generator) -> list[np.ndarray]:
    """Arrays of the types and ranges that a function declares. Floats are few quarters, whose sums are exact in any order."""
    sizes: dict[Dim, int] = {}
    return [_array(a, a.known_type, sizes, random) for a in function.arguments]


def _array(argument: Value, type: Type, sizes: dict[Dim, int], random: np.random.Generator) -> np.ndarray:
    shape = tuple(
        sizes.setdefault(d, int(random.integers(0, LARGEST + 1))) if isinstance(d, Size) else d
        for d in type.array_shape
    )
    element = type.element
    if element.is_integer:
        low, high = argument.attributes.get("range", element.limits)
        return random.integers(low, high, shape, element.dtype, endpoint=True)
    if element.kind == "bool":
        return random.integers(0, 2, shape).astype(bool)
    values = random.integers(-8, 9, shape) / 4 + (
        1j * random.integers(-8, 9, shape) if element.kind == "complex" else 0
    )
    return np.asarray(values).astype(element.dtype)
