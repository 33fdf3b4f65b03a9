"""Report integer operations that may overflow, with the interval of every value.

    %s = dali.add %x, %x : i8      =>  [-128, 127], where the sum may reach [-256, 254]

Calls are analyzed with their operands' ranges. Results of nests, state and float operations may
have any value.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...dialect.builtin import Call, Calling, Const
from ...dialect.cog.clocked import Clocked
from ...dialect.ir.function import Function, Literal, Operation, Value
from ...dialect.ir.module import Module
from ...dialect.ir.program_printer import print_module
from ...dialect.kernel_ir.expressions import Cast, Tensor
from ...dialect.kernel_ir.integer_interval import Interval, whole
from ...dialect.support.diagnostics import Diagnostic
from ..analysis.integer_ranges import Overflow, declared_range, interval, overflows, range_of
from ..graph.inline import has_derivatives
from .propagate_constants import propagate_constants

NOUNS = {
    "abs": "magnitude",
    "add": "sum",
    "sub": "difference",
    "mul": "product",
    "neg": "negative",
} | {
    "div": "quotient",
    "floordiv": "quotient",
    "shl": "shifted value",
}


@dataclass(eq=False)
class Analysis:
    """Interval analysis of a module's values, function by function."""

    module: Module
    ranges: dict[Value, Interval] = field(default_factory=dict)
    overflowing: dict[Operation, Overflow] = field(
        default_factory=dict
    )  # the first such node of each

    def function(
        self, function: Function, intervals: Sequence[Interval | None] = ()
    ) -> list[Interval | None]:
        """The ranges of a function's results, from `intervals` or the declared ones."""
        tensors: dict[Value, Tensor] = {}
        ranges: dict[Tensor, Interval] = {}
        constants: dict[Tensor, np.ndarray] = {}

        def tensor(value: Value) -> Tensor:
            if value not in tensors:
                type = value.known_type
                tensors[value] = Tensor(value.name, type.array_shape, type.element.storage)
                if isinstance(value, Literal):
                    hold(value, value.array)
            return tensors[value]

        def hold(value: Value, array: np.ndarray) -> None:
            constants[tensor(value)] = array
            if array.dtype.kind in "biu":
                note(value, range_of(array))

        def note(value: Value, interval: Interval | None) -> None:
            if interval is not None:
                ranges[tensor(value)] = self.ranges[value] = interval

        declared = map(declared_range, function.arguments)
        for argument, found in zip(function.arguments, intervals or declared, strict=True):
            note(argument, found)
        for operation in function.operations:
            if isinstance(operator := operation.operator, Const):
                hold(operation.results[0], operator.data.array)
            elif isinstance(operator, Call):
                known = [ranges.get(tensor(v)) or _anything(v) for v in operator.arguments]
                results = self.function(self.module.functions[operator.callee], known)
                for value, found in zip(operation.results, results, strict=True):
                    note(value, found)
            elif not (
                operator.has_nest()
                or operator.is_expanded
                or isinstance(operator, (Calling, Clocked))
            ):
                (result,) = operation.results
                value = operator.map(tensor).element(tensor(result)).value
                value = propagate_constants(value, constants)
                for overflow in overflows(value, ranges, constants):
                    self.overflowing.setdefault(operation, overflow)
                note(result, interval(value, ranges, constants) if value.type.is_discrete else None)
        return [ranges.get(tensor(r)) or _anything(r) for r in function.results]


def _anything(value: Value) -> Interval | None:
    element = value.known_type.element
    return whole(element) if element.is_discrete else None


def possible_overflows(module: Module) -> list[Diagnostic]:
    """Warnings for the operations that may overflow, in functions without callers and in their
    callees.
    """
    analysis = Analysis(module)
    operators = (o.operator for f in module.functions.values() for o in f.operations)
    callees = {operator.callee for operator in operators if isinstance(operator, Call)}
    for function in module.functions.values():
        if function.name not in callees:
            analysis.function(_expanded(module, function))
    warnings = [
        _warning(operation, overflow) for operation, overflow in analysis.overflowing.items()
    ]
    return sorted(warnings, key=lambda d: d.span.start)


def _expanded(module: Module, function: Function) -> Function:
    if not has_derivatives(module, function):
        return function
    from ..graph.differentiate import expand_derivatives  # and with it the theano dialect

    return expand_derivatives(module, function).functions[function.name]


def _warning(operation: Operation, overflow: Overflow) -> Diagnostic:
    e = overflow.expr
    function = getattr(e, "function", "converted value" if isinstance(e, Cast) else "value")
    message = (
        f"the {NOUNS.get(function, function)} fits {e.type}, {whole(e.type)}, but it may reach "
        f"{overflow.reached}"
    )
    return Diagnostic(
        message, operation.at("op"), f"{operation.operator.name}.overflow", severity="warning"
    )


def print_ranges(module: Module, names: Iterable[str] = ()) -> str:
    """The text of a module, or of some functions, with the range of every computed integer in
    comments.
    """
    functions = {name: module.functions[name] for name in names or module.functions}
    notes: dict[Operation, str] = {}
    for function in functions.values():
        analysis = Analysis(module)
        analysis.function(function)
        for operation in function.operations:
            shown = [str(analysis.ranges[r]) for r in operation.results if r in analysis.ranges]
            if shown and len(shown) == len(operation.results):
                notes[operation] = ", ".join(shown) + (
                    ", may overflow" if operation in analysis.overflowing else ""
                )
    return print_module(module.with_functions(functions), notes=notes)
