"""Theano's tensor.elemwise: scalar operations on tensors, rearranged dimensions, reductions, and derivatives of all."""

from . import (  # noqa: F401
    arithmetic,
    bessel,
    compare_select_cast,
    dimshuffle,
    elementary_functions,
    elemwise,
    error_functions,
    gamma,
    incomplete_gamma,
    product_of_others,
    reduce,
    typed_reductions,
)
from . import grad_lop_rop as grad_lop_rop
