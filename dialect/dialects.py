"""Every dialect: once this has been imported, OPERATORS holds all operators."""

from . import builtin, cvm, dali

__all__ = ["builtin", "cvm", "dali"]
