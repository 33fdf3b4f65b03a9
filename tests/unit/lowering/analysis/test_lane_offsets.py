"""Lanes that lie near each other are loaded as whole vectors and shuffled, whatever the type, the
sizes and the pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cvm.dialect.kernel_ir.expressions import Index, Tensor, constant
from cvm.dialect.types.tensor_types import F32, I64
from cvm.lowering.analysis.lane_offsets import Lanes, begins, offsets, period, windows
from legal_and_equal import legal

import cvm

TYPES = {"i32": np.int32, "f32": np.float32, "f64": np.float64}
NARROW = {"i8": np.int8, "ui16": np.uint16, "i1": np.bool_}
NAMES: dict[Any, str] = {t: name for name, t in (TYPES | NARROW).items()}


def compiled(body: str, *arrays: np.ndarray) -> Any:
    """The function of these arrays, its kernels legal."""
    given = ", ".join(
        f"%x{n}: tensor<{''.join(f'{d}x' for d in a.shape)}{NAMES[a.dtype.type]}>"
        for n, a in enumerate(arrays)
    )
    module = cvm.parse(f"func @main({given}) {{\n  {body}\n  return %y\n}}\n")
    legal(module)
    return cvm.compile(module)


def numbers(shape: tuple[int, ...], element: str) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 120, shape).astype((TYPES | NARROW)[element])


@pytest.mark.sample(50)
@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("n", [3, 8, 64, 67, 200])
@pytest.mark.parametrize("step", [-4, -3, -2, -1, 2, 3, 4])
def test_slices(element: str, n: int, step: int) -> None:
    x = numbers((5, n), element)
    wanted = x[:, ::step]
    begin, end = (0, n) if step > 0 else (n - 1, -n - 1)
    f = compiled(
        f"%y = cvm.slice %x0 {{begin = [0, {begin}], end = [5, {end}], strides = [1, {step}]}}", x
    )
    if wanted.shape[1] >= 64:
        assert "vector" in f.lower("schedule")
    np.testing.assert_array_equal(f(x), wanted)


@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("shape", [(3, 40), (4, 37), (2, 5)])
@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 9])
def test_repeated(element: str, shape: tuple[int, int], count: int) -> None:
    x = numbers(shape, element)
    f = compiled(f"%y = cvm.repeat %x0 {{repeats = {count}, axis = 1}}", x)
    np.testing.assert_array_equal(f(x), np.repeat(x, count, 1))


@pytest.mark.parametrize("shape", [(2, 3, 7, 16), (1, 2, 5, 13)])
@pytest.mark.parametrize("scale", [2, 3])
def test_upsampled(shape: tuple[int, ...], scale: int) -> None:
    x = numbers(shape, "f32").astype(np.int32)
    f = compiled(f"%y = cvm.upsampling %x0 {{scale = {scale}}}", x)
    np.testing.assert_array_equal(f(x), x.repeat(scale, 2).repeat(scale, 3))


@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("n", [1, 8, 67, 5000])
def test_gathers_clamp_their_indices(element: str, n: int) -> None:
    x = numbers((100,), element)
    where = np.random.default_rng(1).integers(-20, 120, n).astype(np.int32)
    f = compiled("%y = cvm.take %x0, %x1", x, where)
    np.testing.assert_array_equal(f(x, where), x[where.clip(0, 99)])


@pytest.mark.sample(45)
@pytest.mark.parametrize("element", [*TYPES, *NARROW])
@pytest.mark.parametrize("planes", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("size", [(8, 16), (31, 33), (40, 40)])
def test_planes_become_one(element: str, planes: int, size: tuple[int, int]) -> None:
    x = numbers((2, planes, *size), element)
    f = compiled("%y = theano.dimshuffle %x0 {new_order = [0, 2, 3, 1]}", x)
    assert "planes" in f.lower("schedule")
    np.testing.assert_array_equal(f(x), x.transpose(0, 2, 3, 1))


@pytest.mark.sample(30)
@pytest.mark.parametrize("element", [*TYPES, *NARROW])
@pytest.mark.parametrize("planes", [2, 3, 4, 6, 7])
@pytest.mark.parametrize("images", [1, 2])
def test_planes_become_one_past_the_caches(
    element: str, planes: int, images: int, compile_for: Callable[..., None]
) -> None:
    """Wherever the array begins; nothing else is written."""
    compile_for(l3_bytes=2)
    x = numbers((images, planes, 16, 20), element)
    f = compiled("%y = theano.dimshuffle %x0 {new_order = [0, 2, 3, 1]}", x)
    text = f.lower("schedule")
    assert "planes" in text and ("streaming" in text or element == "i1")
    size = x.nbytes
    for offset in range(0, 65, x.itemsize):
        held = np.full(size + 192, 1, np.uint8)
        start = -held.ctypes.data % 64 + offset
        out = held[start : start + size].view(x.dtype).reshape(images, 16, 20, planes)
        out[...] = 0
        np.testing.assert_array_equal(f(x, out=out), x.transpose(0, 2, 3, 1))
        assert (held[:start] == 1).all() and (held[start + size :] == 1).all()


def test_planes_are_computed_with() -> None:
    x, g = numbers((2, 3, 40, 40), "f32"), np.array([0.5, 2.0, -1.0], np.float32)
    body = """%t = theano.dimshuffle %x0 {new_order = [0, 2, 3, 1]}
  %y = dali.mul %t, %x1"""
    f = compiled(body, x, g)
    np.testing.assert_array_equal(f(x, g), x.transpose(0, 2, 3, 1) * g)


def test_how_far_lanes_lie_apart() -> None:
    i, j = Index("i", 64), Index("j", 64)
    x, wide = Tensor("x", (1000,), F32), Tensor("w", (2, 100), F32)
    eight = Lanes(i, 8, 8, lambda e: e is not i and not getattr(e, "operands", ()))
    assert offsets(x, (constant(70, I64) - i,), eight) == [0, -1, -2, -3, -4, -5, -6, -7]
    assert offsets(x, (i // 2 + j,), eight) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert offsets(wide, (i % 2, i // 2), eight) == [0, 100, 1, 101, 2, 102, 3, 103]
    assert (
        offsets(x, ((i + 1) // 2,), eight) is None
    )  # where a vector begins, 1 is not a multiple of 2
    assert offsets(x, (i // 3,), eight) is None
    assert offsets(x, (i * j,), eight) is None
    assert period([x[i // 2], wide[i % 3, j]], i) == 6
    assert period([x[j // 2]], i) == 1
    assert (
        begins(constant(16, I64), constant(64, I64), 8) == 8
        and begins(constant(0, I64), constant(8, I64), 8) == 0
    )


def test_windows_hold_what_is_wanted_and_no_more() -> None:
    for wanted in (
        [0, 2, 4, 6],
        [0, -1, -2, -3],
        [0, 0, 1, 1],
        [0, 5, 1, 6],
        [0, 4, 8, 12],
        [0, 9, 3, 12],
    ):
        found = windows(wanted)
        assert found is not None
        length = min(len(wanted), max(wanted) - min(wanted) + 1)
        held = {s + n for s in found for n in range(length)}
        assert set(wanted) <= held <= set(range(min(wanted), max(wanted) + 1))
    assert windows([0, 100, 200, 300, 400, 500]) is None
