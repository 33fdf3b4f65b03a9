"""Find what other installed packages add: dialects, passes, targets and importers, by entry points.

An entry point's name is that of what it adds, its value a module, which declares it when it is
imported.
"""

import warnings
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


FAILED: dict[tuple[str, str], Error] = {}  # names that cannot be loaded, by group


@cache
def offered(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, such as `cvm.dialects`."""
    return tuple(entry_points(group=group))


def load_offered(group: str, name: str | None = None) -> bool:
    """Import the module that declares this name, or all of a group; False where no package offers
    it.

    Raises Error if the module of the name cannot be imported; of a group, that is a warning.
    """
    found = [e for e in offered(group) if name in (None, e.name)]
    for entry in found:
        key = group, entry.name
        if key not in FAILED:
            try:
                if rivals := [e for e in offered(group) if e.name == entry.name and e != entry]:
                    both = " and ".join(sorted(map(_package, (entry, *rivals))))
                    raise Error(f"{group} {entry.name}: it is offered by {both}; uninstall one")
                load_module(entry.module, f"{group} {entry.name}, of the package {_package(entry)}")
                continue
            except Error as e:
                FAILED[key] = e
            if name is None:
                said = str(FAILED[key]).removeprefix("error: ")
                warnings.warn_explicit(said, RuntimeWarning, "cvm", 1)
        if name is not None:
            raise FAILED[key]
    return bool(found)


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} ({entry.module})" if entry.dist is not None else entry.module


def load_module(module: str, what: str = "--load") -> None:
    """Import a module of another package; Error where that fails."""
    try:
        import_module(module)
    except Error:
        raise
    except Exception as e:
        raise Error(f"{what}: {module} cannot be imported: {type(e).__name__}: {e}") from e
