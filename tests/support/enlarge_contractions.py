"""Recorded contractions and transpositions as parts of larger ones, which have what algorithms for
large ones take: many rows, columns and terms, windows of 3 x 3 that move by one, factors of no
sign. What is added is zeros; the recorded results are among those of the larger.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from conformance_cases import Case
from cvm.dialect.cvm.nn import Conv2d, Dense
from cvm.dialect.cvm.transpose_tile_concatenate import Transpose
from cvm.dialect.ir.function import Value

import cvm

ROWS, COLUMNS, TERMS, HEIGHT, WINDOW = 9, 17, 16, 9, 3  # at least; the height is that of an image
WIDE = 70  # columns of a dense layer
SIDE, MOST = 41, 1 << 20  # of what is transposed, along an axis, unless that is too much
SHORT = 3  # of the axis that becomes the last one, where that is to be a short one


def larger(
    case: Case,
    known: dict[str, np.ndarray],
    signless: bool = False,
    windows: bool = False,
    short: bool = False,
) -> Case | None:
    """The case as part of a larger one, whose arrays are `known` then; None where it is none of
    these, or has no windows.
    """
    operations = cvm.parse(case["program"]).functions["main"].operations if case["valid"] else ()
    if len(operations) != 1:
        return None
    operator, arrays = operations[0].operator, [known[n] for n in case["inputs"]]
    if isinstance(operator, Dense) and not windows:
        (arrays, part), more = _dense(*arrays, signless=signless), ""
    elif isinstance(operator, Conv2d):
        (arrays, part), more = (
            _conv2d(operator, *arrays, signless=signless),
            f" {{groups = {operator.groups}}}",
        )
    elif isinstance(operator, Transpose) and not windows:
        part = [range(n) for n in known[case["outputs"][0]].shape]
        axes = operator.real_axes(arrays[0].ndim)
        arrays, more = (
            [_cube(*arrays, axes[-1] if short and axes else -1)],
            f" {{axes = {list(axes)}}}",
        )
    else:
        return None
    names = [f"{case['id']}.{n}{'.signless' * signless}" for n in range(len(arrays))]
    known.update(zip(names, arrays, strict=True))
    types = ", ".join(
        f"%a{n}: tensor<{'x'.join(map(str, a.shape))}xi32>" for n, a in enumerate(arrays)
    )
    given = ", ".join(f"%a{n}" for n in range(len(arrays)))
    program = f"func @main({types}) {{\n  %y = {case['op']} {given}{more}\n  return %y\n}}\n"
    return {**case, "program": program, "inputs": names, "part": np.ix_(*part)}


def _cube(x: np.ndarray, short: int) -> np.ndarray:
    side = min(SIDE, int(MOST ** (1 / max(x.ndim, 1))))
    return _padded(x, [max(n, SHORT if axis == short else side) for axis, n in enumerate(x.shape)])


def _dense(
    x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None, *, signless: bool
) -> tuple[list[np.ndarray], list[Sequence[int]]]:
    """Arguments of a larger one, and where in its results the others are."""
    rows, columns = len(x), len(w)
    if signless:
        x, w = _without_sign(x, w, 1)
    terms = _multiple(x.shape[1])
    arrays = [_padded(x, (max(rows, ROWS), terms)), _padded(w, (max(columns, WIDE), terms))]
    more = [] if b is None else [_padded(b, (len(arrays[1]),))]
    return [*arrays, *more], [range(rows), range(columns)]


def _conv2d(
    o: Conv2d[Value], x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None, *, signless: bool
) -> tuple[list[np.ndarray], list[Sequence[int]]]:
    """The same, by groups. What a window skips are zeros of its weights, and what it moves over too
    many results.
    """
    groups, (rows, count, *kernel) = o.groups, w.shape
    spread = np.zeros(
        (rows, count, *((k - 1) * d + 1 for k, d in zip(kernel, o.dilation, strict=True))), w.dtype
    )
    spread[:, :, :: o.dilation[0], :: o.dilation[1]] = w
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in o.padding)])
    sizes = [n - k + 1 for n, k in zip(x.shape[2:], spread.shape[2:], strict=True)]
    x = x.reshape(len(x), groups, count, *x.shape[2:])
    w = spread.reshape(groups, rows // groups, *spread.shape[1:])
    if signless:
        x, w = _without_sign(x, w, 2)
    window = [max(n, WINDOW) for n in w.shape[3:]]
    image = [
        max(n, least) + k - 1 for n, least, k in zip(sizes, (HEIGHT, COLUMNS), window, strict=True)
    ]
    terms, each = _multiple(x.shape[2]), max(w.shape[1], ROWS)
    x, w = _padded(x, (*x.shape[:2], terms, *image)), _padded(w, (groups, each, terms, *window))
    arrays = [x.reshape(len(x), groups * terms, *image), w.reshape(groups * each, terms, *window)]
    if b is not None:
        arrays.append(_padded(b.reshape(groups, -1), (groups, each)).reshape(-1))
    channels = [g * each + n for g in range(groups) for n in range(rows // groups)]
    return arrays, [
        range(len(x)),
        channels,
        *(range(0, n, s) for n, s in zip(sizes, o.stride, strict=True)),
    ]


def _without_sign(x: np.ndarray, w: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Twice the terms, of which one factor is never negative."""
    return np.concatenate([np.maximum(x, 0), np.maximum(-x, 0)], axis), np.concatenate(
        [w, -w], axis
    )


def _multiple(terms: int) -> int:
    return -(-terms // TERMS) * TERMS


def _padded(array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    return np.pad(array, [(0, n - m) for n, m in zip(shape, array.shape, strict=True)])
