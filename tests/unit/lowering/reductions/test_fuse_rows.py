"""Kernels that follow each other row by row are one, and what they compute stays the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from legal_and_equal import legal

import cvm

SOFTMAX = """  %m = theano.max %x {axis = [AXIS]}
  %n = theano.dimshuffle %m {new_order = [ROW, "x"]}
  %d = dali.sub %x, %n
  %e = dali.exp %d
  %s = theano.sum %e {axis = [AXIS]}
  %t = theano.dimshuffle %s {new_order = [ROW, "x"]}
  %y = dali.div %e, %t
"""


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True, dtype=np.float64).astype(np.float32)


def program(body: str, *shape: int | str, results: str = "%y", element: str = "f32") -> str:
    return (
        f"func @main(%x: tensor<{' x '.join(map(str, shape))} x {element}>) {{\n"
        f"{body}  return {results}\n}}\n"
    )


@pytest.mark.parametrize(
    "shape", [(16, 64), (33, 100), (20, 1), (40, 17), (3, 5, 77), (2, 4, 8, 40)]
)
@pytest.mark.parametrize("known", [True, False])
def test_softmax(shape: tuple[int, ...], known: bool) -> None:
    body = SOFTMAX.replace("AXIS", str(len(shape) - 1)).replace(
        "ROW", ", ".join(map(str, range(len(shape) - 1)))
    )
    text = program(body, *(shape if known else "?" * len(shape)))
    joined = not known or np.prod(shape[:-1]) >= 16
    assert len(legal(text)) == (1 if joined else 3)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    np.testing.assert_allclose(cvm.compile(text)(x), softmax(x), rtol=3e-6)


def test_values_of_rows_that_are_wanted() -> None:
    text = program(SOFTMAX.replace("AXIS", "1").replace("ROW", "0"), 32, 50, results="%m, %y, %s")
    assert len(legal(text)) == 1
    x = np.random.default_rng(0).standard_normal((32, 50)).astype(np.float32)
    m, y, s = cvm.compile(text)(x)
    np.testing.assert_array_equal(m, x.max(1))
    np.testing.assert_allclose(s, np.exp(x - m[:, None]).sum(1), rtol=3e-6)
    np.testing.assert_allclose(y, softmax(x), rtol=3e-6)


@pytest.mark.parametrize("columns", [16, 33, 200])
@pytest.mark.parametrize("threads", [1, 2])
def test_integers(columns: int, threads: int) -> None:
    body = """  %m = theano.max %x {axis = [1]}
  %n = theano.dimshuffle %m {new_order = [0, "x"]}
  %d = dali.sub %x, %n
  %q = dali.mul %d, %d
  %s = theano.sum %q {axis = [1], dtype = i32, acc_dtype = i32}
  %t = theano.dimshuffle %s {new_order = [0, "x"]}
  %y = dali.add %d, %t
"""
    text = program(body, 3000, columns, element="i32")
    assert len(legal(text)) == 1
    x = np.random.default_rng(0).integers(-99, 99, (3000, columns)).astype(np.int32)
    d = x - x.max(1, keepdims=True)
    before = cvm.get_num_threads()
    try:
        cvm.set_num_threads(threads)
        np.testing.assert_array_equal(
            cvm.compile(text)(x), d + (d * d).sum(1, keepdims=True, dtype=np.int32)
        )
    finally:
        cvm.set_num_threads(before)


OTHER_ROWS: list[tuple[str, Any]] = [
    ("  %n = cvm.slice %m {begin = [39], end = [-41], strides = [-1]}\n", lambda m: m[::-1]),
    ("  %n = cvm.take %m, %m\n", lambda m: m[np.clip(m, 0, len(m) - 1)]),
]


@pytest.mark.parametrize(("between", "way"), OTHER_ROWS)
def test_values_of_other_rows_come_first(between: str, way: Any) -> None:
    body = f"""  %m = cvm.max %x {{axes = [1]}}
{between}  %r = cvm.reshape %n {{target_shape = [40, 1]}}
  %y = cvm.broadcast_sub %x, %r
"""
    text = program(body, 40, 40, element="i32")
    assert len(legal(text)) > 1
    x = np.random.default_rng(0).integers(0, 50, (40, 40)).astype(np.int32)
    np.testing.assert_array_equal(cvm.compile(text)(x), x - way(x.max(1))[:, None])


def test_few_rows_stay_apart() -> None:
    assert len(legal(program(SOFTMAX.replace("AXIS", "1").replace("ROW", "0"), 2, 5000))) == 3


def test_rows_beyond_half_of_the_second_cache_stay_apart(compile_for: Callable[..., None]) -> None:
    text = program(SOFTMAX.replace("AXIS", "1").replace("ROW", "0"), 32, 4096)
    compile_for(l2_bytes=2 * 4 * 4096)
    assert len(legal(text)) == 1
    compile_for(l2_bytes=2 * 4 * 4096 - 2)
    assert len(legal(text)) == 3


def test_a_reduction_of_what_has_names_goes_by_lanes() -> None:
    """The order of a sum is that of lanes, whatever is summed."""
    body = (
        "  %a = dali.add %x, 1.0 : f64\n  %q = dali.mul %a, %a\n  %d = dali.div %a, %q\n"
        "  %y = theano.sum %d\n"
    )
    text = program(body, 1000, element="f64")
    x = np.random.default_rng(0).uniform(1, 2, 1000)
    d = (x + 1) / ((x + 1) * (x + 1))
    lanes = np.zeros(16)
    for k in range(0, 992, 16):
        lanes = lanes + d[k : k + 16]
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    total = lanes[0]
    for v in d[992:]:
        total = total + v
    assert "let" in cvm.compile(text).lower("loops")
    assert cvm.compile(text)(x) == total


@pytest.mark.parametrize("columns", [16, 37, 100])
def test_a_reduction_with_rare_branches_goes_by_lanes(columns: int) -> None:
    body = "  %e = dali.exp %x\n  %y = theano.sum %e {axis = [1]}\n"
    text = program(body, 20, columns)
    legal(text)
    assert "any(" in cvm.compile(text).lower("loops") and "sums" in cvm.compile(text).lower(
        "schedule"
    )
    x = (np.random.default_rng(0).standard_normal((20, columns)) * 60).astype(np.float32)
    found = cvm.compile(text)(x)
    np.testing.assert_allclose(found, cvm.compile(text, target="reference")(x), rtol=3e-6)
    np.testing.assert_array_equal(found, cvm.compile(text, target="cuda-sim")(x))


def test_the_next_row_is_asked_for_while_one_is_read_again(
    compile_for: Callable[..., None],
) -> None:
    body = """  %m = theano.max %x {axis = [1]}
  %n = theano.dimshuffle %m {new_order = [0, "x"]}
  %y = dali.sub %x, %n
"""

    def asked(f: Any) -> int:
        found = (
            line for line in f.lower("llvm").splitlines() if "call void @llvm.prefetch" in line
        )
        return sum(", i32 0, i32" in line for line in found)  # to be read

    compile_for(l3_bytes=2)
    for columns, count in ((1024, 1), (1030, 1), (1000, 0)):
        f = cvm.compile(program(body, 32, columns))
        assert asked(f) == count, columns
        x = np.random.default_rng(0).standard_normal((32, columns)).astype(np.float32)
        np.testing.assert_array_equal(f(x), x - x.max(1, keepdims=True))
    plain = "  %y = dali.mul %x, %x\n"
    assert not asked(cvm.compile(program(plain, 32, 1024)))
