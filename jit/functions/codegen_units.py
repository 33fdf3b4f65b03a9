"""Codegen units: kernels are compiled in several modules, on other threads, while later ones are still lowered (rustc).

LLVM releases Python's lock. A unit has enough lines that the fixed cost of a module does not matter; the division into
units depends on the kernels alone. The lowering thread compiles, too, when it is done. With one thread for parallel
loops there is one unit and no other thread."""

import threading
from contextlib import ExitStack, suppress
from contextvars import copy_context
from queue import SimpleQueue

from ...dialect.notation.loops import Kernel
from ...dialect.notation.plan import Plan
from ...lowering.processor import processor
from ..llvm.emit import Emission
from ..llvm.ir_builder import POINTER, STATUS, Declaration, Module
from ..llvm.llvm_context import addresses_kept
from ..llvm.native_code import fresh_object_code
from ..runtime.gil_switch_interval import short_turns
from ..runtime.thread_pool import get_num_threads

MOST = 3  # other threads
NAME = "cvm compiling"  # the thread's
ENTRY = Declaration(STATUS, "entry", (POINTER, POINTER, POINTER))


class Parts:
    """The machine code of a program whose kernels are told one after the other. `beside` is IR that calls their entry."""

    def __init__(self, emission: Emission, beside: Module | None = None) -> None:
        self.parallel = beside is not None and beside.is_parallel
        self._emission = emission
        self._beside = beside
        self._whole: Module | None = None  # where it is one part
        self._first, self._lines = 0, 0  # of the functions that are in no part yet
        self._enough = processor().tuning.unit_lines
        self._others = min(get_num_threads() - 1, MOST)
        self._workers: Workers | None = None
        self._open = ExitStack()

    def __enter__(self) -> "Parts":
        if self._beside is not None and (workers := self._started()):
            workers.take(Module((ENTRY,), "").joined(self._beside))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, kernel: Kernel) -> None:
        """Emits a kernel, which is compiled with those before it once they are many enough."""
        emission, known = self._emission, len(self._emission.functions)
        emission.add(kernel)
        self._lines += sum(function.lines for function in emission.functions[known:])
        if self._lines >= self._enough and (workers := self._started()):
            part = emission.part(self._first)
            self.parallel = self.parallel or part.is_parallel
            workers.take(part)
            self._first, self._lines = len(emission.functions), 0
            self._enough *= processor().tuning.unit_growth

    def end(self, plan: Plan) -> None:
        """Emits the entry, which runs the kernels of the plan."""
        module = self._emission.module((plan,), self._first)
        self.parallel = self.parallel or module.is_parallel
        if self._workers is not None:
            self._workers.take(module)
        else:
            self._whole = module if self._beside is None else module.joined(self._beside)

    def images(self) -> tuple[bytes, ...]:
        """The object files, which belong together."""
        if self._workers is not None:
            return self._workers.images()
        assert self._whole is not None, "the entry has been emitted"
        return (fresh_object_code(self._whole),)

    def _started(self) -> "Workers | None":
        """The other threads, if there are any."""
        if self._workers is None and self._others:
            self._open.enter_context(short_turns())
            self._open.enter_context(addresses_kept())
            try:
                self._workers = self._open.enter_context(Workers(self._others))
            except RuntimeError:  # no thread starts when the interpreter ends
                self._others = 0
        return self._workers


class Workers:
    """Threads that compile modules of IR; the one that asks for the code takes part in what is left."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._modules: SimpleQueue[tuple[int, Module] | None] = SimpleQueue()
        self._asked = 0
        self._made: dict[int, bytes] = {}
        self._error: BaseException | None = None
        self._given_up = False
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> "Workers":
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._given_up = True
        self._modules.put(None)
        for thread in self._threads:
            thread.join()

    def take(self, module: Module) -> None:
        """Has a module compiled."""
        if not self._modules.empty() and len(self._threads) < self._most:
            with suppress(RuntimeError):  # those that are there will do
                self._start()
        self._modules.put((self._asked, module))
        self._asked += 1

    def images(self) -> tuple[bytes, ...]:
        """The object files of all modules; what was raised on the way is raised here."""
        self._modules.put(None)
        self._run()
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error
        return tuple(self._made[n] for n in range(self._asked))

    def _start(self) -> None:
        thread = threading.Thread(target=copy_context().run, args=(self._run,), name=NAME)
        thread.start()
        self._threads.append(thread)

    def _run(self) -> None:
        try:
            while (asked := self._modules.get()) is not None and not self._given_up:
                self._made[asked[0]] = fresh_object_code(asked[1])
        except BaseException as error:
            self._error, self._given_up = error, True
        self._modules.put(None)  # for the others
