"""erf, erfc and erfcx from one function, e^(x^2) erfc x for x >= 1/2, and a polynomial below."""

from __future__ import annotations

from ...dialect.index import Expr, cast, constant, maximum, minimum, select
from ...dialect.types import F32, F64
from .doubled import Doubled, exact_product, ordered_sum
from .exponential import exp, exponential
from .primitives import absolute, flip, fma, polynomial, sign_of

# erf(x) / x - 1 in x^2, |x| <= 1, to 2^-29.3 and 2^-56.0 of erf x
ERF = {
    F32: (
        0.12837917, -0.37612626, 0.11283579, -0.026853347, 0.005187162, -0.0007997853, 7.806903e-05,
    ),
    F64: (
        0.12837916709551256, -0.37612638903183454, 0.11283791670942439, -0.026866170642898524,
        0.005223977604681391, -0.0008548325870211788, 0.00012055292018476602, -1.4924685397511302e-05,
        1.6446828998670295e-06, -1.6204178527550414e-07, 1.3702395709197087e-08, -7.764467885959076e-10,
    ),
}  # fmt: skip
# (1 + 2 x) e^(x^2) erfc x in (x - 3) / (x + 3), x >= 1/2, to 2^-29.5 and 2^-59.2: the constant in two parts, the rest
ERFCX_START = {F32: (1.253008, 4.9096606e-08), F64: (1.2530080582697296, 4.6314778761705054e-17)}
ERFCX = {
    F32: (
        -0.1356211, -0.04756219, 0.12964483, -0.11927541, 0.06831216, -0.023760421, 0.0025087176, 0.0018645333,
        -0.00073160615, -8.254407e-05, 7.414875e-05,
    ),
    F64: (
        -0.13562110612458123, -0.0475622943534516, 0.12964515870276755, -0.11927366341524656,
        0.06830802734370466, -0.02377051492036322, 0.002529391821179791, 0.0018886903825406317,
        -0.0007798323265697444, -0.00010515997776928772, 0.00012509971547746974, 4.950300250747259e-06,
        -2.0102154184895766e-05, -7.338135089595165e-07, 3.4770233562313356e-06, 3.607349926527747e-07,
        -6.254606701133839e-07, -1.4501489078800034e-07, 1.1249405778724086e-07, 4.227306809258709e-08,
        -2.063059871538887e-08, -6.93856847031711e-09, 3.164790893493189e-09,
    ),
}  # fmt: skip
ROOT_PI_INVERSE = 0.5641895835477563
# erfc of more is zero, and e^(-x^2) no normal number
LARGE = {F32: 10.25, F64: 28.0}


def _near(x: Expr) -> Expr:
    """erf(x) - x for |x| <= 1."""
    return x * polynomial(x * x, ERF[x.type])


def _scaled_complement(x: Expr) -> Doubled:
    """e^(x^2) erfc x for x >= 1/2 and finite, x^2 in range."""
    t = x.type
    pole = ordered_sum(maximum(x + x, 1.0), minimum(x + x, 1.0))
    shift = x + 3.0
    inverse = 1.0 / (pole.high * shift)
    z = (x - 3.0) * pole.high * inverse
    start, low = ERFCX_START[t]
    top = ordered_sum(constant(start, t), z * polynomial(z, ERFCX[t]))
    by = inverse * shift
    high = top.high * by
    return Doubled(high, (fma(-high, pole.high, top.high) + (top.low + low - high * pole.low)) * by)


def _rough_complement(x: Expr) -> Expr:
    """erfc x for 1 <= x, to about x^2 ulp, which are less than one of erf x."""
    x = minimum(LARGE[x.type], x)
    start, _ = ERFCX_START[x.type]
    pole, shift = x + x + 1.0, x + 3.0
    inverse = 1.0 / (pole * shift)
    z = (x - 3.0) * (inverse * pole)
    value = fma(z, polynomial(z, ERFCX[x.type]), start)
    return exp(-(x * x)) * value * (inverse * shift)


def _complement(x: Expr) -> Expr:
    """erfc x for 1/2 <= x."""
    x = minimum(LARGE[x.type], x)
    square = exact_product(x, x)
    e = exponential(-square.high, -square.low)
    c = _scaled_complement(x)
    high = e.high * c.high
    low = fma(e.high, c.high, -high) + fma(e.high, c.low, e.low * c.high)
    return (high + low) * e.scale * e.scale


def erf(x: Expr) -> Expr:
    size = absolute(x)
    return flip(select(size < 1.0, size + _near(size), 1.0 - _rough_complement(size)), sign_of(x))


def erfc(x: Expr) -> Expr:
    size = absolute(x)
    small = (1.0 - x) - _near(x)
    rest = _complement(maximum(0.5, size))
    return select(size < 0.5, small, select(x < 0.0, 2.0 - rest, rest))


def erfcx(x: Expr) -> Expr:
    """e^(x^2) erfc x; of f32 in f64, since 2 e^(x^2) - erfcx |x| would add the errors of both."""
    t = x.type
    if t is F32:
        return cast(erfcx(cast(x, F64)), F32)
    size = absolute(x)
    limited = minimum(LARGE[t], size)
    square = exact_product(limited, limited)
    e = exponential(square.high, square.low)
    start = ordered_sum(constant(1.0, t), -x)
    small = ordered_sum(start.high, start.low - _near(x))
    near = fma(e.high, small.high, fma(e.high, small.low, e.low * small.high)) * e.scale * e.scale
    c = _scaled_complement(minimum(2.0**30, maximum(0.5, size)))
    far = select(size > 2.0**30, ROOT_PI_INVERSE / size, c.high + c.low)
    # 2 e^(x^2) - erfcx |x|, where that is needed
    both = (e.high * 2.0 * e.scale) * e.scale + ((e.low * 2.0 * e.scale) * e.scale - c.high)
    return select(size < 0.5, near, select(x < 0.0, both, far))
