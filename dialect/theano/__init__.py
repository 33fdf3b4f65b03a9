"""Theano's tensor.elemwise: scalar operations on tensors, rearranged dimensions, reductions, and derivatives of all."""

from . import arithmetic, bessel, derivatives, dimshuffle, elemwise, gamma, reduce
from . import compare_select_cast as logic
from . import elementary_functions as functions
from . import error_functions as special
from . import incomplete_gamma as incomplete
from . import product_of_others as products
from . import typed_reductions as sums

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
