"""Functions and methods of NumPy on arrays that kernels may call: reductions, products, choices,
and other orders of elements.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import mul, or_
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cvm.dialect.kernel_ir import expressions as ex, loops as ir
from cvm.dialect.numpy.ufunc_table import UFUNCS
from cvm.dialect.types.tensor_types import BY_DTYPE, F64, I1, I64, ElementType

from . import calls, functions, library
from .array_expressions import ONE
from .arrays import Along, Array, Elements, Known, Method, Values
from .numbers import Number, NumberType

if TYPE_CHECKING:
    from .build import Builder

Given: TypeAlias = dict[str, Any]
Function: TypeAlias = Callable[["Builder", Given, ast.Call], Any]
# by the function that is called: the names of its arguments, how many it needs, and what it does
TABLE: dict[object, tuple[tuple[str, ...], int, Function]] = {}
REDUCTION = ("a", "axis", "keepdims")


def found(called: object) -> Callable[[Builder, ast.Call], Any] | None:
    """The builder of calls of a NumPy function; None for a function that is not offered."""
    ufunc = getattr(called, "__self__", None)
    if isinstance(ufunc, np.ufunc) and getattr(called, "__name__", "") == "outer":
        return partial(_outer_of, ufunc)
    try:
        row = TABLE.get(called)
    except TypeError:
        return None
    if row is None:
        return None
    return lambda b, node: row[2](b, _bound(b, getattr(called, "__name__", ""), row, node), node)


def method(b: Builder, called: Method, node: ast.Call) -> Any:
    """Build a call of a method of an array."""
    row = METHODS[called.name]
    return row[2](b, _bound(b, called.name, row, node, called.of), node)


def _bound(
    b: Builder,
    name: str,
    row: tuple[tuple[str, ...], int, Function],
    node: ast.Call,
    of: object = None,
) -> Given:
    """The values of a call's arguments, by their names; those that are None are left out."""
    names, least, _ = row
    first = [] if of is None else [of]
    nodes: list[ast.expr] = [*node.args, *(k.value for k in node.keywords)]
    keys = [*names[len(first) : len(first) + len(node.args)], *(k.arg for k in node.keywords)]
    if (
        len(keys) < len(nodes)
        or len(set(keys)) < len(keys)
        or set(keys) - set(names[len(first) :])
        or len(keys) + len(first) < least
        or any(isinstance(a, ast.Starred) for a in node.args)
    ):
        takes = ", ".join(names[len(first) :]) or "no arguments"
        raise b.source.mistake(f"{name} takes {takes} in kernels", node)
    values: Given = dict(zip(names, first, strict=False))
    for key, given in zip(keys, nodes, strict=True):
        assert key is not None
        if key == "dtype":
            values[key] = b.element_type(given)
            continue
        if isinstance(given, ast.List):
            given = ast.copy_location(ast.Tuple(given.elts, ast.Load()), given)
        (value,) = b.operands(b.value(given))
        if not (isinstance(value, Known) and value.value is None):
            values[key] = value
    return values


def _elements(b: Builder, value: object, node: ast.AST) -> Elements:
    if not isinstance(value, (Array, Elements)):
        raise b.source.mistake(f"expected an array, got a {b.described(value)}", node)
    return value.elements


def _axes(b: Builder, given: Given, rank: int, node: ast.AST) -> list[int]:
    """The axes in the arguments, by default every axis."""
    if "axis" not in given:
        return list(range(rank))
    named = given["axis"]
    items = named.items if isinstance(named, Values) else (named,)
    found: list[int] = []
    for item in items:
        n = item.constant if isinstance(item, Number) else None
        if not isinstance(n, int) or not -rank <= n < rank:
            raise b.source.mistake(f"an axis is a constant integer below {rank}", node)
        found.append(n % rank)
    return found


def _shaped(b: Builder, value: Any, given: Given, keep: Sequence[int], rank: int) -> Any:
    """The result of a reduction, with axes of size 1 where these are kept."""
    kept = given.get("keepdims")
    if not (isinstance(kept, Number) and kept.constant):
        return value
    if isinstance(value, Number):
        return Elements((ONE,) * rank, NumberType(value.element), lambda _: value, ())
    return _with_axes(value, [n for n in range(rank) if n not in keep])


