"""Index expressions as linear forms. Atoms are indices, sizes, variables and non-linear
subexpressions.
"""

from ..types.linear_form import Key, LinearForm, add_term
from ..types.sizes import Size
from ..types.tensor_types import I64
from .expressions import Apply, Bitcast, Cast, Const, Expr, Extent, Misalignment, Read


class Affine(LinearForm[Expr]):
    """A linear form of index expressions."""

    def factor(self, atom: Expr) -> int:
        return self.terms.get(key(atom), (atom, 0))[1]

    def without(self, atom: Expr) -> "Affine":
        return Affine({k: v for k, v in self.terms.items() if k != key(atom)}, self.constant)

    def expression(self) -> Expr:
        """The sum as an expression: positive terms first. It wraps, as i64 do."""
        parts = sorted(((a, _wrapped(n)) for a, n in self.terms.values()), key=lambda t: t[1] < 0)
        first = 0 if parts and parts[0][1] > 0 else _wrapped(self.constant)
        total: Expr = Const(first, I64)
        for atom, factor in parts:
            total = total - atom * -factor if -LEAST > -factor > 0 else total + atom * factor
        left = _wrapped(self.constant - first)
        return total - -left if -LEAST > -left > 0 else total + left


LEAST = -(1 << 63)  # the least i64, whose negative is none


def _wrapped(number: int) -> int:
    return (number - LEAST) % (1 << 64) + LEAST


def affine(e: Expr) -> Affine:
    """The linear form of an i64 expression; non-linear parts are atoms."""
    terms: dict[Key, tuple[Expr, int]] = {}
    return Affine(terms, _add(e, 1, terms))


def _add(e: Expr, times: int, terms: dict[Key, tuple[Expr, int]]) -> int:
    """Add a multiple of an expression to terms; gives what it adds to the constant."""
    match e:
        case Const(value, _):
            return value * times
        case Extent(size):
            for atom, factor in size.terms:
                one = Extent(Size.of_atom(atom))
                add_term(terms, key(one), one, factor * times)
            return size.constant * times
        case Apply("add" | "sub", (a, b), _):
            return _add(a, times, terms) + _add(b, times if e.function == "add" else -times, terms)
        case Apply("neg", (a,), _):
            return _add(a, -times, terms)
        case Apply("mul", (a, b), _):
            x, y = affine(a), affine(b)
            x, y = (y, x) if y.terms else (x, y)
            if not y.terms:
                for k, (atom, factor) in x.terms.items():
                    add_term(terms, k, atom, factor * y.constant * times)
                return x.constant * y.constant * times
    add_term(terms, key(e), e, times)
    return 0


def key(e: Expr) -> Key:
    """A key that is equal for structurally equal expressions."""
    match e:
        case Const(value, type):
            return value if type.is_discrete else repr(value), type.name  # -0.0 is not 0.0
        case Extent(size):
            return "size", size.key  # not its atoms, whose sizes may be undecided
        case Apply(function, operands, type):
            return (function, type.name, *map(key, operands))
        case Read(tensor, at):
            return ("read", id(tensor), *map(key, at))
        case Misalignment(tensor, line):
            return "skew", id(tensor), line
        case Cast(operand, type) | Bitcast(operand, type):
            return (e.__class__, type.name, key(operand))
    return id(e)


def affine_conditions(e: Expr) -> list[Affine] | None:
    """Affine forms that are all >= 0 exactly if a condition holds; None if it is no such
    conjunction.
    """
    match e:
        case Const(True, _):
            return []
        case Apply("and", (a, b), _):
            x, y = affine_conditions(a), affine_conditions(b)
            return None if x is None or y is None else x + y
        case Apply("ge" | "lt" | "le" | "gt" | "eq" as comparison, (a, b), _) if a.type is I64:
            difference = affine(a) - affine(b)
            if comparison == "eq":
                return [difference, difference * -1]
            least = difference if comparison in ("ge", "gt") else difference * -1
            return [least if comparison in ("ge", "le") else least.plus(-1)]
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
