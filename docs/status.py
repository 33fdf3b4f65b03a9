"""Writes the status table of README.md: every operator, and whether its recorded cases hold on each target.

python docs/status.py
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from cases import cases, failures  # noqa: E402
from targets import HERE  # noqa: E402

from cvm.commands.ops import by_dialect  # noqa: E402

SHOWN = tuple(t for t in HERE if t != "cuda-sim")  # an emulator, whose cases take long; the tests run them
README = ROOT / "README.md"
BEGIN, END = "<!-- status: written by docs/status.py -->\n", "<!-- end of status -->\n"


def table() -> str:
    """A section for each dialect: how it stands as a whole, and its operators when it is unfolded."""
    return "\n".join(_dialect(name, [op.name for op in ops]) for name, ops in by_dialect().items() if name != "builtin")


def _dialect(dialect: str, names: list[str]) -> str:
    held = {(n, t): len(cases()[n]) - sum(1 for _ in failures(n, t)) for n in names if n in cases() for t in SHOWN}
    total = sum(len(cases().get(n, ())) for n in names)
    outcome = ", ".join(f"{sum(held.get((n, t), 0) for n in names)} on {t}" for t in SHOWN)
    lines = [
        f"<details><summary><b>{dialect}</b>: {len(names)} operators; of {total} cases hold {outcome}</summary>",
        "",
        f"| operator | cases | {' | '.join(SHOWN)} |",
        f"|---|---|{'---|' * len(SHOWN)}",
    ]
    for n in names:
        lines.append(f"| `{n}` | {len(cases().get(n, ()))} | {' | '.join(_cell(held.get((n, t)), n) for t in SHOWN)} |")
    return "\n".join([*lines, "", "</details>", ""])


def _cell(held: int | None, name: str) -> str:
    if held is None:
        return ""
    return "all" if held == len(cases()[name]) else f"{held}"


def main() -> None:
    warnings.simplefilter("ignore")  # what a case is warned about does not matter here
    found = table()
    before, rest = README.read_text("utf-8").split(BEGIN)
    README.write_text(before + BEGIN + "\n" + found + "\n" + END + rest.split(END)[1], "utf-8")


if __name__ == "__main__":
    main()
