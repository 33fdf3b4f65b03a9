"""Clone a block for use in another place: over other indices, with fresh variables and buffers."""

from __future__ import annotations

from dataclasses import replace

from ...dialect.notation import loops as ir
from ...dialect.notation.expressions import Expr, Index, Read, Tensor, Var
from ...dialect.notation.traverse import rewrite


def clone(block: ir.Block, values: dict[Expr, Expr], mark: str) -> ir.Block:
    """The block with its indices replaced, and `mark` appended to the names of its own indices, variables and buffers."""
    names = dict(values)
    buffers: dict[Tensor, Tensor] = {}
    for s in ir.statements(block):
        if isinstance(s, ir.Let):
            names[s.var] = Var(f"{s.var.name}.{mark}", s.var.type)
        elif isinstance(s, ir.Alloc):
            buffers[s.tensor] = replace(s.tensor, name=f"{s.tensor.name}.{mark}")
        elif isinstance(s, ir.For):
            names[s.index] = Index(f"{s.index.name}.{mark}", s.index.extent)

    def change(e: Expr) -> Expr:
        def one(x: Expr) -> Expr | None:
            if isinstance(x, Read) and x.tensor in buffers:
                return Read(buffers[x.tensor], tuple(map(change, x.indices)))
            return names.get(x)

        return rewrite(e, one)

    def target(s: ir.Statement) -> ir.Block | None:
        match s:
            case ir.Let(var, value):
                return (ir.Let(_var(names[var]), value),)
            case ir.Alloc(tensor):
                return (ir.Alloc(buffers[tensor]),)
            case ir.Store(tensor) if tensor in buffers:
                return (replace(s, tensor=buffers[tensor]),)
            case ir.For(index):
                return (ir.rewrite_within(replace(s, index=_index(names[index])), target),)
        return None

    return ir.rewrite_block(ir.map_expressions(block, change), target)


def _var(e: Expr) -> Var:
    assert isinstance(e, Var)
    return e


def _index(e: Expr) -> Index:
    assert isinstance(e, Index)
    return e
