"""Results are those of the default floating-point environment, whatever another library has set for
the thread.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import llvmlite.binding as llvm
import numpy as np
import pytest
from cvm.jit.llvm.native_code import Library
from cvm.jit.runtime.fp_environment_ir import (
    MXCSR,
    declarations,
    in_default_environment,
    register_of,
    use_default,
)

import cvm

REGISTER = register_of()
pytestmark = pytest.mark.skipif(REGISTER is not MXCSR, reason="the modes are those of MXCSR")
MODES = {  # MXCSR's bits beside the status flags
    "flush to zero": 0x9FC0,
    "down": 0x3F80,
    "up": 0x5F80,
    "toward zero": 0x7F80,
    "divisions trap": 0x1D80,
}
CONTROL = 0xFFC0
PROGRAM = """
func @main(%a: tensor<?N x f32>, %b: tensor<?N x f32>) {
  %c = const dense<[1e-40, 3.0]> : tensor<2xf32>
  %d = const dense<[0.5, 7.0]> : tensor<2xf32>
  %folded = dali.div %c, %d
  %q = dali.div %a, %b
  %y = dali.add %q, %a
  return %y, %folded
}
"""
GRAPH = """
graph @decay {
  %x = cog.field "x" init dense<1e-37> : !cog.field<[], f32>
  %y = cog.div %x, 3
  cog.feedback %x, %y
}
"""
A = np.array([1e-40, 1, 2, 1e-38, 1, -1] * 40, np.float32)
B = np.array([3, 3, -7, 11, 0, 3] * 40, np.float32)


@cache
def control_word() -> Library:
    text = """
define i32 @set(i32 %value) {
  %p = alloca i32
  store i32 %value, ptr %p
  call void @llvm.x86.sse.ldmxcsr(ptr %p)
  ret i32 0
}
define i32 @get() {
  %p = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %p)
  %value = load i32, ptr %p
  ret i32 %value
}
"""
    return Library(declarations(REGISTER) + text, {"set": (ctypes.c_int32,), "get": ()})


@contextmanager
def mode(name: str) -> Iterator[None]:
    """A mode of this thread, which is still the same at the end."""
    functions = control_word().functions
    before = functions["get"]()
    functions["set"](MODES[name])
    try:
        yield
        assert functions["get"]() & CONTROL == MODES[name]
    finally:
        functions["set"](before)


def same(found: object, wanted: object) -> bool:
    pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
    return all(np.array_equal(f.view(np.int32), w.view(np.int32)) for f, w in pairs)


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("CVM_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("target", ["cpu", "reference", "cuda-sim"])
@pytest.mark.parametrize("name", MODES)
def test_calls(name, target):
    f = cvm.compile(PROGRAM, target=target)
    wanted = f(A, B)
    assert wanted[0][0] == np.float32(1e-40) / np.float32(3) + np.float32(1e-40) != 0
    odd = A.tolist(), B[::-1].copy()[::-1]
    with mode(name):
        direct = f(A, B)
        checked = f(*odd)
    assert same(direct, wanted)
    assert same(checked, wanted)


@pytest.mark.parametrize("name", MODES)
def test_workers_that_were_started_in_the_mode(name):
    before = cvm.get_num_threads()
    f = cvm.compile("func @main(%a: tensor<1000000xf32>) { %y = dali.div %a, 3.0 return %y }")
    x = np.full(1_000_000, 1e-40, np.float32)
    wanted = f(x)
    assert "parallel {" in f.lower("schedule")
    try:
        with mode(name):
            cvm.set_num_threads(4)
            inside = [f(x) for _ in range(5)]
        after = [f(x) for _ in range(5)]
    finally:
        cvm.set_num_threads(before)
    assert all(same(y, wanted) for y in inside + after)


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("name", MODES)
def test_constants_that_were_folded_in_the_mode(name, target, own_cache):
    wanted = np.array([1e-40, 3], np.float32) / np.array([0.5, 7], np.float32)
    with mode(name):
        inside = cvm.compile(PROGRAM, target=target)
    assert same(inside(A, B)[1], wanted)
    assert same(cvm.compile(PROGRAM, target=target)(A, B)[1], wanted)  # as it was kept


@pytest.mark.parametrize("name", MODES)
def test_traced_functions(name):
    f = cvm.compile(lambda a, k: a * k + np.float32(1e-40) * np.float32(0.5))
    wanted = f(A, 1e-39)
    g = cvm.compile(lambda a, k: a * k + np.float32(1e-40) * np.float32(0.5))
    with mode(name):
        assert same(f(A, 1e-39), wanted)
        found = g(A, 1e-39)
    assert same(found, wanted)


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("name", MODES)
def test_clocked_programs(name, target):
    g, h = (cvm.compile(GRAPH, entry="decay", target=target) for _ in range(2))
    g.step(9)
    with mode(name):
        h.step(9)
        read = h.read("x")
        h.write("x", 1e-41)
    assert same(read, g.read("x"))
    assert same(h.read("x"), np.array(1e-41, np.float32))


@pytest.mark.parametrize("name", MODES)
def test_code_built_ahead_of_time(name, tmp_path):
    from cvm.jit.aot.build import build

    text = (
        "func @main(%a: tensor<240xf32>, %b: tensor<240xf32>) { %q = dali.div %a, %b %y = "
        "dali.add %q, %a return %y }"
    )
    (tmp_path / "m.o").write_bytes(build(cvm.parse(text), ["main"], "m").objects[0])
    subprocess.run(["cc", "-shared", "-o", "m.so", "m.o"], cwd=tmp_path, check=True)
    run, y = ctypes.CDLL(str(tmp_path / "m.so")).m_main, np.empty_like(A)
    with mode(name):
        run(*(ctypes.c_void_p(v.ctypes.data) for v in (A, B, y)))
    assert same(y, cvm.compile(text)(A, B))


def test_the_control_register_of_aarch64_is_assembled():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        machine = llvm.Target.from_triple("aarch64-linux-gnu").create_target_machine()
    except RuntimeError:
        pytest.skip("LLVM is without this target")
    register = register_of("aarch64")
    called = in_default_environment("i32 @f(ptr %x) nounwind", "@inner", ("ptr %x",), register)
    stays = "define void @worker() {\n  call void @use_default_environment()\n  ret void\n}\n"
    text = f"declare i32 @inner(ptr)\n{use_default(register)}{called}{stays}"
    found = machine.emit_assembly(llvm.parse_assembly(text))
    assert len(re.findall(r"mrs\s+x\d+, FPCR", found)) == 1
    assert len(re.findall(r"msr\s+FPCR, x", found)) == 3  # set and restored, and set to stay


def test_the_default_mode_is_read_once_and_not_written():
    text = in_default_environment("i32 @f(ptr %x)", "@inner", ("ptr %x",), MXCSR)
    blocks: dict[str, str] = dict(re.findall(r"^(\w+):\n((?: .*\n)+)", text, re.M))
    assert "br i1 %usual, label %as_is" in blocks["entry"] and "call i32 @inner" in blocks["as_is"]
    usual = blocks["entry"] + blocks["as_is"]
    assert (
        usual.count("stmxcsr") == 1
        and "ldmxcsr" not in usual
        and blocks["changed"].count("ldmxcsr") == 2
    )
