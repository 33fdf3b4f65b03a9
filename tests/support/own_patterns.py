"""Patterns, lowerings and operators that are declared for one test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cvm.dialect.spec.declared_types import TYPES
from cvm.dialect.spec.operator import OPERATORS, OURS
from cvm.dialect.support.entry_points import SOURCES
from cvm.lowering.graph.patterns import LOWERINGS, PATTERNS


@contextmanager
def own_patterns() -> Iterator[None]:
    """A block in which there are no patterns and lowerings but those that it declares; operators
    that it declares are gone after it.
    """
    names, dialects = {*OPERATORS._known}, {*OPERATORS.modules}
    kept = [(registry, dict(registry)) for registry in (PATTERNS, LOWERINGS, SOURCES, TYPES)]
    for registry, _ in kept:
        registry.clear()
    try:
        yield
    finally:
        for registry, items in kept:
            registry.clear()
            registry.update(items)
        for name in {*OPERATORS._known} - names:
            if not OPERATORS._known[name].__module__.startswith(OURS):
                del OPERATORS._known[name]
        for dialect in {*OPERATORS.modules} - dialects:
            del OPERATORS.modules[dialect]
