"""Fuse formulas into their readers (producer-consumer fusion; TVM and Halide's compute_inline).

    t[i] = f(x[i]);  y[i] = g(t[i])  =>  y[i] = g(f(x[i]))

Legal for every formula; nests are not fused. Pays by what a formula costs at each read:

    pointwise readers    anything where each element is read once, else at most CHEAP operations
    a float sum          the same, but a product of more is rounded before a sum along memory, to
                         which it would be added term by term, without lanes, otherwise
    a sum of products    the same, but no arithmetic for its place: a quotient, a table or a branch
                         would keep the contraction from packing its factors by vectors

A reduction is fused only into a pointwise reader at the same indices, as its epilogue. Of two
contractions with one reader only the larger is fused, since each needs its own loops. Formulas that
remain are materialized, one kernel each, and views share the storage of what they view. No choice
from which the order of a sum may follow depends on a size. `explained` receives each choice.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf, prod
from operator import is_

from ...dialect.kernel_ir.affine import affine, key
from ...dialect.kernel_ir.expressions import (
    Apply,
    Check,
    Const,
    Expr,
    Extent,
    Index,
    Read,
    Reduce,
    Tensor,
    When,
    apply,
)
from ...dialect.kernel_ir.formulas import Formula, Formulas, Nest, Step, View
from ...dialect.kernel_ir.reduce_in_order import LANES
from ...dialect.kernel_ir.traverse import children, rewrite, substitute, walk
from ...dialect.support.diagnostics import Span
from ...dialect.types.sizes import same_size
from ...dialect.types.tensor_types import F32, F64
from ..math import FUNCTIONS
from ..passes import formula_pass
from ..processor import processor
from .build_formulas import cost, reads, requirements_of
from .match_broadcast_index import unrepeated

# operations inside operations, at most: bounds the recursion of passes and emission
MAX_DEPTH = 80
# cost model: operations worth repeating rather than storing; tuned by hand (Zen 4, Zen 5)
CHEAP = 2
# changes no number, and is no product
ROUNDED = -0.0


@dataclass(frozen=True)
class Fusion:
    """A formula that others read, and why it is fused into them or stored."""

    tensor: Tensor
    readers: tuple[Tensor, ...]
    fused: bool
    why: str
    rounded: bool = False


@formula_pass
def fuse(program: Formulas, explained: list[Fusion] | None = None) -> Formulas:
    """An equivalent program of fewer, larger formulas."""
    uses = _uses(program)
    kept: list[Step] = []
    inlined: dict[Tensor, Formula] = {}
    views: dict[Tensor, View] = {}
    measures = _Measures()
    factors = _factors(program, uses)

    def store(t: Tensor) -> None:
        """Store a formula that was to be fused; a view then shares the storage of what it views."""
        if t in inlined:
            formula = inlined.pop(t)
            if t in views:
                store(views[t].of)
            kept.append(views.get(t, formula))

    results = set(program.results)
    for step in program.steps:
        if isinstance(step, View) and cost(step.formula.value) == 0 and step.tensor not in results:
            views[step.tensor] = step
            step = step.formula  # a pure renaming of indices fuses wherever it stays one
        if isinstance(step, View):
            store(step.of)
        if isinstance(step, Nest):
            for t in step.operands:
                store(t)
        if isinstance(step, Formula):
            step = _at_same_indices(step, inlined)
            measures.add(step, inlined)
            fused = [s for t in reads(step.value) if t in inlined for s in _spans(inlined[t])]
            spans = tuple(dict.fromkeys([*fused, *_spans(step)]))
            step = replace(step, value=_put(step.value, inlined, measures), spans=spans)
            choice = _choice(step, uses.get(step.tensor, []), measures, factors)
            if step.tensor in results:
                choice = replace(choice, fused=False, why="also a result")
            if _is_update(step):
                choice = replace(choice, fused=False, why="changes elements of a stored array")
            if choice.fused and step.tensor in measures.whole:
                rival = _rival(step, uses[step.tensor], inlined)
                if rival is not None and _terms(rival) < _terms(step):
                    store(rival.tensor)
                elif rival is not None:
                    choice = replace(choice, fused=False, why="its reader has a larger contraction")
            if explained is not None and choice.readers:
                explained.append(choice)
            if choice.rounded:
                step = replace(step, value=apply("add", step.value, ROUNDED))
            inlined[step.tensor] = step
            if not choice.fused:
                store(step.tensor)
        else:
            kept.append(step)
    live, needed = _live(program, kept)
    constants = {t: array for t, array in program.constants.items() if t in needed}
    return replace(program, steps=tuple(live), constants=constants)


def _is_update(formula: Formula) -> bool:
    """Test whether elements are those of another array where a condition does not hold, in whose
    place they may be stored.
    """
    value = formula.value
    while isinstance(value, Check):
        value = value.value
    match value:
        case When(_, _, Read(_, place)):
            return len(place) == len(formula.indices) and all(map(is_, place, formula.indices))
    return False


def _spans(formula: Formula) -> tuple[Span, ...]:
    return formula.spans or (formula.span,)


Use = tuple[Step, Read | None, tuple[Index, ...]]


def _uses(program: Formulas) -> dict[Tensor, list[Use]]:
    """The readers of each tensor: step, read node, and the indices in scope at the read."""
    uses: defaultdict[Tensor, list[Use]] = defaultdict(list)
    for step in program.steps:
        if isinstance(step, Nest) or (isinstance(step, View) and cost(step.formula.value)):
            for t in step.operands if isinstance(step, Nest) else (step.of,):
                uses[t].append((step, None, ()))
            continue
        formula = step.formula if isinstance(step, View) else step
        sites: dict[object, tuple[Read, tuple[Index, ...]]] = {}
        for read, scope in _reads(formula.value, formula.indices):
            sites.setdefault((read.tensor, *map(key, read.indices)), (read, scope))
        for read, scope in sites.values():
            uses[read.tensor].append((step, read, scope))
    return uses


def _results(step: Step) -> tuple[Tensor, ...]:
    return step.tensors if isinstance(step, Nest) else (step.tensor,)


def _reads(value: Expr, scope: tuple[Index, ...]) -> Iterator[tuple[Read, tuple[Index, ...]]]:
    seen: set[Expr] = set()
    stack = [(value, scope)]
    while stack:
        e, around = stack.pop()
        if e not in seen:
            seen.add(e)
            if isinstance(e, Read):
                yield e, around
            inside = (*around, *e.indices) if isinstance(e, Reduce) else around
            stack.extend((c, inside) for c in children(e))


class _Measures:
    """Node counts and depths of formulas, computed incrementally from the formulas fused into
    them.
    """

    def __init__(self) -> None:
        self.nodes: dict[Tensor, int] = {}  # an upper bound
        self.whole: set[Tensor] = (
            set()
        )  # tensors with a reduction, or with a check of every element
        self.depths: dict[Expr, int] = {}

    def add(self, formula: Formula, inlined: dict[Tensor, Formula]) -> None:
        """Measure a formula before its operands are fused into it."""
        own = list(walk(formula.value))
        parts = [e.tensor for e in own if isinstance(e, Read) and e.tensor in inlined]
        self.nodes[formula.tensor] = len(own) + sum(self.nodes[t] for t in parts)
        if any(isinstance(e, (Reduce, Check)) for e in own) or not self.whole.isdisjoint(parts):
            self.whole.add(formula.tensor)

    def too_large(self, formula: Formula) -> bool:
        most = processor().tuning.fused_nodes
        if self.nodes[formula.tensor] > most and len(walk(formula.value)) > most:
            return True
        return depth(formula.value, self.depths) > MAX_DEPTH


def _at_same_indices(formula: Formula, inlined: dict[Tensor, Formula]) -> Formula:
    """The formula over the indices of an operand that it reads at its own, so that this fuses
    unchanged.
    """
    for e in walk(formula.value):
        if isinstance(e, Read) and e.tensor in inlined and _same_indices(e, formula.indices):
            new = inlined[e.tensor].indices
            if all(
                same_size(a.extent, b.extent) for a, b in zip(formula.indices, new, strict=True)
            ):
                value = substitute(formula.value, dict(zip(formula.indices, new, strict=True)))
                return replace(formula, indices=new, value=value)
    return formula


def _choice(formula: Formula, uses: list[Use], measures: _Measures, factors: set[Tensor]) -> Fusion:
    """Fuse a formula into its readers, or store it, with the reason."""
    sites = [(read, scope, step) for step, read, scope in uses if read is not None]
    readers = tuple(dict.fromkeys(t for step, _, _ in uses for t in _results(step)))
    stored = partial(Fusion, formula.tensor, readers, False)
    fused = partial(Fusion, formula.tensor, readers, True)
    if not sites or len(sites) < len(uses):
        return stored("read by statements")
    if measures.too_large(formula):
        return stored("too large")
    read, scope, step = sites[0]
    single = len(sites) == 1
    if formula.tensor in measures.whole:
        is_epilogue = isinstance(step, Formula) and scope == step.indices
        if single and is_epilogue and _same_indices(read, scope):
            return fused("its reader is its epilogue")
        return stored("a reduction, read elsewhere than by one epilogue")
    if formula.tensor in factors and not _is_at_plain_places(formula):
        return stored("a factor of a contraction, whose place costs arithmetic at each read")
    if any(_is_term_along_memory(*site) for site in sites) and _is_costly_product(formula.value):
        if single and _injective(read, scope) and all(map(_fills_lanes, _sums(step))):
            return fused("each element is read once, and added as a rounded product", rounded=True)
        return stored("a product that would be added term by term")
    work = cost(formula.value, CHEAP)
    if work == 0:
        return fused("nothing to compute")
    if all(_injective(read, scope) for read, scope, _ in sites):
        if single or work <= CHEAP:
            return fused("each element is read once")
        return stored(f"several readers, more than {CHEAP} operations")
    if work > CHEAP or _has_function(formula.value):
        return stored(f"elements are read again, more than {CHEAP} operations")
    if single and _few_repeats(read, scope):
        return fused(f"at most {CHEAP} operations at each read")
    return stored("elements are read again by several readers, or not along vectors")


def _is_at_plain_places(formula: Formula) -> bool:
    """Test whether a formula reads at sums of multiples of its indices, on all sides of branches
    and selections.
    """
    return not any(
        isinstance(e, When)
        or (isinstance(e, Read) and not all(_is_sum(unrepeated(i)) for i in e.indices))
        for e in walk(formula.value)
    )


def _is_sum(index: Expr) -> bool:
    return all(isinstance(e, (Index, Extent)) for e, _ in affine(index).terms.values())


def _factors(program: Formulas, uses: dict[Tensor, list[Use]]) -> set[Tensor]:
    """The tensors that are factors in a sum of products, which may be two formulas.

    A tensor that one formula multiplies and another adds along its own last axis is none: it is
    added by lanes where it lies.
    """
    factors: set[Tensor] = set()
    terms: dict[Tensor, int] = {}  # the axis along which a tensor's elements are added
    multiplied: dict[Tensor, int] = {}  # and, once they are multiplied by others
    for step in reversed(program.steps):
        for t in _results(step):
            for by, read, _ in uses.get(t, []):
                formula = by.formula if isinstance(by, View) else by
                if read is None or not isinstance(formula, Formula):
                    continue
                for e in _sums(by):
                    if e.body is read and e.indices[-1] in read.indices:
                        terms[t] = read.indices.index(e.indices[-1])
                    elif _is_product(e.body) and read in walk(e.body):
                        factors.add(t)
                places = {
                    n: read.indices.index(i)
                    for n, i in enumerate(formula.indices)
                    if i in read.indices
                }
                at, value = formula.tensor, formula.value
                moved = value is read  # in another order
                if moved and terms.get(at) in places:
                    terms[t] = places[terms[at]]
                if moved and multiplied.get(at) in places:
                    multiplied[t] = places[multiplied[at]]
                if _is_product(value) and read in children(value) and terms.get(at) in places:
                    multiplied[t] = places[terms[at]]
    return factors | {t for t, axis in multiplied.items() if axis + 1 < t.rank}


def _fills_lanes(sum: Reduce) -> bool:
    """Test whether few terms of a sum of an array are beyond whole vectors, and computed one by
    one. Its order does not depend on where its terms are computed.
    """
    at = sum.body.indices if isinstance(sum.body, Read) else ()
    along = sum.indices if at[-len(sum.indices) :] == sum.indices else sum.indices[-1:]
    count = prod(i.extent for i in along) if all(isinstance(i.extent, int) for i in along) else 1
    return LANES * (count % LANES) <= count


def _is_term_along_memory(read: Read, scope: tuple[Index, ...], step: Step) -> bool:
    """Test whether a read is what a float sum adds, along the last axis of the array."""
    return any(
        e.body is read and e.type in (F32, F64) and read.indices[-1] is e.indices[-1]
        for e in _sums(step)
    )


def _sums(step: Step) -> Iterator[Reduce]:
    if isinstance(step, Formula):
        yield from (e for e in walk(step.value) if isinstance(e, Reduce) and e.function == "add")


def _is_product(term: Expr) -> bool:
    match term:
        case Apply("mul") | When(then=Apply("mul")):
            return True
    return False


def _is_costly_product(value: Expr) -> bool:
    """Test whether a value is a product whose factors are more than CHEAP operations."""
    return (
        isinstance(value, Apply)
        and value.function == "mul"
        and (cost(value, CHEAP) > CHEAP or _has_function(value))
    )


def _has_function(value: Expr) -> bool:
    """Test whether a value has a function that is dozens of operations in primitives."""
    return any(isinstance(e, Apply) and e.function in FUNCTIONS for e in walk(value))


def _rival(formula: Formula, uses: list[Use], inlined: dict[Tensor, Formula]) -> Formula | None:
    """The other contraction that would be fused into the same reader, if this formula is a
    contraction.
    """
    reader = uses[0][0]
    if not _terms(formula) or not isinstance(reader, Formula):
        return None
    return next(
        (inlined[t] for t in reads(reader.value) if t in inlined and _terms(inlined[t])), None
    )


def _terms(formula: Formula) -> float:
    """The number of products that a formula's contraction adds up per element; 0 without a
    contraction.
    """
    for e in walk(formula.value):
        match e:
            case Reduce("add", indices, Apply("mul", (a, b)) | When(then=Apply("mul", (a, b)))):
                one, other = ({*formula.indices} & {*walk(e)} for e in (a, b))
                if (
                    one - other and other - one
                ):  # each varies along an index on which the other does not depend
                    return prod(i.extent if isinstance(i.extent, int) else inf for i in indices)
    return 0


def depth(value: Expr, known: dict[Expr, int] | None = None) -> int:
    """The depth of an expression's operand graph; `known` caches depths."""
    depths = {} if known is None else known
    stack = [value]
    while stack:
        e = stack[-1]
        if unknown := [c for c in children(e) if c not in depths]:
            stack += unknown
        else:
            depths[e] = 1 + max((depths[c] for c in children(e)), default=0)
            stack.pop()
    return depths[value]


