"""Find races: two threads access a byte, one of them writes it, and nothing orders the accesses.

A barrier orders the accesses of a block. Those of two blocks are ordered as in PTX's memory model:
by a fence of the first thread, its atomic access to a flag, a later one of the second thread, and a
fence of that thread; barriers extend this to the other threads of the blocks. Atomic accesses do
not race with each other.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from .ptx import Unsupported
from .ptx_types import Array

# A mark is the time of an access, above the number of its block, whether it is atomic, and its
# thread within the block
BLOCK = (1 << 11) - 1  # in place of a thread: several threads of the block
ATOMIC = 1 << 11
TICK = 1 << 34
SEVERAL = (1 << 62) - 1 - ATOMIC  # readers of several blocks
UNDER_WAY = 1 << 62  # added by cp.async until its copy is complete
_ATOMIC = {"volatile", "relaxed", "acquire", "release"}  # modifiers of loads and stores
Known = Counter[int]  # by thread or block, the time before which its accesses are ordered


class Fault(Exception):
    """An error that a GPU would not detect: an access out of bounds, a race, or undefined
    behavior.
    """


class Order:
    """The order of a launch's accesses, as far as barriers, fences and flags define one."""

    def __init__(self) -> None:
        self.now = self.since = TICK  # the time, and that of the last barrier
        self.threads: Array = np.zeros(0, np.int64)  # that run together, as in a mark
        self.known, self.seen, self.fenced = (
            defaultdict[int, Known](Known) for _ in range(3)
        )  # by thread

    def barrier(self) -> None:
        self.now += TICK
        self.since = self.now
        for thread in [*self.known]:
            self.known[thread | BLOCK] |= self.known[thread]

    def fence(self, lanes: Array) -> None:
        self.now += TICK
        for thread in self.threads[lanes].tolist():
            self.known[thread] |= self.seen.pop(thread, Known())
            self.fenced[thread] = self.before(thread)

    def before(self, thread: int) -> Known:
        """The accesses that come before all that a thread does from now on."""
        return (
            Known({thread: self.now, thread | BLOCK: self.since})
            | self.known[thread]
            | self.known[thread | BLOCK]
        )

    def flag(self, flag: Known, thread: int, name: str, how: Sequence[str]) -> None:
        """An atomic access to a flag, which keeps what comes before an access that sees its
        value.
        """
        acquires, releases = ("acq_rel" in how or kind in how for kind in ("acquire", "release"))
        if name == "st":
            flag.clear()
        elif self.fenced or acquires:
            (self.known if acquires else self.seen)[thread] |= flag
        if name != "ld" and (self.fenced or releases):
            flag |= self.before(thread) if releases else self.fenced[thread]


