"""Argument reduction for sin, cos and tan, for x of any size: x = n pi + r, (n + 1/2) pi + r or n
pi/2 + r.

|r| is as small as possible, or a little larger near the bounds. Up to a bound, the multiple of pi
is subtracted in parts whose sum is pi to three times the precision (W. Cody and W. Waite, "Software
Manual for the Elementary Functions", 1980). Beyond it, the significant bits of 2/pi (those before
contribute multiples of four quadrants) are shifted into place and multiplied in integers (M. Payne
and R. Hanek, "Radian reduction for trigonometric functions", 1983).
"""

from itertools import pairwise
from typing import NamedTuple

from ...dialect.kernel_ir.expressions import Bitcast, Expr, cast, constant, select
from ...dialect.types.tensor_types import F32, F64, I32, I64, UI64
from . import primitives as fp
from .double_word import exact_product, exact_sum, ordered_sum

HALF_PI = {
    F32: (1.5707964, -4.371139e-08, -1.7151245e-15),
    F64: (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
# the same, the first two parts rounded down: the sign of zero is that of the argument then
QUARTER_TURN = {F32: (1.5707963, 7.5497894e-08, 5.390303e-15), F64: HALF_PI[F64]}
TWO_OVER_PI = 0.6366197723675814
# up to here n has few enough bits that what the third part of pi/2 leaves out is far below the
# smallest |r|
NEAR = {F32: 2.0**17, F64: 2.0**30}

# of f64, bits after the point: more than n leaves of a mantissa are not needed, and f32 has too few
FRACTION = 20

# the bits of 2/pi after the point
TWO_OVER_PI_BITS = (
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e0"
    "06492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f4"
    "9c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d"
    "7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6bab"
)


LOW = (1 << 32) - 1


class Reduced(NamedTuple):
    """x = quadrant pi/2 + high - excess; only the two lowest bits of the integer `quadrant` are
    significant.
    """

    quadrant: Expr
    high: Expr
    excess: Expr


def half_turns(x: Expr) -> tuple[Expr, Expr]:
    """The n and r of x = n pi + r, for 0 <= x < NEAR; only the lowest bit of the integer n is
    significant.
    """
    shifted, n = fp.nearest(x, TWO_OVER_PI / 2)
    return fp.bits(shifted), _less(x, n, 2.0)


def odd_quarters(x: Expr) -> tuple[Expr, Expr]:
    """The n and r of x = (n + 1/2) pi - r, likewise."""
    if (t := x.type) is F32:
        shifted = fp.fma(x, TWO_OVER_PI / 2, -0.5) + fp.ROUNDER[t]
        return fp.bits(shifted), _less(-x, (shifted - fp.ROUNDER[t]) + 0.5, -2.0)
    # x / pi with some bits after the point, which are then set: but for the last of them, this is n
    # + 1
    origin = 1.5 * 2.0 ** (fp.MANTISSA[t] - FRACTION)
    above = fp.bits(fp.fma(x, TWO_OVER_PI / 2, origin)) | ((1 << FRACTION) - 1)
    middle = fp.as_float(above) - (origin + 0.5 - 2.0**-FRACTION)
    return fp.shift_right(above, FRACTION), _less(-x, middle, -2.0)


def _less(x: Expr, n: Expr, quarters: float) -> Expr:
    """x - n pi/2 quarters; the first step is exact: a multiple of the last bit of either, and
    small.
    """
    for part in HALF_PI[x.type]:
        x = fp.fma(n, -quarters * part, x)
    return x


def quarter_turns(x: Expr) -> Reduced:
    """The reduction of |x| < NEAR. `high` has the sign of a zero argument, and `excess` is never
    -0.
    """
    first, second, third = QUARTER_TURN[x.type]
    shifted, n = fp.nearest(x, TWO_OVER_PI)
    start = fp.fma(n, -first, x)  # exact
    high = start - n * second
    return Reduced(fp.bits(shifted), high, fp.fma(n, third, fp.fma(n, second, high - start)))


def far(x: Expr) -> Reduced:
    """The reduction of NEAR <= x < infinity."""
    if x.type is F32:
        quadrant, high, _ = _far(cast(x, F64), fp.BIAS[F64] + 17, fp.BIAS[F64] + 127, 2)
        return Reduced(
            cast(quadrant, I32), cast(high, F32), cast(cast(cast(high, F32), F64) - high, F32)
        )
    return _far(x, fp.BIAS[F64] + 30, 2 * fp.BIAS[F64], 3)


def _far(x: Expr, least: int, greatest: int, size: int) -> Reduced:
    """The reduction of an f64 whose biased exponent is in [least, greatest], by a product with
    `size` words of 2/pi.
    """
    b = Bitcast(x, UI64)
    mantissa = (b & ((1 << 52) - 1)) | (1 << 52)
    place = (b >> 52) - least
    # x = mantissa 2^(exponent - 1075): the bits of 2/pi count from number exponent - 1076 on, which
    # then has weight 2
    words = _window(
        _words(1077 - least, ((greatest - least) >> 6) + size + 1), place >> 6, size + 1
    )
    window = [
        (high << (place & 63)) | ((low >> 1) >> ((place & 63) ^ 63))
        for high, low in pairwise(words)
    ]
    # the product modulo 2^(64 size), which stands for four quadrants
    middle, end = _product(mantissa, window[1])
    if size == 3:
        middle_end = end + _product(mantissa, window[2])[0]
        middle, end = middle + select(middle_end < end, constant(1, UI64), 0), middle_end
    top = mantissa * window[0] + middle
    # to the nearest quadrant: what is left is a signed number of 128 bits, summed from floats of 32
    # bits each
    fraction, more = (top << 2) | (end >> 62), end << 2
    high, low = exact_sum(
        _double(fraction ^ (1 << 63), 32, 2.0**-32, 2.0**31), _double(fraction & LOW, 0, 2.0**-64)
    )
    rest = ordered_sum(high, _double(more, 32, 2.0**-96) + _double(more & LOW, 0, 2.0**-128))
    first, second, _ = HALF_PI[F64]
    angle = exact_product(rest.high, first)
    angle = ordered_sum(
        angle.high, fp.fma(rest.high, second, fp.fma(low + rest.low, first, angle.low))
    )
    return Reduced(Bitcast((top + (1 << 61)) >> 62, I64), angle.high, -angle.low)


def _words(zeros: int, count: int) -> list[Expr]:
    """The first `count` words of 64 bits of 2/pi, after this number of zero bits."""
    table = int(TWO_OVER_PI_BITS, 16)
    length = 4 * len(TWO_OVER_PI_BITS) + zeros
    return [
        constant((table >> (length - 64 * (i + 1))) & ((1 << 64) - 1), UI64) for i in range(count)
    ]


def _window(words: list[Expr], start: Expr, count: int) -> list[Expr]:
    """words[start : start + count], by binary selects, since gathers would be loads of single
    elements.
    """
    step = 1 << max(0, len(words) - count).bit_length()
    while step := step >> 1:
        there = (start & step).ne(0)
        kept = min(len(words), count + step - 1)
        words = [select(there, words[min(i + step, len(words) - 1)], words[i]) for i in range(kept)]
    return words


def _product(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """The two words of a b, for a < 2^53."""
    a1, a0, b1, b0 = a >> 32, a & LOW, b >> 32, b & LOW
    low, cross = a0 * b0, a0 * b1
    middle = (low >> 32) + (cross & LOW) + a1 * b0
    return a1 * b1 + (cross >> 32) + (middle >> 32), (middle << 32) | (low & LOW)


def _double(word: Expr, shift: int, unit: float, less: float = 0.0) -> Expr:
    """(word >> shift) - less in units, exactly; the shifted word has 32 bits, which become the low
    ones of 2^52.
    """
    return (Bitcast((word >> shift) | (1075 << 52), F64) - (2.0**52 + less)) * unit
