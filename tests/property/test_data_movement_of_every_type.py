"""Operators that only move elements take every real type: the same elements on every target, to the
bit.
"""

from __future__ import annotations

import numpy as np
import pytest
from available_targets import HERE
from cvm.dialect.types.tensor_types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    UI8,
    UI16,
    UI32,
    UI64,
    ElementType,
)

import cvm

REAL = (I1, I8, I16, I32, I64, UI8, UI16, UI32, UI64, F16, BF16, F32, F64)
# an operator with its attributes, of an array of 5 by 6, and NumPy's meaning
MOVES = {
    "reshape %x {target_shape = [3, -1]}": lambda x: x.reshape(3, -1),
    "flatten %x": lambda x: x.ravel(),
    "transpose %x": lambda x: x.T,
    "expand_dims %x {axis = 1}": lambda x: x[:, None],
    "slice %x {begin = [1, -1], end = [4, -8], strides = [2, -2]}": lambda x: x[1:4:2, ::-2],
    "concatenate %x, %x {axis = 1}": lambda x: np.concatenate([x, x], 1),
    "repeat %x {axis = 1, repeats = 2}": lambda x: np.repeat(x, 2, 1),
    "tile %x {reps = [2, 1]}": lambda x: np.tile(x, (2, 1)),
    "slice_like %x, %like": lambda x: x[:2, :3],
}


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("element", REAL, ids=str)
def test_every_real_type(element: ElementType, target: str) -> None:
    random = np.random.default_rng(element.bits)
    x = random.integers(0, 2, (5, 6)).astype(element.dtype)
    if element is not I1:
        x = (
            random.integers(0, 1 << min(element.bits, 63), (5, 6), np.uint64)
            .astype(f"u{element.bytes}")
            .view(element.dtype)
        )
    lines = [f"%y{n} = cvm.{move}" for n, move in enumerate(MOVES)]
    results = ", ".join(f"%y{n}" for n in range(len(MOVES)))
    arguments = f"%x: tensor<5x6x{element}>, %like: tensor<2x3x{element}>"
    f = cvm.compile(
        f"func @main({arguments}) {{ {' '.join(lines)} return {results} }}", target=target
    )
    for (move, meaning), found in zip(MOVES.items(), f(x, x[:2, :3].copy()), strict=True):
        wanted = meaning(x)
        assert (found.dtype, found.shape) == (x.dtype, wanted.shape), move
        assert found.tobytes() == wanted.tobytes(), move


OF_WRAPPED = [
    "%p = cvm.repeat %x {axis = 0, repeats = 2}",
    "%p = cvm.tile %x {reps = [3]}",
    "%p = cvm.concatenate %x, %x {axis = 0}",
]
COMPARED = [
    "%s = dali.add %p, 5 : i64\n  %y = dali.lt %s, %p",
    "%s = dali.add %p, 5 : i64\n  %y = dali.max %s, %p",
    "%s = dali.sub %p, 5 : i64\n  %c = dali.gt %s, %p\n  %y = dali.where %c, %p, 7 : i64",
    "%s = dali.add %p, 9223372036854775807 : i64\n  %y = dali.lt %s, -9223372036854775808 : i64",
]


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("compared", COMPARED)
@pytest.mark.parametrize("moved", OF_WRAPPED)
@pytest.mark.parametrize("n", [4, 8, 100])
def test_moved_data_is_no_index(moved: str, compared: str, target: str, n: int) -> None:
    """An index plus 5 is larger than the index; data wraps."""
    text = f"func @main(%x: tensor<{n}xi64>) {{\n  {moved}\n  {compared}\n  return %y\n}}\n"
    most = 2**63 - 1
    x = np.random.default_rng(n).choice(
        np.array([most, most - 4, -most - 1, -most + 3, 0, 7], np.int64), n
    )
    found, wanted = (cvm.compile(text, target=t)(x) for t in (target, "reference"))
    np.testing.assert_array_equal(found, wanted, strict=True)
