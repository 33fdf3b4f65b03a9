"""Peel loops at the boundaries where guards of inner loops change, so that the interior has no
branch.

    for q in 0..8 { for k in 0..3 { if q + k - 1 >= 0 & q + k - 1 < 8 { f } } }
    =>  for q of 8 in 0..1 { for k { if ... { f } } }    a border
        for q of 8 in 1..7 { for k { f } }               the interior, without a guard
        for q of 8 in 7..8 { for k { if ... { f } } }    a border

Legal for guards that are affine in the indices. Pays since the interior vectorizes without masks.
TVM calls this LoopPartition, Halide partition_loops. Guards that hold for all values of the
indices, such as i + 1 >= 0, are removed first. A guard on the loop's own index leaves no border:
the other part has its negation. Only the innermost loop over elements is partitioned for guards of
inner loops; `tighten_bounds` handles the rest.

A loop of unknown extent tests at run time whether it has an interior; the iterations of its borders
are then separate, without the guards that follow from the test.
"""

from collections.abc import Mapping
from itertools import pairwise

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.affine import Affine, affine, affine_conditions, key, negated_conditions
from ...dialect.kernel_ir.expressions import (
    Const,
    Expr,
    Extent,
    Index,
    as_index,
    both,
    conjunction,
    maximum,
    minimum,
)
from ..analysis.accesses import stores
from ..passes import kernel_pass
from .tighten_bounds import bound

PIECES = 16  # parts of one loop, at most; bounds compile time (by hand)
# iterations of a border that are peeled one by one, at most; tuned by hand (Zen 4, Zen 5)
SINGLE = 2


@kernel_pass
def loop_partition(kernel: ir.Kernel) -> ir.Kernel:
    always = {id(c): True for c in _conditions(kernel.body) if _always(c)}
    return kernel.with_body(ir.rewrite_block(_decided(kernel.body, always), _parts))


def _always(condition: Expr) -> bool:
    """Test whether a condition holds for all values of the indices."""
    sums = affine_conditions(condition)
    return sums is not None and all(_never_negative(_over_indices(sum)) for sum in sums)


def _over_indices(sum: Affine) -> Affine:
    """The minimum of an affine form over the values of its indices."""
    least = sum
    for atom, factor in sum.terms.values():
        if isinstance(atom, Index):
            last = affine(as_index(atom.extent)).plus(-1)
            least = least.without(atom) + (last * factor if factor < 0 else Affine({}))
    return least


def _never_negative(sum: Affine) -> bool:
    return sum.constant >= 0 and _grows(sum)


def _parts(s: ir.Statement) -> ir.Block | None:
    if not isinstance(s, ir.For) or s.kind != "serial":
        return None
    return tuple(map(_within, _pieces(s, PIECES)))


def _within(piece: ir.Statement) -> ir.Statement:
    """A part, with the loops inside of it partitioned."""
    if isinstance(piece, ir.If):
        return ir.map_blocks(piece, lambda block: tuple(map(_within, block)))
    return ir.rewrite_within(piece, _parts)


