"""Accesses to memory inside a vector loop.

The distance of neighboring lanes decides between vector load, scalar load, shuffled vectors, and a
load per lane.
"""

from typing import TYPE_CHECKING, NamedTuple

from ...dialect.kernel_ir.affine import affine
from ...dialect.kernel_ir.expressions import Apply, Cast, Const, Expr, Index, Read, Tensor
from ...dialect.kernel_ir.simplify_node import linear_index
from ...dialect.types.tensor_types import I1, I64
from ...lowering.analysis.accesses import stride as stride_along
from ...lowering.analysis.lane_offsets import Lanes, is_square, offsets, windows
from . import ir_builder as ll
from .register_transpose import joined, turn

if TYPE_CHECKING:
    from .expressions import Expressions

PREFETCH = ll.Declaration(
    ll.VOID, "llvm.prefetch.p0", (ll.POINTER, ll.STATUS, ll.STATUS, ll.STATUS)
)


class Square(NamedTuple):
    """An unrolled loop around lanes: where it begins, what it writes, and what its first iteration
    turned, by the access.
    """

    along: Index
    start: int
    written: set[Tensor]
    vectors: dict[tuple[object, ...], list[ll.Value]]


def elements_of_word(e: Expr, at: int = 0) -> list[tuple[Expr, int]]:
    """The elements of which a & 255 | (b & 255) << 8 | ... makes words, and their places in these,
    in bits.
    """
    match e:
        case Apply("or", (a, b), _):
            return elements_of_word(a, at) + elements_of_word(b, at)
        case Apply("shl", (a, Const(by)), _):
            return elements_of_word(a, at + by)
        case Apply("and", (Cast(Read() as read), Const(mask)), _) if (
            mask == (1 << read.type.bits) - 1
        ):
            return [(read, at)]
        case Cast(Read() as read) if at + read.type.bits == e.type.bits:
            return [(read, at)]
    return [(e, at)]


