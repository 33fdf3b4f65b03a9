"""Derivatives of Python functions and of programs whose sizes are not known while compiling, of
first and second order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cvm

T = cvm.theano
Arrays = tuple[np.ndarray, ...]


def windows(x: Any, w: Any) -> Any:
    """Programs on matrices: concatenation, reversed strided slices, and a product of all pairs."""
    beside = cvm.concatenate(x[:, 1:], x[:, :-1], x[-2:, ::2].sum() * x[:, :1], axis=1)
    turned = cvm.slice(beside, begin=(-1, -3), end=(-99, 99), strides=(-2, 1))
    flat = cvm.flatten(turned)
    return T.sum(T.sin(flat)) + T.sum(T.tanh(T.dot(x, w)))


def choices(x: Any, w: Any) -> Any:
    """Programs on matrices: rows and elements taken more than once, repeated and tiled."""
    rows = cvm.take(x, np.array([0, 2, 2, -1, 99], np.int32), axis=0)
    elements = cvm.take(w, np.array([[3, 1], [1, 0]], np.int32))
    tiled = cvm.tile(cvm.repeat(rows, axis=1, repeats=2), reps=(2, 1, 3))
    return T.sum(T.exp(tiled * 0.1)) * T.sum(T.sqr(elements)) + T.max(x) * T.prod(T.sqr(w) + 0.5)


def image(x: Any, w: Any) -> Any:
    """Programs on matrices as images of one channel: a convolution by a kernel of known size, max
    pooling, and upsampling.
    """
    pixels = T.dimshuffle(x, "x", "x", 0, 1)
    kernel = np.array([[[[0.5, -1.0], [0.25, 0.75]]]])
    seen = cvm.conv2d(pixels, kernel, padding=(1, 0), stride=(2, 1))
    most = cvm.max_pool2d(T.sin(seen), pool_size=(2, 2), strides=(1, 1), padding=1)
    large = cvm.upsampling(most, scale=2)
    return T.sum(T.sqr(large)) + T.sum(w) ** 2


FUNCTIONS: list[Callable[..., Any]] = [windows, choices, image]
SHAPES = [((4, 5), (5, 3)), ((3, 7), (7, 2)), ((6, 4), (4, 4)), ((9, 6), (6, 2))]


def normal(random: np.random.Generator, shapes: Any) -> Arrays:
    return tuple(random.normal(size=s) for s in shapes)


def inner(a: Any, b: Any) -> float:
    return float(sum((x * y).sum() for x, y in zip(a, b, strict=True)))


def moved(at: Arrays, along: Arrays, distance: float) -> Arrays:
    return tuple(a + distance * t for a, t in zip(at, along, strict=True))


@pytest.mark.sample(1)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_gradient_with_ranks_only(function: Callable[..., Any]) -> None:
    """The same as with sizes known, and as differences say; one program serves all shapes."""
    slope = cvm.value_and_grad(function, wrt=(0, 1))
    random = np.random.default_rng(0)
    for shapes in SHAPES:
        at, along = normal(random, shapes), normal(random, shapes)
        ((value, found),) = slope.batch([at[0]], [at[1]])
        if shapes == SHAPES[-1]:
            known_value, known = cvm.value_and_grad(function, wrt=(0, 1))(*at)
            np.testing.assert_allclose(value, known_value, rtol=1e-12)
            for a, b in zip(found, known, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
        near = [moved(at, along, d) for d in (1e-6, -1e-6)]
        (ahead, _), (behind, _) = slope.batch(*map(list, zip(*near, strict=True)))
        np.testing.assert_allclose(
            inner(found, along), (ahead - behind) / 2e-6, rtol=1e-5, atol=1e-6
        )
    assert "?" in str(slope.program())


@pytest.mark.parametrize("function", FUNCTIONS)
def test_second_derivatives_with_ranks_only(function: Callable[..., Any]) -> None:
    """Forward over reverse, which is symmetric; reverse over reverse and reverse over forward agree
    with it.
    """
    slope = cvm.grad(cvm.compile(function, target="reference"), wrt=(0, 1))

    def forward_over_reverse(x: Any, w: Any, u: Any, v: Any) -> Any:
        return cvm.jvp(slope, (x, w), (u, v))[1]

    def reverse_over_reverse(x: Any, w: Any, u: Any, v: Any) -> Any:
        return cvm.vjp(slope, x, w)[1]((u, v))

    def along(x: Any, w: Any, u: Any, v: Any) -> Any:
        return cvm.jvp(function, (x, w), (u, v))[1]

    forward, backward, along = (
        cvm.compile(f, target="reference")
        for f in (forward_over_reverse, reverse_over_reverse, along)
    )
    crossed = cvm.grad(along, wrt=(0, 1))
    random = np.random.default_rng(1)
    for shapes in SHAPES[:2]:
        at, u, v = (normal(random, shapes) for _ in range(3))
        (hu,), (hv,) = (forward.batch(*([a] for a in (*at, *t))) for t in (u, v))
        np.testing.assert_allclose(inner(hu, v), inner(hv, u), rtol=1e-8, atol=1e-9)
        for other in (backward, crossed):
            (found,) = other.batch(*([a] for a in (*at, *u)))
            for a, b in zip(found, hu, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)
        near = [moved(at, u, d) for d in (1e-5, -1e-5)]
        for a, b, h in zip(*slope.batch(*map(list, zip(*near, strict=True))), hu, strict=True):
            np.testing.assert_allclose((a - b) / 2e-5, h, rtol=1e-4, atol=1e-5)


BROADCASTS = """
func @loss(%x: tensor<?x?xf64>, %y: tensor<?x?xf64>, %z: tensor<?xf64>) -> tensor<f64> {
  %p = OP %x, %y
  %q = DIALECT %p, %z
  %e = theano.elemwise %q {scalar_op = "sin"}
  %s = theano.sum %e
  return %s
}
"""


@pytest.mark.sample(6)
@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize(
    "names",
    [
        ("dali.mul", "dali.sub"),
        ("cvm.broadcast_mul", "cvm.broadcast_sub"),
        ("dali.max", "dali.mul"),
    ],
)
@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 1), (1, 4), (4,)),
        ((1, 1), (3, 4), (1,)),
        ((3, 4), (3, 4), (4,)),
        ((1, 1), (1, 1), (5,)),
        ((3, 1), (1, 1), (1,)),
    ],
)
def test_a_size_that_turns_out_to_stretch(names: tuple[str, str], shapes: Any, target: str) -> None:
    text = BROADCASTS.replace("OP", names[0]).replace("DIALECT", names[1])
    random = np.random.default_rng(2)
    at, along = normal(random, shapes), normal(random, shapes)
    loss = cvm.compile(text, entry="loss", target=target)
    found = cvm.grad(loss, wrt=(0, 1, 2))(*at)
    assert [g.shape for g in found] == [a.shape for a in at]
    expected = (loss(*moved(at, along, 1e-6)) - loss(*moved(at, along, -1e-6))) / 2e-6
    np.testing.assert_allclose(inner(found, along), expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(
        cvm.jvp(loss, at, along)[1], inner(found, along), rtol=1e-10, atol=1e-12
    )
    empty = cvm.grad(loss, wrt=(0, 1, 2))(np.zeros((0, 1)), np.zeros((1, 4)), np.zeros(1))
    assert [g.shape for g in empty] == [(0, 1), (1, 4), (1,)] and not any(g.any() for g in empty)
