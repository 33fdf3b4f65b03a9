"""Parallel loops: the same results from any number of threads, callers that meet, processes that
fork.
"""

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from cvm.dialect.kernel_ir.expressions import Index, Tensor, as_index
from cvm.dialect.kernel_ir.kernel_printer import kernels_text
from cvm.dialect.kernel_ir.loops import For, Store
from cvm.dialect.types.tensor_types import I64
from cvm.jit.runtime import thread_pool
from cvm.lowering.loops.parallelize import adjoining

import cvm

pytestmark = pytest.mark.skipif(
    thread_pool.FUTEX is None, reason="loops run in parallel on Linux only"
)

PROGRAM = """
func @main(%x: tensor<96x1000xi32>, %w: tensor<80x1000xi32>) -> tensor<96x80xi32> {
  %h = cvm.dense %x, %w
  %y = cvm.cvm_right_shift %h {precision = 16, shift_bit = 3}
  return %y
}
"""
UNKNOWN = """
func @main(%x: tensor<?N x ?K x i32>) -> (tensor<?N x ?K x i32>, tensor<?xi32>) {
  %y = cvm.cvm_clip %x {precision = 8}
  %s = cvm.sum %x {axes = [1]}
  return %y, %s
}
"""


@pytest.fixture(autouse=True)
def threads_as_before():
    before = cvm.get_num_threads()
    yield
    cvm.set_num_threads(before)


def arrays(n, k):
    rng = np.random.default_rng(n)
    return rng.integers(-99, 99, (n, k), dtype=np.int32)


def test_large_loops_are_parallel_and_small_ones_are_not():
    assert "parallel {" in kernels_text(cvm.compile(PROGRAM).plan.kernels)
    small = PROGRAM.replace("96", "2").replace("80", "3").replace("1000", "4")
    assert "parallel {" not in kernels_text(cvm.compile(small).plan.kernels)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_results_do_not_depend_on_the_number_of_threads(count):
    x, w = arrays(96, 1000), arrays(80, 1000)
    want = cvm.compile(PROGRAM, target="reference")(x, w)
    cvm.set_num_threads(count)
    f = cvm.compile(PROGRAM)
    for _ in range(20):
        assert np.array_equal(f(x, w), want)
    assert cvm.get_num_threads() == count


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize(
    ("size", "large"), [(50_000, 1 << 24), (50_000, 1), (131_072, 1), (100_003, 1)]
)
def test_blocks_that_adjoin_are_one_loop(count, size, large, compile_for):
    """A thread's task is one loop, only whose ends may share cache lines with others."""
    compile_for(l3_bytes=2 * large)
    t = f"tensor<{size}xi32>"
    f = cvm.compile(
        f"func @main(%x: {t}, %y: {t}) -> {t} {{\n%z = cvm.elemwise_add %x, %y\nreturn %z\n}}"
    )
    assert "parallel {" in f.lower("schedule")
    kernel = f.lower("llvm").partition("@kernel_0(")[2].partition("\n}")[0]
    assert (" = phi i64 [ %begin," not in kernel) == (size % 16 == 0)  # no loop over blocks
    cvm.set_num_threads(count)
    x, y = arrays(size, 2).T.copy()
    held = np.zeros(size + 64, np.int32)
    for offset in (0, 1, 4, 13):
        held[:] = 77
        f(x, y, out=held[offset : offset + size])
        np.testing.assert_array_equal(held[offset : offset + size], x + y)
        assert (held[:offset] == 77).all() and (held[offset + size :] == 77).all()


def blocks(start=lambda b: b * 16, length=16, value=lambda b, i: as_index(1), **how):
    b, i, y = Index("b", 4), Index("i", 80), Tensor("y", (80,), I64, "argument")
    inner = For(i, (Store(y, (i,), value(b, i)),), start=start(b), stop=start(b) + length, **how)
    return For(b, (inner,), kind="parallel")


def test_what_adjoins():
    assert adjoining(blocks()) is not None
    assert adjoining(blocks(start=lambda b: b * 16 + 5, kind="vector", width=8)) is not None
    for other in (
        blocks(length=15),
        blocks(length=17),
        blocks(start=lambda b: b * -16 + 60),
        blocks(start=lambda b: b * b * 16),
        blocks(start=lambda b: as_index(0)),
        blocks(value=lambda b, i: b + i),
        blocks(kind="unrolled"),
        blocks(kind="vector", width=8, overlap=16),
    ):
        assert adjoining(other) is None
    two = blocks()
    assert adjoining(For(two.index, two.body * 2, kind="parallel")) is None


