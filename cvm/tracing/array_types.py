"""Types of the parameters of NumPy's functions and of methods of traced arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from numpy.typing import ArrayLike as KnownArray, DTypeLike

    from cvm.dialect.types.sizes import Size

    from .trace import TracedArray

ArrayLike: TypeAlias = "TracedArray | KnownArray"
Axes: TypeAlias = int | Sequence[int] | None
BinaryMethod: TypeAlias = "Callable[[TracedArray, Any], TracedArray]"
Dim: TypeAlias = "int | Size"
Dtype: TypeAlias = "DTypeLike"
Mode: TypeAlias = Literal["raise", "wrap", "clip"]
Order: TypeAlias = Literal["C", "F"]
Output: TypeAlias = "TracedArray | tuple[TracedArray, ...] | None"
UnaryMethod: TypeAlias = "Callable[[TracedArray], TracedArray]"
