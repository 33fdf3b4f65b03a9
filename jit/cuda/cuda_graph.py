"""CUDA graphs: launches that the driver captures and starts at once.

PyCUDA has neither graphs nor access to foreign streams and memory, so its driver library is called
directly.
"""

import ctypes
import os
import weakref
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ...dialect.support.diagnostics import TargetError

_LIBRARY = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
_ORDINAL = 9  # which of a pointer's attributes is its device
_NO_TIMING = 2  # of an event
_THREAD_LOCAL = 1  # what other threads do meanwhile is not recorded, and may be anything


class Recorded:
    """Launches that were recorded; they stay usable as long as the memory that they use does."""

    def __init__(self, graph: ctypes.c_void_p, kept: Any) -> None:
        self.graph, self.kept = graph, kept
        weakref.finalize(self, _driver().cuGraphExecDestroy, graph).atexit = False

    def start(self) -> None:
        """Starts them, after all that was started before."""
        if status := _driver().cuGraphLaunch(self.graph, None):
            raise TargetError(
                f"target cuda: the driver does not start what was recorded: error {status}"
            )


@lru_cache(maxsize=1)
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL(_LIBRARY)


def order(first: int, second: int) -> None:
    """Let the second stream wait for the work that the first has now; 0 is the stream of the
    launches.
    """
    driver = _driver()
    event = ctypes.c_void_p()
    if not (status := driver.cuEventCreate(ctypes.byref(event), _NO_TIMING)):
        status = driver.cuEventRecord(event, ctypes.c_void_p(first))
        status = status or driver.cuStreamWaitEvent(ctypes.c_void_p(second), event, 0)
        driver.cuEventDestroy_v2(event)  # once it has happened
    if status:
        which = f"the stream {first or second:#x}, which an array names"
        raise TargetError(f"target cuda: the driver does not wait for {which}: error {status}")


def current() -> tuple[int, int] | None:
    """The device number and handle of the thread's current context, whoever made it; None if there
    is no context.
    """
    number, handle = ctypes.c_int(), ctypes.c_void_p()
    if _driver().cuCtxGetCurrent(ctypes.byref(handle)) or _driver().cuCtxGetDevice(
        ctypes.byref(number)
    ):
        return None
    return number.value, handle.value or 0


def device_of(address: int) -> int | None:
    """The number of the device that an address belongs to; None where it belongs to none."""
    number = ctypes.c_int()
    status = _driver().cuPointerGetAttribute(
        ctypes.byref(number), _ORDINAL, ctypes.c_uint64(address)
    )
    return None if status else number.value


def record(
    stream: Any, launch: Callable[[Any], None], errors: type[Exception], kept: Any
) -> Recorded | None:
    """Capture the launches of `launch` on a stream, without running them; None if the driver
    cannot.
    """
    driver = _driver()
    handle = ctypes.c_void_p(stream.handle)
    if not hasattr(driver, "cuGraphInstantiateWithFlags") or driver.cuStreamBeginCapture_v2(
        handle, _THREAD_LOCAL
    ):
        return None
    graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
    try:
        launch(stream)
        failed = False
    except errors:
        failed = True
    if driver.cuStreamEndCapture(handle, ctypes.byref(graph)) or failed or not graph:
        return None
    failed = bool(
        driver.cuGraphInstantiateWithFlags(ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
    )
    driver.cuGraphDestroy(graph)
    return None if failed else Recorded(ready, kept)
