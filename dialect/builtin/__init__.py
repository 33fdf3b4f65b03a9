"""Operators of no dialect: constants and calls, which have a syntax of their own, and operators
that passes make.

Operators of data movement are loaded on first use, since most programs have none.
"""

from .call import Call, Calling
from .const import Const, Data, Elements, owned
from .view_bitcast import View

__all__ = ["Call", "Calling", "Const", "Data", "Elements", "View", "owned"]
