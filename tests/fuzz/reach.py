"""Find the tests that reach a token: the expression around it notes the running test, in one run of
the tier with all such probes planted.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

MODULE, NOTES = "mutant_probes", "mutant_probes.txt"
# beside the packages of the checkout; tests are noted once, and what runs without one is an import
PROBES = f"""
import os

noted = set()

def reached(n, file=os.path.join(os.path.dirname(os.path.abspath(__file__)), {NOTES!r})):
    seen = f"{{n}} " + os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if seen not in noted:
        noted.add(seen)
        with open(file, "a", encoding="utf-8") as notes:
            notes.write(seen + "\\n")
"""


def probed(text: str, places: Mapping[int, tuple[int, int]]) -> str:
    """`text` with a probe around the smallest expression at each line and byte of `places`; none
    where probes cannot stand.
    """
    inserted: list[tuple[int, int, int, str]] = []
    for n, place in places.items():
        if (found := expression(text, place)) is None:
            continue
        start, end = (
            (found.lineno, found.col_offset),
            (found.end_lineno or 0, found.end_col_offset or 0),
        )
        inserted.append(
            (*start, -end[0] * 10_000 - end[1], f"(__import__({MODULE!r}).reached({n}) or (")
        )
        inserted.append((*end, -start[0] * 10_000 - start[1] - 10**9, "))"))
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    for line, column, _, added in sorted(
        inserted, reverse=True
    ):  # from the end, so that what is before keeps its place
        at = lines[line - 1]
        lines[line - 1] = at[:column] + added.encode() + at[column:]
    return b"".join(lines).decode()


def expression(text: str, place: tuple[int, int]) -> ast.expr | None:
    """The smallest expression that has the byte at `place` and can stand in parentheses; None in a
    pattern of a `case`.
    """
    found: ast.expr | None = None
    left: list[ast.AST] = [ast.parse(text)]
    while left:
        node = left.pop()
        if isinstance(node, (ast.pattern, ast.JoinedStr)):
            continue
        if isinstance(node, ast.expr):
            start, end = (
                (node.lineno, node.col_offset),
                (node.end_lineno or 0, node.end_col_offset or 0),
            )
            if not start <= place < end:
                continue
            stored = isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del))
            if not stored and not isinstance(node, (ast.Starred, ast.Slice)):
                found = node  # children come after their parents
        left += ast.iter_child_nodes(node)
    return found


def reaching(notes: Iterable[str]) -> dict[int, set[str]]:
    """The tests that reach each probe, after the notes of a run."""
    found: dict[int, set[str]] = defaultdict(set)
    for line in notes:
        n, _, test = line.rstrip("\n").partition(" ")
        found[int(n)] |= {test} if test else set()
    return found


def seconds(printed: str) -> dict[str, float]:
    """The seconds of the tests that a run lists with `--durations=0`."""
    times: dict[str, float] = defaultdict(float)
    for took, test in re.findall(r"(?m)^([\d.]+)s (?:setup|call|teardown) +(.*)$", printed):
        times[test] += float(took)
    return times


def in_order(tests: Iterable[str], times: Mapping[str, float], limit: float) -> list[str]:
    """The cheapest test of each test function, and after these the others, as many as take `limit`
    seconds.
    """
    cheapest = sorted(tests, key=lambda t: (times.get(t, 0.0), t))
    first = {t.partition("[")[0]: t for t in reversed(cheapest)}
    chosen, spent = [], 0.0
    for test in sorted(cheapest, key=lambda t: first[t.partition("[")[0]] != t):
        if (spent := spent + times.get(test, 0.0)) > limit and chosen:
            break
        chosen.append(test)
    return chosen
