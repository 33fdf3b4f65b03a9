"""`cvm ops`: list the operators of each dialect, or print the page of one, from the operators' classes.

`cvm explain CODE`: the rule that a diagnostic names, with a program that breaks it and one that does not. `cvm new
dialect NAME`: the skeleton of a package with an operator, a pass and their golden tests."""

import inspect
import json
import re
from argparse import Namespace
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from textwrap import dedent, indent
from typing import Any, NamedTuple

from cvm.cli import Usage
from cvm.commands.display import columns
from cvm.dialect.ir.attributes import attribute_text, describe
from cvm.dialect.ir.suggest import did_you_mean
from cvm.dialect.spec.op import DIALECTS, OPERATORS, REQUIRED, Operator

SUMMARY = 100  # characters of an operator's line in the list
GENERAL = {  # what may follow any operator's name in a code
    "attributes": "an operator has the attributes of its page, each with a value of the kind stated there; those without a default are given",
    "destroyed": "what an operation overwrites is an argument marked inplace or an own value, and every other use of it can come first",
    "form": "a name in quotes and an initial value stand where the operator's page has them",
    "literal": "a number in place of an operand is one that the operand's element type holds",
    "operands": "an operator has the operands of its page",
    "overflow": "the integers that an operation computes stay in their type, whatever the arguments are in their ranges",
    "results": "an operation has as many results, and result types, as its operator gives",
    "size": "the elements of a result can be counted in 62 bits",
    "type": "operands and results have the types that the program states",
}


def ops(options: Namespace) -> int:
    known = by_dialect()
    if options.check:
        from cvm.testing.check_operators import check_operators

        return check_operators([op for n, ops in known.items() for op in ops if options.name in (None, n, op.name)])
    if options.name is None:
        print("\n\n".join(listing(d) for d in known))
    elif options.name in known:
        print(listing(options.name))
    elif options.name in OPERATORS:
        print(page(OPERATORS[options.name]))
    else:
        raise Usage(f"there is no dialect or operator {options.name}{did_you_mean(options.name, [*known, *OPERATORS])}")
    return 0


def by_dialect() -> dict[str, list[type[Operator[Any]]]]:
    """Every operator, by dialect and name."""
    found: dict[str, list[type[Operator[Any]]]] = {d: [] for d in sorted(OPERATORS.dialects())}
    for _, op in sorted(OPERATORS.items()):
        found[op.dialect].append(op)
    return found


def listing(dialect: str) -> str:
    """The description of a dialect, and a line for each operator."""
    members = by_dialect()[dialect]
    width = max((len(op.name) for op in members), default=0)
    about = _first_line(import_module(OPERATORS.modules.get(dialect, f"cvm.dialect.{dialect}")).__doc__)
    return "\n".join([f"{dialect}: {about}", "", *(f"  {op.name:{width}}  {summary(op)}".rstrip() for op in members)])


def summary(op: type[Operator[Any]]) -> str:
    """The first line of an operator's docstring, without the reference to its source."""
    text = re.sub(r"\s{2,}\(.*\)$", "", _first_line(inspect.getdoc(op)))
    return text if len(text) <= SUMMARY else text[: SUMMARY - 4].rstrip() + " ..."


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def page(op: type[Operator[Any]]) -> str:
    """The whole documentation of an operator."""
    sections = {title: "\n".join(columns(rows, "<<<<")) for title, rows in tables(op).items()}
    sections |= {"example": dedent(op.example).strip()}
    parts = [op.name, inspect.getdoc(op) or "", "usage\n" + indent(usage(op), "  ")]
    parts += [f"{title}\n{indent(body, '  ')}" for title, body in sections.items() if body]
    return "\n\n".join(parts)


def tables(op: type[Operator[Any]]) -> dict[str, list[tuple[str, ...]]]:
    """The operands, attributes, results and constraints of an operator, each by its name."""
    notes = _notes(op)
    kinds = {"optional": "optional", "variadic": "any number"}
    attributes = [f for f in op.fields if not f.is_operand]
    defaults = ["required" if f.default is REQUIRED else f"default {attribute_text(f.default)}" for f in attributes]
    return {
        "operands": [(f.name, kinds.get(f.kind, ""), notes.get(f.name, "")) for f in op.fields if f.is_operand],
        "attributes": [
            (f.name, describe(f.annotation), d, notes.get(f.name, ""))
            for f, d in zip(attributes, defaults, strict=True)
        ],
        "results": [(", ".join(op.results),)] if op.results else [],
        "constraints": [(f"C{c.number}", c.text) for c in op.constraints],
    }


