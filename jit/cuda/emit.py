"""Emit kernels as CUDA C, from loops and scalar functions, without knowledge of operators.

A kernel becomes one `__global__` function over pointers and the sizes unknown at compile time. A
parallel or block loop that is the whole body runs as a grid-stride loop; parallel loops elsewhere
run as serial ones, and a body that is not one such loop runs in a single thread. A failed
check writes its number to `*status`. No name of the user's reaches the text.
"""

import re
from dataclasses import dataclass

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.execution_plan import Plan, Requirements, scratch_buffers
from ...dialect.kernel_ir.expressions import ZERO, Const, Expr, Extent, Read, Tensor
from ...dialect.kernel_ir.simplify_node import linear_index
from ...dialect.kernel_ir.traverse import substitute
from ...dialect.support.diagnostics import Span
from ...dialect.types.sizes import Dim, atoms_of, in_order, product
from ...lowering.analysis.accesses import accesses, reads
from ...lowering.analysis.parallel_loops import THREADS, block_size
from ..c.addresses import Val, fits
from ..c.spelling import SHIFT
from .emit_mma import emit_matrix
from .expressions import CudaStatements
from .scalar_spelling import helpers, lookup_tables

AHEAD = 32  # iterations of a light loop at once
LIGHT = 40  # expressions


@dataclass(frozen=True)
class Launch:
    """The launch parameters of a kernel: `work` is its total number of threads; None for a single
    thread.
    """

    name: str
    arrays: tuple[Tensor, ...]
    sizes: tuple[tuple[object, ...], ...]
    reports: bool
    threads: int
    work: Dim | None
    cooperates: bool  # a block's threads work together
    shared: int  # bytes of shared memory that a block asks for when it is launched


_CALL = re.compile(r"\b(\w+)\s*[(<]")


@dataclass(frozen=True)
class Source:
    """The CUDA C of a plan, its launches in their order, and what they may report."""

    text: str
    launches: tuple[Launch, ...]
    requirements: tuple[tuple[str, Span], ...]


def emit(plan: Plan) -> Source:
    """The source of every kernel of a plan that has been placed on a GPU."""
    requirements = Requirements([plan])
    functions = [
        _Function(kernel, f"kernel_{n}", requirements) for n, kernel in enumerate(plan.all_kernels)
    ]
    body = "\n".join([f.define() for f in functions])
    head = "// compile with --fmad=false: every operation rounds once\n"
    text = f"{head}{lookup_tables(body)}{_helpers(body)}\n{body}"
    return Source(text, tuple(f.launch for f in functions), tuple(requirements.listed))


def _helpers(body: str) -> str:
    """The functions that a text calls, in their order."""
    needed: list[str] = []
    called = {*_CALL.findall(body)}
    for name, definition in reversed(helpers().items()):
        if name in called:
            needed.append(definition)
            called.update(_CALL.findall(definition))
    return "".join(f"\n{d}\n" for d in reversed(needed))


