"""NumPy's interface for traced arrays: methods (`x.sum(axis=0)`), functions (`np.sum(x, axis=0)`)
and subscripts.

One table has them all, by NumPy's names, with NumPy's parameters and meaning. Only what means the
same is here: options that do not are refused. By the rules of the dali dialect, a few follow its
operators instead, and operands have one type.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial, wraps
from inspect import Parameter, Signature, signature
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from cvm.dialect.support.diagnostics import Error
from cvm.dialect.types.tensor_types import BF16, F16, F32, F64, compute_type

from ..tracing import trace
from ..tracing.trace import (
    TracedArray,
    apply,
    element_of,
    fail,
    fail_unknown,
    into,
    tracer_of,
    ufunc_of_trace,
)
from .ufuncs import common

FAR = 2**62  # larger than every size
Axes = int | Sequence[int] | None
ARRAYS = (TracedArray, np.ndarray, list, tuple, range)
SUBSCRIPTS = "subscripts are integers, slices, ..., None and arrays of integers"


def whole_number(value: Any, what: str) -> int:
    if isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_)):
        return int(value)
    message = f"{what} is an integer, got {value!r}"
    fail_unknown(value, message) if isinstance(value, TracedArray) else fail(message)


def whole_axis(axis: Any, rank: int) -> int:
    """An axis counted from the front."""
    if not -rank <= (found := whole_number(axis, "an axis")) < rank:
        fail(f"the array has {rank} dimensions, got axis {found}")
    return found % rank


def whole_axes(axis: Axes, rank: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(rank))
    found = [whole_axis(a, rank) for a in (axis if isinstance(axis, (tuple, list)) else [axis])]
    if len(set(found)) < len(found):
        fail(f"an axis is given twice in {axis!r}")
    return tuple(found)


def reduced_axes(axis: Axes, rank: int, of_numbers: bool = True) -> tuple[int, ...]:
    """The axes of a reduction; where they are those of numbers, too, these have 0 and -1, as in
    NumPy.
    """
    if isinstance(axis, list):
        fail("the axes of a reduction are an integer, or a tuple of them")
    return (
        ()
        if of_numbers and not rank and type(axis) is int and axis in (0, -1)
        else whole_axes(axis, rank)
    )


def along(x: Any, axis: int | None) -> tuple[Any, int]:
    """The array and its axis; the array is flat where there is no axis, or x is a number."""
    x = ravel(x) if axis is None or not x.ndim else x
    return x, whole_axis(0 if axis is None else axis, x.ndim)


def astype(x: Any, dtype: Any) -> Any:
    """Integers wrap as in C; floats are converted as NumPy does on x86-64, or by the dali dialect's
    rules as Theano does.
    """
    if x.type.element is (element := element_of(dtype)):
        return x
    if by_dali(x):
        return apply("theano.elemwise", x, scalar_op="cast", dtype=element)
    return apply("numpy.elementwise", x, ufunc="astype", dtype=element)


def by_dali(*arrays: Any) -> bool:
    """Test whether the trace follows the dali dialect's rules."""
    tracer = tracer_of(arrays)
    return tracer is not None and tracer.rules == "dali"


def _of_one_type(arrays: Sequence[Any], what: str) -> list[TracedArray]:
    """The operands as traced arrays of one type; Python's numbers take the type of the others."""
    if not by_dali(*arrays):
        return common(arrays)
    tracer = tracer_of(arrays)
    assert tracer is not None
    dtype = next(a.dtype for a in arrays if isinstance(a, (TracedArray, np.ndarray, np.generic)))

    def typed(a: Any) -> Any:
        if not isinstance(a, (int, float)) or isinstance(a, (bool, np.generic)):
            return a
        try:
            return np.asarray(a, dtype if isinstance(a, int) or dtype.kind == "f" else None)
        except OverflowError:
            fail(f"{a} is no number of NumPy's {dtype}")

    found = [tracer.array(typed(a), "dali") for a in arrays]
    if len(types := dict.fromkeys(str(f.type.element) for f in found)) > 1:
        fail(
            f"np.{what} wants arrays of one element type, got {' and '.join(types)}: use "
            "astype on them"
        )
    return found


