"""NumPy's ufuncs: the formula of each gives NumPy's values, and traced functions NumPy's element
types.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from available_targets import HERE
from cvm.dialect.numpy import elementwise as elementwise
from cvm.dialect.numpy.ufunc_table import UFUNCS, Ufunc
from cvm.dialect.types.tensor_types import ELEMENT_TYPES, ElementType, kind_of

import cvm

COUNT = 211
TYPES = [e.name for e in ELEMENT_TYPES.values()]
PAIRS = [
    *((t, t) for t in TYPES),
    ("i8", "ui8"),
    ("i32", "f32"),
    ("i64", "f32"),
    ("ui64", "i64"),
    ("f32", "f64"),
    ("f16", "i8"),
    ("i1", "i32"),
    ("ui32", "i32"),
]
ZERO_OF_EITHER_SIGN = (
    "maximum",
    "minimum",
    "fmax",
    "fmin",
)  # NumPy's depends on the position in the array
# products and squares of complex numbers by NumPy's vector loops round a product and a sum together
ROUNDED_TOGETHER = ("multiply", "square", "divide", "reciprocal", "absolute", "sqrt", "sign")


def values(element: ElementType, seed: int, count: int = COUNT) -> np.ndarray:
    """Elements of all magnitudes, a good part of them at the edges of the type."""
    random, dtype = np.random.default_rng(seed), element.dtype
    if dtype.kind == "b":
        return random.random(count) < 0.5
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        edges = [0, 1, 2, 3, 7, 63, 64, limits.max, limits.max - 1, limits.min, limits.min + 1]
        edges += [-1, -2, -7] if limits.min else []
        plain = random.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
        plain >>= random.integers(0, dtype.itemsize * 8, count).astype(dtype)
    elif kind_of(dtype) == "f":
        limits = ml_dtypes.finfo(dtype)
        edges = [
            0.0,
            -0.0,
            1,
            -1,
            2,
            0.5,
            -0.5,
            2.5,
            -2.5,
            3,
            -3,
            1e4,
            np.inf,
            -np.inf,
            np.nan,
            limits.max,
            -limits.max,
        ]
        edges += [
            limits.tiny,
            limits.tiny / 4,
            limits.smallest_subnormal,
            -limits.smallest_subnormal,
        ]
        with np.errstate(over="ignore"):
            plain = (random.standard_normal(count) * 10.0 ** random.integers(-4, 4, count)).astype(
                dtype
            )
    else:
        part = ELEMENT_TYPES["f32" if dtype == np.complex64 else "f64"]
        return (values(part, seed, count) + 1j * values(part, seed + 1, count)).astype(dtype)
    return np.where(
        random.random(count) < 0.4, random.choice(np.array(edges, dtype), count), plain
    ).astype(dtype)


def agrees(
    row: Ufunc, found: np.ndarray, wanted: np.ndarray, operands: list[np.ndarray]
) -> np.ndarray:
    if kind_of(wanted.dtype) not in "fc":
        return found == wanted
    if any(o.dtype.kind == "c" for o in operands):
        if row.ulps or row.name in ROUNDED_TOGETHER:
            return _complex_close(row, found, operands)
        return _same(found.real, wanted.real, False) & _same(found.imag, wanted.imag, False)
    if row.ulps:
        limits = ml_dtypes.finfo(wanted.dtype)
        with np.errstate(invalid="ignore"):
            near = np.abs(found - wanted) <= (row.ulps + 2) * np.maximum(
                np.spacing(np.abs(wanted)), limits.smallest_subnormal
            )
        return near | _same(found, wanted, False)
    of_ml_dtypes = (
        row.name == "sign" and wanted.dtype.name == "bfloat16"
    )  # which keeps the sign of a zero
    return _same(found, wanted, row.name not in ZERO_OF_EITHER_SIGN and not of_ml_dtypes)


def _same(found: np.ndarray, wanted: np.ndarray, signed_zeros: bool) -> np.ndarray:
    same = (found == wanted) & ((np.signbit(found) == np.signbit(wanted)) | (not signed_zeros))
    return same | (np.isnan(found) & np.isnan(wanted))


def _complex_close(row: Ufunc, found: np.ndarray, operands: list[np.ndarray]) -> np.ndarray:
    """Near the value in more precision: NumPy's own is further off, as it rounds 1 + z in log1p and
    z ln 2 in exp2.
    """
    wide = [
        o.astype(np.clongdouble if o.dtype == np.complex128 else np.complex128) for o in operands
    ]
    limits = np.finfo(found.dtype)
    with np.errstate(all="ignore"):
        wanted = np.asarray(row.numpy(*wide))
        size = np.abs(wanted)
        error = np.abs(found.astype(wanted.dtype) - wanted)
        ordinary = (size < np.sqrt(limits.max)) & (size > limits.tiny / limits.eps)
        for o in operands:
            ordinary &= (np.abs(o) < 10) & (np.abs(o) > np.sqrt(limits.tiny))
        bound: Any = 16
        if row.name in ("power", "float_power"):  # exp(w log z), whose exponent is rounded
            bound = 16 * (1 + np.abs(wide[1] * np.log(wide[0])))
        return ~ordinary | (error <= bound * limits.eps * size)


@pytest.mark.sample(12)
@pytest.mark.parametrize("target", [t for t in HERE if t not in ("cuda", "reference")])
@pytest.mark.parametrize(("a", "b"), PAIRS, ids=lambda e: str(e))
def test_formulas_give_what_numpy_gives(a: str, b: str, target: str) -> None:
    """Every ufunc of two types in one program, so that each is compiled once."""
    if target == "cuda-sim" and (a != b or a not in ("i32", "f32", "f64")):
        pytest.skip("the emulator runs some types")
    first, second = ELEMENT_TYPES[a], ELEMENT_TYPES[b]
    x, y, c = values(first, 1), values(second, 2), values(ELEMENT_TYPES["i1"], 3)
    exponent = np.where(y < 0, 0, y).astype(y.dtype) if second.kind == "int" else y
    rows, lines = [], []
    for name, row in UFUNCS.items():
        operands = {
            1: ("%x",),
            2: ("%x", "%e" if name == "power" else "%y"),
            3: ("%c", "%x", "%y"),
        }[row.arity]
        if (
            row.loop(
                {1: (first,), 2: (first, second), 3: (ELEMENT_TYPES["i1"], first, second)}[
                    row.arity
                ]
            )
            is None
        ):
            continue
        lines.append(
            f'  %r{len(rows)} = numpy.elementwise {", ".join(operands)} {{ufunc = "{name}"}}'
        )
        rows.append((row, operands))
    declared = ", ".join(
        f"%{n}: tensor<{COUNT}x{t}>" for n, t in (("x", a), ("y", b), ("e", b), ("c", "i1"))
    )
    results = ", ".join(f"%r{n}" for n in range(len(rows)))
    text = "\n".join([f"func @main({declared}) {{", *lines, f"  return {results}", "}"])
    given = {"%x": x, "%y": y, "%e": exponent, "%c": c}
    assert len(rows) > 20
    for (row, operands), found in zip(
        rows, cvm.compile(text, target=target)(x, y, exponent, c), strict=True
    ):
        arrays = [given[o] for o in operands]
        with np.errstate(all="ignore"):
            wanted = np.asarray(row.numpy(*arrays))
        assert found.dtype == wanted.dtype, row.name
        wrong = np.flatnonzero(~agrees(row, found, wanted, arrays))
        shown = [(*(o[n] for o in arrays), found[n], wanted[n]) for n in wrong[:3]]
        assert not wrong.size, f"np.{row.name}: operands, found and wanted: {shown}"


@pytest.mark.parametrize("element", ["complex<f32>", "complex<f64>"])
def test_complex_powers(element: str) -> None:
    """Whole exponents below 100 bit for bit; others near, and infinite or NaN where NumPy's are."""
    dtype = ELEMENT_TYPES[element].dtype
    part = np.finfo(dtype)
    huge, tiny = float(part.max), float(part.tiny)
    parts = (
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.1,
        2.0,
        -2.5,
        77.7,
        1e10,
        huge**0.5,
        huge,
        tiny**0.5,
        np.inf,
        -np.inf,
        np.nan,
    )
    bases = np.array([complex(a, b) for a in parts for b in parts], dtype)
    whole = np.array([*range(-99, 100, 11), -3, -2, -1, 0, 1, 2, 3, 4, 5], dtype)
    others = [
        complex(a, b)
        for a in (-2, -0.5, 0, 1, 3.5, np.inf, -np.inf, np.nan)
        for b in (-1, 1e-3, 2, np.inf, np.nan)
    ]
    power = cvm.compile(np.power, rules="numpy")
    for exponents, exact in (
        (whole, True),
        (np.array([*others, 0.5, 1.5, 1e3, 100], dtype), False),
    ):
        z, w = (a.ravel() for a in np.meshgrid(bases, exponents))
        found = power(z, w)
        with np.errstate(all="ignore"):
            wanted = np.power(z, w)
            error = np.abs(found.astype(np.clongdouble) - wanted)
            scale = 1 + np.abs(w.astype(np.clongdouble) * np.log(z.astype(np.clongdouble)))
            bound = (
                16 * scale * part.eps * np.abs(wanted.astype(np.clongdouble))
                + part.smallest_subnormal
            )
            near = (found == wanted) | (error <= bound)
        for got, want in ((found.real, wanted.real), (found.imag, wanted.imag)):
            if exact:
                np.testing.assert_array_equal(got, want, strict=True)
            else:
                finite = np.isfinite(wanted)
                np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
                np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
                assert near[finite].all(), (z[finite & ~near][:3], w[finite & ~near][:3])


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", [t for t in HERE if t != "cuda"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_one_exponent_of_a_half_takes_the_root(dtype: str, target: str) -> None:
    """NumPy has a loop for one exponent, in which -0 and -inf have the root's results; exponents
    for each element have the power's.
    """
    power = cvm.compile(lambda x, p: x**p, target=target, rules="numpy")
    x = np.array([-0.0, -np.inf, np.inf, 4.0, -4.0, 0.0, np.nan], dtype)
    halves = 0.5, np.dtype(dtype).type(0.5), np.array([0.5], dtype), np.full(x.shape, 0.5, dtype)
    for p in (*halves, np.array([[2.0]], dtype)):
        for given in (x, x[:1], x[0, ...]):
            with np.errstate(invalid="ignore"):
                wanted = given**p
            assert _same(power(given, p), np.asarray(wanted), True).all(), (given, p)


