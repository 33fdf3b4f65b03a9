"""Plans to LLVM IR, as text: a module of the functions of their kernels, and of the entries that call these in turn:

    i32 @entry(ptr arguments, ptr sizes, ptr workspace)      0, or the number of the requirement that does not hold

`arguments` holds a pointer for each argument, result and constant, in that order. No name of the user's reaches the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...dialect.ir.diagnostics import Span
from ...dialect.ir.sizes import Dim, Size
from ...dialect.notation.expressions import Tensor
from ...dialect.notation.loops import Kernel, Loop
from ...dialect.notation.plan import Plan, Requirements
from ...lowering.loops.parallelize import grain
from .ir_writer import PARALLEL, Declaration, IRWriter
from .kernels import METADATA, Function, parallel_loop
from .plan_loops import emit_loop

INTERNAL = "define internal "


@dataclass(frozen=True)
class Text:
    """The IR of a plan: the module, which sizes it wants in which order, and what it may report."""

    module: str
    sizes: tuple[tuple[object, ...], ...]
    requirements: tuple[tuple[str, Span], ...]
    slp: bool = False  # whether scalars side by side are worth vectors


def emit(*plans: Plan, optimize: bool = True) -> Text:
    """The IR of every kernel of a plan, and of the entry that runs them; of further plans `@entry1` and so on."""
    emission = Emission(*plans, optimize=optimize)
    for kernel in (k for plan in plans for k in plan.all_kernels):
        emission.add(kernel)
    return Text(emission.module(plans), emission.sizes, tuple(emission.requirements.listed))


class Emission:
    """Kernels that go together being emitted, those of plans, or what such plans become."""

    def __init__(self, *plans: Plan, optimize: bool = True) -> None:
        self.optimize = optimize
        dims = [d for plan in plans for d in _dims(plan)]
        self.sizes = tuple(sorted({a for d in dims if isinstance(d, Size) for a in d.atoms()}, key=repr))
        self.requirements = Requirements(plans)
        self.functions: list[str] = []
        self.declarations: list[set[Declaration]] = []  # of what each of them calls
        self._numbers: dict[str, int] = {}  # kernels that are alike have one function
        self._calls: dict[Kernel, tuple[int, list[Tensor]]] = {}  # the function's number, and what it is given

    def add(self, kernel: Kernel) -> None:
        """Emits a kernel's function."""
        function = Function(kernel, self.sizes, self.requirements.number, self.optimize)
        text, wanted = function.define()
        n = self._numbers.setdefault(text, len(self.functions))
        if n == len(self.functions):
            self.functions.append(text.replace("@kernel", f"@kernel_{n}", 1))
            self.declarations.append(function.declarations)
        self._calls[kernel] = n, wanted

    def part(self, first: int) -> str:
        """The functions from a number on as a module of their own."""
        functions = [text.replace(INTERNAL, "define ", 1) for text in self.functions[first:]]
        return "\n".join([*sorted(self._declared(first)), *functions, METADATA, ""])

    def module(self, plans: Sequence[Plan], first: int = 0) -> str:
        """The entries of plans whose kernels were emitted, and the functions from a number on; the others are elsewhere."""
        pieces: dict[int, list[str]] = {}
        entries = [self._entry(plan, f"entry{k or ''}", pieces) for k, plan in enumerate(plans)]
        declared = self._declared(first).union([PARALLEL] if pieces else [])
        declared.update(_declaration(text) for text in self.functions[:first])
        return "\n".join([*sorted(declared), *self.functions[first:], *_pieces_text(pieces), *entries, METADATA, ""])

    def _declared(self, first: int) -> set[str]:
        """The declarations of what the functions from a number on call."""
        return {str(d) for declared in self.declarations[first:] for d in declared}

    def _entry(self, plan: Plan, name: str, pieces: dict[int, list[str]]) -> str:
        """The function that calls every kernel with the pointers of its arrays. What is said of the kernels that run in
        parallel are the types of what they are given."""
        f = IRWriter()
        pointers: dict[Tensor, str] = {}
        for n, tensor in enumerate([*plan.arguments, *plan.results, *plan.data]):
            slot = f.add(f"getelementptr inbounds ptr, ptr %arguments, i64 {n}")
            pointers[tensor] = f.add(f"load ptr, ptr {slot}")
        sizes: dict[object, str] = {}
        for n, atom in enumerate(self.sizes):
            slot = f.add(f"getelementptr inbounds i64, ptr %sizes, i64 {n}")
            sizes[atom] = f.add(f"load i64, ptr {slot}")
        for tensor, offset in plan.offsets.items():
            pointers[tensor] = f.add(f"getelementptr inbounds i8, ptr %workspace, i64 {f.dim(offset, sizes)}")
        f.raw("%status = alloca i32")
        f.raw("store i32 0, ptr %status")
        loops: list[str] = []
        for kernel in plan.kernels:
            if isinstance(kernel, Loop):
                loops.append(self._loop(f, kernel, plan, f"{name}_loop{len(loops)}", pointers, sizes, pieces))
                continue
            n, wanted = self._calls[kernel]
            arrays = [f"ptr {pointers[plan.home.get(t, t)]}" for t in wanted]
            given = [*arrays, *(f"i64 {s}" for s in sizes.values()), "ptr %status"]
            if (loop := parallel_loop(kernel)) is None:
                f.raw(f"call void @kernel_{n}({', '.join(given)})")
            else:
                _call_in_parallel(f, n, given, f.dim(loop.index.extent, sizes), grain(loop))
                pieces[n] = [value.partition(" ")[0] for value in given]
        f.raw(f"ret i32 {f.add('load i32, ptr %status')}")
        define = f"define i32 @{name}(ptr %arguments, ptr %sizes, ptr %workspace) nounwind {{\n{f.text()}\n}}"
        return "\n".join([*loops, define])

    def _loop(
        self,
        f: IRWriter,
        loop: Loop,
        plan: Plan,
        step: str,
        pointers: Mapping[Tensor, str],
        sizes: Mapping[object, str],
        pieces: dict[int, list[str]],
    ) -> str:
        """Emits a loop of a plan, which calls `step`; the function of that name."""
        arrays = (*loop.parameters, *loop.scratch, *loop.plan.data)
        emit_loop(f, loop, step, {t: pointers[plan.home.get(t, t)] for t in arrays}, sizes)
        return self._entry(loop.plan, step, pieces).replace("define i32", f"{INTERNAL}i32")


