"""`cvm prove`: prove that functions of a program, a function before and after passes, or programs
before and after the patterns of a package, give the same results for all inputs.
"""

import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, groupby
from pathlib import Path
from textwrap import dedent

import cvm
from cvm.dialect.builtin import Data
from cvm.dialect.ir.function import Function, Graph, Rewrite
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.program_printer import print_module
from cvm.dialect.spec.operator import OPERATORS
from cvm.dialect.support.entry_points import load_module, load_offered
from cvm.jit.compile import find
from cvm.lowering.graph.patterns import PATTERNS, Pattern, of_simplified
from cvm.terminal.files import load, write
from cvm.terminal.run_pipeline import chosen_passes, complete
from cvm.terminal.usage import Usage
from cvm.testing.check_rules import rewritten_programs

try:
    from cvm.proving.equivalence import (
        Program,
        Verdict,
        program_after,
        program_of,
        prove as _prove,
        same_signature,
    )
except ImportError:
    raise Usage("proofs need z3: pip install 'cvm-lang[prove]'") from None


@dataclass(frozen=True)
class Pair:
    """Two programs that are held equal."""

    left: Program
    right: Program
    module: Module  # with the functions of both, or of the left one where the other is no function
    has_both: bool = True


LONGEST = 86_400  # seconds for a question to z3: a day
UNMATCHED = Verdict(reason="it matches no program made of the operators' examples")


def prove(options: Namespace) -> int:
    if options.pipeline and options.equal:
        raise Usage("--equal compares functions, --pipeline a function before and after passes")
    if not 0 < options.seconds <= LONGEST:
        raise Usage(f"--seconds {options.seconds:g}: expected a number above 0, up to {LONGEST}")
    if options.program != "-" and not Path(options.program).suffix:
        pairs = _of_package(options.program)
    else:
        module = load(options.program)
        pairs = _after(module, options) if options.pipeline else _equal(module, options.equal)
        if not (options.pipeline or options.equal):
            pairs = chain(map(_of_rewrite, module.rewrites.values()), pairs)
    verdicts: list[Verdict] = []
    for label, group in groupby(pairs, lambda item: item[0]):
        found: list[Verdict] = []
        for _, pair in group:
            found.append(_prove(pair.left, pair.right, options.seconds) if pair else UNMATCHED)
            if pair and found[-1].wrong is not None:
                print(f"{label}: wrong", flush=True)
                _show(pair, found[-1], options)
                break
        else:
            counts = Counter(map(str, found)).items()
            several = len(found) > 1
            texts = [f"{text}{f' ({n} programs)' if several else ''}" for text, n in counts]
            print(f"{label}: {', '.join(texts)}", flush=True)
        verdicts += found
    wrong = sum(v.wrong is not None for v in verdicts)
    return 1 if wrong or (options.strict and not all(v.proved for v in verdicts)) else 0


def _of_package(name: str) -> Iterator[tuple[str, Pair | None]]:
    """The programs that the patterns of a package rewrite, before and after; one pattern by one."""
    sys.path.insert(0, os.getcwd())
    load_module(name, "prove")
    package = name.partition(".")[0]
    load_offered("cvm.dialects")
    own = [p for p in map(of_simplified, OPERATORS.values()) if p is not None]
    folder = Path(getattr(sys.modules[package], "__file__", None) or package).parent.resolve()
    rewrites = [
        p.rewrite
        for p in PATTERNS.values()
        if p.rewrite and folder in Path(p.rewrite.span.source.filename).resolve().parents
    ]
    patterns = [p for p in (*PATTERNS.values(), *own) if p.package == package]
    if not patterns and not rewrites:
        raise Usage(f"{name} has no pattern, no rewrite, and no operator with `simplified`")
    yield from map(_of_rewrite, rewrites)
    pairs: dict[Pattern, list[Pair]] = {p: [] for p in patterns}
    for op in [op for op in OPERATORS.values() if op.example.strip()]:
        if not any(issubclass(op, p.roots) for p in patterns):
            continue
        function = [*cvm.parse(dedent(op.example)).functions.values()][-1]
        for before, after, applied in rewritten_programs(op, function):
            functions = {f.name: f for f in (before, replace(after, name="rewritten"))}
            module = Module(functions)
            left, right = (program_of(module, n) for n in functions)
            for p in applied:
                if p in pairs:
                    pairs[p].append(Pair(left, right, module))
    for pattern, found in pairs.items():
        label = f"{pattern.name} of {package}"
        yield from ((label, pair) for pair in found or [None])


