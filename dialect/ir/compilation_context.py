"""The setting in which programs are read and compiled, on this thread and the threads it starts.

A program under construction has no garbage and no reference cycles; repeated searches for cycles while it grows would
nearly double the time, so Python's garbage collector pauses.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .fp_environment import DefaultFpEnvironment
from .process_setting import ScopedSetting


def _disabled() -> Callable[[], None]:
    if not gc.isenabled():
        return lambda: None
    gc.disable()
    return gc.enable


gc_paused = ScopedSetting(_disabled)  # cyclic collection is off inside and restored afterwards


@contextmanager
def compiling() -> Iterator[None]:
    """Pause garbage collection, and fold constants in the default floating-point environment. A context manager and a
    decorator.
    """
    with gc_paused(), DefaultFpEnvironment():
        yield
