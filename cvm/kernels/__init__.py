"""Kernels: Python functions with loops over elements, compiled from their source."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from .functions import fma as fma, prange as prange

if TYPE_CHECKING:
    from cvm.jit.options import TargetName
    from cvm.lowering.processor import Processor

    from .python_kernel import Kernel

_P = ParamSpec("_P")
_R = TypeVar("_R")


@overload
def kernel(function: Callable[_P, _R], /) -> Kernel[_P, _R]: ...
@overload
def kernel(
    *,
    target: TargetName = "cpu",
    cpu: str | Processor | None = None,
    optimize: int = 2,
    checks: bool = True,
) -> Callable[[Callable[_P, _R]], Kernel[_P, _R]]: ...
def kernel(
    function: Callable[..., Any] | None = None,
    /,
    *,
    target: TargetName = "cpu",
    cpu: str | Processor | None = None,
    optimize: int = 2,
    checks: bool = True,
) -> Any:
    """Compile a Python function with loops over elements from its source, for the types of its
    arguments.

    It means the function on NumPy arrays, which it updates in place; numbers, arrays and tuples of
    these are returned. A version is compiled for each combination of element types, ranks and
    layouts.

    Args:
        function: The function; without it, `kernel` is a decorator with options.
        target: `"cpu"`, or `"reference"`, which runs the function itself.
        cpu: The processor that the code is for; by default this machine's.
        optimize: As in `cvm.compile`.
        checks: Test indices, divisors and conversions, and raise Python's errors; without the tests
            a program that needs one of them has no defined result.

    Raises:
        TraceError: The function has something that cannot be compiled; the error has the line.
    """
    from cvm.jit.options import CompileOptions

    from .python_kernel import Kernel

    named = {}
    if cpu is not None:
        from cvm.jit.host_processor import resolve

        named["cpu"] = resolve(cpu)
    options = CompileOptions(optimize, **named)
    if function is None:
        return lambda given: Kernel(given, target, options, checks)
    return Kernel(function, target, options, checks)
