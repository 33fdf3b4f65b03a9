"""Expressions of the loop language as LLVM IR: values, a lane each inside a vector loop, and
accesses to memory.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ...dialect.kernel_ir.expressions import (
    Apply,
    Bitcast,
    Cast,
    Const,
    Expr,
    Extent,
    Index,
    Misalignment,
    Read,
    Tensor,
)
from ...dialect.kernel_ir.index_bounds import is_nonzero
from ...dialect.types.tensor_types import F16, F32, F64, I1, I32, I64, UI64, ElementType
from ...lowering.loops.nontemporal_stores import PART
from ...lowering.processor import processor
from . import ir_builder as ll
from .addresses import Addresses, KnownValues
from .scalar_spelling import (
    ANY_DIVISOR,
    INSTRUCTIONS,
    QUADSUM_ROWS,
    SATURATING,
    VECTOR_ROWS,
    WIDENING,
)
from .select_to_table import ENTRIES, look_up, table_of
from .vector_accesses import VectorAccesses


def is_below(
    e: Expr, limit: int, known: Mapping[Expr, ll.Value], lets: Mapping[Expr, Expr]
) -> bool:
    """Test whether a count is from 0 to below a limit by its form, by values and definitions."""
    match lets.get(e, e):
        case Const(value):
            return 0 <= value < limit
        case Apply("and", (_, Const(value))) | Apply("and", (Const(value), _)):
            return 0 <= value < limit
        case Apply("select", (condition, x, otherwise)):
            match lets.get(condition, condition):
                case Apply("lt", (wide, Const(value))):
                    own = lets.get(wide, wide)
                    of = own.operand if isinstance(own, Cast) else own
                    same = of is x or (of in known and known[of] is known.get(x))
                    inside = wide.type is UI64 and value <= limit
                    return same and inside and is_below(otherwise, limit, known, lets)
    return False


OF_BITS = ("neg", "abs", "select", "rarely")  # functions that leave the digits of a number


@dataclass
class Expressions:
    """Emit values; `stream` is the non-temporal store."""

    b: ll.IRBuilder
    scope: KnownValues
    addresses: Addresses
    stream: Callable[[ll.Value, Tensor, ll.Value], None]
    numbers: dict[Expr, ll.Constant] = field(default_factory=dict)  # constants
    lets: dict[Expr, Expr] = field(default_factory=dict)  # what variables stand for

    @cached_property
    def vectors(self) -> VectorAccesses:
        """The accesses of vector loops."""
        return VectorAccesses(self)

    def value(self, e: Expr) -> ll.Value:
        scope = self.scope
        if isinstance(e, Const):
            if (number := self.numbers.get(e)) is None:
                number = self.numbers[e] = ll.number(e.value, e.type)
            return number
        if (result := scope.values.get(e)) is None:
            result = scope.values[e] = self.compute(e)
            if scope.changes(e):
                scope.stale.append(e)
        return result

    def compute(self, e: Expr) -> ll.Value:
        match e:
            case Apply(function, operands, _):
                vector = None if self.scope.lane is None else self.by_lanes(e)
                return self.apply(function, operands) if vector is None else vector
            case Read(tensor, at):
                return self.load(tensor, at)
            case Cast(operand, element):
                vector = (
                    None
                    if self.scope.lane is None or element is not I32
                    else self.high_products(operand)
                )
                return (
                    vector
                    if vector is not None
                    else self.convert(self.value(operand), operand.type, element)
                )
            case Bitcast(operand, element):
                return self.reinterpret(self.value(operand), element)
            case Index():
                return self.index(e)
            case Extent() | Misalignment():
                return self.addresses.address(e)
        raise LookupError(f"{getattr(e, 'name', type(e).__name__)} has no value here")

    def index(self, e: Index) -> ll.Value:
        base = self.addresses.address(e)
        if e is not self.scope.lane:
            return base
        lanes = self.scope.lanes
        steps = ll.Constant(f"<{', '.join(f'i64 {n}' for n in range(lanes))}>", ll.WORD.of(lanes))
        return self.b.add(ll.binary("add", self.splat(base, lanes), steps, "nuw nsw"))

    def apply(self, function: str, operands: tuple[Expr, ...]) -> ll.Value:
        values = [self.value(o) for o in operands]
        if operands[-1].type is F16 and function not in OF_BITS:
            return self.of_halves(function, values)
        lanes = max([v.type.lanes for v in values])
        if function == "any":
            return values[0] if lanes == 1 else self.over_lanes("or", values[0])
        if lanes > 1:
            values = [self.splat(v, lanes) for v in values]
        return self.spelled(function, values, operands[-1])

    def spelled(self, function: str, values: list[ll.Value], last: Expr) -> ll.Value:
        """The instructions of a function of any values: divisors are not 0, counts below the
        width.
        """
        element, lanes = last.type, max(v.lanes for v in values)
        type = ll.value_type(element, lanes)
        row = INSTRUCTIONS[function, element.kind]

        def all_of(n: int) -> ll.Constant:
            return ll.splat_constant(ll.number(n, element), lanes)

        if element.is_integer and function in ANY_DIVISOR:
            if not is_nonzero(last):
                zero = self.b.once(ll.compare("eq", values[1], all_of(0)))
                values = [values[0], self.b.once(ll.select(zero, all_of(1), values[1]))]
            if element.signed and not (isinstance(last, Const) and last.value != -1):
                row = ANY_DIVISOR[function]
        if function in ("shl", "shr") and not is_below(
            last, element.bits, self.scope.values, self.lets
        ):
            mask = ll.binary("and", values[1], all_of(element.bits - 1))
            values = [values[0], self.b.once(mask)]
        return self.b.spell(VECTOR_ROWS.get(function, row) if lanes > 1 else row, values, type)

    def of_halves(self, function: str, values: list[ll.Value]) -> ll.Value:
        """A function of f16, computed in f32 and rounded, which is exact, without LLVM's own of
        f16.

        A product and a sum in f64 are one multiply-add of f16.
        """
        wide = F64 if function == "fma" else F32
        lanes = max(v.lanes for v in values)
        given = [self.convert(self.splat(v, lanes), F16, wide) for v in values]
        type = ll.value_type(wide, lanes)

        def spelled(name: str, *operands: ll.Value) -> ll.Value:
            return self.b.spell(INSTRUCTIONS[name, "float"], list(operands), type)

        if function == "fma":
            result = spelled("add", spelled("mul", *given[:2]), given[2])
        else:
            result = spelled(function, *given)
        return self.convert(result, wide, F16) if result.type is type else result

    def by_lanes(self, e: Apply) -> ll.Value | None:
        """Emit operations with vector instructions of their own: sums of products of bytes, words
        of elements side by side, choices between constants.
        """
        if e.function == "or":
            return self.vectors.words(e)
        return self.quads_added(*e.operands) if e.function == "add" else self.look_up(e)

    def quads_added(self, sum: Expr, term: Expr) -> ll.Value | None:
        """Add a dot product of bytes to a sum, by a function of its own for vectors; None if the
        term is no such product.
        """
        match term:
            case Apply(function, factors, type) if function in QUADSUM_ROWS:
                values = [self.value(e) for e in (*factors, sum)]
                if (lanes := max(v.lanes for v in values[:2])) > 1:
                    wide = [self.splat(v, lanes) for v in values]
                    return self.b.spell(QUADSUM_ROWS[function], wide, ll.value_type(type, lanes))
        return None

    def high_products(self, e: Expr) -> ll.Value | None:
        """The low words of i64(a) * i64(b) + c >> n: x86 multiplies every second lane of 32 bits,
        and results take turns, too.
        """
        match e:
            case Apply(
                "shr",
                (Apply("add", (Apply("mul", (Cast(a), Cast(b)), _), Const(more)), _), Const(n)),
                type,
            ):
                if not (
                    a.type is b.type is I32 and type is I64 and 0 < n <= 32 and processor().is_x86
                ):
                    return None
            case _:
                return None
        factors = [self.value(a), self.value(b)]
        if (lanes := max(v.lanes for v in factors)) < 4 or lanes % 2:
            return None
        once = self.b.once
        wide = ll.value_type(I64, lanes // 2)
        count, c, rest, word = (
            ll.splat_constant(ll.number(k, I64), lanes // 2) for k in (n, more, 32 - n, 32)
        )
        pairs = [once(ll.cast("bitcast", self.splat(v, lanes), wide)) for v in factors]
        odd = [once(ll.binary("ashr", p, word)) for p in pairs]
        even = [once(ll.binary("ashr", once(ll.binary("shl", p, word)), word)) for p in pairs]
        low, high = (
            once(ll.binary("add", once(ll.binary("mul", x, y)), c)) for x, y in (even, odd)
        )
        halves = once(ll.binary("lshr", low, count)), once(ll.binary("shl", high, rest))
        first, second = (once(ll.cast("bitcast", v, ll.value_type(I32, lanes))) for v in halves)
        return once(ll.shuffle(first, [k + lanes * (k % 2) for k in range(lanes)], second))

    def look_up(self, e: Apply) -> ll.Value | None:
        """A choice between constants, where a register holds them all."""
        if (table := table_of(e)) is None:
            return None
        places = [self.value(c) for c in table.conditions]
        lanes = places[0].lanes
        if lanes % ENTRIES[e.type] or lanes & (lanes - 1) or any(p.lanes != lanes for p in places):
            return None
        return look_up(self.b, places, table.entries, e.type)

    def over_lanes(self, operation: str, condition: ll.Value) -> ll.Value:
        """A condition of vectors reduced to one."""
        name = f"llvm.vector.reduce.{operation}.{ll.suffix(condition.type)}"
        return self.b.call_once(ll.Declaration(ll.BIT, name, (condition.type,)), condition)

    def convert(self, value: ll.Value, source: ElementType, target: ElementType) -> ll.Value:
        if source is target:
            return value
        if source is F16:
            type = ll.value_type(F32, value.lanes)
            function = ll.Declaration(type, f"half_to_float.{ll.suffix(type)}", (value.type,))
            return self.convert(self.b.call_once(function, value), F32, target)
        if target is F16:
            value = self.round_to_odd(value) if source is F64 else self.convert(value, source, F32)
            type = ll.value_type(F16, value.lanes)
            function = ll.Declaration(type, f"float_to_half.{ll.suffix(type)}", (value.type,))
            return self.b.call_once(function, value)
        type = ll.value_type(target, value.lanes)
        is_float = source.kind == "float"
        if target.kind == "bool":
            zero = ll.splat_constant(ll.number(0, source), value.lanes)
            return self.b.once(ll.compare("une" if is_float else "ne", value, zero))
        if source is F32 and target is I32 and value.lanes > 1:
            return self.saturate(value, type)
        if is_float and target.kind in SATURATING:
            name = f"{SATURATING[target.kind]}.{ll.suffix(type)}.{ll.suffix(value.type)}"
            return self.b.call_once(ll.Declaration(type, name, (value.type,)), value)
        if type is value.type:
            return value
        if target.bits > source.bits or source.kind != target.kind == "float":
            return self.b.once(ll.cast(WIDENING[source.kind, target.kind], value, type))
        return self.b.once(ll.cast("fptrunc" if is_float else "trunc", value, type))

    def saturate(self, value: ll.Value, type: ll.Type) -> ll.Value:
        """Vectors of f32 as i32, NaN as 0: LLVM takes its saturating conversion apart, lane by
        lane, for lack of an instruction.
        """
        numbers = (-(2.0**31), 2.0**31 - 128, 2.0**31, 0.0)
        least, most, beyond, zero = (
            ll.splat_constant(ll.number(x, F32), value.lanes) for x in numbers
        )
        ordered = self.b.once(ll.select(self.b.once(ll.compare("ord", value, value)), value, zero))
        above = self.b.once(
            ll.select(self.b.once(ll.compare("ogt", ordered, least)), ordered, least)
        )
        inside = self.b.once(ll.select(self.b.once(ll.compare("olt", above, most)), above, most))
        integer = self.b.once(ll.cast("fptosi", inside, type))
        largest = ll.splat_constant(ll.number(I32.limits[1], I32), value.lanes)
        return self.b.once(
            ll.select(self.b.once(ll.compare("oge", ordered, beyond)), largest, integer)
        )

    def round_to_odd(self, value: ll.Value) -> ll.Value:
        """An f64 as the f32 toward zero, its last bit set where that is not exact: rounded again,
        it is rounded once.
        """
        narrow = self.convert(value, F64, F32)
        back = self.convert(narrow, F32, F64)
        size, wanted = (
            self.b.spell(INSTRUCTIONS["abs", "float"], [v], value.type) for v in (back, value)
        )
        beyond = self.b.spell(INSTRUCTIONS["gt", "float"], [size, wanted], value.type)
        inexact = self.b.spell(INSTRUCTIONS["ne", "float"], [back, value], value.type)
        down = self.b.add(
            ll.binary("sub", self.reinterpret(narrow, I32), self.convert(beyond, I1, I32))
        )
        return self.reinterpret(
            self.b.add(ll.binary("or", down, self.convert(inexact, I1, I32))), F32
        )

    def reinterpret(self, value: ll.Value, target: ElementType) -> ll.Value:
        type = ll.value_type(target, value.lanes)
        return value if type is value.type else self.b.add(ll.cast("bitcast", value, type))

    def splat(self, value: ll.Value, lanes: int) -> ll.Value:
        """The value in every lane."""
        if value.type.lanes == lanes:
            return value
        if isinstance(value, ll.Constant):
            return ll.splat_constant(value, lanes)
        return self.b.once(
            ll.broadcast(self.b.once(ll.insert(ll.poison(value.type.of(lanes)), value, 0)))
        )

    # memory

    def load(self, tensor: Tensor, at: tuple[Expr, ...]) -> ll.Value:
        if (lanes := self.scope.widths.get(tensor, 1)) > 1 or self.scope.lane is None:
            return self.get(tensor, self.addresses.pointer(tensor, at, lanes), lanes)
        return self.vectors.load(tensor, at)

    def get(self, tensor: Tensor, pointer: ll.Value, lanes: int) -> ll.Value:
        place = self.b.add if tensor in self.scope.written else self.b.once
        value = place(
            ll.load(ll.memory_type(tensor.element, lanes), pointer, f"align {tensor.element.bytes}")
        )
        return self.truth(value) if tensor.element is I1 else value

    def truth(self, byte: ll.Value) -> ll.Value:
        """Truth values of their bytes in memory: as for NumPy, every byte but 0 is true."""
        zero = ll.Constant("0" if byte.lanes == 1 else "zeroinitializer", byte.type)
        return self.b.once(ll.compare("ne", byte, zero))

    def put(
        self, value: ll.Value, tensor: Tensor, pointer: ll.Value, streaming: bool = False
    ) -> None:
        align = tensor.element.bytes
        if tensor.element is I1:
            value = self.b.add(ll.cast("zext", value, ll.memory_type(I1, value.lanes)))
        if streaming and value.lanes > 1 and value.lanes * align % PART == 0:
            self.stream(value, tensor, pointer)
        else:
            self.b.do(ll.store(value, pointer, f"align {align}"))

    def write(
        self, tensor: Tensor, at: tuple[Expr, ...], value: ll.Value, streaming: bool = False
    ) -> None:
        """Stores a value: one element, or one for each lane."""
        if (lanes := self.scope.widths.get(tensor, 1)) > 1:
            self.put(self.splat(value, lanes), tensor, self.addresses.pointer(tensor, at, lanes))
        elif (
            stride := 0 if self.scope.lane is None else self.addresses.stride(tensor, at)
        ) == 0 and value.lanes == 1:
            self.put(value, tensor, self.addresses.pointer(tensor, at), streaming)
        else:
            wide = self.splat(value, self.scope.lanes)
            if stride == 1:
                self.put(wide, tensor, self.addresses.pointer(tensor, at), streaming)
            else:
                self.vectors.scatter(tensor, at, wide)
