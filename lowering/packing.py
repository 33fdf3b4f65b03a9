"""The factors of a contraction packed for its panels: the rows' words, and those of the columns as an image or as panels.

Constants are packed here, once; for others there are kernels that do it before the tiles are computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..dialect.index import Expr, Index, Read, Tensor, substitute, walk
from ..dialect.loops import Alloc, Block, For, Kernel, Store, substitute_block
from ..dialect.types import I32
from .accesses import depends, stride
from .contraction import Contracted, Contraction, made
from .panels import LANES, NEAR, Panels, Row
from .words import Terms, Words, extent_of, image_of, in_words, is_plain, known_terms, loops_of, only_read, row_words

SQUARE = 4  # columns of 16 bytes that are turned in registers


class Packed(Panels):
    """The kernels of one contraction, whose factors are words of so many terms: what packs them, and what multiplies."""

    def __init__(self, kernel: Kernel, c: Contraction, constants: Mapping[Tensor, np.ndarray], many: int) -> None:
        super().__init__(kernel, c)
        self.known = constants
        self.words = in_words(c.folds, many)
        self.step = Index("s", self.words.steps)
        self.around = tuple(i for i in c.outer if depends(c.a, {i}))
        self.beside = tuple(i for i in c.outer if depends(c.b, {i}))
        self.kernels: list[Kernel] = []
        self.views: dict[Tensor, Tensor] = {}
        self.constants: dict[Tensor, np.ndarray] = {}

    def contracted(self, body: Block) -> Contracted:
        tiles = self.each_panel(body)
        return Contracted((*self.kernels, tiles), self.views, self.constants, frozenset({tiles}))

    def rows(self, height: int) -> Row:
        """The words of the rows: those of constants tile by tile, as they are used."""
        lines = (*self.around, self.c.row)
        known = known_terms(self.c.a, self.known, (*lines, *self.c.folds))
        if known is None:
            flat = self.lined("rows", self.c.a, lines)
            return lambda tile, at, r: flat[(*self.around, at, self.step)]
        found = self.words.packed(known)
        count = -(-found.shape[-2] // height)
        starts = np.minimum(np.arange(count) * height, found.shape[-2] - height)
        tiles = found[..., starts[:, None] + np.arange(height), :].swapaxes(-1, -2)
        packed = Tensor("rows", tiles.shape, I32, "constant")
        self.constants[packed] = np.ascontiguousarray(tiles)
        return lambda tile, at, r: packed[(*self.around, tile, self.step, r)]

    def lined(self, name: str, factor: Expr, lines: Sequence[Index]) -> Tensor:
        """The words of a factor by a kernel, a line for each of these."""
        words, body = row_words(factor, self.words, lines)
        self.kernels.append(made(self.kernel, name, body, (words,)))
        flat = replace(words, shape=(*(i.extent for i in lines), self.words.steps))
        self.views[flat] = words
        return flat

    def columns(self) -> tuple[Block, Expr] | None:
        """What fills a panel with words, and a word of it."""
        panels = self.panels_of(self.words)
        if panels is not None:
            return (), panels[(*self.beside, self.panel, self.step, self.place)]
        image = image_of(self.c.b, self.c.guard, self.words)
        if image is None:
            return None
        self.kernels.append(made(self.kernel, "image", image.body, (image.words,)))
        panel = Tensor("panel", (self.words.steps, self.width), I32, "stack")
        return (Alloc(panel), *self.of_image(image, self.words, panel)), panel[self.step, self.place]

    def panels_of(self, terms: Terms) -> Tensor | None:
        """All panels, of columns of which each is read once; packed here, if they are constant, or by kernels."""
        read = only_read(self.c.b)
        if read is None or not is_plain(read) or self.c.guard:
            return None
        known = known_terms(self.c.b, self.known, (*self.beside, *self.lines, *self.c.folds))
        if known is not None:
            return self.known_panels(terms.packed(known))
        return None if terms.partial else self.all_panels(terms)

    def known_panels(self, known: np.ndarray) -> Tensor:
        known = known.reshape(*known.shape[: len(self.beside)], -1, known.shape[-1])
        blocks = np.minimum(np.arange(self.panels * self.together), self.blocks - 1)
        columns = extent_of(self.c.column)
        first = blocks // self.across * columns + np.minimum(blocks % self.across * LANES, columns - LANES)
        panels = known[..., (first[:, None] + np.arange(LANES)).reshape(self.panels, self.width), :].swapaxes(-1, -2)
        packed = Tensor("columns", panels.shape, self.element, "constant")
        self.constants[packed] = np.ascontiguousarray(panels)
        return packed

    def all_panels(self, terms: Terms) -> Tensor:
        """The panels by a kernel, along the columns where these lie side by side; else they are turned, four steps at once."""
        panel, value, folds = Index("panel", self.panels), terms.value(self.c.b), terms.folds
        packed = Tensor(
            "columns", (*(i.extent for i in self.beside), self.panels, terms.steps, self.width), self.element, "heap"
        )
        apart = [stride(r.tensor, r.indices, self.c.column) for r in walk(value) if isinstance(r, Read)]
        turned = not all(n is not None and 0 <= n <= NEAR for n in apart)
        if turned and isinstance(terms, Words):  # words first, then what is turned lies side by side
            lines = (*self.beside, *self.lines)
            folds = (self.step,)
            value = self.lined("lines", self.c.b, lines)[(*lines, self.step)]
        step: Expr = terms.step if folds is terms.folds else self.step
        value = substitute(value, self.column(self.lane))
        at = (*self.beside, panel, step, self.place)
        lanes: Block = (For(self.lane, (Store(packed, at, value),), kind="vector", width=LANES),)
        if turned and len(folds) == 1 and terms.steps % SQUARE == 0:
            t, u = Index("t", terms.steps // SQUARE), Index("u", SQUARE)
            square = For(u, substitute_block(lanes, {folds[0]: t * SQUARE + u}), kind="unrolled")
            body = loops_of((*self.beside, panel, t), (self.placed((square,), unrolled=True),))
        else:
            body = loops_of((*self.beside, *folds, panel), (self.placed(lanes, unrolled=True),))
        self.kernels.append(made(self.kernel, "columns", substitute_block(body, {self.panel: panel}), (packed,)))
        return packed
