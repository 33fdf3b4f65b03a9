"""A process-wide setting, reference-counted across threads: the first to enter sets it, the last to leave restores it."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ScopedSetting:
    """A process-wide setting; `change` sets it and returns a function that restores it. Called, a context manager."""

    def __init__(self, change: Callable[[], Callable[[], None]]) -> None:
        self._change = change
        self._lock = threading.Lock()
        self._inside = 0  # entries by all threads
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
                self._inside = max(0, self._inside - 1)  # 0 in a child process forked inside
                if not self._inside:
                    self._leave()

    def _leave(self) -> None:
        if self._back is not None:
            self._back()
            self._back = None

    def _forked(self) -> None:
        """Reset the count in a forked child process, where no thread is inside."""
        self._lock = threading.Lock()
        self._inside = 0
        self._leave()
