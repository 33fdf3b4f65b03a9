"""The graph passes in their order, by name; each takes a function without calls."""

from __future__ import annotations

from collections.abc import Callable

from ...dialect.program.module import Function
from .cse import cse
from .dce import dce
from .fold_constants import fold_constants
from .simplify import simplify

GRAPH_PASSES: dict[str, Callable[[Function], Function]] = {
    "simplify": simplify,
    "fold_constants": fold_constants,
    "cse": cse,
    "dce": dce,
}


ORDER = ("simplify", "fold_constants", "simplify", "cse", "dce")


def improve(function: Function) -> Function:
    """The function after the graph passes."""
    for name in ORDER:
        function = GRAPH_PASSES[name](function)
    return function
