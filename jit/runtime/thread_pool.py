"""The threads that run parallel loops: one pool for the process, its meeting point written in LLVM
IR.

    i32 @parallel(ptr function, ptr context, i64 n, i64 grain)      function(context, begin, end) over all of [0, n)

Nonzero is returned once a signal handler has raised an exception, which is left for the thread that
called: the main thread runs handlers (Ctrl-C's is one) some times a second, between pieces that
take some milliseconds. Long loops on one thread ask by n = 0. `@steady` is the same for code that
must not stop in the middle.

Pieces are a share of what is left, so that the last ones are small and threads are done at about
the same time. All spin a little before they sleep on a futex; a job is open until its caller has
seen its last piece handed out, and only workers that joined it are waited for. A worker that finds
itself on its caller's processor leaves it for the others: systems wake threads there, though others
are idle, and neither gets on. A caller that finds the pool busy, as inside another parallel loop,
does all of the job itself. Results do not depend on the number of threads: pieces write places of
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
from .fp_environment_ir import declarations, register_of, set_default

FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine()) if sys.platform == "linux" else None
PAUSES = {
    "x86_64": ("llvm.x86.sse2.pause()", "()"),
    "aarch64": ("llvm.aarch64.hint(i32 1)", "(i32)"),
}
PAUSE, PAUSE_TYPE = PAUSES.get(platform.machine(), PAUSES["x86_64"])
REGISTER = register_of()
MOST = 256
MASK = 16  # words of 64 processors that are told apart
COARSE_CLOCK = 6  # Linux's; it is read in some nanoseconds
BETWEEN_ASKING = 20  # milliseconds between two looks for signals
QUICK = 4  # milliseconds: what takes less is done in larger pieces
AT_FIRST = 8  # grains of a first piece; but one iteration if that is a grain
PYTHON = "PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals"
SPINS = 4000  # looks at the generation before a worker sleeps: some tens of microseconds

GLOBALS = f"""
@generation = global i32 0
@state = global i64 0          ; generation << 32 | open << 16 | workers that joined
@sleepers = global i32 0
@waiting = global i32 0        ; whether the caller sleeps until the workers are done
@home = global i32 -1          ; the caller's processor
@allowed = global [{MASK} x i64] zeroinitializer  ; a bit for each processor that threads may run on
@busy = global i32 0
@quit = global i32 0
@workers = global i64 0
@function = internal global ptr null
@context = internal global ptr null
@count = internal global i64 0
@least = internal global i64 1
@parts = internal global i64 1
@next = internal global i64 0
@stopped = internal global i32 0      ; whether a handler has raised in the job that is open
@main = global i64 0           ; the thread that runs signal handlers
@asked = internal global i64 0 ; when it has run them
@place = global i32 0          ; a thread's own place, which holds something in workers
declare i64 @syscall(i64, ...)
declare void @{PAUSE.partition("(")[0]}{PAUSE_TYPE}
{declarations(REGISTER)}"""

SOURCE = f"""
{GLOBALS!r}
def pthread_self() -> i64: ...
def pthread_getspecific(place: i32) -> i64: ...
def pthread_setspecific(place: i32, value: i64) -> i32: ...
def clock_gettime(clock: i32, time: ptr) -> i32: ...
def PyGILState_Ensure() -> i32: ...
def PyGILState_Release(state: i32) -> void: ...
def PyErr_CheckSignals() -> i32: ...
def sched_getcpu() -> i32: ...
def sched_setaffinity(thread: i32, size: i64, mask: ptr) -> i32: ...

# runs signal handlers in the main thread, if some time has passed; whether one has raised, which workers are told
@noinline
def ask() -> i32:
    if pthread_getspecific(i32[place]) != 0:
        return ir(i32, "load atomic i32, ptr @stopped monotonic, align 4")
    if pthread_self() != i64[main]:
        return 0
    now = milliseconds()
    if now - i64[asked] < {BETWEEN_ASKING}:
        return 0
    i64[asked] = now
    lock = PyGILState_Ensure()
    raised = PyErr_CheckSignals()
    PyGILState_Release(lock)
    return raised

def milliseconds() -> i64:
    time = ir(ptr, "alloca [2 x i64]")
    clock_gettime({COARSE_CLOCK}, time)
    return i64[time] * 1000 + i64[time + 8] // 1000000

@alwaysinline
def piece(function: ptr, context: ptr, begin: i64, end: i64) -> void:
    ir(void, "call void {{}}(ptr {{}}, i64 {{}}, i64 {{}})", function, context, begin, end)

