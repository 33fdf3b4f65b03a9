"""Ufuncs of arithmetic whose meaning for integers, zeros and signs is NumPy's own."""

from dataclasses import replace

import numpy as np

from ..kernel_ir.expressions import Check, Expr, apply, cast, constant, integer_power, select
from ..theano.complex_arithmetic import INF, Z, absolute, choose, inv, is_inf
from ..theano.complex_functions import exp, log
from ..theano.scalar_op import SCALAR_OPS
from ..types.tensor_types import F32, F64, I32, I64, UI8, UI64
from .astype_formula import cast_like_numpy
from .ufunc_table import UFUNCS, Formula, complex_or, row

NEGATIVE_POWER = "integers to negative integer powers are not allowed: use a float base"


def _one(x: Expr) -> Expr:
    return constant(1, x.type)


def _zero(x: Expr) -> Expr:
    return constant(0, x.type)


def _by_zero_is_zero(function: str) -> Formula:
    """An integer function that is 0 where the divisor is."""

    def formula(x: Expr, y: Expr) -> Expr:
        none = y.eq(0)
        return select(none, _zero(x), apply(function, x, select(none, _one(y), y)))

    return formula


def _by_kind(of_integers: Formula, of_floats: Formula) -> Formula:
    return lambda x, y: (of_floats if x.type.kind == "float" else of_integers)(x, y)


def _power(x: Expr, y: Expr) -> Expr:
    if x.type.kind == "float":
        return apply("pow", x, y)
    power = integer_power(x, y)
    return power if y.type.kind == "uint" else Check(y >= 0, power, NEGATIVE_POWER)


def _sign(x: Expr) -> Expr:
    if x.type.kind == "uint":
        return select(x.ne(0), _one(x), _zero(x))
    rest = select(x.eq(0), _zero(x), x) if x.type.kind == "float" else _zero(x)
    return select(x > _zero(x), _one(x), select(x < _zero(x), -_one(x), rest))


def _reciprocal(x: Expr) -> Expr:
    if x.type.kind == "float":
        return _one(x) / x
    return cast_like_numpy(constant(1.0, F64) / cast(x, F64), x.type)


def _complex_power(x: Expr, y: Expr) -> Expr:
    """Whole powers below 100 by products, others by C's exp(w log z); each step is rounded to the
    parts' type.
    """
    z, w = Z.parts(x), Z.parts(y)
    part = z.re.type
    size = apply("abs", w.re)
    one = Z(_one(z.re), _zero(z.re))
    none = z.re.eq(0) & z.im.eq(0) & (w.re.ne(0) | w.im.ne(0))
    whole = w.im.eq(0) & apply("trunc", w.re).eq(w.re) & (size < 100.0)
    n = cast(select(whole, size, 0.0), I32)
    product = one
    factor = z
    for bit in range(7):
        product = choose((n & (1 << bit)).ne(0), product * factor, product)
        factor = factor * factor
    product = choose(w.re < 0.0, one / product, product)
    for exponent, few in enumerate(
        (z, z * z, z * (z * z)), 1
    ):  # not begun by 1 z, which is NaN for infinite parts
        product = choose(w.re.eq(exponent), few, product)
    rest = exp(_product_of_c(w, log(z.cast(F64)).cast(part)).cast(F64)).cast(part)
    of_zero = select(w.re > 0.0, 0.0, constant(np.nan, part))
    return choose(none, Z(of_zero, of_zero), choose(whole, product, rest)).expression(x.type)


def _product_of_c(a: Z, b: Z) -> Z:
    """The product by Annex G of C: of infinite factors it is infinite, where the formula gives NaN
    in both parts.
    """
    product = a * b
    again = (_direction(a) * _direction(b)).times(INF)
    return choose(
        product.re.ne(product.re) & product.im.ne(product.im) & (is_inf(a) | is_inf(b)),
        again,
        product,
    )


def _direction(z: Z) -> Z:
    """The part that is infinite as 1 or -1, beside which the other is 0; NaN becomes 0, too."""

    def of_part(x: Expr) -> Expr:
        end = select(x < 0.0, constant(-1, x.type), 1.0)
        return select(apply("abs", x).eq(INF), end, select(is_inf(z) | x.ne(x), _zero(x), x))

    return Z(of_part(z.re), of_part(z.im))


def _complex_sign(z: Z) -> Z:
    """z over its magnitude."""
    size = absolute(z)
    none = constant(np.nan, F64)
    far = choose(apply("abs", z.re).eq(apply("abs", z.im)), Z(none, none), _direction(z))
    divisor = select(size.eq(0), 1.0, size)
    return choose(
        size.eq(INF),
        far,
        choose(size.eq(0), Z(_zero(z.re), _zero(z.re)), Z(z.re / divisor, z.im / divisor)),
    )


def _whole(function: str) -> Formula:
    return lambda x: apply(function, x) if x.type.kind == "float" else x


