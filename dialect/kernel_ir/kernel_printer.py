"""Print expressions and kernels of the loop language, as text that parses back
(`parser.kernels`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from ..types.attributes import quoted
from ..types.sizes import Dim, same_size
from ..types.tensor_types import I1, I64, ElementType
from . import expressions as ex
from .execution_plan import Loop, Plan, hoist_constants, reads_and_writes
from .loops import (
    UNBOUNDED,
    Alloc,
    Assert,
    Block,
    Break,
    Continue,
    Fail,
    For,
    If,
    Kernel,
    Let,
    Prefetch,
    Return,
    Statement,
    Steps,
    Store,
    While,
    may_jump,
)
from .scalar_functions import SCALARS

PRECEDENCE = tuple(
    level.split() for level in ("|", "^", "&", "== != < <= > >=", "<< >>", "+ -", "* / // % mod")
)
_LEVELS = {symbol: level for level, symbols in enumerate(PRECEDENCE, 1) for symbol in symbols}
_UNARY = len(PRECEDENCE) + 1
REDUCTIONS = {"add": "sum", "mul": "product"}
_SIZES = {"//": "floordiv", "*": "mul", "max": "max", "min": "min"}


class Names:
    """A unique name for every index, variable and tensor of a kernel; equal names are distinguished
    by a number.
    """

    def __init__(self, sizes: dict[object, str] | None = None) -> None:
        self.given: dict[object, str] = {}
        self.used: set[str] = set()
        self.sizes = {} if sizes is None else sizes  # anonymous ones, by their first appearance

    def of(self, e: ex.Index | ex.Var | ex.Tensor) -> str:
        if e not in self.given:
            plain = re.sub(r"\.(?=\.|$)|^\.|[^\w$.]", "_", e.name, flags=re.ASCII)
            name, n = plain, 0
            while name in self.used:
                n += 1
                name = f"{plain}.{n}"
            self.used.add(name)
            self.given[e] = f"%{name}"
        return self.given[e]

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A scope: names defined inside may be used again after it. Sizes keep their names."""
        given, used = dict(self.given), set(self.used)
        yield
        self.given, self.used = given, used

    def size(self, atom: tuple[object, ...]) -> str:
        """The name of a size; an anonymous size has the number of its first appearance."""
        return (
            f"?{atom[0]}" if len(atom) == 1 else self.sizes.setdefault(atom, f"?{len(self.sizes)}")
        )


def expression_text(
    e: ex.Expr, names: Names, expected: ElementType | None = None, level: int = 0
) -> str:
    """An expression with minimal parentheses; a literal has a type suffix if its type is not
    `expected`.
    """

    def sub(x: ex.Expr, expected: ElementType | None, inner: int = 0) -> str:
        return expression_text(x, names, expected, inner)

    match e:
        case ex.Const(value, element):
            return _number(value, element, expected, level)
        case ex.Index() | ex.Var():
            return names.of(e)
        case ex.Extent(size):
            return size_text(size, names)
        case ex.Misalignment(tensor, line):
            return f"misalignment({names.of(tensor)}, {line})"
        case ex.Read(tensor, at):
            return _place(tensor, at, names)
        case ex.Cast(operand, element):
            return f"{element}({sub(operand, None)})"
        case ex.Bitcast(operand, element):
            return f"bitcast({sub(operand, None)}, {element})"
        case ex.When(condition, then, otherwise):
            return f"when({sub(condition, I1)}, {sub(then, expected)}, {sub(otherwise, expected)})"
        case ex.Reduce(function, over, body):
            which = ", ".join(f"{names.of(i)} in 0..{size_text(i.extent, names)}" for i in over)
            return f"{REDUCTIONS.get(function, function)}[{which}]({sub(body, expected)})"
        case ex.Check(condition, value, message, _):
            return f"check({sub(condition, I1)}, {sub(value, expected)}, {quoted(message)})"
        case ex.Apply(function, operands, _):
            inner = operand_type(function, operands, expected)
            return _apply(
                function, [partial(sub, o, inner) for o in operands], operands, names, level
            )
    raise TypeError(f"no text for {type(e).__name__}")


def _apply(
    function: str, texts: list[Any], operands: tuple[ex.Expr, ...], names: Names, level: int
) -> str:
    symbol = SCALARS[function].symbol
    if len(operands) == 2 and symbol in _LEVELS:
        mine = _LEVELS[symbol]
        text = f"{texts[0](mine)} {symbol} {texts[1](mine + 1)}"
        return f"({text})" if mine < level else text
    if len(operands) == 1 and symbol and not isinstance(operands[0], ex.Const):
        return f"{symbol}{texts[0](_UNARY)}"
    if function == "select":
        return f"select({expression_text(operands[0], names, I1)}, {texts[1]()}, {texts[2]()})"
    return f"{function}({', '.join(t() for t in texts)})"


def operand_type(
    function: str, operands: Sequence[ex.Expr], expected: ElementType | None
) -> ElementType | None:
    """The type of literals among the operands, as far as a reader can infer it."""
    if not SCALARS[function].predicate and expected is not None:
        return expected
    return next((o.type for o in operands[function == "select" :] if tells_type(o)), None)


