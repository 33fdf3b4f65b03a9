"""A training step of a two-layer network - loss, gradient and update - against JAX and torch, as far as they are installed.

    python benchmarks/gradients.py [--batch 256] [--sizes 64 128 10] [--rounds 9]

The first call is timed from tracing to the first result, in this process for the first time; nothing is read from caches on
disk. Then rounds go through all contenders in turn, and the figure is the median of a contender's rounds. What they compute
from the same weights is compared before. All run on one thread; JAX runs as it chooses.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ["CVM_CACHE_DIR"] = ""

import numpy as np

import cvm

Step = Callable[[Any], tuple[Any, Any]]  # from weights to the loss and new weights
RATE = 0.1


def module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def with_cvm(x: np.ndarray, targets: np.ndarray) -> Step:
    cvm.set_num_threads(1)
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
    jax, jnp = module("jax"), module("jax.numpy")

    def loss(w: Any, x: Any, targets: Any) -> Any:
        scores = jnp.tanh(x @ w[0] + w[1]) @ w[2] + w[3]
        return -(jax.nn.log_softmax(scores) * targets).sum() / len(targets)

    @jax.jit
    def step(w: Any, x: Any, targets: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(w, x, targets)
        return value, tuple(a - RATE * g for a, g in zip(w, gradient, strict=True))

    return lambda w: jax.block_until_ready(step(w, x, targets))


def with_torch(x: np.ndarray, targets: np.ndarray) -> Step:
    torch = module("torch")
    torch.set_num_threads(1)
    given, wanted = torch.from_numpy(x), torch.from_numpy(targets)

    def step(weights: Any) -> Any:
        w = [torch.as_tensor(a).requires_grad_() for a in weights]
        scores = torch.tanh(given @ w[0] + w[1]) @ w[2] + w[3]
        value = -(torch.log_softmax(scores, 1) * wanted).sum() / len(wanted)
        gradient = torch.autograd.grad(value, w)
        return value.detach().numpy(), tuple((a - RATE * g).detach().numpy() for a, g in zip(w, gradient, strict=True))

    return step


CONTENDERS = {"cvm": with_cvm, "jax": with_jax, "torch": with_torch}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--sizes", type=int, nargs=3, default=[64, 128, 10])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    random, (n, m, k) = np.random.default_rng(0), options.sizes
    x = random.normal(size=(options.batch, n)).astype(np.float32)
    targets = np.eye(k, dtype=np.float32)[random.integers(0, k, options.batch)]
    shapes = [(n, m), (m,), (m, k), (k,)]
    weights = tuple((random.normal(size=s) / np.sqrt(s[0])).astype(np.float32) for s in shapes)
    steps, results = {}, {}
    for name, make in CONTENDERS.items():
        if module(name) is None:
            print(f"{name:6} is not installed")
            continue
        began = time.perf_counter()
        steps[name] = make(x, targets)
        results[name] = steps[name](weights)
        print(f"{name:6} first call {1e3 * (time.perf_counter() - began):8.1f} ms")
    for name, (loss, new) in results.items():
        for got, wanted in zip((loss, *new), (results["cvm"][0], *results["cvm"][1]), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6, err_msg=name)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(options.rounds):
        for name, step in steps.items():
            began = time.perf_counter()
            for _ in range(20):
                step(weights)
            times[name].append((time.perf_counter() - began) / 20)
    for name, found in times.items():
        print(f"{name:6} step {1e6 * statistics.median(found):8.0f} us")


if __name__ == "__main__":
    main()
