"""Arrays of kernels: arguments, arrays that are made inside, and views of these, known by name
while compiling.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from cvm.dialect.kernel_ir import expressions as ex
from cvm.dialect.types.tensor_types import ElementType


@dataclass(frozen=True, eq=False)
class Along:
    """An axis of storage that an axis of a view runs along: from a start, by a step."""

    start: ex.Expr = ex.ZERO
    step: int = 1

    def at(self, i: ex.Expr) -> ex.Expr:
        return self.start + i * self.step


@dataclass(frozen=True, eq=False)
class Array:
    """A view of an array: the length of each axis, and for each axis of the storage an index, or
    the axis along it.
    """

    name: str
    tensor: ex.Tensor
    lengths: tuple[ex.Expr, ...]
    axes: tuple[Along | ex.Expr, ...]
    strides: tuple[ex.Expr, ...] | None = None  # of storage that is not contiguous, in elements
    depth: int = 0  # loops around the place where it is made

    @property
    def element(self) -> ElementType:
        return self.tensor.element

    @property
    def rank(self) -> int:
        return len(self.lengths)

    @property
    def is_whole(self) -> bool:
        return all(
            isinstance(a, Along)
            and isinstance(a.start, ex.Const)
            and a.start.value == 0
            and a.step == 1
            for a in self.axes
        )

    def __str__(self) -> str:
        return f"array of {self.element.dtype.name} with rank {self.rank}"

    def place(self, indices: Sequence[ex.Expr]) -> tuple[ex.Expr, ...]:
        """The indices of the storage of an element."""
        left = iter(indices)
        found = tuple(a.at(next(left)) if isinstance(a, Along) else a for a in self.axes)
        if self.strides is None:
            return found
        offset: ex.Expr = ex.ZERO
        for i, stride in zip(found, self.strides, strict=True):
            offset = offset + i * stride
        return (offset,)

    def read(self, indices: Sequence[ex.Expr]) -> ex.Expr:
        return ex.Read(self.tensor, self.place(indices))


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
    node: ast.AST
