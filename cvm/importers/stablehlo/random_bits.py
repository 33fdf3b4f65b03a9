"""Random bits as XLA's CPU backend gives them: Threefry-2x32 and Philox-4x32 in 10 rounds, of
J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011. Compared with jaxlib 0.10.2.
"""

from __future__ import annotations

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import UI32, UI64
from cvm.importers.graph.elementwise import ufunc
from cvm.importers.graph.movement import at_step, cut, joined
from cvm.importers.graph.rules import Unsupported, static

from .importer import At, rule, scalar_like
from .shapes import bits_as, to_shape
from .text import typed

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)  # of Threefry-2x32, in turn
PARITY = 0x1BD11BDA  # of Threefry's key schedule
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57  # of Philox-4x32
WEYL = 0x9E3779B9, 0xBB67AE85  # what Philox's keys grow by: the golden ratio, and sqrt(3) - 1


def halves(x: Node) -> tuple[Node, Node]:
    """The low and the high words of 64 bits."""
    return x.cast(UI32), ufunc("right_shift", x, scalar_like(x, 32)).cast(UI32)


def threefry(key: tuple[Node, Node], x: Node, y: Node) -> list[Node]:
    keys = (*key, ufunc("bitwise_xor", ufunc("bitwise_xor", *key), scalar_like(key[0], PARITY)))
    x, y = ufunc("add", x, keys[0]), ufunc("add", y, keys[1])
    for block in range(5):
        for turn in ROTATIONS[block % 2]:
            x = ufunc("add", x, y)
            left = ufunc("left_shift", y, scalar_like(y, turn))
            right = ufunc("right_shift", y, scalar_like(y, 32 - turn))
            y = ufunc("bitwise_xor", ufunc("bitwise_or", left, right), x)
        x = ufunc("add", x, keys[(block + 1) % 3])
        y = ufunc("add", ufunc("add", y, keys[(block + 2) % 3]), scalar_like(y, block + 1))
    return [x, y]


def philox(key: tuple[Node, Node], words: list[Node]) -> list[Node]:
    keys = [*key]
    a, b, c, d = words
    for _ in range(10):
        (low, high), (other_low, other_high) = (
            halves(ufunc("multiply", x.cast(UI64), x.constant(np.array(m, np.uint64))))
            for x, m in ((a, MULTIPLIERS[0]), (c, MULTIPLIERS[1]))
        )
        a = ufunc("bitwise_xor", ufunc("bitwise_xor", other_high, b), keys[0])
        c = ufunc("bitwise_xor", ufunc("bitwise_xor", high, d), keys[1])
        b, d = other_low, low
        keys = [ufunc("add", k, scalar_like(k, w)) for k, w in zip(keys, WEYL, strict=True)]
    return [a, b, c, d]


@rule("rng_bit_generator")
def rng_bit_generator(at: At, state: Node) -> list[Node]:
    """The next state, a key and a counter, and numbers of 32 or 64 bits."""
    algorithm = str(at.attribute("rng_algorithm", "algorithm")).split()[-1]
    result = typed(at.operation.result_types[-1])
    shape, bits = static(result, "random numbers"), result.element.bits
    if state.element is not UI64 or state.shape != (2,) or bits not in (32, 64):
        raise Unsupported(f"{bits} random bits of a state {state.array_type}")
    if not result.element.is_integer:
        raise Unsupported(f"random bits as {result.element}")
    key, counter = (at_step(at, state, 0, k) for k in range(2))
    words = 2 if algorithm == "THREE_FRY" else 4
    if algorithm not in ("THREE_FRY", "PHILOX", "DEFAULT"):
        raise ValueError(f"it has no algorithm {algorithm}")
    count = int(np.prod(shape, dtype=object))
    half, axis = [*shape], 0
    if words == 2 and bits == 32 and shape:  # pairs lie along one axis
        axis = next((a for a, n in enumerate(shape) if n % 2 == 0), split_axis(shape))
        half[axis] = -(-shape[axis] // 2)
        blocks = int(np.prod(half, dtype=object))
    else:
        blocks = -(-count * bits // (32 * words))
    numbers = at.node(np.arange(blocks, dtype=np.uint64))
    low, high = halves(ufunc("add", counter, numbers))
    pair = halves(key)
    found = threefry(pair, low, high) if words == 2 else philox(pair, [low, high, *pair])
    rows = [at.like((blocks,)).scalar("second", f).cast(UI32) if not f.rank else f for f in found]
    flat = joined(at, [r.with_ones((1,)) for r in rows], 1)
    if words == 2 and bits == 32 and shape:
        rank = len(shape)
        wide = to_shape(at, flat, (*half, 2))
        wide = wide.dimshuffle([*range(axis + 1), rank, *range(axis + 1, rank)])
        whole = to_shape(at, wide, [2 * n if a == axis else n for a, n in enumerate(half)])
        y = cut(at, whole, [0] * rank, [*shape], [1] * rank)
    else:
        if bits == 64:
            flat = bits_as(at, to_shape(at, flat, (blocks * words // 2, 2)), UI64)
        else:
            flat = to_shape(at, flat, (blocks * words,))
        y = to_shape(at, cut(at, flat, [0], [count], [1]), shape)
    following = ufunc("add", counter, scalar_like(counter, blocks))
    after = joined(at, [n.with_ones((0,)) for n in (key, following)], 0)
    return [after, y.cast(result.element)]


def split_axis(shape: tuple[int, ...]) -> int:
    return max(range(len(shape)), key=lambda a: shape[a])
