"""The threads that run parallel loops: one pool for the process, its meeting point written in LLVM IR.

    i32 @parallel(ptr function, ptr context, i64 n, i64 grain)      function(context, begin, end) over all of [0, n)

Nonzero is returned once a signal handler has raised an exception, which is left for the thread that called: the main thread
runs handlers (Ctrl-C's is one) some times a second, between pieces that take some milliseconds. Long loops on one thread ask
by n = 0. `@steady` is the same for code that must not stop in the middle.

Pieces are a share of what is left, so that the last ones are small and threads are done at about the same time. All spin a
little before they sleep on a futex; a job is open until its caller has seen its last piece handed out, and only
workers that joined it are waited for. A worker that finds itself on its caller's processor leaves it for the others: systems
wake threads there, though others are idle, and neither gets on. A caller that finds the pool busy, as inside another parallel loop, does all of the job
itself. Results do not depend on the number of threads: pieces write places of their own.

How many: `set_num_threads`, else CVM_NUM_THREADS, else the processors this process may use, one in a worker of a
multiprocessing pool. Where there are no futexes (other systems than Linux), one.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import sys
import threading
from operator import index
from typing import Any, SupportsIndex

from ...dialect.ir.diagnostics import Error
from ...dialect.ir.fork_safety import held_at_fork
from .fp_environment import declarations, register_of, set_default

FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine()) if sys.platform == "linux" else None
PAUSES = {"x86_64": ("llvm.x86.sse2.pause()", "()"), "aarch64": ("llvm.aarch64.hint(i32 1)", "(i32)")}
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

TEXT = f"""
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
declare i64 @syscall(i64, ...)
declare i64 @pthread_self()
declare i32 @clock_gettime(i32, ptr)
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i32 @sched_getcpu()
declare i32 @sched_setaffinity(i32, i64, ptr)
declare void @{PAUSE.partition("(")[0]}{PAUSE_TYPE}
{declarations(REGISTER)}

; runs signal handlers in the main thread, if some time has passed; whether one has raised
define internal i32 @ask() noinline nounwind {{
entry:
  %self = call i64 @pthread_self()
  %main = load i64, ptr @main
  %is_main = icmp eq i64 %self, %main
  br i1 %is_main, label %look, label %no
look:
  %now = call i64 @milliseconds()
  %last = load i64, ptr @asked
  %since = sub i64 %now, %last
  %soon = icmp ult i64 %since, {BETWEEN_ASKING}
  br i1 %soon, label %no, label %handle
handle:
  store i64 %now, ptr @asked
  %lock = call i32 @PyGILState_Ensure()
  %raised = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %lock)
  ret i32 %raised
no:
  ret i32 0
}}

define internal i64 @milliseconds() nounwind {{
  %time = alloca [2 x i64]
  %got = call i32 @clock_gettime(i32 {COARSE_CLOCK}, ptr %time)
  %rest.at = getelementptr i64, ptr %time, i64 1
  %seconds = load i64, ptr %time
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000
  %part = udiv i64 %rest, 1000000
  %sum = add i64 %whole, %part
  ret i64 %sum
}}

; the iterations of a piece, some milliseconds of them at a time; whether to stop, asked of: 0 nobody, 1 @ask, 2 @stopped
define internal i32 @run(ptr %function, ptr %context, i64 %begin, i64 %end, i64 %grain, i32 %whom) nounwind {{
entry:
  %several = mul i64 %grain, {AT_FIRST}
  %first = sub i64 %several, {AT_FIRST - 1}
  %all = sub i64 %end, %begin
  %short = icmp sle i64 %all, %first
  %unasked = icmp eq i32 %whom, 0
  %at_once = or i1 %short, %unasked
  br i1 %at_once, label %whole, label %start
whole:
  call void %function(ptr %context, i64 %begin, i64 %end)
  ret i32 0
start:
  %began = call i64 @milliseconds()
  br label %turn
turn:
  %from = phi i64 [ %begin, %start ], [ %to, %go_on ]
  %most = phi i64 [ %first, %start ], [ %adapted, %go_on ]
  %before = phi i64 [ %began, %start ], [ %now, %go_on ]
  %left = sub i64 %end, %from
  %more = icmp slt i64 %most, %left
  %size = select i1 %more, i64 %most, i64 %left
  %to = add i64 %from, %size
  call void %function(ptr %context, i64 %from, i64 %to)
  br i1 %more, label %pause, label %done
pause:
  %now = call i64 @milliseconds()
  %spent = sub i64 %now, %before
  %quick = icmp ult i64 %spent, {QUICK}
  %twice = shl i64 %most, 1
  %long = icmp ugt i64 %spent, {4 * QUICK}
  %half = lshr i64 %most, 1
  %least = call i64 @llvm.umax.i64(i64 %half, i64 1)
  %fewer = select i1 %long, i64 %least, i64 %most
  %adapted = select i1 %quick, i64 %twice, i64 %fewer
  %own = icmp eq i32 %whom, 1
  br i1 %own, label %asks, label %looks
asks:
  %raised = call i32 @ask()
  br label %go_on
looks:
  %flag = load atomic i32, ptr @stopped monotonic, align 4
  br label %go_on
go_on:
  %stop = phi i32 [ %raised, %asks ], [ %flag, %looks ]
  %stops = icmp ne i32 %stop, 0
  br i1 %stops, label %end_early, label %turn
end_early:
  ret i32 1
done:
  ret i32 0
}}
declare i64 @llvm.umax.i64(i64, i64)

