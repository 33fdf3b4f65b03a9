"""The functions that implement NumPy's for traced arrays, by name.

`cvm.numpy` defines them and registers each at its definition (`implements`). NumPy's protocols
(`__array_function__` and `__array_ufunc__`) and methods of arrays find them here.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import Any, NoReturn, TypeVar, cast

import numpy as np

from .diagnose import fail

Declared = TypeVar("Declared", bound=Callable[..., Any])
NUMPY_FUNCTIONS: dict[str, Callable[..., Any]] = {}  # such as sum, linalg.norm and add.reduce
ARRAY_METHODS: dict[str, Callable[..., Any]] = {}  # such as sum, T and __getitem__
UFUNC_RULES: dict[str, Callable[[str, object], object]] = {}  # the meaning of ufuncs, by rules


def numpy_method(declared: Declared) -> Declared:
    """Make a declared method call its entry in ARRAY_METHODS, which diagnoses wrong arguments."""
    name = declared.__name__

    @wraps(declared)
    def method(self: object, *args: Any, **options: Any) -> Any:
        return ARRAY_METHODS[name](self, *args, **options)

    return cast(Declared, method)


def name_of(function: Any) -> str:
    """Return a NumPy function's name below `np`, such as `sum`, `linalg.norm` and `add.at`; a name
    stands for itself.
    """
    if isinstance(function, str):
        return function
    if isinstance(ufunc := getattr(function, "__self__", None), np.ufunc):
        return f"{ufunc.__name__}.{function.__name__}"
    room = (getattr(function, "__module__", None) or "").partition(".")[2]
    return f"{room}.{function.__name__}" if room in ("linalg", "fft") else function.__name__


def function_named(name: str) -> Callable[..., Any]:
    """Return the implementation of NumPy's function; diagnose one that has none."""
    return NUMPY_FUNCTIONS.get(name) or fail_no_counterpart(name)


def fail_no_counterpart(name: str) -> NoReturn:
    """Raise for a function of NumPy's that has no implementation, and suggest similar ones."""
    near = get_close_matches(
        name, [n for n in NUMPY_FUNCTIONS if not n.endswith((".reduce", ".at"))], 4, 0.5
    )
    also = f"near it are {', '.join(f'np.{n}' for n in near)}; " if near else ""
    fail(
        f"np.{name} has no counterpart for traced arrays; {also}docs/numpy.md lists those "
        "that have one"
    )
