"""What holds of every operator with samples: its reference, its index formula and its inferred types agree."""

from __future__ import annotations

import textwrap
import warnings

import numpy as np
import pytest
import samples_dali  # noqa: F401  (enters its samples)
import samples_like  # noqa: F401  (enters its samples)
import samples_theano  # noqa: F401  (enters its samples)
from cvm.dialect.dali.pointwise import Pointwise
from cvm.dialect.ir.sizes import Size
from cvm.dialect.ir.types import BY_DTYPE, TensorType
from cvm.dialect.notation.scalars import SCALARS
from cvm.dialect.program.module import Function, Module, Operation, Value
from cvm.dialect.program.verify import verify
from cvm.dialect.spec.op import OPERATORS, Operator, violated
from evaluate import by_formula
from samples import SAMPLES

import cvm

SEEDS = range(40)
DIALECTS = ("cvm", "dali")


def declared(*dialects: str) -> list[str]:
    return sorted(name for name, op in OPERATORS.items() if op.dialect in dialects)


def references(op: Operator[np.ndarray]) -> tuple[np.ndarray, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = op.reference()
    return found if isinstance(found, tuple) else (found,)


def types(op: Operator[np.ndarray]) -> Operator[TensorType]:
    return op.map(lambda a: TensorType(a.shape, BY_DTYPE[a.dtype]))


@pytest.mark.parametrize("name", declared(*DIALECTS))
def test_every_operator_has_samples(name: str) -> None:
    assert name in SAMPLES


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_formula_agrees_with_reference(name: str) -> None:
    for seed in SEEDS:
        op = SAMPLES[name](np.random.default_rng(seed))
        typed = types(op)
        broken, _ = violated(typed, typed.constraints)
        assert broken is None, f"seed {seed}: the sample {op} breaks C{broken.number}: {broken.text}"
        wanted = references(op)
        assert len(wanted) == len(op.results), f"seed {seed}"
        for array, type in zip(wanted, typed.result_types(), strict=True):
            assert isinstance(array, np.ndarray), f"seed {seed}: the reference gives {array!r}"
            assert array.dtype == type.element.dtype, f"seed {seed}: {array.dtype} is not {type}"
            assert array.shape == type.array_shape, f"seed {seed}: {array.shape} is not {type}"
        for unknown_sizes in (False, True):
            for found, array in zip(by_formula(op, unknown_sizes), wanted, strict=True):
                assert_same(found, array, ulps(op), f"seed {seed}: {op}")


def ulps(op: Operator[np.ndarray]) -> int:
    """How far a result may be from the reference's, in units of the last place."""
    if isinstance(op, Pointwise):
        return SCALARS[op.scalar].ulps if op.scalar else 0
    return 0


def assert_same(found: np.ndarray, wanted: np.ndarray, ulps: int, message: str) -> None:
    """Equal types, shapes and values: bit for bit, or floats within some units of the last place; NaN is NaN."""
    if not ulps or wanted.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted, message, strict=True)
        assert wanted.dtype.kind != "f" or (np.isnan(wanted) | (np.signbit(found) == np.signbit(wanted))).all(), message
        return
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, message
    known = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(found), ~known, message)
    found, wanted = np.where(known, found, 0), np.where(known, wanted, 0)
    away = ordered(found) - ordered(wanted)
    assert (np.abs(away) <= ulps).all(), f"{message}: {found} is not within {ulps} ulp of {wanted}"


def ordered(floats: np.ndarray) -> np.ndarray:
    """Python's integers in the order of the floats, neighbours one apart."""
    bits = floats.view(f"i{floats.dtype.itemsize}").astype(object)
    return np.where(bits < 0, -(bits & (1 << (8 * floats.dtype.itemsize - 1)) - 1), bits)


def program(op: Operator[np.ndarray], unknown_sizes: bool) -> tuple[Module, list[np.ndarray]]:
    """A program of this one operation, and its arguments."""
    arrays: list[np.ndarray] = []
    values: list[Value] = []

    def argument(array: np.ndarray) -> Value:
        name = f"x{len(values)}"
        shape = tuple(Size.named(f"{name.upper()}N{n}") if unknown_sizes else d for n, d in enumerate(array.shape))
        arrays.append(array)
        values.append(Value(name, TensorType(shape, BY_DTYPE[array.dtype])))
        return values[-1]

    operator = op.map(argument)
    results = tuple(Value(name, None) for name in op.results)
    main = Function("main", tuple(values), (Operation(operator, results),), results)
    return verify(Module({"main": main})), arrays


@pytest.mark.parametrize("unknown_sizes", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_compiled_agrees_with_reference(name: str, unknown_sizes: bool) -> None:
    for seed in SEEDS[:6]:
        op = SAMPLES[name](np.random.default_rng(seed))
        try:
            module, arrays = program(op, unknown_sizes)
        except cvm.VerifyError:
            assert unknown_sizes, f"seed {seed}: {op}"
            continue  # some attributes mean something only for sizes that are known
        found = cvm.compile(module)(*arrays)
        for got, wanted in zip(found if isinstance(found, tuple) else (found,), references(op), strict=True):
            assert_same(got, wanted, ulps(op), f"seed {seed}: {op}")


@pytest.mark.parametrize("name", declared(*DIALECTS))
def test_example_is_a_program(name: str) -> None:
    module = cvm.parse(textwrap.dedent(OPERATORS[name].example))
    used = [o.operator.name for f in module.functions.values() for o in f.operations]
    assert name in used
