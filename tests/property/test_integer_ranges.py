"""Ranges hold every value that a program computes, and what is built on them changes no result."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import samples_dali  # noqa: F401  (enters its samples)
import samples_theano  # noqa: F401  (enters its samples)
from cvm.dialect.builtin import Const, Data
from cvm.dialect.ir.function import Function, Operation, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.verify import verify
from cvm.dialect.kernel_ir.expressions import (
    Read,
    apply,
    axes,
    both,
    cast,
    constant,
    indices,
    largest,
    select,
    total,
    when,
)
from cvm.dialect.kernel_ir.index_bounds import inside
from cvm.dialect.kernel_ir.integer_interval import Interval, whole
from cvm.dialect.kernel_ir.scalar_functions import SCALARS
from cvm.dialect.types.sizes import Size
from cvm.dialect.types.tensor_types import BY_DTYPE, I1, I8, I32, I64, UI8, ElementType, TensorType
from cvm.lowering.analysis.enumerate_points import window_reaches_input
from cvm.lowering.analysis.integer_ranges import interval
from cvm.lowering.analysis.interval_arithmetic import ELEMENTWISE, SCALAR
from cvm.lowering.formulas.overflow_warnings import Analysis, possible_overflows
from cvm.lowering.processor import Processor, compiling_for
from hypothesis import given, strategies as st
from native_kernels import tensor
from samples import SAMPLES
from tiers import examples
from tuning import tuned

import cvm


def within(array: np.ndarray, values: Interval) -> bool:
    return not array.size or (int(array.min()) in values and int(array.max()) in values)


# scalar functions, one by one


def computed(
    function: str, element: ElementType, *operands: Interval
) -> tuple[Interval, np.ndarray]:
    """The interval of a function of integers in intervals, and all the values that it has."""
    tensors = [tensor(name, element) for name in "abc"[: len(operands)]]
    found = interval(
        apply(function, *(t[()] for t in tensors)), dict(zip(tensors, operands, strict=True))
    )
    grid = np.meshgrid(
        *(np.arange(o.low, o.high + 1).astype(element.dtype) for o in operands), indexing="ij"
    )
    if function in ("div", "rem", "floordiv", "floormod"):
        grid = [g[grid[1] != 0] for g in grid]
    if function in ("shl", "shr"):
        grid = [g[(grid[1] >= 0) & (grid[1] < element.bits)] for g in grid]
    with np.errstate(all="ignore"):
        return found, np.asarray(SCALARS[function].numpy(*grid)).astype(np.int64)


@pytest.mark.parametrize(
    ("operand", "truth"),
    [
        ((1, 5), (1, 1)),
        ((-5, -1), (1, 1)),
        ((0, 0), (0, 0)),
        ((0, 1), (0, 1)),
        ((-1, 0), (0, 1)),
        ((-1, 1), (0, 1)),
    ],
)
def test_truths_of_intervals(operand: tuple[int, int], truth: tuple[int, int]) -> None:
    x = tensor("x", I32)
    assert interval(cast(x[()], I1), {x: Interval(*operand)}) == Interval(*truth)


def intervals(element: ElementType) -> st.SearchStrategy[Interval]:
    ends = st.one_of(
        st.integers(*element.limits),
        st.sampled_from([*element.limits, 0, 1, element.limits[0] + 1]),
    )
    return st.tuples(ends, ends).map(lambda pair: Interval(min(pair), max(pair)))


FUNCTIONS = sorted({*ELEMENTWISE, *SCALAR, "not", "clz"} - {"any"})
EXACT = {
    "add",
    "sub",
    "neg",
    "abs",
    "max",
    "min",
    "not",
    "clz",
    "shr",
}  # what is reached is known, too


@pytest.mark.parametrize("element", [I8, UI8], ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
@examples(60)
@given(data=st.data())
def test_functions_of_intervals(function: str, element: ElementType, data: st.DataObject) -> None:
    operands = [data.draw(intervals(element)) for _ in range(SCALARS[function].arity)]
    found, values = computed(function, element, *operands)
    assert within(values, found), (
        f"{function}{operands}: {found} without [{values.min()}, {values.max()}]"
    )
    undefined = function == "shr" and (operands[1].low < 0 or operands[1].high >= element.bits)
    if function in EXACT and not undefined and values.size and found != whole(element):
        assert (values.min(), values.max()) == (found.low, found.high)


def test_a_choice_narrows_what_it_compares() -> None:
    x = tensor("x", I32)
    known = {x: Interval(-10, 20)}
    assert interval(select(x[()] < 5, 5, x[()]), known) == Interval(5, 20)
    assert interval(select((x[()] >= 0) & (x[()] <= 3), x[()], 0), known) == Interval(0, 3)
    assert interval(select((x[()] < 0) | (x[()] > 3), 1, x[()]), known) == Interval(0, 3)
    assert interval(select(~(x[()] > 7), x[()] + 1, -1), known) == Interval(-9, 8)
    assert interval(select(x[()] > 20, 1000, x[()]), known) == Interval(-10, 20)
    assert interval(select(x[()].eq(4), x[()] * 2, 0), known) == Interval(0, 8)
    assert interval(select(x[()] < -20, constant(1000, I32), constant(7, I32)), known) == Interval(
        7, 7
    )


def test_elements_of_constants_count_one_by_one() -> None:
    w, x = tensor("w", I32, 2, 3), tensor("x", I32, 4, 3)
    i, j, k = indices("i j k", (4, 2, 3))
    weights = np.array([[1, -2, 3], [100, 0, 0]], np.int32)
    known = {x: Interval(-1, 10), w: Interval(-2, 100)}
    dot = total(k, x[i, k] * w[j, k])
    assert interval(dot, known, {w: weights}) == Interval(-100, 1000)
    assert interval(dot, known) == Interval(-300, 3000)
    assert interval(total(k, x[i, k] * w[0, k]), known, {w: weights}) == Interval(-24, 42)
    assert interval(total(k, w[j, k] * w[j, k]), known, {w: weights}) == Interval(14, 10000)
    huge = {w: np.full((2, 3), 2**31 - 1, np.int32)}
    assert interval(total(k, x[i, k] * w[j, k]), known, huge) == whole(I32)


def test_sizes_that_are_not_known() -> None:
    n = Size.named("N")
    x = tensor("x", I32, n)
    (k,) = axes((n,))
    assert interval(total(k, x[k]), {x: Interval(0, 1)}) == whole(I32)
    assert interval(total(k, x[k]), {x: Interval(0, 0)}) == Interval(0, 0)
    assert interval(largest(k, x[k]), {x: Interval(3, 5)}) == Interval(I32.limits[0], 5), (
        "there may be none"
    )


def test_windows() -> None:
    def window(extent: int, reach: int, padding: int, size: int) -> bool:
        p, k = indices("p k", (extent, reach))
        return window_reaches_input(both(inside(p + k - padding, size)), (k,))  # type: ignore[arg-type]

    assert window(8, 3, 1, 8) and window(8, 2, 0, 8)
    assert not window(9, 1, 1, 8) and not window(10, 2, 1, 8), "the last one is outside"
    x = tensor("x", I32, 8)
    p, k = indices("p k", (8, 3))
    low = constant(I32.limits[0], I32)
    pool = largest(k, when(inside(p + k - 1, 8), x[p + k - 1], low))
    assert interval(pool, {x: Interval(3, 5)}) == Interval(3, 5)


# whole operators and programs


def ranged_program(
    op: object, random: np.random.Generator, unknown_sizes: bool
) -> tuple[Module, list[np.ndarray]]:
    """A program of one operation, its operands constants, or arguments that declare how far they
    go.
    """
    arrays: list[np.ndarray] = []
    arguments: list[Value] = []
    operations: list[Operation] = []

    def given(array: np.ndarray) -> Value:
        element, name = BY_DTYPE[array.dtype], f"x{len(arguments) + len(operations)}"
        if not unknown_sizes and random.random() < 0.4:
            value = Value(name, None)
            operations.append(
                Operation(Const(Data(array), TensorType(array.shape, element)), (value,))
            )
            return value
        shape = tuple(
            Size.named(f"{name.upper()}N{n}") if unknown_sizes else d
            for n, d in enumerate(array.shape)
        )
        declared = (
            {"range": (int(array.min()), int(array.max()))}
            if array.size and element.is_integer
            else {}
        )
        arrays.append(array)
        arguments.append(Value(name, TensorType(shape, element), attributes=declared))
        return arguments[-1]

    operator = op.map(given)  # type: ignore[attr-defined]
    results = tuple(Value(name, None) for name in operator.results)
    main = Function("main", tuple(arguments), (*operations, Operation(operator, results)), results)
    return verify(Module({"main": main})), arrays


@pytest.mark.sample(130)
@pytest.mark.parametrize("unknown_sizes", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_an_interval_holds_every_value(name: str, unknown_sizes: bool) -> None:
    for seed in range(25):
        random = np.random.default_rng(seed)
        op = SAMPLES[name](random)
        if seed % 2:  # small numbers, where intervals say more
            names = iter([n for n, _ in op.operands()])
            op = op.map(
                lambda a, names=names: (
                    a % 11 if not next(names).startswith("indices") and a.dtype == np.int32 else a
                )
            )
        try:
            module, arrays = ranged_program(op, random, unknown_sizes)
        except cvm.VerifyError:
            continue  # what this operand means depends on its size
        found = Analysis(module).function(module.functions["main"])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            values = cvm.compile(module, target="reference")(*arrays)
        for array, values_of in zip(
            values if isinstance(values, tuple) else (values,), found, strict=True
        ):
            if array.dtype.kind in "biu":
                assert values_of is not None and within(array, values_of), (
                    f"seed {seed}: {op}: {values_of}, {array}"
                )


STEPS = (
    "cvm.relu %{x}",
    "cvm.abs %{x}",
    "cvm.negative %{x}",
    "cvm.clip %{x} {{a_min = -100, a_max = 90}}",
    "cvm.cvm_clip %{x} {{precision = 8}}",
    "cvm.cvm_right_shift %{x} {{precision = 9, shift_bit = 3}}",
    "cvm.cvm_left_shift %{x} {{precision = 15, shift_bit = 2}}",
    "cvm.elemwise_add %{x}, %{y}",
    "cvm.elemwise_sub %{x}, %{y}",
    "cvm.broadcast_mul %{x}, %{y}",
    "cvm.broadcast_max %{x}, %{y}",
    "cvm.broadcast_greater %{x}, %{y}",
    "cvm.broadcast_add %{x}, %k",
    "cvm.broadcast_mul %{x}, %k",
    "cvm.conv2d %{x}, %w {{padding = [1, 1]}}",
    "cvm.max_pool2d %{x} {{pool_size = [3, 3], strides = [1, 1], padding = [1, 1]}}",
    "cvm.cvm_precision %{x}",
)


@st.composite
def networks(draw: st.DrawFn) -> str:
    """A chain of operations on images of one shape, all of its values results: one function that a
    wrapper calls.
    """
    random = np.random.default_rng(draw(st.integers(0, 999)))
    w, k = (
        random.integers(-9, 10, (2, 2, 3, 3)).tolist(),
        random.integers(-9, 10, (2, 1, 1)).tolist(),
    )
    low, high = sorted(draw(st.tuples(*[st.integers(-1000, 1000)] * 2)))
    rows = draw(st.sampled_from(["6", "?H"]))
    image = f"tensor<1 x 2 x {rows} x 6 x i32>"
    lines = [
        f"%w = const dense<{w}> : tensor<2x2x3x3xi32>",
        f"%k = const dense<{k}> : tensor<2x1x1xi32>",
    ]
    names = ["v0"]
    for n in range(1, draw(st.integers(2, 8))):
        operands = {"x": draw(st.sampled_from(names)), "y": draw(st.sampled_from(names))}
        lines.append(f"%v{n} = {draw(st.sampled_from(STEPS)).format(**operands)}")
        names.append(f"v{n}")
    body = "".join(f"  {line}\n" for line in lines)
    returned = ", ".join(f"%{n}" for n in names)
    return (
        f"func @main(%v0: {image} {{range = [{low}, {high}]}}) {{\n{body}  return {returned}\n}}\n"
    )


@examples(150)
@given(networks(), st.integers(0, 2**32 - 1))
def test_every_value_of_a_program_lies_in_its_range(program: str, seed: int) -> None:
    module = cvm.parse(program)
    (argument,) = module.functions["main"].arguments
    low, high = argument.attributes["range"]
    x = np.random.default_rng(seed).integers(low, high + 1, (1, 2, 6, 6)).astype(np.int32)
    analysis = Analysis(module)
    found = analysis.function(module.functions["main"])
    values = cvm.compile(module, target="reference")(x)
    for name, array, values_of in zip(module.functions["main"].results, values, found, strict=True):
        assert values_of is not None and within(array, values_of), (
            f"{name}: {values_of} without {array}"
        )


@examples(25)
@given(networks(), st.integers(0, 2**32 - 1))
def test_narrower_arrays_change_no_bit(program: str, seed: int) -> None:
    program = re.sub(
        r"return .*, (%v\d+)\n", r"return \1\n", program
    )  # what is not returned may be narrower
    module = cvm.parse(program)
    low, high = module.functions["main"].arguments[0].attributes["range"]
    x = np.random.default_rng(seed).integers(low, high + 1, (1, 2, 6, 6)).astype(np.int32)
    wanted = cvm.compile(module, target="reference")(x)
    with compiling_for(Processor(l2_bytes=0, packing_products=0)):
        for often in (0, 4, 10**9):
            with tuned(narrow_reads=often):
                np.testing.assert_array_equal(cvm.compile(module)(x), wanted, strict=True)
        with tuned(skipped_passes=("narrow_storage",)):
            np.testing.assert_array_equal(cvm.compile(module)(x), wanted, strict=True)


LAYERS = """func @main(%x: tensor<1x3x16x16xi32>{declared}, %b: tensor<1x8x16x16xi32>) {{
  %w = const dense<{w}> : tensor<8x3x3x3xi32>
  %sum = cvm.conv2d %x, %w {{padding = [1, 1]}}
  %short = cvm.cvm_right_shift %sum {{precision = {precision}, shift_bit = 1}}
  %pool = cvm.max_pool2d %short {{pool_size = [2, 2], strides = [2, 2]}}
  %v = const dense<{v}> : tensor<8x8x3x3xi32>
  %y = cvm.conv2d %pool, %v {{padding = [1, 1]}}
  return %y
}}
"""


def layers(precision: int, declared: str = " {range = [-127, 127]}") -> str:
    random = np.random.default_rng(3)
    w, v = (
        random.integers(-99, 99, (8, 3, 3, 3)).tolist(),
        random.integers(-99, 99, (8, 8, 3, 3)).tolist(),
    )
    return LAYERS.format(w=w, v=v, precision=precision, declared=declared)


@pytest.mark.parametrize(("precision", "held"), [(8, "i8"), (12, "i16"), (24, "i32")])
def test_arrays_between_kernels_are_as_narrow_as_their_values(
    precision: int, held: str, compile_for: Callable[..., None]
) -> None:
    program = layers(precision)
    assert all(
        t.element is I32 for t in cvm.compile(program).plan.offsets if t.name in ("short", "pool")
    )
    compile_for(l2_bytes=0)
    f = cvm.compile(program)
    stored = [t for t in f.plan.offsets if t.name in ("short", "pool")]
    assert len(stored) == 2 and {str(t.element) for t in stored} == {held}
    assert all(t.element is I32 for t in (*f.plan.arguments, *f.plan.results))
    random = np.random.default_rng(0)
    x = random.integers(-127, 128, (1, 3, 16, 16)).astype(np.int32)
    b = np.zeros((1, 8, 16, 16), np.int32)
    np.testing.assert_array_equal(
        f(x, b), cvm.compile(program, target="reference")(x, b), strict=True
    )


def test_factors_that_are_known_to_fit_are_not_looked_at() -> None:
    known, unknown = (
        cvm.compile(layers(8, declared)) for declared in (" {range = [-127, 127]}", "")
    )
    assert len(str(known.source.module)) < len(str(unknown.source.module))
    random = np.random.default_rng(0)
    b = np.zeros((1, 8, 16, 16), np.int32)
    reference = cvm.compile(layers(8, ""), target="reference")
    for high in (128, 2**15, 2**31):
        x = random.integers(-high, high, (1, 3, 16, 16)).astype(np.int32)
        np.testing.assert_array_equal(unknown(x, b), reference(x, b), strict=True)
        if high == 128:
            x = np.maximum(x, -127)
            np.testing.assert_array_equal(known(x, b), reference(x, b), strict=True)


def test_what_stands_in_an_argument_is_as_wide_as_the_argument() -> None:
    program = """func @main(%x: tensor<64xi32> {range = [0, 3], inplace}) {
  %k = const dense<1000000> : tensor<64xi32>
  %y = cvm.broadcast_mul %x, %k
  %z = cvm.sum %y {axes = [0]}
  return %y, %z
}
"""
    x = np.arange(64, dtype=np.int32) % 4
    wanted = cvm.compile(program, target="reference")(x.copy())
    for found, expected in zip(cvm.compile(program)(x.copy()), wanted, strict=True):
        np.testing.assert_array_equal(found, expected, strict=True)


def test_overflows_that_are_hidden_in_floats_and_places() -> None:
    program = """func @main(%x: tensor<4xi32>, %i: tensor<2xi64> {range = [0, 3]}) {
  %y = dali.add %x, %x
  %z = dali.mul %y, 0.5
  return %z
}
"""
    (found,) = possible_overflows(cvm.parse(program))
    assert (found.code, found.line, found.severity) == ("dali.add.overflow", 2, "warning")


def test_reads_of_what_is_not_known_hold_anything() -> None:
    x = tensor("x", I64)
    assert interval(Read(x, ()), {}) == whole(I64)
