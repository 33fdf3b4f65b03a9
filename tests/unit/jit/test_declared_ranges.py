"""Declared ranges of arguments are checked by every call, on every target, by the direct entry and
by the general one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from available_targets import EVERY
from cvm.dialect.types.tensor_types import ELEMENT_TYPES, ElementType
from cvm.jit.calls import arguments, fastcall

import cvm

NUMBERS = [e for e in ELEMENT_TYPES.values() if e.kind in ("int", "uint", "float")]


def program(element: ElementType, shape: str, low: object, high: object) -> str:
    return (
        f"func @main(%x: tensor<{shape}{element}> {{range = [{low}, {high}]}}) {{\n"
        f'  %y = theano.elemwise %x {{scalar_op = "identity"}}\n  return %y\n}}\n'
    )


@pytest.mark.parametrize("target", EVERY)
@pytest.mark.parametrize("shape", ["2x5x", "?Nx5x"])
def test_a_violated_range_is_reported(target: str, shape: str) -> None:
    f = cvm.compile(program(ELEMENT_TYPES["i32"], shape, -127, 127), target=target)
    x = np.full((2, 5), 127, np.int32)
    np.testing.assert_array_equal(f(x), x)
    x[1, 3] = -128
    with pytest.raises(cvm.CallError) as e:
        f(x)
    (said,) = e.value.diagnostics
    assert said.message == "argument %x: expected values from -127 to 127, got -128 at [1, 3]"
    assert (said.code, said.line, said.column) == ("call.argument", 1, 12)


@pytest.fixture
def explained(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Count the calls of the general entry, to which the direct one hands calls that it does not
    serve.
    """
    looked: list[str] = []
    beyond = arguments.beyond_range
    monkeypatch.setattr(
        arguments, "beyond_range", lambda a, v: looked.append(v.name) or beyond(a, v)
    )
    return looked


@pytest.mark.skipif(
    not fastcall.usable(), reason="objects do not lie in memory as the direct entry expects"
)
@pytest.mark.parametrize("element", NUMBERS, ids=str)
@pytest.mark.parametrize("count", [1, 2, 7, 32, 33, 100])
def test_the_direct_entry_looks_at_every_element(
    element: ElementType, count: int, explained: list[str]
) -> None:
    low, high = (1, 100) if element.kind == "uint" else (-100, 100)
    bounds = (float(low), float(high)) if element.kind == "float" else (low, high)
    f = cvm.compile(program(element, f"{count}x", *bounds))
    for value in (low, high):
        x = np.full(count, value, element.dtype)
        np.testing.assert_array_equal(f(x), x)
    assert not explained, "nothing was wrong"
    x = np.full(count, high, element.dtype)
    for place in {0, count // 2, count - 1}:
        wrong = [
            low - 1,
            high + 1,
            *([np.nan, np.inf] if element.kind == "float" else element.limits),
        ]
        for value in wrong:
            x[place] = value
            with pytest.raises(
                cvm.CallError, match=rf"argument %x: expected values from .* at \[{place}\]"
            ):
                f(x)
        x[place] = high
    assert len(explained) == len({0, count // 2, count - 1}) * 4


@pytest.mark.parametrize(
    "bounds", [(-129, 127), (-128, 128), (200, 300), (-300, -200), (-1000, 10**12)]
)
def test_a_range_beyond_the_type_is_a_mistake(bounds: tuple[int, int]) -> None:
    with pytest.raises(cvm.VerifyError) as e:
        cvm.compile(program(ELEMENT_TYPES["i8"], "4x", *bounds))
    (said,) = e.value.diagnostics
    assert said.message == f"a range of i8 lies within [-128, 127], got {list(bounds)}"
    assert (said.code, said.line, said.column) == ("func.attributes", 1, 30)


@pytest.mark.parametrize("bounds", [(-128, 127), (-128, -128), (127, 127)])
def test_ranges_at_the_limits_of_the_type(bounds: tuple[int, int]) -> None:
    f = cvm.compile(program(ELEMENT_TYPES["i8"], "4x", *bounds))
    for value in (-128, 0, 127):
        x = np.full(4, value, np.int8)
        if bounds[0] <= value <= bounds[1]:
            np.testing.assert_array_equal(f(x), x)
        else:
            with pytest.raises(cvm.CallError, match=f"got {value} at \\[0\\]"):
                f(x)


@pytest.mark.parametrize("shape", ["100003x", "?Nx"])
@pytest.mark.parametrize("threads", [1, 3])
def test_large_arrays_are_looked_at_by_all_threads(
    shape: str, threads: int, explained: list[str]
) -> None:
    f = cvm.compile(program(ELEMENT_TYPES["i16"], shape, -5, 5))
    before = cvm.get_num_threads()
    try:
        cvm.set_num_threads(threads)
        x = np.full(100003, 5, np.int16)
        for _ in range(2):
            np.testing.assert_array_equal(f(x), x)
        for place in (0, 8191, 8192, 65536, 100002):
            x[place] = -6
            with pytest.raises(cvm.CallError, match=rf"got -6 at \[{place}\]"):
                f(x)
            x[place] = -5
    finally:
        cvm.set_num_threads(before)
    assert len(explained) == 5  # which the errors name; nothing else goes the slow way
