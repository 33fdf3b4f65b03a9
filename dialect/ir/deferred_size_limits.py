"""Checks deferred to call time, since sizes were unknown at compile time: usually only that no
array is too large.

A call then needs nothing else of the program: result types follow from sizes.
`find_deferred_checks` computes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..types.sizes import Dim
from ..types.tensor_types import Type, size_limit_error
from ..types.unify import bind, with_sizes


@dataclass(frozen=True)
class DeferredChecks:
    """The types of arguments and results, and every other type of the function with unknown sizes,
    once each.
    """

    arguments: tuple[Type, ...]
    results: tuple[Type, ...]
    others: tuple[Type, ...]

    def result_types(self, arguments: Sequence[Type]) -> list[Type] | None:
        """The result types of a call with arguments of these types; None if an array would be too
        large.
        """
        bound: dict[Any, Dim] = bind(self.arguments, arguments)
        results = [with_sizes(t, bound) for t in self.results]
        types = [*results, *(with_sizes(t, bound) for t in self.others)]
        return results if all(size_limit_error(t) is None for t in types) else None
