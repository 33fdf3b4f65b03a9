"""Measure the digits network on qemu's Cortex-M4: instructions of an image, bytes of code and RAM of
the C file, of the object file, and of loops like LiteRT's reference kernels. Prints the table of
docs/deploy.md; needs arm-none-eabi-gcc and qemu-system-arm.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np

import cvm
from cvm.cli import main as cvm_command

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits"
sys.path.insert(0, str(ROOT / "tests" / "support"))
from cortex_m import BARE, LINKED  # noqa: E402

COUNT = """int semihosting(int operation, const void *block);
static volatile unsigned *const systick = (void *)0xe000e010;  /* 25 MHz: a tick is 40 instructions */
static int differ(void) {
  static char text[12];
  systick[1] = 0xffffff; systick[2] = 0; systick[0] = 5;
  int status = call();
  unsigned ticks = 0xffffff - systick[2];
  int n = 10;
  do text[n--] = '0' + ticks % 10; while (ticks /= 10);
  semihosting(4, text + n + 1); semihosting(4, " ");
  return status;
}
void *memset(void *to, int byte, unsigned n) { for (char volatile *p = to; n--; ) *p++ = byte; return to; }
void *memcpy(void *to, const void *from, unsigned n) {
  for (char volatile *p = to; n--; ) *p++ = *(const char *)from, from = (const char *)from + 1;
  return to;
}
"""
OURS = """#include "digits.h"
#include "arrays.h"
static int call(void) {
  static int32_t y[10];
#ifdef OBJECT
  static _Alignas(64) char workspace[DIGITS_MAIN_WORKSPACE];
  if (digits_main(x, y, workspace)) return 1;
#else
  if (digits_main(x, y)) return 1;
#endif
  for (int n = 0; n < 10; ++n) if (y[n] != wanted[n]) return 1;
  return 0;
}
"""
REFERENCE = """#include <stdint.h>
static int8_t a[8 * 8 * 16], b[8 * 8 * 32], c[4 * 4 * 32], images[8 * 8];

static int32_t scaled(int32_t x, int32_t multiplier, int shift) {
  int64_t product = (int64_t)x * multiplier;
  int32_t high = (product + (product >= 0 ? 1 << 30 : 1 - (1 << 30))) / (1ll << 31);
  int right = -shift;
  int32_t mask = (1 << right) - 1, rest = high & mask, threshold = (mask >> 1) + (high < 0);
  return (high >> right) + (rest > threshold);
}
static int8_t clamped(int32_t x, int low) { return x < low ? low : x > 127 ? 127 : x; }

static void conv(const int8_t *x, int in, const int8_t *w, const int32_t *bias, const int32_t *m, const int8_t *s,
                 int out, int input_offset, int output_offset, int8_t *y) {
  for (int row = 0; row < 8; ++row)
    for (int column = 0; column < 8; ++column)
      for (int o = 0; o < out; ++o) {
        int32_t sum = 0;
        for (int i = 0; i < 3; ++i)
          for (int j = 0; j < 3; ++j) {
            int r = row + i - 1, q = column + j - 1;
            if (r < 0 || r >= 8 || q < 0 || q >= 8) continue;
            for (int k = 0; k < in; ++k)
              sum += w[((o * 3 + i) * 3 + j) * in + k] * (x[(r * 8 + q) * in + k] + input_offset);
          }
        sum = scaled(sum + bias[o], m[o], s[o]) + output_offset;
        y[(row * 8 + column) * out + o] = clamped(sum, output_offset);
      }
}
static void pool(const int8_t *x, int8_t *y) {
  for (int row = 0; row < 4; ++row)
    for (int column = 0; column < 4; ++column)
      for (int k = 0; k < 32; ++k) {
        int8_t most = -128;
        for (int i = 0; i < 2; ++i)
          for (int j = 0; j < 2; ++j) {
            int8_t n = x[((2 * row + i) * 8 + 2 * column + j) * 32 + k];
            if (n > most) most = n;
          }
        y[(row * 4 + column) * 32 + k] = most;
      }
}
static void dense(const int8_t *x, const int8_t *w, const int32_t *bias, const int32_t *m, const int8_t *s, int input_offset,
                  int output_offset, int8_t *y) {
  for (int o = 0; o < 10; ++o) {
    int32_t sum = 0;
    for (int k = 0; k < 512; ++k) sum += w[o * 512 + k] * (x[k] + input_offset);
    y[o] = clamped(scaled(sum + bias[o], m[o], s[o]) + output_offset, -128);
  }
}
#include "model.h"
int run(const int8_t *x, int8_t *y) {
  conv(x, 1, w0, b0, m0, s0, 16, -Z0, Z1, a);
  conv(a, 16, w1, b1, m1, s1, 32, -Z1, Z2, b);
  pool(b, c);
  dense(c, w2, b2, m2, s2, -Z2, Z3, y);
  return 0;
}
"""
THEIRS = """#include <stdint.h>
#include "arrays.h"
int run(const int8_t *x, int8_t *y);
static int call(void) {
  static int8_t y[10];
  run(x, y);
  for (int n = 0; n < 10; ++n) if (y[n] != wanted[n]) return 1;
  return 0;
}
"""
TYPES = {"int8": "int8_t", "int32": "int32_t"}
M4, M0 = ("-mcpu=cortex-m4", "-mthumb"), ("-mcpu=cortex-m0", "-mthumb")


def arrays(**named: np.ndarray) -> str:
    return "\n".join(
        f"static const {TYPES[a.dtype.name]} {n}[] = {{{', '.join(map(str, a.ravel().tolist()))}}};"
        for n, a in named.items()
    )


def model(module: Any) -> tuple[str, int]:
    """The constants of a program of the scheme tflite, in LiteRT's layout, and their bytes."""
    main = module.functions["main"]
    made = {r: o.operator for o in main.operations for r in o.results}
    layers = [o.operator for o in main.operations if o.operator.name == "quant.requantize"]
    lines, held, zeros = [], 0, [main.arguments[0].attributes["zero_point"]]
    for n, o in enumerate(layers):
        sums = made[o.x]
        w, bias, m, s = (made[v].data.array for v in (sums.w, sums.bias, o.multiplier, o.shift))
        w = w.transpose(0, 2, 3, 1) if w.ndim == 4 else w.reshape(10, 32, 16).transpose(0, 2, 1)
        left = (31 - s).astype(np.int8)
        named = {f"w{n}": w, f"b{n}": bias, f"m{n}": m, f"s{n}": left}
        lines.append(arrays(**named))
        held += sum(a.nbytes for a in named.values())
        zeros.append(o.zero_point)
    return "\n".join([*lines, *(f"#define Z{n} ({z})" for n, z in enumerate(zeros))]), held


