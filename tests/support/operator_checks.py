"""Check an operator's reference, formula and compiled code against each other."""

from __future__ import annotations

import warnings

import numpy as np
import samples_builtin as samples_like  # noqa: F401  (enters its samples)
import samples_dali  # noqa: F401  (enters its samples)
import samples_numpy  # noqa: F401  (enters its samples)
import samples_quant  # noqa: F401  (enters its samples)
import samples_theano  # noqa: F401  (enters its samples)
from cvm.dialect.dali.pointwise import Pointwise
from cvm.dialect.ir.function import Function, Operation, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.verify import verify
from cvm.dialect.kernel_ir.scalar_functions import SCALARS
from cvm.dialect.spec.operator import Operator
from cvm.dialect.types.sizes import Size
from cvm.dialect.types.tensor_types import BY_DTYPE, TensorType


def references(op: Operator[np.ndarray]) -> tuple[np.ndarray, ...]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        found = op.reference()
    return found if isinstance(found, tuple) else (found,)


def types(op: Operator[np.ndarray]) -> Operator[TensorType]:
    return op.map(lambda a: TensorType(a.shape, BY_DTYPE[a.dtype]))


def ulps(op: Operator[np.ndarray]) -> int:
    """The tolerance of a result against the reference, in units of the last place."""
    if isinstance(op, Pointwise):
        return SCALARS[op.scalar].ulps if op.scalar else 0
    return 0


def assert_same(found: np.ndarray, wanted: np.ndarray, ulps: int, message: str) -> None:
    """Equal types, shapes and values: bit for bit, or floats within some units of the last place;
    NaN is NaN.
    """
    if not ulps or wanted.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted, message, strict=True)
        assert (
            wanted.dtype.kind != "f"
            or (np.isnan(wanted) | (np.signbit(found) == np.signbit(wanted))).all()
        ), message
        return
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, message
    known = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(found), ~known, message)
    found, wanted = np.where(known, found, 0), np.where(known, wanted, 0)
    away = ordered(found) - ordered(wanted)
    assert (np.abs(away) <= ulps).all(), f"{message}: {found} is not within {ulps} ulp of {wanted}"


def ordered(floats: np.ndarray) -> np.ndarray:
    """Python's integers in the order of the floats, neighbors one apart."""
    bits = floats.view(f"i{floats.dtype.itemsize}").astype(object)
    return np.where(bits < 0, -(bits & (1 << (8 * floats.dtype.itemsize - 1)) - 1), bits)


def program(op: Operator[np.ndarray], unknown_sizes: bool) -> tuple[Module, list[np.ndarray]]:
    """A program of this one operation, and its arguments."""
    arrays: list[np.ndarray] = []
    values: list[Value] = []

    def argument(array: np.ndarray) -> Value:
        name = f"x{len(values)}"
        shape = tuple(
            Size.named(f"{name.upper()}N{n}") if unknown_sizes else d
            for n, d in enumerate(array.shape)
        )
        arrays.append(array)
        values.append(Value(name, TensorType(shape, BY_DTYPE[array.dtype])))
        return values[-1]

    operator = op.map(argument)
    results = tuple(Value(name, None) for name in op.results)
    main = Function("main", tuple(values), (Operation(operator, results),), results)
    return verify(Module({"main": main})), arrays
