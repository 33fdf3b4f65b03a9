"""The commands of filetests: `COMMANDS` has a function for each, which gives its text, or raises
Failure.

In: a `Filetest` and one of its commands. The text of a stage or of passes is compared with golden
lines, or with `check:` lines; `perform` does that, or blesses: it writes the golden lines and gives
the diff (docs/testing.md).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from difflib import unified_diff
from itertools import takewhile

import numpy as np

import cvm
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.program_printer import bodies_of, print_function, print_module
from cvm.dialect.kernel_ir.execution_plan import Plan
from cvm.dialect.support.suggest import did_you_mean
from cvm.dialect.types.tensor_types import kind_of
from cvm.jit.functions.clocked_program import CompiledGraph
from cvm.jit.host_processor import resolve
from cvm.jit.targets import all_stages, find_target
from cvm.lowering.formulas.overflow_warnings import possible_overflows, print_ranges
from cvm.lowering.passes import run_passes
from cvm.lowering.pipeline import context_of
from cvm.lowering.processor import compiling_for
from cvm.terminal.arguments import random_arrays
from cvm.terminal.display import digest as sha256
from cvm.terminal.read_program import (
    Level,
    bind_sizes,
    compiled,
    entries,
    read_level,
    reader_of,
    targets_of,
    warnings_of,
)
from cvm.terminal.run_pipeline import all_passes, text_after
from cvm.terminal.usage import Usage

from .checks import Mismatch, check_text
from .command_names import OWN, names
from .filetest import CHECK_ONLY, Command, Expected, Failure, Filetest, Golden, bless
from .lines import Call, as_array, difference, read_call

OPTIONS = {
    "target": ("run", "digest", "opt"),
    "seed": ("digest",),
    "cpu": (),
}  # by whom each is taken; () is all


class Skipped(Exception):
    """A command cannot run here; the message says why."""


def perform(test: Filetest, text: str, update: bool = False) -> list[str]:
    """Run one command of a file; raise Failure where it disagrees, or by `update` write golden
    lines; the diff.
    """
    command = test.command(text)
    at = f"{test.path}:{command.line}"
    if command.name not in names():
        suggestion = (
            did_you_mean(command.name, names()) or f"; the commands are {', '.join(names())}"
        )
        raise Failure(f"{at}: unknown command {command.name!r}{suggestion}")
    try:
        with (
            compiling_for(resolve(command.options["cpu"]))
            if "cpu" in command.options
            else nullcontext()
        ):
            for name in OPTIONS.keys() & command.options.keys():
                if OPTIONS[name] and command.name not in OPTIONS[name]:
                    raise Usage(f"{name}= is for {', '.join(OPTIONS[name])}")
            if command.name != "opt" and len(command.words) > 1:
                raise Usage(f"expected options such as cpu=x86-64-v3, got {command.words[1]!r}")
            printed = _COMMANDS.get(command.name, _text)(test, command)
    except (Usage, cvm.Error) as e:
        raise Failure(f"{at}: `// test {text}`: {e}") from None
    if printed is None:
        return []
    if checks := test.checks.get(text):
        try:
            check_text("\n".join(line for lines in printed.values() for line in lines), checks)
        except Mismatch as e:
            raise Failure(f"{test.path}:{e.args[0]}: {e.args[1]}") from None
        return []
    if command.name in CHECK_ONLY:
        raise Failure(f"{at}: there is no `// check:` line after `// test {text}`")
    if update:
        return bless(test.path, text, printed)
    written = test.golden(text)
    for name in dict.fromkeys((*printed, *written)):
        if printed.get(name, []) != written.get(name, []):
            raise _differs(test, text, name, written.get(name, []), printed.get(name, []))
    return []


def _differs(
    test: Filetest, command: str, name: str, written: list[str], printed: list[str]
) -> Failure:
    line = test.golden_line(command, name)
    said = (
        f"{test.path}:{line}: `{command}` of @{name} prints something else than its golden lines; "
    )
    said += (
        f"{'' if written else 'there are none yet; '}`cvm test --bless` or `pytest "
        "--cvm-bless` writes them"
    )

    def shifted(m: re.Match[str]) -> str:
        return f"@@ -{int(m[1]) + line - 1 if written else line}{m[2]}"

    diff = unified_diff(written, printed, str(test.path), "printed now", lineterm="")
    return Failure(said, [re.sub(r"^@@ -(\d+)(.*)", shifted, d) for d in diff])


def _program(test: Filetest, command: Command) -> Level:
    """The program of the file, with the sizes that the command names."""
    sizes = {name: value for name, value in command.options.items() if name not in OPTIONS}
    if not all(map(str.isdigit, sizes.values())):
        raise Usage(f"expected {', '.join(f'{o}=' for o in OPTIONS)} or a size, NAME=number")
    data = test.text.encode()
    if reader_of(data) is not None:  # where // divides: the expectations become blanks
        data = re.sub(rb" // (error|warning):[^\n]*", lambda m: b" " * len(m[0]), data)
    program = read_level(str(test.path), data)
    if steps := "\n".join(re.findall(r"^// schedule (.*)", test.text, re.MULTILINE)):
        program = cvm.schedule(program).apply(steps, f"{test.path}: schedule").plan
    return (
        bind_sizes(program, {name: int(value) for name, value in sizes.items()})
        if sizes
        else program
    )


def _module(test: Filetest, command: Command) -> Module:
    if not isinstance(program := _program(test, command), Module):
        raise Usage(
            f"it is for programs of functions, and the file holds {type(program).__name__.lower()}"
        )
    return program


# The commands that print text


def _text(test: Filetest, command: Command) -> Golden:
    """The text of a stage, or what a pass makes of the program."""
    name = command.name
    program = _program(test, command)
    if name in all_stages():
        golden = {entry: _lines(compiled(program, entry).lower(name)) for entry in entries(program)}
        return golden if isinstance(program, Module) else _whole(test, golden[program.name])
    if (
        isinstance(program, Module)
        and (p := all_passes().get(name)) is not None
        and p.level == "graph"
    ):
        golden = {}
        for entry, function in program.named.items():
            if (new := run_passes([p], function, context_of(program, function))) is not function:
                golden[entry] = _lines(print_function(new))
        return golden
    return _whole(test, _lines(text_after(program, name)))


def opt(test: Filetest, command: Command) -> Golden:
    """The whole file after a pipeline of `cvm opt`, after its last function."""
    pipeline = " ".join(command.words[1:])
    return _whole(
        test, _lines(text_after(_program(test, command), pipeline, command.options.get("target")))
    )


def graph(test: Filetest, command: Command) -> Golden:
    """The text of each function, for `ranges` with its ranges; it reads back as the same
    program.
    """
    module, show = (
        _module(test, command),
        print_ranges if command.name == "ranges" else print_module,
    )
    if "file(" not in (printed := show(module)):
        _reads_back(printed, show(cvm.parse(printed)))
    if show is print_ranges:
        return {name: _lines(print_ranges(module, [name])) for name in module.named}
    bodies = bodies_of(module)
    return {name: _lines(print_function(f, bodies=bodies)) for name, f in module.named.items()}


def _reads_back(printed: str, again: str) -> None:
    if again != printed:
        diff = unified_diff(
            printed.splitlines(), again.splitlines(), "printed", "read back", lineterm=""
        )
        raise Failure("the printed program reads back as another one:", diff)


def _whole(test: Filetest, lines: list[str]) -> Golden:
    if not test.functions:
        raise Failure(f"{test.path} has no function after which golden lines could stand")
    return {[*test.functions][-1]: lines}


def fmt(test: Filetest, command: Command) -> Golden:
    from cvm.parser.format import format_text

    golden = {}
    for name, (first, last) in test.functions.items():
        once = format_text("\n".join(test.lines[first : last + 1]) + "\n")
        _reads_back(once, format_text(once))
        golden[name] = _lines(once)
    return golden


def digest(test: Filetest, command: Command) -> Golden:
    """The SHA-256 of each result of every function, for random arguments that a seed gives."""
    if not (seed := command.options.get("seed", "0")).isdigit():
        raise Usage(f"expected seed=number, got {seed}")
    program, texts = _program(test, command), {}
    for entry in entries(program):
        for target in _targets(command, ["cpu"]):
            if isinstance(f := compiled(program, entry, target), CompiledGraph):
                raise Usage(f"@{entry} is a graph; digests are of functions")
            returned = f(*random_arrays(f.function, int(seed)))
            results = returned if isinstance(returned, tuple) else (returned,)
            lines = [
                f"%{v.name} sha256 {sha256(r)}"
                for v, r in zip(f.function.results, results, strict=True)
            ]
            if texts.setdefault(entry, lines) != lines:
                raise Failure(
                    f"@{entry} gives other bits on {target}:",
                    unified_diff(texts[entry], lines, lineterm=""),
                )
    return (
        texts
        if isinstance(program, Module)
        else _whole(test, [line for x in texts.values() for line in x])
    )


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip("\n").split("\n")]


# The commands that print none


def check(test: Filetest, command: Command) -> None:
    """The mistakes of the program are those that the file expects, as a set."""
    diagnostics: Iterable[cvm.Diagnostic] = ()
    try:
        if isinstance(program := _program(test, command), Plan):
            _same_set(test, test.expected("warning"), warnings_of(program))
    except cvm.Error as e:
        diagnostics = e.diagnostics
    _same_set(test, test.expected("error"), diagnostics)


def overflow(test: Filetest, command: Command) -> None:
    """The overflows that are possible are those that the file warns of, as a set."""
    _same_set(test, test.expected("warning"), possible_overflows(_module(test, command)))


def _same_set(
    test: Filetest, missing: list[Expected], diagnostics: Iterable[cvm.Diagnostic]
) -> None:
    unexpected = []
    for d in diagnostics:
        matches = [
            e for e in missing if (e.line, e.code) == (d.line, d.code) and _says(d, e.message)
        ]
        if matches:
            missing.remove(matches[0])
        else:
            unexpected.append(f"{test.path}:{d.line}: not expected: {d}")
    if lines := [
        *(f"{test.path}:{e.line}: expected, not found: {e.code}: {e.message}" for e in missing),
        *unexpected,
    ]:
        raise Failure("\n".join(lines))


def _says(d: cvm.Diagnostic, beginning: str) -> bool:
    """Test whether the message of a diagnostic, or a note such as the rule's text, begins so."""
    return any(said.startswith(beginning) for said in (d.message, *(n.message for n in d.notes)))


