"""The table of targets, and compilation of a function for one of them."""

from __future__ import annotations

from collections.abc import Callable

from ..dialect.ir.compiling import compiling
from ..dialect.ir.diagnostics import Diagnostic, TargetError
from ..dialect.program.module import Function, Module
from ..lowering.graph.inline import has_derivatives
from .functions.compiled_function import CompiledFunction
from .options import DEFAULT, CompileOptions


@compiling()
def compile_function(
    module: Module, entry: str = "main", target: str = "cpu", options: CompileOptions = DEFAULT
) -> CompiledFunction:
    """Compiles one function of a verified module for a target of TARGETS."""
    module, function = prepared(module, entry, target)
    try:
        return TARGETS[target](module, function, options)
    except MemoryError as e:
        raise TargetError(Diagnostic(f"memory does not suffice to compile @{entry}: {e}", function.span)) from None


def prepared(module: Module, entry: str, target: str) -> tuple[Module, Function]:
    """The function as targets take it, without derivatives that are left to take, and the module that it stands in."""
    function = find(module, entry, target)
    if has_derivatives(module, function):
        from ..lowering.graph.differentiate import expand_derivatives  # and with it the theano dialect

        function = expand_derivatives(module, function)
        module = module.with_functions({**module.functions, entry: function})
    return module, function


def find(module: Module, entry: str, target: str) -> Function:
    """The function or graph of this name; TargetError where it or the target is unknown."""
    if target not in TARGETS:
        raise TargetError(f"unknown target {target!r}; the targets are {', '.join(TARGETS)}")
    if entry not in module.functions:
        names = ", ".join(f"@{n}" for n in module.functions) or "none"
        raise TargetError(f"the program has no function @{entry}; it has {names}")
    return module.functions[entry]


def _native(module: Module, function: Function, options: CompileOptions) -> CompiledFunction:
    from .functions.native_function import native_function

    return native_function(module, function, options)


def _reference(module: Module, function: Function, options: CompileOptions) -> CompiledFunction:
    from .functions.reference_function import ReferenceFunction

    return ReferenceFunction(module, function, options)


def _simulated(module: Module, function: Function, options: CompileOptions) -> CompiledFunction:
    from .cuda.gpu_function import SimulatedFunction

    return SimulatedFunction(module, function, options)


def _on_gpu(module: Module, function: Function, options: CompileOptions) -> CompiledFunction:
    from .cuda.cuda_function import CudaFunction

    return CudaFunction(module, function, options)


# a target's code is loaded when it is asked for
TARGETS: dict[str, Callable[[Module, Function, CompileOptions], CompiledFunction]] = {
    "cpu": _native,
    "reference": _reference,
    "cuda": _on_gpu,
    "cuda-sim": _simulated,
}
