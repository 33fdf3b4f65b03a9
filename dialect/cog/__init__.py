"""Cog's field operators: grids of tensors, real and complex, with strict rules of compatibility and no broadcasting."""

from . import arithmetic, clocked, complexes, grids, reductions, tensors

__all__ = ["arithmetic", "clocked", "complexes", "grids", "reductions", "tensors"]
