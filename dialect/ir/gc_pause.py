"""Programs are made without pauses for Python's garbage collector.

Nothing of a program that is read or compiled is garbage before it is done, and nothing of it refers back to what refers to
it: looking for cycles again and again while it grows would near double the time.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

from .scoped_setting import ScopedSetting


def _disabled() -> Callable[[], None]:
    if not gc.isenabled():
        return lambda: None
    gc.disable()
    return gc.enable


gc_paused = ScopedSetting(_disabled)  # cycles are not collected; afterwards they are, if they were
