"""Random typed programs of all dialects, derivatives and clocked programs among them, on one target against the reference.

On the cpu a program is compiled without optimization and for vectors of 16, 32 or 64 bytes, with one thread or two.
"""

from __future__ import annotations

import random

import numpy as np
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


def drawn(data: bytes, target: str, number: int) -> None:
    """A program that Hypothesis makes of bytes; its own first example would always be the smallest program."""

    @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(modules())
    def one(module: Module) -> None:
        for name, function in module.functions.items():
            same(module, name, arguments(function, np.random.default_rng(number)), target, number)

    one.hypothesis.fuzz_one_input(data)


def same(module: Module, name: str, arrays: list[np.ndarray], target: str, number: int) -> None:
    """A function's results, by the target and without optimization; integers by the reference, too."""
    wanted = outcome(module, name, arrays, "cpu", 0)
    if target != "cpu":
        assert_same(outcome(module, name, arrays, target, 2), wanted, str(module))
        return
    defined = outcome(module, name, arrays, "reference", 2)
    assert len(defined) == len(wanted), f"{defined} by the reference, {wanted}\n{module}"
    exact = [(w, d) for w, d in zip(wanted, defined, strict=True) if np.asarray(d).dtype.kind not in "fc"]
    assert_same([w for w, _ in exact], [d for _, d in exact], str(module))
    processor = PROCESSORS[number % len(PROCESSORS)]
    threads = cvm.get_num_threads()
    cvm.set_num_threads(1 + number // len(PROCESSORS) % 2)
    try:
        if supported(processor):
            assert_same(outcome(module, name, arrays, "cpu", 2, processor), wanted, f"{processor}\n{module}")
    finally:
        cvm.set_num_threads(threads)


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
