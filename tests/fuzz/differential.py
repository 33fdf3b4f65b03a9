"""Random typed programs of all dialects, derivatives and clocked programs among them, on one target against the reference.

On the cpu a program is compiled for vectors of 16, 32 and 64 bytes, with one thread and two, and without optimization.
"""

from __future__ import annotations

import random

import numpy as np
from cvm.dialect.program.module import Module
from hypothesis import HealthCheck, Phase, given, seed, settings
from outcomes import arguments, assert_same, outcome
from random_graphs import Program, set_up
from random_programs import modules

import cvm

PROCESSORS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")  # vectors of 16, 32 and 64 bytes
TICKS = 3


def compare(number: int, target: str) -> None:
    """The program of a number; raises where two results differ."""
    chance = random.Random(number)
    if chance.random() < 0.15:
        clocked(number % 2**32, target)
        return

    @seed(number)
    @settings(
        database=None, deadline=None, max_examples=1, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(modules())
    def one(module: Module) -> None:
        for name in module.functions:
            same(module, name, target, number)

    one()


def same(module: Module, name: str, target: str, number: int) -> None:
    """A function's results, by the target and by the reference."""
    arrays = arguments(module.functions[name], np.random.default_rng(number))
    if target != "cpu":
        assert_same(outcome(module, name, arrays, target, 2), outcome(module, name, arrays, "cpu", 0), str(module))
        return
    wanted = outcome(module, name, arrays, "cpu", 0)
    threads = cvm.get_num_threads()
    try:
        for count, processor in enumerate(PROCESSORS):
            if supported(processor):
                cvm.set_num_threads(1 + count % 2)
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
