"""Stores past the caches as LLVM IR: whole vectors where a loop can begin at an aligned one, halves of them elsewhere.

    for i in a..b vector 8 { y[i] = f(i) streaming }
    =>  for (start, stop) in (a, a + 1), (a + n, b - 8), (b - 8, b) { for i in start..stop step 8 { y[i] = f(i) } }

where y[a + n] lies at a multiple of 32 bytes. An array begins wherever its owner has put it, which only a call tells:
NumPy's large ones begin 16 bytes past such a multiple. Vectors overlap, and some elements are computed twice, to the same
value. Where nothing would be won the first loop does it all, by usual stores.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace

from ...dialect.index import Const, Tensor
from ...dialect.loops import For, Store
from ...lowering.movement.stream import LINE, MANY, PART, WHOLE, leading_store
from .expressions import Expressions
from .lines import memory_text


class Streams(Expressions):
    """How the stores of the current point's loop stream."""

    def __init__(self, sizes: dict[object, str], written: Iterable[Tensor], declarations: set[str]) -> None:
        super().__init__(sizes, written, declarations)
        self.streams = False
        self.aligned: dict[Tensor, str] = {}
        self.won: str | None = None  # in a loop that was shifted: whether its stores stream
        self.whole: tuple[Tensor, str] | None = None  # whether they do so by whole vectors, into this array

    def turns(self, s: For, start: str, stop: str, step: str) -> None:
        raise NotImplementedError

    def counting(self, start: str, stop: str, step: str, hint: str = "") -> AbstractContextManager[str]:
        raise NotImplementedError

    def first_place(self, s: For, store: Store, start: str) -> str:
        """Where a loop's first vector is stored."""
        raise NotImplementedError

    def shift(self, s: For, start: str, stop: str) -> bool:
        """Emits a vector loop that streams in three parts, where that is possible."""
        store = leading_store(s)
        if store is None:
            return False
        if s.overlap:
            self.whole_lines(s, store, start, stop)
            return True
        size, width, outer = store.tensor.element.bytes, str(s.width), (self.won, self.whole)
        address = self.address_of(self.first_place(s, store, start))
        rest = self.add(f"and i64 {self.add(f'sub i64 0, {address}')}, {WHOLE - 1}")
        begin = self.add(f"add i64 {start}, {self.add(f'lshr i64 {rest}, {size.bit_length() - 1}')}")
        last = self.linear("sub", stop, width)
        self.won = won = self.worth_it(s, store, address, self.linear("sub", last, start))
        edge = self.add(f"select i1 {won}, i64 {self.linear('add', start, '1')}, i64 {stop}")
        with self.counting("0", self.add(f"select i1 {won}, i64 3, i64 1"), "1", "1") as part:
            first = self.chosen(part, (start, begin, last))
            at = self.address_of(self.first_place(s, store, first))
            aligned = self.add(f"icmp eq i64 {self.add(f'and i64 {at}, {WHOLE - 1}')}, 0")
            self.whole = store.tensor, self.add(f"and i1 {won}, {aligned}")
            self.turns(s, first, self.chosen(part, (edge, last, stop)), width)
        self.won, self.whole = outer
        return True

    def whole_lines(self, s: For, store: Store, start: str, stop: str) -> None:
        """Emits a loop that overlaps others: the whole lines from the first one on, and the elements before and after them
        where it is at an end of the index's extent. An array whose elements lie at no multiple of their size is written
        by usual stores."""
        size, outer = store.tensor.element.bytes, (self.won, self.whole)
        address = self.address_of(self.first_place(s, store, start))
        good = self.add(f"icmp eq i64 {self.add(f'and i64 {address}, {size - 1}')}, 0")
        rest = self.add(f"and i64 {self.add(f'sub i64 0, {address}')}, {LINE - 1}")
        line = self.add(f"add i64 {start}, {self.add(f'lshr i64 {rest}, {size.bit_length() - 1}')}")
        length = self.linear("sub", self.linear("sub", stop, start), str(s.overlap))
        begin = self.add(f"select i1 {good}, i64 {line}, i64 {start}")
        end = self.add(f"select i1 {good}, i64 {self.linear('add', line, length)}, i64 {stop}")
        first, last = (f"icmp eq i64 {e}, {n}" for e, n in ((start, "0"), (stop, self.size(s.index.extent))))
        single = replace(s, kind="serial", width=1, overlap=0)
        self.turns(single, start, self.add(f"select i1 {self.add(first)}, i64 {begin}, i64 {start}"), "1")
        self.won, self.whole = None, (store.tensor, good)
        self.turns(s, begin, end, str(s.width))
        self.won, self.whole = outer
        self.turns(single, end, self.add(f"select i1 {self.add(last)}, i64 {stop}, i64 {end}"), "1")

    def chosen(self, number: str, values: Iterable[str]) -> str:
        """One of three values, by its number."""
        first, second, third = values
        later = self.add(f"select i1 {self.add(f'icmp eq i64 {number}, 1')}, i64 {second}, i64 {third}")
        return self.add(f"select i1 {self.add(f'icmp eq i64 {number}, 0')}, i64 {first}, i64 {later}")

    def worth_it(self, s: For, store: Store, address: str, length: str) -> str:
        """Whether an array's elements lie at multiples of their size, and the loop is long."""
        size = store.tensor.element.bytes
        tests = [f"eq i64 {self.add(f'and i64 {address}, {size - 1}')}, 0"]
        if not (isinstance(s.start, Const) and isinstance(s.end, Const)):
            tests.append(f"sge i64 {length}, {MANY * s.width}")
        found, *others = [self.add(f"icmp {test}") for test in tests]
        for other in others:
            found = self.add(f"and i1 {found}, {other}")
        return found

    def stream(self, text: str, wide: str, tensor: Tensor, pointer: str, lanes: int) -> None:
        """A vector past the caches: whole, in aligned parts, or as usual where the array is not aligned."""
        self.streams = True
        count = PART // tensor.element.bytes
        part, parts = memory_text(tensor.element, count), []
        for first in range(0, lanes, count):
            picks = ", ".join(f"i32 {first + n}" for n in range(count))
            one = self.add(f"shufflevector {wide} {text}, {wide} poison, <{count} x i32> <{picks}>")
            place = self.add(f"getelementptr inbounds {memory_text(tensor.element)}, ptr {pointer}, i64 {first}")
            parts.append(f"store {part} {one}, ptr {place}")
        past = "!nontemporal !0"
        ways: list[tuple[str, list[str]]] = []
        if self.whole is not None and tensor is self.whole[0]:
            ways.append((self.whole[1], [f"store {wide} {text}, ptr {pointer}, align {WHOLE}, {past}"]))
        if self.whole is None or self.won is not None:
            ways.append((self.is_aligned(tensor, pointer), [f"{s}, align {PART}, {past}" for s in parts]))
        after = self.label()
        for test, stores in ways:
            yes, no = self.label(), self.label()
            self.raw(f"br i1 {test}, label %{yes}, label %{no}")
            self.start(yes)
            for store in (*stores, f"br label %{after}"):
                self.raw(store)
            self.start(no)
        for store in (*(f"{s}, align {tensor.element.bytes}" for s in parts), f"br label %{after}"):
            self.raw(store)
        self.start(after)

    def is_aligned(self, tensor: Tensor, pointer: str) -> str:
        """Whether a vector's parts may stream. Where its loop is not shifted they may if the array is aligned, which is found
        once, at the function's entry."""
        if self.won is not None:
            found = self.add(f"icmp eq i64 {self.add(f'and i64 {self.address_of(pointer)}, {PART - 1}')}, 0")
            return self.add(f"and i1 {self.won}, {found}")
        if tensor not in self.aligned:
            address, rest, flag = self.fresh(), self.fresh(), self.fresh()
            self.aligned[tensor] = flag
            self.entry += [
                f"  {address} = ptrtoint ptr {self.pointers[tensor]} to i64",
                f"  {rest} = and i64 {address}, {PART - 1}",
                f"  {flag} = icmp eq i64 {rest}, 0",
            ]
        return self.aligned[tensor]

    def address_of(self, pointer: str) -> str:
        return self.add(f"ptrtoint ptr {pointer} to i64")
