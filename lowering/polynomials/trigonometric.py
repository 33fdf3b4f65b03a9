"""sin, cos and tan of the argument less a multiple of pi/2 (see `reduction`), and their inverses."""

from __future__ import annotations

from collections.abc import Callable

from ...dialect.index import Expr, constant, select
from ...dialect.types import F32, F64
from .primitives import INFINITY, NAN, absolute, bits, flip, fma, is_odd, polynomial, rarely, sign_mask, sign_of, sqrt
from .reduction import HALF_PI, NEAR, Reduced, far, near, near_briefly

# (sin r - r) / r^3 in r^2, |r| <= 1.01 pi/4, to 2^-27.8 and 2^-57.7 of sin r
SIN = {
    F32: (-0.16666654, 0.008332107, -0.00019508062),
    F64: (
        -0.16666666666666627, 0.008333333333321069, -0.0001984126982869803, 2.7557313298435023e-06,
        -2.5050695438950528e-08, 1.5893110354758047e-10,
    ),
}  # fmt: skip
# (cos r - 1 + r^2 / 2) / r^4, to 2^-32.7 and 2^-63.6 of cos r
COS = {
    F32: (0.041666646, -0.0013887298, 2.4430085e-05),
    F64: (
        0.04166666666666658, -0.001388888888887097, 2.4801587287527964e-05, -2.7557313791573195e-07,
        2.087564749252255e-09, -1.1355744225629515e-11,
    ),
}  # fmt: skip
# (tan r - r) / r^3, to 2^-29.3 and 2^-59.4 of tan r
TAN = {
    F32: (
        0.33333352, 0.13332571, 0.05407098, 0.021222606, 0.010995554, -0.000118773205, 0.004481562,
    ),
    F64: (
        0.333333333333334, 0.13333333333322758, 0.05396825397430199, 0.0218694883611805, 0.008863238536875501,
        0.0035920944906957146, 0.0014560907703770627, 0.0005886397210139207, 0.00024455024293328103,
        8.151973562443268e-05, 7.092672433309427e-05, -3.030963891411881e-05, 5.25310055411927e-05,
        -2.619902034779414e-05, 1.0226480136441402e-05,
    ),
}  # fmt: skip
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
# (atan x - x) / x^3 in x^2, |x| <= 1, to 2^-28.4 and 2^-60.1 of atan x
ATAN = {
    F32: (
        -0.333333, 0.1999853, -0.14264014, 0.10950861, -0.08399209, 0.057878908, -0.03109361, 0.010866341,
        -0.0017821643,
    ),
    F64: (
        -0.33333333333333287, 0.19999999999990617, -0.14285714285044973, 0.11111111086670357,
        -0.09090908550989545, 0.07692299754293876, -0.06666584069705013, 0.058817182563233976,
        -0.052594434915732534, 0.047449608252423434, -0.04286488280512395, 0.03821222065823038,
        -0.03278921156579092, 0.026156912428051633, -0.018619912865218864, 0.011322477603312946,
        -0.005615483255358281, 0.002153043944289696, -0.0005933664259594099, 0.00010396682311574604,
        -8.66306084586176e-06,
    ),
}  # fmt: skip


def _by_quadrant(x: Expr, kernel: Callable[[Reduced], Expr], reduce: Callable[[Expr], Reduced]) -> Expr:
    """kernel(the reduced |x|); a large |x| is reduced by other means."""
    size = absolute(x)
    large = select(size < INFINITY, kernel(far(size)), NAN)
    return rarely(size >= NEAR[x.type], large, kernel(reduce(size)))


def _rotated(x: Expr, quadrants: int) -> Expr:
    """sin(|x| + quadrants pi/2)"""

    def kernel(reduced: Reduced) -> Expr:
        r = reduced.high  # its lower part would save half an ulp, and cost a quarter more time
        z = r * r
        sine = fma(r * z, polynomial(z, SIN[z.type]), r)
        cosine = fma(z * z, polynomial(z, COS[z.type]), fma(z, -0.5, 1.0))
        quadrant = reduced.quadrant + quadrants if quadrants else reduced.quadrant
        half_turn = (quadrant << (quadrant.type.bits - 2)) & sign_mask(quadrant.type)
        return flip(select(is_odd(quadrant), cosine, sine), half_turn)

    return _by_quadrant(x, kernel, near_briefly)


def sin(x: Expr) -> Expr:
    return flip(_rotated(x, 0), sign_of(x))


def cos(x: Expr) -> Expr:
    return _rotated(x, 1)


def tan(x: Expr) -> Expr:
    def kernel(r: Reduced) -> Expr:
        z = r.high * r.high
        t = r.high + fma(r.high * z, polynomial(z, TAN[z.type]), fma(r.low, z, r.low))
        odd = is_odd(r.quadrant)
        return flip(select(odd, -1.0 / t, t), sign_of(x))

    return _by_quadrant(x, kernel, near)


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


def _ratio(low: Expr, high: Expr) -> tuple[Expr, Expr]:
    """atan(low / high) for 0 <= low <= high: the sum of the ratio and a tail."""
    t = low / high
    z = t * t
    return t, t * z * polynomial(z, ATAN[t.type])


def atan(x: Expr) -> Expr:
    high, low, _ = HALF_PI[x.type]
    size = absolute(x)
    large = size > 1.0
    t, tail = _ratio(select(large, constant(1.0, x.type), size), select(large, size, 1.0))
    return flip(select(large, (high - t) + (low - tail), t + tail), sign_of(x))


def atan2(y: Expr, x: Expr) -> Expr:
    t = y.type
    high, low, _ = HALF_PI[t]
    across, up = absolute(x), absolute(y)
    steep = up > across
    least, most = select(steep, across, up), select(steep, up, across)
    # two infinities, like any equals, have the ratio one, and two zeros zero
    same = least.eq(most)
    dividend = select(same, select(least > 0.0, constant(1.0, t), 0.0), least)
    ratio, tail = _ratio(dividend, select(same, constant(1.0, t), most))
    # a turn less or more the angle: 0 + a, pi - a, pi/2 - a or pi/2 + a
    turn = select(steep, constant(1.0, t), select(bits(x) < 0, constant(2.0, t), 0.0))
    sign = sign_of(x) ^ select(steep, constant(sign_mask(bits(x).type), bits(x).type), 0)
    angle = fma(turn, high, flip(ratio, sign)) + fma(turn, low, flip(tail, sign))
    return flip(angle, sign_of(y))
