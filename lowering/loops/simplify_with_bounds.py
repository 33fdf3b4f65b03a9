"""Simplify index arithmetic and conditions with the bounds of indices (MLIR's SimplifyAffineWithBounds).

    (i + 511) mod 512  =>  i - 1          where 1 <= i < 512
    if i - 1 >= 0 { A } else { B }  =>  A

Legal for integers and conditions over indices and sizes; arithmetic on data wraps and is left alone. A branch that is
always taken is replaced by its statements, and an accumulator that is assigned once becomes a variable.
"""

from __future__ import annotations

from dataclasses import replace

from ...dialect.ir.types import I1, I64
from ...dialect.notation.affine import affine
from ...dialect.notation.index import Apply, Bitcast, Cast, Check, Const, Expr, Index, Read, Tensor, Var, When
from ...dialect.notation.index_bounds import index_bounds
from ...dialect.notation.loops import Alloc, Assert, Block, For, If, Let, Statement, Store, map_expressions, statements
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
            self.done[id(e)] = decided(_index_arithmetic(new) if self.is_index(new) else new)
            self.kept += (e, new)
        return self.done[id(e)]

    def is_index(self, e: Expr) -> bool:
        """Test whether an expression is computed from indices and sizes alone."""
        if id(e) not in self.indices:
            named = isinstance(e, (Read, Var, Cast, Bitcast))
            self.indices[id(e)] = not named and all(map(self.is_index, children(e)))
        return self.indices[id(e)]


def _index_arithmetic(e: Expr) -> Expr:
    """Simplify a node over simplified operands, all of them index arithmetic."""
    match e:
        case Apply("lt" | "le" | "gt" | "ge" | "eq" | "ne", (a, b), _) if a.type is I64:
            return _comparison(e, *_bounds(a, b))
        case Apply("min" | "max" as which, (a, b), _) if a.type is I64:
            low, high = _bounds(a, b)
            if low is not None and low >= 0:
                return a if which == "max" else b
            if high is not None and high <= 0:
                return b if which == "max" else a
        case Apply("floormod" | "floordiv" as which, (a, Const(n)), _) if a.type is I64 and n > 0:
            low, high = affine(a).bounds(index_bounds)
            if low is not None and high is not None and low // n == high // n:
                return Const(low // n, I64) if which == "floordiv" else affine(a).plus(-(low // n) * n).expression()
        case Apply("add" | "sub", _, _) if e.type is I64:
            sum = affine(e)
            if all(isinstance(atom, Index) for atom, _ in sum.terms.values()):
                return sum.expression()
    return e


def decided(e: Expr) -> Expr:
    """Simplify a node over simplified operands, by those that are constants."""
    match e:
        case Apply("and" | "or" as which, (a, b), _) if e.type is I1:
            return _junction(e, a, b, which == "and")
        case Apply("not", (Const(value),), _) if e.type is I1:
            return Const(not value, I1)
        case Apply("select", (Const(chosen), a, b), _) | When(Const(chosen), a, b):
            return a if chosen else b
        case Check(Const(True), value, _, _):
            return value
    return e


def _bounds(a: Expr, b: Expr) -> tuple[int | None, int | None]:
    return (affine(a) - affine(b)).bounds(index_bounds)


def _comparison(e: Apply, low: int | None, high: int | None) -> Expr:
    """Simplify the comparison of a and b, given low <= a - b <= high."""
    below, above = high is not None and high < 0, low is not None and low > 0
    at_most, at_least = high is not None and high <= 0, low is not None and low >= 0
    true, false = {
        "lt": (below, at_least),
        "le": (at_most, above),
        "gt": (above, at_most),
        "ge": (at_least, below),
        "eq": (low == high == 0, below or above),
        "ne": (below or above, low == high == 0),
    }[e.function]
    return Const(True, I1) if true else Const(False, I1) if false else e


def _junction(e: Expr, a: Expr, b: Expr, conjunction: bool) -> Expr:
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Const):
            return other if one.value == conjunction else one
    return e


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
