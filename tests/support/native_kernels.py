"""Kernels of the loop language run natively, to be held against `evaluate.execute`."""

from __future__ import annotations

import ctypes
from collections.abc import Collection

import numpy as np
from cvm.dialect.kernel_ir.execution_plan import Plan
from cvm.dialect.kernel_ir.expressions import Tensor
from cvm.dialect.kernel_ir.loops import Block, Kernel
from cvm.dialect.types.sizes import Shape, Size, evaluate
from cvm.dialect.types.tensor_types import ElementType
from cvm.jit.functions.native_function import ENTRY
from cvm.jit.llvm.emit import emit_plans
from cvm.jit.llvm.native_code import Library, complete
from cvm.jit.runtime.thread_pool import imports
from cvm.lowering.loops.legalize_types import legalize_types
from cvm.lowering.storage.place_buffers import place_buffers


def tensor(name: str, element: ElementType, *shape: int | Size, space: str = "argument") -> Tensor:
    return Tensor(name, shape, element, space)


def kernel(body: Block, *parameters: Tensor, results: int = 1) -> Kernel:
    return Kernel("k", parameters, body, results)


class MachineCode:
    """A kernel compiled, to be run on any number of operands; `failure` says what the last run
    found wrong.

    Functions that processors have an instruction for are defined for one of these `features`, by
    default this machine's.
    """

    def __init__(self, kernel: Kernel, features: Collection[str] | None = None) -> None:
        self.inputs, self.outputs = kernel.inputs, kernel.outputs
        self.plan = place_buffers(
            legalize_types(Plan("k", self.inputs, self.outputs, {}, (kernel,)))
        )
        self.text = emit_plans(self.plan)
        needed = imports() if self.text.module.is_parallel else {}
        self.library = Library(
            complete(self.text.module, features), {"entry": ENTRY}, imports=needed
        )
        self.failure = ""

    def __call__(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        known: dict[tuple[object, ...], int] = {}
        for parameter, array in zip(self.inputs, operands, strict=True):
            assert array.flags.c_contiguous and array.dtype == parameter.element.dtype
            for d, n in zip(parameter.shape, array.shape, strict=True):
                if isinstance(d, Size) and d.is_atom:
                    known[d.terms[0][0]] = n
        arrays = [np.zeros(shape(o.shape, known), o.element.dtype) for o in self.outputs]
        pointers = (ctypes.c_void_p * (len(operands) + len(arrays)))(
            *(a.ctypes.data for a in (*operands, *arrays))
        )
        sizes = (ctypes.c_int64 * len(self.text.sizes))(*(known[atom] for atom in self.text.sizes))
        workspace = np.zeros(evaluate(self.plan.workspace, known) + 64, np.uint8)
        status = self.library.functions["entry"](
            pointers, sizes, (workspace.ctypes.data + 63) // 64 * 64
        )
        self.failure = self.text.requirements[status - 1][0] if status else ""
        return tuple(arrays)


def compiled(
    kernel: Kernel,
    *operands: np.ndarray,
    report: list[str] | None = None,
    features: Collection[str] | None = None,
) -> tuple[np.ndarray, ...]:
    """The results of a kernel's machine code."""
    code = MachineCode(kernel, features)
    results = code(*operands)
    if report is not None and code.failure:
        report.append(code.failure)
    return results


def shape(dims: Shape, known: dict[tuple[object, ...], int]) -> tuple[int, ...]:
    return tuple(evaluate(d, known) for d in dims)
