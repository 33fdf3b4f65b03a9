"""Long folds into few elements, by blocks that may run at the same time:

    y[] = sum over k in 0..16777216 of x[k]
    =>  parts[b] = sum over k in 0..4096 of x[b * 4096 + k];  y[] = sum over b in 0..4096 of parts[b]

How long a block is depends on the extents alone, so the order of a fold of floats is the same for every target and number of
threads: that of `lanes` within a block, then the blocks from the first to the last.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ...dialect.index import Check, Const, Expr, Index, Read, Reduce, Tensor, When, axes, both
from ...dialect.loops import identity
from ...dialect.traverse import rewrite, substitute, walk
from ..formulas import Formula, Formulas, Step, View

LONG = 1 << 18  # terms of a fold that is worth blocks
BLOCK = 1 << 12  # terms of a block, about: few, so that the lanes of all blocks keep a GPU busy
FEW = 16  # elements: of more, several threads compute different ones
ENOUGH = 16  # values of an index that is split
ASSOCIATIVE = ("add", "mul", "max", "min", "maximum", "minimum", "and", "or", "xor")


def block_folds(program: Formulas) -> Formulas:
    """The formulas, long folds computed in two steps."""
    return replace(program, steps=tuple(made for step in program.steps for made in _steps(step)))


def _steps(step: Step) -> tuple[Step, ...]:
    if not isinstance(step, Formula):
        return (step,)
    nodes = list(walk(step.value))
    folds = [e for e in nodes if isinstance(e, Reduce)]
    if len(folds) != 1 or any(isinstance(e, Check) for e in nodes):
        return (step,)
    (fold,) = folds
    extents = [i.extent for i in (*fold.indices, *step.indices) if isinstance(i.extent, int)]
    if len(extents) != len(fold.indices) + len(step.indices) or fold.function not in ASSOCIATIVE:
        return (step,)
    terms, points = prod(extents[: len(fold.indices)]), prod(extents[len(fold.indices) :])
    if terms < LONG or points > FEW:
        return (step,)
    return _in_two(step, fold, terms)


def _in_two(step: Formula, fold: Reduce, terms: int) -> tuple[Step, ...]:
    sizes = {i: i.extent for i in fold.indices if isinstance(i.extent, int)}
    first = fold.indices[0]
    split = first if sizes[first] >= ENOUGH else max(fold.indices, key=lambda i: sizes[i])
    length = _length(sizes[split], max(1, BLOCK * sizes[split] // terms))
    count = -(-sizes[split] // length)
    if count < 2:
        return (step,)
    block, inner = Index("b", count), Index(split.name, length)
    around = tuple(Index(i.name, i.extent) for i in step.indices)
    names: dict[Expr, Expr] = dict(zip(step.indices, around, strict=True))
    views, body = _viewed(fold.body, split, block, inner) if sizes[split] % length == 0 else ([], fold.body)
    body = substitute(body, {**names, split: block * length + inner})
    if sizes[split] % length:
        body = _where(block * length + inner < sizes[split], body, fold.function)
    within = Reduce(fold.function, tuple(inner if i is split else i for i in fold.indices), body)
    parts = Tensor(f"{step.tensor.name}.parts", (count, *(i.extent for i in step.indices)), fold.type, "heap")
    every = Index("b", count)
    joined = Reduce(fold.function, (every,), parts[(every, *step.indices)])
    value = rewrite(step.value, lambda e: joined if e is fold else None)
    return *views, Formula(parts, (block, *around), within, step.span), replace(step, value=value)


def _viewed(body: Expr, split: Index, block: Index, inner: Index) -> tuple[list[View], Expr]:
    """Arrays that are read at the split index itself, seen with an axis for each of its two parts: so loops can be joined."""
    views: dict[Tensor, View] = {}

    def put(e: Expr) -> Expr | None:
        if (
            not isinstance(e, Read)
            or e.indices.count(split) != 1
            or e.tensor.shape[at := e.indices.index(split)] != split.extent
        ):
            return None
        shape = (*e.tensor.shape[:at], block.extent, inner.extent, *e.tensor.shape[at + 1 :])
        if e.tensor not in views:
            seen = Tensor(f"{e.tensor.name}.blocks", shape, e.tensor.element, "heap")
            where = axes(shape)
            position = where[at] * inner.extent + where[at + 1]
            element = e.tensor[(*where[:at], position, *where[at + 2 :])]
            views[e.tensor] = View(seen, e.tensor, Formula(seen, where, element))
        found = views[e.tensor].tensor
        return found[(*e.indices[:at], block, inner, *e.indices[at + 1 :])] if found.shape == shape else None

    made = rewrite(body, put)
    return list(views.values()), made


def _length(extent: int, most: int) -> int:
    """How many values of an index a block takes: a divisor of their number where one is near."""
    return next((n for n in range(most, most // 2, -1) if extent % n == 0), most)


def _where(condition: Expr, body: Expr, function: str) -> Expr:
    """The body, or nothing to fold."""
    nothing = identity(function, body.type)
    assert isinstance(nothing, Const)
    match body:
        case When(given, then, Const(value) as otherwise) if value == nothing.value:
            joined = both(condition, given)
            assert isinstance(joined, Expr)
            return When(joined, then, otherwise)
    return When(condition, body, nothing)
