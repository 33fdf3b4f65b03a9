"""Instructions in which the threads of a warp work together: shuffles, votes and tensor-core products."""

from collections.abc import Sequence

import numpy as np
from .memory import WARP, Fault
from .ptx_types import Array


def shuffle_source(mode: str, lanes: Array, by: Array, clamp: Array) -> tuple[Array, Array]:
    """The lane that each lane reads from, and whether that is within its segment of the warp."""
    lane = lanes % WARP
    limit, mask = clamp.astype(np.int64) & 31, clamp.astype(np.int64) >> 8 & 31
    most, least = lane & mask | limit & ~mask, lane & mask
    by = by.astype(np.int64)
    wanted = {"idx": least | by & ~mask, "up": lane - by, "down": lane + by, "bfly": lane ^ by}[mode]
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
    if len(lanes) % WARP or np.any(lanes.reshape(-1, WARP) != lanes[::WARP, None] + np.arange(WARP)) or lanes[0] % WARP:
        raise Fault("a warp's instruction without all of its threads")


def matrix_product(
    a: Sequence[Array], b: Sequence[Array], c: Sequence[Array], kinds: tuple[np.dtype, np.dtype]
) -> list[Array]:
    """mma.m16n8k32 of 8-bit integers: the fragments of A (4 words a thread), B (2) and C (4) to those of A B + C."""
    warps = len(a[0]) // WARP
    lane = np.arange(WARP)
    group, member = lane // 4, lane % 4

    def bytes_of(word: Array, kind: np.dtype) -> Array:
        return np.ascontiguousarray(word).view(kind).reshape(warps, WARP, 4).astype(np.int32)

    left, right = np.zeros((warps, 16, 32), np.int32), np.zeros((warps, 32, 8), np.int32)
    total = np.zeros((warps, 16, 8), np.int32)
    for r, word in enumerate(a):
        for n in range(4):
            left[:, group + 8 * (r % 2), member * 4 + n + 16 * (r // 2)] = bytes_of(word, kinds[0])[:, :, n]
    for r, word in enumerate(b):
        for n in range(4):
            right[:, member * 4 + n + 16 * r, group] = bytes_of(word, kinds[1])[:, :, n]
    for r, word in enumerate(c):
        total[:, group + 8 * (r // 2), member * 2 + r % 2] = word.view(np.int32).reshape(warps, WARP)
    product = total + np.matmul(left, right)
    return [product[:, group + 8 * (r // 2), member * 2 + r % 2].reshape(-1) for r in range(4)]