def run(test: Filetest, command: Command) -> None:
    """Every call gives what the file says, on every target that can run here."""
    if not (calls := list(calls_of(test))):
        raise Failure(f"{test.path}:{command.line}: there is no `// run:` line")
    program, wrong = _program(test, command), []
    for target in _targets(command, targets_of(program)):
        for line, text, call in calls:
            try:
                said = _call(program, call, target)
            except cvm.Error as e:
                said = f"the call failed: {e}"
            if said is not None:
                wrong.append(f"{test.path}:{line}: {target}: {text}\n    {said}")
    if wrong:
        raise Failure("\n".join(wrong))


def lacking(command: Command) -> dict[str, str]:
    """The targets that a command names and that cannot run here, with the reasons; none of an
    unknown target.
    """
    if command.name not in ("run", "digest") or "target" not in command.options:
        return {}
    with suppress(cvm.TargetError):
        reasons = {t: find_target(t).missing() for t in command.options["target"].split(",")}
        return {target: reason for target, reason in reasons.items() if reason}
    return {}


def _targets(command: Command, default: list[str]) -> list[str]:
    """The targets that the command names, or these, as far as they can run here; Skipped where none
    can.
    """
    chosen = command.options["target"].split(",") if "target" in command.options else default
    for name in chosen:
        try:
            find_target(name)
        except cvm.TargetError as e:
            raise Usage(f"{e}") from None
    reasons = lacking(command)
    if not (able := [name for name in chosen if name not in reasons]):
        raise Skipped("; ".join(f"target {name}: {reason}" for name, reason in reasons.items()))
    return able


