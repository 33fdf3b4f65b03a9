"""Chains of products on a GPU are one kernel, whose blocks keep tiles of rows in shared memory,
with the bits of a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cvm.dialect.kernel_ir.loops import Alloc, shared_bytes, statements
from cvm.jit.cuda.emulator.memory import Memory
from cvm.jit.functions.gpu_function import SimulatedFunction
from cvm.lowering.analysis.verify_kernel import check_kernel
from cvm.lowering.pipeline import lower_for_gpu
from cvm.lowering.processor import Gpu
from emulated_kernels import needs_nvrtc
from product_chains import Program, attention, masked, normalized, perceptron, scores_too

import cvm

pytestmark = needs_nvrtc


@pytest.fixture(autouse=True)
def one_multiprocessor(compile_for: Callable[..., None]) -> None:
    """A GPU that few tiles keep busy."""
    compile_for(gpu=Gpu(multiprocessors=1))


def kernels_of(program: Program, *arrays: np.ndarray) -> Any:
    """The plan for a GPU."""
    module = cvm.compile(program).trace(*arrays)
    return lower_for_gpu(module, next(iter(module.functions.values())))


def random(*shapes: tuple[int, ...], dtype: str = "f4") -> list[np.ndarray]:
    generator = np.random.default_rng(3)
    return [generator.normal(size=s).astype(dtype) for s in shapes]


HEADS = ((2, 3, 70, 16),) * 3
CASES: dict[str, tuple[Program, tuple[tuple[int, ...], ...]]] = {
    "one tile": (attention, ((1, 1, 64, 16),) * 3),
    "heads, a last tile that moves back": (attention, HEADS),
    "more keys, wider values": (attention, ((1, 2, 130, 20), (1, 2, 200, 20), (1, 2, 200, 40))),
    "matrices": (attention, ((257, 16), (65, 16), (65, 24))),
    "masked": (masked, (*HEADS, (2, 1, 70, 70))),
    "perceptron": (perceptron, ((333, 16), (16, 70), (70, 24))),
    "a first product of few terms": (perceptron, ((128, 3), (3, 17), (17, 16))),
    "normalized": (normalized, ((333, 16), (16, 70), (70, 24))),
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", CASES)
def test_one_kernel_with_the_bits_of_a_cpu(name: str, dtype: str) -> None:
    program, shapes = CASES[name]
    arrays = random(*shapes, dtype=dtype)
    plan = kernels_of(program, *arrays)
    large = (
        dtype == "f8" and name == "more keys, wider values"
    )  # 64 rows of 200 numbers of 8 bytes: 100 KB
    assert (len(plan.kernels) == 1, plan.workspace == 0) == (not large, not large)
    for kernel in plan.kernels:
        check_kernel(kernel)
    found, wanted = (cvm.compile(program, target=t)(*arrays) for t in ("cuda-sim", "cpu"))
    np.testing.assert_array_equal(found, wanted, strict=True)


def test_infinities_and_nan_stay_in_their_rows() -> None:
    q, k, v = random(*HEADS)
    q[0, 0, 3], k[1, 1, 5], v[1, 2, 7, 3] = np.inf, np.nan, -np.inf
    with np.errstate(all="ignore"):
        found, wanted = (cvm.compile(attention, target=t)(q, k, v) for t in ("cuda-sim", "cpu"))
    np.testing.assert_array_equal(found, wanted, strict=True)


@pytest.mark.parametrize(
    ("program", "shapes", "why"),
    [
        (attention, ((1, 1, 63, 16),) * 3, "fewer rows than a tile has"),
        (attention, ((64, 16), (400, 16), (400, 16)), "a tile's scores do not fit shared memory"),
        (scores_too, HEADS, "the scores are a result"),
        (perceptron, ((128, 16), (16, 17), (17, 2)), "the last product is too narrow for tiles"),
    ],
)
def test_chains_that_stay_as_they_are(
    program: Program, shapes: tuple[tuple[int, ...], ...], why: str
) -> None:
    arrays = random(*shapes)
    assert len(kernels_of(program, *arrays).kernels) > 1, why
    if program is perceptron:
        found, wanted = (cvm.compile(program, target=t)(*arrays) for t in ("cuda-sim", "cpu"))
        np.testing.assert_array_equal(found, wanted, strict=True)


def test_a_grid_of_few_tiles_stays_apart(compile_for: Callable[..., None]) -> None:
    arrays = random(*HEADS)  # 12 tiles
    for multiprocessors, fused in ((24, True), (26, False)):
        compile_for(gpu=Gpu(multiprocessors=multiprocessors))
        assert (len(kernels_of(attention, *arrays).kernels) == 1) is fused


def test_phases_share_the_memory_that_is_asked_for(compile_for: Callable[..., None]) -> None:
    arrays = random(*((1, 1, 128, 64),) * 3)
    (kernel,) = kernels_of(attention, *arrays).kernels
    taken = shared_bytes(kernel.body)
    alone = [
        s.tensor
        for s in statements(kernel.body)
        if isinstance(s, Alloc) and s.tensor.space == "shared"
    ]
    assert 48 << 10 < taken <= Gpu().dynamic_bytes
    assert taken < sum(t.bytes for t in alone)  # the tiles of both products lie in one place
    assert sum(t.shape == (64, 144) for t in alone) == 1  # the weights lie where the scores were
    compile_for(gpu=Gpu(multiprocessors=1, dynamic_bytes=56 << 10))
    assert len(kernels_of(attention, *arrays).kernels) > 1


def test_nothing_square_is_in_global_memory() -> None:
    """Calls load and store operands and results only; threads of a warp use different banks, but
    for operands.
    """
    arrays = random(*((2, 2, 128, 64),) * 3)
    f = cvm.compile(attention, target="cuda-sim")
    found = f(*arrays)
    compiled = f._latest().compile()
    assert isinstance(compiled, SimulatedFunction)
    memory = Memory(count_transactions=True)
    compiled.simulate(arrays, [np.empty_like(found)], memory)
    result = found.nbytes // 32  # sectors
    assert memory.statistics["store sectors"] == result
    assert (
        memory.statistics["load sectors"] <= (1 + 2 + 2) * result
    )  # keys and values once for each of two tiles
    assert memory.statistics["bank conflicts"] < 0.1 * memory.statistics["shared answers"]
    (launch,) = compiled.source.launches
    assert launch.shared > 48 << 10 and "extern __shared__" in compiled.source.text
