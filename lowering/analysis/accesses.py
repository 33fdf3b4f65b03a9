"""Memory accesses of loops: the reads and stores of a block, their strides, and their dependence on
an index.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from functools import lru_cache
from math import gcd

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.affine import affine
from ...dialect.kernel_ir.execution_plan import Loop
from ...dialect.kernel_ir.expressions import Expr, Index, Read, Tensor, Var
from ...dialect.kernel_ir.traverse import walk
from ...dialect.types.sizes import strides

Indices = tuple[Expr, ...]
Accesses = dict[Tensor, list[Indices]]


@lru_cache(maxsize=256)
def reads(block: ir.Block) -> tuple[Read, ...]:
    """Every read of a block, those in loop bounds and conditions included; a shared expression
    counts once.
    """
    return tuple(dict.fromkeys(e for e in ir.nodes(block) if isinstance(e, Read)))


def stores(block: ir.Block) -> Iterator[ir.Store]:
    return (s for s in ir.statements(block) if isinstance(s, ir.Store))


def accesses(block: ir.Block) -> tuple[Accesses, Accesses]:
    """The indices at which each tensor is read, and those at which it is stored to."""
    read: Accesses = {}
    stored: Accesses = {}
    for found, where in ((reads(block), read), (stores(block), stored)):
        for access in found:
            where.setdefault(access.tensor, []).append(access.indices)
    return read, stored


def with_tensors(kernel: ir.Kernel, body: ir.Block, moved: Callable[[Tensor], Tensor]) -> ir.Kernel:
    """The kernel with this body and its parameters moved, those that it writes last, each once."""
    written = tuple(dict.fromkeys(map(moved, kernel.outputs)))
    read = tuple(dict.fromkeys(t for p in kernel.inputs if (t := moved(p)) not in written))
    return replace(kernel, parameters=(*read, *written), body=body, results=len(written))


def over_arrays(
    kernel: ir.Kernel,
    names: Mapping[Tensor, Tensor],
    place: Callable[[Tensor, Indices], Indices] = lambda array, at: at,
) -> ir.Kernel:
    """The kernel over other arrays in place of some of its parameters, accessed at the `place` for
    the old one and its indices.
    """
    if names.keys().isdisjoint(kernel.parameters):
        return kernel
    if isinstance(kernel, Loop):
        return replace(kernel, parameters=tuple(names.get(p, p) for p in kernel.parameters))

    def move(t: Tensor, at: Indices) -> tuple[Tensor, Indices] | None:
        return (names[t], place(t, at)) if t in names else None

    condition = None if kernel.condition is None else ir.redirect_reads(kernel.condition, move)
    renamed = replace(kernel, condition=condition)
    return with_tensors(renamed, ir.redirect(kernel.body, move), lambda t: names.get(t, t))


def every_access(block: ir.Block) -> Iterator[tuple[Tensor, tuple[Expr, ...]]]:
    """Every access of a block as tensor and indices, stores first."""
    return ((access.tensor, access.indices) for access in (*stores(block), *reads(block)))


def allocated(block: ir.Block) -> set[Tensor]:
    return {s.tensor for s in ir.statements(block) if isinstance(s, ir.Alloc)}


def is_straight(block: ir.Block) -> bool:
    """Test whether a block is straight-line code: lets, stores and accumulators, and rare
    branches.
    """
    rare = [i for s in block if ir.is_rare(s) for i in ir.statements((s,))]
    own = accumulators(block) | accumulators(rare)
    plain = (ir.Let, ir.Store, ir.Assert)
    local = {s for s in (*block, *rare) if isinstance(s, (ir.Alloc, ir.Store)) and s.tensor in own}
    usual = all(isinstance(s, plain) or ir.is_rare(s) or s in local for s in block)
    return usual and all(isinstance(s, (ir.Let, ir.If)) or s in local for s in rare)


def accumulators(block: Iterable[ir.Statement]) -> set[Tensor]:
    """The scalars that statements allocate."""
    return {
        s.tensor
        for s in block
        if isinstance(s, ir.Alloc) and s.tensor.space == "register" and not s.tensor.rank
    }


def reduces_floats(kernel: ir.Kernel) -> bool:
    """Test whether a loop updates a scalar of floats, so that the order of its iterations may
    matter.
    """
    scalars = {t for t in accumulators(ir.statements(kernel.body)) if t.element.kind == "float"}
    return any(
        not scalars.isdisjoint(accesses(s.body)[1])
        for s in ir.statements(kernel.body)
        if isinstance(s, ir.For)
    )


def depends(e: Expr, indices: set[Expr]) -> bool:
    """Test whether an expression mentions one of the indices or variables."""
    return not indices.isdisjoint(_names(e))


@lru_cache(maxsize=1024)
def _names(e: Expr) -> frozenset[Expr]:
    return frozenset([n for n in walk(e) if isinstance(n, (Index, Var))])


def alignment(tensor: Tensor, at: tuple[Expr, ...], index: Index) -> int | None:
    """The greatest known divisor of an access's position at index 0, in elements; None if a stride
    is unknown.
    """
    divisor = 0
    for e, step in zip(at, strides(tensor.shape), strict=True):
        if not isinstance(step, int):
            return None
        divisor = gcd(divisor, affine(e).without(index).divisor * step)
    return divisor


def stride(
    tensor: Tensor, at: Indices, index: Index, varies: Callable[[Expr], bool] | None = None
) -> int | None:
    """The number of elements by which an access moves when the index grows by 1; None if it is not
    a constant.
    """
    total = 0
    for e, step in zip(at, strides(tensor.shape), strict=True):
        if (factor := index_factor(e, index, varies)) is None or (
            factor and not isinstance(step, int)
        ):
            return None
        total += factor * step if isinstance(step, int) else 0
    return total


def index_factor(e: Expr, index: Index, varies: Callable[[Expr], bool] | None = None) -> int | None:
    """The factor of an index, None if not linear in it. `varies` tests whether a part may change
    with it.
    """
    varies = varies or (lambda e: depends(e, {index}))
    if not varies(e):
        return 0
    form = affine(e)
    return (
        None
        if any(varies(a) for a, _ in form.without(index).terms.values())
        else form.factor(index)
    )


def varying_values(block: ir.Block, index: Index) -> set[object]:
    """The variables of a block whose value changes with the index, and the buffers it allocates."""
    varying: set[object] = {index, *allocated(block)}
    for s in ir.statements(block):
        if isinstance(s, ir.Let) and any(varies(n, varying) for n in walk(s.value)):
            varying.add(s.var)
    return varying


def varies(node: Expr, varying: Set[object]) -> bool:
    """Test whether a node is, or reads, one of `varying`."""
    return node in varying or (isinstance(node, Read) and node.tensor in varying)
