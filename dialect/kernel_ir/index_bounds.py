"""Bounds of index expressions, from the extents of their indices."""

from ..types.linear_form import Bounds, add_bounds, scale_bounds
from ..types.sizes import Dim, same_size
from .affine import affine
from .expressions import Apply, Const, Expr, Extent, Index, Misalignment, as_index, both
from .loops import UNBOUNDED


def index_bounds(e: Expr) -> Bounds:
    """Bounds of an index expression over all values of its indices; None where unknown."""
    match e:
        case Const(value, _):
            return value, value
        case Index(extent=extent):
            return 0, (extent - 1 if isinstance(extent, int) else None)
        case Extent(size):
            return size.form.bounds(lambda _: (0, None))
        case Misalignment(_, line):
            return 0, line - 1
        case Apply("add" | "sub", (a, b), _):
            return add_bounds(
                index_bounds(a), scale_bounds(index_bounds(b), 1 if e.function == "add" else -1)
            )
        case Apply("mul", (a, Const(c)), _) | Apply("mul", (Const(c), a), _):
            return scale_bounds(index_bounds(a), c)
        case Apply("floordiv", (a, Const(c)), _) if c > 0:
            low, high = index_bounds(a)
            return None if low is None else low // c, None if high is None else high // c
        case Apply("floormod", (_, Const(c)), _) if c > 0:
            return 0, c - 1
        case Apply("max" | "min", (a, b), _):
            ends = zip(index_bounds(a), index_bounds(b), strict=True)
            lows, highs = ([n for n in pair if n is not None] for pair in ends)
            choose = max if e.function == "max" else min
            low = choose(lows) if len(lows) == 2 or (lows and choose is max) else None
            return low, choose(highs) if len(highs) == 2 or (highs and choose is min) else None
    return None, None


def is_nonzero(e: Expr) -> bool:
    """Test whether a divisor is not 0 by its form."""
    match e:
        case Const(value):
            return value != 0
        case Apply("select", (Apply("eq", (x, Const(0))), Const(value), y)):
            return x is y and value != 0
        case Apply("max", (_, Const(value))) | Apply("max", (Const(value), _)):
            return value > 0
    return False


def inside(index: Expr, extent: Dim) -> Expr | bool:
    """0 <= index < extent, without the comparisons that hold for every value of the indices."""
    low, high = index_bounds(index)
    lower = True if low is not None and low >= 0 else index >= 0
    upper = (
        True
        if high is not None and isinstance(extent, int) and high < extent
        else index < as_index(extent)
    )
    if isinstance(index, Index) and (same_size(index.extent, extent)):
        upper = True
    return both(lower, upper)


def index_extent(end: Expr) -> Dim:
    """The extent of an index whose loop ends at an expression: the greatest value of that, in terms
    of sizes.
    """
    bound = _greatest(end)
    return UNBOUNDED if bound is None else max(bound, 0) if isinstance(bound, int) else bound


def _greatest(e: Expr) -> Dim | None:
    """An upper bound of an index expression; None if its value depends on data."""
    if (high := index_bounds(e)[1]) is not None:
        return high
    match e:
        case Extent(size):
            return size
        case Index(extent=extent):
            return extent - 1
        case Apply("min", (a, b)):
            return _greatest(b) if (bound := _greatest(a)) is None else bound
        case Apply("floordiv", (a, Const(c))) if c > 0:
            return None if (bound := _greatest(a)) is None else bound // c
    total: Dim = 0
    form = affine(e)
    for atom, factor in form.terms.values():
        low, bound = index_bounds(atom)[0], None if atom is e else _greatest(atom)
        if (bound := low if factor < 0 else bound) is None:
            return None
        total += bound * factor
    return total + form.constant
