"""NumPy's universal functions: element types by NumPy 2's promotion, values as NumPy computes them
on x86-64.
"""

from . import (  # noqa: F401
    arithmetic,
    elementwise as elementwise,
    floating_point,
    from_theano,
    gcd,
    logical_where_astype,
)
