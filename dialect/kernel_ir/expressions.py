"""Index notation: typed scalar expressions over loop indices, sizes and tensor elements.

    y[i, j] = sum over k of x[i, k] * w[j, k]

Operators define their results by it (as an `Element`), and statements of the loop language compute
its expressions. Expressions are immutable; arithmetic on them builds `Apply` nodes of the scalar
table. Indices and sizes are i64.
"""

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..support.diagnostics import NOWHERE, Span
from ..types.sizes import Dim, Shape, Size, product
from ..types.tensor_types import I1, I64, ElementType
from .scalar_functions import SCALARS


@dataclass(frozen=True, eq=False)
class Tensor:
    """A named array that expressions read: an operand, a result or a buffer of the loop language.

    `space` is its storage: "argument", "constant", "heap" (the workspace), "stack", "shared" (by
    the threads of a GPU block), "pack" (elements that are loaded and stored together) or "register"
    (small, indexed by constants after unrolling; an accumulator is a register of rank 0).
    """

    name: str
    shape: Shape
    element: ElementType
    space: str = "argument"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def bytes(self) -> Dim:
        return product(self.shape) * self.element.bytes

    def __getitem__(self, indices: Any) -> "Read":
        at = indices if isinstance(indices, tuple) else (indices,)
        if len(at) != self.rank:
            raise IndexError(f"{self.name} has {self.rank} axes, got {len(at)} indices")
        return Read(self, tuple(as_index(i) for i in at))

    def __repr__(self) -> str:
        return f"%{self.name}"


def _operator(function: str) -> "Callable[[Any, Operand], Expr]":
    return lambda self, other: apply(function, self, other)


def _reflected(function: str) -> "Callable[[Any, Operand], Expr]":
    return lambda self, other: apply(function, other, self)