def _dims(plan: Plan) -> list[Dim]:
    """Every size that a plan's code may want."""
    tensors = [*plan.arguments, *plan.results, *plan.offsets, *(p for k in plan.kernels for p in k.parameters)]
    within = [d for k in plan.kernels if isinstance(k, Loop) for d in _dims(k.plan)]
    return [d for t in tensors for d in t.shape] + [*plan.offsets.values(), plan.workspace, *within]


def _declaration(function: str) -> str:
    """The declaration of a function of another module."""
    head = function.partition("\n")[0]
    return f"declare {head.removeprefix(INTERNAL).removesuffix(' {')}"


def _call_in_parallel(f: IRWriter, n: int, given: list[str], count: str, grain: int) -> None:
    """Hands the iterations of a kernel's loop to the pool; its number and what it is given go along in a context."""
    context = f.add(f"alloca [{len(given) + 1} x i64]")
    for k, value in enumerate([f"i64 {n}", *given]):
        f.raw(f"store {value}, ptr {f.add(f'getelementptr inbounds i64, ptr {context}, i64 {k}')}")
    f.raw(f"call void @parallel(ptr @piece, ptr {context}, i64 {count}, i64 {grain})")


def _pieces_text(pieces: Mapping[int, list[str]]) -> Iterator[str]:
    """The function that runs some iterations of the kernel that the context says with what it holds. It is not worth optimising,
    and one for all kernels: LLVM takes its time for every function."""
    if not pieces:
        return
    f = IRWriter()
    number = f.add("load i64, ptr %context")
    last, labels = f.label(), {n: f.label() for n in pieces}
    f.raw(f"switch i64 {number}, label %{last} [{' '.join(f'i64 {n}, label %{label}' for n, label in labels.items())}]")
    for n, types in pieces.items():
        f.start(labels[n])
        at = [f.add(f"getelementptr inbounds i64, ptr %context, i64 {k}") for k in range(1, len(types) + 1)]
        given = [f"{t} {f.add(f'load {t}, ptr {a}')}" for t, a in zip(types, at, strict=True)]
        f.raw(f"call void @kernel_{n}({', '.join([*given, 'i64 %begin', 'i64 %end'])})")
        f.raw(f"br label %{last}")
    f.start(last)
    f.raw("ret void")
    head = "define internal void @piece(ptr %context, i64 %begin, i64 %end) nounwind optnone noinline"
    yield f"{head} {{\n{f.text()}\n}}\n"