def _same_indices(read: Read, scope: tuple[Index, ...]) -> bool:
    """Test whether a read is at exactly the reader's indices, in order, or at 0 along one element,
    and covers all.
    """
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
    """Test whether no reduction runs over indices that the read lacks; where it may be broadcast it
    has them.
    """
    return bool(scope) and scope[-1] in {
        p for i in read.indices if (p := _plain(unrepeated(i))) is not None
    }


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


def _put(value: Expr, inlined: dict[Tensor, Formula], measures: _Measures) -> Expr:
    """Replace reads of inlined tensors in a value; equal reads give one shared expression."""
    values: dict[object, Expr] = {}

    def put(e: Expr) -> Expr | None:
        if not isinstance(e, Read) or e.tensor not in inlined:
            return None
        at = tuple([rewrite(i, put) for i in e.indices])
        place = (e.tensor, *map(key, at))
        if place not in values:
            formula = inlined[e.tensor]
            there: dict[Expr, Expr] = {
                i: new for i, new in zip(formula.indices, at, strict=True) if i is not new
            }
            value = substitute(formula.value, there)
            values[place] = (
                rewrite(value, _with_fresh_indices) if e.tensor in measures.whole else value
            )
        return values[place]

    return rewrite(value, put)


def _with_fresh_indices(e: Expr) -> Expr | None:
    """A reduction over fresh indices, so that a formula that is inlined twice shares no loop
    index.
    """
    if not isinstance(e, Reduce):
        return None
    new = tuple(Index(i.name, i.extent) for i in e.indices)
    body = substitute(e.body, dict(zip(e.indices, new, strict=True)))
    return Reduce(e.function, new, rewrite(body, _with_fresh_indices))


def _live(program: Formulas, steps: list[Step]) -> tuple[list[Step], set[Tensor]]:
    """The steps that some result depends on or that may fail, and the tensors that they read or
    return.
    """
    needed = set(program.results)
    live: list[Step] = []
    for step in reversed(steps):
        match step:
            case Formula():
                operands = reads(step.value)
            case View():
                operands = (step.of,)
            case Nest():
                operands = step.operands
        tensors = _results(step)
        if not needed.isdisjoint(tensors) or requirements_of(step):
            live.append(step)
            needed.update(operands)
    return live[::-1], needed
