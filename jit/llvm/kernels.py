"""A kernel to a function in LLVM IR, as text. Knows the loop language and the spelling of scalar functions, and no operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

from ...dialect.ir.diagnostics import Span
from ...dialect.ir.sizes import product, same_size
from ...dialect.ir.types import I64
from ...dialect.notation.expressions import Apply, Const, Index, Tensor
from ...dialect.notation.loops import (
    Alloc,
    Assert,
    Block,
    For,
    If,
    Kernel,
    Let,
    Prefetch,
    Statement,
    Store,
    is_one_turn,
    scratch_buffers,
    statements,
    written,
)
from ...lowering.analysis.accesses import allocated, stores
from ...lowering.analysis.lane_offsets import begins
from ...lowering.analysis.vector_stores import left_over
from ...lowering.loops.nontemporal_stores import leading_store
from ...lowering.loops.parallelize import adjoining
from ...lowering.storage.place_buffers import ALIGNMENT
from .addresses import Val
from .expressions import Expressions, Square
from .ir_writer import is_number, memory_text
from .keep_load_order import FENCE, reads_in_order
from .loop_invariants import Invariants
from .nontemporal_stores import NontemporalStores
from .prefetch import FURTHER, few_each_time, is_fed_by_memory, picked_later, prefetch_distance

LARGEST_UNROLLED = 40  # lines of the body of a loop that folds vectors: beyond that LLVM does not unroll it
LARGEST_COPIED, LARGEST_WHOLE = 20, 128  # the same for another loop, and for all of its turns together
MANY_TURNS, FEW_TURNS = 64, 4  # so many of them are not unrolled wholly; so few, of a number not known, not at all
METADATA = """!0 = !{i32 1}
!1 = distinct !{!1, !2}
!2 = !{!"llvm.loop.unroll.disable"}
!3 = distinct !{!3, !4}
!4 = !{!"llvm.loop.unroll.count", i32 4}
!5 = !{!"branch_weights", i32 1, i32 1000000}
!6 = !{!"branch_weights", i32 1, i32 16}"""
RARELY, LESS_OFTEN = "!5", "!6"


def parallel_loop(kernel: Kernel) -> For | None:
    """The loop whose iterations a kernel hands out: all of its body."""
    loop = kernel.body[0] if len(kernel.body) == 1 else None
    return loop if isinstance(loop, For) and loop.kind == "parallel" and loop.stop is None else None


def is_square(s: For) -> bool:
    """Test whether every iteration of an unrolled loop has one vector and no branches, so that its first one may load
    for all.
    """
    match s.body:
        case (For(_, body, Const(0), _, "vector", width) as lanes,):
            return lanes.index.extent == width and not any(isinstance(b, (For, If)) for b in statements(body))
    return False


def reduces_vectors(s: For) -> bool:
    """Test whether a loop reduces vectors into accumulators, one after the other, without inner loops."""
    if not any(b.tensor.space == "register" for b in stores(s.body) if b.tensor not in allocated(s.body)):
        return False
    loops = [b for b in statements(s.body) if isinstance(b, For)]
    inner = all(b.kind == "unrolled" or (b.kind == "vector" and same_size(b.index.extent, b.width)) for b in loops)
    return inner and (s.kind == "vector" or bool(loops))


def arrays_of(kernel: Kernel) -> list[Tensor]:
    """The arrays a kernel is given: its parameters and its scratch buffers."""
    return [*kernel.parameters, *scratch_buffers(kernel)]


class _Pointers(dict[Tensor, str]):
    """The pointers of arrays and buffers. Those of the kernel's arrays are numbered as they are first used, so that kernels
    that differ only in the names of arrays have the same text."""

    def __init__(self, arrays: Sequence[Tensor]) -> None:
        super().__init__()
        self.unused = dict.fromkeys(arrays)
        self.used: list[Tensor] = []

    def __missing__(self, tensor: Tensor) -> str:
        self.unused.pop(tensor)
        self[tensor] = name = f"%p{len(self.used)}"
        self.used.append(tensor)
        return name

    def in_order(self) -> list[Tensor]:
        """The arrays in the order of their numbers, then those that are not used."""
        return [*self.used, *self.unused]


class Function(Expressions):
    """One kernel's statements being emitted. `ask` numbers what it requires, `declarations` are of what it calls."""

    def __init__(
        self, kernel: Kernel, sizes: Sequence[object], ask: Callable[[str, Span], int], optimize: bool = True
    ) -> None:
        super().__init__({atom: f"%s{n}" for n, atom in enumerate(sizes)}, written(kernel), set())
        self.has_nontemporal_stores = False
        self._nontemporal: NontemporalStores | None = None
        self.ask = ask
        self.kernel = kernel
        self.pointers = self.arrays = _Pointers(arrays_of(kernel))
        self.parallel = parallel_loop(kernel)
        self.by_vectors: set[Index] = set()  # those of the vector loops so far
        self.asked = {s.tensor for s in statements(kernel.body) if isinstance(s, Prefetch)}
        self.optimize = optimize  # hoist what loops do not change, prefetch, and hint at unrolling
        fed = optimize and is_fed_by_memory(kernel)
        self.early = prefetch_distance(kernel) if fed else {}
        self.picked = picked_later(kernel) if fed else {}
        self.few = few_each_time(kernel) if fed else {}

    @cached_property
    def invariants(self) -> Invariants:
        """The loop-invariant expressions, of optimized code."""
        return Invariants()

    @property
    def nontemporal(self) -> NontemporalStores:
        if self._nontemporal is None:
            self._nontemporal = NontemporalStores(self)
        return self._nontemporal

    def define(self) -> tuple[str, list[Tensor]]:
        """The function, named @kernel, and its arrays, in the order of its parameters."""
        self.emit_block(self.kernel.body)
        if self.has_nontemporal_stores:
            self.raw("fence seq_cst")  # streamed stores are seen in no order until then
        self.raw("ret void")
        body = "\n".join(["entry:", *self.entry, *self.all_lines(), "}", ""])
        wanted = self.arrays.in_order()
        pointers = [f"ptr noalias{'' if t in self.written else ' readonly'} %p{n}" for n, t in enumerate(wanted)]
        parameters = [*pointers, *(f"i64 {s}" for s in self.sizes.values()), "ptr noalias %status"]
        if self.parallel is not None:
            parameters += ["i64 %begin", "i64 %end"]
        return f"define internal void @kernel({', '.join(parameters)}) nounwind {{\n{body}", wanted

    def emit_block(self, block: Block) -> None:
        outer = dict(self.known), dict(self.addresses)
        for s in block:
            self.emit_statement(s)
        self.known, self.addresses = outer

    def emit_statement(self, s: Statement) -> None:
        match s:
            case For(kind="unrolled"):
                self.unrolled(s)
            case For():
                self.loop(s)
            case If():
                self.branch(s)
            case Let(var, value):
                self.remember(var, self.value(value))
            case Alloc(tensor):
                self.allocate(tensor)
            case Store(tensor, at, value, streaming):
                self.write(tensor, at, self.value(value), streaming)
            case Assert(condition, message, span):
                self.require(self.value(condition), self.ask(message, span))
            case Prefetch(tensor, at):
                self.ask_for(tensor, self.pointer(tensor, at), 0)
        self.drop_stale()

    def loop(self, s: For) -> None:
        if self.optimize:
            self.compute_before(s)
        for r in self.picked.get(id(s), ()):
            self.ask_for(r.tensor, self.pointer(r.tensor, r.indices), 0)
        if is_one_turn(s):
            with self.inside(s, self.address(s.start)):
                self.emit_block(s.body)
            return
        inner = adjoining(s) if s is self.parallel else None
        if inner is not None and (leading_store(inner) is not None or not left_over(inner)):
            self.several(s, inner)
            return
        start, stop = ("%begin", "%end") if s is self.parallel else (self.address(s.start), self.address(s.end))
        self.along(s, start, stop)

    def several(self, s: For, inner: For) -> None:
        """Iterations whose parts of an inner loop adjoin, as that loop."""
        with self.inside(s, "%begin"):
            start = self.address(inner.start)
        with self.inside(s, self.add("sub i64 %end, 1")):
            stop = self.address(inner.end)
        self.along(inner, start, stop)

    def along(self, s: For, start: str, stop: str) -> None:
        if s.kind != "vector" or not self.nontemporal.shift(s, start, stop):
            self.turns(s, start, stop, str(s.width if s.kind == "vector" else 1))

    def turns(self, s: For, start: str, stop: str, step: str) -> None:
        """A loop's body for its index from start by steps."""
        known, folds = is_number(start) and is_number(stop), self.optimize and reduces_vectors(s)
        hint, weights = "3" if folds and not known else "", ""
        if not known and isinstance(s.index.extent, int) and s.index.extent <= FEW_TURNS * int(step):
            hint = "1"
        if s.kind == "vector":
            self.by_vectors.add(s.index)
        elif s.index in self.by_vectors and not known:
            hint, weights = "1", LESS_OFTEN  # what vectors leave over: few turns, and registers are for the others
        with self.counting(start, stop, step, hint, weights, folds) as variable, self.inside(s, variable):
            for r in self.few.get(id(s), ()):
                self.ask_for(r.tensor, self.pointer(r.tensor, r.indices), FURTHER // r.tensor.element.bytes)
            self.emit_block(s.body)
            if folds and reads_in_order(s):
                self.raw(FENCE)

    @contextmanager
    def counting(
        self, start: str, stop: str, step: str, hint: str = "", weights: str = "", folds: bool = False
    ) -> Iterator[str]:
        """A loop around what is emitted meanwhile, which has a variable; what METADATA has under `hint` is said of it, and
        under `weights` of whether it has any turns."""
        before, body, after = self.block, self.label(), self.label()
        variable, following = self.fresh(), self.fresh()
        self.open_frame()
        if is_number(start) and is_number(stop) and int(start) < int(stop):
            self.raw(f"br label %{body}")
        else:
            any_turns, often = self.add(f"icmp slt i64 {start}, {stop}"), f", !prof {weights}" if weights else ""
            self.raw(f"br i1 {any_turns}, label %{body}, label %{after}{often}")
        self.start(body)
        phi = len(self.lines)
        self.open_frame(variable)
        outer, self.pure = self.pure, dict(self.pure)
        yield variable
        self.pure = outer
        del self.frames[-2:]
        self.lines.insert(phi, f"  {variable} = phi i64 [ {start}, %{before} ], [ {following}, %{self.block} ]")
        self.raw(f"{following} = add nuw nsw i64 {variable}, {step}")
        known = is_number(start) and is_number(stop)
        lines = len(self.lines) - phi
        turns = (int(stop) - int(start)) // int(step) if known else 0
        whole = lines * turns if turns < MANY_TURNS and not folds else 0
        largest = LARGEST_UNROLLED if folds else LARGEST_COPIED
        if lines > largest or whole > LARGEST_WHOLE or (not known and self.holds_loop(phi + 1)):
            hint = "1"
        test = self.add(f"icmp slt i64 {following}, {stop}")
        self.raw(f"br i1 {test}, label %{body}, label %{after}{f', !llvm.loop !{hint}' if hint else ''}")
        self.start(after)

    def holds_loop(self, since: int) -> bool:
        """Test whether a loop was emitted since then; unrolling around it does not pay."""
        return any(isinstance(line, str) and " = phi " in line for line in self.lines[since:])

    def first_place(self, s: For, store: Store, start: str) -> str:
        with self.inside(s, start):
            return self.pointer(store.tensor, store.indices)

    def compute_before(self, s: For) -> None:
        """Emit a loop's invariant values before it."""
        for e, is_index in self.invariants.of(s):
            if self.changes(e):
                continue
            if is_index and e.type is I64:  # else a number that an index is computed of
                self.address(e)
            else:
                self.value(e)

    @contextmanager
    def inside(self, s: For, variable: str) -> Iterator[None]:
        """The scope of a loop's body, in which its index has a value."""
        self.drop_stale()
        outer = self.known, self.addresses, self.lane, self.lanes, self.first
        self.known, self.addresses = dict(self.known), dict(self.addresses)
        if s.kind == "vector":
            assert self.lane is None, "a vector loop inside another"
            self.lane, self.lanes, self.first = s.index, s.width, begins(s.start, s.end, s.width)
            self.known.pop(id(s.index), None)
        else:
            self.known[id(s.index)] = Val(variable)
        self.addresses[id(s.index)] = variable
        self.kept.append(s.index)
        yield
        self.known, self.addresses, self.lane, self.lanes, self.first = outer

    def unrolled(self, s: For) -> None:
        if self.optimize:
            self.compute_before(s)
        start, end = s.start, s.end
        assert isinstance(start, Const) and isinstance(end, Const), "an unrolled loop has constant bounds"
        stored = {t.tensor for t in statements(s.body) if isinstance(t, Store)}
        outer, self.square = self.square, Square(s.index, start.value, stored, {}) if is_square(s) else None
        for n in range(start.value, end.value):
            with self.inside(s, str(n)):
                self.emit_block(s.body)
        self.square = outer

    def branch(self, s: If) -> None:
        condition = self.value(s.condition)
        assert condition.lanes == 1, "a branch on a condition that differs between lanes"
        self.drop_stale()
        yes, no, after = self.label(), self.label(), self.label()
        rare = isinstance(s.condition, Apply) and s.condition.function == "any"
        weights = f", !prof {RARELY}" if rare else ""  # the usual way decides what stays in registers
        self.raw(f"br i1 {condition.text}, label %{yes}, label %{no if s.otherwise else after}{weights}")
        for label, block in ((yes, s.then), (no, s.otherwise)):
            if label == yes or block:
                outer, self.pure = self.pure, dict(self.pure)
                self.start(label)
                self.emit_block(block)
                self.raw(f"br label %{after}")
                self.pure = outer
        self.start(after)

    def allocate(self, tensor: Tensor) -> None:
        """A buffer in registers or on the stack; inside a vector loop one for each lane."""
        if tensor.space == "heap":
            return
        size = product(tensor.shape)
        assert isinstance(size, int), "register and stack buffers have known sizes"
        self.widths[tensor] = self.lanes
        cell = memory_text(tensor.element, self.widths.get(tensor, 1))
        self.pointers[tensor] = name = self.fresh()
        aligned = f", align {ALIGNMENT}" if tensor.shape else ""
        self.entry.append(f"  {name} = alloca {f'[{size} x {cell}]' if tensor.shape else cell}{aligned}")

    def require(self, condition: Val, number: int) -> None:
        test, lanes = condition.text, condition.lanes
        if lanes > 1:
            test = self.over_lanes("and", test, lanes)
        good, bad = self.label(), self.label()
        self.raw(f"br i1 {test}, label %{good}, label %{bad}")
        self.start(bad)
        self.raw(f"atomicrmw umax ptr %status, i32 {number} monotonic")
        self.raw(f"br label %{good}")
        self.start(good)
