"""Kernels to LLVM IR, as text. Knows the loop language and the spelling of scalar functions, and no operator.

A kernel becomes one function over pointers and sizes; the plan becomes `@entry`, which calls the kernels in turn:

    i32 @entry(ptr arguments, ptr sizes, ptr workspace)      0, or the number of the requirement that does not hold

`arguments` holds a pointer for each argument, result and constant, in that order. No name of the user's reaches the text.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..dialect.index import Apply, Bitcast, Cast, Const, Expr, Extent, Index, Read, Tensor, Var, children, interval
from ..dialect.loops import Alloc, Block, For, If, Kernel, Let, Require, Statement, Store, statements
from ..dialect.source import Span
from ..dialect.types import I1, I64, Dim, ElementType, Size
from ..lowering.plan import Plan
from .spelling import INSTRUCTIONS, conversion


@dataclass(frozen=True)
class Text:
    """The IR of a plan: the module, which sizes it wants in which order, and what it may report."""

    module: str
    sizes: tuple[tuple[object, ...], ...]
    requirements: tuple[tuple[str, Span], ...]


@dataclass(frozen=True, slots=True)
class Val:
    """An emitted value: its text, and how many lanes it has (1 is a scalar)."""

    text: str
    lanes: int = 1


def type_text(element: ElementType, lanes: int = 1) -> str:
    match element.kind:
        case "float":
            scalar = {16: "half", 32: "float", 64: "double"}[element.bits]
        case "complex":
            raise TypeError("complex elements are split before emission")
        case _:
            scalar = f"i{element.bits}"
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def memory_text(element: ElementType, lanes: int = 1) -> str:
    """The type in memory: a bool takes a byte."""
    scalar = "i8" if element is I1 else type_text(element)
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def suffix(element: ElementType, lanes: int) -> str:
    """The type as the names of intrinsics write it."""
    scalar = f"f{element.bits}" if element.kind == "float" else f"i{element.bits}"
    return scalar if lanes == 1 else f"v{lanes}{scalar}"


def number_text(value: object, element: ElementType) -> str:
    if element.kind == "float":
        if element.bits == 16:
            return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if element is I1:
        return "true" if value else "false"
    return str(int(value))  # type: ignore[call-overload]


def emit(plan: Plan) -> Text:
    """The IR of every kernel of a plan, and of the entry that runs them."""
    module = _Module(plan)
    for n, kernel in enumerate(plan.kernels):
        module.functions.append(_Function(module, kernel, f"kernel_{n}").text())
    entry = module.entry()
    lines = [*sorted(module.declarations), *([""] if module.declarations else []), *module.functions, entry]
    return Text("\n".join(lines) + "\n", tuple(module.sizes), tuple(module.requirements))


class _Module:
    """What the functions of one plan share."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.functions: list[str] = []
        self.declarations: set[str] = set()
        self.requirements: list[tuple[str, Span]] = []
        dims = [d for t in (*plan.arguments, *plan.results, *plan.offsets) for d in t.shape]
        dims += [d for k in plan.kernels for p in k.parameters for d in p.shape] + [*plan.offsets.values(), plan.workspace]
        atoms = {a for d in dims if isinstance(d, Size) for a in d.atoms()}
        self.sizes = sorted(atoms, key=repr)

    def require(self, message: str, span: Span) -> int:
        self.requirements.append((message, span))
        return len(self.requirements)

    def kernel_arrays(self, kernel: Kernel) -> list[Tensor]:
        """The arrays a kernel is given: its parameters and its scratch buffers."""
        scratch = [s.tensor for s in statements(kernel.body) if isinstance(s, Alloc) and s.tensor.space == "heap"]
        return [*kernel.parameters, *scratch]

    def entry(self) -> str:
        f = _Lines()
        plan = self.plan
        given = [*plan.arguments, *plan.results, *plan.constants]
        pointers: dict[Tensor, str] = {}
        for n, tensor in enumerate(given):
            slot = f.add(f"getelementptr inbounds ptr, ptr %arguments, i64 {n}")
            pointers[tensor] = f.add(f"load ptr, ptr {slot}")
        sizes = {}
        for n, atom in enumerate(self.sizes):
            slot = f.add(f"getelementptr inbounds i64, ptr %sizes, i64 {n}")
            sizes[atom] = f.add(f"load i64, ptr {slot}")
        for tensor, offset in plan.offsets.items():
            pointers[tensor] = f.add(f"getelementptr inbounds i8, ptr %workspace, i64 {size_value(f, offset, sizes)}")
        f.raw("%status = alloca i32")
        f.raw("store i32 0, ptr %status")
        for n, kernel in enumerate(plan.kernels):
            arrays = [f"ptr {pointers[plan.home.get(t, t)]}" for t in self.kernel_arrays(kernel)]
            f.raw(f"call void @kernel_{n}({', '.join([*arrays, *(f'i64 {s}' for s in sizes.values()), 'ptr %status'])})")
        result = f.add("load i32, ptr %status")
        f.raw(f"ret i32 {result}")
        return "define i32 @entry(ptr %arguments, ptr %sizes, ptr %workspace) {\n" + f.text() + "\n}"


