"""Large results are written past the caches where that is right, to arrays that are aligned or
not.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from cvm.dialect.kernel_ir.expressions import Index
from cvm.dialect.kernel_ir.loops import For, Store
from cvm.dialect.types.tensor_types import I32
from cvm.lowering.analysis.verify_kernel import check_kernel
from native_kernels import compiled, kernel, tensor

import cvm


@pytest.mark.parametrize("size", [1000, 1001, 1])
@pytest.mark.parametrize("offset", [0, 1, 4])
def test_any_alignment(size: int, offset: int, compile_for: Callable[..., None]) -> None:
    compile_for(l3_bytes=2)
    t = f"tensor<3x{size}xi32>"
    f = cvm.compile(f"func @main(%x: {t}) -> {t} {{\n  %y = cvm.relu %x\n  return %y\n}}\n")
    assert ("streaming" in f.lower("schedule")) == (size > 1)
    x = np.random.default_rng(0).integers(-100, 100, (3, size)).astype(np.int32)
    out = np.zeros(3 * size + 16, np.int32)[offset : offset + 3 * size].reshape(3, size)
    np.testing.assert_array_equal(f(x, out=out), np.maximum(x, 0))
    np.testing.assert_array_equal(f(x), np.maximum(x, 0))


@pytest.mark.parametrize("element", ["i8", "i16", "i32"])
@pytest.mark.parametrize("columns", [1027, 1103])
def test_rows_that_begin_anywhere(
    element: str, columns: int, compile_for: Callable[..., None]
) -> None:
    """A row is one loop, whatever vectors leave over, also where it begins beside other elements;
    nothing else is written.
    """
    compile_for(l3_bytes=2)
    rows = columns - 1
    f = cvm.compile(f"""func @main(%z: tensor<3x1x{element}>, %x: tensor<3x{rows}x{element}>) {{
      %y = cvm.concatenate %z, %x {{axis = 1}}
      return %y
    }}""")
    loops = [line for line in f.lower("schedule").splitlines() if "vector" in line]
    assert (
        len(loops) == 1
        and f" in 1..{columns} vector" in loops[0]
        and "streaming" in f.lower("schedule")
    )
    dtype = {"i8": np.int8, "i16": np.int16, "i32": np.int32}[element]
    random = np.random.default_rng(0)
    x, z = (random.integers(-100, 100, (3, n)).astype(dtype) for n in (rows, 1))
    for offset in range(0, 65, dtype().itemsize):
        held = np.full(3 * columns * x.itemsize + 192, 77, np.uint8)
        start = -held.ctypes.data % 64 + offset
        end = start + 3 * columns * x.itemsize
        out = held[start:end].view(dtype).reshape(3, columns)
        np.testing.assert_array_equal(f(z, x, out=out), np.concatenate([z, x], 1))
        assert (held[:start] == 77).all() and (held[end:] == 77).all()


def test_what_is_left_over_where_nothing_streams() -> None:
    """Another pass may take away that stores stream: vectors, then elements."""
    i = Index("i", 263)
    x, y = tensor("x", I32, 263), tensor("y", I32, 263)
    k = kernel((For(i, (Store(y, (i,), x[i] + 1),), kind="vector", width=16),), x, y)
    assert check_kernel(k) == []
    given = np.arange(263, dtype=np.int32)
    (found,) = compiled(k, given)
    np.testing.assert_array_equal(found, given + 1)


@pytest.mark.parametrize("columns", [1003, 512, 130])
@pytest.mark.parametrize("offset", [0, 4, 16, 36, 17])
@pytest.mark.parametrize("large", [1, 1 << 24])
def test_sizes_known_when_called(
    columns: int, offset: int, large: int, compile_for: Callable[..., None]
) -> None:
    """Rows begin anywhere; two results stream beside each other; no element outside of the array is
    written.
    """
    compile_for(l3_bytes=2 * large)
    t = "tensor<?x?xf32>"
    body = "  %y = dali.mul %x, 3.0\n  %z = dali.add %y, %x\n  return %y, %z\n"
    f = cvm.compile(f"func @main(%x: {t}) -> ({t}, {t}) {{\n{body}}}\n")
    assert f.lower("schedule").count("streaming") == 2
    x = np.random.default_rng(0).random((5, columns), np.float32)
    held = [np.zeros(x.nbytes + 128, np.uint8) for _ in range(2)]
    starts = [(-h.ctypes.data) % 64 + n for h, n in zip(held, (offset, 32), strict=True)]
    y, z = (
        h[s : s + x.nbytes].view(np.float32).reshape(x.shape)
        for h, s in zip(held, starts, strict=True)
    )
    f(x, out=(y, z))
    np.testing.assert_array_equal(y, x * np.float32(3))
    np.testing.assert_array_equal(z, x * np.float32(3) + x)
    for h, s in zip(held, starts, strict=True):
        assert not h[:s].any() and not h[s + x.nbytes :].any()


@pytest.mark.parametrize("element", ["i8", "i16", "i64", "f64"])
def test_any_element(element: str, compile_for: Callable[..., None]) -> None:
    compile_for(l3_bytes=2)
    t = f"tensor<5x1001x{element}>"
    f = cvm.compile(
        f"func @main(%x: {t}) -> {t} {{\n  %y = dali.add %x, %x : ({t}, {t}) -> {t}\n"
        f"  return %y\n}}\n"
    )
    assert "streaming" in f.lower("schedule")
    dtype = {"i8": np.int8, "i16": np.int16, "i64": np.int64, "f64": np.float64}[element]
    x = np.random.default_rng(0).integers(-100, 100, (5, 1001)).astype(dtype)
    for offset in range(0, 33, dtype().itemsize):
        held = np.zeros(x.nbytes + 64, np.uint8)
        out = held[offset : offset + x.nbytes].view(dtype).reshape(x.shape)
        np.testing.assert_array_equal(f(x, out=out), x + x)
        assert not held[:offset].any() and not held[offset + x.nbytes :].any()


def test_small_results_are_not() -> None:
    t = "tensor<1000xi32>"
    f = cvm.compile(f"func @main(%x: {t}) -> {t} {{\n  %y = cvm.relu %x\n  return %y\n}}\n")
    assert "streaming" not in f.lower("schedule")


def test_results_of_kernels_that_move_much_stream(compile_for: Callable[..., None]) -> None:
    """Arrays that are large together: a result that is not small among them."""
    compile_for(l3_bytes=8000)
    t = "tensor<800xi32>"
    two, three = "%y = cvm.relu %x\n", "%y = cvm.elemwise_add %x, %z\n"
    for body, given, streams in ((two, "", False), (three, f", %z: {t}", True)):
        f = cvm.compile(f"func @main(%x: {t}{given}) -> {t} {{\n  {body}  return %y\n}}\n")
        assert ("streaming" in f.lower("schedule")) == streams
    reduction = cvm.compile(
        "func @main(%x: tensor<40x800xi32>) {\n  %y = cvm.sum %x {axes = [0]}\n  return %y\n}\n"
    )
    assert "streaming" in reduction.lower("schedule")
    compile_for(l3_bytes=26_000)
    reduction = cvm.compile(
        "func @main(%x: tensor<40x801xi32>) {\n  %y = cvm.sum %x {axes = [0]}\n  return %y\n}\n"
    )
    assert "streaming" not in reduction.lower("schedule")


def test_vectors_narrower_than_a_whole_one_do_not_stream_at_any_place() -> None:
    """Rows of a size that is not known begin anywhere: a loop that cannot be aligned for its store
    stores as usual.
    """
    text = """func @main(%x: tensor<4x?xi32>) {
      %sum = dali.add %x, %x
      %picked = cvm.cvm_lut %sum, %x
      %left = cvm.cvm_left_shift %sum {precision = 32, shift_bit = 29}
      return %picked, %left
    }"""
    x = np.arange(28, dtype=np.int32).reshape(4, 7)
    for found, wanted in zip(
        cvm.compile(text)(x), cvm.compile(text, target="reference")(x), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("element", ["i8", "i16", "i32", "f64"])
@pytest.mark.parametrize("known", [True, False])
def test_loops_as_short_as_may_be(
    element: str, known: bool, compile_for: Callable[..., None]
) -> None:
    """A loop that reaches no cache line is not aligned, whatever aligning costs."""
    compile_for(l3_bytes=2, align_vectors=0)
    dtype, seen = (
        {"i8": np.int8, "i16": np.int16, "i32": np.int32, "f64": np.float64}[element],
        False,
    )
    for columns in (1, 3, 7, 8, 15, 17, 31, 33, 63, 65, 70, 100, 130):
        t = f"tensor<3x{columns if known else '?'}x{element}>"
        f = cvm.compile(
            f"func @main(%x: {t}) {{\n  %y = dali.add %x, %x : ({t}, {t}) -> {t}\n  return %y\n}}\n"
        )
        seen |= "streaming" in f.lower("schedule")
        x = np.random.default_rng(0).integers(-60, 60, (3, columns)).astype(dtype)
        for offset in range(0, 65, dtype().itemsize):
            held = np.full(x.nbytes + 192, 77, np.uint8)
            start = -held.ctypes.data % 64 + offset
            out = held[start : start + x.nbytes].view(dtype).reshape(x.shape)
            np.testing.assert_array_equal(f(x, out=out), x + x)
            assert (held[:start] == 77).all() and (held[start + x.nbytes :] == 77).all()
    assert seen
