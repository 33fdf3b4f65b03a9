"""A kernel to a function in LLVM IR. Knows the loop language and the spelling of scalar functions,
and no operator.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple, TypeAlias

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.execution_plan import scratch_buffers
from ...dialect.kernel_ir.expressions import Const, Expr, Index, Tensor
from ...dialect.support.diagnostics import Span
from ...dialect.types.sizes import product, same_size
from ...dialect.types.tensor_types import I64
from ...lowering.analysis.accesses import allocated, stores
from ...lowering.analysis.cost import Sizes, block_operations
from ...lowering.analysis.lane_offsets import begins, square_of
from ...lowering.analysis.vector_alignment import left_over
from ...lowering.loops.nontemporal_stores import leading_store
from ...lowering.loops.outline import outlined
from ...lowering.loops.parallelize import MOVED, adjoining, grain
from ...lowering.processor import processor
from ...lowering.storage.place_buffers import ALIGNMENT
from ..host_processor import features_at_hand
from . import ir_builder as ll
from .addresses import Addresses, KnownValues
from .emit_nontemporal_stores import NontemporalStores
from .expressions import Expressions
from .keep_load_order import SINGLE_THREAD_ACQUIRE, reads_in_order
from .loop_invariants import Invariants
from .vector_accesses import Square

# lines of IR of the body of a loop that reduces vectors, up to which LLVM may unroll it; bounds
# compile time (by hand)
LARGEST_UNROLLED = 40
# lines of IR of the body of another loop, and of all of its iterations together; bounds compile
# time (by hand)
LARGEST_COPIED, LARGEST_WHOLE = 20, 128
# iterations from which a loop is not unrolled wholly, and up to which one of unknown length is
# not unrolled; bounds compile time (by hand)
MANY_TURNS, FEW_TURNS = 64, 4
METADATA = """!0 = !{i32 1}
!1 = distinct !{!1, !2}
!2 = !{!"llvm.loop.unroll.disable"}
!3 = distinct !{!3, !4}
!4 = !{!"llvm.loop.unroll.count", i32 4}
!5 = !{!"branch_weights", i32 1, i32 1000000}
!6 = !{!"branch_weights", i32 1, i32 16}"""
RARELY, LESS_OFTEN = "!5", "!6"
# operations, some milliseconds: a loop of more looks for signals meanwhile; estimated, not timed
LONG = 1 << 21
LARGE = Sizes(default=LONG)  # sizes that are not known: any may be large
# operations of an iteration of a parallel loop, which looks for signals between iterations, from
# which it looks inside, too; estimated, not timed
VERY_LONG = 1 << 24
LOOK_EVERY = 1 << 16  # iterations of loops without bounds; estimated, not timed
NESTED_LOOK_EVERY = 1 << 10  # iterations of loops around long ones; estimated, not timed
STOPPED = ll.Constant("-2", ll.STATUS)  # what an entry gives then
NO_WORK = ll.Constant("null", ll.POINTER), ll.Constant("null", ll.POINTER), ll.ZERO, ll.ZERO
BEGIN, END, STATUS_POINTER = (
    ll.Value("%begin", ll.WORD),
    ll.Value("%end", ll.WORD),
    ll.Value("%status", ll.POINTER),
)
LEAVE = ll.atomic_umax(STATUS_POINTER, STOPPED), ll.returned()  # the end of a kernel that stops


def parallel_loop(kernel: ir.Kernel) -> ir.For | None:
    """The loop whose iterations a kernel hands out: all of its body."""
    loop = kernel.body[0] if len(kernel.body) == 1 else None
    return (
        loop if isinstance(loop, ir.For) and loop.kind == "parallel" and loop.stop is None else None
    )


def long_loops(block: ir.Block, parallel: ir.For | None = None) -> dict[int, int]:
    """The innermost long loops, by id, which look for signals, and after how many iterations; 0 for
    those around them: loops that could be long may be short.
    """
    factors: dict[int, int] = {}
    if parallel is not None:
        block = parallel.body if block_operations(parallel.body, LARGE, MOVED) > VERY_LONG else ()
    for s in block:
        if isinstance(s, (ir.If, ir.While)):
            factors |= long_loops(sum(ir.blocks(s), ()))
        elif isinstance(s, ir.For) and block_operations((s,), LARGE, MOVED) > LONG:
            if not (inner := long_loops(s.body)) and s.kind in ("serial", "vector"):
                each = max(1, block_operations(s.body, LARGE, MOVED))
                inner = {id(s): 1 << max(1, LONG // each).bit_length() - 1}
            factors |= {id(s): 0, **inner}
    return factors


def jumps_on(block: ir.Block) -> bool:
    """Test whether a loop's body has a `continue` of this loop."""
    return any(
        isinstance(s, ir.Continue) or (isinstance(s, ir.If) and jumps_on((*s.then, *s.otherwise)))
        for s in block
    )


