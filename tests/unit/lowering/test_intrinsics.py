"""Intrinsics: the nests that their code stands for, refusals, and the comparison of both."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cvm.dialect.support.entry_points import PLACED
from cvm.jit.aot import build as aot
from cvm.jit.functions.kernel_function import KernelFunction
from cvm.lowering.analysis.intrinsics import INTRINSICS
from cvm.lowering.processor import NAMED

import cvm
from cvm.extending import intrinsic
from cvm.kernels.intrinsics import declare

ADD = """
define void @f(ptr %x, ptr %y, i64 %n) {
  %v = load <4 x i32>, ptr %x, align 4
  %r = add <4 x i32> %v, <i32 1, i32 1, i32 1, i32 1>
  store <4 x i32> %r, ptr %y, align 4
  %p = getelementptr i32, ptr %x, i64 %n
  %w = load <4 x i32>, ptr %p, align 4
  %s = add <4 x i32> %w, <i32 1, i32 1, i32 1, i32 1>
  %q = getelementptr i32, ptr %y, i64 4
  store <4 x i32> %s, ptr %q, align 4
  ret void
}
"""
NEST = """kernel @rows2(%x: tensor<2x4xi32>) -> (%y: tensor<8xi32>) {
  for %i in 0..2 { for %j in 0..4 { %y[%i * 4 + %j] = %x[%i, %j] + 1 } } }"""
ROWS = """kernel @rows2(%x: tensor<2x4xi32>) -> (%y: tensor<2x4xi32>) {
  for %i in 0..2 { for %j in 0..4 { %y[%i, %j] = %x[%i, %j] + 1 } } }"""
CODE = ADD.replace("i64 %n)", "i64 %n, i64 %m)").replace("%y, i64 4", "%y, i64 %m")
KERNEL = """kernel @k(%x: tensor<?M x ?N x 4 x i32>) -> (%y: tensor<?M x ?N x 4 x i32>) {
  for %m in 0..?M { for %n in 0..?N // 2 {
    for %i in 0..2 { for %j in 0..4 {
      %y[%m, %n * 2 + %i, %j] = %x[%m, %n * 2 + %i, %j] + 1 } } }
    for %l in ?N // 2 * 2..?N { for %j in 0..4 { %y[%m, %l, %j] = %x[%m, %l, %j] + 1 } } } }"""


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    placed = [*PLACED]
    yield
    INTRINSICS.clear()
    PLACED[:] = placed


def untested(meaning: str, code: str | None, library: str | None = None) -> None:
    declare(meaning, code, library, (), tested=False)


def test_a_nest_is_replaced_and_named_in_text() -> None:
    untested(ROWS, CODE)
    schedule = cvm.schedule(KERNEL).replace("i", "rows2")
    assert "for %i in 0..2 intrinsic rows2 {" in schedule.lower()
    assert str(schedule) == "replace{loop=i by=rows2}"
    x = np.arange(3 * 5 * 4, dtype=np.int32).reshape(3, 5, 4)
    for f in (schedule.compile(), cvm.compile(schedule.lower(), target="cuda-sim")):
        np.testing.assert_array_equal(f(x), x + 1)
    read_back = cvm.compile(schedule.lower())
    assert "call void @intrinsic.rows2(ptr" in read_back.lower("llvm")
    np.testing.assert_array_equal(read_back(x), x + 1)
    np.testing.assert_array_equal(schedule.copy().parallelize("m").compile()(x), x + 1)


REFUSED = {
    "replace{loop=l by=rows2}": r"the nest differs: `for %l .*`, and @rows2 has `for %i in 0..2 {`",
    "replace{loop=i by=rows}": "there is no intrinsic rows; did you mean rows2",
    "replace{loop=j#0 by=rows2}": "the nest differs: `for %j in 0..4 {`",
}


@pytest.mark.parametrize("step", REFUSED)
def test_another_nest_is_refused_with_the_difference(step: str) -> None:
    untested(ROWS, CODE)
    with pytest.raises(cvm.VerifyError, match=REFUSED[step]):
        cvm.schedule(KERNEL).apply(step)


DIFFERENT = {
    "+ 1 } } }\n    for": ("+ 2 } } }\n    for", "has `%y.* = .* [+] 1`"),
    "%x[%m, %n * 2 + %i, %j] + 1 } } }\n    for": (
        "%x[%m, %n * 2 + %j // 4, %j] + 1 } } }\n    for",
        "the nest has a part of an array that moves within the nest|the nest differs",
    ),
    "for %i in 0..2 { for %j in 0..4 {\n      %y": (
        "for %j in 0..4 { for %i in 0..2 {\n      %y",
        "the nest differs: `%y.*`, and @rows2 has `for %j in 0..4 {`",
    ),
}


@pytest.mark.parametrize("old", DIFFERENT)
def test_each_part_of_a_nest_counts(old: str) -> None:
    untested(ROWS, CODE)
    new, said = DIFFERENT[old]
    assert old in KERNEL
    with pytest.raises(cvm.VerifyError, match=said):
        cvm.schedule(KERNEL.replace(old, new)).replace("i", "rows2")
    marked = KERNEL.replace(old, new).replace("0..2 {", "0..2 intrinsic rows2 {")
    with pytest.raises(cvm.VerifyError, match=said):
        cvm.compile(marked)


def test_an_array_that_is_two_parameters_is_refused() -> None:
    untested(ROWS, CODE)
    text = """kernel @k(%x: tensor<4x4xi32>) -> (%y: tensor<4x4xi32>) {
      for %i in 0..4 { for %j in 0..4 { %y[%i, %j] = %x[%i, %j] } }
      for %i in 0..2 { for %j in 0..4 { %y[%i, %j] = %y[%i + 2, %j] + 1 } } }"""
    with pytest.raises(cvm.VerifyError, match=r"writes %y, which is both %. and %."):
        cvm.schedule(text).replace("i#1", "rows2")


def test_elements_that_lie_apart_are_refused() -> None:
    untested(ROWS, CODE)
    apart = ROWS.replace("rows2", "k").replace("%x: tensor<2x4", "%x: tensor<4x2")
    apart = apart.replace("%x[%i, %j]", "%x[%j, %i]")
    with pytest.raises(cvm.VerifyError, match="the last axis of %x side by side in memory"):
        cvm.schedule(apart).replace("i", "rows2")


def test_code_runs_where_the_processor_has_its_features() -> None:
    declare(ROWS, CODE, None, ("avx512f",), tested=False)
    text = cvm.schedule(KERNEL).replace("i", "rows2").lower()
    calls = [
        "call void @intrinsic" in cvm.compile(text, cpu=cpu).lower("llvm")
        for cpu in ("x86-64-v2", "x86-64-v4")
    ]
    assert calls == [False, True] and "x86-64-v4" in NAMED


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "not IR": ({"llvm": "hello"}, "its LLVM IR is not valid: .*expected top-level entity"),
    "types": ({"llvm": ADD}, r"expected a function of type void \(ptr, ptr, i64, i64\)"),
    "calls": (
        {"llvm": "declare void @g()\n" + CODE.replace("ret", "call void @g()\n  ret")},
        "expected a function that calls LLVM's intrinsics alone",
    ),
    "no code": ({}, "expected its code, as llvm= or as library="),
    "both": ({"llvm": CODE, "library": "m"}, "expected its code, as llvm= or as library="),
    "library": ({"library": "/none.so"}, "/none.so"),
    "feature": ({"llvm": CODE, "requires": ["AVX 2"]}, "expected LLVM's name of a feature"),
    "jump": ({"meaning": NEST.replace("+ 1", "+ 1 continue")}, "one nest of serial loops"),
    "bounds": ({"meaning": ROWS.replace("0..4", "0..5")}, "an index of %x may be beyond 4"),
    "kernels": ({"meaning": ROWS + "\n" + ROWS.replace("rows2", "b")}, "one kernel without views"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_declaration_that_makes_no_sense_is_refused(name: str) -> None:
    options, said = MISTAKES[name]
    with pytest.raises(cvm.Error, match=said):
        intrinsic(**{"meaning": ROWS, **options})
    assert not INTRINSICS


def test_code_that_differs_from_its_nest_is_refused() -> None:
    intrinsic(ROWS, llvm=CODE.replace("i32 1>\n  %q", "i32 2>\n  %q"))
    with pytest.raises(cvm.VerifyError, match=r"its code gives -?\d+ for %y\[1, 3\], and its nest"):
        cvm.schedule(KERNEL).replace("i", "rows2")


@pytest.mark.slow
def test_code_that_crashes_is_refused() -> None:
    intrinsic(ROWS, llvm=CODE.replace("ret void", "call void @llvm.trap()\n  unreachable")
              + "declare void @llvm.trap()\n")  # fmt: skip
    with pytest.raises(cvm.VerifyError, match="its code ends the process by signal"):
        cvm.schedule(KERNEL).replace("i", "rows2")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the C library goes by this name on Linux")
def test_a_function_of_a_library() -> None:
    intrinsic(
        "kernel @bcopy(%x: tensor<?N x i8>) -> (%y: tensor<?N x i8>) {"
        " for %i in 0..?N { %y[%i] = %x[%i] } }",
        library="libc.so.6",
    )
    schedule = cvm.schedule(
        "kernel @k(%x: tensor<?M x ?N x i8>) -> (%y: tensor<?M x ?N x i8>) {"
        " for %i in 0..?M { for %j in 0..?N { %y[%i, %j] = %x[%i, %j] } } }"
    ).replace("j", "bcopy")
    x = np.arange(12, dtype=np.int8).reshape(3, 4)
    np.testing.assert_array_equal(schedule.compile()(x), x)


def test_build_refuses_functions_of_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    untested(ROWS, CODE)
    f = cvm.schedule(KERNEL).replace("i", "rows2").compile()
    assert isinstance(f, KernelFunction)
    program = "func @main(%x: tensor<2xi32>) { %y = cvm.relu %x return %y }"
    monkeypatch.setattr(aot, "lower", lambda *_, **__: f.plan)
    known = INTRINSICS["rows2"]
    INTRINSICS["rows2"] = type(known)(**{**vars(known), "portable": False})
    module = cvm.parse(program)
    with pytest.raises(cvm.TargetError, match="rows2 is of a library of C"):
        aot.build(module, ["main"], "p")
