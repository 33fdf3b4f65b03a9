"""Theano's tensor.elemwise: scalar operations on tensors, rearranged dimensions, reductions, and
derivatives of all.
"""

from importlib import import_module

POINTWISE = (
    "arithmetic bessel compare_select_cast elementary_functions elemwise erf gamma incomplete_gamma"
)
for (
    _module
) in f"{POINTWISE} dimshuffle product_of_others reduce typed_reductions grad_lop_rop".split():
    import_module(f".{_module}", __name__)
