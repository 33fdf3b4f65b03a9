"""StableHLO: random functions under JAX against the programs that they are imported as, and texts to
mutate; both need jax.
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec

import numpy as np
from outcomes import assert_same

import cvm

from .array_graphs import SIZES, Graph

COMPILED = 8  # one of so many functions is compiled, the others are evaluated
TOLERANCE = 1e-4  # of floats, relative to the largest
TEXTS = 40


def installed() -> bool:
    return find_spec("jax") is not None


def attack(data: bytes) -> None:
    """The function of a seed at random sizes: JAX's results."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    jax, jnp = import_module("jax"), import_module("jax.numpy")
    number = int.from_bytes(data, "little")
    graph = Graph(number)
    arrays = graph.arrays(*graph.chance.choice(SIZES))
    if graph.wanted(arrays) is None:
        return
    function = graph.function(jnp)
    wanted = [np.asarray(y) for y in jax.jit(function)(*arrays)]
    target = "cpu" if number % COMPILED == 0 else "reference"
    module = cvm.from_jax(function, *arrays)
    assert str(cvm.parse(str(module))) == str(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = cvm.compile(module, target=target)(*arrays)
    found = [np.asarray(y) for y in (found if isinstance(found, tuple) else (found,))]
    shown = f"{target}, {[a.shape for a in arrays]}\n{graph.source}{module}"
    for f, w in zip(found, wanted, strict=True):
        if w.dtype.kind != "f":
            assert_same([f], [w], shown)
            continue
        finite = np.abs(w[np.isfinite(w)]).max(initial=1)
        np.testing.assert_allclose(f, w, TOLERANCE, TOLERANCE * finite, err_msg=shown, strict=True)


@cache
def texts() -> list[bytes]:
    """Functions as StableHLO's text, and nothing where jax is not installed."""
    if not installed():
        return []
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    jax, jnp = import_module("jax"), import_module("jax.numpy")
    lax = jax.lax
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    functions = [
        lambda x: lax.fori_loop(0, 3, lambda i, a: a + x * i, x),
        lambda x: lax.cond(x[0, 0] > 0, lambda a: a, lambda a: -a, x),
        lambda x: lax.scan(lambda c, y: (c + y, c * y), x[0], x),
        lambda x: jnp.sort(x, 0)[jnp.array([0, 2])].at[0].set(1),
        lambda x: (jnp.argmax(x, 1), lax.top_k(x, 2)),
        lambda x: lax.conv(x[None, None], x[None, None, :2, :2], (1, 1), "SAME"),
        lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "SAME"),
        lambda x: jnp.pad(jnp.tanh(x.astype(jnp.int8) << 2), 1),
        lambda x: lax.dynamic_slice(x, (x[0, 0].astype(int), 0), (2, 2)),
    ]
    lowered = [jax.jit(f).lower(x) for f in functions]
    for number in range(TEXTS):
        graph = Graph(number)
        lowered.append(jax.jit(graph.function(jnp)).lower(*graph.arrays(5, 3)))
    return [text.as_text().encode() for text in lowered]
