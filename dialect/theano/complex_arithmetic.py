"""Complex arithmetic on pairs of real expressions: quotient, magnitude, angle and order.

Sums and products are those of index notation.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..kernel_ir.expressions import Expr, apply as f, cast, constant, select
from ..types.tensor_types import C64, F32, F64, ElementType
from .formula_blocks import INF


@dataclass(frozen=True, eq=False)
class Z:
    """re + i im, both of one float type."""

    re: Expr
    im: Expr

    @staticmethod
    def of(value: Expr) -> Z:
        """The parts of a complex expression, in f64; of a real one, with an imaginary part of 0."""
        if value.type.kind != "complex":
            return Z(cast(value, F64), constant(0, F64))
        return Z.parts(value).cast(F64)

    @staticmethod
    def parts(value: Expr) -> Z:
        """The parts of a complex expression, in their own type."""
        return Z(f("real", value), f("imag", value))

    def cast(self, part: ElementType) -> Z:
        return Z(cast(self.re, part), cast(self.im, part))

    def expression(self, element: ElementType) -> Expr:
        parts = self.cast(F32 if element is C64 else F64)
        return f("complex", parts.re, parts.im)

    def __add__(self, other: Z) -> Z:
        return Z(self.re + other.re, self.im + other.im)

    def __sub__(self, other: Z) -> Z:
        return Z(self.re - other.re, self.im - other.im)

    def __mul__(self, other: Z) -> Z:
        return Z(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)

    def __truediv__(self, other: Z) -> Z:
        """NumPy's quotient, by the larger part of the divisor first, so that its square does not
        overflow.
        """
        (a, b), (c, d) = (self.re, self.im), (other.re, other.im)
        size = f("abs", c)
        wide = size >= f("abs", d)
        zero = c.eq(0) & d.eq(0)
        p, q = select(wide, c, d), select(wide, d, c)
        ratio = q / select(p.eq(0), 1.0, p)
        scale = 1.0 / (p + q * ratio)
        re = select(wide, a + b * ratio, a * ratio + b) * scale
        im = select(wide, b - a * ratio, b * ratio - a) * scale
        return Z(select(zero, a / size, re), select(zero, b / size, im))

    def times(self, factor: float) -> Z:
        return Z(self.re * factor, self.im * factor)

    def plus(self, real: float) -> Z:
        return Z(self.re + real, self.im)

    def conjugate(self) -> Z:
        return Z(self.re, -self.im)

    def turned(self) -> Z:
        """i z"""
        return Z(-self.im, self.re)

    def back(self) -> Z:
        """-i z"""
        return Z(self.im, -self.re)


def choose(first: Expr, a: Z, b: Z) -> Z:
    return Z(select(first, a.re, b.re), select(first, a.im, b.im))


def absolute(z: Z) -> Expr:
    x, y = f("abs", z.re), f("abs", z.im)
    large, small = select(x > y, x, y), select(x > y, y, x)
    ratio = small / select(large.eq(0), 1.0, large)
    magnitude = large * f("sqrt", 1.0 + ratio * ratio)
    return select(x.eq(INF) | y.eq(INF), INF, select(large.eq(0) & small.eq(0), 0.0, magnitude))


def angle(z: Z) -> Expr:
    return f("atan2", z.im, z.re)


def inv(z: Z) -> Z:
    return Z(constant(1, F64), constant(0, F64)) / z


# Order: by the real parts, then by the imaginary ones; what is NaN in a part is in no order


def ordered(x: Expr, y: Expr) -> Expr:
    """The condition that neither is NaN."""
    return x.eq(x) & y.eq(y)


def less(a: Z, b: Z) -> Expr:
    return ((a.re < b.re) & ordered(a.im, b.im)) | (a.re.eq(b.re) & (a.im < b.im))


def less_equal(a: Z, b: Z) -> Expr:
    return ((a.re < b.re) & ordered(a.im, b.im)) | (a.re.eq(b.re) & (a.im <= b.im))


def is_nan(z: Z) -> Expr:
    return z.re.ne(z.re) | z.im.ne(z.im)


def is_inf(z: Z) -> Expr:
    return f("abs", z.re).eq(INF) | f("abs", z.im).eq(INF)


def maximum(a: Z, b: Z) -> Z:
    return choose(less_equal(b, a) | is_nan(a), a, b)


def minimum(a: Z, b: Z) -> Z:
    return choose(less_equal(a, b) | is_nan(a), a, b)