def _with_axes(value: Array | Elements, new: Sequence[int]) -> Any:
    """The array with further axes of size 1."""
    rank = value.rank + len(new)
    old = [n for n in range(rank) if n not in new]
    lengths: list[ex.Expr] = [ONE] * rank
    for n, length in zip(old, value.lengths, strict=True):
        lengths[n] = length
    if isinstance(value, Array):
        axes = tuple(
            replace(a, axis=old[a.axis]) if isinstance(a, Along) else a for a in value.axes
        )
        return replace(value, lengths=tuple(lengths), axes=axes)
    of = value
    return replace(of, lengths=tuple(lengths), at=lambda at: of.at([at[n] for n in old]))


def _summed(x: ElementType) -> ElementType:
    """The type in which NumPy adds elements."""
    return (
        x
        if x.kind in ("float", "complex")
        else BY_DTYPE[np.result_type(np.sum(np.zeros(1, x.dtype)))]
    )


def _reduction(function: str, kind: Callable[[ElementType], ElementType]) -> Function:
    def reduce(b: Builder, given: Given, node: ast.Call) -> Any:
        if isinstance(given["a"], Number) and set(given) == {"a"}:
            return b.to(given["a"], NumberType(kind(given["a"].element)), node)
        of = _elements(b, given["a"], node)
        over = _axes(b, given, of.rank, node)
        keep = [n for n in range(of.rank) if n not in over]
        element = given.get("dtype") or kind(of.type.element)
        if function in ("maximum", "minimum"):
            _check_ordered(b, of, node)
            for n in over:
                size = b.let(of.lengths[n])
                message = f"the {function} of no elements"
                b.fail_if(size.eq(0), "ValueError", message, node)
        name = function if element.kind == "float" else function.replace("imum", "")
        start = ir.identity(name, element)
        return _shaped(b, b.total(name, of, start, keep, element, node), given, keep, of.rank)

    return reduce


def _check_ordered(b: Builder, of: Elements, node: ast.AST) -> None:
    if of.type.element.kind == "complex":
        raise b.source.mistake("complex numbers have no order in kernels", node)


def _count(b: Builder, of: Elements, over: Sequence[int]) -> ex.Expr:
    count: ex.Expr = ONE
    for n in over:
        count = count * of.lengths[n]
    return b.let(count, "count")


def _mean(b: Builder, given: Given, node: ast.Call) -> Any:
    of = _elements(b, given["a"], node)
    kind = of.type.element if of.type.element.kind in ("float", "complex") else F64
    count = Number(ex.cast(_count(b, of, _axes(b, given, of.rank, node)), kind))
    sum = _reduction("add", lambda _: kind)(b, given, node)
    return b.applied(
        lambda v: b.binary(ast.Div(), v[0], v[1], node), (sum, count), (node, node), node
    )


def _variance(b: Builder, given: Given, node: ast.Call) -> Any:
    of = given["a"] = _elements(b, b.in_memory(given["a"], node), node)
    if of.type.element.kind == "complex":
        raise b.source.mistake("var and std take real numbers in kernels", node)
    kept = {**given, "keepdims": Number(ex.TRUE, True)}
    less = given.pop("ddof", Number(ex.ZERO, True))
    mean = b.in_memory(_mean(b, {k: v for k, v in kept.items() if k != "ddof"}, node), node)

    def square(v: Sequence[Number]) -> Number:
        difference = Number(b.let(b.binary(ast.Sub(), v[0], v[1], node).expr))
        return Number(difference.expr * difference.expr)

    count = _count(b, of, _axes(b, given, of.rank, node))
    left = ex.maximum(0, count - b.integer(less, node).expr)
    squares = b.elementwise(square, (of, mean), node)
    sum = _reduction("add", lambda e: e)(b, {**given, "a": squares}, node)
    count = Number(ex.cast(b.let(left), squares.type.element))
    return b.applied(
        lambda v: b.binary(ast.Div(), v[0], v[1], node), (sum, count), (node, node), node
    )


def _deviation(b: Builder, given: Given, node: ast.Call) -> Any:
    value = _variance(b, given, node)
    return b.applied(lambda v: Number(ex.apply("sqrt", v[0].expr)), (value,), (node,), node)


def _conjugate(b: Builder, given: Given, node: ast.Call) -> Any:
    of = given["a"]
    if not isinstance(of, Number):
        call = functions.FUNCTIONS[np.conjugate][1]
        return b.applied(lambda v: call(b, v, node), (of,), (node,), node)
    if of.kind != "complex":
        return of
    return Number(UFUNCS["conjugate"].expression([b.let(of.expr)], of.element), of.weak)


