"""Contractions by matrix tiles: what they give as loops anywhere, and the instructions of tiles by an
interpreter of these, whose tiles are arrays.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import contraction_programs as contractions
import numpy as np
import pytest
from cvm.dialect.kernel_ir.kernel_printer import kernels_text
from cvm.jit.functions import native_function
from cvm.jit.llvm import emit_matrix_tiles, ir_builder as ll
from cvm.jit.llvm.native_code import Library
from cvm.lowering.contraction.matrix_tiles import (
    REGISTERS,
    SIDE,
    best_block,
    even_sides,
    even_steps,
)
from cvm.lowering.processor import DOT_PRODUCTS, Processor
from hypothesis import given, strategies as st
from int8_programs import PROGRAMS
from legal_and_equal import checked

import cvm
from cvm.terminal.files import page

MORE = {
    "dense, 33 rows": ("cvm.dense %x, %w", (33, 64), (48, 64)),
    "dense, a long row": ("cvm.dense %x, %w", (5, 1000), (40, 1000)),
    "3x3, 7 pixels": ("cvm.conv2d %x, %w {padding = [1, 1]}", (1, 32, 7, 7), (40, 32, 3, 3)),
    "3x3, 17 pixels": ("cvm.conv2d %x, %w {padding = [1, 1]}", (2, 12, 5, 17), (20, 12, 3, 3)),
    "1x1, strided": ("cvm.conv2d %x, %w {stride = [2, 2]}", (1, 64, 9, 9), (33, 64, 1, 1)),
}
ALL = PROGRAMS | MORE
RANGES = {"uu": (0, 255, 0, 255), "us": (0, 255, -128, 127), "ss": (-128, 127, -128, 127)}
RANGES["su"] = (-128, 127, 0, 255)


class Tiles:
    """The instructions of tiles, each of which makes a new one; a handle is its number."""

    def __init__(self) -> None:
        self.made: list[np.ndarray] = []
        self.products: set[str] = set()

    def keep(self, tile: np.ndarray) -> int:
        assert tile.shape[0] <= SIDE and tile.nbytes <= tile.shape[0] * 4 * SIDE
        self.made.append(tile)
        return len(self.made) - 1

    def zero(self, rows: int, width: int) -> int:
        return self.keep(np.zeros((rows, width // 4), np.int32))

    def memory(self, width: int, address: int) -> np.ndarray:
        return np.ctypeslib.as_array((ctypes.c_uint8 * width).from_address(address))

    def load(self, rows: int, width: int, address: int, pitch: int) -> int:
        lines = [self.memory(width, address + n * pitch) for n in range(rows)]
        return self.keep(np.array(lines).view(np.int32))

    def store(self, rows: int, width: int, address: int, pitch: int, tile: int) -> None:
        assert self.made[tile].shape == (rows, width // 4)
        for n, line in enumerate(self.made[tile]):
            self.memory(width, address + n * pitch)[...] = line.view(np.uint8)

    def product(self, signs: str) -> Callable[..., int]:
        types = [np.int8 if sign == "s" else np.uint8 for sign in signs]

        def product(rows: int, width: int, depth: int, sums: int, a: int, b: int) -> int:
            self.products.add(signs)
            left, right = self.made[a].view(types[0]), self.made[b].view(types[1])
            assert left.shape == (rows, depth) and right.shape == (depth // 4, width)
            columns = right.reshape(depth // 4, width // 4, 4).swapaxes(1, 2).reshape(depth, -1)
            return self.keep(self.made[sums] + left.astype(np.int32) @ columns.astype(np.int32))

        return product


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tiles]:
    """Tiles are numbers of arrays, and their instructions calls of Python."""
    tiles, kept, addresses = Tiles(), [], {}
    types = {"i16": ctypes.c_int16, "ptr": ctypes.c_void_p, "i64": ctypes.c_int64}
    types["x86_amx"] = types["i64"]

    def instead(declared: ll.Declaration, function: Callable[..., int | None]) -> ll.Declaration:
        name = f"interpreted_{declared.name.replace('.', '_')}"
        result = types.get(str(declared.result))
        kept.append(
            ctypes.CFUNCTYPE(result, *(types[str(p)] for p in declared.parameters))(function)
        )
        addresses[name] = ctypes.cast(kept[-1], ctypes.c_void_p).value or 0
        own = [ll.WORD if p is emit_matrix_tiles.TILE else p for p in declared.parameters]
        gives = ll.WORD if declared.result is emit_matrix_tiles.TILE else declared.result
        return ll.Declaration(gives, name, tuple(own))

    own = {"ZERO": tiles.zero, "LOAD": tiles.load, "STORE": tiles.store}
    declared = {n: instead(getattr(emit_matrix_tiles, n), f) for n, f in own.items()}
    products = {s: instead(d, tiles.product(s)) for s, d in emit_matrix_tiles.PRODUCTS.items()}
    for name, value in {**declared, "PRODUCTS": products, "TILE": ll.WORD}.items():
        monkeypatch.setattr(emit_matrix_tiles, name, value)
    monkeypatch.setattr(
        native_function,
        "Library",
        lambda code, exports, data, more: Library(code, exports, data, more | addresses),
    )
    yield tiles


def processor(matrix_tiles: str) -> Processor:
    costs = contractions.preferred("matrix_tiles", ("winograd",))
    found = Processor(dot_products=DOT_PRODUCTS, packing_products=0, matrix_tiles=matrix_tiles)
    return replace(found, tuning=replace(found.tuning, strategy_costs=costs, packed_rows=1))


def agreed(program: str, *arguments: tuple[np.ndarray, ...]) -> str:
    module = cvm.parse(program)
    function, reference = cvm.compile(module), cvm.compile(module, target="reference")
    for arrays in arguments:
        np.testing.assert_array_equal(function(*arrays), reference(*arrays), strict=True)
    return kernels_text(checked(function.plan.kernels))


def numbers(shape: tuple[int, ...], low: int, high: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    found = random.integers(low, high, shape, np.int32, endpoint=True)
    found.flat[:2] = low, high
    return found


@pytest.mark.sample(24)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "given"])
@pytest.mark.parametrize("signs", RANGES)
@pytest.mark.parametrize("name", ALL)
def test_emulated_tiles_agree(
    name: str, signs: str, constant: bool, compile_for: Callable[..., None]
) -> None:
    compile_for(**vars(processor("loops")))
    _check(name, signs, constant)


@pytest.mark.sample(24)
@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("signs", RANGES)
@pytest.mark.parametrize("name", ALL)
def test_instructions_agree(
    name: str, signs: str, width: int, compile_for: Callable[..., None], interpreted: Tiles
) -> None:
    compile_for(**vars(replace(processor("instructions"), tile_vector_bytes=width)))
    _check(name, signs, width == 64)
    assert interpreted.products


def _check(name: str, signs: str, constant: bool) -> None:
    _, image, kernel = ALL[name]
    low, high, least, most = RANGES[signs]
    x, w = numbers(image, low, high, 0), numbers(kernel, least, most, 1)
    declared, of_weights = f" {{range = [{low}, {high}]}}", f" {{range = [{least}, {most}]}}"
    program = contractions.text(ALL[name], declared, w if constant else of_weights)
    lowered = agreed(program, (x,) if constant else (x, w), *([] if constant else [(x * 0, w)]))
    assert " matrix {" in lowered


# products in machine code


CONVOLUTIONS = {  # rows, channels, pixels, window, stride
    "3x3": (64, 64, 14, 3, 1),
    "3x3, 7 pixels": (96, 64, 7, 3, 1),
    "1x1": (33, 256, 14, 1, 1),
    "strided": (20, 32, 28, 3, 2),
    "odd": (17, 12, 21, 5, 1),
    "the first of a network": (64, 3, 56, 7, 2),
}
ARRAYS = {"ss": (-127, -127), "us": (0, -127), "su": (-127, 0), "uu": (0, 0)}  # least numbers


def product(rows: int, channels: int, size: int, window: int, stride: int, signs: str) -> str:
    least = [f"{{range = [{low}, {low + 255 if low == 0 else 127}]}}" for low in ARRAYS[signs]]
    x, w = f"1x{channels}x{size}x{size}xi32", f"{rows}x{channels}x{window}x{window}xi32"
    return f"""func @main(%x: tensor<{x}> {least[0]}, %w: tensor<{w}> {least[1]}) {{
        %y = cvm.conv2d %x, %w {{padding = [{window // 2}, {window // 2}], stride = [{stride}, {stride}]}}
        return %y
    }}"""


@pytest.mark.parametrize("signs", ARRAYS)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_no_tile_is_spilled_or_configured_in_a_loop(name: str, signs: str) -> None:
    program = product(*CONVOLUTIONS[name], signs)
    f = cvm.compile(program, target="reference", cpu="sapphirerapids")
    code = f.lower("asm")
    instruction = f"\ttdpb{signs[::-1]}d"  # the rows are the weights
    blocks = re.split(r"\n(?=\.L\w+:)", code)
    loop, jump, _ = max(blocks, key=lambda block: block.count(instruction)).partition("\n\tj")
    count = loop.count(instruction)
    assert count >= 1 and jump
    assert code.count(instruction) == count, "a step is emitted more than once"
    assert code.count("\ttilestored") == code.count("\ttilezero") == count, "a tile is spilled"
    assert code.count("\ttileloadd") == loop.count("\ttileloadd") <= count + 1
    assert code.count("\tldtilecfg") == 1 and "ldtilecfg" not in loop
    assert "\ttilerelease" in code


def test_text_of_tiles() -> None:
    """Sums are values of a loop, which begins with them."""
    f = cvm.compile(product(16, 64, 7, 1, 1, "us"), target="reference", cpu="sapphirerapids")
    lines = [re.sub(r"%\w+", "%", line) for line in f.lower("llvm").splitlines() if "amx" in line]
    begun, sizes = "  % = phi x86_amx [ %, % ], [ %, % ]", "i16 16, i16 64"
    count = lines.count(begun)
    assert (
        count and lines.count(f"  % = call x86_amx @llvm.x86.tilezero.internal({sizes})") == count
    )
    added = f"{sizes}, i16 64, x86_amx %, x86_amx %, x86_amx %)"
    assert lines.count(f"  % = call x86_amx @llvm.x86.tdpbsud.internal({added}") == count
    stored = (
        f"  call void @llvm.x86.tilestored64.internal({sizes}, ptr %, i64 {64 * count}, x86_amx %)"
    )
    assert lines.count(stored) == count


def test_optimize_0_has_no_tiles() -> None:
    program = product(*CONVOLUTIONS["3x3"], "us")
    f = cvm.compile(program, target="reference", cpu="sapphirerapids", optimize=0)
    assert "amx" not in f.lower("llvm") and "tdpb" not in f.lower("asm")


@given(
    st.integers(1, 300), st.integers(8, 70), st.integers(1, 9), st.integers(1, 700), st.booleans()
)
def test_blocks_fit_the_registers(
    rows: int, columns: int, lines: int, words: int, gathered: bool
) -> None:
    for lanes in (4, 8, 16):
        block = best_block(rows, columns, lines, words, gathered, lanes)
        (down, high), (along, wide) = map(even_sides, (block.rows, block.vectors * block.pitch))
        assert max(high, wide) <= SIDE and min(down, along) >= 1
        assert down * along + min(down, along) + 1 <= REGISTERS
        assert block.rows <= rows and block.lanes <= min(lanes, columns, block.pitch)
        depth, each = even_steps(words)
        assert each <= SIDE and 0 <= depth - words < -(-words // SIDE) and depth % each == 0


# what else executes matrix loops


KERNEL = """kernel @product(%a: tensor<32x32xi32>, %b: tensor<32x32xi32>) -> (%y: tensor<32x32xi32>) {
  alloc stack %sums: tensor<32x32xi32>
  for %r in 0..32 matrix {
    for %v in 0..2 {
      for %l in 0..16 vector 16 {
        %sums[%r, %v * 16 + %l] = 0
      }
      for %k in 0..32 {
        for %l in 0..16 vector 16 {
          %sums[%r, %v * 16 + %l] = %sums[%r, %v * 16 + %l] + PRODUCT
        }
      }
    }
  }
  for %r in 0..32 {
    for %c in 0..32 {
      %y[%r, %c] = %sums[%r, %c]
    }
  }
}
"""
FORMS = {  # and whether tiles compute them
    "quaddot_us(%a[%r, %k], %b[%k, %v * 16 + %l])": True,
    "quaddot(%b[%k, %v * 16 + %l], %a[%r, %k])": True,
    "quaddot_us(%a[%r, %k], %b[31 - %k, %v * 16 + %l])": True,  # lines may lie in any order
    "quaddot_us(%a[%r, 31 - %k], %b[%k, %v * 16 + %l])": False,
    "quaddot_us(%a[%k, %r], %b[%k, %v * 16 + %l])": False,
    "quaddot_us(%a[%r, %k], %b[%k, 31 - %v * 16 - %l])": False,
    "quaddot_us(%a[%r, %k], %a[%r, %k])": False,
    "pairdot(%a[%r, %k], %b[%k, %v * 16 + %l])": False,
    "%a[%r, %k] * %b[%k, %v * 16 + %l]": False,
}


@pytest.mark.parametrize("form", FORMS)
def test_matrix_loops_in_text(
    form: str, compile_for: Callable[..., None], interpreted: Tiles
) -> None:
    """The mark changes no result; other nests than products of tiles run as they are."""
    plain = KERNEL.replace("PRODUCT", form)
    a, b = (
        np.random.default_rng(n).integers(-(1 << 31), 1 << 31, (32, 32), np.int32) for n in range(2)
    )
    wanted = cvm.compile(cvm.parse(plain.replace(" matrix", "")))(a, b)
    compile_for(**vars(processor("instructions")))
    np.testing.assert_array_equal(cvm.compile(cvm.parse(plain))(a, b), wanted)
    assert bool(interpreted.products) == FORMS[form]


def test_the_roof_of_a_machine_is_that_of_its_tiles() -> None:
    """The kernel by which `cvm cost` measures tiles is computed by them."""
    text = page("roofline.loops", LANES=8, CHAIN=1, STEPS=1, LENGTH=8, DEPTH=64, TIMES=2)
    code = cvm.compile(cvm.parse(text[text.index("kernel @tiles") :]), cpu="sapphirerapids").lower(
        "asm"
    )
    assert code.count("\ttdpbssd") == 4
