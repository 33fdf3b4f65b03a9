"""Matrix loops as instructions of tensor cores: a warp's products of 8-bit numbers in shared
memory, 16 x 8 x 32 at once.

A warp loads four matrices of eight rows of 16 bytes at once (ldmatrix), whose rows a thread each
points to: a thread gets the four bytes of each that the instructions take from it. Rows lie where
`lowering.gpu.mma.word` says.
"""

from ...dialect.kernel_ir.expressions import Expr, Tensor
from ...dialect.kernel_ir.loops import For
from ...dialect.kernel_ir.simplify_node import linear_index
from ...lowering.gpu.mma import product_of, word
from .expressions import CudaStatements

PACK = "Pack<int, 4>"


def emit_matrix(f: CudaStatements, s: For) -> None:
    """A matrix loop, within one over the threads of a block."""
    assert f.thread is not None
    product = product_of(s)
    u, v = product.pieces
    lane = f.thread % 32

    def load(side: tuple[Tensor, Expr, Expr], height: int, pack: Expr) -> str:
        """Matrices of as many rows, packs of them side by side."""
        tensor, stage, first = side
        at = linear_index((stage, first + lane % height, word(lane % height, pack)), tensor.shape)
        f.statement(at)
        return f"load_matrices({f.arrays[tensor]} + {f.address(at).text})"

    rows = f.fresh()
    f.line(f"{PACK} {rows}[{2 * u.extent}];")
    with f.unrolled(u) as n:
        f.line(f"{rows}[2 * {n}] = {load(product.left, 16, lane // 16)};")
        f.line(f"{rows}[2 * {n} + 1] = {load(product.left, 16, lane // 16 + 2)};")
    with f.unrolled(v) as m:
        column = f.fresh()
        f.line(f"const {PACK} {column} = {load(product.right, 8, lane // 8)};")
        with f.unrolled(u) as n:
            sums = f"{f.arrays[product.sums]} + ({n} * {v.extent} + {m}) * 4"
            f.line(
                f"{product.function.replace('quaddot', 'multiply_pieces')}({sums}, "
                f"{rows}[2 * {n}], {rows}[2 * {n} + 1], {column});"
            )
