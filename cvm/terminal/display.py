"""Text for terminals: arrays, times, and a progress message for slow steps."""

import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import numpy as np

from cvm.dialect.types.cast_arrays import is_float
from cvm.dialect.types.tensor_types import kind_of
from cvm.jit.calls.arguments import describe
from cvm.terminal.diagnostics import unescaped

WHOLE = 64  # elements: of larger arrays the first elements and the range are shown
FIRST = 8
WIDTH = 100


def shown(name: str, array: np.ndarray) -> str:
    return f"{name}: {describe(array)}\n{values(array)}"


def values(array: np.ndarray) -> str:
    """A small array in full; of a large one the first elements and the range."""
    if array.size <= WHOLE:
        form = {
            "separator": ", ",
            "prefix": "  ",
            "threshold": sys.maxsize,
            "formatter": {"all": element},
        }
        return "  " + np.array2string(array, WIDTH, **form).replace("\n\n", "\n")
    first = ", ".join(map(element, array.flat[:FIRST]))
    if kind_of(array.dtype) in "iuf":
        with np.errstate(all="ignore"):
            return (
                f"  {first}, ... ({array.size} values, from {element(array.min())} to "
                f"{element(array.max())})"
            )
    return f"  {first}, ... ({array.size} values)"


def columns(rows: Sequence[Sequence[str]], aligned: str) -> list[str]:
    """Lines of a table, whose columns are aligned to the left, <, or the right, >."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ([f"{c:{a}{w}}" for c, a, w in zip(row, aligned, widths, strict=False)] for row in rows)
    return ["  ".join(row).rstrip() for row in cells]


def element(value: Any) -> str:
    if isinstance(value, np.bool_):
        return "true" if value else "false"
    return f"{value:.6g}" if is_float(value) else str(value)


def digest(array: np.ndarray) -> str:
    """SHA-256 of the type as the language writes it, a line break, and the elements, little-endian
    and row-major.
    """
    elements = array.astype(array.dtype.newbyteorder("<")).tobytes()
    return hashlib.sha256(f"{describe(array)}\n".encode() + elements).hexdigest()


def duration(seconds: float) -> str:
    unit, name = (1, "s") if seconds >= 1 else (1e-3, "ms") if seconds >= 1e-3 else (1e-6, "µs")
    return f"{seconds / unit:.3g} {name}"


def timed(function: Callable[..., object], *args: object, **kwargs: object) -> tuple[Any, float]:
    """The result of a call, and its seconds."""
    began = time.perf_counter()
    return function(*args, **kwargs), time.perf_counter() - began


@contextmanager
def waiting(activity: str) -> Iterator[None]:
    """Show the elapsed time on a terminal if the body takes longer than a second."""
    done = Event()

    def show() -> None:
        began = time.perf_counter()
        while not done.wait(1):
            print(
                f"\r{activity} ... {time.perf_counter() - began:.0f} s",
                end="",
                file=unescaped(sys.stderr),
                flush=True,
            )

    thread = Thread(target=show, daemon=True)
    if sys.stderr.isatty():
        thread.start()
    try:
        yield
    finally:
        done.set()
        if thread.ident is not None:
            thread.join()
            print("\r\x1b[K", end="", file=unescaped(sys.stderr), flush=True)
