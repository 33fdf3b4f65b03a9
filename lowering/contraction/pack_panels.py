"""Pack the factors of a contraction for its panels: words of the rows, and the columns as a packed input or as panels.

Constants are packed at compile time; other factors by kernels that run before the tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...dialect.ir.sizes import Dim, product
from ...dialect.ir.types import I32
from ...dialect.notation.expressions import TRUE, Expr, Index, Read, Tensor, Var, as_index, both, constant, minimum
from ...dialect.notation.loops import Alloc, Block, For, If, Kernel, Let, Statement, Store, substitute_block
from ...dialect.notation.traverse import substitute, walk
from ..analysis.accesses import depends, stride
from ..loops.tighten_bounds import narrowed
from ..processor import processor
from .macro_kernel import GROUPS, PanelTiling, Row
from .match import LoweredContraction, kernel_from_body
from .vnni_packing import (
    PackedInput,
    Terms,
    Words,
    at_least,
    by_words,
    image_of,
    is_multiple,
    is_plain,
    known_terms,
    loops_of,
    only_read,
    pack_k_axis,
    row_words,
    turned,
)

SQUARE = 16  # bytes of each of the columns that are turned in registers
BESIDE = 8  # panels that are filled together
PIECES = 32  # of the work at least, for threads to share, and tiles of one
SHARED = 8  # groups of panels at least, for threads to share
MAX_COLUMN_STRIDE = 4  # columns so far apart are loaded as whole vectors and shuffled


class PanelPacking:
    """Packing of the factors of one contraction, as words or as they are, for the loops of a tiling."""

    def __init__(self, tiling: PanelTiling, constants: Mapping[Tensor, np.ndarray]) -> None:
        c = tiling.c
        self.tiling, self.c, self.kernel, self.element = tiling, c, tiling.kernel, tiling.element
        self.known, self.words = constants, pack_k_axis(c.reduction_axes, tiling.micro.product.terms)
        self.step = Index("s", self.words.steps)
        self.around = tuple(i for i in c.outer if depends(c.a, {i}))
        self.beside = tuple(i for i in c.outer if depends(c.b, {i}))
        self.kernels: list[Kernel] = []
        self.views: dict[Tensor, Tensor] = {}
        self.constants: dict[Tensor, np.ndarray] = {}
        self.row_bits: Expr | None = None  # the bits of their words that are turned
        self.column_bits: Expr | None = None

    def share_rows(self, steps: Dim) -> None:
        """Shares of the rows, where panels are packed before and so few that threads would not be done at the same time. All
        panels go over a share before the next one, so that what they are multiplied with stays near."""
        read, rows = only_read(self.c.b), self.c.row.extent
        count = product((*(i.extent for i in self.c.outer), self.tiling.panels))
        waits = max(self.tiling.parts(steps), self.tiling.parts(self.tiling.terms)) > 1  # the sums of all rows
        if read is None or not is_plain(read) or self.c.guard or self.tiling.own or waits:
            return
        if isinstance(rows, int) and isinstance(count, int) and isinstance(steps, int):
            most = count * self.tiling.width * rows * steps // processor().parallel_products  # of these pieces
            self.tiling.by_groups(
                1,
                max(
                    1,
                    min(
                        -(-PIECES // count),
                        rows // (self.tiling.height * processor().tuning.share_tiles),
                        most // count,
                    ),
                ),
            )

    def contracted(self, body: Block) -> LoweredContraction:
        tiles = self.tiling.each_panel(body)
        return LoweredContraction((*self.kernels, tiles), self.views, self.constants, frozenset({tiles}))

    def rows(self) -> Row:
        """The words of the rows: those of constants tile by tile, as they are used."""
        found, height = self.known_rows(), self.tiling.height
        if found is None:
            flat = self.lined("rows", self.c.a, (*self.around, self.c.row), self.row_bits)
            return lambda tile, at, r: flat[(*self.around, at, self.step)]
        starts = np.minimum(np.arange(-(-found.shape[-2] // height)) * height, found.shape[-2] - height)
        tiles = found[..., starts[:, None] + np.arange(height), :].swapaxes(-1, -2)
        packed = Tensor("rows", tiles.shape, I32, "constant")
        self.constants[packed] = np.ascontiguousarray(tiles)
        return lambda tile, at, r: packed[(*self.around, tile, self.step, r)]

    def known_rows(self) -> np.ndarray | None:
        """The words of constant rows, a line of steps for each."""
        known = known_terms(self.c.a, self.known, (*self.around, self.c.row, *self.c.reduction_axes))
        return None if known is None else self.words.packed(known)

    def squares(self, fold: Index, lanes: Block, placed: Callable[[Block], Block]) -> Block:
        """The vectors of several steps along an index, so that squares of their loads are transposed in registers."""
        side = SQUARE // self.element.bytes
        t, u = Index("t", fold.extent // side), Index("u", side)
        square = For(u, substitute_block(lanes, {fold: t * side + u}), kind="unrolled")
        rest = For(fold, placed(lanes), as_index(t.extent * side))
        return For(t, placed((square,))), *(() if is_multiple(fold.extent, side) else (rest,))

    def lined(self, name: str, factor: Expr, lines: Sequence[Index], bits: Expr | None = None) -> Tensor:
        """The words of a factor by a kernel, a line for each of these."""
        words, body = row_words(factor, self.words, lines, bits)
        self.kernels.append(kernel_from_body(self.kernel, name, body, (words,)))
        flat = replace(words, shape=(*(i.extent for i in lines), self.words.steps))
        self.views[flat] = words
        return flat

    def columns(self) -> tuple[Block, Expr] | None:
        """The statements that fill a panel with words, and a word of it."""
        panels = self.panels_of(self.words, self.step)
        if panels is not None:
            return (), panels
        image = image_of(self.c.b, self.c.guard, self.words)
        if image is None:
            return None
        self.kernels.append(kernel_from_body(self.kernel, "image", image.body, (image.words,)))
        panel = self.buffer("panel", self.words.steps)
        return (Alloc(panel), *self.of_image(image, self.words, panel)), panel[
            (*self.tiling.own, self.step, self.tiling.place)
        ]

    def unpacked(self) -> tuple[Block, Expr]:
        """The statements that fill a panel with factors as they are, and the factor of a step."""
        panel = self.buffer("full", self.tiling.terms)
        return (Alloc(panel), *self.of_factors(panel)), panel[(*self.tiling.own, self.tiling.k, self.tiling.place)]

    def buffer(self, name: str, steps: Dim) -> Tensor:
        """One panel."""
        shape = (steps, self.tiling.width)
        return Tensor(
            name, (GROUPS, *shape) if self.tiling.own else shape, self.element, "heap" if self.tiling.own else "stack"
        )

    def of_image(self, image: PackedInput, words: Words, to: Tensor) -> Block:
        """Fills a panel with words of an image."""
        at = tuple(substitute(e, self.tiling.column(self.tiling.lane)) for e in image.at)
        store = Store(
            to,
            (*self.tiling.own, words.step, self.tiling.v * self.tiling.lanes + self.tiling.lane),
            turned(image.words[at], self.column_bits),
        )
        apart = stride(image.words, at, self.tiling.lane)
        if apart is not None and 0 <= apart <= MAX_COLUMN_STRIDE:
            lanes = For(self.tiling.lane, (store,), kind="vector", width=self.tiling.lanes)
            return (self.tiling.placed(loops_of(words.reduction_axes, (lanes,))),)
        return (self.tiling.placed((For(self.tiling.lane, loops_of(words.reduction_axes, (store,))),)),)

    def of_factors(self, to: Tensor) -> Block:
        """Fills a panel with the columns' factors, and zeros where the guard does not hold."""
        c, column = self.c, self.tiling.v * self.tiling.lanes + self.tiling.lane

        one = Store(
            to, (*self.tiling.own, self.tiling.k, column), substitute(c.b, self.tiling.column(self.tiling.lane))
        )
        tests = [substitute(g, self.tiling.column(self.tiling.lane)) for g in c.guard]
        zero = Store(to, (*self.tiling.own, self.tiling.k, column), constant(0, to.element))
        near = [stride(n.tensor, n.indices, c.column) for n in walk(c.b) if isinstance(n, Read)]
        if not all(n is not None and 0 <= n <= MAX_COLUMN_STRIDE for n in near):
            inner: Block = (If(_all(tests), (one,)),) if tests else (one,)
            alone = self.tiling.placed((For(self.tiling.lane, narrowed(loops_of(c.reduction_axes, inner))),))
            return (*self._cleared(to), alone) if tests else (alone,)
        wide = For(self.tiling.lane, (one,), kind="vector", width=self.tiling.lanes)
        if not tests:
            return (self.tiling.placed(loops_of(c.reduction_axes, (wide,))),)
        ends = [
            substitute(g, self.tiling.column(as_index(end)))
            for g in c.guard
            for end in ((0, self.tiling.lanes - 1) if depends(g, {c.column}) else (0,))
        ]
        alone = For(self.tiling.lane, (If(_all(tests), (one,), (zero,)),))
        return (self.tiling.placed(loops_of(c.reduction_axes, (If(_all(ends), (wide,), (alone,)),))),)

    def _cleared(self, to: Tensor) -> Block:
        step, column = Index("s", self.tiling.terms), Index("c", self.tiling.width)
        zero = Store(to, (*self.tiling.own, step, column), constant(0, to.element))
        return (For(step, (For(column, (zero,), kind="vector", width=self.tiling.width),)),)

    def panels_of(self, terms: Terms, k: Expr) -> Expr | None:
        """An element of all panels, of columns of which each is read once; packed here, if they are constant, or by kernels."""
        read = only_read(self.c.b)
        if read is None or not is_plain(read) or self.c.guard:
            return None
        known = self.known_panels(terms)
        if known is None:
            panels = self.all_panels(terms)
        else:
            panels = Tensor("columns", known.shape, self.element, "constant")
            self.constants[panels] = np.ascontiguousarray(known)
        return panels[(*self.beside, self.tiling.panel, k, self.tiling.place)]

    def known_panels(self, terms: Terms) -> np.ndarray | None:
        """The panels of constant columns: steps of so many elements each."""
        factors = known_terms(self.c.b, self.known, (*self.beside, *self.tiling.lines, *self.c.reduction_axes))
        if factors is None:
            return None
        known = terms.packed(factors)
        columns = known.shape[-2]
        known = known.reshape(*known.shape[: len(self.beside)], -1, known.shape[-1])
        across = -(-columns // self.tiling.lanes)
        count = known.shape[-2] // columns * across  # blocks
        blocks = np.minimum(np.arange(-(-count // self.tiling.together) * self.tiling.together), count - 1)
        first = blocks // across * columns + np.minimum(
            blocks % across * self.tiling.lanes, columns - self.tiling.lanes
        )
        return known[..., (first[:, None] + np.arange(self.tiling.lanes)).reshape(-1, self.tiling.width), :].swapaxes(
            -1, -2
        )

    def all_panels(self, terms: Terms) -> Tensor:
        """The panels by a kernel, along the columns where these lie side by side; else they are turned, some steps at once."""
        panel, value = Index("panel", self.tiling.panels), terms.value(self.c.b)
        packed = Tensor(
            "columns",
            (*(i.extent for i in self.beside), self.tiling.panels, terms.steps, self.tiling.width),
            self.element,
            "heap",
        )
        if isinstance(terms, Words) and self.is_turned(value):  # words first, then what is turned lies side by side
            lines = (*self.beside, *self.tiling.lines)
            value, terms = self.lined("lines", self.c.b, lines)[(*lines, self.step)], Terms((self.step,))
        lanes, placed = self.into_panels(packed, (*self.beside, panel), terms, panel)
        if self.is_turned(value) and len(terms.reduction_axes) == 1:
            body = loops_of((*self.beside, panel), self.squares(terms.reduction_axes[0], lanes(value), placed))
        elif isinstance(terms, Words):
            order = (*self.beside, *terms.reduction_axes, panel)
            body = by_words(terms, self.c.b, order, lambda value: placed(lanes(value)))
        else:
            body = loops_of((*self.beside, *terms.reduction_axes, panel), placed(lanes(value)))
        self.kernels.append(kernel_from_body(self.kernel, "columns", body, (packed,)))
        return packed

    def is_turned(self, value: Expr) -> bool:
        """Test whether columns are not contiguous."""
        apart = [stride(r.tensor, r.indices, self.c.column) for r in walk(value) if isinstance(r, Read)]
        return not all(n is not None and 0 <= n <= MAX_COLUMN_STRIDE for n in apart)

    def into_panels(
        self, packed: Tensor, at: Sequence[Expr], terms: Terms, panel: Expr
    ) -> tuple[Callable[[Expr], Block], Callable[[Block], Block]]:
        """The vectors of a step that go to a panel, and what has them at each of the panel's blocks."""

        def lanes(value: Expr) -> Block:
            store = Store(
                packed,
                (*at, terms.step, self.tiling.place),
                turned(substitute(value, self.tiling.column(self.tiling.lane)), self.column_bits),
            )
            return (For(self.tiling.lane, (store,), kind="vector", width=self.tiling.lanes),)

        def placed(body: Block) -> Block:
            return substitute_block((self.tiling.placed(body, unrolled=True),), {self.tiling.panel: panel})

        return lanes, placed

    def some_panels(self, terms: Terms) -> tuple[Block, Expr] | None:
        """The statements that fill several panels, and an element of the current one: rows of the array are read in
        longer runs, and stay in cache until they are multiplied. None for constants, which are packed at compile time,
        for deep panels, and for so few that threads share the rows.
        """
        read = only_read(self.c.b)
        if self.tiling.own or (read is not None and read.tensor in self.known):
            return None
        tasks = product((*(i.extent for i in self.c.outer), self.tiling.panels))
        work = tasks * self.tiling.width * self.c.row.extent * self.tiling.terms
        few = (
            isinstance(tasks, int) and tasks < SHARED and at_least(work, SHARED * processor().parallel_products) is True
        )
        if few and read is not None and is_plain(read):
            return None
        count, size = self.tiling.panels, self.tiling.terms * self.tiling.width * self.element.bytes
        together = processor().l2_bytes * 3 // 4 // size if isinstance(size, int) else 1
        self.tiling.by_groups(max(1, min(BESIDE, together, count // SHARED if isinstance(count, int) else BESIDE)))
        m = Index("m", self.tiling.several)
        to = Tensor("columns", (self.tiling.several, terms.steps, self.tiling.width), self.element, "stack")
        last = is_multiple(self.tiling.panels, self.tiling.several)
        panel = self.tiling.turn * self.tiling.several + m
        lanes, placed = self.into_panels(to, (m,), terms, panel if last else minimum(panel, self.tiling.panels - 1))
        if self.is_turned(self.c.b) and len(terms.reduction_axes) == 1:
            body = loops_of((m,), self.squares(terms.reduction_axes[0], lanes(self.c.b), placed))
        else:
            body = self.along_rows(terms, m, panel, lanes(self.c.b))
        at = self.tiling.panel - self.tiling.turn * self.tiling.several if self.tiling.several > 1 else as_index(0)
        return (Alloc(to), *body), to[at, terms.step, self.tiling.place]

    def along_rows(self, terms: Terms, m: Index, panel: Expr, lanes: Block) -> Block:
        """Loops over the terms around the vectors of all blocks of some panels; where these begin is told before."""
        named: list[Let] = []
        body: list[Statement] = []
        for n in range(self.tiling.several):
            for v in range(self.tiling.together):
                at: dict[Expr, Expr] = {
                    self.tiling.panel: substitute(panel, {m: as_index(n)}),
                    self.tiling.v: as_index(v),
                    m: as_index(n),
                }
                names: dict[Expr, Expr] = {}
                for let in self.tiling.begins():
                    names[let.var] = var = Var(f"{let.var.name}{n}_{v}", let.var.type)
                    named.append(Let(var, substitute(let.value, at)))
                body += substitute_block(lanes, {**at, **names})
        return *named, *loops_of(terms.reduction_axes, tuple(body))


def _all(conditions: Sequence[Expr]) -> Expr:
    joined = both(*conditions)
    return joined if isinstance(joined, Expr) else TRUE
