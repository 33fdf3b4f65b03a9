"""The error functions erf, erfc and erfcx.

For f32 by piecewise polynomials. For f64 from a table of erf at grid points; where erfc is small,
and for erfcx, from polynomials over the whole range.
"""

from ...dialect.kernel_ir.expressions import Expr, apply, cast, constant, maximum, minimum, select
from ...dialect.kernel_ir.integer_lookup_tables import ERF_SPACING
from ...dialect.types.tensor_types import F32, F64
from . import primitives as fp
from .double_word import Doubled, exact_product, ordered_sum
from .exponential import EXPM1, LOG2_E, exponential, less_one, reduced, scale

# f32: erf(n ERF_STEP + d) in d, for n = 0 .. 7 each column, to 2^-25.2; of the first, erf(d) - d
ERF_STEP = 0.53125
ERF_PIECES = (
    (0.0, 0.54752845, 0.8670583, 0.9757977, 0.997346, 0.9998277, 0.99999344, 0.9999999),
    (0.12837917, 0.85091394, 0.36490288, 0.08898772, 0.012340821, 0.0009732382, 4.3647047e-05,
     1.1131361e-06),
    (-2.1611415e-08, -0.45204723, -0.3877098, -0.14182428, -0.026224123, -0.0025851633,
     -0.00013913355, -4.1406906e-06),
    (-0.37612513, -0.12354066, 0.15299323, 0.121025994, 0.033037335, 0.0042534564, 0.00028109804,
     9.893217e-06),
    (-2.6886732e-05, 0.18344086, 0.047992926, -0.049161226, -0.026369333, -0.0047874497,
     -0.00040101484,
     -1.6929165e-05),
    (0.11310751, -0.0018366898, -0.06627888, -0.004979507, 0.012498479, 0.0038118174,
     0.00042745704, 2.2263152e-05),
    (-0.0013191933, -0.04729383, 0.009908196, 0.01560501, -0.001627956, -0.002097167,
     -0.00036097993, -2.502285e-05),
    (-0.02415692, 0.006830787, 0.01242356, -0.0057222047, -0.0019191221, 0.00066262454,
     0.00021911928, 2.0526979e-05),
)  # fmt: skip
# f32: erf of more is 1
ERF_LIMIT = 3.93

