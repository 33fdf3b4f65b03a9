"""Kernels given as text on a GPU's grid: loop marks that do not fit a grid, and zeros in elements
that are not proved to be written.
"""

from __future__ import annotations

import numpy as np
import pytest
from cvm.jit.options import CompileOptions
from cvm.jit.targets import find_target

from cvm.terminal.read_program import compiled, read_kernels, warnings_of

needs_nvrtc = pytest.mark.skipif(find_target("cuda-sim").missing() != "", reason="needs NVRTC")
TARGETS = ["cpu", pytest.param("cuda-sim", marks=needs_nvrtc)]

X = np.arange(1, 13, dtype=np.int32)


def run(text: str, target: str, *arguments: np.ndarray) -> np.ndarray:
    plan = read_kernels(text, "test.loops")
    f = compiled(plan, plan.name, target, CompileOptions())
    out = np.full(12, 0x5A, np.int32)
    f(*arguments, out=out)
    return out


NESTED = """kernel @k(%x: tensor<12xi32>) -> (%y: tensor<12xi32>) {
  for %i in 0..3 parallel {
    for %j in 0..4 parallel {
      %y[%i * 4 + %j] = %x[%i * 4 + %j] * 2
    }
  }
}
"""
LATE = """kernel @k(%x: tensor<12xi32>) -> (%y: tensor<12xi32>) {
  for %i in 0..12 {
    %y[%i] = %x[%i] * 2
  }
  for %i in 0..12 {
    for %j in %i..12 parallel {
      %y[%j] = %y[%j] + 1
    }
  }
}
"""
TWO_BLOCK_LOOPS = """kernel @k(%x: tensor<12xi32>) -> (%y: tensor<12xi32>) {
  for %b in 0..3 block {
    for %t in 0..4 thread {
      %y[%b * 4 + %t] = %x[%b * 4 + %t]
    }
  }
  for %b in 0..3 block {
    for %t in 0..4 thread {
      %y[%b * 4 + %t] = %y[%b * 4 + %t] * 2
    }
  }
}
"""
THREE_THREADS = """kernel @k(%x: tensor<12xi32>) -> (%y: tensor<12xi32>) {
  for %b in 0..4 block {
    for %t in 0..3 thread {
      %y[%b * 3 + %t] = %x[%b * 3 + %t] * 2
    }
  }
}
"""
TWO_EXTENTS = """kernel @k(%x: tensor<12xi32>) -> (%y: tensor<12xi32>) {
  for %b in 0..3 block {
    for %t in 0..2 thread {
      %y[%b * 4 + %t] = %x[%b * 4 + %t] * 2
    }
    for %t in 0..4 thread {
      if %t >= 2 {
        %y[%b * 4 + %t] = %x[%b * 4 + %t] * 2
      }
    }
  }
}
"""
STORE_BY_ALL = """kernel @k(%x: tensor<12xi32>) -> (%y: tensor<12xi32>) {
  for %b in 0..3 block {
    for %t in 0..4 thread {
      %y[%b * 4 + %t] = %x[%b * 4 + %t]
    }
    for %k in 0..4 {
      %y[%b * 4 + %k] = %y[%b * 4 + %k] * 2
    }
  }
}
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NESTED, X * 2),
        (LATE, X * 2 + X),
        (TWO_BLOCK_LOOPS, X * 2),
        (THREE_THREADS, X * 2),
        (TWO_EXTENTS, X * 2),
        (STORE_BY_ALL, X * 2),
    ],
    ids=[
        "nested",
        "late",
        "two_block_loops",
        "three_threads",
        "two_extents",
        "store_by_all",
    ],
)
def test_marks_do_not_change_results(text: str, expected: np.ndarray, target: str) -> None:
    assert np.array_equal(run(text, target, X), expected)


@needs_nvrtc
def test_a_parallel_loop_begins_at_its_start() -> None:
    text = """kernel @k(%x: tensor<12xi32>) -> (%y: tensor<12xi32>) {
  for %i in 5..12 parallel {
    %y[%i] = %x[%i]
  }
}
"""
    text = text.replace("(%y: tensor<12xi32>)", "(%y: tensor<12xi32> zero)")
    assert np.array_equal(run(text, "cuda-sim", X), np.where(np.arange(12) < 5, 0, X))
    whole = """kernel @a(%x: tensor<12xi32>) -> (%y: tensor<7xi32>) {
  for %i in 5..12 parallel {
    %y[%i - 5] = %x[%i]
  }
}
"""
    plan = read_kernels(whole, "test.loops")
    f = compiled(plan, plan.name, "cuda-sim", CompileOptions())
    assert np.array_equal(f(X), X[5:])


WHERE = """kernel @k(%n: tensor<?N x i32>, %x: tensor<12xi32>) -> (%y: tensor<12xi32>) where ?N >= 6 {
  for %i in 0..12 {
    %y[%i] = %x[%i]
  }
}
"""
OTHERWISE = """kernel @m(%n: tensor<?N x i32>, %x: tensor<12xi32>) -> (%y: tensor<12xi32>) where ?N < LIMIT {
  for %i in 0..12 {
    %y[%i] = %x[%i] * 3
  }
}
"""


def n_of(size: int) -> np.ndarray:
    return np.zeros(size, np.int32)


@pytest.mark.parametrize("target", TARGETS)
def test_a_result_is_zero_where_no_condition_holds(target: str) -> None:
    assert np.array_equal(run(WHERE, target, n_of(6), X), X)
    assert np.array_equal(run(WHERE, target, n_of(5), X), X * 0)
    both = WHERE + OTHERWISE.replace("LIMIT", "5")
    for size, expected in ((4, X * 3), (5, X * 0), (6, X)):
        assert np.array_equal(run(both, target, n_of(size), X), expected)


def test_conditions_that_cover_every_call_need_no_zeros() -> None:
    messages = [
        [d.message for d in warnings_of(read_kernels(text, "test.loops"))]
        for text in (WHERE, WHERE + OTHERWISE.replace("LIMIT", "5"))
    ]
    expected = "kernel @k: %y is a result, and not proved to be written whole"
    assert all(len(m) == 1 and m[0].startswith(expected) for m in messages)
    assert not warnings_of(read_kernels(WHERE + OTHERWISE.replace("LIMIT", "6"), "test.loops"))
    assert not warnings_of(read_kernels(WHERE + OTHERWISE.replace("LIMIT", "7"), "test.loops"))


ON_GRID = """kernel @k(%x: tensor<12xi32>) -> (%y: tensor<12xi32>) {
  for %b in 0..3 block {
    alloc shared %s: tensor<6xi32>
    alloc register %r: tensor<4x2xi32>
    for %t in 0..4 thread {
      if %x[%b * 4 + %t] > (5 : i32) {
        %s[%t + 1] = %x[%b * 4 + %t]
        %r[%t, 1] = (7 : i32)
      }
    }
    for %t in 0..4 thread {
      if %x[%b * 4 + %t] mod 2 == (0 : i32) {
        %y[%b * 4 + %t] = %s[%t + 1] + %s[(%t + 5) mod 6] + %r[%t, 0] + %r[%t, 1]
      }
    }
  }
}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_grid_does_not_write_is_zero(target: str) -> None:
    plan = read_kernels(ON_GRID, "test.loops")
    assert sorted(d.message.split(":")[1].split()[0] for d in warnings_of(plan)) == [
        "%r",
        "%s",
        "%y",
    ]
    expected = np.zeros(12, np.int32)
    for b in range(3):
        s, r = np.zeros(6, np.int32), np.zeros(4, np.int32)
        for t in range(4):
            if X[b * 4 + t] > 5:
                s[t + 1], r[t] = X[b * 4 + t], 7
        for t in range(4):
            if X[b * 4 + t] % 2 == 0:
                expected[b * 4 + t] = s[t + 1] + s[(t + 5) % 6] + r[t]
    assert np.array_equal(run(ON_GRID, target, X), expected)


READS_ITS_RESULT = """kernel @k(%x: tensor<12xi32>) -> (%z: tensor<12xi32>) where %z[0] == (0 : i32) {
  for %i in 0..12 {
    %z[%i] = %x[%i]
  }
  for %i in 0..12 {
    %z[%i] = %z[%i] + (1 : i32)
  }
}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_a_condition_is_tested_once(target: str) -> None:
    plan = read_kernels(READS_ITS_RESULT, "test.loops")
    f = compiled(plan, plan.name, target, CompileOptions())
    assert np.array_equal(f(X, X * 0), X + 1)
    assert np.array_equal(f(X, X), X)
