"""Mutants of the unoptimized way (docs/spine.md): each of them gives another result, or none, for
one of a few small programs.
"""

from __future__ import annotations

import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest

import cvm

RANDOM = np.random.default_rng(0)
X, W, B = (RANDOM.integers(-50, 50, shape, np.int32) for shape in ((5, 3), (4, 3), (4,)))
TENTH, NEARLY = (
    np.float32(0.1),
    np.float32(-0.01),
)  # the product is rounded to -NEARLY unless it is fused
Z = (RANDOM.integers(-9, 9, (2, 6)) + 1j * RANDOM.integers(-9, 9, (2, 6))).astype(np.complex64)
FIELD = "!cog.field<[6], complex<f32>>"


class Program(NamedTuple):
    text: str
    arguments: tuple[np.ndarray, ...]
    result: np.ndarray


class Mutant(NamedTuple):
    place: str  # of a function, under `cvm`
    old: str
    new: str
    program: str  # by which it is noticed


PROGRAMS = {
    "dense": Program(
        "func @main(%x: tensor<5x3xi32>, %w: tensor<4x3xi32>, %b: tensor<4xi32>) { %y = "
        "cvm.dense %x, %w, %b\n return %y }",
        (X, W, B),
        X @ W.T + B,
    ),
    "fused product": Program(
        "func @main(%x: tensor<1x2xf32>, %w: tensor<1x2xf32>) { %y = cvm.dense %x, %w\n return %y }",
        (np.array([[NEARLY, TENTH]]), np.array([[1, TENTH]], np.float32)),
        np.array([[np.float32(np.float64(TENTH) * np.float64(TENTH) + np.float64(NEARLY))]]),
    ),
    "three at once": Program(
        """func @main(%x: tensor<5x3xi32>) {
          %a = cvm.broadcast_add %x, -7
          %b = cvm.broadcast_mul %x, 5
          %c = cvm.elemwise_sub %a, %b
          return %c
        }""",
        (X,),
        X - 7 - X * 5,
    ),
    "call": Program(
        """func @difference(%a: tensor<5x3xi32>, %b: tensor<5x3xi32>) {
          %c = cvm.elemwise_sub %a, %b
          return %c
        }
        func @main(%x: tensor<5x3xi32>) {
          %a = cvm.relu %x
          %c = call @difference(%x, %a)
          return %c
        }""",
        (X,),
        np.minimum(X, 0),
    ),
    "power": Program(
        "func @main(%x: tensor<5x3xi32>) { %y = dali.pow %x, 6\n return %y }",
        (X,),
        np.power(X, 6, dtype=np.int32),
    ),
    "complex": Program(
        "func @main(%x: FIELD, %w: FIELD) { %y = cog.mul %x, %w\n return %y }".replace(
            "FIELD", FIELD
        ),
        (Z[0], Z[1]),
        Z[0] * Z[1],
    ),
    "unknown sizes": Program(
        "func @main(%x: tensor<?N x ?M x i32>, %b: tensor<?M x i32>) { %y = "
        "cvm.broadcast_sub %x, %b\n return %y }",
        (X, B[:3]),
        X - B[:3],
    ),
}
MUTANTS = [
    Mutant(
        "parser.actions:ProgramActions.integer",
        '"-" * len(minus)',
        '"" * len(minus)',
        "three at once",
    ),
    Mutant("parser.build_operation:build_operands", "= values[n]", "= values[-1]", "three at once"),
    Mutant("dialect.cvm.nn:Dense.element", "self.w[j, k]", "self.w[j, 0]", "dense"),
    Mutant("dialect.cvm.nn:Dense.infer", "self.w.shape[0]", "self.w.shape[1]", "dense"),
    Mutant("dialect.kernel_ir.expressions:apply", "Apply(function, ", 'Apply("add", ', "dense"),
    Mutant("dialect.kernel_ir.loops:update", "function, ", '"max", ', "dense"),
    Mutant(
        "lowering.graph.inline:_expand",
        "zip(callee.arguments, arguments, strict=True)",
        "zip(callee.arguments, arguments[::-1], strict=True)",
        "call",
    ),
    Mutant("lowering.graph.dce:live_operations", "live[::-1]", "live", "three at once"),
    Mutant(
        "lowering.formulas.propagate_constants:_power",
        "value * value * base",
        "value * base",
        "power",
    ),
    Mutant(
        "lowering.loops.build_loops:StatementLowering.reduction",
        "identity(e.function,",
        'identity("mul",',
        "dense",
    ),
    Mutant("lowering.loops.build_loops:accumulate", "a, b, acc[()]", "a, b, a", "fused product"),
    Mutant("lowering.loops.build_loops:accumulate", "in (F32, F64)", "in ()", "fused product"),
    Mutant(
        "lowering.loops.legalize_types:_Legalizing.statement",
        "enumerate(names)",
        "enumerate(names[::-1])",
        "complex",
    ),
    Mutant(
        "lowering.storage.place_buffers:packed",
        "first[other] <= last[t]\n",
        "False\n",
        "three at once",
    ),
    Mutant(
        "jit.functions.compiled_function:CompiledFunction.sizes_of",
        "shape[axis]",
        "shape[-1]",
        "unknown sizes",
    ),
]


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVM_CACHE_DIR", "")


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_programs_give_what_numpy_gives(name: str) -> None:
    assert is_right(PROGRAMS[name])


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.place)
def test_every_mutant_is_noticed(mutant: Mutant) -> None:
    program = PROGRAMS[mutant.program]
    with mutated(mutant):
        try:
            noticed = not is_right(program)
        except (cvm.Error, AssertionError):
            noticed = True
    assert noticed
    assert is_right(program)


def is_right(program: Program) -> bool:
    found = cvm.compile(cvm.parse(program.text), optimize=0)(*program.arguments)
    return found.shape == program.result.shape and np.array_equal(found, program.result)


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """The function has other code, wherever it was imported."""
    name, _, path = mutant.place.partition(":")
    module: Any = importlib.import_module(f"cvm.{name}")
    function: Any = module
    for part in path.split("."):
        function = getattr(function, part)
    source = textwrap.dedent(inspect.getsource(function))
    assert mutant.old in source, (
        f"{mutant.place} has no {mutant.old}: the mutant needs another place"
    )
    names = dict(module.__dict__)
    exec(source.replace(mutant.old, mutant.new), names)
    before, function.__code__ = function.__code__, names[function.__name__].__code__
    try:
        yield
    finally:
        function.__code__ = before
