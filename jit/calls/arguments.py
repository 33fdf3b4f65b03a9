"""Arguments and results: values are checked against declared types and made contiguous; outputs
allocated or checked.
"""

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from ...dialect.ir.function import Function, Value
from ...dialect.support.diagnostics import CallError, Diagnostic, Note, TargetError, counted
from ...dialect.support.masked_arrays import masked
from ...dialect.types.cast_arrays import from_file
from ...dialect.types.sizes import Size
from ...dialect.types.tensor_types import BY_DTYPE, Type, kind_of


def in_order(
    function: Function, given: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The arguments of a call in the function's order, where some are given by their names."""
    if not named:
        return given
    places = {a.name: n for n, a in enumerate(function.arguments)}
    for name in named:
        if name not in places:
            raise _misfit(function, f"got one named {name}")
        if places[name] < len(given):
            raise _misfit(function, f"got %{name} twice")
    missing = [name for name, n in places.items() if n >= len(given) and name not in named]
    if missing or len(given) > len(places):
        raise _misfit(
            function,
            f"got {len(given) + len(named)}" + "".join(f", no %{name}" for name in missing),
        )
    return (*given, *(named[name] for name, n in places.items() if n >= len(given)))


def _misfit(function: Function, got: str) -> CallError:
    expected = len(function.arguments)
    names = ", ".join(f"%{a.name}: {a.type}" for a in function.arguments)
    message = (
        f"@{function.name} takes {expected} argument{'' if expected == 1 else 's'} ({names}), {got}"
    )
    return CallError(Diagnostic(message, function.span, "call.arguments"))


def samples_of(arguments: Sequence[object]) -> list[tuple[Any, ...]]:
    """The arguments of each call of a batch: a list's elements one by one, and what is no list in
    every call.
    """
    lengths = sorted({len(a) for a in arguments if isinstance(a, (list, tuple))})
    if len(lengths) != 1:
        got = f"got {' and '.join(map(str, lengths))}" if lengths else "got no list"
        raise CallError(
            f"a batch has a list of samples for each argument, all of one length, {got}"
        )
    for n, given in enumerate(arguments):
        ranks = (
            sorted({np.ndim(a) for a in given if hasattr(a, "shape")})
            if isinstance(given, (list, tuple))
            else []
        )
        if len(ranks) > 1:
            got = " and ".join(map(str, ranks))
            raise CallError(
                f"the samples of a batch have one rank, but those of argument {n} have {got}"
            )
    return [
        tuple(a[n] if isinstance(a, (list, tuple)) else a for a in arguments)
        for n in range(lengths[0])
    ]


def take_arguments(
    function: Function,
    given: tuple[object, ...],
    convert: bool = False,
    take: Callable[..., np.ndarray] | None = None,
) -> list[np.ndarray]:
    """The given values as contiguous arrays of the declared element types and ranks; raises
    CallError naming what is wrong.

    `take` gives another array for a value and its argument: one that stands for an array of a
    device.
    """
    if len(given) != len(function.arguments):
        raise _misfit(function, f"got {len(given)}")
    arrays: list[np.ndarray] = []
    mistakes: list[Diagnostic] = []
    known: dict[object, tuple[int, Value]] = {}
    for argument, value in zip(function.arguments, given, strict=True):
        try:
            array = take(value, argument) if take else array_of(value, argument.known_type, convert)
            _check(array, argument, known)
            arrays.append(array)
        except ValueError as e:
            name = argument.name if argument.name.isidentifier() else "x"
            notes = tuple(Note(f"help: {name}.{text}") for text in getattr(e, "__notes__", ()))
            mistakes.append(
                Diagnostic(f"argument %{argument.name}: {e}", argument.span, "call.argument", notes)
            )
            arrays.append(np.empty(()))
    if mistakes:
        raise CallError(mistakes)
    return arrays


def array_of(value: object, wanted: Type, convert: bool = False) -> np.ndarray:
    """The value as a contiguous array of the wanted element type. Arrays may widen, by `convert`
    become another type that holds all their values; numbers and lists must fit.
    """
    dtype = wanted.element.dtype
    if (
        type(value) is np.ndarray
        and value.dtype == dtype
        and value.flags.c_contiguous
        and value.flags.aligned
    ):
        return value
    if said := masked(value):
        raise ValueError(f"expected {wanted}, got {said}")
    try:
        exports = hasattr(value, "__dlpack__")
        is_array = (
            exports
            or isinstance(value, (np.ndarray, np.generic))
            or hasattr(value, "__array_interface__")
        )
        array = (
            from_dlpack(value)
            if exports and not isinstance(value, np.ndarray)
            else np.asarray(value)
        )
    except Exception as e:
        raise ValueError(f"expected {wanted}, got {type(value).__name__} ({e})") from None
    if (array := from_file(array, wanted.element)).dtype != dtype:
        if (
            is_array
            and not np.can_cast(array.dtype, dtype, "safe")
            and not (convert and array.dtype in BY_DTYPE)
        ):
            error = ValueError(f"expected {wanted}, got {describe(array)}")
            if np.can_cast(array.dtype, dtype, "unsafe") and array.dtype in BY_DTYPE:
                error.add_note(
                    f"astype({dtype.type.__module__.replace('numpy', 'np')}.{dtype}), or "
                    "convert=True of cvm.compile, --convert of cvm run"
                )
            raise error
        if is_array and convert:
            array = _converted(array, wanted)
        elif not is_array:
            array = _fitting(array, wanted)
    return np.require(array, dtype, ["C", "A"]).reshape(array.shape)


def _converted(array: np.ndarray, wanted: Type) -> np.ndarray:
    """An array in an element type that holds each of its values."""
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        found = array.astype(wanted.element.dtype)
        if not np.array_equal(
            found.astype(array.dtype), array, equal_nan=kind_of(array.dtype) in "fc"
        ):
            raise ValueError(
                f"expected {wanted}, got {describe(array)} with values that it does not hold"
            )
    return found


def library_of(given: Any) -> Any:
    """The library of the first array that is not NumPy's, which has DLPack's protocol; None where
    there is none.
    """
    if isinstance(given, (tuple, list, dict)):
        parts = given.values() if isinstance(given, dict) else given
        return next((found for part in parts if (found := library_of(part)) is not None), None)
    if isinstance(given, (np.ndarray, np.generic)) or not hasattr(given, "__dlpack__"):
        return None
    if hasattr(given, "__array_namespace__"):
        return given.__array_namespace__()
    return sys.modules.get(type(given).__module__.partition(".")[0])


def like_arguments(results: Sequence[np.ndarray], given: object, like: str | None) -> list[Any]:
    """The results as arrays of the library that arguments come from, without a copy; `like` keeps
    NumPy's.
    """
    made = getattr(None if like == "numpy" else library_of(given), "from_dlpack", None)
    return [*results] if made is None else [made(r) for r in results]


def _fitting(array: np.ndarray, wanted: Type) -> np.ndarray:
    """Python numbers as the wanted element type, where that loses nothing."""
    element = wanted.element.storage
    if array.dtype == object and not array.ndim:
        raise ValueError(f"expected {wanted}, got {type(array[()]).__name__}")
    if array.dtype.kind not in "biufc":
        raise ValueError(f"expected {wanted}, got {describe(array)}")
    with np.errstate(all="ignore"):
        converted = (array if element.kind == "complex" else np.real(array)).astype(element.dtype)
    kinds = array.dtype.kind, element.kind[0]
    same_kind = "biufc".index(kinds[0]) <= "biufc".index(kinds[1]) or kinds == ("i", "u")
    lossless = element.kind in ("float", "complex") or np.array_equal(
        converted.astype(array.dtype), array
    )
    if array.size and not (same_kind and lossless):
        got = f"{array.dtype} in [{array.min()}, {array.max()}]"
        raise ValueError(f"expected {wanted}, got numbers that do not fit: {got}")
    return converted


def describe(array: np.ndarray) -> str:
    """The array's type as the language writes it."""
    element = BY_DTYPE.get(array.dtype)
    name = element.name if element else str(array.dtype)
    return f"tensor<{'x'.join([*map(str, array.shape), name])}>"


def _check(array: np.ndarray, argument: Value, known: dict[object, tuple[int, Value]]) -> None:
    wanted = argument.known_type
    shape = wanted.array_shape
    if array.ndim != len(shape) or any(
        isinstance(d, int) and d != n for d, n in zip(shape, array.shape, strict=True)
    ):
        raise ValueError(f"expected {wanted}, got {describe(array)}")
    for d, n in zip(shape, array.shape, strict=True):
        if isinstance(d, Size) and d.name:
            first, where = known.setdefault(d.key, (n, argument))
            if first != n:
                same = f"{d} = {first}, as in %{where.name}"
                raise ValueError(f"expected {wanted} with {same}, got {describe(array)}")
    if said := (wanted.element.needs_check and invalid(array, argument)) or beyond_range(
        array, argument
    ):
        raise ValueError(said)


def invalid(array: np.ndarray, argument: Value) -> str:
    """A message about the first element that is none of the argument's declared element type."""
    element: Any = argument.known_type.element
    return element.invalid(array)


def beyond_range(array: np.ndarray, argument: Value) -> str:
    """A message about the first element outside the argument's declared range; empty if there is
    none.
    """
    bounds = argument.range
    if bounds is None or not array.size or (array.min() >= bounds[0] and array.max() <= bounds[1]):
        return ""
    low, high = bounds
    place = np.unravel_index(np.argmin((array >= low) & (array <= high)), array.shape)
    where = f" at [{', '.join(map(str, place))}]" if place else ""
    return f"expected values from {low} to {high}, got {array[place]}{where}"


def take_outputs(
    out: object, types: list[Type], inputs: list[np.ndarray], function: Function
) -> tuple[list[np.ndarray], list[tuple[np.ndarray, np.ndarray]]]:
    """The arrays to compute into, and which of them to copy where afterwards (a strided `out`, or
    one that overlaps an input).
    """
    if out is None:
        return [np.empty(t.array_shape, t.element.dtype) for t in types], []
    given = [*map(_seen, out if isinstance(out, (tuple, list)) else [out])]
    if len(given) != len(types):
        message = (
            f"@{function.name} has {counted(len(types), 'result')}, got {len(given)} arrays in out"
        )
        raise CallError(Diagnostic(message, function.span, "call.out"))
    arrays: list[np.ndarray] = []
    copies: list[tuple[np.ndarray, np.ndarray]] = []
    for n, (array, type) in enumerate(zip(given, types, strict=True)):
        if got := _unsuited(array, type):
            note = Note(f"%{function.results[n].name} is {type}", function.results[n].span)
            message = f"out: expected a writable array {type}, got {got}"
            raise CallError(Diagnostic(message, function.span, "call.out", (note,)))
        for k in range(n):
            if share_memory(array, given[k]):
                both = f"%{function.results[k].name} and %{function.results[n].name}"
                message = (
                    f"out: expected an array for each result, got ones for {both} that share memory"
                )
                raise CallError(Diagnostic(message, function.span, "call.out"))
        shared = any(np.may_share_memory(array, other) for other in (*inputs, *arrays))
        fits = array.flags.c_contiguous and array.flags.aligned and not shared
        arrays.append(array if fits else np.empty(type.array_shape, type.element.dtype))
        if not fits:
            copies.append((arrays[-1], array))
    return arrays, copies


def _unsuited(array: object, wanted: Type) -> str:
    """The kind of object given in the place of a writable array; empty if it is one of the type."""
    if (said := masked(array)) or not isinstance(array, np.ndarray):
        return said or type(array).__name__
    if not array.flags.writeable:
        return f"{describe(array)}, read-only"
    if has_internal_overlap(array):
        return f"{describe(array)}, whose elements share memory"
    return (
        ""
        if array.dtype == wanted.element.dtype and array.shape == wanted.array_shape
        else describe(array)
    )


def _seen(out: object) -> Any:
    """The memory of what is no NumPy array as one."""
    try:
        found = out if isinstance(out, np.ndarray) or _is_negated(out) else array_in(out)
    except Exception:  # by what it does when it is asked for its memory
        return out
    return out if found is None else found


def from_dlpack(value: Any) -> np.ndarray:
    """The array of another library that has DLPack's protocol, without a copy unless its elements
    are not as they lie there.
    """
    return np.from_dlpack(value.resolve_neg() if _is_negated(value) else value)


def _is_negated(value: object) -> bool:
    """Test for a PyTorch tensor that is negated lazily, which its DLPack export ignores."""
    negated = getattr(value, "is_neg", None)
    return callable(negated) and bool(negated())


def array_in(value: Any) -> np.ndarray | None:
    """The memory of another library's object as an array, without a copy; None of one that shows
    none.
    """
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return from_dlpack(value)
    try:
        return np.asarray(memoryview(value))
    except (TypeError, ValueError):
        return None


def share_memory(a: np.ndarray, b: np.ndarray) -> bool:
    """Test whether two arrays share memory."""
    try:
        most: Any = 10_000  # steps: the type stubs of some NumPy know 0 and -1 alone
        return np.may_share_memory(a, b) and np.shares_memory(a, b, max_work=most)
    except np.exceptions.TooHardError:
        return _elements_overlap(a, b)


def has_internal_overlap(array: np.ndarray) -> bool:
    """Test whether several elements of an array share memory."""
    if array.flags.c_contiguous:
        return False
    axes = sorted(
        (abs(stride), n) for stride, n in zip(array.strides, array.shape, strict=True) if n > 1
    )
    reach = (
        array.itemsize
    )  # bytes from the first element's start to the last one's end, along the axes so far
    nested = True
    for stride, n in axes:
        nested = nested and stride >= reach
        reach += stride * (n - 1)
    if nested or not array.size:
        return False
    return array.nbytes > reach or _elements_overlap(array)


def _elements_overlap(*arrays: np.ndarray) -> bool:
    """Test whether any two elements of arrays share memory, by the places of all."""
    starts = [
        reduce(np.add.outer, map(np.multiply, a.strides, map(np.arange, a.shape)), a.ctypes.data)
        for a in arrays
    ]
    ends = [start + a.itemsize for start, a in zip(starts, arrays, strict=True)]
    first, last = (np.sort(np.concatenate([*map(np.ravel, places)])) for places in (starts, ends))
    return bool((first[1:] < last[:-1]).any())


def size_place(function: Function, atom: tuple[object, ...]) -> tuple[int, int]:
    """The argument and axis from which an unknown size is read."""
    for n, a in enumerate(function.arguments):
        for axis, d in enumerate(a.known_type.array_shape):
            if isinstance(d, Size) and d.is_atom and d.terms[0][0] == atom:
                return n, axis
    name = f"?{atom[0]}" if len(atom) == 1 else "a size"
    raise TargetError(f"{name} is the size of no argument of @{function.name}")
