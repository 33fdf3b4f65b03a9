"""Every loop pass keeps kernels legal and what they compute, one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from cvm.dialect.loops import Kernel
from cvm.lowering.check import check
from cvm.lowering.pipeline import unscheduled
from cvm.lowering.schedule import PASSES
from evaluate import execute
from samples import SAMPLES
from test_operators import program

import cvm


def run(kernel: Kernel, operands: list[np.ndarray], original: Kernel) -> tuple[np.ndarray, ...]:
    """The results of a kernel whose parameters may have other shapes than the original's."""
    inputs = kernel.parameters[: len(kernel.parameters) - kernel.results]
    given = [
        a.reshape([d if isinstance(d, int) else -1 for d in p.shape]) if p.rank < a.ndim else a
        for p, a in zip(inputs, operands, strict=True)
    ]
    return execute(kernel, *given)


@pytest.mark.parametrize("unknown_sizes", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("name", sorted(n for n in SAMPLES if n.startswith("cvm")))
def test_passes_keep_kernels_legal(name: str, unknown_sizes: bool) -> None:
    for seed in range(4):
        try:
            module, _ = program(SAMPLES[name](np.random.default_rng(seed)), unknown_sizes)
        except cvm.VerifyError:
            continue
        for kernel in unscheduled(module, module.functions["main"]).kernels:
            for change in PASSES.values():
                kernel = change(kernel)
                check(kernel)
