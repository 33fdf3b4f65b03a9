"""Arithmetic simplified by ranges: the same integers as the reference, at the ends of the types and
of the ranges.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import cvm

EDGES = [
    0,
    1,
    -1,
    2,
    3,
    -3,
    (1 << 30) - 1,
    1 << 30,
    -(1 << 30),
    (1 << 31) - 1,
    -(1 << 31),
    -(1 << 31) + 1,
]
SHIFTS = [
    [31, 31, 31],
    [32, 40, 62],
    [63, 61, 32],
    [0, 1, 30],
    [30, 31, 32],
    [33, 47, 48],
    [64, 95, 103],
    [-1, -33, 70],
]
MULTIPLIERS = [[1 << 30, 1518500250, (1 << 31) - 1], [-(1 << 31), -1, 0]]


@pytest.mark.sample(4)
@pytest.mark.parametrize("rounding", ["single", "tosa_double", "tflite_double", "shift_half_up"])
@pytest.mark.parametrize("bound", [(1 << 31) - 1, 1 << 24, 127])
def test_requantisation_by_constant_shifts(rounding: str, bound: int) -> None:
    random = np.random.default_rng(3)
    x = np.array(
        [[n, n, n] for n in EDGES] + random.integers(-(1 << 31), 1 << 31, (100, 3)).tolist()
    )
    x = np.concatenate([x % (2 * bound + 1) - bound, [[bound] * 3, [-bound] * 3]]).astype(np.int32)
    lines = []
    for n, (m, s) in enumerate(product(MULTIPLIERS, SHIFTS)):
        lines += [
            f"%m{n} = const dense<{m}> : tensor<3xi32>",
            f"%s{n} = const dense<{s}> : tensor<3xi32>",
            f'%y{n} = quant.requantize %x, %m{n}, %s{n} {{rounding = "{rounding}", to = i16}}',
        ]
    count = len(MULTIPLIERS) * len(SHIFTS)
    results, types = (
        ", ".join(f(n) for n in range(count))
        for f in (lambda n: f"%y{n}", lambda n: "tensor<?N x 3 x i16>")
    )
    head = f"func @main(%x: tensor<?N x 3 x i32> {{range = [{-bound}, {bound}]}}) -> ({types}) {{"
    text = "\n  ".join([head, *lines, f"return {results}"]) + "\n}"
    for found, wanted in zip(
        cvm.compile(text)(x), cvm.compile(text, target="reference")(x), strict=True
    ):
        np.testing.assert_array_equal(found, wanted, strict=True)


@pytest.mark.parametrize("which", ["maximum", "minimum"])
def test_an_extreme_of_separate_ranges_is_its_operand(which: str) -> None:
    f = cvm.compile(f"""func @main(%x: tensor<9xi32> {{range = [-5, 5]}}, %y: tensor<9xi32> {{range = [6, 9]}}) -> tensor<9xi64> {{
      %a = theano.elemwise %x {{scalar_op = "cast", dtype = i64}}
      %b = theano.elemwise %y {{scalar_op = "cast", dtype = i64}}
      %c = theano.elemwise %a, %b {{scalar_op = "{which}"}}
      return %c
    }}""")
    x, y = np.arange(-4, 5, dtype=np.int32), np.array([6, 7, 8, 9] * 2 + [6], np.int32)
    np.testing.assert_array_equal(f(x, y), getattr(np, which)(x, y).astype(np.int64), strict=True)
    assert f"{which[:3]}(" not in f.lower("loops")


@pytest.mark.parametrize("scalar_op", ["and_", "maximum"])
def test_a_choice_decided_by_ranges_is_its_operand(scalar_op: str) -> None:
    text = f"""func @main(%x: tensor<9xi32>, %y: tensor<9xi32> {{range = [0, 9]}}) -> tensor<9xi64> {{
      %a = theano.elemwise %x {{scalar_op = "cast", dtype = i64}}
      %b = theano.elemwise %y {{scalar_op = "cast", dtype = i64}}
      %c = theano.elemwise %a, 3 {{scalar_op = "{scalar_op}"}}
      %n = theano.elemwise %b, 0 {{scalar_op = "ge"}}
      %z = theano.elemwise %n, %c, %a {{scalar_op = "switch"}}
      return %z
    }}"""
    x, y = np.arange(-4, 5, dtype=np.int32) * 1000003, np.arange(9, dtype=np.int32)
    wanted = cvm.compile(text, target="reference")(x, y)
    np.testing.assert_array_equal(cvm.compile(text)(x, y), wanted, strict=True)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4"])
@pytest.mark.parametrize("to", ["i1", "i4", "u4"])
def test_a_sum_that_is_narrowed_is_of_words(dtype: str, to: str) -> None:
    """Sums are modulo powers of two; NumPy adds in 64 bits."""
    limits = np.iinfo(dtype)
    random = np.random.default_rng(2)
    x = random.integers(limits.min, limits.max, (5, 97), dtype, endpoint=True)
    x[0], x[1] = limits.max, limits.min
    f = cvm.compile(lambda x: x.sum(axis=1).astype(to))
    np.testing.assert_array_equal(f(x), x.sum(axis=1).astype(to), strict=True)
    g = cvm.compile(lambda x: (x * x).sum(axis=1, dtype=np.int64).astype(to))
    np.testing.assert_array_equal(g(x), (x * x).sum(axis=1, dtype=np.int64).astype(to))


def test_a_dot_product_of_bytes_has_sums_of_words() -> None:
    f = cvm.compile(lambda a, b: np.einsum("ik,jk->ij", a.astype(np.int32), b.astype(np.int32)) * 2)
    f.trace(np.zeros((3, 32), np.int8), np.zeros((5, 32), np.int8))
    assert "i64" not in f.lower("loops")
