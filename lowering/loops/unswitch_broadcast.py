"""Unswitch innermost loops on which operands are repeated, a condition that is uniform over lanes.

    for i in 0..n { y[i] = a[select(i < p, i, 0)] + b[select(i < q, i, 0)] }
    =>  if every operand is repeated whole or not at all {
          for i in 0..n { alloc part0; if p >= n { part0 = a[i] } else { part0 = a[0] }; ... } }
        else { the same as before }

Legal always. Pays where sizes that are broadcast turn out to differ (`broadcast_versions`):
accesses are contiguous, or are the same for all lanes.
"""

from dataclasses import replace
from functools import reduce
from operator import and_

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.affine import key
from ...dialect.kernel_ir.expressions import ZERO, Expr, Read, Tensor, as_index, both
from ...dialect.kernel_ir.traverse import rewrite, walk
from ..formulas.match_broadcast_index import repeated, unrepeated
from ..passes import statement_pass
from .broadcast_versions import broadcast_sizes


@statement_pass
def unswitch_broadcast(s: ir.Statement) -> ir.Block | None:
    """A loop with variables for reads of operands that may be repeated, assigned in a branch, where
    that is uniform.
    """
    if (
        not isinstance(s, ir.For)
        or s.kind != "serial"
        or not all(isinstance(b, (ir.Let, ir.Store)) for b in s.body)
    ):
        return None
    index, extent, sizes = s.index, as_index(s.index.extent), broadcast_sizes((s,)).get(s.index)
    if not sizes:
        return None
    parts: dict[object, Tensor] = {}
    body: list[ir.Statement] = []

    def at(e: Expr, place: Expr) -> Expr:
        return rewrite(
            e, lambda n: place if repeated(n) is not None and unrepeated(n) is index else None
        )

    def read(e: Expr) -> Expr | None:
        selected = ((n, repeated(n)) for n in walk(e))
        chosen = {key(n): r for n, r in selected if r is not None and unrepeated(r[0]) is index}
        places = chosen.keys() - {key(place) for place, _ in chosen.values()}
        if (
            not isinstance(e, Read) or len(places) != 1
        ):  # several places, as in a table of two operands, may differ
            return None
        if key(e) not in parts:
            part = parts[key(e)] = ir.accumulator(f"part{len(parts)}", e.type)
            whole = reduce(
                and_,
                (as_index(n) >= extent for n in {n.key: n for _, n in chosen.values()}.values()),
            )
            sides = [(ir.assign(part, at(e, place)),) for place in (index, ZERO)]
            body.extend((ir.Alloc(part), ir.If(whole, *sides)))
        return parts[key(e)][()]

    for b in s.body:
        (new,) = ir.map_expressions((b,), lambda e: rewrite(e, read))
        body.append(new)
    condition = both(*((as_index(n) >= extent) | (as_index(n) <= 1) for n in sizes.values()))
    return (
        (ir.If(condition, (replace(s, body=tuple(body)),), (s,)),)
        if isinstance(condition, Expr)
        else None
    )
