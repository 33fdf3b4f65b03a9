"""Runs target cuda, PyCUDA and all, over the stand-in driver. A program of its own, since the driver stays loaded."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
os.environ["CVM_CUDA_CODE"] = "ptx"

import fake_cuda_driver as stand_in  # noqa: E402
import numpy as np  # noqa: E402
from conformance_cases import cases, failures  # noqa: E402
import cvm  # noqa: E402

PROGRAM = """
func @main(%x: tensor<?N x 3 x f32>, %w: tensor<3xf32>) -> (tensor<?N x 3 x f32>, tensor<3xf32>) {
  %k = const dense<[1.5, -2.0, 0.25]> : tensor<3xf32>
  %y = dali.mul %x, %w
  %z = dali.add %y, %k
  %s = theano.sum %z {axis = [0]}
  return %z, %s
}
"""
LOOKUP = """
func @main(%x: tensor<3xi32>) -> tensor<3xi32> {
  %y = cvm.cvm_lut %x, %x
  return %y
}
"""
GRAPH = """
graph @main {
  %a = cog.field "a" init dense<[1.0, 2.0, 4.0, 8.0]> : !cog.field<[4], f32>
  %b = cog.field "b" : !cog.field<[4], f32>
  %n = cog.shift_cyclic %a {amount = [1]}
  %c = cog.add %a, %n
  %d = cog.add %b, %a
  cog.feedback %a, %c
  cog.feedback %b, %d
}
"""
WEIGHTS = np.random.default_rng(3).integers(-128, 128, (40, 48))
WORDS = f"""
func @main(%x: tensor<30x48xi32> {{range = [-128, 127]}}) -> tensor<30x40xi32> {{
  %w = const dense<{WEIGHTS.tolist()}> : tensor<40x48xi32>
  %y = cvm.dense %x, %w
  return %y
}}
"""
TOO_NEW = """
func @main(%x: tensor<7xi32>) -> tensor<7xi32> {
  %y = dali.add %x, 7
  return %y
}
"""
INPLACE = """
func @main(%x: tensor<5xf64> {inplace}) -> tensor<5xf64> {
  %y = theano.elemwise %x {scalar_op = "sqr", inplace_pattern = {0 = 0}}
  return %y
}
"""
PAIR = """
func @main(%x: tensor<?N x f32>, %y: tensor<?N x f32>) -> tensor<?N x f32> {
  %z = dali.add %x, %y
  return %z
}
"""
RANGED = """
func @main(%x: tensor<4xi32> {range = [1, 9]}) -> tensor<4xi32> {
  %y = dali.add %x, 1
  return %y
}
"""

WHILE = """
func @double(%x: tensor<3xf32>, %limit: tensor<f32>) -> (tensor<i1>, tensor<3xf32>) {
  %y = theano.elemwise %x, %x {scalar_op = "add"}
  %sum = theano.sum %y {axis = [0]}
  %go = theano.elemwise %sum, %limit {scalar_op = "lt"}
  return %go, %y
}