# f32: e^(x^2) erfc x in x less the center, x <= ERFC_USUAL, to 2^-28.1: the columns are those of
# ERFC_STEP each
ERFC_USUAL, ERFC_STEP = 4.2, 0.5625
ERFC_CENTERS = (0.0, 0.5638428, 1.1193848, 1.6868896, 2.2525635, 2.81958, 3.3702393, 3.9300537)
ERFC_PIECES = (
    (1.0, 0.58436775, 0.39703888, 0.29346603, 0.23086064, 0.18935572, 0.16084138, 0.13930167),
    (-1.1283791, -0.4693961, -0.23950063, -0.13828954, -0.08832269, -0.060571957, -0.04423133,
     -0.03345306),
    (0.99999565, 0.3197025, 0.1289456, 0.06018684, 0.031908177, 0.018568201, 0.011771219,
     0.0078293495),
    (-0.75214666, -0.19275542, -0.06344056, -0.024507737, -0.010965331, -0.005478293, -0.003039801,
     -0.0017886896),
    (0.4987731, 0.10547825, 0.02896018, 0.0094220815, 0.0036036419, 0.0015619016, 0.00076302036,
     0.00040004626),
    (-0.29332903, -0.053311933, -0.012408746, -0.0034356527, -0.0011310427, -0.000429354,
     -0.00018416313,
     -9.073682e-05),
    (0.14093372, 0.025856443, 0.005137285, 0.0012216286, 0.00035576732, 0.000108115586,
     4.79192e-05, 1.45651275e-05),
    (-0.039289366, -0.011359914, -0.0019432049, -0.0004679564, -0.00015316383, -4.1037805e-05,
     -2.8692033e-05,
     1.9669644e-05),
)  # fmt: skip
# f32: 2^-24 e^(x^2) erfc x in x less the center, x <= 10.1, to 2^-25.8: the columns are those of 1
# + x in [1, 3/2) 2^n and
# [3/2, 2) 2^n, numbered by the upper bits
ERFCX_CENTERS = (
    1.4736328,
    2.4902344,
    3.9511719,
    6.055664,
    8.645264,
    8.645264,
    0.28710938,
    0.77246094,
)
ERFCX_PIECES = (
    (1.9428327e-08, 1.26084565e-08, 8.261125e-09, 5.4803886e-09, 3.8642805e-09, 3.8642805e-09,
     4.4319137e-08,
     2.9730064e-08),
    (-9.996198e-09, -4.460616e-09, -1.9743889e-09, -8.81855e-10, -4.4119264e-10, -4.4119264e-10,
     -4.180776e-08,
     -2.1326013e-08),
    (4.697605e-09, 1.5004776e-09, 4.5997517e-10, 1.4017093e-10, 5.0053694e-11, 5.0053694e-11,
     3.2315732e-08,
     1.32565505e-08),
    (-2.0491349e-09, -4.8271853e-10, -1.0463777e-10, -2.2017969e-11, -5.643511e-12, -5.643511e-12,
     -2.1686422e-08,
     -7.3905686e-09),
    (8.3892643e-10, 1.491989e-10, 2.327127e-11, 3.419282e-12, 6.324429e-13, 6.324429e-13,
     1.30450575e-08,
     3.7738523e-09),
    (-3.2464442e-10, -4.4442148e-11, -5.0536086e-12, -5.2465714e-13, -7.032385e-14, -7.032385e-14,
     -7.175361e-09,
     -1.789891e-09),
    (1.203484e-10, 1.2824695e-11, 1.0865637e-12, 7.94633e-14, 7.767264e-15, 7.767264e-15,
     3.6488683e-09, 7.9576695e-10),
    (-4.492541e-11, -3.7305345e-12, -2.4779828e-13, -1.2584893e-14, -9.203018e-16, -9.203018e-16,
     -1.7828253e-09,
     -3.421324e-10),
    (1.3989541e-11, 9.854732e-13, 4.6507218e-14, 2.0177161e-15, 1.0523591e-16, 1.0523591e-16,
     9.280413e-10,
     1.4759473e-10),
)  # fmt: skip
# f64: the integral of e^(-2 n ERF_SPACING t - t^2) for t from 0 to d, over d, less one: polynomials
# in n d, by powers of d^2, for
# |d| <= ERF_SPACING / 2; to 2^-56.6 of erf x and 2^-56.1 of erfc x, up to where erf x is one
ERF_CHANGE = (
    (
        -0.0078121514267621706,
        4.068647327644148e-05,
        -1.589243806635431e-07,
        4.966175956054819e-10,
        -1.261929013488931e-12,
    ),
    (-0.3333333333333333, 0.003906075114656856, -2.4411879070348812e-05, 1.003261159557897e-07),
    (0.09999967545202453, -0.0012566559307045477),
)
ERFC_CHANGE = (
    (-0.0078121514267621706, 4.068647327644148e-05, -1.589244447518428e-07, 4.966165726958409e-10,
     -1.2932921852764972e-12, 2.877379085006811e-15),
    (-0.3333333333333333, 0.0039060756088995325, -2.4411803892222172e-05, 1.0595449421898772e-07,
     -3.3367182506159446e-10),
    (0.1000033812137235, -0.001298274637905394),
)  # fmt: skip
ERF_IS_ONE = 5.95
# f64: erf(x) / x - 1 in x^2, |x| <= 1, to 2^-56.0 of erf x
ERF = (
    0.12837916709551256, -0.37612638903183454, 0.11283791670942439, -0.026866170642898524,
    0.005223977604681391, -0.0008548325870211788, 0.00012055292018476602, -1.4924685397511302e-05,
    1.6446828998670295e-06, -1.6204178527550414e-07, 1.3702395709197087e-08, -7.764467885959076e-10,
)  # fmt: skip
# f64: (1 + 2 x) e^(x^2) erfc x in (x - 3) / (x + 3), x >= 1/2, to 2^-59.2: the constant in two
# parts, the rest
ERFCX_START = (1.2530080582697296, 4.6314778761705054e-17)
ERFCX = (
    -0.13562110612458123, -0.0475622943534516, 0.12964515870276755, -0.11927366341524656,
    0.06830802734370466, -0.02377051492036322, 0.002529391821179791, 0.0018886903825406317,
    -0.0007798323265697444, -0.00010515997776928772, 0.00012509971547746974, 4.950300250747259e-06,
    -2.0102154184895766e-05, -7.338135089595165e-07, 3.4770233562313356e-06, 3.607349926527747e-07,
    -6.254606701133839e-07, -1.4501489078800034e-07, 1.1249405778724086e-07, 4.227306809258709e-08,
    -2.063059871538887e-08, -6.93856847031711e-09, 3.164790893493189e-09,
)  # fmt: skip
ROOT_PI_INVERSE = 0.5641895835477563
# erfc of more is zero, and of somewhat more e^(-x^2) no normal number
LIMIT = {F32: 10.1, F64: 27.3}
LARGE = 28.0
# the power of two that is left for the last product, so that subnormal results are rounded once
LATER = {F32: 24, F64: 64}