class _Function(CudaStatements):
    """One kernel's statements being emitted."""

    def __init__(self, kernel: ir.Kernel, name: str, requirements: Requirements) -> None:
        self.kernel = kernel
        self.name = name
        self.requirements = requirements
        tensors = (*kernel.parameters, *scratch_buffers(kernel))
        super().__init__({}, ir.written(kernel))
        self.arrays = {t: self.fresh() for t in tensors}
        self.atoms = _atoms(kernel, tensors)
        self.sizes = {atom: self.fresh() for atom in self.atoms}
        self.reports = any(isinstance(s, (ir.Assert, ir.Fail)) for s in ir.statements(kernel.body))
        several = [
            b
            for s in ir.statements(kernel.body)
            for b in ir.blocks(s)
            if ir.shared_bytes(b, within=False)
        ]
        shared = (
            ir.shared_bytes(kernel.body) if len(several) > 1 else 0
        )  # whose buffers have the same places in turn
        self.taken = 0  # bytes of these
        self.stages: Dim = 0  # of the buffers that asynchronous copies fill
        together = any(isinstance(s, ir.For) and s.kind == "block" for s in kernel.body)
        self.over_grid = _grid_loop(kernel)
        self.launch = Launch(
            name, tensors, self.atoms, self.reports, *_grid(kernel), together, shared
        )

    def define(self) -> str:
        arrays = dict(self.arrays)
        if self.launch.work is None:
            self.line("if (blockIdx.x != 0 || threadIdx.x != 0) return;")
        if self.launch.shared:
            self.line("extern __shared__ __align__(16) unsigned char arena[];")
        self.block(self.kernel.body)
        parameters = [self.parameter(t, name) for t, name in arrays.items()]
        parameters += [f"long long {s}" for s in self.sizes.values()]
        parameters += ["int* __restrict__ status"] if self.reports else []
        bounds = f"__launch_bounds__({self.launch.threads})"
        opening = f'extern "C" __global__ void {bounds} {self.name}({", ".join(parameters)}) {{'
        return "\n".join([opening, *self.head, *self.lines, "}", ""])

    def parameter(self, tensor: Tensor, name: str) -> str:
        constant = "" if tensor in self.written else "const "
        return f"{constant}{self.declared(tensor)}* __restrict__ {name}"

    # statements

    def block(self, block: ir.Block) -> None:
        taken = self.taken
        super().block(block)
        self.taken = taken

    def check(self, condition: Val, message: str, span: Span) -> None:
        number = self.requirements.number(message, span)
        self.line(f"if (!({condition.text})) atomicMax(status, {number});")

    def fail(self, message: str, span: Span) -> None:
        self.line(f"atomicMax(status, {self.requirements.number(message, span)});")
        self.leave()

    def loop(self, s: ir.For, pragma: str = "") -> None:
        if s.kind == "thread":
            self.threads(s)
            return
        if s.kind == "matrix":
            emit_matrix(self, s)
            return
        if s.kind == "vector" and self.copied(s):
            return
        if s is self.over_grid:
            self.over_the_grid(s)
            return
        pragma = ""
        if s.kind in ("unrolled", "vector"):
            pragma = "#pragma unroll"
        elif _loads_ahead(s):
            pragma = f"#pragma unroll {AHEAD * THREADS // max(self.launch.threads, THREADS // 2)}"
        super().loop(s, pragma)

    def over_the_grid(self, s: ir.For) -> None:
        self.statement(s.start, s.end)
        start, end = self.address(s.start), self.address(s.end)
        ctype = "int" if fits(s.end, 2**30) and start.ctype == "int" else "long long"
        first, step = (f"({ctype}){e}" for e in _STRIDES[s.kind])
        if s.start is not ZERO:
            first = f"({ctype}){start.at(SHIFT)} + {first}"
        name = self.fresh()
        self.counted(s, (name, ctype), first, end.at(SHIFT), f"{name} += {step}")

    def copied(self, s: ir.For) -> bool:
        """A loop that moves a pack, as one access; from an array to shared memory it arrives by
        itself.
        """

        def first(*parts: tuple[Tensor, tuple[Expr, ...]]) -> list[Expr]:
            self.statement(
                *(at := [substitute(linear_index(i, t.shape), {s.index: ZERO}) for t, i in parts])
            )
            return at

        match s.body:
            case (ir.Store(tensor, at, Const(0)),) if tensor.space == "shared":
                self.line(f"{self.pack(tensor, first((tensor, at))[0], s.width)} = {{}};")
            case (ir.Store(tensor, at, Read(of, there)),) if (
                tensor.space == "shared" and of in self.launch.arrays
            ):
                parts = zip((tensor, of), first((tensor, at), (of, there)), strict=True)
                addresses = [f"{self.arrays[t]} + {self.address(e).text}" for t, e in parts]
                self.line(f"copy_async({', '.join(addresses)});")
                self.stages = tensor.shape[0]
            case (ir.Store(tensor, at, Read(of, there)),) if "pack" in (tensor.space, of.space):
                to, source = first((tensor, at), (of, there))
                value = self.pack(of, source, s.width)
                if tensor.space == "pack" and tensor.element.bits <= 8 and s.width >= 4:
                    value = f"loaded({value})"
                self.line(f"{self.pack(tensor, to, s.width)} = {value};")
            case _:
                return False
        return True

    def threads(self, s: ir.For) -> None:
        """The threads of a block, which wait for each other after what they do in shared memory."""
        outer = dict(self.known)
        if not self.thread_name:
            self.thread_name = self.fresh()
            most = (
                self.launch.threads - 1
            )  # a power of two less one: told, dividing by one is a shift
            self.head.append(f"  const int {self.thread_name} = threadIdx.x & {most};")
        self.known[id(s.index)] = Val(self.thread_name, "int")
        self.kept.append(s.index)
        self.thread = s.index
        self.block(s.body)
        self.thread = None
        self.known = outer
        if any(t.space == "shared" for part in accesses(s.body) for t in part):
            if self.stages:
                self.line(f"copies_arrive<{self.stages - 2}>();")
            self.line("__syncthreads();")

    def allocate(self, s: ir.Alloc) -> None:
        tensor = s.tensor
        if tensor.space == "heap":
            return
        self.arrays[tensor] = name = self.fresh()
        shape = tensor.shape
        if self.launch.cooperates and self.thread is None and tensor.space == "register":
            self.private.add(tensor)
            shape = shape[1:]
        if tensor.space == "pack":
            self.line(f"Pack<{self.declared(tensor)}, {product(shape)}> {name};")
            return
        if tensor.space == "shared" and self.launch.shared:
            self.line(f"auto* const {name} = ({self.declared(tensor)}*)(arena + {self.taken});")
            self.taken += ir.shared_bytes((ir.Alloc(tensor),))
            return
        where = "__shared__ __align__(16) " if tensor.space == "shared" else ""
        self.line(f"{where}{self.declared(tensor)} {name}{f'[{product(shape)}]' if shape else ''};")