def _place(function: str) -> Function:
    """The index of the first least or greatest element, or of the first NaN."""

    def find(b: Builder, given: Given, node: ast.Call) -> Any:
        of = _elements(b, given["a"], node)
        _check_ordered(b, of, node)
        if of.rank != 1:
            raise b.source.mistake(f"arg{function} is of arrays of rank 1 in kernels", node)
        b.fail_if(of.lengths[0].eq(0), "ValueError", f"arg{function} of no elements", node)
        best = b.accumulator("best", of.at([ex.ZERO]).expr)
        place = b.accumulator("place", ex.ZERO)

        def one(at: Sequence[ex.Expr]) -> None:
            x = b.let(of.at(at).expr)
            old = best[()]
            if x.type is I1:
                better = x & ~old if function == "max" else old & ~x
            else:
                better = x > old if function == "max" else x < old
            if x.type.kind == "float":
                better = better | (x.ne(x) & old.eq(old))
            b.out.append(ir.If(better, (ir.assign(best, x), ir.assign(place, at[0]))))

        b.in_cases(of.equal, lambda: b.loops(of.lengths, one))
        return Number(b.let(place[()]))

    return find


def _product(b: Builder, given: Given, node: ast.Call) -> Any:
    x, y = given["a"], given["b"]
    if isinstance(x, Number) or isinstance(y, Number):
        return b.applied(
            lambda v: b.binary(ast.Mult(), v[0], v[1], node), (x, y), (node, node), node
        )
    return b.matrix_product(x, y, node)


def _outer(b: Builder, given: Given, node: ast.Call) -> Any:
    return _crossed(
        b, lambda v: b.binary(ast.Mult(), v[0], v[1], node), given["a"], given["b"], node
    )


def _outer_of(ufunc: np.ufunc, b: Builder, node: ast.Call) -> Any:
    row = functions.FUNCTIONS.get(ufunc)
    if row is None or row[0] != "2" or len(node.args) != 2 or node.keywords:
        raise b.source.mistake(f"np.{ufunc.__name__}.outer is not offered in kernels", node)
    x, y = b.operands(*map(b.value, node.args))
    return _crossed(b, lambda v: row[1](b, v, node), x, y, node)


def _crossed(b: Builder, operation: Any, x: Any, y: Any, node: ast.Call) -> Any:
    x, y = _elements(b, x, node), _elements(b, y, node)
    if x.rank != 1 or y.rank != 1:
        raise b.source.mistake("outer is of arrays of rank 1 in kernels", node)
    return b.elementwise(operation, (_with_axes(x, [1]), y), node)


def _where(b: Builder, given: Given, node: ast.Call) -> Any:
    def choose(v: Sequence[Number]) -> Number:
        from .numbers import common

        kind = common(v[1].type, v[2].type)
        x, y = (b.to(one, kind, node).expr for one in v[1:])
        return Number(ex.select(b.truth(v[0]), x, y))

    values = given["condition"], given["x"], given["y"]
    return b.applied(choose, values, (node,) * 3, node)


def _clip(b: Builder, given: Given, node: ast.Call) -> Any:
    value = given["a"]
    for name, function in (("a_min", np.maximum), ("a_max", np.minimum)):
        if name in given:
            call = functions.FUNCTIONS[function][1]
            value = b.applied(
                lambda v, call=call: call(b, v, node), (value, given[name]), (node, node), node
            )
    return value


def _copy(b: Builder, given: Given, node: ast.Call) -> Any:
    return b.in_memory(_elements(b, given["a"], node), node, copy=True)


def _convert(b: Builder, given: Given, node: ast.Call) -> Any:
    of = _elements(b, given["a"], node)
    return b.in_memory(b.converted(of, NumberType(given["dtype"]), node), node, copy=True)


def _transpose(b: Builder, given: Given, node: ast.Call) -> Any:
    of = b.in_memory(given["a"], node) if isinstance(given["a"], Elements) else given["a"]
    _elements(b, of, node)
    order = list(range(of.rank))[::-1]
    if "axes" in given:
        order = _axes(b, {"axis": given["axes"]}, of.rank, node)
        if sorted(order) != list(range(of.rank)):
            raise b.source.mistake("the axes of a transposition are all of them", node)
    return of.transposed(order)


def _flip(b: Builder, given: Given, node: ast.Call) -> Any:
    of = (
        b.in_memory(_elements(b, given["m"], node), node)
        if isinstance(given["m"], Elements)
        else given["m"]
    )
    _elements(b, of, node)
    over = _axes(b, given, of.rank, node)
    axes = tuple(
        Along(a.axis, a.at(of.lengths[a.axis] - 1), -a.step)
        if isinstance(a, Along) and a.axis in over
        else a
        for a in of.axes
    )
    return replace(of, axes=axes)


