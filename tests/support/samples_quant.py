"""Random quantized operators over arrays: sizes, zero points and edges of types that their
constraints admit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cvm.dialect.quant import (
    contractions,
    elementwise,
    fixed_point_reciprocal as clz_reciprocal,
    pooling,
    requantize,
)
from cvm.dialect.spec.operator import Operator
from cvm.dialect.types.tensor_types import ELEMENT_TYPES, I16, I32, I64, UI16
from samples import between, flag, i32s, positive, sample, shape

NARROW = [ELEMENT_TYPES[n] for n in ("i8", "ui8", "i8", "ui8", "i16", "ui16")]
ROUNDINGS = ("single", "tosa_double", "tflite_double", "half_even_f32", "shift_half_up")


def numbers(random: np.random.Generator, element: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of a narrow type, its limits among them."""
    low, high = element.limits
    values = random.integers(low, high + 1, shape)
    return np.where(
        random.random(shape) < 0.1, random.choice([low, high, 0], shape), values
    ).astype(element.dtype)


def factors(random: np.random.Generator) -> tuple[Any, Any]:
    one, other = (NARROW[between(random, 0, len(NARROW) - 1)] for _ in range(2))
    return one, other


def zero_point(random: np.random.Generator, element: Any, count: int | None) -> np.ndarray:
    """One zero point, or one for each of `count`; in the operand's type or in i32."""
    row = () if count is None or flag(random) else (count,)
    found = numbers(random, element, row)
    return found if flag(random) else found.astype(np.int32)


def accumulated(random: np.random.Generator, x: Any) -> tuple[Any, Any]:
    """The attribute acc_dtype, and the type it amounts to."""
    given = random.choice(np.array([None, I32, I64], object))
    return given, given or (I64 if x in (I16, UI16) else I32)


def bias(random: np.random.Generator, acc: Any, channels: int) -> np.ndarray | None:
    return i32s(random, (channels,)).astype(acc.dtype) if flag(random) else None


def windows(random: np.random.Generator) -> dict[str, tuple[int, ...]]:
    pads = tuple(int(n) for n in random.integers(0, 3, 4))
    return {"padding": pads, "stride": positive(random, 2, 3), "dilation": positive(random, 2, 2)}


def spatial(
    random: np.random.Generator, kernel: tuple[int, ...], given: dict[str, Any]
) -> tuple[int, ...]:
    """Sizes that the dilated kernel fits in once they are padded."""
    pads, dilation = given["padding"], given["dilation"]
    least = [
        d * (k - 1) + 1 - pads[n] - pads[n + 2]
        for n, (k, d) in enumerate(zip(kernel, dilation, strict=True))
    ]
    return tuple(max(n, 1) + between(random, 0, 3) for n in least)


