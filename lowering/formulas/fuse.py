"""Fuse formulas into their readers (producer-consumer fusion; TVM and Halide's compute_inline).

    t[i] = f(x[i]);  y[i] = g(t[i])  =>  y[i] = g(f(x[i]))

Legal for every formula; nests are not fused. Pays where no element is computed twice, or where recomputing one costs at
most CHEAP operations. A reduction is fused only into a pointwise reader at the same indices, as its epilogue. Of two
contractions with one reader only the larger is fused, since each needs its own loops. Formulas that remain are
materialized, one kernel each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf, prod

from ...dialect.ir.diagnostics import Span
from ...dialect.ir.sizes import same_size
from ...dialect.notation.expressions import Apply, Check, Const, Expr, Extent, Index, Read, Reduce, Tensor, When
from ...dialect.notation.formulas import Formula, Formulas, Nest, Step, View
from ...dialect.notation.traverse import children, rewrite, substitute, walk
from ..math import FUNCTIONS
from ..passes import formula_pass
from ..processor import processor
from .build_formulas import cost, reads
from .match_broadcast_index import unrepeated

MAX_DEPTH = 80  # operations inside operations: passes and emission walk expressions recursively
CHEAP = 2  # operations worth repeating rather than storing


@formula_pass
def fuse(program: Formulas) -> Formulas:
    """An equivalent program of fewer, larger formulas."""
    uses = _uses(program)
    kept: list[Step] = []
    inlined: dict[Tensor, Formula] = {}
    measures = _Measures()
    results = set(program.results)
    for step in program.steps:
        if isinstance(step, View) and cost(step.formula.value) == 0 and step.tensor not in results:
            step = step.formula  # a pure renaming of indices always fuses
        if isinstance(step, View) and step.of in inlined:
            kept.append(inlined.pop(step.of))
        if isinstance(step, Nest):
            kept += [inlined.pop(t) for t in step.operands if t in inlined]
        if isinstance(step, Formula):
            step = _at_same_indices(step, inlined)
            measures.add(step, inlined)
            fused = [s for t in reads(step.value) if t in inlined for s in _spans(inlined[t])]
            spans = tuple(dict.fromkeys([*fused, *_spans(step)]))
            step = replace(step, value=_put(step.value, inlined, measures), spans=spans)
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


def _spans(formula: Formula) -> tuple[Span, ...]:
    return formula.spans or (formula.span,)


Use = tuple[Step, Read | None, tuple[Index, ...]]


def _uses(program: Formulas) -> dict[Tensor, list[Use]]:
    """The readers of each tensor: step, read node, and the indices in scope at the read."""
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
    """Node counts and depths of formulas, computed incrementally from the formulas fused into them."""

    def __init__(self) -> None:
        self.nodes: dict[Tensor, int] = {}  # an upper bound
        self.whole: set[Tensor] = set()  # tensors with a reduction, or with a check of every element
        self.depths: dict[int, int] = {}
        self.kept: list[Expr] = []  # keeps expressions alive whose ids are keys of `depths`

    def add(self, formula: Formula, inlined: dict[Tensor, Formula]) -> None:
        """Measure a formula before its operands are fused into it."""
        own = list(walk(formula.value))
        parts = [e.tensor for e in own if isinstance(e, Read) and e.tensor in inlined]
        self.nodes[formula.tensor] = len(own) + sum(self.nodes[t] for t in parts)
        if any(isinstance(e, (Reduce, Check)) for e in own) or not self.whole.isdisjoint(parts):
            self.whole.add(formula.tensor)

    def too_large(self, formula: Formula) -> bool:
        most = processor().tuning.fused_nodes
        if self.nodes[formula.tensor] > most and sum(1 for _ in walk(formula.value)) > most:
            return True
        self.kept.append(formula.value)
        return depth(formula.value, self.depths) > MAX_DEPTH


def _at_same_indices(formula: Formula, inlined: dict[Tensor, Formula]) -> Formula:
    """The formula, renamed to the indices of an operand that it reads at its own indices, so that the operand fuses
    unchanged.
    """
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
        work <= CHEAP
        and (
            once
            or (len(sites) == 1 and _few_repeats(sites[0][0], sites[0][1]) and not _is_transcendental(formula.value))
        )
    )


def _is_transcendental(value: Expr) -> bool:
    """Test whether an expression is dozens of operations, once it is one of primitives."""
    return any(isinstance(e, Apply) and e.function in FUNCTIONS for e in walk(value))


def _rival(formula: Formula, uses: list[Use], inlined: dict[Tensor, Formula]) -> Formula | None:
    """The other contraction that would be fused into the same reader, if this formula is a contraction."""
    reader = uses[0][0]
    if not _terms(formula) or not isinstance(reader, Formula):
        return None
    return next((inlined[t] for t in reads(reader.value) if t in inlined and _terms(inlined[t])), None)


def _terms(formula: Formula) -> float:
    """The number of products that a formula's contraction adds up per element; 0 without a contraction."""
    for e in walk(formula.value):
        if isinstance(e, Reduce) and e.function == "add":
            product = e.body.then if isinstance(e.body, When) else e.body
            match product:
                case Apply("mul", (a, b), _) if _crossed(a, b, formula.indices):
                    return prod(i.extent if isinstance(i.extent, int) else inf for i in e.indices)
    return 0


