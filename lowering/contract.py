"""Contractions of i32 over packed panels, in tiles of registers:

    for r { for q { acc = 0; for k { acc = acc + a[r, k] * b[k, q] }; y[r, q] = f(acc) } }
    =>  rows[r, k] = i16(a[r, k]); bad[r] = whether some a[r, k] does not fit
        for panel in columns by 16 parallel {
          panel[k / 2, q] = pairs of b[k, q], b[k + 1, q], in 16 bits each
          if everything fits {
            for tile in rows by 6 {
              tile[6, 16] = 0 in registers
              for k / 2 { tile[r, q] = tile[r, q] + pairdot(rows[r, k / 2], panel[k / 2, q]) }
              y[r, q] = f(tile[r, q])
            }
          } else { the same in 32 bits }
        }

A sum of two products of 16-bit factors is one instruction, exact modulo 2^32. Whether factors fit is found while packing;
the result does not depend on it. A block of 8 columns is a vector, two blocks a panel. Blocks and tiles that would reach
beyond the end move back and compute elements again, so that nothing is masked; guards become zeros of the panel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf, prod
from types import MappingProxyType

import numpy as np

from ..dialect.index import (
    Const,
    Index,
    Read,
    Tensor,
    as_index,
    cast,
    constant,
)
from ..dialect.loops import (
    Alloc,
    Kernel,
    Store,
    accumulator,
    assign,
    update,
)
from ..dialect.types import F32, F64, I16, I32
from .collapse import flatten
from .contraction import Contraction, recognise
from .panels import LANES, Panels, excess, extent_of, loops_of
from .ranges import Ranges

LEAST = 1 << 15  # products: for fewer, packing does not pay
FLAT = 1.25  # rows of columns that waste more of their vectors are joined
LARGEST = 1 << 14  # terms of a sum: panels are on the stack


@dataclass(frozen=True, eq=False)
class Contracted:
    """Kernels in place of one, tensors that are others' storage seen differently, and constants packed beforehand."""

    kernels: tuple[Kernel, ...]
    views: dict[Tensor, Tensor]
    constants: dict[Tensor, np.ndarray] = field(default_factory=dict)


Constants = Mapping[Tensor, np.ndarray]


def contract(
    kernel: Kernel, constants: Constants = MappingProxyType({}), ranges: Ranges = MappingProxyType({})
) -> Contracted | None:
    """The kernels that compute a contraction by panels and tiles; None where the kernel is not one, or too small.

    Rows of `constants` are packed here, once. Where `ranges` tell that factors fit 16 bits, nothing looks whether they do.
    """
    found = recognise(kernel)
    if found is not None and found.window is not None and _waste(extent_of(found.column)) > FLAT:
        flat = flatten(kernel)
        again = recognise(flat)
        if flat is not kernel and again is not None:
            shapes = reshaped(kernel, flat)
            known = {**ranges, **{new: ranges[old] for new, old in shapes.items() if old in ranges}}
            made = _made(flat, again, constants, known)
            return None if made is None else replace(made, views={**made.views, **shapes})
    return None if found is None else _made(kernel, found, constants, ranges)


def _made(kernel: Kernel, c: Contraction, constants: Constants, ranges: Ranges) -> Contracted | None:
    if not _worth_packing(c):
        return None
    if c.accumulator.element is I32:
        return _Contract(kernel, c, ranges).in_halves(constants)
    if c.accumulator.element in (F32, F64) and not c.guard:  # a zero for what is left out could make a NaN
        return _Contract(kernel, c).in_floats()
    return None


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
    """The kernels of one contraction: what packs its rows, and what multiplies."""

    def in_halves(self, constants: Constants) -> Contracted:
        """The kernels for i32."""
        known = self.known_rows(constants)
        if known is not None:
            halves = known.astype(np.int16)
            if not np.array_equal(halves, known):
                return Contracted((self.tiles_of(self.in_full()),), {})
            packed = np.zeros((*known.shape[:-1], 2 * self.steps), np.int16)
            packed[..., : self.terms] = halves
            self.pairs, self.bad = replace(self.pairs, space="constant"), None
            tiles = self.tiles_of(self.in_pairs_or_full())
            return Contracted((tiles,), {}, {self.pairs: packed.view(np.int32)})
        checks = () if self.bad is None else (self.check_rows(),)
        return Contracted((self.copy_rows(), *checks, self.tiles_of(self.in_pairs_or_full())), {self.pairs: self.rows})

    def in_floats(self) -> Contracted:
        """The kernel for floats, whose sums go in the order of the terms, each product rounded with its sum."""
        return Contracted((self.tiles_of(self.in_full()),), {})

    def known_rows(self, constants: Constants) -> np.ndarray | None:
        """The rows' factors, where they are a constant read along plain indices."""
        order = (*self.around, self.c.row, *self.c.folds)
        match self.c.a:
            case Read(tensor, at) if tensor in constants and all(isinstance(i, (Index, Const)) for i in at):
                array = constants[tensor].reshape([d for d in tensor.shape if isinstance(d, int)])
                array = array[tuple(i.value if isinstance(i, Const) else slice(None) for i in at)]
                plain = [i for i in at if isinstance(i, Index)]
                if len(plain) == len(order) == len(set(plain)) and set(plain) == set(order):
                    moved = array.transpose([plain.index(i) for i in order])
                    return moved.reshape((*moved.shape[: len(self.around) + 1], self.terms))
        return None

    def copy_rows(self) -> Kernel:
        c = self.c
        rows = (*self.around, c.row)
        at = c.folds if self.terms % 2 == 0 else (self.k,)
        nests = [loops_of((*rows, *c.folds), (Store(self.rows, (*rows, *at), cast(c.a, I16)),))]
        if self.terms % 2:
            nests.append(loops_of(rows, (Store(self.rows, (*rows, as_index(self.terms)), constant(0, I16)),)))
        return self.made("rows", tuple(nests), (self.rows,))

    def check_rows(self) -> Kernel:
        c = self.c
        bad = accumulator("acc", I32)
        fold = loops_of(c.folds, (update("or", bad, excess(c.a)),))
        rows = (*self.around, c.row)
        assert self.bad is not None
        body = (Alloc(bad), assign(bad, 0), fold, Store(self.bad, rows, bad[()]))
        return self.made("check", (loops_of(rows, body),), (self.bad,))

    # columns
