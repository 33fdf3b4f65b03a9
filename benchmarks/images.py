"""u8 images times a gain for each channel, clamped, as f32: promotion, broadcasting and conversion
in one pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from contenders import Found, numba_loop, on_jax, on_torch, realize
from side_by_side import Case, installed

import cvm

F32 = np.float32


def image(n: int) -> Case:
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (n, 480, 640, 3)).astype(np.uint8)
    gain = np.array([1.25, 0.75, 0.75], F32)
    out = np.empty(x.shape, F32)
    f = cvm.compile(lambda x, gain: cvm.clamp(x * gain, 128, 255))
    case = Case({"cvm": lambda: f(x, gain, out=out)}, x.nbytes + out.nbytes, out, (1, 4))
    found = case.contenders

    def plain() -> None:
        np.multiply(x, gain, out=out)
        np.clip(out, 128, 255, out=out)

    def by_hand(x: Any, gain: Any, out: Any) -> None:
        g0, g1, g2 = gain
        low, high = F32(128), F32(255)
        for i in range(x.shape[0]):
            out[i, 0] = min(max(x[i, 0] * g0, low), high)
            out[i, 1] = min(max(x[i, 1] * g1, low), high)
            out[i, 2] = min(max(x[i, 2] * g2, low), high)

    found["numpy"] = plain
    numba_loop(
        found, by_hand, x.reshape(-1, 3), gain, out.reshape(-1, 3)
    )  # numba likes the channels written out
    on_torch(
        found,
        lambda torch, x, g, out: torch.clamp(torch.mul(x, g, out=out), 128, 255, out=out),
        x,
        gain,
        out,
    )
    on_jax(found, lambda jax, x, g: jax.numpy.clip(x * g, F32(128), F32(255)), x, gain)
    on_halide(found, x.reshape(-1, 3), gain, out.reshape(-1, 3))
    return case


def on_halide(found: Found, x: np.ndarray, gain: np.ndarray, out: np.ndarray) -> None:
    if hl := installed("halide"):
        c, i, f = hl.Var("c"), hl.Var("i"), hl.Func("f")
        given, factor = hl.Buffer(x), hl.Buffer(gain)
        f[c, i] = hl.clamp(
            hl.cast(hl.Float(32), given[c, i]) * factor[c], hl.f32(128.0), hl.f32(255.0)
        )
        f.output_buffer().dim(0).set_bounds(0, 3).set_stride(1)
        f.output_buffer().dim(1).set_stride(3)
        f.reorder(c, i).bound(c, 0, 3).unroll(c).vectorize(i, 8)
        realize(found, f, out)


WORK = {"32x480x640x3": lambda: image(32), "1x480x640x3": lambda: image(1)}
