"""Substitute names of index arithmetic by their values (forward substitution).

    let t = p - 1 + k; if t >= 0 { x[t] }  =>  if p - 1 + k >= 0 { x[p - 1 + k] }

Legal for values that read no memory. Pays since later passes then see the affine form of guards and
accesses.
"""

from ...dialect.kernel_ir.expressions import Expr, Index, Read
from ...dialect.kernel_ir.loops import (
    Block,
    For,
    If,
    Kernel,
    Let,
    Statement,
    map_expressions,
    replace,
    statements,
)
from ...dialect.kernel_ir.traverse import substitute, walk
from ...dialect.types.tensor_types import I1, I64
from ..passes import kernel_pass


@kernel_pass
def inline_lets(kernel: Kernel) -> Kernel:
    has_lets = any(isinstance(s, Let) and s.var.type in (I64, I1) for s in statements(kernel.body))
    return kernel.with_body(_block(kernel.body, {})) if has_lets else kernel


def _block(block: Block, values: dict[Expr, Expr]) -> Block:
    values = dict(values)
    rest: list[Statement] = []
    for s in block:
        match s:
            case Let(var, value) if var.type in (I64, I1) and _is_index_arithmetic(value):
                values[var] = substitute(value, values)
            case For():
                (head,) = map_expressions((replace(s, body=()),), lambda e: substitute(e, values))
                rest.append(replace(head, body=_block(s.body, values)))
            case If(condition, then, otherwise):
                rest.append(
                    If(
                        substitute(condition, values),
                        _block(then, values),
                        _block(otherwise, values),
                    )
                )
            case _:
                rest += map_expressions((s,), lambda e: substitute(e, values))
    return tuple(rest)


def _is_index_arithmetic(e: Expr) -> bool:
    nodes = list(walk(e))
    return any(isinstance(n, Index) for n in nodes) and not any(isinstance(n, Read) for n in nodes)
