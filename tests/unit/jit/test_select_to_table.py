"""Tables in registers: choices between constants are looked up where the processor can, and mean
what selects mean.
"""

from __future__ import annotations

import numpy as np
import pytest
from cvm.dialect.kernel_ir.expressions import Expr, Index, constant, select
from cvm.dialect.kernel_ir.loops import For, Kernel, Store
from cvm.dialect.types.tensor_types import F32, F64, I32, ElementType
from cvm.jit.functions.native_function import ENTRY
from cvm.jit.llvm import select_to_table
from cvm.jit.llvm.native_code import Library, complete
from cvm.lowering.math.primitives import Pieces
from loop_interpreter import execute
from native_kernels import MachineCode, kernel, tensor

ENTRIES = {
    F32: (1.5, -2.0, 0.0, 4.25, -0.0, np.inf, 7.0, 2.0**-149),
    F64: (0.1, -0.0, 1e300, 5e-324),
}
BOTH = pytest.mark.parametrize("element", [F32, F64], ids=str)


def looked_up(element: ElementType, lanes: int, entries: tuple[float, ...]) -> Kernel:
    """y[i] = entries[place[i]]"""
    i = Index("i", 64)
    place, y = tensor("place", I32, 64), tensor("y", element, 64)
    value = Pieces.of_place(place[i], len(entries)).at(entries, element)
    loop = (
        For(i, (Store(y, (i,), value),), kind="vector", width=lanes)
        if lanes > 1
        else For(i, (Store(y, (i,), value),))
    )
    return kernel((loop,), place, y)


@BOTH
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16, 32])
def test_each_lane_has_its_own(element: ElementType, lanes: int) -> None:
    place = np.random.default_rng(0).integers(-(1 << 31), 1 << 31, 64).astype(np.int32)
    k = looked_up(element, lanes, ENTRIES[element])
    (found,), (meant,) = MachineCode(k)(place), execute(k, place)
    wanted = np.array(ENTRIES[element], element.dtype)[place & (len(ENTRIES[element]) - 1)]
    bits = f"u{element.bytes}"
    np.testing.assert_array_equal(found.view(bits), wanted.view(bits))
    np.testing.assert_array_equal(meant.view(bits), wanted.view(bits))


@BOTH
def test_without_the_instruction_it_is_plain_ir(element: ElementType) -> None:
    code = MachineCode(looked_up(element, 16, ENTRIES[element]))
    assert f"@{select_to_table.NAME}." in str(code.text.module)
    plain = complete(code.text.module, ())
    assert "llvm.x86" not in plain and "llvm.x86.avx2.permps" in complete(
        code.text.module, {"avx2"}
    )
    assert "llvm.x86.avx512.permvar.sf.512" in complete(code.text.module, {"avx2", "avx512f"})
    place = np.arange(64, dtype=np.int32)
    (wanted,) = code(place)
    code.library = Library(plain, {"entry": ENTRY})
    np.testing.assert_array_equal(code(place)[0], wanted)


def test_what_is_no_table_of_a_register() -> None:
    i = Index("i", 8)
    x = tensor("x", F32, 8)
    conditions = [x[i] > n for n in range(4)]
    eight = Pieces(conditions[:3]).at(ENTRIES[F32], F32)
    found = select_to_table.table_of(eight)
    assert found is not None and [e.value for e in found.entries] == list(ENTRIES[F32])
    assert list(found.conditions) == conditions[2::-1]

    def pair(condition: Expr, low: Expr, high: Expr) -> Expr:
        return select(condition, high, low)

    one, two = constant(1.0, F32), constant(2.0, F32)
    four = [pair(conditions[n], one, two) for n in (0, 0, 0, 3)]
    halves = [pair(conditions[1], *four[:2]), pair(conditions[1], *four[2:])]
    assert (
        select_to_table.table_of(pair(conditions[2], *halves)) is None
    )  # one quarter is chosen by another condition
    assert select_to_table.table_of(pair(conditions[2], halves[0], x[i])) is None  # no constant
    assert select_to_table.table_of(halves[0]) is None  # half of a register
