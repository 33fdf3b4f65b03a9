"""Rearrangements are done by tiles and turned in registers, whatever the type and whatever the
sizes leave over.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from cvm.lowering.processor import Tuning
from legal_and_equal import legal

import cvm

TYPES = {"i8": np.int8, "ui16": np.uint16, "f32": np.float32, "i64": np.int64, "i1": np.bool_}


def tiled(x: np.ndarray, element: str, order: tuple[int, ...], known: bool) -> Any:
    """The compiled transposition, its kernels legal and tiled."""
    given = " x ".join(str(n) if known else "?" for n in x.shape)
    body = f"  %y = theano.dimshuffle %x {{new_order = {list(order)}}}\n  return %y\n"
    module = cvm.parse(f"func @main(%x: tensor<{given} x {element}>) {{\n{body}}}\n")
    legal(module)
    f = cvm.compile(module)
    assert ".tile" in f.lower("schedule")
    return f


def numbers(shape: tuple[int, ...], element: str) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 120, shape).astype(TYPES[element])


@pytest.mark.sample(15)
@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("shape", [(32, 16), (33, 35), (64, 100), (300, 129), (130, 1100)])
@pytest.mark.parametrize("known", [True, False])
def test_types_and_sizes(element: str, shape: tuple[int, int], known: bool) -> None:
    x = numbers(shape, element)
    np.testing.assert_array_equal(tiled(x, element, (1, 0), known)(x), x.T)


@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("shape", [(128, 128), (96, 1200), (100, 1100), (35, 70)])
def test_results_larger_than_the_caches(
    element: str, shape: tuple[int, int], compile_for: Callable[..., None]
) -> None:
    compile_for(l3_bytes=2)
    x = numbers(shape, element)
    f = tiled(x, element, (1, 0), known=True)
    assert "alloc stack %turned" in f.lower("schedule")
    np.testing.assert_array_equal(f(x), x.T)


@pytest.mark.sample(15)
@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("shape", [(32, 32), (41, 41), (97, 100), (200, 33), (33, 200), (129, 64)])
@pytest.mark.parametrize("known", [True, False])
def test_as_small_tiles_as_may_be(
    element: str, shape: tuple[int, int], known: bool, compile_for: Callable[..., None]
) -> None:
    """The smallest tile is correct, independent of profitability."""
    tile = dict.fromkeys(
        ("tile_rows", "tile_row_bytes", "tile_write_bytes", "tile_read_bytes", "tile_copy_bytes"), 0
    )
    compile_for(l3_bytes=2, align_vectors=1, short_row_bytes=0, **tile)
    x = numbers(shape, element)
    np.testing.assert_array_equal(tiled(x, element, (1, 0), known)(x), x.T)


@pytest.mark.sample(30)
@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("shape", [(300, 128), (333, 70), (1100, 40), (272, 257), (1200, 16)])
@pytest.mark.parametrize("offset", [0, 3, 64])
@pytest.mark.parametrize("threads", [1, 2])
def test_strips_that_overlap(
    element: str,
    shape: tuple[int, int],
    offset: int,
    threads: int,
    compile_for: Callable[..., None],
) -> None:
    """Whole lines of memory, wherever rows begin; no element outside of the result is written."""
    compile_for(l3_bytes=2, tile_write_bytes=192)
    x = numbers(shape, element)
    f = tiled(x, element, (1, 0), known=True)
    size = x.itemsize
    by_lines = shape[0] * size % 64 == 0 and shape[1] * size > Tuning().short_row_bytes
    assert ("misalignment(%y" if by_lines else "overlap") in f.lower("schedule")
    for first in (
        offset * size,
        offset * size + 1,
    ):  # elements at multiples of their size, and elsewhere
        held = np.full(x.nbytes + 192 * size, 77, np.uint8)
        start = -held.ctypes.data % 64 + first
        out = held[start : start + x.nbytes].view(x.dtype).reshape(x.T.shape)
        before = cvm.get_num_threads()
        cvm.set_num_threads(threads)
        try:
            f(x, out=out)
        finally:
            cvm.set_num_threads(before)
        np.testing.assert_array_equal(out, x.T)
        assert (held[:start] == 77).all() and (held[start + x.nbytes :] == 77).all()


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 3, 1, 2), (3, 1, 0, 2), (2, 3, 0, 1)])
@pytest.mark.parametrize("shape", [(2, 17, 19, 33), (3, 300, 2, 20), (2, 16, 23, 301)])
@pytest.mark.parametrize("element", ["i8", "f32", "i64"])
def test_strips_of_several_axes(
    order: tuple[int, ...], shape: tuple[int, ...], element: str, compile_for: Callable[..., None]
) -> None:
    compile_for(l3_bytes=2, tile_write_bytes=64)
    x = numbers(shape, element)
    given = " x ".join(map(str, shape))
    text = (
        f"func @main(%x: tensor<{given} x {element}>) {{\n"
        f"  %y = theano.dimshuffle %x {{new_order = {list(order)}}}\n  return %y\n}}\n"
    )
    module = cvm.parse(text)
    legal(module)
    np.testing.assert_array_equal(cvm.compile(module)(x), x.transpose(order))


def test_strips_of_what_is_computed(compile_for: Callable[..., None]) -> None:
    """Another type of result, wider or narrower than what is read, and an operand that is not
    turned.
    """
    compile_for(l3_bytes=2, tile_write_bytes=256, short_row_bytes=64)
    rng = np.random.default_rng(0)
    names = {"f32": np.float32, "f64": np.float64, "ui8": np.uint8, "i8": np.int8}
    types = (
        ("f32", "f64", "f64"),
        ("f64", "f32", "f32"),
        ("ui8", "f32", "f32"),
        ("f32", "i8", "i8"),
    )
    for rows, (given, wanted, other) in product((402, 448), types):
        text = f"""func @main(%x: tensor<{rows}x99x{given}>, %w: tensor<99x{rows}x{other}>) {{
  %t = theano.dimshuffle %x {{new_order = [1, 0]}}
  %c = theano.elemwise %t {{scalar_op = "cast", dtype = {wanted}}}
  %y = dali.add %c, %w
  return %y
}}
"""
        x = rng.integers(0, 50, (rows, 99)).astype(names[given])
        w = rng.integers(0, 50, (99, rows)).astype(names[other])
        f = cvm.compile(text)
        assert ("overlap" if rows % 64 else "misalignment(%y") in f.lower("schedule")
        np.testing.assert_array_equal(f(x, w), x.T.astype(names[wanted]) + w)


@pytest.mark.parametrize("order", [(1, 2, 0), (2, 0, 1), (0, 2, 1), (2, 1, 0)])
@pytest.mark.parametrize("shape", [(40, 64, 33), (32, 32, 100)])
@pytest.mark.parametrize("known", [True, False])
def test_orders(order: tuple[int, int, int], shape: tuple[int, int, int], known: bool) -> None:
    x = numbers(shape, "f32")
    np.testing.assert_array_equal(tiled(x, "f32", order, known)(x), x.transpose(order))


@pytest.mark.parametrize("shape", [(0, 40), (40, 0), (1, 200), (3, 5), (17, 16)])
def test_small_and_empty(shape: tuple[int, int]) -> None:
    x = numbers(shape, "f32")
    np.testing.assert_array_equal(tiled(x, "f32", (1, 0), known=False)(x), x.T)


@pytest.mark.parametrize("given", ["? x 24", "24 x ?"])
@pytest.mark.parametrize("rest", [0, 1, 5, 24, 77])
def test_one_size_is_known(given: str, rest: int) -> None:
    x = numbers((rest, 24) if given[0] == "?" else (24, rest), "f32")
    f = cvm.compile(
        f"func @main(%x: tensor<{given} x f32>) {{\n  %y = cvm.transpose %x\n  return %y\n}}\n"
    )
    assert ".tile" in f.lower("schedule")
    np.testing.assert_array_equal(f(x), x.T)


def test_turned_values_are_computed_with() -> None:
    """A sum of an array, its transpose and another transpose, as f64."""
    text = """func @main(%x: tensor<72x72xf32>, %w: tensor<72x72xf32>) {
  %a = theano.dimshuffle %x {new_order = [1, 0]}
  %b = theano.dimshuffle %w {new_order = [1, 0]}
  %s = dali.add %a, %b
  %t = dali.mul %s, %x
  %y = dali.add %t, 0.5 : f64
  return %y
}
"""
    f = cvm.compile(text)
    assert ".tile" in f.lower("schedule") and "shufflevector" in f.lower("llvm")
    x, w = (np.random.default_rng(n).standard_normal((72, 72)).astype(np.float32) for n in (0, 1))
    np.testing.assert_array_equal(f(x, w), ((x.T + w.T) * x).astype(np.float64) + 0.5)


def test_an_array_that_is_overwritten_is_not_turned() -> None:
    text = (
        "func @main(%x: tensor<64x64xi32>) {\n  %y = cvm.transpose %x\n"
        "  %z = cvm.elemwise_add %y, %x\n  return %z, %y\n}\n"
    )
    x = numbers((64, 64), "f32").astype(np.int32)
    z, y = cvm.compile(text)(x)
    np.testing.assert_array_equal(y, x.T)
    np.testing.assert_array_equal(z, x.T + x)


@pytest.mark.sample(20)
@pytest.mark.parametrize("element", ["i8", "ui16", "i1"])
@pytest.mark.parametrize("shape", [(300, 192), (333, 320), (70, 1024)])
@pytest.mark.parametrize("offset", [0, 1, 16, 48, 63])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_are_copied_by_whole_lines(
    element: str,
    shape: tuple[int, int],
    offset: int,
    threads: int,
    compile_for: Callable[..., None],
) -> None:
    """Wherever the array that is read begins."""
    compile_for(l3_bytes=2, tile_write_bytes=192, short_row_bytes=64)
    x = numbers(shape, element)
    f = tiled(x, element, (1, 0), known=True)
    assert "misalignment(%x" in f.lower("schedule")
    held = np.zeros(x.nbytes + 128, np.uint8)
    start = -held.ctypes.data % 64 + offset
    moved = held[start : start + x.nbytes].view(x.dtype).reshape(shape)
    moved[...] = x
    before = cvm.get_num_threads()
    cvm.set_num_threads(threads)
    try:
        np.testing.assert_array_equal(f(moved), x.T)
    finally:
        cvm.set_num_threads(before)


@pytest.mark.parametrize("shape", [(64, 1003), (300, 200), (64, 100)])
def test_rows_that_begin_anywhere_in_a_line_are_not(
    shape: tuple[int, int], compile_for: Callable[..., None]
) -> None:
    compile_for(l3_bytes=2)
    x = numbers(shape, "i8")
    f = tiled(x, "i8", (1, 0), known=True)
    assert "skew" not in f.lower("schedule")
    np.testing.assert_array_equal(f(x), x.T)


def test_another_tile_is_asked_for_with_each_row_that_is_written() -> None:
    """As many lines as are written, where arrays are large."""
    text = "func @main(%x: tensor<{0}x{0}x{1}>) {{\n  %y = cvm.transpose %x\n  return %y\n}}\n"
    for element, size in (("i8", 1), ("f32", 4), ("f64", 8)):
        large = cvm.compile(text.format(4096, element)).lower("schedule")
        assert f"in 0..{2 if size == 1 else 4} unrolled {{\n            prefetch %x[" in large
        assert large.count("prefetch %x[") == 2  # of tiles inside, and of those at the ends
    assert "ask" not in cvm.compile(text.format(1024, "i8")).lower("schedule")


def test_the_last_tiles_of_a_strip_ask_for_those_of_the_next(
    compile_for: Callable[..., None],
) -> None:
    compile_for(l3_bytes=2, tile_write_bytes=64)
    f = tiled(numbers((256, 192), "f32"), "f32", (1, 0), known=True)
    assert "select(%i0.tile + 2 >= 3, %i0.tile + 2 - 3, %i0.tile + 2)" in f.lower("schedule")
