"""Functions as one file of C99 that needs no library, with constants inside and static buffers.

The functions are those that `build` makes object files of, by the same names and with the same
statuses and messages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor
from types import MappingProxyType

from ...dialect.ir.function import Function, Operation
from ...dialect.ir.module import Module
from ...dialect.support.compilation_context import compiling
from ...dialect.support.diagnostics import Diagnostic, Source, Span, TargetError
from ...lowering.pipeline import lower_to_scalars
from ...lowering.processor import FOR_C, compiling_for
from ..c.c99 import C99, is_taken
from ..c.emit import File, Sizes
from ..compile import prepared
from ..llvm.range_check import declared
from ..options import DEFAULT, CompileOptions
from .build import exported_names
from .interfaces import Interface, Parameter, parameters


@dataclass(frozen=True)
class CSource:
    """The text of a file of C, the declarations of its functions, and the memory that they take."""

    text: str
    interface: Interface
    sizes: Sizes


@compiling()
def c_source(
    module: Module,
    entries: Sequence[str],
    prefix: str,
    sizes: Mapping[str, int] = MappingProxyType({}),
    options: CompileOptions = DEFAULT,
    arena: bool = False,
) -> CSource:
    """The functions of a verified module, each as `prefix_name`, with these values of named sizes.
    With an `arena`, intermediate arrays share one static buffer.

    TargetError where a function cannot be called from C or computes floats, VerifyError where it
    cannot have these sizes.
    """
    module, functions, prefix, (message, _, *symbols) = exported_names(
        _with_spans(module), entries, prefix, sizes
    )
    arrays = [parameters(f) for f in functions]
    plans = []
    for function, symbol in zip(functions, symbols, strict=True):
        _refuse_floats(function)
        if is_taken(symbol):
            text = f"@{function.name} would be {symbol}, a name of C; change that of the file"
            raise TargetError(Diagnostic(text, function.span, "build"))
    with compiling_for(FOR_C):
        for function in functions:
            module, function = prepared(module, function.name)
            plans.append(lower_to_scalars(module, function, options.optimize, options.sanitize))
    taken = [message, *symbols, *(a.name for given in arrays for a in given)]
    file = File(module, plans, taken, arena)
    workspaces = []
    for function, plan, symbol, given in zip(functions, plans, symbols, arrays, strict=True):
        names = dict(zip((*plan.arguments, *plan.results), (a.name for a in given), strict=False))
        file.define(plan, _head(symbol, given), names, _checks(function, given, file))
        workspaces.append(file.workspace(plan))
    texts = [f"{span.line}: {text}" for text, span in file.requirements.listed]
    interface = Interface(
        prefix, "any processor", "static", tuple(zip(symbols, arrays, workspaces, strict=True))
    )
    text = f"{_comment(symbols, file)}\n{file.text()}\n{_messages(message, texts)}"
    return CSource(text, interface, file.sizes)


def _with_spans(module: Module) -> Module:
    """The module with the operators' names in the place of a text, where operations have none, as
    those of an imported model.
    """

    def named(operation: Operation) -> Operation:
        if operation.span.text:
            return operation
        name = operation.operator.name
        span = Span(Source(module.filename, name), 0, len(name))
        return replace(operation, span=span, spans={**operation.spans, "op": span})

    functions = {
        name: replace(f, operations=tuple(map(named, f.operations)))
        for name, f in module.functions.items()
    }
    return module.with_functions(functions)


def _refuse_floats(function: Function) -> None:
    for value in (*function.arguments, *function.results):
        if not value.known_type.element.storage.is_discrete:
            message = f"%{value.name} is {value.type}; C is emitted for integers alone"
            raise TargetError(Diagnostic(message, value.span, "build"))


def _head(symbol: str, arrays: Sequence[Parameter]) -> str:
    given = [f"{'const ' * a.given}{a.c} *{a.name}" for a in arrays]
    declaration = f"int32_t {symbol}({', '.join(given) or 'void'})"
    return f"{declaration};\n{declaration}"


def _checks(function: Function, arrays: Sequence[Parameter], file: File) -> list[str]:
    """Statements that return a status where an argument leaves its declared range."""
    lines = []
    for n, (type, (low, high)) in declared(function).items():
        argument, element = function.arguments[n], type.element
        message = f"argument %{argument.name}: expected values from {low} to {high}"
        least, most = element.limits
        ends = [C99.number(end, element) for end in (max(ceil(low), least), min(floor(high), most))]
        suffix = C99.suffix(C99.value_type(element))
        inside = f"within{suffix}({arrays[n].name}, {arrays[n].numbers}, {', '.join(ends)})"
        number = file.requirements.number(message, argument.span)
        lines.append(f"if (!{inside}) return {number};")
    return lines


def _comment(symbols: Sequence[str], file: File) -> str:
    return f"""\
/* {", ".join(symbols)}: C99 written by cvm, which needs no library.
   {file.sizes}.
   Static buffers are shared by calls, of which one runs at a time. */"""


def _messages(symbol: str, messages: Sequence[str]) -> str:
    """The function that explains a status."""
    cases = [f"    case {n}: return {_string(text)};" for n, text in enumerate(messages, 1)]
    head = f"const char *{symbol}(int32_t status)"
    body = ["  switch (status) {", *cases, '    default: return "";', "  }"]
    return "\n".join([f"{head};", f"{head} {{", *body, "}", ""])


def _string(text: str) -> str:
    """A string of C: everything but letters, digits and a few signs is written by its number."""
    parts = (chr(b) if chr(b) in _PLAIN else rf"\{b:03o}" for b in text.encode())
    return f'"{"".join(parts)}"'


_PLAIN = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 %.,:;=<>()[]+-*/_@!|&^~#{}"
)