@sample(contractions.Conv2d)
def conv2d(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    x, w = factors(random)
    acc_dtype, acc = accumulated(random, x)
    kernel, groups = positive(random, 2, 3), between(random, 1, 2)
    given = windows(random)
    ic, oc, n = between(random, 1, 4), groups * between(random, 1, 3), between(random, 1, 2)
    size = spatial(random, kernel, given)
    layout = str(random.choice(["NHWC", "NCHW"]))
    image = (n, *size, ic * groups) if layout == "NHWC" else (n, ic * groups, *size)
    kernels = (oc, *kernel, ic) if layout == "NHWC" else (oc, ic, *kernel)
    return cls(
        numbers(random, x, image),
        numbers(random, w, kernels),
        zero_point(random, x, None),
        zero_point(random, w, oc),
        bias(random, acc, oc),
        groups=groups,
        layout=layout,
        acc_dtype=acc_dtype,
        **given,
    )


@sample(contractions.DepthwiseConv2d)
def depthwise_conv2d(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    x, w = factors(random)
    acc_dtype, acc = accumulated(random, x)
    kernel = positive(random, 2, 3)
    given = windows(random)
    c, m, n = between(random, 1, 5), between(random, 1, 2), between(random, 1, 2)
    return cls(
        numbers(random, x, (n, *spatial(random, kernel, given), c)),
        numbers(random, w, (*kernel, c, m)),
        zero_point(random, x, None),
        zero_point(random, w, c * m),
        bias(random, acc, c * m),
        acc_dtype=acc_dtype,
        **given,
    )


@sample(contractions.TransposeConv2d)
def transpose_conv2d(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    x, w = factors(random)
    acc_dtype, acc = accumulated(random, x)
    size, kernel, stride = (positive(random, 2, 3) for _ in range(3))
    ic, oc, n = between(random, 1, 3), between(random, 1, 3), between(random, 1, 2)
    full = [(s - 1) * t + k for s, t, k in zip(size, stride, kernel, strict=True)]
    before = [between(random, -1, min(1, n - 1)) for n in full]
    after = [between(random, -1, min(1, n - 1 - b)) for n, b in zip(full, before, strict=True)]
    return cls(
        numbers(random, x, (n, *size, ic)),
        numbers(random, w, (oc, *kernel, ic)),
        zero_point(random, x, None),
        zero_point(random, w, oc),
        bias(random, acc, oc),
        padding=(*before, *after),
        stride=stride,
        acc_dtype=acc_dtype,
    )


@sample(contractions.Dense)
def dense(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    x, w = factors(random)
    acc_dtype, acc = accumulated(random, x)
    m, k, n = shape(random, 3, 9)
    return cls(
        numbers(random, x, (m, k)),
        numbers(random, w, (n, k)),
        zero_point(random, x, m),
        zero_point(random, w, n),
        bias(random, acc, n),
        acc_dtype=acc_dtype,
    )


@sample(contractions.BatchMatmul)
def batch_matmul(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    a, b = factors(random)
    m, k, n = shape(random, 3, 6)
    batch = shape(random, between(random, 0, 2))
    return cls(
        numbers(random, a, (*batch, m, k)),
        numbers(random, b, (*(batch if flag(random) else ()), k, n)),
        zero_point(random, a, m),
        zero_point(random, b, n),
        acc_dtype=accumulated(random, a)[0],
    )


@sample(requantize.Requantize)
def requantized(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    rounding = str(random.choice(ROUNDINGS))
    n = shape(random, between(random, 0, 4))
    x = i32s(random, n)
    if flag(random):
        x = x.astype(random.choice(["i1", "u1", "i2", "u2", "i4"]))
    elif rounding in ("single", "shift_half_up"):
        x = x.astype(np.int64) << between(random, 0, 20)
    axis = between(random, -len(n), len(n) - 1) if n else 0
    rows = [(n[axis],) if n and flag(random) else () for _ in range(2)]
    if rounding == "half_even_f32":
        multiplier = (random.random(rows[0]) * 2.0 ** random.integers(-20, 2, rows[0])).astype(
            np.float32
        )
        shift = None
    else:
        multiplier = np.where(
            flag(random), random.integers(1 << 30, 1 << 31, rows[0]), i32s(random, rows[0])
        )
        multiplier = multiplier.astype(np.int32)
        shift = random.integers(0, 64, rows[1]).astype(np.int32)
    to = ELEMENT_TYPES[str(random.choice(["i8", "ui8", "i16", "ui16", "i32"]))]
    low, high = sorted(between(random, *to.limits) for _ in range(2))
    return cls(
        x,
        multiplier,
        shift,
        to=to,
        rounding=rounding,
        zero_point=between(random, -200, 200),
        min=low if flag(random) else None,
        max=high if flag(random) else None,
        input_zero_point=between(random, -200, 200) if flag(random) else 0,
        axis=axis,
    )


@sample(pooling.AvgPool2d, pooling.MaxPool2d)
def pooled(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    element = NARROW[between(random, 0, len(NARROW) - 1)]
    size = positive(random, 2, 4)
    given: dict[str, Any] = windows(random)
    del given["dilation"]
    given["padding"] = tuple(min(p, size[n % 2] - 1) for n, p in enumerate(given["padding"]))
    n, c, image = (
        between(random, 1, 2),
        between(random, 1, 5),
        spatial(random, size, {**given, "dilation": (1, 1)}),
    )
    given["layout"] = str(random.choice(["NHWC", "NCHW"]))
    low, high = sorted(between(random, *element.limits) for _ in range(2))
    if flag(random):
        given["min"] = low
    if flag(random):
        given["max"] = high
    if cls is pooling.AvgPool2d:
        given["rounding"] = str(random.choice(["half_away", "tosa"]))
        given |= {k: between(random, -200, 200) for k in ("zero_point", "input_zero_point")}
    x = numbers(random, element, (n, *image, c) if given["layout"] == "NHWC" else (n, c, *image))
    return cls(x, pool_size=size, **given)


@sample(pooling.Pad)
def padded(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    element = ELEMENT_TYPES[str(random.choice(["i8", "ui8", "i16", "ui16", "i32", "ui32"]))]
    n = shape(random)
    before, after = (tuple(between(random, 0, 2) for _ in n) for _ in range(2))
    return cls(numbers(random, element, n), zero_point(random, NARROW[0], None), before, after)


@sample(pooling.Resize2d)
def resized(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    element = NARROW[between(random, 0, len(NARROW) - 1)]
    n, h, w, c = positive(random, 4)
    while True:
        scale = tuple(between(random, 1, 6) for _ in range(4))
        offset = tuple(between(random, -u, u) for u in scale[::2])
        border = tuple(between(random, -u, u - 1) for u in scale[::2])
        reach = [(m - 1) * scale[2 * a] - offset[a] + border[a] for a, m in enumerate((h, w))]
        if all(r >= 0 and r % s == 0 for r, s in zip(reach, scale[1::2], strict=True)):
            break
    mode = str(random.choice(["nearest", "bilinear"]))
    return cls(numbers(random, element, (n, h, w, c)), scale, offset, border, mode)


def rescaling(random: np.random.Generator) -> dict[str, Any]:
    """Attributes of a result, and a rounding."""
    to = NARROW[between(random, 0, len(NARROW) - 1)]
    limits = sorted(int(n) for n in random.integers(to.limits[0], to.limits[1] + 1, 2))
    given = {"to": to, "rounding": str(random.choice(elementwise.INTEGER_ROUNDINGS))}
    return {**given, "min": limits[0], "max": limits[1]} if flag(random) else given


def operands(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    whole = shape(random)
    part = tuple(1 if flag(random) else n for n in whole)[between(random, 0, len(whole)) :]
    one, other = factors(random)
    return numbers(random, one, whole), numbers(random, other, part)


def multiplier(random: np.random.Generator) -> int:
    return (
        int(random.integers(1 << 30, 1 << 31)) * (1 - 2 * flag(random))
        if flag(random)
        else int(i32s(random, ()))
    )


@sample(elementwise.Add)
def add(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    zeros = tuple(between(random, -300, 300) for _ in range(3))
    multipliers = tuple(multiplier(random) for _ in range(3))
    shifts = tuple(between(random, 0, 63) for _ in range(3))
    return cls(
        *operands(random), zeros, multipliers, shifts, between(random, 0, 31), **rescaling(random)
    )


@sample(elementwise.Mul)
def mul(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    zeros = tuple(between(random, -300, 300) for _ in range(3))
    return cls(
        *operands(random), zeros, multiplier(random), between(random, 0, 63), **rescaling(random)
    )


@sample(elementwise.Table)
def table(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    if flag(random):
        return cls(
            numbers(random, I16, shape(random)),
            numbers(random, I16, (elementwise.INTERPOLATED,)),
            interpolate=True,
        )
    element, to = ELEMENT_TYPES[str(random.choice(["i8", "ui8"]))], factors(random)[0]
    return cls(numbers(random, element, shape(random)), numbers(random, to, (256,)))


@sample(clz_reciprocal.LeadingZeros, clz_reciprocal.Reciprocal)
def fixed(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    return cls(i32s(random, shape(random)))