# the iterations of a piece, some milliseconds of them at a time; whether to stop, which is asked where they may
def run(function: ptr, context: ptr, begin: i64, end: i64, grain: i64, may: i32) -> i32:
    most = grain * {AT_FIRST} - {AT_FIRST - 1}
    if end - begin <= most or may == 0:
        piece(function, context, begin, end)
        return 0
    before = milliseconds()
    while most < end - begin:
        piece(function, context, begin, begin + most)
        begin = begin + most
        now = milliseconds()
        if now - before < {QUICK}:
            most = most << 1
        elif now - before > {4 * QUICK} and most > 1:
            most = most >> 1
        before = now
        if ask() != 0:
            return 1
    piece(function, context, begin, end)
    return 0

def work(may: i32) -> i32:
    n = i64[count]
    grain = i64[least]
    begin = ir(i64, "load atomic i64, ptr @next monotonic, align 8")
    while begin < n:
        share = (n - begin) // i64[parts]
        size = grain if share < grain else share
        size = size if size < n - begin else n - begin
        found = ir(i64, "extractvalue {{{{ i64, i1 }}}} {{}}, 0", ir(pair, "cmpxchg ptr @next, i64 {{}}, i64 {{}} monotonic monotonic", begin, begin + size))
        if found != begin:
            begin = found
            continue
        stop = run(ptr[function], ptr[context], begin, begin + size, grain, may)
        begin = ir(i64, "load atomic i64, ptr @next monotonic, align 8")
        if stop != 0:
            ir(void, "store atomic i32 1, ptr @stopped monotonic, align 4")
            ir(void, "store atomic i64 {{}}, ptr @next monotonic, align 8", n)
            return 1
    return 0

@export
def parallel(function: ptr, context: ptr, n: i64, grain: i64) -> i32:
    if 0 < n and n <= grain:
        piece(function, context, 0, n)
        return 0
    if ask() != 0:
        return 1
    return job(function, context, n, grain, 1)

@export
def steady(function: ptr, context: ptr, n: i64, grain: i64) -> i32:
    return job(function, context, n, grain, 0)

def job(f: ptr, given: ptr, n: i64, grain: i64, may: i32) -> i32:
    if n <= 0:
        return 0
    others = ir(i64, "load atomic i64, ptr @workers monotonic, align 8")
    if others == 0 or n <= grain or ir(i32, "atomicrmw xchg ptr @busy, i32 1 acquire") != 0:
        return run(f, given, 0, n, grain, may)
    ir(void, "store atomic i32 0, ptr @stopped monotonic, align 4")
    ir(void, "store atomic i32 {{}}, ptr @home monotonic, align 4", sched_getcpu())
    ptr[function] = f
    ptr[context] = given
    i64[count] = n
    i64[least] = grain
    i64[parts] = others + 1 << 1
    ir(void, "store atomic i64 0, ptr @next monotonic, align 8")
    new = ir(i32, "load atomic i32, ptr @generation monotonic, align 4") + 1
    ir(void, "store atomic i64 {{}}, ptr @state seq_cst, align 8", ir(i64, "zext i32 {{}} to i64", new) << 32 | 65536)
    ir(void, "store atomic i32 {{}}, ptr @generation seq_cst, align 4", new)
    if ir(i32, "load atomic i32, ptr @sleepers seq_cst, align 4") > 0:
        ir(i64, "call i64 (i64, ...) @syscall(i64 {FUTEX}, ptr @generation, i32 129, i32 {MOST})")
    raised = work(may)
    ir(i64, "atomicrmw and ptr @state, i64 -65537 seq_cst")
    spun = 0
    timeout = ir(ptr, "alloca [2 x i64]")
    i64[timeout] = 0
    i64[timeout + 8] = {BETWEEN_ASKING * 10**6}
    while ir(i64, "load atomic i64, ptr @state acquire, align 8") & 65535 != 0:
        ir(void, "call void @{PAUSE}")
        if spun > {SPINS}:
            if may != 0 and raised == 0:
                raised = ask()
                ir(void, "store atomic i32 {{}}, ptr @stopped monotonic, align 4", raised)
            ir(void, "store atomic i32 1, ptr @waiting seq_cst, align 4")
            held = ir(i32, "trunc i64 {{}} to i32", ir(i64, "load atomic i64, ptr @state seq_cst, align 8"))
            if held != 0:
                ir(i64, "call i64 (i64, ...) @syscall(i64 {FUTEX}, ptr @state, i32 128, i32 {{}}, ptr {{}})", held, timeout)
            ir(void, "store atomic i32 0, ptr @waiting monotonic, align 4")
        spun = spun + 1
    ir(void, "store atomic i32 0, ptr @busy release, align 4")
    return raised

