"""Fits a two-layer network to hand-written digits by gradient descent; each step is one compiled
program.

    python examples/fit/fit.py [--steps 300] [--picture loss.png] [--target reference]

The loss is ordinary Python on arrays; `cvm.value_and_grad` derives it, and `cvm.compile` makes
loss, gradient and update one program.
"""

import argparse
import time
from pathlib import Path

import numpy as np

import cvm

T = cvm.theano


def scores(weights, images):
    hidden = T.tanh(T.dot(images, weights["hidden"]) + weights["hidden bias"])
    return T.dot(hidden, weights["output"]) + weights["output bias"]


def cross_entropy(weights, images, targets):
    """The mean of -log softmax at the right digits; targets are rows with a 1 there."""
    found = scores(weights, images)
    shifted = found - T.dimshuffle(T.max(found, axis=(1,)), 0, "x")
    log_total = T.log(T.sum(T.exp(shifted), axis=(1,)))
    return T.sum(log_total - T.sum(shifted * targets, axis=(1,))) / len(targets)


def make_step(target):
    @cvm.compile(target=target)
    def step(weights, images, targets, rate):
        loss, gradient = cvm.value_and_grad(cross_entropy)(weights, images, targets)
        return loss, {name: weights[name] - rate * gradient[name] for name in weights}

    return step


def data():
    """Images of 64 numbers in [0, 1], and labels: the held-back digits of the other example."""
    with np.load(Path(__file__).parent.parent / "digits" / "test.npz") as archive:
        images, labels = archive["images"], archive["labels"]
    return images.reshape(-1, 64).astype(np.float32) / 16, labels


def initial(random, hidden=32):
    def normal(rows, columns):
        return (random.normal(size=(rows, columns)) / np.sqrt(rows)).astype(np.float32)

    zeros = {"hidden bias": np.zeros(hidden, np.float32), "output bias": np.zeros(10, np.float32)}
    return {"hidden": normal(64, hidden), "output": normal(hidden, 10), **zeros}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rate", type=float, default=0.5)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--target", default="cpu")
    options = parser.parse_args()

    images, labels = data()
    train, held_back = slice(0, 280), slice(280, None)
    targets = np.eye(10, dtype=np.float32)[labels]
    weights = initial(np.random.default_rng(0))
    step = make_step(options.target)
    losses = []
    began = time.perf_counter()
    for n in range(options.steps):
        loss, weights = step(weights, images[train], targets[train], np.float32(options.rate))
        losses.append(float(loss))
        if n == 0:
            print(f"traced and compiled in {time.perf_counter() - began:.2f} s")
            began = time.perf_counter()
    each = (time.perf_counter() - began) / max(options.steps - 1, 1)
    right = cvm.compile(scores)(weights, images[held_back]).argmax(1) == labels[held_back]
    print(
        f"loss {losses[0]:.3f} to {losses[-1]:.3f} in {options.steps} steps of {each * 1e6:.0f} us"
    )
    print(f"{right.sum()} of {right.size} held-back digits read right")
    if options.picture is not None:
        draw(losses, options.picture)


def draw(losses, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axes.semilogy(losses)
    axes.set(
        xlabel="step", ylabel="cross-entropy", title="gradient descent, one compiled program a step"
    )
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
