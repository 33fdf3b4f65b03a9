"""Kernels to machine code while those that follow are still lowered and emitted: part by part, by a second thread.

LLVM needs no lock of Python's while it works. A part is a module of its own, and has so many lines that what LLVM takes for
every module does not count; which parts there are depends on the kernels alone. Where parallel loops have but one thread,
there is one part, and no other thread.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from queue import SimpleQueue

from ..dialect.loops import Kernel
from ..lowering.plan import Plan
from .llvm.emit import Emission
from .native import fresh_object_code
from .threads import PARALLEL, get_num_threads, is_parallel
from .turns import short_turns

LINES = 150  # that the kernels of the first part have at least; those of each further part have
FURTHER = 2  # times as many
NAME = "cvm compiling"  # the thread's
ENTRY = "declare i32 @entry(ptr, ptr, ptr)"


class Parts:
    """The machine code of a program whose kernels are told one after the other. `beside` is IR that calls their entry."""

    def __init__(self, emission: Emission, beside: str = "") -> None:
        self.parallel = is_parallel(beside)
        self._emission = emission
        self._beside = beside
        self._whole = ""  # where it is one part
        self._first, self._lines = 0, 0  # of the functions that are in no part yet
        self._enough = LINES
        self._alone = get_num_threads() == 1
        self._worker: Worker | None = None
        self._open = ExitStack()

    def __enter__(self) -> Parts:
        if self._beside and (worker := self._started()):
            worker.take("\n".join([ENTRY, PARALLEL * self.parallel, self._beside]))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, kernel: Kernel) -> None:
        """Emits a kernel, which is compiled with those before it once they are many enough."""
        emission, known = self._emission, len(self._emission.functions)
        emission.add(kernel)
        self._lines += sum(text.count("\n") for text in emission.functions[known:])
        if self._lines >= self._enough and (worker := self._started()):
            worker.take(emission.part(self._first))
            self._first, self._lines = len(emission.functions), 0
            self._enough *= FURTHER

    def end(self, plan: Plan) -> None:
        """Emits the entry, which runs the kernels of the plan."""
        text = self._emission.module((plan,), self._first)
        if self._worker is not None:
            self._worker.take(text)
        else:
            declares = self.parallel and not is_parallel(text)
            self._whole = "\n".join([text, PARALLEL * declares, self._beside])
        self.parallel = self.parallel or is_parallel(text)

    def images(self) -> tuple[bytes, ...]:
        """The object files, which belong together."""
        return (fresh_object_code(self._whole),) if self._worker is None else self._worker.images()

    def _started(self) -> Worker | None:
        """The second thread, if there is one."""
        if self._worker is None and not self._alone:
            self._open.enter_context(short_turns())
            try:
                self._worker = self._open.enter_context(Worker())
            except RuntimeError:  # no thread starts when the interpreter ends
                self._alone = True
        return self._worker


class Worker:
    """A thread that compiles one module of IR after the other."""

    def __init__(self) -> None:
        self._texts: SimpleQueue[str | None] = SimpleQueue()
        self._made: list[bytes] = []
        self._error: BaseException | None = None
        self._given_up = False
        self._thread = threading.Thread(target=self._run, name=NAME)

    def __enter__(self) -> Worker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._given_up = True
        self._texts.put(None)
        self._thread.join()

    def take(self, text: str) -> None:
        """Has a module compiled, after those before it."""
        self._texts.put(text)

    def images(self) -> tuple[bytes, ...]:
        """The object files of all modules; what was raised on the way is raised here."""
        self._texts.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error
        return tuple(self._made)

    def _run(self) -> None:
        try:
            while (text := self._texts.get()) is not None and not self._given_up:
                self._made.append(fresh_object_code(text))
        except BaseException as error:
            self._error = error
