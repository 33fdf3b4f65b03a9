"""NVIDIA DALI's expressions: element by element, with its type promotion and broadcasting."""

from . import arithmetic, bitwise, compare, functions, where  # noqa: F401
