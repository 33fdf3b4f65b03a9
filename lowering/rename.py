"""A block that is used again elsewhere: the same statements over other indices, with names and buffers of their own."""

from __future__ import annotations

from dataclasses import replace

from ..dialect.index import Expr, Index, Read, Tensor, Var, rewrite
from ..dialect.loops import Alloc, Block, For, If, Let, Statement, Store, map_expressions, statements


def renamed(block: Block, values: dict[Expr, Expr], mark: str) -> Block:
    """The block with expressions for its indices, and `mark` after the names of its own indices, variables and buffers."""
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

    def targets(b: Block) -> Block:
        made: list[Statement] = []
        for s in b:
            match s:
                case Let(var, value):
                    s = Let(_var(names[var]), value)
                case Alloc(tensor):
                    s = Alloc(buffers[tensor])
                case Store(tensor) if tensor in buffers:
                    s = replace(s, tensor=buffers[tensor])
                case For(index, body):
                    s = replace(s, index=_index(names[index]), body=targets(body))
                case If(condition, then, otherwise):
                    s = If(condition, targets(then), targets(otherwise))
            made.append(s)
        return tuple(made)

    return targets(map_expressions(block, change))


def _var(e: Expr) -> Var:
    assert isinstance(e, Var)
    return e


def _index(e: Expr) -> Index:
    assert isinstance(e, Index)
    return e
