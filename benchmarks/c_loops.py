"""Compiled programs against the obvious C loops compiled by gcc -O2, if gcc is here: medians of interleaved runs, and ratios.

python benchmarks/c_loops.py [NAME ...]
"""

from __future__ import annotations

import ctypes
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import cvm

CONV = """
void f(const int *x, const int *w, int *y) {
  for (int o = 0; o < OC; o++) for (int p = 0; p < OH; p++) for (int q = 0; q < OW; q++) {
    int acc = 0;
    for (int i = 0; i < IC; i++) for (int a = 0; a < K; a++) for (int b = 0; b < K; b++) {
      int h = p * S - P + a, v = q * S - P + b;
      if (h >= 0 && h < H && v >= 0 && v < W)
        acc += x[((o / (OC / G) * IC + i) * H + h) * W + v] * w[((o * IC + i) * K + a) * K + b];
    }
    y[(o * OH + p) * OW + q] = acc;
  }
}"""
DENSE = """
void f(const int *x, const int *w, int *y) {
  for (int i = 0; i < 64; i++) for (int j = 0; j < 1024; j++) {
    int acc = 0;
    for (int k = 0; k < 1024; k++) acc += x[i * 1024 + k] * w[j * 1024 + k];
    y[i * 1024 + j] = acc;
  }
}"""
POOL = """
void f(const int *x, int *y) {
  for (int c = 0; c < 64; c++) for (int p = 0; p < 56; p++) for (int q = 0; q < 56; q++) {
    int best = -2147483648;
    for (int a = 0; a < 3; a++) for (int b = 0; b < 3; b++) {
      int h = p * 2 - 1 + a, v = q * 2 - 1 + b;
      if (h >= 0 && h < 112 && v >= 0 && v < 112) {
        int e = x[(c * 112 + h) * 112 + v];
        best = e > best ? e : best;
      }
    }
    y[(c * 56 + p) * 56 + q] = best;
  }
}"""
CHAIN = """
void f(const int *a, const int *b, int *y) {
  for (int i = 0; i < N; i++) {
    int s = a[i] + b[i];
    s = (int)(((long long)s + 8) >> 4);
    y[i] = s < -127 ? -127 : s > 127 ? 127 : s;
  }
}"""
SUM_LAST = """
void f(const int *x, int *y) {
  for (int i = 0; i < 2048; i++) { int s = 0; for (int j = 0; j < 2048; j++) s += x[i * 2048 + j]; y[i] = s; }
}"""
SUM_FIRST = """
void f(const int *x, int *y) {
  for (int j = 0; j < 2048; j++) { int s = 0; for (int i = 0; i < 2048; i++) s += x[i * 2048 + j]; y[j] = s; }
}"""


@dataclass(frozen=True)
class Case:
    """A program, the same in C, and the shapes of the arguments."""

    program: str
    c: str
    shapes: tuple[tuple[int, ...], ...]


