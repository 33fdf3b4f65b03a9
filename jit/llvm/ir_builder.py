"""LLVM IR as values: types, constants, instructions in basic blocks, and the builder that appends
them (LLVM's IRBuilder).

Instructions are immutable and compare by content, so a dictionary of instructions numbers equal
values. Text is printed once, when a function is whole.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from ...dialect.types.tensor_types import BF16, I1, ElementType

_FLOATS = {16: "half", 32: "float", 64: "double"}


class Type:
    """A type of LLVM IR. There is one object for each type, so types compare by identity."""

    __slots__ = ("lanes", "scalar", "text")

    def __init__(self, scalar: str, lanes: int) -> None:
        self.scalar, self.lanes = scalar, lanes
        self.text = scalar if lanes == 1 else f"<{lanes} x {scalar}>"

    def __str__(self) -> str:
        return self.text

    def of(self, lanes: int) -> "Type":
        """The vector of `lanes` scalars of this type; the scalar itself for one lane."""
        return self if lanes == self.lanes else ir_type(self.scalar, lanes)


_TYPES: dict[tuple[str, int], Type] = {}


def ir_type(scalar: str, lanes: int = 1) -> Type:
    return _TYPES.get((scalar, lanes)) or _TYPES.setdefault((scalar, lanes), Type(scalar, lanes))


VOID, LABEL, POINTER = ir_type("void"), ir_type("label"), ir_type("ptr")
BIT, BYTE, STATUS, WORD = ir_type("i1"), ir_type("i8"), ir_type("i32"), ir_type("i64")


def value_type(element: ElementType, lanes: int = 1) -> Type:
    """The type of values of an element type."""
    if element.kind == "complex" or element is BF16:
        raise TypeError(f"elements of type {element} are legalized before emission")
    return ir_type(_FLOATS[element.bits] if element.kind == "float" else f"i{element.bits}", lanes)


def memory_type(element: ElementType, lanes: int = 1) -> Type:
    """The type in memory: a bool takes a byte."""
    return BYTE.of(lanes) if element is I1 else value_type(element, lanes)


def suffix(type: Type) -> str:
    """The type as the names of intrinsics write it."""
    scalar = {"half": "f16", "float": "f32", "double": "f64"}.get(type.scalar, type.scalar)
    return scalar if type.lanes == 1 else f"v{type.lanes}{scalar}"


class Value:
    """An operand of instructions: a parameter here, and by its subclasses a constant, a result or a
    block.
    """

    __slots__ = ("text", "type")
    number: int | None = None  # of an integer constant
    level: int = 0  # the first frame that knows it
    age: int = 0  # results are numbered as they are created

    def __init__(self, text: str, type: Type) -> None:
        self.text, self.type = text, type

    @property
    def lanes(self) -> int:
        return self.type.lanes


class Constant(Value):
    """A constant; equal constants are equal operands."""

    __slots__ = ("number",)

    def __init__(self, text: str, type: Type, number: int | None = None) -> None:
        self.text, self.type, self.number = text, type, number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self.text == other.text and self.type is other.type

    def __hash__(self) -> int:
        return hash(self.text)


class Result(Value):
    """The result of an instruction."""

    __slots__ = ("age", "level")

    def __init__(self, type: Type, age: int, level: int) -> None:
        self.text = f"%v{age}"
        self.type = type
        self.age = age
        self.level = level


@lru_cache(maxsize=1 << 12)
def index(number: int) -> Constant:
    """A constant i64."""
    return Constant(str(number), WORD, number)


TRUE, FALSE = Constant("true", BIT), Constant("false", BIT)
ZERO, ONE = index(0), index(1)


def number(value: Any, element: ElementType) -> Constant:
    """A constant of an element type."""
    if element is I1:
        return TRUE if value else FALSE
    type = value_type(element)
    if element.kind != "float":
        return Constant(str(int(value)), type, int(value))
    form, prefix = (">e", "0xH") if element.bits == 16 else (">d", "0x")
    return Constant(
        prefix + struct.pack(form, float(element.dtype.type(value))).hex().upper(), type
    )


def poison(type: Type) -> Constant:
    return Constant("poison", type)


def splat_constant(value: Constant, lanes: int) -> Constant:
    return (
        value
        if lanes == 1
        else Constant(f"splat ({value.type} {value.text})", value.type.of(lanes))
    )


class Instruction(NamedTuple):
    """An instruction without a name for its result. `source` is the type of the memory that it
    addresses.
    """

    opcode: str
    type: Type  # of the result
    operands: tuple[Value, ...]
    flags: str = ""
    source: Type | None = None
    metadata: str = ""


Item: TypeAlias = "tuple[Value | None, Instruction] | list[Item]"


class Block(Value):
    """A basic block, which is an operand of branches. Its items are instructions, and frames of
    instructions.
    """

    __slots__ = ("items",)

    def __init__(self, name: str) -> None:
        self.text = f"%{name}"
        self.type = LABEL
        self.items: list[Item] = []

    @property
    def is_loop(self) -> bool:
        """Test whether a loop begins here: with the phi of its variable."""
        first = self.items[0] if self.items else None
        return isinstance(first, tuple) and first[1].opcode == "phi"


class Declaration(NamedTuple):
    """A function of another module, or one that is defined later: `result @name(parameters)`."""

    result: Type
    name: str
    parameters: tuple[Type | str, ...]  # as text where they have attributes
    attributes: str = ""

    def __str__(self) -> str:
        return (
            f"declare {self.result} "
            f"@{self.name}({', '.join(map(str, self.parameters))}){self.attributes}"
        )

    @property
    def stem(self) -> str:
        """The name without the types that follow it."""
        return self.name.removeprefix("llvm.").partition(".")[0]


class Module(NamedTuple):
    """A module: declarations in their order, and the text of its definitions."""

    declarations: tuple[Declaration, ...]
    definitions: str

    def __str__(self) -> str:
        return "\n".join([*map(str, self.declarations), self.definitions])

    @property
    def is_parallel(self) -> bool:
        """Test whether it runs loops on the thread pool."""
        return PARALLEL in self.declarations

    def joined(self, other: "Module") -> "Module":
        declarations = sorted({*self.declarations, *other.declarations}, key=str)
        return Module(tuple(declarations), f"{self.definitions}\n{other.definitions}")


ENTRY = Declaration(
    STATUS, "entry", (POINTER, POINTER, POINTER)
)  # runs a plan: its arguments, sizes and workspace
PARALLEL = Declaration(
    STATUS, "parallel", (POINTER, POINTER, WORD, WORD)
)  # runs a loop on the thread pool


# Instructions


def binary(opcode: str, a: Value, b: Value, flags: str = "") -> Instruction:
    return Instruction(opcode, a.type, (a, b), flags)


def compare(test: str, a: Value, b: Value) -> Instruction:
    opcode = "fcmp" if a.type.scalar in _FLOATS.values() else "icmp"
    return Instruction(opcode, BIT.of(a.type.lanes), (a, b), test)


def cast(opcode: str, a: Value, type: Type) -> Instruction:
    return Instruction(opcode, type, (a,))


def select(condition: Value, a: Value, b: Value) -> Instruction:
    return Instruction("select", a.type, (condition, a, b))


def load(type: Type, pointer: Value, metadata: str = "") -> Instruction:
    return Instruction("load", type, (pointer,), "", None, metadata)


def store(value: Value, pointer: Value, metadata: str = "") -> Instruction:
    return Instruction("store", VOID, (value, pointer), "", None, metadata)


def element_pointer(
    source: Type, base: Value, offset: Value, flags: str = "inbounds"
) -> Instruction:
    """The pointer `offset` elements of a type beyond `base`."""
    return Instruction("getelementptr", POINTER, (base, offset), flags, source)


def extract(vector: Value, lane: int) -> Instruction:
    return Instruction("extractelement", vector.type.of(1), (vector, index(lane)))


def insert(vector: Value, value: Value, lane: int) -> Instruction:
    return Instruction("insertelement", vector.type, (vector, value, index(lane)))


def shuffle(a: Value, lanes: Iterable[object], b: Value | None = None) -> Instruction:
    """The vector of these lanes of two."""
    picks = [f"i32 {n}" for n in lanes]
    mask = Constant(f"<{', '.join(picks)}>", STATUS.of(len(picks)))
    return Instruction(
        "shufflevector", a.type.of(len(picks)), (a, poison(a.type) if b is None else b, mask)
    )


def broadcast(vector: Value) -> Instruction:
    """The vector of a vector's first lane."""
    mask = Constant("zeroinitializer", STATUS.of(vector.lanes))
    return Instruction("shufflevector", vector.type, (vector, poison(vector.type), mask))


