"""Contractions give the same bits by vectors of every width: LLVM splits those that the machine
lacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from cvm.jit.host_processor import host_processor
from cvm.lowering.contraction.micro_kernel import (
    FMA,
    INT8_DOT_PRODUCT,
    INT8_PAIR_PRODUCTS,
    MAX_SIDE,
    MAX_VECTORS,
    MUL_I32,
    Product,
)
from cvm.lowering.processor import Processor, named

import cvm

WIDTHS = {
    16: (16, 32),
    32: (16, 32),
    64: (32,),
}  # bytes, and the numbers of registers that processors have of them
DESCRIBED = [(w, n) for w, counts in WIDTHS.items() for n in counts]
CONVOLUTIONS = {  # channels, size, window, stride, groups, and what the widest vectors are for
    "winograd": (16, 20, 3, 1, 1),
    "few columns": (16, 7, 3, 1, 1),
    "strided": (12, 19, 3, 2, 1),
    "1x1": (33, 14, 1, 1, 1),
    "depthwise": (24, 20, 3, 1, 24),
    "groups": (32, 12, 5, 1, 2),
}


def described(width: int, registers: int) -> Processor:
    """The host with vectors of another width, on units as wide."""
    more = {
        "tile_vector_bytes": width,
        "fma_bytes": width,
        "vector_registers": registers,
        "packing_products": 0,
    }
    return replace(host_processor(), **more)


@pytest.mark.sample(6)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    "sizes", [(6, 9, 16), (13, 33, 21), (40, 300, 130), (9, 2500, 65), (50, 64, 7)]
)
@pytest.mark.parametrize("transposed", [False, True])
def test_float_sums(sizes: tuple[int, int, int], dtype: str, transposed: bool) -> None:
    m, k, n = sizes
    random = np.random.default_rng(0)
    a, b = (
        random.normal(size=(m, k)).astype(dtype),
        random.normal(size=(n, k) if transposed else (k, n)).astype(dtype),
    )

    def product(a, b):
        return a @ (b.T if transposed else b)

    found = [cvm.compile(product, cpu=described(*d))(a, b) for d in DESCRIBED]
    np.testing.assert_allclose(found[0], product(a, b), rtol=0, atol=k * 4 * np.finfo(dtype).eps)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0], strict=True)


@pytest.mark.sample(4)
@pytest.mark.parametrize("ends", [(0, 127), (-128, 127), (0, 255), (-3000, 3000)])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, ends: tuple[int, int]) -> None:
    c, size, window, stride, groups = CONVOLUTIONS[name]
    random = np.random.default_rng(0)
    w = random.integers(-127, 128, (c, c // groups, window, window))
    x = random.integers(*ends, (1, c, size, size), np.int32, endpoint=True)
    program = f"""func @main(%x: tensor<1x{c}x{size}x{size}xi32> {{range = [{ends[0]}, {ends[1]}]}}) {{
  %w = const dense<{w.tolist()}> : tensor<{c}x{c // groups}x{window}x{window}xi32>
  %y = cvm.conv2d %x, %w {{padding = [{window // 2}, {window // 2}], stride = [{stride}, {stride}], groups = {groups}}}
  return %y
}}
"""
    wanted = cvm.compile(program, target="reference")(x)
    for d in DESCRIBED:
        np.testing.assert_array_equal(
            cvm.compile(program, cpu=described(*d))(x), wanted, strict=True
        )


@pytest.mark.parametrize(
    ("cpu", "register", "instruction"),
    [("x86-64-v3", "ymm", "vfmadd"), ("x86-64-v4", "zmm", "vfmadd"), ("znver5", "zmm", "vpdpbusd")],
)
@pytest.mark.parametrize("sizes", [(64, 128), (60, 80), (65, 196), (98, 32)])
def test_code_has_the_vectors_of_the_processor_named(
    cpu: str, register: str, instruction: str, sizes: tuple[int, int]
) -> None:
    """Machine code is for the processor's width, and its micro-kernels keep all sums in
    registers.
    """
    one, other = ("u1", "i1") if "dp" in instruction else ("f4", "f4")

    def product(a, b):
        return a.astype("i4") @ b.astype("i4") if one == "u1" else a @ b

    f = cvm.compile(product, target="reference", cpu=cpu)
    rows, columns = sizes
    f(np.ones((rows, 96), one), np.ones((96, columns), other))
    blocks = re.split(r"\n(?=\.L\w+:)", f.lower("asm"))
    kernel = max(blocks, key=lambda block: block.count(instruction))  # the innermost loop
    lines = [line for line in kernel.splitlines() if instruction in line]
    assert len(lines) >= 10 and all(register in line for line in lines)
    assert not re.findall(r"[xyz]mm\d+, -?\d*\(%r[sb]p\)", kernel), "a sum is spilled"


def test_units_of_half_the_width_take_narrower_vectors_where_these_waste_less() -> None:
    halved, whole = named("znver4"), named("znver5")
    assert halved is not None and whole is not None
    assert halved.fma_cycles == 2 and whole.fma_cycles == 1
    assert [p.tile_vector_bytes for p in halved.by_tile_width] == [64, 32]


@pytest.mark.parametrize("registers", [16, 32])
@pytest.mark.parametrize("product", [FMA, MUL_I32, INT8_DOT_PRODUCT, INT8_PAIR_PRODUCTS])
def test_tiles_fill_the_registers(
    product: Product, registers: int, compile_for: Callable[..., None]
) -> None:
    """Sums, a step's columns, a word of a row and temporaries have a register each, and a row more
    would need too many.
    """
    compile_for(vector_registers=registers)

    def fits(rows: int, vectors: int) -> bool:
        return rows * vectors + vectors + 1 + product.temporaries <= registers

    shapes = {(m.rows, m.vectors) for m in product.shapes()}
    assert all(fits(*shape) for shape in shapes)
    assert {vectors for _, vectors in shapes} == {
        v for v in range(1, MAX_VECTORS + 1) if fits(1, v)
    }
    for rows, vectors in shapes:
        more = rows + 1
        allowed = more <= product.max_rows and min(more, vectors) <= MAX_SIDE
        assert ((more, vectors) in shapes) == (allowed and fits(more, vectors))