class VectorAccesses:
    """Emits loads and stores of the lanes of a vector loop."""

    def __init__(self, values: "Expressions") -> None:
        self.values = values
        self.b, self.scope, self.addresses = values.b, values.scope, values.addresses
        self.square: Square | None = None  # what is around the current lanes

    def load(self, tensor: Tensor, at: tuple[Expr, ...]) -> ll.Value:
        """The elements of an access, one for each lane, or one for all."""
        lanes, get = self.scope.lanes, self.values.get
        if (turned := self.turned(tensor, at)) is not None:
            return turned
        if (stride := self.addresses.stride(tensor, at)) in (0, 1):
            return get(tensor, self.addresses.pointer(tensor, at), lanes if stride else 1)
        if (crossed := self.crossed(tensor, at)) is not None:
            return crossed
        if (windows := self.shuffled_loads(tensor, at)) is not None:
            return windows
        vector: ll.Value = ll.poison(ll.value_type(tensor.element, lanes))
        for n, pointer in enumerate(self.lane_pointers(tensor, at)):
            vector = self.b.add(ll.insert(vector, get(tensor, pointer, 1), n))
        return vector

    def words(self, e: Expr) -> ll.Value | None:
        """Words made of elements that lie side by side in memory, in its order, which is
        little-endian everywhere: one vector.
        """
        elements = elements_of_word(e)
        first = elements[0][0]
        if (
            not isinstance(first, Read)
            or not first.type.is_integer
            or len(elements) * first.type.bits != e.type.bits
        ):
            return None
        tensor = first.tensor
        start = linear_index(first.indices, first.tensor.shape)
        for n, (read, at) in enumerate(elements):
            if not isinstance(read, Read) or read.tensor is not tensor or at != n * first.type.bits:
                return None
            apart = affine(linear_index(read.indices, tensor.shape)) - affine(start + n)
            if apart.terms or apart.constant:
                return None
        if self.addresses.stride(tensor, first.indices) != len(elements):
            return None
        pointer = self.addresses.pointer(tensor, first.indices)
        return self.b.add(
            ll.load(ll.memory_type(e.type, self.scope.lanes), pointer, f"align {first.type.bytes}")
        )

    def scatter(self, tensor: Tensor, at: tuple[Expr, ...], vector: ll.Value) -> None:
        """Stores the lanes of a vector one by one."""
        for n, pointer in enumerate(self.lane_pointers(tensor, at)):
            self.values.put(self.b.add(ll.extract(vector, n)), tensor, pointer)

    def turned(self, tensor: Tensor, at: tuple[Expr, ...]) -> ll.Value | None:
        """Elements first + (lane + turn) mod lanes: one vector, turned; None where the access is
        another one.
        """
        match at:
            case (
                Apply(
                    "add",
                    (
                        Apply("floormod", (Apply("add", (lane, Const(turn))), Const(n))),
                        Const(first),
                    ),
                ),
            ):
                if lane is not self.scope.lane or n != self.scope.lanes:
                    return None
            case _:
                return None
        vector = self.values.get(tensor, self.addresses.pointer(tensor, (Const(first, I64),)), n)
        return self.b.add(ll.shuffle(vector, [(k + turn) % n for k in range(n)]))

    def crossed(self, tensor: Tensor, at: tuple[Expr, ...]) -> ll.Value | None:
        """Elements side by side along the unrolled loop around: loaded and transposed by its first
        iteration.
        """
        if self.square is None or tensor in self.square.written:
            return None
        index, start, _, vectors = self.square
        rows, lanes = index.extent, self.scope.lanes
        if (
            not isinstance(rows, int)
            or not is_square(rows, lanes, tensor.element.bytes)
            or stride_along(tensor, at, index) != 1
        ):
            return None
        now = self.addresses.address(index).number
        assert now is not None, "the index of an unrolled loop is a constant"
        if (tensor, at) not in vectors:
            if now != start:
                return None
            part = ll.memory_type(tensor.element, rows)
            aligned = f"align {tensor.element.bytes}"
            loaded = [self.b.add(ll.load(part, p, aligned)) for p in self.lane_pointers(tensor, at)]
            vectors[tensor, at] = turn(self.b, loaded, rows)
        vector = vectors[tensor, at][now - start]
        return self.values.truth(vector) if tensor.element is I1 else vector

    def prefetch(
        self, tensor: Tensor, pointer: ll.Value, further: ll.Value = ll.ZERO, written: bool = False
    ) -> None:
        """Prefetch the cache line `further` elements beyond a pointer, for reading or writing."""
        if further.number != 0:
            element = ll.memory_type(tensor.element)
            pointer = self.b.add(ll.element_pointer(element, pointer, further, flags=""))
        hints = (ll.Constant(str(n), ll.STATUS) for n in (int(written), 3 if written else 2, 1))
        self.b.call(PREFETCH, pointer, *hints)

    def shuffled_loads(self, tensor: Tensor, at: tuple[Expr, ...]) -> ll.Value | None:
        """Elements near each other: the vectors that hold them, shuffled."""
        scope = self.scope
        assert scope.lane is not None
        apart = offsets(
            tensor, at, Lanes(scope.lane, scope.first, scope.lanes, lambda e: not scope.varies(e))
        )
        starts = None if apart is None else windows(apart)
        if apart is None or starts is None:
            return None
        element = ll.memory_type(tensor.element)
        pointer = self.addresses.pointer(tensor, at)
        length = min(scope.lanes, max(apart) - min(apart) + 1)
        vectors = []
        for start in starts:
            place = (
                self.b.add(ll.element_pointer(element, pointer, ll.index(start)))
                if start
                else pointer
            )
            vectors.append(self.by_rows(tensor, place, length))
        if length == 1:
            return vectors[0]
        lanes = vectors[0]
        where = {
            lane: n - starts[0] for lane, n in enumerate(apart) if n - starts[0] < length
        }  # found so far
        for start, vector in zip(starts[1:] or [0], vectors[1:] or [None], strict=True):
            new = {lane: length + n - start for lane, n in enumerate(apart) if n - start < length}
            now = {**new, **where}
            lanes = self.b.add(
                ll.shuffle(lanes, [now.get(lane, "poison") for lane in range(scope.lanes)], vector)
            )
            where = {lane: lane for lane in now}
        return lanes

    def by_rows(self, tensor: Tensor, pointer: ll.Value, lanes: int) -> ll.Value:
        """Elements side by side, of a buffer row by row: loads that span several stores would wait
        for them.
        """
        length = tensor.shape[-1] if tensor.shape else 1
        get = self.values.get
        if (
            tensor.space != "stack"
            or not isinstance(length, int)
            or length < 2
            or lanes % length
            or lanes == length
        ):
            return get(tensor, pointer, lanes)
        element = ll.memory_type(tensor.element)
        places = [
            self.b.add(ll.element_pointer(element, pointer, ll.index(n)))
            for n in range(0, lanes, length)
        ]
        return joined(self.b, [get(tensor, place, length) for place in places])

    def lane_pointers(self, tensor: Tensor, at: tuple[Expr, ...]) -> list[ll.Value]:
        """A pointer for each lane of an access that is not contiguous."""
        stride = self.addresses.stride(tensor, at)
        lanes = self.scope.lanes
        element = ll.memory_type(tensor.element)
        if stride is not None:
            base = self.addresses.pointer(tensor, at)
            further = (
                self.b.add(ll.element_pointer(element, base, ll.index(stride * n)))
                for n in range(1, lanes)
            )
            return [base, *further]
        factors = [self.addresses.factor(e) for e in at]
        if None not in factors:
            apart: ll.Value = ll.ZERO
            pointers = [self.addresses.pointer(tensor, at)]
            for factor, step in zip(factors, self.addresses.steps(tensor), strict=True):
                assert factor is not None
                apart = self.b.linear("add", apart, self.b.linear("mul", step, ll.index(factor)))
            for _ in range(1, lanes):
                pointers.append(self.b.add(ll.element_pointer(element, pointers[-1], apart)))
            return pointers
        offset: ll.Value = ll.ZERO
        for e, step in zip(at, self.addresses.steps(tensor), strict=True):
            offset = self.arithmetic(
                "add", offset, self.arithmetic("mul", self.values.value(e), step)
            )
        wide = self.values.splat(offset, lanes)
        array = self.scope.pointers[tensor]
        return [
            self.b.add(ll.element_pointer(element, array, self.b.add(ll.extract(wide, n))))
            for n in range(lanes)
        ]

    def arithmetic(self, operation: str, a: ll.Value, b: ll.Value) -> ll.Value:
        if (lanes := max(a.lanes, b.lanes)) == 1:
            return self.b.linear(operation, a, b, "")
        if (operation == "add" and a.number == 0) or (operation == "mul" and b.number == 1):
            return a if operation == "mul" else b
        a, b = self.values.splat(a, lanes), self.values.splat(b, lanes)
        return self.b.add(ll.binary(operation, a, b))
