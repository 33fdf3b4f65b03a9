"""Expressions of the loop language as LLVM IR: values, a lane each inside a vector loop, and accesses to memory.

How far apart neighbouring lanes are decides between one load of a vector, one of a scalar, and a load per lane.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ...dialect.ir.types import F16, F32, F64, I1, I32, I64, ElementType
from ...dialect.notation.expressions import Apply, Bitcast, Cast, Const, Expr, Extent, Index, Misalignment, Read, Tensor
from ...lowering.analysis.accesses import stride as stride_along
from ...lowering.analysis.lane_offsets import Lanes, offsets, windows
from ...lowering.loops.nontemporal_stores import PART
from ...lowering.processor import processor
from .addresses import Addresses, Val
from .ir_writer import Declaration, is_number, memory_text, number_text, spell_conversion, spell_row, type_text
from .register_transpose import joined, turn
from .scalar_functions import ANY_DIVISOR, INSTRUCTIONS, QUADSUM_ROWS, VECTOR_ROWS, Row
from .select_to_table import ENTRIES, look_up, table_of

if TYPE_CHECKING:
    from .nontemporal_stores import NontemporalStores

PREFETCH = Declaration("void", "llvm.prefetch.p0", ("ptr", "i32", "i32", "i32"))
ROW = 16  # bytes of a row of a square that is turned in registers
AHEAD, AHEAD_OF_SHORT = 1 << 8, 1 << 13  # bytes further on that squares ask for, of long rows and of short ones
SHORT = 1 << 9  # bytes of a row


class Square(NamedTuple):
    """An unrolled loop around lanes: where it begins, what it writes, and what its first iteration turned, by the access."""

    along: Index
    start: int
    written: set[Tensor]
    vectors: dict[int, list[str]]


class Expressions(Addresses):
    """The emitter of expressions: emitted values, pointers of arrays, the current vector loop."""

    @property
    def nontemporal(self) -> NontemporalStores:
        raise NotImplementedError

    def __init__(self, sizes: dict[object, str], written: Iterable[Tensor], declarations: set[Declaration]) -> None:
        super().__init__(sizes, written)
        self.declarations = declarations
        self.stale: list[int] = []
        self.numbers: dict[int, Val] = {}  # constants, by id
        self.entry: list[str] = []  # what stands before the first statement
        self.square: Square | None = None  # what is around the current lanes
        self.early: dict[int, int] = {}  # reads that ask for an element further on, by id
        self.asked: set[Tensor] = set()  # what statements of the kernel ask for

    # values

    def value(self, e: Expr) -> Val:
        if isinstance(e, Const):
            number = self.numbers.get(id(e))
            if number is None:
                number = self.numbers[id(e)] = Val(number_text(e.value, e.type))
                self.kept.append(e)
            return number
        found = self.known.get(id(e))
        if found is None:
            found = self.compute(e)
            self.remember(e, found)
            if self.changes(e):
                self.stale.append(id(e))
        return found

    def remember(self, e: Expr, value: Val) -> None:
        self.known[id(e)] = value
        self.kept.append(e)

    def drop_stale(self) -> None:
        """Forgets what was read from arrays that the kernel writes: the next statement may write them."""
        for key in self.stale:
            self.known.pop(key, None)
        self.stale.clear()

    def compute(self, e: Expr) -> Val:
        match e:
            case Extent() | Misalignment():
                return Val(self.address(e))
            case Index():
                return self.index(e)
            case Read(tensor, at):
                if id(e) in self.early and self.lane is not None and self.stride(tensor, at) == 1:
                    for n in range(0, self.lanes, processor().line_bytes // tensor.element.bytes):
                        self.ask_for(tensor, self.pointer(tensor, at), self.early[id(e)] + n)
                return self.load(tensor, at)
            case Cast(operand, element):
                return self.convert(self.value(operand), operand.type, element)
            case Bitcast(operand, element):
                return self.reinterpret(self.value(operand), operand.type, element)
            case Apply(function, operands, _):
                return (None if self.lane is None else self.look_up(e)) or self.apply(function, operands)
        raise LookupError(f"{getattr(e, 'name', type(e).__name__)} has no value here")

    def index(self, e: Index) -> Val:
        base = Val(self.address(e))
        if e is not self.lane:
            return base
        steps = ", ".join(f"i64 {n}" for n in range(self.lanes))
        wide = self.splat(base, I64, self.lanes)
        return Val(self.add(f"add nuw nsw {type_text(I64, self.lanes)} {wide.text}, <{steps}>"), self.lanes)

    def apply(self, function: str, operands: tuple[Expr, ...]) -> Val:
        if function == "add" and (sum := self.quads_added(*operands)) is not None:
            return sum
        values = [self.value(o) for o in operands]
        lanes = max(v.lanes for v in values)
        if function == "any":
            return Val(self.any_lane(values[0].text, lanes))
        element = operands[-1].type
        row = INSTRUCTIONS[function, element.kind]
        if function in ANY_DIVISOR and element.kind == "int":
            divisor = operands[-1]
            if not isinstance(divisor, Const) or divisor.value == -1:
                row = ANY_DIVISOR[function]
        if lanes > 1 and function in VECTOR_ROWS:
            row = VECTOR_ROWS[function]
        texts = [self.splat(v, o.type, lanes).text for v, o in zip(values, operands, strict=True)]
        return Val(self.spell(row, texts, element, lanes), lanes)

    def quads_added(self, sum: Expr, term: Expr) -> Val | None:
        """Products of bytes added to a sum, a function of its own for vectors; None where the term is none of these."""
        match term:
            case Apply(function, factors, type) if function in QUADSUM_ROWS:
                values = [self.value(e) for e in (*factors, sum)]
                lanes = max(v.lanes for v in values[:2])
                if lanes > 1:
                    texts = [self.splat(v, type, lanes).text for v in values]
                    return Val(self.spell(QUADSUM_ROWS[function], texts, type, lanes), lanes)
        return None

    def look_up(self, e: Apply) -> Val | None:
        """A choice between constants, where a register holds them all."""
        table = table_of(e)
        if table is None:
            return None
        places = [self.value(c) for c in table.conditions]
        lanes = places[0].lanes
        if lanes % ENTRIES[e.type] or lanes & (lanes - 1) or any(p.lanes != lanes for p in places):
            return None
        row = look_up([p.text for p in places], table.entries, e.type, lanes)
        return Val(self.spell(row, [], e.type, lanes), lanes)

    def any_lane(self, condition: str, lanes: int) -> str:
        """Test whether a condition holds in one of the lanes."""
        return condition if lanes == 1 else self.over_lanes("or", condition, lanes)

    def over_lanes(self, operation: str, condition: str, lanes: int) -> str:
        """A condition of vectors reduced to one."""
        reduce = Declaration("i1", f"llvm.vector.reduce.{operation}.v{lanes}i1", (type_text(I1, lanes),))
        self.declarations.add(reduce)
        return self.once(f"call i1 @{reduce.name}({reduce.parameters[0]} {condition})")

    def spell(self, row: Row, operands: list[str], element: ElementType, lanes: int) -> str:
        """The instructions of a row of the spelling; gives the last one's value."""
        names = dict(zip("abc", operands, strict=False))
        results: list[str] = []
        for template, declaration in spell_row(row, element, lanes):
            if declaration is not None:
                self.declarations.add(declaration)
            results.append(self.once(template.format(*results, **names)))
        return results[-1]

    def convert(self, value: Val, source: ElementType, target: ElementType) -> Val:
        if source is target:
            return value
        if source is F64 and target is F16:
            return self.convert(self.round_to_odd(value), F32, F16)
        spelled = spell_conversion(source, target, value.lanes)
        if spelled is None:
            return value
        if spelled.declaration is not None:
            self.declarations.add(spelled.declaration)
        return Val(self.once(spelled.template.format(a=value.text)), value.lanes)

    def round_to_odd(self, value: Val) -> Val:
        """An f64 as the f32 toward zero, its last bit set where that is not exact: rounded again, it is rounded once."""
        lanes = value.lanes
        narrow = self.convert(value, F64, F32)
        back = self.convert(narrow, F32, F64)
        size, wanted = (self.spell(INSTRUCTIONS["abs", "float"], [v.text], F64, lanes) for v in (back, value))
        beyond = self.spell(INSTRUCTIONS["gt", "float"], [size, wanted], F64, lanes)
        inexact = self.spell(INSTRUCTIONS["ne", "float"], [back.text, value.text], F64, lanes)
        bits = self.reinterpret(narrow, F32, I32)
        down = self.add(f"sub {type_text(I32, lanes)} {bits.text}, {self.convert(Val(beyond, lanes), I1, I32).text}")
        odd = self.add(f"or {type_text(I32, lanes)} {down}, {self.convert(Val(inexact, lanes), I1, I32).text}")
        return self.reinterpret(Val(odd, lanes), I32, F32)

    def reinterpret(self, value: Val, source: ElementType, target: ElementType) -> Val:
        given, wanted = type_text(source, value.lanes), type_text(target, value.lanes)
        if given == wanted:
            return value
        return Val(self.add(f"bitcast {given} {value.text} to {wanted}"), value.lanes)

    def splat(self, value: Val, element: ElementType, lanes: int) -> Val:
        """The value in every lane."""
        if value.lanes == lanes:
            return value
        wide = type_text(element, lanes)
        if is_number(value.text):
            return Val(f"splat ({type_text(element)} {value.text})", lanes)
        one = self.once(f"insertelement {wide} poison, {type_text(element)} {value.text}, i64 0")
        return Val(self.once(f"shufflevector {wide} {one}, {wide} poison, <{lanes} x i32> zeroinitializer"), lanes)

    # memory

    def load(self, tensor: Tensor, at: tuple[Expr, ...]) -> Val:
        lanes = self.widths.get(tensor, 1)
        if lanes > 1 or self.lane is None:
            return self.get(tensor, self.pointer(tensor, at, lanes), lanes)
        if (turned := self.turned(tensor, at)) is not None:
            return turned
        stride = self.stride(tensor, at)
        if stride in (0, 1):
            return self.get(tensor, self.pointer(tensor, at), self.lanes if stride else 1)
        if (crossed := self.crossed(tensor, at)) is not None:
            return crossed
        if (near := self.near(tensor, at)) is not None:
            return near
        text, wide, one = "poison", type_text(tensor.element, self.lanes), type_text(tensor.element)
        for n, pointer in enumerate(self.lane_pointers(tensor, at)):
            text = self.add(f"insertelement {wide} {text}, {one} {self.get(tensor, pointer, 1).text}, i64 {n}")
        return Val(text, self.lanes)

    def turned(self, tensor: Tensor, at: tuple[Expr, ...]) -> Val | None:
        """Elements first + (lane + turn) mod lanes: one vector, turned; None where the access is another one."""
        match at:
            case (Apply("add", (Apply("floormod", (Apply("add", (lane, Const(turn))), Const(n))), Const(first))),):
                if lane is not self.lane or n != self.lanes:
                    return None
            case _:
                return None
        vector = self.get(tensor, self.pointer(tensor, (Const(first, I64),)), n).text
        wide = type_text(tensor.element, n)
        picks = ", ".join(f"i32 {(k + turn) % n}" for k in range(n))
        return Val(self.add(f"shufflevector {wide} {vector}, {wide} poison, <{n} x i32> <{picks}>"), n)

    def crossed(self, tensor: Tensor, at: tuple[Expr, ...]) -> Val | None:
        """Elements that lie side by side along the unrolled loop around: a vector for each lane, loaded by the first
        iteration, and turned in registers.
        """
        if self.square is None or tensor in self.square.written:
            return None
        index, start, _, vectors = self.square
        rows = ROW // tensor.element.bytes
        if index.extent != rows or self.lanes % rows or stride_along(tensor, at, index) != 1:
            return None
        n = int(self.address(index)) - start
        if id(at) not in vectors:
            if n:
                return None
            self.kept.append(at)
            part, size = memory_text(tensor.element, rows), tensor.element.bytes
            if any(t.space == "stack" for t in self.square.written):
                self.ask_for_later(tensor, at)
            loaded = [self.add(f"load {part}, ptr {p}, align {size}") for p in self.lane_pointers(tensor, at)]
            vectors[id(at)] = turn(self, memory_text(tensor.element), loaded, rows)
        text = vectors[id(at)][n]
        if tensor.element is I1:
            text = self.truth(text, self.lanes)
        return Val(text, self.lanes)

    def ask_for_later(self, tensor: Tensor, at: tuple[Expr, ...]) -> None:
        """Brings what the rows that the lanes are at have further on nearer: processors foresee one row, not many side by side."""
        stride = self.stride(tensor, at)
        if stride is None or tensor.space == "stack" or tensor in self.asked:
            return
        size = tensor.element.bytes
        further = (AHEAD if stride * size > SHORT else AHEAD_OF_SHORT) // size
        for pointer in self.lane_pointers(tensor, at):
            self.ask_for(tensor, pointer, further)

    def ask_for(self, tensor: Tensor, pointer: str, further: int | str, written: bool = False) -> None:
        """Brings the cache line so many elements further on nearer, to be read or written."""
        self.declarations.add(PREFETCH)
        later = self.add(f"getelementptr {memory_text(tensor.element)}, ptr {pointer}, i64 {further}")
        self.raw(f"call void @llvm.prefetch.p0(ptr {later}, i32 {int(written)}, i32 {3 if written else 2}, i32 1)")

    def near(self, tensor: Tensor, at: tuple[Expr, ...]) -> Val | None:
        """Elements near each other: the vectors that hold them, shuffled."""
        assert self.lane is not None
        apart = offsets(tensor, at, Lanes(self.lane, self.first, self.lanes, lambda e: not self.varies(e)))
        starts = None if apart is None else windows(apart)
        if apart is None or starts is None:
            return None
        element, pointer = tensor.element, self.pointer(tensor, at)
        length = min(self.lanes, max(apart) - min(apart) + 1)
        vectors = []
        for start in starts:
            place = f"getelementptr inbounds {memory_text(element)}, ptr {pointer}, i64 {start}"
            vectors.append(self.by_rows(tensor, self.add(place) if start else pointer, length).text)
        if length == 1:
            return Val(vectors[0])
        wide, found = type_text(element, length), vectors[0]
        where = {
            lane: n - starts[0] for lane, n in enumerate(apart) if n - starts[0] < length
        }  # in what is found so far
        for start, vector in zip(starts[1:] or [0], vectors[1:] or ["poison"], strict=True):
            now = where | {
                lane: length + n - start for lane, n in enumerate(apart) if lane not in where and n - start < length
            }
            picks = ", ".join(f"i32 {now.get(lane, 'poison')}" for lane in range(self.lanes))
            found = self.add(f"shufflevector {wide} {found}, {wide} {vector}, <{self.lanes} x i32> <{picks}>")
            where = {lane: lane for lane in now}
        return Val(found, self.lanes)

    def by_rows(self, tensor: Tensor, pointer: str, lanes: int) -> Val:
        """Elements side by side: those of a buffer of several rows row by row, as they were written. A processor waits for what
        it has written in parts where it reads them as one."""
        length = tensor.shape[-1] if tensor.shape else 1
        if tensor.space != "stack" or not isinstance(length, int) or length < 2 or lanes % length or lanes == length:
            return self.get(tensor, pointer, lanes)
        one = memory_text(tensor.element)
        places = [self.add(f"getelementptr inbounds {one}, ptr {pointer}, i64 {n}") for n in range(0, lanes, length)]
        rows = [self.get(tensor, place, length).text for place in places]
        return Val(joined(self, type_text(tensor.element), rows, length), lanes)

    def get(self, tensor: Tensor, pointer: str, lanes: int) -> Val:
        load = self.add if tensor in self.written else self.once
        text = load(f"load {memory_text(tensor.element, lanes)}, ptr {pointer}, align {tensor.element.bytes}")
        if tensor.element is I1:
            text = self.truth(text, lanes)
        return Val(text, lanes)

    def truth(self, byte: str, lanes: int) -> str:
        """Truth values of their bytes in memory: as for NumPy, every byte but 0 is true."""
        return self.once(f"icmp ne {memory_text(I1, lanes)} {byte}, {'0' if lanes == 1 else 'zeroinitializer'}")

    def put(self, value: Val, tensor: Tensor, pointer: str, streaming: bool = False) -> None:
        text, lanes, align = value.text, value.lanes, tensor.element.bytes
        if tensor.element is I1:
            text = self.add(f"zext {type_text(I1, lanes)} {text} to {memory_text(I1, lanes)}")
        wide = memory_text(tensor.element, lanes)
        if streaming and lanes > 1 and lanes * align % PART == 0:
            self.nontemporal.stream(text, wide, tensor, pointer, lanes)
        else:
            self.raw(f"store {wide} {text}, ptr {pointer}, align {align}")

    def write(self, tensor: Tensor, at: tuple[Expr, ...], value: Val, streaming: bool = False) -> None:
        """Stores a value: one element, or one for each lane."""
        lanes = self.widths.get(tensor, 1)
        if lanes > 1:
            self.put(self.splat(value, tensor.element, lanes), tensor, self.pointer(tensor, at, lanes))
            return
        stride = 0 if self.lane is None else self.stride(tensor, at)
        if stride == 0 and value.lanes == 1:
            self.put(value, tensor, self.pointer(tensor, at), streaming)
            return
        wide = self.splat(value, tensor.element, self.lanes)
        if stride == 1:
            self.put(wide, tensor, self.pointer(tensor, at), streaming)
            return
        for n, pointer in enumerate(self.lane_pointers(tensor, at)):
            one = self.add(f"extractelement {type_text(tensor.element, self.lanes)} {wide.text}, i64 {n}")
            self.put(Val(one), tensor, pointer)

    def lane_pointers(self, tensor: Tensor, at: tuple[Expr, ...]) -> list[str]:
        """A pointer for each lane of an access that is not contiguous."""
        stride = self.stride(tensor, at)
        element = memory_text(tensor.element)
        if stride is not None:
            base = self.pointer(tensor, at)
            return [
                self.add(f"getelementptr inbounds {element}, ptr {base}, i64 {stride * n}") if n else base
                for n in range(self.lanes)
            ]
        factors = [self.factor(e) for e in at]
        if None not in factors:
            apart, pointers = "0", [self.pointer(tensor, at)]
            for factor, step in zip(factors, self.steps(tensor), strict=True):
                apart = self.linear("add", apart, self.linear("mul", step, str(factor)))
            for _ in range(1, self.lanes):
                pointers.append(self.add(f"getelementptr inbounds {element}, ptr {pointers[-1]}, i64 {apart}"))
            return pointers
        offset = Val("0")
        for e, step in zip(at, self.steps(tensor), strict=True):
            offset = self.arithmetic("add", offset, self.arithmetic("mul", self.value(e), Val(step)))
        wide = self.splat(offset, I64, self.lanes).text
        pointers = []
        for n in range(self.lanes):
            one = self.add(f"extractelement {type_text(I64, self.lanes)} {wide}, i64 {n}")
            pointers.append(self.add(f"getelementptr inbounds {element}, ptr {self.pointers[tensor]}, i64 {one}"))
        return pointers

    def arithmetic(self, operation: str, a: Val, b: Val) -> Val:
        lanes = max(a.lanes, b.lanes)
        if lanes == 1:
            return Val(self.linear(operation, a.text, b.text))
        if (operation == "add" and a.text == "0") or (operation == "mul" and b.text == "1"):
            return a if operation == "mul" else b
        a, b = self.splat(a, I64, lanes), self.splat(b, I64, lanes)
        return Val(self.add(f"{operation} nsw {type_text(I64, lanes)} {a.text}, {b.text}"), lanes)
