"""Methods of traced arrays that select, convert or change elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .numpy_table import ARRAY_METHODS, numpy_method

if TYPE_CHECKING:
    from ..numpy.updates import IndexUpdate
    from .array_types import ArrayLike, Dtype, Mode, Order, Output
    from .trace import TracedArray


class ElementMethods:
    """NumPy's methods for elements, subscripts, and the `at` of JAX."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> TracedArray:
        """Take elements by integers, slices, `...`, None and arrays of integers."""
        return ARRAY_METHODS["__getitem__"](self, key)

    def __setitem__(self, key: Any, values: ArrayLike) -> None:
        """Change elements of an array that the traced function made."""
        ARRAY_METHODS["__setitem__"](self, key, values)

    @property
    def at(self) -> IndexUpdate:
        """Updates of elements that give a new array: `x.at[key].set(values)`."""
        return ARRAY_METHODS["at"](self)

    @property
    def real(self) -> TracedArray:
        """The real parts."""
        return ARRAY_METHODS["real"](self)

    @property
    def imag(self) -> TracedArray:
        """The imaginary parts."""
        return ARRAY_METHODS["imag"](self)

    @numpy_method
    def astype(
        self,
        dtype: Dtype,
        order: str = "K",
        casting: str = "unsafe",
        subok: bool = True,
        copy: bool = True,
    ) -> TracedArray:
        """Convert the elements: integers wrap as in C, floats as NumPy does on x86-64."""
        ...

    @numpy_method
    def copy(self, order: Order = "C") -> TracedArray:
        """Copy the elements into an array with memory of its own."""
        ...

    @numpy_method
    def clip(
        self, min: ArrayLike | None = None, max: ArrayLike | None = None, out: Output = None
    ) -> TracedArray:
        """Limit the elements to an interval."""
        ...

    @numpy_method
    def round(self, decimals: int = 0, out: Output = None) -> TracedArray:
        """Round the elements to a number of decimals, halves to even."""
        ...

    @numpy_method
    def take(
        self,
        indices: ArrayLike,
        axis: int | None = None,
        out: Output = None,
        mode: Mode = "raise",
    ) -> TracedArray:
        """Take elements along an axis by their indices."""
        ...

    @numpy_method
    def choose(
        self, choices: Sequence[ArrayLike], out: Output = None, mode: Mode = "raise"
    ) -> TracedArray:
        """Take each element from the choice that this array's element names."""
        ...

    @numpy_method
    def dot(self, b: ArrayLike, out: Output = None) -> TracedArray:
        """Multiply vectors, matrices and stacks of them."""
        ...
