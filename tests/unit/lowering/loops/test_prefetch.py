"""Rows that other reads pick are asked for some turns before, and are the rows that were picked."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import cvm


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
@pytest.mark.parametrize("columns", [8, 17, 64, 301])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_by_index(
    count: int, columns: int, threads: int, compile_for: Callable[..., None]
) -> None:
    compile_for(l2_bytes=2)
    text = f"""func @main(%x: tensor<90x{columns}xi32>, %w: tensor<{count}xi32>) {{
  %y = cvm.take %x, %w {{axis = 0}}
  return %y
}}
"""
    f = cvm.compile(text)
    assert count < 1000 or columns == 8 or "prefetch" in f.lower("llvm")
    rng = np.random.default_rng(count)
    x = rng.integers(-1000, 1000, (90, columns)).astype(np.int32)
    w = rng.integers(-5, 95, count).astype(np.int32)  # what is outside is taken for the nearest row
    before = cvm.get_num_threads()
    cvm.set_num_threads(threads)
    try:
        np.testing.assert_array_equal(f(x, w), x[np.clip(w, 0, 89)])
    finally:
        cvm.set_num_threads(before)


def test_rows_of_small_arrays_are_not_asked_for() -> None:
    text = (
        "func @main(%x: tensor<90x64xi32>, %w: tensor<50xi32>) {\n"
        "  %y = cvm.take %x, %w {axis = 0}\n  return %y\n}\n"
    )
    assert "prefetch" not in cvm.compile(text).lower("llvm")
