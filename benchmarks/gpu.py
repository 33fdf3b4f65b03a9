"""Programs on a GPU, timed by the device's own clock, beside a copy of as many bytes in the same
run, and torch if it is there.

    python benchmarks/gpu.py [--megabytes 256] [--rounds 20] [NAME ...]

Arrays lie on the device before and after. Every result is compared with the same program's on a
CPU, bit for bit, for a smaller size first, and its time with what a model of an H100, or H200,
gives from the emulator's counts: of another GPU the column says nothing. Prints tables in Markdown,
headed by the device's name and the date; what fails is said in its row. Where cvm is not installed,
PYTHONPATH names its folder. NVRTC is that of NVIDIA's wheel, else of the toolkit.
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
from pathlib import Path
from typing import Any

import numpy as np

import cvm
from cvm.commands.cost_on_gpu import predictions

EXAMPLES = Path(__file__).parent.parent / "examples"
SIDE, TICKS = 4096, 64  # of the simulated field
IMAGES = 10_000  # of digits
CHECKED = 1 << 16  # elements of what is compared with a CPU
CALLS = 200  # whose time is taken together
Peers = Callable[
    ..., dict[str, Callable[[], Any]]
]  # of torch and the arguments: what to time, by name


@dataclass(frozen=True)
class Work:
    """A program for arrays of about n elements, and the same in torch."""

    program: Callable[[int], str]
    peers: Peers | None = None
    operations: Callable[[int], int] | None = None  # where what counts is arithmetic


def eager(function: Callable[..., Any]) -> Peers:
    """Torch's own operations, one after the other, and compiled."""

    def peers(torch: Any, *given: Any) -> dict[str, Callable[[], Any]]:
        compiled = torch.compile(function)
        return {"torch": lambda: function(*given), "torch.compile": lambda: compiled(*given)}

    return peers


def function(signature: str, *lines: str, result: str) -> str:
    return "\n  ".join([f"func @main({signature}) {{", *lines, f"return {result}"]) + "\n}\n"


