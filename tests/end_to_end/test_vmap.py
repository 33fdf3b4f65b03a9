"""`cvm.vmap` against a loop in Python over the elements of the stacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from available_targets import EVERY

import cvm

R = np.random.default_rng(0)
X, V, W, K = R.normal(size=(5, 3, 4)), R.normal(size=(5, 4)), R.normal(size=(4, 2)), np.arange(4.0)
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {  # with stacks as arguments
    "arithmetic": (lambda x, v: x * v + v[0] - K, (X, V)),
    "product": (lambda x: np.tanh(x @ W), (X,)),
    "reductions": (
        lambda x: [x.sum(), x.max(axis=0), x.mean(axis=1, keepdims=True), np.any(x > 1)],
        (X,),
    ),
    "shapes": (
        lambda x: [x.T[::-1, 1], x.reshape(2, 6), np.concatenate([x, x[:1] * 2]), x[None, ..., -1]],
        (X,),
    ),
    "order": (
        lambda x: [np.sort(x, axis=0), np.cumsum(x), np.argmax(x, axis=1), np.cumsum(x, axis=1)],
        (X,),
    ),
    "subscripts": (lambda v, n: v[n] + v[0], (V, np.array([0, 1, 2, 3, 0]))),
    "numbers": (lambda v: {"three": 3, "k": K, "v": v}, (V,)),
    "layers": (lambda x: cvm.expand_dims(cvm.sqrt(abs(x)), axis=-1), (X,)),  # type: ignore[attr-defined]
    "loops": (lambda v: cvm.scan(lambda c, x: (c * 0.5 + x, c), 0.0, v), (V,)),
    "conditions": (
        lambda n: cvm.while_loop(lambda c: c < 50, lambda c: c * 2, n),
        (np.array([1, 3, 60, 49]),),
    ),
    "gradients": (cvm.grad(lambda x: (np.tanh(x @ W) ** 2).sum()), (X,)),
    "itself": (lambda x: cvm.vmap(lambda r: np.sort(r) * r.sum())(x), (X,)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("target", EVERY)
def test_a_stack_is_computed_as_its_elements(target: str, name: str) -> None:
    function, stacks = FUNCTIONS[name]
    one = cvm.compile(function, target=target, rules="numpy")
    found = cvm.compile(cvm.vmap(function), target=target, rules="numpy")(*stacks)
    for n, each in enumerate(zip(*stacks, strict=True)):
        compare(found, one(*each), n)


def compare(found: Any, wanted: Any, n: int) -> None:
    if isinstance(wanted, (list, tuple, dict)):
        assert type(found) is type(wanted) and len(found) == len(wanted)
        for key in wanted if isinstance(wanted, dict) else range(len(wanted)):
            compare(found[key], wanted[key], n)
    else:
        np.testing.assert_allclose(found[n], wanted, rtol=1e-12, atol=1e-12)
        assert found.dtype == wanted.dtype


def test_axes_of_arguments_and_results() -> None:
    f = cvm.vmap(
        lambda x, d, scale: x * d["a"] * scale, in_axes=(2, {"a": 0, "b": None}, None), out_axes=-1
    )
    found = f(X.transpose(1, 2, 0), {"a": V, "b": K}, 2.0)
    np.testing.assert_array_equal(found, np.moveaxis(X * V[:, None] * 2, 0, -1))
    last, same = cvm.vmap(lambda v: (v, K), out_axes=(1, None))(V)
    assert last.shape == (4, 5) and same.shape == (4,)


def test_defaults_and_keywords() -> None:
    """A number is the same for all elements, and keywords reach the function, whose derivatives
    have them too.
    """

    def power(v: Any, scale: float = 2.0, *, n: int = 1) -> Any:
        return (v * scale) ** n

    for given, wanted in (
        ({}, V * 2),
        ({"n": 3}, (V * 2) ** 3),
        ({"scale": 3.0, "n": 2}, (V * 3.0) ** 2),
    ):
        for axes in (0, (0,)):
            np.testing.assert_allclose(cvm.vmap(power, axes)(V, **given), wanted)
    np.testing.assert_allclose(cvm.vmap(np.dot, (0, None))(V, K), V @ K)
    np.testing.assert_allclose(cvm.grad(lambda v, *, n=1: (v**n).sum())(K, n=3), 3 * K**2)


def test_derivatives_of_a_stack() -> None:
    gradient = cvm.grad(lambda v: (cvm.vmap(lambda a: np.sort(a))(v) * K).sum())
    np.testing.assert_array_equal(gradient(V), np.argsort(np.argsort(V)))


@pytest.mark.parametrize(
    ("function", "given", "message"),
    [
        (cvm.vmap(lambda a: a, 1), (K,), "the array has 1 dimensions, got axis 1"),
        (cvm.vmap(lambda a: a, None), (K,), "in_axes names none of the arguments"),
        (cvm.vmap(lambda a, b: a), (K, V), "have one size, got 4 and 5"),
        (cvm.vmap(lambda a: a, 0, None), (K,), "depends on the element"),
        (cvm.vmap(lambda a: a, (0, 0)), (K,), "each of the 1 arguments, got 2"),
        (cvm.vmap(lambda a: a, ([0, 0],)), ([K],), "has the structure of what it is for"),
    ],
)
def test_refusals(function: Callable[..., Any], given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(cvm.Error, match=message):
        function(*given)
