"""Random operators of the cog dialect over arrays: fields of every number of dimensions, tensor
order and element type.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cvm.dialect.cog import arithmetic, complex_fields, slice_shift_stack, vector_elements
from cvm.dialect.spec.operator import OPERATORS, Operator
from cvm.dialect.types.tensor_types import BY_DTYPE, FieldType, TensorType
from samples import between, flag

EDGES = (0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan, 1e-40, 3e38, -7.0, 3.0)
FOLDS = (OPERATORS["cog.reduce_sum"], OPERATORS["cog.field_reduce_sum"])
SAMPLED = sorted(
    n for n, op in OPERATORS.items() if op.dialect == "cog" and "clocked" not in op.__module__
)

Shape = tuple[int, ...]


def shape(random: np.random.Generator, most: int, least: int = 0) -> Shape:
    return tuple(map(int, random.integers(1, 5, between(random, least, most))))


def values(
    random: np.random.Generator, shape: Shape, complex: bool, tame: bool = False
) -> np.ndarray:
    """Elements of all magnitudes, the edges among them; `tame` ones, small integers, whose sums are
    exact.
    """
    if complex:
        made = np.empty(shape, np.complex64)
        made.real, made.imag = (
            values(random, shape, False, tame),
            values(random, shape, False, tame),
        )
        return made
    if tame:
        return np.asarray(random.integers(-9, 10, shape).astype(np.float32))
    plain = random.choice([random.normal(0, 10, shape), random.integers(-4, 5, shape)])
    return np.asarray(
        np.where(random.random(shape) < 0.2, random.choice(EDGES, shape), plain).astype(np.float32)
    )


def compatible(random: np.random.Generator) -> tuple[tuple[Shape, Shape], tuple[Shape, Shape]]:
    """The field and tensor shapes of two operands that meet by one of the four conditions, in
    either order.
    """
    grid, tensor = shape(random, 3), shape(random, 2)
    pairs = (
        ((grid, tensor), (grid, tensor)),
        ((grid, tensor), ((), tensor)),
        ((grid, tensor), (grid, ())),
        ((grid, tensor), ((), ())),
    )
    a, b = pairs[between(random, 0, 3)]
    return (a, b) if flag(random) else (b, a)


def sample(name: str, random: np.random.Generator) -> Operator[np.ndarray]:
    """An operator of this name over arrays, which knows the types of the fields they stand for."""
    cls: Any = OPERATORS[name]
    complex = flag(random) and not issubclass(
        cls, (arithmetic.RealBinary, complex_fields.Complex, slice_shift_stack.Outer)
    )
    complex = complex and name not in ("cog.field_reduce_min", "cog.field_reduce_max")
    if issubclass(cls, arithmetic.Binary):
        (g, t), (h, u) = compatible(random)
        a, b = values(random, (*g, *t), complex and flag(random)), values(random, (*h, *u), complex)
        return typed(cls(a, b), g, h)
    if cls is slice_shift_stack.Outer:
        g = shape(random, 3)
        h = shape(random, 3 - len(g))
        return typed(cls(values(random, g, False), values(random, h, False)), g, h)
    if cls in (slice_shift_stack.Stack, vector_elements.Vector):
        g, t = shape(random, 2), shape(random, 2) if cls is slice_shift_stack.Stack else ()
        count = between(random, 1, 4)
        return typed(
            cls(tuple(values(random, (*g, *t), complex) for _ in range(count))), *[g] * count
        )
    g, t = shape(random, 3, 1 if cls is slice_shift_stack.Slice else 0), shape(random, 2)
    if cls is vector_elements.VectorElement:
        t = (between(random, 1, 4),)
    x = values(random, (*g, *t), complex, tame=cls in FOLDS)
    return typed(cls(x, *attributes(random, cls, g, t)), g)


def attributes(
    random: np.random.Generator, cls: Any, grid: Shape, tensor: Shape
) -> tuple[Any, ...]:
    match cls.name:
        case "cog.slice":
            return (between(random, 0, grid[0] - 1),)
        case "cog.vector_element":
            return (between(random, 0, tensor[0] - 1),)
        case "cog.subfield":
            begin = tuple(between(random, 0, n - 1) for n in grid)
            return begin, tuple(between(random, b + 1, n) for b, n in zip(begin, grid, strict=True))
        case "cog.reshape":
            points = int(np.prod(grid))
            return ([(points,), (1, points), (points, 1), grid[::-1]][between(random, 0, 3)],)
        case "cog.expand":
            border = ("zero", "clamp", "cyclic")[between(random, 0, 2)]
            return tuple(n + between(random, 0, 2 * n) for n in grid), border
        case "cog.shift" | "cog.shift_cyclic":
            far = 2**62 if random.random() < 0.1 else 6
            return (tuple(between(random, -far, far) for _ in grid),)
    return ()


def typed(op: Operator[np.ndarray], *grids: Shape) -> Operator[np.ndarray]:
    """The operator, told how many axes of each array are the field's."""
    arrays = [a for _, a in op.operands()]
    types = (
        FieldType(grid, TensorType(array.shape[len(grid) :], BY_DTYPE[array.dtype]))
        for array, grid in zip(arrays, grids, strict=True)
    )
    given = iter(arrays)
    return op.map(lambda _: next(types)).map(lambda _: next(given))
