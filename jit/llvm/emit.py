"""Plans to LLVM IR: a module of the functions of their kernels, and of the entries that call these
in turn:

    i32 @entry(ptr arguments, ptr sizes, ptr workspace)      0, or the failed requirement's number

`arguments` holds a pointer for each argument, result and constant, in that order. No user's name
reaches the text.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, get_args

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.kernel_ir.execution_plan import Loop, Plan, Requirements
from ...dialect.support.diagnostics import Span
from ...dialect.types.sizes import Dim, atoms_of, in_order, key_of
from ...lowering.loops.parallelize import grain
from . import ir_builder as ll
from .addresses import size_value
from .emit_plan_loops import emit_loop
from .kernels import (
    BEGIN,
    END,
    METADATA,
    STATUS_POINTER,
    STOPPED,
    Definition,
    KernelEmitter,
    call_in_parallel,
    parallel_loop,
    stop_if,
)

INTERNAL = "internal "
_NODES: tuple[Any, ...] = (*get_args(ir.Statement), *ex.Expr.__subclasses__(), ex.Tensor)
# what a node is beside its name
_PARTS = {
    c: attrgetter("__class__", "__class__", *(f for f in c.__match_args__ if f != "name"))
    for c in _NODES
}


@dataclass(frozen=True)
class Text:
    """The IR of a plan: the module, which sizes it wants in which order, and what it may report."""

    module: ll.Module
    sizes: tuple[tuple[object, ...], ...]
    requirements: tuple[tuple[str, Span], ...]
    pipeline: str = "few"  # of PIPELINES in llvm_context


def emit_plans(*plans: Plan, optimize: bool = True, linkage: str = "") -> Text:
    """The IR of every kernel of a plan, and of the entry that runs them; of further plans `@entry1`
    and so on.
    """
    emission = Emission(*plans, optimize=optimize, nested=True)
    for kernel in (k for plan in plans for k in plan.all_kernels):
        emission.add(kernel)
    return Text(
        emission.module(plans, linkage=linkage), emission.sizes, tuple(emission.requirements.listed)
    )


class Emission:
    """Kernels that go together being emitted, those of plans, or what such plans become."""

    # the operands of parallel loops inside of kernels, if they go to the pool
    pieces: dict[int, list[ll.Value]] | None

    def __init__(self, *plans: Plan, optimize: bool = True, nested: bool = False) -> None:
        self.optimize, self.pieces = optimize, {} if nested else None
        self.sizes = tuple(sorted(atoms_of(d for plan in plans for d in _dims(plan)), key=in_order))
        self.requirements = Requirements(plans)
        self.functions: list[Definition] = []
        self.declarations: list[set[ll.Declaration]] = []  # of what each of them calls
        self._numbers: dict[Definition, int] = {}  # kernels that are alike have one function
        self._alike: dict[
            object, tuple[int, list[ex.Tensor], dict[Any, int]]
        ] = {}  # by their structures
        self._calls: dict[
            ir.Kernel, tuple[int, list[ex.Tensor]]
        ] = {}  # the function's number, and what it is given

    def add(self, kernel: ir.Kernel) -> None:
        """Emits a kernel's function, unless a kernel before was alike."""
        key, numbers = structure(kernel) if self.optimize else (kernel, {})
        key = key, kernel.aliasing
        if key in self._alike:
            n, wanted, places = self._alike[key]
            self._calls[kernel] = n, [[*numbers][places[t]] for t in wanted]
            return
        emitter = KernelEmitter(
            kernel,
            self.sizes,
            self.requirements.number,
            self.optimize,
            None if self.pieces is None else self.hand_out,
        )
        function, wanted, declarations = emitter.define()
        if (n := self._numbers.setdefault(function, len(self.functions))) == len(self.functions):
            self.functions.append(function)
            self.declarations.append(declarations)
        self._calls[kernel] = n, wanted
        self._alike[key] = n, wanted, numbers

    def hand_out(
        self, kernel: ir.Kernel, others: Sequence[ll.Value]
    ) -> tuple[int, list[ex.Tensor]]:
        """The number of the function of a parallel loop of another kernel, and its arrays; `others`
        are the operands after these.
        """
        self.add(kernel)
        n, wanted = self._calls[kernel]
        assert self.pieces is not None
        self.pieces[n] = [*(ll.Value("", ll.POINTER) for _ in wanted), *others]
        return n, wanted

    def module(self, plans: Sequence[Plan], first: int = 0, linkage: str = "") -> ll.Module:
        """The entries of plans whose kernels were emitted, and the functions from a number on; the
        others are elsewhere.
        """
        pieces = {**(self.pieces or {})}
        entries = [
            self._entry(plan, f"entry{k or ''}", pieces, linkage) for k, plan in enumerate(plans)
        ]
        declared = {
            function.declaration(f"kernel_{n}") for n, function in enumerate(self.functions[:first])
        }
        stops = bool(pieces) or any(isinstance(k, Loop) for plan in plans for k in plan.kernels)
        declared.update([ll.PARALLEL] * stops)
        return self.part(
            first, declared, [*([_pieces_text(pieces)] if pieces else []), *entries], INTERNAL
        )

    def part(
        self,
        first: int,
        declared: Collection[ll.Declaration] = (),
        further: Sequence[str] = (),
        linkage: str = "",
    ) -> ll.Module:
        """A module of the functions from a number on, and further ones."""
        declared = set(declared).union(*self.declarations[first:])
        functions = [
            f.text(f"kernel_{n}", linkage) for n, f in enumerate(self.functions[first:], first)
        ]
        return ll.Module(
            tuple(sorted(declared, key=str)), "\n".join([*functions, *further, METADATA, ""])
        )

    def _entry(self, plan: Plan, name: str, pieces: dict[int, list[ll.Value]], linkage: str) -> str:
        """The function that calls every kernel with its arrays; `pieces` receives the operands of
        parallel kernels.
        """
        b = ll.IRBuilder()
        arguments, given_sizes, workspace = (
            ll.Value(f"%{n}", ll.POINTER) for n in ("arguments", "sizes", "workspace")
        )
        tensors = (*plan.arguments, *plan.results, *plan.data)
        pointers = {t: b.load_at(ll.POINTER, arguments, n) for n, t in enumerate(tensors)}
        sizes: dict[object, ll.Value] = {
            a: b.load_at(ll.WORD, given_sizes, n) for n, a in enumerate(self.sizes)
        }
        for tensor, offset in plan.offsets.items():
            pointers[tensor] = b.add(
                ll.element_pointer(ll.BYTE, workspace, size_value(b, offset, sizes))
            )
        b.define(STATUS_POINTER, ll.alloca(ll.STATUS))
        b.do(ll.store(ll.Constant("0", ll.STATUS), STATUS_POINTER))
        loops: list[str] = []
        for kernel in plan.kernels:
            if isinstance(kernel, Loop):
                step, arrays = (
                    f"{name}_loop{len(loops)}",
                    (*kernel.parameters, *kernel.scratch, *kernel.plan.data),
                )
                emit_loop(
                    b, kernel, step, {t: pointers[plan.home.get(t, t)] for t in arrays}, sizes
                )
                loops.append(self._entry(kernel.plan, step, pieces, INTERNAL))
                continue
            n, wanted = self._calls[kernel]
            operands = [
                *(pointers[plan.home.get(t, t)] for t in wanted),
                *sizes.values(),
                STATUS_POINTER,
            ]
            if (loop := parallel_loop(kernel)) is None:
                b.do(_call_of(n, operands))
            else:
                count = size_value(b, loop.index.extent, sizes)
                stopped = call_in_parallel(b, n, operands, count, grain(loop))
                stop_if(b, "ne", stopped, ll.Constant("0", ll.STATUS))
                pieces[n] = operands
            if ll.PARALLEL in self.declarations[n]:
                stop_if(b, "eq", b.add(ll.load(ll.STATUS, STATUS_POINTER)), STOPPED)
        b.do(ll.returned(b.add(ll.load(ll.STATUS, STATUS_POINTER))))
        head = f"define {linkage}i32 @{name}(ptr %arguments, ptr %sizes, ptr %workspace) nounwind"
        return "\n".join([*loops, f"{head} {{\n{b.body()}\n}}"])


