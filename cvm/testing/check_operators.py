"""Check operators by their examples: report the method at fault, with small arguments.

A formula's accesses are proved in bounds, or checked as it runs, before it runs without checks.
Formula and reference are compared on all targets, derivatives with finite differences, simplified
operations with the plain ones. All of it runs in a child process, whose end by a signal is a
mistake of the operator.
"""

import os
import pickle
import re
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from textwrap import dedent
from typing import Any, cast

import numpy as np

import cvm
from cvm.dialect.ir.function import Function, Graph
from cvm.dialect.ir.module import Module
from cvm.dialect.spec.operator import Operator
from cvm.jit.options import TargetName
from cvm.jit.targets import TARGETS
from cvm.lowering.graph.convert import stated_by_others
from cvm.lowering.graph.patterns import LOWERINGS
from cvm.lowering.pass_context import Context
from cvm.terminal.arguments import random_arrays
from cvm.terminal.read_program import named
from cvm.testing.differences import smallest

from .check_rules import arguments, copies, place, samples, wrong_derivative, wrong_simplification
from .lines import difference

SEEDS = 8
Arrays = list[np.ndarray]
Running = Callable[[str, str, Arrays], object]  # notes a target and arguments before they are run


def check_operators(operators: Sequence[type[Operator[object]]]) -> int:
    """Print the mistake of each wrong operator, and a count; 1 if some are wrong."""
    wrong, present = 0, [t for t in TARGETS if not TARGETS[t].missing()]
    targets = cast("list[TargetName]", present)  # `compile` takes those of other packages too
    for op, mistake in _isolated(operators, targets):
        if mistake:
            wrong += 1
            print(f"{op.name}: {mistake}", flush=True)
    print(f"{len(operators)} operators compared on {', '.join(targets)}, {wrong} wrong")
    return 1 if wrong else 0


def _isolated(
    operators: Sequence[type[Operator[object]]], targets: Sequence[TargetName]
) -> Iterator[tuple[type[Operator[Any]], str]]:
    """The mistake of each operator, by a child process, and by another one after each crash."""
    done = 0
    while done < len(operators):
        at: tuple[TargetName, str, Arrays] | None = None

        def check_rest(send: Callable[[object], object], first: int = done) -> None:
            for op in operators[first:]:
                send(_mistake(op, targets, lambda *noted: send(noted)))

        for message in _child(check_rest):
            if isinstance(message, str):
                yield operators[done], message
                done, at = done + 1, None
            elif isinstance(message, tuple):
                at = message
            elif message:
                yield operators[done], _crash(operators[done], message, at)
                done += 1


def _child(work: Callable[[Callable[[object], object]], object]) -> Iterator[Any]:
    """The messages of a child process, and last the number of the signal that ended it, or 0."""
    reading, writing = os.pipe()
    with warnings.catch_warnings(action="ignore"):  # of threads, which `fork_safety` deals with
        pid = os.fork()
    if not pid:
        status = 1
        try:
            os.close(reading)
            with os.fdopen(writing, "wb", buffering=0) as pipe:
                work(lambda message: pipe.write(pickle.dumps(message)))
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as pipe:
            while True:
                try:
                    yield pickle.load(pipe)
                except EOFError:
                    break
    finally:
        _, status = os.waitpid(pid, 0)
    yield os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)


def _crash(
    op: type[Operator[object]], number: int, at: tuple[TargetName, str, Arrays] | None
) -> str:
    """The mistake of an operator whose process ended, with the smallest arguments that end it."""
    name = signal.Signals(number).name if number > 0 else f"exit status {-number}"
    if at is None:
        return f"checking it ends with {name} ({place(op)})"
    target, text, arrays = at
    module = cvm.parse(text, f"example of {op.name}")
    function = [*module.functions.values()][-1]

    def crashes(tried: Arrays) -> bool | None:
        run = _child(lambda _: cvm.compile(module, function.name, target)(*copies(tried)))
        return True if [*run][-1] == number else None

    arrays = smallest(function, arrays, crashes, tries=40)
    return f"its formula ({_formula(op)}) ends with {name} on {target}; {arguments(arrays)}"


def _mistake(op: type[Operator[object]], targets: Sequence[TargetName], running: Running) -> str:
    try:
        return _checked(op, targets, running)
    except cvm.Error as e:
        return str(e)
    except Exception as e:
        return f"checking it fails: {type(e).__name__}: {e} ({place(op)})"


def _checked(op: type[Operator[Any]], targets: Sequence[TargetName], running: Running) -> str:
    """The first mistake that the operator's example shows; empty where there is none."""
    if not dedent(op.example).strip():
        return f"it has no example ({place(op)})"
    text = dedent(op.example)
    module = cvm.parse(text, f"example of {op.name}")
    function = [*module.functions.values()][-1]
    if any(isinstance(f, Graph) for f in module.functions.values()):
        return ""
    if op.has_effect:
        return _changed_results(op, function)
    return (
        wrong_simplification(op, module, function)  # or else the formula is blamed for it
        or _difference(op, module, function, targets, lambda t, arrays: running(t, text, arrays))
        or wrong_derivative(op, module, function)
    )


