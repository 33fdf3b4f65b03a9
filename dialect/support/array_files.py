"""Arrays in .npy and .npz files. Nothing is unpickled, and no header is read that is longer than
NumPy accepts.
"""

import io
import zipfile
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

LONGEST_HEADER = (
    10_000  # bytes; a file may state 4 GB, which NumPy would read before it refuses them
)


class Truncated(ValueError):
    """A file that ends before the elements that its header states."""


def read_header(file: BinaryIO) -> tuple[tuple[int, ...], np.dtype]:
    """The shape and element type of the array that begins here."""
    is_later = np.lib.format.read_magic(file)[0] > 1
    size = file.read(4 if is_later else 2)
    if (length := int.from_bytes(size, "little")) > LONGEST_HEADER:
        raise ValueError(f"the header of an array has {length} bytes, more than {LONGEST_HEADER}")
    content = io.BytesIO(size + file.read(length))
    if is_later:  # 3.0 is 2.0 in UTF-8
        shape, _, dtype = np.lib.format.read_array_header_2_0(content)
    else:
        shape, _, dtype = np.lib.format.read_array_header_1_0(content)
    return shape, dtype


def read_arrays(path: str | PathLike[str]) -> np.ndarray | dict[str, np.ndarray]:
    """The array of an .npy file, or the arrays of an .npz by their names."""
    with open(path, "rb") as file:
        start = file.read(len(np.lib.format.MAGIC_PREFIX))
        file.seek(0)
        if start == np.lib.format.MAGIC_PREFIX:
            _check_length(file, *read_header(file))
            file.seek(0)
            return np.asarray(np.load(file, allow_pickle=False))
        if not zipfile.is_zipfile(file):
            raise ValueError(f"it is no {Path(path).suffix or '.npz'} file")
        with np.load(file, allow_pickle=False) as archive:
            return {name: read_member(archive, name) for name in archive.files}


def _check_length(file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raise Truncated if fewer bytes follow the header than its array has."""
    begin, count = file.tell(), prod(shape)
    left = file.seek(0, io.SEEK_END) - begin
    if not dtype.hasobject and left < count * dtype.itemsize:
        raise Truncated(
            f"its header states {count} elements of {dtype.itemsize} bytes, but {left} bytes follow"
        )


def read_member(archive: Any, name: str) -> np.ndarray:
    """An array of an open .npz file."""
    member = found if (found := f"{name}.npy") in archive.zip.namelist() else name
    with archive.zip.open(member) as file:
        read_header(file)
    return np.asarray(archive[name])
