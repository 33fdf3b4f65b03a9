"""Contractions of bytes whose products are added four at once: exact at the ends of all ranges,
whatever the processor has.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import contraction_programs as contractions
import numpy as np
import pytest
from cvm.dialect.kernel_ir.kernel_printer import kernels_text
from cvm.jit.llvm import native_code
from cvm.jit.llvm.ir_builder import Declaration, Module, ir_type
from cvm.lowering.processor import DOT_PRODUCTS, Processor, Tuning
from depthwise_programs import SHAPES, text as windows
from int8_programs import PROGRAMS
from legal_and_equal import checked

import cvm

RANGES = {  # of the image
    "without a sign": (0, 127),
    "all of a byte": (0, 255),
    "with a sign": (-128, 127),
    "negative": (-128, 0),
}

ROW_LANES = "int8_dot_product_row_lanes"
TILES = [
    (32, 16, "columns"),
    (64, 32, "columns"),
    (16, 32, "columns"),
    (32, 32, "rows"),
    (64, 32, "rows"),
]


@pytest.fixture(
    autouse=True,
    params=TILES,
    ids=lambda tile: f"{tile[1]} of {tile[0]} bytes, vectors of {tile[2]}",
)
def processor(request: pytest.FixtureRequest, compile_for: Callable[..., None]) -> Processor:
    """One that adds four products, with tiles of one kind; where the one at hand does not, other
    instructions do.
    """
    width, registers, vectors = request.param
    costs = contractions.preferred(
        ROW_LANES, ("winograd", *([ROW_LANES] if vectors == "columns" else []))
    )
    found = Processor(
        dot_products=DOT_PRODUCTS,
        packing_products=0,
        tile_vector_bytes=width,
        vector_registers=registers,
        tuning=Tuning(place_steps=0 if width == 64 else 16, strategy_costs=costs),
    )
    compile_for(**vars(found))
    return found


def agreed(program: str, processor: Processor, *given: tuple[np.ndarray, ...]) -> str:
    module = cvm.parse(program)
    function, reference = cvm.compile(module), cvm.compile(module, target="reference")
    for arrays in given:
        np.testing.assert_array_equal(function(*arrays), reference(*arrays), strict=True)
    return kernels_text(checked(function.plan.kernels))


def images(shape: tuple[int, ...], low: int, high: int) -> list[tuple[np.ndarray]]:
    random = np.random.default_rng(0)
    ends = [np.full(shape, low, np.int32), np.full(shape, high, np.int32)]
    return [(x,) for x in (*ends, random.integers(low, high, shape, np.int32, endpoint=True))]


def weights(shape: tuple[int, ...]) -> np.ndarray:
    found = np.random.default_rng(1).choice(np.array([-128, -1, 0, 127], np.int32), shape)
    found.flat[:2] = -128, 127
    return found


@pytest.mark.sample(24)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("ends", RANGES)
def test_constant_weights(name: str, ends: str, processor: Processor) -> None:
    (low, high), (_, image, kernel) = RANGES[ends], PROGRAMS[name]
    program = contractions.text(PROGRAMS[name], f" {{range = [{low}, {high}]}}", weights(kernel))
    lowered = agreed(program, processor, *images(image, low, high))
    assert "quaddot_us" in lowered and ("^" in lowered) == (low < 0)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["dense", "strided", "groups", "7x7 pixels"])
def test_ranges_found_when_called(name: str, processor: Processor) -> None:
    _, image, kernel = PROGRAMS[name]
    w = weights(kernel)
    found = [
        x
        for ends in ((0, 255), (0, 256), (-128, 127), (-129, 0), (-1, 128))
        for x in images(image, *ends)
    ]
    lowered = agreed(contractions.text(PROGRAMS[name], "", w), processor, *found)
    assert "quaddot_us" in lowered and ".other." in lowered
    both = [(x, n) for (x,) in found for n in (w, abs(w), w * 2)]
    lowered = agreed(contractions.text(PROGRAMS[name]), processor, *both)
    assert "quaddot_us" in lowered and ".other." in lowered


def test_the_weights_may_be_those_without_a_sign(processor: Processor) -> None:
    w = np.arange(13 * 16).reshape(13, 16, 1, 1)
    program = contractions.text(PROGRAMS["1x1"], " {range = [-128, 127]}", w)
    assert "^" not in agreed(program, processor, *images(PROGRAMS["1x1"][1], -128, 127))


@pytest.mark.sample(20)
@pytest.mark.parametrize("ends", RANGES)
@pytest.mark.parametrize(
    "size, window, step, edge", [(7, 3, 1, 1), (8, 5, 2, 2), (9, 2, 1, 3), (14, 3, 2, 1)]
)
def test_zeros_beyond_the_edge(
    ends: str, size: int, window: int, step: int, edge: int, processor: Processor
) -> None:
    """Also where no part of a window is inside."""
    (low, high), w = RANGES[ends], weights((17, 8, window, window))
    given = f"%x: tensor<1x8x{size}x{size}xi32> {{range = [{low}, {high}]}}"
    program = f"""func @main({given}) {{
        %w = const dense<{w.tolist()}> : tensor<17x8x{window}x{window}xi32>
        %y = cvm.conv2d %x, %w {{padding = [{edge}, {edge}], stride = [{step}, {step}]}}
        return %y
    }}"""
    lowered = agreed(program, processor, *images((1, 8, size, size), low, high))
    assert "quaddot_us" in lowered and ("%strip" in lowered) == (
        (ROW_LANES, 0) in processor.tuning.strategy_costs
    )


@pytest.mark.parametrize("window", [1, 3])
def test_rows_that_leave_the_cache_are_prefetched(
    window: int, processor: Processor, compile_for: Callable[..., None]
) -> None:
    """Each tile prefetches a share of the next panel."""
    w = weights((70, 8, window, window))
    program = f"""func @main(%x: tensor<1x8x11x11xi32> {{range = [0, 127]}}) {{
        %w = const dense<{w.tolist()}> : tensor<70x8x{window}x{window}xi32>
        %y = cvm.conv2d %x, %w {{padding = [{window // 2}, {window // 2}]}}
        return %y
    }}"""
    for l2_bytes in (1 << 8, 1 << 20):
        compile_for(**vars(replace(processor, l2_bytes=l2_bytes)))
        lowered = agreed(program, processor, *images((1, 8, 11, 11), 0, 127))
        in_row_lanes = (ROW_LANES, 0) in processor.tuning.strategy_costs
        shares = re.search(r"for %u in [^\n]*\n *prefetch %rows", lowered) is not None
        assert shares == (in_row_lanes and l2_bytes == 1 << 8)


def test_larger_numbers_go_another_way(processor: Processor) -> None:
    program = contractions.text(
        PROGRAMS["dense"], " {range = [-1, 128]}", weights(PROGRAMS["dense"][2])
    )
    assert "quaddot_us" not in agreed(program, processor, *images(PROGRAMS["dense"][1], -1, 128))


@pytest.mark.sample(20)
@pytest.mark.parametrize("name", SHAPES)
def test_windows_of_one_array_for_each_channel(name: str, processor: Processor) -> None:
    image, kernel, _ = SHAPES[name]
    lowered = agreed(windows(name, 0, 255, weights(kernel)), processor, *images(image, 0, 255))
    assert "quaddot_us" in lowered


@pytest.mark.parametrize(
    "features", [set(), {"avxvnni"}, {"avx512vnni"}, {"avx512vnni", "avx512vl"}]
)
@pytest.mark.parametrize("lanes", [4, 8, 16, 2])
def test_the_instruction_is_taken_where_it_is(lanes: int, features: set[str]) -> None:
    wide = ir_type("i32", lanes)
    declared = Declaration(wide, f"quadsum.v{lanes}i32", (wide, wide, wide))
    made = native_code.complete(Module((declared,), ""), features)
    has = {d.vector_bytes for d in DOT_PRODUCTS if d.function == "quadsum" and d.is_in(features)}
    assert ("vpdpbusd" in made) == any(width <= 4 * lanes for width in has)
    native_code.optimise(f"{made}\ndefine i32 @main() {{\n  ret i32 0\n}}\n")
