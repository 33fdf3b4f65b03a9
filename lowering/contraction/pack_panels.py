"""Pack the factors of a contraction for its panels: words of the rows, and the columns as a packed
input or as panels.

Constants are packed at compile time; other factors by kernels that run before the tiles.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.expressions import (
    TRUE,
    Expr,
    Index,
    Read,
    Tensor,
    as_index,
    both,
    constant,
    minimum,
)
from ...dialect.kernel_ir.traverse import substitute, walk
from ...dialect.types.sizes import Dim, product, same_size
from ..analysis.accesses import depends, stride
from ..loops.tighten_bounds import narrowed
from ..processor import processor
from . import vnni_packing as vnni
from .macro_kernel import GROUPS, PanelTiling, Row
from .match_contraction import LoweredContraction, kernel_from_body

SQUARE = 16  # bytes of each of the columns that are turned in registers
# pieces of the work, at least, for threads to share, and tiles of one; tuned by hand (Zen 4,
# Zen 5)
PIECES = 32
SHARED = 8  # groups of panels, at least, for threads to share; tuned by hand (Zen 4, Zen 5)
# columns so far apart, at most, are loaded as whole vectors and shuffled; tuned by hand (Zen 4,
# Zen 5)
MAX_COLUMN_STRIDE = 4


class PanelPacking:
    """Packing of the factors of one contraction, as words or as they are, for the loops of a
    tiling.
    """

    def __init__(self, tiling: PanelTiling, constants: Mapping[Tensor, np.ndarray]) -> None:
        c = tiling.c
        self.tiling = tiling
        self.c = c
        self.kernel = tiling.kernel
        self.element = tiling.element
        self.known, self.words = (
            constants,
            vnni.pack_k_axis(c.reduction_axes, tiling.micro.product.terms),
        )
        self.step = Index("s", self.words.steps)
        self.around = tuple(i for i in c.outer if depends(c.a, {i}))
        self.beside = tuple(i for i in c.outer if depends(c.b, {i}))
        read = vnni.only_read(c.b)
        self.plain_read = (
            read if read is not None and vnni.is_plain(read) and not c.guard else None
        )  # once
        self.kernels: list[ir.Kernel] = []
        self.views: dict[Tensor, Tensor] = {}
        self.constants: dict[Tensor, np.ndarray] = {}
        self.row_bits: Expr | None = None  # the bits of their words that are flipped
        self.column_bits: Expr | None = None

    def share_rows(self, steps: Dim) -> None:
        """Share the rows among threads where prepacked panels are few; a share stays in cache for
        all panels.
        """
        tiling, sizes = self.tiling, self.tiling.sizes
        rows = self.c.row.extent
        count = product((*(i.extent for i in self.c.outer), sizes.panels))
        waits = max(tiling.parts(steps), tiling.parts(sizes.terms)) > 1  # the sums of all rows
        if self.plain_read is None or tiling.own or waits:
            return
        if isinstance(rows, int) and isinstance(count, int) and isinstance(steps, int):
            most = count * sizes.width * rows * steps // processor().parallel_products // count
            tiles = rows // (sizes.height * processor().tuning.share_tiles)
            tiling.by_groups(1, max(1, min(-(-PIECES // count), tiles, most)))

    def contracted(self, body: ir.Block) -> LoweredContraction:
        tiles = self.tiling.each_panel(body)
        return LoweredContraction(
            (*self.kernels, tiles), self.views, self.constants, frozenset({tiles})
        )

    def constant(self, name: str, array: np.ndarray) -> Tensor:
        packed = Tensor(name, array.shape, self.element, "constant")
        self.constants[packed] = np.ascontiguousarray(array)
        return packed

    def rows(self) -> Row:
        """The words of the rows: those of constants tile by tile, as they are used."""
        packed_rows = self.known_rows()
        height = self.tiling.sizes.height
        if packed_rows is None:
            flat = self.lined("rows", self.c.a, (*self.around, self.c.row), self.row_bits)
            return lambda tile, at, r: flat[(*self.around, at, self.step)]
        count = packed_rows.shape[-2]
        tiles = packed_rows[
            ..., vnni.tile_elements(count, -(-count // height), height), :
        ].swapaxes(-1, -2)
        packed = self.constant("rows", tiles)
        return lambda tile, at, r: packed[(*self.around, tile, self.step, r)]

    def known_rows(self) -> np.ndarray | None:
        """The words of constant rows, a line of steps for each."""
        factors = vnni.known_terms(
            self.c.a, self.known, (*self.around, self.c.row, *self.c.reduction_axes)
        )
        return None if factors is None else self.words.packed(factors)

    def squares(
        self, axis: Index, lanes: ir.Block, placed: Callable[[ir.Block], ir.Block]
    ) -> ir.Block:
        """The vectors of several steps along an index, so that squares of their loads are
        transposed in registers.
        """
        side = SQUARE // self.element.bytes
        t = Index("t", axis.extent // side)
        u = Index("u", side)
        square = ir.For(u, ir.substitute_block(lanes, {axis: t * side + u}), kind="unrolled")
        rest = ir.For(axis, placed(lanes), as_index(t.extent * side))
        return ir.For(t, placed((square,))), *(
            () if vnni.is_multiple(axis.extent, side) else (rest,)
        )

    def lined(
        self, name: str, factor: Expr, lines: Sequence[Index], bits: Expr | None = None
    ) -> Tensor:
        """The words of a factor by a kernel, a line for each of these."""
        at = (*lines, *self.words.reduction_axes)
        words = Tensor(
            "rows", (*(i.extent for i in lines), *self.words.shape), self.element, "heap"
        )
        body = vnni.by_words(
            self.words, factor, at, lambda value: (ir.Store(words, at, vnni.flipped(value, bits)),)
        )
        self.kernels.append(kernel_from_body(self.kernel, name, body, (words,)))
        flat = replace(words, shape=(*(i.extent for i in lines), self.words.steps))
        self.views[flat] = words
        return flat

    def columns(self) -> tuple[ir.Block, Expr] | None:
        """The statements that fill a panel with words, and a word of it."""
        if (panels := self.panels_of(self.words, self.step)) is not None:
            return (), panels
        if (image := vnni.image_of(self.c.b, self.c.guard, self.words)) is None:
            return None
        self.kernels.append(kernel_from_body(self.kernel, "image", image.body, (image.words,)))
        panel = self.buffer("panel", self.words.steps)
        zeros = self.zeros_beyond(panel, self.tiling.own, self.words.steps)
        fill = (ir.Alloc(panel), *self.of_image(image, panel), *zeros)
        return fill, self.in_panel(panel, self.step)

    def unpacked(self) -> tuple[ir.Block, Expr]:
        """The statements that fill a panel with factors as they are, and the factor of a step."""
        panel = self.buffer("full", self.tiling.sizes.terms)
        return (ir.Alloc(panel), *self.of_factors(panel)), self.in_panel(panel, self.tiling.k)

    def buffer(self, name: str, steps: Dim) -> Tensor:
        groups, space = ((GROUPS,), "heap") if self.tiling.own else ((), "stack")
        shape = (*groups, self.depth(steps), self.tiling.sizes.width)
        return Tensor(name, shape, self.element, space)

    def depth(self, steps: Dim) -> Dim:
        """The steps that a panel has room for."""
        return steps

    def zeros_beyond(self, panels: Tensor, at: Sequence[Expr], steps: Dim) -> ir.Block:
        """The loops that clear the steps of a panel that no term is in."""
        if same_size(panels.shape[-2], steps):
            return ()
        k, place = Index("k", panels.shape[-2]), Index("c", panels.shape[-1])
        zero = ir.Store(panels, (*at, k, place), constant(0, self.element))
        return (ir.For(k, (ir.For(place, (zero,)),), as_index(steps)),)

    def in_panel(self, panel: Tensor, step: Expr) -> Read:
        return panel[(*self.tiling.own, step, self.tiling.at.place)]

    def of_image(self, image: vnni.PackedInput, to: Tensor) -> ir.Block:
        tiling, words = self.tiling, self.words
        at = tuple(substitute(e, tiling.column(tiling.at.lane)) for e in image.at)
        store = ir.Store(
            to,
            self.in_panel(to, words.step).indices,
            vnni.flipped(image.words[at], self.column_bits),
        )
        if (
            apart := stride(image.words, at, tiling.at.lane)
        ) is not None and 0 <= apart <= MAX_COLUMN_STRIDE:
            return (
                tiling.placed(
                    ir.nested(words.reduction_axes, (ir.vector_loop(tiling.at.lane, store),))
                ),
            )
        return (
            tiling.placed((ir.For(tiling.at.lane, ir.nested(words.reduction_axes, (store,))),)),
        )

    def of_factors(self, to: Tensor) -> ir.Block:
        """Fills a panel with the columns' factors, and zeros where the guard does not hold."""
        c = self.c
        tiling = self.tiling
        lane = self.tiling.at.lane
        at = self.in_panel(to, tiling.k).indices
        values = tiling.column(lane)
        load = ir.Store(to, at, substitute(c.b, values))
        zero = ir.Store(to, at, constant(0, to.element))
        tests = [substitute(g, values) for g in c.guard]
        if self.is_transposed(c.b):
            inner: ir.Block = (ir.If(_all(tests), (load,)),) if tests else (load,)
            alone = tiling.placed((ir.For(lane, narrowed(ir.nested(c.reduction_axes, inner))),))
            if not tests:
                return (alone,)
            k, column = Index("s", tiling.sizes.terms), Index("c", tiling.sizes.width)
            clear = ir.Store(to, (*tiling.own, k, column), constant(0, to.element))
            return ir.For(k, (ir.vector_loop(column, clear),)), alone
        step: ir.Block = (ir.vector_loop(lane, load),)
        if tests:
            last = tiling.sizes.lanes - 1
            ends = [
                (g, end) for g in c.guard for end in ((0, last) if depends(g, {c.column}) else (0,))
            ]
            inside = _all([substitute(g, tiling.column(as_index(end))) for g, end in ends])
            step = (ir.If(inside, step, (ir.For(lane, (ir.If(_all(tests), (load,), (zero,)),)),)),)
        return (tiling.placed(ir.nested(c.reduction_axes, step)),)

    def panels_of(self, terms: vnni.Terms, k: Expr) -> Expr | None:
        """An element of all panels, of columns of which each is read once; packed here, if they are
        constant, or by kernels.
        """
        if self.plain_read is None:
            return None
        constants = self.known_panels(terms)
        panels = (
            self.all_panels(terms) if constants is None else self.constant("columns", constants)
        )
        return panels[(*self.beside, self.tiling.order.panel, k, self.tiling.at.place)]

    def known_panels(self, terms: vnni.Terms) -> np.ndarray | None:
        """Pack the panels of constant columns at compile time; None unless they are constant."""
        tiling = self.tiling
        lanes = self.tiling.sizes.lanes
        factors = vnni.known_terms(
            self.c.b, self.known, (*self.beside, *self.c.columns, *self.c.reduction_axes)
        )
        if factors is None:
            return None
        packed = terms.packed(factors)
        columns = packed.shape[-2]
        packed = packed.reshape(*packed.shape[: len(self.beside)], -1, packed.shape[-1])
        across = -(-columns // lanes)
        count = packed.shape[-2] // columns * across  # blocks
        together = tiling.sizes.together
        blocks = np.minimum(np.arange(-(-count // together) * together), count - 1)
        first = blocks // across * columns + np.minimum(blocks % across * lanes, columns - lanes)
        return packed[
            ..., (first[:, None] + np.arange(lanes)).reshape(-1, tiling.sizes.width), :
        ].swapaxes(-1, -2)

    def all_panels(self, terms: vnni.Terms) -> Tensor:
        """The panels by a kernel, along the columns where these are contiguous; else transposed,
        some steps at once.
        """
        count = self.tiling.sizes.panels
        value = terms.value(self.c.b)
        panel = Index("panel", count)
        depth = self.depth(self.words.steps) if isinstance(terms, vnni.Words) else terms.steps
        shape = (*(i.extent for i in self.beside), count, depth, self.tiling.sizes.width)
        packed = Tensor("columns", shape, self.element, "heap")
        if isinstance(terms, vnni.Words) and self.is_transposed(
            value
        ):  # words first, which are transposed whole then
            lines = (*self.beside, *self.c.columns)
            value = self.lined("lines", self.c.b, lines)[(*lines, self.step)]
            terms = vnni.Terms((self.step,))
        lanes, placed = self.into_panels(packed, (*self.beside, panel), terms, panel)
        if self.is_transposed(value) and len(terms.reduction_axes) == 1:
            body = ir.nested(
                (*self.beside, panel), self.squares(terms.reduction_axes[0], lanes(value), placed)
            )
        else:
            order = (*self.beside, *terms.reduction_axes, panel)
            factor = self.c.b if isinstance(terms, vnni.Words) else value
            body = vnni.by_words(terms, factor, order, lambda e: placed(lanes(e)))
        zeros = self.zeros_beyond(packed, (*self.beside, panel), terms.steps)
        body = (*body, *(ir.nested((*self.beside, panel), zeros) if zeros else ()))
        self.kernels.append(kernel_from_body(self.kernel, "columns", body, (packed,)))
        return packed

    def is_transposed(self, value: Expr) -> bool:
        """Test whether columns are not contiguous."""
        apart = [
            stride(r.tensor, r.indices, self.c.column) for r in walk(value) if isinstance(r, Read)
        ]
        return not all(n is not None and 0 <= n <= MAX_COLUMN_STRIDE for n in apart)

    def into_panels(
        self, packed: Tensor, at: Sequence[Expr], terms: vnni.Terms, panel: Expr
    ) -> tuple[Callable[[Expr], ir.Block], Callable[[ir.Block], ir.Block]]:
        """The vectors of a step that go to a panel, and what has them at each of the panel's
        blocks.
        """
        tiling = self.tiling

        def lanes(value: Expr) -> ir.Block:
            word = vnni.flipped(substitute(value, tiling.column(tiling.at.lane)), self.column_bits)
            return (
                ir.vector_loop(
                    tiling.at.lane, ir.Store(packed, (*at, terms.step, tiling.at.place), word)
                ),
            )

        def placed(body: ir.Block) -> ir.Block:
            return ir.substitute_block(
                (tiling.placed(body, unrolled=True),), {tiling.order.panel: panel}
            )

        return lanes, placed

    def some_panels(self, terms: vnni.Terms) -> tuple[ir.Block, Expr] | None:
        """The statements that fill several panels, and an element of the current one: rows of the
        array are read in longer runs, and stay in cache until they are multiplied. None for
        constants, which are packed at compile time, for deep panels, and for so few that threads
        share the rows.
        """
        read = vnni.only_read(self.c.b)
        tiling, sizes = self.tiling, self.tiling.sizes
        count = sizes.panels
        most = processor().tuning.panels_together
        if not most or tiling.own or (read is not None and read.tensor in self.known):
            return None
        tasks = product((*(i.extent for i in self.c.outer), count))
        work = tasks * sizes.width * self.c.row.extent * sizes.terms
        much = vnni.at_least(work, SHARED * processor().parallel_products) is True
        if (
            isinstance(tasks, int)
            and tasks < SHARED
            and much
            and read is not None
            and vnni.is_plain(read)
        ):
            return None
        size = sizes.terms * sizes.width * self.element.bytes
        together = processor().l2_bytes * 3 // 4 // size if isinstance(size, int) else 1
        tiling.by_groups(
            max(1, min(most, together, count // SHARED if isinstance(count, int) else most))
        )
        order, several = tiling.order, tiling.order.several
        m = Index("m", several)
        to = Tensor("columns", (several, terms.steps, sizes.width), self.element, "stack")
        panel = order.turn * several + m
        last = panel if vnni.is_multiple(count, several) else minimum(panel, count - 1)
        lanes, placed = self.into_panels(to, (m,), terms, last)
        if self.is_transposed(self.c.b) and len(terms.reduction_axes) == 1:
            body = ir.nested((m,), self.squares(terms.reduction_axes[0], lanes(self.c.b), placed))
        elif all(vnni.is_plain(r) for r in walk(self.c.b) if isinstance(r, Read)):
            body = ir.nested((*terms.reduction_axes, m), placed(lanes(self.c.b)))
        else:  # where a block begins is found once for all of its terms
            body = ir.nested((m,), placed(ir.nested(terms.reduction_axes, lanes(self.c.b))))
        at = order.panel - order.turn * several if several > 1 else as_index(0)
        return (ir.Alloc(to), *body), to[at, terms.step, tiling.at.place]


def _all(conditions: Sequence[Expr]) -> Expr:
    joined = both(*conditions)
    return joined if isinstance(joined, Expr) else TRUE
