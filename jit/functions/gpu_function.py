"""A function on a real or simulated GPU: its launches in order, with the arrays and sizes of a
call.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np

from ...dialect.ir.function import Function
from ...dialect.ir.module import Module
from ...dialect.kernel_ir.execution_plan import Loop, Plan
from ...dialect.kernel_ir.expressions import Tensor
from ...dialect.kernel_ir.loops import Kernel
from ...dialect.support.diagnostics import CallError
from ...dialect.types.sizes import Size, evaluate
from ...lowering.analysis.count_operations import kernel_cost
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
SAMPLE = 1 << 13  # threads whose blocks stand for all of a grid when their work is counted


class GpuFunction(CompiledFunction):
    """The parts of a GPU function that real and simulated devices share."""

    source: Source

    def __init__(
        self, module: Module, function: Function, options: CompileOptions = DEFAULT
    ) -> None:
        super().__init__(module, function, options)
        loops = [k for p in self.plan.plans for k in p.kernels if isinstance(k, Loop)]
        self._tests = any(
            k.steps.trips is None for k in loops
        )  # whether launches depend on what others compute
        steps = [d for k in loops for t in k.parameters for d in t.shape]
        atoms = {atom for launch in self.source.launches for atom in launch.sizes}
        atoms = atoms.union(
            *(d.atoms() for d in (self.plan.workspace, *steps) if isinstance(d, Size))
        )
        self._size_places = {atom: size_place(function, atom) for atom in atoms}
        plan = self.plan
        self._workspace = plan.workspace
        read = {p.home.get(t, t) for p in plan.plans for k in p.kernels for t in k.parameters}
        self._constants = {t: np.ascontiguousarray(a) for t, a in plan.data.items() if t in read}

    def launches(
        self,
        sizes: Mapping[object, int],
        addresses: Mapping[Tensor, int],
        workspace: int,
        status: int,
    ) -> Iterator[tuple[Launch, int, list[int]]]:
        """Each launch with its number of blocks and its arguments; those without work are left
        out.
        """
        launch_of = dict(zip(self.plan.all_kernels, self.source.launches, strict=True))
        yield from self._launches_of(self.plan, launch_of, sizes, addresses, workspace, status)

    def _launches_of(
        self,
        plan: Plan,
        launch_of: Mapping[Kernel, Launch],
        sizes: Mapping[Any, int],
        addresses: Mapping[Tensor, int],
        workspace: int,
        status: int,
    ) -> Iterator[tuple[Launch, int, list[int]]]:
        def address(tensor: Tensor) -> int:
            home = plan.home.get(tensor, tensor)
            return (
                addresses[home]
                if home in addresses
                else workspace + evaluate(plan.offsets[home], sizes)
            )

        for kernel in plan.kernels:
            if isinstance(kernel, Loop):
                memory = {t: address(t) for t in (*kernel.parameters, *kernel.scratch)}
                for known in steps_of(kernel, memory, sizes, self.holds):
                    inner = memory[kernel.scratch[-1]]
                    yield from self._launches_of(
                        kernel.plan, launch_of, sizes, {**addresses, **known}, inner, status
                    )
                continue
            launch = launch_of[kernel]
            if (work := 1 if launch.work is None else evaluate(launch.work, sizes)) <= 0:
                continue
            given = [*map(address, launch.arrays)]
            given += [sizes[atom] for atom in launch.sizes]
            yield (
                launch,
                min(-(-work // launch.threads), MOST_BLOCKS),
                [*given, status] if launch.reports else given,
            )

    holds: Callable[[int], bool]  # the truth value at an address, once all launches so far are done


def steps_of(
    loop: Loop, memory: Mapping[Tensor, int], sizes: Mapping[Any, int], holds: Callable[[int], bool]
) -> Iterator[dict[Tensor, int]]:
    """The addresses of the arguments and results of a loop's plan at each of its steps."""
    plan, steps = loop.plan, loop.steps
    given = [memory[loop.parameters[n]] for n in loop.operands]
    results = [memory[t] for t in loop.outputs]
    spares = [memory[t] for t in loop.scratch[:-1]]
    first = int(steps.trips is None)
    for n in loop.in_place:
        spares[n + first] = results[n]
    if steps.trips is None:
        known = dict(
            zip((*plan.arguments, *plan.results), (*results, *given[1:], *spares), strict=True)
        )
        go = holds(given[0])
        while go:
            yield known
            go = holds(spares[0])
        return
    count = evaluate(steps.trips, sizes)
    carry = steps.carry
    shared = steps.carry + steps.scan

    def slice(at: int, of: Tensor, t: int) -> int:
        return at + t * evaluate(of.bytes, sizes)

    for k in range(count):
        left = count - 1 - k
        t = left if steps.reverse else k
        out, other = (spares, results[:carry]) if left % 2 else (results[:carry], spares)
        carried = other if k else given[:carry]
        scanned = [
            slice(at, of, t)
            for at, of in zip(given[carry:shared], plan.arguments[carry:shared], strict=True)
        ]
        collected = [
            slice(at, of, t) for at, of in zip(results[carry:], plan.results[carry:], strict=True)
        ]
        passed = (*carried, *scanned, *given[shared:], *out, *collected)
        yield dict(zip((*plan.arguments, *plan.results), passed, strict=True))


