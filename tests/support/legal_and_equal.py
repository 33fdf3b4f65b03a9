"""Programs whose kernels are legal, and that give what the reference gives."""

from __future__ import annotations

import numpy as np
from cvm.dialect.notation.loops import Kernel
from cvm.dialect.program.module import Module
from cvm.lowering.analysis.verify_kernel import check_kernel
from cvm.lowering.pipeline import lower
from cvm.lowering.processor import Processor
import cvm


def legal(program: str | Module, processor: Processor | None = None) -> tuple[Kernel, ...]:
    """The kernels of a program's @main, each checked."""
    module = cvm.parse(program) if isinstance(program, str) else program
    kernels = lower(module, module.functions["main"], processor).kernels
    for kernel in kernels:
        check_kernel(kernel)
    return tuple(kernels)


def agreed(program: str, *given: tuple[np.ndarray, ...]) -> str:
    """The kernels of a program that are legal, and that agree with the reference for all arguments given."""
    legal(program)
    function, reference = cvm.compile(program), cvm.compile(program, target="reference")
    for arrays in given:
        np.testing.assert_array_equal(function(*arrays), reference(*arrays), strict=True)
    return function.lower("schedule")
