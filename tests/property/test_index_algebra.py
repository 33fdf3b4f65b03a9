"""Linear forms, their bounds and what is concluded from them agree with the evaluation of every
point.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np
from cvm.dialect.kernel_ir.affine import Affine, affine, affine_conditions, key, negated_conditions
from cvm.dialect.kernel_ir.expressions import (
    Apply,
    Const,
    Expr,
    Extent,
    Index,
    Tensor,
    apply,
    flat_index,
    unflatten,
)
from cvm.dialect.kernel_ir.index_bounds import index_bounds, inside
from cvm.dialect.kernel_ir.scalar_functions import SCALARS
from cvm.dialect.kernel_ir.simplify_node import (
    fold_constants,
    linear_index,
    recombine,
    simplify_index,
)
from cvm.dialect.kernel_ir.traverse import over, rebuild, substitute, walk
from cvm.dialect.types.sizes import Dim, Size, Undecided, evaluate, larger, same_size, smaller
from cvm.dialect.types.tensor_types import F32, I64
from cvm.dialect.types.unify import put
from cvm.lowering.analysis.lane_offsets import Lanes, offsets
from cvm.lowering.analysis.prove import prove
from hypothesis import given, reject, settings, strategies as st

INDICES = tuple(Index(name, extent) for name, extent in (("i", 3), ("j", 4), ("k", 5)))
N = Size.named("N")
SIZES = 6  # N is less
AXES = (3, 4, 5, SIZES)
DIVISIONS = ("floordiv", "floormod")
ORDER: dict[object, int] = {key(i): n + 1 for n, i in enumerate(INDICES)}
RANGES = [
    f
    for i, n in zip(INDICES, AXES[:3], strict=True)
    for f in (affine(i), (affine(i) * -1).plus(n - 1))
]

numbers = st.integers(-7, 7)
leaves = st.one_of(
    st.sampled_from(INDICES),
    st.sampled_from([N, N * 2, N + 3, N // 2]).map(Extent),
    numbers.map(lambda n: Const(n, I64)),
)


def compound(parts: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    sums = st.tuples(st.sampled_from(["add", "sub", "max", "min", "mul"]), parts, parts).map(
        lambda t: apply(*t)
    )
    multiples = st.tuples(parts, numbers).map(lambda t: t[0] * t[1])
    divided = st.tuples(st.sampled_from(["floordiv", "floormod"]), parts, st.integers(1, 6)).map(
        lambda t: apply(*t)
    )
    return st.one_of(sums, multiples, divided, parts.map(lambda e: -e))


divided = st.tuples(
    st.sampled_from(["floordiv", "floormod"]), numbers, numbers, st.sampled_from([2, 4])
).map(lambda t: apply(t[0], INDICES[0] * t[1] + INDICES[1] * (t[2] * 4), t[3]))
expressions = st.recursive(leaves, compound, max_leaves=7)
comparisons = st.tuples(
    st.sampled_from(["lt", "le", "gt", "ge", "eq"]), expressions, expressions
).map(lambda t: apply(*t))
conditions = st.recursive(
    comparisons,
    lambda c: st.one_of(c.map(lambda e: ~e), st.tuples(c, c).map(lambda t: t[0] & t[1])),
    max_leaves=3,
)


def values(e: Expr) -> np.ndarray:
    """The values of an expression at every point, an axis for each index and one for N."""
    match e:
        case Index():
            axis = INDICES.index(e)
            return np.arange(e.extent).reshape([-1 if n == axis else 1 for n in range(len(AXES))])
        case Extent(size):
            return np.array([size.evaluate({("N",): n}) for n in range(SIZES)])
        case Const(value, _):
            return np.array(value)
        case Apply(function, operands, _):
            return SCALARS[function].numpy(*map(values, operands))
    raise TypeError(e)


def everywhere(e: Expr) -> np.ndarray:
    return np.broadcast_to(values(e), AXES)


def evaluated(form: Affine) -> np.ndarray:
    return np.broadcast_to(
        sum((values(a) * f for a, f in form.terms.values()), np.array(form.constant)), AXES
    )


@settings(deadline=None)
@given(expressions, expressions, numbers)
def test_linear_forms_keep_values(a: Expr, b: Expr, factor: int) -> None:
    np.testing.assert_array_equal(evaluated(affine(a)), everywhere(a))
    np.testing.assert_array_equal(everywhere(affine(a).expression()), everywhere(a))
    np.testing.assert_array_equal(
        evaluated(affine(a) + affine(b) * factor), everywhere(a) + factor * everywhere(b)
    )
    np.testing.assert_array_equal(
        evaluated((affine(a) - affine(b)).plus(factor)), everywhere(a) - everywhere(b) + factor
    )
    assert not (affine(a) - affine(a)).terms
    if key(a) == key(b):
        np.testing.assert_array_equal(everywhere(a), everywhere(b))


@settings(deadline=None)
@given(expressions)
def test_bounds_contain_every_value(e: Expr) -> None:
    found = everywhere(e)
    for low, high in (index_bounds(e), affine(e).bounds(index_bounds)):
        assert low is None or low <= found.min()
        assert high is None or high >= found.max()
    divisor = affine(e).divisor
    assert not (found % divisor if divisor else found).any()


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(INDICES), numbers), max_size=5), numbers)
def test_bounds_of_affine_expressions_are_attained(
    terms: list[tuple[Index, int]], constant: int
) -> None:
    e: Expr = Const(constant, I64)
    for index, factor in terms:
        e = e + index * factor
    found = everywhere(e)
    assert affine(e).bounds(index_bounds) == (found.min(), found.max())
    assert prove(affine(e).plus(-int(found.min())), RANGES, ORDER)
    assert not prove(affine(e).plus(-int(found.min()) - 1), RANGES, ORDER)


@settings(deadline=None)
@given(conditions, expressions, st.integers(1, 9))
def test_conditions_hold_where_their_forms_are_not_negative(
    condition: Expr, index: Expr, extent: int
) -> None:
    for forms, holds in (
        (affine_conditions(condition), everywhere(condition)),
        (negated_conditions(condition), ~everywhere(condition)),
    ):
        if forms is not None:
            np.testing.assert_array_equal(
                np.logical_and.reduce([np.full(AXES, True), *(evaluated(f) >= 0 for f in forms)]),
                holds,
            )
    guard = inside(index, extent)
    found = everywhere(guard) if isinstance(guard, Expr) else np.full(AXES, guard)
    np.testing.assert_array_equal(found, (everywhere(index) >= 0) & (everywhere(index) < extent))


@settings(deadline=None)
@given(expressions, st.lists(expressions, max_size=2))
def test_what_is_proved_holds(goal: Expr, facts: list[Expr]) -> None:
    if prove(affine(goal), [*RANGES, *map(affine, facts)], ORDER):
        given_facts = np.logical_and.reduce(
            [np.full(AXES, True), *(everywhere(f) >= 0 for f in facts)]
        )
        assert (everywhere(goal)[given_facts] >= 0).all()


@settings(deadline=None)
@given(st.one_of(expressions, conditions))
def test_simplification_keeps_values(e: Expr) -> None:
    simple = rebuild(e, lambda x, parts: fold_constants(simplify_index(over(x, parts))), {})
    np.testing.assert_array_equal(everywhere(simple), everywhere(e))
    if e.type is I64:
        np.testing.assert_array_equal(evaluated(recombine(affine(e))), everywhere(e))


@settings(deadline=None)
@given(
    expressions,
    st.lists(st.one_of(st.integers(1, 4), st.just(N + 1)), min_size=1, max_size=4),
    numbers,
    numbers,
)
def test_quotients_and_remainders_of_a_position_recombine(
    e: Expr, shape: list[Dim], a: int, b: int
) -> None:
    """The position of an element whose indices are those of a position is that position, and what
    is added stays.
    """
    at = unflatten(e, tuple(shape))
    found = linear_index(at, tuple(shape))
    np.testing.assert_array_equal(everywhere(found), everywhere(e))
    assert not any(
        isinstance(n, Apply) and n.function in DIVISIONS and n not in walk(e) for n in walk(found)
    )
    last, added = (*at[:-1], at[-1] + a), tuple(i + b for i in at)
    for indices, sizes in ((last, shape), (added, shape), (at[::-1], shape), (at[1:], shape[1:])):
        np.testing.assert_array_equal(
            everywhere(linear_index(indices, tuple(sizes))),
            everywhere(flat_index(indices, tuple(sizes))),
        )


@settings(deadline=None)
@given(st.one_of(expressions, divided), st.sampled_from([2, 4, 8]), st.integers(0, 3))
def test_offsets_of_lanes_are_those_of_their_values(e: Expr, count: int, block: int) -> None:
    lane = Index("l", 64)
    e = substitute(e, {INDICES[0]: lane})
    x = Tensor("x", (1000,), F32)
    found = offsets(x, (e,), Lanes(lane, count, count, lambda n: lane not in walk(n)))
    if found is not None:
        at = [
            everywhere(substitute(e, {lane: Const(block * count + n, I64)})) for n in range(count)
        ]
        for there, offset in zip(at, found, strict=True):
            np.testing.assert_array_equal(there - at[0], offset)


M, UNKNOWN = Size.named("M"), Size.unknown()
KNOWN = [
    {("N",): n, ("M",): m, UNKNOWN.terms[0][0]: u}
    for n, m, u in product(range(5), (0, 1, 2, 7), (0, 3, 4))
]  # what calls may bind
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "max": larger,
    "min": smaller,
}
dims = st.recursive(
    st.one_of(st.sampled_from([N, M, UNKNOWN]), st.integers(-3, 9)),
    lambda d: st.tuples(st.sampled_from(sorted(OPERATORS)), d, d),
    max_leaves=6,
)


def computed(tree: Any, leaf: Callable[[Dim], Dim]) -> Dim:
    """The value of a tree of operations, given that of its leaves."""
    if isinstance(tree, tuple):
        return OPERATORS[tree[0]](computed(tree[1], leaf), computed(tree[2], leaf))
    return leaf(tree)


@settings(deadline=None)
@given(dims, dims)
def test_sizes_compute_and_compare_as_numbers_do(a: Any, b: Any) -> None:
    """For every call that divides by no 0; comparisons hold for those in which no atom is
    negative.
    """
    try:
        x, y = computed(a, lambda d: d), computed(b, lambda d: d)
    except ZeroDivisionError:
        reject()
    sums = [d for d in (x, y, x - y) if isinstance(d, Size)]
    for known in KNOWN:
        try:
            one, other = (computed(tree, lambda d, k=known: evaluate(d, k)) for tree in (a, b))
        except ZeroDivisionError:
            continue
        assert (evaluate(x, known), evaluate(y, known), evaluate(x - y, known)) == (
            one,
            other,
            one - other,
        )
        assert put(put(x, {("N",): M + 1}), known) == evaluate(
            x, {**known, ("N",): known["M",] + 1}
        )
        if all(evaluate(Size.of_atom(atom), known) >= 0 for d in sums for atom, _ in d.terms):
            for compare in (
                operator.lt,
                operator.le,
                operator.eq,
                operator.ne,
                operator.ge,
                operator.gt,
            ):
                with suppress(Undecided):
                    assert compare(x, y) == compare(one, other)


def test_a_size_divided_by_the_lesser_of_it_and_1_is_itself() -> None:
    """As a broadcast dimension is divided by what it may be; other divisors stay, even those that
    are 1 in some calls.
    """
    for size in (N, M, UNKNOWN, 2 * N):
        assert same_size(size // smaller(1, size), size)
        for divisor in (smaller(1, Size.named("L")), smaller(2, size), larger(1, size)):
            assert not same_size(size // divisor, size)
