"""Traversal of expressions: children, walks and rewriting."""

from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter, is_not
from typing import Any, TypeVar

from ..types.tensor_types import I64
from .expressions import Apply, Bitcast, Cast, Check, Expr, Read, Reduce, When, simplify

T = TypeVar("T")

_CHILDREN: dict[type, Callable[[Any], tuple[Expr, ...]]] = {
    Apply: attrgetter("operands"),
    Read: attrgetter("indices"),
    Cast: lambda e: (e.operand,),
    Bitcast: lambda e: (e.operand,),
    When: lambda e: (e.condition, e.then, e.otherwise),
    Reduce: lambda e: (e.body,),
    Check: lambda e: (e.condition, e.value),
}


def children(expr: Expr) -> tuple[Expr, ...]:
    getter = _CHILDREN.get(expr.__class__)
    return () if getter is None else getter(expr)


def with_children(expr: Expr, parts: tuple[Expr, ...]) -> Expr:
    match expr:
        case Apply(function, _, type):
            if type is I64 and (simple := simplify(function, parts)) is not None:
                return simple
            return Apply(function, parts, type)
        case Read(tensor, _):
            return Read(tensor, parts)
        case Cast(_, type) | Bitcast(_, type):
            return expr.__class__(parts[0], type)
        case When():
            return When(*parts)
        case Reduce(function, over, _):
            return Reduce(function, over, parts[0])
        case Check(_, _, message, span):
            return Check(parts[0], parts[1], message, span)
    return expr


def rewrite(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Replace every node for which `change` returns another, top down; shared nodes stay shared."""
    return _rewritten(expr, change, {})


def _rewritten(e: Expr, change: Callable[[Expr], Expr | None], done: dict[int, Expr]) -> Expr:
    """`rewrite`, memoized in `done` by id; no closure, which would form a reference cycle."""
    if (new := change(e)) is None:
        new = e
        if (of := _CHILDREN.get(e.__class__)) is not None:
            old = of(e)
            parts = [done[id(c)] if id(c) in done else _rewritten(c, change, done) for c in old]
            if any(map(is_not, old, parts)):
                new = with_children(e, tuple(parts))
    done[id(e)] = new
    return new


def rebuild(e: Expr, make: Callable[[Expr, tuple[T, ...]], T], done: dict[int, T]) -> T:
    """Fold an expression bottom up: `make` of a node and its children's results; `done` has results
    by id.
    """
    if id(e) not in done:
        done[id(e)] = make(e, tuple([rebuild(c, make, done) for c in children(e)]))
    return done[id(e)]


def over(e: Expr, parts: tuple[Expr, ...]) -> Expr:
    """The node over other children, the same object if they are unchanged."""
    return with_children(e, parts) if any(map(is_not, children(e), parts)) else e


def substitute(expr: Expr, values: dict[Expr, Expr]) -> Expr:
    """Indices and variables replaced by expressions (nodes are compared by identity)."""
    return rewrite(expr, values.get) if values else expr


@lru_cache(maxsize=1024)
def walk(expr: Expr) -> tuple[Expr, ...]:
    """Every node once, parents first; cached, since passes walk one expression repeatedly."""
    visited: dict[Expr, None] = {}
    stack = [expr]
    parts = _CHILDREN.get
    while stack:
        if (e := stack.pop()) not in visited:
            visited[e] = None
            if (of := parts(e.__class__)) is not None:
                stack += of(e)[::-1]
    return tuple(visited)
