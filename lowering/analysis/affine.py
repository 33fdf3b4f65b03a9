"""Affine forms of index arithmetic: an i64 expression as a constant plus integer multiples of atoms.

Atoms are indices, sizes, variables and non-linear subexpressions. Also proves that an affine form is not negative, from
facts of the same form: loop bounds, guards and definitions of atoms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import gcd
from typing import TypeAlias

from ...dialect.ir.sizes import Size
from ...dialect.ir.types import I64
from ...dialect.notation.index import (
    Apply,
    Bitcast,
    Cast,
    Const,
    Expr,
    Extent,
    Index,
    Misalignment,
    Read,
    apply,
    as_index,
)
from ...dialect.notation.index_bounds import interval

Key: TypeAlias = object


@dataclass(frozen=True)
class Affine:
    """constant + sum of factor * atom; `terms` maps an atom's key to the atom and its factor."""

    terms: dict[Key, tuple[Expr, int]]
    constant: int = 0

    def __add__(self, other: Affine) -> Affine:
        terms = dict(self.terms)
        for key, (atom, factor) in other.terms.items():
            total = terms.get(key, (atom, 0))[1] + factor
            if total:
                terms[key] = atom, total
            else:
                terms.pop(key, None)
        return Affine(terms, self.constant + other.constant)

    def __mul__(self, factor: int) -> Affine:
        if not factor:
            return Affine({})
        return Affine({k: (a, f * factor) for k, (a, f) in self.terms.items()}, self.constant * factor)

    def __sub__(self, other: Affine) -> Affine:
        return self + other * -1

    def plus(self, number: int) -> Affine:
        return Affine(self.terms, self.constant + number)

    def factor(self, atom: Expr) -> int:
        return self.terms.get(key(atom), (atom, 0))[1]

    def without(self, atom: Expr) -> Affine:
        return Affine({k: v for k, v in self.terms.items() if k != key(atom)}, self.constant)

    def expression(self) -> Expr:
        """The sum as an expression: positive terms first."""
        parts = sorted(self.terms.values(), key=lambda t: t[1] < 0)
        first = 0 if parts and parts[0][1] > 0 else self.constant
        total: Expr = Const(first, I64)
        for atom, factor in parts:
            total = total + atom * factor if factor > 0 else total - atom * -factor
        left = self.constant - first
        return total + left if left >= 0 else total - -left


def affine(e: Expr) -> Affine:
    """An i64 expression as an affine form; non-linear parts are atoms."""
    match e:
        case Const(value, _):
            return Affine({}, value)
        case Extent(size):
            terms = {("size", atom): (_extent(atom), factor) for atom, factor in size.terms}
            return Affine({k: v for k, v in terms.items()}, size.constant)
        case Apply("add", (a, b), _):
            return affine(a) + affine(b)
        case Apply("sub", (a, b), _):
            return affine(a) - affine(b)
        case Apply("neg", (a,), _):
            return affine(a) * -1
        case Apply("mul", (a, b), _):
            x, y = affine(a), affine(b)
            if not x.terms or not y.terms:
                return y * x.constant if not x.terms else x * y.constant
    return Affine({key(e): (e, 1)})


def _extent(atom: tuple[object, ...]) -> Expr:
    return Extent(Size(((atom, 1),)))


def key(e: Expr) -> Key:
    """A key that is equal for structurally equal expressions."""
    match e:
        case Const(value, type):
            return value, type.name
        case Extent(size):
            return (
                ("size", size.terms[0][0])
                if len(size.terms) == 1 and size.terms[0][1] == 1 and not size.constant
                else ("size", size.key)
            )
        case Apply(function, operands, type):
            return (function, type.name, *map(key, operands))
        case Read(tensor, at):
            return ("read", id(tensor), *map(key, at))
        case Misalignment(tensor, line):
            return "skew", id(tensor), line
        case Cast(operand, type) | Bitcast(operand, type):
            return ("cast", type.name, key(operand))
    return id(e)


def affine_conditions(e: Expr) -> list[Affine] | None:
    """Affine forms that are all >= 0 exactly if a condition holds; None if it is no such conjunction."""
    match e:
        case Const(True, _):
            return []
        case Apply("and", (a, b), _):
            x, y = affine_conditions(a), affine_conditions(b)
            return None if x is None or y is None else x + y
        case Apply("ge" | "lt" | "le" | "gt" | "eq" as comparison, (a, b), _) if a.type is I64:
            difference = affine(a) - affine(b)
            match comparison:
                case "ge":
                    return [difference]
                case "gt":
                    return [difference.plus(-1)]
                case "le":
                    return [difference * -1]
                case "lt":
                    return [(difference * -1).plus(-1)]
            return [difference, difference * -1]
        case Apply("not", (a,), _):
            return negated_conditions(a)
    return None


def negated_conditions(e: Expr) -> list[Affine] | None:
    """The affine conditions of a condition's negation."""
    match e:
        case Apply("or", (a, b), _):
            x, y = negated_conditions(a), negated_conditions(b)
            return None if x is None or y is None else x + y
        case Apply("ge" | "lt" | "le" | "gt", _, _):
            (one,) = affine_conditions(e) or [None]
            return None if one is None else [(one * -1).plus(-1)]
        case Apply("not", (a,), _):
            return affine_conditions(a)
    return None


