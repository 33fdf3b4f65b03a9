"""The logarithms log, log2, log10 and log1p: the argument is 2^e m, m in [sqrt 1/2, sqrt 2], a
polynomial in m - 1.

For f64, m is first multiplied by a table value near 1 / m, whose logarithm is tabulated; log1p is a
series.
"""

from typing import NamedTuple

from ...dialect.kernel_ir.expressions import Expr, Operand, apply, constant, select
from ...dialect.kernel_ir.integer_lookup_tables import LOG_LEAST, LOG_WIDTH
from ...dialect.types.tensor_types import F32, F64, ElementType
from . import primitives as fp

# f64: (log((1 + s) / (1 - s)) - 2 s) / s^3 in s^2, to 2^-59.4 of the logarithm
SERIES = (
    0.6666666666666734,
    0.399999999994166,
    0.2857142874204038,
    0.22222198603583637,
    0.18183562936299622,
    0.15314082482342675,
    0.1479565859684711,
)

SQRT_HALF = {F32: 0x3F3504F3, F64: 0x3FE6A09E667F3BCD}
LEAST = {F32: SQRT_HALF[F32], F64: LOG_LEAST}


class Base(NamedTuple):
    """Constants of a logarithm: log e, log 2 in two parts, (log(1 + f) - f log e) / f^2.

    To 2^-24.9, 2^-25.0 and 2^-24.7 (log, log2, log10 of f32), and 2^-54.6, 2^-54.1 and 2^-53.8.
    """

    name: str
    e: dict[ElementType, float]
    two: dict[ElementType, tuple[float, float]]
    tail: dict[ElementType, tuple[float, ...]]


NATURAL = Base(
    "log",
    {F32: 1.0, F64: 1.0},
    fp.LN2,
    {
        F32: (
            -0.4999999,
            0.3333395,
            -0.25001794,
            0.1996204,
            -0.16569684,
            0.14917801,
            -0.14312717,
            0.08740572,
        ),
        F64: (
            -0.4999999999999636,
            0.3333333333430389,
            -0.2500000143541993,
            0.1999997246463024,
            -0.16545303907780898,
        ),
    },
)
BINARY = Base(
    "log2",
    {F32: 1.442695, F64: 1.4426950408889634},
    {F32: (1.0, 0.0), F64: (1.0, 0.0)},
    {
        F32: (
            -0.7213474,
            0.48090908,
            -0.36070037,
            0.2879487,
            -0.23901634,
            0.21553318,
            -0.20681113,
            0.1257371,
        ),
        F64: (
            -0.7213475204444292,
            0.4808983469769899,
            -0.36067378093097296,
            0.2885386109263786,
            -0.2386982789775629,
        ),
    },
)
DECIMAL = Base(
    "log10",
    {F32: 0.4342945, F64: 0.4342944819032518},
    {F32: (0.30103, -1.4320989e-08), F64: (0.3010299956639812, -2.8037281277851704e-18)},
    {
        F32: (
            -0.21714722,
            0.1447664,
            -0.10857999,
            0.08672037,
            -0.07200054,
            0.06460743,
            -0.06186006,
            0.038042534,
        ),
        F64: (
            -0.2171472409516101,
            0.144764827305299,
            -0.10857362670976249,
            0.08685877679605891,
            -0.07185534188561553,
        ),
    },
)


class Split(NamedTuple):
    """A positive normal number as 2^exponent mantissa, and 2^-exponent; its bits minus the least
    mantissa's.
    """

    mantissa: Expr
    exponent: Expr
    inverse: Expr
    place: Expr


def split(x: Expr, least: int | None = None) -> Split:
    """The `Split` of a number; mantissas begin at the float with the bits `least`, by default at
    sqrt 1/2.
    """
    t = x.type
    width, bias, least = fp.MANTISSA[t], fp.BIAS[t], SQRT_HALF[t] if least is None else least
    k = fp.bits(x) + (fp.bits_of_power(0, t) - least)
    mantissa = fp.as_float((k & ((1 << width) - 1)) + least)
    # an integer below 2^width becomes a float by being the low bits of 2^width
    exponent = fp.as_float(fp.shift_right(k, width) | fp.bits_of_power(width, t)) - (
        2.0**width + bias
    )
    return Split(mantissa, exponent, fp.as_float((2 * bias << width) - (k & -(1 << width))), k)


