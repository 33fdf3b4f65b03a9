"""Clone a block for use in another place: over other indices, with fresh variables and buffers."""

from dataclasses import replace

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.expressions import Expr, Index, Var


def clone(block: ir.Block, values: dict[Expr, Expr], mark: str = "") -> ir.Block:
    """The block with its indices replaced, and `mark`, if given, appended to the names of its own
    indices, variables and buffers.
    """
    inside = ir.statements(block)
    suffix = mark and f".{mark}"
    variables = {
        s.var: Var(f"{s.var.name}{suffix}", s.var.type) for s in inside if isinstance(s, ir.Let)
    }
    indices = {
        s.index: Index(f"{s.index.name}{suffix}", s.index.extent)
        for s in inside
        if isinstance(s, ir.For)
    }
    buffers = {
        s.tensor: replace(s.tensor, name=f"{s.tensor.name}{suffix}")
        for s in inside
        if isinstance(s, ir.Alloc)
    }

    def bind(s: ir.Statement) -> ir.Block | None:
        match s:
            case ir.Let(var, value):
                return (ir.Let(variables[var], value),)
            case ir.For(index):
                return (ir.rewrite_within(replace(s, index=indices[index]), bind),)
        return None

    names: dict[Expr, Expr] = {**values, **variables, **indices}
    return ir.rewrite_block(ir.substitute_block(ir.replace_arrays(block, buffers), names), bind)