def stop_if(
    b: ll.IRBuilder, test: str, status: ll.Value, value: ll.Constant, *leave: ll.Instruction
) -> None:
    """Leaves an entry whose loop has stopped for a signal handler that raised, or a kernel by other
    instructions.
    """
    stop, go_on = b.new_block(), b.new_block()
    b.do(ll.branch_if(b.add(ll.compare(test, status, value)), stop, go_on))
    b.start(stop)
    for instruction in leave or (ll.returned(STOPPED),):
        b.do(instruction)
    b.start(go_on)


def call_in_parallel(
    b: ll.IRBuilder, n: int, operands: Sequence[ll.Value], count: ll.Value, grain: int
) -> ll.Value:
    """Hands the iterations of a kernel's loop to the pool, and gives whether they have stopped; the
    kernel's number and operands go along in a context.
    """
    context = b.fresh(ll.POINTER)
    b.entry.append((context, ll.alloca(ll.array_type(len(operands) + 1, ll.WORD))))
    for k, value in enumerate([ll.index(n), *operands]):
        b.do(ll.store(value, b.add(ll.element_pointer(ll.WORD, context, ll.index(k)))))
    piece = ll.Constant("@piece", ll.POINTER)
    return b.add(ll.call(ll.PARALLEL, piece, context, count, ll.index(grain)))


def reduces_vectors(s: ir.For) -> bool:
    """Test whether a loop reduces vectors into accumulators, one after the other, without inner
    loops.
    """
    if {b.tensor for b in stores(s.body) if b.tensor.space == "register"} <= allocated(s.body):
        return False
    loops = [b for b in ir.statements(s.body) if isinstance(b, ir.For)]
    inner = all(
        b.kind == "unrolled" or (b.kind == "vector" and same_size(b.index.extent, b.width))
        for b in loops
    )
    return inner and (s.kind == "vector" or bool(loops))


def arrays_of(kernel: ir.Kernel) -> list[Tensor]:
    """The arrays a kernel is given: its parameters and its scratch buffers."""
    return [*kernel.parameters, *scratch_buffers(kernel)]


class Definition(NamedTuple):
    """A function that calls nothing by its own name; kernels that are alike have equal
    definitions.
    """

    parameters: tuple[str, ...]
    body: str

    def text(self, name: str, linkage: str = "") -> str:
        parameters = ", ".join(self.parameters)
        return f"define {linkage}void @{name}({parameters}) nounwind {{\nentry:\n{self.body}\n}}\n"

    @property
    def lines(self) -> int:
        """The number of instructions, and a few."""
        return self.body.count("\n") + 4

    def declaration(self, name: str) -> ll.Declaration:
        return ll.Declaration(ll.VOID, name, self.parameters, " nounwind")


