"""Threads that take short turns with Python's lock while a program is compiled by two of them.

A thread that comes back from a library waits until the one that runs Python has had its turn: of 5 ms, which is longer than most
of what LLVM is asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from ...dialect.ir.scoped_setting import ScopedSetting

SHORT = 1e-4  # seconds


def _short() -> Callable[[], None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(SHORT, before))
    return partial(sys.setswitchinterval, before)


short_turns = ScopedSetting(_short)
