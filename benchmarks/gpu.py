"""Programs on a GPU, timed by the device's own clock, beside a copy of as many bytes in the same run, and torch if it is there.

    python benchmarks/gpu.py [--megabytes 256] [--rounds 20] [NAME ...]

Arrays lie on the device before and after. Every result is compared with the same program's on a CPU, bit for bit, for a
smaller size first. Prints a table in Markdown, headed by the device's name and the date.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import cvm


@dataclass(frozen=True)
class Work:
    """A program for arrays of about n elements, and the same in torch."""

    program: Callable[[int], str]
    torch: Callable[..., Any] | None = None
    operations: Callable[[int], int] | None = None  # where what counts is arithmetic


def function(signature: str, *lines: str, result: str) -> str:
    return "\n  ".join([f"func @main({signature}) {{", *lines, f"return {result}"]) + "\n}\n"


def side(n: int) -> int:
    """Of a square of about n elements, in whole tiles."""
    return max(int(n**0.5) // 64 * 64, 64)


def chain(n: int) -> str:
    lines = ["%a = dali.mul %x, %y", "%b = dali.add %a, %x", "%c = dali.exp %b", "%d = dali.clamp %c, 0.0, 1000.0"]
    return function(f"%x: tensor<{n}xf32>, %y: tensor<{n}xf32>", *lines, result="%d")


def image(n: int) -> str:
    lines = ("%a = dali.mul %x, %g", "%y = dali.clamp %a, 128, 255")
    return function(f"%x: tensor<{n // 3}x3xui8>, %g: tensor<3xf32>", *lines, result="%y")


def square(n: int, element: str, line: str) -> str:
    return function(f"%x: tensor<{side(n)}x{side(n)}x{element}>", line, result="%y")


def dense(n: int) -> str:
    m = min(side(n), 4096)
    given = f"%x: tensor<{m}x{m}xi32> {{range = [-127, 127]}}, %w: tensor<{m}x{m}xi32> {{range = [-127, 127]}}"
    return function(given, "%y = cvm.dense %x, %w", result="%y")


def conv(n: int) -> str:
    given = "%x: tensor<16x64x56x56xi32> {range = [-127, 127]}, %w: tensor<64x64x3x3xi32> {range = [-127, 127]}"
    return function(given, "%y = cvm.conv2d %x, %w {padding = [1, 1]}", result="%y")


WORK = {
    "a*b+a, exp, clamp f32": Work(chain, lambda x, y: (x * y + x).exp().clamp(0, 1000)),
    "image u8 * f32[3], clamp": Work(image, lambda x, g: (x * g).clamp(128, 255)),
    "transpose f32": Work(
        lambda n: square(n, "f32", "%y = theano.dimshuffle %x {new_order = [1, 0]}"), lambda x: x.T.contiguous()
    ),
    "sum f32 axis 1": Work(lambda n: square(n, "f32", "%y = theano.sum %x {axis = [1]}"), lambda x: x.sum(1)),
    "sum f32 axis 0": Work(lambda n: square(n, "f32", "%y = theano.sum %x {axis = [0]}"), lambda x: x.sum(0)),
    "sum f32": Work(lambda n: square(n, "f32", "%y = theano.sum %x"), lambda x: x.sum()),
    "max i32 axis 1": Work(lambda n: square(n, "i32", "%y = theano.max %x {axis = [1]}"), lambda x: x.amax(1)),
    "dense i32 in [-127, 127]": Work(dense, None, lambda n: 2 * min(side(n), 4096) ** 3),
    "conv2d 16x64@56 3x3": Work(conv, None, lambda n: 2 * 16 * 64 * 64 * 9 * 56 * 56),
}


def arguments(f: Any) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    found = []
    for a in f.function.arguments:
        shape, dtype = a.known_type.array_shape, a.known_type.element.dtype
        if dtype.kind == "f":
            found.append(random.normal(size=shape).astype(dtype))
        else:
            found.append(random.integers(0 if dtype.kind == "u" else -127, 128, shape).astype(dtype))
    return found


def check(work: Work) -> str:
    """Whether the device gives the bits of the CPU, for a small size."""
    text = work.program(1 << 16)
    given = arguments(cvm.compile(text, target="reference"))
    found, wanted = (cvm.compile(text, target=t)(*given) for t in ("cuda", "cpu"))
    return "same bits" if np.array_equal(found, wanted, equal_nan=found.dtype.kind == "f") else "DIFFERENT"


def timed(device: Any, run: Callable[[], Any], rounds: int) -> float:
    """The median milliseconds on the device."""
    run()
    times = []
    for _ in range(rounds):
        timer = device.timer()
        run()
        times.append(timer.milliseconds())
    return statistics.median(times)


def measure(name: str, work: Work, n: int, rounds: int, torch: Any) -> str:
    from pycuda.gpuarray import to_gpu

    f = cvm.compile(work.program(n), target="cuda")
    device = f.device  # type: ignore[union-attr]
    host = arguments(f)
    with device.active():
        given = [to_gpu(a) for a in host]
        out = f(*given)
        mine = timed(device, lambda: f(*given, out=out), rounds)
        began = time.perf_counter()
        for _ in range(100):
            f(*given, out=out)
        calls = (time.perf_counter() - began) * 10  # milliseconds each, the device keeping up or not
        moved = sum(a.nbytes for a in host) + out.nbytes
        a, b = device.allocate(moved // 2), device.allocate(moved // 2)
        copy = timed(device, lambda: device.copy(int(a), int(b), moved // 2), rounds)
    rate = f"{moved / mine / 1e6:.0f} GB/s"
    if work.operations is not None:
        rate = f"{work.operations(n) / mine / 1e9:.1f} T/s"
    peer = ""
    if torch is not None and work.torch is not None:
        tensors = [torch.from_numpy(a).cuda() for a in host]
        with device.active():
            theirs = timed(device, lambda: work.torch(*tensors), rounds)  # type: ignore[misc]
        peer = f"{theirs:.3f}"
    return f"| {name} | {check(work)} | {mine:.3f} | {rate} | {copy / mine:.2f} | {peer} | {calls * 1e3:.0f} µs |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--megabytes", type=int, default=256, help="of the largest argument")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    from cvm.jit.device import device, missing

    if lacking := missing():
        print(f"nothing to measure: {lacking}", file=sys.stderr)
        return 1
    torch = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
    chosen = {n: w for n, w in WORK.items() if not options.names or any(o in n for o in options.names)}
    print(f"{device().name}, {datetime.date.today()}, {options.megabytes} MB\n", flush=True)
    print("| work | against the CPU | ms | rate | copy / cvm | torch, ms | a call |\n|---|---|---|---|---|---|---|")
    for name, work in chosen.items():
        print(measure(name, work, options.megabytes << 18, options.rounds, torch), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
