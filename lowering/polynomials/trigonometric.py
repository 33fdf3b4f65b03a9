"""sin, cos and tan of the argument less a multiple of pi/2 (see `reduction`), and their inverses."""

from __future__ import annotations

from typing import NamedTuple

from ...dialect.index import Expr, constant, maximum, minimum, select
from ...dialect.types import F32, F64
from .doubled import ordered_sum
from .primitives import (
    INFINITY,
    MANY,
    NAN,
    absolute,
    bits,
    estrin,
    flip,
    fma,
    horner,
    is_odd,
    outside,
    polynomial,
    rarely,
    sign_mask,
    sign_of,
    sqrt,
)
from .reduction import HALF_PI, NEAR, Reduced, far, half_turns, odd_quarters, quarter_turns

# (sin r - r) / r^3 in r^2, |r| <= 1.0005 pi/2, to 2^-61.5 of sin r in f64; that of f32 was chosen by the largest error
# of all r after rounding
SIN = {
    F32: (-0.1666666, 0.008333071, -0.00019809854, 2.605904e-06),
    F64: (
        -0.16666666666666666, 0.008333333333333207, -0.00019841269841212495, 2.7557319211575784e-06,
        -2.5052106905300227e-08, 1.6058941059609385e-10, -7.643021158720116e-13, 2.7214410357204616e-15,
    ),
}  # fmt: skip
# (tan r - r) / r^3 in r^2, |r| <= 1.0005 pi/4, to 2^-29.3 and 2^-55.4 of tan r: of f64 a quotient
TAN_F32 = (0.33333352, 0.13332571, 0.05407098, 0.021222606, 0.010995554, -0.000118773205, 0.004481562)
TAN_F64 = (
    (0.33333333333333137, -0.020538620043415064, 0.000200950327612754),
    (1.0, -0.4616158601304212, 0.02334443313198337, -0.00020843294313458224),
)
# (asin x - x) / x^3 in x^2, |x| <= 1/2, to 2^-27.6 and 2^-59.8 of asin x
ASIN = {
    F32: (0.16666752, 0.074953094, 0.04546915, 0.024184778, 0.04215831),
    F64: (
        0.1666666666666676, 0.07499999999970866, 0.044642857174561075, 0.030381942709848106,
        0.022372214936761246, 0.01735161283050669, 0.013980811665794101, 0.011398978830620134,
        0.010779907976665592, 0.003707618976262203, 0.021704697299335173, -0.020995413497257653,
        0.03262647642603008,
    ),
}  # fmt: skip
# (atan t - t) / t^3 in t^2, |t| <= tan pi/8, to 2^-30.4 and 2^-59.3 of atan t
ATAN = {
    F32: (-0.33333316, 0.19998528, -0.14244385, 0.105990715, -0.06089669),
    F64: (
        -0.333333333333332, 0.1999999999995368, -0.1428571428020034, 0.11111110783523782, -0.09090897758127105,
        0.07692060216885792, -0.0666310413495049, 0.05847890823851092, -0.050393164934480796,
        0.03806499509006914, -0.01790783344342671,
    ),
}  # fmt: skip
TAN_EIGHTH = 0.41421356237309503


def _sine(r: Expr) -> Expr:
    z = r * r
    sine = fma(r * z, polynomial(z, SIN[z.type]), r)
    return sine if z.type is F32 else minimum(1.0, maximum(-1.0, sine))  # roundings may take it beyond


def _far_sine(x: Expr, quadrants: int) -> Expr:
    """sin(x + quadrants pi/2) for NEAR <= x."""
    reduced = far(x)
    quadrant = reduced.quadrant + quadrants if quadrants else reduced.quadrant
    half_turn = (quadrant << (quadrant.type.bits - 2)) & sign_mask(quadrant.type)
    first, second, _ = HALF_PI[x.type]
    rest = ordered_sum(constant(first, x.type), -absolute(reduced.high))
    angle = select(is_odd(quadrant), rest.high + (rest.low + second), reduced.high)
    return select(x < INFINITY, flip(_sine(angle), half_turn), NAN)


def _rotated(x: Expr, n: Expr, r: Expr, quadrants: int) -> Expr:
    """sin(x + quadrants pi/2), where the sign of sin r is the other one for odd n; a large x is reduced by other means."""
    usual = flip(_sine(r), n << (n.type.bits - 1))
    return rarely(x >= NEAR[x.type], _far_sine(x, quadrants), usual)


