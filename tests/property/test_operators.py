"""Properties of every operator with samples: reference, index formula and inferred types agree."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
import samples_builtin as samples_like  # noqa: F401  (enters its samples)
import samples_dali  # noqa: F401  (enters its samples)
import samples_numpy  # noqa: F401  (enters its samples)
import samples_quant  # noqa: F401  (enters its samples)
import samples_theano  # noqa: F401  (enters its samples)
import tiers
from cvm.dialect.spec.operator import OPERATORS, violated
from loop_interpreter import by_formula
from operator_checks import assert_same, program, references, types, ulps
from samples import SAMPLES

import cvm

SEEDS = range(40 if tiers.everything else 12)
COMPILED_SEEDS = range(6 if tiers.everything else 4)
# optimize, unknown sizes; two of them for each operator in the quick tier
WAYS = [(0, False), (2, False), (0, True), (2, True)]
COMPILED = [
    (name, *WAYS[(n + k) % 4])
    for n, name in enumerate(sorted(SAMPLES))
    for k in (range(4) if tiers.everything else (0, 3))
]
DIALECTS = ("cvm", "dali", "quant")


def declared(*dialects: str) -> list[str]:
    return sorted(name for name, op in OPERATORS.items() if op.dialect in dialects)


@pytest.mark.parametrize("name", declared(*DIALECTS))
def test_every_operator_has_samples(name: str) -> None:
    assert name in SAMPLES


@pytest.mark.sample(90)
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_formula_agrees_with_reference(name: str) -> None:
    for seed in SEEDS:
        op = SAMPLES[name](np.random.default_rng(seed))
        typed = types(op)
        broken, _ = violated(typed, typed.constraints)
        assert broken is None, (
            f"seed {seed}: the sample {op} breaks C{broken.number}: {broken.text}"
        )
        wanted = references(op)
        assert len(wanted) == len(op.results), f"seed {seed}"
        for array, type in zip(wanted, typed.result_types(), strict=True):
            assert isinstance(array, np.ndarray), f"seed {seed}: the reference gives {array!r}"
            assert array.dtype == type.element.dtype, f"seed {seed}: {array.dtype} is not {type}"
            assert array.shape == type.array_shape, f"seed {seed}: {array.shape} is not {type}"
        for unknown_sizes in (False, True):
            for found, array in zip(by_formula(op, unknown_sizes), wanted, strict=True):
                assert_same(found, array, ulps(op), f"seed {seed}: {op}")


@pytest.mark.sample(90)
@pytest.mark.parametrize(("name", "optimize", "unknown_sizes"), COMPILED)
def test_compiled_agrees_with_reference(name: str, optimize: int, unknown_sizes: bool) -> None:
    for seed in COMPILED_SEEDS:
        op = SAMPLES[name](np.random.default_rng(seed))
        try:
            module, arrays = program(op, unknown_sizes)
        except cvm.VerifyError:
            assert unknown_sizes, f"seed {seed}: {op}"
            continue  # some attributes mean something only for sizes that are known
        found = cvm.compile(module, optimize=optimize)(*arrays)
        for got, wanted in zip(
            found if isinstance(found, tuple) else (found,), references(op), strict=True
        ):
            assert_same(got, wanted, ulps(op), f"seed {seed}: {op}")


@pytest.mark.parametrize("name", declared(*DIALECTS))
def test_example_is_a_program(name: str) -> None:
    module = cvm.parse(textwrap.dedent(OPERATORS[name].example))
    used = [o.operator.name for f in module.functions.values() for o in f.operations]
    assert name in used
