"""Exact counts of operations and bytes: by hand, by running kernels, and by the reference."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cvm.dialect.kernel_ir.expressions import Apply, Expr, Tensor
from cvm.dialect.kernel_ir.loops import Kernel
from cvm.dialect.types.tensor_types import I64
from cvm.jit.functions.reference_function import evaluate
from cvm.lowering.analysis.count_operations import kernel_cost
from cvm.parser.kernels import read_kernels
from loop_interpreter import Machine

import cvm

CONVOLUTION = """func @main(%x: tensor<1x3x8x8xi32> {range = [0, 127]}, %w: tensor<4x3x3x3xi32> {range = [-127, 127]}) {
  %y = cvm.conv2d %x, %w {padding = [1, 1], stride = [2, 2]}
  %z = cvm.relu %y
  return %z
}"""
LAYER = """func @main(%x: tensor<5x7xf32>, %w: tensor<6x7xf32>, %b: tensor<6xf32>) {
  %h = cvm.dense %x, %w, %b
  %s = dali.add %h, %b
  %y = cvm.relu %s
  return %y
}"""
POOLING = """func @main(%x: tensor<1x2x9x9xi32>) {
  %y = cvm.max_pool2d %x {pool_size = [3, 3], strides = [2, 2], padding = [1, 1]}
  return %y
}"""
TRANSPOSED = """func @main(%x: tensor<40x30xi8>) {
  %t = cvm.transpose %x
  %y = dali.add %t, %t
  return %y
}"""


def test_operations_by_hand() -> None:
    dense, add, relu = cvm.compile(LAYER).cost("operation").parts
    assert dense.functions == {"fma": 5 * 6 * 7, "add": 5 * 6} and dense.operations == 5 * 6 * 15
    assert (dense.bytes_read, dense.bytes_written) == (4 * (5 * 7 + 6 * 7 + 6), 4 * 5 * 6)
    assert add.functions == {"add": 30} and (add.bytes_read, add.bytes_written) == (
        4 * (30 + 6),
        120,
    )
    assert relu.functions == {"le": 30, "select": 30} and relu.intensity == 60 / 240
    assert [p.name for p in (dense, relu)] == ["%h = cvm.dense %x, %w, %b", "%y = cvm.relu %s"]


def test_guards_of_padding_are_counted() -> None:
    (sums, _) = cvm.compile(CONVOLUTION).cost("operation").parts
    inside = (
        4 * 3 - 1
    ) ** 2  # of 4 windows of 3 rows one reaches beyond the first row, and so of columns
    assert sums.functions == {"mul": 4 * 3 * inside, "add": 4 * 3 * inside} and sums.is_exact


def test_only_accessed_bytes_are_counted() -> None:
    f = cvm.compile(
        "func @main(%x: tensor<100xf32>) {\n"
        " %y = cvm.slice %x {begin = [0], end = [100], strides = [4]}\n return %y\n}"
    )
    assert [(c.bytes_read, c.bytes_written, c.operations) for c in f.cost("operation").parts] == [
        (100, 100, 0)
    ]


def test_sizes_of_a_call() -> None:
    f = cvm.compile("func @main(%x: tensor<?N x ?M x f32>) {\n %y = cvm.relu %x\n return %y\n}")
    found = f.cost(N=8, M=4)
    assert (found.operations, found.bytes_read, found.memory) == (
        64,
        128,
        256,
    ) and f.cost().operations == 2
    large = f.cost(N=10_001, M=1_003)
    assert (
        large.is_exact
        and large.functions["le"]
        >= 10_001 * 1_003
        == f.cost("operation", N=10_001, M=1_003).functions["le"]
    )
    with pytest.raises(cvm.CallError, match=r"no argument has a size \?K"):
        f.cost(K=1)
    with pytest.raises(cvm.CallError, match="counted by kernel or by operation"):
        f.cost("line")


def test_steps_of_loops_and_ticks() -> None:
    f = cvm.compile("""
