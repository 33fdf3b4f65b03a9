"""Shared memory with a record of each byte's last writer and readers, and of copies that are under way.

Two threads that touch a byte between the same two barriers, one of them writing, are an error: on a GPU they would race.
So is every access to a byte that a `cp.async` writes, until its thread has waited for the copy; from then on the byte
counts as written by that thread, so that the others need a barrier too."""

import numpy as np
from .memory import Fault, Inner
from .ptx_types import Array

EPOCH = 32  # bits of a lane in a mark, below the number of barriers before
SEVERAL = (1 << EPOCH) - 1  # lanes
UNDER_WAY = 1 << 62  # above every number of barriers


class Shared(Inner):
    """The shared memory of the blocks that run together."""

    what = "shared"

    def __init__(self, blocks: int, size: int, threads: int) -> None:
        super().__init__(blocks, size, threads)
        self.written, self.read = np.zeros_like(self.bytes, np.int64), np.zeros_like(self.bytes, np.int64)
        self.groups = np.ones(blocks * threads, np.int64)  # of copies, that each thread has begun
        self.copies: list[tuple[Array, Array, Array]] = []  # their groups, threads and bytes
        self.now = 1 << EPOCH

    def barrier(self) -> None:
        self.now += 1 << EPOCH

    def load(self, addresses: Array, lanes: Array, dtype: np.dtype) -> Array:
        rows = self.places(addresses, lanes, dtype) // dtype.itemsize
        written, read = (marks.reshape(-1, dtype.itemsize) for marks in (self.written, self.read))
        mine = (self.now | lanes)[:, None]
        self.check(written[rows], mine, "a thread reads shared memory that another wrote since the last barrier")
        before = read[rows]
        read[rows] = np.where((before >= self.now) & (before != mine), self.now | SEVERAL, mine)
        row, byte = np.nonzero(read[rows] != mine)  # of lanes that read it together
        read[rows[row], byte] = self.now | SEVERAL
        return self.bytes.view(dtype)[rows]

    def store(self, addresses: Array, lanes: Array, values: Array, state: int = 0) -> None:
        rows = self.places(addresses, lanes, values.dtype) // (width := values.dtype.itemsize)
        written, read, mine = self.written.reshape(-1, width), self.read.reshape(-1, width), (self.now | lanes)[:, None]
        twice = "two threads write one place of shared memory between two barriers"
        self.check(written[rows], mine, twice)
        self.check(read[rows], mine, "a thread writes shared memory that another read since the last barrier")
        written[rows] = mine | state
        if np.any(written[rows] != mine | state):
            raise Fault(twice)
        self.bytes.view(values.dtype)[rows] = values

    def check(self, marks: Array, mine: Array, fault: str) -> None:
        if np.any((marks >= self.now) & (marks != mine)):
            early = "an access to shared memory that cp.async writes, before cp.async.wait_group"
            raise Fault(early if np.any(marks >= UNDER_WAY) else fault)

    # asynchronous copies

    def copy(self, addresses: Array, lanes: Array, values: Array) -> None:
        """Begins a copy of each thread's bytes; it belongs to the group that the thread commits next."""
        self.store(addresses, lanes, values, UNDER_WAY)
        bytes = self.places(addresses, lanes, values.dtype)[:, None] + np.arange(values.dtype.itemsize)
        self.copies.append((self.groups[lanes], lanes, bytes))

    def commit(self, lanes: Array) -> None:
        self.groups[lanes] += 1

    def wait(self, lanes: Array, pending: int) -> None:
        """Ends the threads' copies but those of the last groups that were committed; of -1, also those of none."""
        last = np.zeros(len(self.groups), np.int64)
        last[lanes] = self.groups[lanes] - 1 - pending
        copies, self.copies = self.copies, []
        for groups, of, places in copies:
            done = groups <= last[of]
            self.written[places[done]] = (self.now | of[done])[:, None]
            if not done.all():
                self.copies.append((groups[~done], of[~done], places[~done]))
