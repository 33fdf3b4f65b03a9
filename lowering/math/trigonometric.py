"""The trigonometric functions sin, cos and tan, after argument reduction, and their inverses."""

from typing import NamedTuple

from ...dialect.kernel_ir.expressions import Expr, constant, maximum, minimum, select
from ...dialect.types.tensor_types import F32, F64, I32
from . import primitives as fp
from .argument_reduction import HALF_PI, NEAR, Reduced, far, half_turns, odd_quarters, quarter_turns
from .double_word import ordered_sum

# (sin r - r) / r^3 in r^2, |r| <= 1.0005 pi/2, to 2^-26.1 and 2^-61.5 of sin r; that of f32 was
# chosen
# by the largest error
# of all r after rounding
SIN = {
    F32: (-0.1666666, 0.008333071, -0.00019809854, 2.605904e-06),
    F64: (
        -0.16666666666666666, 0.008333333333333207, -0.00019841269841212495, 2.7557319211575784e-06,
        -2.5052106905300227e-08, 1.6058941059609385e-10, -7.643021158720116e-13,
         2.7214410357204616e-15,
    ),
}  # fmt: skip
# (tan r - r) / r^3 in r^2, |r| <= 1.0005 pi/4, to 2^-30.7 and 2^-55.4 of tan r: a quotient
TAN = {
    F32: ((0.33333334, -0.014784722), (1.0, -0.44435394, 0.01583637)),
    F64: (
        (0.33333333333333137, -0.020538620043415064, 0.000200950327612754),
        (1.0, -0.4616158601304212, 0.02334443313198337, -0.00020843294313458224),
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
# (atan t - t) / t^3 in t^2: of f32 for |t| <= 1, to 2^-25.8 of atan t, and of f64 for |t| <= 1/2,
# to 2^-57.7
ATAN = {
    F32: (-0.33333153, 0.19993767, -0.14211002, 0.106657684, -0.07551657, 0.04320467, -0.016363151,
     0.0029194157),
    F64: (
        -0.3333333333333298, 0.19999999999903062, -0.1428571427637943, 0.11111110659292278,
         -0.09090896234978425,
        0.07692073746368798, -0.0666380881393489, 0.058582861464906315, -0.05121946967465661,
         0.041863344220776484,
        -0.02743215554908946, 0.01011485131026606,
    ),
}  # fmt: skip
# f64: ratios from which pi/4 and pi/2 are taken off
SOME, MOST = 0.5, 2.414
# f32: pi/2 to 2^-44.5, so that an fma by the second factor adds what is next to a multiple of pi/2
HALF_PI_FACTORS = (1.110095, 1.4150107)
LEAST = 2.0**-149  # of f32, but for zero


def _sine(r: Expr) -> Expr:
    z = r * r
    sine = fp.fma(r * z, fp.polynomial(z, SIN[z.type]), r)
    return sine if z.type is F32 else minimum(1.0, maximum(-1.0, sine))  # rounding may exceed 1


def _far_sine(x: Expr, quadrants: int) -> Expr:
    """sin(x + quadrants pi/2) for NEAR <= x."""
    reduced = far(x)
    quadrant = reduced.quadrant + quadrants if quadrants else reduced.quadrant
    half_turn = (quadrant << (quadrant.type.bits - 2)) & fp.sign_mask(quadrant.type)
    first, second, _ = HALF_PI[x.type]
    rest = ordered_sum(constant(first, x.type), -fp.absolute(reduced.high))
    angle = select(fp.is_odd(quadrant), rest.high + (rest.low + second), reduced.high)
    return select(x < fp.INFINITY, fp.flip(_sine(angle), half_turn), fp.NAN)


def _rotated(x: Expr, n: Expr, r: Expr, quadrants: int) -> Expr:
    """sin(x + quadrants pi/2), from sin r with the sign changed for odd n; a large x is reduced by
    `far`.
    """
    return fp.rarely(
        x >= NEAR[x.type], _far_sine(x, quadrants), fp.flip(_sine(r), n << (n.type.bits - 1))
    )


def sin(x: Expr) -> Expr:
    size = fp.absolute(x)
    return fp.flip(_rotated(size, *half_turns(size), 0), fp.sign_of(x))


def cos(x: Expr) -> Expr:
    size = fp.absolute(x)
    return _rotated(size, *odd_quarters(size), 1)


def _tangent(reduced: Reduced) -> Expr:
    """r + r^3 P / Q, or for odd quadrants -Q / (r Q + r^3 P); written so that zero keeps its
    sign.
    """
    quadrant, r, excess = reduced
    z = r * r
    over, under = TAN[z.type]
    less = fp.fma(-(r * z), fp.horner(z, over), excess)
    divisor = fp.estrin(z, under)
    odd = fp.is_odd(quadrant)
    quotient = select(odd, divisor, less) / select(odd, fp.fma(r, divisor, -less), divisor)
    return select(odd, constant(0.0, z.type), r) - quotient


def tan(x: Expr) -> Expr:
    size = fp.absolute(x)
    large = select(size < fp.INFINITY, fp.flip(_tangent(far(size)), fp.sign_of(x)), fp.NAN)
    return fp.rarely(size >= NEAR[x.type], large, _tangent(quarter_turns(x)))


def _root(x: Expr) -> tuple[Expr, Expr, Expr]:
    """The condition |x| > 1/2, and as root plus tail: asin |x|, or there asin sqrt((1 - |x|) / 2) =
    acos(|x|) / 2.
    """
    size = fp.absolute(x)
    large = size > 0.5
    z = select(large, fp.fma(size, -0.5, 0.5), size * size)
    root = select(large, fp.sqrt(z), size)
    return large, root, root * z * fp.polynomial(z, ASIN[x.type])


def asin(x: Expr) -> Expr:
    high, low, _ = HALF_PI[x.type]
    large, root, tail = _root(x)
    start = fp.fma(root, -2.0, high)
    rest = fp.fma(root, -2.0, high - start) + fp.fma(tail, -2.0, low)
    return fp.flip(select(large, start, root) + select(large, rest, tail), fp.sign_of(x))


def acos(x: Expr) -> Expr:
    t = x.type
    high, low, _ = HALF_PI[t]
    large, root, tail = _root(x)
    # 2 angle for large x, pi - 2 angle for large -x, pi/2 -+ angle between
    turn = select(x < 0.0, constant(2.0, t), 0.0)
    turn = select(large, turn, 1.0)
    factor = fp.flip(select(large, constant(2.0, t), -1.0), fp.sign_of(x))
    return fp.fma(turn, high, root * factor) + fp.fma(turn, low, tail * factor)


class _Angle(NamedTuple):
    """An f64 angle: eighths pi/4 + atan q."""

    eighths: Expr
    q: Expr

    def value(self) -> Expr:
        first, second, _ = HALF_PI[self.q.type]
        z = self.q * self.q
        rest = fp.fma(self.q * z, fp.estrin(z, ATAN[z.type]), self.eighths * (second / 2))
        return fp.fma(self.eighths, first / 2, self.q + rest)

    def less_from(self, eighths: float, where: Expr) -> "_Angle":
        """The number of eighths minus the angle, where the condition holds."""
        return _Angle(
            select(where, eighths - self.eighths, self.eighths), select(where, -self.q, self.q)
        )


def _angle(up: Expr, across: Expr | None = None) -> _Angle:
    """atan(up / across) of positive finite f64: as atan of up, (up - across) / (up + across) or
    -across / up.
    """
    t = up.type
    one = constant(1.0, t)
    some, most = (up > (limit if across is None else across * limit) for limit in (SOME, MOST))
    of_up, of_across = select(most, constant(0.0, t), one), select(some, one, 0.0)
    eighths = (of_across - of_up) + 1.0
    turned = (of_up, of_across) if across is None else (of_up * across, of_across * across)
    return _Angle(eighths, fp.fma(up, of_up, -turned[1]) / fp.fma(up, of_across, turned[0]))


def _arc(ratio: Expr, quarters: Expr) -> Expr:
    """The atan of an f32 ratio, |ratio| <= 1, plus quarters of a turn, as multiples of the first
    factor of pi/2.
    """
    z = ratio * ratio
    return fp.fma(quarters, HALF_PI_FACTORS[1], fp.fma(ratio * z, fp.estrin(z, ATAN[F32]), ratio))


def atan(x: Expr) -> Expr:
    size = fp.absolute(x)
    if x.type is F64:
        return fp.flip(_angle(minimum(2.0**fp.MANY, size)).value(), fp.sign_of(x))
    steep = size > 1.0
    ratio = select(steep, constant(-1.0, F32), size) / maximum(1.0, size)
    return fp.flip(
        _arc(ratio, select(steep, constant(HALF_PI_FACTORS[0], F32), 0.0)), fp.sign_of(x)
    )


def atan2(y: Expr, x: Expr) -> Expr:
    t = y.type
    across, up = fp.absolute(x), fp.absolute(y)
    steep, back = up > across, fp.bits(x) < 0
    least, most = select(steep, across, up), select(steep, up, across)
    # two infinities, like any equals, have the ratio one, and two zeros zero
    if t is F32:
        most = maximum(LEAST, most)
        ratio = select(least.eq(most), constant(1.0, t), least / most)
        turned = fp.sign_of(x) ^ select(steep, constant(fp.sign_mask(I32), I32), 0)
        quarter = HALF_PI_FACTORS[0]
        quarters = select(steep, constant(quarter, t), select(back, constant(2 * quarter, t), 0.0))
        return fp.flip(_arc(fp.flip(ratio, turned), quarters), fp.sign_of(y))
    same, one = least.eq(most), constant(1.0, t)
    ratio = select(same, select(least > 0.0, one, 0.0), least) / select(same, one, most)
    # beyond what can be added: both by a power of two, where they are near to each other
    half = 2.0 ** (fp.BIAS[t] // 2)
    close, factor = least > most * 2.0**-20, select(most > one, constant(1 / half, t), half)
    far = _angle(select(close, least * factor, ratio), select(close, most * factor, one)).less_from(
        2.0, steep
    )
    far, usual = (angle.less_from(4.0, back).value() for angle in (far, _angle(up, across)))
    return fp.flip(fp.rarely(fp.outside(most, -fp.MANY, fp.MANY), far, usual), fp.sign_of(y))
