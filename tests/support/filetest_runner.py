"""Filetests: a program with its expectations in one file. `docs/testing.md` says how they are written.

A `Filetest` is a file's text taken apart; `COMMANDS` has a function for each `// test` command, which raises
AssertionError where the program is not what the file says, or gives the golden lines as they should be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from available_targets import HERE
from cvm.dialect.program.module import Module
from cvm.dialect.program.printer import print_module
from cvm.lowering.formulas.overflow_warnings import possible_overflows, print_ranges
from cvm.lowering.pipeline import PASSES, context_of
from run_lines import Call, as_array, difference, read_call

import cvm
from cvm.cli import parser
from cvm.commands.opt import listing
from cvm.commands.opt import opt as run_opt

GOLDEN, HEADER = "//>", "//= "
Golden = dict[str, list[str]]  # of each function: its golden lines


@dataclass(frozen=True)
class Expected:
    """An `// error: code: message`, or a warning, at the end of a line."""

    line: int
    code: str
    message: str

    def matches(self, found: cvm.Diagnostic) -> bool:
        return (self.line, self.code) == (found.line, found.code) and found.message.startswith(self.message)


class Filetest:
    """A file taken apart: what the author wrote, and the golden lines after each function."""

    def __init__(self, text: str, path: Path = Path("filetest.cvm")) -> None:
        self.text = text
        self.path = path
        self.lines = text.splitlines()
        self.commands = self._comments("test")
        self.functions = {name: (first, last) for name, first, last in _functions(self.lines)}

    @staticmethod
    def load(path: Path) -> Filetest:
        return Filetest(path.read_text("utf-8"), path)

    def _comments(self, word: str) -> list[str]:
        return [
            line[len(word) + 4 :].strip()
            for line in self.lines
            if line.startswith(f"// {word} ") or line == f"// {word}"
        ]

    @cached_property
    def module(self) -> Module:
        return cvm.load(self.path) if self.path.exists() else cvm.parse(self.text, str(self.path))

    @cached_property
    def calls(self) -> list[tuple[str, Call]]:
        """The `run:` lines; one goes on in the comments below it while brackets are open or it ends with a mark."""
        calls = []
        for n, line in enumerate(self.lines):
            if line.startswith("// run:"):
                text = line.removeprefix("// run:")
                while _goes_on(text) and self.lines[n + 1 : n + 2] and self.lines[n + 1].startswith("//  "):
                    n += 1
                    text += "\n" + self.lines[n].removeprefix("//")
                calls.append((" ".join(text.split()), read_call(text)))
        return calls

    def expected(self, severity: str) -> list[Expected]:
        found = []
        for n, line in enumerate(self.lines, 1):
            for text in line.split(f"// {severity}:")[1:]:
                code, _, message = text.strip().partition(":")
                found.append(Expected(n, code.strip(), message.strip()))
        return found

    def golden(self, command: str) -> Golden:
        """The golden lines of a command that stand after each function."""
        goldens = [c for c in self.commands if c in GOLDENS]
        found: Golden = {}
        for name, (_, last) in self.functions.items():
            current = goldens[0] if len(goldens) == 1 else ""
            for line in _golden_block(self.lines, last):
                if line.startswith(HEADER):
                    current = line.removeprefix(HEADER).strip()
                elif current == command:
                    found.setdefault(name, []).append(line.removeprefix(GOLDEN).removeprefix(" "))
                elif current not in goldens:
                    raise AssertionError(
                        f"golden lines of {current or 'no command'} stand after @{name}; --update-golden removes them"
                    )
        return found

    def with_golden(self, command: str, golden: Golden) -> str:
        """The file's text with these golden lines, and without those of commands that it does not test."""
        goldens = [c for c in self.commands if c in GOLDENS]
        kept = {c: golden if c == command else self._lenient(c) for c in goldens}
        lines = list(self.lines)
        for name, (_, last) in sorted(self.functions.items(), key=lambda f: -f[1][1]):
            block = []
            for c in goldens:
                if name in kept[c]:
                    block += [HEADER + c] if len(goldens) > 1 else []
                    block += [f"{GOLDEN} {line}".rstrip() for line in kept[c][name]]
            lines[last + 1 : last + 1 + len(_golden_block(self.lines, last))] = block
        return "\n".join(lines) + "\n"

    def _lenient(self, command: str) -> Golden:
        try:
            return self.golden(command)
        except AssertionError:
            return {}


