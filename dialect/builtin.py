"""The operations that belong to no dialect: constants and calls, whose syntax is their own, and what passes make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from .index import Element, Expr, Tensor, as_index, axes, both, constant, inside, when
from .literals import literal_text
from .op import C, Operator, Symbol, T, operator, quoted
from .types import MAX_SIZE, TensorType, Type


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


@operator
class View(Operator[T]):
    """The same elements as a tensor or as a field: Y is X's array, of another type."""

    dialect = "builtin"
    name = "builtin.view"
    x: T
    type: Type

    constraints = (
        C(
            1,
            "type has the array of type(x)",
            lambda o: o.type.element is o.x.element and same_array(o.type, o.x),
            at="type",
        ),
    )
    view = True
    example = """
        func @main(%x: tensor<2x3xf32>) -> !cog.field<[2, 3], f32> {
          %y = builtin.view %x {type = !cog.field<[2, 3], f32>}
          return %y
        }
    """

    def infer(self: View[Any]) -> Type:
        return self.type.with_array_shape(self.x.array_shape)

    def reference(self: View[np.ndarray]) -> np.ndarray:
        return self.x

    def element(self: View[Tensor], y: Tensor) -> Element:
        at = axes(y.shape)
        return Element(at, self.x[at])

    def pullback(self: Any, results: Any, cotangents: Any) -> Any:
        return cotangents

    def pushforward(self: Any, results: Any, tangents: Any) -> Any:
        return tangents


@operator
class Place(Operator[T]):
    """Y[begin + u * strides] = X[u] where Y has such an element; 0 elsewhere. What goes back through a slice."""

    dialect = "builtin"
    name = "builtin.place"
    x: T
    begin: tuple[int, ...]
    strides: tuple[int, ...]
    shape: tuple[int, ...]

    constraints = (
        C(
            1,
            "begin, strides and shape have rank(x) entries",
            lambda o: len(o.begin) == len(o.strides) == len(o.shape) == len(o.x.array_shape),
        ),
        C(2, "strides[i] != 0 for all i", lambda o: 0 not in o.strides, at="strides"),
        C(3, "shape[i] >= 0 for all i", lambda o: min(o.shape, default=0) >= 0, at="shape"),
        C(
            4,
            "begin and strides are in [-2^40, 2^40]",
            lambda o: all(abs(n) <= MAX_SIZE for n in (*o.begin, *o.strides)),
        ),
    )
    example = """
        func @main(%x: tensor<2x3xf32>) -> tensor<2x8xf32> {
          %y = builtin.place %x {begin = [0, 1], strides = [1, 2], shape = [2, 8]}
          return %y
        }
    """

    def infer(self: Place[Any]) -> Type:
        return self.x.with_array_shape(self.shape)

    def reference(self: Place[np.ndarray]) -> np.ndarray:
        y = np.zeros(self.shape, self.x.dtype)
        for u in np.ndindex(self.x.shape):
            at = tuple(b + i * s for b, i, s in zip(self.begin, u, self.strides, strict=True))
            if all(0 <= i < n for i, n in zip(at, self.shape, strict=True)):
                y[at] = self.x[u]
        return y

    def element(self: Place[Tensor], y: Tensor) -> Element:
        d = axes(y.shape)
        at: list[Expr] = []
        conditions: list[Expr | bool] = []
        for i, n, b, s in zip(d, self.x.shape, self.begin, self.strides, strict=True):
            past = i - b if s > 0 else as_index(b) - i
            at.append(past // abs(s) if abs(s) > 1 else past)
            conditions.append(inside(at[-1], n))
            conditions.append((past % abs(s)).eq(0) if abs(s) > 1 else True)
        return Element(d, when(both(*conditions), self.x[tuple(at)], constant(0, y.element)))

    def pullback(self: Any, results: Any, cotangents: Any) -> Any:
        """The elements of the cotangent at those places, 0 beyond it."""
        (g,), apply = cotangents, cotangents[0].builder.apply
        sizes = self.x.shape
        if not all(isinstance(n, int) for n in sizes):
            raise NotImplementedError(f"{self.name} of unknown sizes")
        if 0 in sizes:
            return [None]
        ends = [(b, b + (n - 1) * s) for b, n, s in zip(self.begin, sizes, self.strides, strict=True)]
        before = [max(0, -min(e)) for e in ends]
        whole = tuple(max(m, max(e) + 1) + k for m, e, k in zip(self.shape, ends, before, strict=True))
        if whole != self.shape:
            g = apply("builtin.place", g, begin=tuple(before), strides=(1,) * g.rank, shape=whole)
        first = tuple(b + k for b, k in zip(self.begin, before, strict=True))
        stops = [b + n * s for b, n, s in zip(first, sizes, self.strides, strict=True)]
        end = tuple(e if e >= 0 else -MAX_SIZE for e in stops)  # below 0: before the first element
        return [apply("cvm.slice", g, begin=first, end=end, strides=self.strides)]


def same_array(a: Type, b: Type) -> bool:
    if len(a.array_shape) != len(b.array_shape):
        return False
    return all(m == n for m, n in zip(a.array_shape, b.array_shape, strict=True))


@dataclass(frozen=True, eq=False)
class Calling(Operator[T]):
    """The family of operators that name a function of the module, to which their first operands are passed."""

    arguments: tuple[T, ...]
    callee: Symbol

    signature: ClassVar[tuple[tuple[Any, ...], tuple[Any, ...]]] = ((), ())  # types of what is passed, and given for it

    def with_signature(self, passed: Sequence[Type], results: Sequence[Type]) -> Self:
        """The same operator, knowing what its function takes and gives: constraints and result types depend on it."""
        known = replace(self)
        object.__setattr__(known, "signature", (tuple(passed), tuple(results)))
        return known

    def passed(self, count: int) -> tuple[T, ...]:
        """The operands that are passed to a function of so many arguments."""
        return self.arguments


@operator
class Call(Calling[T]):
    """A call of another function of the module: `call @f(%x)`. Expanded before lowering."""

    dialect = "builtin"
    name = "call"

    example = """
        func @twice(%x: tensor<?N x i32>) -> tensor<?N x i32> {
          %y = cvm.elemwise_add %x, %x
          return %y
        }

        func @main(%x: tensor<3xi32>) -> tensor<3xi32> {
          %y = call @twice(%x)
          return %y
        }
    """

    def infer(self: Call[Any]) -> tuple[Type, ...]:
        return self.signature[1]


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
