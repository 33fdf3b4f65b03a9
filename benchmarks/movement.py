"""Data movement: transposes, changes of layout, concatenation, slices, gathers, repetition and
pooling. Outputs are given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from contenders import Found, numba_loop, on_jax, on_torch, program
from onnx_models import largest_of_windows, on_onnxruntime
from side_by_side import Case, installed

import cvm

random = np.random.default_rng(0)


def numbers(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return random.integers(0, 100, shape).astype(dtype)


def transposed(shape: tuple[int, ...], dtype: Any, order: tuple[int, ...]) -> Case:
    x = numbers(shape, dtype)
    out = np.empty(tuple(shape[a] for a in order), x.dtype)
    f = program(f"%y = theano.dimshuffle %x0 {{new_order = {list(order)}}}", x)
    found: Found = {
        "cvm": lambda: f(x, out=out),
        "numpy": lambda: np.copyto(out, x.transpose(order)),
    }
    if len(shape) == 2:
        numba_loop(found, _transpose_2d, x, out)
        if cv2 := installed("cv2"):
            found["opencv"] = lambda: cv2.transpose(x, out)
    elif order == (0, 2, 3, 1):
        numba_loop(found, _to_channels_last, x, out)
    on_torch(found, lambda torch, x, out: out.copy_(x.permute(order)), x, out)
    on_jax(found, lambda jax, x: jax.numpy.transpose(x, order), x)
    return Case(found, x.nbytes + out.nbytes, out)


def _transpose_2d(x: Any, out: Any) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = x[j, i]


def _to_channels_last(x: Any, out: Any) -> None:
    for n in range(x.shape[0]):
        for h in range(x.shape[2]):
            for w in range(x.shape[3]):
                for c in range(x.shape[1]):
                    out[n, h, w, c] = x[n, c, h, w]


def moved(
    shape: tuple[int, ...],
    body: str,
    plain: Callable[[Any, Any], Any],
    torch_way: Callable[[Any, Any, Any], Any] | None,
    loop: Callable[..., None] | None,
    jax_way: Callable[[Any, Any], Any] | None = None,
    more: tuple[np.ndarray, ...] = (),
    peer: Callable[[Found, np.ndarray], None] | None = None,
) -> Case:
    """One integer operator: `plain` is NumPy's way, with the operand and the output."""
    x = numbers(shape, np.int32)
    f = program(body, x, *more)
    out = np.empty_like(f(x, *more))
    found: Found = {"cvm": lambda: f(x, *more, out=out), "numpy": lambda: plain(x, out)}
    if loop is not None:
        numba_loop(found, loop, x, *more, out)
    if torch_way is not None:
        on_torch(found, torch_way, x, out)
    if jax_way is not None:
        on_jax(found, jax_way, x)
    if peer is not None:
        peer(found, x)
    read = (
        out.nbytes if "take" in body else x.nbytes
    )  # a slice has an element in every line of memory
    return Case(found, read + sum(a.nbytes for a in more) + out.nbytes, out)


def concatenated() -> Case:
    def loop(x: Any, out: Any) -> None:
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                out[i, j] = x[i, j]
            for j in range(x.shape[1]):
                out[i, x.shape[1] + j] = x[i, j]

    return moved(
        (4096, 2048),
        "%y = cvm.concatenate %x0, %x0 {axis = 1}",
        lambda x, out: np.concatenate([x, x], axis=1, out=out),
        lambda torch, x, out: torch.cat([x, x], dim=1, out=out),
        loop,
        lambda jax, x: jax.numpy.concatenate([x, x], axis=1),
    )


def sliced(step: int) -> Case:
    def loop(x: Any, out: Any) -> None:
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] = x[i, j * step]

    return moved(
        (4096, 4096),
        f"%y = cvm.slice %x0 {{begin = [0, 0], end = [4096, 4096], strides = [1, {step}]}}",
        lambda x, out: np.copyto(out, x[:, ::step]),
        lambda torch, x, out: out.copy_(x[:, ::step]),
        loop,
        lambda jax, x: x[:, ::step],
    )


def reversed_rows() -> Case:
    def loop(x: Any, out: Any) -> None:
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] = x[i, x.shape[1] - 1 - j]

    return moved(
        (4096, 4096),
        "%y = cvm.slice %x0 {begin = [0, 4095], end = [4096, -4097], strides = [1, -1]}",
        lambda x, out: np.copyto(out, x[:, ::-1]),
        lambda torch, x, out: out.copy_(torch.flip(x, [1])),
        loop,
        lambda jax, x: x[:, ::-1],
    )


