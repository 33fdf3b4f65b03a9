"""A CUDA driver without a GPU: a library that answers PyCUDA's calls, in which launches run in the
emulator.

`load()` builds it with the C compiler and loads it as libcuda.so.1, so that an unmodified PyCUDA
imports it. It knows what PyCUDA calls for memory, modules and launches; everything else answers
"not supported". Device pointers are addresses of the emulator's memory, and code is PTX.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cvm.jit.cuda.emulator.memory import SPACE, Memory
from cvm.jit.cuda.emulator.ptx import Entry, parse
from cvm.jit.cuda.emulator.run_grid import launch

NOT_SUPPORTED, NOT_FOUND = 801, 500
ARGUMENTS = 12
Call = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * ARGUMENTS)
# what the attributes of a device are, by their numbers in cuda.h
ATTRIBUTES = {1: 1024, 2: 1024, 5: 1 << 30, 8: 49152, 10: 32, 16: 132, 39: 2048, 75: 8, 76: 0}
ERRORS = {
    2: b"out of memory",
    100: b"no CUDA-capable device is detected",
    222: b"the provided PTX was compiled with an unsupported toolchain.",
    700: b"an illegal memory access was encountered",
    701: b"too many resources requested for launch",
}
CONTEXT, OTHER, STREAM = 0xC0FFE0, 0xFACAD0, 0xCAFE  # a context's last digit is its device
BESIDE = {
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuPointerGetAttribute",
    "cuCtxGetCurrent",
    "cuEventCreate",
    "cuEventRecord",
    "cuStreamWaitEvent",
}  # what is called beside PyCUDA


def wanted_symbols() -> list[str]:
    """The functions of the driver that PyCUDA is linked to, and others."""
    spec = importlib.util.find_spec("pycuda")
    assert spec is not None and spec.origin is not None
    (library,) = Path(spec.origin).parent.glob("_driver*.so")
    return sorted(
        {m.decode() for m in re.findall(rb"\0(cu[A-Z]\w+)(?=\0)", library.read_bytes())} | BESIDE
    )


def _source(symbols: list[str]) -> str:
    given = ", ".join(f"long a{n}" for n in range(ARGUMENTS))
    passed = ", ".join(f"a{n}" for n in range(ARGUMENTS))
    lines = [
        f"typedef long (*call)({', '.join(['long'] * ARGUMENTS)});",
        f"call table[{len(symbols)}];",
    ]
    for n, name in enumerate(symbols):
        lines.append(
            f"int {name}({given}) {{ return table[{n}] ? (int)table[{n}]({passed}) : "
            f"{NOT_SUPPORTED}; }}"
        )
    return "\n".join(lines) + "\n"


def load() -> Driver:
    """The driver, loaded under the name of the real one; before anything imports PyCUDA."""
    symbols = wanted_symbols()
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "driver.c"), Path(folder, "libcuda.so.1")
        source.write_text(_source(symbols))
        options = ["-w", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
        subprocess.run(
            [os.environ.get("CC", "cc"), *options, "-o", str(library), str(source)], check=True
        )
        loaded = ctypes.CDLL(str(library))  # found by its name by what needs it
    driver = Driver()
    table = (ctypes.c_void_p * len(symbols)).in_dll(loaded, "table")
    for n, name in enumerate(symbols):
        answer = driver.answer(name)
        if answer is not None:
            driver.kept.append(Call(answer))
            table[n] = ctypes.cast(driver.kept[-1], ctypes.c_void_p)
    return driver


def _put(address: int, kind: Any, value: Any) -> None:
    kind.from_address(address).value = value


class Driver:
    """The state of the driver, and its functions by their names in C."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.modules: dict[int, dict[str, Entry]] = {}
        self.functions: dict[int, Entry] = {}
        self.allowed: dict[
            str, int
        ] = {}  # bytes of shared memory that launches may ask for, by kernel
        self.launched: list[str] = []
        self.marked = 0  # the stream that an event was recorded on
        self.ordered: list[tuple[int, int]] = []  # streams, of which the second waits for the first
        self.devices = 1  # how many there are
        self.contexts: list[
            int
        ] = []  # the thread's, the last being current; primary ones are CONTEXT + device
        self.copied = 0  # bytes between host and device
        self.capturing: list[Callable[[], None]] | None = None
        self.graphs: dict[int, list[Callable[[], None]]] = {}
        self.replayed = 0
        self.failing: dict[str, int] = {}  # what functions are to answer in place of what they do
        self.largest = 1 << 32  # bytes of an allocation
        self.elsewhere: set[int] = set()  # memory that lies on another device
        self.kept: list[Any] = [
            ctypes.create_string_buffer(b"not supported by the stand-in driver")
        ]

    _PLAIN = re.compile(
        r"cu(Init|CtxSynchronize|ModuleUnload|Event(Record|Synchronize|Destroy_v2|Query)|CtxDetach"
        r"|StreamDestroy_v2|DevicePrimaryCtxRelease_v2|CtxDestroy_v2|FuncSet\w+|ParamSet\w+)$"
    )

    def answer(self, name: str) -> Callable[..., int] | None:
        """The function that stands for one of the driver's; faults are said, since a C caller
        cannot see them.
        """
        plain = name.removesuffix("_v2").removesuffix("_v3").removesuffix("_v4")
        found = getattr(self, plain, (lambda *_: 0) if self._PLAIN.match(name) else None)
        if found is None:
            return None

        def call(*arguments: int) -> int:
            if plain in self.failing:
                return self.failing[plain]
            try:
                return found(*arguments) or 0
            except Exception as e:
                print(f"{name}: {type(e).__name__}: {e}", flush=True)
                return 719  # the launch failed

        return call

    # the device and its context

    def cuDriverGetVersion(self, out: int, *_: int) -> None:
        _put(out, ctypes.c_int, 13000)

    def cuDeviceGetCount(self, out: int, *_: int) -> None:
        _put(out, ctypes.c_int, self.devices)

    def cuDeviceGet(self, out: int, number: int, *_: int) -> None:
        _put(out, ctypes.c_int, number & 0xFFFFFFFF)

    def cuDeviceGetName(self, out: int, *_: int) -> None:
        ctypes.memmove(out, b"emulated\0", 9)

    def cuDeviceGetAttribute(self, out: int, which: int, *_: int) -> None:
        _put(out, ctypes.c_int, ATTRIBUTES.get(which & 0xFFFFFFFF, 0))

    def cuDeviceComputeCapability(self, major: int, minor: int, *_: int) -> None:
        _put(major, ctypes.c_int, ATTRIBUTES[75])
        _put(minor, ctypes.c_int, ATTRIBUTES[76])

    def cuDeviceTotalMem(self, out: int, *_: int) -> None:
        _put(out, ctypes.c_size_t, 1 << 32)

    def cuDevicePrimaryCtxRetain(self, out: int, device: int, *_: int) -> None:
        _put(out, ctypes.c_void_p, CONTEXT + (device & 0xFFFFFFFF))

    def cuCtxPushCurrent(self, handle: int, *_: int) -> None:
        self.contexts.append(handle)

    def cuCtxPopCurrent(self, out: int, *_: int) -> None:
        handle = self.contexts.pop()
        if out:
            _put(out, ctypes.c_void_p, handle)

    def cuCtxCreate(self, out: int, *_: int) -> None:
        self.contexts.append(OTHER)
        _put(out, ctypes.c_void_p, OTHER)

    def cuCtxGetDevice(self, out: int, *_: int) -> int:
        if not self.contexts:
            return 201  # no context
        _put(out, ctypes.c_int, self.contexts[-1] & 0xF)
        return 0

    def cuCtxGetCurrent(self, out: int, *_: int) -> None:
        _put(out, ctypes.c_void_p, self.contexts[-1] if self.contexts else None)

    def cuCtxAttach(self, out: int, *_: int) -> None:
        _put(out, ctypes.c_void_p, self.contexts[-1])

    def cuGetErrorString(self, error: int, out: int, *_: int) -> None:
        if error in ERRORS:
            self.kept.append(ctypes.create_string_buffer(ERRORS[error]))
        _put(out, ctypes.c_void_p, ctypes.addressof(self.kept[-1 if error in ERRORS else 0]))

    def cuEventCreate(self, out: int, *_: int) -> None:
        _put(out, ctypes.c_void_p, 1)

    def cuEventElapsedTime(self, out: int, *_: int) -> None:
        _put(out, ctypes.c_float, 1.0)

    # memory

    def cuMemGetInfo(self, free: int, total: int, *_: int) -> int:
        if not self.contexts:
            return 201  # no context
        _put(free, ctypes.c_size_t, 1 << 32)
        _put(total, ctypes.c_size_t, 1 << 32)
        return 0

    def cuMemAlloc(self, out: int, size: int, *_: int) -> int:
        if size > self.largest:
            return 2  # out of memory
        _put(out, ctypes.c_uint64, self.memory.give(np.full(size, 0xA5, np.uint8)))
        return 0

    def cuPointerGetAttribute(self, out: int, which: int, address: int, *_: int) -> int:
        space = address >> SPACE
        if which != 9 or space not in self.memory.spaces:
            return 1  # an invalid value
        _put(out, ctypes.c_int, int(space in self.elsewhere))
        return 0

    def cuMemFree(self, address: int, *_: int) -> None:
        self.memory.free(address)

    def cuMemcpyHtoD(self, to: int, of: int, size: int, *_: int) -> None:
        self.copied += size
        self.memory.view(to, size)[...] = np.frombuffer(ctypes.string_at(of, size), np.uint8)

    def cuMemcpyDtoH(self, to: int, of: int, size: int, *_: int) -> None:
        self.copied += size
        ctypes.memmove(to, self.memory.view(of, size).tobytes(), size)

    def cuMemcpyDtoD(self, to: int, of: int, size: int, *_: int) -> None:
        self.memory.view(to, size)[...] = self.memory.view(of, size)

    def cuMemsetD32(self, to: int, value: int, count: int, *_: int) -> None:
        self.memory.view(to, 4 * count).view(np.uint32)[...] = value

    # code

    def cuModuleLoadDataEx(self, out: int, image: int, *_: int) -> None:
        self.modules[len(self.modules) + 1] = parse(ctypes.string_at(image).decode())
        _put(out, ctypes.c_void_p, len(self.modules))

    cuModuleLoadData = cuModuleLoadDataEx

    def cuModuleGetFunction(self, out: int, module: int, name: int, *_: int) -> int:
        entry = self.modules[module].get(ctypes.string_at(name).decode())
        if entry is None:
            return NOT_FOUND
        self.functions[len(self.functions) + 1] = entry
        _put(out, ctypes.c_void_p, len(self.functions))
        return 0

    def cuFuncGetAttribute(self, out: int, *_: int) -> None:
        _put(out, ctypes.c_int, 0)

    def cuFuncSetAttribute(self, function: int, which: int, value: int, *_: int) -> None:
        assert which & 0xFFFFFFFF == 8, "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
        self.allowed[self.functions[function].name] = value & 0xFFFFFFFF

    def cuLaunchKernel(self, function: int, *rest: int) -> None:
        x, y, z, threads, ty, tz, shared, stream, pointers, extra = (
            n & 0xFFFFFFFFFFFFFFFF for n in rest[:10]
        )
        assert (y & 0xFFFFFFFF, z & 0xFFFFFFFF, ty & 0xFFFFFFFF, tz & 0xFFFFFFFF) == (1, 1, 1, 1), (
            "a grid of one axis"
        )
        entry = self.functions[function]
        assert shared & 0xFFFFFFFF <= self.allowed.get(entry.name, ATTRIBUTES[8]), (
            "more shared memory than is allowed"
        )
        if pointers:
            places = [
                ctypes.c_uint64.from_address(pointers + 8 * n).value
                for n in range(len(entry.parameters))
            ]
        else:  # CU_LAUNCH_PARAM_BUFFER_POINTER, the buffer, ...; every parameter has 8 bytes
            buffer = ctypes.c_uint64.from_address(extra + 8).value
            places = [buffer + 8 * n for n in range(len(entry.parameters))]
        given = [ctypes.c_int64.from_address(p).value for p in places]

        def run() -> None:
            self.launched.append(entry.name)
            launch(
                entry,
                x & 0xFFFFFFFF,
                threads & 0xFFFFFFFF,
                given,
                self.memory,
                shared=shared & 0xFFFFFFFF,
            )

        if stream == STREAM and self.capturing is not None:
            self.capturing.append(run)
        else:
            run()

    def cuEventRecord(self, _event: int, stream: int, *_: int) -> None:
        self.marked = stream

    def cuStreamWaitEvent(self, stream: int, *_: int) -> None:
        self.ordered.append((self.marked, stream))

    # graphs: a stream records what is launched on it

    def cuStreamCreate(self, out: int, *_: int) -> None:
        _put(out, ctypes.c_void_p, STREAM)

    def cuStreamBeginCapture(self, stream: int, *_: int) -> None:
        assert stream == STREAM and self.capturing is None
        self.capturing = []

    def cuStreamEndCapture(self, stream: int, out: int, *_: int) -> None:
        assert stream == STREAM and self.capturing is not None
        self.graphs[len(self.graphs) + 1] = self.capturing
        self.capturing = None
        _put(out, ctypes.c_void_p, len(self.graphs))

    def cuGraphInstantiateWithFlags(self, out: int, graph: int, *_: int) -> None:
        self.graphs[len(self.graphs) + 1] = list(self.graphs[graph])
        _put(out, ctypes.c_void_p, len(self.graphs))

    def cuGraphDestroy(self, graph: int, *_: int) -> None:
        self.graphs[graph] = []

    cuGraphExecDestroy = cuGraphDestroy

    def cuGraphLaunch(self, graph: int, *_: int) -> None:
        assert self.graphs[graph], "a graph that holds something"
        self.replayed += 1
        for run in self.graphs[graph]:
            run()