func @main(%x: tensor<3xf32>, %limit: tensor<f32>) -> tensor<3xf32> {
  %sum = theano.sum %x {axis = [0]}
  %go = theano.elemwise %sum, %limit {scalar_op = "lt"}
  %y = builtin.while @double(%go, %x, %limit) {carry = 1}
  %z = theano.elemwise %y, 1 {scalar_op = "add"}
  return %z
}
"""


SORTS = """
func @main(%x: tensor<4xi32>) -> tensor<4xi64> {
  %y = builtin.argsort %x {axis = 0}
  %z = builtin.argsort %y {axis = 0}
  return %z
}
"""


def arrays_of_the_host() -> None:
    f, g = (cvm.compile(PROGRAM, target=t) for t in ("cuda", "cpu"))
    for n in (0, 1, 700):
        x, w = np.random.default_rng(n).normal(size=(n, 3)).astype("f4"), np.array([1, 2, 3], "f4")
        for got, wanted in zip(f(x, w), g(x, w), strict=True):
            np.testing.assert_array_equal(got, wanted, strict=True)


def arrays_of_the_device() -> None:
    from pycuda.gpuarray import GPUArray, to_gpu

    f, g = (cvm.compile(PROGRAM, target=t) for t in ("cuda", "cpu"))
    with f.device.active():
        x, w = np.random.default_rng(1).normal(size=(70, 3)).astype("f4"), np.array([1, 2, 3], "f4")
        on_device = to_gpu(x)
        results = f(on_device, w)
        assert all(isinstance(r, GPUArray) for r in results)
        for got, wanted in zip(results, g(x, w), strict=True):
            np.testing.assert_array_equal(got.get(), wanted, strict=True)
        out = (to_gpu(np.zeros_like(x)), to_gpu(np.zeros(3, "f4")))
        assert f(on_device, w, out=out) is out
        np.testing.assert_array_equal(out[1].get(), g(x, w)[1])
        third = out[0][1:]  # begins at a multiple of 4 bytes only
        assert f(on_device[1:], w, out=(third, out[1])) == (third, out[1])
        np.testing.assert_array_equal(third.get(), g(x[1:], w)[0])
        fails("argument %x: expected tensor<?N x 3 x f32>, got tensor<70x3xf64>", f, to_gpu(x.astype("f8")), w)
        fails("argument %x: expected", f, to_gpu(x[:, :2].copy()), w)
        h = cvm.compile(PAIR, target="cuda")
        fails("with ?N = 70, as in %x, got tensor<4xf32>", h, to_gpu(x[:, 0].copy()), w.repeat(2)[:4])
        fails("@main takes 2 arguments", f, on_device)
        fails("out: ", f, on_device, w, out=(out[1], out[0]))
        fails("has 2 results", f, on_device, w, out=out[0])


def streams() -> None:
    """The work of an array's stream is waited for; that of the default ones comes first anyway."""
    from pycuda.gpuarray import to_gpu

    f, g = (cvm.compile(PROGRAM, target=t) for t in ("cuda", "cpu"))
    x, w = np.ones((70, 3), "f4"), np.array([1, 2, 3], "f4")
    with f.device.active():
        for stream, waited in ((None, []), (1, []), (2, []), (0xBEEF0, [0xBEEF0])):
            array = to_gpu(x)
            interface = {**array.__cuda_array_interface__, "stream": stream, "version": 3}
            driver.waited.clear()
            results = f(SimpleNamespace(__cuda_array_interface__=interface), w)
            assert driver.waited == waited, driver.waited
            np.testing.assert_array_equal(results[0].get(), g(x, w)[0], strict=True)


def in_place() -> None:
    from pycuda.gpuarray import to_gpu

    f = cvm.compile(INPLACE, target="cuda")
    x = np.arange(5.0)
    f(x)
    np.testing.assert_array_equal(x, np.arange(5.0) ** 2)
    with f.device.active():
        y = to_gpu(np.arange(5.0))
        assert f(y) is y
        np.testing.assert_array_equal(y.get(), np.arange(5.0) ** 2)


def declared_ranges() -> None:
    from pycuda.gpuarray import to_gpu

    f = cvm.compile(RANGED, target="cuda")
    x = np.array([1, 9, 5, 2], "i4")
    with f.device.active():
        np.testing.assert_array_equal(f(to_gpu(x)).get(), x + 1)
        x[2] = 10
        fails("argument %x: expected values from 1 to 9, got 10 at [2]", f, to_gpu(x))
        fails("argument %x: expected values from 1 to 9, got 10 at [2]", f, x, out=to_gpu(x))


def graphs() -> None:
    """The state of 3 + 100 ticks stays on the device, and comes back by name."""
    states = []
    for target in ("cuda", "cpu"):
        g = cvm.compile(GRAPH, target=target)
        g.reset()
        g.step(3)
        before, replayed = driver.copied, driver.replayed
        g.step(100)
        if target == "cuda":
            assert (driver.copied, driver.replayed) == (before, replayed + 3), "3 times 32 ticks at once"
        seen = [g.read("a")]
        if target == "cuda":
            assert driver.copied == before + 16, "one field was asked for"
        g.write("b", np.arange(4, dtype="f4"))
        g.step(2)
        states.append([*seen, *(g.read(name) for name in ("a", "b"))])
    for got, wanted in zip(*states, strict=True):
        np.testing.assert_array_equal(got, wanted, strict=True)