class History:
    """The last writer and the readers of each byte of an array, and its flags."""

    def __init__(self, space: str, size: int, order: Order) -> None:
        self.space, self.order, self.unit = (
            space,
            order,
            16,
        )  # bytes of a mark: those of the smallest access
        self.written, self.read = (np.zeros(size // self.unit, np.int64) for _ in range(2))
        self.last_write = self.last_read = 0  # marks
        self.flags = defaultdict[int, Known](Known)  # by their first byte

    @property
    def oldest(self) -> int:
        """The time from which on accesses may race; of shared memory, each block has a part."""
        return self.order.since if self.space == "shared" else TICK

    def access(
        self,
        name: str,
        rows: Array,
        width: int,
        lanes: Array,
        how: Sequence[str] = (),
        same: Array | None = None,
    ) -> None:
        """Records what an instruction with these modifiers does to the elements of a width at these
        places. A store does not race with another where it writes the same value.
        """
        if width < self.unit:
            self.written, self.read = (
                marks.repeat(self.unit // width) for marks in (self.written, self.read)
            )
            self.unit = width
        written, read = (
            marks.reshape(-1, width // self.unit) for marks in (self.written, self.read)
        )
        atomic = name == "atom" or (self.space == "global" and not _ATOMIC.isdisjoint(how))
        mine = (self.order.now | self.order.threads[lanes] | ATOMIC * atomic)[:, None]
        if self.last_write >= self.oldest:
            other = np.ones(len(rows), bool) if same is None else ~same
            self.check(written[rows[other]], mine[other], name, "wrote")
        if self.last_read >= self.oldest and name != "ld":
            self.check(read[rows], mine, name, "read")
        if atomic:
            if not {"cta", "cluster"}.isdisjoint(how):
                raise Unsupported(
                    f"an atomic access that only a part of the grid sees: {'.'.join(how)}"
                )
            for byte, thread in zip(
                (rows * width).tolist(), self.order.threads[lanes].tolist(), strict=True
            ):
                self.order.flag(self.flags[byte], thread, name, how)
            before = written[rows]
            stays = (before >= self.oldest) & (before & ATOMIC == 0) | (name == "ld")
            written[rows], self.last_write = np.where(stays, before, mine), self.order.now
        elif name == "ld":
            self.load(read, rows, mine, "nc" in how)
        else:
            mine = mine | UNDER_WAY if "async" in how else mine
            written[rows], self.last_write = mine, max(self.last_write, int(mine[0, 0]))
            if np.any(written[rows] != mine) and same is None:
                raise Fault(
                    f"two threads write one place of {self.space} memory between two barriers"
                )

    def load(self, read: Array, rows: Array, mine: Array, constant: bool) -> None:
        """Adds readers; of bytes that the program promises to be constant, no write is in order."""
        if constant:
            read[rows], self.last_read = SEVERAL, SEVERAL
            return
        marks = mine
        if self.last_read >= self.oldest:
            before = read[rows]
            if (races := self.races(before, mine)).any():
                marks = np.where(races, _joined(before, mine), mine)
            if (before == marks).all():
                return
        read[rows], self.last_read = marks, max(self.last_read, self.order.now)
        row, unit = np.nonzero(read[rows] != marks)  # of threads that read it together
        if len(row):
            joined = _joined(read[rows[row], unit], mine[row, 0])
            np.maximum.at(self.read, rows[row] * read.shape[1] + unit, joined)

    def check(self, marks: Array, mine: Array, name: str, did: str) -> None:
        """Raises a fault where marks are not those of accesses that come before these."""
        if not (races := self.races(marks, mine)).any():
            return
        for mark, of in {
            *zip(
                marks[races].tolist(),
                np.broadcast_to(mine, marks.shape)[races].tolist(),
                strict=True,
            )
        }:
            before, thread = ((m & TICK - 1) & ~ATOMIC for m in (mark, of))
            if mark >= UNDER_WAY:
                raise Fault(
                    "an access to shared memory that cp.async writes, before cp.async.wait_group"
                )
            known = [self.order.known[t] for t in (thread, thread | BLOCK)]
            if not any(mark < k[t] for k in known for t in (before, before | BLOCK)):
                within = before | BLOCK == thread | BLOCK
                who = (
                    f"another {did} since the last barrier"
                    if within
                    else f"one of another block {did}, in no order"
                )
                raise Fault(
                    f"a thread {'reads' if name == 'ld' else 'writes'} {self.space} memory "
                    f"that {who}"
                )

    def races(self, marks: Array, mine: Array) -> Array:
        """Find marks of other threads since the last barrier, or of other blocks, that are not
        atomic like these.
        """
        other = (marks ^ mine) & TICK - 1 & ~ATOMIC
        recent = marks >= np.where(other > BLOCK, self.oldest, self.order.since)
        return (marks >= UNDER_WAY) | recent & (other != 0) & (marks & mine & ATOMIC == 0)

    def arrive(self, bytes: Array, lanes: Array) -> None:
        """Records that threads have waited for copies to these bytes."""
        self.written[bytes // self.unit] = (self.order.now | self.order.threads[lanes])[:, None]


def _joined(marks: Array, mine: Array) -> Array:
    """The marks of these readers together with others."""
    return np.where((marks ^ mine) & TICK - 1 <= BLOCK, mine | BLOCK, SEVERAL)
