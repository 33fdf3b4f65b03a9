"""Processes that compile and call for long stay as large as they are."""

import pytest
from child_process import run_script

COUNTED = """
import gc, sys
import llvmlite.binding as llvm
import numpy as np
import cvm

builders, create = 0, llvm.create_pass_builder

def counted(*given):
    global builders
    builders += 1
    return create(*given)

llvm.create_pass_builder = counted

def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def compiled(n):
    if n % 64 == 0:
        f = cvm.compile("graph @main { %x = cog.field \\"s\\" : !cog.field<[%d], f32> %y = cog.add %x, 1.0 "
            "cog.feedback %x, %y cog.probe \\"p\\" %y }".replace("%d", str(2 + n % 60)))
        f.step()
        assert (f.read("p") == 2).all()
    elif n % 8 == 2:
        size = 8 + n % 40
        f = cvm.compile(f"func @main(%x: tensor<4x{size}xf32>) {{ %y = dali.exp %x %z = theano.sum %y {{axis = [1]}} return %z }}")
        assert (f(np.zeros((4, size), np.float32)) == size).all()
    f = cvm.compile(cvm.parse(f"func @main(%x: tensor<?xi32>) {{ %y = cvm.broadcast_add %x, {n} return %y }}"))
    assert (f(np.zeros(1 + n % 50, np.int32)) == n).all()
    return f

compiles, calls = map(int, sys.argv[1:3])
first = compiles // 4
for n in range(first):
    f = compiled(n)
before, builders = resident(), 0
for n in range(first, first + compiles):
    f = compiled(n)
print("pass builders", builders)
print("compiles", (resident() - builders * int(sys.argv[3])) / before)
wrong = np.zeros((2, 2), np.int32), np.zeros(3, np.float64), "text"

def call(n):
    if n % 100:
        assert f(rows[: n % 777]).size == n % 777
        return
    try:
        f(wrong[n // 100 % 3])
    except cvm.Error:
        return
    raise AssertionError("the call is refused")

rows = np.zeros(777, np.int32)
for n in range(calls // 4):
    call(n)
before = resident()
for n in range(calls):
    call(n)
print("calls", resident() / before)
"""
WITHIN = 1.05
OF_A_BUILDER = 1536  # bytes: a pass builder's callbacks, which llvmlite never frees


def grown(compiles: int, calls: int) -> dict[str, float]:
    said = run_script(
        COUNTED, str(compiles), str(calls), str(OF_A_BUILDER), timeout=1800, CVM_CACHE_DIR=""
    )
    return {
        name: float(ratio)
        for name, ratio in (line.rsplit(maxsplit=1) for line in said.splitlines())
    }


def test_some_compiles_and_calls():
    found = grown(100, 10_000)
    assert found["compiles"] < WITHIN and found["calls"] < WITHIN


@pytest.mark.slow
def test_many_compiles_and_calls(request: pytest.FixtureRequest):
    many = 5_000 if request.config.getoption("--every-case") else 1_500
    found = grown(many, 1_000_000)
    assert found["compiles"] < WITHIN and found["calls"] < WITHIN
    assert many <= found["pass builders"] <= 2.5 * many  # of modules: one or two of each function