def recorded_launches() -> None:
    """The third call over the same arrays is a replay; what another call leaves does not matter."""
    from pycuda.gpuarray import to_gpu

    f, g = (cvm.compile(PROGRAM, target=t) for t in ("cuda", "cpu"))
    w = np.array([1, 2, 3], "f4")
    with f.device.active():
        xs = [np.random.default_rng(n).normal(size=(70, 3)).astype("f4") for n in range(4)]
        x, on_w, out = to_gpu(xs[0]), to_gpu(w), (to_gpu(np.zeros((70, 3), "f4")), to_gpu(np.zeros(3, "f4")))
        counts = []
        for host in xs:
            x.set(host)
            before = driver.replayed
            f(x, on_w, out=out)
            counts.append(driver.replayed - before)
            for got, wanted in zip(out, g(host, w), strict=True):
                np.testing.assert_array_equal(got.get(), wanted, strict=True)
        assert counts == [0, 1, 1, 1], counts


def tested_conditions() -> None:
    """A loop reads its condition back after every step; it is never recorded."""
    f = cvm.compile(WHILE, target="cuda")
    for limit, wanted in ((0, 2), (100, 65), (5, 3), (100, 65), (100, 65)):
        np.testing.assert_array_equal(f(np.ones(3, "f4"), np.float32(limit)), np.full(3, wanted, "f4"), strict=True)


def lookups() -> None:
    f = cvm.compile(LOOKUP, target="cuda")
    np.testing.assert_array_equal(f(np.array([2, 1, 0], "i4")), [0, 1, 2])


def words() -> None:
    x = np.random.default_rng(1).integers(-128, 128, (30, 48), np.int32)
    np.testing.assert_array_equal(cvm.compile(WORDS, target="cuda")(x), x @ WEIGHTS.T)


def arrays_of_others() -> None:
    """Memory that was freed, that lies on another device, or that nobody has."""
    from pycuda.gpuarray import to_gpu

    f = cvm.compile(INPLACE, target="cuda")
    with f.device.active():
        for place in ("argument %x", "out"):
            x, y = to_gpu(np.arange(5.0)), to_gpu(np.arange(5.0))
            bad = y if place == "out" else x
            given = {"out": y} if place == "out" else {}
            driver.elsewhere.add(int(bad.gpudata) >> 40)
            fails(f"{place}: expected an array on device 0, got one on device 1: copy it there", f, x, **given)
            driver.elsewhere.clear()
            interface = {**bad.__cuda_array_interface__, "data": (0xDEAD << 40, False)}
            lost = SimpleNamespace(__cuda_array_interface__=interface)
            given = {"out": lost} if given else {}
            text = f"{place}: expected memory of device 0, got the address 0xdead0000000000, which is of none"
            fails(text, f, x if given else lost, **given)
        x = to_gpu(np.arange(5.0))
        interface = x.__cuda_array_interface__
        x.gpudata.free()
        fails("was it freed?", f, SimpleNamespace(__cuda_array_interface__=interface))


