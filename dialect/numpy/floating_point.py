"""Ufuncs of a float's parts: sign, exponent, fraction and neighbors. All are exact."""

import numpy as np

from ..kernel_ir.expressions import Bitcast, Expr, apply, cast, constant, select
from ..types.tensor_types import BF16, F16, F32, F64, I16, I32, I64
from .ufunc_table import row, row_of_result

_BITS = {F16: I16, BF16: I16, F32: I32, F64: I64}
_MANTISSA = {F32: 23, F64: 52}


def _bits(x: Expr) -> Expr:
    return Bitcast(x, _BITS[x.type])


def _copysign(x: Expr, y: Expr) -> Expr:
    sign = _BITS[x.type].limits[0]
    return Bitcast((_bits(x) & ~sign) | (_bits(y) & sign), x.type)


def _nextafter(x: Expr, y: Expr) -> Expr:
    up = (y > x).eq(x > constant(0.0, x.type))  # away from zero
    step = Bitcast(
        _bits(x) + select(up, constant(1, _BITS[x.type]), constant(-1, _BITS[x.type])), x.type
    )
    least = _copysign(Bitcast(constant(1, _BITS[x.type]), x.type), y)
    neighbor = select(x.eq(y), x if x.type is F16 else y, select(x.eq(0), least, step))
    return select(x.ne(x) | y.ne(y), x + y, neighbor)


def _spacing(x: Expr) -> Expr:
    if x.type is F16:
        return _spacing_of_f16(x)
    spacing = _nextafter(x, _copysign(constant(np.inf, x.type), x)) - x
    if x.type is not BF16:  # of which that of -0.0 is negative
        spacing = select(x.eq(0), Bitcast(constant(1, _BITS[x.type]), x.type), spacing)
    return select(apply("abs", x).eq(np.inf), constant(np.nan, x.type), spacing)


def _spacing_of_f16(x: Expr) -> Expr:
    """The distance to the next number above; the bits of a power of two from the exponent."""
    bits = cast(Bitcast(x, I16), I32)
    exponent = (bits >> 10) & 31
    significand = bits & 0x3FF
    finite = exponent
    exponent = exponent - select((bits < 0) & significand.eq(0), constant(1, I32), constant(0, I32))
    down = apply("max", exponent - 1, constant(0, I32))
    spacing = select(exponent > 10, (exponent - 10) << 10, constant(1, I32) << down)
    spacing = select(
        bits.eq(0x7BFF),
        constant(0x7C00, I32),
        select(finite.eq(31), constant(0x7E00, I32), spacing),
    )
    return Bitcast(cast(spacing, I16), F16)


def _ldexp(x: Expr, n: Expr) -> Expr:
    """x 2^n, rounded once: steps down keep 53 bits above the subnormal range until the last one."""
    wide, steps = cast(x, F64), cast(n, I64)
    steps = apply("max", apply("min", steps, constant(3100, I64)), constant(-3100, I64))
    up = constant(2.0**1023, F64)
    down = constant(2.0**-1022 * 2.0**53, F64)
    for _ in range(2):
        high = steps > 1023
        low = steps < -1022
        wide = select(high, wide * up, select(low, wide * down, wide))
        steps = select(high, steps - 1023, select(low, steps + (1022 - 53), steps))
    steps = apply("max", apply("min", steps, constant(1023, I64)), constant(-1022, I64))
    return cast(wide * Bitcast((steps + 1023) << 52, F64), x.type)  # 2^steps


def _scaled(x: Expr) -> tuple[Expr, Expr, Expr]:
    """Bits of a normal number with the fraction of x, how far its exponent is off, and whether x
    has an exponent at all.
    """
    mantissa = _MANTISSA[x.type]
    small = apply("abs", x) < constant(float(np.finfo(x.type.dtype).tiny), x.type)
    normal = select(small, x * constant(2.0**mantissa * 4, x.type), x)
    shift = select(small, constant(mantissa + 2, I32), constant(0, I32))
    return _bits(normal), shift, x.ne(0) & (apply("abs", x) < np.inf)


def _frexp_fraction(x: Expr) -> Expr:
    bits, _, ordinary = _scaled(x)
    mantissa = _MANTISSA[x.type]
    width = x.type.bits
    exponent_mask = ((1 << (width - 1)) - 1) ^ ((1 << mantissa) - 1)
    half = int(np.asarray(0.5, x.type.dtype).view(_BITS[x.type].dtype))
    return select(ordinary, Bitcast((bits & ~exponent_mask) | half, x.type), x)


def _frexp_exponent(x: Expr) -> Expr:
    bits, shift, ordinary = _scaled(x)
    mantissa = _MANTISSA[x.type]
    bias = (1 << (x.type.bits - mantissa - 2)) - 2
    exponent = (
        cast((bits >> mantissa) & ((1 << (x.type.bits - 1 - mantissa)) - 1), I32) - bias - shift
    )
    return select(ordinary, exponent, constant(0, I32))


def _modf_fraction(x: Expr) -> Expr:
    return _copysign(
        select(apply("abs", x).eq(np.inf), constant(0.0, x.type), x - apply("trunc", x)), x
    )


row("signbit", lambda x: _bits(x) < 0)
row("copysign", _copysign)
row("nextafter", _nextafter, keeps_f16=True)
row("spacing", _spacing, keeps_f16=True)
row("ldexp", _ldexp)
row_of_result("frexp_fraction", "frexp", 0, _frexp_fraction)
row_of_result("frexp_exponent", "frexp", 1, _frexp_exponent)
row_of_result("modf_fraction", "modf", 0, _modf_fraction)
row_of_result("modf_integral", "modf", 1, lambda x: apply("trunc", x))
