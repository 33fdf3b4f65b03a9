"""Simplify index arithmetic and conditions with the bounds of indices (MLIR's SimplifyAffineWithBounds).

    (i + 511) mod 512  =>  i - 1          where 1 <= i < 512
    if i - 1 >= 0 { A } else { B }  =>  A

Legal for integers and conditions over indices and sizes; arithmetic on data wraps and is left alone. A branch that is
always taken is replaced by its statements, and an accumulator that is assigned once becomes a variable.
"""

from __future__ import annotations

from dataclasses import replace

from ...dialect.notation.expressions import Bitcast, Cast, Const, Expr, Read, Tensor, Var
from ...dialect.notation.loops import Alloc, Assert, Block, For, If, Let, Statement, Store, map_expressions, statements
from ...dialect.notation.simplify import fold_constants, simplify_index
from ...dialect.notation.traverse import children, rewrite, with_children


def simplify_with_bounds(block: Block) -> Block:
    """The block with known conditions and index arithmetic simplified."""
    return _block(map_expressions(block, _Settling().expression))


class _Settling:
    def __init__(self) -> None:
        self.done: dict[int, Expr] = {}
        self.indices: dict[int, bool] = {}
        self.kept: list[Expr] = []

    def expression(self, e: Expr) -> Expr:
        if id(e) not in self.done:
            old = children(e)
            parts = tuple(map(self.expression, old))
            new = e if all(a is b for a, b in zip(old, parts, strict=True)) else with_children(e, parts)
            self.done[id(e)] = fold_constants(simplify_index(new) if self.is_index(new) else new)
            self.kept += (e, new)
        return self.done[id(e)]

    def is_index(self, e: Expr) -> bool:
        """Test whether an expression is computed from indices and sizes alone."""
        if id(e) not in self.indices:
            named = isinstance(e, (Read, Var, Cast, Bitcast))
            self.indices[id(e)] = not named and all(map(self.is_index, children(e)))
        return self.indices[id(e)]


def _block(block: Block) -> Block:
    made: list[Statement] = []
    for s in block:
        match s:
            case For(_, body):
                made.append(replace(s, body=_block(body)))
            case If(Const(chosen), then, otherwise):
                made += _block(then if chosen else otherwise)
            case If(condition, then, otherwise):
                made.append(If(condition, _block(then), _block(otherwise)))
            case Assert(Const(True), _, _):
                pass
            case _:
                made.append(s)
    return _named(tuple(made))


def _named(block: Block) -> Block:
    """Replace accumulators that are assigned once, in the block itself, by variables."""
    buffers = [s.tensor for s in block if isinstance(s, Alloc) and s.tensor.space == "register" and not s.tensor.rank]
    values: dict[Tensor, Var] = {}
    for tensor in buffers:
        everywhere = [s for s in statements(block) if isinstance(s, Store) and s.tensor is tensor]
        if len(everywhere) == 1 and any(s is everywhere[0] for s in block):
            values[tensor] = Var(tensor.name, tensor.element)
    if not values:
        return block

    def put(e: Expr) -> Expr:
        return rewrite(e, lambda x: values.get(x.tensor) if isinstance(x, Read) else None)

    made: list[Statement] = []
    for s in map_expressions(block, put):
        match s:
            case Alloc(tensor) if tensor in values:
                pass
            case Store(tensor, _, value) if tensor in values:
                made.append(Let(values[tensor], value))
            case _:
                made.append(s)
    return tuple(made)
