"""Methods of traced arrays that change their shape or the order of their axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, SupportsIndex

from .numpy_table import ARRAY_METHODS, numpy_method

if TYPE_CHECKING:
    from .array_types import ArrayLike, Axes, Order
    from .trace import TracedArray


class ShapeMethods:
    """NumPy's methods for shapes and axes; most results share memory with the array."""

    __slots__ = ()

    @property
    def T(self) -> TracedArray:
        """The array with its axes reversed."""
        return ARRAY_METHODS["T"](self)

    @property
    def mT(self) -> TracedArray:
        """The array with its last two axes exchanged."""
        return ARRAY_METHODS["mT"](self)

    @numpy_method
    def reshape(
        self, *shape: SupportsIndex | Sequence[SupportsIndex], order: Order = "C"
    ) -> TracedArray:
        """Give the elements another shape, in row-major or column-major order."""
        ...

    @numpy_method
    def ravel(self, order: Order = "C") -> TracedArray:
        """Make a vector of the elements: a view where NumPy makes one."""
        ...

    @numpy_method
    def flatten(self, order: Order = "C") -> TracedArray:
        """Copy the elements into a vector."""
        ...

    @numpy_method
    def transpose(self, *axes: SupportsIndex | Sequence[SupportsIndex] | None) -> TracedArray:
        """Permute the axes, or reverse them."""
        ...

    @numpy_method
    def swapaxes(self, axis1: int, axis2: int) -> TracedArray:
        """Exchange two axes."""
        ...

    @numpy_method
    def squeeze(self, axis: Axes = None) -> TracedArray:
        """Remove axes of size 1."""
        ...

    @numpy_method
    def repeat(self, repeats: ArrayLike, axis: int | None = None) -> TracedArray:
        """Repeat each element along an axis."""
        ...

    @numpy_method
    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> TracedArray:
        """Take a diagonal, as a read-only view."""
        ...
