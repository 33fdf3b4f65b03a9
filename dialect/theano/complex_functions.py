"""Theano's functions of complex numbers, computed in f64, also for complex<f32>.

Branch cuts and the values for infinite and undefined parts are C's; parts of any magnitude do not
overflow.
"""

import math

from ..kernel_ir.expressions import Expr, apply as f, constant, select
from ..types.tensor_types import F64
from .complex_arithmetic import Z, absolute, angle
from .formula_blocks import INF, LN2, LN10

FAR = 2.0**500  # whose square is a number, and that of its inverse


def _finite(x: Expr) -> Expr:
    return f("abs", x) < INF


def _signed(magnitude: Expr | float, sign: Expr) -> Expr:
    """A magnitude, at least 0, with the sign of another number, also that of -0."""
    size = magnitude if isinstance(magnitude, Expr) else constant(magnitude, F64)
    return select((sign < 0.0) | (1.0 / sign).eq(-INF), -size, size)


def _by_power(x: Expr, factor: Expr) -> Expr:
    """exp(x) times a factor, which overflows and vanishes only where the product does."""
    far = f("abs", x) > 700.0
    half = f("exp", select(far, x * 0.5, x))
    return half * factor * select(far, half, 1.0)


def exp(z: Z) -> Z:
    inside = _finite(z.im)
    y = select(inside, z.im, 0.0)
    re, im = _by_power(z.re, f("cos", y)), _by_power(z.re, f("sin", y))
    beyond = select(z.re.eq(-INF), 0.0, select(z.re.eq(INF), z.re, math.nan))
    nothing = select(z.re.eq(-INF), 0.0, constant(math.nan, F64))
    return Z(select(inside, re, beyond), select(z.im.eq(0), z.im, select(inside, im, nothing)))


def _sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """The sum, and what it is short of the exact one."""
    whole = a + b
    back = whole - a
    return whole, (a - (whole - back)) + (b - back)


def _with_squares(first: Expr, x: Expr, y: Expr) -> Expr:
    """The sum of a number and two squares that may nearly cancel it."""
    p, q = x * x, y * y
    whole, missed = _sum(first, p)
    found, more = _sum(whole, q)
    return found + ((missed + more) + (f("fma", x, x, -p) + f("fma", y, y, -q)))


def _log_magnitude(x: Expr, y: Expr) -> Expr:
    a, b = f("abs", x), f("abs", y)
    large, small = select(a > b, a, b), select(a > b, b, a)
    near = (large > 0.5) & (large < 1.5)
    close = 0.5 * f(
        "log1p",
        _with_squares(constant(-1, F64), select(near, large, 1.0), select(near, small, 0.0)),
    )
    scale = select(large > FAR, 2.0**-600, select(large < 1 / FAR, constant(2.0**600, F64), 1.0))
    shift = select(large > FAR, 600 * LN2, select(large < 1 / FAR, constant(-600 * LN2, F64), 0.0))
    return select(near, close, f("log", absolute(Z(x * scale, y * scale))) + shift)


def log(z: Z) -> Z:
    return Z(_log_magnitude(z.re, z.im), angle(z))


def log1p_(z: Z) -> Z:
    """By 2x + x² + y² where that is small."""
    above = z.re + 1.0
    near = (f("abs", z.re) < 0.5) & (f("abs", z.im) < 0.75)
    x, y = select(near, z.re, 0.0), select(near, z.im, 0.0)
    close = 0.5 * f("log1p", _with_squares(2.0 * x, y, x))
    return Z(select(near, close, _log_magnitude(above, z.im)), f("atan2", z.im, above))


def expm1_(z: Z) -> Z:
    """NumPy's formula, whose parts do not overflow before the result."""
    half = f("sin", z.im * 0.5)
    cosine = f("cos", z.im)
    far = z.re > 40.0
    re = f("expm1", select(far, 0.0, z.re)) * cosine - 2.0 * half * half
    return Z(select(far, _by_power(z.re, cosine), re), _by_power(z.re, f("sin", z.im)))


def exp2(z: Z) -> Z:
    return exp(z.times(LN2))


def log2(z: Z) -> Z:
    return log(z).times(1 / LN2)


def log10(z: Z) -> Z:
    return log(z).times(1 / LN10)


def sqrt(z: Z) -> Z:
    a, b = f("abs", z.re), f("abs", z.im)
    large = select(a > b, a, b)
    far = large > FAR
    near = large < 1 / FAR
    scale = select(far, 2.0**-4, select(near, constant(2.0**600, F64), 1.0))
    scaled = Z(z.re * scale, z.im * scale)
    t = f("sqrt", (f("abs", scaled.re) + absolute(scaled)) * 0.5)
    other = f("abs", scaled.im) / select(t.eq(0), 1.0, t * 2.0)
    back = select(far, 4.0, select(near, constant(2.0**-300, F64), 1.0))
    right = z.re >= 0.0
    re, im = select(right, t, other) * back, select(right, other, t) * back
    re = select(b.eq(INF), b, select(a.eq(INF), select(right, a, select(b.eq(b), 0.0, b)), re))
    im = select(b.eq(INF), b, select(a.eq(INF), select(right, select(b.eq(b), 0.0, b), a), im))
    return Z(re, _signed(im, z.im))


