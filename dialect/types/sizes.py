"""Sizes of arrays: known at compile time, or symbolic expressions that a call binds."""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, TypeAlias

from .linear_form import Bounds, LinearForm


class Undecided(Exception):
    """A comparison of sizes that are not known before the program is called; `args` are the pairs
    that have to be equal.
    """


_fresh = itertools.count()
_Atom: TypeAlias = tuple[Any, ...]


def _of_sizes(operation: Callable[[Size, Dim], Dim]) -> Callable[[Size, Dim], Dim]:
    """Define an operator on sizes and whole numbers, which leaves other operands to their own
    class.
    """

    @wraps(operation)
    def compute(self: Size, other: Dim) -> Dim:
        return operation(self, other) if isinstance(other, (int, Size)) else NotImplemented

    return compute


@dataclass(frozen=True, eq=False)
class Size:
    """A size known only when the program is called: a linear form that is not constant, its terms
    in the order of their text.

    An atom is a named size `("N",)`, an anonymous one `("?", number)`, or an operation that is not
    linear, such as `("//", a, b)`. Sizes are never negative. Comparing two sizes answers when the
    answer holds for every call and raises `Undecided` otherwise.
    """

    terms: tuple[tuple[_Atom, int], ...]
    constant: int = 0

    @staticmethod
    def named(name: str) -> Size:
        return Size.of_atom((name,))

    @staticmethod
    def unknown() -> Size:
        return Size.of_atom(("?", next(_fresh)))

    @staticmethod
    def of_atom(atom: _Atom) -> Size:
        return Size(((atom, 1),))

    @cached_property
    def form(self) -> LinearForm[_Atom]:
        return LinearForm({key_of(a): (a, f) for a, f in self.terms}, self.constant)

    @cached_property
    def key(self) -> tuple[object, ...]:
        """A key of the size's structure, comparable without deciding its value."""
        return tuple((key_of(a), f) for a, f in self.terms), self.constant

    @property
    def name(self) -> str | None:
        """The name, where this is just a named size."""
        match self.terms:
            case (((str(name),), 1),) if self.constant == 0:
                return name
        return None

    @property
    def is_atom(self) -> bool:
        return (
            len(self.terms) == 1
            and self.terms[0][1] == 1
            and self.constant == 0
            and len(self.terms[0][0]) < 3
        )

    def atoms(self) -> set[_Atom]:
        """The named and anonymous sizes this one depends on."""
        atoms: set[_Atom] = set()
        for atom, _ in self.terms:
            if len(atom) < 3:
                atoms.add(atom)
            else:
                for part in atom[1:]:
                    if isinstance(part, Size):
                        atoms |= part.atoms()
        return atoms

    def evaluate(
        self, known: Mapping[_Atom, Any], operations: Mapping[str, Callable[..., Any]] | None = None
    ) -> Any:
        """The value where atoms have these values, numbers unless `operations` takes others."""
        total: Any = self.constant
        for atom, factor in self.terms:
            if len(atom) < 3:
                value = known[atom]
            else:
                operation, *parts = atom
                parts = [p.evaluate(known, operations) if isinstance(p, Size) else p for p in parts]
                value = (operations or OPERATIONS)[operation](*parts)
            total = value * factor + total
        return total

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (int, Size)):
            return NotImplemented
        low, high = _difference(self, other)
        if low == high == 0:
            return True
        if (low is not None and low > 0) or (high is not None and high < 0):
            return False
        return _in_this_call("==", self, other)

    def __lt__(self, other: Dim) -> bool:
        return _less(self, other)

    def __gt__(self, other: Dim) -> bool:
        return _less(other, self)

    def __le__(self, other: Dim) -> bool:
        return not self > other

    def __ge__(self, other: Dim) -> bool:
        return not self < other

    @_of_sizes
    def __add__(self, other: Dim) -> Dim:
        return _dim(self.form + _form(other))

    __radd__ = __add__

    @_of_sizes
    def __mul__(self, other: Dim) -> Dim:
        return (
            _dim(self.form * other)
            if isinstance(other, int)
            else _opaque("*", *sorted((self, other), key=in_order))
        )

    __rmul__ = __mul__

    def __neg__(self) -> Dim:
        return self * -1

    @_of_sizes
    def __sub__(self, other: Dim) -> Dim:
        return _dim(self.form - _form(other))

    @_of_sizes
    def __rsub__(self, other: Dim) -> Dim:
        return _dim(_form(other) - self.form)

    @_of_sizes
    def __floordiv__(self, other: Dim) -> Dim:
        if other is self or (isinstance(other, Size) and other.key == self.key):
            return 1
        if isinstance(other, int) and other and all(f % other == 0 for _, f in self.terms):
            return Size(tuple((a, f // other) for a, f in self.terms), self.constant // other)
        match other:
            case Size(((("min", *parts), 1),), 0) if any(same_size(1, p) for p in parts) and any(
                same_size(self, p) for p in parts
            ):
                return self  # by 1, or nothing at all
        return 0 if same_size(other, 0) else _opaque("//", self, other)

    @_of_sizes
    def __rfloordiv__(self, other: Dim) -> Dim:
        return _opaque("//", other, self)

    @_of_sizes
    def __mod__(self, other: Dim) -> Dim:
        return self - (self // other) * other

    def __bool__(self) -> bool:
        return self != 0

    def __index__(self) -> int:
        value = _given_call().value(self)
        _in_this_call("==", self, value)
        return value

    def __str__(self) -> str:
        return f"?{self.name}" if self.name else "?"

    def __repr__(self) -> str:
        parts = [("" if f == 1 else f"{f}*") + _atom_text(a) for a, f in self.terms]
        if self.constant:
            parts.append(str(self.constant))
        return " + ".join(parts)


Dim: TypeAlias = int | Size
Shape: TypeAlias = tuple[Dim, ...]


class Given(int):
    """The value in one call of a size that was unknown when the program was verified. Sizes
    computed from it are `Given` too.
    """

    __slots__ = ()


def _given(operation: Callable[[int, int], int]) -> Callable[[Given, Dim], Dim]:
    return lambda self, other: (
        Given(operation(int(self), int(other))) if isinstance(other, int) else NotImplemented
    )


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    _operation = getattr(operator, _name)
    setattr(Given, f"__{_name}__", _given(_operation))
    setattr(Given, f"__r{_name}__", _given(lambda a, b, f=_operation: f(b, a)))


OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b if b else 0,
    "max": max,
    "min": min,
}


def key_of(n: object) -> Any:
    """A size, or a sequence with sizes in it, to be compared as it is written."""
    if isinstance(n, Size):
        return n.key
    if isinstance(n, (tuple, list)):
        return (*map(key_of, n),)
    return n


def atoms_of(dims: Iterable[Dim]) -> set[_Atom]:
    """The named and anonymous sizes that these depend on."""
    return {atom for d in dims if isinstance(d, Size) for atom in d.atoms()}


def in_order(x: object) -> list[Any]:
    """A key that sorts by text, numbers in it by their values: whatever numbers the unknown sizes
    of a program have.
    """
    return [int(part) if n % 2 else part for n, part in enumerate(re.split(r"(\d+)", repr(x)))]


def _atom_text(atom: _Atom) -> str:
    if len(atom) == 1:
        return atom[0]
    return f"?{atom[1]}" if len(atom) == 2 else f"{atom[0]}({', '.join(map(repr, atom[1:]))})"


def _opaque(operation: str, *parts: Dim) -> Size:
    return Size.of_atom((operation, *parts))


def _form(dim: Dim) -> LinearForm[_Atom]:
    return dim.form if isinstance(dim, Size) else LinearForm({}, dim)


def _dim(form: LinearForm[_Atom]) -> Dim:
    if not (terms := tuple(form.terms.values())):
        return form.constant
    return Size(terms if len(terms) == 1 else tuple(sorted(terms, key=in_order)), form.constant)


def _difference(a: Dim, b: Dim) -> Bounds:
    """Bounds of a difference of sizes, all atoms being non-negative."""
    return (_form(a) - _form(b)).bounds(lambda _: (0, None))


def _always_less(a: Dim, b: Dim) -> bool | None:
    """Test whether a size is less than another in every call; None if that depends on the call."""
    low, high = _difference(a, b)
    if high is not None and high < 0:
        return True
    return False if low is not None and low >= 0 else None


def _less(a: Dim, b: Dim) -> bool:
    always = _always_less(a, b)
    return _in_this_call("<", a, b) if always is None else always


Condition: TypeAlias = tuple[str, Dim, Dim]  # "==", "!=", "<" or ">=", of two sizes


@dataclass
class DecidedSizes:
    """The sizes of one call, by which comparisons are decided while they are in `DECIDED`, and what
    those decisions depend on: calls that meet the same conditions decide everything alike.
    """

    known: Mapping[_Atom, int]
    conditions: dict[object, Condition] = field(default_factory=dict)

    def value(self, dim: Dim) -> int:
        if not atoms_of([dim]) <= self.known.keys():
            raise Undecided
        return evaluate(dim, self.known)

    def decide(self, relation: str, a: Dim, b: Dim) -> bool:
        difference = self.value(a) - self.value(b)
        holds = difference == 0 if relation == "==" else difference < 0
        relation = relation if holds else {"==": "!=", "<": ">="}[relation]
        self.conditions[relation, key_of(a), key_of(b)] = relation, a, b
        return holds


DECIDED: ContextVar[DecidedSizes | None] = ContextVar("decided", default=None)


def _given_call() -> DecidedSizes:
    if (given := DECIDED.get()) is None:
        raise Undecided
    return given


def _in_this_call(relation: str, a: Dim, b: Dim) -> bool:
    return _given_call().decide(relation, a, b)


def same_size(a: Dim, b: Dim) -> bool:
    """Test whether two sizes are structurally equal, which implies equality in every call."""
    if isinstance(a, Size) and isinstance(b, Size):
        return a.key == b.key
    return isinstance(a, int) and isinstance(b, int) and a == b


def may_be_same(a: Dim, b: Dim) -> bool:
    """Test whether two sizes are the same or depend on unlike unknown sizes, so that a call
    decides.
    """
    unknown = [{atom for atom, _ in d.terms} if isinstance(d, Size) else set() for d in (a, b)]
    return unknown[0] != unknown[1] or same_size(a, b)


def certainly(condition: Callable[[], bool]) -> bool:
    """Test whether a predicate on sizes holds in every call."""
    try:
        return condition()
    except Undecided:
        return False


def bounded(value: int) -> int:
    """An index or a stride of a slice; beyond any size, all mean the same."""
    return max(-(2**62), min(2**62, value))


def larger(a: Dim, b: Dim) -> Dim:
    """The maximum of two sizes, symbolic where it has to be."""
    if (less := _always_less(a, b)) is None:
        return _opaque("max", *sorted((a, b), key=in_order))
    return b if less else a


def smaller(a: Dim, b: Dim) -> Dim:
    """The minimum of two sizes, symbolic where it has to be."""
    if (less := _always_less(b, a)) is None:
        return _opaque("min", *sorted((a, b), key=in_order))
    return b if less else a


def evaluate(dim: Dim, known: Mapping[_Atom, int]) -> int:
    return dim if isinstance(dim, int) else dim.evaluate(known)


def product(shape: Shape) -> Dim:
    return math.prod(shape)  # type: ignore[arg-type]


def strides(shape: Shape) -> tuple[Dim, ...]:
    """The elements between neighbors along each axis of a row-major array."""
    steps = itertools.accumulate(reversed(shape), lambda step, d: d * step, initial=1)
    return tuple(steps)[: len(shape)][::-1]
