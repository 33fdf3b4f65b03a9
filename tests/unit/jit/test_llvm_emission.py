"""The machine code of a kernel does what `evaluate` says the kernel means: types, lanes, memory,
sizes and requirements.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import pytest
from cvm.dialect.kernel_ir.execution_plan import Plan
from cvm.dialect.kernel_ir.expressions import (
    Bitcast,
    Const,
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
from cvm.dialect.types.sizes import Size, larger, smaller
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
    UI32,
    ElementType,
)
from cvm.jit.llvm.emit import emit_plans
from cvm.jit.llvm.scalar_spelling import INSTRUCTIONS
from emission_operands import REAL, matrix_sum, values
from loop_interpreter import execute
from native_kernels import MachineCode, compiled, kernel, tensor

import cvm

LANES = [1, 2, 8, 16]


def loop(index: Index, body: tuple, lanes: int) -> For:
    return For(index, body, kind="vector", width=lanes) if lanes > 1 else For(index, body)


def agree(k: Kernel, *operands: np.ndarray, features: Collection[str] | None = None) -> None:
    for found, wanted in zip(
        compiled(k, *operands, features=features), execute(k, *operands), strict=True
    ):
        np.testing.assert_array_equal(found, wanted, strict=True)


def pointwise(
    formula: Callable[..., Expr],
    elements: list[ElementType],
    *arrays: np.ndarray,
    lanes: Sequence[int] = (1, 8),
    features: Collection[str] | None = None,
) -> None:
    """y[i] = formula(x0[i], x1[i], ...), by loops of these widths."""
    count = len(arrays[0])
    i = Index("i", count)
    xs = [tensor(f"x{n}", e, count) for n, e in enumerate(elements)]
    value = formula(*(x[i] for x in xs))
    ys = [tensor(f"y{n}", value.type, count) for n in lanes]
    body = tuple(loop(i, (Store(y, (i,), value),), n) for y, n in zip(ys, lanes, strict=True))
    agree(kernel(body, *xs, *ys, results=len(ys)), *arrays, features=features)


EXACT = {f for f, _ in INSTRUCTIONS if not SCALARS[f].ulps}
FUNCTIONS = [
    (f, e)
    for f in sorted(EXACT - {"fma", "select", "rarely"})
    for e in REAL
    if (f, e.kind) in INSTRUCTIONS and e.kind in SCALARS[f].kinds and SCALARS[f].only in (None, e)
]


@pytest.mark.sample(90)
@pytest.mark.parametrize(
    ("function", "element"), FUNCTIONS, ids=lambda p: str(getattr(p, "name", p))
)
def test_scalar_functions(function: str, element: ElementType) -> None:
    row = SCALARS[function]
    arrays = [values(element, 32, seed) for seed in range(row.arity)]
    if function in ("shl", "shr"):
        arrays[1] = (np.arange(32) % element.bits).astype(element.dtype)
    if function == "lrint":
        arrays[0] = np.clip(np.nan_to_num(arrays[0]), -30000, 30000)
    if function in ("div", "rem", "floordiv", "floormod") and element.is_integer:
        arrays[1][arrays[1] == 0] = element.limits[1]
    pointwise(lambda *x: apply(function, *x), [element] * row.arity, *arrays)


@pytest.mark.parametrize("features", [None, ()], ids=["this processor", "no features"])
@pytest.mark.parametrize(
    "function", [f for f, kind in INSTRUCTIONS if kind == "int" and SCALARS[f].only is I32]
)
def test_parts_of_words(function: str, features: tuple[str, ...] | None) -> None:
    bytes_ = np.array([0, 1, 127, 128, 255, 129, 254, 3], np.uint8)
    random = np.random.default_rng(0)
    given = [random.choice(bytes_, 4096).view(np.int32) for _ in range(2)]
    given[1][:16] = [-0x7F7F7F80, 0x7F7F7F7F] * 8  # the least and the largest signed bytes
    given[0][:16] = [-1, -1, 0x7F7F7F7F, 0x7F7F7F7F] * 4
    pointwise(
        lambda a, b: apply(function, a, b),
        [I32, I32],
        *given,
        lanes=(1, 4, 8, 16),
        features=features,
    )


@pytest.mark.parametrize("element", [I8, UI8, I16])
@pytest.mark.parametrize("step, order", [(0, ""), (0, "turned"), (1, ""), (0, "apart")], ids=str)
def test_words_of_elements_side_by_side(element: ElementType, step: int, order: str) -> None:
    """One load where elements fill a word in the order of memory, and the same values where they do
    not.
    """
    many = 4 // element.bytes
    i = Index("i", 16)
    x, y = tensor("x", element, 16 + many, 16 * many + 8), tensor("y", I32, 16)
    places = [i * many + (n * 2 if order == "apart" else n) for n in range(many)]
    read = [
        cast(x[i * step + n * (order == "apart" and n > 1), place], I32)
        for n, place in enumerate(places)
    ]
    read = read[::-1] if order == "turned" else read
    parts = [e if n == many - 1 else e & (1 << element.bits) - 1 for n, e in enumerate(read)]
    word = parts[0]
    for n, part in enumerate(parts[1:], 1):
        word = word | part << n * element.bits
    k = kernel((loop(i, (Store(y, (i,), word),), 16),), x, y)
    agree(k, values(element, (16 + many) * (16 * many + 8)).reshape(16 + many, -1))
    text = str(emit_plans(Plan("k", k.inputs, k.outputs, {}, (k,))).module)
    assert ("load <16 x i32>" in text) == (step == 0 and not order)


@pytest.mark.parametrize("shift", [1, 16, 31, 32, 33])
def test_words_of_products(shift: int) -> None:
    """The low 32 bits of a sum of 64, also where both factors are the least."""
    a, b = (np.resize(values(I32, 96, seed), 96) for seed in (1, 2))
    a[:4], b[:4] = [-(2**31), -(2**31), 2**31 - 1, -1], [-(2**31), 2**31 - 1, 2**31 - 1, -(2**31)]

    def word(x: Expr, y: Expr) -> Expr:
        return cast(cast(x, I64) * cast(y, I64) + (1 << 30) >> shift, I32)

    pointwise(word, [I32, I32], a, b, lanes=(1, 2, 4, 8, 16))
    pointwise(lambda x, y: word(x, constant(-5, I32)) + y, [I32, I32], a, b, lanes=(8, 16))


@pytest.mark.parametrize("function", ["div", "rem", "floordiv", "floormod"])
@pytest.mark.parametrize("element", [I8, I32, I64])
def test_division_of_the_least_integer(function: str, element: ElementType) -> None:
    low = element.limits[0]
    a = np.array([low, low, low + 1, -7, 7, -7, 7, 0] * 2, element.dtype)
    b = np.array([-1, 1, -1, 2, -2, -2, 3, -1] * 2, element.dtype)
    pointwise(lambda x, y: apply(function, x, y), [element, element], a, b)
    pointwise(lambda x: apply(function, x, constant(3, element)), [element], a)


@pytest.mark.sample(50)
@pytest.mark.parametrize("source", REAL, ids=str)
@pytest.mark.parametrize("target", REAL, ids=str)
def test_conversions(source: ElementType, target: ElementType) -> None:
    pointwise(lambda x: cast(x, target), [source], values(source, 32))


def test_bits() -> None:
    pointwise(lambda x: Bitcast(x, I32), [F32], values(F32, 32))
    pointwise(lambda x: Bitcast(x, UI32), [I32], values(I32, 32))


def test_booleans_are_bytes_in_memory() -> None:
    a, b = values(I32, 32, 1), values(I32, 32, 2)
    pointwise(lambda x, y: (x < y) | x.eq(0), [I32, I32], a, b, lanes=LANES)
    pointwise(lambda c, x, y: select(c & ~(x > y), x, y), [I1, I32, I32], a > 5, a, b, lanes=LANES)
    pointwise(lambda c, d: apply("select", c, d, ~d), [I1, I1], a > 5, b > 0, lanes=LANES)


@pytest.mark.parametrize("element", REAL, ids=str)
@pytest.mark.parametrize("lanes", [1, 8])
def test_a_constant_and_a_scalar_in_every_lane(element: ElementType, lanes: int) -> None:
    i, j = Index("i", 3), Index("j", 16)
    x, y = tensor("x", element, 3), tensor("y", element, 3, 16)
    one = constant(1, element)
    value = select(j.eq(3), one, x[i])
    agree(
        kernel((For(i, (loop(j, (Store(y, (i, j), value),), lanes),)),), x, y), values(element, 3)
    )


@pytest.mark.parametrize("lanes", LANES)
def test_lanes_that_are_not_neighbours(lanes: int) -> None:
    i, j = Index("i", 16), Index("j", 2)
    x, t, y, z = (
        tensor("x", I32, 64),
        tensor("t", I32, 16),
        tensor("y", I32, 16, 2),
        tensor("z", I32, 16),
    )
    gathered = x[cast(t[i] & 63, I64)]
    body = (
        Store(z, (as_index(15) - i,), gathered),
        For(j, (Store(y, (i, j), x[i * 3 + j] + cast(i, I32)),)),
    )
    k = kernel((loop(i, body, lanes),), x, t, y, z, results=2)
    agree(k, values(I32, 64), values(I32, 16, 3))


@pytest.mark.parametrize("stride", [2, 3, 4, 5])
@pytest.mark.parametrize("element", [I32, I1, F64])
def test_lanes_a_few_elements_apart(stride: int, element: ElementType) -> None:
    i = Index("i", 16)
    x = tensor("x", element, 16 * stride - stride + 2)
    ys = [tensor(f"y{n}", element, 16) for n in LANES]
    body = tuple(
        loop(i, (Store(y, (i,), x[i * stride + 1]),), n) for y, n in zip(ys, LANES, strict=True)
    )
    agree(kernel(body, x, *ys, results=len(ys)), values(element, 16 * stride - stride + 2))


@pytest.mark.parametrize("lanes", LANES)
def test_buffers_of_each_lane(lanes: int) -> None:
    i, j, k = Index("i", 16), Index("j", 4), Index("k", 5)
    x, y = tensor("x", I32, 5, 16), tensor("y", I32, 16)
    acc, tile = accumulator("acc", I32), tensor("tile", I32, 4, space="register")
    body = (
        Alloc(acc),
        Alloc(tile),
        assign(acc, 0),
        For(j, (Store(tile, (j,), cast(j, I32)),), kind="unrolled"),
        For(k, (update("add", acc, x[k, i] * tile[k % 4]),)),
        For(j, (update("max", acc, tile[j]),), kind="unrolled"),
        Store(y, (i,), acc[()]),
    )
    agree(kernel((loop(i, body, lanes),), x, y), values(I32, 80).reshape(5, 16))


@pytest.mark.parametrize("element", [I32, F32, F64, I1, UI8])
def test_a_buffer_of_lanes(element: ElementType) -> None:
    i, lane, n = Index("i", 4), Index("lane", 8), Index("n", 8)
    x, y = tensor("x", element, 4, 8), tensor("y", element, 1)
    tile, acc = tensor("tile", element, 8, space="register"), accumulator("acc", element)
    reduction = "or" if element is I1 else "max"
    body = (
        Alloc(tile),
        Alloc(acc),
        For(lane, (Store(tile, (lane,), x[0, lane]),), kind="vector", width=8),
        For(
            i,
            (
                For(
                    lane,
                    (Store(tile, (lane,), apply(reduction, tile[lane], x[i, lane])),),
                    kind="vector",
                    width=8,
                ),
            ),
        ),
        Store(acc, (), tile[0]),
        For(n, (update(reduction, acc, tile[n]),), kind="unrolled"),
        Store(y, (as_index(0),), acc[()]),
    )
    agree(kernel(body, x, y), np.arange(32).reshape(4, 8).astype(element.dtype))


def test_what_is_written_is_read_again() -> None:
    i = Index("i", 4)
    y, z = tensor("y", I32, 5), tensor("z", I32, 4)
    before = Var("before", I32)
    read = y[i]
    body = (
        Let(before, read),
        Store(y, (i + 1,), read + 1),
        Store(y, (i,), read * 2),
        Store(z, (i,), read + before),
    )
    first = Store(y, (as_index(0),), constant(7, I32))
    agree(kernel((first, For(i, body)), y, z, results=2))


def test_a_branch_forgets_what_its_sides_wrote() -> None:
    i = Index("i", 6)
    x, y = tensor("x", I32, 6), tensor("y", I32, 6)
    acc = accumulator("acc", I32)
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


@pytest.mark.parametrize("shape", [(3, 5), (0, 4), (4, 0), (1, 1), (0, 0)])
def test_sizes_known_and_unknown_and_scratch_memory(shape: tuple[int, int]) -> None:
    x = values(I32, shape[0] * shape[1]).reshape(shape)
    agree(matrix_sum(*shape), x)
    agree(matrix_sum(Size.named("N"), Size.named("M")), x)


@pytest.mark.parametrize("size", [0, 1, 6])
def test_sizes_computed_from_sizes(size: int) -> None:
    n, one = Size.named("N"), Size.named("M")
    parts = [
        (n * 2 - 5) // 3,
        (n * 2 - 5) // -2,
        n // (one - 1),
        n // one,
        n * n,
        n % 4,
        larger(n, 3),
        smaller(n, 3),
    ]
    x, m, y = tensor("x", I8, n), tensor("m", I8, one), tensor("y", I64, len(parts))
    stores = tuple(Store(y, (as_index(k),), as_index(p)) for k, p in enumerate(parts))
    agree(kernel(stores, x, m, y), np.zeros(size, np.int8), np.zeros(1, np.int8))


@pytest.mark.parametrize("divisor", [1, 4, 5, -4])
def test_index_arithmetic_rounds_down(divisor: int) -> None:
    i = Index("i", 16)
    y, z = tensor("y", I64, 16), tensor("z", I64, 16)
    shifted = i - 8
    body = (Store(y, (i,), shifted // divisor), Store(z, (i,), shifted % divisor))
    for lanes in LANES:
        agree(kernel((loop(i, body, lanes),), y, z, results=2))


@pytest.mark.parametrize("size", [0, 1, 3])
def test_index_arithmetic_by_sizes(size: int) -> None:
    """A quotient is found before the loops that do not change it, which need not have any turns
    where the divisor is 0.
    """
    n, i = Size.named("N"), Index("i", 4)
    j, x, m, y = Index("j", n), tensor("x", I32, 4), tensor("m", I8, n), tensor("y", I32, 4, n)
    made = kernel(
        (For(i, (For(j, (Store(y, (i, j), x[i // as_index(n)] + x[i % as_index(n)]),)),)),), x, m, y
    )
    agree(made, np.arange(4, dtype=np.int32), np.zeros(size, np.int8))
    text = str(emit_plans(Plan("k", made.inputs, made.outputs, {}, (made,))).module)
    outer, inner = (text.index("= phi ", place) for place in (0, text.index(" udiv ")))
    assert outer < text.index(" udiv ") < text.index(" urem ") < inner


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("bad", [None, 0, 13, 15])
def test_requirements(lanes: int, bad: int | None) -> None:
    i = Index("i", 16)
    x, y = tensor("x", I16, 16), tensor("y", I16, 16)
    body = (Assert(x[i] > 0, "x > 0"), Store(y, (i,), x[i]))
    operand = np.ones(16, np.int16)
    if bad is not None:
        operand[bad] = -1
    reports: list[str] = []
    (found,) = compiled(kernel((loop(i, body, lanes),), x, y), operand, report=reports)
    assert reports == ([] if bad is None else ["x > 0"])
    np.testing.assert_array_equal(found, operand)


def test_no_name_of_the_users_is_emitted() -> None:
    i = Index("secret", 4)
    x, y = tensor('sec"ret', F16, 4), Tensor("sec\nret", (4,), F16)
    k = Kernel("secret", (x, y), (For(i, (Assert(x[i] > 0, "secret"), Store(y, (i,), x[i]))),))
    assert "sec" not in str(emit_plans(Plan("secret", (x,), (y,), {}, (k,))).module)


def test_kernels_that_are_alike_have_one_function() -> None:
    """Also where their arrays' names come in another order; what each gives does not change."""
    text = """
    func @main(%a: tensor<16x64xi32>, %w: tensor<64x64xi32>) {
      %b = cvm.dense %a, %w
      %z = cvm.cvm_right_shift %b {precision = 8, shift_bit = 9}
      %c = cvm.dense %z, %w
      %y = cvm.cvm_right_shift %c {precision = 8, shift_bit = 9}
      return %y
    }"""
    random = np.random.default_rng(0)
    given = [random.integers(-127, 128, shape).astype(np.int32) for shape in ((16, 64), (64, 64))]
    f = cvm.compile(text)
    wanted = cvm.compile(text, target="reference")(*given)
    np.testing.assert_array_equal(f(*given), wanted)
    module = f.lower("llvm")
    functions = module.count("define internal void @kernel_")
    calls = module.count("call void @kernel_") + module.count("call void @parallel(")
    assert functions < calls