def taken(n: int, rows: int = 0) -> Case:
    """`n` elements of 4M by index, or rows of 64."""
    where = random.integers(0, rows or 1 << 22, n).astype(np.int32)
    wide = where.astype(np.int64)

    def loop(x: Any, where: Any, out: Any) -> None:
        for i in range(where.size):
            out[i] = x[where[i]]

    axis = " {axis = 0}" if rows else ""
    return moved(
        (rows, 64) if rows else (1 << 22,),
        f"%y = cvm.take %x0, %x1{axis}",
        lambda x, out: np.take(x, wide, axis=0, out=out, mode="clip"),
        lambda torch, x, out: torch.index_select(x, 0, torch.from_numpy(wide), out=out),
        loop,
        lambda jax, x: jax.numpy.take(x, where, axis=0, mode="clip"),
        (where,),
    )


def tiled() -> Case:
    def loop(x: Any, out: Any) -> None:
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] = x[i % 512, j % 512]

    return moved(
        (512, 512),
        "%y = cvm.tile %x0 {reps = [4, 4]}",
        lambda x, out: np.copyto(out, np.tile(x, (4, 4))),
        lambda torch, x, out: out.copy_(x.repeat(4, 4)),
        loop,
        lambda jax, x: jax.numpy.tile(x, (4, 4)),
    )


def repeated(axis: int) -> Case:
    def loop(x: Any, out: Any) -> None:
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                for k in range(4):
                    if axis:
                        out[i, j * 4 + k] = x[i, j]
                    else:
                        out[i * 4 + k, j] = x[i, j]

    return moved(
        (1024, 1024),
        f"%y = cvm.repeat %x0 {{repeats = 4, axis = {axis}}}",
        lambda x, out: np.copyto(out, np.repeat(x, 4, axis=axis)),
        lambda torch, x, out: out.copy_(x.repeat_interleave(4, axis)),
        loop,
        lambda jax, x: jax.numpy.repeat(x, 4, axis=axis),
    )


def upsampled() -> Case:
    def loop(x: Any, out: Any) -> None:
        for n in range(x.shape[0]):
            for c in range(x.shape[1]):
                for h in range(out.shape[2]):
                    for w in range(out.shape[3]):
                        out[n, c, h, w] = x[n, c, h // 2, w // 2]

    return moved(
        (8, 64, 56, 56),
        "%y = cvm.upsampling %x0 {scale = 2}",
        lambda x, out: np.copyto(out, x.repeat(2, 2).repeat(2, 3)),
        lambda torch, x, out: torch.nn.functional.interpolate(
            x.view(torch.float32), scale_factor=2
        ).view(torch.int32),
        loop,
        lambda jax, x: jax.numpy.repeat(jax.numpy.repeat(x, 2, 2), 2, 3),
    )


def padded() -> Case:
    x = numbers((4094, 4094), np.float32)
    out = np.empty((4096, 4096), np.float32)
    f = cvm.compile(
        "func @main(%x: !cog.field<[4094, 4094], f32>) {\n"
        "%y = cog.expand %x {shape = [4096, 4096]}\nreturn %y\n}"
    )
    found: Found = {
        "cvm": lambda: f(x, out=out),
        "numpy": lambda: np.copyto(out, np.pad(x, (0, 2))),
    }

    def loop(x: Any, out: Any) -> None:
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] = x[i, j] if i < x.shape[0] and j < x.shape[1] else 0

    numba_loop(found, loop, x, out)
    on_torch(
        found, lambda torch, x, out: out.copy_(torch.nn.functional.pad(x, (0, 2, 0, 2))), x, out
    )
    on_jax(found, lambda jax, x: jax.numpy.pad(x, (0, 2)), x)
    return Case(found, x.nbytes + out.nbytes, out)