def _changed_results(op: type[Operator[object]], function: Function) -> str:
    """The result of an operator with an effect that has not the type of its operand."""
    for o in function.operations:
        if isinstance(o.operator, op):
            pairs = zip(o.results, o.operator.operands(), strict=False)
            if len(o.results) > len(o.operator.operands()) or any(
                r.known_type.key != v.known_type.key for r, (_, v) in pairs
            ):
                return f"its results have not the types of its first operands ({place(op.infer)})"
    return ""


def _difference(
    op: type[Operator[object]],
    module: Module,
    function: Function,
    targets: Sequence[TargetName],
    running: Callable[[str, Arrays], object],
) -> str:
    """The first difference between a target and the reference on random arguments."""
    functions = {t: cvm.compile(module, function.name, t) for t in targets}
    sanitized = cvm.compile(module, function.name, "cpu", sanitize=True)
    reference = functions.pop("reference")
    if op in LOWERINGS and not op.is_expanded:  # which compilations use the formula of
        stated = stated_by_others(function, Context(module), lambda o: isinstance(o, op))
        converted = module.with_functions({**module.functions, function.name: stated})
        functions["lowering"] = cvm.compile(converted, function.name)

    def differs(target: str, arrays: Arrays) -> str | None:
        try:
            expected, f = named(reference, reference(*copies(arrays))), functions[target]
        except cvm.CallError:  # as for an index that is out of range
            return None
        running("cpu" if target == "lowering" else target, arrays)
        if target == "cpu":
            sanitized(*copies(arrays))
        found = named(reference, f(*copies(arrays)))
        for name, wanted in expected.items():
            actual, how = found[name], "==" if wanted.dtype.kind in "iub" else "~="
            said = difference(actual, wanted, how)
            if said is not None and not (how == "~=" and ill_conditioned(name, arrays, actual)):
                at = said.partition(";")[0]
                return re.sub(r" it is (.*), not (.*)", r" \1 and \2", at)
        return None

    def ill_conditioned(name: str, arrays: Arrays, actual: np.ndarray) -> bool:
        """Test whether arguments that differ in their last digits explain the difference."""
        random, spread = np.random.default_rng(0), np.zeros(actual.shape)
        wanted = named(reference, reference(*copies(arrays)))[name]
        for _ in range(4):
            ulps = [
                np.real(a) * np.finfo(a.dtype).eps * random.choice([-1, 1], a.shape)
                if a.dtype.kind in "fc"
                else a * 0
                for a in arrays
            ]
            moved = [(a + u).astype(a.dtype) for a, u in zip(arrays, ulps, strict=True)]
            found = named(reference, reference(*moved))[name]
            with np.errstate(all="ignore"):
                spread = np.maximum(spread, np.abs(found - wanted))
        with np.errstate(all="ignore"):
            return bool((np.abs(actual - wanted) <= 8 * spread).all())

    def fails(target: str, arrays: Arrays) -> str | None:
        try:
            return differs(target, arrays)
        except cvm.Error as e:
            return e.diagnostics[0].message

    static = all(a.known_type.is_static for a in function.arguments)
    random = (random_arrays(function, seed) for seed in range(SEEDS))
    for arrays in chain(random, samples(function) if static else ()):
        for target in functions:
            try:
                found = differs(target, arrays)
            except cvm.CallError as e:  # of an access that is out of bounds, or of a check
                few = smallest(function, arrays, lambda tried, t=target: fails(t, tried))
                said = fails(target, few) or e.diagnostics[0].message
                return f"{_stated(op, target, ' fails on')}: {said}; {arguments(few)}"
            if found is not None:
                few = smallest(function, arrays, lambda tried, t=target: differs(t, tried))
                return (
                    f"{_stated(op, target, ', on')}, and its reference "
                    f"({place(op.reference)}) differ: {differs(target, few)}; {arguments(few)}"
                )
    return ""


def _stated(op: type[Operator[object]], target: str, on: str) -> str:
    """The formula or lowering that a target ran, with its place."""
    if target == "lowering":
        return f"its lowering ({place(LOWERINGS[op][0].declared)}){on} cpu"
    what = "lowering" if op.is_expanded else "formula"
    return f"its {what} ({_formula(op)}){on} {target}"


def _formula(op: type[Operator[object]]) -> str:
    if op.is_expanded and op in LOWERINGS:
        return place(LOWERINGS[op][0].declared)
    return place(getattr(op, "nest" if op.has_nest() else "element"))
