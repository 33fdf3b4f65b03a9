"""The emitted CUDA C does what `evaluate` says the kernel means: every scalar function of every
type, memory, sizes.
"""

from __future__ import annotations

import numpy as np
import pytest
from cvm.dialect.kernel_ir.expressions import (
    Bitcast,
    Expr,
    Index,
    Tensor,
    Var,
    apply,
    as_index,
    cast,
    constant,
    select,
)
from cvm.dialect.kernel_ir.loops import (
    Alloc,
    Assert,
    For,
    If,
    Kernel,
    Let,
    Store,
    accumulator,
    assign,
    update,
)
from cvm.dialect.kernel_ir.scalar_functions import SCALARS
from cvm.dialect.types.sizes import Dim, Size
from cvm.dialect.types.tensor_types import (
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    UI8,
    UI16,
    UI32,
    UI64,
    ElementType,
)
from cvm.jit.cuda.emit import emit
from cvm.jit.cuda.scalar_spelling import ROWS
from emission_operands import REAL, matrix_sum, values
from emulated_kernels import needs_nvrtc, plan_of, simulated
from loop_interpreter import execute
from native_kernels import kernel, tensor

pytestmark = needs_nvrtc
COUNT = 64
NAMES = sorted({f for f, _ in ROWS} - {"fma", "select", "rarely"})


def agree(k: Kernel, *operands: np.ndarray) -> None:
    for found, wanted in zip(simulated(k, *operands), execute(k, *operands), strict=True):
        np.testing.assert_array_equal(found, wanted, strict=True)


def pointwise(formulas: list[tuple[Expr, list[tuple[Tensor, np.ndarray]]]], index: Index) -> None:
    """y0[i] = formula, y1[i] = ... in one kernel, each over operands of its own."""
    given = {t: a for _, operands in formulas for t, a in operands}
    results = [tensor(f"y{n}", e.type, COUNT) for n, (e, _) in enumerate(formulas)]
    body = tuple(Store(y, (index,), e) for y, (e, _) in zip(results, formulas, strict=True))
    agree(kernel((For(index, body),), *given, *results, results=len(results)), *given.values())


def operands(function: str, element: ElementType) -> list[tuple[Tensor, np.ndarray]]:
    arrays = [values(element, COUNT, seed) for seed in range(SCALARS[function].arity)]
    if function in ("shl", "shr"):
        arrays[1] = (np.arange(COUNT) % element.bits).astype(element.dtype)
    if function == "lrint":
        arrays[0] = np.clip(np.nan_to_num(arrays[0]), -30000, 30000)
    if function in ("div", "rem", "floordiv", "floormod") and element.is_integer:
        arrays[1][arrays[1] == 0] = element.limits[1]
        if element.kind == "int":
            arrays[0][:2], arrays[1][:2] = element.limits[0], (-1, 1)
    return [(tensor(f"{function}.{element}.{n}", element, COUNT), a) for n, a in enumerate(arrays)]


@pytest.mark.parametrize("function", [n for n in NAMES if not SCALARS[n].ulps])
def test_scalar_functions(function: str) -> None:
    i = Index("i", COUNT)
    formulas = []
    for element in REAL:
        words = function.startswith("quaddot") and element is not I32
        if (
            element.kind in SCALARS[function].kinds
            and (function, element.kind) in ROWS
            and not words
        ):
            given = operands(function, element)
            formulas.append((apply(function, *(t[i] for t, _ in given)), given))
    pointwise(formulas, i)


@pytest.mark.parametrize("target", REAL, ids=str)
def test_conversions(target: ElementType) -> None:
    i = Index("i", COUNT)
    given = [(tensor(f"x{n}", e, COUNT), values(e, COUNT)) for n, e in enumerate(REAL)]
    pointwise([(cast(t[i], target), [(t, a)]) for t, a in given], i)