def pooled(shape: tuple[int, ...], size: int, stride: int, padding: int) -> Case:
    def plain(x: Any, out: Any) -> None:
        wide = np.pad(
            x, ((0, 0), (0, 0), (padding, padding), (padding, padding)), constant_values=-(2**31)
        )
        windows = np.lib.stride_tricks.sliding_window_view(wide, (size, size), (2, 3))[
            :, :, ::stride, ::stride
        ]
        windows.max((-1, -2), out=out)

    def loop(x: Any, out: Any) -> None:
        for n in range(x.shape[0]):
            for c in range(x.shape[1]):
                for h in range(out.shape[2]):
                    for w in range(out.shape[3]):
                        best = np.int32(-(2**31))
                        for p in range(
                            max(0, h * stride - padding),
                            min(x.shape[2], h * stride - padding + size),
                        ):
                            for q in range(
                                max(0, w * stride - padding),
                                min(x.shape[3], w * stride - padding + size),
                            ):
                                best = max(best, x[n, c, p, q])
                        out[n, c, h, w] = best

    floats: list[Any] = []  # of integers torch pools far slower

    def by_torch(torch: Any, x: Any, out: Any) -> Any:
        if not floats:
            floats.append(x.float())
        return torch.nn.functional.max_pool2d(floats[0], size, stride, padding)

    at = (
        f"{{pool_size = [{size}, {size}], strides = [{stride}, {stride}], padding = "
        f"[{padding}, {padding}]}}"
    )

    def by_onnxruntime(found: Found, x: np.ndarray) -> None:
        on_onnxruntime(
            found, largest_of_windows(shape, size, stride, padding), x.astype(np.float32)
        )

    return moved(shape, f"%y = cvm.max_pool2d %x0 {at}", plain, by_torch, loop, peer=by_onnxruntime)


def global_sum() -> Case:
    return moved(
        (32, 256, 56, 56),
        "%y = cvm.sum %x0 {axes = [2, 3]}",
        lambda x, out: np.sum(x, (2, 3), out=out, dtype=np.int32),
        lambda torch, x, out: torch.sum(x, (2, 3), dtype=torch.int32, out=out),
        None,
        lambda jax, x: jax.numpy.sum(x, (2, 3)),
    )


WORK: dict[str, Callable[[], Case]] = {
    "transpose 4096x4096 f32": lambda: transposed((4096, 4096), np.float32, (1, 0)),
    "transpose 1000x1003 f32": lambda: transposed((1000, 1003), np.float32, (1, 0)),
    "transpose 4096x4096 u8": lambda: transposed((4096, 4096), np.uint8, (1, 0)),
    "transpose 4096x4096 i16": lambda: transposed((4096, 4096), np.int16, (1, 0)),
    "transpose 2048x2048 f64": lambda: transposed((2048, 2048), np.float64, (1, 0)),
    "NCHW to NHWC 16x64x112x112 f32": lambda: transposed(
        (16, 64, 112, 112), np.float32, (0, 2, 3, 1)
    ),
    "NHWC to NCHW 16x112x112x64 f32": lambda: transposed(
        (16, 112, 112, 64), np.float32, (0, 3, 1, 2)
    ),
    "NCHW to NHWC 32x3x480x640 u8": lambda: transposed((32, 3, 480, 640), np.uint8, (0, 2, 3, 1)),
    "NHWC to NCHW 32x480x640x3 u8": lambda: transposed((32, 480, 640, 3), np.uint8, (0, 3, 1, 2)),
    "concatenate 2 of 4096x2048 i32": concatenated,
    "slice of every second column 4096x4096 i32": lambda: sliced(2),
    "slice of every third column 4096x4096 i32": lambda: sliced(3),
    "reverse 4096x4096 i32": reversed_rows,
    "take 1M of 4M i32": lambda: taken(1 << 20),
    "take 16K rows of 64 i32": lambda: taken(1 << 14, 1 << 16),
    "tile 512x512 i32 4x4": tiled,
    "repeat 1024x1024 i32 by 4, axis 0": lambda: repeated(0),
    "repeat 1024x1024 i32 by 4, axis 1": lambda: repeated(1),
    "pad 4094x4094 to 4096x4096 f32": padded,
    "upsampling 8x64x56x56 i32 by 2": upsampled,
    "max_pool 3x3 s2 p1 8x64x112x112 i32": lambda: pooled((8, 64, 112, 112), 3, 2, 1),
    "max_pool 2x2 s2 8x64x112x112 i32": lambda: pooled((8, 64, 112, 112), 2, 2, 0),
    "max_pool 3x3 s1 p1 8x64x56x56 i32": lambda: pooled((8, 64, 56, 56), 3, 1, 1),
    "global sum 32x256x56x56 i32": global_sum,
}
