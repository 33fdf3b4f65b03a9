"""The grammars as tables: the lexer's patterns, the node of each rule, and the parser's actions in
each state.

The tables are stored beside this file, so that parsing does not import Lark. `python -m
cvm.parser.lalr_tables` makes them again by Lark, from the grammars alone; a test fails where that
was forgotten.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..dialect.support.files import write_file
from ..grammar import read

END = "$END"
FOLDER = Path(__file__).parent
STARTS = {  # the start symbols of each grammar, grammar/NAME.lark
    "cvm": ("start",),
    "loops": ("start", "size_sum", "formulas"),
    "stablehlo": ("start",),
}
Part = (
    int | None | list[int]
)  # a part by its place, None for an optional one left out, each of a repeated one


@dataclass(frozen=True)
class Production:
    """origin: size parts. `makes` names the method that turns the kept parts (all of them without
    `keep`) into a node; rules for repetition have none and keep a list. A `single` rule with one
    part is that part.
    """

    origin: str
    size: int
    makes: str | None
    keep: list[Part] | None
    single: bool


@dataclass(frozen=True)
class Tables:
    """Actions by state and symbol: n goes to state n, -1 - n reduces by rule n; terminals in order
    of trial; the states before and after each start symbol.
    """

    terminals: Sequence[tuple[str, str]]
    keywords: Mapping[str, str]
    ignored: Sequence[str]
    rules: Sequence[Production]
    states: Sequence[Mapping[str, int]]
    starts: Mapping[str, tuple[int, int]]


@cache
def tables(name: str = "cvm") -> Tables:
    """The stored tables of grammar/NAME.lark."""
    table = json.loads((FOLDER / f"{name}_tables.json").read_text("utf-8"))
    return Tables(**{**table, "rules": [Production(*r) for r in table["rules"]]})


def make(text: str, starts: Sequence[str] = ("start",)) -> Tables:
    """The tables of a grammar, from Lark's; the same ones whenever they are made."""
    from lark import Lark
    from lark.lexer import Lexer

    class Unused(Lexer):
        """Keeps Lark from making a lexer."""

        def __init__(self, conf: object) -> None:
            self.conf = conf

        def lex(self, lexer_state: object, parser_state: object) -> Any:
            raise NotImplementedError

    lark = Lark(text, parser="lalr", lexer=Unused, start=list(starts), maybe_placeholders=True)
    conf = lark.parser.lexer_conf
    table = lark.parser.parser._parse_table
    words = [t for t in conf.terminals if t.pattern.type == "str" and t.pattern.value.isalpha()]
    others = [t for t in conf.terminals if t not in words]
    others.sort(key=lambda t: (-t.priority, -t.pattern.max_width, -len(t.pattern.value), t.name))
    rules = sorted(
        lark.rules, key=lambda r: (r.origin.name, [s.name for s in r.expansion], r.alias or "")
    )
    numbers = {r: n for n, r in enumerate(rules)}
    order = _in_order(table)
    places = {state: n for n, state in enumerate(order)}

    def action(found: tuple[Any, Any]) -> int:
        kind, argument = found
        return places[argument] if str(kind) == "Shift" else -1 - numbers[argument]

    return Tables(
        [(t.name, t.pattern.to_regexp()) for t in others],
        {t.pattern.value: t.name for t in words},
        sorted(conf.ignore),
        [_rule(r) for r in rules],
        [
            {s: action(table.states[state][s]) for s in sorted(table.states[state])}
            for state in order
        ],
        {s: (places[table.start_states[s]], places[table.end_states[s]]) for s in starts},
    )


def _in_order(table: Any) -> list[Any]:
    """The states as they are found from the first one on, which does not depend on how Lark counts
    them.
    """
    states = dict.fromkeys(table.start_states.values())
    waiting = list(states)
    while waiting:
        row = table.states[waiting.pop(0)]
        new = [
            n
            for kind, n in (row[s] for s in sorted(row))
            if str(kind) == "Shift" and n not in states
        ]
        waiting += dict.fromkeys(new)
        states.update(dict.fromkeys(new))
    return list(states)


def _rule(rule: Any) -> Production:
    name = rule.origin.name
    absent = (
        [False] * len(rule.expansion)
        if not rule.options.empty_indices
        else rule.options.empty_indices
    )
    keep: list[Part] = []
    waiting = list(rule.expansion)
    for nothing in absent:
        if nothing:
            keep.append(None)
            continue
        place = len(rule.expansion) - len(waiting)
        symbol = waiting.pop(0)
        if not symbol.is_term and symbol.name.startswith("_"):
            keep.append([place])
        elif rule.options.keep_all_tokens or not (symbol.is_term and symbol.filter_out):
            keep.append(place)
    makes = None if name.startswith("_") else rule.alias or name
    whole = keep == list(range(len(rule.expansion)))
    return Production(
        name,
        len(rule.expansion),
        makes,
        None if whole else keep,
        rule.options.expand1 and not rule.alias,
    )


def text_of(made: Tables) -> str:
    """The tables as they are kept: a line for each rule and state."""

    def lines(items: Sequence[Any]) -> str:
        return "[\n" + ",\n".join(json.dumps(i, separators=(",", ":")) for i in items) + "\n]"

    parts = {**asdict(made), "rules": [list(asdict(r).values()) for r in made.rules]}
    long = ("terminals", "rules", "states")
    fields = (
        f"{json.dumps(k)}: {lines(v) if k in long else json.dumps(v)}" for k, v in parts.items()
    )
    return "{\n" + ",\n".join(fields) + "\n}\n"


if __name__ == "__main__":
    for name, starts in STARTS.items():
        write_file(
            FOLDER / f"{name}_tables.json", text_of(make(read(f"{name}.lark"), starts)).encode()
        )
