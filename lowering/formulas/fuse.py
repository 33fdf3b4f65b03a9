"""Formulas into their readers:  t[i] = f(x[i]);  y[i] = g(t[i])  =>  y[i] = g(f(x[i])).

A formula is put in place where that computes no element twice, or where computing it again costs next to nothing; a fold is
put only into a pointwise reader at the same indices, as its epilogue. Of two contractions with one reader, only the larger
is put there: each wants loops of its own. What remains is materialised, one kernel each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf, prod

from ...dialect.ir.sizes import same_size
from ...dialect.notation.index import Apply, Check, Const, Expr, Extent, Index, Read, Reduce, Tensor, When
from ...dialect.notation.traverse import children, rewrite, substitute, walk
from ..loops.broadcast_versions import unrepeated
from .build import Formula, Formulas, Nest, Step, View, cost, reads

MAX_NODES = 400  # nodes of a fused formula: beyond that, compiling costs more than memory traffic
MAX_DEPTH = 80  # operations inside operations: passes and emission walk expressions recursively
CHEAP = 2  # operations worth repeating rather than storing


def fuse(program: Formulas) -> Formulas:
    """The same results from fewer, larger formulas."""
    uses = _uses(program)
    kept: list[Step] = []
    inlined: dict[Tensor, Formula] = {}
    measures = _Measures()
    results = set(program.results)
    for step in program.steps:
        if isinstance(step, View) and cost(step.formula.value) == 0 and step.tensor not in results:
            step = step.formula  # a mere renaming of indices is best put into its readers
        if isinstance(step, View) and step.of in inlined:
            kept.append(inlined.pop(step.of))
        if isinstance(step, Nest):
            kept += [inlined.pop(t) for t in step.operands if t in inlined]
        if isinstance(step, Formula):
            step = _at_same_indices(step, inlined)
            measures.add(step, inlined)
            step = replace(step, value=_put(step.value, inlined, measures))
            if step.tensor not in results and _worth_inlining(step, uses.get(step.tensor, []), measures):
                other = _rival(step, uses[step.tensor], inlined) if step.tensor in measures.whole else None
                if other is None or _terms(other) < _terms(step):
                    if other is not None:
                        kept.append(inlined.pop(other.tensor))
                    inlined[step.tensor] = step
                    continue
        kept.append(step)
    live, needed = _live(program, kept)
    constants = {t: array for t, array in program.constants.items() if t in needed}
    return replace(program, steps=tuple(live), constants=constants)


Use = tuple[Step, Read | None, tuple[Index, ...]]


def _uses(program: Formulas) -> dict[Tensor, list[Use]]:
    """Where each tensor is read: by which step, by which node, under which indices."""
    found: dict[Tensor, list[Use]] = {}
    for step in program.steps:
        match step:
            case Formula():
                formula = step
            case View(_, _, formula):
                if cost(formula.value):
                    found.setdefault(step.of, []).append((step, None, ()))
                    continue
            case Nest(_, operands, _):
                for t in operands:
                    found.setdefault(t, []).append((step, None, ()))
                continue
        distinct: set[object] = set()
        for read, scope in _reads(formula.value, formula.indices):
            place = (read.tensor, *(structure(i) for i in read.indices))
            if place not in distinct:
                distinct.add(place)
                found.setdefault(read.tensor, []).append((step, read, scope))
    return found


def _reads(value: Expr, scope: tuple[Index, ...]) -> Iterator[tuple[Read, tuple[Index, ...]]]:
    seen: set[int] = set()
    stack = [(value, scope)]
    while stack:
        e, around = stack.pop()
        if id(e) in seen:
            continue
        seen.add(id(e))
        if isinstance(e, Read):
            yield e, around
        elif isinstance(e, Reduce):
            around = (*around, *e.indices)
        stack.extend((c, around) for c in children(e))


class _Measures:
    """How large the formulas are, found from those that they were put together from."""

    def __init__(self) -> None:
        self.nodes: dict[Tensor, int] = {}  # at most so many
        self.whole: set[Tensor] = set()  # those with a fold, or with a check, which is made of every element
        self.depths: dict[int, int] = {}
        self.kept: list[Expr] = []  # what the depths know by id

    def add(self, formula: Formula, inlined: dict[Tensor, Formula]) -> None:
        """A formula before others are put into it."""
        own = list(walk(formula.value))
        parts = [e.tensor for e in own if isinstance(e, Read) and e.tensor in inlined]
        self.nodes[formula.tensor] = len(own) + sum(self.nodes[t] for t in parts)
        if any(isinstance(e, (Reduce, Check)) for e in own) or not self.whole.isdisjoint(parts):
            self.whole.add(formula.tensor)

    def too_large(self, formula: Formula) -> bool:
        if self.nodes[formula.tensor] > MAX_NODES and sum(1 for _ in walk(formula.value)) > MAX_NODES:
            return True
        self.kept.append(formula.value)
        return depth(formula.value, self.depths) > MAX_DEPTH


def _at_same_indices(formula: Formula, inlined: dict[Tensor, Formula]) -> Formula:
    """The formula over the indices of one that it reads at its own, which then is put in place as it is."""
    for e in walk(formula.value):
        if isinstance(e, Read) and e.tensor in inlined and _same_indices(e, formula.indices):
            new = inlined[e.tensor].indices
            if all(same_size(a.extent, b.extent) for a, b in zip(formula.indices, new, strict=True)):
                value = substitute(formula.value, dict(zip(formula.indices, new, strict=True)))
                return replace(formula, indices=new, value=value)
    return formula


def _worth_inlining(formula: Formula, uses: list[Use], measures: _Measures) -> bool:
    sites = [(read, scope, step) for step, read, scope in uses if read is not None]
    if not sites or len(sites) < len(uses):
        return False
    if measures.too_large(formula):
        return False
    if formula.tensor in measures.whole:
        read, scope, step = sites[0]
        return len(sites) == 1 and isinstance(step, Formula) and scope == step.indices and _same_indices(read, scope)
    work = cost(formula.value, CHEAP)
    if work == 0:
        return True
    once = all(_injective(read, scope) for read, scope, _ in sites)
    return (once and len(sites) == 1) or (
        work <= CHEAP and (once or (len(sites) == 1 and _few_repeats(sites[0][0], sites[0][1])))
    )


def _rival(formula: Formula, uses: list[Use], inlined: dict[Tensor, Formula]) -> Formula | None:
    """The other contraction that is to become part of the same reader, if this one is a contraction."""
    reader = uses[0][0]
    if not _terms(formula) or not isinstance(reader, Formula):
        return None
    return next((inlined[t] for t in reads(reader.value) if t in inlined and _terms(inlined[t])), None)


def _terms(formula: Formula) -> float:
    """How many products the contraction in a formula adds up for an element; 0 where there is none."""
    for e in walk(formula.value):
        if isinstance(e, Reduce) and e.function == "add":
            product = e.body.then if isinstance(e.body, When) else e.body
            match product:
                case Apply("mul", (a, b), _) if _crossed(a, b, formula.indices):
                    return prod(i.extent if isinstance(i.extent, int) else inf for i in e.indices)
    return 0


def _crossed(a: Expr, b: Expr, indices: tuple[Index, ...]) -> bool:
    """Whether each factor varies along an index that the other does not."""
    along = [{i for i in indices if i in set(walk(e))} for e in (a, b)]
    return bool(along[0] - along[1]) and bool(along[1] - along[0])


def depth(value: Expr, known: dict[int, int] | None = None) -> int:
    """The length of the longest path from an expression to one without operands; `known` has some, by id, and is added to."""
    found = {} if known is None else known
    stack = [value]
    while stack:
        e = stack[-1]
        waiting = [c for c in children(e) if id(c) not in found]
        if waiting:
            stack += waiting
        else:
            found[id(e)] = 1 + max((found[id(c)] for c in children(e)), default=0)
            stack.pop()
    return found[id(value)]


def _same_indices(read: Read, scope: tuple[Index, ...]) -> bool:
    """Whether the read is at exactly the reader's indices, in their order, and of every element."""
    same = len(read.indices) == len(scope) and all(i is s for i, s in zip(read.indices, scope, strict=True))
    return same and all(same_size(i.extent, d) for i, d in zip(scope, read.tensor.shape, strict=True))


