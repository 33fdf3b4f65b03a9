"""`cvm selftest`: one digest of a fixed set of programs, the same on every machine that keeps the
promises of docs/promises.md.

`selftest.txt` has the recorded digest of each part. Those of `exact` parts hold on every target,
also without optimization, and those of all parts where code is optimized. A part is exact if its
formulas have neither a sum or product of floats nor a function that IEEE 754 does not round, and
the reference gave the same when it was recorded.
"""

import os
import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

import cvm
from cvm.dialect.kernel_ir.scalar_functions import SCALARS
from cvm.dialect.support.files import write_file
from cvm.jit.options import TargetName
from cvm.terminal.usage import Usage
from cvm.testing.selftest_set import Part, parts

from .run import progress

DIGITS = 16  # of a part's digest
MOST_NAMED = 10  # parts that differ
EXACT, ROUNDED = "exact", "rounded"
INEXACT = re.compile(
    rf"\b({'|'.join(n for n, f in SCALARS.items() if f.ulps)})\(|\b(sum|prod|add|mul)\[|\bfma\("
)


@dataclass(frozen=True)
class Line:
    """A part's line of a report: its digest, and the kind of its arithmetic."""

    digest: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.digest} {self.kind:7} {self.name}"


def recorded() -> dict[str, Line]:
    """The lines of the recorded report, by the names of their parts."""
    text = (files("cvm") / "commands" / "selftest.txt").read_text("utf-8")
    lines = (Line(*line.split()) for line in text.splitlines())
    return {line.name: line for line in lines}


def selftest(options: Namespace) -> int:
    blesses = options.bless or os.environ.get("CVM_BLESS") == "1"
    known = {} if blesses else recorded()
    every = [p for p in parts() if fnmatchcase(p.name, options.only)]
    if options.target == "reference" or not options.optimize:
        every = [p for p in every if p.name in known and known[p.name].kind == EXACT]
    if not every:
        raise Usage(f"--only {options.only}: no part has such a name")
    before = cvm.get_num_threads()
    try:
        if options.threads is not None:
            cvm.set_num_threads(options.threads)
        with progress(len(every), " parts") as advance:
            lines = []
            for part in every:
                line = line_of(part, options.target, options.optimize, known)
                if blesses and line.kind == EXACT:
                    same = line_of(part, "reference", options.optimize).digest == line.digest
                    line = line if same else replace(line, kind=ROUNDED)
                lines.append(line)
                advance(1)
    finally:
        cvm.set_num_threads(before)
    if blesses:
        path = Path(str(files("cvm") / "commands" / "selftest.txt"))
        write_file(path, "".join(f"{line}\n" for line in lines).encode())
    if options.report:
        print("\n".join(map(str, lines)))
    return verdict(lines, {line.name: line for line in lines} if blesses else known)


def verdict(lines: Sequence[Line], known: Mapping[str, Line]) -> int:
    """Print the digests of all parts and of the exact ones, and whether they are the recorded ones:
    0 if they are, else 1.
    """
    exact = [line for line in lines if line.kind == EXACT]
    print(f"exact {total(exact)} ({len(exact)} parts)")
    if len(exact) < len(lines):
        print(f"whole {total(lines)} ({len(lines)} parts)")
    differing = [line for line in lines if known.get(line.name) != line]
    for line in differing[:MOST_NAMED]:
        print(
            f"differs: {line}, recorded {known[line.name].digest if line.name in known else 'none'}"
        )
    if len(differing) > MOST_NAMED:
        print(f"and {len(differing) - MOST_NAMED} more: --report lists all")
    print("differs" if differing else "equal")
    return 1 if differing else 0


def line_of(part: Part, target: TargetName, optimize: int, known: Mapping[str, Line] = {}) -> Line:
    """The line of a part that is computed on a target; its kind is the recorded one, or else that
    of its formulas.
    """
    functions = []

    def compile(*program: object) -> Any:
        functions.append(cvm.compile(*program, target=target, optimize=optimize))
        return functions[-1]

    with np.errstate(all="ignore"):
        arrays = part.outcome(compile)
    if part.name in known:
        kind = known[part.name].kind
    else:
        kind = ROUNDED if any(INEXACT.search(f.lower("formulas")) for f in functions) else EXACT
    return Line(digest(arrays), kind, part.name)


def digest(arrays: Sequence[np.ndarray]) -> str:
    """A digest of arrays: element types, shapes and little-endian elements, all NaNs being one."""
    found = sha256()
    for array in map(np.asarray, arrays):
        plain = np.ascontiguousarray(array)
        found.update(f"{plain.dtype.name} {array.shape} ".encode())
        floats = plain.view(f"f{plain.dtype.itemsize // 2}") if plain.dtype.kind == "c" else plain
        if floats.dtype.kind == "f":
            floats = np.where(np.isnan(floats), np.array(np.nan, floats.dtype), floats)
        found.update(floats.astype(floats.dtype.newbyteorder("<")).tobytes())
    return found.hexdigest()[:DIGITS]


def total(lines: Sequence[Line]) -> str:
    """The digest of several parts."""
    return sha256("".join(f"{line.name} {line.digest}\n" for line in lines).encode()).hexdigest()
