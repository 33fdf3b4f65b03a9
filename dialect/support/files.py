"""Files as a whole: read within a limit, and written so that a failure leaves the old content."""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import BinaryIO

PIECE = 1 << 20  # bytes read at once: a read of the limit's size would map that much memory
DEVICES = ("/dev/", "/proc/")  # paths that stand for something open, such as /dev/stdout
UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)  # a file system reserves no room

Path = str | os.PathLike[str]


def read_pieces(file: BinaryIO, limit: int) -> bytes:
    """The content of a file; more than `limit` bytes of it are not read, since /dev/zero has no
    end.
    """
    pieces: list[bytes] = []
    while limit > 0 and (piece := file.read(min(limit, PIECE))):
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)


def write_file(path: Path, *data: bytes | memoryview) -> None:
    """Replace the content of a file, or leave it as it was and raise OSError.

    The content goes to a file beside it, which is renamed. A link stays, and its target is
    replaced. Mode, owner and extended attributes stay. A file that cannot be replaced so is written
    in place, once the disk has room for all of it: one with several names, of another owner, or in
    a folder that is read-only. Devices and pipes are written to.
    """
    path = _target(os.fspath(path))
    pieces = [memoryview(d).cast("B") for d in data]
    try:
        status = os.stat(path)
    except FileNotFoundError:
        status = None
    if path.startswith(DEVICES) or (status is not None and not stat.S_ISREG(status.st_mode)):
        with open(path, "ab") as file:  # behind what was printed to /dev/stdout before
            file.writelines(pieces)
    elif status is None:
        with _replacing(path) as file:
            file.writelines(pieces)
    else:
        with open(path, "r+b") as old:  # a file that may not be written is not replaced, either
            if status.st_nlink > 1 or not _replaced(path, status, pieces):
                _overwrite(old, pieces)


def write_private(path: Path, *data: bytes | memoryview) -> None:
    """Write a new file that only its user can read and write, whole or not at all; it takes the
    place of an old one.
    """
    with _replacing(os.fspath(path), mode=0o600) as file:
        file.writelines(data)


def _target(path: str) -> str:
    """The file that a path names by way of links; a loop of links is left for the system to
    refuse.
    """
    for _ in range(40):
        if path.startswith(DEVICES) or not os.path.islink(path):
            break
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return path


def _replaced(path: str, status: os.stat_result, pieces: list[memoryview]) -> bool:
    """Put a file with these bytes in the place of another; False where the folder or the owner
    forbids it.
    """
    import shutil  # takes a while to import

    written = False
    try:
        with _replacing(path) as file:
            made = os.fstat(file.fileno())
            if (made.st_uid, made.st_gid) != (status.st_uid, status.st_gid):
                os.fchown(file.fileno(), status.st_uid, status.st_gid)
            shutil.copystat(path, file.name)
            written = True
            file.writelines(pieces)
            file.flush()
            os.fsync(
                file.fileno()
            )  # before the rename: some systems tell only now that a disk is full
    except OSError:
        if written:
            raise
        return False
    return True


@contextmanager
def _replacing(path: str, mode: int = 0o666) -> Generator[BinaryIO]:
    """A new file beside a path, which takes its place at the end; nothing is left of it where the
    body fails.
    """
    beside = os.path.join(os.path.dirname(path), f".new-{os.urandom(8).hex()}")
    try:
        with open(beside, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
        os.replace(beside, path)
    except BaseException:  # an interrupt leaves no file, either
        with suppress(OSError):
            os.unlink(beside)
        raise


def _overwrite(file: BinaryIO, pieces: list[memoryview]) -> None:
    """Write over an open file, for whose longer content the disk has room."""
    before = os.fstat(file.fileno()).st_size
    after = sum(map(len, pieces))
    if after > before and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, after)
        except OSError as e:
            if e.errno not in UNSUPPORTED:
                file.truncate(before)
                raise
    file.writelines(pieces)
    file.flush()
    file.truncate(after)
