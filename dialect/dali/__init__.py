"""NVIDIA DALI's expressions: element by element, with its type promotion and broadcasting."""

from . import arithmetic, bitwise, compare, functions, select

__all__ = ["arithmetic", "bitwise", "compare", "functions", "select"]
