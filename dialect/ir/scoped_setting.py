"""Settings of the whole process that hold while any thread is inside, and are as they were when the last one has left."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ScopedSetting:
    """Such a setting: `change` makes it, and gives what takes it back. A context manager, and a decorator, when called."""

    def __init__(self, change: Callable[[], Callable[[], None]]) -> None:
        self._change = change
        self._lock = threading.Lock()
        self._inside = 0  # how many, of all threads
        self._back: Callable[[], None] | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._inside:
                self._back = self._change()
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside = max(0, self._inside - 1)  # 0 in a child process that was made inside
                if not self._inside:
                    self._leave()

    def _leave(self) -> None:
        if self._back is not None:
            self._back()
            self._back = None

    def _forked(self) -> None:
        """In a child process, which those inside are not in."""
        self._lock = threading.Lock()
        self._inside = 0
        self._leave()