func @step(%c: tensor<4xf32>, %x: tensor<4xf32>) {
  %d = dali.mul %c, %x
  %e = dali.add %d, 1.0
  return %e
}
func @main(%c: tensor<4xf32>, %xs: tensor<9x4xf32>) {
  %r = builtin.scan @step(%c, %xs) {carry = 1, scan = 1}
  return %r
}""")
    assert f.cost("operation").functions == {"mul": 36, "add": 36} == f.cost().functions
    g = cvm.compile(
        'graph @g {\n %n = cog.field "n" init dense<0.0> : !cog.field<[8, 8], f32>\n'
        " %m = cog.add %n, 1\n"
        " cog.feedback %n, %m\n}",
        entry="g",
    )
    assert g.cost().operations == 64 == g.cost("operation").operations


def test_loops_that_begin_where_others_stand() -> None:
    plan, _ = read_kernels("""
kernel @triangle(%x: tensor<6xf32>) -> (%y: tensor<6xf32>) {
  for %i in 0..6 {
    for %j in %i..6 {
      for %k in %j..6 {
        %y[%i] = %x[%j] * %x[%k]
      }
    }
  }
}
""")
    found = kernel_cost(plan.kernels[0], {})
    assert found.functions == {"mul": 6 * 7 * 8 // 6} and found.is_exact


def test_data_makes_an_upper_bound() -> None:
    f = cvm.compile("func @main(%x: tensor<64xf32>) {\n %y = dali.sin %x\n return %y\n}")
    assert not f.cost().is_exact


class Counting(Machine):
    """Counts the functions that are applied to elements of no more than 32 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: Counter[str] = Counter()
        self.inside = 0

    def place(self, tensor: Tensor, at: tuple[Expr, ...]) -> tuple[int, ...]:
        self.inside += 1
        found = super().place(tensor, at)
        self.inside -= 1
        return found

    def _value(self, expr: Expr) -> Any:
        if isinstance(expr, Apply) and not self.inside and expr.type is not I64:
            self.functions[expr.function] += 1
        return super()._value(expr)


def applied(kernel: Kernel) -> Counter[str]:
    """The functions that a kernel applies when it runs on zeros."""
    machine = Counting()
    for t in kernel.inputs:
        machine.give(t, np.zeros(machine.shape(t.shape), t.element.dtype))
    for t in kernel.outputs:
        machine.allocate(t)
    machine.run(kernel.body)
    return machine.functions


@pytest.mark.parametrize("program", [CONVOLUTION, LAYER, POOLING, TRANSPOSED])
def test_counts_are_those_of_a_run(program: str) -> None:
    f = cvm.compile(program)
    for kernel, counted in zip(f.plan.kernels, f.cost().parts, strict=True):
        assert applied(kernel) == counted.functions and counted.is_exact


class Counted(np.ndarray):
    """An array that counts the elements that NumPy computes from it."""

    found: Counter[str] = Counter()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **more: Any) -> Any:
        plain = [x.view(np.ndarray) if isinstance(x, Counted) else x for x in inputs]
        result = np.asarray(getattr(ufunc, method)(*plain, **more))
        terms = plain[0].shape[-1] if ufunc is np.matmul else 1
        for name in ("multiply", "add") if ufunc is np.matmul else (ufunc.__name__,):
            Counted.found[name] += result.size * terms
        return result.view(Counted)


def test_counts_are_those_of_the_reference() -> None:
    module = cvm.parse(LAYER)
    arguments = [
        np.ones(t.array_shape, np.float32).view(Counted)
        for t in module.functions["main"].argument_types
    ]
    Counted.found.clear()
    dense = replace(module.functions["main"], operations=module.functions["main"].operations[:1])
    evaluate(module, replace(dense, results=dense.operations[0].results), arguments)
    counted = cvm.compile(module).cost("operation").parts[0]
    assert Counted.found["multiply"] == counted.functions["fma"] == 5 * 6 * 7
    assert Counted.found["add"] == counted.functions["fma"] + counted.functions["add"]
    assert Counted.found.total() == counted.operations
