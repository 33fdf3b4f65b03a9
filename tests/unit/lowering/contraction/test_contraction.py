"""Contractions by panels and tiles agree with the reference on every path: 16 bits, 32 bits,
borders, blocks that overlap.
"""

from __future__ import annotations

from collections.abc import Callable

import contraction_programs as contractions
import numpy as np
import pytest
from cvm.dialect.kernel_ir.expressions import indices, total
from cvm.dialect.kernel_ir.formulas import Formula
from cvm.dialect.kernel_ir.kernel_printer import kernels_text
from cvm.dialect.types.tensor_types import F32, F64, ElementType
from cvm.lowering.analysis.verify_kernel import check_kernel
from cvm.lowering.contraction import strategies
from cvm.lowering.loops.build_loops import build_nest
from legal_and_equal import legal
from native_kernels import compiled, tensor

import cvm

RANGES = {
    "8 bits": (-128, 128),
    "16 bits": (-32768, 32768),
    "just beyond 16 bits": (-32769, 32769),
    "32 bits": (-(2**31), 2**31),
}
PROGRAMS = {
    "dense": ("cvm.dense %a, %b", (7, 34), (16, 34)),
    "dense, odd sizes": ("cvm.dense %a, %b", (13, 33), (11, 33)),
    "3x3": ("cvm.conv2d %a, %b {padding = [1, 1]}", (1, 4, 5, 16), (6, 4, 3, 3)),
    "3x3, blocks that overlap": (
        "cvm.conv2d %a, %b {padding = [1, 2]}",
        (2, 3, 4, 17),
        (13, 3, 3, 3),
    ),
    "strided": (
        "cvm.conv2d %a, %b {padding = [2, 3], stride = [2, 2]}",
        (1, 3, 9, 26),
        (5, 3, 5, 7),
    ),
    "far strides": ("cvm.conv2d %a, %b {stride = [1, 6]}", (1, 3, 3, 60), (4, 3, 2, 3)),
    "dilated": (
        "cvm.conv2d %a, %b {padding = [1, 4], dilation = [1, 4]}",
        (1, 2, 4, 12),
        (4, 2, 3, 3),
    ),
    "1x1": ("cvm.conv2d %a, %b", (1, 10, 3, 3), (8, 10, 1, 1)),
    "groups": ("cvm.conv2d %a, %b {padding = [2, 2], groups = 3}", (2, 6, 5, 17), (15, 2, 5, 5)),
    "groups, strided": (
        "cvm.conv2d %a, %b {stride = [2, 2], groups = 2}",
        (1, 10, 7, 33),
        (8, 5, 3, 3),
    ),
    "7x7 pixels": ("cvm.conv2d %a, %b {padding = [1, 1]}", (1, 5, 7, 7), (8, 5, 3, 3)),
}


@pytest.fixture(autouse=True)
def small_ones_too(compile_for: Callable[..., None]) -> None:
    compile_for(packing_products=0)


def text(operation: str, a: tuple[int, ...], b: tuple[int, ...], more: str = "") -> str:
    types = [f"tensor<{'x'.join(map(str, s))}xi32>" for s in (a, b)]
    return (
        f"func @main(%a: {types[0]}, %b: {types[1]}) {{\n  %y = {operation}\n"
        f"{more}  return %{'z' if more else 'y'}\n}}\n"
    )


def both(program: str, *arrays: np.ndarray) -> None:
    found = cvm.compile(program)(*arrays)
    np.testing.assert_array_equal(
        found, cvm.compile(program, target="reference")(*arrays), strict=True
    )


@pytest.mark.parametrize(
    "name", ["dense", "dense, odd sizes", "3x3, blocks that overlap", "groups"]
)
def test_sums_wait_for_what_is_long(name: str, tune: Callable[..., None]) -> None:
    operation, a, b = PROGRAMS[name]
    program = text(operation, a, b, "  %h = dali.mul %y, 3\n  %z = dali.add %h, 1\n")
    assert "%waiting" not in cvm.compile(program).lower("schedule")
    tune(long_epilogue=1)
    rng = np.random.default_rng(5)
    both(program, *(rng.integers(-100, 100, s, np.int32) for s in (a, b)))
    assert "%waiting" in cvm.compile(program).lower("schedule")


