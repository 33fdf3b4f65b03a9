"""`builtin.run_kernel`: a kernel of the loop language as an operation on arrays."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from ..kernel_ir import loops as ir
from ..kernel_ir.execution_plan import Loop, Plan
from ..kernel_ir.expressions import Tensor, axes
from ..spec.operator import C, Operator, T, operator
from ..support.diagnostics import Error
from ..types.sizes import Dim, Size, atoms_of
from ..types.tensor_types import TensorType, Type
from ..types.unify import bind, put, with_sizes
from .interpret_kernel import Interpreter

# the parser, which knows the dialects, is loaded where a text is read
PARSER = f"{__name__.partition('.dialect.')[0]}.parser.kernels"


def read(text: str, known: Mapping[str, Dim] | None = None) -> Plan:
    """The kernel of a text, with the `known` values of its named sizes: its arguments and results
    in the order of the text, where an argument is the result that it is updated to.
    """
    plan = import_module(PARSER).read_kernels(text, "<kernel>", known or {})[0]
    kernel = plan.kernels[0]
    results = tuple(plan.views.get(t, t) for t in kernel.outputs)
    return replace(plan, arguments=kernel.inputs, results=results)


@lru_cache(maxsize=256)
def parsed(text: str) -> Plan | str:
    """The kernel of a text, or why it is none."""
    try:
        plan = read(text)
    except Error as e:
        return e.diagnostics[0].message
    if len(plan.kernels) != 1 or isinstance(plan.kernels[0], Loop):
        return "expected the text of one kernel that calls no others"
    if any(len(atom) > 1 for atom in atoms_of(d for t in plan.arguments for d in t.shape)):
        return "the sizes of arguments are numbers or names, as in ?N"
    if any(home not in plan.arguments for home in plan.views.values()):
        return "results are views of arguments alone"
    if len({*plan.results}) != len(plan.results):
        return "an argument is updated as one result"
    return plan


def plan_of(o: "RunKernel[Any]") -> Plan:
    plan = parsed(o.kernel)
    assert isinstance(plan, Plan)
    return plan


def types_of(tensors: tuple[Tensor, ...]) -> list[TensorType]:
    return [TensorType(t.shape, t.element) for t in tensors]


def bound(o: "RunKernel[Any]") -> dict[Any, Dim]:
    """The size of the arguments for each name of a size."""
    stated = types_of(plan_of(o).arguments)
    given = zip(stated, o.arguments, strict=True)
    return bind(stated, [TensorType(a.shape, s.element) for s, a in given])


def same_kinds(o: "RunKernel[Any]") -> bool:
    stated = types_of(plan_of(o).arguments)
    given = o.arguments
    return len(stated) == len(given) and all(
        isinstance(g, TensorType) and g.element is s.element and g.rank == s.rank
        for s, g in zip(stated, given, strict=True)
    )


def same_sizes(o: "RunKernel[Any]") -> Any:
    sizes, holds = bound(o), True
    for stated, given in zip(plan_of(o).arguments, o.arguments, strict=True):
        for s, g in zip(stated.shape, given.array_shape, strict=True):
            holds = (put(s, sizes) == g) & holds
    return holds


def is_sized(o: "RunKernel[Any]") -> bool:
    """Test whether the sizes of all arrays are formulas of those of the arguments."""
    kernel = plan_of(o).kernels[0]
    made = (s.tensor for s in ir.statements(kernel.body) if isinstance(s, ir.Alloc))
    sizes = (d for t in (*kernel.parameters, *made) for d in t.shape)
    known = bound(o).keys()
    return all(d.atoms() <= known for d in sizes if isinstance(d, Size))


@operator
class RunKernel(Operator[T]):
    """Y = the results of a kernel of the loop language, in their order.

    The arguments stay as they are: one that the kernel updates (`view of`) is copied first, and its
    updated elements are a result. Elements that are not stored are zero. An error of the kernel is
    the call's. It has no derivative.
    """

    arguments: tuple[T, ...]
    kernel: str

    is_given = True

    constraints = (
        C(
            1,
            "kernel is the text of one kernel",
            lambda o: isinstance(parsed(o.kernel), Plan),
            at="kernel",
            plainly=lambda o: f"kernel: {parsed(o.kernel)}",
        ),
        C(2, "arguments have the element types and ranks that the kernel states", same_kinds),
        C(3, "arguments have the sizes that the kernel states", same_sizes),
        C(
            4,
            "the sizes of the kernel's arrays are formulas of sizes of arguments",
            is_sized,
            at="kernel",
        ),
    )
    example = (
        '%x {kernel = "kernel @double(%x: tensor<?N x i32>) -> (%y: tensor<?N x i32>) '
        '{ for %i in 0..?N { %y[%i] = %x[%i] + %x[%i] } }"}',
        "%x: ?N x i32",
    )

    def infer(self: "RunKernel[Any]") -> tuple[Type, ...]:
        sizes = bound(self)
        return tuple(with_sizes(t, sizes) for t in types_of(plan_of(self).results))

    def constant_folding(self) -> bool:
        return False

    def reference(self: "RunKernel[np.ndarray]") -> tuple[np.ndarray, ...]:
        plan = plan_of(self)
        sizes: dict[Any, Any] = bound(self)
        arrays = {t: np.array(a) for t, a in zip(plan.arguments, self.arguments, strict=True)}
        for t, type in zip(plan.results, types_of(plan.results), strict=True):
            if t not in arrays:
                arrays[t] = np.zeros(with_sizes(type, sizes).array_shape, t.element.dtype)
        homes = {t: arrays[home] for t, home in plan.views.items()}
        Interpreter({**arrays, **homes}, sizes).run(plan.kernels[0].body)
        return tuple(arrays[t] for t in plan.results)

    def nest(self: "RunKernel[Tensor]", *results: Tensor) -> ir.Block:
        """The kernel's statements over these arrays, after copies of what it updates."""
        plan = read(self.kernel, {name: d for (name,), d in bound(self).items()})
        arrays = dict(zip(plan.arguments, self.arguments, strict=True))
        copies: list[ir.Statement] = []
        for own, y in zip(plan.results, results, strict=True):
            if own in arrays:
                at = axes(y.shape)
                copies += ir.nested(at, (ir.Store(y, at, arrays[own][at]),))
            arrays[own] = y
        arrays |= {t: arrays[home] for t, home in plan.views.items()}
        return (*copies, *ir.replace_arrays(plan.kernels[0].body, arrays))
