"""Files with constants of a program: arrays of .npz, .npy and .safetensors files, and digests of
the files read.

Nothing is unpickled. A file is read once for all constants of a program, so that they agree with
its digest.
"""

import hashlib
import io
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..support.array_files import read_header
from ..support.limits import LIMITS, excess
from .attributes import quoted
from .cast_arrays import from_file, with_plain_truths
from .tensor_types import TensorType

MAX_DIGEST_BYTES = (
    1 << 28
)  # of a file: a larger one is read array by array, to save memory, and has no digest

Get = Callable[[Any, TensorType], Any]
Names = Mapping[str | None, None]


class FileConstantError(ValueError):
    """A constant that cannot be read from its file, with the reason."""


class Files:
    """The files of a program, by their paths as the program writes them.

    They lie in `folder` and below, unless `outside` permits other paths.
    """

    def __init__(self, folder: Path, outside: bool = False) -> None:
        self.folder = folder
        self.outside = outside
        self.digests: dict[str, str | None] = {}  # digests of the files read
        self._bytes = 0  # of the constants so far
        self._opened: dict[str, tuple[Names, Get]] = {}

    def constant(self, path: str, name: str | None, wanted: TensorType) -> np.ndarray:
        """The array a `file(...)` constant names, converted to its stated type."""
        self._bytes += (
            math.prod(d for d in wanted.shape if isinstance(d, int)) * wanted.element.bytes
        )
        if self._bytes > LIMITS.get().constant_bytes:
            raise FileConstantError(excess("constant_bytes", self._bytes))
        with _told(path):
            if path not in self._opened:
                self._opened[path] = self._open(path)
            array = _pick(*self._opened[path], name, wanted)
        if array.shape != wanted.shape:
            raise FileConstantError(
                f"the constant is {wanted}, but the file holds an array of shape {array.shape}"
            )
        return widened(array, wanted)

    def digest(self, path: str) -> str | None:
        """The digest of the file's current content; None for a file that is too large."""
        with _told(path):
            return _digest(_whole(self._place(path)))

    def _place(self, path: str) -> Path:
        where = (self.folder / path).resolve()
        if not self.outside and not where.is_relative_to(self.folder.resolve()):
            raise FileConstantError(f"{quoted(path)} lies outside the program's folder")
        if not where.is_file():
            raise FileConstantError(f"there is no file {quoted(path)} beside the program")
        return where

    def _open(self, path: str) -> tuple[Names, Get]:
        where = self._place(path)
        if where.suffix not in FORMATS:
            raise FileConstantError(f'"{where.name}": expected .npz, .npy or .safetensors')
        data = _whole(where)
        self.digests[path] = _digest(data)
        return FORMATS[where.suffix](where if data is None else io.BytesIO(data), where.name)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Convert any error with a file to a FileConstantError."""
    try:
        yield
    except FileConstantError:
        raise
    except Exception as e:
        reason = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise FileConstantError(f"{quoted(path)} cannot be read: {reason}") from None


def _whole(file: Path) -> bytes | None:
    return None if file.stat().st_size > MAX_DIGEST_BYTES else file.read_bytes()


def _digest(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def widened(array: np.ndarray, wanted: TensorType) -> np.ndarray:
    """The array in the constant's element type, if no value is lost."""
    target = wanted.element.dtype
    array = from_file(array, wanted.element)
    if array.dtype == target:
        return with_plain_truths(np.ascontiguousarray(array).reshape(array.shape))
    if not np.can_cast(array.dtype, target, "safe"):
        raise FileConstantError(
            f"the constant has element type {wanted.element}, but the file holds {array.dtype}"
        )
    return np.ascontiguousarray(array.astype(target)).reshape(array.shape)


def _pick(names: Names, get: Get, name: str | None, wanted: TensorType) -> np.ndarray:
    if ONLY in names:
        return np.asarray(get(ONLY, wanted))
    if name is None and len(names) == 1:
        name = next(iter(names))
    if name is None or name not in names:
        listed = ", ".join(sorted(map(str, names))[:12])
        raise FileConstantError(f'the file holds no array "{name}"; it holds {listed}')
    return np.asarray(get(name, wanted))


# Formats: the names of a file's arrays, and a reader for each

ONLY = None  # the name of the array of a file without names
_SAFETENSORS = {
    "BOOL": "?",
    "I8": "i1",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
    "U8": "u1",
    "U16": "<u2",
    "U32": "<u4",
    "U64": "<u8",
    "F16": "<f2",
    "BF16": "V2",
    "F32": "<f4",
    "F64": "<f8",
}


def _npy(file: Path | io.BytesIO, title: str) -> tuple[Names, Get]:
    def get(_: Any, wanted: TensorType) -> np.ndarray:
        with file.open("rb") if isinstance(file, Path) else nullcontext(file) as opened:
            opened.seek(0)
            _check_header(opened, wanted)
            opened.seek(0)
            return np.asarray(np.load(opened, allow_pickle=False))

    return {ONLY: None}, get


def _npz(file: Path | io.BytesIO, title: str) -> tuple[Names, Get]:
    archive = np.load(file, allow_pickle=False)

    def get(name: str, wanted: TensorType) -> np.ndarray:
        member = found if (found := f"{name}.npy") in archive.zip.namelist() else name
        with archive.zip.open(member) as opened:
            _check_header(opened, wanted)
        return archive[member]

    return dict.fromkeys(archive.files), get


def _check_header(file: Any, wanted: TensorType) -> None:
    """Refuse an array of another shape, or of larger elements than any type's, before its elements
    are read.
    """
    shape, dtype = read_header(file)
    if shape != wanted.shape or dtype.itemsize > np.dtype(complex).itemsize:
        raise FileConstantError(
            f"the constant is {wanted}, but the file holds an array of shape {shape} of {dtype}"
        )


def _safetensors(file: Path | io.BytesIO, title: str) -> tuple[Names, Get]:
    import json

    data = file.read_bytes() if isinstance(file, Path) else file.getvalue()
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise FileConstantError(f'"{title}" is not a safetensors file')

    def distinct(pairs: list[tuple[str, object]]) -> dict[str, Any]:
        if len(found := dict(pairs)) != len(pairs):
            raise FileConstantError(f'"{title}" has two entries of one name')
        return found

    entries = json.loads(data[8 : 8 + length], object_pairs_hook=distinct)
    entries.pop("__metadata__", None)
    places = sorted(tuple(entry["data_offsets"]) for entry in entries.values())
    if any(end > begin for (_, end), (begin, _) in pairwise(places)):
        raise FileConstantError(f'"{title}" has entries that share bytes')

    def get(n: Any, wanted: TensorType) -> np.ndarray:
        entry = entries[n]
        begin, end = entry["data_offsets"]
        dtype = np.dtype(_SAFETENSORS[entry["dtype"]])
        shape = tuple(entry["shape"])
        held = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        if not 0 <= begin <= end <= len(data) - 8 - length or end - begin != held:
            raise FileConstantError(f'"{title}" places "{n}" outside the file')
        return np.frombuffer(
            data, dtype, (end - begin) // dtype.itemsize, 8 + length + begin
        ).reshape(shape)

    return dict.fromkeys(entries), get


FORMATS: dict[str, Callable[..., tuple[Names, Get]]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".safetensors": _safetensors,
}
