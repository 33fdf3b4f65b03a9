"""Two tiers of the tests: a quick one, and with `--all` everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")
everything = False  # set before the tests are collected


def some(items: Sequence[T], quick: int) -> Sequence[T]:
    """All items with `--all`; in the quick tier so many of them, evenly spread, the first and last
    among them.
    """
    return items if everything else spread(items, quick)


def spread(items: Sequence[T], count: int) -> Sequence[T]:
    """Choose a number of items, evenly spread, the first and last among them."""
    if len(items) <= count:
        return items
    return [items[k * (len(items) - 1) // (count - 1)] for k in range(count)]


def examples(count: int, quick: int = 10) -> settings:
    """Settings of a property test: so many examples with `--all`."""
    return settings(max_examples=count if everything else min(count, quick), deadline=None)