def test_sizes_known_when_called():
    f = cvm.compile(UNKNOWN)
    for count in (1, 4):
        cvm.set_num_threads(count)
        for n in (0, 1, 3, 1000):
            x = arrays(n, 37) * 5
            y, s = f(x)
            assert np.array_equal(y, np.clip(x, -127, 127))
            assert np.array_equal(s, x.sum(1, dtype=np.int32))


def test_callers_that_meet():
    cvm.set_num_threads(3)
    f = cvm.compile(PROGRAM)
    w = arrays(80, 1000)
    samples = [arrays(96, 1000) + n for n in range(4)]
    wants = [f(x, w) for x in samples]
    wrong = []

    def work(n):
        for _ in range(50):
            if not np.array_equal(f(samples[n], w), wants[n]):
                wrong.append(n)

    callers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for c in callers:
        c.start()
    for c in callers:
        c.join()
    assert not wrong


def test_the_number_may_change_between_calls():
    f = cvm.compile(PROGRAM)
    x, w = arrays(96, 1000), arrays(80, 1000)
    want = f(x, w)
    for count in (2, 1, 5, 2, 1, 3) * 5:
        cvm.set_num_threads(count)
        assert np.array_equal(f(x, w), want)


@pytest.mark.parametrize("count", [0, -1, 257, 1.5, True, "2"])
def test_a_number_of_threads_is_checked(count):
    with pytest.raises(cvm.Error, match="from 1 to 256"):
        cvm.set_num_threads(count)


def child(want, x, w, answers):
    f = cvm.compile(PROGRAM)
    answers.put((bool(np.array_equal(f(x, w), want)), cvm.get_num_threads()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes(method):
    x, w = arrays(96, 1000), arrays(80, 1000)
    cvm.set_num_threads(2)
    want = cvm.compile(PROGRAM)(x, w)
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    process = context.Process(target=child, args=(want, x, w, answers))
    process.start()
    good, count = answers.get(timeout=300)
    process.join(300)
    assert good
    assert process.exitcode == 0
    assert method == "fork" or count == 1


@pytest.mark.parametrize(("value", "shown"), [("3", "3"), ("0", "from 1 to 256")])
def test_the_environment_says_how_many(value, shown):
    code = "import cvm\ntry: print(cvm.get_num_threads())\nexcept cvm.Error as e: print(e)"
    folder = str(Path(__file__).parents[3])
    environment = {**os.environ, "CVM_NUM_THREADS": value, "PYTHONPATH": folder}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300
    )
    assert shown in run.stdout, run.stderr


def test_numbers_of_threads_that_the_environment_may_say(monkeypatch):
    for value in ("1", "2", "255", "256"):
        monkeypatch.setenv("CVM_NUM_THREADS", value)
        assert thread_pool._default() == int(value)
    for value in ("0", "257", "1000", "x", "-1", "1.0", " 2", "²"):
        monkeypatch.setenv("CVM_NUM_THREADS", value)
        with pytest.raises(
            cvm.Error, match=f"CVM_NUM_THREADS is a number from 1 to 256, got {value!r}"
        ):
            thread_pool._default()


def test_a_worker_begins_on_another_processor(monkeypatch):
    """It could not leave its caller's before its first turn there, when a short call is over."""
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("there is one processor")
    cvm.set_num_threads(1)
    cvm.compile(PROGRAM)(arrays(96, 1000), arrays(80, 1000))
    home, affinity = min(allowed), os.sched_getaffinity
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: allowed)
    try:
        os.sched_setaffinity(0, {home})
        cvm.set_num_threads(2)
    finally:
        os.sched_setaffinity(0, allowed)
    worker, end = thread_pool._pool.threads[-1].native_id, time.monotonic() + 20
    while home in affinity(worker) and time.monotonic() < end:
        time.sleep(0.01)
    assert affinity(worker) == allowed - {home}


def test_a_worker_leaves_its_caller_s_processor():
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("there is one processor")
    cvm.set_num_threads(2)
    function, x, w = cvm.compile(PROGRAM), arrays(96, 1000), arrays(80, 1000)
    function(x, w)
    worker, home = thread_pool._pool.threads[-1].native_id, min(allowed)
    try:
        for thread in (0, worker):
            os.sched_setaffinity(thread, {home})
        end = time.monotonic() + 200
        while home in os.sched_getaffinity(worker) and time.monotonic() < end:
            function(x, w)
        assert os.sched_getaffinity(worker) == allowed - {home}
    finally:
        os.sched_setaffinity(0, allowed)
