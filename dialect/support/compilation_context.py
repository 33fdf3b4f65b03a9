"""The setting in which programs are read and compiled, on this thread and the threads it starts.

A program under construction has no garbage and no reference cycles; repeated searches for cycles
while it grows would nearly double the time, so Python's garbage collector pauses.
"""

import gc
import os
from collections.abc import Generator, Sequence
from contextlib import ContextDecorator, contextmanager
from time import monotonic
from types import TracebackType

from .diagnostics import Diagnostic, Error, TargetError
from .fp_environment import DefaultFpEnvironment
from .limits import DEADLINE, LIMITS, excess
from .process_setting import ScopedSetting

_PACKAGE = __name__.partition(".")[0]
gc_paused = ScopedSetting(
    gc.disable, lambda: gc.enable if gc.isenabled() else gc.disable
)  # of cyclic garbage


@contextmanager
def compiling() -> Generator[None]:
    """Pause garbage collection, fold constants in the default floating-point environment, and limit
    the time.
    """
    outer = DEADLINE.get()
    own = min(outer, monotonic() + LIMITS.get().compile_seconds)
    try:
        DEADLINE.set(own)
        with gc_paused(), DefaultFpEnvironment():
            yield
    finally:
        try:
            _end(own, outer)
        finally:  # again, as a signal handler that raises may have stopped the first time
            _end(own, outer)


def _end(own: float, outer: float) -> None:
    if (
        DEADLINE.get() == own
    ):  # a generator that an interrupt abandons is closed after those around it
        DEADLINE.set(outer)


def check_time() -> None:
    """Raise TargetError where a compilation has taken longer than it may."""
    if (late := monotonic() - DEADLINE.get()) > 0:
        message = excess("compile_seconds", LIMITS.get().compile_seconds + late)
        raise TargetError(Diagnostic(message, code="limit.compile_seconds"))


def too_many(diagnostics: Sequence[Diagnostic]) -> bool:
    """Test whether a text has more mistakes than are told; then the rest of it is not looked at."""
    return len(diagnostics) > LIMITS.get().diagnostics


def abridged(diagnostics: Sequence[Diagnostic]) -> list[Diagnostic]:
    """The first diagnostics of a text, and where there are more, that they are not told."""
    if not too_many(diagnostics):
        return [*diagnostics]
    kept = diagnostics[: LIMITS.get().diagnostics]
    message = f"the other mistakes are not told: {excess('diagnostics', len(diagnostics))}"
    return [*kept, Diagnostic(message, kept[-1].span, "limit.diagnostics")]


class UserTraceback(ContextDecorator):
    """Leaves frames of this package, and of NumPy, out of tracebacks of errors that leave it;
    CVM_TRACEBACK=1 keeps them.

    A context manager and a decorator. Python adds no frame for the function that has the `with`
    statement.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not isinstance(error, Error) or os.environ.get("CVM_TRACEBACK") == "1":
            return
        kept: list[TracebackType] = []
        while traceback is not None:
            module = traceback.tb_frame.f_globals.get("__name__", "")
            if module.partition(".")[0] not in (_PACKAGE, "numpy", "contextlib"):
                kept.append(traceback)
            traceback = traceback.tb_next
        for place in reversed(kept):
            traceback = TracebackType(traceback, place.tb_frame, place.tb_lasti, place.tb_lineno)
        error.__traceback__ = traceback


USER_TRACEBACK = UserTraceback()
