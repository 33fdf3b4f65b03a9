"""Tile convolutions that keep channels apart (depthwise), with what windows share in shared memory
(Halide's compute_at).

    for c { for i { for j {
        acc = 0; for k { for l { if inside { acc = acc + x[c, i + k - 1, j + l - 1] * w[c, k, l] }
        }; y[c, i, j] = f(acc) } } }
    =>  for tile block {
          alloc shared window: tensor<1x34x34xf32>
          for t thread { for s in 0..5 unrolled { window[...] = x[...] } }     0 outside of x
          for t thread { for u in 0..4 unrolled { acc = 0; the terms, of window; y[c, i + u, j] =
          f(acc) } }
        }

Legal always: a sum's terms keep their order. Floats outside of x are not added: zero would make NaN
of infinity, and 0.0 of -0.0. Pays if windows overlap, and half of the multiprocessors get a tile.
Outputs of a thread are rows that follow each other, so that they share what it reads.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ...dialect.kernel_ir import expressions as ex
from ...dialect.kernel_ir.affine import Affine, affine
from ...dialect.kernel_ir.expressions import (
    Expr,
    Index,
    Read,
    Tensor,
    apply,
    both,
    constant,
    unflatten,
)
from ...dialect.kernel_ir.index_bounds import inside
from ...dialect.kernel_ir.loops import Alloc, Block, For, Kernel, Store, nested, substitute_block
from ...dialect.kernel_ir.traverse import rewrite, substitute, walk
from ...dialect.types.tensor_types import F32, F64
from ..analysis.parallel_loops import THREADS
from ..contraction.match_contraction import SumOfProducts, windowed
from ..contraction.vnni_packing import extent_of, is_edge
from ..passes import scheduled_gpu_pass
from ..processor import processor
from .thread_block_tile import guarded

OUTPUTS = 4  # results of a thread; counted, not timed on a GPU
# sides of a tile, which has several channels where an image is smaller; counted, not timed on a
# GPU
PLANES = (32, 32)
# sides of a tile of images whose channels are last; counted, not timed on a GPU
CHANNELS_LAST = (4, 8, 32)
TERMS = 64  # terms of a sum, at most; counted, not timed on a GPU
READS = 4  # reads of a loaded element, at least; counted, not timed on a GPU


@scheduled_gpu_pass
def tiled_window(kernel: Kernel) -> Kernel | None:
    """The kernel by tiles, if it moves overlapping windows over an array of known size."""
    for last, sides in ((False, PLANES), (True, CHANNELS_LAST)):
        if (nest := windowed(kernel, channels_last=last)) is not None:
            return _tiles(kernel, nest, sides)
    return None


def _tiles(kernel: Kernel, nest: SumOfProducts, sides: tuple[int, ...]) -> Kernel | None:
    loops = nest.loops
    acc = nest.accumulator
    terms = {k: extent_of(k) for k in nest.reduction_axes}
    read, *others = (e for e in walk(nest.b) if isinstance(e, Read))
    row = loops[-len(sides)]
    tile = _tile(loops, sides)
    forms = [affine(e) for e in read.indices]
    sizes: dict[Expr, int] = {**tile, **terms}
    if others or any(a not in sizes or f < 0 for form in forms for a, f in form.terms.values()):
        return None
    counts = tuple(-(-extent_of(i) // tile[i]) for i in loops)
    element = read.tensor.element
    threads = {**tile, row: tile[row] // OUTPUTS}
    shape = tuple(1 + sum(f * (sizes[a] - 1) for a, f in form.terms.values()) for form in forms)
    shape = _padded(shape, forms, row, threads, element.bytes)
    fits = (
        prod(shape) * element.bytes <= processor().gpu.shared_bytes
        and prod(terms.values()) <= TERMS
    )
    often = THREADS * OUTPUTS * prod(terms.values()) >= READS * prod(shape)
    known = acc.element.is_integer or acc.element in (F32, F64)
    if not (fits and often and known and 2 * prod(counts) >= processor().gpu.multiprocessors):
        return None
    thread = Index("t", THREADS)
    block = Index("b", prod(counts))
    window = Tensor("window", shape, element, "shared")
    first: dict[Expr, Expr] = {
        i: n * tile[i] for i, n in zip(loops, unflatten(block, counts), strict=True)
    }

    s = Index("s", -(-prod(shape) // THREADS))
    begin = {**first, **dict.fromkeys(terms, ex.ZERO)}
    at = unflatten(s * THREADS + thread, shape)
    there = tuple(substitute(e, begin) + n for e, n in zip(read.indices, at, strict=True))
    zero: Block = (Store(window, at, constant(0, element)),)
    load = guarded(
        (Store(window, at, read.tensor[there]),),
        both(*map(inside, there, read.tensor.shape)),
        otherwise=zero,
    )
    load = nested((s,), guarded(load, inside(at[0], shape[0])), "unrolled")

    u = Index("u", OUTPUTS)
    own: dict[Expr, Expr] = dict(
        zip(loops, unflatten(thread, tuple(threads.values())), strict=True)
    )
    own[row] = own[row] * OUTPUTS + u
    places: dict[Expr, Expr] = {i: first[i] + own[i] for i in loops}
    here = window[tuple(substitute(f.plus(-f.constant).expression(), own) for f in forms)]
    a = substitute(nest.a, places)
    b = substitute(rewrite(nest.b, lambda e: here if e is read else None), places)
    guard = both(*(substitute(g, places) for g in nest.guard))
    value = (
        apply("add", acc[()], apply("mul", a, b))
        if acc.element.is_integer
        else apply("fma", a, b, acc[()])
    )
    zeros = acc.element.is_integer and read is (
        nest.b.operand if isinstance(nest.b, ex.Cast) else nest.b
    )
    if isinstance(guard, Expr) and not (zeros and all(is_edge(g, read) for g in nest.guard)):
        value = ex.select(guard, value, acc[()])
    added = nested(nest.reduction_axes, (Store(acc, (), value),), "unrolled")
    there = {i: inside(places[i], i.extent) for i in loops}
    finish = guarded(substitute_block(nest.epilogue, places), there.pop(row))
    body = nested(
        (u,), (Alloc(acc), Store(acc, (), constant(0, acc.element)), *added, *finish), "unrolled"
    )
    body = guarded(body, both(*there.values()))
    parts = (For(thread, load, kind="thread"), For(thread, body, kind="thread"))
    return kernel.with_body((For(block, (Alloc(window), *parts), kind="block"),))


def _tile(loops: Sequence[Index], sides: Sequence[int]) -> dict[Index, int]:
    """The outputs of a block along each loop: in all, those of its threads."""
    tile = dict.fromkeys(loops, 1)
    left = THREADS * OUTPUTS
    for n, i in enumerate(reversed(loops)):
        most = min(
            left, sides[-1 - n] if n < len(sides) else left, 1 << (extent_of(i) - 1).bit_length()
        )
        tile[i] = max(most, OUTPUTS if n + 1 == len(sides) else 1)
        left //= tile[i]
    return {**tile, loops[0]: tile[loops[0]] * left}


def _padded(
    shape: tuple[int, ...],
    forms: Sequence[Affine],
    row: Index,
    threads: Mapping[Index, int],
    bytes: int,
) -> tuple[int, ...]:
    """The shape of a window with its last axis padded, so that reads of a warp's threads conflict
    least.
    """
    gpu, digits = (
        processor().gpu,
        np.unravel_index(np.arange(processor().gpu.warp), tuple(threads.values())),
    )
    own: dict[Expr, Any] = {
        i: n * OUTPUTS if i is row else n for i, n in zip(threads, digits, strict=True)
    }
    places = [
        sum((own[a] * f for a, f in form.terms.values() if a in own), 0 * digits[0])
        for form in forms
    ]

    def conflicts(last: int) -> int:
        words = np.unique(
            np.ravel_multi_index(places, (*shape[:-1], last)) * bytes // gpu.bank_bytes
        )
        return len(words) - len(np.unique(words % (gpu.line_bytes // gpu.bank_bytes)))

    return (*shape[:-1], min(range(shape[-1], shape[-1] + gpu.warp), key=conflicts))
