"""Chains of products are computed by tiles of rows, with the bits that their kernels have one after
the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cvm.jit.host_processor import host_processor
from cvm.lowering.analysis.verify_kernel import check_kernel
from cvm.lowering.pipeline import lower
from cvm.lowering.processor import Processor, Tuning
from product_chains import Program, attention, masked, normalized, perceptron, scores_too

import cvm

SQUARE = ((2, 3, 70, 16),) * 3
CASES: dict[str, tuple[Program, tuple[tuple[int, ...], ...]]] = {
    "attention": (attention, SQUARE),
    "one head": (attention, ((1, 1, 300, 16), (1, 1, 90, 16), (1, 1, 90, 20))),
    "matrices": (attention, ((257, 16), (65, 16), (65, 24))),
    "masked": (masked, (*SQUARE, (2, 1, 70, 70))),
    "perceptron": (perceptron, ((333, 16), (16, 70), (70, 24))),
    "normalized": (normalized, ((333, 16), (16, 70), (70, 24))),
    "scores too": (scores_too, SQUARE),
}


def described(width: int, **tuning: Any) -> Processor:
    """The host with vectors of another width, and a small cache."""
    small = {"l2_bytes": 1 << 15, "packing_products": 0, "tuning": Tuning(**tuning)}
    return replace(host_processor(), tile_vector_bytes=width, fma_bytes=width, **small)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", CASES)
def test_bits(name: str, dtype: str) -> None:
    program, shapes = CASES[name]
    random = np.random.default_rng(0)
    arrays = [random.normal(size=s).astype(dtype) for s in shapes]
    results, threads = [], cvm.get_num_threads()
    try:
        for n, width in ((1, 16), (2, 32), (3, 64)):
            cvm.set_num_threads(n)
            kernel = (
                ".tiles(" if name == "scores too" else ".fused("
            )  # others see what lies between
            results.append(compiled(program, described(width), arrays, kernel))
        plain = compiled(
            program, described(32, skipped_passes=("tile_and_fuse",)), arrays, ".tiles("
        )
    finally:
        cvm.set_num_threads(threads)
    for found in results:
        for y, wanted in zip(found, plain, strict=True):
            np.testing.assert_array_equal(y, wanted, strict=True)


def compiled(
    program: Program, cpu: Processor, arrays: list[np.ndarray], kernel: str
) -> tuple[np.ndarray, ...]:
    """The results of a program that has such a kernel."""
    f = cvm.compile(program, cpu=cpu)
    results = f(*arrays)
    assert kernel in f.lower("schedule")
    module = f.program()
    for scheduled in lower(module, next(iter(module.functions.values())), cpu).kernels:
        check_kernel(scheduled)
    return results if isinstance(results, tuple) else (results,)


def test_strategies_tell_of_the_chain(compile_for: Callable[..., None]) -> None:
    compile_for(l2_bytes=1 << 15, packing_products=0)
    f = cvm.compile(perceptron)
    f(*(np.ones(s, "f4") for s in CASES["perceptron"][1]))
    text = f.lower("strategies")
    assert re.search(
        r"kernels @(\S+) to @(\S+)\n  taken tile_and_fuse .*\ncontraction @\1\.rows: 32 "
        r"rows, 70 columns",
        text,
    )
    assert text.count("  taken") == 3 and re.search(
        r"contraction @\S+\.rows: 32 rows, 24 columns, 70 terms of f32", text
    )
