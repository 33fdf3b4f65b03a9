"""Calls of kernels in traced functions: the kernel becomes an operation, `builtin.run_kernel`.

Its arrays have other names than NumPy's: one that the kernel updates gets the elements of a result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cvm.dialect.builtin.run_kernel import RunKernel
from cvm.dialect.kernel_ir import expressions as ex, loops as ir
from cvm.dialect.kernel_ir.execution_plan import Plan
from cvm.dialect.kernel_ir.kernel_printer import plan_text
from cvm.dialect.types.sizes import Dim, larger, smaller
from cvm.dialect.types.tensor_types import BF16, BY_DTYPE, I64, TensorType
from cvm.dialect.types.unify import put
from cvm.lowering.loops.substitute_sizes import substitute_sizes
from cvm.tracing.diagnose import caller, fail
from cvm.tracing.trace import TracedArray, tracer_of

from .blocks import FAULT
from .build import ArrayType, Built, ViewType
from .definitions import arguments
from .numbers import NumberType

if TYPE_CHECKING:
    from .source import FunctionSource

_WEAK = {"int": int, "float": float, "complex": complex}
_SIZES: dict[str, Callable[[Dim, Dim], Dim]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "max": larger,
    "min": smaller,
}


def traced_call(kernel: Any, source: FunctionSource, given: Sequence[Any]) -> Any:
    """The results of a kernel for arguments of which some are traced. Arrays that it updates take
    their new elements.
    """
    values = dict(zip(kernel.signature.parameters, given, strict=True))
    tracer, span = tracer_of(given), caller()
    assert tracer is not None
    kinds = tuple(_kind(kernel, n, v) for n, v in values.items())
    built = kernel.compiled(kinds).built
    _check_apart(kernel.__name__, values, built)
    numbers = {n: v for n, v in values.items() if isinstance(v, (int, np.integer))}
    call = _Call(built, source, numbers)
    operands = [values[n] if n in values else built.captured[n] for n in call.arguments]
    types = [t.element.dtype for t in call.kernel.parameters[: len(operands)]]
    arrays = [_operand(v, t) for v, t in zip(operands, types, strict=True)]
    run = RunKernel(tuple(tracer.operand(a, "numpy", span) for a in arrays), call.text)
    results = dict(zip(call.results, tracer.add(run, span), strict=True))
    for n in built.written & values.keys():
        values[n].take_value(results[f"{n}.out"])
    return call.returned(built.returned, "return", {**built.captured, **values}, results)


def _operand(value: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(value, TracedArray):
        return value if value.dtype == dtype else value.astype(dtype)
    return np.asarray(value, dtype)


def _kind(kernel: Any, name: str, value: Any) -> object:
    """The type of an argument, as a call with arrays has it."""
    if not isinstance(value, TracedArray):
        (kind,) = kernel.kinds({name: value})
        return replace(kind, contiguous=True) if isinstance(kind, ArrayType) else kind
    type = value.type
    if not isinstance(type, TensorType) or BY_DTYPE.get(type.element.dtype) is not type.element:
        fail(f"argument {name}: kernels take no values of type {type}")
    if type.element is BF16:
        fail(f"argument {name}: an array of {value.dtype} is not taken by kernels")
    if type.array_shape:
        return ArrayType(type.element, value.ndim)
    wide = {int: I64, float: BY_DTYPE[np.dtype(float)], complex: BY_DTYPE[np.dtype(complex)]}
    return NumberType(type.element) if value.weak is None else NumberType(wide[value.weak], True)


def _check_apart(called: str, values: Mapping[str, Any], built: Built) -> None:
    """Refuse to update arrays that are not the traced function's own, or share elements with
    another argument.
    """
    for name in sorted(built.written & values.keys()):
        value = values[name]
        if not isinstance(value, TracedArray):
            why = "which is no array of the traced function: pass a traced one, as by np.copy"
            fail(f"{called} stores into {name}, {why}")
        value.change_in_place(f"{called} stores into {name}")
        for other, array in values.items():
            if other != name and isinstance(array, TracedArray) and _may_share(value, array):
                fail(
                    f"{called} stores into {name}, which may share memory with {other}: pass a "
                    "copy of one"
                )


def _may_share(a: TracedArray, b: TracedArray) -> bool:
    if a is b:
        return True
    memories = [] if a.memory is None else a.memory.related
    return b.memory is not None and any(m is b.memory for m in memories)


class _Call:
    """A kernel as text over the sizes of its arguments, and the names of its arguments and
    results.
    """

    def __init__(self, built: Built, source: FunctionSource, numbers: Mapping[str, Any]) -> None:
        self.built, self.source = built, source
        self.known: dict[ex.Expr, int] = {
            built.numbers[n]: int(v) for n, v in numbers.items() if n in built.numbers
        }
        self.sizes: dict[Any, Dim] = {}
        for made in built.made:
            for d, e in zip(made.tensor.shape, made.sizes, strict=True):
                found = larger(0, self.size(e, made.place))
                assert not isinstance(d, int)
                self.sizes[d.terms[0][0]] = found
        made = [m.tensor for m in built.made]
        k = substitute_sizes(built.kernel, lambda d: put(d, self.sizes))
        before = dict(zip(k.parameters, built.kernel.parameters, strict=True))
        inputs = [t for t in k.inputs if before[t] not in made]
        fresh = [t for t in k.parameters if before[t] in made]  # and those that are stored into
        stored = [t for t in k.outputs if before[t] is not FAULT]
        replaced = {t: u for t in fresh for u in stored if u.name == f"{t.name}.out"}
        extra = [t for t in fresh if t not in replaced]
        outputs = [*stored, *extra]
        made_names = {f"{t.name}.out" for t in made} | {t.name for t in extra}
        zeros = (s for t in outputs if t.name in made_names for s in ir.zeros(t))
        fault = next(t for t in k.outputs if before[t] is FAULT)
        body = ir.replace_arrays(ir.rewrite_block(k.body, self._change(fault)), replaced)
        homes = {t.name: t for t in inputs}
        views = {t: h for t in outputs if (h := homes.get(t.name.removesuffix(".out")))}
        self.kernel = ir.Kernel(
            k.name,
            (*inputs, *outputs),
            (*zeros, *body),
            len(outputs),
            k.span,
            scheduled=True,
        )
        self.arguments = [t.name for t in inputs]
        self.results = [t.name for t in outputs]
        passed = {a.arg for a in arguments(source.tree)} | built.captured.keys()
        unknown = [n for n in self.arguments if n not in passed]
        if unknown or built.written & built.captured.keys():
            fail(
                f"{source.tree.name} takes strided arrays from the module around it, or stores "
                "into them, which traced functions do not call: pass them"
            )
        given_back = tuple(views.get(t, t) for t in outputs)
        plan = Plan(k.name, tuple(inputs), given_back, {}, (self.kernel,), views)
        self.text = plan_text(plan)

    def _change(self, fault: ex.Tensor) -> Any:
        def change(s: ir.Statement) -> ir.Block | None:
            match s:
                case ir.Store(tensor) if tensor is fault:
                    return ()
                case ir.Fail(message, span):
                    file = span.source.filename.rpartition("/")[2]
                    return (ir.Fail(f"{_plain(message)} ({file}:{span.line})", span),)
            return None

        return change

    def size(self, e: ex.Expr, place: Any) -> Dim:
        """A size of an array that the kernel makes, by the sizes of its arguments."""
        match e:
            case _ if e in self.known:
                return self.known[e]
            case ex.Const(value):
                return int(value)
            case ex.Extent(d):
                return put(d, self.sizes)
            case ex.Cast(operand, element) if element is I64:
                return self.size(operand, place)
            case ex.Var() if e in self.built.lets:
                return self.size(self.built.lets[e], place)
            case ex.Apply("select", (ex.Apply(("lt" | "ge") as how, (a, b)), then, other)):
                x, y = self.size(a, place), self.size(b, place)
                if isinstance(x, int) and isinstance(y, int):
                    return self.size(then if (x < y) == (how == "lt") else other, place)
            case ex.Apply(name, (a, b)) if name in _SIZES:
                return _SIZES[name](self.size(a, place), self.size(b, place))
            case ex.Apply("floordiv", (a, ex.Const(n))) if n > 0:
                return self.size(a, place) // int(n)
        fail(
            f"line {place.line} of {self.source.tree.name} makes an array whose size is computed "
            "from data: traced functions call kernels whose arrays have sizes that are formulas of "
            "those of the arguments"
        )

    def returned(
        self,
        shape: object,
        name: str,
        arrays: Mapping[str, Any],
        results: Mapping[str, TracedArray],
    ) -> Any:
        """Return the kernel's own results among those of the operation."""
        match shape:
            case NumberType(element, weak):
                found = results[name]
                found.weak = _WEAK.get(element.kind) if weak else None
                return found
            case str() if shape in arrays:
                return arrays[shape]
            case str():
                return results[f"{shape}.out" if f"{shape}.out" in results else shape]
            case ViewType():
                fail(
                    f"{self.source.tree.name} returns a view of {shape.array}, which traced "
                    "functions do not take: return a copy (.copy()), or the array"
                )
            case tuple():
                parts = enumerate(shape)
                return tuple(self.returned(s, f"{name}.{n}", arrays, results) for n, s in parts)
        return None


def _plain(message: str) -> str:
    """A message without the values that a direct call has."""
    message = re.sub(r" (with|of) sizes? \{\d\}( and \{\d\})?", "", message)
    message = message.replace("index {0}", "an index").replace(" has {1} elements", " stands")
    return re.sub(r" \{\d\}( and \{\d\})?", "", message).replace("{{", "{").replace("}}", "}")
