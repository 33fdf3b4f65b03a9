"""Windows of 3 x 3 that move by one, in tiles of 2 x 2 results with 16 products in place of 36, or
of 4 x 4 with 36 in place of 144: Winograd's algorithms, in 16 bits.

    y[p, q] = sum over c, r, s of w[c, r, s] * x[c, p + r, q + s]
    =>  weights[n] = G w G'                     16 or 36 numbers n for each 3 x 3
        turned[n] = B' x B                      as many for each 4 x 4 or 6 x 6 window of x
        y = A' (sum over c of weights[n] * turned[n]) A, divided

`winograd_transforms` has the algorithms, and says where they are exact. Where ranges do not tell,
kernels bound the factors at run time, and where these are too large another strategy takes over.
Constant weights are transformed here. Two channels share a word, and are transformed together.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from ...dialect.kernel_ir.affine import affine
from ...dialect.kernel_ir.expressions import Expr, Index, Read, Tensor, both
from ...dialect.kernel_ir.loops import Kernel
from ..analysis.accesses import depends
from ..processor import processor
from .contraction_problem import Problem, Strategy, why_not_integers
from .match_contraction import Contraction, LoweredContraction, kernel_from_body
from .sign_offset import are_bytes
from .vnni_packing import at_least, extent_of, is_edge, known_terms, only_read, pack_k_axis, size_of
from .winograd_kernels import WinogradKernels
from .winograd_packing import pack_image, pack_weights, transform_weights
from .winograd_sizes import VECTORS, Windows, sizes_of, winograd_cost
from .winograd_transforms import WINOGRAD_F2X2_3X3, WINOGRAD_F4X4_3X3, WinogradTransform

# transformed columns of a panel on the stack, at most: bounds the stack of a thread
MAX_STACK_STEPS = 1024


@lru_cache(maxsize=4)
def windows_of(c: Contraction) -> Windows | None:
    """The windows of a contraction; None where it has none, or other ones."""
    read = only_read(c.b)
    if c.window is None or read is None or not all(is_edge(g, read) for g in c.guard):
        return None
    rows_of, columns_of = (_slides(read, along, c.reduction_axes) for along in (c.window, c.column))
    weights = only_read(c.a)
    if rows_of is None or columns_of is None or weights is None:
        return None
    (row_axis, rows), (column_axis, columns) = rows_of, columns_of
    rest = tuple(i for i in c.reduction_axes if i not in (rows, columns))
    if (
        row_axis == column_axis
        or not rest
        or any(sum(i is k for i in weights.indices) != 1 for k in c.reduction_axes)
    ):
        return None
    pairs = pack_k_axis(rest, 2)
    return (
        None if pairs.partial else Windows(c, rows, columns, (row_axis, column_axis), read, pairs)
    )


def _slides(read: Read, along: Index, reduction_axes: Sequence[Index]) -> tuple[int, Index] | None:
    """The axis at which a read is at along + k + a constant, and the k of three that is nowhere
    else.
    """
    for axis, e in enumerate(read.indices):
        sum = affine(e)
        k = next((k for k in reduction_axes if sum.factor(k) == 1 and extent_of(k) == 3), None)
        if k is not None and sum.factor(along) == 1 and len(sum.terms) == 2:
            alone = not any(depends(i, {k, along}) for n, i in enumerate(read.indices) if n != axis)
            return (axis, k) if alone else None
    return None


def lower_winograd(transform: WinogradTransform, problem: Problem) -> LoweredContraction | None:
    """The kernels that transform 3 x 3 windows, and where they are exact; None where they never
    are.
    """
    kernel, c, factors = problem.kernel, problem.contraction, problem.sizes
    windows = windows_of(c)
    assert windows is not None
    pays = _pays(c, windows)
    sizes = sizes_of(windows, transform)
    parts = WinogradKernels(windows, transform, sizes)
    array = known_terms(c.a, problem.constants, windows.weight_axes)
    row_axes = len(windows.around) + 1
    constants: dict[Tensor, np.ndarray] = {}
    views: dict[Tensor, Tensor] = {}
    kernels: list[Kernel] = []
    if array is None:
        fits = transform.fits(factors.columns.size, factors.rows.size, windows.terms)
        exact = both(fits, both(pays, _pays_in_calls(c)))
        shaped, body = transform_weights(windows, transform)
        weights = replace(shaped, shape=(*shaped.shape[: row_axes + 1], windows.pairs.steps))
        views[weights] = shaped
        kernels.append(kernel_from_body(kernel, "weights", body, (shaped,)))
    else:
        if (points := transform.known_points(array)) is None:
            return None
        reach = np.abs(array.astype(np.int64)).sum(tuple(range(row_axes, array.ndim))).max()
        fits = transform.fits(factors.columns.size, factors.rows.size, windows.terms, int(reach))
        exact = both(fits, pays)
        weights, constants = pack_weights(windows, sizes, points)
    if exact is False:
        return None
    shaped, body = pack_image(windows, transform, sizes)
    image = replace(shaped, shape=(*shaped.shape[:-2], sizes.wide * (sizes.lines + 1)))
    views[image] = shaped
    kernels.append(kernel_from_body(kernel, "image", body, (shaped,)))
    blocks = [
        ("turned", parts.multiply(image, weights, array is not None), (parts.results,)),
        ("finish", parts.finish(), kernel.outputs),
    ]
    if sizes.groups > 1:
        blocks.insert(0, ("columns", parts.transformed(image), (parts.columns,)))
    ready = [kernel_from_body(kernel, *block) for block in blocks]
    return LoweredContraction((*kernels, *ready), views, constants, frozenset(ready), exact=exact)


def why_not_winograd(transform: WinogradTransform, problem: Problem) -> str:
    if why := why_not_integers(problem):
        return why
    c = problem.contraction
    small = transform is WINOGRAD_F2X2_3X3
    if small and processor().has_int8_dot_product and are_bytes(problem):
        return "products of four bytes take less time"
    if (
        windows := windows_of(c) if c.unknown.isdisjoint((c.row, *c.reduction_axes)) else None
    ) is None:
        return "no windows of 3 x 3 that move by one over an even number of channels of known sizes"
    if _pays(c, windows) is False:
        return "too few rows, tiles or channels for transforms to pay"
    if known_terms(c.a, problem.constants, windows.weight_axes) is None:
        if not small:
            return "weights are not constant"
        if _pays_in_calls(c) is False:
            return "too few results for transforming weights in every call"
    count = sizes_of(windows, transform).count
    few = not isinstance(count, int) or count < processor().tuning.winograd_tiles
    return "too few tiles for their transforms to pay" if few and not small else ""


def _cost(transform: WinogradTransform, problem: Problem) -> float:
    windows = windows_of(problem.contraction)
    assert windows is not None
    return winograd_cost(windows, transform)


def _pays_in_calls(c: Contraction) -> Expr | bool:
    return at_least(size_of(c.window) * c.column.extent, processor().tuning.winograd_results)


def _pays(c: Contraction, windows: Windows) -> Expr | bool:
    """Test whether there are enough products; a run-time condition if the window's stride is
    unknown.
    """
    tuning = processor().tuning
    lanes = processor().lanes
    rows = extent_of(c.row)
    high = size_of(c.window)
    wide = c.column.extent
    if (
        rows < tuning.winograd_rows
        or not tuning.winograd_steps <= windows.pairs.steps <= MAX_STACK_STEPS
    ):
        return False
    required = (
        (
            ((high + 1) // 2) * ((wide + 1) // 2),
            max(tuning.winograd_tiles, VECTORS * lanes if c.unknown else 0),
        ),
        (high * wide * (rows * windows.terms), processor().packing_products),
        (wide, 2 * lanes if c.unknown else 0),  # whole vectors of an unknown size have to fit
    )
    return both(*(at_least(n, least) for n, least in required if least))


def _strategy(name: str, transform: WinogradTransform) -> Strategy:
    why_not = partial(why_not_winograd, transform)
    cost = partial(_cost, transform)
    return Strategy(name, why_not, cost, partial(lower_winograd, transform))


WINOGRAD = (
    _strategy("winograd_4x4", WINOGRAD_F4X4_3X3),
    _strategy("winograd_2x2", WINOGRAD_F2X2_3X3),
)