def _goes_on(text: str) -> bool:
    return sum(text.count(c) for c in "[(") > sum(text.count(c) for c in "])") or text.rstrip().endswith(
        ("==", "~=", ",")
    )


def _functions(lines: list[str]) -> Iterable[tuple[str, int, int]]:
    """Each function, graph or kernel with its first and last line, from 0: the last is the next `}` indented as the first."""
    for first, line in enumerate(lines):
        if (head := re.match(r"(\s*)(?:func|graph|kernel)\s+@([\w.$-]+)", line)) is not None:
            indent, name = head.groups()
            ends = [n for n in range(first, len(lines)) if lines[n].startswith(indent + "}")]
            yield name, first, ends[0] if ends else first


def _golden_block(lines: list[str], last: int) -> list[str]:
    end = last + 1
    while end < len(lines) and lines[end].startswith((GOLDEN, HEADER)):
        end += 1
    return lines[last + 1 : end]


# The commands that have golden lines: the text of every function


def graph(test: Filetest) -> Golden:
    printed = print_module(test.module)
    again = print_module(cvm.parse(printed)) if "file(" not in printed else printed
    assert again == printed, f"the printed program reads back as another one:\n{again}"
    return {
        name: _lines(print_module(test.module.with_functions({name: f}))) for name, f in test.module.functions.items()
    }


def ranges(test: Filetest) -> Golden:
    noted = print_ranges(test.module)
    if "file(" not in noted:
        again = print_ranges(cvm.parse(noted))
        assert again == noted, f"the program with its ranges reads back as another one:\n{again}"
    return {name: _lines(print_ranges(test.module, [name])) for name in test.module.functions}


def stage(name: str) -> Callable[[Filetest], Golden]:
    def lowered(test: Filetest) -> Golden:
        return {
            entry: _lines(cvm.compile(test.module, entry, "reference").lower(name)) for entry in test.module.functions
        }

    return lowered


def graph_pass(name: str) -> Callable[[Filetest], Golden]:
    """The functions that one graph pass changes, after it."""

    def changed(test: Filetest) -> Golden:
        found = {}
        for entry, function in test.module.functions.items():
            new = PASSES[name].run(function, context_of(test.module, function))
            if new is not function:
                found[entry] = _lines(print_module(test.module.with_functions({entry: new})))
        return found

    return changed


def opt(name: str) -> Callable[[Filetest], Golden]:
    """The output of a pass of `cvm opt` for the whole file, functions or kernels, after its last one.

    A line `// after NAME` names a pass that runs before.
    """

    def changed(test: Filetest) -> Golden:
        pipeline = ",".join([*test._comments("after"), name])
        with TemporaryDirectory() as folder:
            source, output = Path(folder) / test.path.name, Path(folder) / "output"
            source.write_text(test.text, "utf-8")
            run_opt(parser().parse_args(["opt", str(source), "--pipeline", pipeline, "-o", str(output)]))
            return {list(test.functions)[-1]: _lines(output.read_text("utf-8"))}

    return changed


def passes() -> list[str]:
    """The names of `cvm opt --list`."""
    return [line.split()[0] for line in listing() if line.startswith("  ")]


def fmt(test: Filetest) -> Golden:
    from cvm.parser.format import format_text

    found = {}
    for name, (first, last) in test.functions.items():
        once = format_text("\n".join(test.lines[first : last + 1]) + "\n")
        again = format_text(once)
        assert again == once, f"the formatted program is formatted again:\n{again}"
        found[name] = _lines(once)
    return found


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip("\n").split("\n")]


# The commands that have none


def check(test: Filetest) -> None:
    """The mistakes of the program are those that the file expects, as a set."""
    try:
        _ = test.module
        found: list[cvm.Diagnostic] = []
    except cvm.Error as e:
        found = list(e.diagnostics)
    _same_set(test.expected("error"), found)


def overflow(test: Filetest) -> None:
    """The overflows that are possible are those that the file warns of, as a set."""
    _same_set(test.expected("warning"), possible_overflows(test.module))


def _same_set(missing: list[Expected], found: Iterable[cvm.Diagnostic]) -> None:
    unexpected = []
    for d in found:
        match = next((e for e in missing if e.matches(d)), None)
        if match is None:
            unexpected.append(d)
        else:
            missing.remove(match)
    said = [f"expected on line {e.line}, not found: {e.code}: {e.message}" for e in missing]
    said += [f"not expected: line {d.line}: {d}" for d in unexpected]
    if said:
        raise AssertionError("\n".join(said))


