"""Dask graphs of the kernels of a program: a layer for each array, with a task for each block, and
what a task does.
"""

import pickle
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from importlib import import_module
from itertools import accumulate, pairwise, product
from math import prod
from operator import getitem
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
from dask import config  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]
from dask._task_spec import DataNode, Task, TaskRef  # pyright: ignore[reportMissingImports]
from dask.highlevelgraph import HighLevelGraph  # pyright: ignore[reportMissingImports]
from dask.utils import parse_bytes  # pyright: ignore[reportMissingImports]

from cvm.dialect.kernel_ir import expressions as ex, loops as ir
from cvm.dialect.kernel_ir.execution_plan import Plan
from cvm.dialect.kernel_ir.reduce_in_order import MIN_TERMS
from cvm.jit.cache.measured_costs import measured_host
from cvm.jit.functions.kernel_function import KernelFunction
from cvm.jit.options import CompileOptions
from cvm.lowering.analysis.reduction_order import length, terms
from cvm.lowering.loops.collapse import collapsed
from cvm.lowering.loops.inline_lets import inline_lets
from cvm.lowering.pass_context import Context
from cvm.lowering.passes import run_passes
from cvm.lowering.pipeline import CPU_LOOPS, CPU_SCHEDULE, LOOPS
from cvm.lowering.processor import compiling_for
from cvm.lowering.reductions.blocked_sums import has_order, reduction_accumulators
from cvm.lowering.reductions.split_reduction import separate_reductions, split_in_blocks

from .blocks import LEAST, Blocks, Range, cuts, from_zero, order_of, split_axes

COMBINED = 16  # partial results that one task combines
da: Any = import_module("dask.array")  # whose types differ from what it takes
Array: TypeAlias = Any
Operands = dict[ex.Tensor, Array]
_programs: dict[str, KernelFunction] = {}  # of this process, by digest
_lock = Lock()


def run(digest: str, program: bytes, layouts: Sequence[Any], *parts: Any) -> Any:
    """The results of a program on regions of these parts: those of a shape and element type at
    their places, or a whole chunk.
    """
    left, arrays = iter(parts), list[np.ndarray]()
    for layout in layouts:
        arrays.append(np.asarray(next(left)) if layout is None else np.empty(*layout[:2]))
        for place in layout[2] if layout else ():
            arrays[-1][place] = next(left)
    if digest in _programs:
        return _programs[digest](*arrays)
    with _lock:  # a program is compiled once, in its first call
        function = _programs.get(digest) or compiled(*pickle.loads(program))
        found = function(*arrays)
        _programs[digest] = function
    return found


def compiled(plan: Plan, options: CompileOptions) -> KernelFunction:
    """The plan of a block as a function, after the passes that the plan of the program has not gone
    through.
    """
    with compiling_for(options.cpu or measured_host()):
        return KernelFunction(
            run_passes((*LOOPS[2:], *CPU_LOOPS, *CPU_SCHEDULE), plan, Context()), options
        )


