"""The search for schedules: its results are legal, equal and kept, and it ends when it is told to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cvm.jit.functions import tune
from cvm.jit.functions.kernel_function import KernelFunction
from cvm.lowering.scheduling.search import estimated_cycles

import cvm
from cvm import cli

TEXT = """kernel @smooth(%a: tensor<?M x ?N x f32>) -> (%c: tensor<?M x ?N x f32>) {
  for %i in 0..?M { for %j in 0..?N { %c[%i, %j] = %a[%i, %j] * %a[%i, %j] } } }
"""
A = np.arange(12 * 21, dtype=np.float32).reshape(12, 21)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(0o700)
    monkeypatch.setenv("CVM_CACHE_DIR", str(folder))


def compiled() -> KernelFunction:
    f = cvm.compile(TEXT)
    assert isinstance(f, KernelFunction)
    return f


def test_a_search_gives_steps_that_are_legal_and_equal() -> None:
    f, tried = compiled(), list[Any]()
    text = f.tune(A, seconds=1, told=tried.append)
    assert tried[0].text == "" and tried[0].seconds > 0
    for trial in tried:
        made = cvm.schedule(f).apply(trial.text).compile()
        assert made(A).tobytes() == f(A).tobytes()
    assert text in {t.text for t in tried}


def test_what_is_slower_at_the_end_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Any] = []  # functions, the default first: 5 s in the search, then 1 s

    def seconds(call: Callable[..., Any], arguments: object) -> float:
        measured.append(call)
        return 2 if call is not measured[0] else 5 if len(measured) == 1 else 1

    monkeypatch.setattr(tune, "_seconds", seconds)
    assert compiled().tune(A, seconds=1) == ""


def test_ctrl_c_keeps_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Any] = []

    def told(trial: Any) -> None:
        measured.append(trial)
        if len(measured) == 2:
            raise KeyboardInterrupt

    fast = 1.0
    monkeypatch.setattr(tune, "_seconds", lambda call, _: 9.0 if not measured else fast)
    monkeypatch.setattr(tune, "_faster", lambda first, best, arguments, end: best)
    assert compiled().tune(A, seconds=60, told=told) == measured[1].text != ""


def test_later_calls_take_what_is_kept_for_their_shapes() -> None:
    f = compiled()
    steps = cvm.schedule(TEXT).vectorize("j", 8)
    found = tune.Trial(steps.steps, steps.plan, 1.0, f)
    tune.keep(f.given, [A.shape], f.compiled_for, found)
    fast, other = compiled(), compiled()
    assert fast(A)[:, :20].tobytes() == other(A[:, :20].copy()).tobytes()
    assert "<8 x float>" in fast.lower("llvm") and "<8 x float>" not in other.lower("llvm")


def test_a_kept_schedule_that_is_not_legal_is_left_alone() -> None:
    f = compiled()
    steps = cvm.schedule(TEXT.replace("%j", "%l")).vectorize("l", 8)
    tune.keep(f.given, [A.shape], f.compiled_for, tune.Trial(steps.steps, steps.plan, 1.0, f))
    assert tune.kept(f.given, [A.shape], f.compiled_for) is None
    assert f(A).shape == A.shape


def test_cycles_rank_vectors_before_scalars_and_strides_last() -> None:
    text = """kernel @copy(%a: tensor<?M x ?N x f32>) -> (%c: tensor<?M x ?N x f32>) {
      for %i in 0..?M { for %j in 0..?N { %c[%i, %j] = %a[%i, %j] } } }"""
    plain = cvm.schedule(text)
    order = [plain.copy().vectorize("j", 8), plain, plain.copy().reorder("j", "i")]
    sizes = dict.fromkeys(
        {a for t in plain.plan.arguments for d in t.shape for a, _ in d.terms}, 512
    )
    cycles = [estimated_cycles(s.plan.kernels[0], sizes, 1) for s in order]
    assert cycles == sorted(cycles) and cycles[0] < cycles[1] < cycles[2]


@cvm.kernel(checks=False)
def twice(a: Any, b: Any) -> None:
    for i in range(a.shape[0]):
        b[i] = a[i] * 2.0 + b[i]


def test_kernels_from_python_and_programs() -> None:
    a, b = np.ones(50), np.zeros(50)
    text = twice.tune(a, b, seconds=0.2)
    assert not b.any()
    cvm.schedule(twice, a, b).apply(text).compile()(a, b)
    assert (b == 2).all()
    f = cvm.compile("func @main(%x: tensor<8x4xi32>) { %y = cvm.relu %x return %y }")
    x = np.arange(-16, 16, dtype=np.int32).reshape(8, 4)
    assert (cvm.schedule(f).apply(f.tune(x, seconds=0.2)).compile()(x) == f(x)).all()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel, steps = tmp_path / "k.loops", tmp_path / "k.schedule"
    kernel.write_text(TEXT)
    options = ["--size", "M=9", "--size", "N=20", "--seconds", "0.2", "-o", str(steps)]
    assert cli.main(["tune", str(kernel), *options]) == 0
    assert "without steps" in capsys.readouterr().err
    cvm.schedule(TEXT).apply(steps.read_text())
    assert cli.main(["tune", str(kernel), "--seconds", "0"]) == 2
    assert "expected a positive number" in capsys.readouterr().err
