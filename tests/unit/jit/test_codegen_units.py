"""Programs compiled part by part, by a second thread while the first one goes on lowering."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cvm.dialect.support.process_setting import ScopedSetting
from cvm.jit.functions import codegen_units
from cvm.jit.functions.native_function import NativeFunction
from cvm.lowering import pipeline

import cvm

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.cvm"
SMALL = "func @main(%x: tensor<5xi32>) {\n  %y = cvm.abs %x\n  return %y\n}\n"
CHECKED = """
func @main(%a: tensor<?Nx3xi32> {range = [0, 9]}, %b: tensor<?Nx3xi32>) {
  %d = dali.floordiv %a, %b
  %s = cvm.sum %d {axes = [0], keepdims = true}
  %t = cvm.transpose %d {axes = [1, 0]}
  return %s, %t
}
"""


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = cvm.get_num_threads()
    cvm.set_num_threads(count)
    try:
        yield
    finally:
        cvm.set_num_threads(before)


@pytest.fixture(autouse=True)
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two threads, which leave the process as it was."""
    monkeypatch.setenv("CVM_CACHE_DIR", "")
    turn = sys.getswitchinterval()
    with threads(2):
        yield
    assert not any(t.name.startswith(codegen_units.NAME) for t in threading.enumerate())
    assert sys.getswitchinterval() == turn


def compiled(program: str | Path = DIGITS) -> NativeFunction:
    made = cvm.compile(program)
    assert isinstance(made, NativeFunction)
    return made


def alone(program: str | Path = DIGITS) -> NativeFunction:
    with threads(1):
        return compiled(program)


def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 17, (3, 1, 8, 8)).astype(np.int32)


def count(f: NativeFunction) -> int:
    return len(f._made.images)


def test_parts_give_what_the_whole_gives() -> None:
    whole, made = alone(), compiled()
    assert count(whole) == 1 and count(made) > 2
    wanted = cvm.compile(DIGITS, target="reference")(images())
    np.testing.assert_array_equal(made(images()), wanted)
    np.testing.assert_array_equal(whole(images()), wanted)
    assert made.lower("llvm") == whole.lower("llvm")


def test_parts_are_the_same_each_time() -> None:
    assert compiled()._made.images == compiled()._made.images


@pytest.mark.parametrize("lines", [1, 60])
def test_parts_of_any_size(tune: Callable[..., None], lines: int) -> None:
    tune(unit_lines=lines, unit_growth=1)
    made = compiled()
    assert count(made) > 6
    np.testing.assert_array_equal(made(images()), alone()(images()))


