"""Code that checks itself: `sanitize=True` finds bugs planted in loop passes and intervals, and
nothing in code that is right.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import conformance_cases
import numpy as np
import pytest
from conformance_cases import arrays, cases, failure
from cvm.dialect.kernel_ir import loops as ir
from cvm.dialect.kernel_ir.expressions import Apply, Const, Expr, Read
from cvm.dialect.kernel_ir.integer_interval import Interval
from cvm.dialect.kernel_ir.traverse import rewrite
from cvm.dialect.types.tensor_types import I64
from cvm.lowering import pipeline
from cvm.lowering.analysis import integer_ranges
from cvm.lowering.passes import Pass
from cvm.lowering.processor import Processor, Tuning, compiling_for
from cvm.lowering.storage import place_buffers
from tiers import everything, spread

import cvm

PROGRAM = """func @main(%x: tensor<37x53xi32> {range = [-9, 9]}, %w: tensor<21x53xi32> {range = [-9, 9]}) -> tensor<37x21xi32> {
  %b = cvm.cvm_clip %x {precision = 4}
  %y = cvm.dense %b, %w
  return %y
}
"""
ROWS = """func @main(%x: tensor<? x ?C x f32>, %v: tensor<?C x f32>) -> tensor<? x ?C x f32> {
  %y = dali.sub %x, %v
  return %y
}
"""
RANDOM = np.random.default_rng(26)
X, W = (RANDOM.integers(-9, 10, s).astype(np.int32) for s in ((37, 53), (21, 53)))
FLOATS = RANDOM.random((5, 333)).astype(np.float32), RANDOM.random(333).astype(np.float32)


def plant(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    change: Callable[[Any], Any],
    pipe: str = "CPU_SCHEDULE",
) -> None:
    """Let a pass of the CPU's pipeline do something wrong besides."""
    passes: list[Pass[..., Any]] = []
    before = getattr(pipeline, pipe)
    for one in before:
        if one.name == name:
            real = one.run

            def run(kernel: Any, context: Any, real: Callable[..., Any] = real) -> Any:
                made = real(kernel, context)
                return (
                    change(kernel if made is None else made)
                    if not isinstance(made, pipeline.Plan)
                    else made
                )

            one = replace(one, run=run)
        passes.append(one)
    assert any(p.run is not o.run for p, o in zip(passes, before, strict=True))
    monkeypatch.setattr(pipeline, pipe, tuple(passes))


def map_loops(kernel: Any, change: Callable[[ir.For], ir.For]) -> Any:
    def one(s: ir.Statement) -> ir.Block | None:
        return (ir.rewrite_within(change(s), one),) if isinstance(s, ir.For) else None

    return (
        kernel.with_body(ir.rewrite_block(kernel.body, one))
        if isinstance(kernel, ir.Kernel)
        else kernel
    )


def longer(kernel: Any) -> Any:
    """An off-by-one in the bound of every loop."""
    return map_loops(
        kernel, lambda s: replace(s, stop=s.end + s.width) if s.kind in ("serial", "vector") else s
    )


def late(kernel: Any) -> Any:
    """Every vector begins one element late."""
    return map_loops(
        kernel, lambda s: replace(s, start=s.start + 1, stop=s.end + 1) if s.kind == "vector" else s
    )


def strided(kernel: Any) -> Any:
    """A wrong stride in every first index that is read."""

    def index(e: Expr) -> Expr | None:
        if isinstance(e, Read) and e.tensor.space == "argument" and len(e.indices) > 1:
            first, *rest = e.indices
            return Read(e.tensor, (Apply("mul", (first, Const(2, I64)), I64), *rest))
        return None

    if not isinstance(kernel, ir.Kernel):
        return kernel
    return kernel.with_body(ir.map_expressions(kernel.body, lambda e: rewrite(e, index)))


def before(kernel: Any) -> Any:
    """Every store goes one row up."""

    def one(s: ir.Statement) -> ir.Block | None:
        if isinstance(s, ir.Store) and len(s.indices) > 1:
            return (replace(s, indices=(s.indices[0] - 1, *s.indices[1:])),)
        return None

    return (
        kernel.with_body(ir.rewrite_block(kernel.body, one))
        if isinstance(kernel, ir.Kernel)
        else kernel
    )


@pytest.mark.parametrize("level", [0, 2])
def test_code_that_is_right_gives_the_same(level: int) -> None:
    checked, plain = (
        cvm.compile(PROGRAM, optimize=level, sanitize=True),
        cvm.compile(PROGRAM, optimize=level),
    )
    np.testing.assert_array_equal(checked(X, W), plain(X, W), strict=True)
    checked, plain = (
        cvm.compile(ROWS, optimize=level, sanitize=True),
        cvm.compile(ROWS, optimize=level),
    )
    np.testing.assert_array_equal(checked(*FLOATS), plain(*FLOATS), strict=True)
    assert checked(FLOATS[0][:, :0], FLOATS[1][:0]).shape == (5, 0)


