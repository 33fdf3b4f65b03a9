"""Collapse loops over adjacent axes into one (MLIR's affine loop coalescing, OpenMP's collapse).

    for i in 0..4 { for j in 0..8 { y[i, j] = f(x[i, j]) } }  =>  for i in 0..32 { y[i] = f(x[i]) }

Legal where every access that has one of the indices has the other beside it, over whole axes.
Tensors get the joined shape, with the same elements in the same order, so parameters keep their
storage. Pays always: one long loop vectorizes better than a short one inside another. Loops of one
iteration are removed first.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.expressions import ZERO, Const, Expr, Index, Read, Tensor, Var, as_index
from ...dialect.kernel_ir.traverse import children
from ...dialect.types.sizes import same_size
from ..analysis.accesses import allocated, depends, every_access, stores
from ..passes import kernel_pass
from .inline_lets import inline_lets


@kernel_pass
def collapse(kernel: ir.Kernel) -> ir.Kernel:
    parameters, body = _collapsed(kernel.parameters, kernel.body)
    same = body is kernel.body and parameters == kernel.parameters
    return kernel if same else replace(kernel, parameters=parameters, body=body)


@lru_cache(maxsize=512)
def _collapsed(
    parameters: tuple[Tensor, ...], body: ir.Block
) -> tuple[tuple[Tensor, ...], ir.Block]:
    """Collapse loops; kernels that differ only in hints to later passes share the result."""
    kernel = _without_unit_axes(ir.Kernel("", parameters, _without_single(body)))
    while (pair := next(_pairs(kernel), None)) is not None:
        kernel = _joined(kernel, *pair).kernel
    return kernel.parameters, kernel.body


@lru_cache(maxsize=4)
def collapsed(kernel: ir.Kernel) -> ir.Kernel:
    """Collapse a kernel whose names of index arithmetic are substituted: the form in which passes
    match nests, one after another.
    """
    return collapse(inline_lets(kernel))


@dataclass(frozen=True, eq=False)
class Joined:
    """A kernel whose two innermost loops over elements are collapsed; uses of the single indices
    remain.
    """

    kernel: ir.Kernel
    outer: Index
    inner: Index
    index: Index


def join(kernel: ir.Kernel) -> Joined | None:
    """Collapse the two innermost loops over elements if every result has their indices side by
    side.
    """
    for outer in ir.statements(kernel.body):
        match outer:
            case ir.For(body=(ir.For(body=(first, *rest)) as inner,)) if (
                outer.is_whole and inner.is_whole
            ):
                own = allocated(inner.body)
                axis_of = dict[Tensor, int | None]()
                for tensor, at in every_access(kernel.body):
                    axis = _axis(tensor, at, outer.index, inner.index)
                    axis_of[tensor] = axis if axis_of.setdefault(tensor, axis) == axis else None
                axes = {t: a for t, a in axis_of.items() if a is not None}
                elements = bool(rest) or not isinstance(first, ir.For)
                if elements and axes.keys() >= {s.tensor for s in stores(inner.body)} - own:
                    return _joined(kernel, outer, inner, axes)
    return None


@lru_cache(maxsize=4)
def flatten(kernel: ir.Kernel) -> ir.Kernel:
    """Collapse the two innermost loops over elements; the single indices are computed from the
    joined one.
    """
    if (joined := join(kernel)) is None:
        return kernel
    width = as_index(joined.inner.extent)
    values: dict[Expr, Expr] = {
        joined.outer: joined.index // width,
        joined.inner: joined.index % width,
    }
    return joined.kernel.with_body(ir.substitute_block(joined.kernel.body, values))


def _axis(tensor: Tensor, at: tuple[Expr, ...], i: Index, j: Index) -> int | None:
    """The axis at which an access has the two indices side by side, over whole axes; None if it has
    them otherwise.
    """
    axis = next((n for n, e in enumerate(at) if depends(e, {i, j})), len(at))
    first = at[axis : axis + 1]
    last = at[axis + 1 : axis + 2]
    rest = at[axis + 2 :]
    if first != (i,) or last != (j,) or any(depends(e, {i, j}) for e in rest):
        return None
    return (
        axis
        if same_size(tensor.shape[axis], i.extent) and same_size(tensor.shape[axis + 1], j.extent)
        else None
    )


def _without_single(block: ir.Block) -> ir.Block:
    """Replace loops of one iteration by their bodies."""

    def change(s: ir.Statement) -> ir.Block | None:
        match s:
            case ir.For(index, body, Const(0), None) if same_size(index.extent, 1):
                return _without_single(ir.substitute_block(body, {index: ZERO}))
        return None

    return ir.rewrite_block(block, change)


def nonunit_loops(block: ir.Block) -> tuple[list[Index], ir.Block]:
    """The outer loops of a nest without those of one iteration, and the block inside."""
    indices, inner = ir.outer_loops(block)
    units: dict[Expr, Expr] = {i: ZERO for i in indices if same_size(i.extent, 1)}
    return [i for i in indices if i not in units], ir.substitute_block(
        inner, units
    ) if units else inner


def squeezed(items: tuple, tensor: Tensor) -> tuple:
    """The items, one for each axis of a tensor, without those of unit axes."""
    return _left(items, {n for n, d in enumerate(tensor.shape) if same_size(d, 1)})


def _without_unit_axes(kernel: ir.Kernel) -> ir.Kernel:
    """Remove unit axes of a kernel with a float reduction: its order is then the same as for
    unknown sizes.
    """
    if not any(
        s.tensor.space == "register" and s.tensor.element.kind == "float"
        for s in stores(kernel.body)
    ):
        return kernel
    units = {t: {n for n, d in enumerate(t.shape) if same_size(d, 1)} for t in kernel.parameters}
    for tensor, at in every_access(kernel.body):
        if tensor in units:
            units[tensor] = {
                n for n in units[tensor] if isinstance(i := at[n], Const) and i.value == 0
            }
    squeezed = {
        t: replace(t, shape=_left(t.shape, positions))
        for t, positions in units.items()
        if positions
    }
    if not squeezed:
        return kernel
    body = ir.replace_arrays(kernel.body, squeezed, lambda t, at: _left(at, units[t]))
    return replace(
        kernel, body=body, parameters=tuple(squeezed.get(p, p) for p in kernel.parameters)
    )


def _left(items: tuple, without: set[int]) -> tuple:
    return tuple(item for n, item in enumerate(items) if n not in without)


def _pairs(kernel: ir.Kernel) -> Iterator[tuple[ir.For, ir.For, dict[Tensor, int]]]:
    """Loops that can be collapsed, with the axis of each tensor that they index."""
    for s in ir.statements(kernel.body):
        match s:
            case ir.For(body=(ir.For() as inner,)) if s.is_whole and inner.is_whole:
                if (axes := _axes(kernel, s, inner)) is not None:
                    yield s, inner, axes


def _axes(kernel: ir.Kernel, outer: ir.For, inner: ir.For) -> dict[Tensor, int] | None:
    """The axis of each tensor that [..., i, j, ...] indexes; None if the indices are used in
    another way.
    """
    i, j = outer.index, inner.index
    axes: dict[Tensor, int] = {}
    for tensor, at in every_access(inner.body):
        if (axis := _axis(tensor, at, i, j)) is None and not any(depends(e, {i, j}) for e in at):
            continue
        if axis is None or axes.setdefault(tensor, axis) != axis:
            return None
    mine = {id(e) for tensor, at in every_access(inner.body) if tensor in axes for e in at}
    if not axes or any(_used_otherwise(s, i, j, mine) for s in ir.statements(inner.body)):
        return None
    everywhere, within = (sum(t in axes for t in _accessed(b)) for b in (kernel.body, (outer,)))
    return axes if everywhere == within else None


def _accessed(block: ir.Block) -> Iterator[Tensor]:
    """The tensor of every access of a block; an access that several statements share appears once
    per statement.
    """
    yield from (s.tensor for s in stores(block))
    yield from (e.tensor for e in ir.nodes(block) if isinstance(e, Read))


def _used_otherwise(s: ir.Statement, i: Index, j: Index, places: set[int]) -> bool:
    """Test whether a statement uses an index other than as the plain index of an access."""
    stack = [s.value] if isinstance(s, ir.Store) else [*ir.expressions(s)]
    while stack:
        if (e := stack.pop()) is i or e is j:
            return True
        if isinstance(e, Read):
            stack.extend(p for p in e.indices if id(p) not in places)
        elif not isinstance(e, Var):
            stack.extend(children(e))
    return False


def _joined(kernel: ir.Kernel, outer: ir.For, inner: ir.For, axes: dict[Tensor, int]) -> Joined:
    index = Index(outer.index.name, outer.index.extent * inner.index.extent)
    tensors = {t: replace(t, shape=_join(t.shape, a, index.extent)) for t, a in axes.items()}

    def place(tensor: Tensor, at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        axis = axes[tensor]
        elsewhere = (
            at[axis] * as_index(inner.index.extent) + at[axis + 1]
        )  # an access outside of the loops
        return _join(at, axis, index if at[axis] is outer.index else elsewhere)

    loop = replace(outer, index=index, body=inner.body)
    body = ir.rewrite_block(kernel.body, lambda s: (loop,) if s is outer else None)
    body = ir.replace_arrays(body, tensors, place)
    joined = replace(
        kernel, body=body, parameters=tuple(tensors.get(p, p) for p in kernel.parameters)
    )
    return Joined(joined, outer.index, inner.index, index)


def _join(items: tuple, axis: int, joined: object) -> tuple:
    return (*items[:axis], joined, *items[axis + 2 :])
