"""Formulas as mathematics: MathML, which browsers draw without a script."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from cvm.dialect.kernel_ir import expressions as ex
from cvm.dialect.kernel_ir.formulas import Formula, Formulas
from cvm.dialect.kernel_ir.kernel_printer import Names, size_text
from cvm.dialect.kernel_ir.traverse import children
from cvm.dialect.types.sizes import Dim

INFIX = {
    "or": (1, "∨"),
    "xor": (1, "⊕"),
    "and": (2, "∧"),
    "eq": (3, "="),
    "ne": (3, "≠"),
    "lt": (3, "&lt;"),
    "le": (3, "≤"),
    "gt": (3, "&gt;"),
    "ge": (3, "≥"),
    "shl": (4, "≪"),
    "shr": (4, "≫"),
    "add": (5, "+"),
    "sub": (5, "−"),
    "mul": (6, "·"),
    "floormod": (6, "mod"),
    "rem": (6, "rem"),
}
AROUND = {"abs": ("|", "|"), "floor": ("⌊", "⌋"), "ceil": ("⌈", "⌉")}
MOST_SYMBOLS = 60  # that are read at a glance
BIG = {"add": "∑", "mul": "∏", "and": "⋀", "or": "⋁"}


def page(program: Formulas) -> str:
    """The formulas of a program, one below the other; empty where they are long, or nests compute
    something.
    """
    steps = [step for step in program.steps if isinstance(step, Formula)]
    if len(steps) < len(program.steps) or any(
        _symbols(step.value, {}) > MOST_SYMBOLS for step in steps
    ):
        return ""
    return "\n\n".join(map(display, steps))


def _symbols(e: ex.Expr, known: dict[int, int]) -> int:
    """The number of symbols of an expression written out, its common parts as often as they
    occur.
    """
    if id(e) not in known:
        known[id(e)] = 1 + sum(_symbols(c, known) for c in children(e))
    return known[id(e)]


def display(formula: Formula) -> str:
    """A formula on a line of its own, with the range of each index."""
    names = Names()
    shown = (
        _element(formula.tensor, formula.indices, names),
        _operator("="),
        _term(formula.value, names, 0),
    )
    ranges = (
        _row(_name(i, names), _operator("&lt;"), _size(i.extent, names)) for i in formula.indices
    )
    where = "".join(f'<mspace width="2em"/>{r}' for r in ranges)
    return f'<div style="overflow-x: auto"><math display="block">{_row(*shown)}{where}</math></div>'


def _term(e: ex.Expr, names: Names, level: int) -> str:
    """An expression, in brackets where it binds less than what is around it."""
    match e:
        case ex.Const(value, _):
            shown = str(value).lower() if isinstance(value, bool) else repr(value).replace("-", "−")
            return _bracketed(f"<mn>{shown}</mn>", level > 5 and shown.startswith("−"))
        case ex.Index() | ex.Var():
            return _name(e, names)
        case ex.Extent(size):
            return _size(size, names)
        case ex.Read(tensor, at):
            return _element(tensor, at, names)
        case ex.Cast(operand, element):
            return _call(element.name, [_term(operand, names, 0)])
        case ex.Bitcast(operand, element):
            return _call(f"bits as {element.name}", [_term(operand, names, 0)])
        case ex.When(condition, then, otherwise):
            return _cases(condition, then, otherwise, names)
        case ex.Check(_, value, _, _):
            return _term(value, names, level)
        case ex.Reduce(function, over, body):
            under = _joined(
                _row(_name(i, names), _operator("&lt;"), _size(i.extent, names)) for i in over
            )
            sign = (
                f"<mo>{BIG[function]}</mo>" if function in BIG else f"<mo>{escape(function)}</mo>"
            )
            return _bracketed(
                _row(f"<munder>{sign}{under}</munder>", _term(body, names, 6)), level > 5
            )
        case ex.Apply(function, operands, _):
            return _apply(function, operands, names, level)
    raise TypeError(f"no mathematics for {type(e).__name__}")


def _apply(function: str, operands: tuple[ex.Expr, ...], names: Names, level: int) -> str:
    plain = [_term(o, names, 0) for o in operands]
    match function, operands:
        case "select", (condition, then, otherwise):
            return _cases(condition, then, otherwise, names)
        case "div" | "floordiv", (_, by):
            fraction = f"<mfrac>{plain[0]}{plain[1]}</mfrac>"
            if function == "floordiv":
                return _row(_operator("⌊"), fraction, _operator("⌋"))
            return _call("trunc", [fraction]) if by.type.is_integer else fraction
        case "sqrt" | "cbrt", _:
            return (
                f"<msqrt>{plain[0]}</msqrt>"
                if function == "sqrt"
                else f"<mroot>{plain[0]}<mn>3</mn></mroot>"
            )
        case "pow" | "ipow", (base, _):
            return f"<msup>{_term(base, names, 7)}{plain[1]}</msup>"
        case "exp", _:
            return f"<msup><mi>e</mi>{plain[0]}</msup>"
        case "neg" | "not", (operand,):
            sign = _operator("−" if function == "neg" else "¬")
            return _bracketed(_row(sign, _term(operand, names, 7)), level > 5)
    if function in AROUND:
        left, right = AROUND[function]
        return _row(_operator(left), plain[0], _operator(right))
    if function in INFIX:
        own, sign = INFIX[function]
        left, right = (_term(o, names, own + n) for n, o in enumerate(operands))
        return _bracketed(_row(left, _operator(sign), right), own < level)
    return _call(function, plain)


def _cases(condition: ex.Expr, then: ex.Expr, otherwise: ex.Expr, names: Names) -> str:
    rows = []
    while True:
        rows.append(
            (_term(then, names, 0), _row("<mtext>if&#160;</mtext>", _term(condition, names, 0)))
        )
        match otherwise:
            case ex.When(condition, then, otherwise) | ex.Apply(
                "select", (condition, then, otherwise), _
            ):
                continue
        break
    rows.append((_term(otherwise, names, 0), "<mtext>otherwise</mtext>"))
    cells = "".join(
        "<mtr>" + "".join(f'<mtd style="text-align:left">{c}</mtd>' for c in row) + "</mtr>"
        for row in rows
    )
    return _row(_operator("{"), f"<mtable>{cells}</mtable>")


def _element(tensor: ex.Tensor, at: Iterable[ex.Expr], names: Names) -> str:
    indices = [_term(i, names, 0) for i in at]
    return (
        _row(_name(tensor, names), _operator("["), _joined(indices), _operator("]"))
        if indices
        else _name(tensor, names)
    )


def _name(e: ex.Index | ex.Var | ex.Tensor, names: Names) -> str:
    """A name; the number at its end is a subscript."""
    name = names.of(e).removeprefix("%")
    word = name.rstrip("0123456789") or name
    shown = f"<mi>{escape(word)}</mi>"
    return f"<msub>{shown}<mn>{name[len(word) :]}</mn></msub>" if name != word else shown


def _size(dim: Dim, names: Names) -> str:
    return f"<mi>{escape(size_text(dim, names).strip('[]').replace('?', ''))}</mi>"


def _call(function: str, operands: Iterable[str]) -> str:
    return _row(
        f'<mi mathvariant="normal">{escape(function)}</mi>',
        _operator("("),
        _joined(operands),
        _operator(")"),
    )


def _joined(parts: Iterable[str]) -> str:
    return _row(_operator(",").join(parts))


def _bracketed(text: str, needed: bool) -> str:
    return _row(_operator("("), text, _operator(")")) if needed else text


def _row(*parts: str) -> str:
    return f"<mrow>{''.join(parts)}</mrow>"


def _operator(sign: str) -> str:
    return f"<mo>{sign}</mo>" if sign == "{" else f'<mo stretchy="false">{sign}</mo>'
