"""Shorten the GIL's switch interval while two threads compile a program.

A thread that returns from a library waits for the running thread's interval to end: 5 ms by
default, longer than most calls of LLVM take.
"""

import sys
from functools import partial

from ...dialect.support.process_setting import ScopedSetting

SHORT = 1e-4  # seconds


short_turns = ScopedSetting(
    lambda: sys.setswitchinterval(min(SHORT, sys.getswitchinterval())),
    lambda: partial(sys.setswitchinterval, sys.getswitchinterval()),
)