# Proofs


STEPS = 3000  # affine forms that a proof examines before it gives up


def prove(goal: Affine, facts: Iterable[Affine], order: dict[Key, int]) -> bool:
    """Test whether `goal` >= 0 follows from facts >= 0. `order` numbers indices by binding: inner ones are eliminated
    first.
    """
    wanted, known = _plain(goal), tuple(_plain(f) for f in facts)
    return any(_follows(wanted, f) for f in known) or _Proof(order).holds(wanted, known)


def _follows(goal: Affine, fact: Affine) -> bool:
    """Test whether a goal is a fact plus a constant that is not negative."""
    rest = goal - fact
    return rest.constant >= 0 and not rest.terms


class _Proof:
    """Fourier-Motzkin elimination: atoms of the goal are replaced, one by one, by bounds from the facts."""

    def __init__(self, order: dict[Key, int]) -> None:
        self.order = order
        self.steps = 0
        self.failed: set[tuple[object, int]] = set()

    def holds(self, goal: Affine, facts: tuple[Affine, ...]) -> bool:
        if goal.constant >= 0 and all(f > 0 and _natural(a) for a, f in goal.terms.values()):
            return True
        self.steps += 1
        seen = (frozenset((k, f) for k, (_, f) in goal.terms.items()), goal.constant), len(facts)
        if not goal.terms or self.steps > STEPS or seen in self.failed:
            return False
        atom, factor = max(goal.terms.values(), key=lambda t: self.rank(t[0]))
        known = (*facts, *map(_plain, _definition(atom)))
        found = any(self.replaced(goal, atom, factor, fact, facts) for fact in known)
        if not found and (cases := _cases(atom)) is not None:
            rest = goal.without(atom)
            found = all(
                self.holds(_plain(rest + affine(value) * factor), (*facts, *map(_plain, given)))
                for value, given in cases
            )
        if not found:
            self.failed.add(seen)
        return found

    def replaced(self, goal: Affine, atom: Expr, factor: int, fact: Affine, facts: tuple[Affine, ...]) -> bool:
        mine = fact.factor(atom)
        if mine * factor <= 0 or any(self.rank(a) > self.rank(atom) for a, _ in fact.terms.values()):
            return False
        common = gcd(mine, factor)
        times = abs(mine) // common  # integers: goal >= 0 if times * goal > -times
        return self.holds(_plain(goal * times - fact * (abs(factor) // common)).plus(times - 1), facts)

    def rank(self, atom: Expr) -> tuple[int, int]:
        """The order of elimination: an atom ranks above its operands, indices by binding, sizes last."""
        match atom:
            case Apply(_, operands, _):
                inner = max((self.rank(a) for o in operands for a, _ in affine(o).terms.values()), default=(0, 0))
                return inner[0], inner[1] + 1
            case Extent(size):
                return -1, max((len(repr(a)) for a, _ in size.terms), default=0)
        return self.order.get(key(atom), 0), 0


def _natural(atom: Expr) -> bool:
    """Test whether an atom is never negative, as sizes and indices are."""
    return isinstance(atom, (Extent, Index))


def _plain(sum: Affine) -> Affine:
    """An affine form without remainders: a mod c is a - c * (a // c)."""
    for atom, factor in list(sum.terms.values()):
        match atom:
            case Apply("floormod", (a, Const(c) as divisor), _) if c > 0:
                quotient = apply("floordiv", a, divisor)
                return _plain(sum.without(atom) + affine(a) * factor - affine(quotient) * (factor * c))
    return sum


def _cases(atom: Expr) -> list[tuple[Expr, list[Affine]]] | None:
    """The values an atom may have, each with the facts that hold then; None if the atom is no such choice."""
    match atom:
        case Apply("max" | "min" as which, (a, b), _):
            larger = affine(a) - affine(b) if which == "max" else affine(b) - affine(a)
            return [(a, [larger]), (b, [larger * -1])]
        case Apply("select", (c, a, b), _):
            return [(a, affine_conditions(c) or []), (b, negated_conditions(c) or [])]
        case Extent(Size(terms=(((("max" | "min") as which, a, b), 1),), constant=0)):
            return _cases(Apply(which, (as_index(a), as_index(b)), I64))
    return None


def _definition(atom: Expr) -> Iterator[Affine]:
    """The facts that always hold of an atom."""
    match atom:
        case Apply("floordiv", (a, Const(c)), _) if c > 0:
            rest = affine(a) - affine(atom) * c
            yield rest
            yield (rest * -1).plus(c - 1)
            low, high = interval(atom)  # tighter than the facts above, which ignore that a quotient is an integer
            if low is not None:
                yield affine(atom).plus(-low)
            if high is not None:
                yield (affine(atom) * -1).plus(high)
        case Extent(Size(terms=((("//", a, int(c)), 1),), constant=0)) if c > 0:
            rest = affine(as_index(a)) - affine(atom) * c
            yield rest
            yield (rest * -1).plus(c - 1)
