"""The epilogue of integer networks by itself - a sum of two i32 arrays, a rounding shift, a clip -
and chains of small integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from contenders import Found, numba_loop, on_halide, on_jax, on_torch, program
from side_by_side import Case

BODY = "%s = cvm.elemwise_add %x0, %x1\n%y = cvm.cvm_right_shift %s {precision = 8, shift_bit = 4}"


def shifted(n: int) -> Case:
    random = np.random.default_rng(0)
    a, b = (random.integers(-2000, 2000, n).astype(np.int32) for _ in range(2))
    out = np.empty_like(a)
    f = program(BODY, a, b)
    case = Case({"cvm": lambda: f(a, b, out=out)}, 3 * a.nbytes, out, (2, 1))
    found = case.contenders

    def plain() -> None:
        np.add(a, b, out=out)
        np.right_shift(out, 3, out=out)
        np.add(out, 1, out=out)
        np.right_shift(out, 1, out=out)
        np.clip(out, -127, 127, out=out)

    def loop(a: Any, b: Any, out: Any) -> None:
        for i in range(a.size):
            s = (np.int32(np.int32(a[i] + b[i]) >> np.int32(3)) + np.int32(1)) >> np.int32(1)
            out[i] = min(max(np.int32(s), np.int32(-127)), np.int32(127))

    def by_torch(torch: Any, a: Any, b: Any, out: Any) -> None:
        torch.add(a, b, out=out).bitwise_right_shift_(3).add_(1).bitwise_right_shift_(1).clamp_(
            -127, 127
        )

    found["numpy"] = plain
    numba_loop(found, loop, a, b, out)
    on_torch(found, by_torch, a, b, out)
    on_jax(found, lambda jax, a, b: jax.numpy.clip((((a + b) >> 3) + 1) >> 1, -127, 127), a, b)
    on_halide(
        found, lambda hl, i, a, b: hl.clamp((((a[i] + b[i]) >> 3) + 1) >> 1, -127, 127), [a, b], out
    )
    return case


def bytes_chain(dtype: Any, n: int) -> Case:
    """max(min(x + y, 100), x ^ y) of small integers, which wrap."""
    x, y = (np.random.default_rng(k).integers(0, 100, n).astype(dtype) for k in range(2))
    out = np.empty_like(x)
    wrapped = x.dtype.type
    top = wrapped(100)
    element = {np.uint8: "ui8", np.int8: "i8", np.int16: "i16"}[dtype]
    f = program(
        f"%s = dali.add %x0, %x1\n%m = dali.min %s, 100 : {element}\n"
        "%z = dali.xor %x0, %x1\n%y = dali.max %m, %z",
        x,
        y,
    )

    def loop(x: Any, y: Any, out: Any) -> None:
        for i in range(x.size):
            out[i] = max(min(wrapped(x[i] + y[i]), top), wrapped(x[i] ^ y[i]))

    def plain() -> None:
        np.add(x, y, out=out)
        np.minimum(out, top, out=out)
        np.maximum(out, x ^ y, out=out)

    found: Found = {"cvm": lambda: f(x, y, out=out), "numpy": plain}
    numba_loop(found, loop, x, y, out)
    on_torch(
        found,
        lambda torch, x, y, out: torch.maximum((x + y).clamp_(max=100), x ^ y, out=out),
        x,
        y,
        out,
    )
    on_jax(found, lambda jax, x, y: jax.numpy.maximum(jax.numpy.minimum(x + y, 100), x ^ y), x, y)
    return Case(found, 3 * x.nbytes, out, (2, 1))


WORK = {
    **{
        f"{title} elements": lambda n=n: shifted(n)
        for title, n in (("16M", 1 << 24), ("800K", 800_000), ("50K", 50_000), ("1000", 1000))
    },
    "chain of bytes, 16M ui8": lambda: bytes_chain(np.uint8, 1 << 24),
    "chain of bytes, 800K i8": lambda: bytes_chain(np.int8, 800_000),
}