def _shift_left(x: Expr, n: Expr) -> Expr:
    inside = cast(n, UI64) < x.type.bits
    return select(inside, x << select(inside, n, _zero(n)), _zero(x))


def _shift_right(x: Expr, n: Expr) -> Expr:
    inside = cast(n, UI64) < x.type.bits
    beyond = _zero(x) if x.type.kind == "uint" else select(x < 0, constant(-1, x.type), _zero(x))
    return select(inside, x >> select(inside, n, _zero(n)), beyond)


def _bitwise_count(x: Expr) -> Expr:
    if x.type.kind == "bool":
        return cast(x, UI8)
    n = cast(cast(apply("abs", x), I64) if x.type.signed else x, UI64)
    if x.type.bits < 64:
        n = n & ((1 << x.type.bits) - 1)
    n = n - ((n >> 1) & 0x5555555555555555)
    n = (n & 0x3333333333333333) + ((n >> 2) & 0x3333333333333333)
    n = (n + (n >> 4)) & 0x0F0F0F0F0F0F0F0F
    return cast((n * 0x0101010101010101) >> 56, UI8)


def _hypot(x: Expr, y: Expr) -> Expr:
    if x.type is F32:
        wide = cast(x, F64), cast(y, F64)
        exact = cast(apply("sqrt", wide[0] * wide[0] + wide[1] * wide[1]), F32)
    else:
        a, b = apply("abs", x), apply("abs", y)
        large, small = apply("maximum", a, b), apply("minimum", a, b)
        ratio = small / select(large.eq(0), _one(large), large)
        exact = large * apply("sqrt", apply("fma", ratio, ratio, _one(ratio)))
    return select(
        apply("abs", x).eq(np.inf) | apply("abs", y).eq(np.inf), constant(np.inf, x.type), exact
    )


def _logaddexp(function: str, exponential: str, base_of_two: float) -> Formula:
    """The logarithm of a sum of powers, from the larger exponent."""

    def formula(x: Expr, y: Expr) -> Expr:
        d = x - y
        larger = select(d > 0.0, x, y)
        rest = apply("log1p", apply(exponential, -apply("abs", d)))
        if function == "log2":
            rest = rest * constant(1 / np.log(2), x.type)
        return select(x.eq(y), x + constant(base_of_two, x.type), select(d.eq(d), larger + rest, d))

    return formula


_theano_int_div = SCALAR_OPS["int_div"].formula
_theano_mod = SCALAR_OPS["mod"].formula
row("floor_divide", _by_kind(_by_zero_is_zero("floordiv"), _theano_int_div), gradient="int_div")
row("remainder", _by_kind(_by_zero_is_zero("floormod"), _theano_mod), gradient="mod")
row("fmod", _by_kind(_by_zero_is_zero("rem"), lambda x, y: apply("rem", x, y)))
for _name in ("power", "float_power"):
    row(
        _name,
        lambda x, y: (_complex_power if x.type.kind == "complex" else _power)(x, y),
        gradient="pow",
        ulps=2,
        takes_complex=True,
    )
UFUNCS["scalar_power"] = replace(  # NumPy's loop for one exponent: 0.5 takes the root
    UFUNCS["power"],
    name="scalar_power",
    numpy=lambda x, y: np.where(y == 0.5, np.sqrt(x), np.power(x, y)),
    formula=lambda x, y: select(y.eq(0.5), apply("sqrt", x), apply("pow", x, y)),
    types=lambda x, y: (x, x, x) if x is y and x in (F32, F64) else None,
)
row("sign", complex_or(_sign, _complex_sign), gradient="sgn", takes_complex=True)
row("reciprocal", complex_or(_reciprocal, inv), gradient="inv", takes_complex=True)
row("fabs", lambda x: apply("abs", x), gradient="abs_")
row("cbrt", lambda x: apply("cbrt", x), ulps=2)
for _name in ("floor", "ceil", "trunc"):
    row(_name, _whole(_name), gradient=_name)
_rint = complex_or(
    lambda x: apply("rint", x), lambda z: Z(apply("rint", z.re), apply("rint", z.im))
)
row("rint", _rint, gradient="round_half_to_even", takes_complex=True)
row(
    "deg2rad",
    lambda x: (
        x * constant(np.float32(np.pi) / np.float32(180) if x.type is F32 else np.pi / 180, x.type)
    ),
    gradient="deg2rad",
)
row(
    "rad2deg",
    lambda x: (
        x * constant(np.float32(180) / np.float32(np.pi) if x.type is F32 else 180 / np.pi, x.type)
    ),
    gradient="rad2deg",
)
row("left_shift", _shift_left)
row("right_shift", _shift_right)
row("bitwise_count", _bitwise_count)
row("hypot", _hypot, ulps=2)
row("logaddexp", _logaddexp("log", "exp", np.log(2)), ulps=4)
row("logaddexp2", _logaddexp("log2", "exp2", 1.0), ulps=4)