class Expr:
    """A scalar expression; `type` is its element type."""

    type: ElementType
    __slots__ = ()

    __add__, __radd__ = _operator("add"), _reflected("add")
    __sub__, __rsub__ = _operator("sub"), _reflected("sub")
    __mul__, __rmul__ = _operator("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _operator("div"), _reflected("div")
    __floordiv__, __mod__ = _operator("floordiv"), _operator("floormod")
    __and__, __or__, __xor__ = _operator("and"), _operator("or"), _operator("xor")
    __lshift__, __rshift__ = _operator("shl"), _operator("shr")
    __lt__, __le__, __gt__, __ge__ = (
        _operator("lt"),
        _operator("le"),
        _operator("gt"),
        _operator("ge"),
    )
    eq, ne = _operator("eq"), _operator("ne")

    def __neg__(self) -> "Expr":
        return apply("neg", self)

    def __invert__(self) -> "Expr":
        return apply("not", self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.type}>"

    def __bool__(self) -> bool:
        raise TypeError("an expression has no truth value while compiling: use when() or select()")


Operand: TypeAlias = Expr | int | float | complex | Size


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Const(Expr):
    value: Any
    type: ElementType


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Index(Expr):
    """A loop index, running over [0, extent); compared by identity."""

    name: str
    extent: Dim
    type: ElementType = I64


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Var(Expr):
    """A value named by a `Let` of the loop language; compared by identity."""

    name: str
    type: ElementType


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Extent(Expr):
    """A size known when the kernel is called."""

    size: Size
    type: ElementType = I64


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Misalignment(Expr):
    """The elements by which a tensor begins after a cache line of `line` elements: only speed
    depends on it.
    """

    tensor: Tensor
    line: int
    type: ElementType = I64


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Read(Expr):
    tensor: Tensor
    indices: tuple[Expr, ...]

    @property
    def type(self) -> ElementType:
        return self.tensor.element


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Apply(Expr):
    """A function of the scalar table, applied."""

    function: str
    operands: tuple[Expr, ...]
    type: ElementType


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Cast(Expr):
    """A conversion: integers wrap, floats round to nearest, float to integer saturates (NaN to 0),
    to i1 is `!= 0`.
    """

    operand: Expr
    type: ElementType


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Bitcast(Expr):
    """Reinterpret the bits as another type of the same width."""

    operand: Expr
    type: ElementType


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class When(Expr):
    """A guarded value: `then` where the condition holds, else `otherwise`; only the selected side
    is evaluated.
    """

    condition: Expr
    then: Expr
    otherwise: Expr

    @property
    def type(self) -> ElementType:
        return self.then.type


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Reduce(Expr):
    """A reduction of `body` over all values of `indices` in row-major order, from the identity of a
    function.
    """

    function: str
    indices: tuple[Index, ...]
    body: Expr

    @property
    def type(self) -> ElementType:
        return self.body.type


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Check(Expr):
    """`value`; reports `message` at `span` if the condition does not hold (the value is then still
    defined).
    """

    condition: Expr
    value: Expr
    message: str
    span: Span = NOWHERE

    @property
    def type(self) -> ElementType:
        return self.value.type


@dataclass(frozen=True, eq=False)
class Element:
    """An operator's definition of its result: the indices of an element, and its value."""

    indices: tuple[Index, ...]
    value: Expr


_whole = functools.lru_cache(maxsize=1 << 12)(
    lambda value: Const(value, I64)
)  # one object for each number


def constant(value: Any, element: ElementType) -> Const:
    if element is I64 and value.__class__ is int and -(2**63) <= value < 2**63:
        return _whole(value)
    return Const(
        element.dtype.type(value).item() if element.kind != "bool" else bool(value), element
    )


def as_index(value: Any) -> Expr:
    """An index expression of an int, a size or an expression."""
    if isinstance(value, Expr):
        return value
    return Extent(value) if isinstance(value, Size) else _whole(int(value))


def _operand(value: object, element: ElementType) -> Expr:
    if isinstance(value, Expr):
        return value
    return Extent(value) if isinstance(value, Size) else constant(value, element)


def apply(function: str, *operands: Operand) -> Expr:
    """A scalar function applied, its operands' types checked, trivial index arithmetic
    simplified.
    """
    row = SCALARS[function]
    own = next((o.type for o in reversed(operands) if isinstance(o, Expr)), I64)
    exprs = tuple([_operand(o, own) for o in operands])
    if not row.takes(*[e.type for e in exprs]):
        raise TypeError(f"{function} does not take ({', '.join(str(e.type) for e in exprs)})")
    if exprs[-1].type is I64 and (simple := simplify(function, exprs)) is not None:
        return simple
    return Apply(function, exprs, row.result(*[e.type for e in exprs]))


def simplify(function: str, operands: tuple[Expr, ...]) -> Expr | None:
    """The few identities that keep printed index arithmetic readable; exact for integers."""
    match function, operands:
        case "add" | "sub" | "mul" | "floordiv" | "floormod" | "max" | "min", (Const(a), Const(b)):
            if not (function in ("floordiv", "floormod") and b == 0):
                return constant((_FOLD[function](a, b) + 2**63) % 2**64 - 2**63, I64)
        case ("add", (Const(0), x)) | ("mul", (Const(1), x)):
            return x
        case ("add" | "sub", (x, Const(0))) | ("mul" | "floordiv", (x, Const(1))):
            return x
        case ("mul", (Const(0), _) | (_, Const(0))) | ("floormod", (_, Const(1))):
            return Const(0, I64)
        case "floordiv" | "floormod", (Index(extent=int(extent)) as x, Const(b)) if 0 < extent <= b:
            return x if function == "floormod" else Const(0, I64)
    return None


_FOLD: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "max": max,
    "min": min,
}


def indices(names: str, shape: tuple[Dim, ...]) -> tuple[Index, ...]:
    """One index for each name and extent."""
    return tuple(Index(n, d) for n, d in zip(names.split(), shape, strict=True))


def axes(shape: tuple[Dim, ...], prefix: str = "i") -> tuple[Index, ...]:
    """One index for each axis of a shape of any rank: i0, i1, ..."""
    return tuple(Index(f"{prefix}{n}", d) for n, d in enumerate(shape))


