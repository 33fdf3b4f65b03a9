"""Products of a few rows by constant weights are computed from panels, in the order of the
terms.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from legal_and_equal import checked, legal

import cvm

PROCESSORS = {
    "16 registers": {},
    "32 registers": {"vector_registers": 32},
    "512 bits": {"tile_vector_bytes": 64, "vector_registers": 32},
    "128 bits": {"tile_vector_bytes": 16},
}


def text(rows: int, columns: int, terms: int, w: np.ndarray, element: str) -> str:
    return f"""func @main(%x: tensor<{rows}x{terms}x{element}>, %b: tensor<{columns}x{element}>) {{
  %w = const dense<{w.tolist()}> : tensor<{columns}x{terms}x{element}>
  %h = cvm.dense %x, %w, %b
  %y = cvm.relu %h
  return %y
}}
"""


@pytest.mark.sample(16)
@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize(
    "rows, columns, terms", [(1, 16, 64), (1, 150, 40), (2, 129, 33), (3, 31, 64), (5, 77, 20)]
)
def test_order_of_terms(
    rows: int,
    columns: int,
    terms: int,
    element: str,
    processor: str,
    compile_for: Callable[..., None],
) -> None:
    compile_for(**PROCESSORS[processor])
    random = np.random.default_rng(rows)
    dtype = {"f32": np.float32, "f64": np.float64}[element]
    x, w, b = (
        random.standard_normal(s).astype(dtype)
        for s in ((rows, terms), (columns, terms), (columns,))
    )
    x[0, 3] = -np.inf
    program = text(rows, columns, terms, w, element)
    legal(program)
    compiled = cvm.compile(program)
    assert "taken few_rows" in compiled.lower("strategies")
    with np.errstate(all="ignore"):
        y, expected = compiled(x, b), cvm.compile(program, optimize=0)(x, b)
        np.testing.assert_array_equal(y, expected, strict=True)
        np.testing.assert_allclose(y, cvm.compile(program, target="reference")(x, b), 1e-4, 1e-4)


@pytest.mark.parametrize("rows, columns, terms", [(6, 64, 64), (1, 4, 512), (1, 16, 16)])
def test_too_many_rows_or_too_little_work(rows: int, columns: int, terms: int) -> None:
    """Panels of columns take less time for many rows, and for few columns or terms there is hardly
    any work.
    """
    program = text(rows, columns, terms, np.ones((columns, terms), np.float32), "f32")
    assert "taken few_rows" not in cvm.compile(program).lower("strategies")


@pytest.mark.parametrize("rows", [0, 1, 5, 7])
def test_rows_known_only_by_a_call(rows: int) -> None:
    random = np.random.default_rng(rows)
    x, w, b = (
        random.standard_normal(s).astype(np.float32) for s in ((rows, 70), (133, 70), (133,))
    )
    opened = text(1, 133, 70, w, "f32").replace("tensor<1x", "tensor<?x")
    legal(opened)
    compiled = cvm.compile(opened)
    assert "small.tiles" in compiled.lower("schedule")
    np.testing.assert_array_equal(
        compiled(x, b), cvm.compile(opened, optimize=0)(x, b), strict=True
    )


@pytest.mark.sample(22)
@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    "rows, columns, terms",
    [(1, 48, 64), (1, 150, 43), (2, 129, 33), (3, 37, 130), (5, 77, 1021), (12, 67, 450)],
)
@pytest.mark.parametrize("transposed", [False, True])
def test_given_weights(
    rows: int,
    columns: int,
    terms: int,
    transposed: bool,
    dtype: str,
    processor: str,
    compile_for: Callable[..., None],
) -> None:
    compile_for(**PROCESSORS[processor])
    random = np.random.default_rng(rows)
    shapes = ((rows, terms), (columns, terms) if transposed else (terms, columns))
    x, w = (random.standard_normal(s).astype(dtype) for s in shapes)
    element = f"f{8 * x.itemsize}"
    order = "[0, 1]" if transposed else "[1, 0]"
    program = f"""func @main(%x: tensor<{rows}x{terms}x{element}>, %w: tensor<{w.shape[0]}x{w.shape[1]}x{element}>) {{
  %v = theano.dimshuffle %w {{new_order = {order}}}
  %y = cvm.dense %x, %v
  return %y
}}
"""
    legal(program)
    f = cvm.compile(program)
    assert ("taken few_rows" in " ".join(f.lower("strategies").split())) == (transposed or rows > 1)
    np.testing.assert_array_equal(f(x, w), cvm.compile(program, optimize=0)(x, w), strict=True)


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("rows, columns, terms", [(1, 150, 43), (3, 37, 130), (1, 16, 12)])
def test_bf16_weights_are_widened_as_they_are_transposed(
    rows: int,
    columns: int,
    terms: int,
    processor: str,
    compile_for: Callable[..., None],
) -> None:
    bf16 = pytest.importorskip("ml_dtypes").bfloat16
    compile_for(**PROCESSORS[processor])
    random = np.random.default_rng(rows)
    x = random.standard_normal((rows, terms)).astype(np.float32)
    w = random.standard_normal((columns, terms)).astype(bf16)

    f = cvm.compile(lambda x, w: x @ w.astype(np.float32).T)
    wide = np.ascontiguousarray(w.astype(np.float32).T)
    np.testing.assert_array_equal(f(x, w), cvm.compile(lambda x, w: x @ w)(x, wide), strict=True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
def test_transposed_weights_are_loaded_by_vectors(dtype: str, cpu: str) -> None:
    element = np.dtype(dtype if dtype == "float32" else pytest.importorskip("ml_dtypes").bfloat16)
    f = cvm.compile(lambda x, w: x @ w.astype(np.float32).T, cpu=cpu)
    f.trace(np.zeros((1, 64), np.float32), np.zeros((32, 64), element))
    loads = re.findall(r"= load (\S+),", f.lower("llvm"))
    assert "i16" not in loads and loads.count("float") <= 1  # of x


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_batch_of_products_with_weights_of_their_own(
    rows: int, transposed: bool, processor: str, compile_for: Callable[..., None]
) -> None:
    """As attention has them, of some heads for each group of keys."""
    compile_for(**PROCESSORS[processor])
    random = np.random.default_rng(rows)
    x = random.standard_normal((2, 3, rows, 43)).astype(np.float32)
    w = random.standard_normal((2, 3, 43, 150)).astype(np.float32)
    given = np.ascontiguousarray(w.swapaxes(2, 3)) if transposed else w

    def products(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return x @ (w.swapaxes(2, 3) if transposed else w)

    f = cvm.compile(products)
    found = f(x, given)
    assert ("taken few_rows" in " ".join(f.lower("strategies").split())) == (transposed or rows > 1)
    checked(f._latest().compile().plan.kernels)
    one = cvm.compile(lambda x, w: x @ w)
    for n in np.ndindex(2, 3):
        np.testing.assert_array_equal(found[n], one(x[n], w[n]), strict=True)
