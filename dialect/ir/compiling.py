"""The setting in which programs are read and compiled, of this thread and of those that it starts meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .fp_environment import DefaultFpEnvironment
from .gc_pause import gc_paused


@contextmanager
def compiling() -> Iterator[None]:
    """Garbage is not collected, and constants are folded in the default floating-point environment. A decorator, too."""
    with gc_paused(), DefaultFpEnvironment():
        yield