def _of_rewrite(rewrite: Rewrite) -> tuple[str, Pair]:
    """The two programs of a rewrite."""
    programs = {"before": rewrite.before, "after": rewrite.after}
    functions = {
        (name := f"{rewrite.name}_{side}"): replace(f, name=name) for side, f in programs.items()
    }
    module = Module(functions)
    left, right = (program_of(module, name) for name in functions)
    return f"rewrite @{rewrite.name}", Pair(left, right, module)


def _equal(module: Module, given: Sequence[str]) -> Iterator[tuple[str, Pair | None]]:
    """The functions to compare: those of `--equal`, or those that share a signature with another
    one, each with the first of these.
    """
    names = [_names(item) for item in given]
    if not names:
        called = {n for f in module.functions.values() for n in _callees(f)}
        free = [f for n, f in module.functions.items() if n not in called and _is_function(f)]
        taken: set[str] = set()
        for a, b in combinations(free, 2):
            if a.name not in taken and b.name not in taken and same_signature(a, b):
                taken.add(b.name)
                names.append((a.name, b.name))
    if not names and not module.rewrites:
        raise Usage(
            "no two functions take and give the same types; --pipeline PASS,... compares a "
            "function before and after passes"
        )
    for a, b in names:
        left, right = (_function(module, n) for n in (a, b))
        if not same_signature(left, right):
            raise Usage(f"@{a} and @{b} differ in their types: {_types(left)} and {_types(right)}")
        yield f"@{a} and @{b}", Pair(program_of(module, a), program_of(module, b), module)


def _callees(f: Function) -> list[str]:
    return [name for o in f.operations for _, name in o.operator.callees]


def _names(item: str) -> tuple[str, str]:
    names = [n.strip().removeprefix("@") for n in item.split(",")]
    if len(names) != 2 or not all(names):
        raise Usage(f"--equal {item}: expected the names of two functions, such as f,g")
    return names[0], names[1]


def _is_function(f: Function) -> bool:
    return not isinstance(f, Graph)


def _function(module: Module, name: str) -> Function:
    f = find(module, name)
    if not _is_function(f):
        raise Usage(f"@{name} is a graph; prove compares functions")
    return f


def _types(f: Function) -> str:
    given, found = (", ".join(map(str, ts)) for ts in (f.argument_types, f.result_types))
    return f"({given}) -> ({found})"


def _after(module: Module, options: Namespace) -> Iterator[tuple[str, Pair | None]]:
    """A function before and after passes."""
    passes, form = complete(chosen_passes(options.pipeline, None), "graph")
    function = _function(module, options.entry)
    label = f"@{function.name} before and after {options.pipeline}"
    after = program_after(module, function.name, passes)
    if form == "graph":
        name = f"{function.name}_after"
        module = module.with_functions(
            {**module.functions, name: replace(after.function, name=name)}
        )
        after = program_of(module, name)
    before = program_of(module, function.name, compiled=form == "loops")
    yield label, Pair(before, after, module, form == "graph")


def _show(pair: Pair, verdict: Verdict, options: Namespace) -> None:
    """Print or write the counterexample, a program that calls both functions."""
    assert verdict.wrong is not None
    left, right = pair.left.function.name, pair.right.function.name
    called = [left, right] if pair.has_both else [left]
    used = [*called]
    for name in used:
        used += [n for n in _callees(pair.module.functions[name]) if n not in used]
    shown = {n: f for n, f in pair.module.functions.items() if n in used}
    entry = "main" if "main" not in shown else "counterexample"
    lines = [f"func @{entry}() {{"]
    names: list[str] = []
    for argument, array in zip(pair.left.arguments, verdict.wrong, strict=True):
        type = argument.known_type.with_array_shape(array.shape)
        names.append(f"%{argument.name}")
        lines.append(f"  %{argument.name} = const {Data(array).text} : {type}")
    results: list[str] = []
    for side, name in zip("ab", called, strict=False):
        own = [f"%{side}{n}" for n in range(len(pair.left.function.results))]
        lines.append(f"  {', '.join(own)} = call @{name}({', '.join(names)})")
        results += own
    lines += [f"  return {', '.join(results)}", "}", ""]
    text = "\n".join([*lines, print_module(Module(shown))])
    write(options.output, text.encode())
    if options.output != "-":
        more = "" if entry == "main" else f" --entry {entry}"
        print(f"the counterexample: cvm run {options.output}{more}")
