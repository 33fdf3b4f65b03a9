"""Arrays of kernels: arguments, arrays that are made inside, and views of these, known by name
while compiling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cvm.dialect.kernel_ir import expressions as ex
from cvm.dialect.support.diagnostics import Span
from cvm.dialect.types.tensor_types import ElementType

from .numbers import Number, NumberType


@dataclass(frozen=True, eq=False)
class Along:
    """An axis of storage that the axis of a view runs along: from a start, by a step."""

    axis: int
    start: ex.Expr = ex.ZERO
    step: int = 1

    def at(self, i: ex.Expr) -> ex.Expr:
        return self.start + i * self.step


@dataclass(frozen=True, eq=False)
class Array:
    """A view of an array: the length of each axis, and for each axis of the storage an index, or
    the axis along it. An axis that runs along none has one element.
    """

    name: str
    tensor: ex.Tensor
    lengths: tuple[ex.Expr, ...]
    axes: tuple[Along | ex.Expr, ...]
    strides: tuple[ex.Expr, ...] | None = None  # of storage that is not contiguous, in elements
    fresh: bool = False  # made by an expression: no name stands for it yet

    @property
    def element(self) -> ElementType:
        return self.tensor.element

    @property
    def rank(self) -> int:
        return len(self.lengths)

    @property
    def is_plain(self) -> bool:
        """Test whether the elements have their indices in the storage."""
        return self.rank == len(self.axes) and all(
            isinstance(a, Along)
            and isinstance(a.start, ex.Const)
            and a.start.value == 0
            and a.step == 1
            and a.axis == n
            for n, a in enumerate(self.axes)
        )

    def __str__(self) -> str:
        return f"array of {self.element.dtype.name} with rank {self.rank}"

    def place(self, indices: Sequence[ex.Expr]) -> tuple[ex.Expr, ...]:
        """The indices of the storage of an element."""
        found = tuple(a.at(indices[a.axis]) if isinstance(a, Along) else a for a in self.axes)
        if self.strides is None:
            return found
        offset: ex.Expr = ex.ZERO
        for i, stride in zip(found, self.strides, strict=True):
            offset = offset + i * stride
        return (offset,)

    def read(self, indices: Sequence[ex.Expr]) -> ex.Expr:
        return ex.Read(self.tensor, self.place(indices))

    def transposed(self, order: Sequence[int]) -> Array:
        """The view whose axis n is this one's axis `order[n]`."""
        axes = tuple(
            replace(a, axis=order.index(a.axis)) if isinstance(a, Along) else a for a in self.axes
        )
        return replace(self, lengths=tuple(self.lengths[n] for n in order), axes=axes)

    @property
    def elements(self) -> Elements:
        kind = NumberType(self.element)
        return Elements(self.lengths, kind, lambda at: Number(self.read(at)), (self,))


@dataclass(frozen=True, eq=False)
class Elements:
    """An array expression that is not in memory: `at` makes the statements that compute the element
    at some indices. `equal` has pairs of sizes: where one is 1 and the other is not, elements are
    repeated. `shared` is the function whose result may be a view in NumPy.
    """

    lengths: tuple[ex.Expr, ...]
    type: NumberType
    at: Callable[[Sequence[ex.Expr]], Number]
    reads: tuple[Array, ...]
    equal: tuple[tuple[ex.Expr, ex.Expr], ...] = ()
    shared: str = ""

    @property
    def rank(self) -> int:
        return len(self.lengths)

    @property
    def elements(self) -> Elements:
        return self

    def __str__(self) -> str:
        return f"array of {self.type} with rank {self.rank}"


@dataclass(frozen=True, eq=False)
class Masked:
    """The elements of an array where another one of booleans holds, of the same sizes."""

    array: Array
    mask: Elements

    def __str__(self) -> str:
        return f"selection by a mask from an {self.array}"


@dataclass(frozen=True, eq=False)
class Method:
    """A method of an array or a number, before it is called."""

    of: Array | Elements | Number
    name: str

    def __str__(self) -> str:
        return f"method {self.name}"


@dataclass(frozen=True, eq=False)
class Values:
    """A tuple."""

    items: tuple[object, ...]

    def __str__(self) -> str:
        return f"tuple of {len(self.items)}"


@dataclass(frozen=True, eq=False)
class Known:
    """A value of Python that is known while compiling: a module, a function, a type."""

    value: object

    def __str__(self) -> str:
        return type(self.value).__name__


@dataclass(frozen=True, eq=False)
class Made:
    """An array that a kernel makes: its sizes, as expressions of sizes and integers of the call."""

    tensor: ex.Tensor
    sizes: tuple[ex.Expr, ...]
    place: Span
