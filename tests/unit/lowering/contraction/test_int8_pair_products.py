"""Contractions of bytes: exact at the ends of all ranges, taken only where sums of 16 bits hold the
products.
"""

from __future__ import annotations

from collections.abc import Callable

import contraction_programs as contractions
import numpy as np
import pytest
from int8_programs import PROGRAMS
from legal_and_equal import agreed

WEIGHTS = {  # the least and the largest
    "all": (-127, 127),
    "all of 8 bits": (-128, 127),
    "half": (-64, 64),
    "small": (-16, 16),
}


@pytest.fixture(autouse=True)
def small_ones_too(compile_for: Callable[..., None]) -> None:
    compile_for(packing_products=0, strategy_costs=contractions.preferred(without=("winograd",)))


def text(name: str, declared: str, weights: np.ndarray | None = None) -> str:
    return contractions.text(PROGRAMS[name], declared, "" if weights is None else weights)


def images(name: str, high: int, low: int = 0) -> list[tuple[np.ndarray]]:
    shape = PROGRAMS[name][1]
    random = np.random.default_rng(0)
    mixed = random.choice(np.array([low, high], np.int32), shape)
    return [
        (np.full(shape, high, np.int32),),
        (mixed,),
        (random.integers(low, high, shape, np.int32, endpoint=True),),
    ]


def weights(name: str, kind: str) -> list[np.ndarray]:
    """At one end, at the other, at either, and anywhere."""
    (low, high), shape = WEIGHTS[kind], PROGRAMS[name][2]
    random = np.random.default_rng(1)
    ends = random.choice(np.array([low, high], np.int32), shape)
    anywhere = random.integers(low, high, shape, np.int32, endpoint=True)
    anywhere.flat[:2] = low, high
    return [np.full(shape, low, np.int32), np.full(shape, high, np.int32), ends, anywhere]


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("kind", WEIGHTS)
def test_constant_weights(name: str, kind: str) -> None:
    for w in weights(name, kind):
        lowered = agreed(text(name, " {range = [0, 127]}", w), *images(name, 127))
        assert "bytepairs" in lowered
        assert lowered.count("kernel @") == 2  # what packs the image, and the tiles


@pytest.mark.parametrize("name", ["1x1, deep", "strided, deep", "groups, deep"])
def test_words_go_together_as_far_as_their_numbers_allow(name: str) -> None:
    def lowered(low: int, high: int, u: int) -> str:
        w = np.random.default_rng(1).integers(low, high, PROGRAMS[name][2], endpoint=True)
        w[0, :4] = low
        return agreed(text(name, f" {{range = [0, {u}]}}", w), *images(name, u))

    assert "addhalves" not in lowered(-127, 127, 127)  # two words of a lane are beyond 16 bits
    for small in (lowered(-64, 64, 127), lowered(-127, 127, 63), lowered(-32, 32, 255)):
        assert "addhalves" in small
    assert "bytepairs" not in lowered(-127, 127, 255)  # two products are beyond 16 bits


@pytest.mark.parametrize(
    "u, low, high", [(127, -128, 127), (255, -64, 64), (255, -128, 127), (128, -128, 127)]
)
@pytest.mark.parametrize("name", ["dense", "strided", "groups"])
def test_ends_of_the_ranges(name: str, u: int, low: int, high: int) -> None:
    shape = PROGRAMS[name][2]
    program = text(name, f" {{range = [0, {u}]}}").replace(
        "i32>) ", f"i32> {{range = [{low}, {high}]}}) "
    )
    ends = [np.full(shape, n, np.int32) for n in (low, high)]
    lowered = agreed(program, *((x, w) for (x,) in images(name, u) for w in ends))
    assert ("bytepairs" in lowered) == (2 * u * high <= 32767 and 2 * u * -low <= 32768)


@pytest.mark.parametrize("u", [0, 1, 2])
def test_images_of_hardly_any_values(u: int) -> None:
    """Limits on the weights are then larger than 16 bits hold."""
    for w in weights("1x1, odd sizes", "all of 8 bits"):
        program = text("1x1, odd sizes", f" {{range = [0, {u}]}}", w)
        assert "bytepairs" in agreed(program, *images("1x1, odd sizes", u))


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", PROGRAMS)
def test_ranges_found_when_called(name: str) -> None:
    (w,) = weights(name, "all")[-1:]
    found = [
        images(name, high, low)
        for low, high in ((0, 127), (0, 128), (-1, 127), (-127, 0), (0, 40000), (-(2**31), 0))
    ]
    lowered = agreed(text(name, "", w), *(x for given in found for x in given))
    assert "bytepairs" in lowered and ".other." in lowered
    lowered = agreed(
        text(name, ""),
        *((x, n) for given in found for (x,) in given for n in (w, w - 1, -w, w * 300)),
    )
    assert "bytepairs" in lowered and ".other." in lowered


def test_the_weights_may_be_those_without_a_sign() -> None:
    w = np.arange(13 * 16).reshape(13, 16, 1, 1) % 128
    assert "bytepairs" in agreed(
        text("1x1", " {range = [-128, 127]}", w), *images("1x1", 127, -128)
    )


def test_deep_sums_go_in_parts(compile_for: Callable[..., None]) -> None:
    compile_for(packing_products=0, l2_bytes=64 << 10)
    random = np.random.default_rng(0)
    shape, kernel = (1, 384 * 4 + 300, 3, 5), (9, 384 * 4 + 300, 1, 1)
    w = random.integers(-127, 128, kernel)
    program = f"""func @main(%x: tensor<{"x".join(map(str, shape))}xi32> {{range = [0, 127]}}) {{
  %w = const dense<{w.tolist()}> : tensor<{"x".join(map(str, kernel))}xi32>
  %y = cvm.conv2d %x, %w
  return %y
}}
"""
    lowered = agreed(
        program, (np.full(shape, 127, np.int32),), (random.integers(0, 128, shape, np.int32),)
    )
    assert "bytepairs" in lowered and "held" in lowered
