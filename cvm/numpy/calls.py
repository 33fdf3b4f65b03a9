"""Calls of the functions that implement NumPy's: their registration, and NumPy's conventions of
parameters and results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from operator import attrgetter
from types import MethodDescriptorType
from typing import Any, TypeVar

import numpy as np

from cvm.dialect.support.diagnostics import Error

from ..tracing.diagnose import fail
from ..tracing.numpy_table import ARRAY_METHODS, NUMPY_FUNCTIONS, name_of
from ..tracing.trace import TracedArray, into, is_scalar

Implementation = TypeVar("Implementation", bound=Callable[..., Any])


def implements(
    *counterparts: object, shares_memory: bool = False
) -> Callable[[Implementation], Implementation]:
    """Register a function as the implementation of functions of NumPy and attributes of arrays.

    A function that not every NumPy has is given by its name. The function itself is returned:
    calls through NumPy are checked, and return a view where NumPy's result `shares_memory`.
    """

    def register(function: Implementation) -> Implementation:
        called = _view(function) if shares_memory else function
        for counterpart in counterparts:
            name = name_of(counterpart)
            if getattr(counterpart, "__objclass__", None) is not np.ndarray:
                NUMPY_FUNCTIONS[name] = checked(f"np.{name}", called)
            elif isinstance(counterpart, MethodDescriptorType):
                ARRAY_METHODS[name] = checked(name, called)
            else:
                ARRAY_METHODS[name] = called
        return function

    return register


def _view(function: Callable[..., TracedArray]) -> Callable[..., TracedArray]:
    """Make the function's result share memory with its operand."""

    @wraps(function)
    def view(x: TracedArray, *args: Any, **options: Any) -> TracedArray:
        return x.viewed(lambda a: function(a, *args, **options))

    return view


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


def _as_numpy_gives(name: str, found: object, args: Sequence[object], shares: bool) -> Any:
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
    name: str, own: Mapping[str, Parameter], args: tuple[object, ...], options: dict[str, object]
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
