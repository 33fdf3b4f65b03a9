"""Pause Python's garbage collector while programs are read and compiled.

A program under construction has no garbage and no reference cycles; repeated searches for cycles while it grows would
nearly double the time.
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


gc_paused = ScopedSetting(_disabled)  # cyclic collection is off inside and restored afterwards
