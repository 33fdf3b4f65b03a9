"""Values for the programs of `cvm selftest`: a function of a name alone, on every machine and for
every version of NumPy.

Bits are those of SplitMix64 at consecutive counters. All conversions to elements are exact.
"""

from hashlib import sha256

import numpy as np

from cvm.dialect.types.tensor_types import ElementType

TAME, WIDE, EDGES = 0, 1, 2  # kinds: small numbers; numbers of all magnitudes; edges among these
RARE = 7  # of 8 elements, those that are no edges
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
SIGNIFICANT = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}  # bits


def bits(name: str, count: int) -> np.ndarray:
    """Pseudo-random words of 64 bits, by a name."""
    seed = np.uint64(int.from_bytes(sha256(name.encode()).digest()[:8], "little"))
    z = (np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GOLDEN)) + seed
    z = (z ^ (z >> np.uint64(30))) * np.uint64(FIRST)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(SECOND)
    return z ^ (z >> np.uint64(31))


def below(name: str, limits: list[int]) -> list[int]:
    """A number from 0 to below each of the limits."""
    return [int(b) % n for b, n in zip(bits(name, len(limits)).tolist(), limits, strict=True)]


def elements(
    name: str,
    element: ElementType,
    shape: tuple[int, ...],
    kind: int,
    bounds: tuple[float, float] | None = None,
) -> np.ndarray:
    """An array of an element type by its name, within bounds where they are given."""
    count = int(np.prod(shape, dtype=np.int64))
    if element.kind == "complex":
        parts = np.empty((count, 2), f"f{element.bytes // 2}")
        for n, part in enumerate(("real", "imaginary")):
            own = f"f{element.bytes * 4}"
            parts[:, n] = _floats(bits(f"{name} {part}", count), own, kind).astype(parts.dtype)
        return parts.view(element.dtype).reshape(shape)
    words = bits(name, count)
    if element.is_discrete:
        return _integers(words, element, kind, bounds).reshape(shape)
    if bounds is not None:
        low, high = bounds
        fraction = np.ldexp((words >> np.uint64(44)).astype(np.float64), -20)
        return (low + fraction * (high - low)).astype(element.dtype).reshape(shape)
    return _floats(words, element.name, kind).astype(element.dtype).reshape(shape)


def _integers(
    words: np.ndarray, element: ElementType, kind: int, bounds: tuple[float, float] | None
) -> np.ndarray:
    if element.kind == "bool" and bounds is None:
        bounds = element.limits
    low, high = (int(n) for n in bounds or element.limits)
    if bounds is None and kind == TAME:
        low, high = max(low, -3), min(high, 8)
    if bounds is not None or kind == TAME:
        size = np.uint64(high - low + 1) if high - low + 1 < 1 << 64 else None
        offset = words if size is None else words % size
        return (offset + np.uint64(low % (1 << 64))).astype(element.dtype)
    width = element.bytes * 8
    values = (words >> np.uint64(64 - width)).astype(element.dtype)
    values = values >> (words % np.uint64(width)).astype(element.dtype)
    if kind == WIDE:
        return values
    edges = {0, 1, 2, 127, low, low + 1, high, high - 1, high // 2 + 1}
    edges |= {-1, -2, -128} if low < 0 else {128, 255}
    table = np.array(sorted(edges), element.dtype)
    return _with_edges(values, words, table)


def _floats(words: np.ndarray, name: str, kind: int) -> np.ndarray:
    """Numbers with all the bits that the type has, in f64."""
    digits = SIGNIFICANT[name]
    whole = (words >> np.uint64(64 - digits)).astype(np.int64) - (1 << digits - 1)
    magnitude = (words & np.uint64(31)).astype(np.int32)
    narrow = name == "f16"
    exponent = magnitude % 5 - 2 if kind == TAME else (magnitude - 16) // (3 if narrow else 1)
    values = np.ldexp(whole.astype(np.float64), exponent - (digits - 1))
    if kind != EDGES:
        return values
    least, normal, largest = {
        "f16": (2.0**-24, 2.0**-14, 65504.0),
        "bf16": (2.0**-133, 2.0**-126, (2 - 2.0**-7) * 2.0**127),
        "f32": (2.0**-149, 2.0**-126, (2 - 2.0**-23) * 2.0**127),
        "f64": (2.0**-1074, 2.0**-1022, (2 - 2.0**-52) * 2.0**1023),
    }[name]
    plain = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 100.0, np.inf, least, normal, largest)
    return _with_edges(values, words, np.array([*plain, *(-n for n in plain), np.nan]))


def _with_edges(values: np.ndarray, words: np.ndarray, edges: np.ndarray) -> np.ndarray:
    chosen = edges[((words >> np.uint64(8)) % np.uint64(len(edges))).astype(np.int64)]
    return np.where((words >> np.uint64(5)) % np.uint64(8) < RARE, values, chosen)
