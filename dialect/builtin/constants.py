"""Constants: data in the program's text, or read from a file beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..attributes import quoted
from ..index import Element, Tensor
from ..literals import literal_text
from ..op import Operator, T, operator
from ..types import TensorType, Type


class Data:
    """The elements of a constant: written in the program, one element for all (a splat), or read from a named file."""

    def __init__(self, array: np.ndarray, file: tuple[str, str | None] | None = None, splat: bool = False) -> None:
        self.array = array
        self.file = file
        self.splat = splat

    @property
    def text(self) -> str:
        """How the language writes it, without its type."""
        if self.file is not None:
            return f"file({', '.join(quoted(part) for part in self.file if part is not None)})"
        array = self.array
        if array.size == 0:
            return "dense<>"
        return f"dense<{_nested(array.flat[0] if self.splat or not array.ndim else array)}>"

    def same(self, other: Data) -> bool:
        """Whether both hold the same bits and are written alike."""
        a, b = self.array, other.array
        if (a.dtype, a.shape, self.file, self.splat) != (b.dtype, b.shape, other.file, other.splat):
            return False
        return a.size == 0 or (a.flat[0].tobytes() == b.flat[0].tobytes() if self.splat else a.tobytes() == b.tobytes())

    def __repr__(self) -> str:
        return f"Data({self.array.dtype}{list(self.array.shape)})"


@dataclass(frozen=True, eq=False)
class Elements:
    """A constant as the value of an attribute: `{value = dense<[1, 2]> : tensor<2xi32>}`."""

    data: Data
    type: Type

    def __str__(self) -> str:
        return f"{self.data.text} : {self.type}"


def _nested(array: Any) -> str:
    """The elements in nested brackets."""
    if not isinstance(array, np.ndarray):
        return literal_text(array)
    if array.ndim == 1:
        return f"[{', '.join(map(str, array.tolist()) if array.dtype.kind in 'iu' else map(literal_text, array))}]"
    return f"[{', '.join(map(_nested, array))}]"


@operator
class Const(Operator[T]):
    """A constant: `const dense<...> : type` or `const file("weights.npz", "name") : type`."""

    dialect = "builtin"
    name = "const"
    data: Data
    type: Type

    example = """
        func @main() -> tensor<2x2xi32> {
          %y = const dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>
          return %y
        }
    """

    def infer(self: Const[Any]) -> Type:
        return self.type

    def reference(self: Const[Any]) -> np.ndarray:
        return self.data.array

    def element(self: Const[Any], y: Tensor) -> Element:
        raise NotImplementedError("a constant is data, not a formula")


class FileConstantError(ValueError):
    """Why a constant could not be read from its file."""


def read_file_constant(
    folder: Path, path: str, name: str | None, wanted: TensorType, outside: bool = False
) -> np.ndarray:
    """The array a `file(...)` constant names, converted to its stated type; nothing is ever unpickled.

    The path is relative to `folder` and may not leave it unless `outside` allows it. Formats: .npz, .npy, .safetensors.
    """
    try:
        where = (folder / path).resolve()
        if not outside and not where.is_relative_to(folder.resolve()):
            raise FileConstantError(f"{quoted(path)} lies outside the program's folder")
        if not where.is_file():
            raise FileConstantError(f"there is no file {quoted(path)} beside the program")
        array = _load(where, name)
    except FileConstantError:
        raise
    except Exception as e:
        reason = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise FileConstantError(f"{quoted(path)} cannot be read: {reason}") from None
    if array.shape != wanted.shape:
        raise FileConstantError(f"the constant is {wanted}, but the file holds an array of shape {array.shape}")
    return widened(array, wanted)


def widened(array: np.ndarray, wanted: TensorType) -> np.ndarray:
    """The array in the constant's element type, where no value is lost."""
    target = wanted.element.dtype
    if array.dtype == target:
        return np.ascontiguousarray(array).reshape(array.shape)
    if not np.can_cast(array.dtype, target, "safe"):
        raise FileConstantError(f"the constant has element type {wanted.element}, but the file holds {array.dtype}")
    return np.ascontiguousarray(array.astype(target)).reshape(array.shape)


def _load(where: Path, name: str | None) -> np.ndarray:
    if where.suffix == ".npy":
        return np.asarray(np.load(where, allow_pickle=False))
    if where.suffix == ".npz":
        with np.load(where, allow_pickle=False) as archive:
            return _pick(dict.fromkeys(archive.files), name, lambda n: archive[n])
    if where.suffix == ".safetensors":
        return _safetensors(where, name)
    raise FileConstantError(f'"{where.name}": expected .npz, .npy or .safetensors')


def _pick(names: dict[str, Any], name: str | None, get: Any) -> np.ndarray:
    if name is None and len(names) == 1:
        name = next(iter(names))
    if name is None or name not in names:
        listed = ", ".join(sorted(names)[:12])
        raise FileConstantError(f'the file holds no array "{name}"; it holds {listed}')
    return np.asarray(get(name))


_SAFETENSORS = {"BOOL": "?", "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "F16": "<f2", "F32": "<f4", "F64": "<f8"}  # fmt: skip


def _safetensors(where: Path, name: str | None) -> np.ndarray:
    import json

    data = where.read_bytes()
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise FileConstantError(f'"{where.name}" is not a safetensors file')
    entries = {k: v for k, v in json.loads(data[8 : 8 + length]).items() if k != "__metadata__"}

    def get(n: str) -> np.ndarray:
        entry = entries[n]
        begin, end = entry["data_offsets"]
        dtype = np.dtype(_SAFETENSORS[entry["dtype"]])
        shape = tuple(entry["shape"])
        if not 0 <= begin <= end <= len(data) - 8 - length or end - begin != dtype.itemsize * int(
            np.prod(shape, dtype=np.int64)
        ):
            raise FileConstantError(f'"{where.name}" places "{n}" outside the file')
        return np.frombuffer(data, dtype, (end - begin) // dtype.itemsize, 8 + length + begin).reshape(shape)

    return _pick(entries, name, get)
