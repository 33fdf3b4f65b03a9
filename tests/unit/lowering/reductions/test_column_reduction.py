"""Reductions along an axis that is not the last read memory along its rows, and sum in the order of
their indices.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from legal_and_equal import legal

import cvm

SHAPES = [(16, 16), (19, 17), (64, 1000), (33, 2049), (16, 5000), (100, 16), (1043, 20)]


@pytest.fixture(autouse=True)
def short_rows(tune: Callable[..., None]) -> None:
    tune(column_pitch_bytes=1)


def swept(text: str) -> object:
    """The compiled program, its kernels legal and swept."""
    module = cvm.parse(text)
    legal(module)
    f = cvm.compile(module)
    assert "alloc stack" in f.lower("schedule")
    return f


def reduced(name: str, element: str, *shape: int | str, axis: int = 0) -> object:
    given = " x ".join(map(str, shape))
    body = f"  %y = theano.{name} %x {{axis = [{axis}]}}\n  return %y\n"
    return swept(f"func @main(%x: tensor<{given} x {element}>) {{\n{body}}}\n")


@pytest.mark.sample(20)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["sum", "max", "prod"])
@pytest.mark.parametrize("element", ["i8", "ui8", "i32", "i64"])
def test_integers(shape: tuple[int, int], name: str, element: str) -> None:
    dtype = {"i8": np.int8, "ui8": np.uint8, "i32": np.int32, "i64": np.int64}[element]
    x = np.random.default_rng(0).integers(0, 200, shape).astype(dtype)
    for f in (reduced(name, element, *shape), reduced(name, element, "?", "?")):
        np.testing.assert_array_equal(f(x), getattr(np, name)(x, axis=0))  # type: ignore[operator]


@pytest.mark.parametrize("shape", SHAPES)
def test_sums_of_floats_in_order(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    total = np.zeros(shape[1])
    for row in x:
        total = total + row
    for f in (reduced("sum", "f32", *shape), reduced("sum", "f32", "?", "?")):
        np.testing.assert_array_equal(f(x), total.astype(np.float32))  # type: ignore[operator]


@pytest.mark.parametrize("columns", [1, 3, 4, 7, 15, 28, 63])
@pytest.mark.parametrize("element", ["i32", "f32"])
def test_few_columns_of_unknown_number_go_by_shorter_vectors(columns: int, element: str) -> None:
    x = np.random.default_rng(0).standard_normal((19, columns)) * 100
    x = x.astype(np.int32 if element == "i32" else np.float32)
    f = reduced("sum", element, "?", "?")
    assert all(f"vector {n} {{" in f.lower("schedule") for n in (8, 4))  # type: ignore[attr-defined]
    total = np.zeros(columns, np.int64 if element == "i32" else np.float64)
    for row in x:
        total = total + row
    np.testing.assert_array_equal(f(x), total.astype(np.int64 if element == "i32" else np.float32))  # type: ignore[operator]


@pytest.mark.parametrize(
    "shape", [(3, 40, 100), (1, 17, 3000), (0, 17, 20), (3, 0, 20), (3, 20, 0)]
)
def test_middle_axis(shape: tuple[int, int, int]) -> None:
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.int32)
    unknown = reduced("sum", "i32", "?", "?", "?", axis=1)
    np.testing.assert_array_equal(unknown(x), x.sum(axis=1))  # type: ignore[operator]
    if min(shape) > 1:
        np.testing.assert_array_equal(reduced("sum", "i32", *shape, axis=1)(x), x.sum(axis=1))  # type: ignore[operator]


def test_results_of_other_reductions_are_kept() -> None:
    """The mean, and the sum of the squares of what differs from it, in one nest."""
    f = swept("""func @main(%x: tensor<50x300xf64>) {
  %s = theano.sum %x {axis = [0]}
  %m = dali.div %s, 50.0 : f64
  %d = dali.sub %x, %m
  %q = dali.mul %d, %d
  %v = theano.sum %q {axis = [0]}
  return %m, %v
}
""")
    x = np.random.default_rng(0).standard_normal((50, 300))
    m, v = f(x)  # type: ignore[operator]
    np.testing.assert_allclose(m, x.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(v, ((x - x.mean(axis=0)) ** 2).sum(axis=0), rtol=1e-12)


def test_what_is_read_again_stays_in_registers() -> None:
    text = """func @main(%x: tensor<64x64xf64>, %w: tensor<64x64xf64>) {
  %a = theano.dimshuffle %x {new_order = [0, 1, "x"]}
  %b = theano.dimshuffle %w {new_order = ["x", 0, 1]}
  %p = dali.add %a, %b
  %y = theano.max %p {axis = [1]}
  return %y
}
"""
    assert "alloc stack" not in cvm.compile(text).lower("schedule")


def test_rows_of_large_arrays_are_asked_for_early(compile_for: Callable[..., None]) -> None:
    """Eight rows at once are read where the next eight begin 1024 elements further on; of a
    stencil, the next is among them.
    """
    text = (
        "func @main(%x: tensor<SHAPExf32>) {\n  %y = theano.sum %x {axis = [0]}\n  return %y\n}\n"
    )
    far = cvm.compile(text.replace("SHAPE", "50x1024"))
    assert "prefetch" not in far.lower("llvm")
    compile_for(l3_bytes=2, column_pitch_bytes=1)
    far = cvm.compile(text.replace("SHAPE", "50x1024"))
    near = cvm.compile(text.replace("SHAPE", "50x1000"))
    window = """func @main(%x: tensor<1x1x30x1024xi32>) {
  %y = cvm.max_pool2d %x {pool_size = [3, 1], strides = [1, 1], padding = [0, 0]}
  return %y
}
"""
    assert far.lower("llvm").count("call void @llvm.prefetch") == 8
    assert "prefetch" not in near.lower("llvm") + cvm.compile(window).lower("llvm")
    x = np.random.default_rng(0).integers(-99, 99, (50, 1024)).astype(np.float32)
    np.testing.assert_array_equal(far(x), x.sum(axis=0))
