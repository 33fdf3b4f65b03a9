"""Shift and reduce tokens to syntax nodes by a grammar's tables. The stacks are public: error
reporting reads and changes them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .lalr_tables import END, Part, Production, tables
from .lex import Scanner
from .syntax_tree import Token

Make = Callable[[list[object]], object]


def node_of(node: Callable[..., object]) -> Callable[[object, list[Any]], Any]:
    """The action that applies a constructor to the parts of a rule."""
    return lambda tree, parts: node(*parts)


class Actions:
    """The semantic actions of a grammar: a method for each alias, or else rule, takes the parts of
    the rule and returns a syntax node. Marks such as commas are not among the parts.
    """

    def listed(self, parts: list[Any]) -> list[Any]:
        return parts


@dataclass(frozen=True)
class Language:
    """A grammar, by its file's name, with the actions that make its nodes."""

    name: str
    actions: Actions

    @cached_property
    def scanner(self) -> Scanner:
        return Scanner(tables(self.name))

    @cached_property
    def reductions(self) -> list[tuple[int, str, Make]]:
        """The number of parts, the symbol and the action of each rule."""
        return [(r.size, r.origin, _maker(r, self.actions)) for r in tables(self.name).rules]


class Stuck(Exception):
    """The parser cannot take a token where it is."""


class Parser:
    """A parser's state: its stack of states, and the values of the symbols on it."""

    def __init__(self, language: Language, start: str = "start") -> None:
        self.rows = tables(language.name).states
        self.rules = language.reductions
        begin, self.end = tables(language.name).starts[start]
        self.states = [begin]
        self.values: list[Any] = []

    def feed(self, token: Token) -> None:
        """Takes a token; raises Stuck with the parser where it stands then."""
        states, values, rows, rules = self.states, self.values, self.rows, self.rules
        kind = token.type
        while True:
            if (action := rows[states[-1]].get(kind)) is None:
                if kind == END and states[-1] == self.end:
                    return
                raise Stuck
            if action >= 0:
                states.append(action)
                values.append(token)
                return
            size, origin, make = rules[-1 - action]
            if size:
                parts = values[-size:]
                del states[-size:], values[-size:]
            else:
                parts = []
            values.append(make(parts))
            states.append(rows[states[-1]][origin])

    @property
    def row(self) -> dict[str, int]:
        """The actions of the current state."""
        return self.rows[self.states[-1]]  # type: ignore[return-value]

    def accepts(self, kind: str) -> bool:
        """Test whether the parser could take a token of this kind now."""
        states = list(self.states)
        while (action := self.rows[states[-1]].get(kind)) is not None and action < 0:
            size, origin, _ = self.rules[-1 - action]
            del states[len(states) - size :]
            states.append(self.rows[states[-1]][origin])
        return action is not None

    def settle(self) -> None:
        """Reduce where only one rule applies, unless a type follows: `[1` to the beginning of a
        list.
        """
        states, values = self.states, self.values
        while True:
            actions = [a for kind, a in self.row.items() if kind != "ASCRIPTION"]
            if not actions or any(a >= 0 or a != actions[0] for a in actions):
                return
            size, origin, make = self.rules[-1 - actions[0]]
            parts = values[len(values) - size :]
            del states[len(states) - size :], values[len(values) - size :]
            values.append(make(parts))
            states.append(self.row[origin])


def _maker(rule: Production, actions: Actions) -> Make:
    node: Any = actions.listed if rule.makes is None else getattr(actions, rule.makes, None)

    def node_of_several(parts: Any) -> Any:
        return parts[0] if len(parts) == 1 else node(parts)

    made: Make = node_of_several if rule.single else node
    return made if rule.keep is None else _of_kept(rule.keep, made)


def _of_kept(keep: list[Part], made: Make) -> Make:
    if not any(isinstance(k, list) for k in keep):
        return lambda parts: made([None if k is None else parts[k] for k in keep])  # type: ignore[index]

    def one(parts: list[Any]) -> Any:
        kept: list[Any] = []
        for k in keep:
            if isinstance(k, list):
                if kept:
                    kept += parts[k[0]]
                else:
                    kept = parts[k[0]]  # a repetition grows in place
            else:
                kept.append(None if k is None else parts[k])
        return made(kept)

    return one
