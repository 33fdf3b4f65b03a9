"""A function on a GPU: device arrays are used without copies, host arrays are copied; constants
stay on the device.

Repeated sequences of launches over the same arrays are captured as a CUDA graph.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dialect.ir.function import Function
from ...dialect.ir.module import Module
from ...dialect.support.diagnostics import CallError, Diagnostic
from ...dialect.types.sizes import evaluate
from ...dialect.types.tensor_types import Type
from ..calls.arguments import in_order
from ..cuda.cuda_graph import Recorded, order
from ..cuda.device import Call, device
from ..cuda.device_arrays import (
    DeviceArray,
    device_array,
    disagreement,
    is_on_device,
    take_device_arguments,
)
from ..options import DEFAULT, CompileOptions
from .gpu_function import GpuFunction
from .kernel_function import PlanFunction

if TYPE_CHECKING:
    from .clocked_program import CompiledGraph

ALIGNMENT = 16  # bytes
SEEN, KEPT = 64, 8  # calls that are remembered, and those whose launches are kept recorded
DEFAULT_STREAMS = 1, 2  # which the launches come after, by themselves
TOGETHER = 32  # ticks that are recorded as one: an even number
TICKS = 10_000  # between two looks for an interrupt


class CudaFunction(GpuFunction):
    """Runs the emitted kernels."""

    target = "cuda"

    def __init__(
        self, module: Module, function: Function, options: CompileOptions = DEFAULT
    ) -> None:
        super().__init__(module, function, options)
        self.device = device()
        parameters = {
            s.name: "P" * len(s.arrays) + "q" * len(s.sizes) + "P" * s.reports
            for s in self.source.launches
        }
        self._kernels = self.device.kernels(self.source.text, parameters)
        with self.device.active():
            for s in self.source.launches:
                self.device.allow(self._kernels[s.name], s.shared)
            self._uploaded = {t: self.device.upload(a) for t, a in self._constants.items()}
        self._reports = any(launch.reports for launch in self.source.launches)
        self._seen: set[tuple[int, ...]] = set()
        self._recorded: dict[tuple[int, ...], Recorded] = {}
        self._lock = threading.Lock()

    def __call__(self, /, *arguments: Any, out: Any = None, **named: Any) -> Any:
        """Runs the function. If an argument or `out` lies on the device, so do the results."""
        arguments = in_order(self.function, arguments, named)
        if not any(
            map(is_on_device, (*arguments, *(out if isinstance(out, (tuple, list)) else [out])))
        ):
            return super().__call__(*arguments, out=out)
        return self.cuda_graph(*arguments, out=out)()

    def cuda_graph(self, /, *arguments: Any, out: Any = None, **named: Any) -> Callable[[], Any]:
        """A callable that calls the function over these arrays, whatever those of the device hold
        then, and gives the same results each time: from the second call on by one recorded CUDA
        graph, where there are several launches. The arrays are checked now, and those of the host
        copied.
        """
        if isinstance(out, (tuple, list)):
            given = list(out)
        elif out is None:
            given = []
        else:
            given = [out]
        with self.device.active():
            own = take_device_arguments(
                self.function, in_order(self.function, arguments, named), self.device
            )
            types = self._result_types(own)  # type: ignore[arg-type]  # their shapes are asked
            results = [
                *self._outputs(given, types[: self.returned]),
                *self._outputs([], types[self.returned :]),
            ]
            wanted = [device_array(r) for r in results]
        if not given:
            results = [
                own[self.overwritten[n]].owner if n in self.overwritten else r
                for n, r in enumerate(results)
            ]
        returned = tuple(results[: self.returned]) if self.returned != 1 else results[0]

        streams = {a.stream or 0 for a in (*own, *wanted)} - {0, *DEFAULT_STREAMS}

        def call() -> Any:
            with self.device.active():
                for stream in (
                    streams
                ):  # the launches come after what they hold, and before what they get later
                    order(stream, 0)
                arrays, outputs = (list(map(self._aligned, side)) for side in (own, wanted))
                for n, k in self.overwritten.items():
                    if (
                        self.plan.results[n] is self.plan.arguments[k]
                    ):  # computed in the argument's place
                        outputs[n] = arrays[k]
                self._execute(
                    [a.address for a in arrays], [o.address for o in outputs], self.sizes_of(own)
                )  # type: ignore[arg-type]
                for n, k in self.overwritten.items():
                    self._move(outputs[n], own[k])
                    if isinstance(own[k].owner, np.ndarray):
                        self.device.download(own[k].address, own[k].owner)
                for n, (output, array) in enumerate(zip(outputs, wanted, strict=True)):
                    if n < len(given) or n not in self.overwritten:
                        self._move(output, array)
                for stream in streams:
                    order(0, stream)
            return returned if out is None else out

        return call

    def _move(self, of: DeviceArray, to: DeviceArray) -> None:
        if of.address != to.address:
            self.device.copy(to.address, of.address, of.nbytes)

    def _aligned(self, array: DeviceArray) -> DeviceArray:
        """The array, or a copy of it where it does not begin at a multiple of 16 bytes: kernels
        access that many at once.
        """
        if array.address % ALIGNMENT == 0:
            return array
        memory = self.device.allocate(array.nbytes)
        self.device.copy(int(memory), array.address, array.nbytes)
        return replace(array, address=int(memory), kept=memory)

    def _outputs(self, given: list[Any], types: list[Type]) -> list[Any]:
        if not given:
            return [self.device.array(t.array_shape, t.element.dtype) for t in types]  # type: ignore[arg-type]
        if len(given) != len(types):
            text = f"@{self.function.name} has {len(types)} results, got {len(given)} arrays in out"
            raise CallError(Diagnostic(text, self.function.span, "call.out"))
        for array, type in zip(given, types, strict=True):
            here = is_on_device(array)
            if (
                said := disagreement(device_array(array), type, self.device)
                if here
                else "expected an array on the device"
            ):
                raise CallError(Diagnostic(f"out: {said}", self.function.span, "call.out"))
        return given

    def _run(self, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        """A call with arrays of the host."""
        plan = self.plan
        with self.device.active():
            held = [self.device.upload(a) for a in arrays]
            places = dict(zip(plan.arguments, held, strict=True))
            results = zip(plan.results, outputs, strict=True)
            made = [
                places[t] if t in places else self.device.allocate(o.nbytes) for t, o in results
            ]
            self._execute(list(map(int, held)), list(map(int, made)), self.sizes_of(arrays))
            for memory, output in zip(made, outputs, strict=True):
                self.device.download(int(memory), output)

    def _execute(self, arguments: list[int], results: list[int], sizes: dict[Any, int]) -> None:
        """The launches, over arrays at these addresses: one by one at first, recorded when the same
        ones come again.
        """
        key = (*arguments, *results, *sizes.values())
        with self._lock:
            if (status := self._replay(key)) is None:
                calls, workspace, status = self.calls(arguments, results, sizes)
                if (
                    not self._tests
                    and self._records(key, calls)
                    and (made := self.device.record(calls, (workspace, status))) is not None
                ):
                    self._recorded[key] = made
                    self._replay(key)
                else:
                    if not self._tests:
                        self._clear(status)
                    self.device.launch(calls)
            if self._reports:
                failure = np.zeros(1, np.int32)
                self.device.download(int(status), failure)
                self.report(int(failure[0]), self.source.requirements)

    def _records(self, key: tuple[int, ...], calls: list[Call]) -> bool:
        """Test whether to capture a call: one of several launches, at its second occurrence."""
        again = key in self._seen
        if len(self._seen) >= SEEN:
            self._seen.clear()
        (self._seen.discard if again else self._seen.add)(
            key
        )  # recorded once, whether the driver can or not
        return again and len(calls) > 1

    def _replay(self, key: tuple[int, ...]) -> Any:
        """Launch the recorded graph, if there is one, and return its status."""
        if (recorded := self._recorded.pop(key, None)) is None:
            return None
        self._recorded[key] = recorded  # now the one that was used last
        if len(self._recorded) > KEPT:
            del self._recorded[next(iter(self._recorded))]
        self._clear(recorded.kept[1])
        recorded.start()
        return recorded.kept[1]

    def calls(
        self, arguments: list[int], results: list[int], sizes: dict[Any, int]
    ) -> tuple[list[Call], Any, Any]:
        """The launches of a call (after the last step of a conditional loop), and its workspace and
        status memory.
        """
        plan = self.plan
        addresses = dict(zip((*plan.arguments, *plan.results), (*arguments, *results), strict=True))
        addresses.update({t: int(memory) for t, memory in self._uploaded.items()})
        workspace = self.device.allocate(evaluate(plan.workspace, sizes))
        status = self.device.allocate(4)
        calls: list[Call] = []
        if self._tests:
            self._clear(status)
            self.holds = lambda address: self._launch_and_test(calls, address, int(status))
        for s, n, given in self.launches(sizes, addresses, int(workspace), int(status)):
            calls.append((self._kernels[s.name], n, s.threads, given, s.shared))
        return calls, workspace, status

    def _launch_and_test(self, calls: list[Call], address: int, status: int) -> bool:
        """Test whether a condition on the device holds, and nothing has failed, after the launches
        that wait.
        """
        self.device.launch(calls)
        calls.clear()
        found, failed = np.zeros(1, np.bool_), np.zeros(1, np.int32)
        self.device.download(address, found)
        if self._reports:
            self.device.download(status, failed)
        return bool(found[0]) and not failed[0]

    def _clear(self, status: Any) -> None:
        if self._reports:
            self.device.clear(int(status), 1)


class CudaKernels(PlanFunction, CudaFunction):
    """Kernels that were given as text, on a GPU."""


class DeviceStepper(Mapping[str, np.ndarray]):
    """State that stays on a GPU between steps; arrays that were read are copied to the host before
    the state moves on.
    """

    def __init__(self, graph: "CompiledGraph") -> None:
        clockwork = graph.clockwork
        self.arrays = {s.name: np.empty(s.initial.shape, s.initial.dtype) for s in clockwork.states}
        self.here = set(self.arrays)  # those that were read since the state moved on
        self.moving = [n for n, s in enumerate(clockwork.states) if s in clockwork.moving]
        self.function: Any = graph.function(clockwork.advance)  # a CudaFunction
        self.device = self.function.device
        state = list(self.arrays.values())
        with self.device.active():
            self.places = {name: self.device.allocate(a.nbytes) for name, a in self.arrays.items()}
            self.spare = [self.device.allocate(state[k].nbytes) for k in self.moving]
        self.recorded: dict[tuple[int, ...], Recorded | None] = {}

    @property
    def current(self) -> Mapping[str, np.ndarray]:
        return self

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.here:
            with self.device.active():
                self.device.download(int(self.places[name]), self.arrays[name])
            self.here.add(name)
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def move(self, ticks: int) -> int:
        n = min(ticks, TICKS)
        with self.device.active():
            for name in self.here:
                self.device.write(int(self.places[name]), self.arrays[name])
            self.here.clear()
            many = self._many() if n > TOGETHER else None
            for _ in range(n // TOGETHER if many is not None else 0):
                many.start()  # type: ignore[union-attr]
            for _ in range(n % TOGETHER if many is not None else n):
                calls, *_kept = self._tick()
                self.device.launch(calls)
        return n

    def _many(self) -> Recorded | None:
        """TOGETHER ticks recorded, after which every array is where it was."""
        if (key := tuple(map(int, self.places.values()))) not in self.recorded:
            ticks = [self._tick() for _ in range(TOGETHER)]
            self.recorded[key] = self.device.record(
                [c for calls, *_ in ticks for c in calls], ticks
            )
        return self.recorded[key]

    def _tick(self) -> tuple[list[Call], Any, Any]:
        calls = self.function.calls(
            list(map(int, self.places.values())), list(map(int, self.spare)), {}
        )
        names = list(self.places)
        for n, k in enumerate(self.moving):
            self.places[names[k]], self.spare[n] = self.spare[n], self.places[names[k]]
        return calls
