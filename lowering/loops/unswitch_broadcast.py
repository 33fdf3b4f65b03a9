"""Unswitch innermost loops on which operands are repeated, a condition that is uniform over lanes.

    for i in 0..n { y[i] = a[select(i < p, i, 0)] + b[select(i < q, i, 0)] }
    =>  if every operand is repeated whole or not at all {
          for i in 0..n { alloc part0; if p >= n { part0 = a[i] } else { part0 = a[0] }; ... } }
        else { the same as before }

Legal always. Pays where sizes that are broadcast turn out to differ (`broadcast_versions`): accesses are contiguous, or
are the same for all lanes.
"""

from __future__ import annotations

from dataclasses import replace

from ...dialect.ir.sizes import Size
from ...dialect.notation import loops as ir
from ...dialect.notation.affine import key
from ...dialect.notation.expressions import ZERO, Expr, Index, Read, Tensor, as_index, both
from ...dialect.notation.traverse import rewrite, walk
from ..formulas.match_broadcast_index import repeated, unrepeated
from ..passes import kernel_pass
from .broadcast_versions import broadcast_sizes


@kernel_pass
def unswitch_broadcast(kernel: ir.Kernel) -> ir.Kernel:
    return kernel.with_body(ir.rewrite_block(kernel.body, _asked))


def _asked(s: ir.Statement) -> ir.Block | None:
    if not isinstance(s, ir.For) or s.kind != "serial" or not all(isinstance(b, (ir.Let, ir.Store)) for b in s.body):
        return None
    sizes = broadcast_sizes((s,)).get(s.index)
    if not sizes:
        return None
    extent, body = as_index(s.index.extent), _Asked(s.index).block(s.body)
    known = both(*((as_index(n) >= extent) | (as_index(n) <= 1) for n in sizes.values()))
    return (ir.If(known, (replace(s, body=body),), (s,)),) if isinstance(known, Expr) else None


class _Asked:
    """Variables for reads of operands that may be repeated, assigned in a branch."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.found: dict[object, Tensor] = {}
        self.made: list[ir.Statement] = []

    def block(self, block: ir.Block) -> ir.Block:
        for s in block:
            (new,) = ir.map_expressions((s,), lambda e: rewrite(e, self.read))
            self.made.append(new)
        return tuple(self.made)

    def read(self, e: Expr) -> Expr | None:
        if not isinstance(e, Read) or not (sizes := self.sizes(e)):
            return None
        if key(e) not in self.found:
            value = ir.accumulator(f"part{len(self.found)}", e.type)
            whole = both(*(as_index(n) >= as_index(self.index.extent) for n in sizes))
            assert isinstance(whole, Expr)
            sides = [(ir.Store(value, (), self.chosen(e, known)),) for known in (self.index, ZERO)]
            self.made += [ir.Alloc(value), ir.If(whole, *sides)]
            self.found[key(e)] = value
        return self.found[key(e)][()]

    def sizes(self, e: Expr) -> list[Size]:
        """The sizes that decide whether a read is repeated along the index."""
        places = [p for n in walk(e) if (p := repeated(n)) is not None and unrepeated(p[0]) is self.index]
        return [*{size.key: size for _, size in places}.values()]

    def chosen(self, e: Expr, place: Expr) -> Expr:
        """The read at a position of the index."""
        return rewrite(e, lambda n: place if repeated(n) is not None and unrepeated(n) is self.index else None)
