"""How far apart in memory the lanes of an access lie, where that is the same in every vector:

    x[n - i]  =>  0, -1, -2, -3      x[i // 2]  =>  0, 0, 1, 1      x[i mod 2, i // 2]  =>  0, n, 1, n + 1

Quotients and remainders are known where a vector begins at a multiple of their divisor. Lanes that lie near each other are
loaded as whole vectors, and shuffled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from math import gcd, lcm

from ...dialect.ir.sizes import Dim
from ...dialect.notation.index import Apply, Const, Expr, Index, Read, Tensor
from ...dialect.notation.traverse import walk
from .affine import affine

VECTORS = 4  # loaded for the lanes of one access, at most
MAX_DIVISOR = 8  # divisor


def period(reads: Iterable[Read], index: Index) -> int:
    """What vectors should begin at multiples of: for the quotients and remainders of this index in these accesses."""
    found = 1
    for e in chain.from_iterable(walk(i) for r in reads for i in r.indices):
        match e:
            case Apply("floordiv" | "floormod", (a, Const(divisor)), _) if affine(a).factor(index):
                found = lcm(found, divisor) if 0 < divisor <= MAX_DIVISOR else found
    return found if found <= MAX_DIVISOR else 1


@dataclass(frozen=True)
class Lanes:
    """The lanes of a vector loop: its index, what that is a multiple of at lane 0 (0 if it is 0 there), and how many."""

    index: Index
    first: int
    count: int
    same: Callable[[Expr], bool]  # whether an expression does not differ between them


def offsets(tensor: Tensor, at: tuple[Expr, ...], lanes: Lanes) -> list[int] | None:
    """How many elements after lane 0 each lane's is; None where that is not known."""
    total = [0] * lanes.count
    step: Dim = 1
    for e, d in zip(reversed(at), reversed(tensor.shape), strict=True):
        found = _differences(e, lanes)
        if found is None or (any(found) and not isinstance(step, int)):
            return None
        if isinstance(step, int):
            total = [t + step * n for t, n in zip(total, found, strict=True)]
        step = d * step
    return total


def _differences(e: Expr, lanes: Lanes) -> list[int] | None:
    """How much more an index expression is at each lane than at lane 0."""
    if lanes.same(e):
        return [0] * lanes.count
    if e is lanes.index:
        return [*range(lanes.count)]
    match e:
        case Apply("add" | "sub" | "mul" as function, (a, b), _):
            x, y = (_differences(o, lanes) for o in (a, b))
            if x is None or y is None:
                return None
            if function == "mul":
                factor, other = (b, x) if isinstance(b, Const) else (a, y)
                return [n * factor.value for n in other] if isinstance(factor, Const) else None
            sign = 1 if function == "add" else -1
            return [n + sign * m for n, m in zip(x, y, strict=True)]
        case Apply("floordiv" | "floormod" as function, (a, Const(divisor)), _) if divisor > 0:
            inner = _differences(a, lanes)
            if inner is None or not _is_multiple(a, divisor, lanes):
                return None
            return [n // divisor if function == "floordiv" else n % divisor for n in inner]
    return None


def _is_multiple(e: Expr, divisor: int, lanes: Lanes) -> bool:
    """Whether an expression is a multiple of a number at lane 0."""
    sum = affine(e)
    others = [factor for _, factor in sum.without(lanes.index).terms.values()]
    return not any(n % divisor for n in (sum.constant, sum.factor(lanes.index) * lanes.first, *others))


def begins(start: Expr, end: Expr, width: int) -> int:
    """What an index is a multiple of where a vector of a loop over it begins; 0 if it is only ever 0."""
    sum, last = affine(start), affine(end)
    common = gcd(sum.constant, *(factor for _, factor in sum.terms.values()))
    return common if not (last - sum).terms and (last - sum).constant == width else gcd(common, width)


def windows(found: list[int]) -> list[int] | None:
    """Where the vectors begin that hold elements so far apart, and nothing beyond them; None if there would be too many."""
    low, high = min(found), max(found)
    length = min(len(found), high - low + 1)
    starts: list[int] = []
    for n in sorted(set(found)):
        if not starts or n >= starts[-1] + length:
            starts.append(min(n, high + 1 - length))
    return starts if len(starts) <= VECTORS else None
