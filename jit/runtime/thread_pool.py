"""The threads that run parallel loops: one pool for the process.

    i32 @parallel(ptr function, ptr context, i64 n, i64 grain)

calls function(context, begin, end) for pieces that make up [0, n).
The machine code is LLVM IR in `thread_pool.ll`, whose head states the protocol: the words that
threads share, who may change each, and in which order changes are seen. This module starts and ends
the threads.

Nonzero is returned once a signal handler has raised an exception, which is left for the thread that
called: the main thread runs handlers (Ctrl-C's is one) some times a second, between pieces that
take some milliseconds. Long loops on one thread ask by n = 0. `@steady` is the same for code that
must not stop in the middle. Results do not depend on the number of threads: pieces write places of
their own.

How many: `set_num_threads`, else CVM_NUM_THREADS, else the processors this process may use, one in
a worker of a multiprocessing pool. Where there are no futexes (other systems than Linux), one.
"""

import atexit
import ctypes
import os
import platform
import sys
import threading
from operator import index
from typing import Any, SupportsIndex

from ...dialect.support.diagnostics import Error
from ...dialect.support.fork_safety import held_at_fork
from ..llvm.ir_files import join_ir, read_ir
from .fp_environment_ir import register_of, use_default

MACHINES = {"x86_64": "runtime/linux_x86_64.ll", "aarch64": "runtime/linux_aarch64.ll"}
FUTEX = MACHINES.get(platform.machine()) if sys.platform == "linux" else None
MOST = 256
MASK = 16  # words of 64 processors that are told apart
PYTHON = "PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals"


def source() -> str:
    """The code of the pool, in LLVM IR, or of loops on one thread where there are no futexes."""
    if FUTEX is None:
        return serial_loops()
    return join_ir(read_ir("runtime/thread_pool.ll"), read_ir(FUTEX), use_default(register_of()))


def serial_loops() -> str:
    """@parallel for one thread."""
    return read_ir("runtime/serial_loops.ll")


class Pool:
    """The workers, and the address of @parallel for the code that wants it."""

    def __init__(self) -> None:
        from ..llvm.native_code import Library

        functions = {"parallel": (), "steady": (), "worker": (ctypes.c_int32,), "stop": ()}
        words = ("generation", "home", "busy", "quit", "workers", "allowed", "main", "place")
        if FUTEX is None:
            self.library = Library(source(), {"parallel": ()})
        else:
            python = {
                n: ctypes.cast(getattr(ctypes.pythonapi, n), ctypes.c_void_p).value or 0
                for n in PYTHON
            }
            self.library = Library(source(), functions, words, python)
            self.word("main", ctypes.c_uint64).value = threading.main_thread().ident or 0
            ctypes.CDLL(None).pthread_key_create(ctypes.byref(self.word("place")), None)
        self.threads: list[threading.Thread] = []

    def word(self, name: str, type: Any = ctypes.c_int32) -> Any:
        return type.from_address(self.library.addresses[name])

    def resize(self, workers: int) -> None:
        """Stops the workers there are and starts others. No parallel loop is running."""
        if FUTEX is None:
            return
        self.stop()
        self.word("quit").value = 0
        allowed = self.word("allowed", ctypes.c_uint64 * MASK)
        allowed[:] = [0] * MASK
        for n in os.sched_getaffinity(0):
            if n < 64 * MASK:
                allowed[n // 64] |= 1 << n % 64
        self.word("home").value = ctypes.CDLL(None).sched_getcpu()
        worker, generation = self.library.functions["worker"], self.word("generation").value
        for _ in range(workers):
            thread = threading.Thread(target=worker, args=(generation,), name="cvm", daemon=True)
            thread.start()
            self.threads.append(thread)
        self.word("workers", ctypes.c_int64).value = workers

    def stop(self) -> None:
        self.word("workers", ctypes.c_int64).value = 0
        if self.threads:
            self.library.functions["stop"]()
            for thread in self.threads:
                thread.join()
            self.threads = []

    def forget(self) -> None:
        """In a child process: the workers stayed in the parent, and the thread that forked is the
        main one.
        """
        self.threads = []
        self.word("main", ctypes.c_uint64).value = threading.get_ident()
        self.word("workers", ctypes.c_int64).value = 0
        self.word("busy").value = 0


_lock = held_at_fork(threading.RLock())
_pool: Pool | None = None
_resizing = False
_wanted: int | None = None


def get_num_threads() -> int:
    """Return the number of threads that run large loops."""
    return 1 if FUTEX is None else _wanted if _wanted is not None else _default()


def set_num_threads(n: int) -> None:
    """Set how many threads run large loops, from now on and in all compiled functions.

    The default is CVM_NUM_THREADS, or else the number of processors. Results do not depend on it.

    Args:
        n: The number of threads, from 1 to 256.

    Raises:
        Error: The number is out of range.
    """
    global _wanted
    _wanted = _checked(n)
    _resize()


def _checked(n: object) -> int:
    if isinstance(n, bool) or not isinstance(n, SupportsIndex) or not 1 <= index(n) <= MOST:
        raise Error(f"the number of threads is from 1 to {MOST}, got {n!r}")
    return index(n)


def _resize() -> None:
    """Give the pool as many workers as are wanted. A call inside another one, as in a signal
    handler, leaves that to it.
    """
    global _resizing
    while (
        _pool is not None
        and FUTEX is not None
        and not _resizing
        and len(_pool.threads) != get_num_threads() - 1
    ):
        with _lock:
            _resizing = True
            try:
                _pool.resize(get_num_threads() - 1)
            finally:
                _resizing = False


def _default() -> int:
    if named := os.environ.get("CVM_NUM_THREADS", ""):
        if not named.isascii() or not named.isdigit() or not 1 <= int(named) <= MOST:
            raise Error(f"CVM_NUM_THREADS is a number from 1 to {MOST}, got {named!r}")
        return int(named)
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        return 1
    return min(
        MOST,
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    )


def imports(stops: bool = True) -> dict[str, int]:
    """The addresses that a module with parallel loops asks for; not all of its code can stop for a
    signal handler that raises.
    """
    return {
        "parallel": _running().library.addresses["parallel" if stops or FUTEX is None else "steady"]
    }


def _running() -> Pool:
    """The pool, its workers running."""
    global _pool
    with _lock:
        if _pool is None:
            pool = Pool()
            if FUTEX is not None:
                atexit.register(pool.stop)
                os.register_at_fork(after_in_child=pool.forget)
            _pool = pool
            _resize()
        return _pool
