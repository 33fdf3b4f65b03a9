"""Patterns: functions that rewrite an operation into equal values.

A pattern takes the operator of its root and a `Builder`; it returns the values that replace the
root's results, or None where it does not match. `rewrite` runs them, and `convert` lowerings,
which are patterns of one operator that state it by others.
"""

import hashlib
import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import NoneType, SimpleNamespace
from typing import Any

from ...dialect.ir.function import Rewrite, Value
from ...dialect.spec.foreign_operators import fault, guarded, source_place, source_span
from ...dialect.spec.operator import Operator
from ...dialect.support.diagnostics import Span
from ...dialect.support.entry_points import SOURCES
from ...dialect.support.suggest import did_you_mean

DECLARED = "pattern.declared"  # the code of mistakes in declarations
RUN_BY = ("simplify",)  # the passes that run patterns


@dataclass(frozen=True, eq=False)
class Pattern:
    """A rewrite of operations whose operator is one of `roots`, or derives from it.

    Patterns of larger `benefit` are tried first, those of equal benefit by name. `declared` is the
    function, or the place in a program's text.
    """

    name: str
    package: str
    roots: tuple[type[Operator[Any]], ...]
    match: Callable[[Any, Any], Any]
    declared: Callable[..., Any] | Span
    benefit: int = 1
    into: str = RUN_BY[0]
    kind: str = "pattern"
    rewrite: Rewrite | None = None  # of a pattern that is stated as text

    @property
    def order(self) -> tuple[int, str, str]:
        return -self.benefit, self.name, self.package

    @property
    def who(self) -> str:
        return f"{self.kind} {self.name} of {self.package}"

    @cached_property
    def place(self) -> Span | None:
        if isinstance(self.declared, Span):
            return self.declared
        return source_span(*source_place(self.declared))


PATTERNS: dict[tuple[str, str], Pattern] = {}  # by module and name of the function
Legal = Callable[[object], object] | None  # tells the operators that a lowering leaves
LOWERINGS: dict[type[Operator[object]], tuple[Pattern, Legal]] = {}


def declare_pattern(function: Callable[..., object], benefit: int, into: str) -> None:
    """Add a pattern to those that a pass runs; a function declared anew replaces the former one."""
    owner, place = _owner("pattern", function)
    if into not in RUN_BY:
        said = f"there is no pass {into} that runs patterns{did_you_mean(into, RUN_BY)}"
        raise fault(owner, f"{said}; patterns run in {', '.join(RUN_BY)}", place, DECLARED)
    if not isinstance(benefit, int):
        raise fault(owner, f"benefit is a whole number, got {benefit!r}", place, DECLARED)
    if not (roots := tuple(_roots(function))):
        said = "the annotation of its first parameter is the operator that it rewrites"
        raise fault(owner, said, place, DECLARED)
    made = _declared("pattern", function, roots, benefit, into)
    PATTERNS[function.__module__ or "__main__", function.__name__] = made


def declare_lowering(
    function: Callable[..., object], root: object, legal: Callable[..., object] | None
) -> None:
    """Add the lowering of an operator; one declared anew by the same function replaces it."""
    owner, place = _owner("lowering", function)
    if not (isinstance(root, type) and issubclass(root, Operator) and root.name):
        raise fault(owner, f"it is of an operator, got {root!r}", place, DECLARED)
    if (other := LOWERINGS.get(root)) is not None and other[0].name != function.__name__:
        said = f"{root.name} has a lowering already, {other[0].name} of {other[0].package}"
        raise fault(owner, said, place, DECLARED)
    spared = None if legal is None else guarded(owner, "`legal`", legal, code="lowering.fails")
    LOWERINGS[root] = _declared("lowering", function, (root,), 0, "convert"), spared


def declare_nest(function: Callable[..., object], root: type[Operator[object]]) -> None:
    """Have a function give the nest of an operator that has no formula, in place of its method."""
    owner, place = _owner("lowering", function)
    if not root.is_expanded or root in LOWERINGS:
        raise fault(owner, f"{root.name} has a formula or a lowering already", place, DECLARED)
    root.nest = guarded(owner, "it", function, code="lowering.fails")
    root.is_expanded = False


def _owner(kind: str, function: Callable[..., object]) -> tuple[Any, tuple[str, int]]:
    """A stand-in for a pattern in its errors, and its place."""
    package = (function.__module__ or "__main__").partition(".")[0]
    name = f"{kind} {function.__name__} of {package}"
    return SimpleNamespace(name=name), source_place(function)


def _declared(
    kind: str,
    function: Callable[..., object],
    roots: tuple[type[Operator[object]], ...],
    benefit: int,
    into: str,
) -> Pattern:
    """A function as a pattern; its source becomes part of the keys of compiled code."""
    owner, _ = _owner(kind, function)
    module = function.__module__ or "__main__"
    package = module.partition(".")[0]
    code = "pattern.fails" if kind == "pattern" else "lowering.fails"
    guard = guarded(owner, "it", function, ((Value, NoneType), "a value"), code)
    SOURCES[f"{module}.{function.__name__}"] = digest_of_package(package, module)
    return Pattern(function.__name__, package, roots, guard, function, benefit, into, kind)


def _roots(function: Callable[..., object]) -> Iterator[type[Operator[Any]]]:
    """The operators in the annotation of the first parameter, one or a union."""
    for parameter in inspect.signature(function).parameters.values():
        hint = parameter.annotation
        if isinstance(hint, str):
            try:
                hint = eval(hint, inspect.unwrap(function).__globals__)  # as get_type_hints does
            except (NameError, AttributeError, SyntaxError, TypeError):
                return
        for one in [hint] if isinstance(hint, type) else typing.get_args(hint) or [hint]:
            root = typing.get_origin(one) or one
            if isinstance(root, type) and issubclass(root, Operator):
                yield root
        return


@cache
def digest_of_package(package: str, module: str) -> str | None:
    """The digest of a package's Python files, or of a module that is none; None where it has no
    file.
    """
    folders = getattr(sys.modules.get(package), "__path__", ())
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    digest = hashlib.sha256()
    try:
        for path in sorted(p for f in folders for p in Path(f).rglob("*.py")) or [Path(file)]:
            digest.update(path.read_bytes() + b"\0")
    except OSError:
        return None
    return digest.hexdigest()


@cache
def of_simplified(operator: type[Operator[Any]]) -> Pattern | None:
    """The method `simplified` of an operator as a pattern; None where it has none."""
    if operator.simplified is Operator.simplified:
        return None

    def match(op: Operator[Value], b: Any) -> Any:
        found = op.simplified(b.owner)
        return b.add(found) if isinstance(found, Operator) else found

    package = "cvm" if operator.__module__.startswith("cvm.") else operator.__module__
    name = f"{operator.name}.simplified"
    return Pattern(name, package.partition(".")[0], (operator,), match, operator.simplified, 0)