def sin(x: Expr) -> Expr:
    size = absolute(x)
    return flip(_rotated(size, *half_turns(size), 0), sign_of(x))


def cos(x: Expr) -> Expr:
    size = absolute(x)
    return _rotated(size, *odd_quarters(size), 1)


def tan(x: Expr) -> Expr:
    size = absolute(x)

    def value(reduced: Reduced) -> Expr:
        quadrant, r, low = reduced
        z = r * r
        by = estrin(z, TAN_F32) if x.type is F32 else horner(z, TAN_F64[0]) / horner(z, TAN_F64[1])
        t = r + fma(r * z, by, fma(low, z, low))
        return flip(select(is_odd(quadrant), -1.0 / t, t), sign_of(x))

    large = select(size < INFINITY, value(far(size)), NAN)
    return rarely(size >= NEAR[x.type], large, value(quarter_turns(size)))


def _root(x: Expr) -> tuple[Expr, Expr, Expr]:
    """Whether |x| > 1/2, and asin |x| or, there, asin sqrt((1 - |x|) / 2) = acos(|x|) / 2: as a root plus a tail."""
    size = absolute(x)
    large = size > 0.5
    z = select(large, fma(size, -0.5, 0.5), size * size)
    root = select(large, sqrt(z), size)
    return large, root, root * z * polynomial(z, ASIN[x.type])


def asin(x: Expr) -> Expr:
    high, low, _ = HALF_PI[x.type]
    large, root, tail = _root(x)
    start = fma(root, -2.0, high)
    rest = fma(root, -2.0, high - start) + fma(tail, -2.0, low)
    return flip(select(large, start, root) + select(large, rest, tail), sign_of(x))


def acos(x: Expr) -> Expr:
    t = x.type
    high, low, _ = HALF_PI[t]
    large, root, tail = _root(x)
    # 2 angle for large x, pi - 2 angle for large -x, pi/2 -+ angle between
    turn = select(x < 0.0, constant(2.0, t), 0.0)
    turn = select(large, turn, 1.0)
    factor = flip(select(large, constant(2.0, t), -1.0), sign_of(x))
    return fma(turn, high, root * factor) + fma(turn, low, tail * factor)


class _Angle(NamedTuple):
    """base + atan q, the base being a multiple of pi/4."""

    base: Expr
    q: Expr

    def value(self) -> Expr:
        first, second, _ = HALF_PI[self.q.type]
        z = self.q * self.q
        rest = fma(self.base, second / first, self.q * z * polynomial(z, ATAN[z.type]))
        return self.base + (self.q + rest)

    def less_from(self, quarters: float, where: Expr) -> _Angle:
        """So many quarters of a turn less the angle, where this holds."""
        base = select(where, quarters * HALF_PI[self.q.type][0] - self.base, self.base)
        return _Angle(base, select(where, -self.q, self.q))


def _angle(up: Expr, across: Expr) -> _Angle:
    """atan(up / across), both being positive."""
    t = up.type
    quarter = constant(HALF_PI[t][0] / 2, t)
    some, most = up > across * TAN_EIGHTH, up > across * (TAN_EIGHTH + 2.0)
    dividend = select(most, -across, select(some, up - across, up))
    divisor = select(most, up, select(some, up + across, across))
    return _Angle(select(some, quarter, 0.0) + select(most, quarter, 0.0), dividend / divisor)


def atan(x: Expr) -> Expr:
    return flip(_angle(absolute(x), constant(1.0, x.type)).value(), sign_of(x))


def atan2(y: Expr, x: Expr) -> Expr:
    t = y.type
    across, up = absolute(x), absolute(y)
    steep = up > across
    least, most = select(steep, across, up), select(steep, up, across)
    # two infinities, like any equals, have the ratio one, and two zeros zero
    same, one = least.eq(most), constant(1.0, t)
    ratio = select(same, select(least > 0.0, one, 0.0), least) / select(same, one, most)
    far = _angle(ratio, one).less_from(1.0, steep)  # than can be added
    back = bits(x) < 0
    far, usual = (angle.less_from(2.0, back).value() for angle in (far, _angle(up, across)))
    return flip(rarely(outside(most, -MANY, MANY), far, usual), sign_of(y))
