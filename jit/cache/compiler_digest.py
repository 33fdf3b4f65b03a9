"""Digest the compiler's own files, so that cache entries of different versions have different
names.

It is stored when a wheel is built (`setup.py`); in a checkout it is computed once per process.
Sizes and times of files would not do: reproducible installations set all times alike.
"""

import hashlib
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

ROOMS = ("dialect", "grammar", "jit", "lowering", "parser")
SOURCES = (".py", ".lark", ".json", ".ll")
STORED = Path("jit/cache/compiler_digest.txt")


@lru_cache(maxsize=1)
def compiler_digest(house: Path = Path(__file__).parents[2]) -> str:
    """The digest of the rooms that lie in a folder, by default of those this module belongs to."""
    try:
        return (house / STORED).read_text()
    except FileNotFoundError:
        return digest_of_files(house)


def digest_of_files(house: Path) -> str:
    """The digest of the names and contents of all source files."""
    digest = hashlib.sha256()
    for name, path in sorted(
        entry for room in ROOMS for entry in _files(os.path.join(house, room), room)
    ):
        with open(path, "rb", buffering=0) as file:
            content = file.read()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _files(folder: str, name: str) -> Iterator[tuple[str, str]]:
    with os.scandir(folder) as found:
        for entry in found:
            if entry.is_dir():
                yield from _files(entry.path, f"{name}/{entry.name}")
            elif entry.name.endswith(SOURCES):
                yield f"{name}/{entry.name}", entry.path
