"""Kernels of the loop language as CUDA C, compiled by NVRTC and run by the emulator."""

from __future__ import annotations

import numpy as np
import pytest
from cvm.dialect.kernel_ir.execution_plan import Plan
from cvm.dialect.kernel_ir.loops import Kernel
from cvm.dialect.types.sizes import Size, evaluate
from cvm.jit.cuda import nvrtc
from cvm.jit.cuda.emit import Source, emit
from cvm.jit.cuda.emulator.memory import Memory
from cvm.jit.cuda.emulator.ptx import parse
from cvm.jit.cuda.emulator.run_grid import launch
from cvm.lowering.pipeline import schedule_for_gpu

needs_nvrtc = pytest.mark.skipif(
    bool(nvrtc.missing()), reason=f"NVRTC is not installed: {nvrtc.HOW}"
)


def plan_of(kernel: Kernel) -> Plan:
    return schedule_for_gpu(Plan("k", kernel.inputs, kernel.outputs, {}, (kernel,)))


def simulated(
    kernel: Kernel,
    *operands: np.ndarray,
    report: list[str] | None = None,
    memory: Memory | None = None,
) -> tuple[np.ndarray, ...]:
    """The results of a kernel on a simulated GPU."""
    plan = plan_of(kernel)
    return run(plan, emit(plan), *operands, report=report, memory=memory)


def run(
    plan: Plan,
    source: Source,
    *operands: np.ndarray,
    report: list[str] | None = None,
    memory: Memory | None = None,
) -> tuple[np.ndarray, ...]:
    """The results of a plan whose source may be another than what was emitted."""
    known: dict[tuple[object, ...], int] = {}
    for parameter, array in zip(plan.arguments, operands, strict=True):
        for d, n in zip(parameter.shape, array.shape, strict=True):
            if isinstance(d, Size) and d.is_atom:
                known[d.terms[0][0]] = n
    memory = memory or Memory()
    outputs = [
        np.zeros([evaluate(d, known) for d in t.shape], t.element.dtype) for t in plan.results
    ]
    arrays = [*zip(plan.arguments, operands, strict=True), *zip(plan.results, outputs, strict=True)]
    places = {t: memory.give(a) for t, a in arrays}
    workspace = memory.give(np.zeros(evaluate(plan.workspace, known), np.uint8))
    for t, offset in plan.offsets.items():
        places[t] = workspace + evaluate(offset, known)
    status = np.zeros(1, np.int32)
    reported = memory.give(status)
    entries = parse(nvrtc.compile_source(source.text).decode())
    for step in source.launches:
        work = 1 if step.work is None else evaluate(step.work, known)
        given = [places[plan.home.get(t, t)] for t in step.arrays] + [known[a] for a in step.sizes]
        given += [reported] if step.reports else []
        if work:
            launch(
                entries[step.name],
                -(-work // step.threads),
                step.threads,
                given,
                memory,
                shared=step.shared,
            )
    for t, array in zip(plan.results, outputs, strict=True):
        memory.take(places[t], array)
    memory.take(reported, status)
    if report is not None and status[0]:
        report.append(source.requirements[int(status[0]) - 1][0])
    return tuple(outputs)
