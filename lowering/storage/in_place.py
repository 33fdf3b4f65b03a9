"""Store results in the arguments that they destroy, and updated copies in the arrays that they
begin as (XLA's buffer donation, MLIR's in-place bufferization).

    y[i] = f(x[i])                          =>  x[i] = f(x[i])
    for i { y[i] = x[i] };  y[k[]] = v[]    =>  x[k[]] = v[]
    y[i] = x[i], but e(i) where c(i)        =>  for i where c(i) { x[i] = e(i) }

Legal if the kernel reads x only at the index it writes, or to copy it, and no later kernel reads x;
or else callers copy. The second holds for arrays that kernels computed, too, and for what a step of
a loop carries: such a loop works on a copy of what it begins with.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import inf, prod
from operator import is_

from ...dialect.kernel_ir.affine import affine, affine_conditions
from ...dialect.kernel_ir.execution_plan import Loop, Plan, viewed
from ...dialect.kernel_ir.expressions import (
    ZERO,
    Const,
    Expr,
    Index,
    Read,
    Tensor,
    Var,
    as_index,
    both,
    conjunction,
)
from ...dialect.kernel_ir.loops import (
    Assert,
    Block,
    For,
    If,
    Kernel,
    Let,
    Store,
    nested,
    outer_loops,
    redirect,
    substitute_block,
)
from ...dialect.kernel_ir.traverse import substitute
from ...dialect.types.sizes import Dim, same_size
from ..analysis.accesses import accesses, depends, over_arrays, reads
from ..loops.build_loops import copied, sorted_tensors
from ..loops.tighten_bounds import bound, narrowed
from ..pass_context import Context
from ..passes import plan_pass


@plan_pass
def in_place(plan: Plan, context: Context) -> Plan:
    """The plan with the results of `context.overwritten` stored in the arguments that it maps them
    to, where legal.
    """
    plan = _without_copies(_with_starts(plan), {**context.overwritten, **context.carried})
    kernels = plan.kernels
    results = plan.results
    arguments = plan.arguments
    views = plan.views
    uses = [_Uses(kernel) for kernel in kernels]
    writers = Counter(t for u in uses for t in u.results)
    writer = {t: n for n, u in enumerate(uses) for t in u.results}
    last = {t: n for n, kernel in enumerate(kernels) for t in kernel.parameters}
    seen: dict[Tensor, int] = {}  # the last kernel with a view of the array as a parameter
    for t in views:
        root = viewed(t, views)
        seen[root] = max(last.get(t, -1), seen.get(root, -1))
    times = Counter(results)
    taken = set[Tensor]()
    names: dict[Tensor, Tensor] = {}
    found, given = list(results), set(arguments)
    for n, k in context.overwritten.items():
        result, argument = results[n], arguments[k]
        if result is argument:
            taken.add(argument)
            continue
        alone = (
            writers[result] == 1
            and times[result] == 1
            and result not in given
            and argument not in taken
        )
        if not alone or result in seen or not seen.get(argument, -1) < writer[result]:
            continue
        if last.get(argument, -1) <= writer[result] and uses[writer[result]].allow(
            result, argument
        ):
            names[result] = found[n] = argument
            taken.add(argument)
    ranges = {
        t: r for t, r in plan.ranges.items() if t not in taken
    }  # an argument holds a result in the end
    renamed = tuple(over_arrays(kernel, names) for kernel in kernels)
    return replace(plan, kernels=renamed, results=tuple(found), ranges=ranges)


def _with_starts(plan: Plan) -> Plan:
    """The plan with copies of the values that loops of a known number of steps update in place."""
    kernels: list[Kernel] = []
    for loop in plan.kernels:
        outputs = loop.outputs
        if isinstance(loop, Loop) and loop.steps.trips is not None:
            operands = [loop.parameters[n] for n in loop.operands]
            moved = [k for k in loop.in_place if operands[k] is not outputs[k]]
            kernels += [copied(operands[k], outputs[k], f"{loop.name}.start") for k in moved]
            for k in moved:
                operands[k] = outputs[k]
            inputs = sorted_tensors({*operands})
            spares = tuple(
                replace(t, shape=(0,)) if n in loop.in_place else t
                for n, t in enumerate(loop.scratch)
            )
            loop = replace(
                loop,
                parameters=(*inputs, *outputs),
                operands=tuple(map(inputs.index, operands)),
                scratch=spares,
            )
        kernels.append(loop)
    return replace(plan, kernels=tuple(kernels))


def _without_copies(plan: Plan, moving: Mapping[int, int]) -> Plan:
    """The plan with each array that begins as a copy of another one in the place of that, where no
    kernel reads the other one later; an argument is overwritten by the result that `moving` maps
    to it alone.
    """
    results, views = plan.results, plan.views
    kernels = plan.kernels
    begun = {k: updates for k in kernels if (updates := _as_update(k)) is not None}
    starts = {k: _copy_at_start(begun[k][-1] if k in begun else k) for k in kernels}
    if moving and any(copy is not None for copy in starts.values()):
        kernels = _copying_late(kernels, views, starts)
    copies = [starts[kernel] for kernel in kernels]
    roots = [viewed(r, views) for r in results]
    ends = {(plan.arguments[k], roots[n]) for n, k in moving.items()}  # of the steps of a loop
    first: dict[Tensor, int] = {}
    last: dict[Tensor, int] = {}
    for n, kernel in enumerate(kernels):
        if len(kernel.body) != 1 or copies[n] not in ends:
            for t in (viewed(p, views) for p in kernel.parameters):
                first.setdefault(t, n)
                last[t] = n
    given = {*plan.arguments, *plan.constants, *views}
    taking: dict[Tensor, Tensor] = {}  # the place of an array: the one that begins as its copy
    sources: dict[Tensor, Tensor] = {}  # what that copies: the array, or a view of it
    for n, copy in enumerate(copies):
        if copy is not None:
            y, x = copy
            start = viewed(x, views)
            shown = [p for p in kernels[n].parameters if viewed(p, views) is start]
            alone = y not in given and roots.count(y) <= 1 and start not in plan.constants
            ended = start in plan.arguments or start not in roots
            if alone and ended and shown == [x] and first[y] == n == last[start]:
                taking[start], sources[y] = y, x
    for x in [x for x in taking if x in plan.arguments]:
        end = x
        while end in taking:
            end = taking[end]
        if (x, end) not in ends:
            del taking[x]
    names: dict[Tensor, Tensor] = {}
    homes: dict[Tensor, Tensor] = {}  # the argument that holds an array
    viewed_or_view = {*views, *views.values()}
    for x in taking.keys() - taking.values():
        places = [x]
        while places[-1] in taking:
            places.append(taking[places[-1]])
        if x in plan.arguments:
            for y in places[1:]:
                names[y], homes[y] = names.get(sources[y], sources[y]), x
        elif viewed_or_view.isdisjoint((*places, *(sources[y] for y in places[1:]))):
            names |= dict.fromkeys(places, places[-1])
    if not names:
        return plan
    found: list[Kernel] = []
    for kernel, copy in zip(kernels, copies, strict=True):
        if copy is not None and names.get(copy[0], copy[0]) is names.get(copy[1], copy[1]):
            *before, kernel = begun.get(kernel, (kernel,))
            found += [over_arrays(k, names) for k in before]
            kernel = kernel.with_body(kernel.body[1:])
        if kernel.body or isinstance(kernel, Loop):
            found.append(over_arrays(kernel, names))
    return replace(
        plan,
        kernels=tuple(found),
        results=tuple(
            homes[root] if root in homes else names.get(r, r)
            for r, root in zip(results, roots, strict=True)
        ),
        views={view: names.get(of, of) for view, of in views.items()},
        ranges={t: r for t, r in plan.ranges.items() if t not in names},
    )


def _copying_late(
    kernels: Sequence[Kernel],
    views: Mapping[Tensor, Tensor],
    starts: Mapping[Kernel, tuple[Tensor, Tensor] | None],
) -> list[Kernel]:
    """The kernels in an order in which those that begin with a copy come after all that need not
    come after them.
    """
    uses = [
        ({viewed(p, views) for p in k.parameters}, {viewed(p, views) for p in k.outputs})
        for k in kernels
    ]
    waiting = [*range(len(kernels))]
    found: list[Kernel] = []
    late = [starts[k] is not None for k in kernels]

    def is_ready(n: int) -> bool:
        before = (uses[m] for m in waiting[: waiting.index(n)])
        return not any(uses[n][1] & used or uses[n][0] & written for used, written in before)

    while waiting:
        ready = [n for n in waiting if is_ready(n)]
        n = next((n for n in ready if not late[n]), ready[0])
        waiting.remove(n)
        found.append(kernels[n])
    return found


def _as_update(kernel: Kernel) -> tuple[Kernel, ...] | None:
    """A kernel whose result has the elements of another array where a condition does not hold, as
    one that copies that array and stores the others; before it, one that computes those, where
    they depend on other elements of that array, of which they are at most half.
    """
    indices, block = outer_loops(kernel.body)
    split = next((n for n, s in enumerate(block) if isinstance(s, If)), len(block))
    first, rest = block[:split], block[split:]
    match rest:
        case (
            If(condition, (*then, Store(a, (), value)), (Store(b, (), Read(x, place)),)),
            Store(y, at, Read(c, ())),
        ) if a is b is c and y is not x and y in kernel.outputs and kernel.results == 1:
            pass
        case _:
            return None
    if not _same_place(at, indices) or not _same_place(place, indices):
        return None
    lets: dict[Expr, Expr] = {s.var: s.value for s in first if isinstance(s, Let)}
    checks = tuple(s for s in first if isinstance(s, Assert))
    if len(lets) + len(checks) + 1 != len(first) or any(
        depends(s.condition, {*indices, *lets}) for s in checks
    ):
        return None
    for var, let in lets.items():
        lets[var] = substitute(let, lets)
    condition = substitute(condition, lets)
    inner = (*(s for s in first if isinstance(s, Let)), *then)
    store = Store(y, at, value)
    others = [r.indices for r in reads((If(condition, (*inner, store)),)) if r.tensor is x]
    before: tuple[Kernel, ...] = ()
    box, exact = _box(condition, indices)
    few = box and 2 * prod(m for _, m in box if isinstance(m, int)) <= _known(y, box)
    if not all(_same_place(other, indices) for other in others):
        if not few or not exact or any(r.tensor is x for r in reads((If(condition, ()),))):
            return None
        sizes = [m for _, m in box]
        u = [Index(f"u{n}", m) for n, m in enumerate(sizes)]
        values = Tensor(f"{y.name}.slice", tuple(sizes), y.element, "heap")
        moved: dict[Expr, Expr] = {
            d: low + i for d, i, (low, _) in zip(indices, u, box, strict=True)
        }
        body = substitute_block((*inner, Store(values, tuple(u), value)), moved)
        reading = sorted_tensors({r.tensor for r in reads(body) if r.tensor.space != "register"})
        before = (
            replace(
                kernel,
                name=f"{kernel.name}.slice",
                parameters=(*reading, values),
                body=nested(u, body),
            ),
        )
        inner = ()
        low = (d - b for d, (b, _) in zip(indices, box, strict=True))
        store = Store(y, at, values[tuple(low)])
    change = redirect((If(condition, (*inner, store)),), lambda t, i: (y, at) if t is x else None)
    body = (*nested(indices, (Store(y, at, x[at]),)), *_once(checks, indices))
    updates = nested(indices, change)
    body = (*body, *(narrowed(updates) if few else updates))
    needed = sorted_tensors({r.tensor for r in reads(body) if r.tensor.space != "register"} - {y})
    return (*before, replace(kernel, parameters=(*needed, y), body=body))


def _same_place(place: Sequence[Expr], indices: Sequence[Index]) -> bool:
    """Test whether indices of an array are those of the loops."""
    return len(place) == len(indices) and all(
        e is i or ((d := affine(e) - affine(i)).constant == 0 and not d.terms)
        for e, i in zip(place, indices, strict=True)
    )


def _once(checks: Block, indices: Sequence[Index]) -> Block:
    """Assertions that hold for all iterations or none, before loops that have iterations."""
    some = both(*(as_index(i.extent) > 0 for i in indices if not isinstance(i.extent, int)))
    if not checks or any(same_size(i.extent, 0) for i in indices):
        return ()
    return (If(some, checks),) if isinstance(some, Expr) else checks


Box = list[tuple[Expr, Dim]]


def _box(condition: Expr, indices: Sequence[Index]) -> tuple[Box, bool]:
    """The first value and the number of those of each index outside of which a condition does not
    hold, and whether it holds for all of them; none if a number of them is not known.
    """
    lows: dict[Index, Expr] = {}
    highs: dict[Index, Expr] = {}
    exact = True
    for part in conjunction(condition):
        sums = affine_conditions(part) or []
        for sum in sums:
            over = [i for i in indices if sum.factor(i)]
            found = bound(sum, over[0]) if len(over) == 1 else None
            if found is None or over[0] in (lows if found[0] else highs):
                exact = False
            else:
                (lows if found[0] else highs)[over[0]] = found[1]
        exact = exact and bool(sums)
    box: Box = []
    for i in indices:
        low, high = lows.get(i, ZERO), highs.get(i, as_index(i.extent))
        length = affine(high) - affine(low)
        if i not in lows and i not in highs:
            box.append((ZERO, i.extent))
        elif length.terms or length.constant <= 0:
            return [], False
        else:
            box.append((low, length.constant))
    return box, exact


def _known(y: Tensor, box: Box) -> float:
    """The elements of an array along those axes where a slice of it has a known size."""
    pairs = zip(y.shape, box, strict=True)
    return prod(n if isinstance(n, int) else inf for n, (_, m) in pairs if isinstance(m, int))


def _copy_at_start(kernel: Kernel) -> tuple[Tensor, Tensor] | None:
    """The array that the first loops of a kernel fill by a copy of another one of its shape, and
    that one, which nothing else of the kernel reads or writes.
    """
    if kernel.condition is not None or not kernel.body:
        return None
    indices, block = outer_loops(kernel.body[:1])
    match block:
        case (Store(y, at, Read(x, place)),):
            whole = len(at) == len(place) == len(indices) and all(
                a is b is i for a, b, i in zip(at, place, indices, strict=True)
            )
            same = (
                x is not y
                and x.element is y.element
                and all(map(same_size, (i.extent for i in indices), y.shape))
                and all(map(same_size, x.shape, y.shape))
            )
            if not whole or not same or y not in kernel.outputs:
                return None
            read, stored = accesses(kernel.body[1:])
            return None if x in read or x in stored else (y, x)
        case _:
            return None


def overwriting(kernels: Sequence[Kernel], own: Collection[Tensor]) -> list[Kernel]:
    """Kernels with those of their results that are their own in the place of others that are read
    for the last time, where legal.
    """
    last = {t: n for n, kernel in enumerate(kernels) for t in kernel.inputs if t in own}
    names: dict[Tensor, Tensor] = {}
    for n, kernel in enumerate(kernels):
        uses = _Uses(kernel)
        free = [t for t in kernel.inputs if last.get(t) == n]
        for y in kernel.outputs:
            for x in free:
                if (x.shape, x.element) == (y.shape, y.element) and y in last and uses.allow(y, x):
                    names[y] = names.get(x, x)
                    free.remove(x)
                    break
    return [over_arrays(kernel, names) for kernel in kernels]


class _Uses:
    """The reads and stores of each array by a kernel, and the results stored after the last
    read.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.results = kernel.outputs
        self.reads, self.stores = accesses(kernel.body)
        self.last = set(self.results) if kernel.results == 1 else _stored_last(kernel.body)

    def allow(self, result: Tensor, argument: Tensor) -> bool:
        """Test whether the kernel may store a result in the argument's storage."""
        if len(self.stores.get(result, ())) != 1 or result in self.reads or result not in self.last:
            return False
        (at,) = self.stores[result]
        return all(
            len(place) == len(at) and all(map(is_, place, at))
            for place in self.reads.get(argument, ())
        )


def _stored_last(block: Block) -> set[Tensor]:
    """The tensors that the innermost block of a nest stores, as variables and constants, after its
    other statements.
    """
    while len(block) == 1 and isinstance(block[0], For):
        block = block[0].body
    found: set[Tensor] = set()
    for s in reversed(block):
        if not isinstance(s, Store) or not isinstance(s.value, (Var, Const)):
            break
        found.add(s.tensor)
    return found
