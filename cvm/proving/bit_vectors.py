"""Scalar functions on z3's bit vectors: integers and conditions as `scalar_functions` defines them.

Indices and sizes are z3's unbounded integers, since index arithmetic does not wrap. A float is its
bits. A function that has no row here (arithmetic of floats, a shift by more than the width) becomes
an uninterpreted function: a proof with it holds whatever it computes.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import z3

from cvm.dialect.kernel_ir.expressions import Apply, Const
from cvm.dialect.kernel_ir.scalar_functions import SCALARS
from cvm.dialect.types.tensor_types import I64, ElementType

Term: TypeAlias = Any  # a bit vector, a condition, or an integer for an index
# an integer that an index is multiplied with, at most: larger products may wrap and are data
LARGEST_FACTOR = 1 << 31
MAX_POWER = 64  # a constant exponent of ipow that is written as products, at most
MIN_WIDE = 32  # bits of the integers that are narrowed where products are too wide for z3


class Unsupported(Exception):
    """A program that has no formula of this kind; the message says which part."""


def simplified(term: Term) -> Term:
    """The term as z3 simplifies it, of any of its classes."""
    return z3.simplify(term)


def nodes(x: Term) -> Iterator[Term]:
    """Every node of a term once, the term itself first."""
    stack, seen = [x], set[int]()
    while stack:
        if (one := stack.pop()).get_id() not in seen:
            seen.add(one.get_id())
            stack += one.children()
            yield one


def symbols_of(x: Term) -> Iterator[Term]:
    """The constants of z3 in a term."""
    return (n for n in nodes(x) if z3.is_const(n) and n.decl().kind() == z3.Z3_OP_UNINTERPRETED)


def variables(x: Term) -> set[str]:
    """The names of the constants of z3 in a term."""
    return {s.decl().name() for s in symbols_of(x)}


def is_index(x: Term) -> bool:
    return z3.is_int(x)


def _quotient(signed: bool, a: Term, b: Term) -> Term:
    return a / b if signed else z3.UDiv(a, b)


def _floor_quotient(signed: bool, a: Term, b: Term) -> Term:
    if not signed:
        return z3.UDiv(a, b)
    inexact = z3.And(z3.SRem(a, b) != 0, (a < 0) != (b < 0))
    return z3.If(inexact, a / b - 1, a / b)


def _remainder(quotient: Callable[[bool, Term, Term], Term]) -> Callable[..., Term]:
    """The remainder that a quotient leaves, for which sums of both cancel."""
    return lambda signed, a, b: (
        z3.URem(a, b) if not signed and z3.is_bv_value(b) else a - quotient(signed, a, b) * b
    )


def _by_one_for_zero(divide: Callable[[bool, Term, Term], Term]) -> Callable[..., Term]:
    return lambda signed, a, b: divide(
        signed, a, z3.simplify(z3.If(b == 0, z3.BitVecVal(1, b.size()), b))
    )


def _compared(
    signed_form: Callable[..., Term], unsigned: Callable[..., Term]
) -> Callable[..., Term]:
    return lambda signed, a, b: (signed_form if signed else unsigned)(a, b)


_less = _compared(lambda a, b: a < b, z3.ULT)
_at_most = _compared(lambda a, b: a <= b, z3.ULE)


def _leading_zeros(signed: bool, a: Term) -> Term:
    width = a.size()
    count = z3.BitVecVal(width, width)
    for n in range(width):  # the highest bit that is set is tested last, and decides
        count = z3.If(z3.Extract(n, n, a) == 1, z3.BitVecVal(width - 1 - n, width), count)
    return count


def _part(word: Term, place: int, bits: int, signed: bool) -> Term:
    extend = z3.SignExt if signed else z3.ZeroExt
    return extend(word.size() - bits, z3.Extract(place + bits - 1, place, word))


def _dot(bits: int, first: bool, second: bool) -> Callable[..., Term]:
    """The sum of the products of the parts of two words, each signed or not."""
    return lambda signed, a, b: (
        sum(_part(a, n, bits, first) * _part(b, n, bits, second) for n in range(bits, 32, bits))
        + _part(a, 0, bits, first) * _part(b, 0, bits, second)
    )


def _halves(compute: Callable[[Term, Term], Term]) -> Callable[..., Term]:
    return lambda signed, a, b: z3.Concat(
        *(compute(z3.Extract(n + 15, n, a), z3.Extract(n + 15, n, b)) for n in (16, 0))
    )


def _byte_pairs(signed: bool, a: Term, b: Term) -> Term:
    products = [_part(a, n, 8, False) * _part(b, n, 8, True) for n in (0, 8, 16, 24)]
    low, high = (_clamped(products[n] + products[n + 1], -(1 << 15), (1 << 15) - 1) for n in (0, 2))
    return z3.Concat(z3.Extract(15, 0, high), z3.Extract(15, 0, low))


def _clamped(x: Term, low: int, high: int) -> Term:
    return z3.If(
        x < low, z3.BitVecVal(low, x.size()), z3.If(x > high, z3.BitVecVal(high, x.size()), x)
    )


# of bit vectors, of which the first operand of each row says whether they are signed
VECTORS: dict[str, Callable[..., Term]] = {
    "add": lambda signed, a, b: a + b,
    "sub": lambda signed, a, b: a - b,
    "mul": lambda signed, a, b: a * b,
    "div": _by_one_for_zero(_quotient),
    "rem": _by_one_for_zero(_remainder(_quotient)),
    "floordiv": _by_one_for_zero(_floor_quotient),
    "floormod": _by_one_for_zero(_remainder(_floor_quotient)),
    "neg": lambda signed, a: -a,
    "abs": lambda signed, a: z3.If(a < 0, -a, a) if signed else a,
    "max": lambda signed, a, b: z3.If(_less(signed, b, a), a, b),
    "min": lambda signed, a, b: z3.If(_less(signed, a, b), a, b),
    "eq": lambda signed, a, b: a == b,
    "ne": lambda signed, a, b: a != b,
    "lt": _less,
    "le": _at_most,
    "gt": lambda signed, a, b: _less(signed, b, a),
    "ge": lambda signed, a, b: _at_most(signed, b, a),
    "and": lambda signed, a, b: a & b,
    "or": lambda signed, a, b: a | b,
    "xor": lambda signed, a, b: a ^ b,
    "not": lambda signed, a: ~a,
    "shl": lambda signed, a, b: a << b,
    "shr": lambda signed, a, b: a >> b if signed else z3.LShR(a, b),
    "clz": _leading_zeros,
    "pairdot": _dot(16, True, True),
    "quaddot": _dot(8, True, True),
    "quaddot_uu": _dot(8, False, False),
    "quaddot_us": _dot(8, False, True),
    "quaddot_su": _dot(8, True, False),
    "bytepairs": _byte_pairs,
    "addhalves": _halves(lambda a, b: a + b),
    "subhalves": _halves(lambda a, b: a - b),
}
# of conditions; the other functions take them as numbers of one bit
CONDITIONS: dict[str, Callable[..., Term]] = {
    "and": lambda a, b: z3.And(a, b),
    "or": lambda a, b: z3.Or(a, b),
    "xor": lambda a, b: z3.Xor(a, b),
    "not": lambda a: z3.Not(a),
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: z3.Xor(a, b),
}
# of indices, which do not wrap; a divisor is positive
INDICES: dict[str, Callable[..., Term]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a / b,
    "floormod": lambda a, b: a % b,
    "neg": lambda a: -a,
    "max": lambda a, b: z3.If(a > b, a, b),
    "min": lambda a, b: z3.If(a < b, a, b),
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


class Arithmetic:
    """The functions of one proof. `narrow` has the integers that are computed with in fewer bits
    than they have; `abstract` names the functions so far that stand for any function.
    """

    def __init__(self, narrow: int | None = None) -> None:
        self.narrow = narrow
        self.abstract: dict[str, None] = {}
        self.widths: set[int] = set()  # of integers met so far
        self.products = False  # of two numbers that are not known

    def bits(self, element: ElementType) -> int:
        if element.is_integer:
            self.widths.add(element.bits)
            if self.narrow is not None and element.bits >= MIN_WIDE:
                return self.narrow
        return element.bits

    def sort(self, element: ElementType) -> Any:
        return z3.BoolSort() if element.kind == "bool" else z3.BitVecSort(self.bits(element))

    def constant(self, value: Any, element: ElementType) -> Term:
        if element.kind == "bool":
            return z3.BoolVal(bool(value))
        if element is I64:
            return z3.IntVal(int(value))
        if element.is_integer:
            return self.number(int(value), element)
        bits = np.array(value, element.dtype).tobytes()
        return z3.BitVecVal(int.from_bytes(bits, "little"), element.bits)

    def number(self, value: int, element: ElementType) -> Term:
        bits = self.bits(element)
        if bits != element.bits and not -(1 << bits - 1) <= value < 1 << bits - (element.signed):
            raise Unsupported(f"the constant {value} in {bits} bits")
        return z3.BitVecVal(value, bits)

    def data(self, x: Term, element: ElementType) -> Term:
        """The value as data: an index becomes a bit vector."""
        if not is_index(x):
            return x
        if z3.is_int_value(x):
            return self.number(x.as_long(), element)
        if self.narrow:
            raise Unsupported("an index as a number in fewer bits")
        return z3.Int2BV(x, self.bits(element))

    def apply(self, function: str, xs: Sequence[Term], operands: Sequence[ElementType]) -> Term:
        """A function of the scalar table; `operands` are the types."""
        element = operands[-1]
        if function in ("select", "rarely"):
            condition, *sides = xs
            if not all(map(is_index, sides)):
                sides = [self.data(x, element) for x in sides]
            return z3.If(condition, *sides)
        if function == "any":
            return xs[0]
        if all(map(is_index, xs)) and function in INDICES and _is_small(function, xs):
            return INDICES[function](*xs)
        if element.kind == "bool":
            if function in CONDITIONS:
                return CONDITIONS[function](*xs)
            xs = [z3.If(x, z3.BitVecVal(1, 1), z3.BitVecVal(0, 1)) for x in xs]
            found = VECTORS[function](False, *xs)
            return found if z3.is_bool(found) else found == 1
        xs = [self.data(x, o) for x, o in zip(xs, operands, strict=True)]
        if self.narrow and SCALARS[function].only is not None:
            raise Unsupported(f"{function} in {self.narrow} bits")
        if element.is_integer:
            if function == "mul":
                self.products |= not any(map(z3.is_bv_value, xs))
            if function in ("shl", "shr"):
                return self.shifted(function, xs[0], xs[1], element)
            if function == "ipow" and z3.is_bv_value(xs[1]) and xs[1].as_long() <= MAX_POWER:
                one = z3.BitVecVal(1, self.bits(element))
                self.products = True
                return reduce(lambda a, b: a * b, [xs[0]] * xs[1].as_long(), one)
            if function in VECTORS:
                return VECTORS[function](element.signed, *xs)
        result = SCALARS[function].result(*operands)
        return self.unknown(f"{function} of {element}", result, *xs)

    def shifted(self, function: str, x: Term, by: Term, element: ElementType) -> Term:
        by, width = z3.simplify(by), self.bits(element)
        if z3.is_bv_value(by) and by.as_long() < width:
            return _moved(function, x, by.as_long(), element.signed)
        if self.narrow and z3.is_bv_value(by):
            raise Unsupported(f"a shift by {by} in {self.narrow} bits")
        inside = z3.ULT(by, z3.BitVecVal(width, width))
        found = VECTORS[function](element.signed, x, by)
        beyond = self.function(f"{function} of {element} by its width or more", element, x, by)
        return z3.If(inside, found, beyond)

    def unknown(self, name: str, result: ElementType, *xs: Term) -> Term:
        """A function that z3 does not know."""
        self.abstract[name] = None
        return self.function(name, result, *xs)

    def function(self, name: str, result: ElementType, *xs: Term) -> Term:
        return z3.Function(name, *(x.sort() for x in xs), self.sort(result))(*xs)

    def cast(self, x: Term, of: ElementType, to: ElementType) -> Term:
        if of is to:
            return x
        if of.kind == "bool" and to.kind != "complex":
            one, zero = (self.data(self.constant(n, to), to) for n in (1, 0))
            return z3.If(x, one, zero)
        if not (of.is_discrete and to.is_discrete):
            return self.unknown(f"{to} of {of}", to, self.data(x, of))
        x = self.data(x, of)
        if to.kind == "bool":
            return x != 0
        more = self.bits(to) - self.bits(of)
        if self.narrow and of.bits != to.bits:
            raise Unsupported("conversions between widths in fewer bits")
        if more <= 0:
            return z3.Extract(self.bits(to) - 1, 0, x) if more else x
        return (z3.SignExt if of.signed else z3.ZeroExt)(more, x)


def _moved(function: str, x: Term, by: int, signed: bool) -> Term:
    """A shift by a constant as a part of the bits, in which z3 sees through others."""
    if by == 0:
        return x
    if function == "shl":
        return z3.Concat(z3.Extract(x.size() - 1 - by, 0, x), z3.BitVecVal(0, by))
    return (z3.SignExt if signed else z3.ZeroExt)(by, z3.Extract(x.size() - 1, by, x))


def _is_small(function: str, xs: Sequence[Term]) -> bool:
    """Test whether index arithmetic stays far inside of i64, and a divisor is a positive number."""
    if function in ("floordiv", "floormod"):
        return z3.is_int_value(xs[1]) and xs[1].as_long() > 0
    if function == "mul" and all(any(v[0] != "?" for v in variables(x)) for x in xs):
        return False  # of two indices, which may wrap: it is data
    return all(abs(x.as_long()) <= LARGEST_FACTOR for x in xs if z3.is_int_value(x))


def folded(e: Apply) -> Any:
    """The value of a function of constants, as NumPy computes it; None of others."""
    if not all(isinstance(o, Const) for o in e.operands):
        return None
    with np.errstate(all="ignore"):
        values = [np.array(o.value, o.type.dtype) for o in e.operands if isinstance(o, Const)]
        return np.asarray(SCALARS[e.function].numpy(*values)).item()
