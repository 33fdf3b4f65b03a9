"""Patterns that are declared for one test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cvm.dialect.support.entry_points import SOURCES
from cvm.lowering.graph.patterns import PATTERNS


@contextmanager
def own_patterns() -> Iterator[None]:
    """A block in which there are no patterns but those that it declares."""
    kept = [(registry, dict(registry)) for registry in (PATTERNS, SOURCES)]
    for registry, _ in kept:
        registry.clear()
    try:
        yield
    finally:
        for registry, items in kept:
            registry.clear()
            registry.update(items)
