"""Tables that the direct entry point reads: for a program, its types and the entries of known
sizes; for a called object, its dispatch entries.
"""

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...dialect.support.fork_safety import held_at_fork
from ...dialect.types.sizes import Size
from ...dialect.types.tensor_types import Type
from .fastcall import take
from .pytree_form import form_words
from .vectorcall_ir import BUSY, ELEMENT, SHAPED, TABLE, WAY, slot

Atom = tuple[Any, ...]
FEWEST, MOST = 64, 1 << 12  # slots that there are at first, entries that there are at most


_growing = held_at_fork(threading.RLock())  # of all tables: signal handlers and finalizers may call


def atoms_of(arguments: Sequence[Type], first: Sequence[Atom] = ()) -> list[Atom]:
    """The unknown sizes of the arguments, beginning with those that the program wants to know."""
    more = [d.terms[0][0] for t in arguments for d in t.array_shape if isinstance(d, Size)]
    return list(dict.fromkeys([*first, *more]))


class CallTable:
    """The table of one program. `atoms` are its unknown sizes in their order."""

    def __init__(
        self,
        entry: int,
        arguments: Sequence[Type],
        results: Sequence[Type],
        constants: Sequence[np.ndarray],
        atoms: Sequence[Atom],
    ) -> None:
        self.types = [*arguments, *results]
        self.arguments = len(arguments)
        self.kept: list[Any] = [*constants]
        self.entries: dict[tuple[int, ...], tuple[Any, list[Any]]] = {}
        self.room = 0  # bytes of workspace
        known = {
            **dict.fromkeys(TABLE, 0),
            "arguments": len(arguments),
            "results": len(results),
            "constants": len(constants),
            "sizes": len(atoms),
            "room": len(self.types) + len(constants) + len(atoms),
            "program": entry,
        }
        words = [known[name] for name in TABLE]
        for n, t in enumerate(self.types):
            asked = (
                t.array_shape if n < len(arguments) else ()
            )  # the results' sizes follow from the arguments'
            written = [-1 - atoms.index(d.terms[0][0]) if isinstance(d, Size) else d for d in asked]
            sizes = (ctypes.c_int64 * len(written))(*written)
            descriptor = t.element.dtype
            element = ctypes.c_int64.from_address(id(descriptor) + ELEMENT).value
            self.kept += [sizes, descriptor]
            words += [id(descriptor), len(t.array_shape), ctypes.addressof(sizes), element]
        self.words = (ctypes.c_int64 * (len(words) + len(constants)))(
            *words, *(c.ctypes.data for c in constants)
        )
        self.slots = _slots(FEWEST, {})
        self.set("slots", ctypes.addressof(self.slots))

    def know(
        self, sizes: tuple[int, ...], shapes: Sequence[Sequence[int]], workspace: int, release: bool
    ) -> None:
        """Calls with these sizes need not pass through Python; the arrays then have these shapes.
        `release` frees the GIL.
        """
        with _growing:
            if sizes in self.entries:
                return
            if workspace > self.room:
                self.make_room(max(workspace, 2 * self.room if self.room else 0))
            words: list[int] = [*sizes, release]
            held = []
            for t, shape in zip(self.types, shapes, strict=True):
                held.append((ctypes.c_int64 * len(shape))(*shape))
                words += [
                    ctypes.addressof(held[-1]),
                    int(np.prod(shape, dtype=np.int64)) * t.element.bytes,
                ]
            assert len(words) == len(sizes) + 1 + len(SHAPED) * len(self.types)
            entry = (ctypes.c_int64 * len(words))(*words)
            if len(self.entries) >= MOST:
                self.dropped = (
                    self.entries,
                    self.slots,
                )  # kept a while: finalizers may run in the middle of a call
                self.entries, self.slots = {}, _slots(FEWEST, {})
            self.entries[sizes] = entry, held
            if 2 * len(self.entries) >= len(self.slots):
                self.before, self.slots = (
                    self.slots,
                    _slots(4 * (len(self.slots) - 1), self.entries),
                )
            else:
                _put(self.slots, sizes, entry)
            self.set("slots", ctypes.addressof(self.slots))
            if not sizes:
                self.set("only", ctypes.addressof(entry))

    def make_room(self, workspace: int) -> None:
        """Memory for intermediate arrays; a word before it tells whether it is in use."""
        memory = np.zeros(workspace + 2 * BUSY, np.uint8)
        self.kept.append(memory)  # as those before: a call may be using it
        self.room = workspace
        self.set("workspace", (memory.ctypes.data + 2 * BUSY - 1) // BUSY * BUSY)

    def set(self, word: str, value: int) -> None:
        self.words[TABLE.index(word)] = value


def _slots(count: int, entries: Mapping[tuple[int, ...], tuple[Any, list[Any]]]) -> Any:
    """Places for entries, a power of two of them, after the number of bits by which what tells the
    place is shifted.
    """
    slots = (ctypes.c_int64 * (count + 1))(64 - count.bit_length() + 1)
    for sizes, (entry, _) in list(entries.items()):
        _put(slots, sizes, entry)
    return slots


def _put(slots: Any, sizes: tuple[int, ...], entry: Any) -> None:
    """Into the first slot that is empty."""
    n = slot(sizes, slots[0])
    while slots[1 + n]:
        n = (n + 1) % (len(slots) - 1)
    slots[1 + n] = ctypes.addressof(entry)


class DispatchEntry:
    """A program and the structure of its arguments, in an object's dispatch chain, which ends with
    `slow`.
    """

    def __init__(
        self, slow: Callable[..., Any], table: CallTable | None = None, structure: Any = None
    ) -> None:
        """`structure` has a part for each argument that is given."""
        self.slow, self.table, self.structure = slow, table, structure
        positional = -1 if table is None else table.arguments
        form = 0
        if structure is not None and any(part != ("array",) for part in structure):
            words = [w for part in structure for w in form_words(part)]
            self.form = (ctypes.c_int64 * (len(words) + 1))(
                *words
            )  # a word is read behind the last
            positional, form = len(structure), ctypes.addressof(self.form)
        known = {
            "table": ctypes.addressof(table.words) if table is not None else 0,
            "positional": positional,
            "form": form,
            "slow": id(slow),
            "next": 0,
        }
        self.words = (ctypes.c_int64 * len(WAY))(*(known[name] for name in WAY))

    def follow(self, following: "DispatchEntry") -> None:
        """Append a dispatch chain, which must not contain this entry."""
        self.following = following
        self.words[WAY.index("next")] = ctypes.addressof(following.words)

    def serve(self, called: object) -> None:
        """Serve calls of an object by this entry."""
        self.code = take(called, ctypes.addressof(self.words))
