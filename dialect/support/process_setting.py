"""A process-wide setting, shared by threads: the first to enter sets it, the last to leave restores
it.

Signal handlers may raise, compile or fork at any call here: the lock is re-entrant, and leaving
twice is leaving once.
"""

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager


class ScopedSetting:
    """A process-wide setting; `change` sets it, and what `saved` returns restores it. Called, a
    context manager.
    """

    def __init__(self, change: Callable[[], None], saved: Callable[[], Callable[[], None]]) -> None:
        self._change, self._saved = change, saved
        self._lock = threading.RLock()
        self._inside: set[object] = set()  # entries by all threads
        self._back: Callable[[], None] | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    @contextmanager
    def __call__(self) -> Generator[None]:
        entry = object()
        try:
            with self._lock:
                self._inside.add(entry)
                if self._back is None:
                    self._back = self._saved()
                    self._change()
            yield
        finally:
            try:
                self._leave(entry)
            finally:  # again, as a signal handler that raises may have stopped the first time
                self._leave(entry)

    def _leave(self, entry: object) -> None:
        with self._lock:
            self._inside.discard(entry)
            if self._back is not None and not self._inside:
                self._back()
                self._back = None

    def _forked(self) -> None:
        """Restore the setting in a forked child process, where no thread is inside."""
        self._lock = threading.RLock()
        self._inside.clear()
        self._leave(None)
