"""Index arithmetic of the loop language as LLVM IR: where an access goes, and how far apart its
lanes are.

It is kept apart from values: an address is computed once, at lane 0, from i64 that do not overflow.
What an access adds to an array's pointer is a sum. Each part of it is added at the beginning of the
outermost loop that knows it, so that inner loops find it done, and the constant comes last, so that
neighboring accesses share all but that.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

from ...dialect.kernel_ir.expressions import (
    Apply,
    Const,
    Expr,
    Extent,
    Index,
    Misalignment,
    Read,
    Tensor,
    Var,
)
from ...dialect.kernel_ir.index_bounds import index_bounds
from ...dialect.kernel_ir.traverse import children, walk
from ...dialect.types.linear_form import LinearForm, add_term
from ...dialect.types.sizes import Dim, strides
from ...dialect.types.tensor_types import I64
from ...lowering.analysis.accesses import index_factor, stride
from . import ir_builder as ll
from .scalar_spelling import ANY_DIVISOR, INSTRUCTIONS

Terms: TypeAlias = list[tuple[Expr, int]]  # multiples of expressions


@dataclass
class KnownValues:
    """The values known at the current point of a kernel, and the vector loop around it."""

    written: set[Tensor]
    pointers: dict[Tensor, ll.Value]
    widths: dict[Tensor, int] = field(
        default_factory=dict
    )  # lanes of the buffers that have one element for each lane
    values: dict[Expr, ll.Value] = field(
        default_factory=dict
    )  # expressions that the current block can use
    addresses: dict[Expr, ll.Value] = field(
        default_factory=dict
    )  # the same for index arithmetic, at lane 0
    stale: list[Expr] = field(
        default_factory=list
    )  # known expressions that the next statement may change
    lane: Index | None = None
    lanes: int = 1
    first: int = 1  # what the lane's index is a multiple of where a vector begins
    _changing: dict[Expr, bool] = field(default_factory=dict)

    def drop_stale(self) -> None:
        """Forget values read from arrays that the kernel writes: the next statement may write
        them.
        """
        for e in self.stale:
            self.values.pop(e, None)
        self.stale.clear()

    def changes(self, e: Expr) -> bool:
        """Test whether an expression reads an array that the kernel writes."""
        if (may_change := self._changing.get(e)) is None:
            may_change = (isinstance(e, Read) and e.tensor in self.written) or any(
                self.changes(c) for c in children(e)
            )
            self._changing[e] = may_change
        return may_change

    def varies(self, e: Expr) -> bool:
        """Test whether an expression may differ between lanes."""
        if e is self.lane or (isinstance(e, Read) and self.widths.get(e.tensor, 1) > 1):
            return True
        return (
            self.values[e].lanes > 1 if isinstance(e, Var) else any(map(self.varies, children(e)))
        )


@dataclass
class Addresses:
    """Emits index expressions and pointers. `value` emits expressions that are no index
    arithmetic.
    """

    b: ll.IRBuilder
    scope: KnownValues
    sizes: Mapping[object, ll.Value]
    value: Callable[[Expr], ll.Value]
    spell: Callable[[str, list[ll.Value], Expr], ll.Value]
    lengths: dict[object, ll.Value] = field(default_factory=dict)  # sizes that were computed
    parts: dict[Expr, tuple[Terms, int]] = field(default_factory=dict)  # of index expressions
    accesses: dict[tuple[object, ...], tuple[Terms, int]] = field(
        default_factory=dict
    )  # of several
    strides: dict[tuple[object, ...], int | None] = field(
        default_factory=dict
    )  # by access, lane and what varies
    unknown: dict[tuple[Expr, ...], list[Expr]] = field(
        default_factory=dict
    )  # variables and reads of indices

    open: set[ll.Value] = field(default_factory=set)  # values of data, of which sums may overflow

    # pointers

    def pointer(self, tensor: Tensor, at: tuple[Expr, ...], lanes: int = 1) -> ll.Value:
        """The address of an element, at lane 0, of a buffer with `lanes` lanes per element."""
        offset = self.offset(tensor, at)
        element = ll.memory_type(tensor.element, lanes)
        address = self.scope.pointers[tensor]
        ordered = [(t.level, t.age, t.text, t, f) for t, f in offset.terms.values()]
        if len(ordered) > 1:
            ordered.sort()
        for _, group in groupby(ordered, itemgetter(0)):
            address = self.place(element, address, self.total([(t, f) for *_, t, f in group]))
        return (
            self.place(element, address, ll.index(offset.constant)) if offset.constant else address
        )

    def offset(self, tensor: Tensor, at: tuple[Expr, ...]) -> LinearForm[ll.Value]:
        """The offset of the element at lane 0 from its array's first one, in elements."""
        if all(isinstance(d, int) for d in tensor.shape[1:]):
            if (parts := self.accesses.get((tensor, at))) is None:
                apart: Terms = []
                steps = zip(reversed(at), reversed(strides(tensor.shape)), strict=True)
                constant = sum(
                    _taken_apart(e, step, apart) for e, step in steps if isinstance(step, int)
                )
                parts = self.accesses[tensor, at] = apart, constant
            return self.added(*parts)
        total: LinearForm[ll.Value] = LinearForm({})
        for e, step in zip(reversed(at), reversed(strides(tensor.shape)), strict=True):
            total = total + self.times(self.sum(e), step)
        return total

    def place(self, element: ll.Type, base: ll.Value, offset: ll.Value) -> ll.Value:
        """The pointer `offset` elements beyond `base`. It may cross memory outside the array."""
        return self.b.earliest(ll.element_pointer(element, base, offset, flags=""))

    def total(self, terms: list[tuple[ll.Value, int]]) -> ll.Value:
        """A sum of terms, the first ones added first."""
        value, factor = terms[-1]
        if len(terms) == 1 and factor == 1:
            return value
        last = (
            value if factor == 1 else self.linear("mul", value, ll.index(factor), self.b.earliest)
        )
        if len(terms) == 1:
            return last
        return self.linear("add", self.total(terms[:-1]), last, self.b.earliest)

    def linear(
        self,
        opcode: str,
        a: ll.Value,
        b: ll.Value,
        put: Callable[[ll.Instruction], ll.Value] | None = None,
    ) -> ll.Value:
        """A sum, difference or product of indices; those that are computed of data may overflow."""
        is_open = a in self.open or b in self.open
        flags = "" if is_open else "nsw"
        if put is None:
            value = self.b.linear(opcode, a, b, flags)
        else:
            value = put(ll.binary(opcode, a, b, flags))
        if is_open:
            self.open.add(value)
        return value

    # index arithmetic

    def sum(self, e: Expr) -> LinearForm[ll.Value]:
        """An index expression at lane 0, taken apart."""
        if (parts := self.parts.get(e)) is None:
            terms: Terms = []
            parts = self.parts[e] = terms, _taken_apart(e, 1, terms)
        return self.added(*parts)

    def added(self, terms: Terms, constant: int) -> LinearForm[ll.Value]:
        """Multiples of index expressions and a constant, as multiples of values."""
        sums: dict[object, tuple[ll.Value, int]] = {}
        for atom, factor in terms:
            value = self.address(atom)
            if value.number is not None:
                constant += factor * value.number
            else:
                add_term(sums, value, value, factor)
        return LinearForm(sums, constant)

    def times(self, sum: LinearForm[ll.Value], factor: Dim) -> LinearForm[ll.Value]:
        if isinstance(factor, int):
            return sum if factor == 1 else sum * factor
        size = self.size(factor)
        terms: dict[object, tuple[ll.Value, int]] = {}
        for value, times in sum.terms.values():
            ones = value.number == 1, size.number == 1
            if ones[0]:
                product = size
            elif ones[1]:
                product = value
            else:
                product = self.linear("mul", value, size, self.b.earliest)
            add_term(terms, product, product, times)
        if sum.constant:
            add_term(terms, size, size, sum.constant)
        return LinearForm(terms)

    def steps(self, tensor: Tensor) -> list[ll.Value]:
        """The strides of a tensor's axes, in elements."""
        return [self.size(step) for step in reversed(strides(tensor.shape))][::-1]

    def size(self, dim: Dim) -> ll.Value:
        """A size, computed at the beginning of the function."""
        if isinstance(dim, int):
            return ll.index(dim)
        if dim.key not in self.lengths:
            with self.b.at_beginning():
                self.lengths[dim.key] = size_value(self.b, dim, self.sizes)
        return self.lengths[dim.key]

    # what differs between lanes

    def stride(self, tensor: Tensor, at: tuple[Expr, ...]) -> int | None:
        """The distance of adjacent lanes' accesses to a tensor, in elements; None if it varies."""
        if (lane := self.scope.lane) is None:
            return 0
        if (unknown := self.unknown.get(at)) is None:
            unknown = self.unknown[at] = [
                x for e in at for x in walk(e) if isinstance(x, (Var, Read))
            ]
        key = tensor, at, lane, *map(self.scope.varies, unknown)
        if key not in self.strides:
            self.strides[key] = stride(tensor, at, lane, self.scope.varies)
        return self.strides[key]

    def factor(self, e: Expr) -> int | None:
        """The factor of the lane's index in an index expression; None where the expression is not
        linear in it.
        """
        lane = self.scope.lane
        return 0 if lane is None else index_factor(e, lane, self.scope.varies)

    def address(self, e: Expr) -> ll.Value:
        """An index expression as an i64, at lane 0. Indices do not overflow."""
        match e:
            case Const(value, _):
                return ll.index(value)
            case Extent(size):
                return self.size(size)
        if (computed := self.scope.addresses.get(e)) is None:
            computed = self.compute_address(e)
            if not self.scope.changes(e):
                self.scope.addresses[e] = computed
        return computed

    def compute_address(self, e: Expr) -> ll.Value:
        match e:
            case Misalignment(tensor, line):
                address = self.b.earliest(ll.cast("ptrtoint", self.scope.pointers[tensor], ll.WORD))
                address = self.b.earliest(
                    ll.binary("lshr", address, ll.index(tensor.element.bytes.bit_length() - 1))
                )
                return self.b.earliest(ll.binary("and", address, ll.index(line - 1)))
            case Apply("add" | "sub" | "mul", (a, b), _):
                return self.linear(e.function, self.address(a), self.address(b))
            case Apply("max" | "min", (a, b), _) if (x := self.address(a).number) is not None and (
                y := self.address(b).number
            ) is not None:
                return ll.index((max if e.function == "max" else min)(x, y))
            case Apply("floordiv" | "floormod" as function, (a, b), _) if at_least_zero(
                a
            ) and at_least_zero(b):
                return self.divided(
                    "udiv" if function == "floordiv" else "urem", self.address(a), self.address(b)
                )
            case Apply(function, operands, type) if (
                all(o.type is I64 for o in operands) and type is I64
            ):
                value = self.spell(function, [self.address(o) for o in operands], operands[-1])
                if None in index_bounds(e) and any(
                    v in self.open for v in map(self.address, operands)
                ):
                    self.open.add(value)
                return value
        value = self.value(e)
        value = self.b.add(ll.extract(value, 0)) if value.lanes > 1 else value
        if value.number is None:
            self.open.add(value)
        return value

    def divided(self, operation: str, a: ll.Value, b: ll.Value) -> ll.Value:
        """A quotient or remainder. Of an open divisor it is found where both are known: there that
        may be 0, taken for 1.
        """
        if b.number:
            return self.b.add(ll.binary(operation, a, b))
        divisor = self.b.earliest(
            ll.select(self.b.earliest(ll.compare("eq", b, ll.ZERO)), ll.ONE, b)
        )
        return self.b.earliest(ll.binary(operation, a, divisor))