class _Lines:
    """Instructions in order, with fresh names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names = 0
        self.block = "entry"

    def fresh(self) -> str:
        self.names += 1
        return f"%v{self.names}"

    def label(self) -> str:
        self.names += 1
        return f"b{self.names}"

    def add(self, instruction: str) -> str:
        name = self.fresh()
        self.lines.append(f"  {name} = {instruction}")
        return name

    def raw(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def text(self) -> str:
        return "\n".join(self.lines)


def size_value(f: _Lines, dim: Dim, sizes: dict[object, str]) -> str:
    """A size as an i64, computed from the sizes the entry was given."""
    if isinstance(dim, int):
        return str(dim)
    total = str(dim.constant) if dim.constant else ""
    for atom, factor in dim.terms:
        if atom in sizes:
            value = sizes[atom]
        else:
            operation, *parts = atom
            a, b = (size_value(f, p, sizes) for p in parts)
            match operation:
                case "*":
                    value = f.add(f"mul nsw i64 {a}, {b}")
                case "//":
                    value = _floor_div(f, a, b)
                case _:
                    test = f.add(f"icmp {'sgt' if operation == 'max' else 'slt'} i64 {a}, {b}")
                    value = f.add(f"select i1 {test}, i64 {a}, i64 {b}")
        if factor != 1:
            value = f.add(f"mul nsw i64 {value}, {factor}")
        total = f.add(f"add nsw i64 {total}, {value}") if total else value
    return total or "0"


def _floor_div(f: _Lines, a: str, b: str) -> str:
    results: list[str] = []
    for instruction in INSTRUCTIONS["floordiv", "int"]:
        results.append(f.add(instruction.format(*results, t="i64", m="i1", a=a, b=b, z="0")))
    return results[-1]


class _Function(_Lines):
    """One kernel being emitted."""

    def __init__(self, module: _Module, kernel: Kernel, name: str) -> None:
        super().__init__()
        self.module = module
        self.kernel = kernel
        self.name = name
        self.arrays = module.kernel_arrays(kernel)
        self.pointers = {t: f"%p{n}" for n, t in enumerate(self.arrays)}
        self.sizes = {atom: f"%s{n}" for n, atom in enumerate(module.sizes)}
        self.allocas: list[str] = []
        self.widths: dict[Tensor, int] = {}  # lanes of the register buffers that have any
        self.known: dict[int, Val] = {}  # expressions already emitted where the current block can use them
        self.addresses: dict[int, str] = {}  # the same for index arithmetic, at lane 0
        self.kept: list[object] = []  # keeps what the tables know by id alive
        self.written = {s.tensor for s in statements(kernel.body) if isinstance(s, Store)}
        self.changing: dict[int, bool] = {}
        self.stale: list[int] = []
        self.lane: Index | None = None
        self.lanes = 1

    def text(self) -> str:
        self.emit_block(self.kernel.body)
        self.raw("ret void")
        results = set(self.kernel.parameters[len(self.kernel.parameters) - self.kernel.results :])
        arrays = [f"ptr noalias{' readonly' if t not in results and t in self.kernel.parameters else ''} {self.pointers[t]}" for t in self.arrays]
        parameters = [*arrays, *(f"i64 {s}" for s in self.sizes.values()), "ptr %status"]
        head = f"define internal void @{self.name}({', '.join(parameters)}) {{"
        return "\n".join([head, "entry:", *self.allocas, *self.lines, "}", ""])

    # statements

    def emit_block(self, block: Block) -> None:
        outer = dict(self.known), dict(self.addresses)
        for s in block:
            self.emit_statement(s)
        self.known, self.addresses = outer

    def emit_statement(self, s: Statement) -> None:
        match s:
            case For(kind="unrolled"):
                self.unrolled(s)
            case For():
                self.loop(s)
            case If(condition, then, otherwise):
                self.branch(self.scalar(condition), then, otherwise)
            case Let(var, value):
                self.remember(var, self.value(value))
            case Alloc(tensor):
                self.allocate(tensor)
            case Store():
                self.store(s)
            case Require(condition, message, span):
                self.require(self.value(condition), self.module.require(message, span))
        self.drop_stale()

    def remember(self, e: Expr, value: Val) -> None:
        self.known[id(e)] = value
        self.kept.append(e)

    def drop_stale(self) -> None:
        """Forgets what was read from arrays that the kernel writes: the next statement may write them."""
        for key in self.stale:
            self.known.pop(key, None)
        self.stale.clear()

    def changes(self, e: Expr) -> bool:
        """Whether an expression reads an array that the kernel writes."""
        found = self.changing.get(id(e))
        if found is None:
            found = (isinstance(e, Read) and e.tensor in self.written) or any(self.changes(c) for c in children(e))
            self.changing[id(e)] = found
        return found

    def loop(self, s: For) -> None:
        start, stop = self.address(s.start), self.address(s.end)
        before, head, body, after = self.block, self.label(), self.label(), self.label()
        variable, step = self.fresh(), self.fresh()
        self.raw(f"br label %{head}")
        self.start(head)
        phi = len(self.lines)
        test = self.add(f"icmp slt i64 {variable}, {stop}")
        self.raw(f"br i1 {test}, label %{body}, label %{after}")
        self.start(body)
        with self.inside(s, variable):
            self.emit_block(s.body)
        self.raw(f"{step} = add nuw nsw i64 {variable}, {s.width if s.kind == 'vector' else 1}")
        self.lines.insert(phi, f"  {variable} = phi i64 [ {start}, %{before} ], [ {step}, %{self.block} ]")
        self.raw(f"br label %{head}")
        self.start(after)

    @contextmanager
    def inside(self, s: For, variable: str) -> Iterator[None]:
        """The scope of a loop's body, in which its index has a value."""
        self.drop_stale()
        outer = self.known, self.addresses, self.lane, self.lanes
        self.known, self.addresses = dict(self.known), dict(self.addresses)
        if s.kind == "vector":
            self.lane, self.lanes = s.index, s.width
        else:
            self.known[id(s.index)] = Val(variable)
        self.addresses[id(s.index)] = variable
        self.kept.append(s.index)
        yield
        self.known, self.addresses, self.lane, self.lanes = outer

    def unrolled(self, s: For) -> None:
        start, end = s.start, s.end
        assert isinstance(start, Const) and isinstance(end, Const), "an unrolled loop has constant bounds"
        for n in range(start.value, end.value):
            with self.inside(s, str(n)):
                self.emit_block(s.body)

    def branch(self, condition: str, then: Block, otherwise: Block) -> None:
        self.drop_stale()
        yes, no, after = self.label(), self.label(), self.label()
        self.raw(f"br i1 {condition}, label %{yes}, label %{no if otherwise else after}")
        for label, block in ((yes, then), (no, otherwise)):
            if label == yes or block:
                self.start(label)
                self.emit_block(block)
                self.raw(f"br label %{after}")
        self.start(after)

    def allocate(self, tensor: Tensor) -> None:
        if tensor.space == "heap":
            return
        lanes = self.lanes if self.lane is not None else 1
        self.widths[tensor] = lanes
        count = 1
        for d in tensor.shape:
            assert isinstance(d, int), "register and stack buffers have known sizes"
            count *= d
        self.pointers[tensor] = name = self.fresh()
        cell = memory_text(tensor.element, lanes)
        self.allocas.append(f"  {name} = alloca {cell if not tensor.shape else f'[{count} x {cell}]'}")

    def store(self, s: Store) -> None:
        value = self.value(s.value)
        lanes = self.widths.get(s.tensor, 1)
        if lanes > 1:
            self.put(self.splat(value, s.tensor.element, lanes), s.tensor, self.pointer(s.tensor, s.indices, lanes), lanes)
        elif self.lane is None:
            self.put(value, s.tensor, self.pointer(s.tensor, s.indices), 1, s.streaming)
        else:
            stride = self.stride(s.tensor, s.indices)
            if stride == 1:
                self.put(self.splat(value, s.tensor.element, self.lanes), s.tensor, self.pointer(s.tensor, s.indices), self.lanes, s.streaming)
            elif stride == 0 and value.lanes == 1:
                self.put(value, s.tensor, self.pointer(s.tensor, s.indices), 1)
            else:
                wide = self.splat(value, s.tensor.element, self.lanes)
                for n, pointer in enumerate(self.lane_pointers(s.tensor, s.indices)):
                    one = self.add(f"extractelement {type_text(s.tensor.element, self.lanes)} {wide.text}, i64 {n}")
                    self.put(Val(one), s.tensor, pointer, 1)

    def put(self, value: Val, tensor: Tensor, pointer: str, lanes: int, streaming: bool = False) -> None:
        text = value.text
        if tensor.element is I1:
            text = self.add(f"zext {type_text(I1, lanes)} {text} to {memory_text(I1, lanes)}")
        align = tensor.element.bytes if tensor.space != "register" else 0
        nontemporal = ", !nontemporal !0" if streaming else ""
        self.raw(f"store {memory_text(tensor.element, lanes)} {text}, ptr {pointer}{f', align {align}' if align else ''}{nontemporal}")

    def require(self, condition: Val, number: int) -> None:
        test = condition.text
        if condition.lanes > 1:
            flat = self.call(f"call i1 @llvm.vector.reduce.and.v{condition.lanes}i1(<{condition.lanes} x i1> {test})")
            test = flat
        good, bad = self.label(), self.label()
        self.raw(f"br i1 {test}, label %{good}, label %{bad}")
        self.start(bad)
        self.raw(f"store i32 {number}, ptr %status")
        self.raw(f"br label %{good}")
        self.start(good)

    # expressions

    def scalar(self, e: Expr) -> str:
        value = self.value(e)
        assert value.lanes == 1, "a branch on a condition that differs between lanes"
        return value.text

    def value(self, e: Expr) -> Val:
        if isinstance(e, Const):
            return Val(number_text(e.value, e.type))
        found = self.known.get(id(e))
        if found is None:
            found = self.compute(e)
            self.remember(e, found)
            if self.changes(e):
                self.stale.append(id(e))
        return found

    def compute(self, e: Expr) -> Val:
        match e:
            case Extent():
                return Val(self.address(e))
            case Index():
                base = self.address(e)
                if e is not self.lane:
                    return Val(base)
                wide = self.splat(Val(base), I64, self.lanes)
                steps = ", ".join(f"i64 {n}" for n in range(self.lanes))
                return Val(self.add(f"add nuw nsw {type_text(I64, self.lanes)} {wide.text}, <{steps}>"), self.lanes)
            case Read(tensor, at):
                return self.load(tensor, at)
            case Cast(operand, type):
                return self.convert(self.value(operand), operand.type, type)
            case Bitcast(operand, type):
                value = self.value(operand)
                if type_text(operand.type) == type_text(type):
                    return value
                return Val(self.add(f"bitcast {type_text(operand.type, value.lanes)} {value.text} to {type_text(type, value.lanes)}"), value.lanes)
            case Apply(function, operands, _):
                return self.apply(function, operands, e.type)
            case Var():
                raise LookupError(f"{e.name} is not bound here")
        raise TypeError(f"{type(e).__name__} is lowered before emission")

    def apply(self, function: str, operands: tuple[Expr, ...], type: ElementType) -> Val:
        values = [self.value(o) for o in operands]
        lanes = max(v.lanes for v in values)
        element = operands[-1].type
        texts = [self.splat(v, o.type, lanes).text for v, o in zip(values, operands, strict=True)]
        names = dict(zip("abc", texts, strict=False))
        results: list[str] = []
        for template in INSTRUCTIONS[function, element.kind]:
            results.append(self.call(template.format(*results, **names, **self.words(element, lanes))))
        return Val(results[-1], lanes)

    def words(self, element: ElementType, lanes: int) -> dict[str, str]:
        zero = "zeroinitializer" if lanes > 1 else number_text(0, element)
        ones = "true" if element is I1 else "-1"
        all_ones = f"splat ({type_text(element)} {ones})" if lanes > 1 else ones
        return {"t": type_text(element, lanes), "m": type_text(I1, lanes), "s": suffix(element, lanes), "z": zero, "x": all_ones}

    def convert(self, value: Val, source: ElementType, target: ElementType) -> Val:
        template = conversion(source, target)
        if not template or source is target:
            return value
        text = template.format(
            a=value.text, f=type_text(source, value.lanes), sf=suffix(source, value.lanes),
            zf="zeroinitializer" if value.lanes > 1 else number_text(0, source), **self.words(target, value.lanes),
        )  # fmt: skip
        return Val(self.call(text), value.lanes)

    _CALL = re.compile(r"call (.+?) (@[\w.]+)\((.*)\)$")

    def call(self, instruction: str) -> str:
        """Adds an instruction, declaring the intrinsic that it calls, if it is a call."""
        if match := self._CALL.match(instruction):
            types = ", ".join(a.rpartition(" ")[0] for a in match[3].split(", "))
            self.module.declarations.add(f"declare {match[1]} {match[2]}({types})")
        return self.add(instruction)

    def splat(self, value: Val, element: ElementType, lanes: int) -> Val:
        if value.lanes == lanes:
            return value
        wide = type_text(element, lanes)
        if not value.text.startswith("%"):
            return Val(f"splat ({type_text(element)} {value.text})", lanes)
        one = self.add(f"insertelement {wide} poison, {type_text(element)} {value.text}, i64 0")
        return Val(self.add(f"shufflevector {wide} {one}, {wide} poison, <{lanes} x i32> zeroinitializer"), lanes)

    # memory

    def load(self, tensor: Tensor, at: tuple[Expr, ...]) -> Val:
        lanes = self.widths.get(tensor, 1)
        if lanes > 1 or self.lane is None:
            return self.get(tensor, self.pointer(tensor, at, lanes), lanes)
        stride = self.stride(tensor, at)
        if stride == 0:
            return self.get(tensor, self.pointer(tensor, at), 1)
        if stride == 1:
            return self.get(tensor, self.pointer(tensor, at), self.lanes)
        wide = "poison"
        for n, pointer in enumerate(self.lane_pointers(tensor, at)):
            one = self.get(tensor, pointer, 1)
            wide = self.add(f"insertelement {type_text(tensor.element, self.lanes)} {wide}, {type_text(tensor.element)} {one.text}, i64 {n}")
        return Val(wide, self.lanes)

    def get(self, tensor: Tensor, pointer: str, lanes: int) -> Val:
        align = f", align {tensor.element.bytes}" if tensor.space != "register" else ""
        text = self.add(f"load {memory_text(tensor.element, lanes)}, ptr {pointer}{align}")
        if tensor.element is I1:
            text = self.add(f"trunc {memory_text(I1, lanes)} {text} to {type_text(I1, lanes)}")
        return Val(text, lanes)

    def lane_pointers(self, tensor: Tensor, at: tuple[Expr, ...]) -> list[str]:
        """A pointer for each lane of an access that is neither contiguous nor the same for all."""
        stride = self.stride(tensor, at)
        element = memory_text(tensor.element)
        if stride is not None:
            base = self.pointer(tensor, at)
            return [self.add(f"getelementptr inbounds {element}, ptr {base}, i64 {stride * n}") if n else base for n in range(self.lanes)]
        offset: Val = Val("0")
        for e, step in zip(at, self.steps(tensor), strict=True):
            part = self.value(e)
            if step != "1":
                part = self.arithmetic("mul", part, Val(step))
            offset = part if offset.text == "0" else self.arithmetic("add", offset, part)
        pointers = []
        for n in range(self.lanes):
            one = self.add(f"extractelement <{self.lanes} x i64> {offset.text}, i64 {n}")
            pointers.append(self.add(f"getelementptr inbounds {element}, ptr {self.pointers[tensor]}, i64 {one}"))
        return pointers

    def arithmetic(self, operation: str, a: Val, b: Val) -> Val:
        lanes = max(a.lanes, b.lanes)
        a, b = self.splat(a, I64, lanes), self.splat(b, I64, lanes)
        return Val(self.add(f"{operation} nsw {type_text(I64, lanes)} {a.text}, {b.text}"), lanes)

    def pointer(self, tensor: Tensor, at: tuple[Expr, ...], lanes: int = 1) -> str:
        """The address of an element, at lane 0."""
        offset = ""
        for e, step in zip(at, self.steps(tensor), strict=True):
            part = self.address(e)
            if part == "0":
                continue
            if step != "1":
                part = str(int(part) * int(step)) if _is_number(part) and _is_number(step) else self.add(f"mul nsw i64 {part}, {step}")
            if not offset:
                offset = part
            else:
                offset = str(int(offset) + int(part)) if _is_number(offset) and _is_number(part) else self.add(f"add nsw i64 {offset}, {part}")
        if not offset or offset == "0":
            return self.pointers[tensor]
        return self.add(f"getelementptr inbounds {memory_text(tensor.element, lanes)}, ptr {self.pointers[tensor]}, i64 {offset}")

    def steps(self, tensor: Tensor) -> list[str]:
        """How many elements apart neighbours along each axis are."""
        step: Dim = 1
        found: list[str] = []
        for d in reversed(tensor.shape):
            found.append(self.size(step))
            step = d * step
        return found[::-1]

    def size(self, dim: Dim) -> str:
        if isinstance(dim, int):
            return str(dim)
        key = hash(dim.key)
        if key not in self.addresses:
            self.addresses[key] = size_value(self, dim, self.sizes)  # type: ignore[arg-type]
        return self.addresses[key]

    def stride(self, tensor: Tensor, at: tuple[Expr, ...]) -> int | None:
        """How far apart, in elements, neighbouring lanes read; None where that is not one number."""
        total = 0
        step: Dim | None = 1
        for e, d in zip(reversed(at), reversed(tensor.shape), strict=True):
            factor = self.factor(e)
            if factor is None:
                return None
            if factor:
                if not isinstance(step, int):
                    return None
                total += factor * step
            step = d * step
        return total

    def factor(self, e: Expr) -> int | None:
        """The factor of the lane's index in an index expression; None where the expression is not linear in it."""
        if e is self.lane:
            return 1
        if isinstance(e, Apply) and e.function in ("add", "sub", "mul"):
            a, b = e.operands
            fa, fb = self.factor(a), self.factor(b)
            if fa is None or fb is None:
                return None
            if e.function != "mul":
                return fa + fb if e.function == "add" else fa - fb
            if fa == fb == 0:
                return 0
            other = b if fa else a
            return (fa or fb) * other.value if isinstance(other, Const) else None
        return None if self.varies(e) else 0

    def varies(self, e: Expr) -> bool:
        """Whether an expression differs between lanes."""
        if e is self.lane:
            return True
        if isinstance(e, Read) and self.widths.get(e.tensor, 1) > 1:
            return True
        if isinstance(e, Var):
            return self.known[id(e)].lanes > 1
        return any(self.varies(c) for c in children(e))

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
            case Apply("add" | "sub" | "mul", (a, b), _):
                return self._linear(e.function, self.address(a), self.address(b))
            case Apply("floordiv" | "floormod", (a, Const() as b), _) if b.value > 0 and (interval(a)[0] or 0) >= 0 and interval(a)[0] is not None:
                return self.add(f"{'udiv' if e.function == 'floordiv' else 'urem'} i64 {self.address(a)}, {b.value}")
            case Apply(function, operands, type) if type is I64:
                results: list[str] = []
                names = dict(zip("abc", (self.address(o) if o.type is I64 else self.value(o).text for o in operands), strict=False))
                for template in INSTRUCTIONS[function, "int"]:
                    results.append(self.call(template.format(*results, **names, **self.words(I64, 1))))
                return results[-1]
        if self.lane is not None and self.varies(e):
            return self.add(f"extractelement {type_text(I64, self.lanes)} {self.value(e).text}, i64 0")
        return self.value(e).text

    def _linear(self, operation: str, a: str, b: str) -> str:
        if _is_number(a) and _is_number(b):
            x, y = int(a), int(b)
            return str(x + y if operation == "add" else x - y if operation == "sub" else x * y)
        if b == "0" and operation != "mul":
            return a
        if a == "0" and operation == "add":
            return b
        return self.add(f"{operation} nsw i64 {a}, {b}")


def _is_number(text: str) -> bool:
    return not text.startswith("%")

