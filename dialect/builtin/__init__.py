"""The operations that belong to no dialect: constants and calls, whose syntax is their own, and what passes make.

Those that move elements are loaded when one is asked for: most programs have none.
"""

from .calls import Call, Calling
from .constants import Const, Data, Elements
from .views import View

__all__ = ["Call", "Calling", "Const", "Data", "Elements", "View"]