def side(n: int) -> int:
    """The side of a square of about n elements, in whole tiles."""
    return max(int(n**0.5) // 64 * 64, 64)


def chain(n: int) -> str:
    lines = [
        "%a = dali.mul %x, %y",
        "%b = dali.add %a, %x",
        "%c = dali.exp %b",
        "%d = dali.clamp %c, 0.0, 1000.0",
    ]
    return function(f"%x: tensor<{n}xf32>, %y: tensor<{n}xf32>", *lines, result="%d")


def image(n: int) -> str:
    lines = ("%a = dali.mul %x, %g", "%y = dali.clamp %a, 128, 255")
    return function(f"%x: tensor<{n // 3}x3xui8>, %g: tensor<3xf32>", *lines, result="%y")


def square(n: int, element: str, line: str) -> str:
    return function(f"%x: tensor<{side(n)}x{side(n)}x{element}>", line, result="%y")


def dense(n: int) -> str:
    m = min(side(n), 4096)
    given = (
        f"%x: tensor<{m}x{m}xi32> {{range = [-127, 127]}}, %w: tensor<{m}x{m}xi32> {{range = "
        f"[-127, 127]}}"
    )
    return function(given, "%y = cvm.dense %x, %w", result="%y")


def images_of(n: int) -> int:
    return min(max(n // (64 * 56 * 56), 1), 16)


def conv(n: int) -> str:
    images = images_of(n)
    given = (
        f"%x: tensor<{images}x64x56x56xi32> {{range = [-127, 127]}}, %w: tensor<64x64x3x3xi32> "
        f"{{range = [-127, 127]}}"
    )
    return function(given, "%y = cvm.conv2d %x, %w {padding = [1, 1]}", result="%y")


def words(n: int) -> str:
    """The dense layer of arrays of bytes."""
    m = min(side(n), 4096)
    lines = [
        f"%{r} = theano.dimshuffle %{x} {{new_order = {o}}}"
        for r, x, o in zip("ab", "xw", ORDER, strict=True)
    ]
    lines += [f'%{r}.wide = theano.elemwise %{r} {{scalar_op = "cast", dtype = i32}}' for r in "ab"]
    lines += ['%c = theano.elemwise %a.wide, %b.wide {scalar_op = "mul"}']
    lines += ['%y = theano.careduce %c {scalar_op = "add", axis = [2]}']
    return function(f"%x: tensor<{m}x{m}xi8>, %w: tensor<{m}x{m}xi8>", *lines, result="%y")


def floats(n: int) -> str:
    m = min(side(n), 4096)
    lines = [
        f"%{r} = theano.dimshuffle %{x} {{new_order = {o}}}"
        for r, x, o in zip("ab", "xw", ORDER, strict=True)
    ]
    lines += ['%c = theano.elemwise %a, %b {scalar_op = "mul"}']
    lines += ['%y = theano.careduce %c {scalar_op = "add", axis = [2]}']
    return function(f"%x: tensor<{m}x{m}xf32>, %w: tensor<{m}x{m}xf32>", *lines, result="%y")


def attention(n: int) -> str:
    """Queries, keys and values of heads of 256 tokens of 64 numbers."""
    given = ", ".join(f"%{x}: tensor<{heads(n)}x256x64xf32>" for x in "qkv")
    lines = [
        "%kt = cvm.transpose %k {axes = [0, 2, 1]}",
        *batched("s", "q", "kt"),
        "%t = dali.mul %s, 0.125",
    ]
    lines += [
        "%m = theano.max %t {axis = [2]}",
        "%mc = cvm.expand_dims %m {axis = 2}",
        "%d = dali.sub %t, %mc",
    ]
    lines += [
        "%e = dali.exp %d",
        "%z = theano.sum %e {axis = [2]}",
        "%zc = cvm.expand_dims %z {axis = 2}",
    ]
    return function(given, *lines, "%p = dali.div %e, %zc", *batched("y", "p", "v"), result="%y")


def batched(result: str, a: str, b: str) -> list[str]:
    """The lines of products of matrices."""
    order = '{new_order = [0, 1, 2, "x"]}', '{new_order = [0, "x", 1, 2]}'
    lines = [
        f"%{x}.{result} = theano.dimshuffle %{x} {o}" for x, o in zip((a, b), order, strict=True)
    ]
    lines.append(
        f'%{result}.terms = theano.elemwise %{a}.{result}, %{b}.{result} {{scalar_op = "mul"}}'
    )
    return [
        *lines,
        f"%{result} = theano.sum %{result}.terms {{axis = [2], dtype = f32, acc_dtype = f32}}",
    ]


def heads(n: int) -> int:
    return min(max(n // (256 * 64), 17), 96)


ORDER = '[0, "x", 1]', '["x", 0, 1]'


def products(torch: Any, x: Any, w: Any) -> dict[str, Callable[[], Any]]:
    x8, w8, x16, w16 = (a.to(t) for t in (torch.int8, torch.bfloat16) for a in (x, w))
    return {"torch int8": lambda: torch._int_mm(x8, w8.T), "torch bf16": lambda: x16 @ w16.T}


def convolutions(torch: Any, x: Any, w: Any) -> dict[str, Callable[[], Any]]:
    x16, w16 = (a.to(torch.bfloat16).to(memory_format=torch.channels_last) for a in (x, w))
    return {"torch bf16": lambda: torch.nn.functional.conv2d(x16, w16, padding=1)}


def multiplied(n: int) -> int:
    return 2 * min(side(n), 4096) ** 3


WORK = {
    "a*b+a, exp, clamp f32": Work(chain, eager(lambda x, y: (x * y + x).exp().clamp(0, 1000))),
    "image u8 * f32[3], clamp": Work(image, eager(lambda x, g: (x * g).clamp(128, 255))),
    "transpose f32": Work(
        lambda n: square(n, "f32", "%y = theano.dimshuffle %x {new_order = [1, 0]}"),
        eager(lambda x: x.T.contiguous()),
    ),
    "sum f32 axis 1": Work(
        lambda n: square(n, "f32", "%y = theano.sum %x {axis = [1]}"), eager(lambda x: x.sum(1))
    ),
    "sum f32 axis 0": Work(
        lambda n: square(n, "f32", "%y = theano.sum %x {axis = [0]}"), eager(lambda x: x.sum(0))
    ),
    "sum f32": Work(lambda n: square(n, "f32", "%y = theano.sum %x"), eager(lambda x: x.sum())),
    "max i32 axis 1": Work(
        lambda n: square(n, "i32", "%y = theano.max %x {axis = [1]}"), eager(lambda x: x.amax(1))
    ),
    "dense i32 in [-127, 127]": Work(dense, products, multiplied),
    "dense i8": Work(words, products, multiplied),
    "dense f32": Work(floats, lambda torch, x, w: {"torch f32": lambda: x @ w.T}, multiplied),
    "attention 96x256x64 f32": Work(
        attention,
        lambda torch, q, k, v: {
            "torch f32": lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)
        },
        lambda n: 4 * heads(n) * 256 * 256 * 64,
    ),
    "conv2d 16x64@56 3x3": Work(
        conv, convolutions, lambda n: 2 * images_of(n) * 64 * 64 * 9 * 56 * 56
    ),
}


def arguments(f: Any) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    found = []
    for a in f.function.arguments:
        shape, dtype = a.known_type.array_shape, a.known_type.element.dtype
        if dtype.kind == "f":
            found.append(random.normal(size=shape).astype(dtype))
        else:
            found.append(
                random.integers(0 if dtype.kind == "u" else -127, 128, shape).astype(dtype)
            )
    return found


def check(work: Work) -> str:
    """Test whether the device gives the bits of the CPU, or of the reference where the CPU has no
    code, for a small size.
    """
    text = work.program(CHECKED)
    given = arguments(cvm.compile(text, target="reference"))
    target = "cpu" if importlib.util.find_spec("llvmlite") else "reference"
    found, wanted = (cvm.compile(text, target=t)(*given) for t in ("cuda", target))
    return (
        "same bits"
        if np.array_equal(found, wanted, equal_nan=found.dtype.kind == "f")
        else "DIFFERENT"
    )


def predicted(text: str, device: str) -> float:
    """The milliseconds that the model of the machine gives for the program, from the emulator's
    counts.
    """
    rows = predictions(cvm.compile(text, target="cuda-sim"), {})
    return (
        sum(
            row["seconds"]["H200" if "H200" in device else "H100"] * row["launches"] for row in rows
        )
        * 1e3
    )


def timed(device: Any, run: Callable[[], Any], rounds: int) -> float:
    """The median milliseconds on the device."""
    run()
    times = []
    for _ in range(rounds):
        start, end = device.driver.Event(), device.driver.Event()
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(float(start.time_till(end)))
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
        call = called(lambda: f(*given, out=out), out.get)
        moved = sum(a.nbytes for a in host) + out.nbytes
        a, b = device.allocate(moved // 2), device.allocate(moved // 2)
        copy = timed(device, lambda: device.copy(int(a), int(b), moved // 2), rounds)
    rate = f"{moved / mine / 1e6:.0f} GB/s"
    if work.operations is not None:
        rate = f"{work.operations(n) / mine / 1e9:.1f} T/s"
    peers = []
    if torch is not None and work.peers is not None:
        tensors = [torch.from_numpy(a).cuda() for a in host]
        for peer, run in work.peers(torch, *tensors).items():
            peers.append(beside(peer, lambda r=run: f"{of_torch(torch, r, rounds):.3f}"))  # type: ignore[misc]
    model = beside("", lambda: f"{predicted(work.program(n), device.name):.3f}").strip()
    figures = f"{mine:.3f} | {model} | {rate} | {copy / mine:.2f}"
    return f"| {name} | {check(work)} | {figures} | {', '.join(peers)} | {call:.0f} µs |"


def beside(peer: str, figure: Callable[[], str]) -> str:
    """A peer's name and figure; one that does not run here leaves the row as it is."""
    try:
        return f"{peer} {figure()}"
    except Exception as e:
        return f"{peer} fails: {type(e).__name__}"


def of_torch(torch: Any, run: Callable[[], Any], rounds: int) -> float:
    """The median milliseconds on the device, by torch's own events."""
    for _ in range(3):
        run()
    times = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def called(run: Callable[[], Any], wait: Callable[[], Any], count: int | None = None) -> float:
    """Microseconds of a call, the device keeping up or not."""
    count = count or CALLS
    for _ in range(5):
        run()
    wait()
    began = time.perf_counter()
    for _ in range(count):
        run()
    wait()
    return (time.perf_counter() - began) / count * 1e6


# whole programs


def gray_scott(rounds: int, torch: Any) -> str:
    """Ticks of two large fields, which are read and written once a tick."""
    from cvm.jit.cuda.device import device

    text = (EXAMPLES / "gray_scott" / "gray_scott.cvm").read_text("utf-8").replace("512", str(SIDE))
    g, on = cvm.compile(text, entry="gray_scott", target="cuda"), device()
    g.step(2 * TICKS)
    with on.active():
        each = timed(on, lambda: g.step(TICKS), rounds) / TICKS
        moved = 4 * SIDE * SIDE * 4
        a, b = on.allocate(moved // 2), on.allocate(moved // 2)
        copy = timed(on, lambda: on.copy(int(a), int(b), moved // 2), rounds)
    return (
        f"| Gray-Scott {SIDE} x {SIDE}, a tick | {each:.3f} ms | {moved / each / 1e6:.0f} "
        f"GB/s, {copy / each:.2f} of a copy |"
    )


def centred() -> str:
    """A program that alternates between column sums and the subtraction of their means."""
    lines, last = [], "x"
    for n in range(4):
        lines += [f"%s{n} = theano.sum %{last} {{axis = [0]}}", f"%y{n} = dali.sub %{last}, %s{n}"]
        last = f"y{n}"
    return function("%x: tensor<64x64xf32>", *lines, result=f"%{last}")


def small_kernels(rounds: int, torch: Any) -> str:
    """Measure the launch overhead of a small program."""
    from pycuda.gpuarray import to_gpu

    f = cvm.compile(centred(), target="cuda")
    x = np.random.default_rng(0).normal(size=(64, 64)).astype("f4")
    with f.device.active():  # type: ignore[union-attr]
        given = to_gpu(x)
        out = f(given)
        mine = called(lambda: f(given, out=out), out.get)
    launches = len(f.source.launches)  # type: ignore[union-attr]
    peers = []
    if torch is not None:

        def theirs(x: Any) -> Any:
            for _ in range(4):
                x = x - x.sum(0)
            return x

        tensor = torch.from_numpy(x).cuda()
        for mode in ("default", "reduce-overhead"):
            compiled = torch.compile(theirs, mode=mode)
            figure = lambda c=compiled: (  # noqa: E731
                f"{called(lambda: c(tensor), torch.cuda.synchronize):.1f} µs"
            )
            peers.append(beside(f"torch.compile {mode}", figure))
    return f"| {launches} kernels on 64 x 64 | {mine:.1f} µs | {', '.join(peers)} |"


def digits(rounds: int, torch: Any) -> str:
    """The network of examples/digits on 10,000 images."""
    from pycuda.gpuarray import to_gpu

    f = cvm.compile(EXAMPLES / "digits" / "digits.cvm", target="cuda")
    images = np.random.default_rng(0).integers(0, 17, (IMAGES, 1, 8, 8), np.int32)
    device = f.device  # type: ignore[union-attr]
    with device.active():
        given = to_gpu(images)
        out = f(given)
        mine = timed(device, lambda: f(given, out=out), rounds)
    peers = []
    if torch is not None:
        nn = torch.nn
        layers = (
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
        )
        network = (
            nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10)).cuda().eval()
        )
        for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
            with torch.no_grad():
                tensor, model = torch.from_numpy(images).cuda().to(dtype), network.to(dtype)
                compiled = torch.compile(model)
                for peer, run in ((name, model), (f"compiled {name}", compiled)):
                    figure = lambda r=run, x=tensor: (  # noqa: E731
                        f"{of_torch(torch, lambda: r(x), rounds):.3f} ms"
                    )
                    peers.append(beside(f"torch {peer}", figure))
    return f"| digits, {IMAGES:,} images | {mine:.3f} ms | {', '.join(peers)} |"


PROGRAMS: dict[str, Callable[[int, Any], str]] = {
    "gray-scott": gray_scott,
    "small kernels": small_kernels,
    "digits": digits,
}


def said(row: Callable[[], str], name: str) -> str:
    """A row, or why there is none: one that fails does not stop the others."""
    try:
        return row()
    except Exception as e:
        text = str(e).splitlines()[0] if str(e) else ""
        return f"| {name} | fails: {type(e).__name__}: {text} |"


def torch_on_gpu() -> Any:
    """Torch, where it is installed and made for a GPU."""
    torch = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
    return torch if torch is not None and torch.cuda.is_available() else None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--megabytes", type=float, default=256, help="of the largest argument")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args(arguments)
    from cvm.jit.cuda.device import device, missing

    if lacking := missing():
        print(f"nothing to measure: {lacking}", file=sys.stderr)
        return 1
    torch = torch_on_gpu()

    def chosen(name: str) -> bool:
        return not options.names or any(o in name for o in options.names)

    print(f"{device().name}, {datetime.date.today()}, {options.megabytes:g} MB\n", flush=True)
    print(
        "| work | against the CPU | ms | model, ms | rate | copy / cvm | peers, ms | a "
        "call |\n|---|---|---|---|---|---|---|---|"
    )
    size = int(options.megabytes * (1 << 18))
    for name, work in WORK.items():
        if chosen(name):
            row = said(lambda n=name, w=work: measure(n, w, size, options.rounds, torch), name)  # type: ignore[misc]
            print(row, flush=True)
    print("\n| program | cvm | peers |\n|---|---|---|")
    for name, program in PROGRAMS.items():
        if chosen(name):
            print(said(lambda p=program: p(options.rounds, torch), name), flush=True)  # type: ignore[misc]
    return 0


if __name__ == "__main__":
    sys.exit(main())