class SimulatedFunction(GpuFunction):
    """Runs the emitted kernels without a GPU: compiled to PTX, which is executed in NumPy, every
    access checked.
    """

    target = "cuda-sim"

    @cached_property
    def _entries(self) -> dict[str, Entry]:
        return parse(nvrtc.ptx(self.source)) if self.source.launches else {}

    def _run(self, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        self.simulate(arrays, outputs, Memory())

    def simulate(
        self,
        arrays: list[np.ndarray],
        outputs: list[np.ndarray],
        memory: Memory,
        run: Callable[..., None] = emulate,
    ) -> None:
        """Runs a call in a memory, which then holds its statistics, if it keeps any; `run` runs a
        kernel.
        """
        plan = self.plan
        sizes = self.sizes_of(arrays)
        given = dict(zip(plan.arguments, arrays, strict=True)) | self._constants
        addresses = {t: memory.give(a) for t, a in given.items()}
        for tensor, output in zip(plan.results, outputs, strict=True):
            if tensor not in addresses:  # one that is computed in an argument's storage
                addresses[tensor] = memory.give(np.full(output.nbytes, GARBAGE, np.uint8))
        workspace = memory.give(np.full(evaluate(plan.workspace, sizes), GARBAGE, np.uint8))
        status = np.zeros(1, np.int32)
        reported = memory.give(status)
        self.holds = lambda address: bool(memory.view(address, 1)[0])
        for launch, blocks, given in self.launches(sizes, addresses, workspace, reported):
            run(
                self._entries[launch.name],
                blocks,
                launch.threads,
                given,
                memory,
                shared=launch.shared,
            )
        memory.take(reported, status)
        self.report(int(status[0]), self.source.requirements)
        for tensor, output in zip(plan.results, outputs, strict=True):
            memory.take(addresses[tensor], output)

    def counted(self, arrays: list[np.ndarray]) -> list[dict[str, Any]]:
        """For each kernel of a call `name`, `launches`, `blocks`, `threads`, the bytes of its
        arrays that it accesses, and `counts`, those of the memory's statistics, of a launch: of
        blocks from the middle of its grid, for all of them; really of all where launches depend on
        what others compute.
        """
        kernels = {
            s.name: k for k, s in zip(self.plan.all_kernels, self.source.launches, strict=True)
        }
        sizes, found = self.sizes_of(arrays), dict[tuple[str, int], dict[str, Any]]()

        def count(
            entry: Entry,
            blocks: int,
            threads: int,
            given: Sequence[int],
            memory: Memory,
            shared: int,
        ) -> None:
            row = {
                "name": kernels[entry.name].name,
                "launches": 0,
                "blocks": blocks,
                "threads": threads,
            }
            row = found.setdefault((entry.name, blocks), row)
            row["launches"] += 1
            if "counts" not in row or self._tests:
                memory.statistics = Counter()
                some = blocks if self._tests else min(blocks, max(1, SAMPLE // threads))
                first = (blocks - some) // 2
                emulate(entry, blocks, threads, given, memory, range(first, first + some), shared)
                row["bytes"] = kernel_cost(kernels[entry.name], sizes).bytes
                row["counts"] = Counter(
                    {name: round(n * blocks / some) for name, n in memory.statistics.items()}
                )

        outputs = [np.empty(t.array_shape, t.element.dtype) for t in self._result_types(arrays)]  # type: ignore[arg-type]
        with suppress(CallError):  # of checks on what no block has computed
            self.simulate(arrays, outputs, Memory(count_transactions=True), count)
        return list(found.values())
