"""Infer intervals of integer values, over the formulas of a program (LLVM's LazyValueInfo).

    x in [-127, 127], w constant:  y[i, j] = sum over k of x[i, k] * w[j, k]
    =>  y in 127 * [-m, m],  m the largest sum of |w[j]|

Where exact arithmetic could leave an expression's type the value wraps, so its interval is that of
the type. Elements of a constant that is read along plain indices keep bounds of their own. A select
narrows its condition's operands.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, prod
from types import MappingProxyType

import numpy as np

from ...dialect.ir.function import Value
from ...dialect.kernel_ir import expressions as ex
from ...dialect.kernel_ir.formulas import Formulas, Nest, View
from ...dialect.kernel_ir.integer_interval import UNBOUNDED, Interval
from ...dialect.kernel_ir.loops import identity
from ...dialect.kernel_ir.traverse import children, walk
from ...dialect.types.sizes import Size, same_size
from ...dialect.types.tensor_types import I16, I64, ElementType
from ..pass_context import Context
from ..passes import formula_pass
from .enumerate_points import window_reaches_input
from .interval_arithmetic import (
    ELEMENTWISE,
    REDUCTIONS,
    SCALAR,
    Bounds,
    greatest,
    hull,
    least,
    scalar,
)

Ranges = Mapping[ex.Tensor, Interval]
Arrays = Mapping[ex.Tensor, np.ndarray]

EXACT = 1 << 62  # magnitude up to which bounds are computed in int64
MAX_ELEMENTS = 1 << 25  # elements of an array of bounds, at most; bounds memory at 512 MB
MAX_NESTED_CHOICES = 6  # nested selects that narrow, at most; bounds compile time (by hand)


@dataclass(frozen=True, eq=False)
class Overflow:
    """A node whose exact values may leave its type, and the interval they may reach."""

    expr: ex.Expr
    reached: Interval


def interval(expr: ex.Expr, ranges: Ranges, constants: Arrays = MappingProxyType({})) -> Interval:
    """The interval of an integer or a condition. A tensor that is not in `ranges` may hold any
    value of its type.
    """
    found = intervals(ranges, constants)(expr)
    assert found is not None, f"an interval of {expr.type}"
    return found


def intervals(ranges: Ranges, constants: Arrays) -> Callable[[ex.Expr], Interval | None]:
    """A function from the nodes of one expression to their intervals, None for floats."""
    evaluation = _Evaluation(ranges, constants)

    def find(e: ex.Expr) -> Interval | None:
        found = evaluation.of(e)
        return None if found is None else Interval(*scalar(found))

    return find


def overflows(
    expr: ex.Expr, ranges: Ranges, constants: Arrays = MappingProxyType({})
) -> list[Overflow]:
    """The nodes of an expression whose values may leave their types, operands first; index
    arithmetic left out.
    """
    evaluation = _Evaluation(ranges, constants)
    stack, seen = [expr], set[int]()
    while stack:
        e = stack.pop()
        if id(e) not in seen and evaluation.of(e) is None and not isinstance(e, ex.Read):
            seen.add(id(e))
            stack += children(e)
    return [
        o
        for o in evaluation.beyond
        if o.expr.type is not I64 or any(isinstance(n, ex.Read) for n in walk(o.expr))
    ]


@formula_pass
def integer_ranges(program: Formulas, context: Context) -> Formulas:
    """The program with the ranges of its tensors, from those that the function declares of its
    arguments.
    """
    values = (
        context.function.arguments if context.function is not None else ()
    )  # of a loop's body, none is declared
    declared = (
        (t, declared_range(value)) for t, value in zip(program.arguments, values, strict=False)
    )
    return replace(
        program, ranges=ranges_of(program, {t: found for t, found in declared if found is not None})
    )


def ranges_of(
    program: Formulas, declared: Ranges = MappingProxyType({})
) -> dict[ex.Tensor, Interval]:
    """The range of every integer or boolean tensor, from the declared ranges of arguments; results
    of nests have none.
    """
    ranges = dict(declared)
    ranges.update({t: range_of(a) for t, a in program.constants.items() if t.element.is_discrete})
    for step in program.steps:
        if not isinstance(step, Nest) and step.tensor.element.is_discrete:
            value = step.formula.value if isinstance(step, View) else step.value
            ranges[step.tensor] = interval(value, ranges, program.constants)
    return ranges


def declared_range(argument: Value) -> Interval | None:
    """The declared range of an argument."""
    bounds = argument.range
    discrete = argument.known_type.element.storage.is_discrete
    return None if bounds is None or not discrete else Interval(*bounds)


def range_of(array: np.ndarray) -> Interval:
    """The interval of a constant's elements."""
    return Interval(int(array.min()), int(array.max())) if array.size else Interval(0, 0)


