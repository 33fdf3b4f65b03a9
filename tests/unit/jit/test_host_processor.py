"""Processors that are named, described or found, and code that is compiled for them."""

from __future__ import annotations

import ctypes
import errno
import pickle
import platform
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cvm.jit import host_processor
from cvm.jit.cache import keys
from cvm.jit.cache.keys import environment
from cvm.jit.host_processor import cache_sizes, host_features
from cvm.lowering.processor import AMX, LEVELS, NAMED, Processor, named, processor

import cvm

PROGRAM = """func @main(%x: tensor<1x16x12x12xi32> {range = [0, 127]}) {
  %w = const dense<5> : tensor<32x16x1x1xi32>
  %y = cvm.conv2d %x, %w
  return %y
}
"""
X = np.arange(16 * 144, dtype=np.int32).reshape(1, 16, 12, 12) % 128
INSTRUCTIONS = {
    "x86-64": "\tpmaddwd",
    "x86-64-v2": "\tpmaddubsw",
    "x86-64-v3": "\tvpmaddubsw",
    "znver4": "\tvpdpbusd",
}


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_code_has_the_dot_product_of_the_processor_named(name: str) -> None:
    """Code is made for a machine that differs from the host, too."""
    assert INSTRUCTIONS[name] in cvm.compile(PROGRAM, target="reference", cpu=name).lower("asm")


@pytest.mark.parametrize("name", [*NAMED, "native"])
def test_results_do_not_depend_on_the_processor(name: str) -> None:
    wanted = np.full((1, 32, 1, 1), 5) * X.sum(1, keepdims=True)
    found = named(name)
    other = found is not None and found.triple.partition("-")[0] not in ("", platform.machine())
    if other or (
        found is not None and not {*LEVELS[found.cpu], *found.features} <= host_features()
    ):
        with pytest.raises(
            cvm.TargetError, match="this machine is of" if other else "this machine lacks"
        ):
            cvm.compile(PROGRAM, cpu=name)
        return
    f = cvm.compile(PROGRAM, cpu=name)
    np.testing.assert_array_equal(f(X), wanted)
    again = pickle.loads(pickle.dumps(f))
    assert again.options == f.options
    np.testing.assert_array_equal(again(X), wanted)
    assert processor() == Processor()


@pytest.mark.parametrize("cpu", ["x86", "", 3])
def test_unknown_processors_are_diagnosed(cpu: str) -> None:
    with pytest.raises(cvm.TargetError, match="those known are native, x86-64, "):
        cvm.compile(PROGRAM, cpu=cpu)


def test_cache_sizes_are_those_of_the_system_within_limits(tmp_path: Path) -> None:
    caches = [
        ("1", "Data", "48K"),
        ("1", "Instruction", "32K"),
        ("2", "Unified", "2M"),
        ("3", "Unified", "260M"),
    ]
    for n, values in enumerate([*caches, ("2", "Unified", "odd")]):
        (tmp_path / f"index{n}").mkdir()
        for name, value in zip(("level", "type", "size"), values, strict=True):
            (tmp_path / f"index{n}" / name).write_text(f"{value}\n")
    assert cache_sizes(tmp_path) == {
        "l1_bytes": 48 << 10,
        "l2_bytes": 2 << 20,
        "l3_bytes": 32 << 20,
    }
    assert cache_sizes(tmp_path / "none") == {}


class Libc:
    """A C library whose system answers what it is asked for."""

    def __init__(self, error: int) -> None:
        self.error = error

    def syscall(self, *asked: int) -> int:
        assert asked == host_processor.ASK_FOR_TILES
        ctypes.set_errno(self.error)
        return -1 if self.error else 0


@pytest.mark.parametrize(
    ("error", "why"),
    [(0, ""), (errno.ENOSPC, "signal handlers"), (errno.EINVAL, "invalid argument")],
)
def test_the_system_is_asked_for_matrix_tiles(
    error: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal leaves byte dot products."""
    features = dict.fromkeys(("avx512bw", "avx512vl", "avx512vnni", *AMX), True)
    monkeypatch.setattr(host_processor.llvm, "get_host_cpu_features", lambda: features)
    monkeypatch.setattr(host_processor.ctypes, "CDLL", lambda *_, **how: Libc(error))
    monkeypatch.setattr(host_processor.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(host_processor.platform, "system", lambda: "Linux")
    asked = host_processor.tiles_refused.__wrapped__
    monkeypatch.setattr(host_processor, "tiles_refused", asked)
    assert (
        why in asked() and bool(asked()) == bool(error) and host_processor.why_no_tiles() == asked()
    )
    found = host_processor.host_features.__wrapped__()
    assert (found >= AMX) == (not error)
    described = host_processor.with_features(found, "", "", (), {})
    assert described.matrix_tiles == ("" if error else "instructions")
    assert described.has_int8_dot_product


def test_emulated_tiles_have_code_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here = host_processor.host_processor()
    known = {environment()}
    for tiles in {"", "loops", "instructions"} - {here.matrix_tiles}:
        monkeypatch.setattr(keys, "host_processor", lambda t=tiles: replace(here, matrix_tiles=t))
        known.add(environment())
    assert len(known) == 3
    monkeypatch.setattr(host_processor, "EMULATED", {"matrix_tiles": "loops"})
    assert host_processor.host_processor.__wrapped__().matrix_tiles == "loops"


def test_other_programs_need_not_ask_for_tiles() -> None:
    described = named("sapphirerapids")
    assert described is not None and described.matrix_tiles == "instructions"
    other = described.without_matrix_tiles
    assert not other.matrix_tiles and not AMX & {*other.features} and other.has_int8_dot_product
