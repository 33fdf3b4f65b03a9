"""Reductions of integers in floats give the same integers in the reference as in compiled code,
whose order they share.
"""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tiers import examples

import cvm

SHAPES = [  # with the axes to reduce, around the sizes from which on there are lanes and blocks
    ((5, 33), [0, 1]),
    ((5, 33), [0]),
    ((3, 4, 50), [0, 2]),
    ((1, 40, 1, 17), [1, 2, 3]),
    ((40, 10000), [0, 1]),
    ((2, 300000), [0, 1]),
    ((300000, 3), [0]),
    ((513, 1, 512), [0, 1, 2]),
    ((700, 3, 401), [0, 2]),
]
DTYPES = {"i32": np.int32, "i64": np.int64, "ui8": np.uint8, "f32": np.float32}
TYPES = [
    ("i32", "f32"),
    ("i64", "f64"),
    ("ui8", "f32"),
    ("f32", "f64"),
    ("f32", "f32"),
    ("i32", "complex<f32>"),
]


def agree(
    reduction: str,
    element: str,
    accumulator: str,
    x: np.ndarray,
    axes: list[int],
    targets: tuple[str, ...],
) -> None:
    given = f"%x: tensor<{'x'.join(map(str, x.shape))}x{element}>"
    settings = f"axis = {axes}, acc_dtype = {accumulator}, dtype = i64"
    text = f"func @main({given}) {{ %y = theano.{reduction} %x {{{settings}}} return %y }}"
    wanted = cvm.compile(text, target="reference")(x)
    for target in targets:
        np.testing.assert_array_equal(cvm.compile(text, target=target)(x), wanted)


@pytest.mark.parametrize(("element", "accumulator"), TYPES)
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_sums(element, accumulator, shape, axes):
    random = np.random.default_rng(len(shape))
    far = 2**7 if element == "ui8" else 2**50 if element == "i64" else 2**20
    x = random.integers(0 if element == "ui8" else -far, far, shape).astype(DTYPES[element])
    agree("sum", element, accumulator, x, axes, ("cpu",))


@pytest.mark.parametrize("reduction", ["prod", "prod_without_zeros"])
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_products(reduction, shape, axes):
    random = np.random.default_rng(len(shape))
    for _ in range(5):
        few = random.random(shape) < 28 / np.prod([shape[j] for j in axes])
        x = np.where(few, random.integers(reduction == "prod", 12, shape), 1).astype(np.int32)
        agree(reduction, "i32", "f32", x, axes, ("cpu",))


@examples(60)
@given(
    st.data(),
    st.lists(st.sampled_from([0, 1, 2, 3, 16, 17, 50]), min_size=1, max_size=3),
    st.sampled_from(TYPES),
)
def test_any_shape(data, shape, types):
    axes = sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    element, accumulator = types
    x = (
        np.random.default_rng(0)
        .integers(0, 2**8 if element == "ui8" else 2**24, shape)
        .astype(DTYPES[element])
    )
    agree("sum", element, accumulator, x, axes, ("cpu", "cuda-sim"))
