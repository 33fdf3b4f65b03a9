"""The state of a clocked program and the code that advances it: native code, launches on a GPU, or
calls from Python.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...dialect.kernel_ir.expressions import Tensor
from ...dialect.support.diagnostics import CallError, Diagnostic
from ...lowering.analysis.cost import estimated_work
from ...lowering.clocked_plan import StepPlan
from ...lowering.stepping.split_step_and_observe import StepAndObserve
from ..llvm import ir_builder as ll
from ..llvm.emit import Text, emit_plans
from ..runtime.fp_environment_ir import declarations, in_default_environment, register_of

if TYPE_CHECKING:
    from .clocked_program import CompiledGraph

BATCH = 50_000_000  # operations and bytes between two looks for an interrupt
PAGE, STAGGER = 4096, 832


class Stepper(Protocol):
    """The current state by name, and what moves it."""

    @property
    def current(self) -> Mapping[str, np.ndarray]: ...

    def move(self, ticks: int) -> int:
        """Moves the state by some of the ticks, so that an interrupt finds state and time in step;
        gives their number.
        """
        ...


class PythonStepper:
    """State that a compiled function maps to the next state, in Python's loop."""

    def __init__(self, graph: "CompiledGraph") -> None:
        clockwork = graph.clockwork
        self.moving = [s.name for s in clockwork.moving]
        self.advance = graph.function(clockwork.advance)
        self.current = {
            s.name: np.empty(s.initial.shape, s.initial.dtype) for s in clockwork.states
        }
        self.spare = {name: np.empty_like(self.current[name]) for name in self.moving}

    def move(self, ticks: int) -> int:
        self.advance(*self.current.values(), out=tuple(self.spare[m] for m in self.moving))
        for m in self.moving:
            self.current[m], self.spare[m] = self.spare[m], self.current[m]
        return 1


def native_stepper(graph: "CompiledGraph") -> Stepper:
    """Native code for the ticks themselves, unless nothing is optimized."""
    return NativeStepper(graph) if graph.options.optimize else PythonStepper(graph)