define internal i32 @work(i32 %whom) nounwind {{
entry:
  %function = load ptr, ptr @function
  %context = load ptr, ptr @context
  %n = load i64, ptr @count
  %grain = load i64, ptr @least
  %parts = load i64, ptr @parts
  %first = load atomic i64, ptr @next monotonic, align 8
  br label %take
take:
  %begin = phi i64 [ %first, %entry ], [ %other, %piece ], [ %after, %run ]
  %left = sub i64 %n, %begin
  %any = icmp sgt i64 %left, 0
  br i1 %any, label %piece, label %done
piece:
  %share = udiv i64 %left, %parts
  %fine = icmp ult i64 %share, %grain
  %wanted = select i1 %fine, i64 %grain, i64 %share
  %last = icmp ult i64 %left, %wanted
  %size = select i1 %last, i64 %left, i64 %wanted
  %end = add i64 %begin, %size
  %pair = cmpxchg ptr @next, i64 %begin, i64 %end monotonic monotonic
  %other = extractvalue {{ i64, i1 }} %pair, 0
  %won = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %won, label %run, label %take
run:
  %stop = call i32 @run(ptr %function, ptr %context, i64 %begin, i64 %end, i64 %grain, i32 %whom)
  %stops = icmp ne i32 %stop, 0
  %after = load atomic i64, ptr @next monotonic, align 8
  br i1 %stops, label %give_up, label %take
give_up:
  store atomic i32 1, ptr @stopped monotonic, align 4
  store atomic i64 %n, ptr @next monotonic, align 8
  ret i32 1
done:
  ret i32 0
}}

define i32 @parallel(ptr %function, ptr %context, i64 %n, i64 %grain) nounwind {{
  %above = sub i64 %n, 1
  %little = icmp ult i64 %above, %grain
  br i1 %little, label %at_once, label %ask
at_once:
  call void %function(ptr %context, i64 0, i64 %n)
  ret i32 0
ask:
  %raised = call i32 @ask()
  %stops = icmp ne i32 %raised, 0
  br i1 %stops, label %stop, label %go_on
go_on:
  %status = call i32 @job(ptr %function, ptr %context, i64 %n, i64 %grain, i32 1)
  ret i32 %status
stop:
  ret i32 1
}}

define i32 @steady(ptr %function, ptr %context, i64 %n, i64 %grain) nounwind {{
  %status = call i32 @job(ptr %function, ptr %context, i64 %n, i64 %grain, i32 0)
  ret i32 %status
}}

