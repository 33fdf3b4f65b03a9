"""A function on a real or simulated GPU: its launches in order, with the arrays and sizes of a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from ...dialect.ir.diagnostics import CallError, Diagnostic
from ...dialect.ir.sizes import evaluate
from ...dialect.notation.expressions import Tensor
from ...dialect.program.function import Function
from ...dialect.program.module import Module
from ..calls.arguments import size_place
from ..cuda import nvrtc
from ..cuda.emit import Launch, Source
from ..cuda.emulator.memory import Memory
from ..cuda.emulator.ptx import Entry, parse
from ..cuda.emulator.run_grid import launch as emulate
from ..options import DEFAULT, CompileOptions
from .compiled_function import CompiledFunction

MOST_BLOCKS = 1 << 22  # of a launch: a grid beyond strides
GARBAGE = 0xA5  # what fills memory that nobody has written


class GpuFunction(CompiledFunction):
    """The parts of a GPU function that real and simulated devices share."""

    source: Source

    def __init__(self, module: Module, function: Function, options: CompileOptions = DEFAULT) -> None:
        super().__init__(module, function, options)
        atoms = {atom for launch in self.source.launches for atom in launch.sizes} | _atoms_of(self.plan.workspace)
        self._size_places = {atom: size_place(function, atom) for atom in atoms}
        plan = self.plan
        read = {plan.home.get(t, t) for launch in self.source.launches for t in launch.arrays}
        self._constants = {t: np.ascontiguousarray(a) for t, a in plan.constants.items() if t in read}

    def sizes(self, arrays: list[np.ndarray]) -> dict[Any, int]:
        """The sizes that were unknown while compiling."""
        return {atom: arrays[n].shape[axis] for atom, (n, axis) in self._size_places.items()}

    def launches(
        self, sizes: Mapping[Any, int], addresses: Mapping[Tensor, int], workspace: int, status: int
    ) -> Iterator[tuple[Launch, int, list[int]]]:
        """Each launch with its number of blocks and its arguments; those without work are left out."""
        plan = self.plan
        for launch in self.source.launches:
            work = 1 if launch.work is None else evaluate(launch.work, sizes)
            if work <= 0:
                continue
            homes = [plan.home.get(t, t) for t in launch.arrays]
            given = [addresses[h] if h in addresses else workspace + evaluate(plan.offsets[h], sizes) for h in homes]
            given += [sizes[atom] for atom in launch.sizes]
            yield launch, min(-(-work // launch.threads), MOST_BLOCKS), [*given, status] if launch.reports else given

    def report(self, status: int) -> None:
        """Raises CallError for the requirement that a status names."""
        if status:
            message, span = self.source.requirements[status - 1]
            raise CallError(Diagnostic(message, span, "run"))


def _atoms_of(dim: Any) -> set[tuple[object, ...]]:
    return set() if isinstance(dim, int) else dim.atoms()


class SimulatedFunction(GpuFunction):
    """Runs the emitted kernels without a GPU: compiled to PTX, which is executed in NumPy, every access checked."""

    target = "cuda-sim"

    @cached_property
    def _entries(self) -> dict[str, Entry]:
        return parse(nvrtc.ptx(self.source)) if self.source.launches else {}

    def _run(self, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        self.simulate(arrays, outputs, Memory())

    def simulate(self, arrays: list[np.ndarray], outputs: list[np.ndarray], memory: Memory) -> None:
        """Runs a call in a memory, which then holds its statistics, if it keeps any."""
        plan, sizes = self.plan, self.sizes(arrays)
        addresses = {
            t: memory.give(a) for t, a in (*zip(plan.arguments, arrays, strict=True), *self._constants.items())
        }
        for tensor, output in zip(plan.results, outputs, strict=True):
            if tensor not in addresses:  # one that is computed in an argument's storage
                addresses[tensor] = memory.give(np.full(output.nbytes, GARBAGE, np.uint8))
        workspace = memory.give(np.full(evaluate(plan.workspace, sizes), GARBAGE, np.uint8))
        status = np.zeros(1, np.int32)
        reported = memory.give(status)
        for launch, blocks, given in self.launches(sizes, addresses, workspace, reported):
            emulate(self._entries[launch.name], blocks, launch.threads, given, memory)
        memory.take(reported, status)
        self.report(int(status[0]))
        for tensor, output in zip(plan.results, outputs, strict=True):
            memory.take(addresses[tensor], output)