def test_bits() -> None:
    i = Index("i", COUNT)
    formulas = []
    for a, b in (
        (F16, I16),
        (F16, UI16),
        (F32, I32),
        (F32, UI32),
        (F64, I64),
        (F64, UI64),
        (I8, UI8),
        (I32, UI32),
    ):
        for source, target in ((a, b), (b, a)):
            array = values(source, COUNT)
            if source.is_integer and target.kind == "float":
                array = np.abs(values(target, COUNT)).view(source.dtype)
            array = array[~np.isnan(array.view(target.dtype)) if target.kind == "float" else ...]
            array = np.resize(array, COUNT)
            x = tensor(f"{source}.{target}", source, COUNT)
            formulas.append((Bitcast(x[i], target), [(x, array)]))
    pointwise(formulas, i)


def test_fma_is_rounded_once() -> None:
    from fractions import Fraction

    i = Index("i", 4)
    for element, one in ((F32, 2.0**-12), (F64, 2.0**-27), (F16, 2.0**-6)):
        a = np.array([1 + one, 1 + one, 1 - one, 3.0], element.dtype)
        c = np.array([-1.0, one * one, -1.0, 2.0**-20], element.dtype)
        x, z, y = tensor("x", element, 4), tensor("z", element, 4), tensor("y", element, 4)
        k = kernel((For(i, (Store(y, (i,), apply("fma", x[i], x[i], z[i])),)),), x, z, y)
        exact = [Fraction(float(p)) ** 2 + Fraction(float(q)) for p, q in zip(a, c, strict=True)]
        np.testing.assert_array_equal(
            simulated(k, a, c)[0], np.array([float(e) for e in exact]).astype(element.dtype)
        )


def test_products_that_feed_sums_are_not_fused() -> None:
    i = Index("i", 1000)
    random = np.random.default_rng(1)
    for element in (F32, F64, F16):
        x, z, y = tensor("x", element, 1000), tensor("z", element, 1000), tensor("y", element, 1000)
        k = kernel((For(i, (Store(y, (i,), x[i] * x[i] + z[i]),)),), x, z, y)
        a, b = (random.normal(0, 1, 1000).astype(element.dtype) for _ in range(2))
        np.testing.assert_array_equal(simulated(k, a, b)[0], a * a + b)


def test_wide_expressions_wrap_where_they_should() -> None:
    i = Index("i", COUNT)
    formulas = []
    for e in (I8, UI8, I16, UI16, I32, UI32, I64, UI64):
        x, y = operands("add", e)
        a, b = x[0][i], y[0][i]
        value = ((a * b + a) << constant(3, e)) - ~b
        formulas.append(
            (select(value > a, value / constant(7, e), (-value) >> constant(2, e)), [x, y])
        )
        formulas.append((cast(value * value, I64), [x, y]))
        formulas.append((cast(cast(value - a, UI8), F32), [x, y]))
        formulas.append((cast(apply("max", value, b), UI64), [x, y]))
    pointwise(formulas, i)


def test_what_is_written_is_read_again() -> None:
    i = Index("i", 4)
    y, z = tensor("y", I32, 5), tensor("z", I32, 4)
    before, read = Var("before", I32), y[i]
    body = (
        Let(before, read),
        Store(y, (i + 1,), read + 1),
        Store(y, (i,), read * 2),
        Store(z, (i,), read + before),
    )
    agree(kernel((Store(y, (as_index(0),), constant(7, I32)), For(i, body)), y, z, results=2))


def test_a_branch_and_its_accumulator() -> None:
    i = Index("i", 6)
    x, y, acc = tensor("x", I32, 6), tensor("y", I32, 6), accumulator("acc", I32)
    seen = acc[()] + 1
    body = (
        If(
            x[i] > 0,
            (Store(acc, (), seen),),
            (Store(acc, (), seen * 2), Store(acc, (), acc[()] + seen)),
        ),
        Store(y, (i,), seen),
    )
    agree(
        kernel((Alloc(acc), assign(acc, 1), For(i, body)), x, y),
        np.array([1, -1, 2, 0, -5, 3], np.int32),
    )


