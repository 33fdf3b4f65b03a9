"""Hold the targets that run here against each other."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import numpy as np
from available_targets import HERE
from cvm.dialect.ir.function import Graph
from cvm.dialect.ir.module import Module
from cvm.jit.targets import TARGETS

import cvm
from cvm.terminal.arguments import inputs


def agree(module: Module, targets: Sequence[str] = HERE) -> None:
    """Every function gives the same on these targets, for random arguments: integers exactly,
    floats within 4 ulps.
    """
    options = Namespace(input=[], inputs=None, random_inputs=0)
    if module.effects:
        targets = [t for t in targets if TARGETS[t].load_with_effects is not None]
    for name, function in module.functions.items():
        if isinstance(function, Graph):
            graphs_agree(module, name, targets)
            continue
        given = inputs(function, options)
        first, *others = (_all(cvm.compile(module, name, target)(*given)) for target in targets)
        for other in others:
            for got, wanted in zip(other, first, strict=True):
                assert got.dtype == wanted.dtype
                tolerance = 4 * np.finfo(got.dtype).eps if got.dtype.kind in "fc" else 0
                finite = (
                    np.abs(wanted)[np.isfinite(wanted)] if got.dtype.kind in "fc" else np.zeros(0)
                )
                largest = finite.max(initial=0)  # sums differ in their order
                np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * largest)


def graphs_agree(module: Module, name: str, targets: Sequence[str]) -> None:
    """After three ticks from random state, everything that can be read is the same on these
    targets.
    """
    first, *others = graphs = [cvm.compile(module, name, target) for target in targets]
    random = np.random.default_rng(0)
    for state in first.writable:
        value = random.random(state.initial.shape).astype(state.initial.dtype)
        for g in graphs:
            g.write(state.name, value)
    assert {g.step(3) for g in graphs} == {3}
    for other in others:
        assert other.names == first.names
        for label in first.names:
            got, wanted = other.read(label), first.read(label)
            assert got.dtype == wanted.dtype
            np.testing.assert_allclose(
                got, wanted, rtol=5e-7, atol=5e-7 * np.abs(wanted).max(initial=0), err_msg=label
            )


def _all(returned: Any) -> tuple[np.ndarray, ...]:
    return returned if isinstance(returned, tuple) else (returned,)