def tells_type(e: ex.Expr) -> bool:
    """Test whether an expression's text determines its type: a literal's does not."""
    match e:
        case ex.Const():
            return False
        case ex.Apply(function, operands, _) if not SCALARS[function].predicate:
            return any(map(tells_type, operands[function == "select" :]))
    return True


def _number(value: object, type: ElementType, expected: ElementType | None, level: int) -> str:
    if isinstance(value, complex):
        parts = ", ".join(f"({part!r} : f{type.bits // 2})" for part in (value.real, value.imag))
        return f"complex({parts})"
    text = (
        str(value).lower()
        if isinstance(value, bool)
        else repr(value)
        if type.kind == "float"
        else str(value)
    )
    if type is not expected and type is not I1:
        return f"({text} : {type})"
    return f"({text})" if text.startswith("-") and level >= _UNARY - 1 else text


def _place(tensor: ex.Tensor, at: tuple[ex.Expr, ...], names: Names) -> str:
    if not at and tensor.space == "register":
        return names.of(tensor)
    return f"{names.of(tensor)}[{', '.join(expression_text(i, names, I64) for i in at)}]"


def size_text(dim: Dim, names: Names) -> str:
    """A size in index notation: a name, or a sum in brackets."""
    if isinstance(dim, int):
        return str(dim)
    return names.size(dim.terms[0][0]) if dim.is_atom else f"[{_sum_text(dim, names)}]"


def _sum_text(dim: Dim, names: Names) -> str:
    if isinstance(dim, int):
        return str(dim)
    parts = []
    for atom, factor in dim.terms:
        if len(atom) < 3:
            text = names.size(atom)
        else:
            text = f"{_SIZES[atom[0]]}({', '.join(_sum_text(d, names) for d in atom[1:])})"
        parts.append(text if factor == 1 else f"{factor} * {text}")
    if dim.constant:
        parts.append(str(dim.constant))
    return " + ".join(parts).replace("+ -", "- ")


def tensor_text(t: ex.Tensor, names: Names) -> str:
    """A declaration: name, sizes and element type."""
    return f"{names.of(t)}: {_type_text(t, names)}"


def _type_text(t: ex.Tensor, names: Names) -> str:
    cross = "x" if all(isinstance(d, int) for d in t.shape) else " x "
    return f"tensor<{cross.join([*(size_text(d, names) for d in t.shape), t.element.name])}>"


def kernels_text(kernels: Iterable[Kernel]) -> str:
    return "\n".join(map(kernel_text, kernels))


def array_names(plan: Plan) -> dict[ex.Tensor, str]:
    """The name of each array that kernels access, whatever the shapes in which they view it, and of
    the other arguments.
    """
    names = Names()
    accessed = (plan.home.get(t, t) for k in plan.kernels for t in k.parameters)
    return {
        home: names.of(home)
        for home in (*accessed, *plan.arguments, *plan.constants, *plan.results)
    }


def plan_text(*plans: Plan) -> str:
    """The kernels of plans, each after its arguments and results if the kernels do not tell
    them.
    """
    plans = tuple(map(hoist_constants, plans))
    told = all(
        {*p.arguments, *p.constants} == {*reads_and_writes(p.kernels, p.home)[0]} for p in plans
    )
    sizes = None if told else {}
    heads = ["" if sizes is None else _head(plan, sizes) for plan in plans]
    return "\n".join(
        t
        for h, plan in zip(heads, plans, strict=True)
        for t in (h, *kernel_texts(plan, sizes))
        if t
    )


def _head(plan: Plan, sizes: dict[object, str]) -> str:
    arrays, names = array_names(plan), Names(sizes)
    sides = (*plan.arguments, *plan.constants), plan.results
    inputs, outputs = (
        ", ".join(f"{arrays[t]}: {_type_text(t, names)}" for t in side) for side in sides
    )
    return f"plan ({inputs}) -> ({outputs})\n"


def kernel_texts(plan: Plan, sizes: dict[object, str] | None = None) -> Iterator[str]:
    """Each kernel, its arrays declared before if the names of `sizes` are; otherwise the first that
    views an array from outside the plan in another shape has its type, too.
    """
    plan = hoist_constants(plan)
    names = array_names(plan)
    outside = {*plan.arguments, *plan.results, *plan.constants} if sizes is None else set()
    for kernel in plan.kernels:
        homes = {t: plan.home.get(t, t) for t in kernel.parameters}
        first = {home: t for t, home in reversed(homes.items())}
        typed = {t: home for home, t in first.items() if home in outside and home not in homes}
        outside.difference_update(first)
        yield kernel_text(kernel, {t: names[home] for t, home in homes.items()}, typed, sizes)


