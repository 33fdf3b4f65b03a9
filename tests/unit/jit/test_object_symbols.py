"""The symbols that compiled code calls, for every processor with a name: `memcpy` and the like, no
libm.

A processor of 32 bits or without floats takes IEEE 754's exact operations from the compiler's
run-time library.
"""

from __future__ import annotations

import re

import pytest
import tiers
from cvm.dialect.kernel_ir.execution_plan import Plan
from cvm.dialect.kernel_ir.expressions import Expr, Index, apply, cast
from cvm.dialect.kernel_ir.loops import For, Kernel, Store
from cvm.dialect.kernel_ir.scalar_functions import SCALARS
from cvm.dialect.types.tensor_types import (
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    UI8,
    UI32,
    UI64,
    ElementType,
)
from cvm.jit.llvm import native_code
from cvm.jit.llvm.emit import emit_plans
from cvm.jit.llvm.scalar_spelling import INSTRUCTIONS
from cvm.lowering.processor import NAMED, compiling_for, named
from native_kernels import kernel, tensor
from object_symbols import undefined

ELEMENTS = [F16, F32, F64, I8, I16, I32, I64, UI8, UI32, UI64]
ANYWHERE = r"mem(cpy|set|move)|_GLOBAL_OFFSET_TABLE_|__(linear_memory|stack_pointer|indirect_function_table)"
INTEGERS = r"__(u?div|u?mod|mul|ashl|ashr|lshr)[ds]i3|__u?divmod[ds]i4|__clz[ds]i2"
FLOATS = r"__(add|sub|mul|div)[sd]f3|__(eq|ne|lt|le|gt|ge|unord)[sd]f2|__(float|fix)(un|uns)?[ds][if][ds][if]|__extendsfdf2|__truncdfsf2"
EABI = r"__aeabi_\w+"  # the same on Arm; no name of libm begins so
QUICK = ("x86-64-v2", "cortex-m4", "wasm32")


def everything(lanes: int) -> list[Kernel]:
    """Kernels of every function with instructions of its own, on every element type, and of every
    conversion.
    """
    kernels, k = [], Index("k", 16)
    values: list[tuple[ElementType, Expr]] = []
    given = {e: [tensor(f"x{n}", e, 16) for n in range(3)] for e in ELEMENTS}
    for function, kind in INSTRUCTIONS:
        row = SCALARS[function]
        for e in ELEMENTS:
            if e.kind == kind and kind in row.kinds and row.only in (None, e):
                operands = [x[k] for x in given[e][: row.arity]]
                if function in ("select", "rarely"):
                    operands[0] = operands[1] < operands[2]
                values.append((e, apply(function, *operands)))
    for e in ELEMENTS:
        values += [(e, cast(given[e][0][k], to)) for to in ELEMENTS if to is not e]
    for e in ELEMENTS:
        own = [value for of, value in values if of is e]
        results = [tensor(f"y{n}", value.type, 16) for n, value in enumerate(own)]
        body = tuple(Store(y, (k,), value) for y, value in zip(results, own, strict=True))
        loop = For(k, body, kind="vector", width=lanes) if lanes > 1 else For(k, body)
        kernels.append(kernel((loop,), *given[e], *results, results=len(results)))
    return kernels


@pytest.mark.parametrize("cpu", [c for c in NAMED if tiers.everything or c in QUICK])
def test_no_function_of_a_library_is_called(cpu: str) -> None:
    described = named(cpu)
    assert described is not None
    called = set[str]()
    with compiling_for(described):
        is_small = described.triple.startswith(("thumb", "riscv32"))
        for lanes in (1, 4):
            for k in everything(lanes):
                text = emit_plans(Plan("k", k.inputs, k.outputs, {}, (k,)))
                called |= undefined(native_code.object_file(text.module, passes=lanes > 1))
    allowed = "|".join([ANYWHERE, *([INTEGERS, FLOATS, EABI] if is_small else [])])
    assert sorted(s for s in called if not re.fullmatch(allowed, s)) == []
