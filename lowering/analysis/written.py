"""Proofs that elements are written before they are read, and that results are written whole.

The place that is read is taken apart: each store before it covers the part where the values of its
loops' indices, solved from its subscripts, lie within its bounds and guards. What no store covers
stays. (As in the array dataflow analysis of Feautrier, but with the prover of bounds in place of
integer programming: what is not proved is unknown, and counts as not written.)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.kernel_ir.affine import Affine, affine, affine_conditions, key, negated_conditions
from ...dialect.kernel_ir.execution_plan import Loop, Plan
from ...dialect.kernel_ir.traverse import walk
from ...dialect.types.linear_form import Key
from .instances import Access, Instance, Nest, Side, apart
from .prove import definition, plain, prove

MAX_PARTS = 24  # parts into which a place is taken apart, at most; bounds compile time (by hand)
FILLED = ": it is filled with zeros; `zero` after its type says so"
# least value of open sizes for which an element is reported as not written; chosen by hand
LEAST_SIZE = 4


@dataclass(frozen=True, eq=False)
class Unwritten:
    """An array that is read, or returned, where it is not proved to be written; `sure` if it never
    is.
    """

    kernel: ir.Kernel
    tensor: ex.Tensor
    statement: ir.Statement | None
    sure: bool
    element: str = ""

    @property
    def message(self) -> str:
        name = f"kernel @{self.kernel.name}: %{self.tensor.name}"
        if self.statement is None:
            if self.sure:
                return f"{name} is a result, and its element {self.element} is never written"
            return f"{name} is a result, and not proved to be written whole{FILLED}"
        if self.sure:
            return f"{name} is read before it is written"
        return f"{name} is not proved to be written before it is read{FILLED}"


@dataclass(frozen=True)
class _Part:
    """A part of a place: the facts and the branches under which it is that."""

    facts: tuple[Affine, ...]
    literals: frozenset[Side] = frozenset()


def unwritten(plan: Plan) -> list[Unwritten]:
    """The buffers and results of a plan's kernels that are not proved to be written before they are
    read or returned.
    """
    found: list[Unwritten] = []
    home = plan.home
    known = {home.get(t, t) for t in (*plan.arguments, *plan.constants)}
    for n, kernel in enumerate(plan.kernels):
        outputs = [t for t in kernel.outputs if home.get(t, t) not in known]
        if isinstance(kernel, Loop):
            found += unwritten(kernel.plan)
        elif kernel.condition is None:
            found += unwritten_in(kernel, outputs)
        else:
            found += unwritten_in(kernel)
            found += [u for t in outputs for u in _in_versions(plan, n, t)]
        known.update(home.get(t, t) for t in outputs)
    return found


def _in_versions(plan: Plan, first: int, tensor: ex.Tensor) -> list[Unwritten]:
    """An output that a kernel with a condition is the first to write: it is written where it, or
    kernels before the first that reads it, write it whole, and one of their conditions holds.
    """
    home = plan.home
    of = home.get(tensor, tensor)
    versions: list[tuple[ir.Kernel, ex.Tensor]] = []
    for kernel in plan.kernels[first:]:
        given = kernel.given if isinstance(kernel, Loop) else kernel.inputs
        if isinstance(kernel, Loop) or any(home.get(t, t) is of for t in given):
            break
        versions += [(kernel, t) for t in kernel.outputs if home.get(t, t) is of]
    parts = [[u for u in unwritten_in(k, [t]) if u.tensor is t] for k, t in versions]
    if not any(parts) and _exhaustive([k.condition for k, _ in versions]):
        return []
    if len(parts) == 1 and any(u.sure for u in parts[0]):
        return parts[0]
    return [Unwritten(plan.kernels[first], tensor, None, False)]


def _exhaustive(conditions: Sequence[ex.Expr | None]) -> bool:
    """Test whether one of the conditions holds in every call: their negations contradict."""
    negated: list[list[list[Affine]]] = []
    for condition in conditions:
        if condition is None:
            return True
        forms = [negated_conditions(c) for c in ex.conjunction(condition)]
        negated.append([f for f in forms if f])
    if any(not ways for ways in negated) or prod(map(len, negated)) > MAX_PARTS:
        return False
    return all(_contradict([f for forms in ways for f in forms]) for ways in product(*negated))


def _contradict(facts: list[Affine]) -> bool:
    """Test whether one of the facts is proved not to hold where the others do."""
    return any(
        prove((f * -1).plus(-1), [*facts[:n], *facts[n + 1 :]], {}) for n, f in enumerate(facts)
    )


def unwritten_in(kernel: ir.Kernel, results: Sequence[ex.Tensor] = ()) -> list[Unwritten]:
    """The buffers of a kernel, and of its results these, that are not proved to be written; one
    entry for each.
    """
    nest = Nest(kernel.body, kernel.condition)
    found: dict[ex.Tensor, Unwritten] = {}
    for read in nest.reads:
        tensor = read.tensor
        if (tensor in nest.depth or tensor in results) and not (
            tensor in found and found[tensor].sure
        ):
            at = Instance(nest, read, {})
            if not covered(nest, read, at, at.indices()):
                sure = _never_before(nest, read)
                if sure or tensor not in found:
                    found[tensor] = Unwritten(kernel, tensor, read.statement, sure)
    for result in results:
        if result in found and not found[result].sure:
            continue
        place = tuple(ex.Index(f"p{n}", d) for n, d in enumerate(result.shape))
        for p in place:
            nest.rank(p)
        if result not in found and not covered(nest, None, None, place, result):
            element = _never(nest, result)
            found[result] = Unwritten(kernel, result, None, element is not None, element or "")
    return [*found.values()]


def _inside(place: Sequence[ex.Expr], tensor: ex.Tensor) -> list[Affine]:
    sizes = [affine(ex.as_index(d)) for d in tensor.shape]
    places = [affine(p) for p in place]
    inside = [f for p, d in zip(places, sizes, strict=True) for f in (p, (d - p).plus(-1))]
    return [*inside, *(d.plus(-1) for d in sizes)]


def covered(
    nest: Nest,
    read: Access | None,
    at: Instance | None,
    place: Sequence[ex.Expr],
    result: ex.Tensor | None = None,
) -> bool:
    """Test whether stores cover a place: of a read, those before it; of a result, all."""
    tensor = read.tensor if read is not None else result
    assert tensor is not None
    facts = _inside(place, tensor)
    literals: list[Side] = []
    if nest.condition is not None:
        facts += [f for c in ex.conjunction(nest.condition) for f in affine_conditions(c) or []]
    if at is not None:
        facts += at.facts()
        literals += at.sides()
    parts = [_Part(tuple(map(plain, facts)), frozenset(literals))]
    for store in nest.stores:
        if store.tensor is not tensor or nest.is_left_out(store, read):
            continue
        for conditions, branches in _regions(nest, store, read, place):
            parts = [rest for p in parts for rest in _without(nest, p, conditions, branches)]
            if not parts:
                return True
            if len(parts) > MAX_PARTS:
                return False
    return False


def _without(
    nest: Nest, part: _Part, conditions: list[Affine], branches: list[Side]
) -> Iterator[_Part]:
    """The parts of a part that do not meet all conditions."""
    if any((i, not side) in part.literals for i, side in branches):
        yield part
        return
    facts = part.facts
    for c in map(plain, conditions):
        if not prove(c, facts, nest.order):
            negated = (c * -1).plus(-1)
            yield _Part((*facts, negated, *_of_dividends(negated)), part.literals)
            facts = (*facts, c)
    for i, side in branches:
        if (i, side) not in part.literals:
            yield _Part(facts, part.literals | {(i, not side)})


def _of_dividends(fact: Affine) -> Iterator[Affine]:
    """The facts about dividends that follow from one about their quotients, which are eliminated
    first: p >= 8 * n from p // 8 >= n.
    """
    for quotient, factor in fact.terms.values():
        for known in definition(quotient):
            if (mine := known.factor(quotient)) * factor < 0:
                yield plain(fact * abs(mine) + known * abs(factor))


def _regions(
    nest: Nest, store: Access, read: Access | None, place: Sequence[ex.Expr]
) -> Iterator[tuple[list[Affine], list[Side]]]:
    """The conditions under which a store has written a place: one set for each order of the loops
    that both are in.
    """
    common = 0
    if read is not None:
        pairs = zip(store.loops, read.loops, strict=False)
        while (
            common < min(len(store.loops), len(read.loops)) and next(pairs)[0] is read.loops[common]
        ):
            common += 1
    private = min(nest.depth.get(store.tensor, 0), common)
    values: dict[ex.Expr, ex.Expr] = {s.index: s.index for s in store.loops[:private]}
    exact = _solve(nest, store, place, values)
    if exact is None:
        return
    before = read is None or store.position < read.position
    free = [s for s in store.loops if s.index not in values]
    choices: list[list[ex.Expr]] = []
    for s in free:
        if s in store.loops[:common]:
            choices.append([s.index] if before else [s.index - 1])
        else:
            choices.append([s.start])
    for chosen in product(*choices):
        found = dict(values)
        for s, e in zip(free, chosen, strict=True):
            at = Instance(nest, store, found)
            found[s.index] = e if s in store.loops[:common] else at.at(e)
        instance = Instance(nest, store, found)
        conditions = [*exact]
        for s in store.loops[private:]:
            conditions += instance.bounds(s)[1:]
        around = len(nest.around.get(store.tensor, ()))
        shared = store.loops[private:common]
        steps = [affine(s.index) - affine(found[s.index]) for s in shared]
        guards, branches = instance.guards(around)
        ways = [(guards, branches)]
        if guards and (sides := instance.sides(around)):
            ways.append(([], sides))
        for forms, branches in ways:
            if not all(map(_is_known, (*conditions, *forms))):
                continue
            for n in range(len(shared) + before):
                order = [f for d in steps[:n] for f in (d, d * -1)]
                order += [d.plus(-1) for d in steps[n : n + 1]]
                yield [*order, *conditions, *forms], branches


def _is_known(form: Affine) -> bool:
    """Test whether a condition has no value that is unknown at the instance."""
    return not any(
        isinstance(n, ex.Var) and n.name == "unknown"
        for a, _ in form.terms.values()
        for n in walk(a)
    )


def _solve(
    nest: Nest, store: Access, place: Sequence[ex.Expr], values: dict[ex.Expr, ex.Expr]
) -> list[Affine] | None:
    """Solve a store's subscripts for its indices, which join `values`; what has to hold besides, or
    None.
    """
    conditions: list[Affine] = []
    indices = {s.index: s for s in store.loops}
    waiting = list(zip(store.indices, place, strict=True))
    for _ in range(len(waiting) + 1):
        later = []
        for subscript, p in waiting:
            form = affine(Instance(nest, store, values).at(subscript))
            unknown = [(a, f) for a, f in form.terms.values() if a in indices and a not in values]
            if any(
                n in indices and n not in values
                for a, _ in form.terms.values()
                if a not in indices
                for n in walk(a)
            ):
                later.append((subscript, p))
                continue
            rest = affine(p) - form
            for a, f in unknown:
                rest = rest + Affine({key(a): (a, f)})
            if not unknown:
                conditions += [rest, rest * -1]
                continue
            unknown.sort(key=lambda t: -abs(t[1]))
            least = unknown[-1][1]
            if any(f < 0 for _, f in unknown[:-1]) or least < -1:
                return None
            beyond = -rest.constant % least if least > 0 else 0
            left = rest.plus(beyond).expression()
            for index, factor in unknown:
                if abs(factor) == 1:
                    values[index] = left if factor == 1 else ex.ZERO - left
                else:
                    values[index], left = left // factor, left % factor
            if least > 1:
                rest = affine(left).plus(-beyond)
                conditions += [rest, rest * -1]
        if not later:
            return conditions
        waiting = later
    return None


# what is never written


def _open_sizes(nest: Nest, tensor: ex.Tensor) -> list[Affine]:
    sizes: dict[Key, ex.Expr] = {}
    for e in (
        n
        for s in (*nest.stores, *nest.reads)
        for t in s.loops
        for b in (t.start, t.end)
        for n in walk(b)
    ):
        if isinstance(e, ex.Extent):
            for atom, _ in affine(e).terms.values():
                sizes[key(atom)] = atom
    for d in tensor.shape:
        for atom, _ in affine(ex.as_index(d)).terms.values():
            sizes[key(atom)] = atom
    return [affine(a).plus(-LEAST_SIZE) for a in sizes.values() if isinstance(a, ex.Extent)]


def _never(nest: Nest, result: ex.Tensor) -> str | None:
    """An element of a result, near its corners, that no store reaches; None if none is found."""
    corners = []
    for d in result.shape:
        n = ex.as_index(d)
        ends = [ex.ZERO, ex.as_index(1), n - 1, n - 2]
        small = isinstance(d, int) and d < len(ends)
        corners.append([ex.as_index(k) for k in range(d)] if small else ends)
    open_sizes = _open_sizes(nest, result)
    stores = [s for s in nest.stores if s.tensor is result]
    if any(isinstance(d, int) and not d for d in result.shape) or len(corners) > 3:
        return None
    for place in product(*corners):
        if all(_misses(nest, s, {}, place, open_sizes) for s in stores):
            from ...dialect.kernel_ir.kernel_printer import Names, expression_text

            return f"[{', '.join(expression_text(p, Names(), p.type) for p in place)}]"
    return None


def _misses(
    nest: Nest,
    store: Access,
    values: dict[ex.Expr, ex.Expr],
    place: Sequence[ex.Expr],
    facts: list[Affine],
) -> bool:
    at = Instance(nest, store, values)
    known = [*facts, *at.facts()]
    never_runs = any(prove((f * -1).plus(-1), known, nest.order) for f in at.facts())
    return never_runs or apart(nest, at.indices(), tuple(place), known)


def _never_before(nest: Nest, read: Access) -> bool:
    """Test whether the first instance of a read is executed, and no store before it reaches its
    place.
    """
    if nest.jumps or len(read.path) > len(read.loops):
        return False  # it may not be executed
    values: dict[ex.Expr, ex.Expr] = {}
    for s in read.loops:
        values[s.index] = Instance(nest, read, values).at(s.start)
    first = Instance(nest, read, values)
    sizes = _open_sizes(nest, read.tensor)
    conditions, branches = first.guards()
    runs = [*conditions, *(f for s in read.loops for f in first.bounds(s))]
    if branches or not all(prove(f, sizes, nest.order) for f in runs):
        return False
    place = first.indices()
    for store in nest.stores:
        if store.tensor is not read.tensor or store.position > read.position:
            continue
        shared: dict[ex.Expr, ex.Expr] = {
            s.index: values[s.index] for s in store.loops if s in read.loops
        }
        if not _misses(nest, store, shared, place, sizes):
            return False
    return True
