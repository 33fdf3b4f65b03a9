"""A block of a kernel's results as a program of its own, over the regions of operands that the
block reads.

    for i in 0..n { y[i] = x[i] + x[i + 1] }, for i in 512..1024
    =>  for i in 0..512 { y[i] = x[i] + x[i + 1] }, where x is x[512..1025]

Regions, and with them the halos of stencils, are the bounds of index expressions; an index that
depends on data has the bounds of its axis. Indices are relative to the regions, so the programs of
most blocks are equal.
"""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import accumulate
from math import prod
from typing import Any

from cvm.dialect.kernel_ir import expressions as ex, loops as ir
from cvm.dialect.kernel_ir.affine import Affine, affine
from cvm.dialect.kernel_ir.execution_plan import Plan
from cvm.dialect.kernel_ir.index_bounds import index_bounds
from cvm.dialect.kernel_ir.traverse import walk
from cvm.dialect.types.sizes import Dim
from cvm.jit.options import CompileOptions
from cvm.lowering.analysis.accesses import every_access
from cvm.lowering.loops.simplify_with_bounds import simplify_with_bounds
from cvm.lowering.reductions.reduction_versions import orders

Range = tuple[Any, Any]  # all sizes are known here
Regions = Mapping[ex.Tensor, tuple[Range, ...]]  # of operands, a range of each axis
LEAST = 2  # elements of an axis, with fewer of which the order of a float reduction may be another


def order_of(kernel: ir.Kernel) -> list[object]:
    """The order of a kernel's float reductions, to compare; empty if it has none. Documented blocks
    are added up by their terms.
    """
    return [(o.along, o.extents if kernel.sum_order != "terms" else ()) for o in orders(kernel)]


def split_axes(kernel: ir.Kernel) -> dict[ex.Index, dict[ex.Tensor, int]]:
    """The outer loops whose iterations do not depend on each other: for each, the axis of
    everything written that it indexes.
    """
    indices, inner = ir.outer_loops(tuple(s for s in kernel.body if not isinstance(s, ir.Alloc)))
    shared = {*kernel.outputs, *(s.tensor for s in kernel.body if isinstance(s, ir.Alloc))}
    found: dict[ex.Index, dict[ex.Tensor, int]] = {}
    for index in indices:
        places = {
            (t, at.index(index) if index in at else -1)
            for t, at in every_access(inner)
            if t in shared
        }
        if len(places) == len(shared) == len(dict(places)) and -1 not in dict(places).values():
            found[index] = dict(places)
    return found


@dataclass(eq=False)
class Block:
    """A kernel restricted to ranges of some of its loops. `indices` and `operands` map those of the
    whole kernel to its own.
    """

    kernel: ir.Kernel
    indices: Mapping[ex.Index, ex.Index]
    operands: Mapping[ex.Tensor, ex.Tensor]
    program: bytes
    digest: str
    inner: "dict[tuple[ex.Index, Range], tuple[Block, Regions]]" = field(default_factory=dict)


class Blocks:
    """The blocks of a kernel. It is restricted loop by loop, and what is equal so far is restricted
    further once.
    """

    def __init__(self, kernel: ir.Kernel, options: CompileOptions, plan: Plan) -> None:
        self.options, self.plan, self.order = options, plan, order_of(kernel)
        self._known: dict[bytes, Block] = {}
        self._whole = self._block(kernel, {}, {t: t for t in kernel.inputs}, None)

    def block(self, ranges: Mapping[ex.Index, Range]) -> tuple[Block, Regions]:
        """The block at these ranges of loops, and the regions that it reads."""
        block, regions = self._whole
        for index, (start, stop) in ranges.items():
            if (step := (index, (start, stop))) not in block.inner:
                own, now = ex.Index(index.name, stop - start), block.indices.get(index, index)
                kernel = block.kernel.with_body(_restricted(block.kernel.body, now, own, start))
                split = None if own.extent == now.extent else own
                block.inner[step] = self._block(
                    kernel, {**block.indices, index: own}, block.operands, split
                )
            block, within = block.inner[step]
            shifted = {t: zip(regions[t], region, strict=True) for t, region in within.items()}
            regions = {
                t: tuple([(a + c, a + d) for (a, _), (c, d) in both]) for t, both in shifted.items()
            }
        return block, regions

    def _block(
        self,
        kernel: ir.Kernel,
        indices: Mapping[ex.Index, ex.Index],
        operands: Mapping[ex.Tensor, ex.Tensor],
        split: ex.Index | None,
    ) -> tuple[Block, Regions]:
        """The block of a kernel that was restricted, and what it reads of its operands."""
        body = simplify_with_bounds(kernel.body)
        tensors = (*kernel.parameters, *(s.tensor for s in body if isinstance(s, ir.Alloc)))
        places: dict[ex.Tensor, list[tuple[ex.Expr, ...]]] = {}
        for tensor, at in (
            every_access(body) if body else [(t, ex.axes(t.shape)) for t in tensors]
        ):  # of a loop, all
            places.setdefault(tensor, []).append(at)
        regions = {
            t: _region(at, t.shape, split, t in kernel.inputs and bool(self.order))
            for t, at in places.items()
            if t in tensors
        }
        parts = {
            t: replace(t, shape=tuple(b - a for a, b in region)) for t, region in regions.items()
        }
        parts |= {t: replace(parts[t], space="argument") for t in kernel.inputs if t in parts}

        def within(tensor: ex.Tensor, at: tuple[ex.Expr, ...]) -> tuple[ex.Expr, ...]:
            return tuple(
                affine(i).plus(-a).expression()
                for i, (a, _) in zip(at, regions[tensor], strict=True)
            )

        read = {t: now for t, now in operands.items() if now in parts}
        inputs, outputs = (
            tuple(parts[t] for t in read.values()),
            tuple(parts[t] for t in kernel.outputs),
        )
        kernel = replace(
            kernel, parameters=(*inputs, *outputs), body=ir.replace_arrays(body, parts, within)
        )
        plan = Plan("block", inputs, outputs, {}, (kernel,), requirements=self.plan.requirements)
        program = pickle.dumps((plan, self.options))
        found = Block(
            kernel,
            indices,
            dict(zip(read, inputs, strict=True)),
            program,
            sha256(program).hexdigest()[:32],
        )
        return self._known.setdefault(program, found), {t: regions[now] for t, now in read.items()}