def _near(x: Expr) -> Expr:
    """erf(x) - x of an f64 with |x| <= 1."""
    return x * fp.polynomial(x * x, ERF)


def _scaled_complement(x: Expr) -> Doubled:
    """e^(x^2) erfc x of a finite f64 x >= 1/2, x^2 in range."""
    pole = ordered_sum(maximum(x + x, 1.0), minimum(x + x, 1.0))
    shift = x + 3.0
    inverse = 1.0 / (pole.high * shift)
    z = (x - 3.0) * pole.high * inverse
    start, low = ERFCX_START
    top = ordered_sum(constant(start, F64), z * fp.polynomial(z, ERFCX))
    by = inverse * shift
    high = top.high * by
    return Doubled(
        high, (fp.fma(-high, pole.high, top.high) + (top.low + low - high * pole.low)) * by
    )


def _by_pieces(size: Expr) -> Expr:
    """erf of a non-negative f32."""
    shifted, n = fp.nearest(size, 1 / ERF_STEP)
    pieces = fp.Pieces.of_place(fp.bits(shifted), 8)
    rest = fp.fma(n, -ERF_STEP, size)
    start, *more = ERF_PIECES
    first = fp.fma(rest, pieces.at((1.0, *7 * (0.0,)), F32), pieces.at(start, F32))
    return fp.fma(rest, pieces.polynomial(rest, more), first)


def _looked_up(
    function: str, size: Expr, change: tuple[tuple[float, ...], ...]
) -> tuple[Expr, Expr, Expr]:
    """erf or erfc at the nearest grid point r, the slope of erf there, and the change: erf x = erf
    r + slope change.
    """
    shifted, n = fp.nearest(size, 1 / ERF_SPACING)
    rest = fp.fma(n, -ERF_SPACING, size)  # exact
    place, square = n * rest, rest * rest
    first, second, third = (fp.horner(place, c) for c in change)
    less = fp.fma(place, first, square * fp.fma(square, third, second))
    value, slope = (
        apply(f"{function}_{column}", fp.bits(shifted)) for column in ("value", "slope")
    )
    return value, slope, fp.fma(rest, less, rest)


def erf(x: Expr) -> Expr:
    size = fp.absolute(x)
    if x.type is F32:
        value = _by_pieces(minimum(ERF_LIMIT, size))
    else:
        start, slope, change = _looked_up("erf", minimum(ERF_IS_ONE, size), ERF_CHANGE)
        value = fp.fma(slope, change, start)
    return fp.flip(value, fp.sign_of(x))


