"""Version a kernel on whether broadcast dimensions of unknown size are equal.

    for i in 0..n { y[i] = a[select(i < p, i, 0)] + b[select(i < q, i, 0)] }              n: p or q, whichever is not 1
    =>  if p == q { for i in 0..p { y[i] = a[i] + b[i] } }
        if ~(p == q) { the same as before }

Legal since exactly one version runs. Pays always: with equal sizes accesses are contiguous. The loops of the other
version are unswitched: they test outside the innermost loop which operands are repeated.

    =>  for i in 0..n { alloc part0; if p >= n { part0 = a[i] } else { part0 = a[0] }; ... }
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...dialect.ir.sizes import Dim, Size
from ...dialect.notation.affine import key
from ...dialect.notation.index import ZERO, Apply, Const, Expr, Extent, Index, Read, Tensor, as_index, both
from ...dialect.notation.loops import (
    Alloc,
    Block,
    For,
    If,
    Kernel,
    Let,
    Statement,
    Store,
    accumulator,
    map_expressions,
    nodes,
    rewrite_block,
    statements,
)
from ...dialect.notation.traverse import rewrite, walk
from .specialize_shapes import specialize_shapes


@dataclass(frozen=True, eq=False)
class EqualSizesVersion:
    """The kernel for equal sizes, and the condition under which it runs."""

    kernel: Kernel
    condition: Expr


def broadcast_versions(kernel: Kernel) -> EqualSizesVersion | None:
    """The version of a kernel for equal broadcast sizes; None if no sizes are broadcast against each other."""
    same: dict[object, Dim] = {}
    tests: list[Expr] = []
    for loop in statements(kernel.body):
        if isinstance(loop, For) and (sizes := _sizes((loop,), loop.index)):
            extent = loop.index.extent
            one: Dim = next((n for n in sizes.values() if n.is_atom), next(iter(sizes.values())))
            if not isinstance(extent, Size):  # the size they are broadcast to is known
                one = extent
            tests += [as_index(n).eq(as_index(one)) for n in sizes.values() if n.key != _key(one)]
            same |= dict.fromkeys([*sizes, _key(extent)], one)
    condition = both(*tests)
    if not isinstance(condition, Expr):
        return None
    equal = kernel.with_body(map_expressions(kernel.body, lambda e: rewrite(e, _unrepeated)))
    return EqualSizesVersion(specialize_shapes(equal, lambda n: same.get(_key(n), n)), condition)


def unswitch_broadcast(kernel: Kernel) -> Kernel:
    """Unswitch innermost loops on which operands are repeated, a condition that is uniform over lanes."""
    return kernel.with_body(rewrite_block(kernel.body, _asked))


def _asked(s: Statement) -> Block | None:
    if not isinstance(s, For) or s.kind != "serial" or not all(isinstance(b, (Let, Store)) for b in s.body):
        return None
    extent, asked = as_index(s.index.extent), _Asked(s.index)
    body = asked.block(s.body)
    tests = [(as_index(n) >= extent) | (as_index(n) <= 1) for n in _sizes((s,), s.index).values()]
    known = both(*tests)
    return (If(known, (replace(s, body=body),), (s,)),) if isinstance(known, Expr) else None


class _Asked:
    """Variables for reads of operands that may be repeated, assigned in a branch."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.found: dict[object, Tensor] = {}
        self.made: list[Statement] = []

    def block(self, block: Block) -> Block:
        for s in block:
            (new,) = map_expressions((s,), lambda e: rewrite(e, self.read))
            self.made.append(new)
        return tuple(self.made)

    def read(self, e: Expr) -> Expr | None:
        if not isinstance(e, Read) or not (sizes := self.sizes(e)):
            return None
        if key(e) not in self.found:
            value = accumulator(f"part{len(self.found)}", e.type)
            whole = both(*(as_index(n) >= as_index(self.index.extent) for n in sizes))
            assert isinstance(whole, Expr)
            sides = [(Store(value, (), self.chosen(e, known)),) for known in (self.index, ZERO)]
            self.made += [Alloc(value), If(whole, *sides)]
            self.found[key(e)] = value
        return self.found[key(e)][()]

    def sizes(self, e: Expr) -> list[Size]:
        """The sizes that decide whether a read is repeated along the index."""
        places = [p for n in walk(e) if (p := _repeated(n)) is not None and unrepeated(p[0]) is self.index]
        return [*{size.key: size for _, size in places}.values()]

    def chosen(self, e: Expr, place: Expr) -> Expr:
        """The read at a position of the index."""
        return rewrite(e, lambda n: place if _repeated(n) is not None and unrepeated(n) is self.index else None)


def _sizes(block: Block, index: Index) -> dict[object, Size]:
    """The sizes along this index of operands that may be repeated."""
    found: dict[object, Size] = {}
    for e in nodes(block):
        if (place := _repeated(e)) is not None and unrepeated(place[0]) is index:
            found[place[1].key] = place[1]
    return found


def _repeated(e: Expr) -> tuple[Expr, Size] | None:
    """The i and n of select(i < n, i, 0)."""
    match e:
        case Apply("select", (Apply("lt", (a, Extent(size)), _), b, Const(0)), _) if a is b:
            return a, size
    return None


def _unrepeated(e: Expr) -> Expr | None:
    return None if _repeated(e) is None else unrepeated(e)


def unrepeated(e: Expr) -> Expr:
    """The index of an operand that may be repeated, without the select; any other index unchanged."""
    while (place := _repeated(e)) is not None:
        e = place[0]
    return e


def _key(n: Dim) -> object:
    return n.key if isinstance(n, Size) else n
