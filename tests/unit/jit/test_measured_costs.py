"""Costs that were measured on this machine: what they change, and what they never change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cvm.jit.cache import measured_costs
from cvm.jit.cache.keys import environment
from cvm.jit.cache.measured_costs import Costs, keep, kept, measured_host
from cvm.jit.host_processor import host_processor, resolve

import cvm
from cvm.cli import main
from cvm.commands import measure
from cvm.commands.measure import Timed, fitted
from cvm.testing.commands import _text
from cvm.testing.filetest import Command, Filetest

PROGRAM = """func @main(%x: tensor<8x64xi32> {range = [-127, 127]}) {
  %w = const dense<WEIGHTS> : tensor<64x64xi32>
  %y = cvm.dense %x, %w
  return %y
}
"""
WEIGHTS = str(np.random.default_rng(0).integers(-127, 128, (64, 64)).tolist())


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CVM_CACHE_DIR", str(tmp_path / "cache"))
    yield
    measured_costs._kept.cache_clear()


def taken() -> str:
    """The strategy of a product that is compiled for this machine."""
    text = cvm.compile(PROGRAM.replace("WEIGHTS", WEIGHTS)).lower("strategies")
    return next(line.split()[1] for line in text.splitlines() if line.startswith("  taken"))


def test_choices_of_calls_follow_what_was_measured(tmp_path: Path) -> None:
    before, key = taken(), environment()
    assert before != "mul_i32" and kept() is None and measured_host() == host_processor()
    costs = Costs(fma_bytes=16, wake_operations=1234, strategies={"mul_i32": 0.0})
    keep(costs)
    assert kept() == costs and measured_host().wake_operations == 1234
    assert taken() == "mul_i32" and environment() != key
    assert resolve("native") == host_processor()
    (tmp_path / "cache" / measured_costs._entry()).write_bytes(b"not what was stored")
    measured_costs._kept.cache_clear()
    assert kept() is None and taken() == before


def test_goldens_and_builds_go_by_tables(tmp_path: Path) -> None:
    text = PROGRAM.replace("WEIGHTS", WEIGHTS)
    program = tmp_path / "a.cvm"
    program.write_text(text)

    def made() -> list[object]:
        stages = [_text(Filetest(text), Command(s, 1)) for s in ("strategies", "schedule", "asm")]
        assert main(["build", str(program), "-o", str(tmp_path / "a.o")]) == 0
        return [*stages, (tmp_path / "a.o").read_bytes()]

    before = made()
    keep(Costs(fma_bytes=16, wake_operations=1234, strategies={"mul_i32": 0.0}))
    assert taken() == "mul_i32" and made() == before


def timed(name: str, **strategies: tuple[float, float]) -> Timed:
    costs, seconds = ({n: pair[at] for n, pair in strategies.items()} for at in (0, 1))
    return Timed(name, costs, seconds)


def test_factors_make_the_cheapest_the_fastest() -> None:
    slow = timed("a", fast=(110.0, 1.0), slow=(100.0, 2.0))
    assert slow.choice({}) == "slow"
    factors = fitted([slow])
    assert slow.choice(factors) == "fast" and len(factors) == 1
    # where estimates are right nothing changes
    assert fitted([timed("b", one=(10.0, 1.0), two=(20.0, 2.0))]) == {}
    # a gain in one contraction pays for no loss in another
    against = timed("c", fast=(105.0, 3.0), slow=(100.0, 2.0))
    assert fitted([slow, against]) == {}


def test_measuring_reports_and_keeps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"dense": ((8, 64), (64, 64), "cvm.dense %x, %w")}
    monkeypatch.setattr(measure, "CONTRACTIONS", small)
    monkeypatch.setattr(measure, "ROUNDS", 1)
    monkeypatch.setattr(measure, "SECONDS", 0.0)
    monkeypatch.setattr(measure, "LENGTHS", [1 << 12])
    monkeypatch.setattr(measure, "seconds_of_sums", lambda lanes: 1.0)
    assert main(["doctor"]) == 0
    assert "by tables; cvm doctor --measure" in capsys.readouterr().out
    assert main(["doctor", "--measure"]) == 0
    printed = capsys.readouterr().out
    assert "dense of i32" in printed and "bytes a cycle" in printed
    found = kept()
    assert found is not None and found.wake_operations > 0
    assert main(["doctor"]) == 0
    assert f"as long as {found.wake_operations:,} operations" in capsys.readouterr().out


def test_a_strategy_of_other_results_takes_no_part(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "CONTRACTIONS", {"dense": ((8, 64), (64, 64), "cvm.dense %x, %w")})
    monkeypatch.setattr(measure, "ROUNDS", 1)
    made = measure._compiled

    def wrong(module: cvm.Module, described: object) -> object:
        call = made(module, described)
        if dict(described.tuning.strategy_costs).get("mul_i32") == 0:
            return lambda x, out=None: call(x) + 1
        return call

    monkeypatch.setattr(measure, "_compiled", wrong)
    (found,) = measure._timed_strategies("dense", measure._module("i32", "dense"), host_processor())
    assert "mul_i32" not in found.costs and "mul_i32" not in found.seconds and len(found.costs) > 0
    assert "dense: mul_i32 has other results" in capsys.readouterr().err


def test_a_cache_that_is_off_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CVM_CACHE_DIR", "")
    assert main(["doctor", "--measure"]) == 2
    assert "the disk cache, which is off" in capsys.readouterr().err
