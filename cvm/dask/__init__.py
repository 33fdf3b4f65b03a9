"""Functions on Dask arrays: the bytes of a call on whole arrays, whatever the chunks and workers
are.

y = cvm.dask.apply(f, x, w)      a Dask array, or the structure of them that `f` returns, lazy
y.compute()
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from cvm.dialect.builtin import Call
from cvm.dialect.ir.function import Function, Operation, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.verify import verify
from cvm.dialect.support.compilation_context import USER_TRACEBACK
from cvm.dialect.support.diagnostics import CallError
from cvm.dialect.support.fp_environment import DefaultFpEnvironment
from cvm.dialect.types.attributes import Symbol
from cvm.dialect.types.tensor_types import TensorType
from cvm.jit.calls.arguments import beyond_range, in_order, invalid
from cvm.jit.functions.native_function import NativeFunction
from cvm.lowering.passes import run_passes
from cvm.lowering.pipeline import FORMULAS, GRAPH, LOOPS, TO_FORMULAS, context_of
from cvm.lowering.processor import compiling_for

from ..transforms.traced_function import TracedFunction, flatten, unflatten
from .graph import Array, Arrays, da

__all__ = ["apply"]


@USER_TRACEBACK
def apply(f: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Apply a compiled function to Dask arrays; return its results as Dask arrays.

    Nothing is computed: types and sizes are those of the program, and chunks follow those of the
    largest arguments. Halos of stencils follow from the program, too. An axis that an operation
    takes as a whole, as a sort does, becomes one chunk.

    Args:
        f: A traced function, or a compiled function of a program, for the target `cpu`.
        args: Dask arrays of known sizes; other arguments are passed to every block that reads them.
        kwargs: Arguments by name.

    Raises:
        CallError: The function cannot run on blocks, or sizes are unknown.
    """
    arrays: dict[int, Array] = {}

    def leaf(value: Any, _: str) -> Any:
        if isinstance(value, da.Array):
            if any(np.isnan(n) for n in value.shape):
                raise CallError(
                    f"expected arrays of known sizes, got {value}: compute_chunk_sizes() finds them"
                )
            value, array = np.broadcast_to(np.zeros((), value.dtype), value.shape), value
            arrays[id(value)] = array
        return "static", value

    shown, named = unflatten(flatten((args, kwargs), leaf), None)
    with DefaultFpEnvironment():
        compiled: Any = f
        form, given = None, ()
        if isinstance(f, TracedFunction):
            structure, given = f._flatten(shown, named)
            compiled, form = f._compiled(structure, given)
        if (
            type(compiled).__reduce__ is not NativeFunction.__reduce__
            or not compiled.options.optimize
        ):
            raise CallError(
                f"expected a function of a program, compiled for the target cpu, got {compiled!r}"
            )
        if form is None:
            given = in_order(compiled.head, shown, named)
            form = (
                ("tuple", (("array",),) * compiled.returned)
                if compiled.returned > 1
                else ("array",)
            )
        found = [
            arrays[id(x)] if id(x) in arrays else da.from_array(np.asarray(x), chunks=-1)
            for x in given
        ]
        return unflatten(form, iter(_results(compiled, found)))


def _results(f: NativeFunction, arrays: list[Array]) -> list[Array]:
    """The results of a function, which is verified and lowered for arguments of these sizes."""
    if len(arrays) != len(f.function.arguments):
        raise CallError(
            f"@{f.function.name} takes {len(f.function.arguments)} arguments, got {len(arrays)}"
        )
    arguments = [_suited(x, a) for x, a in zip(arrays, f.function.arguments, strict=True)]
    types = [
        TensorType(x.shape, a.known_type.element)
        for x, a in zip(arrays, f.function.arguments, strict=True)
    ]
    given = tuple(Value(a.name, t) for a, t in zip(f.function.arguments, types, strict=True))
    values = tuple(Value(r.name, None) for r in f.function.results)
    call = Operation(Call(given, Symbol(f.function.name)), values, f.function.span)
    entry = Function(f"{f.function.name}.blocks", given, (call,), values, span=f.function.span)
    module = verify(Module({**f.module.functions, entry.name: entry}, f.module.filename))
    function = module.functions[entry.name]
    with compiling_for(f.compiled_for):
        plan = run_passes(
            (*GRAPH, *TO_FORMULAS, *FORMULAS, *LOOPS[:2]), function, context_of(module, function)
        )
    if other := {
        t.element.name
        for k in plan.kernels
        for t in k.parameters
        if t.element.dtype.kind not in "biuf"
    }:
        held = "integers, truth values, f16, f32 and f64"
        raise CallError(f"blocks hold {held}; @{f.function.name} has {', '.join(sorted(other))}")
    found = Arrays(f.function.name, f.options, plan, arguments)
    return [found.of(r) for r in plan.results]


def _checked(chunk: np.ndarray, argument: Value) -> np.ndarray:
    checked = argument.known_type.element.needs_check
    if said := invalid(chunk, argument) if checked else beyond_range(chunk, argument):
        raise CallError(f"argument %{argument.name}: {said}")
    return chunk


def _suited(array: Array, argument: Value) -> Array:
    """The array in the element type of an argument, with checks of the range that it declares."""
    try:
        array = array.astype(argument.known_type.element.dtype, casting="safe")
    except TypeError as e:
        raise CallError(
            f"argument %{argument.name}: expected {argument.type}, got {array.dtype} ({e})"
        ) from None
    declared = argument.range is not None or argument.known_type.element.needs_check
    return (
        array.map_blocks(_checked, argument, dtype=array.dtype, meta=array._meta)
        if declared
        else array
    )
