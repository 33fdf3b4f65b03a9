"""Proofs that an affine form is not negative, from facts of the same form: loop bounds, guards and
definitions of atoms.
"""

from collections.abc import Iterable, Iterator
from math import gcd

from ...dialect.kernel_ir.affine import Affine, affine, affine_conditions, key, negated_conditions
from ...dialect.kernel_ir.expressions import Apply, Const, Expr, Extent, Index, apply, as_index
from ...dialect.kernel_ir.index_bounds import index_bounds
from ...dialect.types.linear_form import Key
from ...dialect.types.sizes import Size
from ...dialect.types.tensor_types import I64

STEPS = 3000  # affine forms that a proof examines before it gives up; bounds compile time (by hand)
DEPTH = 64  # replacements one inside the other, at most; bounds compile time (by hand)


def prove(goal: Affine, facts: Iterable[Affine], order: dict[Key, int], steps: int = STEPS) -> bool:
    """Test whether `goal` >= 0 follows from facts >= 0. `order` numbers indices, the inner to
    eliminate first; `steps` bounds the affine forms that are examined.
    """
    plain_goal = plain(goal)
    known = tuple(plain(f) for f in facts)
    follows = any((rest := plain_goal - f).constant >= 0 and not rest.terms for f in known)
    return follows or _Proof(order, steps).holds(plain_goal, known)


class _Proof:
    """Fourier-Motzkin elimination: atoms of the goal are replaced, one by one, by bounds from the
    facts.
    """

    def __init__(self, order: dict[Key, int], most_steps: int) -> None:
        self.order = order
        self.most_steps = most_steps
        # by id, of atoms and facts, which are kept alive here
        self.ranks: dict[int, tuple[object, tuple[int, int]]] = {}
        self.defined: dict[Key, tuple[Affine, ...]] = {}
        self.steps = self.depth = 0
        self.failed: set[tuple[object, int]] = set()

    def holds(self, goal: Affine, facts: tuple[Affine, ...]) -> bool:
        if goal.constant >= 0 and all(
            f > 0 and isinstance(a, (Extent, Index)) for a, f in goal.terms.values()
        ):
            return True
        self.steps += 1
        seen = (frozenset((k, f) for k, (_, f) in goal.terms.items()), goal.constant), len(facts)
        if (
            not goal.terms
            or self.steps > self.most_steps
            or self.depth > DEPTH
            or seen in self.failed
        ):
            return False
        k = max(goal.terms, key=lambda k: self.rank(goal.terms[k][0]))
        atom, factor = goal.terms[k]
        if (defined := self.defined.get(k)) is None:
            defined = self.defined[k] = tuple(map(plain, definition(atom)))
        known = (*facts, *defined)
        bounds = (f for f in known if k in f.terms and f.terms[k][1] * factor > 0)
        found = any(self.replaced(goal, k, fact, facts) for fact in bounds)
        if not found and (cases := _cases(atom)) is not None:
            goals = (
                (plain(goal.without(atom) + affine(value) * factor), given)
                for value, given in cases
            )
            found = all(self.holds(case, (*facts, *map(plain, given))) for case, given in goals)
        if not found:
            self.failed.add(seen)
        return found

    def replaced(self, goal: Affine, k: Key, fact: Affine, facts: tuple[Affine, ...]) -> bool:
        """Test whether the goal holds with the atom of this key replaced by its bound in a fact."""
        (atom, factor), mine = goal.terms[k], fact.terms[k][1]
        if self.highest(fact) > self.rank(atom):
            return False
        common = gcd(mine, factor)
        times = abs(mine) // common  # integers: goal >= 0 if times * goal > -times
        rest = goal if times == 1 else goal * times
        known = fact if abs(factor) == common else fact * (abs(factor) // common)
        self.depth += 1
        found = self.holds(plain(rest - known).plus(times - 1), facts)
        self.depth -= 1
        return found

    def highest(self, fact: Affine) -> tuple[int, int]:
        """The highest rank of a fact's atoms."""
        if (known := self.ranks.get(id(fact))) is None:
            highest = max(self.rank(a) for a, _ in fact.terms.values())
            known = self.ranks[id(fact)] = fact, highest
        return known[1]

    def rank(self, atom: Expr) -> tuple[int, int]:
        """The order of elimination: an atom ranks above its operands, indices by binding, sizes
        last.
        """
        if (known := self.ranks.get(id(atom))) is None:
            known = self.ranks[id(atom)] = atom, self._rank(atom)
        return known[1]

    def _rank(self, atom: Expr) -> tuple[int, int]:
        match atom:
            case Apply(_, operands, _):
                inner = max(
                    (self.rank(a) for o in operands for a, _ in affine(o).terms.values()),
                    default=(0, 0),
                )
                return inner[0], inner[1] + 1
            case Extent(size):
                return -1, max((len(repr(a)) for a, _ in size.terms), default=0)
        return self.order.get(key(atom), 0), 0


def plain(sum: Affine) -> Affine:
    """An affine form without remainders: a mod c is a - c * (a // c)."""
    for atom, factor in sum.terms.values():
        match atom:
            case Apply("floormod", (a, Const(c) as divisor), _) if c > 0:
                quotient = apply("floordiv", a, divisor)
                return plain(
                    sum.without(atom) + affine(a) * factor - affine(quotient) * (factor * c)
                )
    return sum


def _cases(atom: Expr) -> list[tuple[Expr, list[Affine]]] | None:
    """The values an atom may have, each with the facts that hold then; None if the atom is no such
    choice.
    """
    match atom:
        case Apply("max" | "min" as which, (a, b), _):
            larger = affine(a) - affine(b) if which == "max" else affine(b) - affine(a)
            return [(a, [larger]), (b, [larger * -1])]
        case Apply("select", (c, a, b), _):
            return [(a, affine_conditions(c) or []), (b, negated_conditions(c) or [])]
        case Extent(Size(terms=(((("max" | "min") as which, a, b), 1),), constant=0)):
            return _cases(Apply(which, (as_index(a), as_index(b)), I64))
    return None


def definition(atom: Expr) -> Iterator[Affine]:
    """The facts that always hold of an atom."""
    match atom:
        case Apply("floordiv", (a, Const(c))) | Extent(
            Size(terms=((("//", a, int(c)), 1),), constant=0)
        ) if c > 0:
            rest = affine(as_index(a)) - affine(atom) * c
            yield rest
            yield (rest * -1).plus(c - 1)
            # tighter than the facts above, which ignore that a quotient is an integer
            low, high = index_bounds(atom) if isinstance(atom, Apply) else (None, None)
            if low is not None:
                yield affine(atom).plus(-low)
            if high is not None:
                yield (affine(atom) * -1).plus(high)
