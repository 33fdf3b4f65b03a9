"""Cog's field operators: grids of tensors, real and complex, with strict rules of compatibility and no broadcasting."""

from . import arithmetic, clocked, reductions
from . import complex_fields as complexes
from . import slice_shift_stack as grids
from . import vectors as tensors

__all__ = ["arithmetic", "clocked", "complexes", "grids", "reductions", "tensors"]
