"""The thread pool's protocol in all interleavings of small cases: the functions of `thread_pool.ll`
are executed.
"""

import re
from collections.abc import Iterator, Sequence

import pytest
from cvm.jit.llvm.ir_files import read_ir
from ir_interleavings import Memory, Model, Search, Step, Thread, Violation, put

# A piece, whose beginning and end are steps, after which signal handlers are asked. Each piece is
# one iteration here.
RUN = """
define internal i32 @run(ptr %function, ptr %context, i64 %first, i64 %end, i64 %grain, i32 %may) {
  call void @begin(ptr %function, ptr %context, i64 %first, i64 %end)
  call void @finish(ptr %context, i64 %first, i64 %end)
  %may_stop = icmp ne i32 %may, 0
  br i1 %may_stop, label %asks, label %done

asks:
  %raised = call i32 @ask()
  ret i32 %raised

done:
  ret i32 0
}
"""
JOB = """
  %status.{job} = call i32 @{function}(ptr {job}, ptr {job}, i64 {n}, i64 1)
  call void @returned(i64 {job}, i32 %status.{job})
"""
EXIT = """
define i32 @exit() {
  store atomic i64 0, ptr @workers seq_cst, align 8
  %status = call i32 @stop()
  ret i32 0
}
"""
OPEN, TAKEN, DONE = 0, 1, 2  # states of an iteration


class Pool(Model):
    """The pool, and iterations that are words: `task.<job>.<iteration>`."""

    def __init__(
        self,
        text: str,
        workers: int,
        callers: Sequence[Sequence[tuple[str, int]]],
        interrupts: int,
        is_weak: bool,
    ) -> None:
        text = re.sub(r"define internal i32 @run\(.*?^\}", RUN, text, flags=re.M | re.S)
        tasks, job = {}, 0
        for n, jobs in enumerate(callers):
            body = ""
            for function, iterations in jobs:
                job += 1
                tasks.update({f"task.{job}.{k}": OPEN for k in range(iterations)})
                body += JOB.format(job=job, function=function, n=iterations)
            text += f"\ndefine i32 @caller{n}() {{\n{body}  ret i32 0\n}}\n"
        super().__init__(
            text + EXIT,
            {"spins": 0, "most_workers": 256, "between_asking": 0},
            {
                "pause": lambda thread: 0,
                "use_default_environment": lambda thread: 0,
                "leave": lambda thread: 0,
                "sched_getcpu": lambda thread: 0,
                "milliseconds": lambda thread: 0,
                "PyGILState_Ensure": lambda thread: 0,
                "PyGILState_Release": lambda thread: 0,
                "pthread_setspecific": lambda thread: 0,
                "pthread_getspecific": lambda thread: int(thread.name == "worker"),
                "pthread_self": lambda thread: int(thread.name != "caller0"),
            },
            {**tasks, "interrupts": interrupts, "workers": workers},
            is_weak,
        )

    def outside(
        self, name: str, arguments: list[int | str], thread: Thread, memory: Memory
    ) -> Iterator[Step]:
        if name == "begin":
            function, job, first, end = arguments
            if function != job:
                raise Violation(f"the function of job {function} has the context of job {job}")
            for word in self.tasks(job, first, end):
                if memory[word] != OPEN:
                    raise Violation(f"an iteration of job {job} runs twice")
                memory = put(memory, word, TAKEN)
            yield self.after(thread, memory, 0)
        elif name == "finish":
            yield self.stored(thread, memory, self.tasks(*arguments), DONE)
        elif name == "returned":
            job, status = arguments
            _, view = self.release(thread, memory)  # with the caller's own stores
            states = [view[n] for word, n in self.words.items() if word.startswith(f"task.{job}.")]
            if TAKEN in states or (status == 0 and OPEN in states):
                raise Violation(
                    f"the call of job {job} returned {status}, and iterations are {states}"
                )
            yield self.after(thread, memory, 0)
        elif name == "PyErr_CheckSignals":
            left = memory[self.words["interrupts"]]
            yield self.after(thread, memory, 0)
            if left:
                yield self.after(thread, put(memory, self.words["interrupts"], int(left) - 1), 1)
        else:
            yield from super().outside(name, arguments, thread, memory)

    def tasks(self, job: int | str, first: int | str, end: int | str) -> list[int]:
        if f"task.{job}.{int(end) - 1}" not in self.words:
            raise Violation(f"job {job} has no iterations {first} to {end}")
        return [self.words[f"task.{job}.{k}"] for k in range(int(first), int(end))]


def search(
    text: str,
    *callers: Sequence[tuple[str, int]],
    workers: int = 2,
    interrupts: int = 0,
    exits: bool = False,
    is_weak: bool = True,
) -> Search:
    """Search the states of workers and of callers, each with its calls: the function and the number
    of iterations.
    """
    pool = Pool(text, workers, callers, interrupts, is_weak)
    threads = [pool.start(f"caller{n}", f"caller{n}") for n in range(len(callers))]
    threads += [pool.start("worker", "worker", 0) for _ in range(workers)]
    threads += [pool.start("exit", "exit")] * exits

    def is_final(memory: Memory, threads: Sequence[Thread]) -> bool:
        """Test whether all threads have ended, or without an exit all but workers that sleep and
        have seen all jobs.
        """
        generation = memory[pool.words["generation"]]
        return all(
            not t.pending
            and (
                not t.frames
                or (not exits and t.asleep == "generation" and t.expected == generation)
            )
            for t in threads
        )

    return Search(pool, threads, is_final)


