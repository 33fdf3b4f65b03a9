"""Theano's tensor.elemwise: scalar operations on tensors, rearranged dimensions, reductions, and derivatives of all."""

from . import (
    arithmetic,
    bessel,
    derivatives,
    dimshuffle,
    elemwise,
    functions,
    gamma,
    incomplete,
    logic,
    products,
    reduce,
    special,
    sums,
)

__all__ = [
    "arithmetic",
    "bessel",
    "derivatives",
    "dimshuffle",
    "elemwise",
    "functions",
    "gamma",
    "incomplete",
    "logic",
    "products",
    "reduce",
    "special",
    "sums",
]
