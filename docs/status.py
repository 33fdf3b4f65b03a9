"""Writes the status table of docs/status.md: every operator, and whether the recorded cases that
use it hold on each target.

Where there is no case, its example is held against the reference.

python docs/status.py [DIALECT ...]        all dialects, or the sections of some
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from available_targets import HERE  # noqa: E402
from conformance_cases import cases, failures, operators  # noqa: E402
from cvm.dialect.spec.operator import OPERATORS  # noqa: E402
from cvm.jit.targets import TARGETS  # noqa: E402
from targets_agree import agree  # noqa: E402

import cvm  # noqa: E402
from cvm.terminal.operator_pages import by_dialect  # noqa: E402

SHOWN = tuple(
    t for t in TARGETS if t in HERE or t != "cuda"
)  # a GPU is not everywhere; what emulates one is
PAGE = ROOT / "docs" / "status.md"
BEGIN, END = "<!-- status: written by docs/status.py -->\n", "<!-- end of status -->\n"
SECTION = re.compile(r"<details><summary><b>(\w+)</b>.*?</details>\n", re.S)


def section(dialect: str, names: list[str]) -> str:
    """The status of a dialect, and of its operators when it is unfolded: the cases of the programs
    that use each.
    """
    about = [n for n in names if n in cases()]
    uses = Counter(used for n in about for case in cases()[n] for used in operators(case))
    total = sum(len(cases()[n]) for n in about)
    alone = [n for n in names if not uses[n]]
    rows: dict[str, dict[str, str]] = {}
    outcome = []
    with ProcessPoolExecutor(initializer=warnings.simplefilter, initargs=("ignore",)) as pool:
        for target in SHOWN:
            failing = [
                ops for found in pool.map(_failing, about, [target] * len(about)) for ops in found
            ]
            outcome.append(f"{total - len(failing)} on {target}")
            short = Counter(used for ops in failing for used in ops)
            rows[target] = {n: f"{uses[n] - short[n]}" if short[n] else "all" for n in uses}
            rows[target] |= zip(
                alone, pool.map(_by_example, alone, [target] * len(alone)), strict=True
            )
    lines = [
        f"<details><summary><b>{dialect}</b>: {len(names)} operators; of {total} cases "
        f"hold {', '.join(outcome)}</summary>",
        "",
        f"| operator | cases | {' | '.join(SHOWN)} |",
        f"|---|---|{'---|' * len(SHOWN)}",
    ]
    lines += [f"| `{n}` | {uses[n]} | {' | '.join(rows[t][n] for t in SHOWN)} |" for n in names]
    return "\n".join([*lines, "", "</details>", ""])


def _failing(about: str, target: str) -> list[set[str]]:
    """The operators that each case uses which does not hold."""
    by_id = {case["id"]: case for case in cases()[about]}
    return [operators(by_id[found.partition(": ")[0]]) for found in failures(about, target)]


def _by_example(name: str, target: str) -> str:
    """Test whether an operator's example gives the reference's results on a target."""
    try:
        agree(cvm.parse(OPERATORS[name].example), ("reference", target))
    except (AssertionError, cvm.Error):
        return "fails"
    return "example"


def main() -> int:
    lacking = [f"{t}: {TARGETS[t].missing()}" for t in SHOWN if t not in HERE]
    dialects = {
        name: [op.name for op in ops] for name, ops in by_dialect().items() if name != "builtin"
    }
    unknown = [f"there is no dialect {name}" for name in sys.argv[1:] if name not in dialects]
    if lacking or unknown:
        print("\n".join(lacking + unknown), file=sys.stderr)
        return 1
    before, rest = PAGE.read_text("utf-8").split(BEGIN)
    old, after = rest.split(END)
    sections = {m[1]: m[0] for m in SECTION.finditer(old)}
    for name in sys.argv[1:] or dialects:
        sections[name] = section(name, dialects[name])
    PAGE.write_text(
        before + BEGIN + "\n" + "\n".join(sections[n] for n in dialects) + "\n" + END + after,
        "utf-8",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