def array_type(size: int, element: Type) -> Type:
    return Type(f"[{size} x {element}]", 1)


def alloca(source: Type, metadata: str = "") -> Instruction:
    return Instruction("alloca", POINTER, (), "", source, metadata)


def call(function: Declaration, *operands: Value) -> Instruction:
    return Instruction("call", function.result, operands, function.name)


def branch(target: Block) -> Instruction:
    return Instruction("br", VOID, (target,))


def branch_if(condition: Value, yes: Block, no: Block, metadata: str = "") -> Instruction:
    return Instruction("br", VOID, (condition, yes, no), "", None, metadata)


def atomic_umax(pointer: Value, value: Value) -> Instruction:
    return Instruction("atomicrmw umax", VOID, (pointer, value), "", None, "monotonic")


def load_shared(type: Type, pointer: Value) -> Instruction:
    """The load of what other threads write: a plain one would be a race, whose result is
    undefined.
    """
    return Instruction("load atomic", type, (pointer,), "", None, "monotonic, align 4")


def phi(*incoming: tuple[Value, Block]) -> Instruction:
    return Instruction("phi", incoming[0][0].type, tuple([v for pair in incoming for v in pair]))


def returned(value: Value | None = None) -> Instruction:
    return Instruction("ret", VOID, () if value is None else (value,))


