"""Tables that the direct entry point reads: for a program, its types and how the sizes of its
arrays follow from those of its arguments; for a called object, its dispatch entries.
"""

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...dialect.ir.deferred_size_limits import LARGEST, SizeSteps
from ...dialect.support.fork_safety import held_at_fork
from ...dialect.types.sizes import Size
from ...dialect.types.tensor_types import Type
from .fastcall import take
from .pytree_form import form_words
from .vectorcall_ir import BUSY, ELEMENT, STEPS, TABLE, WAY

Atom = tuple[object, ...]


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
        places: Mapping[int, int],
        report: Callable[[int], Any],
    ) -> None:
        """`places` maps a result that overwrites an argument to that; `report` then raises the
        error of a status.
        """
        self.types = [*arguments, *results]
        self.arguments = len(arguments)
        self.kept: list[Any] = [*constants, report]
        self.planned = 0  # how many computations were given to `plan`
        self.values = 0  # of the longest plan that there was
        known = {
            **dict.fromkeys(TABLE, 0),
            "arguments": len(arguments),
            "results": len(results),
            "constants": len(constants),
            "sizes": len(atoms),
            "room": len(self.types) + len(constants) + len(atoms),
            "program": entry,
            "report": id(report) if places else 0,
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
            words.append(1 + places.get(n - len(arguments), -1))
        self.words = (ctypes.c_int64 * (len(words) + len(constants)))(
            *words, *(c.ctypes.data for c in constants)
        )

    def know(self, shapes: Sequence[Sequence[int]], workspace: int, release: bool) -> None:
        """Calls need not pass through Python: all arrays have these shapes. `release` frees the
        GIL.
        """
        self.make_room(workspace)
        words: list[int] = [release]
        for t, shape in zip(self.types, shapes, strict=True):
            sizes = (ctypes.c_int64 * len(shape))(*shape)
            self.kept.append(sizes)
            count = int(np.prod(shape, dtype=np.int64))
            words += [ctypes.addressof(sizes), count * t.element.bytes]
        entry = (ctypes.c_int64 * len(words))(*words)
        self.kept.append(entry)
        self.set("only", ctypes.addressof(entry))

    def plan(self, computed: Sequence[tuple[SizeSteps, int, Sequence[Sequence[int]]]]) -> None:
        """Calls whose sizes pass the checks of steps need not pass through Python; with the steps
        of `release`, and those of the sizes and bytes of each array.
        """
        with _growing:
            self.planned = len(computed)
            following = 0
            for steps, release, arrays in reversed(computed):
                if any(abs(n) > LARGEST for name, n, _ in steps.places if name == "number"):
                    continue
                listed = [(STEPS.index(name), a, b) for name, a, b in steps.places]
                copy = STEPS.index("max")
                shaped = []
                for *sizes, count in arrays:
                    shaped += [(STEPS.index("address"), len(listed), 0), (copy, count, count)]
                    listed += [(copy, n, n) for n in sizes]
                entry = len(listed)
                listed += [(copy, release, release), *shaped]
                words = (ctypes.c_int64 * (3 * len(listed)))(*(n for step in listed for n in step))
                known = following, len(listed), ctypes.addressof(words), entry
                made = (ctypes.c_int64 * len(known))(*known)
                following = ctypes.addressof(made)
                self.kept += [words, made]  # as memory: a call may be using those before
                self.values = max(self.values, len(listed))
            self.set("values", self.values)
            self.set("plans", following)

    def make_room(self, workspace: int) -> None:
        """Memory for intermediate arrays; a word before it tells whether it is in use."""
        if not workspace:
            return
        memory = np.zeros(workspace + 2 * BUSY, np.uint8)
        self.kept.append(memory)
        self.set("workspace", (memory.ctypes.data + 2 * BUSY - 1) // BUSY * BUSY)

    def set(self, word: str, value: int) -> None:
        self.words[TABLE.index(word)] = value


class DispatchEntry:
    """A program and the structure of its arguments, in an object's dispatch chain, which ends with
    `slow`.
    """

    def __init__(
        self,
        slow: Callable[..., Any],
        table: CallTable | None = None,
        structure: Any = None,
        build: Callable[[Any], Any] | None = None,
    ) -> None:
        """`structure` has a part for each argument that is given; `build` makes the structure of
        the results from one or a tuple.
        """
        self.slow, self.table, self.structure, self.build = slow, table, structure, build
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
            "build": 0 if build is None else id(build),
        }
        self.words = (ctypes.c_int64 * len(WAY))(*(known[name] for name in WAY))

    def follow(self, following: "DispatchEntry") -> None:
        """Append a dispatch chain, which must not contain this entry."""
        self.following = following
        self.words[WAY.index("next")] = ctypes.addressof(following.words)

    def serve(self, called: object) -> None:
        """Serve calls of an object by this entry."""
        self.code = take(called, ctypes.addressof(self.words))
