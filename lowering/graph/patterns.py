"""Patterns: functions that rewrite an operation into equal values.

A pattern takes the operator of its root and a `Builder`; it returns the values that replace the
root's results, or None where it does not match. `rewrite` runs them.
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

from ...dialect.ir.function import Value
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

    @property
    def order(self) -> tuple[int, str, str]:
        return -self.benefit, self.name, self.package

    @property
    def who(self) -> str:
        return f"pattern {self.name} of {self.package}"

    @cached_property
    def place(self) -> Span | None:
        if isinstance(self.declared, Span):
            return self.declared
        return source_span(*source_place(self.declared))


PATTERNS: dict[tuple[str, str], Pattern] = {}  # by module and name of the function


def declare_pattern(function: Callable[..., Any], benefit: int, into: str) -> None:
    """Add a pattern to those that a pass runs; a function declared anew replaces the former one."""
    module = function.__module__ or "__main__"
    package = module.partition(".")[0]
    owner: Any = SimpleNamespace(name=f"pattern {function.__name__} of {package}")
    place = source_place(function)
    if into not in RUN_BY:
        said = f"there is no pass {into} that runs patterns{did_you_mean(into, RUN_BY)}"
        raise fault(
            owner, f"{said}; patterns run in {', '.join(RUN_BY)}", place, "pattern.declared"
        )
    if not isinstance(benefit, int):
        raise fault(owner, f"benefit is a whole number, got {benefit!r}", place, DECLARED)
    if not (roots := tuple(_roots(function))):
        said = "the annotation of its first parameter is the operator that it rewrites"
        raise fault(owner, said, place, DECLARED)
    guard = guarded(owner, "it", function, ((Value, NoneType), "a value"), "pattern.fails")
    SOURCES[f"{module}.{function.__name__}"] = digest_of_package(package, module)
    PATTERNS[module, function.__name__] = Pattern(
        function.__name__, package, roots, guard, function, benefit, into
    )


def _roots(function: Callable[..., Any]) -> Iterator[type[Operator[Any]]]:
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