# moves the thread off a processor, as long as it has no reason to go there again
@noinline
def leave(here: i32) -> void:
    n = ir(i64, "zext i32 {{}} to i64", here)
    if n < {64 * MASK}:
        rest = ir(ptr, "alloca [{MASK} x i64], align 8")
        for k in range({MASK}):
            i64[rest + 8 * k] = i64[allowed + 8 * k]
        word = rest + (n >> 6) * 8
        i64[word] = i64[word] & (1 << (n & 63) ^ -1)
        sched_setaffinity(0, {8 * MASK}, rest)

@export
def worker(seen: i32) -> i32:
    {set_default(REGISTER)!r}
    pthread_setspecific(i32[place], 1)
    leave(ir(i32, "load atomic i32, ptr @home monotonic, align 4"))
    spun = 0
    while True:
        current = ir(i32, "load atomic i32, ptr @generation seq_cst, align 4")
        if current != seen:
            if ir(i32, "load atomic i32, ptr @quit seq_cst, align 4") != 0:
                return 0
            join()
            seen = current
            spun = 0
        elif spun <= {SPINS}:
            ir(void, "call void @{PAUSE}")
            spun = spun + 1
        else:
            ir(i32, "atomicrmw add ptr @sleepers, i32 1 seq_cst")
            ir(i64, "call i64 (i64, ...) @syscall(i64 {FUTEX}, ptr @generation, i32 128, i32 {{}}, ptr null)", seen)
            ir(i32, "atomicrmw sub ptr @sleepers, i32 1 seq_cst")
            spun = 0

# takes part in the job, if it is open; elsewhere than its caller, who may be done before it had its turn there
def join() -> void:
    there = ir(i32, "load atomic i32, ptr @home monotonic, align 4")
    if sched_getcpu() == there:
        leave(there)
    have = ir(i64, "load atomic i64, ptr @state acquire, align 8")
    while have & 65536 != 0:
        found = ir(i64, "extractvalue {{{{ i64, i1 }}}} {{}}, 0", ir(pair, "cmpxchg ptr @state, i64 {{}}, i64 {{}} seq_cst acquire", have, have + 1))
        if found == have:
            work(1)
            ir(i64, "atomicrmw sub ptr @state, i64 1 seq_cst")
            if ir(i32, "load atomic i32, ptr @waiting seq_cst, align 4") != 0:
                ir(i64, "call i64 (i64, ...) @syscall(i64 {FUTEX}, ptr @state, i32 129, i32 1)")
            return
        have = found

@export
def stop() -> i32:
    ir(void, "store atomic i32 1, ptr @quit seq_cst, align 4")
    ir(i32, "atomicrmw add ptr @generation, i32 1 seq_cst")
    ir(i64, "call i64 (i64, ...) @syscall(i64 {FUTEX}, ptr @generation, i32 129, i32 {MOST})")
    return 0
"""

SERIAL = """
@export
def parallel(function: ptr, context: ptr, n: i64, grain: i64) -> i32:
    if n > 0:
        ir(void, "call void {}(ptr {}, i64 0, i64 {})", function, context, n)
    return 0
"""


class Pool:
    """The workers, and the address of @parallel for the code that wants it."""

    def __init__(self) -> None:
        from ..llvm.native_code import Library, Source

        functions = {"parallel": (), "steady": (), "worker": (ctypes.c_int32,), "stop": ()}
        words = ("generation", "home", "busy", "quit", "workers", "allowed", "main", "place")
        if FUTEX is None:
            self.library = Library(Source(SERIAL), {"parallel": ()})
        else:
            python = {
                n: ctypes.cast(getattr(ctypes.pythonapi, n), ctypes.c_void_p).value or 0
                for n in PYTHON
            }
            self.library = Library(Source(SOURCE), functions, words, python)
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
    """The number of threads that run large loops."""
    return 1 if FUTEX is None else _wanted if _wanted is not None else _default()


def set_num_threads(n: int) -> None:
    """Sets how many threads run large loops: 1 to 256; by default CVM_NUM_THREADS, else as many as
    there are processors.

    It holds from now on and in all compiled functions. Results do not depend on it.
    """
    global _wanted
    if isinstance(n, bool) or not isinstance(n, SupportsIndex) or not 1 <= index(n) <= MOST:
        raise Error(f"the number of threads is from 1 to {MOST}, got {n!r}")
    _wanted = index(n)
    _resize()


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
