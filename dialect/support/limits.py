"""Limits on what a program may take, on by default at generous values: one table, and the messages
that name a limit.
"""

import os
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Any


def _physical_memory() -> int:
    """The bytes of this machine's memory, or an estimate."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 36


def _limit(default: object, measured: str) -> Any:
    return field(default=default, metadata={"measured": measured})


@dataclass(frozen=True)
class Limits:
    """The limits in force: a default for each, and the text for a program that exceeds it."""

    compile_seconds: float = _limit(3600.0, "compiling has taken {:.3g} seconds")
    memory: int = _limit(
        _physical_memory(), "{} bytes are needed for results and workspace, or state"
    )
    operations: int = _limit(100_000, "with those of its calls, a function has {} operations")
    constant_bytes: int = _limit(_physical_memory(), "the constants of a function have {} bytes")
    diagnostics: int = _limit(500, "a text has {} mistakes or more")
    text_bytes: int = _limit(1 << 30, "a text has {} bytes or more")


NAMES = tuple(f.name for f in fields(Limits))
LIMITS = ContextVar("limits", default=Limits())  # noqa: B039 (they are frozen)
DEADLINE = ContextVar(
    "deadline", default=inf
)  # of the compilation under way, on time.monotonic's clock


def excess(name: str, found: float, limits: Limits | None = None) -> str:
    """Format the message of an exceeded limit: the count, the limit, and how to raise it."""
    measured = Limits.__dataclass_fields__[name].metadata["measured"].format(found)
    raised = f"cvm.limits({name}=...) or --limits {name}=... raises it"
    if name == "operations":
        raised += ", and loops (cvm.fori_loop, @cvm.kernel) need fewer"
    return f"{measured}, but the limit {name} is {getattr(limits or LIMITS.get(), name)}; {raised}"


def limits_of(text: str) -> dict[str, float]:
    """The limits that `NAME=VALUE,...` states; raises ValueError."""
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name not in NAMES:
            raise ValueError(f"the limits are {', '.join(NAMES)}, got {part!r}")
        try:
            limits[name] = float(value)
        except ValueError:
            raise ValueError("a limit is a number") from None
    return limits


def _checked(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"the limit {name} is a positive number, got {value!r}")
    return value if name == "compile_seconds" or value == inf else int(value)


def limited(**changes: float | None) -> AbstractContextManager[Limits]:
    """Other limits meanwhile, on this thread, of those that are not None."""
    return _limited({n: _checked(n, v) for n, v in changes.items() if v is not None})


@contextmanager
def _limited(changes: dict[str, object]) -> Generator[Limits]:
    outer = LIMITS.get()
    limits = replace(outer, **changes)
    try:
        LIMITS.set(limits)
        yield limits
    finally:
        LIMITS.set(outer)
