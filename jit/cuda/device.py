"""The GPU, through PyCUDA: its context, code, memory and launches. Nothing else imports PyCUDA."""

# pyright: reportMissingImports=false

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from ...dialect.support.diagnostics import TargetError
from ...lowering.processor import processor
from . import nvrtc
from .cuda_graph import Recorded, current, device_of, record

HOW = "pip install 'cvm-lang[cuda]', on a machine with an NVIDIA GPU and its driver"
Call: TypeAlias = tuple[
    Any, int, int, Sequence[int], int
]  # a kernel, blocks, threads, arguments, shared bytes
LEAST = 64  # bytes of an array, which is then never the one that the pool is left with
CODE = "CVM_CUDA_CODE"  # "ptx" leaves the last step of compiling to the driver


@lru_cache(maxsize=1)
def missing() -> str:
    """The missing requirements of a GPU, with the remedy; empty if there are none."""
    try:
        import pycuda.driver as driver
    except ImportError as e:
        if "libcuda" in str(e):
            return f"the CUDA driver is not installed ({e}); it comes with NVIDIA's driver package"
        return f"PyCUDA is not installed ({e}): {HOW}"
    try:
        driver.init()
        count = driver.Device.count()
    except driver.Error as e:
        return f"the CUDA driver does not start: {e}; nvidia-smi tells whether it sees a device"
    return "" if count else "there is no CUDA device"


_devices: "dict[int, Device]" = {}  # by the handle of the context
_lock = threading.Lock()


def device() -> "Device":
    """The device of the thread's current context, else the first one; in its primary context, which
    CuPy and torch share, unless the caller's is another.
    """
    if lacking := missing():
        raise TargetError(f"target cuda: {lacking}")
    with _lock, explained():
        number, handle = current() or (0, 0)
        primary = _primary_context(number)
        handle = handle or primary.handle
        if handle not in _devices:
            _devices[handle] = Device(number, handle, primary if handle == primary.handle else None)
        return _devices[handle]


@lru_cache
def _primary_context(number: int) -> Any:
    """The primary context of a device; it is kept, since PyCUDA leaves one current that it gives
    back.
    """
    import pycuda.driver as driver

    return driver.Device(number).retain_primary_context()


def described() -> Iterator[str]:
    """The driver's version, and the devices."""
    import pycuda.driver as driver

    yield f"a driver of CUDA {driver_version()}"
    for n in range(driver.Device.count()):
        one = driver.Device(n)
        yield (
            f"device {n}: {one.name()}, sm_%d%d, {one.total_memory() >> 20} MiB"
            % one.compute_capability()
        )


def driver_version() -> str:
    import pycuda.driver as driver

    number = driver.get_driver_version()
    return f"{number // 1000}.{number % 1000 // 10}"


@contextmanager
def explained() -> Iterator[None]:
    """Convert errors of the driver to a TargetError with a remedy."""
    import pycuda.driver as driver

    try:
        yield
    except driver.MemoryError as e:
        left = ""
        with suppress(driver.Error):  # where no context is current
            left = ", of {1} bytes {0} are free".format(*driver.mem_get_info())
        text = f"target cuda: the device's memory does not suffice{left}: {e}"
        raise TargetError(
            f"{text}; drop arrays and compiled functions, or call with less at once"
        ) from None
    except driver.Error as e:
        text = f"target cuda: the driver fails: {e}"
        raise TargetError(
            f"{text}; where a kernel failed, the device can be used again by a new process"
        ) from None


