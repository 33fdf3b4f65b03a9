"""Index arithmetic of the loop language as LLVM IR: where an access goes, and how far apart its lanes are.

It is kept apart from values: an address is computed once, at lane 0, from i64 that do not overflow. What an access adds to an
array's pointer is a sum. Each part of it is added at the beginning of the outermost loop that knows it, so that inner loops
find it done, and the constant comes last, so that neighbouring accesses share all but that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import cast

from ...dialect.ir.linear_form import LinearForm, add_term
from ...dialect.ir.sizes import Dim
from ...dialect.ir.types import I64, ElementType
from ...dialect.notation.expressions import Apply, Const, Expr, Extent, Index, Misalignment, Read, Tensor, Var
from ...dialect.notation.index_bounds import index_bounds
from ...dialect.notation.traverse import children, walk
from ...lowering.analysis.accesses import index_factor, stride
from .ir_writer import IRWriter, is_number, memory_text, type_text
from .scalar_functions import INSTRUCTIONS, Row


@dataclass(frozen=True, slots=True)
class Val:
    """An emitted value: its text, and how many lanes it has (1 is a scalar)."""

    text: str
    lanes: int = 1


@dataclass
class Frame:
    """A place before a loop, or at the beginning of its body: instructions put there later, and what they computed."""

    lines: list[str] = field(default_factory=list)
    found: dict[str, str] = field(default_factory=dict)


class Addresses(IRWriter):
    """The emitter's environment at the current point: emitted expressions, pointers of arrays, the current vector loop."""

    def __init__(self, sizes: dict[object, str], written: Iterable[Tensor]) -> None:
        super().__init__()
        self.sizes = sizes
        self.written = set(written)
        self.pointers: dict[Tensor, str] = {}
        self.widths: dict[Tensor, int] = {}  # lanes of the buffers that have one element for each lane
        self.known: dict[int, Val] = {}  # expressions already emitted where the current block can use them, by id
        self.addresses: dict[object, str] = {}  # the same for index arithmetic, at lane 0: expressions and sums
        self.lengths: dict[object, str] = {}  # sizes that were computed
        self.pure: dict[str, str] = {}  # values that can be used here, by their instruction
        self.kept: list[object] = []  # keeps what the tables know by id alive
        self.changing: dict[int, bool] = {}
        self.parts: dict[int, tuple[list[tuple[Expr, int]], int]] = {}  # of index expressions, by id
        self.accesses: dict[tuple[Tensor, int], tuple[list[tuple[Expr, int]], int]] = {}  # of several
        self.strides: dict[tuple[Tensor, int, int], int | None] = {}  # of accesses, indices and lane by id
        self.frames: list[Frame] = []  # of the function, then two of each loop around the current point
        self.levels: dict[str, int] = {}  # the first frame that knows a value; parameters are known to all
        self.lane: Index | None = None
        self.lanes = 1
        self.first = 1  # what the lane's index is a multiple of where a vector begins
        self.open_frame()

    def value(self, e: Expr) -> Val:
        raise NotImplementedError

    def spell(self, row: Row, operands: list[str], element: ElementType, lanes: int) -> str:
        raise NotImplementedError

    def changes(self, e: Expr) -> bool:
        """Test whether an expression reads an array that the kernel writes."""
        found = self.changing.get(id(e))
        if found is None:
            found = (isinstance(e, Read) and e.tensor in self.written) or any(self.changes(c) for c in children(e))
            self.changing[id(e)] = found
            self.kept.append(e)
        return found

    # pointers

    def pointer(self, tensor: Tensor, at: tuple[Expr, ...], lanes: int = 1) -> str:
        """The address of an element, at lane 0, of a buffer with so many lanes an element."""
        offset = self.offset(tensor, at)
        element, found = memory_text(tensor.element, lanes), self.pointers[tensor]
        ordered = [(self.level(t), _age(t), t, f) for t, f in offset.terms.values()]
        if len(ordered) > 1:
            ordered.sort()
        for _, group in groupby(ordered, _first):
            found = self.place(element, found, self.total(tuple([(t, f) for *_, t, f in group])))
        return self.place(element, found, str(offset.constant)) if offset.constant else found

    def offset(self, tensor: Tensor, at: tuple[Expr, ...]) -> LinearForm[str]:
        """The offset of the element at lane 0 from its array's first one, in elements."""
        if all(isinstance(d, int) for d in tensor.shape[1:]):
            found = self.accesses.get((tensor, id(at)))
            if found is None:
                apart: list[tuple[Expr, int]] = []
                constant, step = 0, 1
                for e, d in zip(reversed(at), reversed(tensor.shape), strict=True):
                    constant += _taken_apart(e, step, apart)
                    step = d * step if isinstance(d, int) else 0
                found = self.accesses[tensor, id(at)] = apart, constant
                self.kept.append(at)
            return self.added(*found)
        total: LinearForm[str] = LinearForm({})
        step: Dim = 1
        for e, d in zip(reversed(at), reversed(tensor.shape), strict=True):
            total = total + self.times(self.sum(e), step)
            step = d * step
        return total

    def place(self, element: str, base: str, offset: str) -> str:
        """A pointer so many elements further on. What lies between need not be inside of the array."""
        return self.earliest(f"getelementptr {element}, ptr {base}, i64 {offset}", base, offset)

    def total(self, terms: tuple[tuple[str, int], ...]) -> str:
        """A sum of terms, the first ones added first."""
        text, factor = terms[-1]
        if len(terms) == 1 and factor == 1:
            return text
        last = text if factor == 1 else self.earliest(f"mul nsw i64 {text}, {factor}", text)
        if len(terms) == 1:
            return last
        first = self.total(terms[:-1])
        return self.earliest(f"add nsw i64 {first}, {last}", first, last)

    # frames

    def open_frame(self, variable: str = "") -> None:
        """A loop begins here, or the body of the loop over a variable."""
        self.levels[variable] = len(self.frames)
        self.frames.append(Frame())
        self.lines.append(cast(str, self.frames[-1].lines))

    def all_lines(self) -> list[str]:
        """The instructions with those of the frames in their places."""
        flat: list[str] = []
        for line in self.lines:
            flat += [line] if isinstance(line, str) else line
        return flat

    def level(self, text: str) -> int:
        return self.levels.get(text, 0)

    @contextmanager
    def at_beginning(self) -> Iterator[None]:
        """Emit at the beginning of the function while inside."""
        here = self.lines, self.frames
        self.lines, self.frames = cast(list[str], self.frames[0].lines), []
        yield
        self.lines, self.frames = here

    def add(self, instruction: str) -> str:
        self.names += 1
        name = f"%v{self.names}"
        self.lines.append(f"  {name} = {instruction}")
        self.levels[name] = len(self.frames)
        return name

    def once(self, instruction: str) -> str:
        """An instruction that gives the same wherever it stands: the value of one like it, where the current block has that."""
        found = self.pure.get(instruction)
        if found is None or self.level(found) > len(self.frames):
            found = self.pure[instruction] = self.add(instruction)
        return found

    def earliest(self, instruction: str, *operands: str) -> str:
        """The value of an instruction, which goes where all of its operands are first known."""
        level = max(map(self.level, operands))
        if level == len(self.frames):
            return self.once(instruction)
        frame = self.frames[level]
        name = frame.found.get(instruction)
        if name is None:
            name = frame.found[instruction] = self.fresh()
            frame.lines.append(f"  {name} = {instruction}")
            self.levels[name] = level
        return name

    # index arithmetic

    def sum(self, e: Expr) -> LinearForm[str]:
        """An index expression at lane 0, taken apart."""
        found = self.parts.get(id(e))
        if found is None:
            terms: list[tuple[Expr, int]] = []
            found = self.parts[id(e)] = terms, _taken_apart(e, 1, terms)
            self.kept.append(e)
        return self.added(*found)

    def added(self, terms: list[tuple[Expr, int]], constant: int) -> LinearForm[str]:
        """Multiples of index expressions and a constant, as multiples of values."""
        sums: dict[object, tuple[str, int]] = {}
        for atom, factor in terms:
            text = self.address(atom)
            if is_number(text):
                constant += factor * int(text)
            else:
                add_term(sums, text, text, factor)
        return LinearForm(sums, constant)

    def times(self, sum: LinearForm[str], factor: Dim) -> LinearForm[str]:
        if isinstance(factor, int):
            return sum if factor == 1 else sum * factor
        size = self.size(factor)
        terms: dict[object, tuple[str, int]] = {}
        for text, times in sum.terms.values():
            add_term(terms, product := self.product(text, size), product, times)
        if sum.constant:
            add_term(terms, size, size, sum.constant)
        return LinearForm(terms)

    def product(self, a: str, b: str) -> str:
        return a if b == "1" else b if a == "1" else self.earliest(f"mul nsw i64 {a}, {b}", a, b)

    def steps(self, tensor: Tensor) -> list[str]:
        """The strides of a tensor's axes, in elements."""
        step: Dim = 1
        found: list[str] = []
        for d in reversed(tensor.shape):
            found.append(self.size(step))
            step = d * step
        return found[::-1]

    def size(self, dim: Dim) -> str:
        """A size, computed at the beginning of the function."""
        if isinstance(dim, int):
            return str(dim)
        if dim.key not in self.lengths:
            with self.at_beginning():
                self.lengths[dim.key] = self.dim(dim, self.sizes)
        return self.lengths[dim.key]

    # what differs between lanes

    def stride(self, tensor: Tensor, at: tuple[Expr, ...]) -> int | None:
        """The distance of neighbouring lanes' accesses to a tensor, in elements; None if it varies."""
        key = tensor, id(at), id(self.lane)
        if key in self.strides:
            return self.strides[key]
        found = 0 if self.lane is None else stride(tensor, at, self.lane, self.varies)
        if not any(isinstance(x, (Var, Read)) for e in at for x in walk(e)):  # these may have one lane or several
            self.strides[key] = found
            self.kept += (at, self.lane)
        return found

    def factor(self, e: Expr) -> int | None:
        """The factor of the lane's index in an index expression; None where the expression is not linear in it."""
        return 0 if self.lane is None else index_factor(e, self.lane, self.varies)

    def varies(self, e: Expr) -> bool:
        """Test whether an expression may differ between lanes."""
        if e is self.lane or (isinstance(e, Read) and self.widths.get(e.tensor, 1) > 1):
            return True
        if isinstance(e, Var):
            return self.known[id(e)].lanes > 1
        return any(map(self.varies, children(e)))

    def address(self, e: Expr) -> str:
        """An index expression as an i64, at lane 0. Indices do not overflow."""
        match e:
            case Const(value, _):
                return str(value)
            case Extent(size):
                return self.size(size)
        found = self.addresses.get(id(e))
        if found is None:
            found = self.compute_address(e)
            if not self.changes(e):
                self.addresses[id(e)] = found
                self.kept.append(e)
        return found

    def compute_address(self, e: Expr) -> str:
        match e:
            case Misalignment(tensor, line):
                pointer, bits = self.pointers[tensor], tensor.element.bytes.bit_length() - 1
                found = self.earliest(f"ptrtoint ptr {pointer} to i64", pointer)
                found = self.earliest(f"lshr i64 {found}, {bits}", found)
                return self.earliest(f"and i64 {found}, {line - 1}", found)
            case Apply("add" | "sub" | "mul", (a, b), _):
                return self.linear(e.function, self.address(a), self.address(b))
            case Apply("max" | "min", (a, b), _) if is_number(x := self.address(a)) and is_number(y := self.address(b)):
                return str((max if e.function == "max" else min)(int(x), int(y)))
            case Apply("floordiv" | "floormod", (a, Const() as b), _) if b.value > 0 and at_least_zero(a):
                return self.add(f"{'udiv' if e.function == 'floordiv' else 'urem'} i64 {self.address(a)}, {b.value}")
            case Apply("floordiv" | "floormod", (a, b), _) if at_least_zero(a) and at_least_zero(b):
                operation = "udiv" if e.function == "floordiv" else "urem"
                return self.divided(operation, self.address(a), self.address(b))
            case Apply(function, operands, type) if all(o.type is I64 for o in operands) and type is I64:
                texts = [self.address(o) for o in operands]
                return self.spell(INSTRUCTIONS[function, "int"], texts, I64, 1)
        value = self.value(e)
        if value.lanes > 1:
            return self.add(f"extractelement {type_text(I64, value.lanes)} {value.text}, i64 0")
        return value.text

    def divided(self, operation: str, a: str, b: str) -> str:
        """A quotient or remainder, found where both operands are known: there the divisor may be 0, which is taken for 1."""
        none = self.earliest(f"icmp eq i64 {b}, 0", b)
        divisor = self.earliest(f"select i1 {none}, i64 1, i64 {b}", none, b)
        return self.earliest(f"{operation} i64 {a}, {divisor}", a, divisor)


def _taken_apart(e: Expr, factor: int, terms: list[tuple[Expr, int]]) -> int:
    """Adds so many times the terms of an index expression to others, in its order; gives its constant."""
    match e:
        case Const(value, _):
            return factor * value
        case Apply("add" | "sub", (a, b), _):
            first = _taken_apart(a, factor, terms)
            return first + _taken_apart(b, factor if e.function == "add" else -factor, terms)
        case Apply("mul", (a, Const(value)), _) | Apply("mul", (Const(value), a), _):
            return _taken_apart(a, factor * value, terms)
    terms.append((e, factor))
    return 0


def at_least_zero(e: Expr) -> bool:
    low, _ = index_bounds(e)
    return low is not None and low >= 0


_first = itemgetter(0)


def _age(text: str) -> int:
    """Values that were computed first come first; parameters before them."""
    return int(text[2:]) if text.startswith("%v") else 0
