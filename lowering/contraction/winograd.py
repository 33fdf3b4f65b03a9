"""Windows of 3 x 3 that move by one, in tiles of 2 x 2 results with 16 products in place of 36, or of 4 x 4 with 36 in place of
144: Winograd's algorithms, in 16 bits.

    y[p, q] = sum over c, r, s of w[c, r, s] * x[c, p + r, q + s]
    =>  weights[n] = G w G'                     16 or 36 numbers n for each 3 x 3
        turned[n] = B' x B                      as many for each 4 x 4 or 6 x 6 that a tile of y is made of
        y = A' (sum over c of weights[n] * turned[n]) A, divided

What the algorithms are, and where they are exact, says `turning`. Where ranges do not tell, what the factors are is looked
at, and where they are too large the contraction is computed as any other. Weights that are known are turned here.

Two channels share a word, and are turned together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf

import numpy as np

from ...dialect.notation.affine import affine
from ...dialect.notation.expressions import Expr, Index, Read, Tensor, both
from ...dialect.notation.loops import Kernel
from ..analysis.accesses import depends
from ..processor import processor
from .match import Contraction, LoweredContraction, kernel_from_body
from .operand_bitwidths import OperandMagnitudes
from .vnni_packing import at_least, extent_of, is_edge, known_terms, only_read, pack_k_axis, size_of
from .winograd_kernels import VECTORS, Windows, WinogradKernels
from .winograd_transforms import WINOGRAD_F2X2_3X3, WinogradTransform

MAX_STACK_STEPS = 1024  # turned columns of a panel may be on the stack


@lru_cache(maxsize=4)
def windows_of(c: Contraction) -> Windows | None:
    """The windows of a contraction; None where it has none, or other ones."""
    read = only_read(c.b)
    if c.window is None or read is None or not all(is_edge(g, read) for g in c.guard):
        return None
    found = [_slides(read, along, c.reduction_axes) for along in (c.window, c.column)]
    if None in found:
        return None
    (axis, rows), (other, columns) = (f for f in found if f is not None)
    rest = tuple(i for i in c.reduction_axes if i not in (rows, columns))
    mine = only_read(c.a)
    if (
        axis == other
        or not rest
        or mine is None
        or any(sum(i is k for i in mine.indices) != 1 for k in c.reduction_axes)
    ):
        return None
    pairs = pack_k_axis(rest, 2)
    return None if pairs.partial else Windows(rows, columns, (axis, other), read, pairs)


def _slides(read: Read, along: Index, reduction_axes: Sequence[Index]) -> tuple[int, Index] | None:
    """The axis at which a read is at along + k + a constant, and the k of three that is nowhere else."""
    for axis, e in enumerate(read.indices):
        sum = affine(e)
        k = next((k for k in reduction_axes if sum.factor(k) == 1 and extent_of(k) == 3), None)
        if k is not None and sum.factor(along) == 1 and len(sum.terms) == 2:
            others = [i for n, i in enumerate(read.indices) if n != axis]
            return None if any(depends(i, {k, along}) for i in others) else (axis, k)
    return None


def lower_winograd(
    turning: WinogradTransform,
    kernel: Kernel,
    c: Contraction,
    sizes: OperandMagnitudes,
    constants: Mapping[Tensor, np.ndarray],
) -> tuple[LoweredContraction, Expr | bool] | None:
    """The kernels that transform 3 x 3 windows, and where they are exact; None where they never are."""
    windows = windows_of(c)
    assert windows is not None
    pays = _pays(c, windows)
    turned = WinogradKernels(kernel, c, windows, turning)
    array = known_terms(c.a, constants, (*turned.rows, *turned.reduction_axes))
    if array is None:
        pays = both(pays, at_least(size_of(c.window) * c.column.extent, processor().tuning.winograd_results))
    packed: dict[Tensor, np.ndarray] = {}
    views: dict[Tensor, Tensor] = {}
    kernels: list[Kernel] = []
    if array is None:
        held = turning.fits(sizes.columns, sizes.rows, windows.terms)
        shaped, body = turned.weights()
        weights = replace(shaped, shape=(*shaped.shape[: len(turned.rows) + 1], windows.pairs.steps))
        views[weights] = shaped
        kernels.append(kernel_from_body(kernel, "weights", body, (shaped,)))
    else:
        points = turning.known_points(array)
        if points is None:
            return None
        reach = np.abs(array.astype(np.int64)).sum(tuple(range(len(turned.rows), array.ndim))).max()
        held = turning.fits(sizes.columns, sizes.rows, windows.terms, int(reach))
        weights = turned.packed(points, packed)
    if (held := both(held, pays)) is False:
        return None
    shaped, body = turned.image()
    image = replace(shaped, shape=(*shaped.shape[:-2], turned.wide * (turned.lines + 1)))
    views[image] = shaped
    kernels.append(kernel_from_body(kernel, "image", body, (shaped,)))
    ready: list[Kernel] = []
    if turned.groups > 1:
        ready.append(kernel_from_body(kernel, "columns", turned.turned(image), (turned.columns,)))
    ready.append(
        kernel_from_body(kernel, "turned", turned.multiply(image, weights, array is not None), (turned.results,))
    )
    ready.append(kernel_from_body(kernel, "finish", turned.finish(), kernel.outputs))
    return LoweredContraction((*kernels, *ready), views, packed, frozenset(ready)), held


def winograd_products(
    turning: WinogradTransform, kernel: Kernel, c: Contraction, constants: Mapping[Tensor, np.ndarray]
) -> tuple[float, str]:
    """The vector instructions of the products in the transformed domain, and why they do not apply, if so."""
    windows = windows_of(c) if c.unknown.isdisjoint((c.row, *c.reduction_axes)) else None
    if windows is None:
        return inf, "no windows of 3 x 3 that move by one over an even number of channels of known sizes"
    if _pays(c, windows) is False:
        return inf, "too few rows, tiles or channels for transforms to pay"
    turned = WinogradKernels(kernel, c, windows, turning)
    products = turned.cost
    if known_terms(c.a, constants, (*turned.rows, *turned.reduction_axes)) is None:
        if turning is not WINOGRAD_F2X2_3X3:
            return products, "weights are not constant"
        if at_least(size_of(c.window) * c.column.extent, processor().tuning.winograd_results) is False:
            return products, "too few results for transforming weights in every call"
    if turning is not WINOGRAD_F2X2_3X3 and (
        not isinstance(turned.count, int) or turned.count < processor().tuning.winograd_tiles
    ):
        return products, "too few tiles for their transforms to pay"
    return products, ""


def _pays(c: Contraction, windows: Windows) -> Expr | bool:
    """Test whether there are enough products; a run-time condition if the window's stride is unknown."""
    high, wide = size_of(c.window), c.column.extent
    work = high * wide * (extent_of(c.row) * windows.terms)
    if (
        extent_of(c.row) < processor().tuning.winograd_rows
        or not processor().tuning.winograd_steps <= windows.pairs.steps <= MAX_STACK_STEPS
    ):
        return False
    tiles, results = (
        (VECTORS * processor().lanes, 2 * processor().lanes) if c.unknown else (0, 0)
    )  # whole vectors of what is not known have to fit
    wanted = (
        (((high + 1) // 2) * ((wide + 1) // 2), max(processor().tuning.winograd_tiles, tiles)),
        (work, processor().packing_products),
        (wide, results),
    )
    return both(*(at_least(n, least) for n, least in wanted if least))
