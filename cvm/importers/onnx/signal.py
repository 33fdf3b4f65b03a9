"""ONNX's Fourier transforms, as products with matrices of cosines and sines."""

from __future__ import annotations

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.importers.graph.contractions import contract
from cvm.importers.graph.movement import at_step, stacked
from cvm.importers.graph.rules import MAX_CONSTANT, Array, Known, Unsupported, real_axes, static

from .importer import At
from .rules import rule

LETTERS = "abcdefghijklmnopqrstuvw"


def transformed(at: At, x: Node, axis: int, length: int, inverse: bool, onesided: bool) -> Node:
    """The transform along an axis, real and imaginary parts along the last one."""
    n, parts = static(x, "a transform", (axis, x.rank - 1))
    if parts not in (1, 2) or length < 1:
        raise ValueError(f"{parts} parts of numbers, {length} of them")
    half = length // 2 + 1
    input_length, count = (
        (half, length) if inverse and onesided else (length, half if onesided else length)
    )
    if n != input_length:
        more = tuple(input_length - n if j == axis else 0 for j in range(x.rank))
        x = at.apply("builtin.pad", x, before=(0,) * x.rank, after=more)
    if length * count > MAX_CONSTANT:
        raise Unsupported(f"a transform of {length} numbers")
    turns = (
        np.outer(np.arange(input_length), np.arange(count))
        % length
        / length
        * (2 if inverse else -2)
        * np.pi
    )
    scale = np.full((input_length, 1), 1 / length if inverse else 1.0)
    if inverse and onesided:  # the other half is conjugate to this one, but for what has no partner
        scale[1 : (length + 1) // 2] *= 2
    cosine, sine = ((f(turns) * scale).astype(x.element.dtype) for f in (np.cos, np.sin))
    by = LETTERS[: x.rank - 1]
    to = by.replace(by[axis], "z")

    def times(part: Node, matrix: np.ndarray) -> Node:
        return contract(part, at.node(matrix), by, f"{by[axis]}z", to)

    real = at_step(at, x, x.rank - 1, 0)
    spectrum = [times(real, cosine), times(real, sine)]
    if inverse and onesided:
        if parts != 2:
            raise ValueError("the inverse of a one-sided transform is of complex numbers")
        return stacked(at, [spectrum[0] - times(at_step(at, x, x.rank - 1, 1), sine)], x.rank - 1)
    if parts == 2:
        imaginary = at_step(at, x, x.rank - 1, 1)
        spectrum = [spectrum[0] - times(imaginary, sine), spectrum[1] + times(imaginary, cosine)]
    return stacked(at, spectrum, x.rank - 1)


@rule("DFT")
def dft(at: At, x: Node, length: Array | None = None, axis: Array | None = None) -> Known:
    (along,) = real_axes(
        (axis.item() if axis is not None else -2 if at["axis"] is None else at["axis"],), x.rank
    )
    if along == x.rank - 1:
        raise ValueError("the axis holds the parts of numbers")
    inverse, onesided = bool(at["inverse"]), bool(at["onesided"])
    (n,) = static(x, "a transform", (along,))
    n = n if not (inverse and onesided) else 2 * (n - 1)
    n = n if length is None else int(length.reshape(()))
    return transformed(at, x, along, n, inverse, onesided)


@rule("STFT")
def stft(
    at: At, x: Node, step: Array, window: Node | None = None, length: Array | None = None
) -> Known:
    if window is None and length is None:
        raise ValueError("it has neither a window nor a length of frames")
    size = static(window, "a window", (0,))[0] if window is not None else 0
    n = int(length.reshape(())) if length is not None else size
    attributes = {
        "axes": (1,),
        "strides": (int(step.reshape(())),),
        "dilations": (1,),
        "before": (0,),
        "after": (0,),
    }
    x = x if x.rank == 3 else x.with_ones((2,))
    frames = at.apply("builtin.windows", x, sizes=(n,), **attributes).dimshuffle((0, 1, 3, 2))
    if window is not None:
        if size != n:
            raise Unsupported(f"a window of {size} for frames of {n}")
        frames = frames * window.dimshuffle(["x", "x", 0, "x"])
    return transformed(at, frames, 2, n, False, bool(at["onesided"]))
