"""Writes the tables of docs/dali.md from the code: the promotion of element types, and the rules of
every operator.

python docs/promotion.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

from cvm.dialect.dali.pointwise import Pointwise  # noqa: E402
from cvm.dialect.dali.promotion import PROMOTION, RULES, SUPPORTED  # noqa: E402
from cvm.dialect.spec.operator import OPERATORS  # noqa: E402

PAGE = ROOT / "docs" / "dali.md"
TAKES = {
    "arithmetic": "not all i1",
    "quotient": "not all i1",
    "bitwise": "integers and i1",
    "sign": "not i1 (`pos` takes it)",
    "function": "not i1",
    "choice": "a condition of i1",
}


def promotion() -> list[str]:
    head = ["", *(f"**{e}**" for e in SUPPORTED)]
    return table(
        head, [[f"**{a}**", *(PROMOTION[a, b].name for b in SUPPORTED)] for a in SUPPORTED]
    )


def rules() -> list[str]:
    rows = []
    for kind, rule in RULES.items():
        members = [
            o
            for o in OPERATORS.values()
            if issubclass(o, Pointwise) and getattr(o, "rule", None) is rule
        ]
        rows.append([", ".join(map(written, members)), rule.gives, TAKES.get(kind, "")])
    return table(["operators", "give", "take"], rows)


def written(op: type[Pointwise[object]]) -> str:
    name = op.name.partition(".")[2]
    mark = "" if op.symbol == name else f" `{op.symbol}`".replace("|", "\\|")
    return f"{name}{mark}"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def page(text: str) -> str:
    """The page's text with its tables as the code has them."""
    for name, lines in (("promotion", promotion()), ("rules", rules())):
        begin, end = f"<!-- {name}: written by docs/promotion.py -->\n", f"<!-- end of {name} -->\n"
        before, rest = text.split(begin)
        text = "\n".join([before + begin, *lines, "", end]) + rest.split(end)[1]
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
