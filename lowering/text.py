"""Formulas and kernels as text. Kernels parse back (`lowering.read`); formulas are for people."""

from __future__ import annotations

from collections.abc import Iterable

from ..dialect.index import Apply, Bitcast, Cast, Check, Const, Expr, Extent, Index, Read, Reduce, Tensor, Var, When
from ..dialect.loops import Alloc, Block, For, If, Kernel, Let, Require, Statement, Store
from ..dialect.op import quoted
from ..dialect.scalars import SCALARS
from ..dialect.types import Dim, TensorType
from .formulas import Formulas, Nest, View

_PRECEDENCE = {"|": 1, "^": 2, "&": 3, "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "<<": 5, ">>": 5, "+": 6, "-": 6, "*": 7, "/": 7, "//": 7, "%": 7, "mod": 7}  # fmt: skip
_FOLDS = {"add": "sum", "mul": "product"}


class _Names:
    """A name of its own for every index: equal names in one scope are told apart by a number."""

    def __init__(self) -> None:
        self.given: dict[Expr, str] = {}
        self.used: dict[str, int] = {}

    def of(self, e: Index | Var) -> str:
        if e not in self.given:
            n = self.used.get(e.name, 0)
            self.used[e.name] = n + 1
            self.given[e] = f"%{e.name}" if n == 0 else f"%{e.name}.{n}"
        return self.given[e]


def expression_text(e: Expr, names: _Names | None = None, level: int = 0) -> str:
    """An expression, with as few parentheses as it needs."""
    names = names or _Names()

    def sub(x: Expr, inner: int = 0) -> str:
        return expression_text(x, names, inner)

    match e:
        case Const(value, type):
            text = str(value).lower() if isinstance(value, bool) else repr(value) if type.kind == "float" else str(value)
            return f"({text})" if text.startswith("-") and level > 6 else text
        case Index() | Var():
            return names.of(e)
        case Extent(size):
            return size_text(size)
        case Read(tensor, at):
            return f"%{tensor.name}[{', '.join(map(sub, at))}]" if at or tensor.space != "register" else f"%{tensor.name}"
        case Cast(operand, type):
            return f"{type}({sub(operand)})"
        case Bitcast(operand, type):
            return f"bitcast({sub(operand)}, {type})"
        case When(condition, then, otherwise):
            return f"when({sub(condition)}, {sub(then)}, {sub(otherwise)})"
        case Reduce(function, over, body):
            which = ", ".join(names.of(i) for i in over)
            return f"{_FOLDS.get(function, function)}[{which}]({sub(body)})"
        case Check(condition, value, _, _):
            return f"check({sub(condition)}, {sub(value)})"
        case Apply(function, (a, b), _) if (symbol := SCALARS[function].symbol) in _PRECEDENCE:
            mine = _PRECEDENCE[symbol]
            text = f"{sub(a, mine)} {symbol} {sub(b, mine + 1)}"
            return f"({text})" if mine < level else text
        case Apply("neg" | "not", (a,), _):
            return f"{SCALARS[e.function].symbol}{sub(a, 8)}"
        case Apply(function, operands, _):
            return f"{function}({', '.join(map(sub, operands))})"
    raise TypeError(f"no text for {type(e).__name__}")


def size_text(dim: Dim) -> str:
    """A size as index notation: named sizes by their names."""
    if isinstance(dim, int):
        return str(dim)
    parts = []
    for atom, factor in dim.terms:
        if len(atom) < 3:
            text = f"?{atom[0]}" if len(atom) == 1 else f"?{atom[1]}"
        else:
            text = f"{atom[0] if atom[0].isalpha() else {'//': 'floordiv', '*': 'mul'}[atom[0]]}({', '.join(map(size_text, atom[1:]))})"
        parts.append(text if factor == 1 else f"{factor} * {text}")
    if dim.constant:
        parts.append(str(dim.constant))
    joined = " + ".join(parts).replace("+ -", "- ")
    return joined if len(parts) == 1 and dim.terms[0][1] == 1 else f"({joined})"


def tensor_text(t: Tensor) -> str:
    return f"%{t.name}: {TensorType(t.shape, t.element)}"


def formulas_text(program: Formulas) -> str:
    """Index notation: one line for each array that is computed."""
    lines = [f"// @{program.name}({', '.join(map(tensor_text, program.arguments))})"]
    lines += [f"{tensor_text(t)} = constant" for t in program.constants]
    for step in program.steps:
        match step:
            case Nest(tensors, operands, _):
                lines.append(f"{', '.join(map(tensor_text, tensors))} = nest({', '.join('%' + t.name for t in operands)})")
            case View(tensor, of, _):
                lines.append(f"{tensor_text(tensor)} = view of %{of.name}")
            case _:
                names = _Names()
                at = ", ".join(names.of(i) for i in step.indices)
                shape = "x".join([*(str(d) for d in step.tensor.shape), step.tensor.element.name])
                lines.append(f"%{step.tensor.name}[{at}]: {shape} = {expression_text(step.value, names)}")
    lines.append(f"return {', '.join('%' + t.name for t in program.results)}")
    return "\n".join(lines) + "\n"


def kernels_text(kernels: Iterable[Kernel]) -> str:
    return "\n".join(map(kernel_text, kernels))


def kernel_text(kernel: Kernel) -> str:
    """One kernel of the loop language."""
    split = len(kernel.parameters) - kernel.results
    inputs, outputs = kernel.parameters[:split], kernel.parameters[split:]
    head = f"kernel @{kernel.name}({', '.join(map(tensor_text, inputs))}) -> ({', '.join(map(tensor_text, outputs))}) {{"
    return "\n".join([head, *_block(kernel.body, _Names(), 1), "}"]) + "\n"


def _block(block: Block, names: _Names, depth: int) -> list[str]:
    return [line for s in block for line in _statement(s, names, depth)]


def _statement(s: Statement, names: _Names, depth: int) -> list[str]:
    pad = "  " * depth
    match s:
        case For(index, body, start, _, kind, width):
            how = "" if kind == "serial" else f" {kind}" + (f" {width}" if kind == "vector" else "")
            head = f"{pad}for {names.of(index)} in {expression_text(start, names)}..{expression_text(s.end, names)}{how} {{"
            return [head, *_block(body, names, depth + 1), f"{pad}}}"]
        case If(condition, then, otherwise):
            lines = [f"{pad}if {expression_text(condition, names)} {{", *_block(then, names, depth + 1)]
            if otherwise:
                lines += [f"{pad}}} else {{", *_block(otherwise, names, depth + 1)]
            return [*lines, f"{pad}}}"]
        case Let(var, value):
            return [f"{pad}let {names.of(var)}: {var.type} = {expression_text(value, names)}"]
        case Alloc(tensor):
            return [f"{pad}alloc %{tensor.name}: {tensor.element}" if not tensor.shape else f"{pad}alloc {tensor.space} {tensor_text(tensor)}"]
        case Store(tensor, at, value):
            place = f"%{tensor.name}[{', '.join(expression_text(i, names) for i in at)}]" if at or tensor.space != "register" else f"%{tensor.name}"
            return [f"{pad}{place} = {expression_text(value, names)}" + (" streaming" if s.streaming else "")]
        case Require(condition, message, _):
            return [f"{pad}require {expression_text(condition, names)}, {quoted(message)}"]
    raise TypeError(f"no text for {type(s).__name__}")
