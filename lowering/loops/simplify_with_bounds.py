"""Simplify index arithmetic and conditions with the bounds of indices (MLIR's
SimplifyAffineWithBounds).

    (i + 511) mod 512  =>  i - 1          where 1 <= i < 512
    if i - 1 >= 0 { A } else { B }  =>  A

Legal for integers and conditions over indices and sizes; arithmetic on data wraps and is left
alone. A branch that is always taken is replaced by its statements, and an accumulator that is
assigned once becomes a variable.
"""

from functools import lru_cache

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.expressions import Bitcast, Cast, Const, Expr, Read, Tensor, Var
from ...dialect.kernel_ir.simplify_node import fold_constants, simplify_index
from ...dialect.kernel_ir.traverse import children, over, rebuild
from ..analysis.accesses import accumulators, stores


def simplify_with_bounds(block: ir.Block) -> ir.Block:
    """The block with known conditions and index arithmetic simplified."""
    done: dict[int, Expr] = {}
    return _block(ir.map_expressions(block, lambda e: rebuild(e, _simplified, done)))


def _simplified(e: Expr, parts: tuple[Expr, ...]) -> Expr:
    new = over(e, parts)
    return fold_constants(simplify_index(new) if _is_index(new) else new)


@lru_cache(maxsize=4096)
def _is_index(e: Expr) -> bool:
    """Test whether an expression is computed from indices and sizes alone."""
    return not isinstance(e, (Read, Var, Cast, Bitcast)) and all(map(_is_index, children(e)))


def _block(block: ir.Block) -> ir.Block:
    live: list[ir.Statement] = []
    for s in block:
        match s:
            case ir.If(Const(chosen), then, otherwise):
                live += _block(then if chosen else otherwise)
            case ir.Assert(Const(True), _, _):
                pass
            case _:
                live.append(ir.map_blocks(s, _block))
    return _named(tuple(live))


def _named(block: ir.Block) -> ir.Block:
    """Replace accumulators that are assigned once, in the block itself, by variables."""
    values: dict[Tensor, Var] = {}
    for tensor in accumulators(block):
        assignments = [s for s in stores(block) if s.tensor is tensor]
        if len(assignments) == 1 and assignments[0] in block:
            values[tensor] = Var(tensor.name, tensor.element)
    if not values:
        return block
    block = tuple(s for s in block if not (isinstance(s, ir.Alloc) and s.tensor in values))
    block = ir.replace_reads(block, values)
    return tuple(
        ir.Let(values[s.tensor], s.value) if isinstance(s, ir.Store) and s.tensor in values else s
        for s in block
    )
