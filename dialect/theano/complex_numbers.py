"""Complex numbers as pairs of real expressions, and Theano's functions of them.

Functions are computed in f64, also of complex<f32>; sums and products are those of index notation. Branch cuts are NumPy's.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..index import Expr, apply, cast, constant, select
from ..types import C64, F32, F64, ElementType
from .elementary import LN2, LN10


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
        return Z(cast(apply("real", value), F64), cast(apply("imag", value), F64))

    def expression(self, element: ElementType) -> Expr:
        part = F32 if element is C64 else F64
        return apply("complex", cast(self.re, part), cast(self.im, part))

    def __add__(self, other: Z) -> Z:
        return Z(self.re + other.re, self.im + other.im)

    def __sub__(self, other: Z) -> Z:
        return Z(self.re - other.re, self.im - other.im)

    def __mul__(self, other: Z) -> Z:
        return Z(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)

    def __truediv__(self, other: Z) -> Z:
        """Smith's quotient: by the larger part of the divisor first, so that its square does not overflow."""
        (a, b), (c, d) = (self.re, self.im), (other.re, other.im)
        wide = apply("abs", c) >= apply("abs", d)
        p, q = select(wide, c, d), select(wide, d, c)
        ratio = select(p.eq(0) & q.eq(0), p, q / select(p.eq(0), 1.0, p))
        scale = p + q * ratio
        re = select(wide, a + b * ratio, a * ratio + b) / scale
        im = select(wide, b - a * ratio, b * ratio - a) / scale
        return Z(re, im)

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


def f(name: str, *operands: Expr) -> Expr:
    return apply(name, *operands)


def absolute(z: Z) -> Expr:
    x, y = f("abs", z.re), f("abs", z.im)
    large, small = select(x > y, x, y), select(x > y, y, x)
    ratio = small / select(large.eq(0), 1.0, large)
    found = large * f("sqrt", 1.0 + ratio * ratio)
    infinite = x.eq(float("inf")) | y.eq(float("inf"))
    return select(infinite, float("inf"), select(large.eq(0) & small.eq(0), 0.0, found))


def angle(z: Z) -> Expr:
    return f("atan2", z.im, z.re)


def exp(z: Z) -> Z:
    r = f("exp", z.re)
    return Z(select(z.im.eq(0), r, r * f("cos", z.im)), select(z.im.eq(0), z.im, r * f("sin", z.im)))


def log(z: Z) -> Z:
    x, y = f("abs", z.re), f("abs", z.im)
    large, small = select(x > y, x, y), select(x > y, y, x)
    near = (large > 0.5) & (large < 2.0)
    close = 0.5 * f("log1p", (large - 1.0) * (large + 1.0) + small * small)
    return Z(select(near, close, f("log", absolute(z))), angle(z))


def sqrt(z: Z) -> Z:
    t = f("sqrt", (f("abs", z.re) + absolute(z)) * 0.5)
    other = f("abs", z.im) / select(t.eq(0), 1.0, t * 2.0)
    right = z.re >= 0.0
    below = (z.im < 0.0) | (1.0 / z.im).eq(float("-inf"))  # also -0.0
    im = select(right, other, t)
    return Z(select(right, t, other), select(below, -im, im))


def sqr(z: Z) -> Z:
    return z * z


def inv(z: Z) -> Z:
    return Z(constant(1, F64), constant(0, F64)) / z


def power(z: Z, w: Z) -> Z:
    """exp(w log z); 0 to a power of positive real part is 0, and anything to 0 is 1."""
    found = exp(w * log(z))
    at_zero, to_zero = z.re.eq(0) & z.im.eq(0), w.re.eq(0) & w.im.eq(0)
    zero = select(w.re > 0.0, constant(0, F64), float("nan"))
    re = select(to_zero, 1.0, select(at_zero, zero, found.re))
    return Z(re, select(to_zero, 0.0, select(at_zero, zero, found.im)))


def sin(z: Z) -> Z:
    return Z(f("sin", z.re) * f("cosh", z.im), f("cos", z.re) * f("sinh", z.im))


