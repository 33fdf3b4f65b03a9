"""Kernels on a GPU: coalesced accesses, reductions with the bits of a CPU, and errors that the
emulator detects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cvm.dialect.kernel_ir.expressions import Index, Tensor
from cvm.dialect.kernel_ir.kernel_printer import kernels_text
from cvm.dialect.kernel_ir.loops import For, Kernel, Store
from cvm.dialect.types.tensor_types import F32, I32
from cvm.jit.cuda.emit import Source, emit
from cvm.jit.cuda.emulator.memory import Memory
from cvm.jit.cuda.emulator.races import Fault
from cvm.jit.functions.gpu_function import SimulatedFunction
from cvm.lowering.analysis.verify_kernel import check_kernel
from cvm.lowering.processor import Gpu
from emulated_kernels import needs_nvrtc, plan_of, run
from native_kernels import kernel, tensor

import cvm

pytestmark = needs_nvrtc
RANDOM = np.random.default_rng(5)


def program(signature: str, line: str, returns: str = "%y") -> str:
    return f"func @main({signature}) {{\n  {line}\n  return {returns}\n}}\n"


def counted(text: str, *arrays: np.ndarray) -> tuple[Any, Memory]:
    """The result on the simulated GPU, and the memory with its statistics."""
    f = cvm.compile(text, target="cuda-sim")
    assert isinstance(f, SimulatedFunction)
    for k in f.plan.kernels:
        check_kernel(k)
    memory = Memory(count_transactions=True)
    (output,) = outputs = [
        np.zeros(t.array_shape, t.element.dtype) for t in f._result_types(list(arrays))
    ]
    f.simulate(list(arrays), outputs, memory)
    np.testing.assert_array_equal(output, cvm.compile(text)(*arrays), strict=True)
    return f, memory


def excess(memory: Memory) -> tuple[float, float]:
    """The ratio of loaded, and of stored, sectors to the least number that holds the bytes."""
    s = memory.statistics
    assert s is not None
    return s["load sectors"] / max(s["load least"], 1), s["store sectors"] / s["store least"]


def requests(memory: Memory) -> tuple[int, int]:
    """The number of loads, and of stores, of a warp."""
    return memory.statistics["load requests"], memory.statistics["store requests"]


def conflicts(memory: Memory) -> int:
    """The number of bank conflicts."""
    assert memory.statistics["shared answers"]
    return memory.statistics["bank conflicts"]


WIDTHS = {"ui8": "u1", "i16": "i2", "f16": "f2", "f32": "f4", "i32": "i4", "f64": "f8", "i64": "i8"}


@pytest.mark.parametrize("size", ["64x96", "?x?", "7x1000"])
@pytest.mark.parametrize("element", WIDTHS)
def test_elementwise_kernels_are_coalesced(size: str, element: str) -> None:
    shape = (64, 96) if size != "7x1000" else (7, 1000)
    x = RANDOM.integers(0, 9, shape).astype(WIDTHS[element])
    given = f"%x: tensor<{size}x{element}>, %y: tensor<{size}x{element}>"
    _, memory = counted(
        program(given, '%z = theano.elemwise %x, %y {scalar_op = "add"}', "%z"), x, x
    )
    assert excess(memory) == (1, 1)


def test_rows_that_are_broadcast_are_coalesced() -> None:
    x, w = RANDOM.normal(size=(100, 96)).astype("f4"), RANDOM.normal(size=96).astype("f4")
    _, memory = counted(
        program("%x: tensor<100x96xf32>, %w: tensor<96xf32>", "%y = dali.mul %x, %w"), x, w
    )
    assert excess(memory) == (1, 1)


@pytest.mark.parametrize("columns", [256, 203])
@pytest.mark.parametrize("element", ["f32", "f64", "ui8", "i16"])
def test_maxima_of_rows(element: str, columns: int) -> None:
    """Neighboring threads read neighboring elements; NaN and the sign of 0.0 are those of a
    CPU.
    """
    x = RANDOM.normal(50, 9, (64, columns)).astype(WIDTHS[element])
    if element[0] == "f":
        x[3, 5], x[4], x[4, 3] = np.nan, -0.0, 0.0
    line = '%y = theano.careduce %x {scalar_op = "maximum", axis = [1]}'
    f, memory = counted(program(f"%x: tensor<64x{columns}x{element}>", line), x)
    assert excess(memory)[0] < 2 and f.plan.kernels[0].body[0].kind == "block"


FOLDS = [
    ("?x?", "[0, 1]", (600, 701), 1.01),
    ("?x3x?", "[0, 2]", (300, 3, 900), 1.3),
    ("?x?x5", "[0, 1]", (301, 900, 5), 9),
]


@pytest.mark.parametrize("element", ["f32", "i32"])
@pytest.mark.parametrize(("given", "axes", "shape", "most"), FOLDS)
def test_folds_over_axes_of_unknown_size(
    given: str, axes: str, shape: tuple[int, ...], most: float, element: str
) -> None:
    """A long fold is split over the grid, a short one is not; there may be no terms at all."""
    text = program(f"%x: tensor<{given}x{element}>", f"%y = theano.sum %x {{axis = {axes}}}")
    for size in (
        shape,
        tuple(2 if n > 5 else n for n in shape),
        tuple(0 if n > 5 else n for n in shape),
    ):
        x = RANDOM.normal(0, 99, size).astype(WIDTHS[element])
        f, memory = counted(text, x)
        assert excess(memory)[0] <= (most if size == shape else 9)
        assert memory.statistics is not None and (memory.statistics["store requests"] > 9) == (
            size == shape
        )
    assert ".parts" in kernels_text(f.plan.kernels)


@pytest.mark.parametrize("size", ["256x3", "33x7", "?x3", "5x9x7"])
@pytest.mark.parametrize("element", ["ui8", "f32"])
def test_packs_go_on_from_row_to_row(size: str, element: str) -> None:
    shape = {"256x3": (256, 3), "33x7": (33, 7), "?x3": (41, 3), "5x9x7": (5, 9, 7)}[size]
    x, w = (
        RANDOM.integers(0, 256, shape).astype(element.replace("ui8", "u1").replace("f32", "f4")),
        RANDOM.normal(size=shape[-1]),
    )
    given = f"%x: tensor<{size}x{element}>, %w: tensor<{size.split('x')[-1]}xf32>"
    f, memory = counted(program(given, "%y = dali.mul %x, %w"), x, w.astype("f4"))
    assert f"*(const Pack<{'float' if element == 'f32' else 'unsigned char'}, 4>*)" in f.lower(
        "cuda"
    )
    assert excess(memory)[1] < 1.2


@pytest.mark.parametrize("size", ["1000", "999", "?", "12x16"])
def test_functions_with_rare_branches_are_by_packs(size: str) -> None:
    shape = (12, 16) if size == "12x16" else (999,) if size != "1000" else (1000,)
    x = (RANDOM.normal(size=shape) * 10.0 ** RANDOM.integers(-5, 5, shape)).astype("f4")
    f, memory = counted(
        program(
            f"%x: tensor<{size}xf32>",
            "%a = dali.exp %x\n  %b = dali.sin %a\n  %y = dali.add %b, %x",
        ),
        x,
    )
    assert "Pack<float, 4>" in f.lower("cuda") and excess(memory) == (1, 1)


@pytest.mark.sample(15)
@pytest.mark.parametrize(
    ("sizes", "shape", "order"),
    [
        ("64x96", (64, 96), "[1, 0]"),
        ("256x384", (256, 384), "[1, 0]"),
        ("?x?", (96, 160), "[1, 0]"),
        ("4x32x64", (4, 32, 64), "[0, 2, 1]"),
        ("2x3x64x32", (2, 3, 64, 32), "[1, 0, 3, 2]"),
        ("2x64x8x16", (2, 64, 8, 16), "[0, 2, 3, 1]"),
    ],
)
@pytest.mark.parametrize("element", WIDTHS)
def test_transposes_are_coalesced(
    sizes: str, shape: tuple[int, ...], order: str, element: str
) -> None:
    """No sector is accessed twice, and no bank has to give two words at once."""
    x = (np.arange(np.prod(shape)) % 2000).reshape(shape).astype(WIDTHS[element])
    line = f"%y = theano.dimshuffle %x {{new_order = {order}}}"
    f, memory = counted(program(f"%x: tensor<{sizes}x{element}>", line), x)
    assert "__shared__" in f.lower("cuda")
    assert excess(memory) == (1, 1) and conflicts(memory) == 0
    if shape == (256, 384):  # by packs of 16 bytes, or of four elements
        assert requests(memory) == (x.nbytes // min(16, 4 * x.itemsize) // 32,) * 2


@pytest.mark.parametrize("element", ["ui8", "f32"])
def test_transposes_with_what_follows(element: str) -> None:
    """Several arrays that are read across, others that are not, and another type that is stored."""
    x, z, w = (
        RANDOM.integers(0, 99, s).astype(WIDTHS[element]) for s in ((64, 128), (64, 128), (128, 64))
    )
    lines = [
        f"%{r} = theano.dimshuffle %{a} {{new_order = [1, 0]}}" for r, a in (("a", "x"), ("b", "z"))
    ]
    given = f"%x: tensor<64x128x{element}>, %z: tensor<64x128x{element}>"
    for more, last, operand in (
        (", %w: tensor<128x64xf32>", "dali.mul %c, %w", (w.astype("f4"),)),
        ("", "dali.mul %c, 0.5", ()),
    ):
        f, memory = counted(
            program(given + more, "\n  ".join([*lines, "%c = dali.sub %a, %b", f"%y = {last}"])),
            x,
            z,
            *operand,
        )
        assert (
            "__shared__" in f.lower("cuda") and excess(memory) == (1, 1) and conflicts(memory) == 0
        )


def test_transposes_of_parts_of_rows() -> None:
    """Packs begin at multiples of their size, or there are none."""
    x = RANDOM.integers(0, 99, (65, 70), np.int32)
    for first in (0, 1, 4):
        line = (
            f"%s = cvm.slice %x {{begin = [0, {first}], end = [64, {first + 64}]}}\n"
            "  %y = cvm.transpose %s"
        )
        f, memory = counted(program("%x: tensor<65x70xi32>", line), x)
        assert "__shared__" in f.lower("cuda") and conflicts(memory) == 0
    x = RANDOM.integers(0, 99, (65, 72), np.int32)
    for first in (0, 1, 4):
        line = (
            f"%s = cvm.slice %x {{begin = [0, {first}], end = [64, {first + 64}]}}\n"
            "  %y = cvm.transpose %s"
        )
        f, memory = counted(program("%x: tensor<65x72xi32>", line), x)
        assert ("Pack<int, 4>" in f.lower("cuda")) == (first != 1)


@pytest.mark.parametrize("shape", [(33, 65), (8, 100), (9, 8)])
def test_transposes_of_odd_sizes(shape: tuple[int, int]) -> None:
    line = "%y = theano.dimshuffle %x {new_order = [1, 0]}"
    for element in ("ui8", "f16", "f32", "f64"):
        for size in ("?x?", "x".join(map(str, shape))):
            x = RANDOM.integers(0, 99, shape).astype(WIDTHS[element])
            _, memory = counted(program(f"%x: tensor<{size}x{element}>", line), x)
            assert conflicts(memory) == 0


@pytest.mark.sample(7)
@pytest.mark.parametrize(
    "shape", [(5, 15), (5, 16), (40, 128), (3, 1000), (1, 4099), (0, 20), (20, 0)]
)
@pytest.mark.parametrize("element", ["f32", "f64", "i32", "i64"])
@pytest.mark.parametrize("known", [True, False])
def test_reductions_of_rows_have_the_bits_of_a_cpu(
    shape: tuple[int, int], element: str, known: bool
) -> None:
    x = (RANDOM.normal(size=shape) * 1000).astype(element.replace("i", "int").replace("f", "float"))
    size = f"{shape[0]}x{shape[1]}" if known else "?x?"
    for line in (
        "%y = theano.sum %x {axis = [1]}",
        "%y = theano.sum %x",
        "%y = theano.max %x {axis = [1]}",
    ):
        if shape[1] or "max" not in line:
            counted(program(f"%x: tensor<{size}x{element}>", line), x)


def test_reductions_of_rows_are_coalesced() -> None:
    x = RANDOM.normal(size=(64, 256)).astype("f4")
    f, memory = counted(program("%x: tensor<64x256xf32>", "%y = theano.sum %x {axis = [1]}"), x)
    assert "__shfl_xor_sync" in f.lower("cuda")
    assert excess(memory)[0] == 1


@pytest.mark.parametrize("columns", [16, 100])
def test_exponentials_are_summed_by_warps(columns: int) -> None:
    """Terms with steps of their own, and rare branches: each thread of a group has its own
    scalars.
    """
    x = RANDOM.normal(scale=40, size=(300, columns)).astype("f4")  # some overflow
    lines = "%e = dali.exp %x\n  %y = theano.sum %e {axis = [1]}"
    f, _ = counted(program(f"%x: tensor<300x{columns}xf32>", lines), x)
    text = f.lower("cuda")
    assert text.count("__shfl_xor_sync") == 4 and text.count("__global__") == 1


@pytest.mark.parametrize(
    ("line", "threads"), [("", 65536), (" {axis = [1]}", 65536), (" {axis = [0]}", 4096)]
)
def test_reductions_keep_memory_busy(line: str, threads: int) -> None:
    """Many threads, on all processors, each with many loads under way."""
    result = "4096xf32" if line else "f32"
    f = cvm.compile(
        f"func @main(%x: tensor<4096x4096xf32>) -> tensor<{result}> {{\n"
        f"  %y = theano.sum %x{line}\n  return %y\n}}",
        target="cuda-sim",
    )
    first = f.source.launches[0]
    assert first.work == threads and threads // first.threads >= 120
    ahead = 32 if threads > 4096 else 64
    assert f"#pragma unroll {ahead}\n" in f.source.text.partition("kernel_1")[0]


# What the emulator finds


def transposition() -> tuple[Kernel, np.ndarray]:
    i, j = Index("i", 40), Index("j", 50)
    x, y = tensor("x", F32, 50, 40), tensor("y", F32, 40, 50)
    return kernel((For(i, (For(j, (Store(y, (i, j), x[j, i]),)),)),), x, y), RANDOM.normal(
        size=(50, 40)
    ).astype("f4")


def broken(k: Kernel, operand: np.ndarray, old: str, new: str) -> None:
    plan = plan_of(k)
    source = emit(plan)
    assert np.array_equal(run(plan, source, operand)[0], operand.T)
    assert old in source.text
    run(
        plan,
        Source(source.text.replace(old, new, 1), source.launches, source.requirements),
        operand,
    )


def test_a_missing_barrier_is_found() -> None:
    with pytest.raises(
        Fault, match="reads shared memory that another wrote since the last barrier"
    ):
        broken(*transposition(), "__syncthreads();", "")


def test_a_wrong_guard_is_found() -> None:
    with pytest.raises(Fault, match="outside of its array"):
        broken(*transposition(), "< 40", "< 41")


def test_a_barrier_that_some_threads_miss_is_found() -> None:
    with pytest.raises(Fault, match="barrier"):
        broken(*transposition(), "__syncthreads();", "if (threadIdx.x < 100) __syncthreads();")


def test_shared_memory_that_is_too_small_is_found() -> None:
    with pytest.raises(Fault, match="outside of the 4192 bytes of shared memory"):
        broken(*transposition(), "[1056]", "[1048]")


def test_two_writers_of_one_place_are_found() -> None:
    i = Index("i", 64)
    x, y = Tensor("x", (64,), I32), Tensor("y", (64,), I32)
    plan = plan_of(kernel((For(i, (Store(y, (i,), x[i]),)),), x, y))
    source = emit(plan)
    race = (
        'extern "C" __global__ void kernel_0(const int* x, int* y) { __shared__ volatile int '
        "s; s = threadIdx.x; if (x[0]) y[0] = s; }"
    )
    launches = (replace(source.launches[0], arrays=(x, y)),)
    with pytest.raises(Fault, match="two threads write one place of shared memory"):
        run(plan, Source(race, launches, ()), np.zeros(64, np.int32))


# Contractions


@pytest.mark.sample(3)
@pytest.mark.parametrize("shape", [(64, 64, 16), (70, 33, 100), (16, 130, 1000)])
@pytest.mark.parametrize("bias", [True, False])
def test_dense_layers_by_tiles(shape: tuple[int, int, int], bias: bool) -> None:
    m, n, k = shape
    arrays = [RANDOM.integers(-(2**31), 2**31, s, np.int32) for s in ((m, k), (n, k), (n,))]
    given = f"%x: tensor<{m}x{k}xi32>, %w: tensor<{n}x{k}xi32>" + (
        f", %b: tensor<{n}xi32>" if bias else ""
    )
    line = "%y = cvm.dense %x, %w" + (", %b" if bias else "") + "\n  %z = cvm.relu %y"
    f, memory = counted(program(given, line, "%z"), *arrays[: 2 + bias])
    assert "__shared__" in f.lower("cuda") and conflicts(memory) == 0
    assert excess(memory)[0] < 2.6  # rows of 8 numbers, which begin anywhere


@pytest.mark.parametrize(
    "attributes", ["{padding = [1, 1]}", "{stride = [2, 1]}", "{dilation = [2, 2]}"]
)
def test_convolutions_by_tiles(attributes: str) -> None:
    arrays = [
        RANDOM.integers(-(2**31), 2**31, s, np.int32) for s in ((2, 5, 14, 13), (20, 5, 3, 3))
    ]
    given = "%x: tensor<2x5x14x13xi32>, %w: tensor<20x5x3x3xi32>"
    f, _ = counted(program(given, f"%y = cvm.conv2d %x, %w {attributes}"), *arrays)
    assert "__shared__" in f.lower("cuda")


@pytest.mark.sample(4)
@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize(
    "attributes",
    [
        "",
        "{padding = [1, 1]}",
        "{padding = [2, 1], stride = [2, 1]}",
        "{padding = [2, 2], dilation = [2, 2]}",
    ],
)
def test_convolutions_of_floats_by_tiles(element: str, attributes: str) -> None:
    """Nothing is added for what is padding: neither infinities and NaN of weights, nor to -0.0, are
    seen there.
    """
    kind = f"f{int(element[1:]) // 8}"
    x, w = (RANDOM.normal(size=s).astype(kind) for s in ((2, 5, 14, 13), (20, 5, 3, 3)))
    w[3, 2, 0, 1], w[4, 1, 2, 2] = np.inf, np.nan
    tiny = np.finfo(kind).tiny
    x[1], w[7] = np.abs(x[1]) * tiny, -np.abs(w[7]) * tiny  # sums of -0.0
    given = f"%x: tensor<2x5x14x13x{element}>, %w: tensor<20x5x3x3x{element}>"
    f, _ = counted(program(given, f"%y = cvm.conv2d %x, %w {attributes}"), x, w)
    assert "__shared__" in f.lower("cuda") and "fma" in f.lower("cuda")
    y = f(x, w)
    assert (
        np.isfinite(y[:, 4]).any() == bool(attributes) and np.signbit(y[1, 7][y[1, 7] == 0]).any()
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("element", ["f32", "i32", "i8"])
@pytest.mark.parametrize("width", [7, 16])
def test_convolutions_in_groups_by_tiles(element: str, width: int) -> None:
    declared = SMALL if element == "i8" else ""
    given = "%x: tensor<2x{0}x9x8x{1}> {2}, %w: tensor<{3}x{4}x3x3x{1}> {2}".format(
        4 * width, element.replace("i8", "i32"), declared, 64, width
    )
    shapes = (2, 4 * width, 9, 8), (64, width, 3, 3)
    x, w = (RANDOM.normal(size=s).astype("f4") if element == "f32" else small(*s) for s in shapes)
    f, _ = counted(program(given, "%y = cvm.conv2d %x, %w {padding = [1, 1], groups = 4}"), x, w)
    assert "__shared__" in f.lower("cuda") and on_tensor_cores(f) == (element == "i8")


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("second", ["jk", "kj"])
def test_products_of_floats_by_tiles(element: str, second: str) -> None:
    """The order of the sums is that of a CPU's panels, also where the terms are no whole number of
    steps.
    """
    for m, n, k in ((64, 80, 32), (33, 40, 53)):
        arrays = [
            RANDOM.normal(size=s).astype(f"f{int(element[1:]) // 8}")
            for s in ((m, k), (n, k) if second == "jk" else (k, n))
        ]
        order = '[0, "x", 1]', '["x", 0, 1]' if second == "jk" else '["x", 1, 0]'
        lines = [
            f"%{r} = theano.dimshuffle %{x} {{new_order = {o}}}"
            for r, x, o in zip("ab", "xw", order, strict=True)
        ]
        lines += [
            '%c = theano.elemwise %a, %b {scalar_op = "mul"}',
            '%y = theano.careduce %c {scalar_op = "add", axis = [2]}',
        ]
        shapes = ["x".join(map(str, a.shape)) for a in arrays]
        given = f"%x: tensor<{shapes[0]}x{element}>, %w: tensor<{shapes[1]}x{element}>"
        f, _ = counted(program(given, "\n  ".join(lines)), *arrays)
        assert "__shared__" in f.lower("cuda") and "fma" in f.lower("cuda")


@pytest.mark.parametrize("element", ["ui8", "i16", "i64"])
def test_products_of_any_integers_by_tiles(element: str) -> None:
    order = '[0, "x", 1]', '["x", 0, 1]'
    lines = [
        f"%{r} = theano.dimshuffle %{x} {{new_order = {o}}}"
        for r, x, o in zip("ab", "xw", order, strict=True)
    ]
    lines += ['%c = theano.elemwise %a, %b {scalar_op = "mul"}']
    lines += ['%y = theano.careduce %c {scalar_op = "add", axis = [2]}']
    x, w = (RANDOM.integers(0, 100, s).astype(WIDTHS[element]) for s in ((40, 48), (36, 48)))
    given = f"%x: tensor<40x48x{element}>, %w: tensor<36x48x{element}>"
    f, _ = counted(program(given, "\n  ".join(lines)), x, w)
    assert "__shared__" in f.lower("cuda")


SMALL = "{range = [-128, 127]}"


def small(*shape: int) -> np.ndarray:
    return RANDOM.integers(-128, 128, shape, np.int32)


@pytest.mark.sample(3)
@pytest.mark.parametrize("shape", [(64, 64, 64), (70, 33, 100), (20, 16, 200)])
@pytest.mark.parametrize("known", [True, False])
def test_dense_layers_on_tensor_cores(shape: tuple[int, int, int], known: bool) -> None:
    """Rows of any length, constants packed beforehand, and what follows the sums."""
    m, n, k = shape
    x, w, b = small(m, k), small(n, k), RANDOM.integers(-(2**31), 2**31, n, np.int32)
    given, line = (
        f"%x: tensor<{m}x{k}xi32> {SMALL}, %b: tensor<{n}xi32>",
        "%y = cvm.dense %x, %w, %b\n  %z = cvm.relu %y",
    )
    if known:
        line = f"%w = const dense<{w.tolist()}> : tensor<{n}x{k}xi32>\n  {line}"
    else:
        given += f", %w: tensor<{n}x{k}xi32> {SMALL}"
    f, _ = counted(program(given, line, "%z"), *((x, b) if known else (x, b, w)))
    assert on_tensor_cores(f) and len(f.plan.kernels) == (2 if known else 3)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "attributes", ["{padding = [1, 1]}", "{stride = [2, 1]}", "{dilation = [2, 2]}"]
)
@pytest.mark.parametrize("channels", [16, 20])
def test_convolutions_on_tensor_cores(attributes: str, channels: int) -> None:
    given = f"%x: tensor<2x{channels}x14x13xi32> {SMALL}, %w: tensor<24x{channels}x3x3xi32> {SMALL}"
    f, _ = counted(
        program(given, f"%y = cvm.conv2d %x, %w {attributes}"),
        small(2, channels, 14, 13),
        small(24, channels, 3, 3),
    )
    assert on_tensor_cores(f)


BYTES = {"s8": (-128, 127), "u8": (0, 255), "both": (0, 127)}


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("a", "b"), [("u8", "s8"), ("s8", "u8"), ("u8", "u8"), ("both", "u8"), ("both", "both")]
)
@pytest.mark.parametrize("known", [True, False])
def test_unsigned_bytes_on_tensor_cores(a: str, b: str, known: bool) -> None:
    """Factors from their least to their greatest number, and at those."""
    (low, high), (least, most) = BYTES[a], BYTES[b]
    x, w = (
        RANDOM.integers(low, high + 1, (40, 100), np.int32),
        RANDOM.integers(least, most + 1, (33, 100), np.int32),
    )
    x[0], x[1], w[0], w[1] = low, high, least, most
    given, line = f"%x: tensor<40x100xi32> {{range = [{low}, {high}]}}", "%y = cvm.dense %x, %w"
    if known:
        line = f"%w = const dense<{w.tolist()}> : tensor<33x100xi32>\n  {line}"
    else:
        given += f", %w: tensor<33x100xi32> {{range = [{least}, {most}]}}"
    f, _ = counted(program(given, line), *((x,) if known else (x, w)))
    types = ".".join("s8" if n == "both" else n for n in (a, b))
    assert f"mma.sync.aligned.m16n8k32.row.col.s32.{types}.s32" in f.lower("ptx")


def test_convolutions_of_what_is_not_negative_on_tensor_cores() -> None:
    given = f"%x: tensor<2x20x14x13xi32> {{range = [0, 255]}}, %w: tensor<24x20x3x3xi32> {SMALL}"
    x = RANDOM.integers(0, 256, (2, 20, 14, 13), np.int32)
    f, _ = counted(
        program(given, "%y = cvm.conv2d %x, %w {padding = [1, 1]}"), x, small(24, 20, 3, 3)
    )
    assert "m16n8k32.row.col.s32.s8.u8.s32" in f.lower("ptx")


@pytest.mark.parametrize("elements", [("i8", "i8"), ("ui8", "i8"), ("i8", "ui8"), ("ui8", "ui8")])
def test_arrays_of_bytes_are_not_packed(elements: tuple[str, str]) -> None:
    order = '[0, "x", 1]', '["x", 0, 1]'
    lines = [
        f"%{r} = theano.dimshuffle %{x} {{new_order = {o}}}"
        for r, x, o in zip("ab", "xw", order, strict=True)
    ]
    lines += [f'%{r}.wide = theano.elemwise %{r} {{scalar_op = "cast", dtype = i32}}' for r in "ab"]
    lines += ['%c = theano.elemwise %a.wide, %b.wide {scalar_op = "mul"}']
    lines += ['%y = theano.careduce %c {scalar_op = "add", axis = [2]}']
    given = f"%x: tensor<40x48x{elements[0]}>, %w: tensor<36x48x{elements[1]}>"
    x, w = (
        small(n, 48).astype(e.replace("ui8", "u1").replace("i8", "i1"))
        for n, e in zip((40, 36), elements, strict=True)
    )
    f, _ = counted(program(given, "\n  ".join(lines)), x, w)
    assert on_tensor_cores(f) and len(f.plan.kernels) == 1


WINDOWS = {  # channels, height and width, the side of the window, stride and padding, and the type
    "padded": ((6, 60, 62), 3, 1, 1, "f32"),
    "integers": ((6, 60, 62), 3, 1, 1, "i32"),
    "not padded": ((3, 34, 66), 3, 1, 0, "f64"),
    "small images": ((40, 7, 7), 3, 1, 1, "f32"),
    "small images of integers": ((21, 14, 14), 3, 1, 1, "i32"),
    "strided": ((5, 41, 43), 5, 2, 2, "f32"),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_channels_by_tiles(name: str, compile_for: Callable[..., None]) -> None:
    """Elements that windows share are loaded once; beyond the edge nothing is added, not even to
    infinity or -0.0.
    """
    (channels, height, width), side, stride, padding, element = WINDOWS[name]
    x = RANDOM.normal(0, 99, (2, channels, height, width)).astype(WIDTHS[element])
    w = RANDOM.normal(0, 99, (channels, 1, side, side)).astype(WIDTHS[element])
    if element != "i32":
        x[0, 0, 0, :2], w[-1] = (np.inf, -0.0), np.inf
    given = (
        f"%x: tensor<2x{channels}x{height}x{width}x{element}>, %w: "
        f"tensor<{channels}x1x{side}x{side}x{element}>"
    )
    options = (
        f"padding = [{padding}, {padding}], stride = [{stride}, {stride}], groups = {channels}"
    )
    text, memories = program(given, f"%y = cvm.conv2d %x, %w {{{options}}}"), []
    for multiprocessors in (1, 1000):
        compile_for(gpu=Gpu(multiprocessors=multiprocessors))
        f, memory = counted(text, x, w)
        assert ("%window" in kernels_text(f.plan.kernels)) == (multiprocessors == 1)
        memories.append(memory.statistics)
    tiled, plain = memories
    assert (
        tiled["load sectors"] < plain["load sectors"] / 2
        and tiled["load requests"] < plain["load requests"] / 2
    )
    assert stride > 1 or tiled["bank conflicts"] == 0


@pytest.mark.parametrize("zero", [0, 3])
def test_windows_with_channels_last(zero: int, compile_for: Callable[..., None]) -> None:
    compile_for(gpu=Gpu(multiprocessors=1))
    x, bias = RANDOM.integers(-128, 128, (1, 9, 17, 40), np.int8), np.arange(40, dtype=np.int32)
    lines = [
        f"%w = const dense<{RANDOM.integers(-128, 128, (3, 3, 40, 1)).tolist()}> : "
        "tensor<3x3x40x1xi8>",
        f"%zero = const dense<{zero}> : tensor<i32>",
        "%none = const dense<0> : tensor<i32>",
        "%y = quant.depthwise_conv2d %x, %w, %zero, %none, %b",
    ]
    f, memory = counted(
        program("%x: tensor<1x9x17x40xi8>, %b: tensor<40xi32>", "\n  ".join(lines)), x, bias
    )
    assert "%window" in kernels_text(f.plan.kernels) and conflicts(memory) == 0


def test_large_tiles_of_tensor_cores(compile_for: Callable[..., None]) -> None:
    compile_for(gpu=Gpu(multiprocessors=1))
    given = f"%x: tensor<250x128xi32> {SMALL}, %w: tensor<230x128xi32> {SMALL}"
    f, memory = counted(program(given, "%y = cvm.dense %x, %w"), small(250, 128), small(230, 128))
    assert excess(memory)[0] == 1 and conflicts(memory) == 0
    assert on_tensor_cores(f) and "tensor<256x4x4x4xi32>" in kernels_text(f.plan.kernels)


@pytest.mark.parametrize("depth", [48, 100, 192, 400, 1000])
def test_steps_of_tensor_cores(depth: int) -> None:
    """As many steps as stages, more and fewer; the last one not whole."""
    given = f"%x: tensor<70x{depth}xi32> {SMALL}, %w: tensor<64x{depth}xi32> {SMALL}"
    f, memory = counted(program(given, "%y = cvm.dense %x, %w"), small(70, depth), small(64, depth))
    assert conflicts(memory) == 0 and on_tensor_cores(f)
    stages = min(4, 1 + -(-depth // 64))
    assert f"%left: tensor<{stages}x64x16xi32>" in kernels_text(f.plan.kernels)


TILES = [
    ("f32", (250, 230, 40), 1, "8x8", "128 x 128"),
    ("f32", (250, 50, 40), 1, "8x4", "128 x 64"),
    ("f32", (190, 180, 40), 1, "4x4", "64 x 64: half of a larger one would be empty"),
    ("f32", (250, 230, 40), 16, "4x4", "all multiprocessors have one"),
    ("f32", (250, 230, 40), 132, "2x2", "twice as many"),
    ("f64", (250, 230, 40), 1, "4x4", "no more in shared memory"),
    ("i32", ("?", 230, 40), 132, "8x8", "any number of rows"),
]


@pytest.mark.parametrize(("element", "sizes", "multiprocessors", "tile", "why"), TILES)
def test_shapes_of_tiles(
    element: str,
    sizes: Any,
    multiprocessors: int,
    tile: str,
    why: str,
    compile_for: Callable[..., None],
) -> None:
    """A thread's sums; neighboring threads read neighboring packs of shared memory and elements
    of arrays.
    """
    compile_for(gpu=Gpu(multiprocessors=multiprocessors))
    m, n, k = sizes
    given = f"%x: tensor<{m}x{k}x{element}>, %w: tensor<{n}x{k}x{element}>"
    arrays = [small(100 if r == "?" else r, k).astype(WIDTHS[element]) for r in (m, n)]
    f, memory = counted(program(given, "%y = cvm.dense %x, %w"), *arrays)
    assert f"tensor<256x{tile}x{element}>" in kernels_text(f.plan.kernels), why
    assert conflicts(memory) == 0 and excess(memory)[0] == 1


def on_tensor_cores(f: SimulatedFunction) -> bool:
    return "mma.sync.aligned.m16n8k32.row.col.s32." in f.lower("ptx")


@pytest.mark.parametrize("lowest", [-129, -128])
def test_what_may_not_fit_8_bits_is_multiplied_in_32(lowest: int) -> None:
    given = f"%x: tensor<40x40xi32> {{range = [{lowest}, 0]}}, %w: tensor<30x40xi32> {SMALL}"
    x = np.full((40, 40), lowest, np.int32)
    f, _ = counted(program(given, "%y = cvm.dense %x, %w"), x, small(30, 40))
    assert on_tensor_cores(f) == (lowest == -128)


BROKEN = [  # a kernel by tiles, what is wrong with it, and what is said of that
    (SMALL, "__syncthreads();", "", "another wrote since the last barrier"),
    (SMALL, "< 60", "< 61", "outside of its array"),
    (SMALL, "[2048]", "[1000]", "shared memory"),
    (
        SMALL,
        " multiply_pieces(",
        " if (v7 % 32 < 16) multiply_pieces(",
        "a warp's instruction without all of its threads",
    ),
    (SMALL, "copies_arrive<", "copies_arrive<1 + ", "before cp.async.wait_group"),
    (SMALL, "load_matrices(", "load_matrices(1 + ", "an access to 16 bytes that is not aligned"),
    ("", "__syncthreads();", "", "another wrote since the last barrier"),
    ("", "< 60", "< 61", "outside of its array"),
    ("", "[1152]", "[1000]", "shared memory"),
]


@pytest.mark.parametrize(("declared", "old", "new", "fault"), BROKEN)
def test_a_broken_product_is_found(declared: str, old: str, new: str, fault: str) -> None:
    given = f"%x: tensor<60x33xi32> {declared}, %w: tensor<64x33xi32> {declared}"
    f = cvm.compile(program(given, "%y = cvm.dense %x, %w"), target="cuda-sim")
    before, last, text = f.source.text.rpartition("extern")
    assert old in text
    wrong = text.replace(old, new, 1 if new == "" else -1)
    with pytest.raises(Fault, match=fault):
        run(
            f.plan,
            Source(before + last + wrong, f.source.launches, ()),
            small(60, 33),
            small(64, 33),
        )


@pytest.mark.parametrize("declared", [SMALL, ""])
@pytest.mark.parametrize("count", [0, 1, 70])
def test_products_of_unknown_sizes(declared: str, count: int) -> None:
    given = f"%x: tensor<?Mx40xi32> {declared}, %w: tensor<?Nx40xi32> {declared}"
    f, _ = counted(program(given, "%y = cvm.dense %x, %w"), small(count, 40), small(33, 40))
    assert on_tensor_cores(f) == bool(declared) and "__shared__" in f.lower("cuda")


@pytest.mark.sample(6)
@pytest.mark.parametrize("element", ["i32", "i8", "f32"])
@pytest.mark.parametrize("count", [0, 1, 16, 17, 64, 100])
def test_products_of_unknown_depth(element: str, count: int) -> None:
    declared, kind = (SMALL, "i32") if element == "i8" else ("", element)
    given = f"%x: tensor<?x?Kx{kind}> {declared}, %w: tensor<40x?Kx{kind}> {declared}"
    x, w = (small(n, count).astype("f4" if element == "f32" else "i4") for n in (33, 40))
    f, _ = counted(program(given, "%y = cvm.dense %x, %w"), x, w)
    assert "__shared__" in f.lower("cuda") and on_tensor_cores(f) == (element == "i8")


@pytest.mark.parametrize("element", ["i32", "i8", "f32"])
@pytest.mark.parametrize("counts", [(5, 17), (1, 40), (16, 16), (0, 3), (3, 0)])
def test_products_over_several_axes_of_unknown_size(element: str, counts: tuple[int, int]) -> None:
    declared, kind = (SMALL, "i32") if element == "i8" else ("", element)
    order = ("[0, 'x', 1, 2]", "['x', 2, 1, 0]")
    lines = [
        f"%{r} = theano.dimshuffle %{x} {{new_order = {o}}}"
        for r, x, o in zip("ab", "xw", order, strict=True)
    ]
    lines += ['%c = theano.elemwise %a, %b {scalar_op = "mul"}']
    lines += ['%y = theano.careduce %c {scalar_op = "add", axis = [2, 3]}']
    x, w = small(40, *counts), small(*counts[::-1], 36)
    if element == "f32":
        x, w = (RANDOM.normal(size=a.shape).astype("f4") for a in (x, w))
    given = f"%x: tensor<40x?Ax?Bx{kind}> {declared}, %w: tensor<?Bx?Ax36x{kind}> {declared}"
    f, memory = counted(program(given, "\n  ".join(lines).replace("'", '"')), x, w)
    assert "__shared__" in f.lower("cuda") and on_tensor_cores(f) == (element == "i8")
    assert memory.statistics["load sectors"] <= x.size + w.size  # without tiles four times as many


def test_windows_of_unknown_size() -> None:
    x, w = (
        RANDOM.normal(size=(2, 3, 12, 13)).astype("f4"),
        RANDOM.normal(size=(17, 3, 4, 2)).astype("f4"),
    )
    given = "%x: tensor<2x?Cx12x13xf32>, %w: tensor<17x?Cx?Kx?Lxf32>"
    f, _ = counted(program(given, "%y = cvm.conv2d %x, %w"), x, w)
    assert "__shared__" in f.lower("cuda")


@pytest.mark.parametrize("declared", [SMALL, ""])
def test_convolutions_of_unknown_channels(declared: str) -> None:
    given = f"%x: tensor<2x?Cx9x8xi32> {declared}, %w: tensor<16x?Cx3x3xi32> {declared}"
    f, _ = counted(
        program(given, "%y = cvm.conv2d %x, %w {padding = [1, 1]}"),
        small(2, 20, 9, 8),
        small(16, 20, 3, 3),
    )
    assert "__shared__" in f.lower("cuda") and on_tensor_cores(f) == bool(declared)


def test_weights_of_known_depth_for_what_has_unknown_depth() -> None:
    x, w = small(33, 64), small(40, 64)
    lines = f"%w = const dense<{w.tolist()}> : tensor<40x64xi32>\n  %y = cvm.dense %x, %w"
    counted(program(f"%x: tensor<?x?xi32> {SMALL}", lines), x)


def test_convolutions_of_unknown_sizes() -> None:
    given = f"%x: tensor<?Nx16x?Hx?Wxi32> {SMALL}, %w: tensor<16x16x3x3xi32> {SMALL}"
    f, _ = counted(
        program(given, "%y = cvm.conv2d %x, %w {padding = [1, 1]}"),
        small(3, 16, 9, 8),
        small(16, 16, 3, 3),
    )
    assert on_tensor_cores(f)


@pytest.mark.sample(10)
@pytest.mark.parametrize("element", ["i8", "ui8", "i16", "i32", "ui32", "i64"])
@pytest.mark.parametrize(
    "operands", ["add %x, %y", "sub %x, %y", "mul %x, %y", "neg %x", "xor %x, %y"]
)
def test_negated_operations(element: str, operands: str) -> None:
    text = f"""func @main(%x: tensor<9x{element}>, %y: tensor<9x{element}>) {{
      %a = dali.{operands}
      %z = dali.neg %a
      %w = dali.sub %y, %z
      %v = dali.neg %z
      return %z, %w, %v
    }}"""
    f, reference = cvm.compile(text, target="cuda-sim"), cvm.compile(text, target="reference")
    dtype = f.function.arguments[0].known_type.element.dtype
    x, y = RANDOM.integers(0, 2**63, (2, 9)).astype(dtype)
    for found, wanted in zip(f(x, y), reference(x, y), strict=True):
        np.testing.assert_array_equal(found, wanted, strict=True)


@pytest.mark.sample(5)
@pytest.mark.parametrize("size", [4096, 4095])
@pytest.mark.parametrize("element", ["i8", "ui8"])
@pytest.mark.parametrize("operator", ["add", "sub", "mul"])
def test_bytes_that_are_computed_and_compared(operator: str, element: str, size: int) -> None:
    """A sum of bytes that wraps is a byte when it is compared: NVRTC 13 forgets that of vectors of
    them.
    """
    text = f"""func @main(%x: tensor<{size}x{element}>, %y: tensor<{size}x{element}>, %z: tensor<{size}xi1>) {{
      %a = dali.{operator} %x, %y
      %less = dali.lt %a, 3 : {element}
      %least = dali.ge %a, %x
      %both = dali.expr(%less & %z)
      return %less, %least, %both
    }}"""
    x, y = RANDOM.integers(0, 256, (2, size)).astype(np.uint8)
    arguments = [a.view(np.int8 if element == "i8" else np.uint8) for a in (x, y)]
    expected = cvm.compile(text)(*arguments, x > 99)
    for one, other in zip(
        cvm.compile(text, target="cuda-sim")(*arguments, x > 99), expected, strict=True
    ):
        np.testing.assert_array_equal(one, other, strict=True)


@pytest.mark.sample(6)
@pytest.mark.parametrize("element", ["i8", "f16", "f32", "f64"])
@pytest.mark.parametrize(
    ("shape", "begin", "end"),
    [
        ((2, 90), (1,), (2,)),
        ((5, 130), (1, 0), (4, 128)),
        ((3, 18), (0, 0), (3, 16)),
        ((2, 3, 22), (1, 0), (2, 2)),
    ],
)
def test_rows_that_begin_within_a_pack(
    shape: tuple[int, ...], begin: Any, end: Any, element: str
) -> None:
    """A GPU finds fault with a pack that does not begin at a multiple of its bytes."""
    sizes = "x".join(map(str, shape))
    text = program(
        f"%x: tensor<{sizes}x{element}>",
        f"%y = cvm.slice %x {{begin = {[*begin]}, end = {[*end]}}}",
    )
    x = (100 * RANDOM.random(shape)).astype(
        cvm.parse(text).functions["main"].arguments[0].known_type.element.dtype
    )
    np.testing.assert_array_equal(
        cvm.compile(text, target="cuda-sim")(x),
        x[tuple(slice(b, e) for b, e in zip(begin, end, strict=True))],
    )
