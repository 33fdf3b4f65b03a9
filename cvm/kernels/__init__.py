"""Kernels: Python functions with loops over elements, compiled from their source."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from .functions import fma as fma

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
    """A Python function with loops, compiled from its source for the types of its arguments.

    It means the function on NumPy arrays, which it updates in place; numbers, arrays and tuples of
    these are returned. An index out of range, and an integer divided by zero, is an error unless
    `checks` are left out. The target "reference" runs the function itself.
    """
    from cvm.jit.options import CompileOptions

    from .python_kernel import Kernel

    named: dict[str, Any] = {}
    if cpu is not None:
        from cvm.jit.host_processor import resolve

        named["cpu"] = resolve(cpu)
    options = CompileOptions(optimize, **named)
    if function is None:
        return lambda given: Kernel(given, target, options, checks)
    return Kernel(function, target, options, checks)