def sizes(name: str) -> tuple[int, int]:
    """The bytes of code and constants, and those of RAM, of an object file."""
    command = ["arm-none-eabi-size", name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    text, data, bss, *_ = map(int, done.stdout.splitlines()[1].split()[:3])
    return text, data + bss


def instructions(caller: str, flags: tuple[str, ...], object_file: str) -> int:
    Path("main.c").write_text(caller + COUNT + BARE)
    link = ["-w", "-nostdlib", "-T", "link.ld", "main.c", object_file, "-lgcc", "-o", "run"]
    subprocess.run(["arm-none-eabi-gcc", *flags, "-O2", *link], check=True)
    emulator = ["qemu-system-arm", "-M", "mps2-an386", "-icount", "shift=0", "-nographic"]
    done = subprocess.run(
        [*emulator, "-semihosting", "-kernel", "run"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    ticks, outcome = (done.stdout + done.stderr).split()
    assert outcome == "same", "the scores differ"
    return 40 * int(ticks)


def rows() -> Iterator[tuple[str, int, int, int]]:
    """Each build: its name, instructions, bytes of code, and bytes of RAM."""
    program = str(DIGITS / "digits.cvm")
    with np.load(DIGITS / "test.npz") as held_back:
        image = held_back["images"][:1]
    build = ["build", program, "--size", "N=1"]
    cvm_command([*build, "--emit", "c", "--arena", "-o", "digits.c", "--header", "digits.h"])
    x = np.minimum(8 * image.astype(np.int32), 127)
    wanted = np.asarray(cvm.compile(cvm.load(program), target="reference")(x))
    Path("arrays.h").write_text(arrays(x=x, wanted=wanted))
    constants = int(re.findall(r"flash: (\d+)", Path("digits.c").read_text())[0])
    for cpu, level in ((M4, "-Os"), (M4, "-O2"), (M4, "-O3"), (M0, "-O2")):
        command = ["arm-none-eabi-gcc", *cpu, "-std=c99", level, "-c", "digits.c"]
        subprocess.run(command, check=True)
        code, ram = sizes("digits.o")
        yield (
            f"`--emit c --arena`, `{cpu[0]} {level}`",
            instructions(OURS, cpu, "digits.o"),
            code - constants,
            ram,
        )
    triple = ["--triple", "thumbv7em-none-eabihf", "--cpu", "cortex-m4"]
    cvm_command([*build, *triple, "-o", "digits.o", "--header", "digits.h"])
    code, ram = sizes("digits.o")
    ram += int(re.findall(r"WORKSPACE (\d+)", Path("digits.h").read_text())[0])
    yield (
        f"cvm's object, `{' '.join(triple)}`",
        instructions(OURS, (*M4, "-mfloat-abi=hard", "-DOBJECT"), "digits.o"),
        code - constants,
        ram,
    )
    module = cvm.quantize(DIGITS / "float.cvm", DIGITS / "calibration.npz", "tflite")
    p = module.functions["main"].arguments[0].attributes
    x = (np.rint(image / p["scale"]) + p["zero_point"]).astype(np.int8)
    wanted = np.asarray(cvm.compile(module)(x))
    Path("arrays.h").write_text(arrays(x=x, wanted=wanted))
    Path("reference.c").write_text(REFERENCE)
    text, held = model(module)
    Path("model.h").write_text(text)
    for level in ("-O2", "-O3"):
        subprocess.run(["arm-none-eabi-gcc", *M4, level, "-c", "reference.c"], check=True)
        code, ram = sizes("reference.o")
        yield (
            f"loops like LiteRT's reference, `{M4[0]} {level}`",
            instructions(THEIRS, M4, "reference.o"),
            code - held,
            ram,
        )


def main() -> None:
    print("| | instructions | code, bytes | RAM, bytes |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("link.ld").write_text(LINKED)
        for name, count, code, ram in rows():
            print(f"| {name} | {count:,} | {code:,} | {ram:,} |", flush=True)


if __name__ == "__main__":
    main()
