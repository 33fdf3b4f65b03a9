"""Every loop pass keeps kernels legal and what they compute, one after the other."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from cvm.dialect.kernel_ir.expressions import Index, as_index
from cvm.dialect.kernel_ir.kernel_printer import kernels_text
from cvm.dialect.kernel_ir.loops import (
    Alloc,
    For,
    If,
    Kernel,
    Store,
    accumulator,
    assign,
    statements,
    update,
)
from cvm.dialect.types.tensor_types import I32
from cvm.lowering.analysis.verify_kernel import check_kernel
from cvm.lowering.loops.loop_partition import loop_partition
from cvm.lowering.pass_context import Context
from cvm.lowering.pipeline import CPU_SCHEDULE, unscheduled
from cvm.parser.kernels import read_kernels
from loop_interpreter import execute
from native_kernels import tensor
from operator_checks import program
from samples import SAMPLES

import cvm


def run(kernel: Kernel, operands: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The results of a kernel, flat, as its parameters may have got other shapes."""
    given = []
    for parameter in kernel.inputs:
        array = operands[parameter.name]
        shape = tuple(d if isinstance(d, int) else -1 for d in parameter.shape)
        given.append(array if array.ndim == parameter.rank else array.reshape(shape))
    return [np.ravel(y) for y in execute(kernel, *given)]


@pytest.mark.sample(18)
@pytest.mark.parametrize("unknown_sizes", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("name", sorted(n for n in SAMPLES if n.startswith("cvm")))
def test_passes_keep_kernels_legal(name: str, unknown_sizes: bool) -> None:
    for seed in range(3):
        try:
            module, arrays = program(SAMPLES[name](np.random.default_rng(seed)), unknown_sizes)
        except cvm.VerifyError:
            continue
        plan = unscheduled(module, module.functions["main"])
        operands = {t.name: a for t, a in zip(plan.arguments, arrays, strict=True)}
        known = not unknown_sizes and all(
            p.name in operands for k in plan.kernels for p in k.inputs
        )
        for kernel in plan.kernels:
            wanted = run(kernel, operands) if known else []
            for p in CPU_SCHEDULE:
                made = p.run(kernel, Context()) if p.unit is Kernel else None
                if not isinstance(made, Kernel):  # it does not apply, or gives several kernels
                    continue
                kernel = made
                check_kernel(kernel)
                if known:
                    for found, array in zip(run(kernel, operands), wanted, strict=True):
                        np.testing.assert_array_equal(found, array, f"seed {seed}: after {p.name}")


FRAMED = """kernel @k(%x: tensor<8x8xi32>) -> (%y: tensor<10x10xi32>) {
  for %i in 0..10 {
    for %j in 0..10 {
      %y[%i, %j] = 0
    }
    if %i >= 1 & %i < 9 {
      for %j in 1..9 {
        %y[%i, %j] = %x[%i - 1, %j - 1]
      }
    }
  }
}
"""


def test_borders_without_what_holds_nowhere_in_them() -> None:
    (kernel,) = read_kernels(FRAMED)[0].kernels
    made = loop_partition(kernel)
    assert "if" not in kernels_text([made])
    x = np.random.default_rng(0).integers(-9, 9, (8, 8)).astype(np.int32)
    np.testing.assert_array_equal(execute(made, x)[0], np.pad(x, 1))


@pytest.mark.parametrize("ranges", list(permutations([(0, 2), (2, 4), (4, 6)])), ids=str)
def test_guards_are_decided_by_all_loops_that_share_an_index(
    ranges: tuple[tuple[int, int], ...],
) -> None:
    x, y, q, k = tensor("x", I32, 8), tensor("y", I32, 8), Index("q", 8), Index("k", 6)
    sums = accumulator("acc", I32)
    guarded = If((q + k >= 2) & (q + k < 10), (update("add", sums, x[q + k - 2]),))
    loops = [For(k, (guarded,), as_index(start), as_index(stop)) for start, stop in ranges]
    body = (Alloc(sums), assign(sums, 0), *loops, Store(y, (q,), sums[()]))
    windows = Kernel("windows", (x, y), (For(q, body),), 1)
    made = loop_partition(windows)
    check_kernel(made)
    array = np.random.default_rng(0).integers(-9, 9, 8).astype(np.int32)
    np.testing.assert_array_equal(execute(made, array)[0], execute(windows, array)[0])
    free = [
        s
        for s in made.body
        if isinstance(s, For) and not any(isinstance(part, If) for part in statements(s.body))
    ]
    assert [(s.start.value, s.end.value) for s in free] == [(2, 5)], (
        "where q + 0 >= 2 and q + 5 < 10"
    )
