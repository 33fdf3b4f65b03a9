"""`cvm explain CODE`: the rule that a diagnostic names, with a program that breaks it and one that
does not.
"""

import json
from argparse import Namespace
from functools import cache
from importlib.resources import files
from textwrap import dedent, indent
from typing import NamedTuple

from cvm.dialect.spec.operator import OPERATORS
from cvm.dialect.support.suggest import did_you_mean
from cvm.terminal.usage import Usage

GENERAL = {  # what may follow any operator's name in a code
    "attributes": "an operator has the attributes of its page, "
    "each with a value of the kind stated "
    "there; those without a default are given",
    "destroyed": "what an operation overwrites is an argument "
    "marked inplace or an own value, and every "
    "other use of it can come first",
    "form": "a name in quotes and an initial value stand where the operator's page has them",
    "literal": "a number in place of an operand is one that the operand's element type holds",
    "operands": "an operator has the operands of its page",
    "overflow": "the integers that an operation computes stay "
    "in their type, whatever the arguments "
    "are in their ranges",
    "regions": "an operation has a region for each function that its operator takes, which names "
    "every value that enters it",
    "results": "an operation has as many results, and result types, as its operator gives",
    "size": "the elements of a result can be counted in 62 bits",
    "steps": "the operands, results and function of a loop have the types that its steps say",
    "type": "operands and results have the types that the program states",
}


class Rule(NamedTuple):
    text: str
    wrong: str = ""  # a program that breaks it
    right: str = ""  # one that does not


def explain(options: Namespace) -> int:
    if (rule := rule_of(options.code)) is None:
        raise Usage(
            "there is no code "
            f"{options.code}{did_you_mean(options.code, [*rules(), *violations()])}"
        )
    parts = [f"{options.code}: {rule.text}"]
    parts += [
        f"{side}\n{indent(text, '  ')}"
        for side in ("wrong", "right")
        if (text := getattr(rule, side))
    ]
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
    return (
        None
        if text is None
        else Rule(text, violations().get(code, ""), dedent(operator.example).strip())
    )


@cache
def rules() -> dict[str, Rule]:
    """The rules that are not of one operator, from `rules.txt`."""
    table: dict[str, Rule] = {}
    for line in (files("cvm.commands") / "rules.txt").read_text("utf-8").splitlines():
        if line[:2] in ("- ", "-", "+ "):
            code, rule = next(reversed(table.items()))
            side = "wrong" if line[0] == "-" else "right"
            text = f"{getattr(rule, side)}\n{line[2:]}".lstrip("\n")
            table[code] = rule._replace(**{side: text})
        else:
            code, _, text = line.partition(": ")
            table[code] = Rule(text)
    return table


@cache
def violations() -> dict[str, str]:
    """A program for each constraint of an operator that breaks it, from `violations.json`."""
    return json.loads((files("cvm.commands") / "violations.json").read_text("utf-8"))
