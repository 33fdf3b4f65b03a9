"""Stores past the caches as LLVM IR: whole lines of memory where a loop can begin at one, halves of vectors elsewhere.

    for i in a..b vector 8 { y[i] = f(i) streaming }
    =>  for i in a + n..b - m step 8 { y[i] = f(i) streaming }
        for (start, stop) in (a, a + n), (b - m, b) { for i in start..stop { y[i] = f(i) } }

where y[a + n] and y[b - m] begin lines. Memory takes lines: part of one that streams costs more than the whole, and more
still after another part of it was written as usual. An array begins wherever its owner has put it, which only a call
tells: NumPy's large ones begin 16 bytes past a line. The last line, which the next row goes on with, is asked for early.
Where nothing would be won all is written by usual stores.
"""

from __future__ import annotations

from dataclasses import replace
from math import lcm
from typing import TYPE_CHECKING

from ...dialect.notation.expressions import Const, Tensor
from ...dialect.notation.loops import For, Store
from ...lowering.analysis.accesses import stores
from ...lowering.analysis.vector_stores import begins_lines, least_length, left_over
from ...lowering.loops.nontemporal_stores import PART, leading_store, writes_lines
from ...lowering.processor import processor
from .ir_writer import memory_text

if TYPE_CHECKING:
    from .kernels import Function

ONCE = "1"  # what is said of a loop that is not worth unrolling


