"""Non-temporal stores as LLVM IR: whole cache lines where a loop can begin at one, halves of
vectors elsewhere.

    for i in a..b vector 8 { y[i] = f(i) streaming }
    =>  for i in a + n..b - m step 8 { y[i] = f(i) streaming }
        for (start, stop) in (a, a + n), (b - m, b) { for i in start..stop { y[i] = f(i) } }

where y[a + n] and y[b - m] begin lines. Memory takes lines: part of one that streams costs more
than the whole, and more still after another part of it was written as usual. An array begins
wherever its owner has put it, which only a call tells: NumPy's large ones begin 16 bytes past a
line. The last line, which the next row goes on with, is asked for early. Where nothing would be won
all is written by usual stores.
"""

from dataclasses import replace
from math import lcm
from typing import TYPE_CHECKING

from ...dialect.kernel_ir.expressions import Const, Tensor
from ...dialect.kernel_ir.loops import For, Prefetch, Store
from ...lowering.analysis.accesses import stores
from ...lowering.analysis.vector_alignment import begins_lines, least_length, left_over
from ...lowering.loops.nontemporal_stores import PART, leading_store, writes_lines
from ...lowering.processor import processor
from . import ir_builder as ll

if TYPE_CHECKING:
    from .kernels import KernelEmitter

ONCE = "1"  # what is said of a loop that is not worth unrolling
BYPASS = "!nontemporal !0"


def one_by_one(s: For) -> For:
    """A vector loop as a serial one, without the prefetches of its vectors."""
    body = tuple(t for t in s.body if not isinstance(t, Prefetch))
    return replace(s, body=body, kind="serial", width=1, overlap=0)


