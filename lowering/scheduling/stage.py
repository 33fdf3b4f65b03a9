"""Copy the tile of an array that a loop's iteration accesses into a buffer of its own: stage.

    stage{array=b at=jo}
    for jo { for k { ... b[k, jo * 8 + ji] ... } }
    =>  for jo { alloc t; for k { t[k, ji] = b[k, jo * 8 + ji] }; for k { ... t[k, ji] ... } }

An array that is written is copied back after the iteration, and not into the buffer where the
iteration writes each element before it reads it. Legal where the tile holds all that
the iteration accesses of the array.
"""

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.affine import Affine, affine
from ...dialect.kernel_ir.expressions import (
    Expr,
    Index,
    Read,
    Tensor,
    as_index,
    flat_operands,
    minimum,
)
from ...dialect.kernel_ir.traverse import walk
from ..analysis.accesses import allocated, depends, every_access, stores
from ..analysis.prove import prove
from ..analysis.verify_kernel import bounds_of
from ..analysis.written import unwritten_in
from .find_loops import find_array, find_loop, loops_around, put
from .steps import Refused, step

MAX_BYTES = 1 << 20  # of a tile; bounds a thread's stack


@step
def stage(kernel: ir.Kernel, array: str, at: str) -> ir.Kernel:
    """Use a buffer for what each iteration of the loop `at` accesses of an array."""
    s = find_loop(kernel, at)
    tensor = find_array(kernel, array)
    if tensor in allocated(s.body):
        raise Refused(f"stage: %{array} is a buffer of the loop {at} already")
    if tensor in (*_read(s.start), *_read(s.end)):
        raise Refused(f"stage: the bounds of {at} read %{array}")
    places = [i for t, i in every_access(s.body) if t is tensor]
    if not places:
        raise Refused(f"stage: the loop {at} does not access %{array}")
    axes = [_extent(s, [p[axis] for p in places], array) for axis in range(tensor.rank)]
    shape = tuple(size for _, size in axes)
    made = Tensor(f"{tensor.name.removesuffix('.out')}.tile", shape, tensor.element, "stack")
    if not isinstance(made.bytes, int) or made.bytes > MAX_BYTES:
        raise Refused(
            f"stage: the tile of %{array} has {made.bytes} bytes, at most {MAX_BYTES} are staged"
        )
    first = [low.expression() for low, _ in axes]
    written = any(t.tensor is tensor for t in stores(s.body))
    body = ir.redirect(
        s.body,
        lambda t, i: (
            (
                made,
                tuple((affine(e) - low).expression() for e, (low, _) in zip(i, axes, strict=True)),
            )
            if t is tensor
            else None
        ),
    )
    facts = [f for t in loops_around(kernel, s) for f in bounds_of(t)]
    copies = [_copy(tensor, made, first, back, facts) for back in (False, True)]
    block = (ir.Alloc(made), *body, *(copies[1] if written else ()))
    fresh = put(kernel, s, (ir.replace(s, body=block),))
    if written and all(u.tensor is not made for u in unwritten_in(fresh)):
        return fresh
    return put(kernel, s, (ir.replace(s, body=(block[0], *copies[0], *block[1:])),))


def _copy(
    tensor: Tensor, made: Tensor, first: list[Expr], back: bool, facts: list[Affine]
) -> ir.Block:
    """The loops that copy a tile into its buffer, or back; elements beyond the array stay out."""
    name = made.name.removesuffix(".tile")
    at = tuple(Index(f"{name}{n}", size) for n, size in enumerate(made.shape))
    outside = tuple(low + i for low, i in zip(first, at, strict=True))
    block: ir.Block = (
        (ir.Store(tensor, outside, made[at]),) if back else (ir.Store(made, at, tensor[outside]),)
    )
    sizes = (n for n in made.shape if isinstance(n, int))  # all are
    for index, n, low, d in reversed([*zip(at, sizes, first, tensor.shape, strict=True)]):
        left = affine(as_index(d)) - affine(low)
        fits = prove(left.plus(-n), facts, {})
        stop = None if fits else minimum(n, left.expression())
        block = (ir.For(index, block, stop=stop),)
    return block


def _extent(s: ir.For, at: list[Expr], array: str) -> tuple[Affine, int]:
    """The first index of an axis that an iteration accesses, and how many there are."""
    bounds = [_bounds(s, e, array) for e in at]
    for low, _ in bounds:
        gaps = [(other - low) for other, _ in bounds]
        ends = [_constant(high - low) for _, high in bounds]
        if all(not g.terms and g.constant >= 0 for g in gaps) and None not in ends:
            return low, 1 + max(e for e in ends if e is not None)
    raise Refused(f"stage: the tile of %{array} has no constant size")


def _bounds(s: ir.For, e: Expr, array: str) -> tuple[Affine, Affine]:
    """The least and the greatest value of a subscript, over the loops inside."""
    low = high = affine(e)
    inside = [t for t in ir.statements(s.body) if isinstance(t, ir.For)]
    bound: set[Expr] = {t.index for t in inside}
    bound |= {t.var for t in ir.statements(s.body) if isinstance(t, ir.Let)}
    for t in reversed(inside):
        factor = low.factor(t.index), high.factor(t.index)
        if not any(factor):
            continue
        first, last = affine(t.start), affine(t.end).plus(-1)
        low = low.without(t.index) + (first if factor[0] > 0 else last) * factor[0]
        high = high.without(t.index) + (last if factor[1] > 0 else first) * factor[1]
    atoms = [a for form in (low, high) for a, _ in form.terms.values()]
    mutable = {t.tensor for t in stores(s.body)}
    if any(depends(a, bound) or not mutable.isdisjoint(_read(a)) for a in atoms):
        raise Refused(f"stage: a subscript of %{array} is not linear in the loops inside")
    return low, high


def _read(e: Expr) -> set[Tensor]:
    return {n.tensor for n in walk(e) if isinstance(n, Read)}


def _constant(form: Affine) -> int | None:
    """A constant that a form does not exceed, None if there is none."""
    for atom, factor in form.terms.values():
        if factor > 0:
            for e in flat_operands("min", atom):
                rest = form.without(atom) + affine(e) * factor
                if rest is not form and e is not atom and (found := _constant(rest)) is not None:
                    return found
    return None if form.terms else form.constant