def power(z: Z, w: Z) -> Z:
    """exp(w log z); 0 to a power of positive real part is 0, and anything to 0 is 1."""
    result = exp(w * log(z))
    at_zero, to_zero = z.re.eq(0) & z.im.eq(0), w.re.eq(0) & w.im.eq(0)
    zero = select(w.re > 0.0, constant(0, F64), float("nan"))
    re = select(to_zero, 1.0, select(at_zero, zero, result.re))
    return Z(re, select(to_zero, 0.0, select(at_zero, zero, result.im)))


# Of angles and hyperbolic ones: each of a kind is one of them, turned


def _hyperbolic(x: Expr, factor: Expr, name: str) -> Expr:
    """sinh x or cosh x, times a factor; by a power where only the product is a number."""
    far = f("abs", x) > 700.0
    large = _by_power(f("abs", select(far, x, 0.0)), factor) * 0.5
    if name == "sinh":
        large = select(x < 0.0, -large, large)
    return select(far, large, f(name, x) * factor)


def sinh(z: Z) -> Z:
    x, y = z.re, z.im
    re = _hyperbolic(x, f("cos", y), "sinh")
    im = _hyperbolic(x, f("sin", y), "cosh")
    alone = ~_finite(y) & (x.eq(0) | f("abs", x).eq(INF))  # whatever the cosine is
    return Z(select(alone, select(x.eq(0), x, INF), re), select(y.eq(0), y, im))


def cosh(z: Z) -> Z:
    x, y = z.re, z.im
    re = _hyperbolic(x, f("cos", y), "cosh")
    im = _hyperbolic(x, f("sin", y), "sinh")
    re = select(~_finite(y) & f("abs", x).eq(INF), INF, re)
    im = select(y.eq(0) & x.ne(0), select(x < 0.0, -y, y), im)
    return Z(re, select(x.eq(0) & ~_finite(y), x, im))


def tanh(z: Z) -> Z:
    """sinh x cosh x + i sin y cos y, over sinh² x + cos² y."""
    x, y = z.re, z.im
    far = f("abs", x) > 20.0
    near = select(far, 1.0, x)
    sine, cosine, up = f("sin", y), f("cos", y), f("sinh", near)
    below = up * up + cosine * cosine
    small = sine * cosine * 4.0 * f("exp", f("abs", x) * -2.0)
    small = select(f("abs", x).eq(INF) & ~_finite(y), 0.0, small)
    known = far & (_finite(y) | f("abs", x).eq(INF))
    re = select(known, _signed(1.0, x), select(x.eq(0), x, up * f("cosh", near) / below))
    return Z(re, select(y.eq(0), y, select(far, small, sine * cosine / below)))


def sin(z: Z) -> Z:
    return sinh(z.turned()).back()


def cos(z: Z) -> Z:
    return cosh(z.turned())


def tan(z: Z) -> Z:
    return tanh(z.turned()).back()


# Their inverses: Kahan's formulas; far away, what they tend to


def _is_far(z: Z) -> Expr:
    return (f("abs", z.re) > FAR) | (f("abs", z.im) > FAR)


def _roots(z: Z, far: Expr) -> tuple[Z, Z]:
    x, y = select(far, 0.0, z.re), select(far, 0.0, z.im)
    return sqrt(Z(1.0 - x, -y)), sqrt(Z(1.0 + x, y))


def arcsin(z: Z) -> Z:
    far = _is_far(z)
    below, above = _roots(z, far)
    re = f("atan2", z.re, select(far, f("abs", z.im), (below * above).re))
    im = select(
        far,
        _signed(_log_magnitude(z.re, z.im) + LN2, z.im),
        f("asinh", (below.conjugate() * above).im),
    )
    return Z(select(z.re.eq(0), z.re, re), im)


def arccos(z: Z) -> Z:
    far = _is_far(z)
    below, above = _roots(z, far)
    re = select(far, f("atan2", f("abs", z.im), z.re), 2.0 * f("atan2", below.re, above.re))
    im = select(
        far,
        -_signed(_log_magnitude(z.re, z.im) + LN2, z.im),
        f("asinh", (above.conjugate() * below).im),
    )
    return Z(select(z.re.eq(0), math.pi / 2, re), im)


def arccosh(z: Z) -> Z:
    """arccos z, turned to where the real part is not below 0; where nothing is known of the
    imaginary part, neither is its sign.
    """
    angle = arccos(z)
    return Z(f("abs", angle.im), _signed(angle.re, z.im))


def arcsinh(z: Z) -> Z:
    return arcsin(z.turned()).back()


def arctanh(z: Z) -> Z:
    far = _is_far(z)
    a = select(far, 0.0, f("abs", z.re))
    y = select(far, 0.0, z.im)
    left = 1.0 - a
    away = left * left + y * y
    pole = away < 1 / FAR / FAR  # also where the square is nothing
    beside = 0.5 * (LN2 - f("log", f("abs", y)))
    re = select(pole, beside, 0.25 * f("log1p", 4.0 * a / select(pole, 1.0, away)))
    distance = absolute(Z(z.re * 0.5, z.im * 0.5))
    tends = select(distance.eq(INF), 0.0, f("abs", z.re) / distance * 0.25 / distance)
    im = 0.5 * f("atan2", y * 2.0, left * (1.0 + a) - y * y)
    known = z.im.eq(z.im) & (z.re.eq(z.re) | f("abs", z.im).eq(INF))
    turn = select(known, constant(math.pi / 2, F64), math.nan)
    re = select(far, tends, select(a.eq(0), a, re))
    return Z(_signed(re, z.re), select(far, _signed(turn, z.im), im))


def arctan(z: Z) -> Z:
    return arctanh(z.turned()).back()
