"""The disk cache of compiled code: entries named by a digest of all their inputs, loaded only if
intact and the user's own.

An entry is the SHA-256 of its name and payload, followed by the payload; nothing is unpickled. The
folder is `CVM_CACHE_DIR`, else `cvm` in the user's cache folder; an empty `CVM_CACHE_DIR` disables
the cache. Entries are written to a temporary file and renamed, so concurrent processes see whole
entries or none. An unusable cache is no error.
"""

import hashlib
import os
import re
import stat
import sys
from contextlib import suppress
from pathlib import Path

from ...dialect.support.files import write_private

LARGEST = 256 << 20  # bytes of the cache; the least recently used entries are evicted
_DIGEST = hashlib.sha256().digest_size
_ENTRY = re.compile(r"[0-9a-f]{64}|\.new-\w+")


def folder() -> Path | None:
    """The cache folder; None if the cache is off."""
    if (named := os.environ.get("CVM_CACHE_DIR")) is not None:
        return Path(named) if named else None
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "cvm" if base else None


def key(*parts: str) -> str:
    """The name of the entry that depends on these texts."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def load(name: str) -> bytes | None:
    """An entry's payload; None if there is no intact entry of this user."""
    if (where := folder()) is None or not _ours(where):
        return None
    path = where / name
    try:
        with open(path, "rb") as file:
            if not _private(os.fstat(file.fileno())):
                return None
            digest, payload = file.read(_DIGEST), file.read()
        os.utime(path)
    except OSError:
        return None
    return payload if payload and _digest(name, payload) == digest else None


def store(name: str, *payload: bytes | memoryview) -> None:
    """Store an entry of these parts, if the cache is usable."""
    if (where := folder()) is None:
        return
    with suppress(OSError):
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _ours(where):
            return
        write_private(where / name, _digest(name, *payload), *payload)
        _shrink(where)


def _digest(name: str, *payload: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(name.encode())
    for part in payload:  # a copy of them all together would take as long
        digest.update(part)
    return digest.digest()


def _ours(where: Path) -> bool:
    """Test whether the folder belongs to this user and no other user can write to it."""
    with suppress(OSError):
        return _private(where.stat())
    return False


def _private(status: os.stat_result) -> bool:
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def entries(where: Path) -> list[tuple[float, int, str]]:
    """The time of the last use, the bytes and the path of each entry of a folder."""
    files: list[tuple[float, int, str]] = []
    with suppress(OSError), os.scandir(where) as listed:
        for entry in listed:
            with suppress(OSError):
                information = entry.stat(follow_symlinks=False)
                files.append((information.st_mtime, information.st_size, entry.path))
    return files


def clear() -> int:
    """Remove all entries; how many there were. A folder that other users can write to is left
    alone.
    """
    where, removed = folder(), 0
    if where is not None and _ours(where):
        for _, _, path in entries(where):
            if _ENTRY.fullmatch(os.path.basename(path)):
                with suppress(OSError):
                    os.unlink(path)
                    removed += 1
    return removed


def _shrink(where: Path) -> None:
    """Evict least recently used entries until the cache is small enough; runs occasionally."""
    if os.urandom(1)[0]:  # one time in 256
        return
    files = entries(where)
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= LARGEST:
            return
        with suppress(OSError):
            os.unlink(path)
            total -= size
