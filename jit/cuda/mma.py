"""Matrix loops as instructions of tensor cores: a warp's products of 8-bit numbers in shared memory, 16 x 8 x 32 at once.

Which 32 terms an instruction takes does not matter as long as both factors agree, so that a thread loads 16 bytes of a row
at once, and two instructions use them."""

from ...dialect.notation.expressions import Expr, Tensor
from ...dialect.notation.loops import For
from ...dialect.notation.simplify import linear_index
from ...lowering.gpu.mma import product_of
from .expressions import Expressions
from .scalar_functions import PIECES

PACK = "Pack<int, 4>"


def emit_matrix(f: Expressions, s: For) -> None:
    """A matrix loop, within one over the threads of a block."""
    assert f.thread is not None
    product = product_of(s)
    u, v = product.pieces
    group, quarter = f.thread % 32 // 4, f.thread % 4 * 4

    def place(side: tuple[Tensor, Expr, Expr], below: int) -> str:
        tensor, half, first = side
        at = linear_index((half, first + (group + below), quarter), tensor.shape)
        f.statement(at)
        return f.pack(tensor, at, 4)

    rows = f.fresh()
    f.line(f"{PACK} {rows}[{2 * u.extent}];")
    with f.unrolled(u) as n:
        f.line(f"{rows}[2 * {n}] = {place(product.left, 0)};")
        f.line(f"{rows}[2 * {n} + 1] = {place(product.left, 8)};")
    with f.unrolled(v) as m:
        column = f.fresh()
        f.line(f"const {PACK} {column} = {place(product.right, 0)};")
        with f.unrolled(u) as n:
            sums = f"{f.arrays[product.sums]} + ({n} * {v.extent} + {m}) * 4"
            f.line(f"{PIECES[product.function][0]}({sums}, {rows}[2 * {n}], {rows}[2 * {n} + 1], {column});")