def _reshape(b: Builder, given: Given, node: ast.Call) -> Any:
    of, wanted = given["a"], given["shape"]
    _elements(b, of, node)
    of = b.in_memory(of, node) if isinstance(of, Elements) and of.equal else of
    items = wanted.items if isinstance(wanted, Values) else (wanted,)
    sizes = [b.let(b.integer(v, node).expr) for v in items]
    size = _count(b, of.elements, range(of.rank))
    free = [n for n, e in enumerate(sizes) if isinstance(e, ex.Const) and e.value == -1]
    if len(free) > 1:
        raise b.source.mistake("only one size can be -1", node)
    rest = b.let(reduce(mul, (e for n, e in enumerate(sizes) if n not in free), ONE))
    for n in free:
        sizes[n] = b.let(size // ex.maximum(1, rest))
        b.limits[sizes[n]] = reduce(mul, of.lengths, ONE)
    lengths = tuple(
        e if n in free else b.measured(ex.maximum(0, e), e) for n, e in enumerate(sizes)
    )
    found = rest * reduce(mul, (sizes[n] for n in free), ONE)
    bad = reduce(or_, (e < 0 for e in sizes), found.ne(size))
    b.fail_if(bad, "ValueError", "cannot reshape an array of size {0} into this shape", node, size)
    return _in_order(of.elements, lengths, b)


def _in_order(of: Elements, lengths: tuple[ex.Expr, ...], b: Builder) -> Elements:
    """The elements in the order of memory with C's layout, in another shape."""

    def at(i: Sequence[ex.Expr]) -> Number:
        place: ex.Expr = ex.ZERO
        for n, length in zip(i, lengths, strict=True):
            place = place * length + n
        found: list[ex.Expr] = []
        for length in of.lengths[:0:-1]:
            place = b.let(place)
            found.append(place % length)
            place = place // length
        return of.at([place, *reversed(found)] if of.rank else [])

    return replace(of, lengths=lengths, at=at, shared="reshape")


def _ravel(b: Builder, given: Given, node: ast.Call) -> Any:
    minus = Number(ex.constant(-1, I64), True)
    return replace(_reshape(b, {**given, "shape": minus}, node), shared="ravel")


def _flatten(b: Builder, given: Given, node: ast.Call) -> Any:
    return b.in_memory(_ravel(b, given, node), node, copy=True)


def _in_kernels(name: str, rank: int | None = 1) -> Function:
    """A function that is stated as a kernel, of an array of a rank."""

    def call(b: Builder, given: Given, node: ast.Call) -> Any:
        first, *others = given.values()
        if not isinstance(first, (Array, Elements)) or rank not in (None, first.rank):
            message = f"this function takes an array of rank {rank} in kernels"
            raise b.source.mistake(f"{message}, got: {b.described(first)}", node)
        first = b.in_memory(first, node)
        return calls.call(b, getattr(library, name), node, (first, *others))

    return call


def _fill(b: Builder, given: Given, node: ast.Call) -> None:
    b.store_array(given["a"], b.number_of(given["value"], node), node)


def _eye(b: Builder, given: Given, node: ast.Call) -> Any:
    rows = b.let(b.integer(given["N"], node).expr)
    columns = b.let(b.integer(given["M"], node).expr) if "M" in given else rows
    element = given.get("dtype", F64)
    zero, one = (ex.constant(n, element) for n in (0, 1))

    def at(i: Sequence[ex.Expr]) -> Number:
        return Number(ex.select(i[0].eq(i[1]), one, zero))

    sizes = tuple(b.measured(ex.maximum(0, n), n) for n in (rows, columns))
    return b.in_memory(Elements(sizes, NumberType(element), at, ()), node)


def _triangle(upper: bool) -> Function:
    def cut(b: Builder, given: Given, node: ast.Call) -> Any:
        of = _elements(b, given["m"], node)
        if of.rank != 2:
            raise b.source.mistake("triu and tril are of matrices in kernels", node)
        shift = b.integer(given["k"], node).expr if "k" in given else ex.ZERO
        shift = b.let(shift)
        zero = ex.constant(0, of.type.element)

        def at(i: Sequence[ex.Expr]) -> Number:
            inside = i[1] >= i[0] + shift if upper else i[1] <= i[0] + shift
            return Number(ex.select(inside, b.let(of.at(i).expr), zero))

        return replace(of, at=at)

    return cut


def _steps(b: Builder, given: Given, node: ast.Call) -> Any:
    """np.linspace: start + i * step, and the end itself at last, as NumPy computes them."""
    first, last = (
        b.let(b.to(b.number_of(given[n], node), NumberType(F64), node).expr)
        for n in ("start", "stop")
    )
    count = b.let(b.integer(given["num"], node).expr) if "num" in given else ex.constant(50, I64)
    b.fail_if(count < 0, "ValueError", "the number of steps is not negative", node)
    size = b.measured(ex.maximum(0, count), count)
    parts = b.let(ex.cast(ex.maximum(1, size - 1), F64))
    step = b.let((last - first) / parts)
    zero = ex.constant(0.0, F64)

    def at(i: Sequence[ex.Expr]) -> Number:
        n = b.let(ex.cast(i[0], F64))
        value = ex.select(step.eq(zero), n / parts * (last - first), n * step) + first
        return Number(ex.select(i[0].eq(size - 1) & (size > 1), last, value))

    return b.in_memory(Elements((size,), NumberType(F64), at, ()), node)


def _declare() -> None:
    same = lambda e: e  # noqa: E731
    truth = lambda _: I1  # noqa: E731
    reductions: dict[str, tuple[Function, tuple[str, ...]]] = {
        "sum": (_reduction("add", _summed), ("a", "axis", "dtype", "keepdims")),
        "prod": (_reduction("mul", _summed), ("a", "axis", "dtype", "keepdims")),
        "max": (_reduction("maximum", same), REDUCTION),
        "min": (_reduction("minimum", same), REDUCTION),
        "any": (_reduction("or", truth), REDUCTION),
        "all": (_reduction("and", truth), REDUCTION),
        "mean": (_mean, REDUCTION),
        "var": (_variance, ("a", "axis", "ddof", "keepdims")),
        "std": (_deviation, ("a", "axis", "ddof", "keepdims")),
        "argmax": (_place("max"), ("a",)),
        "argmin": (_place("min"), ("a",)),
        "copy": (_copy, ("a",)),
        "dot": (_product, ("a", "b")),
        "transpose": (_transpose, ("a", "axes")),
    }
    for name, (function, names) in reductions.items():
        least = 2 if name == "dot" else 1
        TABLE[getattr(np, name)] = METHODS[name] = names, least, function
    METHODS["astype"] = ("a", "dtype"), 2, _convert
    METHODS["conjugate"] = METHODS["conj"] = ("a",), 1, _conjugate
    METHODS["fill"] = ("a", "value"), 2, _fill
    METHODS["ravel"] = ("a",), 1, _ravel
    METHODS["flatten"] = ("a",), 1, _flatten
    TABLE[np.reshape] = ("a", "shape"), 2, _reshape
    for name in ("argsort", "cumsum", "cumprod", "diff", "count_nonzero"):
        rank = None if name == "count_nonzero" else 1
        TABLE[getattr(np, name)] = ("a",), 1, _in_kernels(name, rank)
    for name in ("argsort", "cumsum", "cumprod"):
        METHODS[name] = TABLE[getattr(np, name)]
    METHODS["sort"] = ("a",), 1, _in_kernels("sort")
    TABLE[np.sort] = ("a",), 1, _in_kernels("sorted_copy")
    TABLE[np.searchsorted] = ("a", "v"), 2, _in_kernels("searchsorted")
    TABLE[np.linalg.norm] = ("x",), 1, _in_kernels("norm", None)
    TABLE[np.amax], TABLE[np.amin] = TABLE[np.max], TABLE[np.min]
    TABLE[np.matmul] = ("a", "b"), 2, lambda b, v, n: b.matrix_product(v["a"], v["b"], n)
    TABLE[np.outer] = ("a", "b"), 2, _outer
    TABLE[np.where] = ("condition", "x", "y"), 3, _where
    TABLE[np.clip] = ("a", "a_min", "a_max"), 1, _clip
    METHODS["clip"] = TABLE[np.clip]
    TABLE[np.flip] = ("m", "axis"), 1, _flip
    TABLE[np.eye] = ("N", "M", "dtype"), 1, _eye
    TABLE[np.triu] = ("m", "k"), 1, _triangle(True)
    TABLE[np.tril] = ("m", "k"), 1, _triangle(False)
    TABLE[np.linspace] = ("start", "stop", "num"), 2, _steps


METHODS: dict[str, tuple[tuple[str, ...], int, Function]] = {}
_declare()
