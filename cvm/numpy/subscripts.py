"""Subscripts of traced arrays, by the rules of NumPy's basic and advanced indexing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..tracing.array_types import Dim
from ..tracing.diagnose import fail, fail_unknown
from ..tracing.trace import TracedArray, Tracer, apply, is_scalar
from .axes import whole_number
from .calls import implements
from .conversion import astype
from .shapes import broadcast, expand_dims, transpose

FAR = 2**62  # larger than every size
ARRAYS = (TracedArray, np.ndarray, list, tuple, range)
SUBSCRIPTS = "subscripts are integers, slices, ..., None and arrays of integers"


@implements(np.ndarray.__getitem__)
def getitem(x: TracedArray, key: object) -> TracedArray:
    """Take elements as NumPy does: a view for slices, a copy for arrays, a scalar for numbers."""
    found, parts = subscript(x, key), key if isinstance(key, tuple) else (key,)
    if not found.ndim and not any(p is ... for p in parts):
        return found.copied()  # a scalar
    if x.is_scalar or any(isinstance(p, ARRAYS) and not is_scalar(p) for p in parts):
        return x.as_array(found.copied())
    return x.viewed(lambda a: subscript(a, key), key, found=found)


def along_axis(x: TracedArray, axis: int, part: Any) -> TracedArray:
    """Subscript one axis."""
    return subscript(x, (slice(None),) * axis + (part,))


def subscript(x: TracedArray, key: object) -> TracedArray:
    """Take elements by integers, slices, ..., None and arrays of integers, as in NumPy."""
    given = list(key) if isinstance(key, tuple) else [key]
    if any(isinstance(p, slice) and _has_traced_bounds(p) for p in given):
        if (place := sliced_axes(x, key)) is None:
            fail("a slice with computed bounds stands beside integers and slices only")
        return place.elements(x)
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
    none, empty = (0,) * x.ndim, [r.length == 0 for r in ranges]
    if any(empty):  # `cvm.slice` takes no empty axes: these have one element until it has cut
        after = tuple(1 - n if e else 0 for n, e in zip(x.shape, empty, strict=True))
        x = apply("builtin.pad", x, before=none, after=after)
        ranges = [WHOLE if e else r for r, e in zip(ranges, empty, strict=True)]
    if any(r[:3] != WHOLE[:3] for r in ranges):
        begin, end, strides, _ = zip(*ranges, strict=True)
        x = apply("cvm.slice", x, begin=begin, end=end, strides=strides)
    if any(empty):
        x = apply("builtin.pad", x, before=none, after=tuple(-e for e in empty))
    if dropped := tuple(n for n, p in enumerate(of_axes) if not isinstance(p, slice)):
        x = apply("cvm.squeeze", x, axes=dropped)
    left = [p for p in parts if p is None or isinstance(p, slice)]
    return expand_dims(x, new) if (new := tuple(n for n, p in enumerate(left) if p is None)) else x


def _parts(x: TracedArray, key: Any) -> list[Any] | None:
    """Return a part of a key for each axis; None for a key with new axes or of another rank."""
    given = list(key) if isinstance(key, tuple) else [key]
    if any(p is None for p in given) or sum(p is ... for p in given) > 1:
        return None
    at = next((n for n, p in enumerate(given) if p is ...), len(given))
    taken = sum(p is not ... for p in given)
    parts = [*given[:at], *[slice(None)] * (x.ndim - taken), *given[at + 1 :]]
    return parts if len(parts) == x.ndim else None


def indexed_axes(x: TracedArray, key: Any) -> tuple[list[TracedArray], tuple[int, ...]] | None:
    """Return indices of one shape, and their axes, for a key of integers and arrays beside each
    other that takes the other axes whole; None for other keys.
    """
    if (parts := _parts(x, key)) is None:
        return None
    over = tuple(n for n, p in enumerate(parts) if not isinstance(p, slice))
    whole = all(map(_is_whole, (p for p in parts if isinstance(p, slice))))
    if not over or not whole:
        return None
    places, sizes = [parts[n] for n in over], [x.shape[n] for n in over]
    numbers = [is_scalar(p) or not isinstance(p, ARRAYS) for p in places]
    if over != tuple(range(over[0], over[-1] + 1)) and not all(numbers):
        return None
    for p, n in zip(places, sizes, strict=True):
        if not isinstance(p, ARRAYS):
            _range(p, n)  # refuses what is not an integer on the axis
    return _indices(places, sizes, x), over


def _by_arrays(x: TracedArray, parts: list[object], side_by_side: bool) -> TracedArray:
    """Index by arrays of integers: slices come first, then elements at the places that arrays give
    together.
    """
    over = tuple(n for n, p in enumerate(parts) if p is not None and not isinstance(p, slice))
    sliced = subscript(x, tuple(slice(None) if n in over else p for n, p in enumerate(parts)))
    indices = _indices([parts[n] for n in over], [sliced.shape[n] for n in over], x)
    shape = indices[0].shape
    found = apply("builtin.gather", sliced, indices, axes=over)
    if side_by_side:
        return found
    moved = range(
        over[0], over[0] + len(shape)
    )  # NumPy puts them first where they are not beside each other
    return transpose(found, [*moved, *(n for n in range(found.ndim) if n not in moved)])


def _indices(parts: list[object], sizes: list[Dim], x: TracedArray) -> list[TracedArray]:
    """Return the places along axes that parts of a subscript give together, in one shape."""
    arrays = [x.tracer.array(_places(p, n)) for p, n in zip(parts, sizes, strict=True)]
    try:
        shape = np.broadcast_shapes(*(a.shape for a in arrays))  # type: ignore[arg-type]
    except (ValueError, TypeError):
        fail(
            "the arrays of a subscript have one shape, got "
            f"{', '.join(str(a.shape) for a in arrays)}"
        )
    same = [a if a.shape == shape else broadcast(a, shape) for a in arrays]
    return [astype(a, np.int64) for a in same]


def _places(part: object, size: Dim) -> Any:
    """Return the places along an axis that an array, a mask or a number of a subscript gives."""
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


WHOLE = _Range(0, FAR, 1, None)


@dataclass(frozen=True)
class SlicedAxes:
    """A slice of an array by a range for each axis, some of which begin at computed numbers."""

    ranges: tuple[_Range, ...]  # the whole axis where a number is computed
    starts: dict[int, TracedArray]  # by axis
    lengths: tuple[Dim, ...]
    dropped: tuple[int, ...]  # axes that have an integer

    @property
    def shape(self) -> tuple[Dim, ...]:
        return tuple(n for a, n in enumerate(self.lengths) if a not in self.dropped)

    def elements(self, x: TracedArray) -> TracedArray:
        """Return the elements of the slice."""
        found = subscript(x, tuple(slice(r.begin, r.end, r.stride) for r in self.ranges))
        if self.starts:
            sizes = tuple(self.lengths[a] for a in self.starts)
            how = {"axes": tuple(self.starts), "sizes": sizes}
            found = apply("builtin.extract_slice", found, [*self.starts.values()], **how)
        return apply("cvm.squeeze", found, axes=self.dropped) if self.dropped else found

    def insert(self, x: TracedArray, values: TracedArray) -> TracedArray:
        """Return a copy of the array in which the slice has these elements, of its shape."""
        if 0 in self.lengths:
            return x
        values = expand_dims(values, self.dropped) if self.dropped else values
        back = [r.stride < 0 for r in self.ranges]
        if any(back):
            values = subscript(values, tuple(slice(None, None, -1 if b else None) for b in back))
        return apply(
            "builtin.insert_slice",
            x,
            values,
            [*self.starts.values()],
            axes=tuple(self.starts),
            begin=tuple(
                r.begin + ((r.length or 1) - 1) * r.stride if b else r.begin
                for r, b in zip(self.ranges, back, strict=True)
            ),
            strides=tuple(abs(r.stride) for r in self.ranges),
        )


def sliced_axes(x: TracedArray, key: Any) -> SlicedAxes | None:
    """Return the slice that a key of integers and slices takes; None for other keys, and for
    computed numbers beside whole axes, which are indices.
    """
    if (parts := _parts(x, key)) is None:
        return None
    starts: dict[int, TracedArray] = {}
    lengths: dict[int, int] = {}
    for axis, (part, size) in enumerate(zip(parts, x.shape, strict=True)):
        if isinstance(part, TracedArray) and part.is_scalar and part.dtype.kind in "iu":
            if not isinstance(size, int):
                return None
            at = astype(part, np.int64)
            starts[axis] = apply("numpy.elementwise", at < 0, at + size, at, ufunc="where")
            lengths[axis] = 1
        elif isinstance(part, slice) and _has_traced_bounds(part):
            starts[axis], lengths[axis] = _computed_range(x.tracer, part)
        elif isinstance(part, ARRAYS):
            return None
    integers = [a for a, part in enumerate(parts) if not isinstance(part, slice)]
    if starts and all(map(_is_whole, (p for p in parts if isinstance(p, slice)))):
        return None
    known = [slice(None) if a in starts else part for a, part in enumerate(parts)]
    ranges = tuple(_range(p, n) for p, n in zip(known, x.shape, strict=True))
    if any(r.length is None and r.stride < 0 for r in ranges):
        return None
    sizes = subscript(x, tuple(slice(r.begin, r.end, r.stride) for r in ranges)).shape
    sizes = tuple(lengths.get(a, n) for a, n in enumerate(sizes))
    return SlicedAxes(ranges, starts, sizes, tuple(integers))


def _is_whole(part: slice) -> bool:
    return part.start is part.stop is part.step is None


def _has_traced_bounds(part: slice) -> bool:
    return any(isinstance(b, TracedArray) for b in (part.start, part.stop))


def _computed_range(tracer: Tracer, part: slice) -> tuple[TracedArray, int]:
    """Return the beginning of a slice between computed numbers, and its length."""
    start, stop = (tracer.array(0 if b is None else b) for b in (part.start, part.stop))
    for bound in (start, stop):
        if not bound.is_scalar or bound.dtype.kind not in "iu":
            fail_unknown(bound, f"a slice's bound is an integer, got {bound!r}")
    (of, number), (of_stop, number_stop) = (tracer.linear(b) for b in (start, stop))
    if part.stop is None or part.step not in (None, 1) or of != of_stop or number_stop < number:
        bound = next(b for b in (part.start, part.stop) if isinstance(b, TracedArray))
        message = "the length of a slice between computed numbers is known, as in x[i : i + 3]"
        fail_unknown(bound, message)
    return start, number_stop - number


def _range(part: Any, size: Dim) -> _Range:
    """Return the range of a slice or of one integer."""
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
