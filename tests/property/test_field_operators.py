"""Properties of every operator on fields: reference, index formula and compiled code agree;
constraints hold.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from cvm.dialect.cog.cog_operator import compatible
from cvm.dialect.ir.function import Function, Operation, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.verify import verify
from cvm.dialect.spec.operator import OPERATORS, Operator, violated
from cvm.dialect.types.sizes import Size
from cvm.dialect.types.tensor_types import F32, FieldType, TensorType
from loop_interpreter import by_formula
from operator_checks import assert_same
from samples_cog import SAMPLED, sample

import cvm

SEEDS = range(40)
ULPS = {"cog.phase": 2}  # of a transcendental function


def reference(op: Operator[np.ndarray]) -> np.ndarray:
    with np.errstate(all="ignore"):
        return op.reference()


def types(op: Operator[np.ndarray]) -> Operator[FieldType]:
    found = iter(op.types.values())
    return op.map(lambda _: next(found))


@pytest.mark.parametrize("name", SAMPLED)
def test_formula_agrees_with_reference(name: str) -> None:
    for seed in SEEDS:
        op = sample(name, np.random.default_rng(seed))
        broken, _ = violated(types(op), types(op).constraints)
        assert broken is None, (
            f"seed {seed}: the sample {op} breaks C{broken.number}: {broken.text}"
        )
        wanted = reference(op)
        (result,) = types(op).result_types()
        assert isinstance(wanted, np.ndarray), f"seed {seed}: the reference gives {wanted!r}"
        assert (wanted.shape, wanted.dtype) == (result.array_shape, result.element.dtype), (
            f"seed {seed}: {op}"
        )
        with np.errstate(all="ignore"):
            (found,) = by_formula(op)
        assert_same(found, wanted, ULPS.get(name, 0), f"seed {seed}: {op}")


def program(op: Operator[np.ndarray], unknown_sizes: bool) -> tuple[Module, list[np.ndarray]]:
    """A function of this one operation, and its arguments."""
    arrays = [a for _, a in op.operands()]
    values = []
    for n, type in enumerate(op.types.values()):
        names = tuple(Size.named(f"X{n}N{k}") for k in range(len(type.array_shape)))
        values.append(Value(f"x{n}", type.with_array_shape(names) if unknown_sizes else type))
    operands = iter(values)
    result = Value("y", None)
    operation = Operation(op.map(lambda _: next(operands)), (result,))
    return verify(
        Module({"main": Function("main", tuple(values), (operation,), (result,))})
    ), arrays


@pytest.mark.sample(20)
@pytest.mark.parametrize("unknown_sizes", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("name", SAMPLED)
def test_compiled_agrees_with_reference(name: str, unknown_sizes: bool) -> None:
    for seed in SEEDS[:12:3] if unknown_sizes else SEEDS[:12]:
        op = sample(name, np.random.default_rng(seed))
        try:
            module, arrays = program(op, unknown_sizes)
        except cvm.VerifyError:
            assert unknown_sizes, f"seed {seed}: {op}"
            continue  # some rules are about sizes that are known
        assert_same(
            cvm.compile(module)(*arrays), reference(op), ULPS.get(name, 0), f"seed {seed}: {op}"
        )


def rule(a: FieldType, b: FieldType) -> bool:
    """Cog's rule as its documentation puts it: four conditions, in words of its own."""
    same_field = a.shape == b.shape
    if same_field and (
        a.tensor.shape == b.tensor.shape or a.tensor.rank == 0 or b.tensor.rank == 0
    ):
        return True
    small = a if a.rank == 0 else b if b.rank == 0 else None
    if small is None:
        return False
    large = b if small is a else a
    return small.tensor.rank == 0 or small.tensor.shape == large.tensor.shape


def test_fields_meet_by_four_conditions_and_no_others() -> None:
    grids = ((), (1,), (3,), (5,), (1, 3), (2, 3), (2, 1), (3, 2), (2, 3, 4))
    points = ((), (1,), (3,), (4,), (2, 3), (3, 3))
    kinds = [FieldType(g, TensorType(t, F32)) for g, t in itertools.product(grids, points)]
    for a, b in itertools.product(kinds, kinds):
        assert compatible(a, b) == rule(a, b), f"{a} and {b}"


def test_every_operator_that_computes_has_a_page() -> None:
    assert all(OPERATORS[name].example and OPERATORS[name].__doc__ for name in SAMPLED)
