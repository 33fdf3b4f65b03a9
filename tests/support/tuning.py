"""Processors and tuning parameters of tests."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import fields, replace
from typing import Any

from cvm.jit.host_processor import host_processor
from cvm.lowering.processor import Processor, compiling_for, requested


def described(base: Processor, **settings: Any) -> Processor:
    """A processor with other values of its fields, and of those of its tuning."""
    own = {f.name for f in fields(Processor)}
    found = replace(base, **{name: value for name, value in settings.items() if name in own})
    tuned = {name: value for name, value in settings.items() if name not in own}
    return replace(found, tuning=replace(found.tuning, **tuned))


def tuned(**settings: Any) -> AbstractContextManager[None]:
    """Compile for the processor that is asked for, or for this machine's, with other settings."""
    base = requested() or replace(host_processor(), cpu="", features=())
    return compiling_for(described(base, **settings))
