"""NumPy's universal functions: element types by NumPy 2's promotion, values as NumPy computes them on x86-64."""

from . import apply_ufunc, arithmetic, floating_point, from_theano, logical_where_astype

__all__ = ["apply_ufunc", "arithmetic", "floating_point", "from_theano", "logical_where_astype"]
