"""Reaching definitions of a function's names: which assignments a use may see.

Definitions that meet at a use are one variable with one type; a use that one definition alone
reaches has its own.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

State: TypeAlias = dict[str, frozenset[ast.AST]]


class Undefined(ast.AST):
    """The definition of a name that has no value yet, or none that is known, for a `reason`."""

    reason = ""


UNDEFINED = Undefined()


@dataclass
class _Jumps:
    """The states at the jumps of a loop."""

    breaks: list[State] = field(default_factory=list[State])
    continues: list[State] = field(default_factory=list[State])


class Definitions:
    """The definitions that reach each use, and the variable (the first definition) that each of
    them belongs to.
    """

    def __init__(
        self, function: ast.FunctionDef, parallel: Mapping[ast.For, Mapping[str, str]]
    ) -> None:
        self.parallel = parallel  # loops whose iterations run at once, with their reductions
        self.reaching: dict[ast.Name, frozenset[ast.AST]] = {}
        self.names: set[str] = {a.arg for a in arguments(function)}
        self.names.update(
            n.id
            for n in ast.walk(function)
            if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
        )
        self._loops: list[_Jumps] = []
        # of parallel loops, the values of their names before an iteration and after the loop
        self._around: dict[ast.For, tuple[Undefined, Undefined]] = {}
        self.falls_off = (
            self._block(function.body, {a.arg: frozenset({a}) for a in arguments(function)})
            is not None
        )
        # uses of names whose values depend on how parallel loops run
        self.unknown: dict[ast.Name, str] = {}
        for use, found in self.reaching.items():
            if reasons := [d.reason for d in found if isinstance(d, Undefined) and d.reason]:
                self.unknown[use] = reasons[0]
                self.reaching[use] = frozenset(
                    UNDEFINED if isinstance(d, Undefined) else d for d in found
                )
        self._parent: dict[ast.AST, ast.AST] = {}
        self.every = sorted(
            {d for found in self.reaching.values() for d in found if d is not UNDEFINED},
            key=lambda d: (getattr(d, "lineno", 0), getattr(d, "col_offset", 0)),
        )
        for found in self.reaching.values():
            first, *others = found - {UNDEFINED} or {UNDEFINED}
            for other in others:
                if (root := self.variable(other)) is not (top := self.variable(first)):
                    self._parent[root] = top
        # uses that need a variable: several definitions reach them, or none may have
        self.may_be_undefined = {
            self.variable(next(iter(found - {UNDEFINED})))
            for found in self.reaching.values()
            if UNDEFINED in found and len(found) > 1
        }

    def variable(self, definition: ast.AST) -> ast.AST:
        while definition in self._parent:
            definition = self._parent[definition]
        return definition

    # the statements, from the state before them to the one after; None after a jump

    def _block(self, block: Sequence[ast.stmt], state: State | None) -> State | None:
        for s in block:
            if state is None:
                break
            state = self._statement(s, state)
        return state

    def _statement(self, s: ast.stmt, state: State) -> State | None:
        match s:
            case ast.AugAssign(target, _, value):
                if isinstance(target, ast.Name):
                    self.reaching[target] = self.reaching.get(target, frozenset()) | state.get(
                        target.id, frozenset({UNDEFINED})
                    )
                self._uses(value, state)
                return self._targets([target], state)
            case ast.Assign(targets, value):
                self._uses(value, state)
                return self._targets(targets, state)
            case ast.AnnAssign(target, _, value, _):
                if value is not None:
                    self._uses(value, state)
                    return self._targets([target], state)
            case ast.If(test, body, orelse):
                self._uses(test, state)
                return _met([self._block(body, state), self._block(orelse, state)])
            case ast.For(target, over, body, orelse):
                self._uses(over, state)
                if s in self.parallel:
                    return self._parallel(state, s, self.parallel[s])
                return self._loop(state, target, None, body, orelse)
            case ast.While(test, body, orelse):
                return self._loop(state, None, test, body, orelse)
            case ast.Break() if self._loops:
                self._loops[-1].breaks.append(state)
                return None
            case ast.Continue() if self._loops:
                self._loops[-1].continues.append(state)
                return None
            case ast.Return() | ast.Raise():
                self._uses(s, state)
                return None
            case _:
                self._uses(s, state)
        return state

    def _loop(
        self,
        state: State,
        target: ast.expr | None,
        test: ast.expr | None,
        body: Sequence[ast.stmt],
        orelse: Sequence[ast.stmt],
    ) -> State | None:
        ends: State | None = state
        while True:
            jumps = _Jumps()
            self._loops.append(jumps)
            if test is not None:
                self._uses(test, state)
            inside = state if target is None else self._targets([target], state)
            after = self._block(body, inside)
            self._loops.pop()
            again = _met([state, after, *jumps.continues])
            assert again is not None
            if again == state:
                break
            state = again
        ends = None if isinstance(test, ast.Constant) and test.value else state
        return _met([None if ends is None else self._block(orelse, ends), *jumps.breaks])

    def _parallel(self, state: State, s: ast.For, reduced: Collection[str]) -> State | None:
        """A loop whose iterations have names of their own, but for reductions."""
        stored = (n for t in (s.target, *s.body) for n in ast.walk(t) if isinstance(n, ast.Name))
        own = {n.id for n in stored if isinstance(n.ctx, ast.Store)} - {*reduced}
        before, after = self._around.setdefault(s, (Undefined(), Undefined()))
        before.reason = "is carried from one iteration of cvm.prange to another"
        after.reason = "has no value after a loop over cvm.prange that assigns it"
        state = {**state, **{n: frozenset({before}) for n in own}}
        while True:
            jumps = _Jumps()
            self._loops.append(jumps)
            end = self._block(s.body, self._targets([s.target], state))
            self._loops.pop()
            again = _met([state, end, *jumps.continues])
            assert again is not None
            again |= {n: frozenset({before}) for n in own}
            if again == state:
                break
            state = again
        return self._block(s.orelse, {**state, **{n: frozenset({after}) for n in own}})

    def _targets(self, targets: Iterable[ast.expr], state: State) -> State:
        for target in targets:
            match target:
                case ast.Name(name):
                    state = {**state, name: frozenset({target})}
                case ast.Tuple(parts) | ast.List(parts):
                    state = self._targets(parts, state)
                case _:
                    self._uses(target, state)
        return state

    def _uses(self, node: ast.AST, state: State) -> None:
        for n in ast.walk(node):
            if isinstance(n, ast.Name) and n.id in self.names:
                self.reaching[n] = self.reaching.get(n, frozenset()) | state.get(
                    n.id, frozenset({UNDEFINED})
                )


def arguments(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _met(states: Iterable[State | None]) -> State | None:
    """The state where several meet."""
    known = [s for s in states if s is not None]
    if not known:
        return None
    nothing = frozenset({UNDEFINED})
    names = dict.fromkeys(n for s in known for n in s)
    return {n: frozenset().union(*(s.get(n, nothing) for s in known)) for n in names}
