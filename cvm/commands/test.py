"""`cvm test`: the `// test` lines of .cvm files, run without pytest."""

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from cvm.terminal.diagnostics import unescaped
from cvm.terminal.usage import Usage
from cvm.testing.commands import Skipped, lacking, perform
from cvm.testing.filetest import Failure, Filetest, bless, coloured


def test(options: Namespace) -> int:
    blesses = options.bless or os.environ.get("CVM_BLESS") == "1"
    if blesses and options.k is not None:
        raise Usage("golden lines are written for whole files, without -k")
    selected = 0
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for path in [*_files(options.paths)]:
        named = dict.fromkeys(Filetest.load(path).commands)
        commands = [c for c in named if options.k is None or options.k in f"{path}: {c}"]
        selected += len(commands)
        if options.list:
            print(
                *(f"{path}: {command}" for command in commands), sep="\n", end="\n" * bool(commands)
            )
            continue
        for command in commands:
            try:
                diff = perform(Filetest.load(path), command, blesses)
            except Skipped:
                pass
            except Failure as e:
                counts["failed"] += 1
                _show(f"{path}: {command}: FAILED", [str(e.args[0]), *e.diff])
            else:
                counts["passed"] += 1
                _show(f"{path}: {command}: golden lines written", diff) if diff else None
            for target, reason in lacking(Filetest.load(path).command(command)).items():
                counts["skipped"] += 1
                print(f"{path}: {command}: skipped: target {target}: {reason}")
        if blesses and commands:
            bless(path)
        if problems := [f"{path}:{n}: {said}" for n, said in Filetest.load(path).problems()]:
            counts["failed"] += 1
            _show(f"{path}: comments: FAILED", problems)
    if not selected and options.k is not None:
        raise Usage(f"no test has {options.k!r} in its name")
    print(
        ", ".join(f"{n} {outcome}" for outcome, n in counts.items() if n),
        end="\n" * (not options.list),
    )
    return 1 if counts["failed"] else 0


def _files(paths: list[str]) -> Iterator[Path]:
    for name in paths:
        if not (path := Path(name)).exists():
            raise Usage(f"there is no file or folder {name}")
        files = sorted(path.rglob("*.cvm")) if path.is_dir() else [path]
        if not (tests := [p for p in files if Filetest.load(p).is_test()]):
            raise Usage(f"{name} holds no tests: no `// test` line in a .cvm file")
        yield from tests


def _show(head: str, lines: list[str]) -> None:
    print(head)
    print("\n".join([*coloured(lines, sys.stdout.isatty()), ""]), file=unescaped(sys.stdout))