# Rows of instructions


Ref: TypeAlias = "int | str | Splat | Constant"


class Splat(NamedTuple):
    """An integer constant in a row, in every lane."""

    number: int


class Step(NamedTuple):
    """An instruction of a row: operands a, b, c, constants z (0), o (1), x (all bits), `Splat`s, or
    earlier steps.
    """

    opcode: str
    operands: tuple[Ref, ...]
    function: str = ""  # of a call, without the suffix for its type
    result: str = ""  # the scalar of the result, where it is not that of the row's type


class Row:
    """The instructions for a scalar function, of operands of any type; the last one gives the
    value.
    """

    __slots__ = ("resolved", "steps")

    def __init__(self, *steps: Step) -> None:
        self.steps = steps
        self.resolved: dict[Type, list[_Resolved]] = {}

    def resolve(self, type: Type) -> "list[_Resolved]":
        """The steps for operands of a type."""
        return self.resolved.setdefault(type, [_resolve(step, type) for step in self.steps])


_Resolved: TypeAlias = "tuple[str, Type | None, list[Value | int], str, Declaration | None]"
_PARAMETERS: dict[object, int] = {"a": 0, "b": 1, "c": 2}
_CONSTANTS = {"z": "0", "o": "1", "x": "-1"}
_BOOLS = {"z": "false", "o": "true", "x": "true"}


def _resolve(step: Step, type: Type) -> _Resolved:
    """A step with its constants, and its result's type where this is not an operand's."""
    opcode, _, flags = step.opcode.partition(" ")
    operands = [_operand(o, type) for o in step.operands]
    result = BIT.of(type.lanes) if opcode in ("icmp", "fcmp") else None
    if opcode in _CASTS or step.function:
        result = ir_type(step.result or type.scalar, type.lanes)
    if result is None or not step.function:
        return opcode, result, operands, flags, None
    types = tuple([o.type if isinstance(o, Value) else type for o in operands])
    overloads = [result, type] if step.result and step.function.startswith("llvm.") else [type]
    function = Declaration(result, ".".join([step.function, *map(suffix, overloads)]), types)
    return opcode, result, operands, function.name, function


def _operand(o: Ref, type: Type) -> Value | int:
    """A constant, the number of one of the row's operands, or from -1 down the number of an earlier
    step.
    """
    if isinstance(o, Constant):
        return o
    if isinstance(o, int) or o in _PARAMETERS:
        return ~o if isinstance(o, int) else _PARAMETERS[o]
    assert type.scalar not in _FLOATS.values(), "constants of rows are integers"
    if isinstance(o, Splat):
        text = str(o.number)
    else:
        text = (_BOOLS if type.scalar == "i1" else _CONSTANTS)[o]
    return splat_constant(Constant(text, type.of(1)), type.lanes)


# Text


def _binary_text(i: Instruction) -> str:
    a, b = i.operands
    return f"{i.opcode}{' ' if i.flags else ''}{i.flags} {a.type.text} {a.text}, {b.text}"