def _injective(read: Read, scope: tuple[Index, ...]) -> bool:
    """Whether no element is read at two values of the indices around the read."""
    plain = {p for p in map(_plain, read.indices) if p is not None}
    return all(i in plain or same_size(i.extent, 1) for i in scope)


def _few_repeats(read: Read, scope: tuple[Index, ...]) -> bool:
    """Whether the indices that are missing from the read enclose no fold: a broadcast, whose value is hoisted. One that
    only may turn out to be a broadcast is not missing."""
    plain = {p for i in read.indices if (p := _plain(unrepeated(i))) is not None}
    return bool(scope) and scope[-1] in plain


def _plain(index: Expr) -> Index | None:
    """The index i in i, i * c and i * c + d."""
    match index:
        case Index():
            return index
        case Apply("add" | "sub", (a, Const() | Extent()), _) | Apply("mul", (a, Const()), _):
            return _plain(a)
        case Apply("sub", (Const() | Extent(), a), _):
            return _plain(a)
    return None


def structure(e: Expr) -> object:
    """What an index expression looks like: equal for expressions that are written alike."""
    match e:
        case Index():
            return id(e)
        case Const(value, type):
            return value, type.name
        case Extent(size):
            return size.key
        case Apply(function, operands, _):
            return (function, *map(structure, operands))
        case Read(tensor, at):
            return (id(tensor), *map(structure, at))
    return id(e)


