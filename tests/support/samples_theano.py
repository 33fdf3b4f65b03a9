"""Random operators of the theano dialect over arrays: what is exact, so that formulas and
references agree bit for bit.

Sizes are equal where they meet: a size that is not known does not stretch, and samples are also run
with unknown sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cvm.dialect.spec.operator import OPERATORS, Operator
from cvm.dialect.theano.reduce import NUMPY_REDUCTIONS, is_reducible
from cvm.dialect.theano.scalar_op import SCALAR_OPS
from cvm.dialect.theano.typed_reductions import keeps_precision
from cvm.dialect.types.tensor_types import BF16, ELEMENT_TYPES, F16, I1, ElementType
from samples import axes_among, between, flag, sample, shape
from samples_dali import values

REALS = tuple(e for e in ELEMENT_TYPES.values() if e.kind != "complex" and e not in (F16, BF16))
EXACT = [
    "add",
    "mul",
    "sub",
    "true_div",
    "int_div",
    "mod",
    "neg",
    "abs_",
    "sgn",
    "sqr",
    "ceil",
    "floor",
    "trunc",
    "round_half_to_even",
    "round_half_away_from_zero",
    "maximum",
    "minimum",
    "eq",
    "neq",
    "lt",
    "le",
    "gt",
    "ge",
    "isnan",
    "isinf",
    "inclosedrange",
    "inopenrange",
    "and_",
    "or_",
    "xor",
    "invert",
    "identity",
    "stop_gradient",
    "second",
    "switch",
    "clip",
    "mul_without_zeros",
    "real",
    "imag",
    "conj",
    "sqrt",
]


@sample(OPERATORS["theano.elemwise"])
def elemwise(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = shape(random)
    while True:
        name = str(random.choice(EXACT))
        op = SCALAR_OPS[name]
        arity = op.arity or between(random, 1, 4)
        elements = [REALS[int(k)] for k in random.integers(0, len(REALS), arity)]
        if op.takes(*elements):
            break
    arrays = [
        values(random, e, n[between(random, 0, len(n)) if flag(random) else 0 :]) for e in elements
    ]
    if name in ("int_div", "mod"):
        arrays[1] = np.where(arrays[1] == 0, np.ones_like(arrays[1]), arrays[1])
    return cls(tuple(arrays), scalar_op=name)


@sample(OPERATORS["theano.dimshuffle"])
def dimshuffle(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = shape(random)
    order: list[int | str] = [int(j) for j in random.permutation(len(n))]
    for _ in range(between(random, 0, 2)):
        order.insert(between(random, 0, len(order)), "x")
    return cls(values(random, element(random), n), tuple(order))


def element(random: np.random.Generator) -> ElementType:
    return REALS[between(random, 0, len(REALS) - 1)]


def small(random: np.random.Generator, kind: ElementType, n: tuple[int, ...]) -> np.ndarray:
    """Elements whose sums and products are exact in every order."""
    if kind.kind == "float":
        return random.integers(-2, 3, n).astype(kind.dtype)
    return values(random, kind, n)


def axis_of(random: np.random.Generator, n: tuple[int, ...]) -> tuple[int, ...] | None:
    if not n or random.random() < 0.2:
        return None
    return (
        ()
        if random.random() < 0.1
        else tuple(dict.fromkeys(axes_among(random, list(range(len(n))), len(n))))
    )


@sample(
    *(
        OPERATORS[f"theano.{n}"]
        for n in ("sum", "prod", "prod_without_zeros", "all", "any", "max", "min")
    )
)
def reduction(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    positive = cls.name in ("theano.max", "theano.min")
    n = tuple(max(1, d) for d in shape(random)) if positive else shape(random)
    return cls(small(random, element(random), n), axis_of(random, n))


@sample(OPERATORS["theano.careduce"], OPERATORS["theano.careduce_dtype"])
def careduce(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = tuple(max(1, d) for d in shape(random))
    while True:
        name, kind, accumulator = (
            str(random.choice(list(NUMPY_REDUCTIONS))),
            element(random),
            element(random),
        )
        if (
            is_reducible(name, kind)
            and is_reducible(name, accumulator)
            and keeps_precision(kind, accumulator)
            and I1 not in (kind, accumulator)
        ):
            break
    types = {"acc_dtype": accumulator} if cls.name == "theano.careduce_dtype" else {}
    return cls(small(random, kind, n), axis_of(random, n), scalar_op=name, **types)


@sample(OPERATORS["theano.product_of_others"])
def product_of_others(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = tuple(max(1, d) for d in shape(random))
    x = random.choice([-2.0, -1.0, 1.0, 2.0, 0.0], n, p=[0.25, 0.2, 0.25, 0.2, 0.1])
    return cls(x, axis_of(random, n))
