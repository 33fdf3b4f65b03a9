"""Ctrl-C stops a call soon, wherever it is, and the functions and threads work on as before."""

import gc
import os
import signal
import threading
import time

import numpy as np
import pytest
from available_targets import HERE

import cvm

# seconds of processor time, of all threads: other processes may hold the processors meanwhile
SOON = 0.1
CALLS = {
    "parallel": (
        'func @main(%x: tensor<?xf64>) { %y = theano.elemwise %x {scalar_op = "gammaln"} '
        '%z = theano.elemwise %y {scalar_op = "gammaln"} return %z }',
        lambda: (np.random.default_rng(0).random(24_000_000),),
    ),
    "serial": (
        "func @main(%x: tensor<40x500000xf64>) { %y = builtin.argsort %x {axis = 1} return %y }",
        lambda: (np.random.default_rng(0).random((40, 500_000)),),
    ),
    "rows": (
        lambda x: np.arctan2(x[:, ::-1], x) ** 1.5 + np.arctan2(x, x[:, ::-1]) ** 2.5,
        lambda: (np.random.default_rng(0).random((2, 14_000_000)),),
    ),
    "steps": (
        """func @double(%x: tensor<f32>, %limit: tensor<f32>) -> (tensor<i1>, tensor<f32>) {
          %y = theano.elemwise %x, %x {scalar_op = "add"}
          %go = theano.elemwise %y, %limit {scalar_op = "le"}
          return %go, %y
        }
        func @main(%x: tensor<f32>, %limit: tensor<f32>) -> tensor<f32> {
          %go = theano.elemwise %x, %limit {scalar_op = "le"}
          %y = builtin.while @double(%go, %x, %limit) {carry = 1}
          return %y
        }""",
        lambda: (np.float32(1), np.float32(np.inf)),
    ),
}


@pytest.fixture(autouse=True)
def handled():
    """Ctrl-C raises KeyboardInterrupt, also where a shell that runs the tests in the background has
    it ignored.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(params=[1, 3])
def threads(request):
    before = cvm.get_num_threads()
    cvm.set_num_threads(request.param)
    yield request.param
    cvm.set_num_threads(before)


@pytest.fixture(autouse=True)
def uncollected():
    """No garbage collection: Python drops an exception that is raised within a callback of it, as
    hypothesis has one.
    """
    gc.disable()
    yield
    gc.enable()


def interrupted(f, arguments, after=0.05, **named):
    """The seconds of processor time between a Ctrl-C and the end of a call; where calls end before,
    it is sent earlier.
    """
    while after > 1e-4:
        sent, ended = [], False

        def send(sent=sent):
            sent.append(time.process_time())
            os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Timer(after, send)
        try:
            timer.start()
            f(*arguments, **named)
            ended = True
            timer.join()
        except KeyboardInterrupt:
            if not ended:
                return time.process_time() - sent[0]
        after /= 2
    raise AssertionError("the call ended before it could be interrupted")


@pytest.mark.sample(5)
@pytest.mark.parametrize("way", ["direct", "out"])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_stops_soon(name, way, threads):
    text, made = CALLS[name]
    f = cvm.compile(text)
    arguments = made()
    if name == "rows":
        f.trace(*arguments)
        f.lower()  # compiles it
    out = {"out": np.empty_like(arguments[0])} if way == "out" and name == "parallel" else {}
    assert min(interrupted(f, arguments, **out) for _ in range(2)) < SOON


def test_calls_are_right_afterwards(threads):
    text, made = CALLS["parallel"]
    f, (x,) = cvm.compile(text), made()
    expected = f(x[:200_000])
    for n in range(5):
        interrupted(f, (x,), after=0.05 + 0.03 * n)
        assert (f(x[:200_000]) == expected).all()


def test_nothing_leaks():
    """Calls end without waiting for the garbage collector."""
    text, made = CALLS["parallel"]
    f, (x,) = cvm.compile(text), made()

    def reserved():  # whatever calls have written of their arrays when they end
        return int(open("/proc/self/statm").read().split()[0]) * 4096

    interrupted(f, (x,))
    before = reserved()
    for _ in range(5):
        interrupted(f, (x,))
    assert reserved() - before < 2.5 * x.nbytes


def test_handlers_that_do_not_raise_run_meanwhile(threads):
    """And the call goes on; handlers may call the same function."""
    text, made = CALLS["parallel"]
    f, (x,) = cvm.compile(text), made()
    expected, seen = f(x), []

    def handler(number, frame):
        seen.append((time.monotonic(), f(x[:1000])))

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        y = f(x)
        ended = time.monotonic()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert (y == expected).all()
    assert sum(at < ended for at, _ in seen) > 1 and all(
        (z == expected[:1000]).all() for _, z in seen
    )


def test_other_threads_are_not_interrupted():
    text, made = CALLS["parallel"]
    f, (x,) = cvm.compile(text), made()
    x = x[:8_000_000]
    expected, found = f(x), []
    thread = threading.Thread(target=lambda: found.append(f(x)))
    thread.start()
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
    except KeyboardInterrupt:
        pass
    thread.join()
    assert (found[0] == expected).all()


@pytest.mark.parametrize("size", [64, 1500])
def test_clocked_programs_stop_soon(size, threads):
    text = f"""graph @main {{
      %n = cog.field "n" : !cog.field<[{size}, {size}], f32>
      %next = cog.add %n, 1
      cog.feedback %n, %next
    }}"""
    g = cvm.compile(text)
    assert min(interrupted(lambda: g.step(1 << 40), ()) for _ in range(3)) < SOON
    g.reset()
    assert g.step(3) == 3 and (g.read("n") == 3).all()


@pytest.mark.parametrize(
    ("target", "size", "count"), [("reference", 200_000, 60), ("cuda-sim", 16, 20)]
)
def test_other_targets_stop_between_operations(target, size, count):
    """The operations after the one that runs are not begun, and the next call is right."""
    if target not in HERE:
        pytest.skip("the target cannot run here")
    sorts = [f"  %{n + 1} = builtin.argsort %{n} {{axis = 0}}" for n in range(count)]
    text = "\n".join(["func @main(%0: tensor<?xi64>) {", *sorts, f"  return %{count}", "}"])
    f, x = cvm.compile(text, target=target), np.random.default_rng(0).permutation(size)
    expected = f(x[:5])
    took = []
    for after in (0.05, 0.15):
        took.append(interrupted(f, (x,), after=after))
        np.testing.assert_array_equal(f(x[:5]), expected)
    assert min(took) < SOON
    wanted = x[:5]
    for _ in range(count):
        wanted = np.argsort(wanted, kind="stable")
    np.testing.assert_array_equal(expected, wanted)
