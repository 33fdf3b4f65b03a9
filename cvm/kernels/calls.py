"""Calls of kernels in kernels: the statements of the called function where the call stands.

    def f(x):                            while True:
        for v in x:                          for v in x:
            if v < 0: return v     =>            if v < 0: r = v; left = True; break
        return 0                             if left: break
                                             r = 0; break

Each call has names, types and results of its own. Arrays are passed as they are: two arguments that
are one array are known as such, so there is nothing to test.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cvm.dialect.support.diagnostics import Note, TraceError

from . import parallel
from .arrays import Array, Known, Values
from .definitions import UNDEFINED, Definitions, arguments
from .source import CompiledFunction, FunctionSource, read_source

if TYPE_CHECKING:
    from .build import Builder

MOST_CALLS = 500  # in one kernel: bounds compile time (by hand)
MOST_NESTED = (
    20  # calls in one another, and branches that returns become: Python's stack bounds them
)


@dataclass(frozen=True, eq=False)
class Inlined:
    """The function of one call: its tree without returns, and the name that holds its result."""

    source: FunctionSource
    definitions: Definitions
    result: ast.expr
    results: frozenset[ast.AST]  # the definitions of the result's names


def inlined(function: CompiledFunction) -> Inlined:
    """A copy of a function for one call."""
    source = read_source(function.py_func)
    source = replace(source, tree=(tree := deepcopy(source.tree)))
    loops = parallel.parallel_loops(source)
    returns = _Returns(tree)
    valued = next((r for r in returns.found if _value(r) is not None), None)
    if valued is not None and Definitions(tree, loops).falls_off:
        message = "this function may end without a return, and returns a value here"
        raise source.mistake(message, valued)
    returns.leave()
    tree.body.append(ast.copy_location(ast.Expr(returns.result), tree))
    definitions = Definitions(tree, loops)
    names = [n for n in ast.walk(returns.result) if isinstance(n, ast.Name)]
    for n in names:  # of jumps that are not taken after a loop, no value reaches the end
        found = definitions.reaching[n] = definitions.reaching.get(n, frozenset()) - {UNDEFINED}
        definitions.may_be_undefined -= {definitions.variable(d) for d in found}
    results = frozenset(d for n in names for d in definitions.reaching[n])
    return Inlined(source, definitions, returns.result, results)


def call(
    b: Builder, function: CompiledFunction, node: ast.Call, values: Sequence[object] | None = None
) -> object:
    """The result of a call of a kernel, whose statements stand here; of the node's arguments, or of
    these values.
    """
    given = _bound(b, function, node, values)
    if len(b.inlined) >= MOST_CALLS or len(b.callers) > MOST_NESTED:
        limits = f"{MOST_CALLS} calls of kernels, at most {MOST_NESTED} in one another"
        raise b.source.mistake(f"a kernel has at most {limits}", node)
    made, place = len(b.made), b.source.span(node)
    try:
        if (body := b.inlined.get(node)) is None:
            body = b.inlined[node] = inlined(function)
            b.changed = True  # the statement keeps what it has read before
        with b.within(body, function):
            for a in arguments(body.source.tree):
                value = b.bound[a] = b.ever[a] = given[a.arg]
                if not isinstance(value, Array):
                    b.define(a, value, a)
            if not b.statements(body.source.tree.body[:-1]):
                return Known(None)
            found = _result(b, body.result)
    except TraceError as e:
        note = Note(f"{function.py_func.__name__} is called here", place)
        raise TraceError([replace(d, notes=(*d.notes, note)) for d in e.diagnostics]) from None
    own = isinstance(found, Array) and b.is_made_since(found, made)
    return replace(found, fresh=True) if isinstance(found, Array) and own else found


def _bound(
    b: Builder, function: CompiledFunction, node: ast.Call, values: Sequence[object] | None
) -> dict[str, object]:
    """The values of a call's arguments by their names, as they are now."""
    positional = [b.steady(v, "v", node) for v in values or ()]
    for a in node.args if values is None else ():
        found = b.items(b.value(a.value), a) if isinstance(a, ast.Starred) else (b.value(a),)
        positional += [b.steady(v, "v", a) for v in found]
    named: dict[str, object] = {}
    for k in node.keywords if values is None else ():
        if k.arg is None:
            raise b.source.mistake("arguments are given one by one, not by **", node)
        named[k.arg] = b.steady(b.value(k.value), k.arg, k.value)
    signature = inspect.signature(function.py_func)
    try:
        given = signature.bind(*positional, **named).arguments
    except TypeError as e:
        raise b.source.mistake(f"{function.py_func.__name__}: {e}", node) from None
    defaults = {n: p.default for n, p in signature.parameters.items() if n not in given}
    prefix = function.py_func.__name__
    return {**given, **{n: b.constant(f"{prefix}.{n}", v) for n, v in defaults.items()}}


def _result(b: Builder, node: ast.expr) -> object:
    """The value of a result's name, or of a tuple of these."""
    match node:
        case ast.Tuple(parts):
            return Values(tuple(_result(b, p) for p in parts))
        case ast.Name():
            found = b.definitions.reaching[node]
            values = [b.ever[d] for d in found if d in b.ever]
            seen = [b.bound[d] for d in found if d in b.bound]
            if len(values) == len(seen) == 1:
                return seen[0]
            if values and isinstance(first := values[0], Array):
                return b.one_of(first, values, node)
    return b.value(node)


