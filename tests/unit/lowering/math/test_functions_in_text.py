"""Every function of the scalar table can be written in the text of a kernel, and runs where kernels
run.
"""

from __future__ import annotations

import numpy as np
import pytest
from cvm.dialect.kernel_ir.scalar_functions import SCALARS
from cvm.dialect.types.tensor_types import ELEMENT_TYPES
from tiers import some

from cvm.terminal.read_program import compiled, read_kernels

TYPES = {"float": "f64", "int": "i32", "uint": "ui32", "bool": "i1", "complex": "complex<f64>"}
WORDS = 5, 0x7F80FF01, -0x12345678


def kernel_of(name: str) -> tuple[str, list[np.ndarray], list[np.ndarray]]:
    """A kernel with the function for each kind of its operands, its arguments and its results."""
    row = SCALARS[name]
    declared, stored, statements = [], [], []
    arguments, results = [], []
    for kind in sorted(row.kinds):
        operands = [ELEMENT_TYPES[TYPES[kind]]] * row.arity
        if name in ("select", "rarely"):
            operands[0] = ELEMENT_TYPES["i1"]
        if not row.takes(*operands):
            continue
        result = row.result(*operands)
        places = [f"%{kind}{n}" for n in range(row.arity)]
        declared += [f"{p}: tensor<3x{o}>" for p, o in zip(places, operands, strict=True)]
        stored.append(f"%y.{kind}: tensor<3x{result}>")
        given = ", ".join(f"{p}[%i]" for p in places)
        statements.append(f"    %y.{kind}[%i] = {name}({given})\n")
        mine = [np.array(WORDS if row.only else [1] * 3).astype(o.dtype) for o in operands]
        with np.errstate(all="ignore"):
            results.append(np.asarray(row.numpy(*mine)))
        arguments += mine
    head = f"kernel @k({', '.join(declared)}) -> ({', '.join(stored)})"
    return f"{head} {{\n  for %i in 0..3 {{\n{''.join(statements)}  }}\n}}\n", arguments, results


@pytest.mark.parametrize("name", some([*SCALARS], 20))
def test_a_function_in_text(name: str) -> None:
    text, arguments, results = kernel_of(name)
    plan = read_kernels(text, "k.loops")
    printed = compiled(plan, "kernels").lower("loops")
    again = compiled(read_kernels(printed, "k.loops"), "kernels").lower("loops")
    assert again == printed
    bits: list[list[bytes]] = []
    for target in ("cpu", "cuda-sim"):
        found = compiled(plan, "kernels", target)(*arguments)
        found = found if isinstance(found, tuple) else (found,)
        for got, wanted in zip(found, results, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-15 * SCALARS[name].ulps, atol=0)
        bits.append([got.tobytes() for got in found])
    assert bits[0] == bits[1]
