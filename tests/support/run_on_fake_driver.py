"""Runs target cuda, PyCUDA and all, over the stand-in driver. A program of its own, since the
driver stays loaded.
"""

from __future__ import annotations

import ctypes
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
INPLACE_PAIR = """
func @main(%x: tensor<5xf64> {inplace}, %y: tensor<5xf64>) -> tensor<5xf64> {
  %z = theano.elemwise %x, %y {scalar_op = "add", inplace_pattern = {0 = 0}}
  return %z
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


ATTENTION = """
func @main(%q: tensor<33x128x64xf32>, %k: tensor<33x128x64xf32>, %v: tensor<33x128x64xf32>) {
  %kt = cvm.transpose %k {axes = [0, 2, 1]}
  %q4 = theano.dimshuffle %q {new_order = [0, 1, 2, "x"]}
  %k4 = theano.dimshuffle %kt {new_order = [0, "x", 1, 2]}
  %a = theano.elemwise %q4, %k4 {scalar_op = "mul"}
  %s = theano.sum %a {axis = [2], dtype = f32, acc_dtype = f32}
  %t = dali.mul %s, 0.125
  %m = theano.max %t {axis = [2]}
  %m3 = cvm.expand_dims %m {axis = 2}
  %d = dali.sub %t, %m3
  %e = dali.exp %d
  %n = theano.sum %e {axis = [2]}
  %n3 = cvm.expand_dims %n {axis = 2}
  %w = dali.div %e, %n3
  %w4 = theano.dimshuffle %w {new_order = [0, 1, 2, "x"]}
  %v4 = theano.dimshuffle %v {new_order = [0, "x", 1, 2]}
  %b = theano.elemwise %w4, %v4 {scalar_op = "mul"}
  %y = theano.sum %b {axis = [2], dtype = f32, acc_dtype = f32}
  return %y
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


def blocks_with_much_shared_memory() -> None:
    """A block asks for more than 48 KB, which the driver has to allow first."""
    q, k, v = np.random.default_rng(2).normal(size=(3, 33, 128, 64)).astype("f4")
    f, g = (cvm.compile(ATTENTION, target=t) for t in ("cuda", "cpu"))
    assert [launch.shared > 48 << 10 for launch in f.source.launches] == [True]
    for _ in range(3):  # recorded, too
        np.testing.assert_array_equal(f(q, k, v), g(q, k, v), strict=True)


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
        fails(
            "argument %x: expected tensor<?N x 3 x f32>, got tensor<70x3xf64>",
            f,
            to_gpu(x.astype("f8")),
            w,
        )
        fails("argument %x: expected", f, to_gpu(x[:, :2].copy()), w)
        h = cvm.compile(PAIR, target="cuda")
        fails(
            "with ?N = 70, as in %x, got tensor<4xf32>", h, to_gpu(x[:, 0].copy()), w.repeat(2)[:4]
        )
        fails("@main takes 2 arguments", f, on_device)
        fails("out: ", f, on_device, w, out=(out[1], out[0]))
        fails("has 2 results", f, on_device, w, out=out[0])


def streams() -> None:
    """The launches come after the work of an array's stream, and before what it gets later, without
    the host's waiting; that of the default ones comes first anyway.
    """
    from pycuda.gpuarray import to_gpu

    f, g = (cvm.compile(PROGRAM, target=t) for t in ("cuda", "cpu"))
    x, w = np.ones((70, 3), "f4"), np.array([1, 2, 3], "f4")
    with f.device.active():
        for stream, ordered in (
            (None, []),
            (1, []),
            (2, []),
            (0xBEEF0, [(0xBEEF0, 0), (0, 0xBEEF0)]),
        ):
            array = to_gpu(x)
            interface = {**array.__cuda_array_interface__, "stream": stream, "version": 3}
            driver.ordered.clear()
            results = f(SimpleNamespace(__cuda_array_interface__=interface), w)
            assert driver.ordered == ordered, driver.ordered
            np.testing.assert_array_equal(results[0].get(), g(x, w)[0], strict=True)


def arrays_of_torch_and_dlpack() -> None:
    """torch's interface names no stream: it is asked for its current one. A producer of DLPack is
    told ours, so that it orders the streams; neither is copied.
    """
    from pycuda.gpuarray import to_gpu

    f = cvm.compile(INPLACE, target="cuda")
    asked: list[object] = []

    class Tensor:
        def __init__(self, array: Any) -> None:
            self.device, self.array = "cuda:0", array
            interface = {**array.__cuda_array_interface__, "version": 2}
            self.__cuda_array_interface__ = {k: v for k, v in interface.items() if k != "stream"}

    class Exported:
        def __init__(self, array: Any) -> None:
            self.host, self.array = np.empty(array.shape, array.dtype), array

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        def __dlpack__(self, stream: int | None = None) -> Any:
            asked.append(stream)
            capsule = self.host.__dlpack__()
            pointer = ctypes.pythonapi.PyCapsule_GetPointer
            pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            ctypes.c_void_p.from_address(pointer(capsule, b"dltensor")).value = int(
                self.array.gpudata
            )
            return capsule

    Tensor.__module__ = "torch"

    def current_stream(device: str) -> SimpleNamespace:
        asked.append(device)
        return SimpleNamespace(cuda_stream=0xBEEF0)

    sys.modules["torch"] = SimpleNamespace(cuda=SimpleNamespace(current_stream=current_stream))  # type: ignore[assignment]
    try:
        with f.device.active():
            for kind, ordered, said in (
                (Tensor, [(0xBEEF0, 0), (0, 0xBEEF0)], "cuda:0"),
                (Exported, [], 1),
            ):
                array = to_gpu(np.arange(5.0))
                given = kind(array)
                driver.ordered.clear()
                asked.clear()
                before = driver.copied
                result = f(given)
                assert result is given, (kind, result)
                assert driver.copied == before, (driver.copied, before)
                assert driver.ordered == ordered and set(asked) == {said}, (driver.ordered, asked)
                np.testing.assert_array_equal(array.get(), np.arange(5.0) ** 2)
    finally:
        del sys.modules["torch"]


def graphs_of_calls() -> None:
    """A call as a graph: one start by the driver, over what the arrays hold then, also where checks
    can fail.
    """
    from pycuda.gpuarray import to_gpu

    w = np.array([1, 2, 3], "f4")
    f, g = (cvm.compile(PROGRAM, target=t) for t in ("cuda", "cpu"))
    with f.device.active():
        x, on_w, out = (
            to_gpu(np.ones((70, 3), "f4")),
            to_gpu(w),
            (to_gpu(np.zeros((70, 3), "f4")), to_gpu(np.zeros(3, "f4"))),
        )
        graph = f.cuda_graph(x, on_w, out=out)
        replayed = driver.replayed
        for n in range(4):
            host = np.random.default_rng(n).normal(size=(70, 3)).astype("f4")
            x.set(host)
            copied = driver.copied
            assert graph() is out and driver.replayed == replayed + n, "recorded at the second call"
            assert driver.copied == copied
            for got, wanted in zip(out, g(host, w), strict=True):
                np.testing.assert_array_equal(got.get(), wanted, strict=True)
        made = f.cuda_graph(
            x[1:], w
        )  # which begins at a multiple of 4 bytes only, and one of the host
        for n in range(2):
            x.set(host := np.full((70, 3), n, "f4"))
            np.testing.assert_array_equal(made()[0].get(), g(host[1:], w)[0])
        square = cvm.compile(INPLACE, target="cuda")
        y = to_gpu(np.arange(5.0))
        again = square.cuda_graph(y)
        assert again() is y and again() is y
        np.testing.assert_array_equal(y.get(), np.arange(5.0) ** 4)
        interface = {**y.__cuda_array_interface__, "stream": 0xBEEF0, "version": 3}
        on_stream = square.cuda_graph(SimpleNamespace(__cuda_array_interface__=interface))
        driver.ordered.clear()
        on_stream()
        on_stream()
        assert driver.ordered == 2 * [(0xBEEF0, 0), (0, 0xBEEF0)], driver.ordered
        lookup = cvm.compile(LOOKUP, target="cuda")
        index = to_gpu(np.array([2, 1, 0], "i4"))
        checked = lookup.cuda_graph(index)
        for given in ([2, 1, 0], [0, 1, 2], [1, 1, 1]):
            index.set(np.array(given, "i4"))
            np.testing.assert_array_equal(checked().get(), lookup(np.array(given, "i4")))
        fails("argument %x: expected", f.cuda_graph, x[:, :2], on_w)
        loop = cvm.compile(WHILE, target="cuda")
        limit = to_gpu(np.array([5], "f4"))
        interface = {**limit.__cuda_array_interface__, "shape": (), "strides": None}
        until = loop.cuda_graph(
            to_gpu(np.ones(3, "f4")), SimpleNamespace(__cuda_array_interface__=interface)
        )
        for most, wanted in ((100, 65), (5, 3)):
            limit.set(np.array([most], "f4"))
            np.testing.assert_array_equal(until().get(), np.full(3, wanted, "f4"))


def several_devices() -> None:
    """A function belongs to the device that was current; its primary context, which libraries
    share, is made current.
    """
    from pycuda.gpuarray import to_gpu

    driver.devices, before = 2, driver.contexts

    def current(handle: int) -> None:
        driver.contexts[:] = [handle]  # by another library, of which PyCUDA does not know

    try:
        current(stand_in.CONTEXT + 1)
        f = cvm.compile(INPLACE, target="cuda")
        assert f.device.number == 1 and f.device.context is not None
        x = np.arange(5.0)
        f(x)
        np.testing.assert_array_equal(x, np.arange(5.0) ** 2)
        assert driver.contexts == [stand_in.CONTEXT + 1]
        current(stand_in.CONTEXT)
        first = cvm.compile(INPLACE, target="cuda").device
        assert first.number == 0 and first is not f.device
        f(x)  # on its own device, from whichever
        np.testing.assert_array_equal(x, np.arange(5.0) ** 4)
        with f.device.active():
            fails("expected an array on device 1, got one on device 0: copy it there", f, to_gpu(x))
        with f.device.active():  # a context of the caller's, that PyCUDA knows
            current(stand_in.OTHER + 1)
            own = cvm.compile(INPLACE, target="cuda")
            assert (
                own.device.number == 1 and own.device is not f.device and own.device.context is None
            )
            own(x)
            np.testing.assert_array_equal(x, np.arange(5.0) ** 8)
            current(stand_in.CONTEXT)
            fails("compiled in a context of device 1 that is not current: make it current", own, x)
    finally:
        driver.contexts[:], driver.devices = [], 1
        assert before is driver.contexts


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
        g = cvm.compile(INPLACE_PAIR, target="cuda")
        x = np.arange(5.0)
        assert g(x, y) is x  # one of the host among others of the device
        np.testing.assert_array_equal(x, np.arange(5.0) + np.arange(5.0) ** 2)


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
            assert (driver.copied, driver.replayed) == (before, replayed + 3), (
                "3 times 32 ticks at once"
            )
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
        x, on_w, out = (
            to_gpu(xs[0]),
            to_gpu(w),
            (to_gpu(np.zeros((70, 3), "f4")), to_gpu(np.zeros(3, "f4"))),
        )
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
        np.testing.assert_array_equal(
            f(np.ones(3, "f4"), np.float32(limit)), np.full(3, wanted, "f4"), strict=True
        )


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
            fails(
                f"{place}: expected an array on device 0, got one on device 1: copy it there",
                f,
                x,
                **given,
            )
            driver.elsewhere.clear()
            interface = {**bad.__cuda_array_interface__, "data": (0xDEAD << 40, False)}
            lost = SimpleNamespace(__cuda_array_interface__=interface)
            given = {"out": lost} if given else {}
            text = (
                f"{place}: expected memory of device 0, got the address 0xdead0000000000, "
                "which is of none"
            )
            fails(text, f, x if given else lost, **given)
        x = to_gpu(np.arange(5.0))
        interface = x.__cuda_array_interface__
        x.gpudata.free()
        fails("was it freed?", f, SimpleNamespace(__cuda_array_interface__=interface))


def the_doctor() -> None:
    from cvm.commands.doctor import targets

    *_, compiler, version, device = targets()
    assert (
        compiler.startswith("kernels for GPUs by NVRTC ") and version == "a driver of CUDA 13.0"
    ), (compiler, version)
    assert device == "device 0: emulated, sm_80, 4096 MiB", device


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
        text = (
            "the device's memory does not suffice, of 4294967296 bytes 4294967296 are free: "
            "2400000 bytes were asked for"
        )
        fails(text, g, *large)
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
        driver.failing["cuStreamWaitEvent"] = 700
        interface = {**on_device.__cuda_array_interface__, "stream": 0xBEEF0, "version": 3}
        text = "the driver does not wait for the stream 0xbeef0, which an array names: error 700"
        fails(text, f, SimpleNamespace(__cuda_array_interface__=interface))
        driver.failing.clear()
    driver.failing["cuModuleLoadDataEx"] = driver.failing["cuModuleLoadData"] = 222
    fails(
        "the driver, of CUDA 13.0, does not take the code",
        lambda: cvm.compile(TOO_NEW, target="cuda"),
    )
    fails("pip install 'nvidia-cuda-nvrtc==13.0.*'", lambda: cvm.compile(TOO_NEW, target="cuda"))
    driver.failing.clear()
    driver.failing["cuInit"] = 100
    missing.cache_clear()
    fails(
        "the CUDA driver does not start: cuInit failed: no CUDA-capable",
        lambda: cvm.compile(INPLACE, target="cuda"),
    )
    driver.failing.clear()
    missing.cache_clear()
    works()


def interrupts() -> None:
    """Ctrl-C stops a call between kernels: those after it are not launched, and the next calls are
    right.
    """
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
    """Everything is compiled once: NVRTC looks for the driver, and does not survive finding this
    one.
    """
    recorded = [c["program"] for op in RECORDED for c in cases()[op] if c["valid"]]
    for program in (
        PROGRAM,
        INPLACE,
        PAIR,
        RANGED,
        LOOKUP,
        GRAPH,
        WHILE,
        WORDS,
        TOO_NEW,
        SORTS,
        ATTENTION,
        *recorded,
    ):
        cvm.compile(program, target="reference").lower("ptx")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CVM_CACHE_DIR"] = folder
        compiled_before()
        driver = stand_in.load()
        for check in (
            arrays_of_the_host,
            blocks_with_much_shared_memory,
            arrays_of_the_device,
            streams,
            arrays_of_torch_and_dlpack,
            graphs_of_calls,
            several_devices,
            the_doctor,
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