class NontemporalStores:
    """The state of non-temporal stores in the current loop of a function."""

    def __init__(self, function: Function) -> None:
        self.f = function
        self.aligned: dict[Tensor, str] = {}
        self.won: str | None = None  # in a loop that was shifted: whether its stores stream
        self.whole: tuple[Tensor, str] | None = None  # whether they do so by whole vectors, into this array

    def shift(self, s: For, start: str, stop: str) -> bool:
        """Emits a vector loop that streams: the lines that are wholly its own, then what it writes of others; or one that
        does not, but leaves some elements over. Not others."""
        store = leading_store(s)
        if store is None:
            lines = next((t for t in stores(s.body) if begins_lines(s, t)), None)
            if lines is not None and lines.streaming:
                self.only_lines(s, lines, start, stop)
                return True
            if lines is not None and not writes_lines(s, lines):
                self.f.turns(replace(s, kind="serial", width=1), start, stop, "1")
                return True
            over = left_over(s)
            if over:
                middle = self.f.linear("sub", stop, str(over))
                self.f.turns(s, start, middle, str(s.width))
                self.f.turns(replace(s, kind="serial", width=1), middle, stop, "1")
            return over > 0
        if s.overlap or begins_lines(s, store):
            self.whole_lines(s, store, start, stop)
            return True
        size, width, outer = store.tensor.element.bytes, str(s.width), (self.won, self.whole)
        pointer = self.f.first_place(s, store, start)
        address, length = self.address_of(pointer), self.f.linear("sub", stop, start)
        self.won = won = self.worth_it(s, store, address, length)
        edge = self.f.add(f"select i1 {won}, i64 {self.to_line(address, size)}, i64 0")
        inner = self.f.linear("sub", length, edge)
        by_lines, by_vectors = (
            self.f.add(f"srem i64 {inner}, {n}") for n in (lcm(s.width, processor().line_bytes // size), s.width)
        )
        rest = self.f.add(f"select i1 {won}, i64 {by_lines}, i64 {by_vectors}")
        begin, end = self.f.linear("add", start, edge), self.f.linear("sub", stop, rest)
        self.f.ask_for(store.tensor, pointer, self.f.linear("sub", length, "1"), written=True)
        self.whole = store.tensor, won
        self.f.turns(s, begin, end, width)
        self.whole = outer[1]
        with self.f.counting("0", "2", "1", ONCE) as part:
            is_first = self.f.add(f"icmp eq i64 {part}, 0")
            first = self.f.add(f"select i1 {is_first}, i64 {start}, i64 {end}")
            last = self.f.add(f"select i1 {is_first}, i64 {begin}, i64 {stop}")
            self.f.turns(replace(s, kind="serial", width=1), first, last, "1")
        self.won = outer[0]
        return True

    def to_line(self, address: str, size: int) -> str:
        """The number of elements from an address to the next cache line."""
        rest = self.f.add(f"and i64 {self.f.add(f'sub i64 0, {address}')}, {processor().line_bytes - 1}")
        return self.f.add(f"lshr i64 {rest}, {size.bit_length() - 1}")

    def only_lines(self, s: For, store: Store, start: str, stop: str) -> None:
        """Emits a loop that writes whole lines, if the array's elements lie at multiples of their size."""
        outer, address = (self.won, self.whole), self.address_of(self.f.first_place(s, store, start))
        good = self.f.add(f"icmp eq i64 {self.f.add(f'and i64 {address}, {processor().vector_bytes - 1}')}, 0")
        self.won, self.whole = None, (store.tensor, good)
        self.f.turns(s, start, stop, str(s.width))
        self.won, self.whole = outer

    def whole_lines(self, s: For, store: Store, start: str, stop: str) -> None:
        """Emits the whole lines of a loop, and the elements before and after them; where it overlaps others only at an end of
        the index's extent. An array whose elements lie at no multiple of their size is written by usual stores."""
        size, outer = store.tensor.element.bytes, (self.won, self.whole)
        address = self.address_of(self.f.first_place(s, store, start))
        good = self.f.add(f"icmp eq i64 {self.f.add(f'and i64 {address}, {size - 1}')}, 0")
        line, single = self.to_line(address, size), replace(s, kind="serial", width=1, overlap=0)
        if not s.overlap:
            length = self.f.linear("sub", stop, start)
            inner = self.f.linear("sub", length, line)
            over = self.f.add(f"and i64 {inner}, {processor().line_bytes // size - 1}")
            some = self.f.add(f"and i1 {good}, {self.f.add(f'icmp sge i64 {inner}, 0')}")
            begin = self.f.add(f"select i1 {some}, i64 {self.f.linear('add', start, line)}, i64 {stop}")
            end = self.f.add(f"select i1 {some}, i64 {self.f.linear('sub', stop, over)}, i64 {stop}")
            self.f.turns(single, start, begin, "1")
            self.won, self.whole = None, (store.tensor, good)
            self.f.turns(s, begin, end, str(s.width))
            self.won, self.whole = outer
            self.f.turns(single, end, stop, "1")
            return
        line = self.f.linear("add", start, line)
        length = self.f.linear("sub", self.f.linear("sub", stop, start), str(s.overlap))
        begin = self.f.add(f"select i1 {good}, i64 {line}, i64 {start}")
        end = self.f.add(f"select i1 {good}, i64 {self.f.linear('add', line, length)}, i64 {stop}")
        first, last = (f"icmp eq i64 {e}, {n}" for e, n in ((start, "0"), (stop, self.f.size(s.index.extent))))
        self.f.turns(single, start, self.f.add(f"select i1 {self.f.add(first)}, i64 {begin}, i64 {start}"), "1")
        self.won, self.whole = None, (store.tensor, good)
        self.f.turns(s, begin, end, str(s.width))
        self.won, self.whole = outer
        self.f.turns(single, end, self.f.add(f"select i1 {self.f.add(last)}, i64 {stop}, i64 {end}"), "1")

    def worth_it(self, s: For, store: Store, address: str, length: str) -> str:
        """Test whether an array's elements are aligned to their size, and the loop is long."""
        size = store.tensor.element.bytes
        tests = [f"eq i64 {self.f.add(f'and i64 {address}, {size - 1}')}, 0"]
        if not (isinstance(s.start, Const) and isinstance(s.end, Const)):
            tests.append(f"sge i64 {length}, {least_length(s)}")
        found, *others = [self.f.add(f"icmp {test}") for test in tests]
        for other in others:
            found = self.f.add(f"and i1 {found}, {other}")
        return found

    def stream(self, text: str, wide: str, tensor: Tensor, pointer: str, lanes: int) -> None:
        """A vector past the caches: whole, in aligned parts, or as usual where the array is not aligned."""
        self.f.has_nontemporal_stores = True
        count = PART // tensor.element.bytes
        part, parts = memory_text(tensor.element, count), []
        for first in range(0, lanes, count):
            picks = ", ".join(f"i32 {first + n}" for n in range(count))
            one = self.f.add(f"shufflevector {wide} {text}, {wide} poison, <{count} x i32> <{picks}>")
            place = self.f.add(f"getelementptr inbounds {memory_text(tensor.element)}, ptr {pointer}, i64 {first}")
            parts.append(f"store {part} {one}, ptr {place}")
        past = "!nontemporal !0"
        ways: list[tuple[str, list[str]]] = []
        if self.whole is not None and tensor is self.whole[0]:
            ways.append(
                (self.whole[1], [f"store {wide} {text}, ptr {pointer}, align {processor().vector_bytes}, {past}"])
            )
        if self.whole is None or tensor is not self.whole[0]:
            ways.append((self.is_aligned(tensor, pointer), [f"{s}, align {PART}, {past}" for s in parts]))
        after = self.f.label()
        for test, written in ways:
            yes, no = self.f.label(), self.f.label()
            self.f.raw(f"br i1 {test}, label %{yes}, label %{no}")
            self.f.start(yes)
            for store in (*written, f"br label %{after}"):
                self.f.raw(store)
            self.f.start(no)
        for store in (*(f"{s}, align {tensor.element.bytes}" for s in parts), f"br label %{after}"):
            self.f.raw(store)
        self.f.start(after)

    def is_aligned(self, tensor: Tensor, pointer: str) -> str:
        """Test whether a vector's parts may be stored by streaming. In a loop that is not shifted, they may if the
        array is aligned, which is tested once, at the function's entry.
        """
        if self.won is not None:
            found = self.f.add(f"icmp eq i64 {self.f.add(f'and i64 {self.address_of(pointer)}, {PART - 1}')}, 0")
            return self.f.add(f"and i1 {self.won}, {found}")
        if tensor not in self.aligned:
            address, rest, flag = self.f.fresh(), self.f.fresh(), self.f.fresh()
            self.aligned[tensor] = flag
            self.f.entry += [
                f"  {address} = ptrtoint ptr {self.f.pointers[tensor]} to i64",
                f"  {rest} = and i64 {address}, {PART - 1}",
                f"  {flag} = icmp eq i64 {rest}, 0",
            ]
        return self.aligned[tensor]

    def address_of(self, pointer: str) -> str:
        return self.f.add(f"ptrtoint ptr {pointer} to i64")
