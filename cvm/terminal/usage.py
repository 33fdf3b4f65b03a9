"""Wrong command lines, and the settings that options of every command make."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import cvm
from cvm.dialect.support import limits

if TYPE_CHECKING:
    from cvm.lowering.processor import Processor


class Usage(Exception):
    """A wrong command line."""


def for_cpu(name: str | None) -> AbstractContextManager[None]:
    """Compiles for the processor of this name meanwhile."""
    if name is None:
        return nullcontext()
    from cvm.lowering.processor import compiling_for

    return compiling_for(named_processor(name))


def named_processor(name: str, triple: str = "") -> Processor | None:
    """The processor of a name and a system; None where neither is given."""
    from cvm.jit.host_processor import resolve

    try:
        return resolve(name or None, triple)
    except cvm.TargetError as e:
        raise Usage(f"--{'cpu' if name else 'triple'}: {e.diagnostics[0].message}") from None


def load_modules(names: Sequence[str]) -> None:
    """Import the modules of `--load`: of other packages, or of the current folder."""
    if not names:
        return
    from cvm.dialect.support.entry_points import load_module

    sys.path.insert(0, os.getcwd())
    for name in names:
        load_module(name)


def within(text: str) -> AbstractContextManager[object]:
    """The limits that `--limits` states meanwhile."""
    try:
        return limits.limited(**limits.limits_of(text)) if text else nullcontext()
    except ValueError as e:
        raise Usage(f"--limits {text}: {e}") from None