class NativeStepper:
    """State that native code moves any number of ticks at once."""

    def __init__(self, graph: "CompiledGraph") -> None:
        from ..llvm.native_code import Library
        from ..runtime.thread_pool import imports

        clockwork, tick = graph.clockwork, graph.step_plan
        text = emit_steps(tick)
        self.requirements = text.requirements
        passes: tuple[str, ...] = ("ticks", "passes") if tick.several else ("ticks",)
        exports = {name: (ctypes.c_void_p, ctypes.c_int64) for name in passes}
        imported = imports(stops=False) if text.module.is_parallel else {}
        self.library = Library(text.module, exports, imports=imported, pipeline=text.pipeline)
        arrays = [
            _aligned(_array_type(t, clockwork, tick, n), n)
            for n, t in enumerate(tick.plan.arguments)
        ]
        turned = list(arrays)
        for n in tick.turns:
            turned[n] = _aligned((arrays[n].shape, arrays[n].dtype), len(arrays) + n)
        self.constants = [np.ascontiguousarray(c) for c in tick.plan.constants.values()]
        self.sides = [_named(side, clockwork, tick) for side in (arrays, turned)]
        seconds = [[turned[n] for n in tick.turns], [arrays[n] for n in tick.turns]]
        self.tables = [self.table(a, b) for a, b in zip((arrays, turned), seconds, strict=True)]
        size = max(plan.workspace for plan in tick.plans if isinstance(plan.workspace, int))
        self.workspace = _aligned(((size,), np.dtype(np.uint8)))
        ways = ((tick.ticks, "passes"), (1, "ticks"))
        self.ways = [(n, self.library.functions[name]) for n, name in ways if name in passes]
        here, there = map(ctypes.addressof, self.tables)
        place = self.workspace.ctypes.data
        self.contexts = [
            (ctypes.c_void_p * 3)(*c) for c in ((here, there, place), (there, here, place))
        ]
        self.starts = [ctypes.addressof(c) for c in self.contexts]
        self.batch = max(1, BATCH // (1 + estimated_work(tick.plan)))
        self.batch += -self.batch % tick.ticks
        self.side = 0

    def table(
        self, arrays: list[np.ndarray], seconds: list[np.ndarray]
    ) -> ctypes.Array[ctypes.c_void_p]:
        addresses = [a.ctypes.data for a in (*arrays, *seconds, *self.constants)]
        return (ctypes.c_void_p * len(addresses))(*addresses)

    @property
    def current(self) -> Mapping[str, np.ndarray]:
        return self.sides[self.side]

    def move(self, ticks: int) -> int:
        n = left = ticks if ticks < self.batch else self.batch
        for each, function in self.ways:
            if left >= each:
                count = left // each
                status = function(self.starts[self.side], count)
                if status:  # of a check by `sanitize`: no operation of a graph fails
                    raise CallError(Diagnostic(*self.requirements[status - 1], "run"))
                self.side ^= count & 1
                left -= count * each
        return n


def _array_type(
    tensor: Tensor, work: StepAndObserve, tick: StepPlan, n: int
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and type of an array of state; complex numbers, which the plan has as pairs,
    whole.
    """
    state, place = next(
        (s, p) for s, p in zip(work.states, tick.places, strict=True) if p.array == n
    )
    shape = tuple(d for d in tensor.shape[:1] if isinstance(d, int))
    return (state.initial.shape if place.element is None else shape), state.initial.dtype


def _named(
    arrays: list[np.ndarray], clockwork: StepAndObserve, tick: StepPlan
) -> dict[str, np.ndarray]:
    """The arrays of the states by name: an element of a shared one is an array without
    dimensions.
    """
    values = {}
    for state, place in zip(clockwork.states, tick.places, strict=True):
        array = arrays[place.array]
        values[state.name] = (
            array if place.element is None else array[place.element : place.element + 1].reshape(())
        )
    return values


def _aligned(type: tuple[tuple[int, ...], np.dtype[Any]], turn: int = 0) -> np.ndarray:
    """An array that begins on a cache line, for every turn elsewhere in a page: equal places then
    do not compete for it.
    """
    shape, dtype = type
    size = int(np.prod(shape)) * dtype.itemsize
    held = np.zeros(size + 2 * PAGE, np.uint8)
    start = -held.ctypes.data % PAGE + turn * STAGGER % PAGE
    return held[start : start + size].view(dtype).reshape(shape)


def emit_steps(tick: StepPlan) -> Text:
    """The IR of the kernels, and of the loops over ticks and over passes of several."""
    source = emit_plans(*tick.plans, linkage="internal ")
    names = (("ticks", "entry"), ("passes", "entry1"))
    loops = "".join(
        _loop(tick, name, entry) for _, (name, entry) in zip(tick.plans, names, strict=False)
    )
    module = source.module.joined(ll.Module((), declarations(register_of()) + loops))
    return replace(source, module=module, pipeline="few" if tick.several else "slp")


def _loop(tick: StepPlan, name: str, entry: str) -> str:
    """A loop that calls an entry: what takes turns swaps its two buffers each time.

    The context holds the table of pointers for even ticks, that for odd ones, and the workspace.
    Pointers are loaded before the loop, so that state without turns may stay in registers.
    """
    plan = tick.plan
    count = len(plan.arguments) + len(plan.results) + len(plan.constants)
    turning = {*tick.turns, *range(len(plan.arguments), len(plan.arguments) + len(plan.results))}
    b, head = ll.IRBuilder(), ll.IRBuilder()
    here, there, workspace = (
        b.load_at(ll.POINTER, ll.Value("%context", ll.POINTER), n) for n in range(3)
    )
    table = b.add(ll.alloca(ll.array_type(max(count, 1), ll.POINTER)))
    pointers = [[b.load_at(ll.POINTER, side, n) for side in (here, there)] for n in range(count)]
    slots = [b.add(ll.element_pointer(ll.POINTER, table, ll.index(n))) for n in range(count)]
    for n in sorted({*range(count)} - turning):
        b.do(ll.store(pointers[n][0], slots[n]))
    b.do(ll.branch(ll.Block("head")))
    for n in sorted(turning):
        now, following = pointers[n]
        turned = ll.Value(f"%turn{n}", ll.POINTER)
        head.define(turned, ll.select(ll.Value("%odd", ll.BIT), following, now))
        head.do(ll.store(turned, slots[n]))
    loop = f"""
define internal i32 @{name}.loop(ptr %context, i64 %n) noinline nounwind {{
entry:
{b.body()}
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %bit = and i64 %i, 1
  %odd = icmp ne i64 %bit, 0
{head.body()}
  %status = call i32 @{entry}(ptr {table.text}, ptr null, ptr {workspace.text})
  %next = add nuw nsw i64 %i, 1
  %good = icmp eq i32 %status, 0
  br i1 %good, label %head, label %failed
done:
  ret i32 0
failed:
  ret i32 %status
}}
"""
    head_of = f"i32 @{name}(ptr %context, i64 %n) nounwind"
    return loop + in_default_environment(
        head_of, f"@{name}.loop", ("ptr %context", "i64 %n"), register_of()
    )