def _unrolling(body: Sequence[ll.Block], hint: str, trips: int | None, reduces: bool) -> str:
    """The unrolling metadata of a loop: none of a long body, or around another loop, where
    unrolling does not pay.
    """
    lines = sum([len(block.items) + 1 for block in body]) - 1
    whole = lines * (trips or 0) if (trips or 0) < MANY_TURNS and not reduces else 0
    is_long = lines > (LARGEST_UNROLLED if reduces else LARGEST_COPIED) or whole > LARGEST_WHOLE
    return "1" if is_long or (trips is None and any(block.is_loop for block in body[1:])) else hint


class _Pointers(dict[Tensor, ll.Value]):
    """The pointers of arrays and buffers, numbered by first use: kernels alike but for names have
    the same text.
    """

    def __init__(self, arrays: Sequence[Tensor]) -> None:
        super().__init__()
        self.unused = dict.fromkeys(arrays)
        self.used: list[Tensor] = []

    def __missing__(self, tensor: Tensor) -> ll.Value:
        self.unused.pop(tensor)
        self[tensor] = pointer = ll.Value(f"%p{len(self.used)}", ll.POINTER)
        self.used.append(tensor)
        return pointer


# numbers the function of a kernel that the pool runs, and gives that and its arrays, in their order
HandOut: TypeAlias = Callable[[ir.Kernel, Sequence[ll.Value]], tuple[int, list[Tensor]]]