def _vanishing(size: Expr) -> Expr:
    """erfc of a non-negative f32, or of an f64 of at least 1/2: e^(x^2) erfc x times e^(-x^2)."""
    t = size.type
    square = size * size
    _, shifted, start, rest = reduced(-square)
    less = less_one(start, rest + fp.fma(-size, size, square))
    if t is F32:
        pieces = fp.Pieces.of_place(fp.shift_right(fp.bits(size + 1.0), fp.MANTISSA[t] - 1), 8)
        scaled = pieces.polynomial(size - pieces.at(ERFCX_CENTERS, t), ERFCX_PIECES)
        value = fp.fma(scaled, less, scaled)
    else:
        scaled = _scaled_complement(size)
        value = (
            scaled.high + fp.fma(scaled.high, less, fp.fma(scaled.low, less, scaled.low))
        ) * 2.0 ** -LATER[t]
    return value * fp.as_float((fp.bits(shifted) + LATER[t]) << fp.MANTISSA[t])


def _usual(size: Expr) -> Expr:
    """erfc of an f32 from 0 to ERFC_USUAL: e^(x^2) erfc x times e^(-x^2)."""
    t = F32
    shifted, n = fp.nearest(size * size, -LOG2_E, fp.POWER_ROUNDER)
    high, low = fp.SHORT_LN2[t]
    r = fp.fma(n, -low, -fp.fma(size, size, n * high))
    square = r * r
    first, second, third, fourth, fifth = EXPM1[t]
    rest = fp.fma(square, fp.fma(square, fifth, fp.fma(r, fourth, third)), fp.fma(r, second, first))
    pieces = fp.Pieces.of_place(fp.bits(fp.nearest(size, 1 / ERFC_STEP)[0]), 8)
    scaled = pieces.polynomial(size - pieces.at(ERFC_CENTERS, t), ERFC_PIECES) * scale(shifted)
    return fp.fma(scaled, fp.fma(square, rest, r), scaled)


def erfc(x: Expr) -> Expr:
    """erfc x; for negative x it is 2 - erfc |x|."""
    t, size = x.type, fp.absolute(x)
    if t is F32:
        value = fp.rarely(size > ERFC_USUAL, _vanishing(minimum(LIMIT[t], size)), _usual(size))
        return select(fp.bits(x) < 0, 2.0 - value, value)
    start, slope, change = _looked_up("erfc", minimum(ERF_IS_ONE, size), ERFC_CHANGE)
    start = select(fp.bits(x) < 0, 2.0 - start, start)
    usual = fp.fma(-slope, fp.flip(change, fp.sign_of(x)), start)
    return fp.rarely(x > ERF_IS_ONE, _vanishing(minimum(LIMIT[t], maximum(0.5, size))), usual)


def erfcx(x: Expr) -> Expr:
    """e^(x^2) erfc x; for f32 it is computed in f64, since 2 e^(x^2) - erfcx |x| would add the
    errors of both terms.
    """
    if (t := x.type) is F32:
        return cast(erfcx(cast(x, F64)), F32)
    size = fp.absolute(x)
    limited = minimum(LARGE, size)
    square = exact_product(limited, limited)
    e = exponential(square.high, square.low)
    start = ordered_sum(constant(1.0, t), -x)
    small = ordered_sum(start.high, start.low - _near(x))
    near = (
        fp.fma(e.high, small.high, fp.fma(e.high, small.low, e.low * small.high))
        * e.scale
        * e.scale
    )
    c = _scaled_complement(minimum(2.0**30, maximum(0.5, size)))
    far = select(size > 2.0**30, ROOT_PI_INVERSE / size, c.high + c.low)
    # 2 e^(x^2) - erfcx |x| for negative x
    both = (e.high * 2.0 * e.scale) * e.scale + ((e.low * 2.0 * e.scale) * e.scale - c.high)
    return select(size < 0.5, near, select(x < 0.0, both, far))
