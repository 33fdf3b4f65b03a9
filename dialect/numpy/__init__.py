"""NumPy's universal functions: element types by NumPy 2's promotion, values as NumPy computes them on x86-64."""

from . import arithmetic, comparison, elementwise, floating_point, from_theano

__all__ = ["arithmetic", "comparison", "elementwise", "floating_point", "from_theano"]