def clamped(e: ex.Expr) -> tuple[ex.Expr, float, float]:
    """The operand of minima and maxima with constants, and the bounds of their result."""
    match e:
        case ex.Apply("min" | "max" | "minimum" | "maximum" as function, (x, ex.Const(n)), _) if (
            n == n
        ):
            x, low, high = clamped(x)
            limit = min if function.startswith("min") else max
            return x, limit(low, n), limit(high, n)
    return e, -inf, inf


class _Evaluation:
    """The bounds of one expression's nodes; None for floats."""

    def __init__(self, ranges: Ranges, constants: Arrays) -> None:
        self.ranges, self.constants = ranges, constants
        self.axes: dict[
            ex.Index, int
        ] = {}  # the axis of each index in arrays of bounds, counted from the end
        self.known: dict[int, Bounds | None] = {}
        self.assumed: dict[int, Bounds] = {}
        self.seen: dict[int, int] = {}
        self.keys: dict[object, int] = {}
        self.depth = 0
        self.beyond: list[Overflow] = []

    def of(self, e: ex.Expr) -> Bounds | None:
        if not e.type.is_discrete:
            return None
        if id(e) not in self.known:
            found = self.bounds(e)
            if self.assumed and (assumed := self.assumed.get(self.looks(e))):
                one, other = _safe([found, assumed])
                found = greatest(one[0], other[0]), least(one[1], other[1])
            self.known[id(e)] = found
        return self.known[id(e)]

    def bounds(self, e: ex.Expr) -> Bounds:
        match e:
            case ex.Const(value, _):
                return int(value), int(value)
            case ex.Index(extent=extent):
                return 0, (max(extent - 1, 0) if isinstance(extent, int) else e.type.limits[1])
            case ex.Extent():
                return 0, e.type.limits[1]
            case ex.Read(tensor, at):
                return self.read(tensor, at)
            case ex.Apply("select" | "rarely", (condition, then, otherwise), _) | ex.When(
                condition, then, otherwise
            ):
                return self.chosen(condition, then, otherwise)
            case ex.Apply():
                return self.applied(e)
            case ex.Cast(operand, type):
                return self.converted(e, operand, type)
            case ex.Bitcast(operand, type) if (found := self.of(operand)) is not None:
                return found if Interval(*scalar(found)).within(type) else type.limits
            case ex.Reduce():
                return self.reduced(e)
            case ex.Check(_, value, _, _):
                return self.of(value) or e.type.limits
        return e.type.limits

    def looks(self, e: ex.Expr) -> int:
        """A value number: equal for structurally equal expressions."""
        if id(e) not in self.seen:
            match e:
                case ex.Const(value, type):
                    key: object = "constant", repr(value), type.name
                case ex.Read(tensor, at):
                    key = tensor, *map(self.looks, at)
                case ex.Apply(function, operands, _):
                    key = function, *map(self.looks, operands)
                case ex.Cast(operand, type):
                    key = "cast", type.name, self.looks(operand)
                case _:
                    key = id(e)
            self.seen[id(e)] = self.keys.setdefault(key, len(self.keys))
        return self.seen[id(e)]

    def read(self, tensor: ex.Tensor, at: tuple[ex.Expr, ...]) -> Bounds:
        array = self.constants.get(tensor)
        if array is not None and 0 < array.size <= MAX_ELEMENTS and array.dtype.itemsize <= 4:
            indices = [i for i in at if isinstance(i, ex.Index)]
            plain = all(
                isinstance(n, int)
                and (
                    isinstance(i, ex.Const) or (isinstance(i, ex.Index) and same_size(i.extent, n))
                )
                for i, n in zip(at, tensor.shape, strict=True)
            )
            if plain and len(set(indices)) == len(indices) > 0:
                at_all = tuple(i.value if isinstance(i, ex.Const) else slice(None) for i in at)
                return self.elements(np.reshape(array, tensor.shape)[at_all], indices)  # type: ignore[arg-type]
        found = self.ranges.get(tensor)
        return (found.low, found.high) if found is not None else tensor.element.limits

    def elements(self, array: np.ndarray, indices: list[ex.Index]) -> Bounds:
        """Bounds for every element of an array, along the axes of these indices."""
        places = [self.axes.setdefault(i, len(self.axes)) for i in indices]
        order = sorted(range(len(places)), key=lambda n: -places[n])
        shape = [1] * (max(places) + 1)
        for place, n in zip(places, array.shape, strict=True):
            shape[-1 - place] = n
        values = array.transpose(order).reshape(shape)
        return _held((values, values), np.int16 if range_of(array).within(I16) else np.int64)

    def applied(self, e: ex.Apply) -> Bounds:
        operands = [bounds for o in e.operands if (bounds := self.of(o)) is not None]
        found: Bounds | None = None
        if len(operands) < len(e.operands):
            return e.type.limits
        low, high = scalar(operands[0])
        if e.function == "not":
            top = -1 if e.type.signed else e.type.limits[1]
            found = top - high, top - low
        elif e.function == "clz":
            found = (
                e.type.bits - high.bit_length() if low >= 0 else 0,
                e.type.bits - max(low, 0).bit_length(),
            )
            found = found if high >= 0 else (0, 0)
        elif e.function in ELEMENTWISE:
            found = ELEMENTWISE[e.function](*_safe(operands))
            if (
                found
                and e.function == "mul"
                and self.looks(e.operands[0]) == self.looks(e.operands[1])
            ):
                found = greatest(found[0], 0), found[1]  # a square
        elif e.function in SCALAR:
            found = SCALAR[e.function](*map(scalar, operands))
        return e.type.limits if found is None else self.fitted(e, found)

    def converted(self, e: ex.Expr, operand: ex.Expr, type: ElementType) -> Bounds:
        if (found := self.of(operand)) is None:
            low, high = (
                int(min(max(n, type.limits[0]), type.limits[1])) for n in clamped(operand)[1:]
            )
            return min(low, 0), max(high, 0 if type.is_integer else 1)  # NaN becomes 0
        if type.kind == "bool":
            low, high = scalar(found)
            return int(low > 0 or high < 0), int(low != 0 or high != 0)
        return self.fitted(e, found)

    def fitted(self, e: ex.Expr, bounds: Bounds) -> Bounds:
        """The bounds, or those of the type if the value may overflow it."""
        reached = Interval(*scalar(bounds))
        if reached.within(e.type):
            return bounds
        self.beyond.append(Overflow(e, reached))
        return e.type.limits

    # selects

    def chosen(self, condition: ex.Expr, then: ex.Expr, otherwise: ex.Expr) -> Bounds:
        bounds = self.of(condition)
        assert bounds is not None
        test = scalar(bounds)
        sides: list[Bounds] = []
        for truth, side in ((True, then), (False, otherwise)):
            if (
                narrowed := self.implied(condition, truth) if test[0] <= truth <= test[1] else None
            ) is not None:
                found = self.under(narrowed, side)
                sides.append(side.type.limits if found is None else found)
        return hull(*_safe(sides)) if sides else then.type.limits

    def under(self, narrowed: dict[int, Bounds], side: ex.Expr) -> Bounds | None:
        """The bounds of one side of a select under the facts of its condition."""
        if (
            self.depth >= MAX_NESTED_CHOICES
            or not narrowed
            or not any(self.looks(n) in narrowed for n in walk(side))
        ):
            return self.of(side)
        outer = self.known, self.assumed, self.depth
        self.known = {}
        self.assumed = {**self.assumed, **narrowed}
        self.depth = self.depth + 1
        found = self.of(side)
        self.known, self.assumed, self.depth = outer
        return found

    def implied(self, condition: ex.Expr, truth: bool) -> dict[int, Bounds] | None:
        """The facts that a condition's truth value implies for compared expressions; None if it
        never has that value.
        """
        match condition:
            case ex.Apply("not", (operand,), type) if type.kind == "bool":
                return self.implied(operand, not truth)
            case ex.Apply("and" | "or" as which, (a, b), type) if (
                type.kind == "bool" and (which == "and") == truth
            ):
                one, other = self.implied(a, truth), self.implied(b, truth)
                return None if one is None or other is None else _met(one, other)
            case ex.Apply(function, (a, b), _) if function in _COMPARISONS and a.type.is_discrete:
                function = function if truth else _COMPARISONS[function][0]
                one = self.compared(function, a, b)
                other = self.compared(_COMPARISONS[function][1], b, a)
                return None if one is None or other is None else _met(one, other)
        return {}

    def compared(self, function: str, a: ex.Expr, b: ex.Expr) -> dict[int, Bounds] | None:
        """The bounds of `a` implied by its comparison with `b`."""
        x, y = self.of(a), self.of(b)
        assert x is not None and y is not None
        (low, high), (least_y, greatest_y) = scalar(x), scalar(y)
        match function:
            case "lt" | "le":
                high = min(high, greatest_y - (function == "lt"))
            case "gt" | "ge":
                low = max(low, least_y + (function == "gt"))
            case "eq":
                low, high = max(low, least_y), min(high, greatest_y)
            case _ if least_y == greatest_y:
                low = low + (low == least_y)
                high = high - (high == least_y)
        if low > high:
            return None
        if isinstance(a, ex.Const):
            return {}
        return {self.looks(a): (low, high)}

    # reductions

    def reduced(self, e: ex.Reduce) -> Bounds:
        start = identity(e.function, e.type)
        none = int(start.value), int(start.value)
        if any(isinstance(i.extent, int) and i.extent == 0 for i in e.indices):
            return none
        reduced = e.body
        match e.body:
            case ex.When(condition, then, ex.Const(value)) if (
                value == start.value and e.function in ("max", "min")
            ):
                reduced = then if window_reaches_input(condition, e.indices) else e.body
        body = self.of(reduced)
        assert body is not None
        counts = [UNBOUNDED if isinstance(i.extent, Size) else i.extent for i in e.indices]
        if prod(counts) * max(map(abs, scalar(body))) >= EXACT:
            body = scalar(body)
        over = [
            (-1 - self.axes[i] if i in self.axes else None, n)
            for i, n in zip(e.indices, counts, strict=True)
        ]
        found = REDUCTIONS[e.function](body, over) if e.function in REDUCTIONS else e.type.limits
        if any(isinstance(i.extent, Size) for i in e.indices):  # an unknown extent may be zero
            found = hull(*_safe([found, none]))
        return self.fitted(e, found)


