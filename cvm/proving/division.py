"""Divisions by constants, as products and shifts compute them.

    (x * m + a) >> s  =  x // d    for all x in [low, high]

Granlund and Montgomery (Division by Invariant Integers using Multiplication, 1994) give an
inequality on m for unsigned numbers of one width. Here it is solved for the range at hand: between
two multiples of d the quotient is constant and the product grows, so both ends of such a stretch
decide; at these the difference is linear in the multiple, so the first and the last stretch decide.
"""

from collections.abc import Mapping

import z3

from cvm.dialect.types.tensor_types import ElementType

from .bit_vectors import Term, simplified

MAX_CHOICES = 4  # inside each other that a bound looks through; bounds time (by hand)
DIVISIONS = ("div", "rem", "floordiv", "floormod")


def is_quotient(m: int, a: int, s: int, d: int, low: int, high: int) -> bool:
    """Test whether (x * m + a) >> s is the floor of x / d for every x in [low, high]."""
    if m <= 0 or d <= 0 or low > high:
        return False
    one = 1 << s
    first, last = low // d, high // d
    starts = {low, *(q * d for q in (first + 1, last) if low <= q * d <= high)}
    ends = {high, *(q * d + d - 1 for q in (first, last - 1) if low <= q * d + d - 1 <= high)}
    return all(x * m + a >= x // d * one for x in starts) and all(
        x * m + a < (x // d + 1) * one for x in ends
    )


def divided(
    function: str, x: Term, by: Term, element: ElementType, most: Mapping[int, int]
) -> Term | None:
    """A quotient or remainder by a constant, or a product and a shift that compute a quotient, in
    one form for all of these; None of anything else. `most` has the largest value of symbols that
    are never negative, by their ids.
    """
    by = z3.simplify(by)
    if function not in (*DIVISIONS, "shr") or not z3.is_bv(x) or not z3.is_bv_value(by):
        return None
    number, largest = by.as_long(), element.limits[1]
    if function in DIVISIONS and 0 < number <= largest and _most(x, most) <= largest:
        quotient = _extended(_quotient(x, number, most), x.size())
        return quotient if function in ("div", "floordiv") else x - quotient * by
    if function == "shr" and 0 < number < x.size():
        factor, m, a = _scaled(x)
        high = _most(factor, most)
        d = ((1 << number) + m - 1) // m if m > 1 else 0
        if d > 1 and high * m + a <= largest and is_quotient(m, a, number, d, 0, high):
            return _extended(_quotient(factor, d, most), x.size())
    return None


def _scaled(x: Term) -> tuple[Term, int, int]:
    """The x, m and a of x * m + a; m is 1 where it is no product."""
    for kind in (z3.Z3_OP_BADD, z3.Z3_OP_BMUL):
        if not z3.is_app_of(x, kind) or x.num_args() != 2:
            continue
        for one, other in (x.children(), x.children()[::-1]):
            if not z3.is_bv_value(by := simplified(other)):
                continue
            if kind == z3.Z3_OP_BMUL:
                return one, by.as_long(), 0
            factor, m, a = _scaled(one)
            return (factor, m, by.as_long()) if a == 0 else (x, 1, 0)
    return x, 1, 0


def _most(x: Term, known: Mapping[int, int], depth: int = 0) -> int:
    """A bound of a bit vector as a number without a sign."""
    whole = (1 << x.size()) - 1
    if z3.is_bv_value(x):
        return x.as_long()
    if (inner := _unextended(x, known)) is not None:
        return _most(inner, known, depth)
    if z3.is_app_of(x, z3.Z3_OP_ITE) and depth < MAX_CHOICES:
        return max(_most(side, known, depth + 1) for side in x.children()[1:])
    return known.get(x.get_id(), whole)


def _unextended(x: Term, known: Mapping[int, int]) -> Term | None:
    """The narrower bit vector that a wider one extends by zeros."""
    if z3.is_app_of(x, z3.Z3_OP_ZERO_EXT):
        return x.arg(0)
    if z3.is_app_of(x, z3.Z3_OP_SIGN_EXT):
        inner = x.arg(0)
        return inner if _most(inner, known) < 1 << inner.size() - 1 else None
    return None


def _quotient(x: Term, d: int, known: Mapping[int, int]) -> Term:
    """The quotient in the narrowest type that x is converted from."""
    while (inner := _unextended(x, known)) is not None:
        x = inner
    if d > _most(x, known):
        return z3.BitVecVal(0, x.size())
    return z3.UDiv(x, z3.BitVecVal(d, x.size()))


def _extended(quotient: Term, bits: int) -> Term:
    return z3.ZeroExt(bits - quotient.size(), quotient) if quotient.size() < bits else quotient
