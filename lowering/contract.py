"""Contractions over packed panels, in tiles of registers:

    for r { for q { acc = 0; for k { acc = acc + a[r, k] * b[k, q] }; y[r, q] = f(acc) } }
    =>  rows[r, k / 2] = a[r, k] and a[r, k + 1] as halves of a word       the same for the columns, as an image or as panels
        for panel in columns by 16 parallel {
          panel[k / 2, q] = those words of these columns
          if everything fits 16 bits {
            for tile in rows by 6 {
              sums[6, 16] = 0 in registers
              for k / 2 { sums[r, q] = sums[r, q] + pairdot(rows[r, k / 2], panel[k / 2, q]) }
              y[r, q] = f(sums[r, q])
            }
          } else { the same with numbers in place of words }
        }

A sum of two products of 16-bit factors is one instruction, exact modulo 2^32. Whether factors fit is known from their ranges
or found by kernels that look at all of them first; the result does not depend on it. A block of 8 columns is a vector, two
blocks a panel. Blocks and tiles that would reach beyond the end move back and compute elements again, so that nothing is
masked; guards become zeros of the panel. Constants are packed beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf, prod
from types import MappingProxyType

import numpy as np

from ..dialect.index import Expr, Index, Read, Tensor, both, substitute, walk
from ..dialect.loops import Alloc, Block, For, If, Kernel, Store, substitute_block
from ..dialect.types import F32, F64, I16, I32
from .accesses import depends, stride
from .collapse import flatten
from .contraction import Contracted, Contraction, made, recognise
from .groups import grouped
from .panels import LANES, NEAR, ROWS, Panels, Row
from .ranges import Ranges
from .sizes import Sizes, sizes_of
from .winograd import by_turning
from .words import (
    Pairs,
    Terms,
    extent_of,
    image_of,
    is_plain,
    known_terms,
    loops_of,
    only_read,
    pair_up,
    row_words,
)

Constants = Mapping[Tensor, np.ndarray]

LEAST = 1 << 15  # products: for fewer, packing does not pay
FLAT = 1.25  # rows of columns that waste more of their vectors are joined
SQUARE = 4  # columns of 16 bytes that are turned in registers
LARGEST = 1 << 14  # terms of a sum: panels are on the stack


def contract(
    kernel: Kernel, constants: Constants = MappingProxyType({}), ranges: Ranges = MappingProxyType({})
) -> Contracted | None:
    """The kernels that compute a contraction by panels and tiles; None where the kernel is not one, or too small.

    `constants` are packed here, once. Where `ranges` tell that factors fit 16 bits, nothing looks whether they do.
    """
    found = recognise(kernel)
    if found is None and (cut := grouped(kernel)) is not kernel and recognise(cut) is not None:
        return _seen_as(kernel, cut, contract, constants, ranges)
    if found is None:
        return None
    sizes = sizes_of(kernel, found, ranges, constants) if found.accumulator.element is I32 else None
    turned = None if sizes is None else by_turning(kernel, found, sizes, constants)
    if turned is None:
        made = _by_panels(kernel, sizes, constants, ranges)
    elif not isinstance(held := turned[1], Expr):
        made = turned[0]
    else:
        made = _by_panels(replace(kernel, name=f"{kernel.name}.other"), sizes, constants, ranges)
        made = None if made is None else _beside(turned[0], made, held)
    if made is not None and sizes is not None and any(sizes.found in k.parameters for k in made.kernels):
        made = replace(made, kernels=(*sizes.kernels, *made.kernels))
    return made


def _seen_as(
    kernel: Kernel,
    other: Kernel,
    contracted: Callable[[Kernel, Constants, Ranges], Contracted | None],
    constants: Constants,
    ranges: Ranges,
) -> Contracted | None:
    """What becomes of a kernel whose arrays are given other shapes."""
    shapes = reshaped(kernel, other)
    arrays = {**constants, **{new: constants[old] for new, old in shapes.items() if old in constants}}
    known = {**ranges, **{new: ranges[old] for new, old in shapes.items() if old in ranges}}
    made = contracted(other, arrays, known)
    return None if made is None else replace(made, views={**made.views, **shapes})


def _beside(first: Contracted, others: Contracted, held: Expr) -> Contracted:
    """Kernels that compute where a condition holds, and others where it does not."""
    guarded = {k: _where(~held, k) for k in others.kernels}
    return Contracted(
        (*first.kernels, *guarded.values()),
        {**first.views, **others.views},
        {**first.constants, **others.constants},
        first.ready | {guarded[k] for k in others.ready},
    )


def _by_panels(kernel: Kernel, sizes: Sizes | None, constants: Constants, ranges: Ranges) -> Contracted | None:
    """By panels of columns as they are, or of all that a window goes over as one."""

    def contracted(kernel: Kernel, constants: Constants, ranges: Ranges) -> Contracted | None:
        c = recognise(kernel)
        if c is None or not _worth_packing(c):
            return None
        element = c.accumulator.element
        if sizes is not None and (words := _Contract(kernel, c, constants, ranges).in_words(sizes)) is not None:
            return words
        if element is I32 or (element in (F32, F64) and not c.guard):  # a zero for what is left out could make a NaN
            return _Contract(kernel, c, constants, ranges).in_full()
        return None

    found = recognise(kernel)
    if found is not None and found.window is not None and _waste(extent_of(found.column)) > FLAT:
        flat = flatten(kernel)
        if flat is not kernel and recognise(flat) is not None:
            return _seen_as(kernel, flat, contracted, constants, ranges)
    return contracted(kernel, constants, ranges)


def _where(condition: Expr, kernel: Kernel) -> Kernel:
    """The kernel, doing something only where a condition holds."""
    body = tuple(replace(s, body=(If(condition, s.body),)) if isinstance(s, For) else s for s in kernel.body)
    more = [r.tensor for r in walk(condition) if isinstance(r, Read) and r.tensor not in kernel.parameters]
    return replace(kernel, body=body, parameters=(*dict.fromkeys(more), *kernel.parameters))


def _waste(columns: int) -> float:
    """How many lanes are computed for each that is needed; without end where a vector does not fit."""
    return inf if columns < LANES else -(-columns // LANES) * LANES / columns


def reshaped(old: Kernel, new: Kernel) -> dict[Tensor, Tensor]:
    """Parameters that a pass gave another shape, and what they were."""
    return {n: o for o, n in zip(old.parameters, new.parameters, strict=True) if n is not o}


def _worth_packing(c: Contraction) -> bool:
    rows, columns, terms = extent_of(c.row), extent_of(c.column), prod(map(extent_of, c.folds))
    work = rows * columns * extent_of(c.window) * terms
    return rows >= 4 and columns >= LANES and 8 <= terms <= LARGEST and work >= LEAST


class _Contract(Panels):
    """The kernels of one contraction: what packs its factors, and what multiplies."""

    def __init__(self, kernel: Kernel, c: Contraction, constants: Constants, ranges: Ranges) -> None:
        super().__init__(kernel, c)
        self.known, self.ranges = dict(constants), ranges
        self.pairs = pair_up(c.folds)
        self.step = Index("s", self.pairs.steps)
        self.around = tuple(i for i in c.outer if depends(c.a, {i}))
        self.beside = tuple(i for i in c.outer if depends(c.b, {i}))
        self.kernels: list[Kernel] = []
        self.views: dict[Tensor, Tensor] = {}
        self.constants: dict[Tensor, np.ndarray] = {}

    def contracted(self, body: Block) -> Contracted:
        tiles = self.each_panel(body)
        return Contracted((*self.kernels, tiles), self.views, self.constants, frozenset({tiles}))

    def in_full(self) -> Contracted:
        """With factors as they are. Sums of floats go in the order of the terms, each product rounded with its sum."""
        return self.contracted(self.full())

    def full(self) -> Block:
        c, fill = self.c, []
        multiply, most = ("mul", ROWS // 2) if self.element is I32 else ("fma", ROWS * 4 // self.element.bytes)
        panels = None if self.element is I32 or len(c.folds) > 1 else self.panels_of(Terms(c.folds))
        if panels is None:
            panel = Tensor("full", (self.terms, self.width), self.element, "stack")
            fill, column = (Alloc(panel), *self.of_factors(panel)), panel[self.k, self.place]
        else:
            column = panels[(*self.beside, self.panel, self.k, self.place)]
        return (
            *fill,
            *self.tiles(c.folds, self.height(most), lambda _, at, r: substitute(c.a, {c.row: at}), column, multiply),
        )

    def in_words(self, sizes: Sizes) -> Contracted | None:
        """With factors in words of two, where they fit; None where they never do, or cannot be read so."""
        held = both(*(n <= I16.limits[1] for n in (sizes.rows, sizes.columns)))
        if held is False:
            return None
        height = self.height(ROWS)
        row = self.rows(height)
        columns = self.columns()
        if columns is None:
            return None
        fill, column = columns
        body = (*fill, *self.tiles((self.step,), height, row, column, "pairdot"))
        return self.contracted(body if held is True else (If(held, body, self.full()),))

    def rows(self, height: int) -> Row:
        """The words of the rows: those of constants tile by tile, as they are used."""
        lines = (*self.around, self.c.row)
        known = known_terms(self.c.a, self.known, (*lines, *self.c.folds))
        if known is None:
            words, body = row_words(self.c.a, self.pairs, lines)
            self.kernels.append(made(self.kernel, "rows", body, (words,)))
            flat = replace(words, shape=(*(i.extent for i in lines), self.pairs.steps))
            self.views[flat] = words
            return lambda tile, at, r: flat[(*self.around, at, self.step)]
        found = self.pairs.packed(known)
        count = -(-found.shape[-2] // height)
        starts = np.minimum(np.arange(count) * height, found.shape[-2] - height)
        tiles = found[..., starts[:, None] + np.arange(height), :].swapaxes(-1, -2)
        packed = Tensor("rows", tiles.shape, I32, "constant")
        self.constants[packed] = np.ascontiguousarray(tiles)
        return lambda tile, at, r: packed[(*self.around, tile, self.step, r)]

    def columns(self) -> tuple[Block, Expr] | None:
        """What fills a panel with words, and a word of it."""
        panels = self.panels_of(self.pairs)
        if panels is not None:
            return (), panels[(*self.beside, self.panel, self.step, self.place)]
        image = image_of(self.c.b, self.c.guard, self.pairs)
        if image is None:
            return None
        self.kernels.append(made(self.kernel, "image", image.body, (image.words,)))
        panel = Tensor("panel", (self.pairs.steps, self.width), I32, "stack")
        return (Alloc(panel), *self.of_image(image, self.pairs, panel)), panel[self.step, self.place]

    def panels_of(self, terms: Terms) -> Tensor | None:
        """All panels, of columns of which each is read once; packed here, if they are constant, or by kernels."""
        read = only_read(self.c.b)
        if read is None or not is_plain(read) or self.c.guard:
            return None
        known = known_terms(self.c.b, self.known, (*self.beside, *self.lines, *self.c.folds))
        if known is not None:
            return self.known_panels(terms.packed(known))
        return None if terms.odd else self.all_panels(terms)

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
        if turned and isinstance(terms, Pairs):  # words first, then what is turned lies side by side
            lines = (*self.beside, *self.lines)
            words, body = row_words(self.c.b, terms, lines)
            self.kernels.append(made(self.kernel, "lines", body, (words,)))
            flat = replace(words, shape=(*(i.extent for i in lines), terms.steps))
            self.views[flat] = words
            folds = (self.step,)
            value = flat[(*lines, self.step)]
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
