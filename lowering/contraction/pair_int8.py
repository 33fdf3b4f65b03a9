"""Words of bytes two by two, so that sums of their products fit 16 bits:

    p[lane, j], n[lane, j]     the sums of the positive and of the negative numbers of word j, in each lane
    =>  words i, j together where p[lane, i] + p[lane, j] and n[lane, i] + n[lane, j] are small enough in every lane

Words are taken from those that the fewest go with on, each with one that few go with: not always as many pairs as there
could be, but nearly. What is left over stays alone.
"""

from __future__ import annotations

import numpy as np

CHUNK = 96  # words among which partners are looked for
AT_ONCE = 1 << 24  # pairs of words that are looked at together


def pair_words(positive: np.ndarray, negative: np.ndarray, most: tuple[int, int]) -> np.ndarray:
    """Each word's partner, itself where it has none, by sets of words: from arrays of sets, lanes, words."""
    sets, _, words = positive.shape
    found = np.broadcast_to(np.arange(words), (sets, words)).copy()
    for first in range(0, words, CHUNK):
        chunk = slice(first, first + CHUNK)
        size = len(range(words)[chunk])
        for start in range(0, sets, step := max(1, AT_ONCE // size**2)):
            part = slice(start, start + step)
            found[part, chunk] = first + _matched(_fitting(positive[part, :, chunk], negative[part, :, chunk], most))
    return found


def _fitting(positive: np.ndarray, negative: np.ndarray, most: tuple[int, int]) -> np.ndarray:
    """Which words go together."""
    sets, lanes, words = positive.shape
    fit = np.ones((sets, words, words), bool)
    for sums, limit in zip((positive, negative), most, strict=True):
        left = limit - sums
        for lane in range(lanes):
            fit &= sums[:, lane, :, None] <= left[:, lane, None, :]
    fit[:, np.arange(words), np.arange(words)] = False
    return fit


def _matched(fit: np.ndarray) -> np.ndarray:
    """Each word's partner, among those that it goes with; `fit` is used up."""
    sets, words, _ = fit.shape
    found = np.broadcast_to(np.arange(words), (sets, words)).copy()
    every = np.arange(sets)
    degree = fit.sum(2, dtype=np.int32)
    for _ in range(words // 2):
        one = np.where(degree > 0, degree, words).argmin(1)
        some = every[degree[every, one] > 0]
        if not len(some):
            break
        one = one[some]
        other = np.where(fit[some, one], degree[some], words).argmin(1)
        found[some, one], found[some, other] = other, one
        for gone in (one, other):
            degree[some] -= fit[some, gone]
            fit[some, gone] = False
            fit[some, :, gone] = False
            degree[some, gone] = 0
    return found
