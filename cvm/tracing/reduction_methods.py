"""Methods of traced arrays that reduce or scan elements along axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .numpy_table import numpy_method

if TYPE_CHECKING:
    from .array_types import ArrayLike, Axes, Dtype, Output
    from .trace import TracedArray


class ReductionMethods:
    """NumPy's reductions and scans, as methods of traced arrays."""

    __slots__ = ()

    @numpy_method
    def sum(
        self,
        axis: Axes = None,
        dtype: Dtype | None = None,
        out: Output = None,
        keepdims: bool = False,
        initial: complex | None = None,
        where: ArrayLike | None = None,
    ) -> TracedArray:
        """Sum the elements along axes."""
        ...

    @numpy_method
    def prod(
        self,
        axis: Axes = None,
        dtype: Dtype | None = None,
        out: Output = None,
        keepdims: bool = False,
        initial: complex | None = None,
        where: ArrayLike | None = None,
    ) -> TracedArray:
        """Multiply the elements along axes."""
        ...

    @numpy_method
    def mean(
        self,
        axis: Axes = None,
        dtype: Dtype | None = None,
        out: Output = None,
        keepdims: bool = False,
        *,
        where: ArrayLike | None = None,
    ) -> TracedArray:
        """Average the elements along axes."""
        ...

    @numpy_method
    def max(
        self,
        axis: Axes = None,
        out: Output = None,
        keepdims: bool = False,
        initial: complex | None = None,
        where: ArrayLike | None = None,
    ) -> TracedArray:
        """Take the largest element along axes; NaN where there is one."""
        ...

    @numpy_method
    def min(
        self,
        axis: Axes = None,
        out: Output = None,
        keepdims: bool = False,
        initial: complex | None = None,
        where: ArrayLike | None = None,
    ) -> TracedArray:
        """Take the smallest element along axes; NaN where there is one."""
        ...

    @numpy_method
    def all(
        self,
        axis: Axes = None,
        out: Output = None,
        keepdims: bool = False,
        *,
        where: ArrayLike | None = None,
    ) -> TracedArray:
        """Test whether all elements along axes are true."""
        ...

    @numpy_method
    def any(
        self,
        axis: Axes = None,
        out: Output = None,
        keepdims: bool = False,
        *,
        where: ArrayLike | None = None,
    ) -> TracedArray:
        """Test whether any element along axes is true."""
        ...

    @numpy_method
    def var(
        self,
        axis: Axes = None,
        dtype: Dtype | None = None,
        out: Output = None,
        ddof: float = 0,
        keepdims: bool = False,
        *,
        where: ArrayLike = True,
        mean: ArrayLike | None = None,
        correction: float | None = None,
    ) -> TracedArray:
        """Compute the variance along axes."""
        ...

    @numpy_method
    def std(
        self,
        axis: Axes = None,
        dtype: Dtype | None = None,
        out: Output = None,
        ddof: float = 0,
        keepdims: bool = False,
        *,
        where: ArrayLike = True,
        mean: ArrayLike | None = None,
        correction: float | None = None,
    ) -> TracedArray:
        """Compute the standard deviation along axes."""
        ...

    @numpy_method
    def argmax(
        self, axis: int | None = None, out: Output = None, *, keepdims: bool = False
    ) -> TracedArray:
        """Find the index of the first largest element along an axis."""
        ...

    @numpy_method
    def argmin(
        self, axis: int | None = None, out: Output = None, *, keepdims: bool = False
    ) -> TracedArray:
        """Find the index of the first smallest element along an axis."""
        ...

    @numpy_method
    def cumsum(
        self, axis: int | None = None, dtype: Dtype | None = None, out: Output = None
    ) -> TracedArray:
        """Compute the prefix sums along an axis."""
        ...

    @numpy_method
    def cumprod(
        self, axis: int | None = None, dtype: Dtype | None = None, out: Output = None
    ) -> TracedArray:
        """Compute the prefix products along an axis."""
        ...

    @numpy_method
    def argsort(
        self,
        axis: int | None = -1,
        kind: str | None = None,
        order: None = None,
        *,
        stable: bool | None = None,
    ) -> TracedArray:
        """Find the indices that sort the elements along an axis; the order is always stable."""
        ...

    @numpy_method
    def searchsorted(
        self, v: ArrayLike, side: Literal["left", "right"] = "left", sorter: None = None
    ) -> TracedArray:
        """Find the indices at which elements of `v` keep this sorted vector in order."""
        ...

    @numpy_method
    def trace(
        self,
        offset: int = 0,
        axis1: int = 0,
        axis2: int = 1,
        dtype: Dtype | None = None,
        out: Output = None,
    ) -> TracedArray:
        """Sum the elements of a diagonal."""
        ...