def cos(z: Z) -> Z:
    return Z(f("cos", z.re) * f("cosh", z.im), -(f("sin", z.re) * f("sinh", z.im)))


def tan(z: Z) -> Z:
    far = f("abs", z.im) > 20.0
    y = select(far, 0.0, z.im)
    below = f("cos", z.re * 2.0) + f("cosh", y * 2.0)
    small = f("exp", f("abs", z.im) * -2.0)
    re = select(far, f("sin", z.re * 2.0) * 2.0 * small, f("sin", z.re * 2.0) / below)
    return Z(re, select(far, select(z.im > 0.0, constant(1, F64), -1.0), f("sinh", y * 2.0) / below))


def sinh(z: Z) -> Z:
    return sin(z.turned()).back()


def cosh(z: Z) -> Z:
    return cos(z.turned())


def tanh(z: Z) -> Z:
    return tan(z.turned()).back()


def arcsin(z: Z) -> Z:
    below, above = sqrt(Z(1.0 - z.re, -z.im)), sqrt(z.plus(1.0))
    return Z(f("atan2", z.re, (below * above).re), f("asinh", (below.conjugate() * above).im))


def arccos(z: Z) -> Z:
    below, above = sqrt(Z(1.0 - z.re, -z.im)), sqrt(z.plus(1.0))
    return Z(2.0 * f("atan2", below.re, above.re), f("asinh", (above.conjugate() * below).im))


def arccosh(z: Z) -> Z:
    below, above = sqrt(z.plus(-1.0)), sqrt(z.plus(1.0))
    return Z(f("asinh", (below.conjugate() * above).re), 2.0 * f("atan2", below.im, above.re))


def arcsinh(z: Z) -> Z:
    return arcsin(z.turned()).back()


def arctanh(z: Z) -> Z:
    away = (1.0 - z.re) * (1.0 - z.re) + z.im * z.im
    re = 0.25 * f("log1p", 4.0 * z.re / away)
    return Z(re, 0.5 * f("atan2", z.im * 2.0, (1.0 - z.re) * (1.0 + z.re) - z.im * z.im))


def arctan(z: Z) -> Z:
    return arctanh(z.turned()).back()


def expm1_(z: Z) -> Z:
    half = f("sin", z.im * 0.5)
    return Z(f("expm1", z.re) * f("cos", z.im) - 2.0 * half * half, f("exp", z.re) * f("sin", z.im))


def log1p_(z: Z) -> Z:
    return Z(0.5 * f("log1p", z.re * (z.re + 2.0) + z.im * z.im), f("atan2", z.im, z.re + 1.0))


def exp2(z: Z) -> Z:
    return exp(z.times(LN2))


def log2(z: Z) -> Z:
    return log(z).times(1 / LN2)


def log10(z: Z) -> Z:
    return log(z).times(1 / LN10)


# Order: by the real parts, then by the imaginary ones; what is NaN in a part is in no order


def ordered(x: Expr, y: Expr) -> Expr:
    """Whether neither is NaN."""
    return x.eq(x) & y.eq(y)


def less(a: Z, b: Z) -> Expr:
    return ((a.re < b.re) & ordered(a.im, b.im)) | (a.re.eq(b.re) & (a.im < b.im))


def less_equal(a: Z, b: Z) -> Expr:
    return ((a.re < b.re) & ordered(a.im, b.im)) | (a.re.eq(b.re) & (a.im <= b.im))


def is_nan(z: Z) -> Expr:
    return z.re.ne(z.re) | z.im.ne(z.im)


def is_inf(z: Z) -> Expr:
    return f("abs", z.re).eq(float("inf")) | f("abs", z.im).eq(float("inf"))


def maximum(a: Z, b: Z) -> Z:
    first = less_equal(b, a) | is_nan(a)
    return Z(select(first, a.re, b.re), select(first, a.im, b.im))


def minimum(a: Z, b: Z) -> Z:
    first = less_equal(a, b) | is_nan(a)
    return Z(select(first, a.re, b.re), select(first, a.im, b.im))
