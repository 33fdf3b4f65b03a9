"""Results of random programs, and whether two of them are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from cvm.dialect.ir.function import Function, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.types.sizes import Dim, Size
from cvm.dialect.types.tensor_types import Type

import cvm

LARGEST = 3  # of the sizes that a program leaves open


def outcome(
    module: Module,
    name: str,
    arrays: list[np.ndarray],
    target: str,
    optimize: int,
    cpu: str | None = None,
) -> list[Any]:
    """The results of a call and its arguments afterwards, or why it fails."""
    given = [a.copy() for a in arrays]
    try:
        returned = cvm.compile(module, name, target, optimize=optimize, cpu=cpu)(*given)
    except cvm.CallError as e:
        return [str(d) for d in e.diagnostics]
    return [*(returned if isinstance(returned, tuple) else (returned,)), *given]


def assert_same(found: list[Any], wanted: list[Any], program: str) -> None:
    assert len(found) == len(wanted), f"{found} instead of {wanted}\n{program}"
    for one, other in zip(found, wanted, strict=True):
        assert type(one) is type(other), f"{one} instead of {other}\n{program}"
        np.testing.assert_array_equal(
            *map(known_to_numpy, (one, other)), program, strict=isinstance(one, np.ndarray)
        )
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)


def known_to_numpy(result: Any) -> Any:
    """A result whose NaN NumPy tells from numbers: it does not know those of bf16."""
    return (
        result.astype(np.float32)
        if isinstance(result, np.ndarray) and result.dtype.kind == "V"
        else result
    )


def arguments(function: Function, random: np.random.Generator) -> list[np.ndarray]:
    """Arrays of the types and ranges that a function declares. Floats are few quarters, whose sums
    are exact in any order.
    """
    sizes: dict[Dim, int] = {}
    return [_array(a, a.known_type, sizes, random) for a in function.arguments]


def _array(
    argument: Value, type: Type, sizes: dict[Dim, int], random: np.random.Generator
) -> np.ndarray:
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
