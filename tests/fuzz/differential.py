"""Random typed programs of all dialects, derivatives and clocked programs among them, on one target against the reference.

On the cpu a program is compiled for vectors of 16, 32 or 64 bytes, with one thread or two, and one in eight without optimization.
"""

from __future__ import annotations

import random

import numpy as np
from conformance_cases import opened
from cvm.dialect.program.function import Function
from cvm.dialect.program.module import Module
from hypothesis import HealthCheck, given, settings
from outcomes import arguments, assert_same, outcome
from random_graphs import Program, set_up
from random_programs import modules
import cvm
from .chained_programs import ChainedProgram

BUFFER = 1 << 14  # bytes that a program is made of
PROCESSORS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")  # vectors of 16, 32 and 64 bytes
TICKS = 3


def compare(number: int, target: str) -> None:
    """The program of a number; raises where two results differ."""
    chance = random.Random(number)
    kind = chance.random()
    if kind < 0.15:
        clocked(number % 2**32, target)
    elif kind < 0.4:
        drawn(chance.randbytes(BUFFER), target, number)
    else:
        program = ChainedProgram(number)
        for name, arrays in program.calls.items():
            same(program.module, name, arrays, target, number)
        if target == "cpu" and number % 4 == 1:
            open_sizes(program.module, program.calls["main"], number)


def open_sizes(module: Module, arrays: list[np.ndarray], number: int) -> None:
    """Compare results where sizes are not known: the same bits, or an error, too; a program that needs them is left out."""
    text = opened(str(Module({"main": module.functions["main"]})))
    try:
        other = None if text is None else cvm.parse(text)
    except cvm.Error:
        return
    if other is not None:
        found, wanted = (outcome(m, "main", arrays, "cpu", 2, PROCESSORS[number // 4 % 2]) for m in (other, module))
        alike = all(isinstance(w, str) or identical(f, w) for f, w in zip(found, wanted, strict=True))
        assert alike, f"{wanted} with known sizes, {found} without\n{text}"


def drawn(data: bytes, target: str, number: int) -> None:
    """A program that Hypothesis makes of bytes; its own first example would always be the smallest program."""

    @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(modules())
    def one(module: Module) -> None:
        for name, function in module.functions.items():
            same(module, name, arguments(function, np.random.default_rng(number)), target, number)

    one.hypothesis.fuzz_one_input(data)


def same(module: Module, name: str, arrays: list[np.ndarray], target: str, number: int) -> None:
    """A function's results: integers that no float reaches are the reference's, and others those of unoptimized code.

    Unoptimized code adds floats in the order of their indices; where that rounds otherwise, vectors of another width must
    give the same bits.
    """
    processors = [p for p in PROCESSORS if supported(p)] if target == "cpu" else [None]
    processor = processors[number % len(processors)]
    threads = cvm.get_num_threads()
    cvm.set_num_threads(1 + number // len(PROCESSORS) % 2)
    try:
        found = outcome(module, name, arrays, target, 2, processor)
        text = f"{processor}\n{module}"
        wanted = outcome(module, name, arrays, "reference", 2)
        assert len(found) == len(wanted), f"{wanted} by the reference, {found}\n{text}"
        rounded = reached_by_floats(module.functions[name])
        exact = [
            n
            for n, w in enumerate(wanted)
            if isinstance(w, str) or not (rounded[n] if n < len(rounded) else any(rounded))
        ]
        assert_same([found[n] for n in exact], [wanted[n] for n in exact], text)
        if number % 8 and all(map(identical, found, wanted)):
            return
        wanted = outcome(module, name, arrays, "cpu", 0)
        if target == "cpu" and not all(map(identical, found, wanted)):
            for f, w in zip(found, wanted, strict=True):
                tolerance = 64 * np.finfo(w.dtype).eps * max(1, w.size) if np.asarray(w).dtype.kind in "fc" else 0
                np.testing.assert_allclose(f, w, tolerance, tolerance, err_msg=text)
            wanted = outcome(module, name, arrays, "cpu", 2, processors[number % len(processors) - 1])
        assert_same(found, wanted, text)
    finally:
        cvm.set_num_threads(threads)


def reached_by_floats(function: Function) -> list[bool]:
    """Test for each result whether a float has part in it, which the reference may round otherwise."""
    reached = {a for a in function.arguments if a.known_type.element.kind in ("float", "complex")}
    for o in function.operations:
        made = any(v.known_type.element.kind in ("float", "complex") for v in o.results)
        if made or any(v in reached for _, v in o.operator.operands()):
            reached.update(o.results)
    return [v in reached for v in function.results]


def identical(one: object, other: object) -> bool:
    return type(one) is type(other) and np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind in "fc")  # pyright: ignore[reportArgumentType, reportCallIssue]


def supported(processor: str) -> bool:
    """Test whether code for a processor runs here."""
    from cvm.jit.host_processor import resolve

    return resolve(processor, "").vector_bytes <= resolve("native", "").vector_bytes


def clocked(number: int, target: str) -> None:
    """A random graph, tick by tick."""
    program = Program(number)
    reference, other = set_up(program, "reference"), set_up(program, target)
    for _ in range(TICKS):
        reference.step()
        other.step()
        for name in reference.names:
            np.testing.assert_array_equal(
                other.read(name), reference.read(name), f"{name}\n{program.text}", strict=True
            )