@pytest.mark.parametrize(
    ("values", "functions"), [((1.5, 1.5), 1), ((0.0, -0.0), 2), ((np.nan, -np.nan), 2)]
)
def test_kernels_of_other_constants_have_other_functions(
    values: tuple[float, float], functions: int
) -> None:
    """The second kernel's arrays are those of the first by other names; it is given its own."""
    kernels: list[Kernel] = []
    for prefix, value in zip("ab", values, strict=True):
        i, x, y = (
            Index(f"{prefix}.i", 8),
            tensor(f"{prefix}.x", F32, 8),
            tensor(f"{prefix}.y", F32, 8),
        )
        kernels.append(
            Kernel(prefix, (x, y), (For(i, (Store(y, (i,), x[i] + Const(value, F32)),)),))
        )
    plan = Plan(
        "p",
        tuple(k.inputs[0] for k in kernels),
        tuple(k.outputs[0] for k in kernels),
        {},
        tuple(kernels),
    )
    module = str(emit_plans(plan).module)
    assert module.count("define internal void @kernel_") == functions
    calls = [line.partition("(")[2] for line in module.splitlines() if "call void @kernel_" in line]
    assert len(calls) == 2 and calls[0] != calls[1]


def test_unrolled_loops_have_constant_bounds() -> None:
    i = Index("i", 4)
    y = tensor("y", I64, 4)
    agree(kernel((For(i, (Store(y, (i,), i * i),), kind="unrolled"),), y))
    with pytest.raises(AssertionError, match="constant bounds"):
        compiled(
            kernel(
                (
                    For(
                        i,
                        (Store(y, (i,), i),),
                        stop=apply("min", i, Const(3, I64)),
                        kind="unrolled",
                    ),
                ),
                y,
            )
        )


