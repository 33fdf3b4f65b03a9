"""Forks wait until no thread holds a lock, or is inside LLVM, that a child process would wait for
in vain.

A child process has but the thread that forked, with all locks as they were. So a fork takes the
locks in their order, and all threads that compile are let out of LLVM first, which takes as long as
the modules they are at.
"""

import gc
import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

_outer: list[Any] = []  # locks under which a thread may compile
_inner: list[Any] = []  # locks that are taken inside LLVM
_lock = threading.RLock()
_changed = threading.Condition(_lock)
_inside: dict[object, int] = {}  # the threads of all entries


def held_at_fork(lock: Any, inner: bool = False) -> Any:
    """The lock, which a fork takes; `inner` ones are taken by threads inside `no_fork`."""
    (_inner if inner else _outer).append(lock)
    return lock


@contextmanager
def no_fork() -> Generator[None]:
    """Other threads wait with a fork until this one has left."""
    entry = object()
    try:
        with _lock:
            _inside[entry] = threading.get_ident()
        yield
    finally:
        try:
            _leave(entry)
        finally:  # again, as a signal handler that raises may have stopped the first time
            _leave(entry)


def _leave(entry: object) -> None:
    # not the condition, whose own `__enter__` a signal handler may stop between the lock and its
    # return
    with _lock:
        _inside.pop(entry, None)
        _changed.notify_all()


def _before() -> None:
    for lock in _outer:
        lock.acquire()
    _changed.acquire()
    while {*_inside.values()} - {
        threading.get_ident()
    }:  # a signal handler forks inside its own thread's
        _changed.wait()
    for lock in _inner:
        lock.acquire()


def _after() -> None:
    for lock in _inner:
        lock.release()
    _changed.release()
    for lock in _outer:
        lock.release()


def _after_in_child() -> None:
    """Before Python 3.12 a `cached_property` has a lock, which threads of the parent may hold."""
    if sys.version_info < (3, 12):
        for found in gc.get_objects():
            if type(found) is cached_property:
                vars(found)["lock"] = threading.RLock()
    _after()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
