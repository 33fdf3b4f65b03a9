"""Observe the values of a float program on data, and choose the range of each that integers stand
for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

import cvm
from cvm.dialect.ir.function import Value
from cvm.dialect.ir.module import Module
from cvm.dialect.support.array_files import read_arrays
from cvm.dialect.types.tensor_types import Type

Data: TypeAlias = "np.ndarray | Mapping[str, np.ndarray] | Iterable[Any] | str | PathLike[str]"
RangeMethod = Literal["minmax", "percentile", "mse"]
BATCH = 32  # samples of a call where the program leaves the size of a batch open
BINS = 2048  # of a histogram; with 8 bits there are 8 bins for each integer
SAMPLED = 1 << 16  # elements of a call that enter a histogram, evenly spaced
PERCENTILE = 99.99  # of the elements that the range holds by method percentile
SHARES = np.linspace(1.0, 0.2, 41)  # of the whole range that method mse tries


@dataclass(eq=False)
class Observed:
    """A value on the data: its least and largest element, a histogram of samples of them
    over [-reach, reach], and the mean of each channel.
    """

    has_channels: bool = False  # whose means are wanted
    low: float = 0.0  # integers stand for 0 exactly, so that ranges hold it
    high: float = 0.0
    reach: float = 2.0**-40
    counts: np.ndarray = field(default_factory=lambda: np.zeros(BINS))
    total: Any = 0.0
    times: int = 0

    def add(self, array: np.ndarray) -> bool:
        """Take the elements of a call; False where some are not finite."""
        if not array.size:
            return True
        low, high = float(array.min()), float(array.max())
        if not math.isfinite(low) or not math.isfinite(high):
            return False
        self.low, self.high = min(self.low, low), max(self.high, high)
        while self.reach < max(-low, high):  # neighbours become one bin, which keeps the middle
            half = BINS // 4
            self.counts = np.pad(self.counts.reshape(-1, 2).sum(1), half)
            self.reach *= 2
        flat = array.reshape(-1)
        some = flat[:: -(-flat.size // SAMPLED)].astype(np.float64)
        place = np.minimum((some / self.reach + 1) * (BINS / 2), BINS - 1).astype(np.int64)
        self.counts += np.bincount(place, minlength=BINS)
        if self.has_channels:
            axes = tuple(n for n in range(array.ndim) if n != 1)
            self.total = self.total + array.mean(axis=axes, dtype=np.float64)
            self.times += 1
        return True

    @property
    def mean(self) -> np.ndarray:
        """The mean of each channel, along axis 1."""
        return np.asarray(self.total) / max(self.times, 1)

    @property
    def middles(self) -> np.ndarray:
        """The number in the middle of each bin."""
        return (np.arange(BINS) + 0.5) * (2 * self.reach / BINS) - self.reach

    def range(
        self, method: str, error: Callable[[float, float, np.ndarray], np.ndarray]
    ) -> tuple[float, float]:
        """The range for a value; `error` is that of elements as integers of a range."""
        if method == "percentile":
            below = np.cumsum(self.counts) / max(self.counts.sum(), 1)
            tail = (1 - PERCENTILE / 100) / 2
            kept = self.middles[
                (below > tail) & (below - self.counts / self.counts.sum() < 1 - tail)
            ]
            return max(self.low, min(0.0, kept[0])), min(self.high, max(0.0, kept[-1]))
        if method == "mse":
            filled = self.counts > 0
            middles, counts = self.middles[filled], self.counts[filled]
            tried = [(self.low * s, self.high * s) for s in SHARES]
            errors = [float(counts @ np.square(error(low, high, middles))) for low, high in tried]
            return tried[int(np.argmin(errors))]
        return self.low, self.high


def batches(data: Any, arguments: Sequence[Value]) -> Iterator[list[np.ndarray]]:
    """The arrays of each call of a function with these arguments."""
    types = [a.known_type for a in arguments]
    if isinstance(data, (str, PathLike)):
        data = _read(Path(data))
    if isinstance(data, np.ndarray):
        data = {arguments[0].name: data}
    if isinstance(data, Mapping):
        yield from _cut(_by_name(data, arguments), arguments)
        return
    waiting: list[list[np.ndarray]] = []
    for sample in data:
        given = (
            sample
            if isinstance(sample, Mapping)
            else dict(
                zip(
                    (a.name for a in arguments),
                    sample if isinstance(sample, tuple) else (sample,),
                    strict=False,
                )
            )
        )
        arrays = _by_name(given, arguments)
        if all(a.ndim == len(t.array_shape) for a, t in zip(arrays, types, strict=True)):
            yield arrays
            continue
        waiting.append(arrays)
        if len(waiting) == _batch(types[0]):
            yield [np.stack(column) for column in zip(*waiting, strict=True)]
            waiting = []
    if waiting:
        _check_whole(len(waiting), types[0])
        yield [np.stack(column) for column in zip(*waiting, strict=True)]


def _batch(type: Type) -> int:
    first = type.array_shape[0] if type.array_shape else 1
    return first if isinstance(first, int) else BATCH


def _check_whole(left: int, type: Type) -> None:
    if type.array_shape and isinstance(first := type.array_shape[0], int) and left % first:
        raise cvm.Error(f"the data ends within a batch: {left} of {first} samples are left")


def _by_name(given: Mapping[str, object], arguments: Sequence[Value]) -> list[np.ndarray]:
    """The arrays of the arguments, in their element types."""
    names = [a.name for a in arguments]
    if set(given) != set(names):
        had = ", ".join(map(str, given)) or "nothing"
        raise cvm.Error(f"expected data for the arguments {', '.join(names)}, got {had}")
    arrays = [np.asarray(given[name]) for name in names]
    for name, array in zip(names, arrays, strict=True):
        if array.dtype.kind not in "biuf":
            raise cvm.Error(f"expected numbers for {name}, got an array of {array.dtype}")
    return [
        array.astype(a.known_type.element.dtype, copy=False)
        for array, a in zip(arrays, arguments, strict=True)
    ]


def _cut(arrays: Sequence[np.ndarray], arguments: Sequence[Value]) -> Iterator[list[np.ndarray]]:
    """Arrays of samples along axis 0, in pieces of the size of a batch."""
    types = [a.known_type for a in arguments]
    counts = {len(a) if a.ndim else 0 for a in arrays}
    ranks = {a.ndim - len(t.array_shape) for a, t in zip(arrays, types, strict=True)}
    if len(counts) != 1 or counts == {0} or ranks not in ({0}, {1}):
        shapes = ", ".join(
            f"{v.name} of {v.type} got {a.shape}" for v, a in zip(arguments, arrays, strict=True)
        )
        raise cvm.Error(f"expected samples along axis 0, as many for each argument: {shapes}")
    (count,) = counts
    if ranks == {1}:
        yield from ([a[n] for a in arrays] for n in range(count))
        return
    size = _batch(types[0])
    for n in range(0, count, size):
        _check_whole(min(size, count - n), types[0])
        yield [np.ascontiguousarray(a[n : n + size]) for a in arrays]


def _read(path: Path) -> Any:
    """The data of an .npy or .npz file, or of a folder of such files and of pictures."""
    if not path.is_dir():
        return _file(path)
    files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
    if not files:
        raise cvm.Error(f"{path}: the folder has no files")
    return map(_file, files)


def _file(path: Path) -> Any:
    from cvm.terminal.arguments import read_array
    from cvm.terminal.usage import Usage

    try:
        return read_arrays(path) if path.suffix == ".npz" else read_array(str(path), None)
    except Usage as e:
        raise cvm.Error(str(e)) from None
    except (OSError, ValueError) as e:
        said = getattr(e, "strerror", None) or str(e)
        raise cvm.Error(f"{path} cannot be read: {said.lower()}") from None


def run(
    program: Module,
    data: Iterable[list[np.ndarray]],
    seen: Callable[[int, Value, np.ndarray], None],
) -> int:
    """Call the program on each batch, and show each result; the number of calls."""
    f = cvm.compile(program)
    values = program.functions["main"].results
    calls = 0
    for arrays in data:
        returned = f(*arrays)
        for n, (value, array) in enumerate(
            zip(values, returned if isinstance(returned, tuple) else (returned,), strict=True)
        ):
            seen(n, value, array)
        calls += 1
    if not calls:
        raise cvm.Error("the data has no samples")
    return calls