def _pieces(loop: ir.For, most: int) -> list[ir.Statement]:
    """The loop in parts in which guards are constant."""
    if most > 1 and (cut := _exact(loop)) is not None:
        condition, at, below = cut
        first = _part(loop, loop.start, _clamp(at, loop), condition, below)
        second = _part(loop, _clamp(at, loop), loop.end, condition, not below)
        return [
            p for part in (first, second) if part is not None for p in _pieces(part, most // 2)
        ] or [loop]
    return _interior(loop)


def _exact(loop: ir.For) -> tuple[Expr, Expr, bool] | None:
    """A condition that changes once, as (condition, index at which it changes, whether it holds
    below).
    """
    for condition in _conditions(loop.body, choices=True):
        sums = affine_conditions(condition)
        if (
            sums is None
            or len(sums) != 1
            or negated_conditions(condition) is None
            or not _alone(sums[0], loop)
        ):
            continue
        if (bounds := bound(sums[0], loop.index)) is not None:
            return condition, bounds[1], not bounds[0]
    return None


def _alone(sum: Affine, loop: ir.For) -> bool:
    """Test whether no atom of an affine form is bound inside the loop."""
    return (
        not {key(s.index) for s in ir.statements(loop.body) if isinstance(s, ir.For)}
        & sum.terms.keys()
    )


def _part(loop: ir.For, start: Expr, end: Expr, condition: Expr, holds: bool) -> ir.For | None:
    """The loop over part of its range, with the condition decided; None if the part is empty."""
    if _empty(start, end):
        return None
    return ir.replace(loop, start=start, stop=end, body=_decided(loop.body, {id(condition): holds}))


def _interior(loop: ir.For) -> list[ir.Statement]:
    """The loop as a border, the interior in which the guards of inner loops hold, and another
    border.
    """
    computes = any(s.tensor.space != "register" for s in stores(loop.body))
    if not computes or (len(loop.body) == 1 and isinstance(loop.body[0], ir.For)):
        return [loop]
    extents = _ranges(loop.body)
    low, high = loop.start, loop.end
    decided: dict[int, bool] = {}
    for condition in _conditions(loop.body):
        least = [_least(sum, extents) for sum in affine_conditions(condition) or []]
        bounds = [
            b for sum in least if sum is not None and (b := bound(sum, loop.index)) is not None
        ]
        if bounds and len(bounds) == len(least):
            decided[id(condition)] = True
            for lower, value in bounds:
                low, high = (_later(low, value), high) if lower else (low, _earlier(high, value))
    if not decided:
        return [loop]
    if not all(isinstance(e, Const) for e in (loop.start, low, high, loop.end)):
        return _of_any_length(loop, low, high, decided)
    low = _clamp(low, loop)
    high = maximum(low, _clamp(high, loop))
    parts = [
        ir.replace(loop, start=a, stop=b)
        for a, b in pairwise((loop.start, low, high, loop.end))
        if not _empty(a, b)
    ]
    facts = [decided if (p.start, p.stop) == (low, high) else _nowhere(p, extents) for p in parts]
    return [
        ir.replace(p, body=_decided(loop.body, f)) for p, f in zip(parts, facts, strict=True)
    ] or [loop]


def _nowhere(part: ir.For, extents: Mapping[object, tuple[int, int] | None]) -> dict[int, bool]:
    """The conditions that hold for no iteration of a loop with constant bounds."""
    values = {**extents, key(part.index): _range(part)}
    never: dict[int, bool] = {}
    for condition in _conditions(part.body):
        least = [_least(sum * -1, values) for sum in affine_conditions(condition) or []]
        if any(sum is not None and not sum.terms and sum.constant > 0 for sum in least):
            never[id(condition)] = False
    return never


def _of_any_length(
    loop: ir.For, low: Expr, high: Expr, decided: dict[int, bool]
) -> list[ir.Statement]:
    """The parts under a run-time test that the interior is not empty, with the original loop
    otherwise.
    """
    tests = [affine(b) - affine(a) for a, b in pairwise((loop.start, low, high, loop.end))]
    interior = ir.replace(loop, start=low, stop=high, body=_decided(loop.body, decided))
    parts = (
        *_border(loop, loop.start, low, tests),
        interior,
        *_border(loop, high, loop.end, tests),
    )
    exists = both(*(sum.expression() >= 0 for sum in _strictest(tests)))
    return [ir.If(exists, parts, (loop,))] if isinstance(exists, Expr) else [*parts]


def _strictest(tests: list[Affine]) -> list[Affine]:
    """The affine forms to test, without those that exceed another by a constant."""
    strictest: list[Affine] = []
    for sum in sorted(tests, key=lambda t: t.constant):
        if (sum.terms or sum.constant < 0) and all((sum - test).terms for test in strictest):
            strictest.append(sum)
    return strictest


def _border(loop: ir.For, start: Expr, end: Expr, tests: list[Affine]) -> ir.Block:
    """The iterations of a border; a few iterations are peeled, without guards that a run-time test
    implies.
    """
    length = affine(end) - affine(start)
    if length.terms or not 0 <= length.constant <= SINGLE:
        return (ir.replace(loop, start=start, stop=end),)
    peeled: list[ir.Statement] = []
    for n in range(length.constant):
        at = affine(start).plus(n)
        body = ir.substitute_block(
            _decided(loop.body, _implied(loop, at, tests)), {loop.index: at.expression()}
        )
        peeled.append(
            ir.replace(loop, start=at.expression(), stop=at.plus(1).expression(), body=body)
        )
    return tuple(peeled)


def _implied(loop: ir.For, at: Affine, tests: list[Affine]) -> dict[int, bool]:
    """The conditions that hold in an iteration if arrays are large; the tests that imply them are
    appended to `tests`.
    """
    extents = _ranges(loop.body)
    truths: dict[int, bool] = {}
    for condition in _conditions(loop.body):
        here = [
            s.without(loop.index) + at * s.factor(loop.index)
            for s in affine_conditions(condition) or []
        ]
        least = [_least(sum, extents) for sum in here]
        if least and all(sum is not None and _grows(sum) for sum in least):
            truths[id(condition)] = True
            tests += [sum for sum in least if sum is not None and sum.terms]
    return truths


def _grows(sum: Affine) -> bool:
    """Test whether an affine form is not negative for large sizes."""
    if not sum.terms:
        return sum.constant >= 0
    return all(isinstance(atom, Extent) and factor > 0 for atom, factor in sum.terms.values())


def _later(a: Expr, b: Expr) -> Expr:
    """The maximum of two numbers, simplified if their difference has a known sign."""
    difference = affine(a) - affine(b)
    if _never_negative(difference):
        return a
    if _never_negative(difference * -1):
        return b
    return maximum(a, b)


def _earlier(a: Expr, b: Expr) -> Expr:
    later = _later(a, b)
    if later is b:
        return a
    if later is a:
        return b
    return minimum(a, b)


def _empty(start: Expr, end: Expr) -> bool:
    return _never_negative(affine(start) - affine(end))


def _clamp(at: Expr, loop: ir.For) -> Expr:
    return _earlier(_later(at, loop.start), loop.end)


def _ranges(block: ir.Block) -> dict[object, tuple[int, int] | None]:
    """The first and last value of every index, over all loops that use it."""
    ranges: dict[object, tuple[int, int] | None] = {}
    for s in ir.statements(block):
        if isinstance(s, ir.For):
            k = key(s.index)
            here = _range(s)
            before = ranges.get(k, here)
            ranges[k] = (
                None
                if here is None or before is None
                else (min(here[0], before[0]), max(here[1], before[1]))
            )
    return ranges


def _range(s: ir.For) -> tuple[int, int] | None:
    """The first and last value of the index of a loop with constant bounds."""
    if isinstance(s.start, Const) and isinstance(s.end, Const) and s.start.value < s.end.value:
        return s.start.value, s.end.value - 1
    return None


def _least(sum: Affine, extents: Mapping[object, tuple[int, int] | None]) -> Affine | None:
    """The minimum of an affine form over the inner loops; None if unknown."""
    least = sum
    for k, (atom, factor) in sum.terms.items():
        if k in extents:
            if (values := extents[k]) is None:
                return None
            least = least.without(atom).plus(min(factor * v for v in values))
    return least


def _conditions(block: ir.Block, choices: bool = False) -> list[Expr]:
    """The conditions of branches; with `choices`, only of those with two sides."""
    branches = (
        s for s in ir.statements(block) if isinstance(s, ir.If) and (s.otherwise or not choices)
    )
    return [c for s in branches for c in conjunction(s.condition)]


def _decided(block: ir.Block, decided: dict[int, bool]) -> ir.Block:
    """The block with decided conditions replaced, and dead branches and empty statements
    removed.
    """

    def decide(s: ir.Statement) -> ir.Block | None:
        if isinstance(s, ir.If):
            parts = conjunction(s.condition)
            if any(decided.get(id(c)) is False for c in parts):
                return _decided(s.otherwise, decided)
            if not isinstance(left := both(*(c for c in parts if id(c) not in decided)), Expr):
                return _decided(s.then, decided)
            s = ir.replace(s, condition=left)
        live = ir.rewrite_within(s, decide)
        return (live,) if any(ir.blocks(live)) or not isinstance(live, (ir.For, ir.If)) else ()

    return ir.rewrite_block(block, decide) if decided else block
