"""Shorten the GIL's switch interval while two threads compile a program.

A thread that returns from a library waits for the running thread's interval to end: 5 ms by default, longer than most
calls of LLVM take.
"""

import sys
from collections.abc import Callable
from functools import partial

from ...dialect.ir.process_setting import ScopedSetting

SHORT = 1e-4  # seconds


def _short() -> Callable[[], None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(SHORT, before))
    return partial(sys.setswitchinterval, before)


short_turns = ScopedSetting(_short)
