"""The operations that belong to no dialect: constants and calls, whose syntax is their own, and what passes make.

Those that move elements are loaded when one is asked for: most programs have none.
"""

from .call import Call, Calling
from .const import Const, Data, Elements
from .view import View

__all__ = ["Call", "Calling", "Const", "Data", "Elements", "View"]
