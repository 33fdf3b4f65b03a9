"""Emitted IR has no poison that matters and no undefined behavior: read from its text, and run."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import numpy as np
import pytest
import tiers
from conformance_cases import cases
from cvm.dialect.ir.program_printer import print_module
from cvm.dialect.kernel_ir.execution_plan import Plan
from cvm.dialect.kernel_ir.expressions import (
    Index,
    apply,
    as_index,
    cast,
    constant,
    maximum,
    minimum,
    select,
)
from cvm.dialect.kernel_ir.loops import For, Store
from cvm.dialect.types.tensor_types import I8, I32, I64, UI16, UI64, ElementType
from cvm.jit.calls import vectorcall_ir
from cvm.jit.llvm import float_functions
from cvm.jit.llvm.emit import emit_plans
from cvm.jit.llvm.ir_files import join_ir, read_ir
from cvm.jit.llvm.native_code import optimise
from cvm.jit.runtime import fp_environment_ir, thread_pool
from hypothesis import given
from native_kernels import compiled, kernel, tensor
from random_programs import modules
from scan_ir import DECLARED, HAND_WRITTEN, after_passes, violations

import cvm

ROOT = Path(__file__).parents[3]
PROGRAMS = sorted({c["program"] for found in cases().values() for c in found if c["valid"]})
MANY, FEW, OPTIMIZED = 600, 40, 12  # programs
SHARES = 4


def emitted(program: object, stage: str = "llvm") -> str:
    return cvm.compile(program, target="reference").lower(stage)


@pytest.mark.filterwarnings("ignore:.*trimmed")
@pytest.mark.parametrize("share", range(SHARES))
def test_recorded_programs(share: int) -> None:
    chosen = tiers.some(PROGRAMS, FEW)[:: len(PROGRAMS) // MANY + 1 if tiers.everything else 1]
    wrong = [f"{v}\n{p}" for p in chosen[share::SHARES] for v in violations(emitted(p))]
    assert wrong == []


@pytest.mark.filterwarnings("ignore:.*trimmed")
def test_nothing_is_read_before_it_is_written() -> None:
    """LLVM makes registers of buffers: what is read before is `undef` afterwards."""
    chosen = tiers.some(PROGRAMS, FEW)[:: 1 if not tiers.everything else len(PROGRAMS) // MANY * 3]
    chosen = chosen if tiers.everything else chosen[:: len(chosen) // OPTIMIZED]
    wrong = [f"{v}\n{p}" for p in chosen for v in after_passes(emitted(p, "llvm-opt"))]
    assert wrong == []


@given(modules())
@tiers.examples(60, 3)
def test_random_programs(module: cvm.Module) -> None:
    for entry in module.functions:
        text = cvm.compile(module, entry=entry, target="reference").lower("llvm")
        assert violations(text) == [], print_module(module)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("element", [I8, UI16, I32, I64], ids=str)
@pytest.mark.parametrize("function", ["shl", "shr", "div", "rem", "floordiv", "floormod"])
def test_functions_of_any_operands(function: str, element: ElementType, lanes: int) -> None:
    """A divisor of 0 is 1, and a count is modulo the width, whatever a kernel does with the
    result.
    """
    low, high = element.limits
    edges = np.array([low, low + 1, 0, 1, 2, 7, 8, element.bits - 1, element.bits, high], object)
    edges = np.append(edges, max(low, -1))
    a, b = (v.reshape(-1).astype(element.dtype) for v in np.meshgrid(edges, edges))
    a, b = np.append(a, a[:7]), np.append(b, b[:7])  # 128 of them
    i = Index("i", len(a))
    x, y, z = (tensor(n, element, len(a)) for n in "xyz")
    store = Store(z, (i,), apply(function, x[i], y[i]))
    loop = For(i, (store,), kind="vector", width=lanes) if lanes > 1 else For(i, (store,))
    (found,) = compiled(kernel((loop,), x, y, z), a, b)
    for p, q, r in zip(a.tolist(), b.tolist(), found.tolist(), strict=True):
        if function in ("shl", "shr"):
            count = q % element.bits
            exact = p << count if function == "shl" else p >> count
        else:
            q = q or 1
            down = p // q
            quotient = down if function.startswith("floor") else down + (down < 0 and p % q != 0)
            exact = quotient if function.endswith("div") else p - quotient * q
        assert r == (exact - low) % (high - low + 1) + low, (p, q)


def test_sums_of_data_may_overflow() -> None:
    """An index of data is held inside after a sum that wraps: with a flag it would be poison."""
    i = Index("i", 16)
    p, x, y = tensor("p", I64, 16), tensor("x", I32, 8), tensor("y", I32, 16)
    at = minimum(maximum(p[i] * 3 + 5, as_index(0)), as_index(7))
    k = kernel((For(i, (Store(y, (i,), x[at]),)),), p, x, y)
    text = str(emit_plans(Plan("k", k.inputs, k.outputs, {}, (k,))).module)
    assert violations(text) == [] and "mul i64" in text
    given = np.resize(np.array([2**62, 2**63 - 1, -(2**63), 0, -2], np.int64), 16)
    numbers = np.arange(8, dtype=np.int32)
    (found,) = compiled(k, given, numbers)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, np.clip(given * 3 + 5, 0, 7))


@pytest.mark.parametrize("lanes", [1, 8])
def test_a_count_that_is_chosen_below_the_width_is_not_masked(lanes: int) -> None:
    i = Index("i", 16)
    x, n, y = (tensor(name, I32, 16) for name in "xny")
    inside = cast(n[i], UI64) < 32
    value = select(inside, x[i] << select(inside, n[i], constant(0, I32)), constant(0, I32))
    store = Store(y, (i,), value)
    loop = For(i, (store,), kind="vector", width=lanes) if lanes > 1 else For(i, (store,))
    k = kernel((loop,), x, n, y)
    text = str(emit_plans(Plan("k", k.inputs, k.outputs, {}, (k,))).module)
    assert violations(text) == [] and " and " not in text
    counts = np.array([0, 1, 31, 32, 33, -1, -(2**31), 2**31 - 1] * 2, np.int32)
    (found,) = compiled(k, np.arange(1, 17, dtype=np.int32), counts)
    np.testing.assert_array_equal(found[:5], [1, 4, -(2**31), 0, 0])
    wrong = text.replace(" 32", " 33").replace("i32 32)", "i32 33)")
    assert any("a count" in v for v in violations(wrong))


def files_of_ir() -> dict[str, str]:
    """The modules that files of IR are joined to, for each processor that has one of its own."""
    found = {entry: vectorcall_ir.call_source(entry) for entry in vectorcall_ir.SOURCES}
    for machine, name in thread_pool.MACHINES.items():
        default = fp_environment_ir.use_default(fp_environment_ir.register_of(machine))
        found[machine] = join_ir(read_ir("runtime/thread_pool.ll"), read_ir(name), default)
    found["serial"] = thread_pool.serial_loops()
    for name in ("fma", "fmod", "sqrt"):
        found[name] = "\n".join(float_functions._of_doubles(name))
    return found


def test_files_of_ir_have_declared_exceptions_alone() -> None:
    modules = files_of_ir()
    for path in ROOT.glob("jit/**/*.ll"):  # each is a part of a module
        defined = re.findall(r"^define .*@(\w+)\(", path.read_text("utf-8"), re.MULTILINE)
        assert any(all(f"@{d}(" in text for d in defined) for text in modules.values()), path
    found = {f"{name}{v}" for name, text in modules.items() for v in violations(text)}
    by = {v: [p for p in HAND_WRITTEN if re.search(p, v)] for v in found}
    assert [v for v, patterns in by.items() if not patterns] == []
    assert {*HAND_WRITTEN} == {p for patterns in by.values() for p in patterns}


@pytest.mark.parametrize("name", [*vectorcall_ir.SOURCES, thread_pool.FUTEX and platform.machine()])
def test_nothing_in_files_of_ir_is_read_before_it_is_written(name: str | None) -> None:
    if name is None:
        pytest.skip("the pool needs Linux")
    assert after_passes(str(optimise(files_of_ir()[name]))) == []


def test_what_is_declared_is_documented() -> None:
    page = (ROOT / "docs" / "lowering.md").read_text("utf-8")
    assert [k for k, reason in DECLARED.items() if f"| `{k}` | {reason} |" not in page] == []
    assert [reason for reason in HAND_WRITTEN.values() if f"| {reason} |" not in page] == []


BAD = {
    "%v1 = fptosi float %a to i32": "not guarded",
    "%v1 = shl i32 %a, %b": "a count",
    "%v1 = lshr <4 x i8> %a, splat (i8 8)": "a count",
    "%v1 = udiv i32 %a, %b": "may be 0",
    "%v1 = sdiv i32 7, -1": "0 or -1",
    "%v1 = fadd fast float %a, %b": "a flag",
    "%v1 = add nsw i32 %a, %b": "a flag on something else",
    "%v1 = lshr exact i32 %a, 1": "a flag",
    "store i32 undef, ptr %p": "a flag",
    "store i32 poison, ptr %p": "poison as an operand",
    "%v1 = call float @llvm.minnum.f32(float %a, float %b)": "a call",
    "%v1 = call i32 @llvm.abs.i32(i32 %a, i1 true)": "poison for some operand",
    "%v1 = extractelement <4 x i32> %a, i64 4": "a lane",
    "%v1 = extractelement <4 x i32> %a, i64 %b": "a lane",
    "%v1 = freeze i32 %a": "does not know",
    "%v1 = load i32, ptr %status": "a race",
    "%v1 = load <4 x i32>, ptr %p, align 16": "aligned to more",
    "call void @kernel_0(ptr %p, ptr %q, ptr %p)": "two arrays",
    "store i32 0, ptr %r": "readonly",
    "call void %f(ptr %p)": "a call of an address",
    "%v1 = shl i32 %exact.one, ; a comment\n  %b": "a count",
}


@pytest.mark.parametrize("line", BAD)
def test_what_is_wrong_is_found(line: str) -> None:
    head = "define void @k(ptr noalias %p, ptr noalias readonly %r, ptr %status) nounwind {"
    text = f"define void @kernel_0() {{\n}}\n{head}\nentry:\n  {line}\n  ret void\n}}\n"
    assert any(BAD[line] in v for v in violations(text)), violations(text)


def test_lanes_of_poison_are_followed() -> None:
    text = """define void @k(ptr noalias %p) nounwind {
entry:
  %v1 = insertelement <2 x i32> poison, i32 1, i64 0
  %v2 = add <2 x i32> %v1, %v1
  %v3 = insertelement <2 x i32> %v1, i32 2, i64 1
  store <2 x i32> %v3, ptr %p, align 4
  ret void
}
"""
    assert [v.partition(" = ")[0] for v in violations(text)] == ["@k: %v2"]
    assert after_passes("  store i32 undef, ptr %p\n") and not after_passes("  ret i32 0\n")
    dead = "define void @k() {\nentry:\n  br i1 false, label %a, label %b\na:\n  br i1 poison, label %a, label %b\nb:\n  ret void\n}\n"
    assert not after_passes(dead) and after_passes(dead.replace("i1 false", "i1 %c"))
