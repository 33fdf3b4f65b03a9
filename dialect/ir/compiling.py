"""The setting in which programs are read and compiled, on this thread and the threads it starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .fp_environment import DefaultFpEnvironment
from .gc_pause import gc_paused


@contextmanager
def compiling() -> Iterator[None]:
    """Pause garbage collection, and fold constants in the default floating-point environment. A context manager and a
    decorator.
    """
    with gc_paused(), DefaultFpEnvironment():
        yield
