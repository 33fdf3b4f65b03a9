"""Writes the status table of README.md: every operator, and whether its recorded cases hold on each target.

python docs/status.py [DIALECT ...]        all dialects, or the sections of some
"""

from __future__ import annotations

import re
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from cases import cases, failures  # noqa: E402
from cvm.jit.targets import TARGETS  # noqa: E402
from targets import HERE, missing  # noqa: E402

from cvm.commands.ops import by_dialect  # noqa: E402

SHOWN = tuple(t for t in TARGETS if t in HERE or t != "cuda")  # a GPU is not everywhere; what emulates one is
README = ROOT / "README.md"
BEGIN, END = "<!-- status: written by docs/status.py -->\n", "<!-- end of status -->\n"
SECTION = re.compile(r"<details><summary><b>(\w+)</b>.*?</details>\n", re.S)


def section(dialect: str, names: list[str]) -> str:
    """How a dialect stands as a whole, and its operators when it is unfolded."""
    asked = [(n, t) for n in names if n in cases() for t in SHOWN]
    with ProcessPoolExecutor(initializer=warnings.simplefilter, initargs=("ignore",)) as pool:
        held = dict(zip(asked, pool.map(_held, *zip(*asked, strict=True)), strict=True)) if asked else {}
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


def _held(name: str, target: str) -> int:
    return len(cases()[name]) - sum(1 for _ in failures(name, target))


def _cell(held: int | None, name: str) -> str:
    if held is None:
        return ""
    return "all" if held == len(cases()[name]) else f"{held}"


def main() -> int:
    lacking = [f"{t}: {missing(t)}" for t in SHOWN if t not in HERE]
    dialects = {name: [op.name for op in ops] for name, ops in by_dialect().items() if name != "builtin"}
    unknown = [f"there is no dialect {name}" for name in sys.argv[1:] if name not in dialects]
    if lacking or unknown:
        print("\n".join(lacking + unknown), file=sys.stderr)
        return 1
    before, rest = README.read_text("utf-8").split(BEGIN)
    old, after = rest.split(END)
    sections = {m[1]: m[0] for m in SECTION.finditer(old)}
    for name in sys.argv[1:] or dialects:
        sections[name] = section(name, dialects[name])
    README.write_text(before + BEGIN + "\n" + "\n".join(sections[n] for n in dialects) + "\n" + END + after, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