def kernel_text(
    kernel: Kernel,
    arrays: Mapping[ex.Tensor, str] = {},
    typed: Mapping[ex.Tensor, ex.Tensor] = {},
    sizes: dict[object, str] | None = None,
) -> str:
    """One kernel of the loop language. `arrays` names the arrays of its parameters: a second view
    of one says whose view it is, and one that is `typed` of what type the array is. `sizes` names
    the anonymous sizes of a loop around it.
    """
    first = {arrays[t]: t for t in reversed(kernel.parameters) if t in arrays}
    names = Names(sizes)
    names.given, names.used = {t: name for name, t in first.items()}, {name[1:] for name in first}
    declared = []
    inputs = [t for t in kernel.inputs if not (isinstance(kernel, Loop) and t in kernel.outputs)]
    for t in (*inputs, *kernel.outputs):
        array = _type_text(typed[t], names) if t in typed else arrays.get(t, names.of(t))
        text = tensor_text(t, names)
        declared.append(text + f" view of {array}" * (array not in text.split(": ")))
    split = len(declared) - kernel.results
    head = [
        f"kernel @{kernel.name}({', '.join(declared[:split])}) -> ({', '.join(declared[split:])})"
    ]
    if kernel.condition is not None:
        head.append(f"where {expression_text(kernel.condition, names, I1)}")
    if kernel.sum_order != "either":
        head.append(f"sums {kernel.sum_order}")
    if isinstance(kernel, Loop):
        head[0] = f"loop {head[0].partition(' ')[2]}"
        head.append(
            f"{steps_text(kernel.steps, names)} of ({', '.join(map(names.of, kernel.given))})"
        )
        texts = [_head(kernel.plan, names.sizes), *kernel_texts(kernel.plan, names.sizes)]
        inner = "\n".join(texts).rstrip("\n").split("\n")
        return (
            "\n".join([" ".join([*head, "{"]), *(f"  {line}".rstrip() for line in inner), "}"])
            + "\n"
        )
    if kernel.aliasing:
        head.append("aliasing")
    if kernel.scheduled or may_jump(kernel.body):  # as it is read
        head.append("scheduled")
    return "\n".join([" ".join([*head, "{"]), *block_lines(kernel.body, names, 1), "}"]) + "\n"


def steps_text(steps: Steps, names: Names) -> str:
    if steps.trips is None:
        return f"while carry {steps.carry}"
    return (
        f"steps {size_text(steps.trips, names)} carry {steps.carry} scan "
        f"{steps.scan}{' reverse' * steps.reverse}"
    )


def statement_text(s: Statement) -> str:
    return "\n".join(_statement(s, Names(), 0))


def block_lines(block: Block, names: Names, depth: int) -> list[str]:
    with names.scope():
        return [line for s in block for line in _statement(s, names, depth)]


def _statement(s: Statement, names: Names, depth: int) -> list[str]:
    pad = "  " * depth

    def text(e: ex.Expr, expected: ElementType) -> str:
        return expression_text(e, names, expected)

    match s:
        case For():
            with names.scope():
                return [
                    f"{pad}for {_range(s, names)} {{",
                    *block_lines(s.body, names, depth + 1),
                    f"{pad}}}",
                ]
        case If(condition, then, otherwise):
            lines = [f"{pad}if {text(condition, I1)} {{", *block_lines(then, names, depth + 1)]
            if otherwise:
                lines += [f"{pad}}} else {{", *block_lines(otherwise, names, depth + 1)]
            return [*lines, f"{pad}}}"]
        case Let(var, value):
            shown = text(value, var.type)
            return [f"{pad}let {names.of(var)}: {var.type} = {shown}"]
        case Alloc(tensor) if not tensor.shape and tensor.space == "register":
            return [f"{pad}alloc {names.of(tensor)}: {tensor.element}"]
        case Alloc(tensor):
            return [f"{pad}alloc {tensor.space} {tensor_text(tensor, names)}"]
        case Store(tensor, at, value, streaming):
            line = f"{pad}{_place(tensor, at, names)} = {text(value, tensor.element)}"
            return [line + (" streaming" if streaming else "")]
        case Assert(condition, message, _):
            return [f"{pad}assert {text(condition, I1)}, {quoted(message)}"]
        case Prefetch(tensor, at):
            return [f"{pad}prefetch {_place(tensor, at, names)}"]
        case While(condition, body):
            head = f"{pad}while {text(condition, I1)} {{"
            return [head, *block_lines(body, names, depth + 1), f"{pad}}}"]
        case Break() | Continue() | Return():
            return [f"{pad}{type(s).__name__.lower()}"]
        case Fail(message, _):
            return [f"{pad}fail {quoted(message)}"]
    raise TypeError(f"no text for {type(s).__name__}")


def _range(s: For, names: Names) -> str:
    """The range of a loop; the index's extent is printed if it differs from the end."""
    how = "" if s.kind == "serial" else f" {s.kind}" + (f" {s.width}" if s.kind == "vector" else "")
    how += f" {s.by}" if s.kind == "intrinsic" else ""
    how += f" overlap {s.overlap}" if s.overlap else ""
    start, end = (expression_text(e, names, I64) for e in (s.start, s.end))
    whole = isinstance(s.end, (ex.Const, ex.Extent)) and end == size_text(s.index.extent, names)
    extent = (
        ""
        if whole or same_size(s.index.extent, UNBOUNDED)
        else f" of {size_text(s.index.extent, names)}"
    )
    return f"{names.of(s.index)}{extent} in {start}..{end}{how}"
