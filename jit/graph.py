"""A compiled graph: its state lives here, moves by ticks of native code, and is read and written by name."""

from __future__ import annotations

import ctypes
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from typing import Any

import numpy as np

from ..dialect.cog.clocked import warnings as graph_warnings
from ..dialect.program import Function, Graph, Module
from ..dialect.source import CallError, Diagnostic
from ..lowering.clock import State, clockwork
from .arguments import array_of
from .function import TARGETS, CompiledFunction, NativeFunction

Sensor = Iterable[Any] | Callable[[int], Any]


class CompiledGraph:
    """A graph on one target. A graph that was never reset resets itself first; time counts ticks since the reset."""

    def __init__(self, module: Module, graph: Graph, target: str = "cpu") -> None:
        self.module = module
        self.graph = graph
        self.target = target
        self._clockwork = clockwork(module, graph)
        self._states = {s.name: s for s in self._clockwork.states}
        self._functions: dict[str, CompiledFunction] = {}
        self._current: dict[str, np.ndarray] = {}
        self._spare: dict[str, np.ndarray] = {}
        self._observed: dict[str, np.ndarray] | None = None
        self._time = 0
        self._lock = threading.RLock()
        for warning in graph_warnings(graph):
            warnings.warn(str(warning), stacklevel=4)

    def __repr__(self) -> str:
        return f"<cvm graph @{self.graph.name} on {self.target}, tick {self._time}>"

    def __reduce__(self) -> tuple[object, ...]:
        return CompiledGraph, (self.module, self.graph, self.target)

    # time

    def reset(self) -> int:
        """Every field takes its initial value, sensors are zero, and time is 0."""
        with self._lock:
            for s in self._clockwork.states:
                self._current[s.name] = np.ascontiguousarray(s.initial).reshape(s.initial.shape)
                self._current[s.name] = self._current[s.name].copy()
                self._spare[s.name] = np.empty_like(self._current[s.name])
            self._time = 0
            self._observed = None
            return 0

    def step(self, n: int = 1) -> int:
        """Moves n ticks on; the time afterwards."""
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
            raise CallError(f"step takes a number of ticks, 0 or more, got {n!r}")
        with self._lock:
            self._ready()
            if n and self._clockwork.moving:
                self._advance(int(n))
            self._time += int(n)
            self._observed = None if n else self._observed
            return self._time

    def time(self) -> int:
        """The number of ticks since the reset."""
        return self._time

    def run(
        self,
        ticks: int,
        sensors: Mapping[str, Sensor] | None = None,
        on_tick: Callable[[CompiledGraph, int], Any] | None = None,
    ) -> int:
        """Moves on by ticks, feeding sensors: what a sensor gives for a tick is what that tick computes with.

        A sensor is an iterable of arrays, or a function of the time; None, or the end of an iterable, leaves it as it is.
        `on_tick(graph, time)` is called after every tick.
        """
        feeds = {name: _feed(source) for name, source in (sensors or {}).items()}
        with self._lock:
            self._ready()
            if self._time == 0:
                self._take(feeds)
            for _ in range(ticks if feeds or on_tick else 0):
                self.step()
                self._take(feeds)
                if on_tick is not None:
                    on_tick(self, self._time)
            return self._time if feeds or on_tick else self.step(ticks)

    def _take(self, feeds: Mapping[str, Callable[[int], Any]]) -> None:
        for name, feed in feeds.items():
            value = feed(self._time)
            if value is not None:
                self.write(name, value)

    # values

    @property
    def names(self) -> tuple[str, ...]:
        """The names that `read` knows."""
        return (*self._states, *self._clockwork.probes)

    def read(self, name: str, copy: bool = True) -> np.ndarray:
        """The current value of a field, sensor, actuator or probe: a copy, or without `copy` a view that cannot be written."""
        with self._lock:
            self._ready()
            if name in self._states:
                array = self._current[name]
            elif name in self._clockwork.probes:
                array = self._observe()[name]
            else:
                known = ", ".join(self.names) or "none"
                raise CallError(Diagnostic(f'@{self.graph.name} has nothing to read named "{name}": it has {known}; '
                                           f'cog.probe "{name}" %value gives a computed field a name', self.graph.span, "graph.read"))  # fmt: skip
            if copy:
                return array.copy()
            view = array.view()
            view.flags.writeable = False
            return view

    def write(self, name: str, value: Any) -> None:
        """Replaces the current value of a field or sensor."""
        with self._lock:
            self._ready()
            state = self._states.get(name)
            if state is None or not state.writable:
                known = ", ".join(s.name for s in self._states.values() if s.writable) or "none"
                raise CallError(Diagnostic(f'@{self.graph.name} has no field or sensor "{name}" to write; it has {known}', self.graph.span, "graph.write"))
            self._current[name][...] = self._value(state, value)
            self._observed = None

    def _value(self, state: State, value: Any) -> np.ndarray:
        wanted = state.value.known_type
        try:
            array = array_of(value, wanted)
            if array.shape != state.initial.shape:
                raise ValueError(f"expected {wanted}, an array of shape {list(state.initial.shape)}, got shape {list(array.shape)}")
        except ValueError as e:
            raise CallError(Diagnostic(f'"{state.name}": {e}', state.value.span, "graph.value")) from None
        return array

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the time and all state to an .npz file."""
        with self._lock:
            self._ready()
            with open(path, "wb") as file:
                arrays: dict[str, Any] = {f"state.{n}": a for n, a in self._current.items()}
                np.savez(file, time=np.int64(self._time), **arrays)

    def load(self, path: str | PathLike[str]) -> None:
        """Takes the time and all state from a file that `save` wrote for this graph."""
        try:
            with np.load(path, allow_pickle=False) as file:
                held = {n: file[n] for n in file.files}
        except Exception as e:
            raise CallError(f"the state cannot be read from {path}: {str(e).splitlines()[0] if str(e) else type(e).__name__}") from None
        wanted = {f"state.{n}" for n in self._states} | {"time"}
        if held.keys() != wanted or held["time"].shape != () or held["time"].dtype != np.int64 or held["time"] < 0:
            raise CallError(f"{path} does not hold the state of @{self.graph.name}: expected {sorted(wanted)}, got {sorted(held)}")
        values = {s.name: self._value(s, held[f"state.{s.name}"]) for s in self._clockwork.states}
        with self._lock:
            self.reset()
            for name, value in values.items():
                self._current[name][...] = value
            self._time = int(held["time"])

    def lower(self, stage: str = "loops") -> str:
        """The graph at a stage of its lowering; beyond the graph itself, the function that advances it by a tick."""
        return self._function(self._clockwork.advance).lower(stage)

    # the machinery

    def _ready(self) -> None:
        if not self._current:
            self.reset()

    def _function(self, function: Function) -> CompiledFunction:
        if function.name not in self._functions:
            made = TickingFunction if self.target == "cpu" else TARGETS[self.target]
            self._functions[function.name] = made(self.module, function)
        return self._functions[function.name]

    def _observe(self) -> dict[str, np.ndarray]:
        if self._observed is None:
            found = self._function(self._clockwork.observe)(*self._current.values())
            self._observed = dict(zip(self._clockwork.probes, found if isinstance(found, tuple) else (found,), strict=True))
        return self._observed

    def _advance(self, n: int) -> None:
        """n ticks: from the current buffers to the spare ones and back."""
        moving = [s.name for s in self._clockwork.moving]
        function = self._function(self._clockwork.advance)
        if isinstance(function, TickingFunction):
            function.tick(self._current, self._spare, moving, n)
            if n % 2:
                self._swap(moving)
        else:
            for _ in range(n):
                function(*self._current.values(), out=tuple(self._spare[m] for m in moving))
                self._swap(moving)

    def _swap(self, names: Iterable[str]) -> None:
        for name in names:
            self._current[name], self._spare[name] = self._spare[name], self._current[name]


def _feed(source: Sensor) -> Callable[[int], Any]:
    if callable(source):
        return source
    items: Iterator[Any] = iter(source)
    return lambda time: next(items, None)


TICKS = """
define i32 @ticks(ptr %tables, ptr %sizes, ptr %workspace, i64 %n) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %odd = and i64 %i, 1
  %slot = getelementptr inbounds ptr, ptr %tables, i64 %odd
  %table = load ptr, ptr %slot
  %status = call i32 @entry(ptr %table, ptr %sizes, ptr %workspace)
  %next = add nuw nsw i64 %i, 1
  %good = icmp eq i32 %status, 0
  br i1 %good, label %head, label %failed
done:
  ret i32 0
failed:
  ret i32 %status
}
"""


class TickingFunction(NativeFunction):
    """A function whose results take the place of some of its arguments, called n times in native code.

    `tables` are two lists of pointers: from the current buffers to the spare ones, and back.
    """

    exports = {"ticks": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)}
    more_text = TICKS

    def tick(self, current: dict[str, np.ndarray], spare: dict[str, np.ndarray], moving: list[str], n: int) -> None:
        """n calls, each reading what the one before wrote; the result is in `spare` where n is odd."""
        other = {name: spare[name] if name in moving else current[name] for name in current}
        forth = [*current.values(), *(spare[m] for m in moving)]
        back = [*other.values(), *(current[m] for m in moving)]
        tables = [self.pointers(forth), self.pointers(back)]
        both = (ctypes.c_void_p * 2)(*map(ctypes.addressof, tables))
        self.report(self.library.functions["ticks"](both, None, self.workspace({}), n))
