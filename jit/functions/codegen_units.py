"""Codegen units: kernels are compiled in several modules, on other threads, while later ones are
still lowered (rustc).

LLVM releases Python's lock. A unit has enough lines that the fixed cost of a module does not
matter; the division into units depends on the kernels alone. The lowering thread compiles, too,
when it is done. With one thread for parallel loops there is one unit and no other thread.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from contextvars import copy_context
from typing import Any

from ...dialect.kernel_ir.execution_plan import Plan
from ...dialect.kernel_ir.loops import Kernel
from ...lowering.processor import processor
from ..calls import fastcall
from ..llvm.emit import Emission
from ..llvm.ir_builder import ENTRY, Module
from ..llvm.llvm_context import options_set
from ..llvm.native_code import fresh_object_code
from ..runtime.gil_switch_interval import short_turns
from ..runtime.thread_pool import get_num_threads, imports

MOST = 3  # other threads
NAME = "cvm compiling"  # the beginning of a thread's


class Parts:
    """The machine code of a program whose kernels are told one after the other. `beside` is IR that
    calls their entry.
    """

    def __init__(self, emission: Emission, beside: Module | None = None) -> None:
        self.parallel = False
        self._emission = emission
        self._beside = beside
        self._first, self._lines = 0, 0  # of the functions that are in no part yet
        self._enough = processor().tuning.unit_lines
        self._others = min(get_num_threads() - 1, MOST)
        self._asked: list[
            tuple[Module, Future[bytes] | None]
        ] = []  # the parts, and their code where a thread makes it
        self._open = ExitStack()

    def __enter__(self) -> "Parts":
        if self._beside is not None and self._others:
            self._take(Module((ENTRY,), "").joined(self._beside))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, kernel: Kernel) -> None:
        """Emits a kernel, which is compiled with those before it once they are many enough."""
        emission = self._emission
        known = len(self._emission.functions)
        emission.add(kernel)
        self._lines += sum(function.lines for function in emission.functions[known:])
        if self._lines >= self._enough and self._others:
            self._take(emission.part(self._first))
            self._first, self._lines = len(emission.functions), 0
            tuning = processor().tuning
            self._enough = min(self._enough * tuning.unit_growth, tuning.unit_most)

    def end(self, plan: Plan) -> None:
        """Emits the entry, which runs the kernels of the plan."""
        module = self._emission.module((plan,), self._first)
        if self._asked:
            self._take(module)
        else:
            module = module if self._beside is None else module.joined(self._beside)
            self.parallel = module.is_parallel
            self._asked.append((module, None))

    def images(self) -> tuple[bytes, ...]:
        """The object files, which belong together; this thread makes those that no other has
        begun.
        """
        last_first = [
            fresh_object_code(module) if begun is None or begun.cancel() else begun.result()
            for module, begun in reversed(self._asked)
        ]
        return tuple(reversed(last_first))

    def _take(self, module: Module) -> None:
        """Has a module compiled by another thread."""
        if not self._asked:
            self._open.enter_context(short_turns())
            self._open.enter_context(options_set())
            self._pool = ThreadPoolExecutor(self._others, NAME)
            self._open.callback(self._pool.shutdown, cancel_futures=True)
            if fastcall.usable():
                self._begin(fastcall.code)  # which the function needs as soon as it is compiled
        if module.is_parallel and not self.parallel:
            self.parallel = True
            self._begin(imports)
        self._asked.append((module, self._begin(fresh_object_code, module)))

    def _begin(self, work: Callable[..., object], *given: Module) -> Future[Any] | None:
        with suppress(RuntimeError):  # no thread starts when the interpreter ends
            return self._pool.submit(copy_context().run, work, *given)
        return None