TEXT = read_ir("runtime/thread_pool.ll")
ONE, TWO, STOPPABLE = [("steady", 2)], [("steady", 2), ("steady", 2)], [("parallel", 2)]


@pytest.mark.parametrize(
    ("callers", "how"),
    [
        ([TWO], {"workers": 1}),
        ([STOPPABLE], {"workers": 1, "interrupts": 1}),
        ([ONE], {"workers": 1, "exits": True}),
        ([ONE], {"workers": 2}),
        ([STOPPABLE], {"workers": 2, "interrupts": 1, "is_weak": False}),
    ],
)
def test_small_cases(callers, how):
    found = search(TEXT, *callers, **how)
    assert found.reached_final > 0 and len(found.states) > 5000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("callers", "how"),
    [
        ([TWO], {"workers": 2}),
        ([ONE], {"workers": 2, "exits": True}),
        ([STOPPABLE], {"workers": 2, "interrupts": 1}),
        ([STOPPABLE], {"workers": 2, "interrupts": 1, "exits": True, "is_weak": False}),
        ([ONE, STOPPABLE], {"workers": 1, "is_weak": False}),
        ([ONE, ONE], {"workers": 1}),
    ],
)
def test_larger_cases(callers, how):
    """Two workers, jobs that follow each other, handlers that raise, an exit at any time, and
    callers that meet.
    """
    assert search(TEXT, *callers, **how).reached_final > 0


def replaced(before: str, after: str) -> str:
    """The pool with a mistake."""
    assert TEXT.count(before) == 1, before
    return TEXT.replace(before, after)


def moved(line: str, behind: str) -> str:
    """The pool with a line moved behind another one."""
    assert TEXT.count(line) == TEXT.count(behind) == 1
    return TEXT.replace(line, "").replace(behind, behind + line)


NEXT = "  store atomic i64 0, ptr @next monotonic, align 8\n"
OPENED = "  store atomic i64 %opened, ptr @state seq_cst, align 8\n"
QUIT = "  store atomic i32 1, ptr @quit seq_cst, align 4\n"
CHANGED = "  %last = atomicrmw add ptr @generation, i32 1 seq_cst\n"
SLEEP = "  call void @futex_wait(ptr @generation, i32 %seen, ptr null)\n"
WAKE_ALL = "  call void @futex_wake(ptr @generation, i32 %all)\n"
MISTAKES = {
    "the last worker does not wake the owner": (
        replaced("  call void @futex_wake(ptr @state, i32 1)\n", ""),
        [ONE],
        {},
        "never end",
    ),
    "the owner does not wake workers": (
        replaced(f"{WAKE_ALL}  br label %help", "  br label %help"),
        [ONE],
        {},
        "never end",
    ),
    "the exit does not wake workers": (
        replaced(f"{WAKE_ALL}  ret i32 0", "  ret i32 0"),
        [ONE],
        {"exits": True},
        "never end",
    ),
    "the owner does not announce that it waits": (
        replaced("  store atomic i32 1, ptr @waiting seq_cst, align 4\n", ""),
        [ONE],
        {},
        "never end",
    ),
    "the first iteration is set after the job is open": (
        moved(NEXT, OPENED),
        [[("steady", 2), ("steady", 3)]],
        {},
        "runs twice|returned 0|has no iterations",
    ),
    "the exit is announced after the generation": (
        moved(QUIT, CHANGED),
        [ONE],
        {"exits": True},
        "never end",
    ),
    "a worker joins without looking whether the job is open": (
        replaced("  br i1 %is_open, label %enter, label %done", "  br label %enter"),
        [TWO],
        {},
        "runs twice|returned 0|has the context",
    ),
    "the job stays open": (
        replaced("  %closed = atomicrmw and ptr @state, i64 -65537 seq_cst", "  ;"),
        [TWO],
        {},
        "runs twice|returned 0|has the context",
    ),
    "a worker sleeps on a generation that it has not dealt with": (
        replaced(
            SLEEP,
            "  %again = load atomic i32, ptr @generation seq_cst, align 4\n"
            + SLEEP.replace("%seen", "%again"),
        ),
        [ONE],
        {"exits": True},
        "never end",
    ),
    "the owner does not wait": (
        replaced("  %is_done = icmp eq i64 %joined, 0", "  %is_done = icmp eq i64 0, 0"),
        [ONE],
        {},
        "returned 0, and iterations are",
    ),
    "a job is opened without a release": (
        replaced(OPENED, OPENED.replace("seq_cst", "monotonic")),
        [TWO],
        {},
        "runs twice|returned 0|has the context|has no iterations",
    ),
    "a generation may be stored after the load of sleepers": (
        replaced(
            "  store atomic i32 %new, ptr @generation seq_cst, align 4",
            "  store atomic i32 %new, ptr @generation release, align 4",
        ),
        [ONE],
        {},
        "never end",
    ),
    "a worker leaves without releasing its results": (
        replaced(
            "  %left = atomicrmw sub ptr @state, i64 1 seq_cst",
            "  %left = atomicrmw sub ptr @state, i64 1 monotonic",
        ),
        [ONE],
        {},
        "returned 0, and iterations are",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found(name):
    text, callers, how, message = MISTAKES[name]
    with pytest.raises(Violation, match=message):
        search(text, *callers, workers=1, **how)