def size_value(b: ll.IRBuilder, dim: Dim, sizes: Mapping[object, ll.Value]) -> ll.Value:
    """A size, computed from the sizes that are given."""
    if isinstance(dim, int):
        return ll.index(dim)
    total: ll.Value = ll.index(dim.constant)
    for atom, factor in dim.terms:
        if atom in sizes:
            value = sizes[atom]
        else:
            value = _operation(b, atom[0], *(size_value(b, part, sizes) for part in atom[1:]))
        total = b.linear("add", total, b.linear("mul", value, ll.index(factor)))
    return total


def _operation(b: ll.IRBuilder, operation: str, x: ll.Value, y: ll.Value) -> ll.Value:
    if operation == "*":
        return b.add(ll.binary("mul", x, y, "nsw"))
    if operation in ("max", "min"):
        return b.add(
            ll.select(b.add(ll.compare("sgt" if operation == "max" else "slt", x, y)), x, y)
        )
    divisor = (
        y
        if y.number is not None
        else b.add(ll.select(b.add(ll.compare("eq", y, ll.ZERO)), ll.ONE, y))
    )
    row = INSTRUCTIONS["floordiv", "int"] if (y.number or -1) != -1 else ANY_DIVISOR["floordiv"]
    quotient = b.spell(row, [x, divisor], ll.WORD, b.add)
    if y.number is not None:
        return quotient
    return b.add(ll.select(b.add(ll.compare("eq", y, ll.ZERO)), ll.ZERO, quotient))


def _taken_apart(e: Expr, factor: int, terms: Terms) -> int:
    """Add `factor` times the terms of an index expression to `terms`, in its order, and return its
    constant.
    """
    match e:
        case Const(value, _):
            return factor * value
        case Apply("add" | "sub", (a, b), _):
            return _taken_apart(a, factor, terms) + _taken_apart(
                b, factor if e.function == "add" else -factor, terms
            )
        case Apply("mul", (a, Const(value)), _) | Apply("mul", (Const(value), a), _):
            return _taken_apart(a, factor * value, terms)
    terms.append((e, factor))
    return 0


def at_least_zero(e: Expr) -> bool:
    low, _ = index_bounds(e)
    return low is not None and low >= 0