def test_powers_of_one_exponent_have_both_derivatives() -> None:
    found = cvm.grad(lambda x, p: x**p, wrt=(0, 1))(np.float64(3.0), np.float64(0.5))
    np.testing.assert_allclose(found, [0.5 / np.sqrt(3), np.sqrt(3) * np.log(3)], rtol=1e-15)


BINARY = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.and_,
    operator.or_,
    operator.xor,
    operator.lshift,
    operator.rshift,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.ge,
)
SCALARS = (2, -1, 0.1, True, 3, 300)
REAL = [t for t in TYPES if not t.startswith("complex")]


@pytest.mark.sample(40)
@pytest.mark.parametrize("scalar", SCALARS, ids=repr)
@pytest.mark.parametrize("name", REAL)
def test_python_scalars_are_weak(name: str, scalar: Any) -> None:
    """Operators of arrays and Python's numbers give NumPy's types and values, or are refused where
    NumPy refuses them.
    """
    x = values(ELEMENT_TYPES[name], 5, 37)
    functions: list[Callable[[Any], Any]] = []
    for f in BINARY:
        functions += [lambda a, f=f: f(a, scalar), lambda a, f=f: f(scalar, a)]
    taken: list[tuple[Callable[[Any], Any], np.ndarray]] = []
    for f in functions:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                taken.append((f, f(x)))
            except (TypeError, OverflowError, ValueError):
                with pytest.raises(cvm.Error):
                    cvm.compile(f, rules="numpy")(x)
    found = cvm.compile(lambda a: [f(a) for f, _ in taken], rules="numpy")(x)
    for got, (f, wanted) in zip(found, taken, strict=True):
        assert got.dtype == wanted.dtype, f
        same = _same(got, wanted, True) if kind_of(wanted.dtype) == "f" else got == wanted
        assert same.all(), (x[~same][:3], got[~same][:3], wanted[~same][:3])


@pytest.mark.parametrize("source", REAL)
def test_astype_is_that_of_x86_64(source: str) -> None:
    x = values(ELEMENT_TYPES[source], 7)
    names = [t for t in REAL if t != source]
    found = cvm.compile(lambda a: [a.astype(ELEMENT_TYPES[t].dtype) for t in names], rules="numpy")(
        x
    )
    for name, got in zip(names, found, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # one element at a time: for ui32 NumPy's vector loops give other values than its scalar
            # ones
            wanted = np.array(
                [x[n : n + 1].astype(ELEMENT_TYPES[name].dtype)[0] for n in range(len(x))]
            )
        assert got.dtype == wanted.dtype
        same = _same(got, wanted, True) if kind_of(wanted.dtype) == "f" else got == wanted
        assert same.all(), (name, x[~same][:3], got[~same][:3], wanted[~same][:3])