define internal i32 @job(ptr %function, ptr %context, i64 %n, i64 %grain, i32 %whom) nounwind {{
entry:
  %none = icmp sle i64 %n, 0
  br i1 %none, label %nothing, label %some
nothing:
  ret i32 0
some:
  %workers = load atomic i64, ptr @workers monotonic, align 8
  %alone = icmp eq i64 %workers, 0
  %small = icmp sle i64 %n, %grain
  %either = or i1 %alone, %small
  br i1 %either, label %serial, label %claim
claim:
  %taken = atomicrmw xchg ptr @busy, i32 1 acquire
  %free = icmp eq i32 %taken, 0
  br i1 %free, label %open, label %serial
serial:
  %status = call i32 @run(ptr %function, ptr %context, i64 0, i64 %n, i64 %grain, i32 %whom)
  ret i32 %status
open:
  store atomic i32 0, ptr @stopped monotonic, align 4
  %here = call i32 @sched_getcpu()
  store atomic i32 %here, ptr @home monotonic, align 4
  %threads = add i64 %workers, 1
  %parts = shl i64 %threads, 1
  store ptr %function, ptr @function
  store ptr %context, ptr @context
  store i64 %n, ptr @count
  store i64 %grain, ptr @least
  store i64 %parts, ptr @parts
  store atomic i64 0, ptr @next monotonic, align 8
  %old = load atomic i32, ptr @generation monotonic, align 4
  %new = add i32 %old, 1
  %wide = zext i32 %new to i64
  %high = shl i64 %wide, 32
  %opened = or i64 %high, 65536
  store atomic i64 %opened, ptr @state seq_cst, align 8
  store atomic i32 %new, ptr @generation seq_cst, align 4
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 4
  %any = icmp sgt i32 %asleep, 0
  br i1 %any, label %wake, label %help
wake:
  call i64 (i64, ...) @syscall(i64 {FUTEX}, ptr @generation, i32 129, i32 {MOST})
  br label %help
help:
  %raised = call i32 @work(i32 %whom)
  %before = atomicrmw and ptr @state, i64 -65537 seq_cst
  br label %wait
wait:
  %spun = phi i32 [ 0, %help ], [ %again, %more_wait ]
  %now = load atomic i64, ptr @state acquire, align 8
  %joined = and i64 %now, 65535
  %over = icmp eq i64 %joined, 0
  br i1 %over, label %finish, label %hold
hold:
  call void @{PAUSE}
  %again = add i32 %spun, 1
  %long = icmp sgt i32 %spun, {SPINS}
  br i1 %long, label %rest, label %more_wait
rest:
  store atomic i32 1, ptr @waiting seq_cst, align 4
  %still = load atomic i64, ptr @state seq_cst, align 8
  %count = trunc i64 %still to i32
  %held = icmp ne i32 %count, 0
  br i1 %held, label %doze, label %rested
doze:
  call i64 (i64, ...) @syscall(i64 {FUTEX}, ptr @state, i32 128, i32 %count, ptr null)
  br label %rested
rested:
  store atomic i32 0, ptr @waiting monotonic, align 4
  br label %more_wait
more_wait:
  br label %wait
finish:
  store atomic i32 0, ptr @busy release, align 4
  ret i32 %raised
}}

; moves the thread off a processor, as long as it has no reason to go there again
define internal void @leave(i32 %home) noinline nounwind {{
entry:
  %known = icmp ult i32 %home, {64 * MASK}
  br i1 %known, label %copy, label %done
copy:
  %others = alloca [{MASK} x i64], align 8
  call void @llvm.memcpy.p0.p0.i64(ptr %others, ptr @allowed, i64 {8 * MASK}, i1 false)
  %wide = zext i32 %home to i64
  %n = lshr i64 %wide, 6
  %place = getelementptr i64, ptr %others, i64 %n
  %bit = and i64 %wide, 63
  %one = shl i64 1, %bit
  %all = load i64, ptr %place
  %not = xor i64 %one, -1
  %rest = and i64 %all, %not
  store i64 %rest, ptr %place
  %moved = call i32 @sched_setaffinity(i32 0, i64 {8 * MASK}, ptr %others)
  br label %done
done:
  ret void
}}

define i32 @worker(i32 %first) nounwind {{
entry:
{set_default(REGISTER)}
  br label %look
look:
  %seen = phi i32 [ %first, %entry ], [ %seen, %idle ], [ %seen, %awake ], [ %current, %back ]
  %spun = phi i32 [ 0, %entry ], [ %again, %idle ], [ 0, %awake ], [ 0, %back ]
  %current = load atomic i32, ptr @generation seq_cst, align 4
  %same = icmp eq i32 %current, %seen
  br i1 %same, label %spin, label %moved
spin:
  %enough = icmp sgt i32 %spun, {SPINS}
  br i1 %enough, label %sleep, label %idle
idle:
  call void @{PAUSE}
  %again = add i32 %spun, 1
  br label %look
sleep:
  %s0 = atomicrmw add ptr @sleepers, i32 1 seq_cst
  %slept = call i64 (i64, ...) @syscall(i64 {FUTEX}, ptr @generation, i32 128, i32 %seen, ptr null)
  %s1 = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  br label %awake
awake:
  br label %look
moved:
  %quit = load atomic i32, ptr @quit seq_cst, align 4
  %ending = icmp ne i32 %quit, 0
  br i1 %ending, label %end, label %try
try:
  %have = load atomic i64, ptr @state acquire, align 8
  br label %join
join:
  %expected = phi i64 [ %have, %try ], [ %found, %attempt ]
  %flag = and i64 %expected, 65536
  %closed = icmp eq i64 %flag, 0
  br i1 %closed, label %back, label %attempt
attempt:
  %one_more = add i64 %expected, 1
  %pair = cmpxchg ptr @state, i64 %expected, i64 %one_more seq_cst acquire
  %found = extractvalue {{ i64, i1 }} %pair, 0
  %won = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %won, label %joined, label %join
joined:
  %home = load atomic i32, ptr @home monotonic, align 4
  %here = call i32 @sched_getcpu()
  %together = icmp eq i32 %here, %home
  br i1 %together, label %part, label %apart
part:
  call void @leave(i32 %home)
  br label %apart
apart:
  %ignored = call i32 @work(i32 2)
  %left = atomicrmw sub ptr @state, i64 1 seq_cst
  %waited = load atomic i32, ptr @waiting seq_cst, align 4
  %asleep = icmp ne i32 %waited, 0
  br i1 %asleep, label %call, label %back
call:
  call i64 (i64, ...) @syscall(i64 {FUTEX}, ptr @state, i32 129, i32 1)
  br label %back
back:
  br label %look
end:
  ret i32 0
}}