def split_any(x: Expr, least: int | None = None) -> Split:
    """The `Split` of any positive finite number: subnormal numbers are scaled first."""
    t = x.type
    tiny = x < fp.LEAST_NORMAL[t]
    by = fp.MANTISSA[t] + 2
    parts = split(select(tiny, x * 2.0**by, x), least)
    return parts._replace(exponent=parts.exponent - select(tiny, constant(by, t), 0.0))


def _of_one_plus(f: Expr, base: Base, correction: Operand = 0.0) -> Expr:
    """log(1 + f) + correction; an f64 f is near zero."""
    t = f.type
    square, rest = f * f, fp.estrin(f, base.tail[t])
    if isinstance(correction, Expr):
        rest = fp.fma(square, rest, correction)
        return f + rest if base is NATURAL else fp.fma(f, base.e[t], rest)
    return fp.fma(square, rest, f) if base is NATURAL else fp.fma(f, base.e[t], square * rest)


def _by_series(f: Expr, correction: Operand) -> Expr:
    """log(1 + f) + correction of an f64."""
    s = f / (f + 2.0)
    z = s * s
    half = f * f * 0.5
    rest = fp.fma(s, fp.fma(z, fp.estrin(z, SERIES), half), -half)
    return f + (rest + correction if isinstance(correction, Expr) else rest)


def _of(parts: Split, base: Base, doublings: float = 0.0) -> Expr:
    """The logarithm of a split number, doubled `doublings` times; powers of ten need the second
    part of log 2.
    """
    m, e, t = parts.mantissa, parts.exponent, parts.mantissa.type
    e = e + doublings if doublings else e
    high, low = base.two[t]
    correction = e * low if base is DECIMAL else 0.0
    if t is F32:
        value = _of_one_plus(m - 1.0, base, correction)
    else:
        place = fp.shift_right(parts.place, LOG_WIDTH)
        factor, start = (apply(f"{base.name}_{column}", place) for column in ("factor", "value"))
        value = start + _of_one_plus(fp.fma(m, factor, -1.0), base, correction)  # of what is exact
    return e + value if base is BINARY else fp.fma(e, high, value)


def with_limits(x: Expr, pole: float, value: Expr) -> Expr:
    """The value of a logarithm, corrected at infinity, at its pole and below it; NaN stays NaN."""
    value = select(x < fp.INFINITY, value, x)
    return select(x > pole, value, select(x.eq(pole), constant(-fp.INFINITY, x.type), fp.NAN))


def of_any(x: Expr, base: Base, doublings: float = 0.0) -> Expr:
    """log(2^doublings x), also for x subnormal, not positive or not finite."""
    return with_limits(x, 0.0, _of(split_any(x, LEAST[x.type]), base, doublings))


def logarithm(x: Expr, base: Base) -> Expr:
    return fp.rarely(fp.is_not_normal(x), of_any(x, base), _of(split(x, LEAST[x.type]), base))


def log_of_one_plus(x: Expr, low: Operand = 0.0) -> Expr:
    """log(1 + x + low) for 1 + x in [2^-60, 2^60), |low| being at most an ulp of x."""
    _, e, inverse, _ = split(x + 1.0)
    f = fp.fma(x, inverse, inverse - 1.0)  # (1 + x) 2^-e - 1
    if isinstance(low, Expr):
        lost = fp.fma(x, inverse, (inverse - 1.0) - f)  # what f was rounded by
        low = fp.fma(low, inverse, lost) * fp.fma(f, f - 1.0, 1.0)  # 1 / (1 + f), closely enough
    return fp.fma(
        e, fp.LN2[x.type][0], _of_one_plus(f, NATURAL, low) if x.type is F32 else _by_series(f, low)
    )


def log1p(x: Expr) -> Expr:
    beyond = fp.outside(x + 1.0, -fp.MANY, fp.MANY)
    return fp.keep_zero_sign(
        x, fp.rarely(beyond, with_limits(x, -1.0, of_any(x, NATURAL)), log_of_one_plus(x))
    )
