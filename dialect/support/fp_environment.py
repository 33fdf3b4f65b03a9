"""The floating-point environment of compilation and evaluation, C's default: round to nearest,
subnormals, no traps.

The environment belongs to a thread, and other libraries change it: flush-to-zero modes are common,
and threads inherit them. Compiled code sets the control register itself
(`jit.runtime.fp_environment_ir`).
"""

import ctypes
import sys
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import lru_cache
from typing import Any

FEnv = ctypes.c_char * 256  # room for the fenv_t of any C library


@lru_cache(maxsize=1)
def _functions() -> tuple[Callable[[Any], None], Callable[[Any], None], Any]:
    """C's fegetenv, fesetenv and FE_DFL_ENV; functions that do nothing where there are none."""
    try:
        library = ctypes.PyDLL(None)  # the calls are too short to release the GIL
        functions = library.fegetenv, library.fesetenv
        default = (
            ctypes.addressof(FEnv.in_dll(library, "_FE_DFL_ENV"))
            if sys.platform == "darwin"
            else -1
        )
    except (AttributeError, TypeError, ValueError, OSError):
        return (lambda _: None), (lambda _: None), None
    for function in functions:
        function.argtypes = [ctypes.c_void_p]
        function.restype = None
    return *functions, default


class DefaultFpEnvironment(ContextDecorator):
    """The default environment for this thread; restores the caller's afterwards. A context manager
    and a decorator.
    """

    def _recreate_cm(self) -> "DefaultFpEnvironment":
        return DefaultFpEnvironment()

    def __enter__(self) -> None:
        read, self._write, default = _functions()
        self._caller = FEnv()
        read(self._caller)
        self._write(default)

    def __exit__(self, *_: object) -> None:
        self._write(self._caller)