def _region(
    places: Sequence[Sequence[ex.Expr]], shape: Sequence[Any], split: ex.Index | None, ordered: bool
) -> tuple[Range, ...]:
    """The region of a tensor that is accessed. A float reduction reads memory as in the whole
    array: all of an axis, or, where it is split, so much that it is no axis of one element.
    """
    region: list[Range] = []
    for at, n in zip(zip(*places, strict=True), shape, strict=True):
        lows, highs = zip(*(affine(e).bounds(index_bounds) for e in at), strict=True)
        low, high = (
            0 if None in lows else max(0, min(lows)),
            n if None in highs else min(n, max(highs) + 1),
        )
        if ordered and not any(split is i for e in at for i in walk(e)):
            low, high = 0, n
        elif ordered:
            low = max(0, min(low, high - LEAST))
            high = min(n, max(high, low + LEAST))
        region.append((low, max(low, high)))
    return tuple(region)


def _restricted(body: ir.Block, index: ex.Index, own: ex.Index, start: int) -> ir.Block:
    """The block with a loop from `start` on, and the loops over a part of its iterations from 0
    on.
    """

    def change(s: ir.Statement) -> ir.Block | None:
        if not isinstance(s, ir.For) or s.index is not index:
            return None
        inner = simplify_with_bounds(ir.substitute_block(s.body, {index: own + start}))
        return (replace(s, index=own, body=ir.rewrite_block(inner, from_zero)),)

    return ir.rewrite_block(body, change)


def from_zero(s: ir.Statement, extent: Dim | None = None) -> ir.Block | None:
    """A loop over a part of its iterations as one from 0 on, of at most so many; of the number that
    it has where that is known.
    """
    if (
        not isinstance(s, ir.For)
        or s.is_whole
        or s.kind != "serial"
        or (extent is None and s.length.terms)
    ):
        return None
    own = ex.Index(s.index.name, s.length.constant if extent is None else extent)
    stop = None if extent is None else s.end - s.start
    body = ir.substitute_block(s.body, {s.index: s.start + own})
    return (ir.For(own, ir.rewrite_block(body, from_zero), stop=stop),)


def cuts(kernel: ir.Kernel, index: ex.Index, arrays: Mapping[ex.Tensor, Any]) -> list[int] | None:
    """The values of a loop at which a kernel comes to other chunks of its operands: of the largest
    one, and of others where they make no short blocks. None if no operand has the loop's index.
    """
    places: dict[ex.Tensor, list[tuple[Affine, int, int]]] = {}
    for tensor, at in every_access(kernel.body):
        for axis, e in enumerate(at if tensor in arrays else ()):
            times = 1
            while (
                isinstance(e, ex.Apply)
                and e.function == "floordiv"
                and isinstance(e.operands[1], ex.Const)
            ):
                times, e = times * e.operands[1].value, e.operands[0]
            if _leads(form := affine(e), index):
                places.setdefault(tensor, []).append((form, times, axis))
    found = [0, index.extent]
    for n, tensor in enumerate(sorted(places, key=lambda t: -prod(t.shape) * t.element.bytes)):
        form, times, axis = sorted(places[tensor], key=lambda p: _crossing(p[0], index, 0))[
            len(places[tensor]) // 2
        ]
        sizes = arrays[tensor].chunks[axis]
        ends, least = [0, *accumulate(sizes)], (max(sizes) + 1) // 2
        for some, near in (
            (ends[1:-1], least if n else 0),
            ((0, ends[-1]), least),
        ):  # of chunks, and of the operand
            there = {c for b in some if 0 < (c := _crossing(form, index, b * times)) < index.extent}
            found += [c for c in sorted(there) if all(abs(c - other) >= near for other in found)]
    return sorted(found)[1:-1] if places else None


def _leads(form: Affine, index: ex.Index) -> bool:
    """Test whether an access is linear, and no other index moves it as far as this one does."""
    reach = {a: abs(f) * a.extent for a, f in form.terms.values() if isinstance(a, ex.Index)}
    return len(reach) == len(form.terms) and reach.get(index, -1) == max(reach.values(), default=0)


def _crossing(form: Affine, index: ex.Index, position: int) -> int:
    """The first value of an index at which an access has come to a position of the axis, or to
    below it where it goes down.
    """
    factor, (low, high) = form.factor(index), form.without(index).bounds(index_bounds)
    rest = ((low or 0) + (high or 0)) // 2 - position
    return -(rest // factor) if factor > 0 else rest // -factor + 1
