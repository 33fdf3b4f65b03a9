"""Guard operators of other packages: whatever is wrong with one is reported with its name, its file
and the line.
"""

import inspect
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from tokenize import TokenError
from typing import Any

from ..kernel_ir.expressions import Element
from ..support.diagnostics import Diagnostic, Error, Note, Source, Span
from ..types.sizes import Undecided
from ..types.tensor_types import I1, TensorType, Type
from .unmet import Unmet

METHODS = (
    "infer",
    "reference",
    "element",
    "nest",
    "pullback",
    "pushforward",
    "simplified",
    "constant_folding",
    "passed",
    "run",
    "steps",
)
GIVES: dict[str, tuple[object, str]] = {
    "infer": (Type, "a type"),
    "element": (Element, "an Element"),
}


def guard(operator: Any, dialects: tuple[str, ...]) -> None:
    """Check how an operator is declared, and have the errors of its methods and constraints say
    where they are.
    """
    if not operator.dialect or operator.dialect in dialects:
        said = (
            f"{operator.dialect} is a dialect of cvm"
            if operator.dialect
            else 'it has no `dialect = "..."`'
        )
        raise fault(operator, f"an operator of another package has a dialect of its own; {said}")
    own = _own(operator)
    lacking = [
        m for m in ("infer", "run" if hasattr(operator, "run") else "reference") if m not in own
    ]
    if lacking:
        raise fault(operator, f"it has no method `{lacking[0]}`")
    operator.is_expanded = own.isdisjoint(("element", "nest", "steps"))
    for method in METHODS:
        if method in operator.__dict__:
            setattr(operator, method, guarded(operator, f"`{method}`", operator.__dict__[method]))
    for rules in ("constraints", "placement", "afterwards"):
        if rules in operator.__dict__:
            own = operator.__dict__[rules]
            made = (
                replace(c, holds=guarded(operator, f"constraint C{c.number}", c.holds)) for c in own
            )
            setattr(operator, rules, tuple(made))


def check_package(operator: Any, first: str) -> None:
    """Check that an operator is of the package whose module was the first of the dialect."""
    package, other = (m.partition(".")[0] for m in (operator.__module__, first))
    if package != other:
        said = f"the packages {other} and {package} both have a dialect {operator.dialect}"
        raise fault(operator, said)


def misstated_steps(typed: Any) -> str:
    """A message if a loop's operands, results or function are not those that its steps say, on
    which its code relies; `typed` is over types, with the signature of its function.
    """
    if type(typed).__module__.startswith("cvm.dialect.") or "steps" not in _own(type(typed)):
        return ""
    steps, operands = typed.steps(), [t for _, t in typed.operands()]
    passed, results = typed.signature
    begin, end = steps.carry, steps.carry + steps.scan
    condition = [] if steps.trips is not None else [TensorType((), I1)]
    carried, found = operands[len(condition) :][:begin], results[len(condition) :]
    slices = passed[begin:end]
    rows = [*slices, *found[begin:]]
    whole = [
        TensorType((steps.trips, *t.shape), t.element) for t in rows if steps.trips is not None
    ]
    shown = operands[len(condition) + end :]
    for what, stated, given in (
        ("its operands are", [*condition, *carried, *whole[: len(slices)], *shown], operands),
        ("`passed` is", [*carried, *slices, *shown], passed),
        ("its function returns", [*condition, *carried, *found[begin:]], results),
        ("`infer` gives", [*carried, *whole[len(slices) :]], typed.result_types()),
    ):
        if [t.key for t in stated] != [t.key for t in given]:
            expected, got = (", ".join(map(str, types)) for types in (stated, given))
            return f"{what} ({got}), but its steps say ({expected})"
    return ""


def _own(operator: Any) -> set[str]:
    """The names that the operator or a base class of its package defines."""
    return {
        n
        for c in operator.__mro__
        if not c.__module__.startswith(("cvm.dialect.spec", "cvm.dialect.builtin.call"))
        for n in c.__dict__
    }


def guarded(
    operator: Any,
    what: str,
    function: Callable[..., Any],
    kind: Any = None,
    code: str = "operator",
) -> Callable[..., Any]:
    """The function, whose errors and results of another kind are those of an operator, or of a
    pass.
    """
    kind = kind or GIVES.get(what.strip("`"))
    passed_on: tuple[type[Exception], ...] = (Error, MemoryError)
    if code == "operator":  # its callers handle what depends on sizes or elements
        passed_on = (*passed_on, Unmet, Undecided, NotImplementedError)

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            made = function(*arguments, **named)
        except passed_on:
            raise
        except Exception as e:
            frames = traceback.extract_tb(e.__traceback__)[1:]
            own = [f for f in frames if f.filename == function.__code__.co_filename] or frames[-1:]
            place = (own[-1].filename, own[-1].lineno or 1) if own else source_place(function)
            raise fault(operator, f"{what} fails: {type(e).__name__}: {e}", place, code) from e
        if kind is not None and not all(
            isinstance(m, kind[0]) for m in (made if isinstance(made, tuple) else (made,))
        ):
            raise fault(
                operator,
                f"{what} gives {type(made).__name__}, not {kind[1]}",
                source_place(function),
                code,
            )
        return made

    return call


def fault(
    operator: Any, message: str, place: tuple[str, int] | None = None, code: str = "operator"
) -> Error:
    """The error of an operator's definition, at a line of a Python file, by default that of its
    class.
    """
    file, line = place or source_place(operator)
    if (span := source_span(file, line)) is None:
        return Error(Diagnostic(f"{operator.name}: {message} ({file}:{line})", code=code))
    return Error(Diagnostic(f"{operator.name}: {message}", span, code))


def attributed(mistake: Diagnostic, who: str, declared: Span | None) -> Diagnostic:
    """The mistake with the name of the pass or pattern at fault, and where that is declared."""
    if mistake.message.startswith(who):
        return mistake
    place = f"the {who.partition(' ')[0]} is declared here"
    notes = [Note(place, declared)] if declared is not None else []
    return replace(mistake, message=f"{who}: {mistake.message}", notes=(*mistake.notes, *notes))


def source_span(file: str, line: int) -> Span | None:
    """A line of a Python file as a span; None where the file cannot be read."""
    try:
        with open(file, encoding="utf-8") as opened:
            source = Source(file, opened.read())
        text = source.line(line)
        start = source.line_starts[line - 1] + len(text) - len(text.lstrip())
        return Span(source, start, start + len(text.strip()))
    except (OSError, IndexError, UnicodeError):
        return None


def source_place(item: Any) -> tuple[str, int]:
    """The file and line of a function or a class."""
    try:
        item = inspect.unwrap(item)
        file = inspect.getsourcefile(item) or "<unknown>"
        code = getattr(item, "__code__", None)
        return file, code.co_firstlineno if code else inspect.getsourcelines(item)[1]
    except (OSError, TypeError, SyntaxError, TokenError):  # a file that is not what ran
        return "<unknown>", 1