def failures_of_the_driver() -> None:
    """Each says what failed and what to do, and leaves nothing behind: the next call works."""
    from cvm.jit.cuda.device import missing
    from pycuda.gpuarray import to_gpu

    x = np.arange(5.0)

    def works() -> None:
        np.testing.assert_array_equal(cvm.compile(INPLACE, target="cuda")(x.copy()), x**2)

    f = cvm.compile(INPLACE, target="cuda")
    large = np.ones((200_000, 3), "f4"), np.ones(3, "f4")  # of more bytes than the pool holds
    g = cvm.compile(PROGRAM, target="cuda")
    driver.largest = 1 << 20
    for _ in range(2):
        fails("the device's memory does not suffice, of 4294967296 bytes 4294967296 are free", g, *large)
    driver.largest = 1 << 32
    works()
    for status, text in ((701, "too many resources requested"), (700, "an illegal memory access")):
        for name in ("cuLaunchKernel", "cuMemcpyDtoH"):
            driver.failing[name] = status
            fails(text, f, x.copy())
            driver.failing.clear()
            works()
    with f.device.active():
        on_device = to_gpu(x)
        driver.failing["cuStreamSynchronize"] = 700
        interface = {**on_device.__cuda_array_interface__, "stream": 0xBEEF0, "version": 3}
        text = "the driver does not wait for the stream 0xbeef0, which an array names: error 700"
        fails(text, f, SimpleNamespace(__cuda_array_interface__=interface))
        driver.failing.clear()
    driver.failing["cuModuleLoadDataEx"] = driver.failing["cuModuleLoadData"] = 222
    fails("the driver, of CUDA 13.0, does not take the code", lambda: cvm.compile(TOO_NEW, target="cuda"))
    fails("pip install 'nvidia-cuda-nvrtc==13.0.*'", lambda: cvm.compile(TOO_NEW, target="cuda"))
    driver.failing.clear()
    driver.failing["cuInit"] = 100
    missing.cache_clear()
    fails("the CUDA driver does not start: cuInit failed: no CUDA-capable", lambda: cvm.compile(INPLACE, target="cuda"))
    driver.failing.clear()
    missing.cache_clear()
    works()


def interrupts() -> None:
    """Ctrl-C stops a call between kernels: those after it are not launched, and the next calls are right."""
    x, w = np.array([3, 1, 2, 0], "i4"), np.array([2, 0, 1, 3], "i4")
    made: list[int] = []

    def launched(calls: list[Any], before: int) -> None:
        def given() -> Iterator[Any]:
            for n, call in enumerate(calls):
                if n == before:
                    os.kill(os.getpid(), signal.SIGINT)
                made.append(n)
                yield call

        launch(given())

    signal.signal(signal.SIGINT, signal.default_int_handler)
    for before in (0, 1):
        made.clear()
        f = cvm.compile(SORTS, target="cuda")  # whose launches are not recorded yet
        launch = f.device.launch
        f.device.launch = partial(launched, before=before)
        count = len(driver.launched)
        try:
            f(x)
        except KeyboardInterrupt:
            assert len(driver.launched) - count == len(made) == before
        else:
            raise AssertionError("the call was not interrupted")
        del f.device.launch
        for given in (x, w):
            np.testing.assert_array_equal(f(given), np.argsort(np.argsort(given)))


RECORDED = ("cvm.dense", "cvm.transpose", "cvm.non_max_suppression", "cvm.concatenate", "dali.mul")


def recorded_cases() -> None:
    for op in RECORDED:
        wrong = list(failures(op, "cuda"))
        assert not wrong, f"{len(wrong)} of {len(cases()[op])} {op}: {wrong[0]}"


def fails(message: str, f: object, *arguments: object, **options: object) -> None:
    try:
        f(*arguments, **options)  # type: ignore[operator]
    except cvm.Error as e:
        assert message in str(e), e
    else:
        raise AssertionError(f"expected: {message}")


def compiled_before() -> None:
    """Everything is compiled once: NVRTC looks for the driver, and does not survive finding this one."""
    recorded = [c["program"] for op in RECORDED for c in cases()[op] if c["valid"]]
    for program in (PROGRAM, INPLACE, PAIR, RANGED, LOOKUP, GRAPH, WHILE, WORDS, TOO_NEW, SORTS, *recorded):
        cvm.compile(program, target="reference").lower("ptx")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CVM_CACHE_DIR"] = folder
        compiled_before()
        driver = stand_in.load()
        for check in (
            arrays_of_the_host,
            arrays_of_the_device,
            streams,
            in_place,
            declared_ranges,
            graphs,
            recorded_launches,
            tested_conditions,
            lookups,
            words,
            arrays_of_others,
            failures_of_the_driver,
            interrupts,
            recorded_cases,
        ):
            check()
            print(f"{check.__name__}: ok", flush=True)
        print(f"{len(driver.launched)} launches", flush=True)
    os._exit(0)  # PyCUDA frees what it holds after Python is gone, when nobody can answer
