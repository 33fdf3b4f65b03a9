"""Arithmetic of bf16: every scalar operation and conversion is rounded once, with equal bits on
every target.
"""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from available_targets import HERE
from cvm.dialect.theano.scalar_op import SCALAR_OPS, ScalarOp
from cvm.dialect.types.tensor_types import BF16, ELEMENT_TYPES, F32, ElementType, compute_type

import cvm

DTYPE = BF16.dtype
EVERY = np.arange(1 << 16, dtype=np.uint16).view(DTYPE)  # every bf16 there is
COMPILED = [t for t in HERE if t not in ("reference", "cuda")]
EXACT = (
    "add",
    "sub",
    "mul",
    "true_div",
    "int_div",
    "mod",
    "neg",
    "abs_",
    "sgn",
    "sqr",
    "sqrt",
    "ceil",
    "floor",
    "trunc",
    "round_half_to_even",
    "round_half_away_from_zero",
    "maximum",
    "minimum",
    "eq",
    "neq",
    "lt",
    "le",
    "gt",
    "ge",
    "isnan",
    "isinf",
    "inclosedrange",
    "inopenrange",
    "identity",
    "second",
    "switch",
    "clip",
    "mul_without_zeros",
)
# computed in f32 within 2 ulp: what lies near the middle between two numbers of bf16 may be rounded
# to either
ROUNDED = (
    "exp",
    "expm1",
    "log",
    "log1p",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "softplus",
    "erf",
    "pow",
    "arctan2",
)


def ordered(x: np.ndarray) -> np.ndarray:
    """The numbers counted in their order."""
    bits = x.view(np.int16).astype(np.int32)
    return np.where(bits < 0, -(bits & 0x7FFF), bits)


def same(found: np.ndarray, wanted: np.ndarray, apart: int) -> np.ndarray:
    if found.dtype != DTYPE:
        return (found == wanted) | ((found != found) & (wanted != wanted))
    equal = (
        found.view(np.uint16) == wanted.view(np.uint16)
        if not apart
        else abs(ordered(found) - ordered(wanted)) <= apart
    )
    return equal | (np.isnan(found) & np.isnan(wanted))


def operands(op: ScalarOp, count: int) -> list[np.ndarray]:
    """All numbers, or as many random ones of all bits, in the places of the operands."""
    random = np.random.default_rng(3)
    return (
        [EVERY, *(random.permutation(EVERY) for _ in range((op.arity or 2) - 1))][:count]
        if op.arity != 1
        else [EVERY]
    )


@pytest.mark.parametrize("target", COMPILED)
@pytest.mark.parametrize("optimize", [0, 2])
def test_every_scalar_operation(target: str, optimize: int) -> None:
    """All operations in one program; the simulated GPU takes those that are exact."""
    names = EXACT + ROUNDED if target == "cpu" else EXACT
    lines, given = [], operands(SCALAR_OPS["clip"], 3)
    for n, name in enumerate(names):
        arguments = ", ".join(("%x", "%y", "%z")[: SCALAR_OPS[name].arity or 2])
        lines.append(f'  %r{n} = theano.elemwise {arguments} {{scalar_op = "{name}"}}')
    results = ", ".join(f"%r{n}" for n in range(len(names)))
    declared = ", ".join(f"%{n}: tensor<?N x bf16>" for n in "xyz")
    text = "\n".join([f"func @main({declared}) {{", *lines, f"  return {results}", "}"])
    given = [a if target == "cpu" else a[::16].copy() for a in given]
    wanted = cvm.compile(text, target="reference")(*given)
    for name, got, want in zip(
        names, cvm.compile(text, target=target, optimize=optimize)(*given), wanted, strict=True
    ):
        assert got.dtype == want.dtype, name
        wrong = np.flatnonzero(~same(got, want, 0 if name in EXACT else 1))
        assert not wrong.size, (
            name,
            [a[wrong[:3]] for a in given],
            got[wrong[:3]],
            want[wrong[:3]],
        )


