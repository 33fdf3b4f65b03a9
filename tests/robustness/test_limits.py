"""Limits on programs: each is on by default, can be changed, and is named by the error of what
exceeds it.
"""

import re
import threading
from pathlib import Path

import numpy as np
import pytest
from cvm.dialect.support.limits import LIMITS, NAMES, Limits

import cvm
from cvm.cli import main

NEGATIVE = "func @main(%x: tensor<{}xi32>) {{ %y = cvm.negative %x return %y }}"
BYTES = (
    "func @main(%x: tensor<1xi32>) { %c = const dense<1> : tensor<1000xi32> %y = "
    "cvm.broadcast_add %x, %c return %y }"
)
CALLS = """
func @main(%x: tensor<4xi32>) { %y = call @twice(%x) %z = call @twice(%y) return %z }
func @twice(%x: tensor<4xi32>) { %y = cvm.negative %x %z = cvm.negative %y return %z }
"""
MISTAKES = "func @main(%x: tensor<4xi32>) {" + "%y = cvm.nothing %x\n" * 100 + "return %x }"
SIXTEEN = np.ones(16, np.int32)
EXCEEDED = {  # by limit: its value, and what exceeds it
    "compile_seconds": (1e-9, lambda: cvm.compile(NEGATIVE.format(3), optimize=0)),
    "memory": (63, lambda: cvm.compile(NEGATIVE.format("?"))(SIXTEEN)),
    "operations": (5, lambda: cvm.parse(CALLS)),
    "constant_bytes": (3999, lambda: cvm.compile(cvm.parse(BYTES))),
    "diagnostics": (10, lambda: cvm.parse(MISTAKES)),
    "text_bytes": (100, lambda: cvm.load(__file__)),
}


@pytest.mark.parametrize("name", NAMES)
def test_each_is_named_by_its_error(name, monkeypatch):
    monkeypatch.setenv("CVM_CACHE_DIR", "")
    value, exceed = EXCEEDED[name]
    with cvm.limits(**{name: value}), pytest.raises(cvm.Error) as caught:
        exceed()
    last = caught.value.diagnostics[-1]
    assert (
        f"the limit {name} is {value}; cvm.limits({name}=...) or --limits {name}=... raises it"
        in last.message
    )
    assert last.code == (f"limit.{name}" if name != "text_bytes" else "parse.file")


@pytest.mark.parametrize("name", ["memory", "operations", "constant_bytes"])
def test_what_just_fits(name):
    value, fits = EXCEEDED[name]
    with cvm.limits(**{name: value + 1}):
        fits()


@pytest.mark.parametrize("target", ["cpu", "reference", "cuda-sim"])
@pytest.mark.parametrize("size", ["16", "?"])
def test_functions_keep_the_memory_that_they_were_compiled_for(target, size):
    with cvm.limits(memory=32):
        f = cvm.compile(cvm.parse(NEGATIVE.format(size)), target=target)
    for _ in range(3):
        with pytest.raises(cvm.CallError) as caught:
            f(SIXTEEN)
        assert caught.value.diagnostics[0].code == "limit.memory"
    if size == "?":
        assert f(SIXTEEN[:8]).tolist() == [-1] * 8


def test_the_workspace_counts(tmp_path):
    text = (
        "func @main(%x: tensor<64x64xf32>) { %y = cvm.dense %x, %x %z = cvm.dense %y, %x "
        "return %z }"
    )
    with cvm.limits(memory=64 * 64 * 4 + 100):
        f = cvm.compile(text)
    with pytest.raises(cvm.CallError, match="the limit memory is"):
        f(np.ones((64, 64), np.float32))


@pytest.mark.parametrize("shape", ["[100]", "[2147483647, 500]"])
def test_the_state_of_a_clocked_program_counts(shape):
    text = f'graph @main {{ %c = cog.field "c" : !cog.field<{shape}, f32> cog.feedback %c, %c }}'
    with (
        cvm.limits(memory=399),
        pytest.raises(cvm.TargetError, match=r"\d+ bytes .* but the limit memory is 399"),
    ):
        cvm.compile(text)
    with cvm.limits(memory=400 if shape == "[100]" else 2**42):
        cvm.compile(text)


def test_constants_in_files(tmp_path):
    np.savez(tmp_path / "c.npz", a=np.zeros(100, np.int32), b=np.zeros(100, np.int32))
    text = (
        'func @main() { %a = const file("c.npz", "a") : tensor<100xi32> %b = const '
        'file("c.npz", "b") : tensor<100xi32> return %a, %b }'
    )
    (tmp_path / "p.cvm").write_text(text)
    with (
        cvm.limits(constant_bytes=799),
        pytest.raises(cvm.Error, match="800 bytes, but the limit constant_bytes is 799"),
    ):
        cvm.load(tmp_path / "p.cvm")
    with cvm.limits(constant_bytes=800):
        cvm.load(tmp_path / "p.cvm")


def test_contexts_nest_and_belong_to_their_thread():
    seen = []
    with cvm.limits(memory=7, diagnostics=3), cvm.limits(memory=8) as inner:
        assert (inner.memory, inner.diagnostics) == (8, 3)
        thread = threading.Thread(target=lambda: seen.append(LIMITS.get().diagnostics))
        thread.start()
        thread.join()
    assert (seen, LIMITS.get()) == ([500], Limits())


@pytest.mark.parametrize("value", [0, -1, float("nan"), True, "many"])
def test_values_that_are_none(value):
    with pytest.raises(cvm.Error, match="the limit memory is a positive number"):
        cvm.limits(memory=value)


def test_the_command_line(tmp_path, capsys):
    program = tmp_path / "p.cvm"
    program.write_text(CALLS)
    assert main(["check", str(program), "--limits", "operations=5"]) == 1
    assert "limit.operations" in capsys.readouterr().err
    assert main(["check", str(program), "--limits", "operations=6,compile_seconds=1e3"]) == 0
    for wrong in ("operation=6", "operations", "operations=x", "operations=-1"):
        assert main(["check", str(program), "--limits", wrong]) == 2
        assert f"--limits {wrong}: " in capsys.readouterr().err


def test_the_table_of_the_manual():
    page = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text("utf-8")
    listed = dict(
        re.findall(r"^\| `(\w+)` \|.*\| (.+) \|$", page.partition("## Limits")[2], re.MULTILINE)
    )
    defaults = {
        "memory": "the machine's memory",
        "constant_bytes": "the machine's memory",
        "text_bytes": "2^30",
    }
    assert listed == {
        n: defaults.get(n, f"{getattr(Limits(), n):,.0f}".replace(",", " ")) for n in NAMES
    }