define i32 @stop() nounwind {{
entry:
  store atomic i32 1, ptr @quit seq_cst, align 4
  %g = atomicrmw add ptr @generation, i32 1 seq_cst
  call i64 (i64, ...) @syscall(i64 {FUTEX}, ptr @generation, i32 129, i32 {MOST})
  ret i32 0
}}
"""


SERIAL = """
define i32 @parallel(ptr %function, ptr %context, i64 %n, i64 %grain) nounwind {
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %some, label %done
some:
  call void %function(ptr %context, i64 0, i64 %n)
  br label %done
done:
  ret i32 0
}
"""


class Pool:
    """The workers, and the address of @parallel for the code that wants it."""

    def __init__(self) -> None:
        from ..llvm.native_code import Library

        functions = {"parallel": (), "steady": (), "worker": (ctypes.c_int32,), "stop": ()}
        words = ("generation", "busy", "quit", "workers", "allowed", "main")
        if FUTEX is None:
            self.library = Library(SERIAL, {"parallel": ()})
        else:
            python = {n: ctypes.cast(getattr(ctypes.pythonapi, n), ctypes.c_void_p).value or 0 for n in PYTHON}
            self.library = Library(TEXT, functions, words, python)
            self.word("main", ctypes.c_uint64).value = threading.main_thread().ident or 0
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
        generation = self.word("generation").value
        for _ in range(workers):
            thread = threading.Thread(
                target=self.library.functions["worker"], args=(generation,), name="cvm", daemon=True
            )
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
        """In a child process: the workers stayed in the parent, and the thread that forked is the main one."""
        self.threads = []
        self.word("main", ctypes.c_uint64).value = threading.get_ident()
        self.word("workers", ctypes.c_int64).value = 0
        self.word("busy").value = 0


_lock = held_at_fork(threading.RLock())
_pool: Pool | None = None
_resizing = False
_wanted: int | None = None


def get_num_threads() -> int:
    """The number of threads that run a parallel loop."""
    if FUTEX is None:
        return 1
    return _wanted if _wanted is not None else _default()


def set_num_threads(n: int) -> None:
    """Sets how many threads run a parallel loop, from now on and in all compiled functions."""
    global _wanted
    if isinstance(n, bool) or not isinstance(n, SupportsIndex) or not 1 <= index(n) <= MOST:
        raise Error(f"the number of threads is from 1 to {MOST}, got {n!r}")
    _wanted = index(n)
    _resize()


def _resize() -> None:
    """Give the pool as many workers as are wanted. A call in the middle of another one, as in a signal handler, leaves that to
    the other.
    """
    global _resizing
    while _pool is not None and FUTEX is not None and not _resizing and len(_pool.threads) != get_num_threads() - 1:
        with _lock:
            _resizing = True
            try:
                _pool.resize(get_num_threads() - 1)
            finally:
                _resizing = False


def _default() -> int:
    named = os.environ.get("CVM_NUM_THREADS", "")
    if named:
        if not named.isascii() or not named.isdigit() or not 1 <= int(named) <= MOST:
            raise Error(f"CVM_NUM_THREADS is a number from 1 to {MOST}, got {named!r}")
        return int(named)
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        return 1
    return min(MOST, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def imports(stops: bool = True) -> dict[str, int]:
    """The addresses that a module with parallel loops asks for; not all of its code can stop for a signal handler that raises."""
    addresses = _running().library.addresses
    return {"parallel": addresses["parallel" if stops or FUTEX is None else "steady"]}


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
