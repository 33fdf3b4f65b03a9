"""NumPy's broadcasting over known and unknown sizes, with three-valued predicates on sizes.

A predicate on unknown sizes is decided if every call gives the same answer; otherwise `Undecided`
is raised, and the predicate is evaluated again when the sizes are known.
"""

from collections.abc import Callable, Iterable
from functools import reduce
from itertools import combinations, zip_longest

from ..kernel_ir.expressions import ZERO, Expr, Index, Tensor, select
from ..types.sizes import Dim, Given, Shape, Undecided, certainly, same_size, smaller

# Three-valued predicates


def all_of(conditions: Iterable[Callable[[], bool]]) -> bool:
    """The conjunction: false if one condition is certainly false, Undecided if none is and one is
    undecided.
    """
    undecided: list[Undecided] = []
    for condition in conditions:
        try:
            if not condition():
                return False
        except Undecided as e:
            undecided.append(e)
    if undecided:
        raise Undecided(*(pair for e in undecided for pair in e.args))
    return True


def all_equal(pairs: Iterable[tuple[Dim, Dim]]) -> bool:
    open = [(m, n) for m, n in pairs if not certainly(lambda m=m, n=n: m == n)]
    if open and not any(certainly(lambda m=m, n=n: m != n) for m, n in open):
        raise Undecided(*open)
    return not open


def any_of(conditions: Iterable[Callable[[], bool]]) -> bool:
    """The disjunction: true if one condition is certainly true, Undecided if none is and one is
    undecided.
    """
    return not all_of((lambda c=c: not c()) for c in conditions)


def same_shape(a: Shape, b: Shape) -> bool:
    """Test whether two shapes are equal; those of different ranks are not, whatever their sizes."""
    return len(a) == len(b) and all_equal(zip(a, b, strict=True))


def is_one(dim: Dim) -> bool:
    """Test whether a size is certainly 1."""
    return same_size(dim, 1)


# Shapes


def aligned(*shapes: Shape) -> list[tuple[Dim, ...]]:
    """The sizes on each axis: the shapes aligned on the right, shorter ones padded with 1."""
    return list(zip_longest(*map(reversed, shapes), fillvalue=1))[::-1]


def fits(m: Dim, n: Dim) -> bool:
    """Test whether two sizes broadcast: they are equal, or one of them is 1."""
    return any_of((lambda: m == n, lambda: m == 1, lambda: n == 1))


def broadcastable(*shapes: Shape) -> bool:
    return all_of(
        (lambda m=m, n=n: fits(m, n)) for dims in aligned(*shapes) for m, n in combinations(dims, 2)
    )


def unequal(*shapes: Shape, said: str = "are not equal") -> str:
    """Say that shapes differ, and along which axis."""
    listed = " and ".join(f"({', '.join(map(str, s))}{',' * (len(s) == 1)})" for s in shapes)
    ranks = dict.fromkeys(map(len, shapes))
    columns = aligned(*shapes)
    for i, sizes in enumerate(columns):
        known = [d for d in dict.fromkeys(sizes) if said == "are not equal" or not is_one(d)]
        if any(certainly(lambda m=m, n=n: m != n) for m in known for n in known):
            axis = i if len(ranks) == 1 else i - len(columns)  # from the right, as in NumPy
            return f"shapes {listed} {said}: axis {axis} is {' and '.join(map(str, known))}"
    return f"shapes {listed} {said}"


def cannot_broadcast(*shapes: Shape) -> str:
    """Say that shapes do not broadcast, and along which axis."""
    return unequal(*shapes, said="cannot be broadcast")


def joined(*dims: Dim) -> Dim:
    """The size of the result for sizes that broadcast: the one that is not 1."""
    return reduce(_join, dims)


def _join(m: Dim, n: Dim) -> Dim:
    if is_one(m) and isinstance(n, Given):
        return n  # it may be 1 at run time
    if is_one(n) or same_size(m, n) or certainly(lambda: m != 1):
        return m
    return n if is_one(m) or certainly(lambda: n != 1) else m * n // smaller(m, n)


def broadcast(*shapes: Shape) -> Shape:
    """The result's shape for operands of these shapes, which broadcast."""
    return tuple(joined(*dims) for dims in aligned(*shapes))


def source(at: tuple[Index, ...], operand: Tensor) -> tuple[Expr, ...]:
    """The indices of an operand for the result's element at `at`: 0 along axes where its size is
    1.
    """
    return tuple(
        _source(i, n) for i, n in zip(at[len(at) - operand.rank :], operand.shape, strict=True)
    )


def _source(index: Index, size: Dim) -> Expr:
    if is_one(size):
        return ZERO
    return index if same_size(size, index.extent) else select(index < size, index, 0)


def repeats(small: Shape, large: Shape) -> bool:
    """Test whether a shape broadcasts to another one of no lower rank."""
    met = zip(small, large[len(large) - len(small) :], strict=True)
    return all_of((lambda m=m, n=n: any_of((lambda: m == n, lambda: m == 1))) for m, n in met)


def may_repeat(small: Shape, large: Shape) -> bool:
    """Test whether unknown sizes may be repeated at run time."""
    met = zip(small, large[len(large) - len(small) :], strict=True)
    return any(not (same_size(m, n) or is_one(m) or certainly(lambda m=m: m != 1)) for m, n in met)