def calls_of(test: Filetest) -> Iterable[tuple[int, str, Call]]:
    """The `run:` lines; one goes on in the comments below it while brackets are open or it ends
    with a mark.
    """
    for n, line in enumerate(test.lines):
        if line.startswith("// run:"):
            first, text = n + 1, line.removeprefix("// run:")
            for more in takewhile(lambda more: more.startswith("//  "), test.lines[first:]):
                opened = sum(text.count(c) for c in "[(") > sum(text.count(c) for c in "])")
                if not opened and not text.rstrip().endswith(("==", "~=", ",")):
                    break
                text += "\n" + more.removeprefix("//")
            try:
                yield first, " ".join(text.split()), read_call(text)
            except (ValueError, TypeError) as e:
                raise Failure(f"{test.path}:{first}: {e}") from None


def _call(program: Level, call: Call, target: str) -> str | None:
    f = compiled(program, call.function, target)
    if len(declared := [a.known_type for a in f.function.arguments]) != len(call.arguments):
        return (
            f"@{call.function} takes {len(declared)} arguments, the line gives "
            f"{len(call.arguments)}"
        )
    try:
        arrays = [
            as_array(a, t.element.dtype, t.array_shape)
            for a, t in zip(call.arguments, declared, strict=True)
        ]
    except ValueError as e:
        return str(e)
    if call.relation == "error:":
        return _fails(f, arrays, call)
    copies = [a.copy() for a in arrays]
    results = f(*arrays)
    results = list(results) if isinstance(results, tuple) else [results]
    if len(results) != len(call.results):
        return f"there are {len(results)} results, not {len(call.results)}"
    for n, (result, expected) in enumerate(zip(results, call.results, strict=True)):
        if (
            said := difference(
                result, as_array(expected, result.dtype, result.shape), call.relation
            )
        ) is not None:
            return said if len(results) == 1 else f"result {n}: {said}"
    pairs = [
        p for n, p in enumerate(zip(arrays, copies, strict=True)) if n not in f.overwritten.values()
    ]
    is_unchanged = all(np.array_equal(a, g, equal_nan=kind_of(a.dtype) in "fc") for a, g in pairs)
    return None if is_unchanged else "the call changed its arguments"


def _fails(f: Callable[..., object], arrays: list[np.ndarray], call: Call) -> str | None:
    code, _, message = (part.strip() for part in call.error.partition(":"))
    try:
        result = f(*arrays)
    except cvm.Error as e:
        expected = any(d.code == code and _says(d, message) for d in e.diagnostics)
        return None if expected else f"it failed otherwise: {e}"
    return f"it did not fail, and gave {result}"


_COMMANDS: Mapping[str, Callable[[Filetest, Command], Golden | None]] = dict(
    zip(OWN, (run, check, overflow, fmt, digest, opt, graph, graph), strict=True)
)
