"""Constants: data in the program's text, or read from a file beside it
(`dialect.types.constant_files`).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernel_ir.expressions import Element, Tensor
from ..spec.operator import Operator, T, operator
from ..types.attributes import quoted
from ..types.literal_types import literal_text
from ..types.tensor_types import Type


def frozen(array: np.ndarray) -> np.ndarray:
    """The array if nothing can change its elements, or else a read-only copy."""
    if array.size > 1 and not any(
        s for s, n in zip(array.strides, array.shape, strict=True) if n > 1
    ):
        return np.broadcast_to(array.reshape(-1)[0], array.shape)
    base = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return owned(np.array(array, order="C"))
        base = base.base
    return array


def owned(array: np.ndarray) -> np.ndarray:
    """A new array that nothing else changes, made read-only, so that a constant keeps it without a
    copy.
    """
    base = array
    while isinstance(base, np.ndarray):
        base.flags.writeable = False
        base = base.base
    return array


class Data:
    """The elements of a constant: written in the program, one element for all (a splat), or read
    from a named file.

    Nothing changes them: an array that can be written to is copied.
    """

    def __init__(
        self, array: np.ndarray, file: tuple[str, str | None] | None = None, splat: bool = False
    ) -> None:
        self.array = frozen(array)
        self.file = file
        self.splat = splat

    def __reduce__(self) -> tuple[Any, ...]:
        return Data, (self.array, self.file, self.splat)

    @property
    def text(self) -> str:
        """The constant's text, without its type."""
        if self.file is not None:
            return f"file({', '.join(quoted(part) for part in self.file if part is not None)})"
        array = self.array
        if array.size == 0:
            return "dense<>"
        return f"dense<{_nested(array.flat[0] if self.splat or not array.ndim else array)}>"

    def same(self, other: "Data") -> bool:
        """Test whether both have the same bits and the same text."""
        a, b = self.array, other.array
        if (a.dtype, a.shape, self.file, self.splat) != (b.dtype, b.shape, other.file, other.splat):
            return False
        return a.size == 0 or (
            a.flat[0].tobytes() == b.flat[0].tobytes() if self.splat else a.tobytes() == b.tobytes()
        )

    def __repr__(self) -> str:
        return f"Data({self.array.dtype}{list(self.array.shape)})"


@dataclass(frozen=True, eq=False)
class Elements:
    """A constant as the value of an attribute: `{value = dense<[1, 2]> : tensor<2xi32>}`."""

    data: Data
    type: Type

    def __str__(self) -> str:
        return f"{self.data.text} : {self.type}"


def _nested(array: object) -> str:
    if not isinstance(array, np.ndarray):
        return literal_text(array)
    if array.ndim == 1:
        texts = map(str, array.tolist()) if array.dtype.kind in "iu" else map(literal_text, array)
        return f"[{', '.join(texts)}]"
    return f"[{', '.join(map(_nested, array))}]"


@operator
class Const(Operator[T]):
    """A constant: `const dense<...> : type` or `const file("weights.npz", "name") : type`."""

    any_element = True
    name = "const"
    data: Data
    type: Type

    example = """
        func @main() -> tensor<2x2xi32> {
          %y = const dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>
          return %y
        }
    """

    def infer(self) -> Type:
        return self.type

    def reference(self) -> np.ndarray:
        return self.data.array

    def element(self: "Const[Any]", y: Tensor) -> Element:
        raise NotImplementedError("a constant is data, not a formula")