class KernelEmitter:
    """Emits one kernel's statements. `ask` numbers what it requires."""

    def __init__(
        self,
        kernel: ir.Kernel,
        sizes: Sequence[object],
        ask: Callable[[str, Span], int],
        optimize: bool = True,
        hand_out: HandOut | None = None,
    ) -> None:
        self.kernel = kernel
        self.ask, self.hand_out = ask, hand_out  # the latter of parallel loops inside
        self.optimize = optimize  # hoist what loops do not change, and hint at unrolling
        self.arrays = _Pointers(arrays_of(kernel))
        self.sizes: dict[object, ll.Value] = {
            atom: ll.Value(f"%s{n}", ll.WORD) for n, atom in enumerate(sizes)
        }
        self.b = ll.IRBuilder()
        mutable = {*ir.written(kernel), *(kernel.parameters if kernel.aliasing else ())}
        self.scope = KnownValues(mutable, self.arrays)
        # where break and continue go, by loop, and its kind
        self.targets: list[tuple[ll.Block, ll.Block, ir.LoopKind]] = []
        self.turns_left: ll.Value | None = None  # until a loop looks for signals
        self.addresses = Addresses(
            self.b,
            self.scope,
            self.sizes,
            lambda e: self.values.value(e),
            lambda *operation: self.values.spelled(*operation),
        )
        stream = lambda *store: self.stores.stream(*store)  # noqa: E731  (they are made when first used)
        self.values = Expressions(self.b, self.scope, self.addresses, stream)
        self.has_nontemporal_stores = False
        self.parallel = parallel_loop(kernel)
        self.long = long_loops(kernel.body, self.parallel) if optimize else {}
        self.by_vectors: set[Index] = set()  # those of the vector loops so far
        self.checks = any(
            isinstance(s, ir.Guard) for s in ir.statements(kernel.body)
        )  # also of alignment

    @cached_property
    def invariants(self) -> Invariants:
        """The loop-invariant expressions, of optimized code."""
        return Invariants()

    @cached_property
    def stores(self) -> NontemporalStores:
        return NontemporalStores(self)

    def define(self) -> tuple[Definition, list[Tensor], set[ll.Declaration]]:
        """The function, its arrays in the order of its parameters, and what it calls."""
        if (self.kernel.scheduled and 0 in self.long.values()) or (  # nests of programs are large
            self.optimize and any(isinstance(s, ir.While) for s in ir.statements(self.kernel.body))
        ):
            self.turns_left = self.b.fresh(ll.POINTER)
            self.b.entry.append((self.turns_left, ll.alloca(ll.WORD)))
            self.b.do(ll.store(ll.index(LOOK_EVERY), self.turns_left))
        if self.long or self.turns_left is not None:
            self.b.declarations.add(ll.PARALLEL)
            if self.parallel is not None:  # another piece has stopped
                stop_if(
                    self.b,
                    "eq",
                    self.b.add(ll.load_shared(ll.STATUS, STATUS_POINTER)),
                    STOPPED,
                    *LEAVE,
                )
        if self.checks:
            self.check_entry()
        self.emit_block(self.kernel.body)
        if self.has_nontemporal_stores:  # they are seen in no order until then
            self.b.do(ll.Instruction("fence", ll.VOID, (), "seq_cst"))
        self.b.do(ll.returned())
        wanted = [*self.arrays.used, *self.arrays.unused]
        noalias = "" if self.kernel.aliasing else " noalias"
        pointers = [
            f"ptr{noalias}{'' if t in self.scope.written else ' readonly'} %p{n}"
            for n, t in enumerate(wanted)
        ]
        parameters = [
            *pointers,
            *(f"i64 {s.text}" for s in self.sizes.values()),
            "ptr %status",
        ]
        if self.parallel is not None:
            parameters += ["i64 %begin", "i64 %end"]
        definition = Definition(tuple(parameters), self.b.body()), wanted, self.b.declarations
        for part in (
            self.values,
            self,
        ):  # in circles, which only Python's garbage collector would free
            vars(part).clear()
        return definition

    def emit_block(self, block: ir.Block) -> None:
        for s in block:
            self.emit_statement(s)

    def emit_statement(self, s: ir.Statement) -> None:
        match s:
            case ir.Store(tensor, at, value, streaming):
                self.values.write(tensor, at, self.values.value(value), streaming)
            case ir.Let(var, value):
                self.scope.values[var] = self.values.value(value)
                self.values.lets[var] = value
            case ir.For(kind="unrolled" | "intrinsic" | "matrix" as kind):
                (self.unrolled if kind == "unrolled" else self.by_instructions)(s)
            case ir.For(kind="parallel") if self.is_handed_out(s):
                self.handed_out(s)
            case ir.For():
                self.loop(s)
            case ir.If():
                self.branch(s)
            case ir.Alloc(tensor):
                self.allocate(tensor)
            case ir.Assert(condition, message, span):
                self.require(
                    self.values.value(condition), self.ask(message, span), isinstance(s, ir.Guard)
                )
            case ir.Prefetch(tensor, at):
                self.values.vectors.prefetch(tensor, self.addresses.pointer(tensor, at))
            case ir.While(condition, body):
                self.while_loop(condition, body)
            case ir.Break() | ir.Continue():
                self.leave(ll.branch(self.targets[-1][:2][isinstance(s, ir.Continue)]))
            case ir.Return():
                self.leave(self.return_())
            case ir.Fail(message, span):
                number = ll.Constant(str(self.ask(message, span)), ll.STATUS)
                self.leave(ll.atomic_umax(STATUS_POINTER, number), ll.returned())
        self.scope.drop_stale()

    def return_(self) -> ll.Instruction:
        """The end of the kernel, or of an iteration of the parallel loop around."""
        ends = [following for _, following, kind in self.targets if kind == "parallel"]
        return ll.branch(ends[-1]) if ends else ll.returned()

    def leave(self, *instructions: ll.Instruction) -> None:
        """Ends a block by a jump. What follows, as the rest of a body, is not reached."""
        for instruction in instructions:
            self.b.do(instruction)
        self.b.start(self.b.new_block())

    def while_loop(self, condition: Expr, body: ir.Block) -> None:
        """A loop without bounds. What its body computes is known only inside of it."""
        b, scope = self.b, self.scope
        scope.drop_stale()
        outer = b.pure, scope.values, scope.addresses
        b.pure, scope.values, scope.addresses = {**outer[0]}, {**outer[1]}, {**outer[2]}
        test, turn, after = b.new_block(), b.new_block(), b.new_block()
        b.do(ll.branch(test))
        b.start(test)
        b.do(ll.branch_if(self.values.value(condition), turn, after))
        scope.drop_stale()
        b.start(turn)
        self.look_after(LOOK_EVERY)
        self.targets.append((after, test, "serial"))
        self.emit_block(body)
        self.targets.pop()
        b.do(ll.branch(test))
        b.start(after)
        b.pure, scope.values, scope.addresses = outer

    def by_instructions(self, s: ir.For) -> None:
        """A nest by matrix tiles or declared code."""
        if s.kind != "matrix":
            self.intrinsic(s)
            return
        from .emit_matrix_tiles import emit_matrix_tiles, matrix_product

        by_tiles = self.optimize and processor().matrix_tiles == "instructions"
        if not by_tiles or self.kernel.aliasing or (product := matrix_product(s)) is None:
            self.loop(s)
        else:
            emit_matrix_tiles(product, self.b, self.addresses, self.counting)

    def intrinsic(self, s: ir.For) -> None:
        """A nest by declared code, where the processor runs it and no lanes are around it."""
        from ...lowering.analysis.intrinsics import match_intrinsic

        found = match_intrinsic(s) if self.scope.lane is None else None
        if found is None or not found.intrinsic.requires <= {*features_at_hand()}:
            self.loop(s)
            return
        places = found.places
        if any(self.scope.widths.get(t, 1) > 1 for t, _ in places):
            self.loop(s)
            return
        found.intrinsic.verify()
        operands = [self.addresses.pointer(t, at) for t, at in places]
        operands += map(self.addresses.address, found.numbers)
        code = ll.Declaration(ll.VOID, f"intrinsic.{s.by}", tuple(o.type for o in operands))
        self.b.declarations.add(code)
        self.b.do(ll.call(code, *operands))
        self.scope.drop_stale()

    def handed_out(self, s: ir.For) -> None:
        """A parallel loop whose iterations the pool runs, as a function of their own; an error of
        one of them ends the kernel.
        """
        b, made = self.b, outlined(self.kernel, s)
        for cell, value in made.numbers.items():
            self.emit_statement(ir.Alloc(cell))
            self.emit_statement(ir.Store(cell, (), value))
        assert self.hand_out is not None
        others = (*self.sizes.values(), STATUS_POINTER)
        n, wanted = self.hand_out(made.kernel, others)
        operands = [*(self.arrays[made.arrays.get(t, t)] for t in wanted), *others]
        count = self.addresses.address(s.end - s.start)
        b.declarations.add(ll.PARALLEL)
        stopped = call_in_parallel(b, n, operands, count, grain(s))
        stop_if(b, "ne", stopped, ll.Constant("0", ll.STATUS), *LEAVE)
        if any(isinstance(t, (ir.Assert, ir.Fail)) for t in ir.statements(s.body)):
            status = b.add(ll.load(ll.STATUS, STATUS_POINTER))
            stop_if(b, "ne", status, ll.Constant("0", ll.STATUS), ll.returned())
        self.scope.drop_stale()

    def is_handed_out(self, s: ir.For) -> bool:
        """Test whether other threads may run iterations of a loop inside of the kernel."""
        if s.kind != "parallel" or self.hand_out is None or self.parallel is not None:
            return False
        own = allocated(s.body)
        return not any(t.tensor.space == "register" and t.tensor not in own for t in stores(s.body))

    def loop(self, s: ir.For) -> None:
        if self.optimize:
            self.compute_before(s)
        if ir.is_one_turn(s) and not ir.may_jump(s.body):
            with self.inside(s, self.addresses.address(s.start)):
                self.emit_block(s.body)
            return
        inner = adjoining(s) if s is self.parallel else None
        if inner is not None and (leading_store(inner) is not None or not left_over(inner)):
            self.several(s, inner)
            return
        if s is self.parallel:
            self.along(s, BEGIN, END)
        else:
            self.along(s, self.addresses.address(s.start), self.addresses.address(s.end))

    def several(self, s: ir.For, inner: ir.For) -> None:
        """Iterations whose parts of an inner loop adjoin, as that loop."""
        with self.inside(s, BEGIN):
            start = self.addresses.address(inner.start)
        with self.inside(s, self.b.add(ll.binary("sub", END, ll.index(1)))):
            stop = self.addresses.address(inner.end)
        self.along(inner, start, stop)

    def along(self, s: ir.For, start: ll.Value, stop: ll.Value) -> None:
        if s.kind != "vector" or not self.stores.shift(s, start, stop):
            self.turns(s, start, stop, s.width if s.kind == "vector" else 1)

    def turns(
        self,
        s: ir.For,
        start: ll.Value,
        stop: ll.Value,
        step: int,
        left_for: ll.Block | None = None,
    ) -> None:
        """A loop's body for its index from start by steps; `left_for` is where a `break` goes on,
        where that is not after these turns.
        """
        if self.long.get(id(s)):
            self.stretches(s, start, stop, step)
            return
        reduces = self.optimize and reduces_vectors(s)
        constant = start.number is not None and stop.number is not None
        hint, weights = self.hints(s, step, reduces) if self.optimize and not constant else ("", "")
        if s.kind == "vector":
            self.by_vectors.add(s.index)
        with (
            self.counting(start, stop, step, hint, weights, reduces) as (variable, after),
            self.inside(s, variable),
        ):
            following = self.b.new_block()
            self.targets.append((left_for or after, following, s.kind))
            self.emit_block(s.body)
            self.targets.pop()
            if jumps_on(s.body) or (s.kind == "parallel" and ir.may_jump(s.body)):
                self.b.do(ll.branch(following))
                self.b.start(following)
            if self.long.get(id(s)) == 0:
                self.look_after(NESTED_LOOK_EVERY)
            if reduces and reads_in_order(s):
                self.b.do(SINGLE_THREAD_ACQUIRE)

    def stretches(self, s: ir.For, start: ll.Value, stop: ll.Value, step: int) -> None:
        """A long loop in stretches, between which it looks for signals: a look inside of the body
        would keep LLVM from making vectors of it.
        """
        b, every = self.b, self.long.pop(id(s))
        size = ll.index(every + -every % step)
        span = stop  # counted from 0, as the end of a stretch may be beyond the greatest integer
        if start.number != 0:
            some, difference = b.add(ll.compare("slt", start, stop)), ll.binary("sub", stop, start)
            span = b.add(ll.select(some, b.add(difference), ll.index(0)))
        with self.counting(ll.index(0), span, every + -every % step) as (done, after):
            first = b.linear("add", start, done)
            more = b.add(ll.compare("slt", size, b.linear("sub", span, done)))
            end = b.add(ll.select(more, b.linear("add", first, size), stop))
            self.turns(s, first, end, step, after)
            self.look_if(more)
        self.long[id(s)] = every

    def look_after(self, turns: int) -> None:
        """Count an iteration, and look for signals after `turns` of them, in optimized code."""
        if self.turns_left is not None:
            b, part = self.b, ll.index(LOOK_EVERY // turns)
            left = b.add(ll.binary("sub", b.add(ll.load(ll.WORD, self.turns_left)), part))
            b.do(ll.store(left, self.turns_left))
            rest = b.add(ll.binary("and", left, ll.index(LOOK_EVERY - 1)))
            self.look_if(b.add(ll.compare("ult", rest, part)))

    def look_if(self, due: ll.Value) -> None:
        """Looks for signals if they are due, and leaves the kernel if a handler has raised."""
        b = self.b
        outer, b.pure = b.pure, dict(b.pure)
        ask, go_on = b.new_block(), b.new_block()
        b.do(ll.branch_if(due, ask, go_on, f"!prof {RARELY}"))
        b.start(ask)
        stop_if(b, "ne", b.add(ll.call(ll.PARALLEL, *NO_WORK)), ll.Constant("0", ll.STATUS), *LEAVE)
        if self.parallel is not None:
            stop_if(
                b,
                "eq",
                b.add(ll.load_shared(ll.STATUS, STATUS_POINTER)),
                STOPPED,
                *LEAVE,
            )
        b.do(ll.branch(go_on))
        b.start(go_on)
        b.pure = outer

    def hints(self, s: ir.For, step: int, reduces: bool) -> tuple[str, str]:
        """The metadata of a loop of an unknown number of turns: of its unrolling, and of whether it
        has any turns.
        """
        if s.kind != "vector" and s.index in self.by_vectors:
            return (
                "1",
                LESS_OFTEN,
            )  # what vectors leave over: few turns, and registers are for the others
        few = isinstance(s.index.extent, int) and s.index.extent <= FEW_TURNS * step
        return "1" if few else "3" if reduces else "", ""

    @contextmanager
    def counting(
        self,
        start: ll.Value,
        stop: ll.Value,
        step: int,
        hint: str = "",
        weights: str = "",
        reduces: bool = False,
    ) -> Iterator[tuple[ll.Value, ll.Block]]:
        """A loop with a variable around what is emitted meanwhile, and the block after it; `hint`
        and `weights` name METADATA.
        """
        b = self.b
        before, body, after = b.block, b.new_block(), b.new_block()
        variable, following = b.fresh(ll.WORD), b.fresh(ll.WORD)
        b.open_frame()
        begin, end = start.number, stop.number
        trips = None if begin is None or end is None else (end - begin) // step
        if begin is not None and end is not None and begin < end:
            b.do(ll.branch(body))
        else:
            some = b.add(ll.compare("slt", start, stop))
            b.do(ll.branch_if(some, body, after, f"!prof {weights}" if weights else ""))
        first = len(b.blocks)
        b.start(body)
        b.open_frame(variable)
        outer, b.pure = b.pure, dict(b.pure)
        yield variable, after
        b.pure = outer
        del b.frames[-2:]
        body.items.insert(0, (variable, ll.phi((start, before), (following, b.block))))
        b.define(following, ll.binary("add", variable, ll.index(step), "nuw nsw"))
        if self.optimize:
            hint = _unrolling(b.blocks[first:], hint, trips, reduces)
        test = b.add(ll.compare("slt", following, stop))
        b.do(ll.branch_if(test, body, after, f"!llvm.loop !{hint}" if hint else ""))
        b.start(after)

    def first_place(self, s: ir.For, store: ir.Store, start: ll.Value) -> ll.Value:
        with self.inside(s, start):
            return self.addresses.pointer(store.tensor, store.indices)

    def compute_before(self, s: ir.For) -> None:
        """Emit a loop's invariant values before it."""
        for e, is_index in self.invariants.of(s):
            if self.scope.changes(e):
                continue
            if is_index and e.type is I64:  # else a number that an index is computed of
                self.addresses.address(e)
            else:
                self.values.value(e)

    @contextmanager
    def inside(self, s: ir.For, variable: ll.Value) -> Iterator[None]:
        """The scope of a loop's body, in which its index has a value."""
        scope = self.scope
        scope.drop_stale()
        outer = scope.values, scope.addresses, scope.lane, scope.lanes, scope.first
        scope.values, scope.addresses = dict(scope.values), dict(scope.addresses)
        if s.kind == "vector":
            assert scope.lane is None, "a vector loop inside another"
            scope.lane, scope.lanes, scope.first = s.index, s.width, begins(s.start, s.end, s.width)
            scope.values.pop(s.index, None)
        else:
            scope.values[s.index] = variable
        scope.addresses[s.index] = variable
        yield
        scope.values, scope.addresses, scope.lane, scope.lanes, scope.first = outer

    def unrolled(self, s: ir.For) -> None:
        if self.optimize:
            self.compute_before(s)
        start, end = s.start, s.end
        assert isinstance(start, Const) and isinstance(end, Const), (
            "an unrolled loop has constant bounds"
        )
        stored = {t.tensor for t in ir.statements(s.body) if isinstance(t, ir.Store)}
        vectors = self.values.vectors
        outer = vectors.square
        vectors.square = Square(s.index, start.value, stored, {}) if square_of(s) else None
        for n in range(start.value, end.value):
            with self.inside(s, ll.index(n)):
                self.emit_block(s.body)
        vectors.square = outer

    def branch(self, s: ir.If) -> None:
        condition = self.values.value(s.condition)
        assert condition.lanes == 1, "a branch on a condition that differs between lanes"
        self.scope.drop_stale()
        b, scope = self.b, self.scope
        yes, no, after = b.new_block(), b.new_block(), b.new_block()
        rare = ir.is_rare(s) or (bool(s.then) and isinstance(s.then[-1], (ir.Fail, ir.Return)))
        weights = f"!prof {RARELY}" if rare else ""  # the usual way decides what stays in registers
        b.do(ll.branch_if(condition, yes, no if s.otherwise else after, weights))
        for start, block in ((yes, s.then), (no, s.otherwise)):
            if start is yes or block:
                outer = b.pure, scope.values, scope.addresses
                b.pure, scope.values, scope.addresses = (
                    dict(b.pure),
                    dict(scope.values),
                    dict(scope.addresses),
                )
                b.start(start)
                self.emit_block(block)
                b.do(ll.branch(after))
                b.pure, scope.values, scope.addresses = outer
        b.start(after)

    def allocate(self, tensor: Tensor) -> None:
        """A buffer in registers or on the stack; inside a vector loop one for each lane."""
        if tensor.space == "heap":
            return
        size = product(tensor.shape)
        assert isinstance(size, int), "register and stack buffers have known sizes"
        self.scope.widths[tensor] = self.scope.lanes
        cell = ll.memory_type(tensor.element, self.scope.lanes)
        self.arrays[tensor] = pointer = self.b.fresh(ll.POINTER)
        buffer = (
            ll.alloca(ll.array_type(size, cell), f"align {ALIGNMENT}")
            if tensor.shape
            else ll.alloca(cell)
        )
        self.b.entry.append((pointer, buffer))

    def check_entry(self) -> None:
        """Ends the kernel if a check of one before has failed, which is the one to report; checks
        the arrays' alignment.
        """
        status = self.b.add(ll.load_shared(ll.STATUS, STATUS_POINTER))
        self.require(
            self.b.add(ll.compare("eq", status, ll.Constant("0", ll.STATUS))), 0, ends=True
        )
        for tensor in arrays_of(self.kernel):
            self.require_alignment(tensor, self.arrays[tensor], tensor.element.bytes)

    def require_alignment(self, tensor: Tensor, pointer: ll.Value, size: int) -> None:
        """Checks that a pointer is a multiple of the bytes that an access assumes."""
        address = self.b.add(ll.cast("ptrtoint", pointer, ll.WORD))
        aligned = self.b.add(
            ll.compare("eq", self.b.add(ll.binary("and", address, ll.index(size - 1))), ll.ZERO)
        )
        message = (
            f"sanitize: an access of %{tensor.name} is not aligned to {size} bytes (kernel "
            f"@{self.kernel.name})"
        )
        self.require(aligned, self.ask(message, self.kernel.span), ends=True)

    def require(self, condition: ll.Value, number: int, ends: bool) -> None:
        b, test = (
            self.b,
            condition if condition.lanes == 1 else self.values.over_lanes("and", condition),
        )
        good, bad = b.new_block(), b.new_block()
        b.do(ll.branch_if(test, good, bad))
        b.start(bad)
        b.do(ll.atomic_umax(STATUS_POINTER, ll.Constant(str(number), ll.STATUS)))
        b.do(ll.returned() if ends else ll.branch(good))
        b.start(good)
