"""Find what other installed packages add: dialects, passes, targets and importers, by entry points.

An entry point's name is that of what it adds, its value a module, which declares it when it is
imported.
"""

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from .diagnostics import Error

PLACED: list[
    str
] = []  # passes of other packages in every compilation, whose code is not kept on disk

SOURCES: dict[
    str, str | None
] = {}  # the digest of the source of each pattern, None where it is not known


def patterns_key() -> str | None:
    """The part of a cache key for the patterns declared so far; None where code is not kept."""
    return None if None in SOURCES.values() else repr(sorted(SOURCES.items()))


@cache
def offered(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group, such as `cvm.dialects`, by name."""
    return {e.name: e for e in entry_points(group=group)}


def load_offered(group: str, name: str | None = None) -> bool:
    """Import what declares this name, or all of a group; False where no package offers it."""
    entry_points = [e for n, e in offered(group).items() if name is None or n == name]
    for entry in entry_points:
        load_module(entry.module, f"{group} {entry.name}")
    return bool(entry_points)


def load_module(module: str, what: str = "--load") -> None:
    """Import a module of another package; Error where that fails."""
    try:
        import_module(module)
    except Error:
        raise
    except Exception as e:
        raise Error(f"{what}: {module} cannot be imported: {type(e).__name__}: {e}") from e
