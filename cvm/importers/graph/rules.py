"""Tables of rules: for each operator of a format, the function that makes our operations of a node.

    @rule("SOFTMAX", floats=ROUNDED)
    def softmax(at: At, x: Node) -> Known: ...

The parameters after the first are the node's inputs. Their annotations say what a rule takes, and
so what a node may give:

    Node           a value of the program; constants become operations
    Array          a constant
    Ints           constant integers, or sizes, of which some are not known before a call
    Known          either, as it is
    Items          a sequence
    ... | None     may be absent
    *xs: Node      all further inputs

`at` gives the node's attributes and the program so far. A rule's docstring says what it does not
take; the documentation of each format lists its table.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.sizes import Dim
from cvm.dialect.types.tensor_types import TensorType
from cvm.importers.exactness import EXACT, Exactness

Array: TypeAlias = np.ndarray
Ints: TypeAlias = tuple[Dim, ...]
Known: TypeAlias = Node | np.ndarray  # an array of objects holds integers and sizes
Made: TypeAlias = Known | Sequence[Known]
MAX_CONSTANT = 1 << 24  # elements of a constant that is computed here


class Items(tuple[Any, ...]):
    """A sequence: the values that it has while importing."""

    __slots__ = ()


Function: TypeAlias = Callable[..., Made]
F = TypeVar("F", bound=Function)


class Unsupported(Exception):
    """A node is valid in its format and has no equivalent here; `of` is the value that would have
    to be a constant.
    """

    def __init__(self, reason: str, of: object = None) -> None:
        super().__init__(reason)
        self.of = of if isinstance(of, Node) else None

    def __str__(self) -> str:
        return f"{self.args[0]} is not supported"


class Because(Unsupported):
    """The same, the reason being a sentence of its own."""

    __str__ = Exception.__str__


@dataclass(frozen=True)
class Parameter:
    """One input of a rule."""

    name: str
    kind: str  # Node, Array, Ints or Known
    optional: bool
    variadic: bool


@dataclass(frozen=True)
class ImportRule:
    """The import of nodes of one operator."""

    op: str
    function: Function
    parameters: tuple[Parameter, ...]
    exact: tuple[Exactness, Exactness] = (EXACT, EXACT)  # of integers, and where there are floats

    def inputs(self, count: int) -> Iterator[Parameter]:
        for n in range(count):
            if n < len(self.parameters):
                yield self.parameters[n]
            elif self.parameters and self.parameters[-1].variadic:
                yield self.parameters[-1]
            else:
                raise Unsupported(f"input {n}")


KINDS = {
    **dict.fromkeys(("axes", "pads", "repeats", "shape"), "Ints"),
    "axis": "Array",
    "known": "Known",
    "items": "Items",
}  # else Node


def table(rules: dict[str, ImportRule]) -> Callable[..., Callable[[F], F]]:
    """The decorator that enters functions in a table of rules, with their exactness."""

    def rule(*names: str, exact: Exactness = EXACT, floats: Exactness = EXACT) -> Callable[[F], F]:
        def enter(function: F) -> F:
            for name in names:
                rules[name] = ImportRule(name, function, parameters(function), (exact, floats))
            return function

        return enter

    return rule


def parameters(function: Function) -> tuple[Parameter, ...]:
    """The parameters of a rule after the first: by annotation (text, by the future import), else by
    name.
    """
    signature = list(inspect.signature(function).parameters.values())[1:]
    kinds = [
        KINDS.get(p.name, "Node") if p.annotation is p.empty else p.annotation for p in signature
    ]
    return tuple(
        Parameter(
            p.name,
            kind.removesuffix(" | None"),
            "None" in kind or p.default is not p.empty,
            p.kind is p.VAR_POSITIONAL,
        )
        for p, kind in zip(signature, kinds, strict=True)
    )


def known_size(n: Dim, subject: str) -> int:
    if not isinstance(n, int):
        raise Unsupported(f"{subject} of unknown size")
    return n


def numbers(count: int) -> np.ndarray:
    """0 and the numbers after it."""
    if count > MAX_CONSTANT:
        raise Unsupported(f"a constant of {count} numbers")
    return np.arange(count)


def static(
    x: Known | TensorType, subject: str, axes: Sequence[int] | None = None
) -> tuple[int, ...]:
    """The shape, or its sizes along these axes, all of them known."""
    return tuple(
        known_size(n, subject) for n in (x.shape if axes is None else [x.shape[a] for a in axes])
    )


def real_axes(axes: Sequence[Any], rank: int) -> tuple[int, ...]:
    """Axes counted from the front, each of them once."""
    positive = tuple(int(a) + rank if a < 0 else int(a) for a in axes)
    if not all(0 <= a < rank for a in positive) or len(set(positive)) < len(positive):
        raise ValueError(
            f"expected axes of {rank} dimensions, each once, got {list(map(int, axes))}"
        )
    return positive


def aligned(*nodes: Node) -> list[Node]:
    """The nodes with as many dimensions each, filled up with 1 on the left."""
    rank = max(n.rank for n in nodes)
    return [n.dimshuffle([*["x"] * (rank - n.rank), *range(n.rank)]) for n in nodes]
