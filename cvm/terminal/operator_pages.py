"""The pages of operators, and the lists of a dialect's, from the operators' classes."""

import inspect
import re
from contextlib import suppress
from importlib import import_module
from textwrap import dedent, indent
from typing import Any

from cvm.dialect.spec.operator import OPERATORS, REQUIRED, Operator
from cvm.dialect.types.attributes import attribute_text, describe
from cvm.terminal.display import columns

SUMMARY = 100  # characters of an operator's line in the list


def by_dialect() -> dict[str, list[type[Operator[Any]]]]:
    operators = {d: [] for d in sorted(OPERATORS.dialects())}
    for _, op in sorted(OPERATORS.items()):
        operators[op.dialect].append(op)
    return operators


def listing(dialect: str) -> str:
    members = by_dialect()[dialect]
    width = max((len(op.name) for op in members), default=0)
    about = _first_paragraph(
        import_module(OPERATORS.modules.get(dialect, f"cvm.dialect.{dialect}")).__doc__
    )
    return "\n".join(
        [
            f"{dialect}: {about}",
            "",
            *(f"  {op.name:{width}}  {summary(op)}".rstrip() for op in members),
        ]
    )


def summary(op: type[Operator[Any]]) -> str:
    """The first line of an operator's docstring, without the reference to its source."""
    text = re.sub(r"\s{2,}\(.*\)$", "", _first_paragraph(inspect.getdoc(op)))
    return text if len(text) <= SUMMARY else text[: SUMMARY - 4].rstrip() + " ..."


def _first_paragraph(text: str | None) -> str:
    return " ".join((text or "").strip().partition("\n\n")[0].split())


def page(op: type[Operator[object]]) -> str:
    sections = {title: "\n".join(columns(rows, "<<<<")) for title, rows in tables(op).items()}
    sections |= {"example": dedent(op.example).strip()}
    parts = [op.name, inspect.getdoc(op) or "", "usage\n" + indent(usage(op), "  ")]
    parts += [f"{title}\n{indent(body, '  ')}" for title, body in sections.items() if body]
    return "\n\n".join(parts)


def tables(op: type[Operator[object]]) -> dict[str, list[tuple[str, ...]]]:
    """The operands, attributes, results and constraints of an operator, each by its name."""
    notes = _notes(op)
    kinds = {"optional": "optional", "variadic": "any number"}
    attributes = [f for f in op.fields if not f.is_operand]
    defaults = [
        "required" if f.default is REQUIRED else f"default {attribute_text(f.default)}"
        for f in attributes
    ]
    return {
        "operands": [
            (f.name, kinds.get(f.kind, ""), notes.get(f.name, ""))
            for f in op.fields
            if f.is_operand
        ],
        "attributes": [
            (f.name, describe(f.annotation), d, notes.get(f.name, ""))
            for f, d in zip(attributes, defaults, strict=True)
        ],
        "results": [(", ".join(op.results),)] if op.results else [],
        "constraints": [(f"C{c.number}", c.text) for c in op.constraints],
    }


def usage(op: type[Operator[object]]) -> str:
    """The operator's syntax: `%y = cvm.conv2d %x, %w[, %b] {strides = ...}`."""
    operands = ""
    for f in op.fields:
        if f.is_operand:
            comma = ", " if operands else ""
            operand = f"%{f.name}[0], %{f.name}[1], ..." if f.kind == "variadic" else f"%{f.name}"
            operands += f"[{comma}{operand}]" if f.kind == "optional" else comma + operand
    required = [f"{f.name} = ..." for f in op.fields if not f.is_operand and f.required]
    attributes = f" {{{', '.join(required)}}}" if required else ""
    return f"{', '.join('%' + r for r in op.results)} = {op.name} {operands}{attributes}".rstrip()


def _notes(op: type[Operator[object]]) -> dict[str, str]:
    """The comments beside the fields, by field: most often the shape."""
    notes: dict[str, str] = {}
    for cls in reversed(op.__mro__):
        if issubclass(cls, Operator) and cls is not Operator:
            with suppress(OSError, TypeError):  # defined by a table, or installed without source
                notes |= re.findall(
                    r"^    (\w+)\s*:[^#\n]*#\s*(.*?)\s*$", inspect.getsource(cls), re.MULTILINE
                )
    return notes
