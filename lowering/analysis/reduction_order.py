"""Reductions of a loop: the update of its accumulator, and whether the order of its terms decides
the result's bits.
"""

from ...dialect.kernel_ir.expressions import Apply, Expr, Index, Read, Tensor
from ...dialect.kernel_ir.loops import Alloc, Block, For, Let, Store, has_loops, is_rare, statements
from ...dialect.kernel_ir.reduce_in_order import BLOCK_TERMS, LANES
from ...dialect.kernel_ir.scalar_functions import SCALARS
from ...dialect.kernel_ir.traverse import walk
from ...dialect.types.sizes import Dim, larger, product
from .accesses import accumulators, reads, stores, stride

ORDERED = ("add", "mul")  # float reductions whose order decides their bits


def along_memory(s: For) -> tuple[Store, str, Expr] | None:
    """The update of a loop that reduces contiguous memory: store, function and operand; None if it
    does not.
    """
    match s:
        case For(body=(*before, Store() as store), kind="serial") if _is_straight(tuple(before)):
            if (update := reduction_update(store)) is not None and _contiguous(
                s.body, store.tensor, s.index
            ):
                return store, *update
    return None


def has_lanes(s: For) -> bool:
    """Test whether a loop reduces floats by lanes, which decides their bits."""
    reduction = along_memory(s)
    extent = s.index.extent
    is_float = (
        reduction is not None
        and reduction[0].tensor.element.kind == "float"
        and reduction[1] in ORDERED
    )
    return is_float and not (isinstance(extent, int) and extent < LANES)


def _is_straight(block: Block) -> bool:
    """Test whether statements only define variables, with rare branches, in accumulators of their
    own.
    """
    own = accumulators(block)
    plain = all(
        isinstance(s, (Let, Store)) or is_rare(s) or (isinstance(s, Alloc) and s.tensor in own)
        for s in block
    )
    return plain and all(s.tensor in own for s in stores(block))


def reduction_update(store: Store) -> tuple[str, Expr] | None:
    """The f and x of acc = f(acc, x), if the reduction may be split: f has an identity, and acc is
    a scalar.
    """
    match store:
        case Store(
            Tensor(space="register", shape=()) as acc,
            (),
            Apply(function, (Read(again, ()), value), _),
        ):
            used = any(isinstance(n, Read) and n.tensor is acc for n in walk(value))
            return (
                (function, value)
                if again is acc and SCALARS[function].identity and not used
                else None
            )
    return None


def _contiguous(block: Block, acc: Tensor, index: Index) -> bool:
    """Test whether every read of a reduction moves by one element, or not at all, along the
    index.
    """
    if any(r.tensor is acc for s in block[:-1] for r in reads((s,))):
        return False
    strides = [stride(r.tensor, r.indices, index) for r in reads(block) if r.tensor is not acc]
    return 1 in strides and all(n in (0, 1) for n in strides)


def terms(reduction: For) -> Dim:
    return product(
        tuple(
            s.index.extent for s in (reduction, *statements(reduction.body)) if isinstance(s, For)
        )
    )


def length(reduction: For) -> Dim:
    """The iterations of a long reduction's outermost loop per block."""
    if not has_loops(reduction.body):
        return BLOCK_TERMS
    return larger(reduction.index.extent * BLOCK_TERMS // larger(terms(reduction), 1), 1)