class NontemporalStores:
    """The state of non-temporal stores in the current loop of a function."""

    def __init__(self, kernel: "KernelEmitter") -> None:
        self.kernel = kernel
        self.b = kernel.b
        self.aligned: dict[Tensor, ll.Value] = {}
        self.won: ll.Value | None = None  # in a loop that was shifted: whether its stores stream
        self.whole: tuple[Tensor, ll.Value] | None = (
            None  # whether they do so by whole vectors, into this array
        )

    def shift(self, s: For, start: ll.Value, stop: ll.Value) -> bool:
        """Emit a vector loop that streams, as whole lines and the rest, or one that leaves some
        elements over.
        """
        linear, turns = self.b.linear, self.kernel.turns
        first_store = leading_store(s)
        single = one_by_one(s)
        if first_store is None:
            lines = next((t for t in stores(s.body) if begins_lines(s, t)), None)
            if lines is not None and lines.streaming:
                self.only_lines(s, lines, start, stop)
                return True
            if lines is not None and not writes_lines(s, lines):
                turns(single, start, stop, 1)
                return True
            if over := left_over(s):
                middle = linear("sub", stop, ll.index(over))
                turns(s, start, middle, s.width)
                turns(single, middle, stop, 1)
            return over > 0
        if s.overlap or begins_lines(s, first_store):
            self.whole_lines(s, first_store, start, stop)
            return True
        add = self.b.add
        tensor = first_store.tensor
        size = tensor.element.bytes
        outer = (self.won, self.whole)
        pointer = self.kernel.first_place(s, first_store, start)
        address = self.address_of(pointer)
        length = linear("sub", stop, start)
        self.won = won = self.worth_it(s, tensor, address, length)
        edge = add(ll.select(won, self.to_line(address, size), ll.ZERO))
        inner = linear("sub", length, edge)
        line = lcm(s.width, processor().line_bytes // size)
        by_lines, by_vectors = (add(ll.binary("srem", inner, ll.index(n))) for n in (line, s.width))
        rest = add(ll.select(won, by_lines, by_vectors))
        begin, end = linear("add", start, edge), linear("sub", stop, rest)
        self.kernel.values.vectors.prefetch(
            tensor, pointer, linear("sub", length, ll.ONE), written=True
        )
        self.whole = tensor, won
        turns(s, begin, end, s.width)
        self.whole = outer[1]
        with self.kernel.counting(ll.ZERO, ll.index(2), 1, ONCE) as (part, _):
            is_first = add(ll.compare("eq", part, ll.ZERO))
            turns(
                single,
                add(ll.select(is_first, start, end)),
                add(ll.select(is_first, begin, stop)),
                1,
            )
        self.won = outer[0]
        return True

    def to_line(self, address: ll.Value, size: int) -> ll.Value:
        """The number of elements from an address to the next cache line."""
        rest = self.masked(self.b.add(ll.binary("sub", ll.ZERO, address)), processor().line_bytes)
        return self.b.add(ll.binary("lshr", rest, ll.index(size.bit_length() - 1)))

    def masked(self, value: ll.Value, size: int) -> ll.Value:
        """The remainder of a division by a power of two."""
        return self.b.add(ll.binary("and", value, ll.index(size - 1)))

    def is_multiple(self, address: ll.Value, size: int) -> ll.Value:
        """Test whether a power of two divides an address."""
        return self.b.add(ll.compare("eq", self.masked(address, size), ll.ZERO))

    def only_lines(self, s: For, store: Store, start: ll.Value, stop: ll.Value) -> None:
        """Emits a loop that writes whole lines, if the array's elements lie at multiples of their
        size.
        """
        address = self.address_of(self.kernel.first_place(s, store, start))
        self.by_vectors(
            s, store.tensor, self.is_multiple(address, processor().vector_bytes), start, stop
        )

    def by_vectors(
        self, s: For, tensor: Tensor, good: ll.Value, start: ll.Value, stop: ll.Value
    ) -> None:
        """Emits a loop that streams whole vectors into an array, where that is good."""
        outer = self.won, self.whole
        self.won = None
        self.whole = (tensor, good)
        self.kernel.turns(s, start, stop, s.width)
        self.won, self.whole = outer

    def whole_lines(self, s: For, store: Store, start: ll.Value, stop: ll.Value) -> None:
        """Emit the whole lines of a loop, and the elements around them; misaligned arrays by usual
        stores.
        """
        add, linear, turns = self.b.add, self.b.linear, self.kernel.turns
        size = store.tensor.element.bytes
        address = self.address_of(self.kernel.first_place(s, store, start))
        good = self.is_multiple(address, size)
        line = self.to_line(address, size)
        single = one_by_one(s)
        if not s.overlap:
            length = linear("sub", stop, start)
            inner = linear("sub", length, line)
            over = self.masked(inner, processor().line_bytes // size)
            some = add(ll.binary("and", good, add(ll.compare("sge", inner, ll.ZERO))))
            begin = add(ll.select(some, linear("add", start, line), stop))
            end = add(ll.select(some, linear("sub", stop, over), stop))
            turns(single, start, begin, 1)
            self.by_vectors(s, store.tensor, good, begin, end)
            turns(single, end, stop, 1)
            return
        line = linear("add", start, line)
        length = linear("sub", linear("sub", stop, start), ll.index(s.overlap))
        begin = add(ll.select(good, line, start))
        end = add(ll.select(good, linear("add", line, length), stop))
        extent = self.kernel.addresses.size(s.index.extent)
        turns(single, start, add(ll.select(add(ll.compare("eq", start, ll.ZERO)), begin, start)), 1)
        self.by_vectors(s, store.tensor, good, begin, end)
        turns(single, end, add(ll.select(add(ll.compare("eq", stop, extent)), stop, end)), 1)

    def worth_it(self, s: For, tensor: Tensor, address: ll.Value, length: ll.Value) -> ll.Value:
        """Test whether an array's elements are aligned to their size, and the loop is long."""
        is_aligned = self.is_multiple(address, tensor.element.bytes)
        if isinstance(s.start, Const) and isinstance(s.end, Const):
            return is_aligned
        is_long = self.b.add(ll.compare("sge", length, ll.index(least_length(s))))
        return self.b.add(ll.binary("and", is_aligned, is_long))

    def stream(self, vector: ll.Value, tensor: Tensor, pointer: ll.Value) -> None:
        """A vector past the caches: whole, in aligned parts, or as usual where the array is not
        aligned.
        """
        self.kernel.has_nontemporal_stores = True
        count = PART // tensor.element.bytes
        element = ll.memory_type(tensor.element)
        parts = []
        for first in range(0, vector.lanes, count):
            part = self.b.add(ll.shuffle(vector, range(first, first + count)))
            parts.append((part, self.b.add(ll.element_pointer(element, pointer, ll.index(first)))))
        if self.whole is not None and tensor is self.whole[0]:
            test = self.whole[1]
            bypassing = [(vector, pointer)]
            align = processor().vector_bytes
        else:
            test = self.is_aligned(tensor, pointer)
            bypassing = parts
            align = PART
        after = self.b.new_block()
        yes, no = self.b.new_block(), self.b.new_block()
        self.b.do(ll.branch_if(test, yes, no))
        for block, values, metadata in (
            (yes, bypassing, f"align {align}, {BYPASS}"),
            (no, parts, f"align {tensor.element.bytes}"),
        ):
            self.b.start(block)
            for value, place in values:
                if self.kernel.checks and block is yes:
                    self.kernel.require_alignment(tensor, place, align)
                self.b.do(ll.store(value, place, metadata))
            self.b.do(ll.branch(after))
        self.b.start(after)

    def is_aligned(self, tensor: Tensor, pointer: ll.Value) -> ll.Value:
        """Test whether a vector may be streamed; in a loop that is not shifted, by a test of the
        array at the entry.
        """
        if self.won is not None:
            return self.b.add(
                ll.binary("and", self.won, self.is_multiple(self.address_of(pointer), PART))
            )
        if tensor not in self.aligned:
            value: ll.Value = self.kernel.scope.pointers[tensor]
            for instruction in (
                lambda v: ll.cast("ptrtoint", v, ll.WORD),
                lambda v: ll.binary("and", v, ll.index(PART - 1)),
                lambda v: ll.compare("eq", v, ll.ZERO),
            ):
                i = instruction(value)
                value = self.b.fresh(i.type)
                self.b.entry.append((value, i))
            self.aligned[tensor] = value
        return self.aligned[tensor]

    def address_of(self, pointer: ll.Value) -> ll.Value:
        return self.b.add(ll.cast("ptrtoint", pointer, ll.WORD))
