"""Arithmetic of bf16 in f32 and integers, so that its bits are the same on every processor (TVM's
BF16ComputeLegalize).

    cast<bf16>(x: f32)  =>  the upper half of x's bits, rounded to nearest, ties to even
    x + y of bf16  =>  cast<bf16>(cast<f32>(x) + cast<f32>(y))

f32 has more than twice the digits of bf16, and two: sums, products, quotients and square roots
round as if once.
"""

from ...dialect.kernel_ir.expressions import Apply, Bitcast, Cast, Expr, Reduce, apply, cast, select
from ...dialect.kernel_ir.traverse import over
from ...dialect.types.tensor_types import BF16, F32, F64, UI16, UI32, ElementType

HALF = 1 << 15  # of the last place that bf16 has of an f32's bits
QUIET = 0x400000
LONG = 11  # bits of an i64 for which f64 has no place


def converted(x: Expr, element: ElementType) -> Expr:
    """The conversion to another type, from and to bf16 by its bits."""
    if element is BF16 is not x.type:
        return _narrowed(x)
    return x if x.type is element else cast(_widened(x), element)


def in_f32(e: Expr, parts: tuple[Expr, ...]) -> Expr:
    """The node over these children; an operation on bf16 in f32."""
    match e:
        case Cast(operand, type) if BF16 in (operand.type, type):
            return converted(parts[0], type)
        case Apply(function, _, type) if parts[-1].type is BF16 and function not in (
            "select",
            "rarely",
        ):
            return converted(apply(function, *map(_widened, parts)), type)
        case Reduce(function, axes, _) if parts[0].type is BF16:
            return converted(Reduce(function, axes, _widened(parts[0])), BF16)
        case _:
            return over(e, parts)


def _widened(x: Expr) -> Expr:
    return Bitcast(cast(Bitcast(x, UI16), UI32) << 16, F32) if x.type is BF16 else x


def _narrowed(x: Expr) -> Expr:
    """Rounded once: what f32 does not hold is rounded to odd first, which leaves the second
    rounding to decide.
    """
    if x.type.kind == "complex":
        x = apply("real", x)
    if x.type.is_discrete:
        x = cast(x, F32) if x.type.bits <= 16 else _of_integer(x)
    bits = Bitcast(_to_odd(x) if x.type is F64 else cast(x, F32), UI32)
    rounded = select((bits << 1) > 0xFF000000, bits | QUIET, bits + (HALF - 1) + ((bits >> 16) & 1))
    return Bitcast(cast(rounded >> 16, UI16), BF16)


def _of_integer(x: Expr) -> Expr:
    """An integer in f64, the last place set for bits that f64 has no place for."""
    if x.type.bits == 64:
        low = (1 << LONG) - 1
        x = select((x >> (64 - LONG)).eq(x >> 63), x, ((x | ((x & low) + low)) >> LONG) << LONG)
    return cast(x, F64)


def _to_odd(x: Expr) -> Expr:
    """An f64 as the f32 on its side of zero, the last bit set where that is not exact."""
    near = cast(x, F32)
    back = cast(near, F64)
    bits = Bitcast(near, UI32)
    beyond = cast(apply("abs", back) > apply("abs", x), UI32)
    return Bitcast(select(back.eq(x) | x.ne(x), bits, (bits - beyond) | 1), F32)
