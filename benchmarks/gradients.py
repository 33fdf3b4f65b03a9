"""A training step of a two-layer network - loss, gradient and update - beside JAX and torch, from
the same weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from side_by_side import Case, installed

import cvm

Step = Callable[[Any], tuple[Any, Any]]  # from weights to the loss and new weights
RATE = 0.1


def with_cvm(x: np.ndarray, targets: np.ndarray) -> Step:
    T = cvm.theano

    def loss(w: Any, x: Any, targets: Any) -> Any:
        hidden = T.tanh(T.dot(x, w[0]) + w[1])
        scores = T.dot(hidden, w[2]) + w[3]
        shifted = scores - T.dimshuffle(T.max(scores, axis=(1,)), 0, "x")
        total = T.log(T.sum(T.exp(shifted), axis=(1,)))
        return T.sum(total - T.sum(shifted * targets, axis=(1,))) / len(targets)

    @cvm.compile
    def step(w: Any, x: Any, targets: Any) -> Any:
        value, gradient = cvm.value_and_grad(loss)(w, x, targets)
        return value, tuple(a - RATE * g for a, g in zip(w, gradient, strict=True))

    return lambda w: step(w, x, targets)


def with_jax(x: np.ndarray, targets: np.ndarray) -> Step:
    jax, jnp = installed("jax"), installed("jax.numpy")

    def loss(w: Any, x: Any, targets: Any) -> Any:
        scores = jnp.tanh(x @ w[0] + w[1]) @ w[2] + w[3]
        return -(jax.nn.log_softmax(scores) * targets).sum() / len(targets)

    @jax.jit
    def step(w: Any, x: Any, targets: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(w, x, targets)
        return value, tuple(a - RATE * g for a, g in zip(w, gradient, strict=True))

    return lambda w: jax.block_until_ready(step(w, x, targets))


def with_torch(x: np.ndarray, targets: np.ndarray) -> Step:
    torch = installed("torch")
    given, wanted = torch.from_numpy(x), torch.from_numpy(targets)

    def step(weights: Any) -> Any:
        w = [torch.as_tensor(a).requires_grad_() for a in weights]
        scores = torch.tanh(given @ w[0] + w[1]) @ w[2] + w[3]
        value = -(torch.log_softmax(scores, 1) * wanted).sum() / len(wanted)
        gradient = torch.autograd.grad(value, w)
        return value.detach().numpy(), tuple(
            (a - RATE * g).detach().numpy() for a, g in zip(w, gradient, strict=True)
        )

    return step


CONTENDERS = {"cvm": with_cvm, "jax": with_jax, "torch": with_torch}


def data(
    batch: int, sizes: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
    """Inputs, targets, and the weights to begin with."""
    random, (n, m, k) = np.random.default_rng(0), sizes
    x = random.normal(size=(batch, n)).astype(np.float32)
    targets = np.eye(k, dtype=np.float32)[random.integers(0, k, batch)]
    shapes = [(n, m), (m,), (m, k), (k,)]
    return (
        x,
        targets,
        tuple((random.normal(size=s) / np.sqrt(s[0])).astype(np.float32) for s in shapes),
    )


def training(batch: int, sizes: tuple[int, int, int]) -> Case:
    x, targets, weights = data(batch, sizes)
    case = Case({}, tolerance=1e-4)
    for name, make in CONTENDERS.items():
        if name == "cvm" or installed(name):
            step = make(x, targets)
            case.contenders[name] = lambda step=step: step(weights)
            case.results[name] = lambda step=step: flat(step(weights))
    return case


def flat(result: Any) -> list[np.ndarray]:
    loss, weights = result
    return [np.asarray(loss), *map(np.asarray, weights)]


WORK = {
    "a batch of 256, layers of 64, 128 and 10": lambda: training(256, (64, 128, 10)),
    "a batch of 256, layers of 784, 512 and 10": lambda: training(256, (784, 512, 10)),
}
