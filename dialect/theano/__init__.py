"""Theano's tensor.elemwise: scalar operations on tensors, rearranged dimensions, reductions, and derivatives of all."""

from . import arithmetic, derivatives, dimshuffle, elemwise, functions, products, reduce

__all__ = ["arithmetic", "derivatives", "dimshuffle", "elemwise", "functions", "products", "reduce"]