@pytest.mark.parametrize("bug", [longer, late, strided, before], ids=lambda b: b.__name__)
@pytest.mark.parametrize("program", [PROGRAM, ROWS], ids=["dense", "rows"])
def test_planted_accesses_are_found(
    bug: Callable[..., Any], program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CVM_CACHE_DIR", "")
    plant(monkeypatch, "kernel_condition_to_branch", bug)
    given = (X, W) if program is PROGRAM else FLOATS
    outside = r"index .* of %\w+ is outside of axis \d|the loop over %\w+ .* ends beyond"
    with pytest.raises(cvm.CallError, match=f"sanitize: ({outside})") as e:
        cvm.compile(program, sanitize=True)(*given)
    assert e.value.diagnostics[0].line in (2, 3)


def test_an_interval_that_is_too_narrow_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Squares of -9..9 are not within [0, 30]."""
    monkeypatch.setenv("CVM_CACHE_DIR", "")
    real = integer_ranges.ELEMENTWISE["mul"]
    monkeypatch.setitem(integer_ranges.ELEMENTWISE, "mul", lambda a, b: real(a, b) and (0, 30))
    program = """func @main(%x: tensor<37x53xi32> {range = [-9, 9]}) -> tensor<37x53xi32> {
  %y = cvm.broadcast_mul %x, %x
  return %y
}
"""
    with pytest.raises(cvm.CallError, match=r"sanitize: .* leaves its proven interval, \[0, 30\]"):
        cvm.compile(program, sanitize=True)(X)


def test_an_array_that_is_narrowed_too_far_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An intermediate array is stored as bytes, though it holds 600."""
    monkeypatch.setenv("CVM_CACHE_DIR", "")
    real = integer_ranges.ranges_of

    def narrowed(program: Any, *given: Any) -> Any:
        return {
            t: Interval(0, 9) if t.space == "heap" else r for t, r in real(program, *given).items()
        }

    monkeypatch.setattr(integer_ranges, "ranges_of", narrowed)
    program = """func @main(%x: tensor<2048x1024xi32> {range = [0, 300]}) -> tensor<1024x2048xi32> {
  %a = cvm.elemwise_add %x, %x
  %b = cvm.sum %a {axes = [1], keepdims = true}
  %c = cvm.broadcast_add %a, %b
  %y = cvm.transpose %c {axes = [1, 0]}
  return %y
}
"""
    x = np.full((2048, 1024), 300, np.int32)
    with pytest.raises(
        cvm.CallError, match=r"sanitize: what %\w+ holds leaves its proven interval, \[0, 9\]"
    ):
        cvm.compile(program, sanitize=True)(x)


def test_an_array_that_is_not_aligned_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intermediate arrays that begin at odd bytes of the workspace."""
    monkeypatch.setenv("CVM_CACHE_DIR", "")
    real = place_buffers.packed

    def odd(*given: Any) -> Any:
        offsets, size = real(*given)
        return {t: at + 1 for t, at in offsets.items()}, size + 64

    monkeypatch.setattr(place_buffers, "packed", odd)
    with pytest.raises(
        cvm.CallError, match=r"sanitize: an access of %\w+ is not aligned to 4 bytes"
    ):
        cvm.compile(PROGRAM, sanitize=True)(X, W)


@pytest.mark.parametrize("target", ["reference", "cuda-sim"])
def test_it_is_for_the_cpu(target: Any) -> None:
    with pytest.raises(cvm.TargetError, match="sanitize is for the target cpu"):
        cvm.compile(PROGRAM, target=target, sanitize=True)


def test_clocked_programs_check_their_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVM_CACHE_DIR", "")
    text = """graph @main {
  %s = cog.field "s" : !cog.field<[6, 9], f32>
  %t = cog.shift %s {amount = [1, 0]}
  %u = cog.add %t, 1
  cog.feedback %s, %u
}
"""
    graph = cvm.compile(text, sanitize=True)
    graph.step(3)
    assert graph.read("s")[0, 0] == 1
    plant(monkeypatch, "kernel_condition_to_branch", before, "STEP")
    graph = cvm.compile(text, sanitize=True)
    with pytest.raises(cvm.CallError, match="sanitize: index"):
        graph.step()


@compiling_for(Processor(l3_bytes=0, wake_operations=1, tuning=Tuning(skewed_rows=1)))
def test_passes_of_several_ticks_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVM_CACHE_DIR", "")
    text = """graph @main {
  %s = cog.field "s" : !cog.field<[70, 300], f32>
  %t = cog.shift_cyclic %s {amount = [1, 0]}
  %u = cog.add %t, 1
  cog.feedback %s, %u
}
"""
    graph, plain = (cvm.compile(text, sanitize=checks) for checks in (True, False))
    assert graph.step_plan.several is not None and graph.step(11) == plain.step(11)
    np.testing.assert_array_equal(graph.read("s"), plain.read("s"))
    plant(
        monkeypatch,
        "time_skew",
        lambda tick: replace(tick, several=tick.several and early(tick.several)),
        "STEP",
    )
    graph = cvm.compile(text, sanitize=True)
    graph.step()
    with pytest.raises(cvm.CallError, match="sanitize: index"):
        graph.step(11)


def early(plan: Any) -> Any:
    return replace(plan, kernels=tuple(before(k) for k in plan.kernels))


def test_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "p.cvm").write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "cvm",
        "run",
        str(tmp_path / "p.cvm"),
        "--sanitize",
        "--random-inputs",
        "1",
        "--digest",
    ]
    checked = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    command.remove("--sanitize")
    assert (
        "sha256" in checked
        and checked == subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["cog", "cvm", "dali", "theano"])
def test_conformance_cases_check_themselves(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded cases hold under `sanitize`, those that unoptimized code computes, too."""
    given = [
        (op, c)
        for op, found in cases().items()
        if op.startswith(f"{dialect}.")
        for c in found
        if c["valid"]
    ]
    assert len(given) > 300
    for number, (_, case) in enumerate(spread(given, 700 if everything else 200)):
        function = conformance_cases.compiled(case, "cpu", 2 if number % 4 else 0, sanitize=True)
        assert failure(case, arrays(dialect), function) is None, case["id"]