def usage(op: type[Operator[Any]]) -> str:
    """The operator's syntax: `%y = cvm.conv2d %x, %w[, %b] {strides = ...}`."""
    operands = ""
    for f in op.fields:
        if f.is_operand:
            comma = ", " if operands else ""
            one = f"%{f.name}[0], %{f.name}[1], ..." if f.kind == "variadic" else f"%{f.name}"
            operands += f"[{comma}{one}]" if f.kind == "optional" else comma + one
    required = [f"{f.name} = ..." for f in op.fields if not f.is_operand and f.required]
    attributes = f" {{{', '.join(required)}}}" if required else ""
    return f"{', '.join('%' + r for r in op.results)} = {op.name} {operands}{attributes}".rstrip()


def _notes(op: type[Operator[Any]]) -> dict[str, str]:
    """The comments beside the fields, by field: most often the shape."""
    found: dict[str, str] = {}
    for cls in reversed(op.__mro__):
        if issubclass(cls, Operator) and cls is not Operator:
            with suppress(OSError, TypeError):  # defined by a table, or installed without source
                found |= re.findall(r"^    (\w+)\s*:[^#\n]*#\s*(.*?)\s*$", inspect.getsource(cls), re.MULTILINE)
    return found


# Rules


class Rule(NamedTuple):
    text: str
    wrong: str = ""  # a program that breaks it
    right: str = ""  # one that does not


def explain(options: Namespace) -> int:
    if (found := rule_of(options.code)) is None:
        raise Usage(f"there is no code {options.code}{did_you_mean(options.code, [*rules(), *violations()])}")
    parts = [f"{options.code}: {found.text}"]
    parts += [f"{side}\n{indent(text, '  ')}" for side in ("wrong", "right") if (text := getattr(found, side))]
    print("\n\n".join(parts))
    return 0


def rule_of(code: str) -> Rule | None:
    """The rule of a code; None if no diagnostic has it."""
    if code in rules():
        return rules()[code]
    name, _, last = code.rpartition(".")
    if (operator := OPERATORS.get(name)) is None:
        return None
    constraints = (*operator.placement, *operator.constraints, *operator.afterwards)
    text = GENERAL.get(last) or next((c.text for c in constraints if f"C{c.number}" == last), None)
    return None if text is None else Rule(text, violations().get(code, ""), dedent(operator.example).strip())


@cache
def rules() -> dict[str, Rule]:
    """The rules that are not of one operator, from `rules.txt`."""
    found: dict[str, Rule] = {}
    for line in (files("cvm.commands") / "rules.txt").read_text("utf-8").splitlines():
        if line[:2] in ("- ", "-", "+ "):
            code, rule = next(reversed(found.items()))
            side = "wrong" if line[0] == "-" else "right"
            text = f"{getattr(rule, side)}\n{line[2:]}".lstrip("\n")
            found[code] = rule._replace(**{side: text})
        else:
            code, _, text = line.partition(": ")
            found[code] = Rule(text)
    return found


@cache
def violations() -> dict[str, str]:
    """A program for each constraint of an operator that breaks it, from `violations.json`."""
    found: dict[str, str] = json.loads((files("cvm.commands") / "violations.json").read_text("utf-8"))
    return found


def new(options: Namespace) -> int:
    name = options.name
    if re.fullmatch(r"[a-z][a-z0-9]*", name) is None:
        raise Usage(f"{name}: expected a name of small letters and digits, such as my")
    if name in DIALECTS:
        raise Usage(f"{name} is a dialect of cvm")
    if (folder := Path(options.output or f"{name}_dialect")).exists() and any(folder.iterdir()):
        raise Usage(f"{folder} is there already, and not empty")
    for path, text in skeleton(name).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    print(f"{folder}: pip install -e {folder}, then python -m pytest {folder}, or cvm ops {name}")
    return 0


def skeleton(name: str) -> dict[str, str]:
    """The files of the package by their paths. The templates' dialect is called NAME."""
    text = files("cvm").joinpath("commands/new_dialect.txt").read_text("utf-8")
    text = text.replace("NAME", name).replace("Name", name.capitalize())
    parts = re.split(r"(?m)^==== (.*) ====\n", text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
