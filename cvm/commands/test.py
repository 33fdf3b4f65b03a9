"""`cvm test`: the `// test` lines of .cvm files, run without pytest."""

import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

from cvm.terminal.diagnostics import unescaped
from cvm.terminal.usage import Usage, load_modules, within
from cvm.testing.commands import Skipped, lacking, perform
from cvm.testing.filetest import SUFFIXES, Failure, Filetest, bless, coloured

from .run import progress

Block = tuple[str, list[str]]  # a line, and those below it


def test(options: Namespace) -> int:
    blesses = options.bless or os.environ.get("CVM_BLESS") == "1"
    if blesses and options.k is not None:
        raise Usage("golden lines are written for whole files, without -k")
    if options.jobs < 1:
        raise Usage(f"-j takes a number of processes from 1 on, got {options.jobs}")
    selected = {path: _selected(path, options.k) for path in _files(options.paths)}
    if options.k is not None and not any(selected.values()):
        raise Usage(f"no test has {options.k!r} in its name")
    if options.list:
        lines = [f"{path}: {command}\n" for path in selected for command in selected[path]]
        print(*lines, sep="", end="")
        return 0
    total: Counter[str] = Counter()
    with progress(len(selected), " files") as advance, _workers(options) as spread:
        for counts, blocks in spread(_run, selected, selected.values(), repeat(blesses)):
            total += counts
            for head, lines in blocks:
                print(head)
                print(
                    "".join(f"{line}\n" for line in coloured(lines, sys.stdout.isatty())),
                    end="",
                    file=unescaped(sys.stdout),
                )
            advance(1)
    print(", ".join(f"{total[o]} {o}" for o in ("passed", "failed", "skipped") if total[o]))
    return 1 if total["failed"] else 0


@contextmanager
def _workers(options: Namespace) -> Iterator[Callable[..., Iterable[Any]]]:
    """A `map` over this process, or over several."""
    if options.jobs == 1:
        yield map
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    start = (get_context("spawn"), _begin, (options.load, options.limits))
    with ProcessPoolExecutor(options.jobs, *start) as pool:
        yield pool.map


def _begin(modules: list[str], limits: str) -> None:
    """Take the options of the command over into a process of its own."""
    load_modules(modules)
    within(limits).__enter__()


def _selected(path: Path, text: str | None) -> list[str]:
    """The commands of a file that have the text in their names."""
    named = dict.fromkeys(Filetest.load(path).commands)
    return [c for c in named if text is None or text in f"{path}: {c}"]


def _run(path: Path, commands: list[str], blesses: bool) -> tuple[Counter[str], list[Block]]:
    """Run the commands of a file: the number of each outcome, and the blocks to print."""
    counts: Counter[str] = Counter()
    blocks: list[Block] = []
    for command in commands:
        try:
            diff = perform(Filetest.load(path), command, blesses)
        except Skipped:
            pass
        except Failure as e:
            counts["failed"] += 1
            blocks.append((f"{path}: {command}: FAILED", [str(e.args[0]), *e.diff]))
        else:
            counts["passed"] += 1
            if diff:
                blocks.append((f"{path}: {command}: golden lines written", diff))
        for target, reason in lacking(Filetest.load(path).command(command)).items():
            counts["skipped"] += 1
            blocks.append((f"{path}: {command}: skipped: target {target}: {reason}", []))
    if blesses and commands:
        bless(path)
    if problems := [f"{path}:{n}: {said}" for n, said in Filetest.load(path).problems()]:
        counts["failed"] += 1
        blocks.append((f"{path}: comments: FAILED", problems))
    return counts, blocks


def _files(paths: list[str]) -> Iterator[Path]:
    for name in paths:
        if not (path := Path(name)).exists():
            raise Usage(f"there is no file or folder {name}")
        found = (p for suffix in SUFFIXES for p in path.rglob(f"*{suffix}"))
        files = sorted(found) if path.is_dir() else [path]
        if not (tests := [p for p in files if Filetest.load(p).is_test()]):
            raise Usage(f"{name} holds no tests: no `// test` line in a .cvm or .loops file")
        yield from tests