def _safe(operands: list[Bounds]) -> list[Bounds]:
    """The operands of one operation: arrays in a type that holds its result, or plain ints if no
    type does.
    """
    if not (arrays := [b for pair in operands for b in pair if isinstance(b, np.ndarray)]):
        return operands
    most = 2 * prod(max(-low, high, 1) for low, high in map(scalar, operands))
    types = [t for t in (np.int16, np.int32, np.int64) if most <= np.iinfo(t).max]
    if not types or prod(np.broadcast_shapes(*(a.shape for a in arrays))) > MAX_ELEMENTS:
        return [scalar(o) for o in operands]
    return [_held(o, types[0]) for o in operands]


def _held(bounds: Bounds, type: type[np.integer]) -> Bounds:
    narrow = {id(b): b.astype(type, copy=False) for b in bounds if isinstance(b, np.ndarray)}
    return narrow.get(id(bounds[0]), bounds[0]), narrow.get(id(bounds[1]), bounds[1])


def _met(a: dict[int, Bounds], b: dict[int, Bounds]) -> dict[int, Bounds] | None:
    """The conjunction of two sets of facts; None if they contradict each other."""
    met = {k: (max(v[0], b[k][0]), min(v[1], b[k][1])) if k in b else v for k, v in a.items()}
    return None if any(low > high for low, high in met.values()) else {**b, **met}


_COMPARISONS = {  # each comparison's negation, and the comparison with exchanged operands
    "lt": ("ge", "gt"),
    "le": ("gt", "ge"),
    "gt": ("le", "lt"),
    "ge": ("lt", "le"),
    "eq": ("ne", "eq"),
    "ne": ("eq", "ne"),
}