def _crossed(a: Expr, b: Expr, indices: tuple[Index, ...]) -> bool:
    """Test whether each factor varies along an index on which the other does not depend."""
    along = [{i for i in indices if i in set(walk(e))} for e in (a, b)]
    return bool(along[0] - along[1]) and bool(along[1] - along[0])


def depth(value: Expr, known: dict[int, int] | None = None) -> int:
    """The depth of an expression's operand graph; `known` caches depths by id."""
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
    """Test whether a read is at exactly the reader's indices, in order, and covers every element. Along one element
    broadcasting reads at 0."""
    if len(read.indices) != len(scope) or not all(map(_is_index, read.indices, scope)):
        return False
    return all(same_size(i.extent, d) for i, d in zip(scope, read.tensor.shape, strict=True))


def _is_index(at: Expr, index: Index) -> bool:
    return at is index or (isinstance(at, Const) and at.value == 0 and same_size(index.extent, 1))


def _injective(read: Read, scope: tuple[Index, ...]) -> bool:
    """Test whether no element is read at two values of the indices in scope."""
    plain = {p for p in map(_plain, read.indices) if p is not None}
    return all(i in plain or same_size(i.extent, 1) for i in scope)


def _few_repeats(read: Read, scope: tuple[Index, ...]) -> bool:
    """Test whether no reduction runs over the indices that the read lacks: a broadcast, whose value is hoisted. An
    index along which an operand only may be broadcast is not lacking.
    """
    plain = {p for i in read.indices if (p := _plain(unrepeated(i))) is not None}
    return bool(scope) and scope[-1] in plain


def _plain(index: Expr) -> Index | None:
    """The index i of i, i * c or i * c + d."""
    match index:
        case Index():
            return index
        case Apply("add" | "sub", (a, Const() | Extent()), _) | Apply("mul", (a, Const()), _):
            return _plain(a)
        case Apply("sub", (Const() | Extent(), a), _):
            return _plain(a)
    return None


def structure(e: Expr) -> object:
    """A key that is equal for structurally equal index expressions."""
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
    """Replace reads of inlined tensors in a value; equal reads give one shared expression."""
    return _with_made(value, inlined, measures, {})


def _with_made(value: Expr, inlined: dict[Tensor, Formula], measures: _Measures, made: dict[object, Expr]) -> Expr:
    """Replace reads of inlined tensors, given the replacements of equal reads so far."""

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
    """Reductions over fresh indices, so that a formula that is inlined twice shares no loop index."""
    return rewrite(value, _fresh)


def _fresh(e: Expr) -> Expr | None:
    if not isinstance(e, Reduce):
        return None
    new = tuple(Index(i.name, i.extent) for i in e.indices)
    body = substitute(e.body, dict(zip(e.indices, new, strict=True)))
    return Reduce(e.function, new, _fresh_folds(body))


def _live(program: Formulas, steps: list[Step]) -> tuple[list[Step], set[Tensor]]:
    """The steps that some result depends on, and the tensors that they read or return."""
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
