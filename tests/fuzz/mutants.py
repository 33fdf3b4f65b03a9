"""Mutants of the compiler: one token is changed at random, and the tests have to notice.

`python -m tests.fuzz.mutants --count 40 --seed 24` copies the checkout, plants a probe at the token
of each mutant, and runs the quick tier once: that says which tests reach each token, and how long
they take. Then each mutant is planted by itself, and those tests are run that reach it, the
cheapest first, until one fails or `--seconds` are over; a token that is reached by none, or only
while modules are imported, has the tests that name the module. `--all` runs everything instead of
the quick tier, `--near` only the tests that name the module, without probes, and `--list` only
shows the mutants; `--reached FILE` keeps what the probes noted, or reads it. A mutant that changes
nothing survives: whoever reads the list decides.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import token
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from . import reach

ROOT = Path(__file__).parents[2]
ROOMS = ("dialect", "lowering", "jit", "parser")
LEAST = 1500  # bytes of a file
CHANGES = {
    **{
        "<": "<=",
        "<=": "<",
        ">": ">=",
        ">=": ">",
        "==": "!=",
        "!=": "==",
        "+": "-",
        "-": "+",
        "*": "+",
        "//": "*",
    },
    **{
        "and": "or",
        "or": "and",
        "True": "False",
        "False": "True",
        "min": "max",
        "max": "min",
        "all": "any",
        "any": "all",
    },
}
LEFT_OUT = ("from ", "import ")
BEFORE_OPERANDS = (
    "return",
    "in",
    "lambda",
    "yield",
    "else",
    "and",
    "or",
    "not",
    "if",
    "is",
    "assert",
    "case",
)


class Mutant(NamedTuple):
    path: Path  # in the checkout
    line: int
    old: str
    new: str
    before: str
    text: str  # of the whole file
    column: int  # in bytes of the line


def mutants(count: int, seed: int) -> list[Mutant]:
    """Draw mutants; the longer a file, the more of it."""
    rng = random.Random(seed)
    paths = sorted(
        p for room in ROOMS for p in (ROOT / room).rglob("*.py") if p.stat().st_size > LEAST
    )
    found: list[Mutant] = []
    while len(found) < count:
        (path,) = rng.choices(paths, weights=[p.stat().st_size for p in paths])
        text = path.read_text("utf-8")
        if not (choices := list(sites(text))):
            continue
        place, new = rng.choice(choices)
        lines = text.splitlines(keepends=True)
        line = lines[place.start[0] - 1]
        lines[place.start[0] - 1] = line[: place.start[1]] + new + line[place.end[1] :]
        made = "".join(lines)
        try:
            compile(made, path, "exec")
        except SyntaxError:
            continue
        column = len(line[: place.start[1]].encode())
        found.append(
            Mutant(
                path.relative_to(ROOT),
                place.start[0],
                place.string,
                new,
                line.strip(),
                made,
                column,
            )
        )
    return found


def sites(text: str) -> Iterator[tuple[tokenize.TokenInfo, str]]:
    """The tokens that may change, with what takes their place: operators between operands, names
    and whole numbers.
    """
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for before, t, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if t.line.lstrip().startswith(LEFT_OUT):
            continue
        if t.type == token.NUMBER and t.string.isdigit():
            yield t, str(int(t.string) + 1)
        elif t.string in CHANGES and before.string not in (".", "def"):
            operand = (
                before.type in (token.NAME, token.NUMBER) and before.string not in BEFORE_OPERANDS
            )
            binary = (operand or before.string in (")", "]")) and after.string not in (",", ")")
            if t.type == token.NAME or t.string not in "+-*" or binary:
                yield t, CHANGES[t.string]


def tests_near(path: Path) -> list[str]:
    """The tests of a module: of its name, of its pass or dialect, and the shortest that mention
    it.
    """
    tests, stem = ROOT / "tests", path.stem
    named = [*tests.rglob(f"test_{stem}*.py"), tests / "filetests" / "passes" / f"{stem}.cvm"]
    if path.parts[0] == "dialect" and len(path.parts) == 3:
        named += [tests / "filetests" / path.parts[1]]
    files = sorted(
        (p for p in tests.rglob("test_*.py") if "robustness" not in p.parts),
        key=lambda p: p.stat().st_size,
    )
    mention = [p for p in files if re.search(rf"\b{stem}\b", p.read_text("utf-8"))][:4]
    return [str(p.relative_to(ROOT)) for p in dict.fromkeys([*named, *mention]) if p.exists()]


def run(checkout: Path, arguments: Sequence[str], seconds: float) -> str:
    """The test that fails; an empty text where all pass."""
    try:
        done = pytest(checkout, ["-x", "-q", *arguments], seconds)
    except subprocess.TimeoutExpired:
        return f"no end within {seconds:.0f} s"
    if done.returncode in (0, 5):  # 5: no tests
        return ""
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0] if failed else f"pytest ends with {done.returncode}"


def pytest(
    checkout: Path, arguments: Sequence[str], seconds: float | None = None
) -> subprocess.CompletedProcess[str]:
    settings = {
        **os.environ,
        "CVM_CACHE_DIR": "",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(checkout),
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        command, cwd=checkout, env=settings, capture_output=True, text=True, timeout=seconds
    )


def reached(
    checkout: Path, chosen: Sequence[tuple[int, Mutant]], tier: Sequence[str]
) -> tuple[list[list[str]], dict[str, float]]:
    """The tests that pass and reach each of the mutants' tokens, and the seconds of each test."""
    (checkout / f"{reach.MODULE}.py").write_text(reach.PROBES, "utf-8")
    for path in {m.path for _, m in chosen}:
        places = {n: (m.line, m.column) for n, m in chosen if m.path == path}
        (checkout / path).write_text(
            reach.probed((ROOT / path).read_text("utf-8"), places), "utf-8"
        )
    printed = pytest(checkout, [*tier, "-q", "-rfE", "--durations=0"]).stdout
    for _, mutant in chosen:
        shutil.copy(ROOT / mutant.path, checkout / mutant.path)
    print(printed.splitlines()[-1], flush=True)
    with (checkout / reach.NOTES).open(encoding="utf-8") as notes:
        found = reach.reaching(notes)
    failed = set(re.findall(r"(?m)^(?:FAILED|ERROR) (.*?)(?: - .*)?$", printed))
    return [sorted(found[n] - failed) for n, _ in chosen], reach.seconds(printed)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tests.fuzz.mutants", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=24)
    parser.add_argument("--near", action="store_true", help="only the tests that name the module")
    parser.add_argument("--all", action="store_true", help="all tests, not the quick tier")
    parser.add_argument("--list", action="store_true", help="only show the mutants")
    parser.add_argument("--only", type=int, nargs="+", help="the numbers of some of the mutants")
    parser.add_argument(
        "--reached", type=Path, help="a file of what the probes noted, written if it is not there"
    )
    parser.add_argument(
        "--seconds", type=int, default=600, help="how long the tests of a mutant take at most"
    )
    options = parser.parse_args()
    drawn = list(enumerate(mutants(options.count, options.seed)))
    survived = 0
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        times: dict[str, float] = {}
        tests: list[list[str]] = [[] for _ in drawn]
        if not options.list:
            shutil.copytree(
                ROOT,
                checkout,
                ignore=shutil.ignore_patterns(".git", ".venv", "build", "__pycache__"),
            )
        if not (options.list or options.near):
            kept = options.reached
            if kept and kept.exists():
                tests, times = json.loads(kept.read_text("utf-8"))
            else:
                tests, times = reached(
                    checkout, drawn, ["-n", "auto", *(["--all"] if options.all else [])]
                )
                if kept:
                    kept.write_text(json.dumps([tests, times]), "utf-8")
        chosen = [(n, m) for n, m in drawn if n in (options.only or [n])]
        for n, mutant in chosen:
            print(
                f"{n:3} {mutant.path}:{mutant.line}: {mutant.old} -> {mutant.new}: "
                f"{mutant.before[:100]}",
                flush=True,
            )
            if options.list:
                continue
            (checkout / mutant.path).write_text(mutant.text, "utf-8")
            those = reach.in_order(tests[n], times, options.seconds) or tests_near(mutant.path)
            failed = run(checkout, those, 60 + 5 * options.seconds) if those else ""
            shutil.copy(ROOT / mutant.path, checkout / mutant.path)
            survived += not failed
            print(f"    {failed or 'SURVIVED'} ({len(tests[n])} tests reach it)", flush=True)
    if not options.list:
        print(f"{len(chosen) - survived} of {len(chosen)} mutants are noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
