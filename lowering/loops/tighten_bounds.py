"""Tighten loop bounds by affine guards, exactly and without branches (bound tightening).

    for k in 0..3 { if p + k - 1 >= 0 & p + k - 1 < 8 & g { ... } }
    =>  if g { for k of 3 in max(0, 1 - p)..min(3, 9 - p) { ... } }

Legal for a guard around the whole body that reads no array which the body writes. A condition that
does not depend on the loop's index is hoisted out of the loop; one that is affine in it becomes a
bound. Pays always.
"""

from functools import reduce
from operator import and_

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.affine import Affine, affine_conditions
from ...dialect.kernel_ir.expressions import Expr, Index, Read, conjunction, maximum, minimum
from ...dialect.kernel_ir.index_bounds import index_bounds
from ...dialect.kernel_ir.traverse import walk
from ..analysis.accesses import depends, stores
from ..passes import kernel_pass


@kernel_pass
def tighten_bounds(kernel: ir.Kernel) -> ir.Kernel:
    return kernel.with_body(narrowed(kernel.body))


def narrowed(block: ir.Block) -> ir.Block:
    return ir.rewrite_block(block, _bounded)


def _bounded(s: ir.Statement) -> ir.Block | None:
    inner = ir.rewrite_within(s, _bounded)
    match inner:
        case ir.For(body=(ir.If(condition, then, ()),), kind="serial"):
            if not any(isinstance(b, ir.For) and b.kind != "serial" for b in ir.blocks(s)[0]):
                return (_narrowed(inner, conjunction(condition), then),)
    return (inner,)


def _narrowed(loop: ir.For, conditions: list[Expr], body: ir.Block) -> ir.Statement:
    outside: list[Expr] = []
    inside: list[Expr] = []
    start, end = loop.start, loop.end
    stored = {s.tensor for s in stores(body)}
    for condition in conditions:
        changes = any(
            isinstance(e, Read) and e.tensor in stored for e in walk(condition)
        )  # in an iteration
        if not changes and not depends(condition, {loop.index}):
            outside.append(condition)
            continue
        bounds = [bound(sum, loop.index) for sum in affine_conditions(condition) or []]
        if changes or not bounds or None in bounds:
            inside.append(condition)
            continue
        for lower, value in filter(None, bounds):
            if lower and not _at_most(value, start):
                start = maximum(start, value)
            elif not lower and not _at_most(end, value):
                end = minimum(end, value)
    if inside:
        body = (ir.If(reduce(and_, inside), body),)
    tightened = ir.replace(loop, body=body, start=start, stop=loop.stop if end is loop.end else end)
    return ir.If(reduce(and_, outside), (tightened,)) if outside else tightened


def bound(sum: Affine, index: Index) -> tuple[bool, Expr] | None:
    """The bound that sum >= 0 implies: (True, b) for index >= b, (False, b) for index < b; None if
    it is not affine.
    """
    factor, rest = sum.factor(index), sum.without(index)
    if not factor or any(depends(a, {index}) for a, _ in rest.terms.values()):
        return None
    if factor > 0:  # index >= ceil(-rest / factor)
        return True, (rest * -1).expression() if factor == 1 else 0 - rest.expression() // factor
    return False, rest.plus(1).expression() if factor == -1 else rest.expression() // -factor + 1


def _at_most(a: Expr, b: Expr) -> bool:
    (_, high), (low, _) = index_bounds(a), index_bounds(b)
    return high is not None and low is not None and high <= low
