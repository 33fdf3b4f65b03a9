"""Instructions in which the threads of a warp work together: shuffles, votes and tensor-core
products.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .memory import WARP
from .ptx_types import Array
from .races import Fault


def shuffle_source(mode: str, lanes: Array, by: Array, clamp: Array) -> tuple[Array, Array]:
    """The lane that each lane reads from, and whether that is within its segment of the warp."""
    lane = lanes % WARP
    limit = clamp.astype(np.int64) & 31
    mask = clamp.astype(np.int64) >> 8 & 31
    most = lane & mask | limit & ~mask
    least = lane & mask
    by = by.astype(np.int64)
    wanted = {"idx": least | by & ~mask, "up": lane - by, "down": lane + by, "bfly": lane ^ by}[
        mode
    ]
    inside = wanted >= most if mode == "up" else wanted <= most
    return lanes - lane + np.where(inside, wanted, lane), inside


def vote(mode: str, lanes: Array, truth: Array) -> Array:
    """The result of a vote for every lane: `all`, `any`, or the mask of lanes (`ballot`)."""
    warps, place = np.unique(lanes // WARP, return_inverse=True)
    if mode == "ballot":
        bits = np.zeros(len(warps), np.uint32)
        np.bitwise_or.at(bits, place, truth.astype(np.uint32) << (lanes % WARP).astype(np.uint32))
        return bits[place]
    held = np.full(len(warps), mode == "all")
    (np.logical_and if mode == "all" else np.logical_or).at(held, place, truth)
    return held[place]


def whole_warps(lanes: Array) -> None:
    """Faults where lanes are not those of whole warps."""
    if (
        len(lanes) % WARP
        or np.any(lanes.reshape(-1, WARP) != lanes[::WARP, None] + np.arange(WARP))
        or lanes[0] % WARP
    ):
        raise Fault("a warp's instruction without all of its threads")


def matrix_product(
    a: Sequence[Array], b: Sequence[Array], c: Sequence[Array], kinds: tuple[np.dtype, np.dtype]
) -> list[Array]:
    """mma.m16n8k32 of 8-bit integers: the fragments of A (4 words a thread), B (2) and C (4) to
    those of A B + C.
    """

    def matrices(
        words: Sequence[Array], kind: Any, parts: tuple[int, ...], axes: Sequence[int]
    ) -> Array:
        """The elements that threads hold, by groups of 4 threads, threads and parts, in another
        order of these axes.
        """
        return (
            np.stack(words, -1)
            .view(kind)
            .reshape(-1, 8, 4, *parts)
            .transpose(0, *axes)
            .astype(np.int32)
        )

    left = matrices(a, kinds[0], (2, 2, 4), (4, 1, 3, 2, 5)).reshape(-1, 16, 32)
    right = matrices(b, kinds[1], (2, 4), (3, 2, 4, 1)).reshape(-1, 32, 8)
    product = matrices(c, np.int32, (2, 2), (3, 1, 2, 4)).reshape(-1, 16, 8) + np.matmul(
        left, right
    )
    return list(product.reshape(-1, 2, 8, 4, 2).transpose(0, 2, 3, 1, 4).reshape(-1, 4).T)