def _put(value: Expr, inlined: dict[Tensor, Formula], measures: _Measures) -> Expr:
    """The value with reads of inlined tensors replaced; equal reads give one shared expression."""
    return _with_made(value, inlined, measures, {})


def _with_made(value: Expr, inlined: dict[Tensor, Formula], measures: _Measures, made: dict[object, Expr]) -> Expr:
    """The same, with what was made of equal reads so far."""

    def put(e: Expr) -> Expr | None:
        if not isinstance(e, Read) or e.tensor not in inlined:
            return None
        at = tuple([_with_made(i, inlined, measures, made) for i in e.indices])
        place = (e.tensor, *map(structure, at))
        if place not in made:
            formula = inlined[e.tensor]
            there: dict[Expr, Expr] = {i: new for i, new in zip(formula.indices, at, strict=True) if i is not new}
            fresh = substitute(formula.value, there)
            made[place] = _fresh_folds(fresh) if e.tensor in measures.whole else fresh
        return made[place]

    return rewrite(value, put)


def _fresh_folds(value: Expr) -> Expr:
    """Folds over indices of their own, so that a formula put in place twice does not share loop indices."""
    return rewrite(value, _fresh)


def _fresh(e: Expr) -> Expr | None:
    if not isinstance(e, Reduce):
        return None
    new = tuple(Index(i.name, i.extent) for i in e.indices)
    body = substitute(e.body, dict(zip(e.indices, new, strict=True)))
    return Reduce(e.function, new, _fresh_folds(body))


def _live(program: Formulas, steps: list[Step]) -> tuple[list[Step], set[Tensor]]:
    """The steps whose tensors some result depends on, and all tensors that are read or given back."""
    needed = set(program.results)
    live: list[Step] = []
    for step in reversed(steps):
        tensors = step.tensors if isinstance(step, Nest) else (step.tensor,)
        if needed.isdisjoint(tensors):
            continue
        live.append(step)
        match step:
            case Formula(_, _, value):
                needed |= reads(value)
            case View(_, of, _):
                needed.add(of)
            case Nest(_, operands, _):
                needed.update(operands)
    return live[::-1], needed
