"""Pack the operands of a Winograd convolution: weights, transformed and in the order of use, and
words of the input by their places in tiles.
"""

from collections.abc import Sequence

import numpy as np

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.kernel_ir.affine import affine
from ...dialect.kernel_ir.traverse import substitute
from ...dialect.types.sizes import certainly, larger, product, same_size, smaller
from ...dialect.types.tensor_types import I32
from ..processor import processor
from .vnni_packing import extent_of, only_read, read_at, tile_elements, word
from .winograd_sizes import Windows, WinogradSizes
from .winograd_transforms import WinogradTransform

Target = tuple[ex.Tensor, tuple[ex.Expr, ...]]  # of a store


def named(body: list[ir.Statement], name: str, values: Sequence[ex.Expr]) -> list[ex.Expr]:
    """Names for values, whose definitions go to a body."""
    names = [ex.Var(f"{name}{n}", I32) for n in range(len(values))]
    body += [ir.Let(v, value) for v, value in zip(names, values, strict=True)]
    return list(names)


def transform_weights(windows: Windows, transform: WinogradTransform) -> tuple[ex.Tensor, ir.Block]:
    """The words of the weights, by rows and points."""
    w, c, pairs = windows, windows.c, windows.pairs
    taps, lines = range(3), (*w.around, c.row)
    words = ex.Tensor(
        "weights",
        (*(i.extent for i in lines), transform.points, *pairs.shape),
        I32,
        "heap",
    )
    body: list[ir.Statement] = []
    points: list[list[ex.Expr]] = []
    for half, e in zip(("low", "high"), pairs.each(c.a), strict=True):
        g = [
            [substitute(e, {w.rows: ex.as_index(r), w.columns: ex.as_index(s)}) for r in taps]
            for s in taps
        ]
        rows = [named(body, half, transform.weights(column)) for column in g]
        points.append([n for row in zip(*rows, strict=True) for n in transform.weights(row)])
    for n, halves in enumerate(zip(*points, strict=True)):
        body.append(
            ir.Store(words, (*lines, ex.as_index(n), *pairs.reduction_axes), word(halves, 2))
        )
    return words, ir.nested((*lines, *pairs.reduction_axes), tuple(body))


def pack_weights(
    windows: Windows, sizes: WinogradSizes, points: np.ndarray
) -> tuple[ex.Tensor, dict[ex.Tensor, np.ndarray]]:
    """Pack constant weights in the order of use: by tiles of rows."""
    rows = tile_elements(extent_of(windows.c.row), sizes.row_tiles, sizes.micro.rows)
    tiles = windows.pairs.packed(points)[..., rows, :]  # points, around, tile, row, step
    tiles = np.moveaxis(tiles, 0, len(windows.around) + 1).swapaxes(-1, -2)
    tensor = ex.Tensor("weights", tiles.shape, I32, "constant")
    return tensor, {tensor: np.ascontiguousarray(tiles)}


def pack_image(
    windows: Windows, transform: WinogradTransform, sizes: WinogradSizes
) -> tuple[ex.Tensor, ir.Block]:
    """Words of the array by where they are in tiles: a plane for each column of a tile, by rows of
    a tile. An image of known size is first words side by side, with its border.
    """
    w, c, pairs = windows, windows.c, windows.pairs
    size, side = transform.size, transform.side
    h, t = ex.Index("h", sizes.high * size + 2), ex.Index("t", sizes.wide)
    lines = (*w.beside, *pairs.reduction_axes)
    image = ex.Tensor(
        "image",
        (*(i.extent for i in lines), side, size, sizes.lines + 1, sizes.wide),
        I32,
        "heap",
    )
    height, width = (w.read.tensor.shape[axis] for axis in w.axes)
    window = c.window
    assert window is not None
    top, left = (affine(w.read.indices[axis]).constant for axis in w.axes)
    above, below = max(0, -top), smaller(h.extent, height - top)
    covered = above == 0 and same_size(below, h.extent) and left >= 0
    border = not covered or not certainly(lambda: size * sizes.wide + 2 + left <= width)

    def inside(target: Target, i: ex.Index, step: int, n: int) -> ir.For:
        """The stores of columns i * step + n that are inside of the array."""
        at: dict[ex.Expr, ex.Expr] = {
            window: h,
            w.rows: ex.ZERO,
            c.column: i * step,
            w.columns: ex.as_index(n),
        }
        value = word([_moved(e, at) for e in pairs.each(c.b)], 2)
        first = max(0, -((left + n) // step))
        stop = larger(smaller(i.extent, (width - 1 - left - n) // step + 1), first)
        inner = ir.For(i, (ir.Store(*target, value),), ex.as_index(first), ex.as_index(stop))
        return ir.For(h, (inner,), ex.as_index(above), ex.as_index(below))

    def zeros(target: Target, indices: Sequence[ex.Index]) -> ir.Block:
        return ir.nested(indices, (ir.Store(*target, ex.constant(0, I32)),)) if border else ()

    places = [(*lines, ex.as_index(n), h % size, h // size, t) for n in range(side)]
    plane = ex.Index("s", side)
    q = ex.Index("q", sizes.wide * size + 2)
    words = ex.Tensor("words", (h.extent, q.extent), I32, "stack")
    here = words, (h, q)
    if isinstance(n := product(words.shape), int) and n * I32.bytes <= processor().l2_bytes // 4:
        body: ir.Block = (ir.Alloc(words), *zeros(here, (h, q)), inside(here, q, 1, 0))
        moves = (ir.Store(image, place, words[h, t * size + n]) for n, place in enumerate(places))
        body += tuple(s for move in moves for s in ir.nested((h, t), (move,)))
    else:
        body = zeros((image, (*lines, plane, *places[0][-3:])), (plane, h, t))
        body += tuple(inside((image, place), t, size, n) for n, place in enumerate(places))
    return image, ir.nested(lines, body)


def _moved(e: ex.Expr, values: dict[ex.Expr, ex.Expr]) -> ex.Expr:
    read = only_read(e)
    assert read is not None
    return read_at(e, read, [affine(substitute(i, values)).expression() for i in read.indices])