class Device:
    """One device. Methods run in its context, which is the caller's where the caller has one."""

    def __init__(self, number: int, handle: int, context: Any) -> None:
        import pycuda.driver as driver
        from pycuda.tools import DeviceMemoryPool

        self.driver, self.handle = driver, driver.Device(number)
        self.name = str(self.handle.name())
        self.number = number
        self.place = (number, handle)
        self.context = context
        with self.active():
            self.pool = DeviceMemoryPool()
            self._hold()
        self._modules: dict[str, Any] = {}
        self._lock = threading.Lock()

    @contextmanager
    def active(self) -> Iterator[None]:
        """The context made current, where it is not the caller's own."""
        if self.context is None and current() != self.place:
            where = f"compiled in a context of device {self.number} that is not current"
            raise TargetError(f"target cuda: {where}: make it current, or compile again")
        with explained():
            if self.context is not None:
                self.context.push()
        try:
            with explained():
                yield
        finally:
            if self.context is not None:
                self.context.pop()

    # code

    def kernels(self, source: str, signatures: dict[str, str]) -> dict[str, Any]:
        """The functions of a source, prepared for their arguments: P an address, q an integer of 64
        bits.
        """
        if not signatures:
            return {}
        with self._lock, self.active():
            if source not in self._modules:
                self._modules[source] = self._module(self._code(source))
            functions = {name: self._modules[source].get_function(name) for name in signatures}
            for name, signature in signatures.items():
                functions[name].prepare(signature)
            return functions

    def _module(self, code: bytes) -> Any:
        try:
            return self.driver.module_from_buffer(code)
        except self.driver.MemoryError:
            raise
        except self.driver.Error as e:
            has = driver_version()
            text = (
                f"target cuda: the driver, of CUDA {has}, does not take the code that "
                f"{nvrtc.named()} makes: {e}"
            )
            fitting = f"pip install 'nvidia-cuda-nvrtc=={has}.*'"
            raise TargetError(f"{text}; update the driver, or {fitting}") from None

    def allow(self, kernel: Any, shared: int) -> None:
        """Raise the limit of a kernel's dynamic shared memory to `shared` bytes."""
        if shared > processor().gpu.shared_bytes:
            kernel.set_attribute(
                self.driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared
            )

    def _code(self, source: str) -> bytes:
        major, minor = self.handle.compute_capability()
        kind = "compute" if os.environ.get(CODE) == "ptx" else "sm"
        return nvrtc.compile_source(source, f"{kind}_{major}{minor}")

    @staticmethod
    def launch(calls: Iterable[Call]) -> None:
        for kernel, blocks, threads, arguments, shared in calls:
            kernel.prepared_call((blocks, 1), (threads, 1, 1), *arguments, shared_size=shared)

    def record(self, calls: Iterable[Call], kept: Any) -> Recorded | None:
        """The launches as one graph, which keeps some objects alive; None where the driver has no
        graphs.
        """

        def launch(stream: Any) -> None:
            for kernel, blocks, threads, arguments, shared in calls:
                kernel.prepared_async_call(
                    (blocks, 1), (threads, 1, 1), stream, *arguments, shared_size=shared
                )

        return record(self.driver.Stream(), launch, self.driver.Error, kept)

    # memory

    def allocate(self, size: int) -> Any:
        """Memory that is given back with the object; `int` of it is its address."""
        try:
            return self.pool.allocate(max(size, LEAST))
        except self.driver.MemoryError as e:  # all that the pool held was given back
            self._hold()
            raise self.driver.MemoryError(f"{size} bytes were asked for ({e})") from None

    def _hold(self) -> None:
        """While the pool holds something, memory may come back where no context is current."""
        self.pool.allocate(1).free()

    def upload(self, array: np.ndarray) -> Any:
        memory = self.allocate(array.nbytes)
        self.write(int(memory), array)
        return memory

    def write(self, address: int, array: np.ndarray) -> None:
        if array.nbytes:
            self.driver.memcpy_htod(address, array)

    def download(self, address: int, array: np.ndarray) -> None:
        if array.nbytes:
            self.driver.memcpy_dtoh(array, address)

    def copy(self, to: int, of: int, size: int) -> None:
        if size:
            self.driver.memcpy_dtod(to, of, size)

    def clear(self, address: int, words: int) -> None:
        self.driver.memset_d32(address, 0, words)

    def elsewhere(self, address: int, size: int) -> str:
        """The reason why an array is not on this device; empty if it is."""
        mine = self.number
        number = device_of(address) if size else self.number
        if number is None:
            return (
                f"expected memory of device {mine}, got the address {address:#x}, which is of "
                "none: was it freed?"
            )
        other = f"expected an array on device {mine}, got one on device {number}: copy it there"
        return "" if number == mine else other

    def array(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """A new array on the device: a pycuda.gpuarray.GPUArray."""
        from pycuda.gpuarray import GPUArray

        return GPUArray(shape, dtype, allocator=self.allocate)
