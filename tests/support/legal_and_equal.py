"""Programs whose kernels are legal, and that give what the reference gives."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from cvm.dialect.ir.module import Module
from cvm.dialect.kernel_ir.kernel_printer import plan_text
from cvm.dialect.kernel_ir.loops import Kernel
from cvm.lowering.analysis.verify_kernel import check_kernel
from cvm.lowering.pipeline import lower
from cvm.lowering.processor import Processor

import cvm


def legal(program: str | Module, processor: Processor | None = None) -> tuple[Kernel, ...]:
    """The kernels of a program's @main, each checked."""
    module = cvm.parse(program) if isinstance(program, str) else program
    return checked(lower(module, module.functions["main"], processor).kernels)


def checked(kernels: Iterable[Kernel]) -> tuple[Kernel, ...]:
    """The kernels, each of which is legal."""
    for kernel in (found := tuple(kernels)):
        check_kernel(kernel)
    return found


def agreed(program: str, *given: tuple[np.ndarray, ...]) -> str:
    """The kernels of a program that are legal, and that agree with the reference for all arguments
    given.
    """
    module = cvm.parse(program)
    function, reference = cvm.compile(module), cvm.compile(module, target="reference")
    checked(function.plan.kernels)
    for arrays in given:
        np.testing.assert_array_equal(function(*arrays), reference(*arrays), strict=True)
    return plan_text(function.plan)
