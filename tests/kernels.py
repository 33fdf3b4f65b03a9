"""Kernels of the loop language run natively, to be held against `evaluate.execute`."""

from __future__ import annotations

import ctypes

import numpy as np
from cvm.dialect.index import Tensor
from cvm.dialect.loops import Block, Kernel
from cvm.dialect.sizes import Shape, Size, evaluate
from cvm.dialect.types import ElementType
from cvm.jit.llvm import emit
from cvm.jit.native import Library
from cvm.jit.native_function import ENTRY
from cvm.lowering.plan import make_plan


def tensor(name: str, element: ElementType, *shape: int | Size, space: str = "argument") -> Tensor:
    return Tensor(name, shape, element, space)


def kernel(body: Block, *parameters: Tensor, results: int = 1) -> Kernel:
    return Kernel("k", parameters, body, results)


def compiled(kernel: Kernel, *operands: np.ndarray, report: list[str] | None = None) -> tuple[np.ndarray, ...]:
    """The results of a kernel's machine code."""
    inputs = kernel.inputs
    outputs = kernel.outputs
    known: dict[tuple[object, ...], int] = {}
    for parameter, array in zip(inputs, operands, strict=True):
        assert array.flags.c_contiguous and array.dtype == parameter.element.dtype
        for d, n in zip(parameter.shape, array.shape, strict=True):
            if isinstance(d, Size) and d.is_atom:
                known[d.terms[0][0]] = n
    plan = make_plan("k", inputs, outputs, {}, (kernel,), {})
    text = emit(plan)
    arrays = [np.zeros(shape(o.shape, known), o.element.dtype) for o in outputs]
    library = Library(text.module, {"entry": ENTRY})
    pointers = (ctypes.c_void_p * (len(operands) + len(arrays)))(*(a.ctypes.data for a in (*operands, *arrays)))
    sizes = (ctypes.c_int64 * len(text.sizes))(*(known[atom] for atom in text.sizes))
    workspace = np.zeros(evaluate(plan.workspace, known) + 64, np.uint8)
    status = library.functions["entry"](pointers, sizes, (workspace.ctypes.data + 63) // 64 * 64)
    if report is not None and status:
        report.append(text.requirements[status - 1][0])
    return tuple(arrays)


def shape(dims: Shape, known: dict[tuple[object, ...], int]) -> tuple[int, ...]:
    return tuple(evaluate(d, known) for d in dims)
