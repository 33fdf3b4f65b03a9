"""Cog's field operators: grids of tensors, real and complex, with strict rules of compatibility and
no broadcasting.
"""

from . import arithmetic, clocked, complex_fields, reductions, slice_shift_stack, vector_elements  # noqa: F401
