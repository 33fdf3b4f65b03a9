"""Programs are made without pauses for Python's garbage collector.

Nothing of a program that is read or compiled is garbage before it is done, and nothing of it refers back to what refers to
it: looking for cycles again and again while it grows would near double the time.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_inside = 0  # how many, of all threads
_enabled = False


@contextmanager
def uncollected() -> Iterator[None]:
    """Meanwhile cycles are not collected; afterwards they are, if they were."""
    global _inside, _enabled
    with _lock:
        if not _inside:
            _enabled = gc.isenabled()
            gc.disable()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and _enabled:
                gc.enable()
