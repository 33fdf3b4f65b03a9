"""Random typed programs of all dialects, derivatives and clocked programs among them, on one target
against the reference.

The reference evaluates each program by itself. The target compiles the functions of a batch as
calls of one function, and those that report an error one by one. On the cpu a batch is compiled for
vectors of 16, 32 or 64 bytes, with one thread or two, and one in eight without optimization.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pytest
from conformance_cases import opened
from cvm.dialect.builtin import Call
from cvm.dialect.ir.function import Function, Operation, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.verify import verify
from cvm.dialect.types.attributes import Symbol
from cvm.jit.llvm import llvm_context
from cvm.lowering.graph.inline import reached
from hypothesis import HealthCheck, given, settings
from llvmlite.binding import Target
from outcomes import arguments, assert_same, known_to_numpy, outcome
from random_graphs import Program, set_up
from random_programs import modules

import cvm

from .chained_programs import ChainedProgram

T = TypeVar("T")

BUFFER = 1 << 14  # bytes that a program is made of
PROCESSORS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")  # vectors of 16, 32 and 64 bytes
TICKS = 3
TOOLCHAINS: dict[int, dict[tuple[object, ...], list[llvm_context.Toolchain]]] = {
    1: {},
    3: {},
}  # of levels
NAMES = re.compile(
    r"@\w+|\?[A-Z]\b"
)  # of functions and sizes, which differ between the programs of a batch
GRAPH_NAMES = re.compile(
    r'%v\d+|(?<=")(?:[sp]\d+|a)(?=")'
)  # of values, and of what is read and written


@dataclass(frozen=True, eq=False)
class Case:
    """A call of a function of the program of a number."""

    number: int
    module: Module
    name: str
    arrays: list[np.ndarray]

    @property
    def function(self) -> Function:
        return self.module.functions[self.name]

    @cached_property
    def reference(self) -> list[Any]:
        return outcome(self.module, self.name, self.arrays, "reference", 2)

    @cached_property
    def joins(self) -> bool:
        """Test whether it can be one call of several: nothing is reported, and no argument is
        overwritten.
        """
        if not self.function.results or any(
            "inplace" in a.attributes for a in self.function.arguments
        ):
            return False
        try:
            return not any(isinstance(w, str) for w in self.reference)
        except cvm.Error:  # of sizes
            return False


def compare(numbers: Sequence[int], target: str) -> None:
    """The programs of numbers; raises where two results differ."""
    cases: list[Case] = []
    graphs: list[str] = []
    for number in numbers:
        with suppress(cvm.Error):
            chance = random.Random(number)
            kind = chance.random()
            if kind < 0.15:
                graphs.append(Program(number % 2**32).text)
            elif kind < 0.4:
                cases += drawn(chance.randbytes(BUFFER), number)
            else:
                program = ChainedProgram(number)
                cases += [Case(number, program.module, *call) for call in program.calls.items()]
    by_parts(lambda some: same(some, target, numbers[0]), [c for c in cases if c.joins])
    for case in cases:
        if not case.joins:
            with suppress(cvm.Error):
                same([case], target, numbers[0])
    by_parts(lambda some: clocked(some, target), graphs)


def by_parts(check: Callable[[list[T]], None], cases: list[T]) -> None:
    """Check cases together; where that fails each alone, so that the message shows the one that
    fails, if it does.
    """
    if not cases:
        return
    try:
        check(cases)
    except Exception as error:
        for case in cases if len(cases) > 1 else ():
            with suppress(cvm.Error):
                check([case])
        if not isinstance(error, cvm.Error):
            raise


def drawn(data: bytes, number: int) -> list[Case]:
    """The functions of a program that Hypothesis makes of bytes; its own first example would always
    be the smallest program.
    """
    found: list[Case] = []

    @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(modules())
    def one(module: Module) -> None:
        for name, function in module.functions.items():
            own = Module(
                {f.name: f for f in reached(module, function)}
            )  # a ?N of others is none of its
            found.append(
                Case(number, own, name, arguments(function, np.random.default_rng(number)))
            )

    one.hypothesis.fuzz_one_input(data)
    return found


def joined(cases: Sequence[Case]) -> Module:
    """A module whose function @all calls the function of each case."""
    programs = list(dict.fromkeys(c.module for c in cases))
    module = cvm.parse("\n".join(NAMES.sub(rf"\g<0>_{n}", str(m)) for n, m in enumerate(programs)))
    operations: list[Operation] = []
    for n, c in enumerate(cases):
        f = module.functions[f"{c.name}_{programs.index(c.module)}"]
        passed = tuple(
            Value(f"c{n}_{a.name}", a.known_type, attributes=a.attributes) for a in f.arguments
        )
        made = tuple(Value(f"r{n}_{k}", None) for k in range(len(f.results)))
        operations.append(Operation(Call(passed, Symbol(f.name)), made))
    passed = tuple(v for o in operations for _, v in o.operator.operands())
    every = Function(
        "all", passed, tuple(operations), tuple(v for o in operations for v in o.results)
    )
    return verify(Module({**module.functions, "all": every}))


def outcomes(
    cases: Sequence[Case], target: str, optimize: int, processor: str | None = None
) -> list[list[Any]]:
    """The results of each case and its arguments afterwards, by one call of all; of a single case,
    or why it fails.
    """
    if len(cases) == 1:
        return [
            outcome(cases[0].module, cases[0].name, cases[0].arrays, target, optimize, processor)
        ]
    module = joined(cases)
    found = outcome(
        module, "all", [a for c in cases for a in c.arrays], target, optimize, processor
    )
    assert not isinstance(found[0], str), f"{found} of calls none of which fails alone\n{module}"
    results, after = iter(found), iter(found[len(module.functions["all"].results) :])
    return [
        [*(next(results) for _ in c.function.results), *(next(after) for _ in c.arrays)]
        for c in cases
    ]


@contextmanager
def variant(number: int) -> Iterator[None]:
    """One thread or two, and LLVM's code generator at the level that cvm asks for or a lower one.

    Not at the lowest: it aborts for some vectors, such as a <20 x i64> that becomes floats by AVX2.
    """
    level, threads, create = (
        1 + 2 * (number // 6 % 2),
        cvm.get_num_threads(),
        Target.create_target_machine,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Target,
            "create_target_machine",
            lambda self, **how: create(self, **{**how, "opt": level}),
        )
        patch.setattr(llvm_context, "_spare", TOOLCHAINS[level])
        cvm.set_num_threads(1 + number // 3 % 2)
        try:
            yield
        finally:
            cvm.set_num_threads(threads)


def same(cases: list[Case], target: str, number: int) -> None:
    """The results of cases: integers that no float reaches are the reference's, and others those of
    unoptimized code.

    Unoptimized code adds floats in the order of their indices, and rounds products before it adds
    them; where that differs, vectors of another width must give the same bits, and those of the cpu
    must be the bits of another target.
    """
    processors = [p for p in PROCESSORS if supported(p)] if target == "cpu" else [None]
    processor, other = (
        processors[number % len(processors)],
        processors[number % len(processors) - 1],
    )
    with variant(number):
        found = dict(zip(cases, outcomes(cases, target, 2, processor), strict=True))
        for c in cases:
            text = f"{processor}\n{c.module}"
            assert len(found[c]) == len(c.reference), (
                f"{c.reference} by the reference, {found[c]}\n{text}"
            )
            exact = [
                n
                for n, w in enumerate(c.reference)
                if isinstance(w, str) or not reached_by_floats(c)[n]
            ]
            assert_same([found[c][n] for n in exact], [c.reference[n] for n in exact], text)
        if target == "cpu":
            open_sizes(found, processor)
        left = [
            c for c in cases if number % 8 == 0 or not all(map(identical, found[c], c.reference))
        ]
        rounded: list[Case] = []
        for c, wanted in zip(left, outcomes(left, "cpu", 0) if left else [], strict=True):
            if all(map(identical, found[c], wanted)):
                continue
            rounded.append(c)
            for f, w in zip(found[c], wanted, strict=True):
                tolerance = (
                    64 * np.finfo(w.dtype).eps * max(1, w.size)
                    if np.asarray(w).dtype.kind in "fc"
                    else 0
                )
                np.testing.assert_allclose(
                    f, w, tolerance, tolerance * largest(c), err_msg=f"{processor}\n{c.module}"
                )
        for c, wanted in zip(
            rounded, outcomes(rounded, "cpu", 2, other) if rounded else [], strict=True
        ):
            assert_same(found[c], wanted, f"{processor}, {other}\n{c.module}")


def open_sizes(found: dict[Case, list[Any]], processor: str | None) -> None:
    """Compare results where sizes are not known: the same bits; a program that needs them is left
    out.
    """
    left: dict[Case, Case] = {}
    for c in found:
        if (
            c.number % 4 == 1
            and c.name == "main"
            and not any(isinstance(w, str) for w in c.reference)
        ):
            text = opened(str(Module({"main": c.function})))
            with suppress(cvm.Error):
                left |= (
                    {} if text is None else {Case(c.number, cvm.parse(text), "main", c.arrays): c}
                )
    for c, got in zip(left, outcomes([*left], "cpu", 2, processor) if left else [], strict=True):
        alike = all(
            isinstance(w, str) or identical(f, w) for f, w in zip(got, found[left[c]], strict=True)
        )
        assert alike, f"{found[left[c]]} with known sizes, {got} without\n{c.module}"


def reached_by_floats(case: Case) -> list[bool]:
    """Test for each result whether a float has part in it, which the reference may round otherwise;
    arguments as if they were one.
    """
    function = case.function
    floats = {a for a in function.arguments if a.known_type.element.kind in ("float", "complex")}
    for o in function.operations:
        made = any(v.known_type.element.kind in ("float", "complex") for v in o.results)
        if made or any(v in floats for _, v in o.operator.operands()):
            floats.update(o.results)
    found = [v in floats for v in function.results]
    return found + [any(found)] * len(case.arrays)


def largest(case: Case) -> float:
    """The largest magnitude among 1 and the numbers that a program is given: where such cancel in a
    sum, its rounding is as large.
    """
    operators = [o.operator for f in case.module.functions.values() for o in f.operations]
    given = [
        *case.arrays,
        *(operator.data.array for operator in operators if hasattr(operator, "data")),
    ]
    found = [np.abs(known_to_numpy(a).astype(complex)) for a in given]
    return max((float(a[np.isfinite(a)].max(initial=1)) for a in found), default=1)


def identical(one: object, other: object) -> bool:
    if type(one) is not type(other):
        return False
    one, other = known_to_numpy(one), known_to_numpy(other)
    return np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind in "fc")


def supported(processor: str) -> bool:
    """Test whether code for a processor runs here."""
    from cvm.jit.host_processor import resolve

    return resolve(processor, "").vector_bytes <= resolve("native", "").vector_bytes


def clocked(texts: list[str], target: str) -> None:
    """Random graphs in one, tick by tick."""
    lines = [
        GRAPH_NAMES.sub(rf"\g<0>_{n}", x) for n, t in enumerate(texts) for x in t.splitlines()[1:-1]
    ]
    text = "\n".join(["graph @main {", *lines, "}\n"])
    reference, other = set_up(text, "reference"), set_up(text, target)
    for _ in range(TICKS):
        reference.step()
        other.step()
        for name in reference.names:
            np.testing.assert_array_equal(
                other.read(name), reference.read(name), f"{name}\n{text}", strict=True
            )
