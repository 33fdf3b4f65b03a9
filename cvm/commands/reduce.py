"""`cvm reduce`: shrink a program on which a command fails, as long as it goes on failing:
functions, operations, numbers.

Every program that is tried is verified first, so that the command fails for its own reason.
Operations become arguments, lines of kernels go, and numbers, in types, attributes and constants,
become smaller.
"""

import re
import shlex
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import cvm
from cvm.dialect.ir.function import Function, Graph
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.program_printer import print_module
from cvm.dialect.support.files import write_file
from cvm.terminal.files import read, write
from cvm.terminal.read_program import read_level
from cvm.terminal.usage import Usage

Interesting = Callable[[str], bool]
START = r"(?<![\w%@?])(?<!\d\.)"  # of a number: not inside of a name or of another number


def reduce(options: Namespace) -> int:
    text = read(options.program).decode("utf-8", "replace")
    folder = Path() if options.program == "-" else Path(options.program).parent
    read_level(options.program, text)
    with tempfile.NamedTemporaryFile("w", suffix=".cvm", prefix=".reduce-", dir=folder) as file:
        path = Path(file.name)
        if (status := _run(path, text, options)) == 0:
            expected = f" with {options.expect!r}" if options.expect else ""
            raise Usage(f"--test does not fail on {options.program}{expected}")
        tried: list[int] = []  # the status of the command on each program

        def interesting(candidate: str) -> bool:
            try:
                read_level(str(path), candidate)
            except cvm.Error:
                return False
            tried.append(_run(path, candidate, options))
            return tried[-1] == status

        before = len(text.splitlines())
        text = shrunk(text, interesting, str(path))
    print(
        f"{before} lines to {len(text.splitlines())}, {len(tried)} programs tried", file=sys.stderr
    )
    write(options.output, text.encode())
    return 0


def _run(path: Path, text: str, options: Namespace) -> int:
    """The status of the command on a program; 0 also where it fails otherwise than expected."""
    write_file(path, text.encode())
    words = shlex.split(options.test)
    command = (
        [w.replace("{}", str(path)) for w in words] if "{}" in options.test else [*words, str(path)]
    )
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=options.timeout
        )
    except OSError as e:
        raise Usage(f"--test {options.test}: {e.strerror}") from None
    except subprocess.TimeoutExpired:
        return 0
    return done.returncode if options.expect in done.stdout + done.stderr else 0


def shrunk(text: str, interesting: Interesting, name: str) -> str:
    """The text after every way to make it smaller has been tried, until none helps."""
    while True:
        before = text
        for candidates in (_modules, _lines, _numbers):
            while smaller := next(
                (c for c in candidates(text, name) if c != text and interesting(c)), None
            ):
                text = smaller
        if text == before:
            return text


def _modules(text: str, name: str) -> Iterator[str]:
    """Programs with a function less, a result less, an operation less, whose results become
    arguments, or an argument less.
    """
    if not isinstance(program := read_level(name, text), Module):
        return
    for key in program.named:
        if len(program.named) > 1:
            yield print_module(
                program.with_functions({k: f for k, f in program.functions.items() if k != key})
            )
    for key, function in program.named.items():
        if not isinstance(function, Graph):
            for smaller in _functions(function):
                yield print_module(program.with_functions({**program.functions, key: smaller}))


def _functions(f: Function) -> Iterator[Function]:
    f = replace(f, declared=None, return_spans=())
    for n in range(len(f.results)):
        if len(f.results) > 1:
            yield replace(f, results=(*f.results[:n], *f.results[n + 1 :]))
    used = {v for o in f.operations for _, v in o.operator.operands()} | set(f.results)
    for operation in reversed(f.operations):
        remaining = tuple(o for o in f.operations if o is not operation)
        results = tuple(r for r in operation.results if r in used)
        if results == f.results and (
            operands := [v for _, v in operation.operator.operands() if v in used]
        ):
            yield replace(f, operations=remaining, results=tuple(operands[:1]))
        yield replace(f, operations=remaining, arguments=(*f.arguments, *results))
    for argument in f.arguments:
        if argument not in used:
            yield replace(f, arguments=tuple(a for a in f.arguments if a is not argument))


def _lines(text: str, _: str) -> Iterator[str]:
    """Texts without a comment or a statement, with the block that it opens or without its
    braces.
    """
    lines = text.splitlines(keepends=True)
    for n, line in enumerate(lines):
        end = n + 1
        if line.rstrip().endswith("{"):
            indent = len(line) - len(line.lstrip())
            end = (
                next(
                    (
                        k
                        for k in range(n + 1, len(lines))
                        if lines[k].startswith(" " * indent + "}")
                    ),
                    n,
                )
                + 1
            )
            yield "".join(lines[:n] + lines[n + 1 : end - 1] + lines[end:])
        yield "".join(lines[:n] + lines[end:])


def _numbers(text: str, _: str) -> Iterator[str]:
    """Texts with smaller sizes, each everywhere, and with constants that are one number; then with
    smaller single numbers.
    """
    for literal in re.finditer(r"dense<(\[[^>]*\])>", text):
        for value in (0, 1):
            yield text[: literal.start(1)] + str(value) + text[literal.end(1) :]
    sizes = {
        int(m) for t in re.findall(r"tensor<([^>]*)>", text) for m in re.findall(r"\d+(?=x| x )", t)
    }
    for size in sorted(sizes, reverse=True):
        for smaller in dict.fromkeys((1, 2, size // 2, size - 1)):
            if 0 < smaller < size:
                yield re.sub(rf"{START}{size}(?=x|\b)|(?<=x){size}(?=x)", str(smaller), text)
    for m in re.finditer(rf"tensor<[^>]*>|{START}(-?\d+)\b", text):
        for smaller in dict.fromkeys((0, 1, abs(int(m[1] or 0)) // 2)):
            if m[1] and smaller < abs(int(m[1])):
                yield text[: m.start(1)] + str(smaller) + text[m.end(1) :]
