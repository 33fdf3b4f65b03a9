"""Array expressions of kernels: elementwise operations, reductions, products, and stores to slices.

    y[1:-1] += c * x[:-2]   =>   for i in 0..n { y[i + 1] = y[i + 1] + c * x[i] }

An expression stays a formula of its elements until it is stored, reduced, or given a name. The
right side of a store is computed as if whole before: where the store may overwrite an element that
is read later, it goes through an array of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import Any, TypeAlias

from cvm.dialect.kernel_ir import expressions as ex, loops as ir
from cvm.dialect.kernel_ir.affine import Affine, affine
from cvm.dialect.kernel_ir.index_bounds import index_extent
from cvm.dialect.kernel_ir.reduce_in_order import BLOCK_TERMS, MIN_TERMS
from cvm.dialect.types.sizes import Size
from cvm.dialect.types.tensor_types import F32, F64, I1, I64, ElementType
from cvm.lowering.loops.build_loops import accumulate
from cvm.lowering.processor import processor
from cvm.lowering.reductions.lane_reduction import by_lanes

from .arrays import Along, Array, Elements, Made
from .numbers import Arithmetic, Number, NumberType

Operation: TypeAlias = Callable[[list[Number]], Number]
ROWS = 4  # of a product of matrices that are computed at once, as many chains of sums
# blocks of a parallel loop whose iterations make arrays, of which each block has its own (by hand)
BLOCKS_WITH_ARRAYS = 64
CHAINS = 8  # rows of a product with a vector at once: a sum waits some cycles for the one before
ONE = ex.constant(1, I64)


class ArrayExpressions(Arithmetic):
    """Expressions of whole arrays, and where they are stored."""

    def __init__(self, *given: Any, overlaps: bool = False) -> None:
        super().__init__(*given)
        self.overlaps = overlaps  # arguments may be of the same memory
        self.arrays: dict[str, Array] = {}
        self.tensors: list[ex.Tensor] = []
        self.written: set[str] = set()
        self.made: list[Made] = []
        self.limits: dict[ex.Expr, ex.Expr] = {}  # values of the call that bound indices
        self.plain = False  # loops stay as they are, for the tests of parallel ones
        self.repeating = False  # statements are made for the case that something is

    # blocks, as the builder of statements makes them

    @contextmanager
    def nested(self, *facts: Affine) -> Iterator[list[ir.Statement]]:
        with self.block(*facts) as block:
            yield block

    def loops(
        self, lengths: Sequence[ex.Expr], body: Callable[[list[ex.Expr]], object], name: str = "i"
    ) -> None:
        """A nest of loops around the statements that `body` makes."""
        indices: list[ex.Expr] = []

        def nest() -> None:
            if (n := len(indices)) == len(lengths):
                body(indices)
                return
            length = lengths[n]
            if isinstance(length, ex.Const) and length.value == 1:
                indices.append(ex.ZERO)
                nest()
                return
            index = ex.Index(f"{name}{n}", index_extent(length))
            self.rank(index)
            facts = affine(index), (affine(length) - affine(index)).plus(-1)
            with self.nested(*facts) as block:
                self.small.add(index)
                indices.append(index)
                nest()
            self.out.append(ir.For(index, tuple(block), ex.ZERO, length))

        nest()

    def equal(self, a: ex.Expr, b: ex.Expr) -> bool:
        """Test whether two sizes are equal."""
        if a is b:
            return True
        difference = affine(a) - affine(b)
        if not difference.terms:
            return not difference.constant
        return self.proves([difference, difference * -1])

    def in_cases(
        self, equal: Sequence[tuple[ex.Expr, ex.Expr]], emit: Callable[[], object]
    ) -> None:
        """Statements for sizes that are equal, and others for sizes of 1 that are repeated."""
        tests = {(id(a), id(b)): a.eq(b) for a, b in equal if not self.equal(a, b)}
        if not tests or self.repeating:
            emit()
            return
        with self.nested() as usual:
            emit()
        self.repeating = True
        with self.nested() as otherwise:
            emit()
        self.repeating = False
        test = reduce(and_, tests.values())
        self.out.append(ir.If(test, tuple(usual), tuple(otherwise)))

    # elementwise

    def broadcast(
        self, operands: Sequence[Elements], node: ast.AST
    ) -> tuple[tuple[ex.Expr, ...], tuple[tuple[ex.Expr, ex.Expr], ...]]:
        """The sizes of an elementwise result, and pairs of sizes that are equal, or one is 1."""
        lengths: list[ex.Expr] = []
        equal = [pair for e in operands for pair in e.equal]
        for axis in range(-max(e.rank for e in operands), 0):
            found: ex.Expr | None = None
            for length in (e.lengths[axis] for e in operands if e.rank >= -axis):
                if found is None or _is_one(found):
                    found = length
                elif not _is_one(length) and not self.equal(found, length):
                    equal.append((found, length))
                    one, other = self.let(found, "size"), self.let(length, "size")
                    bad = one.ne(other) & one.ne(1) & other.ne(1)
                    message = "arrays of sizes {0} and {1} do not fit together"
                    self.fail_if(bad, "ValueError", message, node, one, other)
                    found = self.measured(ex.select(one.eq(1), other, one), one, other)
            assert found is not None
            lengths.append(found)
        return tuple(lengths), tuple(equal)

    def measured(self, e: ex.Expr, *within: ex.Expr) -> ex.Expr:
        """A size that is computed, at most the greatest of others."""
        found = self.let(e, "size")
        if isinstance(found, ex.Var):
            self.small.add(found)
            self.facts.append(affine(found))
            if within:
                self.limits[found] = reduce(ex.maximum, within)
        return found

    def operand(
        self, of: Elements, lengths: Sequence[ex.Expr], indices: Sequence[ex.Expr]
    ) -> Number:
        """The element of an operand at the indices of a result with these sizes."""
        own: list[ex.Expr] = []
        first = len(lengths) - of.rank
        for length, whole, i in zip(of.lengths, lengths[first:], indices[first:], strict=True):
            if _is_one(length):
                i = ex.ZERO
            elif self.repeating and not self.equal(length, whole):
                i = ex.select(length.eq(1), 0, i)
            own.append(i)
        return of.at(own)

    def elementwise(self, operation: Operation, given: Sequence[Any], node: ast.AST) -> Any:
        """An operation on the elements of arrays, and numbers."""
        held = [
            Number(self.let(v.expr), v.weak) if isinstance(v, Number) else v.elements for v in given
        ]
        operands = [v for v in held if isinstance(v, Elements)]
        lengths, equal = self.broadcast(operands, node)

        def at(indices: Sequence[ex.Expr]) -> Number:
            return operation(
                [v if isinstance(v, Number) else self.operand(v, lengths, indices) for v in held]
            )

        kind = self.type_of(
            lambda: operation(
                [v if isinstance(v, Number) else Number(ex.Var("v", v.type.element)) for v in held]
            )
        )
        return Elements(lengths, kind, at, tuple(a for e in operands for a in e.reads), equal)

    def type_of(self, compute: Callable[[], Number]) -> NumberType:
        """The type of a computed number; its statements are dropped."""
        with self.block():
            return NumberType(compute().element)

    def converted(self, of: Any, kind: NumberType, node: ast.AST) -> Elements:
        """The elements of an array in another type, as NumPy converts arrays: integers wrap."""
        if of.elements.type.element is kind.element:
            return of.elements
        return self.elementwise(lambda v: self.cast_element(v[0], kind, node), [of], node)

    def cast_element(self, value: Number, kind: NumberType, node: ast.AST) -> Number:
        if kind.element is I1:
            return Number(self.truth(value))
        return Number(self.to(value, kind, node, wraps=True).expr)

    # memory

    def limit(self, e: ex.Expr) -> ex.Expr | None:
        """A value of the call that is at least an integer; None if that is computed of others."""
        known = self.limits.get(e)
        if known is e:
            return e
        if (found := self._limit(e)) is not None or known is None:
            return found
        return self.limit(known)

    def _limit(self, e: ex.Expr) -> ex.Expr | None:
        match e:
            case ex.Const() | ex.Extent():
                return e
            case ex.Var():
                return self.limit(self.lets[e]) if e in self.lets else None
            case ex.Apply("add" | "max", (a, b), _):
                x, y = self.limit(a), self.limit(b)
                return None if x is None or y is None else ex.apply(e.function, x, y)
            case ex.Apply("sub", (a, b), _) if (x := self.limit(a)) is not None:
                if isinstance(b, ex.Const):
                    return x - b
                return x if self.is_exact(b) and self.proves([affine(b)]) else None
            case ex.Apply("min", (a, b), _):
                found = [x for x in (self.limit(a), self.limit(b)) if x is not None]
                return found[0] if found else None
            case ex.Apply("select", (_, a, b), _):
                x, y = self.limit(a), self.limit(b)
                return None if x is None or y is None else ex.maximum(x, y)
            case ex.Apply("floordiv" | "mul", (a, ex.Const(c)), _) if c > 0:
                x = self.limit(a)
                return None if x is None else ex.apply(e.function, x, e.operands[1])
            case ex.Apply("mul", (a, b), _) if self.is_exact(a) and self.is_exact(b):
                x, y = self.limit(a), self.limit(b)
                positive = self.proves([affine(a), affine(b)])
                return None if x is None or y is None or not positive else x * y
            case ex.Cast(a, _) if e.type is I64 and a.type.is_integer:
                return self.limit(a)
        return None

    def storage(self, lengths: Sequence[ex.Expr], element: ElementType, node: ast.AST) -> Array:
        """Memory of the call for an array of these sizes, or of sizes that these have at most."""
        sizes: list[ex.Expr] = []
        for length in lengths:
            most = self.limit(length)
            if most is None:
                message = (
                    "the size of an array that a kernel makes is computed of sizes, integers among "
                    "its arguments, and indices of loops over these, or is at most such a size"
                )
                raise self.source.mistake(message, node)
            sizes.append(most)
        n = len(self.made)
        slots: tuple[int, ...] = ()
        block: tuple[ex.Expr, ...] = ()  # of a parallel loop, whose blocks have an array each
        if self.region is not None:
            self.region.has_arrays = True
            slots, block = (BLOCKS_WITH_ARRAYS,), (self.region.block,)
        dims = tuple(Size.named(f"0_{n}_{k}") for k in range(len(sizes)))
        tensor = ex.Tensor(f"made.{n}", (*slots, *dims), element)
        self.tensors.append(tensor)
        shape = (*map(ex.as_index, slots), *sizes)
        self.made.append(Made(tensor, shape, self.source.span(node)))
        axes = (*block, *(Along(k) for k in range(len(dims))))
        array = Array(tensor.name, tensor, tuple(lengths), axes, fresh=True)
        self.written.add(tensor.name)
        self.arrays[tensor.name] = replace(array, lengths=tuple(sizes))
        return array

    def in_memory(self, value: Any, node: ast.AST, copy: bool = False) -> Array:
        """An array with these elements, of its own unless it is one already."""
        if isinstance(value, Array) and not copy:
            return value
        elements: Elements = value.elements
        array = self.storage(elements.lengths, elements.type.element, node)
        self.fill(array, elements)
        return array

    def fill(self, target: Array, value: Elements | Number) -> None:
        """Stores to each element of an array, which nothing reads meanwhile."""

        def one(indices: Sequence[ex.Expr]) -> None:
            found = value if isinstance(value, Number) else self.operand(value, lengths, indices)
            self.out.append(ir.Store(target.tensor, target.place(indices), found.expr))

        lengths = target.lengths
        pairs = () if isinstance(value, Number) else self._pairs(value, lengths)
        self.in_cases(pairs, lambda: self.loops(lengths, one))

    def _pairs(self, value: Elements, lengths: Sequence[ex.Expr]) -> list[tuple[ex.Expr, ex.Expr]]:
        last = zip(value.lengths, lengths[len(lengths) - value.rank :], strict=True)
        return [*value.equal, *((a, b) for a, b in last if not _is_one(a) and not self.equal(a, b))]

    # stores

    def store_array(self, target: Array, value: object, node: ast.AST) -> None:
        """target[...] = value, which is evaluated before."""
        kind = NumberType(target.element)
        if isinstance(value, Number):
            found: Elements | Number = Number(self.let(self.to(value, kind, node).expr))
        else:
            found = self.fitting(self.converted(value, kind, node), target, node)
            if any(self.may_change(target, a) for a in found.reads):
                found = self.in_memory(found, node).elements
        self.written.add(target.tensor.name)
        self.fill(target, found)

    def fitting(self, value: Elements, target: Array, node: ast.AST) -> Elements:
        """The value of a store, whose sizes are tested."""
        if value.rank > target.rank:
            message = f"an array of rank {value.rank} is stored where {target.rank} axes are"
            raise self.source.mistake(message, node)
        for a, b in zip(value.lengths, target.lengths[target.rank - value.rank :], strict=True):
            if not _is_one(a) and not self.equal(a, b):
                a = self.let(a, "size")
                bad = a.ne(b) & a.ne(1)
                message = "an array of size {0} does not fit where it is stored, of size {1}"
                self.fail_if(bad, "ValueError", message, node, a, b)
        return value

    def may_change(self, target: Array, read: Array) -> bool:
        """Test whether a store to one view, element by element, may change another before it is
        read there.
        """
        if target.tensor is not read.tensor:
            given = all(
                t.name not in {m.tensor.name for m in self.made}
                for t in (target.tensor, read.tensor)
            )
            return self.overlaps and given
        if len(target.axes) != len(read.axes):
            return True
        pairs = list(zip(target.axes, read.axes, strict=True))
        if any(self._apart(a, b, target, read) for a, b in pairs):
            return False
        shift = target.rank - read.rank
        same = all(
            a.axis == b.axis + shift
            and a.step == b.step
            and self.equal(a.start, b.start)
            and self.equal(target.lengths[a.axis], read.lengths[b.axis])
            if isinstance(a, Along) and isinstance(b, Along)
            else isinstance(a, ex.Expr) and isinstance(b, ex.Expr) and self.equal(a, b)
            for a, b in pairs
        )
        used = {a.axis for a in target.axes if isinstance(a, Along)}
        return not (same and len(used) == target.rank)

    def _apart(self, a: Along | ex.Expr, b: Along | ex.Expr, of_a: Array, of_b: Array) -> bool:
        """Test whether two views have no element of an axis of storage in common."""
        (low, high), (least, most) = self._range(a, of_a), self._range(b, of_b)
        return self.proves([(affine(least) - affine(high)).plus(-1)]) or self.proves(
            [(affine(low) - affine(most)).plus(-1)]
        )

    def _range(self, a: Along | ex.Expr, of: Array) -> tuple[ex.Expr, ex.Expr]:
        if not isinstance(a, Along):
            return a, a
        ends = a.start, a.start + (of.lengths[a.axis] - 1) * a.step
        return ends if a.step > 0 else (ends[1], ends[0])

    # reductions

    def total(
        self,
        function: str,
        of: Elements,
        start: ex.Expr,
        keep: Sequence[int],
        kind: ElementType,
        node: ast.AST,
    ) -> Any:
        """The reduction of all axes but those to keep, in the documented order."""
        over = [n for n in range(of.rank) if n not in keep]

        def value(at: Sequence[ex.Expr], inner: Sequence[ex.Expr]) -> ex.Expr:
            indices = dict(zip([*keep, *over], [*at, *inner], strict=True))
            found = of.at([indices[n] for n in range(of.rank)])
            return self.cast_element(found, NumberType(kind), node).expr

        if not keep:
            acc = self.accumulator(function, start)
            self.in_cases(
                of.equal,
                lambda: self.reduced(
                    function, acc, [of.lengths[n] for n in over], lambda i: value((), i)
                ),
            )
            return Number(self.let(acc[()], "sum"))
        sizes = [of.lengths[n] for n in keep]
        result = self.storage(sizes, kind, node)
        columns = keep[-1] == of.rank - 1

        def by_rows() -> None:
            def row(at: list[ex.Expr]) -> None:
                at = list(at)
                acc = self.accumulator(function, start)
                lengths = [of.lengths[n] for n in over]
                self.reduced(function, acc, lengths, lambda i: value(at, i))
                self.out.append(ir.Store(result.tensor, result.place(at), acc[()]))

            self.loops(sizes, row)

        def by_columns() -> None:
            self.fill(result, Number(start))

            def one(inner: list[ex.Expr]) -> None:
                inner = list(inner)

                def column(at: list[ex.Expr]) -> None:
                    self.out.append(
                        ir.Store(
                            result.tensor,
                            result.place(at),
                            _accumulated(function, result.read(at), value(at, inner)),
                        )
                    )

                self.loops(sizes, column, "j")

            self.loops([of.lengths[n] for n in over], one, "k")

        self.in_cases(of.equal, by_columns if columns else by_rows)
        return result

    def accumulator(self, function: str, start: ex.Expr) -> ex.Tensor:
        acc = ir.accumulator(function[:3], start.type)
        self.out += [ir.Alloc(acc), ir.assign(acc, start)]
        return acc

    def reduced(
        self,
        function: str,
        acc: ex.Tensor,
        lengths: Sequence[ex.Expr],
        value: Callable[[list[ex.Expr]], ex.Expr],
    ) -> None:
        """Statements that reduce into an accumulator: floats along memory by lanes, others one by
        one, and many by blocks.
        """
        *rows, last = lengths

        def row(outer: list[ex.Expr]) -> None:
            outer = list(outer)
            ordered = acc.element.kind == "float" and function in ("add", "mul")
            if not ordered or rows or (isinstance(last, ex.Const) and last.value < MIN_TERMS):
                self.terms(function, acc, ex.ZERO, last, lambda i: value([*outer, i]))
                return
            size = self.let(last)
            each = self.let(ex.select(size >= MIN_TERMS, BLOCK_TERMS, ex.maximum(1, size)))
            block = ex.Index("block", ir.UNBOUNDED)
            self.rank(block)
            with self.nested(affine(block)) as body:
                part = self.accumulator(function, ir.identity(function, acc.element))
                start = self.let(block * each)
                stop = self.let(ex.minimum(start + each, size))
                self.terms(function, part, start, stop, lambda i: value([*outer, i]))
                self.out.append(ir.update(function, acc, part[()]))
            self.out.append(ir.For(block, tuple(body), ex.ZERO, (size + each - 1) // each))

        self.loops(rows, row, "k")

    def terms(
        self,
        function: str,
        acc: ex.Tensor,
        start: ex.Expr,
        stop: ex.Expr,
        value: Callable[[ex.Expr], ex.Expr],
    ) -> None:
        index = ex.Index("k", index_extent(stop))
        self.rank(index)
        with self.nested(affine(index), (affine(stop) - affine(index)).plus(-1)) as body:
            self.small.add(index)
            self.out.append(accumulate(function, acc, value(index)))
        loop = ir.For(index, tuple(body), start, stop)
        lanes = acc.element.kind == "float" and function in ("add", "mul") and not self.plain
        self.out += (by_lanes(loop) if lanes else None) or (loop,)

    # products

    def product(self, a: Any, b: Any, node: ast.AST) -> Any:
        """a @ b of vectors and matrices: the terms of each sum go one by one."""
        x, y = (v.elements for v in (a, b))
        if not 1 <= x.rank <= 2 or not 1 <= y.rank <= 2:
            message = f"@ is of vectors and matrices, got ranks {x.rank} and {y.rank}"
            raise self.source.mistake(message, node)
        kind = self.type_of(
            lambda: self.binary(
                ast.Mult(),
                Number(ex.Var("v", x.type.element)),
                Number(ex.Var("v", y.type.element)),
                node,
            )
        ).element
        inner, other = x.lengths[-1], y.lengths[0]
        if not self.equal(inner, other):
            one = self.let(inner)
            message = "sizes {0} and {1} of the axis that is summed are not equal"
            self.fail_if(one.ne(other), "ValueError", message, node, one, other)
            if all(self.is_exact(e) or isinstance(e, ex.Var) for e in (inner, other)):
                same = affine(inner) - affine(other)
                self.facts += [same, same * -1]
        x, y = (self.converted(v, NumberType(kind), node) for v in (x, y))
        if x.rank == y.rank == 1:
            acc = self.accumulator("add", _zero(kind))
            self.in_cases(
                [*x.equal, *y.equal],
                lambda: self.reduced("add", acc, [inner], lambda i: _times(x.at(i), y.at(i))),
            )
            return Number(self.let(acc[()], "dot"))
        if x.rank == 1:
            x, y = y, x
            matrix = lambda i, k: x.at([k, i])  # noqa: E731
            rows, steady = x.lengths[1], _is_side_by_side(x, 1)
        else:
            matrix = lambda i, k: x.at([i, k])  # noqa: E731
            rows, steady = x.lengths[0], _is_side_by_side(x, 0) and not _is_side_by_side(x, 1)
        if y.rank == 2:
            return self._product_of_matrices(x, y, kind, node)
        if len(y.reads) != 1 or y.equal:
            y = self.in_memory(y, node).elements
        result = self.storage([rows], kind, node)
        by = self._by_columns if steady else self._by_rows
        self.in_cases(x.equal, lambda: by(result, matrix, y, rows, inner))
        return result

    def _by_rows(self, result: Array, matrix: Any, y: Elements, rows: ex.Expr, n: ex.Expr) -> None:
        """Several sums at once, which do not wait for each other."""

        def some(first: ex.Expr, count: int) -> None:
            sums = [self.accumulator("add", _zero(result.element)) for _ in range(count)]
            index = ex.Index("k", index_extent(n))
            self.rank(index)
            with self.nested() as body:
                self.small.add(index)
                for u, acc in enumerate(sums):
                    term = _times(matrix(first + u, index), y.at([index]))
                    self.out.append(accumulate("add", acc, term))
            self.out.append(ir.For(index, tuple(body), ex.ZERO, n))
            for u, acc in enumerate(sums):
                self.out.append(ir.Store(result.tensor, result.place([first + u]), acc[()]))

        whole = self.let(rows // CHAINS)
        self.loops([whole], lambda at: some(at[0] * CHAINS, CHAINS), "rows")
        self.loops([rows - whole * CHAINS], lambda at: some(whole * CHAINS + at[0], 1), "row")

    def _by_columns(
        self, result: Array, matrix: Any, y: Elements, rows: ex.Expr, n: ex.Expr
    ) -> None:
        """The sums side by side in memory, each with several terms at once."""
        self.fill(result, Number(_zero(result.element)))

        def some(first: ex.Expr, count: int) -> None:
            factors = [Number(self.let(y.at([first + u]).expr)) for u in range(count)]

            def one(at: list[ex.Expr]) -> None:
                sum = result.read(at)
                for u, factor in enumerate(factors):
                    sum = _accumulated("add", sum, _times(matrix(at[0], first + u), factor))
                self.out.append(ir.Store(result.tensor, result.place(at), sum))

            self.loops([rows], one)

        whole = self.let(n // ROWS)
        self.loops([whole], lambda at: some(at[0] * ROWS, ROWS), "k")
        self.loops([n - whole * ROWS], lambda at: some(whole * ROWS + at[0], 1), "k")

    def _product_of_matrices(
        self, x: Elements, y: Elements, kind: ElementType, node: ast.AST
    ) -> Array:
        """Tiles of some rows and some vectors; the columns of a tile are copied together before."""
        rows, columns, inner = x.lengths[0], y.lengths[1], x.lengths[1]
        left = self.in_memory(x, node)
        result = self.storage([rows, columns], kind, node)
        if self.plain:

            def each(at: list[ex.Expr]) -> None:
                at = list(at)

                def add(k: list[ex.Expr]) -> None:
                    term = _times(left.elements.at([at[0], k[0]]), y.at([k[0], at[1]]))
                    self.out.append(ir.Store(result.tensor, result.place(at), term))

                self.loops([inner], add, "k")

            self.loops([rows, columns], each)
            return result
        lanes = 2 * processor().tile_vector_bytes // kind.bytes
        panel = self.storage([inner, ex.constant(lanes, I64)], kind, node)
        lane = ex.Index("l", lanes)

        def pack(first: ex.Expr, count: ex.Expr) -> None:
            def row(at: list[ex.Expr]) -> None:
                k = at[0]

                def one(at: list[ex.Expr]) -> None:
                    self.out.append(
                        ir.Store(
                            panel.tensor, panel.place([k, at[0]]), y.at([k, first + at[0]]).expr
                        )
                    )

                self.loops([count], one, "l")
                self.loops(
                    [ex.constant(lanes, I64) - count],
                    lambda at: self.out.append(
                        ir.Store(panel.tensor, panel.place([k, count + at[0]]), _zero(kind))
                    ),
                    "l",
                )

            self.loops([inner], row, "k")

        def tile(first: ex.Expr, count: int, column: ex.Expr, width: ex.Expr) -> None:
            sums = ex.Tensor("sums", (count, lanes), kind, "register")
            u = [ex.constant(n, I64) for n in range(count)]
            self.out.append(ir.Alloc(sums))
            self.out += [ir.vector_loop(lane, ir.Store(sums, (n, lane), _zero(kind))) for n in u]
            index = ex.Index("k", index_extent(inner))
            body: list[ir.Statement] = []
            for n in u:
                factor = ex.Var("factor", kind)
                body.append(ir.Let(factor, left.read([first + n, index])))
                term = factor * panel.read([index, lane])
                sum = _accumulated("add", sums[n, lane], term)
                body.append(ir.vector_loop(lane, ir.Store(sums, (n, lane), sum)))
            self.out.append(ir.For(index, tuple(body), ex.ZERO, inner))
            whole = [
                ir.vector_loop(
                    lane,
                    ir.Store(
                        result.tensor, result.place([first + n, column + lane]), sums[n, lane]
                    ),
                )
                for n in u
            ]
            edge = ex.Tensor("edge", (lanes,), kind, "stack")
            part: list[ir.Statement] = [ir.Alloc(edge)]
            for n in u:
                part.append(ir.vector_loop(lane, ir.Store(edge, (lane,), sums[n, lane])))
                at = ex.Index("l", lanes)
                store = ir.Store(result.tensor, result.place([first + n, column + at]), edge[at])
                part.append(ir.For(at, (store,), ex.ZERO, width))
            self.out.append(ir.If(width.eq(lanes), tuple(whole), tuple(part)))

        whole = self.let(rows // ROWS)

        def columns_of(at: list[ex.Expr]) -> None:
            column = self.let(at[0] * lanes)
            width = self.let(ex.minimum(columns - column, lanes))
            self.in_cases(y.equal, lambda: pack(column, width))
            self.loops([whole], lambda at: tile(at[0] * ROWS, ROWS, column, width), "rows")
            rest = rows - whole * ROWS
            self.loops([rest], lambda at: tile(whole * ROWS + at[0], 1, column, width), "row")

        self.loops([(columns + (lanes - 1)) // lanes], columns_of, "panel")
        return result

    # masks

    def compressed(self, array: Array, mask: Elements, node: ast.AST) -> Array:
        """The elements of an array where a mask holds, in their order."""
        size: ex.Expr = ONE
        for n in array.lengths:
            size = size * n
        result = self.storage([size], array.element, node)
        count = self.accumulator("count", ex.ZERO)

        def one(indices: Sequence[ex.Expr]) -> None:
            test = self.let(mask.at(indices).expr)
            place = self.let(count[()])
            store = ir.Store(result.tensor, result.place([place]), array.read(indices))
            self.out.append(ir.If(test, (store, ir.assign(count, place + 1))))

        self.in_cases(mask.equal, lambda: self.loops(array.lengths, one))
        found = self.measured(count[()], size)
        return replace(result, lengths=(found,))

    def store_masked(self, target: Array, mask: Elements, value: object, node: ast.AST) -> None:
        """target[mask] = value: a number, or as many elements as the mask has."""
        kind = NumberType(target.element)
        self.written.add(target.tensor.name)
        if any(self.may_change(target, a) for a in mask.reads):
            mask = self.in_memory(mask, node).elements
        if isinstance(value, Number):
            stored = self.let(self.to(value, kind, node).expr)
            after: ir.Block = ()

            def next_value() -> ex.Expr:
                return stored
        else:
            given: Elements = self.converted(value, kind, node)
            if given.rank != 1:
                raise self.source.mistake("a mask takes a number, or an array of rank 1", node)
            given = self.in_memory(given, node, copy=True).elements
            most = self.let(given.lengths[0])
            count = self.accumulator("count", ex.ZERO)

            def add(indices: Sequence[ex.Expr]) -> None:
                test = ex.cast(mask.at(indices).expr, I64)
                self.out.append(ir.update("add", count, test))

            self.in_cases(mask.equal, lambda: self.loops(target.lengths, add))
            found = self.let(count[()])
            message = "an array of size {0} does not fit where a mask has {1} elements"
            bad = found.ne(most) & most.ne(1)
            self.fail_if(bad, "ValueError", message, node, most, found)
            self.out.append(ir.assign(count, 0))
            after = (ir.update("add", count, ONE),)

            def next_value() -> ex.Expr:
                return given.at([ex.select(most.eq(1), 0, count[()])]).expr

        def one(indices: Sequence[ex.Expr]) -> None:
            test = self.let(mask.at(indices).expr)
            store = ir.Store(target.tensor, target.place(indices), next_value())
            self.out.append(ir.If(test, (store, *after)))

        self.in_cases(mask.equal, lambda: self.loops(target.lengths, one))


def _is_one(e: ex.Expr) -> bool:
    return isinstance(e, ex.Const) and e.value == 1


def _zero(element: ElementType) -> ex.Const:
    return ex.constant(0, element)


def _times(a: Number, b: Number) -> ex.Expr:
    if a.element is I1:
        return a.expr & b.expr
    return a.expr * b.expr


def _accumulated(function: str, sum: ex.Expr, value: ex.Expr) -> ex.Expr:
    """A sum with one more term; products are fused into floats, as in any sum."""
    match value:
        case ex.Apply("mul", (a, b), type) if function == "add" and type in (F32, F64):
            return ex.apply("fma", a, b, sum)
    return ex.apply(function, sum, value)


def _is_side_by_side(e: Elements, axis: int) -> bool:
    """Test whether elements along an axis are neighbors in memory, of one array at least."""
    return any(
        isinstance(a.axes[-1], Along) and a.axes[-1].axis == axis and a.strides is None
        for a in e.reads
    )