def of_shape(shape: Any, found: Any) -> Any:
    """The result, unless broadcasting has given it another shape."""
    return (
        found
        if found.shape == shape
        else fail(f"an array of shape {found.shape} is no array of shape {shape}")
    )


# reductions


IDENTITY = {"sum": 0, "prod": 1, "any": False, "all": True}
COMBINE = dict(
    sum="add", prod="multiply", max="maximum", min="minimum", all="logical_and", any="logical_or"
)


def _chosen(name: str, x: Any, mask: Any, initial: Any) -> Any:
    """The elements where the mask holds, and the identity elsewhere."""
    if mask is None or mask is True:
        return x
    if name not in IDENTITY and initial is None:
        fail(f"np.{name} of the elements that a mask chooses has to have an initial value")
    return of_shape(x.shape, where(mask, x, np.asarray(IDENTITY.get(name, initial), x.dtype)))


def _from(name: str, found: Any, initial: Any) -> Any:
    return (
        found
        if initial is None
        else ufunc_of_trace(COMBINE[name], found, np.asarray(initial, found.dtype))
    )


def _reduction(name: str, *omitted: str) -> Callable[..., Any]:
    """NumPy's reduction of this name, without the options that are omitted."""

    def reduce(
        x: Any,
        axis: Axes = None,
        *,
        dtype: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Any:
        if name in ("all", "any") and x.dtype != np.bool_:
            x = ufunc_of_trace("not_equal", x, 0)
        x = _chosen(name, x, where, initial)
        if name in ("max", "min") and x.dtype.kind == "c":
            return _complex_extreme(name, x, axis, keepdims, initial)
        over = reduced_axes(axis, x.ndim)
        if name in ("max", "min") and initial is not None and 0 in [x.shape[a] for a in over]:
            one = apply(
                "builtin.pad",
                x,
                before=(0,) * x.ndim,
                after=tuple(int(a in over) for a in range(x.ndim)),
            )
            x = trace.NUMPY_FUNCTIONS["full_like"](one, initial)
        if dtype is not None:
            x = astype(x, dtype)
        typed = {} if dtype is None else {"dtype": element_of(dtype)}
        return _kept(
            _from(name, apply(f"theano.{name}", x, axis=over, **typed), initial), over, keepdims
        )

    taken = [p for n, p in signature(reduce).parameters.items() if n not in omitted]
    reduce.__signature__ = Signature(taken)  # type: ignore[attr-defined]
    return reduce


def _complex_extreme(name: str, x: Any, axis: Axes, keepdims: bool, initial: Any) -> Any:
    over = reduced_axes(axis, x.ndim)
    if len(over) not in (1, x.ndim):
        fail(f"np.{name} of complex numbers takes one axis, or all of them")
    given, at = along(x, over[0] if len(over) == 1 else None)
    place = trace.NUMPY_FUNCTIONS[f"arg{name}"](given, at, keepdims=True)
    found = _from(
        name, squeeze(trace.NUMPY_FUNCTIONS["take_along_axis"](given, place, at), at), initial
    )
    return _kept(found, over, keepdims)


def _kept(y: Any, over: Sequence[int], keepdims: bool) -> Any:
    return expand_dims(y, tuple(over)) if keepdims else y


def mean(
    x: Any, axis: Axes = None, dtype: Any = None, keepdims: bool = False, where: Any = None
) -> Any:
    """The mean: for integers in f64, for floats in their type, for f16 in f32."""
    if dtype is None and x.type.element in (F16, BF16):
        return astype(mean(astype(x, F32), axis, None, keepdims, where), x.type.element)
    whole = dtype is not None and np.dtype(dtype).kind in "biu"
    if whole or (where is not None and where is not True):
        present = apply("theano.elemwise", x, True if where is None else where, scalar_op="second")
        wide = np.float64 if dtype is None and x.type.element.is_discrete else dtype or x.dtype
        count = REDUCTIONS["sum"](present, axis, keepdims=keepdims)
        total = REDUCTIONS["sum"](x, axis, dtype=wide, keepdims=keepdims, where=where)
        return astype(
            ufunc_of_trace("divide", total, count if whole else astype(count, wide)), wide
        )
    if dtype is not None or x.type.element.is_discrete:
        x = astype(x, F64 if dtype is None else dtype)
    if x.type.element in (F16, BF16):
        return astype(mean(astype(x, F32), axis, keepdims=keepdims), x.type.element)
    over = reduced_axes(axis, x.ndim, of_numbers=False)
    sizes = [x.shape[a] for a in over]
    if all(isinstance(n, int) for n in sizes):
        count: Any = np.asarray(np.prod(sizes, dtype=np.float64), x.dtype)
    else:  # the size is known at run time only
        count = apply(
            "theano.sum",
            apply("theano.elemwise", x, np.ones((), x.dtype), scalar_op="second"),
            axis=over,
        )
    return _kept(ufunc_of_trace("divide", apply("theano.sum", x, axis=over), count), over, keepdims)


# shapes


def reshape(x: Any, *shape: Any, order: str = "C") -> Any:
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    if _is_fortran(order):
        return transpose(reshape(transpose(x), tuple(sizes)[::-1]))
    if {0, -1} <= {*sizes}:
        fail("the size that -1 stands for is open beside a size of 0")
    return apply("cvm.reshape", x, target_shape=tuple(whole_number(n, "a size") for n in sizes))


def ravel(x: Any, order: str = "C") -> Any:
    return apply("cvm.flatten", transpose(x) if _is_fortran(order) else x)


def _is_fortran(order: Any) -> bool:
    if order not in ("C", "F"):
        fail(f"the order of elements is C or F here, got {order!r}")
    return order == "F"


def transpose(x: Any, *axes: Any) -> Any:
    order = (
        axes[0] if len(axes) == 1 and not isinstance(axes[0], (int, np.integer)) else axes or None
    )
    if order is None:
        order = range(x.ndim)[::-1]
    if len(order) != x.ndim:
        fail(f"the axes are as many as the array's dimensions, {x.ndim}, got {len(order)}")
    return apply("cvm.transpose", x, axes=whole_axes(tuple(order), x.ndim)) if x.ndim else x


def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    a, b = whole_axis(axis1, x.ndim), whole_axis(axis2, x.ndim)
    return transpose(x, [{a: b, b: a}.get(n, n) for n in range(x.ndim)])


def moveaxis(x: Any, source: Axes, destination: Axes) -> Any:
    moved, places = whole_axes(source, x.ndim), whole_axes(destination, x.ndim)
    if len(moved) != len(places):
        fail(f"np.moveaxis has as many destinations as sources, got {destination!r} for {source!r}")
    order = [n for n in range(x.ndim) if n not in moved]
    for place, axis in sorted(zip(places, moved, strict=True)):
        order.insert(place, axis)
    return transpose(x, order)


def expand_dims(x: Any, axis: Axes) -> Any:
    for a in sorted(
        whole_axes(axis, x.ndim + (len(axis) if isinstance(axis, (tuple, list)) else 1))
    ):
        x = apply("cvm.expand_dims", x, axis=a)
    return x


def squeeze(x: Any, axis: Axes = None) -> Any:
    over = (
        tuple(n for n, d in enumerate(x.shape) if d == 1)
        if axis is None
        else reduced_axes(axis, x.ndim)
    )
    return apply("cvm.squeeze", x, axes=over) if over else x


def flip(x: Any, axis: Axes = None) -> Any:
    over = whole_axes(axis, x.ndim)
    return subscript(x, tuple(slice(None, None, -1 if n in over else None) for n in range(x.ndim)))


def repeat(x: Any, repeats: Any, axis: int | None = None) -> Any:
    x, at = along(x, axis)
    if isinstance(repeats, TracedArray):
        fail_unknown(
            repeats,
            "repeats are known while compiling, since the size of the result depends on them",
        )
    if np.ndim(repeats) or repeats == 0:
        return subscript(x, (slice(None),) * at + (np.repeat(np.arange(x.shape[at]), repeats),))
    return apply("cvm.repeat", x, repeats=whole_number(repeats, "repeats"), axis=at)


def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Any:
    found = _of_one_type(arrays, "concatenate")
    found, axis = ([ravel(x) for x in found], 0) if axis is None else (found, axis)
    return apply("cvm.concatenate", found, axis=whole_axis(axis, found[0].ndim))


def stack(arrays: Sequence[Any], axis: int = 0) -> Any:
    if not by_dali(*arrays):
        arrays = [a if isinstance(a, TracedArray) else np.asarray(a) for a in arrays]
    found = _of_one_type(arrays, "stack")
    at = whole_axis(axis, found[0].ndim + 1)
    return apply("cvm.concatenate", [expand_dims(x, at) for x in found], axis=at)


# subscripts


def subscript(x: Any, key: Any) -> Any:
    """Integers, slices, ..., None and arrays of integers, as in NumPy."""
    given = list(key) if isinstance(key, tuple) else [key]
    taken = sum(p is not None and p is not ... for p in given)
    if len(dots := [n for n, p in enumerate(given) if p is ...]) > 1:
        fail("a subscript has at most one ...")
    if taken > x.ndim:
        fail(f"the array has {x.ndim} dimensions, got {taken} subscripts")
    at = dots[0] if dots else len(given)
    parts = [*given[:at], *[slice(None)] * (x.ndim - taken), *given[at + 1 :]]
    if any(isinstance(p, ARRAYS) for p in given):
        chosen = [
            n for n, p in enumerate(given) if not (p is None or p is ... or isinstance(p, slice))
        ]
        return _by_arrays(x, parts, side_by_side=chosen == [*range(chosen[0], chosen[-1] + 1)])
    of_axes = [p for p in parts if p is not None]
    ranges = [_range(p, n) for p, n in zip(of_axes, x.shape, strict=True)]
    if any(r.length == 0 for r in ranges):  # the result is empty
        after = tuple(
            0 if r.length is None else r.length - n for r, n in zip(ranges, x.shape, strict=True)
        )
        x = apply("builtin.pad", x, before=(0,) * x.ndim, after=after)
    elif any((r.begin, r.end, r.stride) != (0, FAR, 1) for r in ranges):
        begin, end, strides, _ = zip(*ranges, strict=True)
        x = apply("cvm.slice", x, begin=begin, end=end, strides=strides)
    if dropped := tuple(n for n, p in enumerate(of_axes) if not isinstance(p, slice)):
        x = apply("cvm.squeeze", x, axes=dropped)
    left = [p for p in parts if p is None or isinstance(p, slice)]
    return expand_dims(x, new) if (new := tuple(n for n, p in enumerate(left) if p is None)) else x


def _by_arrays(x: Any, parts: list[Any], side_by_side: bool) -> Any:
    """NumPy's advanced indexing by integers: slices come first, then elements at the places that
    arrays give together.
    """
    over = tuple(n for n, p in enumerate(parts) if p is not None and not isinstance(p, slice))
    sliced = subscript(x, tuple(slice(None) if n in over else p for n, p in enumerate(parts)))
    arrays = [x.tracer.array(_places(parts[n], sliced.shape[n])) for n in over]
    try:
        shape = np.broadcast_shapes(*(a.shape for a in arrays))  # type: ignore[arg-type]
    except (ValueError, TypeError):
        fail(
            "the arrays of a subscript have one shape, got "
            f"{', '.join(str(a.shape) for a in arrays)}"
        )
    same = [
        a if a.shape == shape else trace.NUMPY_FUNCTIONS["broadcast_to"](a, shape) for a in arrays
    ]
    found = apply("builtin.gather", sliced, [astype(a, np.int64) for a in same], axes=over)
    if side_by_side:
        return found
    moved = range(
        over[0], over[0] + len(shape)
    )  # NumPy puts them first where they are not beside each other
    return transpose(found, [*moved, *(n for n in range(found.ndim) if n not in moved)])


def _places(part: Any, size: Any) -> Any:
    if isinstance(part, TracedArray) and part.dtype == np.bool_:
        fail(
            "the number of elements that a traced mask chooses is not known while "
            "compiling: use np.where"
        )
    if not isinstance(part, TracedArray):
        part = np.asarray(part, np.int64 if isinstance(part, (list, tuple)) and not part else None)
        if part.dtype == np.bool_:
            if part.shape != (size,):
                fail(
                    f"a mask known while compiling has the size of its axis, {size}, got "
                    f"the shape {part.shape}"
                )
            part = np.flatnonzero(part)
        if isinstance(size, int) and not ((-size <= part) & (part < size)).all():
            fail(f"the axis has {size} elements, got the subscripts {part.tolist()}")
    if part.dtype.kind not in "iu":
        fail(f"{SUBSCRIPTS}, got an array of {part.dtype}")
    return part


class _Range(NamedTuple):
    """The range of `cvm.slice` along an axis, and its length, if known."""

    begin: int
    end: int
    stride: int
    length: int | None


def _range(part: Any, size: Any) -> _Range:
    if not isinstance(part, slice):
        if isinstance(part, (bool, np.bool_)) or not isinstance(part, (int, np.integer)):
            fail(
                f"{SUBSCRIPTS}, got {type(part).__name__}: use np.where for elements that "
                "meet a condition"
            )
        at = int(part)
        if isinstance(size, int) and not -size <= at < size:
            fail(f"the axis has {size} elements, got the subscript {at}")
        return _Range(at, FAR if at == -1 else at + 1, 1, 1)
    bounds = part.start, part.stop, part.step
    first, last, step = (None if v is None else whole_number(v, "a slice's bound") for v in bounds)
    if (step := 1 if step is None else step) == 0:
        fail("a slice's step is not 0")
    if not isinstance(size, int):
        start, stop = (0, FAR) if step > 0 else (FAR, -FAR)
        return _Range(start if first is None else first, stop if last is None else last, step, None)
    start, stop, step = slice(first, last, step).indices(size)
    length = len(range(start, stop, step))
    whole = (start, stop, step) == (0, size, 1)
    return _Range(start, FAR if whole else -size - 1 if stop < 0 else stop, step, length)


# matrix products, and functions that NumPy defines differently from the dali dialect


def matmul(x: Any, y: Any) -> Any:
    """NumPy's product of matrices, vectors and stacks of them, summed in the elements' type (f16 in
    f32).
    """
    a, b = _of_one_type((x, y), "matmul")
    if (element := a.type.element) is F16 and not by_dali(a):  # products are not rounded either
        return astype(matmul(astype(a, F32), astype(b, F32)), F16)
    if not a.ndim or not b.ndim:
        fail(f"np.matmul multiplies matrices and vectors of numbers, got {a.type} and {b.type}")
    inner = a.shape[-1], b.shape[-2 if b.ndim > 1 else 0]
    if inner[0] != inner[1] and (1 in inner or all(isinstance(n, int) for n in inner)):
        fail(f"the sizes that are summed over differ: {inner[0]} and {inner[1]}")
    rows = (*range(a.ndim), "x") if a.ndim > 1 else ("x", 0, "x")
    columns = (*range(b.ndim - 2), "x", b.ndim - 2, b.ndim - 1) if b.ndim > 1 else ("x", 0, "x")
    left, right = (
        apply("theano.dimshuffle", a, new_order=rows),
        apply("theano.dimshuffle", b, new_order=columns),
    )
    products = apply("theano.elemwise", left, right, scalar_op="mul")
    truths = element.kind == "bool"
    wide = {} if truths else {"acc_dtype": compute_type(element), "dtype": element}
    found = apply(
        "theano.any" if truths else "theano.sum", products, axis=(products.ndim - 2,), **wide
    )
    dropped = (found.ndim - 2,) * (a.ndim == 1) + (found.ndim - 1,) * (b.ndim == 1)
    return apply("cvm.squeeze", found, axes=dropped) if dropped else found


def clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    if (a_min is not None and min is not None) or (a_max is not None and max is not None):
        fail("np.clip takes a_min and a_max, or min and max")
    low, high = a_min if min is None else min, a_max if max is None else max
    if by_dali(x) and low is not None and high is not None:
        return apply("dali.clamp", x, low, high)
    x = x if isinstance(x, TracedArray) or by_dali(low, high) else np.asarray(x)
    if (
        isinstance(x, TracedArray) and x.type.element.is_integer
    ):  # a bound that all integers of the type keep
        least, most = x.type.element.limits
        low = None if type(low) is int and low <= least else low
        high = None if type(high) is int and high >= most else high
    if low is not None and high is not None and not by_dali(x, low, high):
        x, low, high = common((x, low, high))  # of all three, as np.clip has it
    if low is not None:
        x = maximum(x, low)
    return x if high is None else minimum(x, high)


def _larger_or_smaller(ufunc: str, operator: str, x: Any, y: Any) -> Any:
    """The larger or smaller one, NaN where one of them is."""
    if not by_dali(x, y):
        return ufunc_of_trace(ufunc, x, y)
    if not isinstance(x, TracedArray):
        x, y = y, x
    found = apply(operator, x, y)  # y if an operand is NaN
    return (
        apply("dali.where", apply("dali.ne", x, x), x, found) if found.dtype.kind == "f" else found
    )


def where(condition: Any, x: Any, y: Any) -> Any:
    if by_dali(condition, x, y):
        return apply("dali.where", condition, x, y)
    truth = condition if isinstance(condition, TracedArray) else np.asarray(condition, np.bool_)
    if isinstance(truth, TracedArray) and truth.dtype != np.bool_:
        truth = ufunc_of_trace("not_equal", truth, 0)
    return apply("numpy.elementwise", truth, *common((x, y)), ufunc="where")


def _view(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose result shares memory with its operand in NumPy."""

    @wraps(function)
    def view(x: Any, *args: Any, **options: Any) -> Any:
        return x.viewed(lambda a: function(a, *args, **options))

    return view


def _reshaped(x: Any, *shape: Any, order: str = "C") -> Any:
    """A view where axes are split; otherwise a view or a copy, as NumPy's layout has it."""
    found = reshape(x, *shape, order=order)
    certain = order == "C" and _splits(x.shape, found.shape)
    return x.viewed(lambda a: reshape(a, *shape, order=order), found=found, certain=certain)


def _splits(old: Sequence[Any], new: Sequence[Any]) -> bool:
    """Test whether each size is the product of adjacent new ones, apart from sizes of 1."""
    if not all(isinstance(n, int) for n in (*old, *new)) or 0 in old:
        return False
    sizes = [n for n in new if n != 1][::-1]
    for size in (n for n in old if n != 1):
        while size != 1 and sizes and size % sizes[-1] == 0:
            size //= sizes.pop()
        if size != 1:
            return False
    return not sizes


def _flat(x: Any, order: str = "C") -> Any:
    """A view of a vector that is no view itself; otherwise a view or a copy, as NumPy's layout has
    it.
    """
    return x.viewed(lambda a: ravel(a, order), certain=x.ndim <= 1 and x.origin is None)


def _subscript(x: Any, key: Any) -> Any:
    found, parts = subscript(x, key), key if isinstance(key, tuple) else (key,)
    if not found.ndim and not any(p is ... for p in parts):
        return found.copied()  # a scalar
    if x.is_scalar or any(isinstance(p, ARRAYS) and not is_scalar(p) for p in parts):
        return x.as_array(found.copied())
    return x.viewed(lambda a: subscript(a, key), key, found=found)


def is_scalar(given: Any) -> bool:
    """Test for a scalar among arrays: one of NumPy, or a traced one."""
    return isinstance(given, TracedArray) and given.is_scalar


maximum, minimum = (partial(_larger_or_smaller, f"{m}imum", f"dali.{m}") for m in ("max", "min"))
REDUCTIONS: dict[str, Callable[..., Any]] = {
    **{n: _reduction(n) for n in ("sum", "prod")},
    "mean": mean,
    **{n: _reduction(n, "dtype") for n in ("max", "min")},
    **{n: _reduction(n, "dtype", "initial") for n in ("all", "any")},
}
# methods of arrays, which are functions of NumPy too
METHODS: dict[str, Callable[..., Any]] = {
    **REDUCTIONS,
    **{f.__name__: f for f in (astype, clip, repeat)},
    **{f.__name__: _view(f) for f in (squeeze, swapaxes, transpose)},
    **{"ravel": _flat, "reshape": _reshaped},
}
# NumPy's functions and ufuncs of traced arrays, besides the ufuncs that are operators of the dali
# dialect
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **METHODS,
    **{f.__name__: f for f in (concatenate, matmul, stack, where)},
    "square": lambda x: (
        ufunc_of_trace("multiply", x, x) if by_dali(x) else ufunc_of_trace("square", x)
    ),
    **{f.__name__: _view(f) for f in (expand_dims, flip, moveaxis)},
    **{n: lambda x, n=n: getattr(x, n) for n in ("ndim", "shape")},
    "size": lambda x, axis=None: x.size if axis is None else x.shape[whole_axis(axis, x.ndim)],
    **{
        "amax": REDUCTIONS["max"],
        "amin": REDUCTIONS["min"],
        "maximum": maximum,
        "minimum": minimum,
    },
}


def _reduced(
    name: str,
    x: Any,
    axis: Axes = 0,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    return REDUCTIONS[name](x, axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where)


COPIED = (
    "astype",
    "clip",
    "copy",
    "meshgrid",
    "nan_to_num",
    "pad",
    "roll",
    "round",
    "around",
)  # NumPy's results share no memory
# Results of rank 0 are scalars in NumPy, except for views of arrays, and those of these functions.
VIEWS = (
    "squeeze",
    "transpose",
    "reshape",
    "moveaxis",
    "real",
    "imag",
    "broadcast_to",
    "broadcast_arrays",
)
ARRAYS_OF_RANK_0 = (
    "np.copy",
    "where",
    "select",
    "roll",
    "tile",
    "tensordot",
    "linalg.tensordot",
    "zeros_like",
    "ones_like",
    "empty_like",
    "full_like",
)
OF_OPERAND = ("copy", "astype")  # scalars of scalars
MEANINGLESS = (
    "copy",
    "device",
    "optimize",
    "subok",
)  # parameters of NumPy's that do not change what is computed


def checked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Call the function as NumPy's: refuse parameters that it lacks unless they are defaults; `out`
    is written.
    """
    own = signature(function).parameters
    words = ", ".join(own)

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        shares = options.get("copy") is False
        try:
            given, options, out = _in_own_words(name, own, args, options)
            if (
                "dtype" in own
                and options.get("dtype") is None
                and getattr(out, "dtype", np.dtype(int)).kind in "fc"
            ):
                options["dtype"] = np.result_type(
                    getattr(options.get(next(iter(own))), "dtype", bool), out.dtype
                )
            signature(function).bind(*given, **options)
        except TypeError as e:
            fail(f"{name} of a traced array: {e}; it takes {words}")
        try:
            found = function(*given, **options)
        except Error:
            raise
        except (ArithmeticError, IndexError, TypeError, ValueError) as e:
            fail(f"{name} of a traced array: {e}")  # as NumPy says of what is known while compiling
        return _as_numpy_gives(name, found, args, shares) if out is None else into(out, found)

    return call


def _as_numpy_gives(name: str, found: Any, args: Sequence[Any], shares: bool) -> Any:
    """The result of a function as NumPy's: a view, an array of its own, or a scalar."""
    if isinstance(found, (tuple, list)):
        return type(found)(_as_numpy_gives(name, x, args, shares) for x in found)
    plain = name.removeprefix("np.")
    if not isinstance(found, TracedArray) or shares or (plain in VIEWS and not found.ndim):
        return found
    if plain in COPIED or not found.ndim:
        found = found.copied()
    if not found.ndim and (
        {name, plain} & {*ARRAYS_OF_RANK_0} or (plain in OF_OPERAND and not is_scalar(args[0]))
    ):
        found.is_scalar = False
    return found


@cache
def _signature_of_numpys(name: str) -> Signature | None:
    place, kept = name.removeprefix("np."), ("reshape", "transpose", "astype", "copy", "flatten")
    try:  # these methods have parameters of their own
        return None if name in kept else signature(attrgetter(place)(np))
    except (AttributeError, ValueError):
        return None


def _in_own_words(
    name: str, own: Mapping[str, Parameter], args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[list[Any], dict[str, Any], Any]:
    """The arguments for NumPy's parameters as those of a function that may name them otherwise, and
    the value of `out`.
    """
    if (numpys := _signature_of_numpys(name)) is None:
        return (
            [*args],
            {o: v for o, v in options.items() if o in own or not (v is None or o in MEANINGLESS)},
            None,
        )
    positional, named, out = [], {}, None
    names = [*own]
    for word, value in numpys.bind(*args, **options).arguments.items():
        place = [*numpys.parameters].index(word)
        if (parameter := numpys.parameters[word]).kind is parameter.VAR_POSITIONAL:
            positional += value
        elif parameter.kind is parameter.VAR_KEYWORD:
            named |= {o: v for o, v in value.items() if v is not None}
        elif value is np._NoValue:  # type: ignore[attr-defined]
            continue
        elif word == "out" and word not in own:
            out = value[0] if isinstance(value, tuple) and len(value) == 1 else value
        elif word in own or (place < len(own) and names[place] not in numpys.parameters):
            taken = word if word in own else names[place]
            if own[taken].kind is Parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named[taken] = value
        elif not (
            value is None
            or word in MEANINGLESS
            or (np.isscalar(value) and value == parameter.default)
        ):
            fail(
                f"{name} of a traced array has no parameter {word} here; it takes {', '.join(own)}"
            )
    return positional, named, out


for _name, _function in {**METHODS, "flatten": ravel}.items():
    setattr(TracedArray, _name, checked(_name, _function))
TracedArray.T = property(_view(transpose))  # type: ignore[attr-defined]
TracedArray.mT = property(_view(lambda x: swapaxes(x, -1, -2)))  # type: ignore[attr-defined]
TracedArray.__getitem__ = _subscript  # type: ignore[method-assign]
TracedArray.__matmul__ = matmul  # type: ignore[attr-defined]
TracedArray.__imatmul__ = lambda self, other: into(self, matmul(self, other))  # type: ignore[attr-defined]
TracedArray.__rmatmul__ = lambda self, other: matmul(other, self)  # type: ignore[attr-defined]
# functions that take other arguments than the methods of their names, and reductions by ufuncs
NUMPYS = {
    "reshape": lambda x, shape, order="C": _reshaped(x, shape, order=order),
    "transpose": _view(lambda x, axes=None: transpose(x, *(axes or ()))),
    **{f"{ufunc}.reduce": partial(_reduced, name) for name, ufunc in COMBINE.items()},
}
trace.NUMPY_FUNCTIONS |= {n: checked(f"np.{n}", f) for n, f in {**FUNCTIONS, **NUMPYS}.items()}