class Arrays:
    """The arrays of a program's tensors. The names of tasks, which Dask shows, begin with that of
    the function.
    """

    def __init__(
        self, name: str, options: CompileOptions, plan: Plan, arrays: Sequence[Array]
    ) -> None:
        self.name, self.options, self.plan = name, options, plan
        self.known: Operands = {t: da.from_array(a, chunks=-1) for t, a in plan.constants.items()}
        self.known |= zip(plan.arguments, arrays, strict=True)
        for kernel in plan.kernels:
            self._add(inline_lets(replace(kernel, spans=())))

    def of(self, tensor: ex.Tensor) -> Array:
        """The array of a tensor, which may be a view."""
        if tensor not in self.known:
            self.known[tensor] = self.of(self.plan.views[tensor]).reshape(tensor.shape)
        return self.known[tensor]

    def _add(self, kernel: ir.Kernel, is_part: bool = False) -> None:
        """Add the results of a kernel, which may be the partial ones of a reduction."""
        operands = {t: self.of(t) for t in kernel.inputs}
        if not is_part and (kernels := self._in_parts(kernel, operands)) is not None:
            self._add(kernels[0], is_part=True)
            return self._add(kernels[1])
        blocks, splits = Blocks(kernel, self.options, self.plan), split_axes(kernel)
        _, first = blocks.block({i: (0, min(i.extent, 1)) for i in splits})
        _, last = blocks.block({i: (max(i.extent - 1, 0), i.extent) for i in splits})
        for t in (
            first.keys() & last.keys()
        ):  # where each end takes all of an axis, so does every block
            ends = zip(first[t], last[t], t.shape, strict=True)
            operands[t] = _gathered(
                operands[t], [n for n, (a, b, d) in enumerate(ends) if a == b == (0, d)]
            )
        ranges = _ranges(kernel, splits, operands, next(iter(splits)) if is_part else None)
        at = [dict(zip(ranges, r, strict=True)) for r in product(*ranges.values())]
        if any(order_of(b) != blocks.order for b in {blocks.block(r)[0].kernel for r in at}):
            ranges = {
                i: [(0, i.extent)] for i in splits
            }  # smaller blocks would add floats in another order
            at = [{i: r for i, (r,) in ranges.items()}]
        found = [(r, *blocks.block(r)) for r in at]
        token = [a.name for a in operands.values()] + [
            f"{b.digest}{[*r.values()]}" for _, b, r in found
        ]
        name = f"{self.name}-{sha256(str(token).encode()).hexdigest()[:32]}"
        names = {t: f"{name}-{n}" if n else name for n, t in enumerate(kernel.outputs)}
        numbers = {i: {r: n for n, r in enumerate(along)} for i, along in ranges.items()}
        ends = {t: [[0, *accumulate(c)] for c in a.chunks] for t, a in operands.items()}
        graph: dict[Any, Any] = {}
        for r, block, regions in found:
            stored = f"{self.name}-program-{block.digest}"
            graph[stored] = DataNode(stored, block.program)
            pieces = [
                self._pieces(operands[t], ends[t], region, graph) for t, region in regions.items()
            ]
            places = {t: {axes[t]: numbers[i][r[i]] for i, axes in splits.items()} for t in names}
            keys = [
                (own, *(places[t].get(axis, 0) for axis in range(t.rank)))
                for t, own in names.items()
            ]
            key = keys[0] if len(keys) == 1 else (f"{name}-all", *keys[0])
            parts = [ref for _, refs in pieces for ref in refs]
            graph[key] = Task(
                key, run, block.digest, TaskRef(stored), [layout for layout, _ in pieces], *parts
            )
            graph |= {k: Task(k, getitem, TaskRef(key), n) for n, k in enumerate(keys) if k != key}
        for t, own in names.items():
            along = {axes[t]: tuple(b - a for a, b in ranges[i]) for i, axes in splits.items()}
            layers = HighLevelGraph.from_collections(own, graph, [*operands.values()])
            self.known[t] = da.Array(
                layers, own, [along.get(n, (d,)) for n, d in enumerate(t.shape)], t.element.dtype
            )

    def _in_parts(
        self, kernel: ir.Kernel, operands: Operands
    ) -> tuple[ir.Kernel, ir.Kernel] | None:
        """The kernels that reduce blocks and combine these, if a kernel reduces over several chunks
        and may be split there.

        The blocks of long float sums are the documented ones; those of reductions without an order
        are the chunks.
        """
        plain = collapsed(kernel)
        found = [reduction_accumulators(r) or {} for r in separate_reductions(plain)[1]]
        nans = any(
            f in ("max", "min") and t.element.kind == "float"
            for some in found
            for t, f in some.items()
        )
        if (
            not found
            or nans
            or kernel.scheduled
            or all(a.npartitions == 1 for a in operands.values())
        ):
            return None  # or a NaN's place would decide its maximum
        if ordered := any(map(has_order, found)):
            first = separate_reductions(plain)[1][0]
            if terms(first) < MIN_TERMS:
                return None
            each = length(first)
            self.known |= {
                o: self.of(t).reshape(o.shape)
                for o, t in zip(plain.inputs, kernel.inputs, strict=True)
            }
        else:
            plain, first = kernel, separate_reductions(kernel)[1][0]
            ends = [0, *(cuts(kernel, first.index, operands) or ()), first.index.extent]
            each = max(b - a for a, b in pairwise(ends))
            each = max(each, COMBINED) if each == 1 else each  # as those of partial results
        if isinstance(each, ex.Expr) or each >= first.index.extent:
            return None
        parts, joined = split_in_blocks(plain, each, -(-first.index.extent // each))
        parts = parts.with_body(ir.rewrite_block(parts.body, lambda s: from_zero(s, each)))
        return (
            (replace(parts, sum_order="terms"), replace(joined, scheduled=True))
            if ordered
            else (parts, joined)
        )

    def _pieces(
        self,
        array: Array,
        ends: Iterable[Sequence[int]],
        region: Sequence[Range],
        graph: dict[object, object],
    ) -> tuple[Any, list[TaskRef]]:
        """The parts of chunks that make up a region. A part of a chunk is a task of its own, so
        that no more is sent.
        """
        found: list[TaskRef] = []
        places: list[tuple[slice, ...]] = []
        for axes in product(*map(_overlaps, ends, region)):
            chunk, taken = (
                (array.name, *(n for n, _, _, _ in axes)),
                tuple(part for _, _, part, _ in axes),
            )
            key = (
                chunk
                if all(w for _, w, _, _ in axes)
                else (f"{self.name}-halo-{array.name}", *chunk[1:], str(taken))
            )
            if key != chunk:
                graph[key] = Task(key, getitem, TaskRef(chunk), taken)
            found.append(TaskRef(key))
            places.append(tuple(to for _, _, _, to in axes))
        return (
            None if len(found) == 1 else (tuple(b - a for a, b in region), array.dtype.str, places)
        ), found


def _overlaps(ends: Sequence[int], region: Range) -> Iterable[tuple[int, bool, slice, slice]]:
    """The chunks with elements of a range: number, whether all of it, where these are in the chunk,
    and where in the range.
    """
    start, stop = region
    first = min(bisect_right(ends, start), len(ends) - 1) - 1
    for n in range(first, max(first + 1, bisect_left(ends, stop))):
        a, b = max(start, ends[n]), min(stop, ends[n + 1])
        yield (
            n,
            (a, b) == (ends[n], ends[n + 1]),
            slice(a - ends[n], b - ends[n]),
            slice(a - start, b - start),
        )


def _ranges(
    kernel: ir.Kernel, splits: Iterable[ex.Index], operands: Operands, parts: ex.Index | None
) -> dict[ex.Index, list[Range]]:
    """The blocks along each loop: as the chunks of operands, or where none has the loop as large as
    Dask's configuration says. The last of the parts of a reduction, which may be a shorter one, is
    a block of its own.
    """
    sizes: dict[ex.Index, Any] = {}
    for i in splits:
        found, kept = cuts(kernel, i, operands), [0]
        least = LEAST if order_of(kernel) and i is not parts else 0
        for c in sorted({*(found or ()), *([i.extent - 1] if i is parts else ())}):
            kept += [c] if c - kept[-1] >= least and i.extent - c >= least else []
        sizes[i] = None if found is None else tuple(b - a for a, b in pairwise([*kept, i.extent]))
    shape, dtype = tuple(i.extent for i in sizes), kernel.outputs[0].element.dtype
    most = prod(max(s or (i.extent,)) for i, s in sizes.items()) * dtype.itemsize
    free = "auto" if most > _chunk_bytes() else -1
    chunks = da.core.normalize_chunks(tuple(s or free for s in sizes.values()), shape, dtype=dtype)
    return {i: [*pairwise([0, *accumulate(s)])] for i, s in zip(sizes, chunks, strict=True)}


def _gathered(array: Array, axes: Sequence[int]) -> Array:
    """An array with one chunk along each of these axes, and with shorter ones along others where
    that is too large.
    """
    if all(len(array.chunks[a]) == 1 for a in axes):
        return array
    most = (
        prod(n if a in axes else max(array.chunks[a]) for a, n in enumerate(array.shape))
        * array.dtype.itemsize
    )
    rest = [a for a in range(array.ndim) if a not in axes and most > _chunk_bytes()]
    return array.rechunk(dict.fromkeys(axes, -1) | dict.fromkeys(rest, "auto"))


def _chunk_bytes() -> int:
    return parse_bytes(config.get("array.chunk-size"))
