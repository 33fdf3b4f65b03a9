"""Arrays that end, or begin, at a page that may not be touched: an access beyond them ends the
process.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from zlib import crc32

import numpy as np

# conformance cases have such arrays: inside of `beside`, or everywhere with --guard-pages
enabled = False
open_every = (
    0  # one of so many cases has its sizes left open, too, at the cost of three others; 0: none
)
PAGE = mmap.PAGESIZE
PROT_NONE = 0
_sides = count()


@contextmanager
def beside(wanted: bool) -> Iterator[None]:
    """Conformance cases are called with such arrays inside."""
    global enabled
    before, enabled = enabled, enabled or wanted
    try:
        yield
    finally:
        enabled = before


def sizes_are_left_open(case: str) -> bool:
    """Test whether a case is one of those whose sizes are left open."""
    return bool(open_every) and crc32(case.encode()) % open_every == 0


def guarded_empty(
    shape: tuple[int, ...], dtype: np.dtype, at_end: bool | None = None
) -> np.ndarray:
    """An array whose last element is followed by such a page, or whose first one follows it; by
    turns, if not said.
    """
    dtype = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    inner = -(-size // PAGE) * PAGE
    memory = mmap.mmap(-1, inner + 2 * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for page in (start, start + PAGE + inner):
        if protect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
    if at_end is None:
        at_end = next(_sides) % 2 == 0
    offset = PAGE + (inner - size if at_end else 0)
    return np.frombuffer(memory, np.uint8, size, offset).view(dtype).reshape(shape)


def guarded(array: np.ndarray, at_end: bool | None = None) -> np.ndarray:
    """A copy of an array, beside such a page."""
    made = guarded_empty(array.shape, array.dtype, at_end)
    made[...] = array
    return made
