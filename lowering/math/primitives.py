"""Exactly rounded primitives under short names, and polynomial evaluation.

A primitive has the same bits on every target, and so does every expression of primitives.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ...dialect.kernel_ir.expressions import Bitcast, Expr, Operand, apply, constant, select
from ...dialect.types.tensor_types import F32, F64, I32, I64, UI32, UI64, ElementType

INFINITY = float("inf")
NAN = float("nan")

# of each type: the bits of a mantissa, the exponent's bias, the smallest normal number, the
# integers of the same width
MANTISSA = {F32: 23, F64: 52}
BIAS = {F32: 127, F64: 1023}
LEAST_NORMAL = {F32: 2.0**-126, F64: 2.0**-1022}
SIGNED = {F32: I32, F64: I64, UI32: I32, UI64: I64}
UNSIGNED = {I32: UI32, I64: UI64}
FLOAT = {I32: F32, I64: F64}

MANY = 60  # 2^60 + 1 is 2^60, and its square is a number

# ln 2 in two parts
LN2 = {F32: (0.6931472, -1.9046542e-09), F64: (0.6931471805599453, 2.3190468138462996e-17)}

# the same, the first part so short that products with numbers of 8 bits, or 10 of f64, are exact
SHORT_LN2 = {
    F32: (0.693145751953125, 1.4286068e-06),
    F64: (0.6931471805598903, 5.497923018708371e-14),
}

# x + 1.5 * 2^mantissa has the nearest integer to x in its low bits; with the bias added those bits,
# shifted up, are 2^x
ROUNDER = {F32: 1.5 * 2.0**23, F64: 1.5 * 2.0**52}
POWER_ROUNDER = {F32: 1.5 * 2.0**23 + 127, F64: 1.5 * 2.0**52 + 1023}


def nearest(
    x: Expr, factor: float, rounder: dict[ElementType, float] = ROUNDER
) -> tuple[Expr, Expr]:
    """The integer n nearest to x times a factor, as the low bits of a float and as a float."""
    shifted = fma(x, factor, rounder[x.type])
    return shifted, shifted - rounder[x.type]


def fma(a: Operand, b: Operand, c: Operand) -> Expr:
    return apply("fma", a, b, c)


def sqrt(x: Expr) -> Expr:
    return apply("sqrt", x)


def floor(x: Expr) -> Expr:
    return apply("floor", x)


def absolute(x: Expr) -> Expr:
    return apply("abs", x)


def bits(x: Expr) -> Expr:
    """The bits of a float as a signed integer."""
    return Bitcast(x, SIGNED[x.type])


def as_float(x: Expr) -> Expr:
    """The float with these bits."""
    return Bitcast(x, FLOAT[x.type])


def shift_right(x: Expr, count: int) -> Expr:
    """A logical right shift of a signed integer."""
    return Bitcast(Bitcast(x, UNSIGNED[x.type]) >> count, x.type)


def sign_of(x: Expr) -> Expr:
    """The sign bit alone, as an integer."""
    return bits(x) & sign_mask(x.type)


def sign_mask(type: ElementType) -> int:
    return -(1 << (type.bits - 1))


def flip(x: Expr, sign: Expr) -> Expr:
    """x, negated where the sign bit (see `sign_of`) is set."""
    return as_float(bits(x) ^ sign)


def is_odd(x: Expr) -> Expr:
    """Test whether the lowest bit of an integer is set; as a sign bit, which vector selects
    test.
    """
    return (x << (x.type.bits - 1)) < 0


def horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """c0 + c1 x + c2 x^2 + ..., one fma a term."""
    value: Expr = constant(coefficients[-1], x.type)
    for c in reversed(coefficients[:-1]):
        value = fma(value, x, c)
    return value


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    return horner(x, coefficients) if len(coefficients) < 8 else estrin(x, coefficients)


def estrin(x: Expr, coefficients: Sequence[Operand]) -> Expr:
    """Evaluate a polynomial by halves (Estrin), a shorter dependence chain, but for Horner's last
    step, which decides the error.
    """
    terms = [c if isinstance(c, Expr) else constant(c, x.type) for c in coefficients[1:]]
    power = x
    while len(terms) > 1:
        pairs = [fma(terms[i + 1], power, terms[i]) for i in range(0, len(terms) - 1, 2)]
        terms = pairs + terms[2 * len(pairs) :]
        power = power * power
    return fma(terms[0], x, coefficients[0])


class Pieces(NamedTuple):
    """Piecewise polynomials: conditions are the bits of a piece's number, lowest first; a lookup
    may be a shuffle.
    """

    conditions: list[Expr]

    @staticmethod
    def of_place(place: Expr, count: int) -> "Pieces":
        """Pieces numbered by the low bits of an integer."""
        return Pieces([(place & (1 << n)).ne(0) for n in range((count - 1).bit_length())])

    def at(self, table: Sequence[float], type: ElementType) -> Expr:
        """The table's entry for this piece."""
        parts: list[Expr] = [constant(c, type) for c in table]
        for condition in self.conditions:
            parts = [
                select(condition, high, low)
                for low, high in zip(parts[::2], parts[1::2], strict=True)
            ]
        return parts[0]

    def polynomial(self, x: Expr, tables: Sequence[Sequence[float]]) -> Expr:
        """The polynomial in x; the first coefficients, which decide the error, are used by Horner's
        rule.
        """
        first, *rest = (self.at(t, x.type) for t in tables)
        return fma(estrin(x, rest), x, first)


def bits_of_power(n: int, type: ElementType) -> int:
    """The bits of 2^n."""
    return (n + BIAS[type]) << MANTISSA[type]


def outside(x: Expr, least: int, limit: int) -> Expr:
    """Test whether x is outside [2^least, 2^limit), by one comparison of its bits."""
    t = x.type
    start = -1 << (t.bits - 1)  # of the integers, where the numbers inside are moved to
    first = bits_of_power(least, t)
    count = bits_of_power(limit, t) - bits_of_power(least, t)
    return bits(x) + (start - first + (1 << t.bits if first else 0)) >= start + count


def is_not_normal(x: Expr) -> Expr:
    """Test whether a number is negative, zero, subnormal, infinite or NaN."""
    return outside(x, 1 - BIAS[x.type], BIAS[x.type] + 1)


def keep_zero_sign(x: Expr, value: Expr) -> Expr:
    """The value of an odd function with the sign of x, which results in -0 for -0."""
    return as_float(bits(value) | sign_of(x))


def rarely(condition: Expr, then: Expr, usually: Expr) -> Expr:
    """A select of what hardly any argument needs: `then` is computed only where one does."""
    return apply("rarely", condition, then, usually)
