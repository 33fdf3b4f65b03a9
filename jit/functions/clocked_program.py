"""A compiled clocked program: holds state, advances it by ticks of native code, and accesses it by
name.
"""

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from io import BytesIO
from os import PathLike
from types import NoneType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ...dialect.cog.clocked import warnings as graph_warnings
from ...dialect.ir.function import Function, Graph
from ...dialect.ir.module import Module
from ...dialect.kernel_ir.kernel_printer import plan_text
from ...dialect.support.array_files import read_arrays
from ...dialect.support.compilation_context import compiling
from ...dialect.support.diagnostics import CallError, Diagnostic, TargetError
from ...dialect.support.files import write_file
from ...dialect.support.fp_environment import DefaultFpEnvironment
from ...dialect.support.limits import LIMITS, excess
from ...lowering.clocked_plan import StepPlan
from ...lowering.pipeline import lower_step
from ...lowering.processor import compiling_for
from ...lowering.stages import STAGES
from ...lowering.stepping.split_step_and_observe import State, split_step_and_observe
from ..calls.arguments import array_of
from ..host_processor import check_runs_here
from ..options import DEFAULT, CompileOptions, Stage
from ..targets import find_target, target_of_stage
from .compiled_function import CompiledFunction
from .steppers import Stepper

if TYPE_CHECKING:
    from ...lowering.analysis.count_operations import Cost

Sensor = Iterable[object] | Callable[[int], object]


