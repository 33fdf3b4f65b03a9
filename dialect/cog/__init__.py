"""Cog's field operators: grids of tensors, real and complex, with strict rules of compatibility and no broadcasting."""

from . import arithmetic, complexes, grids, reductions, tensors

__all__ = ["arithmetic", "complexes", "grids", "reductions", "tensors"]
