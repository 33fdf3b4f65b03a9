"""From a program to its first result: without anything cached, and warm, from machine code kept on
disk.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradients
import numpy as np
from side_by_side import Case, installed

import cvm

DIGITS = Path(__file__).parent.parent / "examples" / "digits"
WARM = tempfile.TemporaryDirectory()


def chain(n: int) -> Callable[[Any, Any], Any]:
    """A function of n operations on two arrays."""

    def f(x: Any, y: Any) -> Any:
        for k in range(n):
            x = (x * 0.5, x + y, x - 0.25, x * y, x + 1.0)[k % 5]
        return x

    return f


def operations(n: int) -> Case:
    x, y = (a.reshape(100, 100) for a in np.random.default_rng(0).random((2, 10_000), np.float32))
    program = text(n)
    case = Case(ours(lambda: cvm.compile(program)(x, y)), tolerance=1e-4)
    f = chain(n)
    if numba := installed("numba"):
        lines = [f"  x = {('x * h', 'x + y', 'x - q', 'x * y', 'x + o')[k % 5]}" for k in range(n)]
        source = "\n".join(
            [
                "def f(a, b, h, q, o, out):",
                " for i in range(a.size):",
                "  x, y = a[i], b[i]",
                *lines,
                "  out[i] = x",
            ]
        )

        def by_numba() -> Any:
            names: dict[str, Any] = {}
            exec(source, names)
            out = np.empty(x.size, np.float32)
            numba.njit(names["f"])(
                x.ravel(), y.ravel(), np.float32(0.5), np.float32(0.25), np.float32(1), out
            )
            return out.reshape(x.shape)

        case.contenders["numba"] = by_numba
    if jax := installed("jax"):
        case.contenders["jax"] = lambda: np.asarray(jax.jit(lambda x, y: f(x, y))(x, y))
    return case


def text(n: int) -> str:
    kinds = ("mul %{0}, 0.5", "add %{0}, %y", "sub %{0}, 0.25", "mul %{0}, %y", "add %{0}, 1.0")
    body = [f"  %{k + 1} = dali." + kinds[k % 5].format(k) for k in range(n)]
    return "\n".join(
        [
            "func @main(%0: tensor<100x100xf32>, %y: tensor<100x100xf32>) {",
            *body,
            f"  return %{n}",
            "}",
        ]
    )


def digits() -> Case:
    images = np.load(DIGITS / "test.npz")["images"]
    return Case(ours(lambda: cvm.compile(DIGITS / "digits.cvm")(images)))


def training_step() -> Case:
    """The step of the group `gradients`, derivatives taken and compiled anew each time."""
    x, targets, weights = gradients.data(256, (64, 128, 10))
    case = Case(
        ours(lambda: gradients.flat(gradients.with_cvm(x, targets)(weights))), tolerance=1e-4
    )
    if installed("jax"):
        case.contenders["jax"] = lambda: gradients.flat(gradients.with_jax(x, targets)(weights))
    return case


def ours(run: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    """With the cache off, and on."""

    def within(folder: str) -> Callable[[], Any]:
        def one() -> Any:
            os.environ["CVM_CACHE_DIR"] = folder
            return run()

        return one

    return {"cvm": within(""), "cvm, warm": within(WARM.name)}


WORK = {
    "5 operations": lambda: operations(5),
    "100 operations": lambda: operations(100),
    "the digits network": digits,
    "a training step": training_step,
}