@pytest.mark.sample(8)
@pytest.mark.parametrize("function", ["exp", "sin"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_hardly_any_sum_needs_follows_them(name: str, function: str) -> None:
    operation, a, b = PROGRAMS[name]
    rest = f"  %h = dali.mul %y, {0.5 if function == 'exp' else 7.5}\n  %z = dali.{function} %h\n"
    program = cvm.compile(text(operation, a, b, rest))
    assert "any(" in program.lower("loops") and "panel" in program.lower("schedule")
    rng = np.random.default_rng(7)
    inputs = [rng.integers(-7, 7, s, np.int32) for s in (a, b)]
    sums = cvm.compile(text(operation, a, b))(*inputs)
    shape = "x".join(map(str, sums.shape))
    after = f"func @main(%y: tensor<{shape}xi32>) {{\n{rest}  return %z\n}}\n"
    np.testing.assert_array_equal(program(*inputs), cvm.compile(after)(sums), strict=True)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("sizes", [(12, 40, 32), (7, 33, 50), (9, 20, 40)])
def test_functions_of_sums_of_floats(sizes: tuple[int, int, int], dtype: str) -> None:
    @cvm.compile
    def product(x, w):
        return x @ w

    @cvm.compile
    def after(y):
        return np.exp(y)

    @cvm.compile
    def together(x, w):
        return np.exp(x @ w)

    rng = np.random.default_rng(8)
    m, k, n = sizes
    x, w = rng.normal(size=(m, k)).astype(dtype) * 20, rng.normal(size=(k, n)).astype(dtype)
    x[0, 0] = np.inf
    np.testing.assert_array_equal(together(x, w), after(product(x, w)), strict=True)
    assert "panel" in together.lower("schedule")


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_path(name: str) -> None:
    operation, a, b = PROGRAMS[name]
    program = text(operation, a, b)
    function = cvm.compile(program)
    reference = cvm.compile(program, target="reference")
    assert "pairdot" in function.lower("schedule")
    legal(program)
    random = np.random.default_rng(0)
    for first in RANGES.values():
        for second in (RANGES["8 bits"], first):
            x, w = (random.integers(*r, s).astype(np.int32) for r, s in ((first, a), (second, b)))
            np.testing.assert_array_equal(function(x, w), reference(x, w), strict=True)
    edge = np.full(a, -32768, np.int32), np.full(b, -32768, np.int32)
    np.testing.assert_array_equal(function(*edge), reference(*edge), strict=True)


def test_what_follows_is_done_in_the_tile() -> None:
    operation, a, b = PROGRAMS["3x3, blocks that overlap"]
    more = "  %s = cvm.cvm_right_shift %y {precision = 8, shift_bit = 4}\n  %z = cvm.relu %s\n"
    program = text(operation, a, b, more)
    assert cvm.compile(program).lower("schedule").count("kernel @") == 9
    random = np.random.default_rng(0)
    both(program, *(random.integers(-500, 500, s).astype(np.int32) for s in (a, b)))


def test_a_product_and_a_sum_are_a_contraction() -> None:
    program = """func @main(%a: tensor<8x1x20xi32>, %b: tensor<16x20xi32>) -> tensor<8x16xi32> {
  %p = cvm.broadcast_mul %a, %b
  %y = cvm.sum %p {axes = [2]}
  return %y
}
"""
    assert "pairdot" in cvm.compile(program).lower("schedule")
    random = np.random.default_rng(0)
    both(program, *(random.integers(-500, 500, s).astype(np.int32) for s in ((8, 1, 20), (16, 20))))


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("operation", "a", "b", "shares"),
    [
        ("cvm.dense %a, %b", (300, 34), (24, 34), True),
        ("cvm.conv2d %a, %b", (2, 10, 3, 3), (250, 10, 1, 1), True),
        (
            "cvm.conv2d %a, %b {padding = [1, 1]}",
            (1, 4, 5, 16),
            (6, 4, 3, 3),
            False,
        ),  # panels are filled one by one
    ],
)
@pytest.mark.parametrize("known", [False, True])
def test_threads_share_the_rows_of_few_panels(
    operation: str,
    a: tuple[int, ...],
    b: tuple[int, ...],
    shares: bool,
    known: bool,
    compile_for: Callable[..., None],
) -> None:
    compile_for(packing_products=0, wake_operations=0)
    random = np.random.default_rng(0)
    w = random.integers(-100, 100, b).astype(np.int32)
    for low, high in ((0, 100), (-300, 300), (-(2**31), 2**31 - 1)):  # bytes, words, numbers
        x = random.integers(low, high, a, endpoint=True).astype(np.int32)
        program = text(operation, a, b).replace("i32>,", f"i32> {{range = [{low}, {high}]}},", 1)
        if known:
            program = program.replace(f", %b: tensor<{'x'.join(map(str, b))}xi32>", "")
            program = program.replace(
                "{\n",
                f"{{\n  %b = const dense<{w.tolist()}> : tensor<{'x'.join(map(str, b))}xi32>\n",
                1,
            )
        assert ("let %share" in cvm.compile(program).lower("schedule")) == shares
        legal(program)
        before = cvm.get_num_threads()
        for threads in (1, 2):
            cvm.set_num_threads(threads)
            both(program, *((x,) if known else (x, w)))
        cvm.set_num_threads(before)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("factors", ["8 bits", "32 bits"])
def test_constant_rows_are_packed_once(name: str, factors: str) -> None:
    operation, a, b = PROGRAMS[name]
    random = np.random.default_rng(0)
    w, x = (
        random.integers(*RANGES[r], s).astype(np.int32) for r, s in ((factors, b), ("8 bits", a))
    )
    constant = f"tensor<{'x'.join(map(str, b))}xi32>"
    program = f"""func @main(%a: tensor<{"x".join(map(str, a))}xi32>) {{
  %b = const dense<{w.tolist()}> : {constant}
  %y = {operation}
  return %y
}}
"""
    lowered = cvm.compile(program).lower("schedule")
    assert ("pairdot" in lowered) == (factors == "8 bits")
    packed = "columns" if name.startswith("dense") else "rows"
    assert f".{packed}(" not in lowered
    both(program, x)
    both(program, x << 20)


@pytest.mark.sample(25)
@pytest.mark.parametrize("element", [F32, F64])
@pytest.mark.parametrize(
    "sizes", [(6, 9, 16), (13, 33, 21), (9, 800, 24), (7, 26, 88), (8, 40, 1300)]
)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("vectors", [(16, 32), (32, 16), (64, 32)])
def test_floats_are_summed_in_the_order_of_the_terms(
    element: ElementType,
    sizes: tuple[int, int, int],
    turned: bool,
    vectors: tuple[int, int],
    compile_for: Callable[..., None],
) -> None:
    width, registers = vectors
    alone = {"packing_products": 0, "wake_operations": 1 << 20, "l2_bytes": 64 << 10}
    panels = {"strategy_costs": contractions.preferred(without=("few_rows",))}
    compile_for(**panels, tile_vector_bytes=width, vector_registers=registers, **alone)
    rows, terms, columns = sizes
    x, y = tensor("a", element, rows, terms), tensor("y", element, rows, columns)
    w = tensor("b", element, *((columns, terms) if turned else (terms, columns)))
    i, j, k = indices("i j k", (rows, columns, terms))
    plain = build_nest(
        Formula(y, (i, j), total(k, x[i, k] * (w[j, k] if turned else w[k, j]))), "k"
    )
    made = strategies.lower_by_strategy(plain)
    assert made is not None
    lowered = kernels_text(made.kernels)
    assert ("%held" in lowered) == (terms == 800) and ("let %at" in lowered or columns < 1300)
    random = np.random.default_rng(0)
    operands = [random.normal(size=s).astype(element.dtype) for s in ((rows, terms), w.shape)]
    values = dict(zip((x, w), operands, strict=True))
    for kernel in made.kernels:
        check_kernel(kernel)
        *inputs, result = kernel.parameters
        (values[result],) = compiled(kernel, *(values[i] for i in inputs))
    (wanted,), found = compiled(plain, *operands), values[y]
    np.testing.assert_array_equal(found, wanted)
    left, right = operands[0], operands[1].T if turned else operands[1]
    exact = left.astype(np.longdouble) @ right.astype(np.longdouble)
    bound = terms * np.finfo(element.dtype).eps * (np.abs(left) @ np.abs(right))  # of any summation
    assert (np.abs(found - exact) <= bound).all()


@pytest.mark.parametrize(
    ("sizes", "height", "width"),
    [((64, 32, 1024), 4, 24), ((512, 32, 512), 6, 16), ((6, 64, 96), 6, 16)],
)
def test_panels_of_floats_are_as_wide_as_takes_the_least_time(
    sizes: tuple[int, int, int], height: int, width: int
) -> None:
    rows, terms, columns = sizes
    x, w = tensor("a", F32, rows, terms), tensor("b", F32, terms, columns)
    y = tensor("y", F32, rows, columns)
    i, j, k = indices("i j k", (rows, columns, terms))
    made = strategies.lower_by_strategy(
        build_nest(Formula(y, (i, j), total(k, x[i, k] * w[k, j])), "k")
    )
    assert made is not None
    assert f"alloc register %sums: tensor<{height}x{width}xf32>" in kernels_text(made.kernels)
