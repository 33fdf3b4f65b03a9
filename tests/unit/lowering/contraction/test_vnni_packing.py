"""Factors as words of two or four terms: which index they go along, what an image holds, and which
reads have one.
"""

from __future__ import annotations

from cvm.dialect.kernel_ir.expressions import Index, Tensor, indices
from cvm.dialect.types.tensor_types import I32
from cvm.lowering.contraction.vnni_packing import image_of, pack_k_axis, words_along

X = Tensor("x", (6, 9, 9), I32)


def test_the_outermost_even_index_is_taken_or_the_longest() -> None:
    even, odd, longest = Index("c", 4), Index("i", 3), Index("j", 5)
    assert pack_k_axis((odd, even, longest), 2).index is even
    odd_ones = pack_k_axis((odd, longest), 2)
    assert odd_ones.index is longest and odd_ones.steps == 9 and odd_ones.partial


def test_an_image_has_the_array_s_axes_and_a_border() -> None:
    p, q, c, i, j = indices("p q c i j", (9, 9, 6, 3, 3))
    read, inside = (
        X[c, p + i - 1, q + j - 1],
        [p + i - 1 >= 0, p + i - 1 < 9, q + j - 1 >= 0, q + j - 1 < 9],
    )
    image = image_of(read, inside, pack_k_axis((c, i, j), 2))
    assert image is not None and image.words.shape == (3, 11, 11)


def test_of_an_index_that_steps_by_two_the_image_has_half() -> None:
    p, q, c, i, j = indices("p q c i j", (3, 3, 3, 3, 3))
    image = image_of(X[c, p * 2 + i, q * 2 + j], [], pack_k_axis((c, i, j), 2))
    assert image is not None and image.words.shape == (
        3,
        7,
        4,
    )  # pairs of neighbors at every other place


def test_what_is_no_sum_of_indices_or_differently_guarded_has_no_image() -> None:
    p, c, i = indices("p c i", (4, 6, 3))
    assert image_of(X[c, p * i, p], [], pack_k_axis((c, i), 2)) is None
    assert image_of(X[c, p + i, p], [p + i >= 1], pack_k_axis((c, i), 2)) is None
    assert image_of(X[c, p + i, p] + X[c, p, p], [], pack_k_axis((c, i), 2)) is None


def test_words_of_four_go_along_an_index_that_is_a_multiple_or_needs_the_fewest_zeros() -> None:
    c, i, j = Index("c", 8), Index("i", 3), Index("j", 7)
    assert pack_k_axis((i, c, j), 4).index is c
    seven = pack_k_axis((i, j), 4)
    assert seven.index is j and seven.partial and seven.steps == 6 and len(seven.each(j)) == 4
    three = words_along(i, (i, j), 4)
    assert three.index is i and three.steps == 7 and len(three.each(i)) == 3


def test_only_the_axes_that_a_window_moves_along_are_of_its_image() -> None:
    c, p, q, i, j = indices("c p q i j", (6, 9, 9, 3, 3))
    inside = [p + i - 1 >= 0, p + i - 1 < 9, q + j - 1 >= 0, q + j - 1 < 9]
    image = image_of(X[c, p + i - 1, q + j - 1], inside, words_along(i, (i, j), 4), (1, 2), "stack")
    assert image is not None and image.words.shape == (9, 11) and image.words.space == "stack"