def _typed_text(i: Instruction) -> str:
    text = f"{i.opcode} {', '.join([f'{o.type.text} {o.text}' for o in i.operands])}"
    return f"{text}, {i.metadata}" if i.metadata else text


def _load_text(i: Instruction) -> str:
    text = f"{i.opcode} {i.type.text}, ptr {i.operands[0].text}"
    return f"{text}, {i.metadata}" if i.metadata else text


def _element_pointer_text(i: Instruction) -> str:
    base, offset = i.operands
    flags = " inbounds" if i.flags else ""
    return f"getelementptr{flags} {i.source}, ptr {base.text}, i64 {offset.text}"


def _cast_text(i: Instruction) -> str:
    (a,) = i.operands
    return f"{i.opcode} {a.type.text} {a.text} to {i.type.text}"


def _call_text(i: Instruction) -> str:
    return (
        f"{i.opcode} {i.type.text} "
        f"@{i.flags}({', '.join([f'{o.type.text} {o.text}' for o in i.operands])})"
    )


def _phi_text(i: Instruction) -> str:
    pairs = zip(i.operands[::2], i.operands[1::2], strict=True)
    return f"phi {i.type.text} {', '.join([f'[ {v.text}, {block.text} ]' for v, block in pairs])}"


def _switch_text(i: Instruction) -> str:
    value, default, *cases = [f"{o.type.text} {o.text}" for o in i.operands]
    pairs = zip(cases[::2], cases[1::2], strict=True)
    return f"switch {value}, {default} [{' '.join([f'{n}, {block}' for n, block in pairs])}]"


_CASTS = (
    "trunc",
    "zext",
    "sext",
    "fptrunc",
    "fpext",
    "fptoui",
    "fptosi",
    "uitofp",
    "sitofp",
    "ptrtoint",
    "bitcast",
)
_TYPED = ("select", "store", "extractelement", "insertelement", "shufflevector", "br", "fneg")
_FORMS: dict[str, Callable[[Instruction], str]] = {
    **dict.fromkeys(_CASTS, _cast_text),
    **dict.fromkeys(_TYPED, _typed_text),
    "load": _load_text,
    "load atomic": lambda i: f"{_load_text(i._replace(metadata=''))} {i.metadata}",
    "getelementptr": _element_pointer_text,
    "alloca": lambda i: f"alloca {i.source}{', ' * bool(i.metadata)}{i.metadata}",
    **dict.fromkeys(("call", "tail call"), _call_text),
    "phi": _phi_text,
    "switch": _switch_text,
    "fence": lambda i: f"fence {i.flags}",
    "ret": lambda i: _typed_text(i) if i.operands else "ret void",
    "atomicrmw umax": lambda i: f"{_typed_text(i._replace(metadata=''))} {i.metadata}",
}


def add_lines(items: list[Item], lines: list[str]) -> None:
    """Adds the text of instructions to lines, with those of frames in their places."""
    for item in items:
        if item.__class__ is list:
            add_lines(item, lines)  # type: ignore[arg-type]
        else:
            result, instruction = item
            text = _FORMS.get(instruction[0], _binary_text)(instruction)  # type: ignore[arg-type]
            lines.append(f"  {text}" if result is None else f"  {result.text} = {text}")  # type: ignore[union-attr]


class Frame:
    """A place before a loop, or at the beginning of its body: instructions put there later, and
    their results.
    """

    __slots__ = ("found", "items")

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.found: dict[Instruction, Value] = {}


