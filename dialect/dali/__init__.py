"""NVIDIA DALI's expressions: element by element, with its type promotion and broadcasting."""

from . import arithmetic, compare_where, functions  # noqa: F401