class _Returns:
    """A function's returns, as assignments to the names of its result."""

    def __init__(self, tree: ast.FunctionDef) -> None:
        self.tree = tree
        self.found = [n for n in ast.walk(tree) if isinstance(n, ast.Return)]
        self.result: ast.expr = ast.copy_location(ast.Constant(None), tree)
        if any(_value(r) is not None for r in self.found):
            self.result = self._names([_value(r) for r in self.found], "result", ast.Load())

    def leave(self) -> None:
        """Replace the returns: by branches where those are at the end of the function, and
        otherwise by jumps out of a loop around it.
        """
        body = self.tree.body
        if len(self.found) > MOST_NESTED or not _is_tail(body):
            self._jump(body)
        else:
            self.tree.body = self._branches(body)

    def _names(
        self, values: Sequence[ast.expr | None], name: str, how: ast.expr_context
    ) -> ast.expr:
        """The names of a result: of a tuple where every return has one of the same length."""
        tuples = [v for v in values if isinstance(v, ast.Tuple)]
        sizes = {len(v.elts) for v in tuples}
        starred = any(isinstance(e, ast.Starred) for v in tuples for e in v.elts)
        if tuples and len(tuples) == len(values) and len(sizes) == 1 and not starred:
            parts = zip(*(v.elts for v in tuples), strict=True)
            names = [self._names(p, f"{name}.{n}", how) for n, p in enumerate(parts)]
            return ast.copy_location(ast.Tuple(names, how), self.tree)
        return ast.copy_location(ast.Name(f"{self.tree.name}.{name}", how), self.tree)

    def _assigned(self, s: ast.Return) -> list[ast.stmt]:
        if isinstance(self.result, ast.Constant):
            return []
        target = self._names([_value(r) for r in self.found], "result", ast.Store())
        for n in ast.walk(target):
            ast.copy_location(n, s)
        value = s.value or ast.copy_location(ast.Constant(None), s)
        return [ast.copy_location(ast.Assign([target], value), s)]

    def _branches(self, block: Sequence[ast.stmt]) -> list[ast.stmt]:
        """A block whose returns are at its end; what follows an if that returns goes into it."""
        for n, s in enumerate(block):
            if isinstance(s, ast.Return):
                return [*block[:n], *self._assigned(s)]
            if isinstance(s, ast.If) and _returns([s]):
                rest = block[n + 1 :]
                then, otherwise = s.body, s.orelse
                if _ends(then):
                    otherwise = [*otherwise, *rest]
                else:
                    then = [*then, *rest]
                s.body = self._branches(then) or [ast.copy_location(ast.Pass(), s)]
                s.orelse = self._branches(otherwise)
                return [*block[:n], s]
        return [*block]

    def _jump(self, body: list[ast.stmt]) -> None:
        tree, flag = self.tree, f"{self.tree.name}.left"
        inner = self._jumps(body, flag, False)
        if not _ends(inner):
            inner.append(ast.Break())
        first = ast.Assign([ast.Name(flag, ast.Store())], ast.Constant(False))
        tree.body = [first, ast.While(ast.Constant(True), inner, [])]
        for s in tree.body:
            for n in ast.walk(s):
                if not hasattr(n, "lineno"):
                    ast.copy_location(n, tree)

    def _jumps(self, block: Sequence[ast.stmt], flag: str, looping: bool) -> list[ast.stmt]:
        """A block with a jump out of its loop for each return; flagged if this is one of the
        function's.
        """
        out: list[ast.stmt] = []
        for s in block:
            if isinstance(s, ast.Return):
                out += self._assigned(s)
                if looping:
                    out.append(ast.Assign([ast.Name(flag, ast.Store())], ast.Constant(True)))
                return [*out, ast.Break()]
            out.append(s)
            if isinstance(s, ast.If):
                s.body = self._jumps(s.body, flag, looping)
                s.orelse = self._jumps(s.orelse, flag, looping)
            elif isinstance(s, (ast.For, ast.While)):
                leaves = _returns(s.body)
                s.body = self._jumps(s.body, flag, True)
                s.orelse = self._jumps(s.orelse, flag, looping)
                if leaves:
                    out.append(ast.If(ast.Name(flag, ast.Load()), [ast.Break()], []))
        return out


def _value(s: ast.Return) -> ast.expr | None:
    return None if isinstance(s.value, ast.Constant) and s.value.value is None else s.value


def _returns(block: Sequence[ast.stmt]) -> bool:
    return any(isinstance(n, ast.Return) for s in block for n in ast.walk(s))


def _ends(block: Sequence[ast.stmt]) -> bool:
    """Test whether a block's last statement jumps."""
    match block[-1] if block else None:
        case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
            return True
        case ast.If(_, body, orelse):
            return _ends(body) and _ends(orelse)
    return False


def _is_tail(block: Sequence[ast.stmt], followed: bool = False) -> bool:
    """Test whether returns are outside of loops, and what follows an if that returns is reached
    from one of its sides alone.
    """
    for n, s in enumerate(block):
        if isinstance(s, (ast.For, ast.While)) and _returns([s]):
            return False
        if isinstance(s, ast.If) and _returns([s]):
            more = followed or n + 1 < len(block)
            if more and not (_ends(s.body) or _ends(s.orelse)):
                return False
            if not all(_is_tail(b, more and not _ends(b)) for b in (s.body, s.orelse)):
                return False
    return True