def test_requirements_and_ranges_stand_in_other_parts(tune: Callable[..., None]) -> None:
    tune(unit_lines=1)
    made = compiled(CHECKED)
    assert count(made) > 2
    a, b = np.array([[1, 7, 9], [4, 5, 6]], np.int32), np.array([[1, 2, 2], [3, 4, 5]], np.int32)
    for _ in range(2):  # the second call is direct
        s, t = made(a, b)
        np.testing.assert_array_equal(s, (a // b).sum(0, keepdims=True))
        np.testing.assert_array_equal(t, (a // b).T)
        with pytest.raises(cvm.CallError, match="<text>:3"):
            made(a, b * 0)
        with pytest.raises(cvm.CallError, match="from 0 to 9"):
            made(a - 5, b)


def test_large_arguments_are_looked_at_by_all_threads() -> None:
    made = compiled(
        "func @main(%x: tensor<200000xi32> {range = [0, 9]}) {\n  %y = cvm.negative %x\n"
        "  return %y\n}\n"
    )
    x = np.full(200000, 7, np.int32)
    assert (made(x) == -7).all() and (made(x) == -7).all()
    x[123456] = 10
    with pytest.raises(cvm.CallError, match="from 0 to 9"):
        made(x)


def test_small_programs_are_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a thread for so little")

    monkeypatch.setattr(codegen_units, "ThreadPoolExecutor", refuse)
    assert compiled(SMALL)(np.array([-1, 2, -3, 4, -5], np.int32)).tolist() == [1, 2, 3, 4, 5]


def test_one_thread_where_no_other_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def ending(thread: threading.Thread) -> None:
        if thread.name.startswith(codegen_units.NAME):
            raise RuntimeError("can't create new thread at interpreter shutdown")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", ending)
        made = compiled()
    assert made._made.images == compiled()._made.images
    np.testing.assert_array_equal(made(images()), alone()(images()))


def test_parts_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CVM_CACHE_DIR", str(tmp_path / "cache"))
    first = compiled()
    monkeypatch.setattr(NativeFunction, "_compile", lambda self: pytest.fail("it is kept"))
    again = compiled()
    assert again._made.images == first._made.images and count(again) > 2
    np.testing.assert_array_equal(again(images()), first(images()))


def failing(after: int, what: BaseException) -> Callable[..., bytes]:
    """A compiler that fails after some modules."""
    real, left = codegen_units.fresh_object_code, iter(range(after))

    def made(text: str) -> bytes:
        if next(left, None) is None:
            raise what
        return real(text)

    return made


@pytest.mark.parametrize("after", [0, 2])
def test_what_the_other_thread_raises_is_raised(
    monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(
        codegen_units, "fresh_object_code", failing(after, RuntimeError("LLVM IR parsing error"))
    )
    with pytest.raises(RuntimeError, match="LLVM IR parsing error"):
        compiled()


def test_memory_that_does_not_suffice_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codegen_units, "fresh_object_code", failing(1, MemoryError()))
    with pytest.raises(cvm.TargetError, match="memory does not suffice to compile @main"):
        compiled()


@pytest.mark.parametrize("what", [ValueError("a pass failed"), KeyboardInterrupt()], ids=repr)
def test_a_pass_that_fails_ends_the_other_thread(
    monkeypatch: pytest.MonkeyPatch, what: BaseException
) -> None:
    passes, seen = pipeline.CPU_SCHEDULE, []

    def fail(kernel: object, _: object) -> object:
        seen.append(kernel)
        if len(seen) > 4:
            raise what
        return kernel

    failing = replace(pipeline.PASSES["unroll"], run=fail)
    monkeypatch.setattr(pipeline, "CPU_SCHEDULE", (*passes[:-2], failing, *passes[-2:]))
    with pytest.raises(type(what)):
        compiled()


def test_several_threads_compile_at_once() -> None:
    made: list[NativeFunction] = []
    threads = [threading.Thread(target=lambda: made.append(compiled())) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(made) == 4
    for f in made:
        np.testing.assert_array_equal(f(images()), compiled()(images()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_process_compiles_by_parts() -> None:
    wanted = compiled()(images())
    child = os.fork()
    if not child:
        status = 1
        try:
            status = int(not np.array_equal(compiled()(images()), wanted))
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# settings of the process


def switch() -> tuple[ScopedSetting, list[str]]:
    said: list[str] = []

    return ScopedSetting(lambda: said.append("on"), lambda: lambda: said.append("off")), said


def test_a_setting_lasts_until_the_last_thread_has_left() -> None:
    meanwhile, said = switch()
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with meanwhile():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with meanwhile(), meanwhile():
        thread.start()
        inside.wait()
    assert said == ["on"]
    leave.set()
    thread.join()
    assert said == ["on", "off"]
    with pytest.raises(ValueError, match="inside"), meanwhile():
        raise ValueError("inside")
    assert said == ["on", "off"] * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_process_is_not_inside() -> None:
    meanwhile, said = switch()
    with meanwhile():
        child = os.fork()
        if not child:
            good = said == ["on", "off"]
            with meanwhile():
                good = good and said[2:] == ["on"]
            os._exit(int(not (good and said[2:] == ["on", "off"])))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert said == ["on"]
    assert said == ["on", "off"]
