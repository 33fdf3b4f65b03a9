"""Collapse loops over adjacent axes into one (MLIR's affine loop coalescing, OpenMP's collapse).

    for i in 0..4 { for j in 0..8 { y[i, j] = f(x[i, j]) } }  =>  for i in 0..32 { y[i] = f(x[i]) }

Legal where every access that has one of the indices has the other beside it, over whole axes. Tensors get the joined
shape, with the same elements in the same order, so parameters keep their storage. Pays always: one long loop vectorizes
better than a short one inside another. Loops of one iteration are removed first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from ...dialect.ir.sizes import same_size
from ...dialect.notation import loops as ir
from ...dialect.notation.expressions import ZERO, Const, Expr, Index, Read, Tensor, Var, as_index
from ...dialect.notation.traverse import children, rewrite
from ..analysis.accesses import allocated, depends, every_access, stores
from ..passes import kernel_pass
from .inline_lets import inline_lets


@kernel_pass
def collapse(kernel: ir.Kernel) -> ir.Kernel:
    kernel = _without_unit_axes(kernel.with_body(_without_single(kernel.body)))
    while (pair := next(_pairs(kernel), None)) is not None:
        kernel = _joined(kernel, *pair)
    return kernel


@lru_cache(maxsize=4)
def collapsed(kernel: ir.Kernel) -> ir.Kernel:
    """Collapse a kernel whose names of index arithmetic are substituted: the form in which passes match nests, one after another."""
    return collapse(inline_lets(kernel))


@dataclass(frozen=True, eq=False)
class Joined:
    """A kernel whose two innermost loops over elements are collapsed; the single indices are still used where they
    were.
    """

    kernel: ir.Kernel
    outer: Index
    inner: Index
    index: Index


def join(kernel: ir.Kernel) -> Joined | None:
    """Collapse the two innermost loops over elements if every result has their indices side by side; the single indices
    remain.
    """
    loops = [s for s in ir.statements(kernel.body) if isinstance(s, ir.For)]
    for outer in loops:
        match outer.body:
            case (ir.For() as inner,) if is_whole(outer) and is_whole(inner) and not _holds_only_a_loop(inner):
                own = allocated(inner.body)
                axes = {t: a for t, a in _places(kernel, outer, inner).items() if a is not None}
                if axes.keys() >= {s.tensor for s in stores(inner.body) if s.tensor not in own}:
                    joined = _joined(kernel, outer, inner, axes)
                    (index,) = {s.index for s in ir.statements(joined.body) if isinstance(s, ir.For)} - {
                        s.index for s in loops
                    }
                    return Joined(joined, outer.index, inner.index, index)
    return None


def _holds_only_a_loop(s: ir.For) -> bool:
    return len(s.body) == 1 and isinstance(s.body[0], ir.For)


@lru_cache(maxsize=4)
def flatten(kernel: ir.Kernel) -> ir.Kernel:
    """Collapse the two innermost loops over elements; the single indices are computed from the joined one."""
    made = join(kernel)
    if made is None:
        return kernel
    width = as_index(made.inner.extent)
    values: dict[Expr, Expr] = {made.outer: made.index // width, made.inner: made.index % width}
    return made.kernel.with_body(ir.substitute_block(made.kernel.body, values))


def _places(kernel: ir.Kernel, outer: ir.For, inner: ir.For) -> dict[Tensor, int | None]:
    """The axis of each tensor at which all accesses have the two indices side by side, over whole axes; None if they do
    not.
    """
    i, j = outer.index, inner.index
    found: dict[Tensor, int | None] = {}
    for tensor, at in every_access(kernel.body):
        where = [n for n, e in enumerate(at) if depends(e, {i, j})]
        axis = (
            where[0]
            if len(where) == 2 and at[where[0]] is i and at[where[1]] is j and where[1] == where[0] + 1
            else None
        )
        if axis is not None:
            whole = same_size(tensor.shape[axis], i.extent) and same_size(tensor.shape[axis + 1], j.extent)
            axis = axis if whole else None
        found[tensor] = axis if found.setdefault(tensor, axis) == axis else None
    return found


def _without_single(block: ir.Block) -> ir.Block:
    """Replace loops of one iteration by their bodies."""

    def change(s: ir.Statement) -> ir.Block | None:
        match s:
            case ir.For(index, body, Const(0), None) if same_size(index.extent, 1):
                return _without_single(ir.substitute_block(body, {index: ZERO}))
        return None

    return ir.rewrite_block(block, change)


def _without_unit_axes(kernel: ir.Kernel) -> ir.Kernel:
    """Remove axes of one element from a kernel with a float reduction, so that the loops around them collapse as they
    do when the size is unknown: the order of a reduction then is the same in both cases.
    """
    if not any(s.tensor.space == "register" and s.tensor.element.kind == "float" for s in stores(kernel.body)):
        return kernel
    units: dict[Tensor, set[int]] = {
        t: {n for n, d in enumerate(t.shape) if same_size(d, 1)} for t in kernel.parameters
    }
    for tensor, at in every_access(kernel.body):
        if tensor in units:
            units[tensor] = {n for n in units[tensor] if isinstance(i := at[n], Const) and i.value == 0}
    made = {t: replace(t, shape=_left(t.shape, found)) for t, found in units.items() if found}
    if not made:
        return kernel

    def read(e: Expr) -> Expr | None:
        if not isinstance(e, Read) or e.tensor not in made:
            return None
        at = tuple(rewrite(i, read) for i in e.indices)
        return Read(made[e.tensor], _left(at, units[e.tensor]))

    def store(s: ir.Statement) -> ir.Block | None:
        if not isinstance(s, ir.Store) or s.tensor not in made:
            return None
        return (replace(s, tensor=made[s.tensor], indices=_left(s.indices, units[s.tensor])),)

    body = ir.map_expressions(ir.rewrite_block(kernel.body, store), lambda e: rewrite(e, read))
    return replace(kernel, body=body, parameters=tuple(made.get(p, p) for p in kernel.parameters))


def _left(items: tuple, without: set[int]) -> tuple:
    return tuple(item for n, item in enumerate(items) if n not in without)


def _pairs(kernel: ir.Kernel) -> Iterator[tuple[ir.For, ir.For, dict[Tensor, int]]]:
    """Loops that can be collapsed, with the axis of each tensor that they index."""
    for s in ir.statements(kernel.body):
        match s:
            case ir.For(body=(ir.For() as inner,)) if is_whole(s) and is_whole(inner):
                axes = _axes(kernel, s, inner)
                if axes is not None:
                    yield s, inner, axes


def is_whole(s: ir.For) -> bool:
    """Test whether a loop is serial and runs over the full extent of its index."""
    return s.kind == "serial" and s.stop is None and isinstance(s.start, Const) and s.start.value == 0


def _axes(kernel: ir.Kernel, outer: ir.For, inner: ir.For) -> dict[Tensor, int] | None:
    """The axis of each tensor that [..., i, j, ...] indexes; None if an access or a value uses the indices in another
    way.
    """
    i, j = outer.index, inner.index
    axes: dict[Tensor, int] = {}
    for tensor, at in every_access(inner.body):
        where = [n for n, e in enumerate(at) if depends(e, {i, j})]
        if not where:
            continue
        first = where[0]
        plain = where == [first, first + 1] and at[first] is i and at[first + 1] is j
        if not plain or axes.setdefault(tensor, first) != first:
            return None
        if not (same_size(tensor.shape[first], i.extent) and same_size(tensor.shape[first + 1], j.extent)):
            return None
    mine = {id(e) for tensor, at in every_access(inner.body) if tensor in axes for e in at}
    if not axes or any(_used_otherwise(s, i, j, mine) for s in ir.statements(inner.body)):
        return None
    everywhere, within = (sum(t in axes for t in _accessed(b)) for b in (kernel.body, (outer,)))
    return axes if everywhere == within else None


def _accessed(block: ir.Block) -> Iterator[Tensor]:
    """The tensor of every access of a block; an access that several statements share appears once per statement."""
    yield from (s.tensor for s in stores(block))
    yield from (e.tensor for e in ir.nodes(block) if isinstance(e, Read))


def _used_otherwise(s: ir.Statement, i: Index, j: Index, places: set[int]) -> bool:
    """Test whether a statement uses an index other than as the plain index of an access."""
    stack = [s.value] if isinstance(s, ir.Store) else [*ir.expressions(s)]
    while stack:
        e = stack.pop()
        if e is i or e is j:
            return True
        if isinstance(e, Read):
            stack.extend(p for p in e.indices if id(p) not in places)
        elif not isinstance(e, Var):
            stack.extend(children(e))
    return False


def _joined(kernel: ir.Kernel, outer: ir.For, inner: ir.For, axes: dict[Tensor, int]) -> ir.Kernel:
    index = Index(outer.index.name, outer.index.extent * inner.index.extent)
    tensors = {t: replace(t, shape=_join(t.shape, a, index.extent)) for t, a in axes.items()}

    def place(tensor: Tensor, at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        axis = axes[tensor]
        elsewhere = at[axis] * as_index(inner.index.extent) + at[axis + 1]  # an access outside of the loops
        return _join(at, axis, index if at[axis] is outer.index else elsewhere)

    def change(e: Expr) -> Expr | None:
        if isinstance(e, Read) and e.tensor in axes:
            return Read(tensors[e.tensor], tuple(rewrite(i, change) for i in place(e.tensor, e.indices)))
        return None

    def renamed(s: ir.Statement) -> ir.Block | None:
        match s:
            case ir.Store(tensor, at) if tensor in axes:
                return (replace(s, tensor=tensors[tensor], indices=place(tensor, at)),)
            case ir.Alloc(tensor):
                return (ir.Alloc(tensors.get(tensor, tensor)),)
            case ir.For() if s is outer:
                return (replace(outer, index=index, body=ir.rewrite_block(inner.body, renamed)),)
        return None

    body = ir.map_expressions(ir.rewrite_block(kernel.body, renamed), lambda e: rewrite(e, change))
    return replace(kernel, body=body, parameters=tuple(tensors.get(p, p) for p in kernel.parameters))


def _join(items: tuple, axis: int, joined: object) -> tuple:
    return (*items[:axis], joined, *items[axis + 2 :])
