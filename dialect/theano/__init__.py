"""Theano's tensor.elemwise: scalar operations on tensors, rearranged dimensions, reductions, and derivatives of all."""

from . import arithmetic, dimshuffle, elemwise, functions, reduce

__all__ = ["arithmetic", "dimshuffle", "elemwise", "functions", "reduce"]