def cast(value: Expr, element: ElementType) -> Expr:
    return value if value.type is element else Cast(value, element)


def select(condition: Expr, then: Operand, otherwise: Operand) -> Expr:
    return apply("select", condition, then, otherwise)


def maximum(a: Operand, b: Operand) -> Expr:
    return apply("max", a, b)


def minimum(a: Operand, b: Operand) -> Expr:
    return apply("min", a, b)


def compare(function: str, a: Expr, b: Expr, common: ElementType) -> Expr:
    """A comparison in a common type; exact for a signed integer and a ui64, which have none."""
    signed = [x for x in (a, b) if x.type.signed]
    if len(signed) != 1 or all(x.type.name != "ui64" for x in (a, b)):
        return apply(function, cast(a, common), cast(b, common))
    (x,) = signed  # a negative one is compared with 0, as which any ui64 is as good
    zero = constant(0, x.type)
    other = b if x is a else a
    below = apply(function, *(o if o is x else zero for o in (a, b)))
    return select(x < zero, below, apply(function, *(cast(o, other.type) for o in (a, b))))


BY_ZERO = "integer division by zero"


def divide_integers(function: str, a: Expr, b: Expr) -> Expr:
    """A quotient or remainder; a divisor of zero is an error when the program runs, and 1 until
    that is reported.
    """
    return Check(b.ne(0), apply(function, a, select(b.eq(0), 1, b)), BY_ZERO)


def integer_power(base: Expr, exponent: Expr) -> Expr:
    """base^exponent modulo 2^width, 0 where the exponent is negative."""
    if not exponent.type.signed:
        return apply("ipow", base, exponent)
    return select(exponent < 0, 0, apply("ipow", base, maximum(0, exponent)))


def when(condition: Expr | bool, then: Expr, otherwise: Expr) -> Expr:
    if isinstance(condition, bool):
        return then if condition else otherwise
    if then.type is not otherwise.type:
        raise TypeError(f"both sides have one type, got {then.type} and {otherwise.type}")
    return When(condition, then, otherwise)


def both(*conditions: Expr | bool) -> Expr | bool:
    """The conjunction of the conditions, without those known to hold."""
    if any(c is False for c in conditions):
        return False
    left = [c for c in conditions if isinstance(c, Expr)]
    return functools.reduce(operator.and_, left) if left else True


def reduce(function: str, over: Index | tuple[Index, ...], body: Expr) -> Expr:
    over = over if isinstance(over, tuple) else (over,)
    return Reduce(function, over, body) if over else body


def total(over: Index | tuple[Index, ...], body: Expr) -> Expr:
    return reduce("add", over, body)


def largest(over: Index | tuple[Index, ...], body: Expr) -> Expr:
    return reduce("max", over, body)


def flat_index(at: tuple[Expr, ...], shape: Shape) -> Expr:
    """The row-major position of an element: the specification's flatten_index."""
    position: Expr = Const(0, I64)
    for i, n in zip(at, shape, strict=True):
        position = position * n + i
    return position


def unflatten(position: Expr, shape: Shape) -> tuple[Expr, ...]:
    """The indices of the element at a row-major position."""
    indices: list[Expr] = []
    for axis in range(len(shape) - 1, 0, -1):
        indices.append(position % shape[axis])
        position = position // shape[axis]
    return (*((position,) if shape else ()), *reversed(indices))


TRUE = Const(True, I1)
ZERO = Const(0, I64)


def conjunction(condition: Expr) -> list[Expr]:
    """The conjuncts of a condition: a, b and c of a & b & c."""
    return flat_operands("and", condition)


def flat_operands(function: str, e: Expr) -> list[Expr]:
    """The operands of a nested function: a, b and c of max(a, max(b, c)); the expression itself if
    it is another one.
    """
    match e:
        case Apply(found, (a, b)) if found == function:
            return [*flat_operands(function, a), *flat_operands(function, b)]
    return [e]