@pytest.mark.parametrize("turns, hint", [(3, "!1"), (30, "!3")])
def test_reductions_of_few_turns_are_not_unrolled(turns: int, hint: str) -> None:
    p, j, k, n = Index("p", turns), Index("j", 8), Index("k", turns), Index("n", 2)
    x, y = tensor("x", I32, turns, 10), tensor("y", I32, turns, 8)
    acc = accumulator("acc", I32)
    reduction = For(
        k,
        (For(n, (update("add", acc, x[k, j + n]),), kind="unrolled"),),
        start=apply("max", as_index(0), 1 - p),
    )
    lanes = For(
        j,
        (Alloc(acc), assign(acc, Const(0, I32)), reduction, Store(y, (p, j), acc[()])),
        kind="vector",
        width=8,
    )
    code = MachineCode(kernel((For(p, (lanes,)),), x, y))
    assert str(code.text.module).count("!llvm.loop !3") == (hint == "!3")
    given = np.arange(turns * 10, dtype=np.int32).reshape(turns, 10)
    np.testing.assert_array_equal(code(given)[0], execute(code.plan.kernels[0], given)[0])


@pytest.mark.parametrize(
    "turns, stores, is_unrolled", [(8, 2, True), (8, 8, False), (1000, 2, True), (1000, 16, False)]
)
def test_loops_that_reduce_nothing_are_unrolled_if_few_lines_come_of_it(
    turns: int, stores: int, is_unrolled: bool
) -> None:
    i = Index("i", turns)
    x, y = tensor("x", I32, turns), tensor("y", I32, stores, turns)
    body = tuple(Store(y, (as_index(n), i), x[i] * n) for n in range(stores))
    code = MachineCode(kernel((For(i, body),), x, y))
    assert ("!llvm.loop !1" not in str(code.text.module)) == is_unrolled


@pytest.mark.parametrize("element", [I8, I32, F64, I1])
@pytest.mark.parametrize("offset", [0])
def test_streaming_stores(element: ElementType, offset: int) -> None:
    i = Index("i", 32)
    x, y = tensor("x", element, 32), tensor("y", element, 33)
    value = x[i] if element is I1 else x[i] + x[i]
    body = For(i, (Store(y, (i + offset,), value, streaming=True),), kind="vector", width=16)
    last = Store(y, (as_index(0 if offset else 32),), constant(1, element))
    agree(kernel((body, last), x, y), values(element, 32))


def test_what_is_rare_is_said_to_be() -> None:
    """LLVM keeps values in registers for the usual way if it is told which way that is."""
    text = cvm.compile(
        "func @main(%x: tensor<64xf32>) -> tensor<64xf32> { %y = dali.sin %x return %y }"
    ).lower("llvm")
    weights = [line.rpartition("!prof ")[2] for line in text.splitlines() if "!prof" in line]
    nodes = [line for line in text.splitlines() if weights and line.startswith(f"{weights[0]} = ")]
    assert len(nodes) == 1 and '"branch_weights", i32 1,' in nodes[0]