def run(test: Filetest) -> None:
    """Every call gives what the file says, on every target that can run here."""
    assert test.calls, "there is no `// run:` line"
    wrong = []
    for target in HERE:
        for text, call in test.calls:
            try:
                said = _call(test.module, call, target)
            except cvm.Error as e:
                said = f"the call failed: {e}"
            if said is not None:
                wrong.append(f"{target}: {text}\n    {said}")
    if wrong:
        raise AssertionError("\n".join(wrong))


def _call(module: Module, call: Call, target: str) -> str | None:
    f = cvm.compile(module, call.function, target)
    declared = [a.known_type for a in f.function.arguments]
    assert len(declared) == len(call.arguments), (
        f"@{call.function} takes {len(declared)} arguments, the line gives {len(call.arguments)}"
    )
    arrays = [as_array(a, t.element.dtype, t.array_shape) for a, t in zip(call.arguments, declared, strict=True)]
    if call.relation == "error:":
        return _fails(f, arrays, call)
    given = [a.copy() for a in arrays]
    results = f(*arrays)
    results = list(results) if isinstance(results, tuple) else [results]
    if len(results) != len(call.results):
        return f"there are {len(results)} results, not {len(call.results)}"
    for n, (result, wanted) in enumerate(zip(results, call.results, strict=True)):
        said = difference(result, as_array(wanted, result.dtype, result.shape), call.relation)
        if said is not None:
            return said if len(results) == 1 else f"result {n}: {said}"
    kept = all(np.array_equal(a, g, equal_nan=a.dtype.kind in "fc") for a, g in zip(arrays, given, strict=True))
    inplace = any("inplace" in a.attributes for a in f.function.arguments)
    return None if kept or inplace else "the call changed its arguments"


def _fails(f: Callable[..., object], arrays: list[np.ndarray], call: Call) -> str | None:
    code, _, message = (part.strip() for part in call.error.partition(":"))
    try:
        result = f(*arrays)
    except cvm.Error as e:
        return (
            None
            if any(d.code == code and d.message.startswith(message) for d in e.diagnostics)
            else f"it failed otherwise: {e}"
        )
    return f"it did not fail, and gave {result}"


def ordered(name: str) -> Callable[[Filetest], None]:
    """The text of a stage has the `check:` lines in their order, and no `check-not:` line between its neighbours."""

    def checked(test: Filetest) -> None:
        text = "\n".join(cvm.compile(test.module, entry, "reference").lower(name) for entry in test.module.functions)
        at, forbidden = 0, list[str]()
        checks = [m.groups() for line in test.lines if (m := re.match(r"// (check|check-not):\s*(.*?)\s*$", line))]
        assert checks, "there is no `// check:` line"
        for word, wanted in [*checks, ("end", "")]:
            if word == "check-not":
                forbidden.append(wanted)
                continue
            end = len(text) if word == "end" else text.find(wanted, at)
            assert end >= 0, f"{wanted!r} does not follow in\n{text[at:]}"
            for unwanted in forbidden:
                assert unwanted not in text[at:end], f"{unwanted!r} stands in\n{text[at:end]}"
            at, forbidden = end + len(wanted), []

    return checked


STAGES = ("formulas", "loops", "strategies", "schedule", "llvm", "cuda")
GOLDENS: dict[str, Callable[[Filetest], Golden]] = {
    "graph": graph,
    "ranges": ranges,
    **{name: stage(name) for name in STAGES},
    "fmt": fmt,
    **{name: opt(name) for name in passes() if name not in STAGES},
    **{name: graph_pass(name) for name, p in PASSES.items() if p.level == "graph"},
}
CHECKS: dict[str, Callable[[Filetest], None]] = {
    "check": check,
    "overflow": overflow,
    "run": run,
    "llvm-opt": ordered("llvm-opt"),
    "asm": ordered("asm"),
}
COMMANDS = (*GOLDENS, *CHECKS)


def perform(test: Filetest, command: str, update: bool = False) -> None:
    """Runs one command of a file; `update` writes its golden lines in place of comparing them."""
    if command in CHECKS:
        CHECKS[command](test)
        return
    assert command in GOLDENS, f"unknown command {command!r}; the commands are {', '.join(COMMANDS)}"
    printed = GOLDENS[command](test)
    if update:
        text = test.with_golden(command, printed)
        if text != test.text:
            test.path.write_text(text, "utf-8")
        return
    written = test.golden(command)
    for name, lines in printed.items():
        assert lines == written.get(name, []), f"@{name}: --update-golden accepts what is printed now"
