"""The emulator's memory: arrays of their own addresses, and local memory.

An address is a space's number above bit 40 and a byte offset below, so that nothing outside of an
array is ever reached: it is an error that says what was wrong.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from .ptx_types import Array
from .races import Fault, History, Order

SPACE = 40  # bits of an offset
SHARED, LOCAL, FIRST = 1, 2, 3  # spaces
SPACES = {"shared": SHARED, "shared::cta": SHARED, "local": LOCAL}
OFFSET = np.uint64((1 << SPACE) - 1)
SECTOR, WARP = 32, 32
BANKS, BANK = 32, 4  # of shared memory, and bytes that each gives at once


class Memory:
    """Global memory: arrays with their addresses, counts of transactions, and the history of
    accesses by which races are detected.
    """

    def __init__(self, count_transactions: bool = False) -> None:
        self.spaces: dict[int, tuple[Array, int]] = {}
        self._next = FIRST
        self.counts, self.statistics = count_transactions, Counter[str]()
        self.order, self.histories = Order(), dict[int, History]()

    def give(self, array: Array) -> int:
        """Copies an array in; gives its address."""
        size = array.nbytes
        held = np.zeros((size + 31) // 16 * 16, np.uint8)
        held[:size] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        space = self._next
        self._next += 1
        self.spaces[space] = held, size
        return space << SPACE

    def take(self, address: int, like: Array) -> None:
        """Copies an array out."""
        like.reshape(-1).view(np.uint8)[...] = self.view(address, like.nbytes)

    def view(self, address: int, size: int) -> Array:
        """Bytes of an array, to read and to write."""
        held, whole = self.spaces.get(address >> SPACE, (np.empty(0, np.uint8), -1))
        first = address & (1 << SPACE) - 1
        if first + size > whole:
            raise Fault(f"a copy outside of its array: to byte {first + size} of {max(whole, 0)}")
        return held[first : first + size]

    def free(self, address: int) -> None:
        del self.spaces[address >> SPACE]

    def begin(self) -> None:
        """Begins a launch, which comes after all that was done before."""
        self.order, self.histories = Order(), {}

    def load(
        self, addresses: Array, lanes: Array, dtype: np.dtype, how: Sequence[str] = ()
    ) -> Array:
        """Reads for threads, with these modifiers of PTX."""
        loaded = np.empty(len(addresses), dtype)
        for some in self._by_space(addresses):
            array, places, history = self._find(addresses[some], dtype, "read")
            history.access("ld", places, dtype.itemsize, lanes[some], how)
            loaded[some] = array[places]
        return loaded

    def store(self, addresses: Array, lanes: Array, values: Array, how: Sequence[str] = ()) -> None:
        for some in self._by_space(addresses):
            array, places, history = self._find(addresses[some], values.dtype, "write")
            bits = array.view(f"u{array.itemsize}")
            wanted = values[some].view(f"u{array.itemsize}")
            same = bits[places] == wanted
            bits[places] = wanted
            one = bool(np.all(bits[places] == wanted))  # value for each place
            history.access("st", places, array.itemsize, lanes[some], how, same if one else None)

    def update(
        self, addresses: Array, lanes: Array, values: Array, function: np.ufunc, how: Sequence[str]
    ) -> Array:
        """An atomic operation of one thread after the other; gives what each found."""
        array, places, history = self._find(addresses, values.dtype, "write")
        history.access("atom", places, values.dtype.itemsize, lanes, how)
        old = np.empty_like(values)
        for n, place in enumerate(places.tolist()):
            old[n] = array[place]
            array[place] = function(array[place], values[n])
        return old

    def _by_space(self, addresses: Array) -> list[Any]:
        """The threads apart that access different arrays."""
        spaces = addresses >> np.uint64(SPACE)
        return (
            [...]
            if len(spaces) and np.all(spaces == spaces[0])
            else [spaces == s for s in np.unique(spaces)]
        )

    def _find(self, addresses: Array, dtype: np.dtype, what: str) -> tuple[Array, Array, History]:
        """The array that the addresses lie in, as elements of the type, the elements' numbers, and
        who accessed it.
        """
        space = int(addresses[0]) >> SPACE
        held, size = self.spaces.get(space, (np.empty(0, np.uint8), -1))
        offsets = addresses.astype(np.int64) - (space << SPACE)
        low, high = int(offsets.min()), int(offsets.max())
        if low < 0 or high + dtype.itemsize > size:
            raise Fault(
                f"a {what} outside of its array: at byte {high if low >= 0 else low} of "
                f"{max(size, 0)}"
            )
        if np.any(offsets & (dtype.itemsize - 1)):
            raise Fault(f"a {what} of {dtype.itemsize} bytes that is not aligned")
        whole = held[: len(held) // dtype.itemsize * dtype.itemsize]
        if space not in self.histories:
            self.histories[space] = History("global", len(held), self.order)
        return (
            whole.view(dtype),
            offsets >> (dtype.itemsize.bit_length() - 1),
            self.histories[space],
        )

    def count(self, what: str, lanes: Array, addresses: Array, width: int) -> None:
        """Count the bytes, the sectors that each warp's access touches, and the fewest sectors that
        could hold these bytes.
        """
        warps = lanes.astype(np.int64) // WARP << 48
        byte = addresses.astype(np.int64)
        touched = np.concatenate(
            [(byte + n) // SECTOR + warps for n in range(0, width, min(width, SECTOR))]
        )
        wanted = np.unique(byte + warps)
        each = np.unique(wanted >> 48, return_counts=True)[1]
        self.statistics[f"{what} bytes"] += len(lanes) * width
        self.statistics[f"{what} sectors"] += len(np.unique(touched))
        self.statistics[f"{what} least"] += int(np.sum(-(-each * width // SECTOR)))
        self.statistics[f"{what} requests"] += len(each)

    def count_banks(self, lanes: Array, offsets: Array, width: int) -> None:
        """Count shared-memory transactions, 128 bytes of neighboring threads at once, and bank
        conflicts.
        """
        groups = lanes.astype(np.int64) // min(WARP, BANKS * BANK // width)
        words = np.concatenate(
            [(offsets.astype(np.int64) + n) // BANK for n in range(0, width, BANK)]
        )
        wanted = np.unique(np.tile(groups, len(words) // len(groups)) << SPACE | words)
        banks, held = np.unique(wanted >> SPACE << 5 | wanted % BANKS, return_counts=True)
        first = np.flatnonzero(np.diff(banks >> 5, prepend=-1))
        self.statistics["shared answers"] += len(first)
        self.statistics["bank conflicts"] += int(np.sum(np.maximum.reduceat(held, first) - 1))


class Inner:
    """Memory of a space of its own, of a part for each block or thread."""

    what = ""

    def __init__(self, parts: int, size: int, threads: int = 1) -> None:
        self.size = -(-size // 16) * 16
        self.threads = threads  # of each part
        self.bytes = np.zeros(parts * self.size, np.uint8)

    def load(
        self, addresses: Array, lanes: Array, dtype: np.dtype, how: Sequence[str] = ()
    ) -> Array:
        return self.bytes.view(dtype)[self.places(addresses, lanes, dtype) // dtype.itemsize]

    def store(self, addresses: Array, lanes: Array, values: Array, how: Sequence[str] = ()) -> None:
        self.bytes.view(values.dtype)[
            self.places(addresses, lanes, values.dtype) // values.dtype.itemsize
        ] = values

    def places(self, addresses: Array, lanes: Array, dtype: np.dtype) -> Array:
        """The bytes that accesses begin at."""
        within = (addresses & OFFSET).astype(np.int64)
        if np.any(within + dtype.itemsize > self.size):
            raise Fault(f"an access outside of the {self.size} bytes of {self.what} memory")
        return within + lanes // self.threads * self.size


class Local(Inner):
    """Memory that every thread has for itself."""

    what = "local"