@pytest.mark.parametrize("space", ["register", "stack"])
def test_buffers_of_each_thread(space: str) -> None:
    i, j, k = Index("i", 16), Index("j", 4), Index("k", 5)
    x, y = tensor("x", F16, 5, 16), tensor("y", F16, 16)
    acc, tile = accumulator("acc", F16), tensor("tile", F16, 4, space=space)
    body = (
        Alloc(acc),
        Alloc(tile),
        assign(acc, 0),
        For(j, (Store(tile, (j,), cast(j, F16)),), kind="unrolled"),
        For(k, (update("add", acc, x[k, i] * tile[k % 4]),)),
        Store(y, (i,), acc[()]),
    )
    agree(kernel((For(i, body),), x, y), values(F16, 80).reshape(5, 16))


@pytest.mark.parametrize("shape", [(3, 5), (0, 4), (4, 0), (1, 1), (300, 2)])
def test_sizes_known_and_unknown_and_scratch_memory(shape: tuple[int, int]) -> None:
    x = values(I32, shape[0] * shape[1]).reshape(shape)
    agree(matrix_sum(*shape), x)
    agree(matrix_sum(Size.named("N"), Size.named("M")), x)


@pytest.mark.parametrize("size", [0, 1, 6])
def test_sizes_computed_from_sizes(size: int) -> None:
    n, one = Size.named("N"), Size.named("M")
    parts = [(n * 2 - 5) // 3, (n * 2 - 5) // -2, n // (one - 1), n // one, n * n, n % 4]
    x, m, y = tensor("x", I8, n), tensor("m", I8, one), tensor("y", I64, len(parts))
    stores = tuple(Store(y, (as_index(k),), as_index(p)) for k, p in enumerate(parts))
    agree(kernel(stores, x, m, y), np.zeros(size, np.int8), np.zeros(1, np.int8))


@pytest.mark.parametrize("extent", [16, Size.named("N")])
@pytest.mark.parametrize("divisor", [1, 4, 5, -4])
def test_index_arithmetic_rounds_down(divisor: int, extent: Dim) -> None:
    i = Index("i", extent)
    x, y, z = tensor("x", I8, extent), tensor("y", I64, extent), tensor("z", I64, extent)
    shifted = i - 8
    body = (Store(y, (i,), shifted // divisor * 2**30 * 7), Store(z, (i,), shifted % divisor))
    agree(kernel((For(i, body),), x, y, z, results=2), np.zeros(16, np.int8))


@pytest.mark.parametrize("bad", [None, 0, 13, 15])
def test_requirements(bad: int | None) -> None:
    i = Index("i", 16)
    x, y = tensor("x", I16, 16), tensor("y", I16, 16)
    operand = np.ones(16, np.int16)
    if bad is not None:
        operand[bad] = -1
    reports: list[str] = []
    k = kernel((For(i, (Assert(x[i] > 0, "x > 0"), Store(y, (i,), x[i]))),), x, y)
    (found,) = simulated(k, operand, report=reports)
    assert reports == ([] if bad is None else ["x > 0"])
    np.testing.assert_array_equal(found, operand)


def test_no_name_of_the_users_is_emitted() -> None:
    i = Index("secret", 4)
    x, y = tensor('sec"ret', I1, 4), tensor("sec\nret", I1, 4)
    k = Kernel("secret", (x, y), (For(i, (Assert(x[i], "secret"), Store(y, (i,), x[i]))),))
    assert "sec" not in emit(plan_of(k)).text


def test_large_arrays_are_indexed_in_64_bits() -> None:
    i, j = Index("i", 70000), Index("j", 70000)
    x, y = tensor("x", UI8, 70000, 70000), tensor("y", UI8, 70000, 70000)
    text = emit(plan_of(kernel((For(i, (For(j, (Store(y, (i, j), x[i, j]),)),)),), x, y))).text
    assert "for (int" in text and "(long long)v2 * 16" in text  # packs of 16 bytes
    small = emit(plan_of(kernel((For(i, (Store(y, (i, as_index(0)), x[i, 0]),)),), x, y))).text
    assert "for (int" in small and "(long long)v2 * 70000" in small
