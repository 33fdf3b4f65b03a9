"""Factors as words of two halves: which index is paired, what an image holds, and which reads have one."""

from __future__ import annotations

from cvm.dialect.index import Index, Tensor, indices
from cvm.dialect.types import I32
from cvm.lowering.words import image_of, pair_up

X = Tensor("x", (6, 9, 9), I32)


def test_the_outermost_even_index_is_paired_or_the_longest() -> None:
    even, odd, longest = Index("c", 4), Index("i", 3), Index("j", 5)
    assert pair_up((odd, even, longest)).index is even
    odd_ones = pair_up((odd, longest))
    assert odd_ones.index is longest and odd_ones.steps == 9 and odd_ones.odd


def test_an_image_has_the_array_s_axes_and_a_border() -> None:
    p, q, c, i, j = indices("p q c i j", (9, 9, 6, 3, 3))
    read, inside = X[c, p + i - 1, q + j - 1], [p + i - 1 >= 0, p + i - 1 < 9, q + j - 1 >= 0, q + j - 1 < 9]
    image = image_of(read, inside, pair_up((c, i, j)))
    assert image is not None and image.words.shape == (3, 11, 11)


def test_of_an_index_that_steps_by_two_the_image_has_half() -> None:
    p, q, c, i, j = indices("p q c i j", (3, 3, 3, 3, 3))
    image = image_of(X[c, p * 2 + i, q * 2 + j], [], pair_up((c, i, j)))
    assert image is not None and image.words.shape == (3, 7, 4)  # pairs of neighbours at every other place


def test_what_is_no_sum_of_indices_or_differently_guarded_has_no_image() -> None:
    p, c, i = indices("p c i", (4, 6, 3))
    assert image_of(X[c, p * i, p], [], pair_up((c, i))) is None
    assert image_of(X[c, p + i, p], [p + i >= 1], pair_up((c, i))) is None
    assert image_of(X[c, p + i, p] + X[c, p, p], [], pair_up((c, i))) is None
