"""What the code that Python calls has to know of a program: a table of numbers and addresses in memory.

Of sizes that are unknown while compiling it knows those that came in calls before, with the shapes and the workspace that
follow from them: the slow entry tells them once it has checked such a call.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dialect.sizes import Size
from ..dialect.types import Type
from .fastcall import addresses, take
from .fastcall_text import BUSY, SHAPED, SLOTS, WORDS, slot

Atom = tuple[Any, ...]
REMEMBERED = 1000  # entries that are kept though others took their slots: the code may still be reading them


def can_serve(arguments: Sequence[Type]) -> bool:
    """Whether each unknown size of the arguments is one by itself."""
    return all(not isinstance(d, Size) or d.is_atom for t in arguments for d in t.array_shape)


def atoms_of(arguments: Sequence[Type], first: Sequence[Atom] = ()) -> list[Atom]:
    """The unknown sizes of the arguments, beginning with those that the program wants to know."""
    more = [d.terms[0][0] for t in arguments for d in t.array_shape if isinstance(d, Size)]
    return list(dict.fromkeys([*first, *more]))


class CallTable:
    """The table of one program, for objects that are called. `atoms` are its unknown sizes in their order."""

    def __init__(
        self,
        slow: Callable[..., Any],
        entry: int,
        within: int,
        arguments: Sequence[Type],
        results: Sequence[Type],
        constants: Sequence[np.ndarray],
        atoms: Sequence[Atom],
    ) -> None:
        """`within` is where the function is that says whether arguments lie in their ranges, if any."""
        self.types = [*arguments, *results]
        self.kept: list[Any] = [slow, *constants]
        self.entries: deque[Any] = deque(maxlen=REMEMBERED + SLOTS)
        self.slots = (ctypes.c_void_p * SLOTS)()
        self.room = 0  # bytes of workspace
        known = {
            **dict.fromkeys(WORDS, 0),
            **addresses(),
            "arguments": len(arguments),
            "results": len(results),
            "constants": len(constants),
            "sizes": len(atoms),
            "program": entry,
            "within": within,
            "slots": ctypes.addressof(self.slots),
            "slow": id(slow),
        }
        words = [known[name] for name in WORDS]
        for n, t in enumerate(self.types):
            asked = t.array_shape if n < len(arguments) else ()  # the results' sizes follow from the arguments'
            written = [-1 - atoms.index(d.terms[0][0]) if isinstance(d, Size) else d for d in asked]
            sizes = (ctypes.c_int64 * len(written))(*written)
            self.kept += [sizes, t.element.dtype]
            words += [id(t.element.dtype), len(t.array_shape), ctypes.addressof(sizes), 0]
        self.words = (ctypes.c_int64 * (len(words) + len(constants)))(*words, *(c.ctypes.data for c in constants))

    def know(self, sizes: Sequence[int], shapes: Sequence[Sequence[int]], workspace: int, release: bool) -> None:
        """Calls with these sizes need not pass through Python; the arrays then have these shapes. `release` lets other threads
        run meanwhile."""
        if workspace > self.room:
            self.make_room(max(workspace, 2 * self.room if self.room else 0))
        words: list[int] = [*sizes, release]
        held = []
        for t, shape in zip(self.types, shapes, strict=True):
            held.append((ctypes.c_int64 * len(shape))(*shape))
            words += [ctypes.addressof(held[-1]), int(np.prod(shape, dtype=np.int64)) * t.element.bytes]
        assert len(words) == len(sizes) + 1 + SHAPED // 8 * len(self.types)
        entry = (ctypes.c_int64 * len(words))(*words)
        self.entries.append((entry, held))
        if sizes:
            self.slots[slot(sizes)] = ctypes.addressof(entry)
        else:
            self.set("only", ctypes.addressof(entry))

    def make_room(self, workspace: int) -> None:
        """Memory for intermediate arrays; a word before it tells whether it is in use."""
        memory = np.zeros(workspace + 2 * BUSY, np.uint8)
        self.kept.append(memory)  # as those before: a call may be using it
        self.room = workspace
        self.set("workspace", (memory.ctypes.data + 2 * BUSY - 1) // BUSY * BUSY)

    def set(self, word: str, value: int) -> None:
        self.words[WORDS.index(word)] = value

    def serve(self, called: object) -> None:
        """Lets calls of an object go by this table."""
        self.code = take(called, ctypes.addressof(self.words))


def leave(called: object, slow: Callable[..., Any]) -> CallTable:
    """Leaves all calls of an object to the slow entry."""
    table = CallTable(slow, 0, 0, (), (), (), ())
    table.set("arguments", -1)
    table.serve(called)
    return table