def structure(kernel: ir.Kernel) -> tuple[object, dict[Any, int]]:
    """A key, equal for kernels that are alike but for names, and the numbers of the nodes, the same
    in all of these.
    """
    found: list[object] = []
    numbers: dict[Any, int] = {}
    for top in (kernel.body, *kernel.parameters):
        stack: list[Any] = [] if top in numbers else [top]
        while stack:
            x = stack.pop()
            if x.__class__ is tuple:
                found.append(len(x))
                stack += x
            elif x.__class__ is ex.Const:
                found += x.type, repr(x.value), x.value  # 0.0 is not -0.0, and no NaN is another
            elif (parts := _PARTS.get(x.__class__)) is None:
                found.append(key_of(x))
            elif x in numbers:
                found.append(numbers[x])
            else:
                numbers[x] = len(numbers)
                stack += parts(x)
    return tuple(found), numbers


def _dims(plan: Plan) -> list[Dim]:
    """Every size that a plan's code may want."""
    tensors = [
        *plan.arguments,
        *plan.results,
        *plan.offsets,
        *(p for k in plan.kernels for p in k.parameters),
    ]
    within = [d for k in plan.kernels if isinstance(k, Loop) for d in _dims(k.plan)]
    return [d for t in tensors for d in t.shape] + [*plan.offsets.values(), plan.workspace, *within]


def _call_of(n: int, operands: Sequence[ll.Value]) -> ll.Instruction:
    return ll.call(ll.Declaration(ll.VOID, f"kernel_{n}", ()), *operands)


def _pieces_text(pieces: Mapping[int, list[ll.Value]]) -> str:
    """The function that runs iterations of the kernel in a context; one for all, as LLVM takes time
    for each.
    """
    b, context = ll.IRBuilder(), ll.Value("%context", ll.POINTER)
    number = b.add(ll.load(ll.WORD, context))
    last, blocks = b.new_block(), {n: b.new_block() for n in pieces}
    cases: list[ll.Value] = [v for n, block in blocks.items() for v in (ll.index(n), block)]
    b.do(ll.Instruction("switch", ll.VOID, (number, last, *cases)))
    for n, operands in pieces.items():
        b.start(blocks[n])
        at = [
            b.add(ll.element_pointer(ll.WORD, context, ll.index(k)))
            for k in range(1, len(operands) + 1)
        ]
        b.do(
            _call_of(
                n,
                [
                    *[b.add(ll.load(v.type, a)) for v, a in zip(operands, at, strict=True)],
                    BEGIN,
                    END,
                ],
            )
        )
        b.do(ll.branch(last))
    b.start(last)
    b.do(ll.returned())
    head = (
        "define internal void @piece(ptr %context, i64 %begin, i64 %end) nounwind optnone noinline"
    )
    return f"{head} {{\n{b.body()}\n}}\n"