def conv(ic: int, oc: int, h: int, k: int, pad: int, stride: int = 1, groups: int = 1) -> Case:
    oh = (h + 2 * pad - k) // stride + 1
    x, w, y = (1, ic, h, h), (oc, ic // groups, k, k), (1, oc, oh, oh)
    attributes = f"padding = [{pad}, {pad}], stride = [{stride}, {stride}], groups = {groups}"
    sizes = {
        "OC": oc,
        "OH": oh,
        "OW": oh,
        "IC": ic // groups,
        "K": k,
        "S": stride,
        "P": pad,
        "H": h,
        "W": h,
        "G": groups,
    }
    c = "".join(f"#define {name} {value}\n" for name, value in sizes.items()) + CONV
    return Case(program(f"cvm.conv2d %a, %b {{{attributes}}}", (x, w), y), c, (x, w))


def program(operation: str, shapes: tuple[tuple[int, ...], ...], result: tuple[int, ...]) -> str:
    types = [f"tensor<{'x'.join(map(str, s))}xi32>" for s in (*shapes, result)]
    arguments = ", ".join(f"%{n}: {t}" for n, t in zip("abc", types[:-1], strict=False))
    return f"func @main({arguments}) -> {types[-1]} {{\n  %y = {operation}\n  return %y\n}}\n"


def chain(n: int) -> Case:
    t = f"tensor<{n}xi32>"
    text = f"""func @main(%a: {t}, %b: {t}) -> {t} {{
  %s = cvm.elemwise_add %a, %b
  %y = cvm.cvm_right_shift %s {{precision = 8, shift_bit = 4}}
  return %y
}}
"""
    return Case(text, f"#define N {n}\n{CHAIN}", ((n,), (n,)))


CASES: dict[str, Callable[[], Case]] = {
    "dense 64x1024x1024": lambda: Case(
        program("cvm.dense %a, %b", ((64, 1024), (1024, 1024)), (64, 1024)), DENSE, ((64, 1024), (1024, 1024))
    ),
    "conv 64@56 3x3 pad 1": lambda: conv(64, 64, 56, 3, 1),
    "conv 256@14 3x3 pad 1": lambda: conv(256, 256, 14, 3, 1),
    "conv 512@7 3x3 pad 1": lambda: conv(512, 512, 7, 3, 1),
    "conv 256->512@14 1x1": lambda: conv(256, 512, 14, 1, 0),
    "conv 3->64@224 7x7 stride 2": lambda: conv(3, 64, 224, 7, 3, 2),
    "depthwise 256@28 3x3": lambda: conv(256, 256, 28, 3, 1, 1, 256),
    "max_pool 64@112 3x3 stride 2": lambda: Case(
        program(
            "cvm.max_pool2d %a {pool_size = [3, 3], strides = [2, 2], padding = [1, 1]}",
            ((1, 64, 112, 112),),
            (1, 64, 56, 56),
        ),
        POOL,
        ((1, 64, 112, 112),),
    ),
    "add, shift, clip 16M": lambda: chain(1 << 24),
    "add, shift, clip 800K": lambda: chain(800_000),
    "sum 2048x2048 last axis": lambda: Case(
        program("cvm.sum %a {axes = [1]}", ((2048, 2048),), (2048,)), SUM_LAST, ((2048, 2048),)
    ),
    "sum 2048x2048 first axis": lambda: Case(
        program("cvm.sum %a {axes = [0]}", ((2048, 2048),), (2048,)), SUM_FIRST, ((2048, 2048),)
    ),
}


def compiled_c(text: str, folder: Path) -> Callable[..., None]:
    source, library = folder / f"f{abs(hash(text))}.c", folder / f"f{abs(hash(text))}.so"
    source.write_text(text)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    return ctypes.CDLL(str(library)).f


def compare(name: str, folder: Path, seconds: float = 1.5) -> None:
    """Prints a line of the table."""
    case = CASES[name]()
    random = np.random.default_rng(0)
    arrays = [random.integers(-127, 128, s).astype(np.int32) for s in case.shapes]
    began = time.perf_counter()
    ours = cvm.compile(case.program)
    compile_ms = (time.perf_counter() - began) * 1e3
    out = ours(*arrays)
    theirs = compiled_c(case.c, folder)
    wanted = np.empty_like(out)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, wanted)]
    theirs(*pointers)
    np.testing.assert_array_equal(out, wanted)
    times: tuple[list[float], list[float]] = ([], [])
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or len(times[0]) < 5:
        for found, run in zip(times, (lambda: ours(*arrays, out=out), lambda: theirs(*pointers)), strict=True):
            start = time.perf_counter()
            run()
            found.append((time.perf_counter() - start) * 1e3)
    mine, c = map(statistics.median, times)
    print(f"{name:32} {mine:9.3f} {c:9.3f} {c / mine:8.2f} {compile_ms:9.0f}", flush=True)


def main() -> None:
    if shutil.which("gcc") is None:
        sys.exit("gcc is not here")
    print(f"{'':32} {'cvm ms':>9} {'gcc ms':>9} {'ratio':>8} {'compile':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for name in CASES:
            if not sys.argv[1:] or any(part in name for part in sys.argv[1:]):
                compare(name, Path(folder))


if __name__ == "__main__":
    main()
