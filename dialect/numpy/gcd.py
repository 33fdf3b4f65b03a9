"""`numpy.gcd`: the greatest common divisor, by Euclid's algorithm."""

import math

import numpy as np

from ..kernel_ir.expressions import Expr, Index, Tensor, Var, apply, axes, cast, select
from ..kernel_ir.loops import Alloc, Block, For, If, Let, Store, accumulator, nested
from ..spec.broadcasting import same_shape, unequal
from ..spec.operator import C, Operator, T, operator
from ..types.tensor_types import ELEMENT_TYPES, ElementType


@operator
class Gcd(Operator[T]):
    """Z[d...] = the greatest common divisor of X[d...] and Y[d...], that of 0 and 0 being 0; modulo
    2^width.   (NumPy 2, gcd)
    """

    x: T
    y: T

    constraints = (
        C(
            1,
            "element(x) = element(y), an integer type",
            lambda o: o.x.element is o.y.element and o.x.element.is_integer,
        ),
        C(2, "rank(x) = rank(y)", lambda o: len(o.x.array_shape) == len(o.y.array_shape)),
        C(
            3,
            "shape(x) = shape(y)",
            lambda o: same_shape(o.x.array_shape, o.y.array_shape),
            plainly=lambda o: unequal(o.x.array_shape, o.y.array_shape),
        ),
    )
    example = "%z = %x, %y", "%x: 2 x ?N x i32, %y: 2 x ?N x i32", "2 x ?N x i32"

    def reference(self: "Gcd[np.ndarray]") -> np.ndarray:
        return np.asarray(np.gcd(self.x, self.y))

    def nest(self: "Gcd[Tensor]", *results: Tensor) -> Block:
        (z,) = results
        at = axes(z.shape)
        unsigned = ELEMENT_TYPES[f"ui{z.element.bits}"]
        a = accumulator("a", unsigned)
        b = accumulator("b", unsigned)
        rest = Var("rest", unsigned)
        divisor = select(b[()].eq(0), 1, b[()])  # vector code divides in every lane
        steps = (
            math.ceil(unsigned.bits * math.log(2) / math.log((1 + math.sqrt(5)) / 2)) + 1
        )  # of Fibonacci numbers
        divide = (Let(rest, apply("rem", a[()], divisor)), Store(a, (), b[()]), Store(b, (), rest))
        body = (
            Alloc(a),
            Store(a, (), magnitude(self.x[at], unsigned)),
            Alloc(b),
            Store(b, (), magnitude(self.y[at], unsigned)),
            For(Index("step", steps), (If(b[()].ne(0), divide),)),
            Store(z, at, cast(a[()], z.element)),
        )
        return nested(at, body)


def magnitude(x: Expr, unsigned: ElementType) -> Expr:
    return cast(select(x < 0, -x, x) if x.type.signed else x, unsigned)