class IRBuilder:
    """Appends instructions to the blocks of one function."""

    def __init__(self) -> None:
        self.names = 0
        self.entry: list[Item] = []  # the first instructions of the function
        self.block = Block("entry")
        self.blocks = [self.block]
        self.items = self.block.items  # where instructions go
        self.frames: list[
            Frame
        ] = []  # of the function, then two of each loop around the current point
        self.pure: dict[
            Instruction, Value
        ] = {}  # values that can be used here, by their instruction
        self.declarations: set[Declaration] = set()
        self.open_frame()

    def fresh(self, type: Type) -> Result:
        """A result whose instruction follows."""
        self.names += 1
        return Result(type, self.names, 0)

    def new_block(self) -> Block:
        self.names += 1
        return Block(f"b{self.names}")

    def add(self, instruction: Instruction) -> Value:
        """Appends an instruction that has a result."""
        self.names += 1
        result = Result(instruction.type, self.names, len(self.frames))
        self.items.append((result, instruction))
        return result

    def load_at(self, type: Type, base: Value, number: int, flags: str = "inbounds") -> Value:
        """Appends the load of an element of a table."""
        return self.add(load(type, self.add(element_pointer(type, base, index(number), flags))))

    def do(self, instruction: Instruction) -> None:
        """Appends an instruction without a result."""
        self.items.append((None, instruction))

    def define(self, result: Value, instruction: Instruction) -> None:
        self.items.append((result, instruction))

    def once(self, instruction: Instruction) -> Value:
        """An instruction that gives the same wherever it stands: the value of one like it, where
        the current block has that.
        """
        if (value := self.pure.get(instruction)) is None or value.level > len(self.frames):
            value = self.pure[instruction] = self.add(instruction)
        return value

    def earliest(self, instruction: Instruction) -> Value:
        """The value of an instruction, which goes where all of its operands are first known."""
        if (level := max([o.level for o in instruction.operands])) == len(self.frames):
            return self.once(instruction)
        frame = self.frames[level]
        if (result := frame.found.get(instruction)) is None:
            self.names += 1
            result = frame.found[instruction] = Result(instruction.type, self.names, level)
            frame.items.append((result, instruction))
        return result

    def call(self, function: Declaration, *operands: Value) -> None:
        self.declarations.add(function)
        self.do(call(function, *operands))

    def call_once(self, function: Declaration, *operands: Value) -> Value:
        self.declarations.add(function)
        return self.once(call(function, *operands))

    def spell(
        self,
        row: Row,
        operands: list[Value],
        type: Type,
        put: Callable[[Instruction], Value] | None = None,
    ) -> Value:
        """The instructions of a row; gives the last one's value."""
        place = self.once if put is None else put
        results: list[Value] = []
        for opcode, result, refs, flags, function in row.resolved.get(type) or row.resolve(type):
            if function is not None:
                self.declarations.add(function)
            values: list[Value] = []
            for r in refs:
                if isinstance(r, Value):
                    values.append(r)
                else:
                    values.append(operands[r] if r >= 0 else results[~r])
            type = result or values[opcode == "select"].type
            results.append(place(Instruction(opcode, type, tuple(values), flags)))
        return results[-1]

    def start(self, block: Block) -> None:
        self.blocks.append(block)
        self.block = block
        self.items = block.items

    def open_frame(self, variable: Result | None = None) -> None:
        """A loop begins here, or the body of the loop over a variable."""
        if variable is not None:
            variable.level = len(self.frames)
        self.frames.append(Frame())
        self.items.append(self.frames[-1].items)

    @contextmanager
    def at_beginning(self) -> Iterator[None]:
        """Emit at the beginning of the function while inside."""
        here = self.items, self.frames
        self.items = self.frames[0].items
        self.frames = []
        yield
        self.items, self.frames = here

    def body(self) -> str:
        """The text of the blocks, which are given up; that of the first one is not named."""
        lines: list[str] = []
        add_lines(self.entry, lines)
        for block in self.blocks:
            if block is not self.blocks[0]:
                lines.append(f"{block.text[1:]}:")
            add_lines(block.items, lines)
            # a loop is a circle of references, which only Python's garbage collector would free
            block.items.clear()
        return "\n".join(lines)

    def inlined(self, result: Type, name: str, *parameters: Value) -> str:
        """The definition of a function with these blocks, which becomes a part of who calls it."""
        arguments = ", ".join([f"{p.type} {p.text}" for p in parameters])
        return (
            f"define internal {result} @{name}({arguments}) alwaysinline nounwind {{\n"
            f"{self.body()}\n}}"
        )

    # integers

    def linear(self, opcode: str, a: Value, b: Value, flags: str = "nsw") -> Value:
        """a + b, a - b or a * b of i64, computed here where both are constants; `nsw` by
        default.
        """
        x, y = a.number, b.number
        if x is not None and y is not None:
            if opcode == "add":
                exact = x + y
            elif opcode == "sub":
                exact = x - y
            else:
                exact = x * y
            return index((exact + (1 << 63)) % (1 << 64) - (1 << 63))
        if (y == 0 and opcode != "mul") or (y == 1 and opcode == "mul"):
            return a
        if (x == 0 and opcode == "add") or (x == 1 and opcode == "mul"):
            return b
        return self.add(binary(opcode, a, b, flags))
