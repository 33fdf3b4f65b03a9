"""Every dialect: once this has been imported, OPERATORS holds all operators."""

from . import builtin, cog, cvm, dali, theano

__all__ = ["builtin", "cog", "cvm", "dali", "theano"]
