"""One kernel as a static function of C99, whose names are the program's."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from textwrap import wrap

from ...dialect.ir.module import Module
from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.execution_plan import Loop, Requirements, scratch_buffers
from ...dialect.kernel_ir.expressions import Apply, Cast, Const, Expr, Read, Tensor, as_index
from ...dialect.support.diagnostics import Diagnostic, Span, TargetError
from ...dialect.types.sizes import product
from ...lowering.analysis.accesses import stores
from .addresses import Val
from .c99 import C99, LINE, Names
from .spelling import (
    AND,
    ATOM,
    BOTH,
    EITHER,
    EQUALITY,
    OR,
    ORDER,
    PRODUCT,
    SHIFT,
    SUM,
    UNARY,
    XOR,
    Row,
)
from .statements import Statements

_DECLARATION = re.compile(r" *(const )?(u?int\d+_t|bool) \w+")
_BITWISE = (PRODUCT, SUM, SHIFT, AND, XOR, OR)
# operands, by how tightly they bind, that get parentheses though C would not need them
_UNCLEAR = {
    **{level: tuple(o for o in _BITWISE if o != level) for level in (SHIFT, AND, XOR, OR)},
    **dict.fromkeys((ORDER, EQUALITY), (ORDER, EQUALITY)),
    EITHER: (BOTH,),
}


class Function(Statements):
    """One kernel as a static function, which returns a status if it has checks."""

    longest = LINE

    def __init__(self, kernel: ir.Kernel, names: Names, requirements: Requirements) -> None:
        found = ir.statements(kernel.body)
        if ir.ends_iterations(kernel.body):
            message = "C has no `return` of an iteration of a parallel loop"
            raise TargetError(Diagnostic(message, kernel.span, "build"))
        self.kernel, self.requirements = kernel, requirements
        written = {*ir.written(kernel), *(kernel.parameters if kernel.aliasing else ())}
        super().__init__(C99, {}, written)
        spans = kernel.spans or (kernel.span,)
        operator = re.fullmatch(r"\w+\.(\w+)", spans[0].text)
        self.name = names.of(f"{kernel.name}_{operator[1]}" if operator else kernel.name)
        self.local = Names({self.name})
        self.wrapping: set[Tensor] = set()  # accumulators that are numbers modulo 2^width
        self.stack = 0  # bytes of local arrays
        self.arrays = {t: self.local.of(t.name) for t in tensors_of(kernel)}
        self.reports = any(isinstance(s, (ir.Assert, ir.Fail)) for s in found)

    def define(self) -> str:
        kernel, arrays = self.kernel, dict(self.arrays)
        self.block(kernel.body)
        restrict = "" if kernel.aliasing else "restrict "
        stored = ir.written(kernel)
        parameters = [
            f"{'' if t in stored else 'const '}{self.declared(t)} *{restrict}{name}"
            for t, name in arrays.items()
        ]
        kind = "int32_t" if self.reports else "void"
        opening = filled(f"static {kind} {self.name}(", parameters or ["void"], ") {")
        before = [*unused(arrays.values(), self.lines), *["int32_t status = 0;"] * self.reports]
        end = ["  return status;"] * self.reports
        lines = [*(f"  {line}" for line in before), *self.head, *self.lines, *end]
        return "\n".join([described(kernel), opening, *lines, "}", ""])

    # names that say what they are

    def fresh(self, like: str = "") -> str:
        return self.local.of(like or "t")

    def block(self, block: ir.Block) -> None:
        taken = set(self.local.taken)
        super().block(block)
        self.local.taken = taken

    def counted(self, s: ir.For, counter: tuple[str, str], start: str, end: str, step: str) -> None:
        super().counted(s, counter, start, end, step)
        self.local.taken.discard(counter[0])

    def spell(self, row: Row, values: list[Val], suffix: str = "") -> str:
        """The text, with parentheses where compilers warn of precedence that few know."""
        return super().spell(
            row,
            [
                replace(v, text=f"({v.text})", level=ATOM)
                if v.level in _UNCLEAR.get(row.level, ())
                else v
                for v in values
            ],
            suffix,
        )

    # statements

    def emit(self, s: ir.Statement) -> None:
        match s:
            case ir.For(index, body) if not ir.may_jump(body) and (turns := _repeated(s)):
                for n in turns:
                    self.scope(ir.substitute_block(body, {index: as_index(n)}))
            case ir.Guard():
                super().emit(s)
                self.line("if (status != 0) return status;")
            case _:
                super().emit(s)

    def leave(self) -> None:
        self.line("return status;" if self.reports else "return;")

    def fail(self, message: str, span: Span) -> None:
        self.line(f"return max_i32(status, {self.requirements.number(message, span)});")

    def scope(self, block: ir.Block) -> None:
        """A block for one value of an index, in braces if it declares something."""
        first, depth = len(self.lines), "  " * self.depth
        self.inner(block)
        inner = self.lines[first:]
        if any(_DECLARATION.match(line) and not line.startswith(f"{depth}   ") for line in inner):
            self.lines[first:] = [f"{depth}{{", *inner, f"{depth}}}"]
        else:
            self.lines[first:] = [line[2:] for line in inner]

    # memory

    def allocate(self, s: ir.Alloc) -> None:
        tensor = s.tensor
        if tensor.space == "heap":
            return
        self.arrays[tensor] = name = self.fresh(tensor.name)
        if tensor.shape:
            length = max(1, int(product(tensor.shape)))
            self.stack += length * tensor.element.bytes
            self.line(f"{self.declared(tensor)} {name}[{length}];")
            return
        values = [
            t.value
            for t in ir.statements(self.kernel.body)
            if isinstance(t, ir.Store) and t.tensor is tensor
        ]
        if tensor.element.is_integer and all(map(self.wraps, values)):
            self.wrapping.add(tensor)
        self.line(f"{self.accumulator_type(tensor)} {name};")

    def wraps(self, value: Expr) -> bool:
        """Test whether a value is computed modulo 2^width."""
        match value:
            case Apply(function):
                return C99.rows[function, value.operands[-1].type.kind].mode == "modular"
        return isinstance(value, Const) and value.value >= 0

    def accumulator_type(self, tensor: Tensor) -> str:
        if tensor in self.wrapping:
            return C99.modular_type(tensor.element)
        return self.declared(tensor)

    def load(self, tensor: Tensor, at: tuple[Expr, ...]) -> Val:
        if tensor in self.wrapping:
            return Val(self.arrays[tensor], self.accumulator_type(tensor), exact=False)
        return super().load(tensor, at)

    def store(self, tensor: Tensor, at: tuple[Expr, ...], value: Expr) -> None:
        if tensor.shape or self.in_memory(tensor):
            super().store(tensor, at, value)
            return
        name, sign = self.arrays[tensor], "="
        match value:
            case Apply("add", (Read(read), term)) if read is tensor and tensor in self.wrapping:
                value, sign = term, "+="
        found = self.modular(value) if tensor in self.wrapping else self.exact(value)
        declaration = f"{'  ' * self.depth}{self.accumulator_type(tensor)} {name};"
        if self.lines and self.lines[-1] == declaration:
            self.lines[-1] = f"{declaration[:-1]} = {found.text};"
        else:
            self.line(f"{name} {sign} {found.text};")

    def modular(self, e: Expr) -> Val:
        match e:
            case Cast(operand, type) if operand.type.is_integer and type.bits > operand.type.bits:
                ctype = C99.modular_type(type)
                return Val(f"({ctype}){self.exact(operand).at(UNARY)}", ctype, UNARY, False)
        return super().modular(e)

    def check(self, condition: Val, message: str, span: Span) -> None:
        number = self.requirements.number(message, span)
        self.line(f"if (!({condition.text})) status = max_i32(status, {number});")


def _repeated(s: ir.For) -> range | None:
    """The iterations for each of which the body of a loop is written: of an unrolled loop that
    updates accumulators alone, or a single one.
    """
    if not isinstance(s.start, Const) or not isinstance(s.end, Const):
        return None
    turns = range(s.start.value, s.end.value)
    updates = all(t.tensor.space == "register" for t in stores(s.body))
    return turns if len(turns) == 1 or (s.kind == "unrolled" and updates) else None


def tensors_of(kernel: ir.Kernel) -> tuple[Tensor, ...]:
    """The arrays that a kernel is given: parameters, and large buffers of its own."""
    scratch = scratch_buffers(kernel)
    if isinstance(kernel, Loop):
        # the last stands for the arrays of its plan, and no value that is updated in place has one
        scratch = [t for t in scratch[:-1] if product(t.shape) != 0]
    return *kernel.parameters, *scratch


def unused(names: Iterable[str], lines: Iterable[str]) -> list[str]:
    """Statements that tell a compiler of the parameters that a function does not use."""
    used = {*re.findall(r"\w+", " ".join(lines))}
    return [f"(void){name};" for name in names if name not in used]


def filled(start: str, parts: Sequence[str], end: str) -> str:
    """Parts with commas between them, on as many lines as they need."""
    gap = "\0"
    text = start + ", ".join(part.replace(" ", gap) for part in parts) + end.replace(" ", gap)
    lines = wrap(
        text.replace(start, start.replace(" ", gap)),
        LINE,
        subsequent_indent="    ",
        break_long_words=False,
    )
    return "\n".join(lines).replace(gap, " ")


def described(kernel: ir.Kernel) -> str:
    """A comment with the operations that a kernel computes, and their lines."""
    found: dict[str, list[str]] = {}
    for span in kernel.spans or (kernel.span,):
        line = "" if span.text == span.source.text else f" (line {span.line})"
        if span.text:
            found.setdefault(line, []).append(_plain(span.text))
    parts = [", ".join(dict.fromkeys(texts)) + line for line, texts in found.items()] or ["copies"]
    return "\n".join(wrap(f"/* {_plain(kernel.name)}: {', '.join(parts)} */", LINE))


def _plain(text: str) -> str:
    """Text as it may stand in a comment, which it does not end."""
    shown = re.sub(r"[^ -~]|\\", "_", text)
    return re.sub(r"(?<=\*)(?=/)|(?<=/)(?=\*)|(?<=\?)(?=\?)", " ", shown)


def refuse_floats(module: Module, kernel: ir.Kernel) -> None:
    """Raise TargetError for a kernel with numbers that are no integers, at the operation that has
    them.
    """
    types = [t.element for t in tensors_of(kernel)]
    types += [s.tensor.element for s in ir.statements(kernel.body) if isinstance(s, ir.Alloc)]
    types += [e.type for e in ir.nodes(kernel.body)]
    if (element := next((t for t in types if not t.is_discrete), None)) is None:
        return
    spans = kernel.spans or (kernel.span,)
    with_floats = {
        o.span
        for f in module.functions.values()
        for o in f.operations
        for v in (*(v for _, v in o.operator.operands()), *o.results)
        if not v.known_type.element.is_discrete
    }
    span = next((s for s in spans if s in with_floats), spans[0])
    message = f"{span.text or kernel.name} computes in {element}; C is emitted for integers alone"
    raise TargetError(Diagnostic(message, span, "build"))