@pytest.mark.parametrize(
    ("name", "function"), [("add", np.add), ("mul", np.multiply), ("true_div", np.divide)]
)
def test_results_are_rounded_once(name: str, function: np.ufunc) -> None:
    """Against f64, in which products are exact, and sums and quotients have more than twice the
    digits and two.
    """
    x, y = operands(SCALAR_OPS[name], 2)
    text = (
        f"func @main(%x: tensor<?xbf16>, %y: tensor<?xbf16>) {{ %z = theano.elemwise %x, %y "
        f'{{scalar_op = "{name}"}} return %z }}'
    )
    found = cvm.compile(text.replace("?", "65536"))(x, y)
    with np.errstate(all="ignore"):
        exact = function(x.astype(np.float64), y.astype(np.float64))
    finite = np.isfinite(exact) & (np.abs(exact) < 2.0**127) & np.isfinite(found)
    step = 2.0 ** (np.maximum(np.frexp(np.where(finite, exact, 1))[1], -125) - 8.0)
    error = np.abs(found.astype(np.float64) - exact)
    assert (error[finite] <= step[finite] / 2).all() and finite.sum() > 10_000


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "any", "all"])
def test_reductions(kind: str, target: str) -> None:
    """Sums and products of small numbers are exact in f32, and rounded once."""
    x = np.random.default_rng(1).choice([-2, -1, 1, 0.5, 3], (4, 9)).astype(DTYPE)
    found = cvm.compile(
        f"func @main(%x: tensor<4x9xbf16>) {{ %y = theano.{kind} %x {{axis = [1]}} return %y }}",
        target=target,
    )(x)
    wanted = getattr(np, kind)(x.astype(np.float32), axis=1)
    np.testing.assert_array_equal(found, wanted.astype(found.dtype), strict=True)


@pytest.mark.parametrize("other", ELEMENT_TYPES.values(), ids=str)
def test_promotion(other: ElementType) -> None:
    """bf16 holds booleans and integers of 8 bits; with other types it is promoted as f32 is."""
    text = (
        f"func @main(%x: tensor<bf16>, %y: tensor<{other}>) {{ %z = theano.elemwise %x, %y "
        f'{{scalar_op = "add"}} return %z }}'
    )
    result = cvm.compile(text)(np.ones((), DTYPE), np.ones((), other.dtype))
    held = other is BF16 or other.bits <= 8
    assert (
        result.dtype == (DTYPE if held else np.promote_types(np.float32, other.dtype))
        and result == 2
    )


def test_literals_are_rounded_once() -> None:
    """1 + 2^-8 + 2^-40 is above the middle between two numbers of bf16, but not in f32."""
    value = float(1 + Fraction(1, 2**8) + Fraction(1, 2**40))
    text = (
        f"func @main() {{ %x = const dense<{value!r}> : tensor<bf16>\n"
        f" %y = const dense<[{value!r}]> : tensor<1xbf16>\n return %x, %y }}"
    )
    for array in cvm.compile(text)():
        assert array.astype(np.float32).item() == 1 + 2**-7
    module = cvm.parse(
        "func @main() { %x = const dense<[1, 0.1, -inf, nan, 3.3895e38]> : tensor<5xbf16>\n"
        " return %x }"
    )
    assert str(cvm.parse(str(module))) == str(module)


def test_names_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ml_dtypes, arrays of bf16 end in an error that says how to get it; other programs do
    not import it.
    """
    from cvm.dialect.types import tensor_types as types

    types._bfloat16.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    with pytest.raises(cvm.Error, match=r"pip install .cvm-lang\[bfloat16\]"):
        cvm.compile("func @main(%x: tensor<2xbf16>) { return %x }")([1, 2])
    monkeypatch.undo()
    types._bfloat16.cache_clear()
    assert ml_dtypes.bfloat16 == BF16.dtype.type and compute_type(BF16) is F32
