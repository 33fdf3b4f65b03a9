"""Compiled Python functions, and what is made of them: derivatives, stacks and loops."""

from . import linear_algebra  # noqa: F401  (it registers functions)
