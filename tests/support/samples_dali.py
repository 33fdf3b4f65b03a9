"""Random operators of the dali dialect over arrays: every element type, pattern of broadcasting and
kind of value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cvm.dialect.dali.pointwise import groups
from cvm.dialect.dali.promotion import SUPPORTED
from cvm.dialect.spec.operator import OPERATORS, Operator
from cvm.dialect.types.tensor_types import ElementType
from samples import between, flag, sample

EDGES = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    255.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-40,
    1e30,
    -3e38,
    16777217.0,
    2.0**63,
    -(2.0**31),
)
DALI = {name: op for name, op in OPERATORS.items() if op.dialect == "dali"}


def values(random: np.random.Generator, element: ElementType, shape: tuple[int, ...]) -> np.ndarray:
    """Elements of all magnitudes, the edges of the type among them."""
    if element.kind == "bool":
        return np.asarray(random.random(shape) < 0.5)
    edge = random.random(shape) < 0.2
    if element.kind == "float":
        scale = random.choice([1.0, 10.0, 1e3, 1e20]) ** random.choice([1, -1])
        plain = random.choice([random.normal(0, scale, shape), random.integers(-20, 20, shape)])
        with np.errstate(over="ignore"):
            return np.asarray(
                np.where(edge, random.choice(EDGES, shape), plain).astype(element.dtype)
            )
    low, high = element.limits
    wide = random.integers(low, high, shape, element.dtype, endpoint=True)
    small = random.integers(max(low, -9), 10, shape).astype(element.dtype)
    edges = np.array([low, high, 0, 1, low + 1, high - 1, max(low, -1)], element.dtype)
    chosen = wide if flag(random) else small
    return np.asarray(np.where(edge, random.choice(edges, shape), chosen).astype(element.dtype))


def shapes(random: np.random.Generator, count: int) -> list[tuple[int, ...]]:
    """Shapes that broadcast together, by any pattern; now and then a size is 0."""
    rank = between(random, 0, 4)
    least = 0 if random.random() < 0.1 else 1
    whole = tuple(int(n) for n in random.integers(least, 4, rank))

    def one() -> tuple[int, ...]:
        kept = whole[between(random, 0, rank) if random.random() < 0.3 else 0 :]
        return tuple(1 if random.random() < 0.3 else d for d in kept)

    found = [one() for _ in range(count)]
    assert groups(*found) <= 6
    return found


@sample(*DALI.values())
def pointwise(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    """Operands of types that the operator's rule takes; divisors of integers are not zero."""
    while True:
        elements = [SUPPORTED[int(n)] for n in random.integers(0, len(SUPPORTED), len(cls.names))]
        if cls.rule.holds(*elements) or (cls.name == "dali.pos"):
            break
    arrays = [
        values(random, e, n) for e, n in zip(elements, shapes(random, len(elements)), strict=True)
    ]
    if cls.name in ("dali.floordiv", "dali.mod"):
        arrays[1] = np.where(arrays[1] == 0, np.ones_like(arrays[1]), arrays[1])
    return cls(*arrays)
