"""Clone a block for use in another place: over other indices, with fresh variables and buffers."""

from __future__ import annotations

from dataclasses import replace

from ...dialect.notation.expressions import Expr, Index, Read, Tensor, Var
from ...dialect.notation.loops import (
    Alloc,
    Block,
    For,
    Let,
    Statement,
    Store,
    map_expressions,
    rewrite_block,
    rewrite_within,
    statements,
)
from ...dialect.notation.traverse import rewrite


def clone(block: Block, values: dict[Expr, Expr], mark: str) -> Block:
    """The block with its indices replaced, and `mark` appended to the names of its own indices, variables and buffers."""
    names = dict(values)
    buffers: dict[Tensor, Tensor] = {}
    for s in statements(block):
        if isinstance(s, Let):
            names[s.var] = Var(f"{s.var.name}.{mark}", s.var.type)
        elif isinstance(s, Alloc):
            buffers[s.tensor] = replace(s.tensor, name=f"{s.tensor.name}.{mark}")
        elif isinstance(s, For):
            names[s.index] = Index(f"{s.index.name}.{mark}", s.index.extent)

    def change(e: Expr) -> Expr:
        def one(x: Expr) -> Expr | None:
            if isinstance(x, Read) and x.tensor in buffers:
                return Read(buffers[x.tensor], tuple(map(change, x.indices)))
            return names.get(x)

        return rewrite(e, one)

    def target(s: Statement) -> Block | None:
        match s:
            case Let(var, value):
                return (Let(_var(names[var]), value),)
            case Alloc(tensor):
                return (Alloc(buffers[tensor]),)
            case Store(tensor) if tensor in buffers:
                return (replace(s, tensor=buffers[tensor]),)
            case For(index):
                return (rewrite_within(replace(s, index=_index(names[index])), target),)
        return None

    return rewrite_block(map_expressions(block, change), target)


def _var(e: Expr) -> Var:
    assert isinstance(e, Var)
    return e


def _index(e: Expr) -> Index:
    assert isinstance(e, Index)
    return e