class CompiledGraph:
    """A clocked program on one target: it has state, and moves by ticks.

    A graph that was never reset resets itself first; time counts ticks since the reset. It may be
    used from several threads, one at a time; when pickled, it leaves its state behind.
    """

    def __init__(
        self, module: Module, graph: Graph, target: str = "cpu", options: CompileOptions = DEFAULT
    ) -> None:
        self.module = module
        self.graph = graph
        self.target = target
        if target == "cpu":
            check_runs_here(options.cpu)
        self.options = options
        with compiling():
            self.clockwork = split_step_and_observe(module, graph)
        if (needed := sum(s.initial.nbytes for s in self.clockwork.states)) > LIMITS.get().memory:
            raise TargetError(Diagnostic(excess("memory", needed), graph.span, "limit.memory"))
        self._states = {s.name: s for s in self.clockwork.states}
        self._functions: dict[str, CompiledFunction] = {}
        self._stepper: Stepper | None = None
        self._observed: dict[str, np.ndarray] | None = None
        self._time = 0
        self._lock = threading.RLock()
        for warning in graph_warnings(graph):
            warnings.warn(str(warning), stacklevel=4)

    def __repr__(self) -> str:
        return f"<cvm graph @{self.graph.name} on {self.target}, tick {self._time}>"

    def __call__(self, *arguments: object, **named: object) -> NoReturn:
        """Refuse to call a graph, and name its methods."""
        ways = [f'write("{s.name}", value)' for s in self.writable[:1]]
        ways += ["step(ticks)", *(f'read("{name}")' for name in self.names[:1])]
        message = (
            f"@{self.graph.name} is a graph, which is not called but moves by ticks: "
            f"{', '.join(ways)}"
        )
        raise CallError(Diagnostic(message, self.graph.span, "graph.call"))

    def __reduce__(self) -> tuple[object, ...]:
        return CompiledGraph, (self.module, self.graph, self.target, self.options)

    # time

    def reset(self) -> int:
        """Give every field its initial value, sensors zero, and set the time to 0, which is
        returned.
        """
        with self._lock:
            if self._stepper is None:
                with compiling(), compiling_for(self.options.cpu):
                    self._stepper = find_target(self.target).stepper(self)
            for s in self.clockwork.states:
                self._stepper.current[s.name][...] = s.initial
            self._time = 0
            self._observed = None
            return 0

    def step(self, n: int = 1) -> int:
        """Advance by `n` ticks in one call of machine code; return the time afterwards.

        Args:
            n: The number of ticks, 0 or more.
        """
        ticks = n if n.__class__ is int and n >= 0 else _ticks(n)
        with self._lock:
            stepper = self._stepper or self._ready()
            if ticks:
                self._observed = None
            while ticks:
                done = stepper.move(ticks)
                self._time += done
                ticks -= done
            return self._time

    def time(self) -> int:
        """Return the number of ticks since the reset."""
        return self._time

    def run(
        self,
        ticks: int,
        sensors: Mapping[str, Sensor] | None = None,
        on_tick: "Callable[[CompiledGraph, int], Any] | None" = None,
    ) -> int:
        """Advance by ticks while feeding sensors; return the time afterwards.

        Args:
            ticks: The number of ticks.
            sensors: For each sensor by name an iterable of arrays, one for each tick, or a function
                of
                the time. None, or the end of the iterable, leaves the sensor as it is. A tick
                computes
                with the values that are fed for it.
            on_tick: A function `on_tick(graph, time)` that is called after every tick.

        Raises:
            CallError: There is no such sensor, or a value has another shape or element type.
        """
        ticks = _ticks(ticks)
        if not isinstance(sensors, (Mapping, NoneType)):
            raise CallError(
                f"sensors are a dict of names and what feeds them, got {type(sensors).__name__}"
            )
        if on_tick is not None and not callable(on_tick):
            raise CallError(
                f"on_tick is a function of the graph and the time, got {type(on_tick).__name__}"
            )
        feeds = {name: _feed(name, source) for name, source in (sensors or {}).items()}
        with self._lock:
            self._ready()
            for name in feeds:
                self._writable(name)
            if self._time == 0:
                self._take(feeds)
            for _ in range(ticks if feeds or on_tick else 0):
                self.step()
                self._take(feeds)
                if on_tick is not None:
                    on_tick(self, self._time)
            return self._time if feeds or on_tick else self.step(ticks)

    def _take(self, feeds: Mapping[str, Callable[[int], object]]) -> None:
        for name, feed in feeds.items():
            if (value := feed(self._time)) is not None:
                self.write(name, value)

    # values

    @property
    def names(self) -> tuple[str, ...]:
        """The names that `read` accepts."""
        return (*self._states, *self.clockwork.probes)

    @property
    def writable(self) -> tuple[State, ...]:
        """The fields and sensors."""
        return tuple(s for s in self._states.values() if s.writable)

    def read(self, name: str, copy: bool = True) -> np.ndarray:
        """Return the current value of a field, sensor, actuator or probe.

        Args:
            name: The name in quotes of the program.
            copy: Return a copy; otherwise a read-only view, valid until the next step.

        Raises:
            CallError: There is nothing of that name.
        """
        with self._lock:
            if isinstance(name, str) and name in self._states:
                array = self._ready().current[name]
            elif isinstance(name, str) and name in self.clockwork.probes:
                array = self._observe()[name]
            else:
                known = ", ".join(self.names) or "none"
                message = (
                    f'@{self.graph.name} has nothing to read named "{name}": it has {known}; '
                    f'cog.probe "{name}" %value gives a computed field a name'
                )
                raise CallError(Diagnostic(message, self.graph.span, "graph.read"))
            if copy:
                return array.copy()
            view = array.view()
            view.flags.writeable = False
            return view

    @DefaultFpEnvironment()
    def write(self, name: str, value: Any) -> None:
        """Replace the current value of a field or sensor.

        Args:
            name: The name in quotes of the program.
            value: An array of the field's shape followed by the tensor's.

        Raises:
            CallError: There is no such field, or the value has another shape or element type.
        """
        with self._lock:
            self._ready().current[name][...] = self._value(self._writable(name), value)
            self._observed = None

    def _writable(self, name: str) -> State:
        if (
            state := self._states.get(name) if isinstance(name, str) else None
        ) is None or not state.writable:
            known = ", ".join(s.name for s in self.writable) or "none"
            message = f'@{self.graph.name} has no field or sensor "{name}" to write; it has {known}'
            raise CallError(Diagnostic(message, self.graph.span, "graph.write"))
        return state

    def _value(self, state: State, value: object) -> np.ndarray:
        wanted = state.value.known_type
        try:
            array = array_of(value, wanted)
            if array.shape != state.initial.shape:
                shape = list(state.initial.shape)
                raise ValueError(
                    f"expected {wanted}, an array of shape {shape}, got shape {list(array.shape)}"
                )
        except ValueError as e:
            raise CallError(
                Diagnostic(f'"{state.name}": {e}', state.value.span, "graph.value")
            ) from None
        return array

    def save(self, path: str | PathLike[str]) -> None:
        """Write the time and all state to an `.npz` file.

        Args:
            path: The file, which is replaced if it exists.

        Raises:
            CallError: The file cannot be written.
        """
        with self._lock:
            arrays: dict[str, Any] = {f"state.{n}": a for n, a in self._ready().current.items()}
            try:
                np.savez(file := BytesIO(), time=np.int64(self._time), **arrays)
                write_file(_path(path), file.getbuffer())
            except OSError as e:
                raise CallError(
                    f"the state cannot be written to {path}: {(e.strerror or str(e)).lower()}"
                ) from None
            except ValueError as e:  # a name that no file can have
                raise CallError(f"the state cannot be written to {path!r}: {e}") from None

    def load(self, path: str | PathLike[str]) -> None:
        """Restore the time and all state from a file that `save` wrote for this graph.

        Args:
            path: The file.

        Raises:
            CallError: The file cannot be read, or holds the state of another graph.
        """
        path = _path(path)
        try:
            if not isinstance(held := read_arrays(path), dict):
                raise ValueError("it is no .npz file")
        except OSError as e:
            raise CallError(
                f"the state cannot be read from {path}: {(e.strerror or str(e)).lower()}"
            ) from None
        except Exception as e:  # a damaged file raises whatever NumPy and zipfile come upon
            why = str(e).splitlines()[0] if str(e) else type(e).__name__
            raise CallError(f"the state cannot be read from {path!r}: {why}") from None
        wanted = {f"state.{n}" for n in self._states} | {"time"}
        message = f"{path} does not hold the state of @{self.graph.name}"
        if held.keys() != wanted:
            raise CallError(f"{message}: expected {sorted(wanted)}, got {sorted(held)}")
        time = held["time"]
        if time.shape != () or time.dtype != np.int64 or time < 0:
            raise CallError(f"{message}: expected a time of 0 or more ticks, got {time.tolist()!r}")
        values = {s.name: self._value(s, held[f"state.{s.name}"]) for s in self.clockwork.states}
        with self._lock:
            self.reset()
            for name, value in values.items():
                self._ready().current[name][...] = value
            self._time = int(time)

    @DefaultFpEnvironment()
    def lower(self, stage: Stage = "loops") -> str:
        """Return the graph at a stage of its lowering, as text; below the graph, the function of a
        tick.

        Args:
            stage: As for `CompiledFunction.lower`.
        """
        optimize = self.options.optimize > 0
        with compiling_for(self.options.cpu):
            if optimize and stage in ("loops", "schedule"):
                scheduled = stage == "schedule"
                tick = (
                    self.step_plan
                    if scheduled
                    else lower_step(self.module, self.clockwork, scheduled=False)
                )
                return plan_text(*tick.plans)
            if (
                optimize
                and stage not in STAGES
                and (target := target_of_stage(stage)).emit_steps is not None
            ):
                return target.stages[stage](target.emit_steps(self.step_plan), self.options)
            return self.function(self.clockwork.advance).lower(stage)

    def cost(self, by: str = "kernel") -> "Cost":
        """Count the operations and bytes of a tick, exactly.

        Args:
            by: `"kernel"`, or `"operation"` for each operation by its formula.
        """
        from ...lowering.analysis.count_operations import cost

        if by == "kernel" and self.options.optimize:
            with compiling_for(self.options.cpu):
                return cost(self.step_plan.plan)
        return self.function(self.clockwork.advance).cost(by)

    # compiled code

    def _ready(self) -> Stepper:
        if self._stepper is None:
            self.reset()
        assert self._stepper is not None
        return self._stepper

    @cached_property
    def step_plan(self) -> StepPlan:
        """The kernels of a tick, and of several at once."""
        return lower_step(self.module, self.clockwork, checks=self.options.sanitize)

    @compiling()
    def function(self, function: Function) -> CompiledFunction:
        """Compile one of the program's functions for its target."""
        if function.name not in self._functions:
            target = find_target(self.target)
            with compiling_for(self.options.cpu):
                self._functions[function.name] = target.compile(self.module, function, self.options)
        return self._functions[function.name]

    def _observe(self) -> dict[str, np.ndarray]:
        if self._observed is None:
            probes = self.function(self.clockwork.observe)(*self._ready().current.values())
            values = probes if isinstance(probes, tuple) else (probes,)
            self._observed = dict(zip(self.clockwork.probes, values, strict=True))
        return self._observed


def _ticks(n: object) -> int:
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
        raise CallError(f"expected a number of ticks, 0 or more, got {n!r}")
    return int(n)


def _path(path: object) -> str:
    if not isinstance(path, (str, PathLike)):
        raise CallError(
            f"the state is written to a file and read from one, expected its path, got {path!r}"
        )
    return os.fspath(path)


def _feed(name: str, source: Sensor) -> Callable[[int], Any]:
    if callable(source):
        return source
    if not isinstance(source, Iterable):
        message = (
            f'the sensor "{name}" is fed by an iterable or a function of the time, got '
            f"{type(source).__name__}"
        )
        raise CallError(message)
    items = iter(source)
    return lambda time: next(items, None)