def _atoms(kernel: ir.Kernel, tensors: tuple[Tensor, ...]) -> tuple[tuple[object, ...], ...]:
    """The sizes that a kernel needs, of its arrays and of its loops."""
    found = [d for t in tensors for d in t.shape]
    found += [s.index.extent for s in ir.statements(kernel.body) if isinstance(s, ir.For)]
    found += [e.size for e in ir.nodes(kernel.body) if isinstance(e, Extent)]
    return tuple(sorted(atoms_of(found), key=in_order))


def _grid_loop(kernel: ir.Kernel) -> ir.For | None:
    """The loop whose iterations are distributed over the grid: the one that is the whole body."""
    match kernel.body:
        case (ir.For(kind="parallel" | "block") as loop,):
            return loop
    return None


def _grid(kernel: ir.Kernel) -> tuple[int, Dim | None]:
    """Threads of a block, and in all."""
    match _grid_loop(kernel):
        case ir.For(index=index, kind="parallel"):
            return block_size(index.extent), index.extent
        case ir.For(index=index, body=body, kind="block"):
            threads = next(
                s.index.extent
                for s in ir.statements(body)
                if isinstance(s, ir.For) and s.kind == "thread"
            )
            assert isinstance(threads, int)
            return threads, index.extent * threads
    return 1, None


def _loads_ahead(s: ir.For) -> bool:
    """Test whether a long loop is dominated by memory accesses, several iterations of which should
    be in flight.
    """
    if (
        s.kind != "serial"
        or s.start is not ZERO
        or (isinstance(s.index.extent, int) and s.index.extent < 2 * AHEAD)
    ):
        return False
    return (
        not any(
            isinstance(inner, ir.For) and inner.kind != "thread" for inner in ir.statements(s.body)
        )
        and any(r.tensor.space in ("argument", "constant", "heap") for r in reads(s.body))
        and sum(1 for _ in ir.nodes(s.body)) <= LIGHT
    )


# where a loop over a grid starts, and how far it goes at once
_STRIDES = {
    "parallel": ("blockIdx.x * blockDim.x + threadIdx.x", "gridDim.x * blockDim.x"),
    "block": ("blockIdx.x", "gridDim.x"),
}
