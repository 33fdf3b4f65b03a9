"""Shared memory, and copies to it that are under way.

Every access to a byte that a `cp.async` writes is an error until its thread has waited for the
copy; from then on the byte counts as written by that thread, so that the others need a barrier
too.
"""

from collections.abc import Sequence

import numpy as np

from .memory import Inner
from .ptx_types import Array
from .races import History, Order


class Shared(Inner):
    """The shared memory of the blocks that run together."""

    what = "shared"

    def __init__(self, blocks: int, size: int, threads: int, order: Order) -> None:
        super().__init__(blocks, size, threads)
        self.history = History("shared", len(self.bytes), order)
        self.groups = np.ones(blocks * threads, np.int64)  # of copies, that each thread has begun
        self.copies: list[tuple[Array, Array, Array]] = []  # their groups, threads and bytes

    def load(
        self, addresses: Array, lanes: Array, dtype: np.dtype, how: Sequence[str] = ()
    ) -> Array:
        rows = self.places(addresses, lanes, dtype) // dtype.itemsize
        self.history.access("ld", rows, dtype.itemsize, lanes, how)
        return self.bytes.view(dtype)[rows]

    def store(self, addresses: Array, lanes: Array, values: Array, how: Sequence[str] = ()) -> None:
        rows = self.places(addresses, lanes, values.dtype) // values.dtype.itemsize
        self.history.access("st", rows, values.dtype.itemsize, lanes, how)
        self.bytes.view(values.dtype)[rows] = values

    # asynchronous copies

    def copy(self, addresses: Array, lanes: Array, values: Array) -> None:
        """Begins a copy of each thread's bytes; it belongs to the group that the thread commits
        next.
        """
        self.store(addresses, lanes, values, ("async",))
        bytes = self.places(addresses, lanes, values.dtype)[:, None] + np.arange(
            values.dtype.itemsize
        )
        self.copies.append((self.groups[lanes], lanes, bytes))

    def commit(self, lanes: Array) -> None:
        self.groups[lanes] += 1

    def wait(self, lanes: Array, pending: int) -> None:
        """Ends the threads' copies but those of the last groups that were committed; of -1, also
        those of none.
        """
        last = np.zeros(len(self.groups), np.int64)
        last[lanes] = self.groups[lanes] - 1 - pending
        copies = self.copies
        self.copies = []
        for groups, of, places in copies:
            done = groups <= last[of]
            self.history.arrive(places[done], of[done])
            if not done.all():
                self.copies.append((groups[~done], of[~done], places[~done]))
