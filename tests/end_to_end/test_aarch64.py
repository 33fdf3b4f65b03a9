"""Objects for 64-bit Arm: byte dot products by `sdot` in vectors of 16 bytes, and, under qemu, the bytes that this machine gives."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cvm.lowering.processor import ARM, named

import cvm
from cvm import cli

CROSS, QEMU = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
PROGRAM = """func @main(%x: tensor<1x20x9x9xi32> {{range = [{low}, {high}]}}, %a: tensor<9x33xf32>, %b: tensor<33x21xf32>) {{
  %w = const dense<{weights}> : tensor<17x20x3x3xi32>
  %s = cvm.conv2d %x, %w {{padding = [1, 1], stride = [2, 2]}}
  %y = cvm.cvm_right_shift %s {{precision = 8, shift_bit = 6}}
  %0 = theano.dimshuffle %a {{new_order = [0, 1, "x"]}}
  %1 = theano.dimshuffle %b {{new_order = ["x", 0, 1]}}
  %2 = theano.elemwise %0, %1 {{scalar_op = "mul"}}
  %z = theano.sum %2 {{axis = [1], dtype = f32, acc_dtype = f32}}
  return %y, %z
}}
"""
MAIN = """#include <stdio.h>
#include "program.h"
static int32_t x[1620], y[425];
static float a[297], b[693], z[189];
int main(void) {
  if (fread(x, 4, 1620, stdin) != 1620 || fread(a, 4, 297, stdin) != 297 || fread(b, 4, 693, stdin) != 693) return 2;
  if (program_main(x, a, b, y, z)) return 1;
  return fwrite(y, 4, 425, stdout) != 425 || fwrite(z, 4, 189, stdout) != 189;
}
"""
RANGES = {"signed": (-128, 127), "without a sign": (0, 255), "small": (0, 127)}


def program(ends: str) -> str:
    low, high = RANGES[ends]
    weights = np.random.default_rng(0).integers(-127, 128, (17, 20, 3, 3)).tolist()
    return PROGRAM.format(low=low, high=high, weights=weights)


@pytest.mark.parametrize("ends", RANGES)
@pytest.mark.parametrize("cpu", ARM)
def test_code_has_the_dot_product_of_the_processor(cpu: str, ends: str) -> None:
    described = named(cpu)
    assert described is not None and described.tile_vector_bytes == 16 and described.vector_registers == 32
    code = cvm.compile(program(ends), target="reference", cpu=cpu).lower("asm")
    wanted = "usdot" if "i8mm" in ARM[cpu] else "sdot" if "dotprod" in ARM[cpu] else None
    found = set(re.findall(r"\b[us]+dot\b", code))
    assert wanted in found if wanted else not found
    assert re.search(r"fmla\s+v\d+\.4s", code), "float sums are by vectors"


@pytest.mark.skipif(CROSS is None or QEMU is None, reason="needs a cross compiler and qemu-aarch64")
@pytest.mark.parametrize("ends", RANGES)
@pytest.mark.parametrize("cpu", ["cortex-a53", "cortex-a76"])
def test_bytes_are_those_of_this_machine(cpu: str, ends: str, tmp_path: Path) -> None:
    assert CROSS is not None and QEMU is not None
    source, target, header = (tmp_path / f"program.{end}" for end in ("cvm", "o", "h"))
    source.write_text(program(ends))
    arguments = [str(source), "--triple", "aarch64-linux-gnu", "--cpu", cpu, "-o", str(target), "--header", str(header)]
    assert cli.main(["build", *arguments]) == 0
    (tmp_path / "main.c").write_text(MAIN)
    command = [CROSS, "-static", "-o", str(tmp_path / "run"), str(tmp_path / "main.c"), str(target)]
    subprocess.run(command, check=True, timeout=60)
    random = np.random.default_rng(1)
    x = random.integers(*RANGES[ends], (1, 20, 9, 9), np.int32, endpoint=True)
    a, b = (random.normal(size=s).astype(np.float32) for s in ((9, 33), (33, 21)))
    given = b"".join(array.tobytes() for array in (x, a, b))
    done = subprocess.run([QEMU, str(tmp_path / "run")], input=given, capture_output=True, check=True, timeout=60)
    assert done.stdout == b"".join(np.asarray(array).tobytes() for array in cvm.compile(program(ends))(x, a, b))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--triple", "x86_64-linux-gnu", "--cpu", "cortex-a76"], "the cpu is one of aarch64"),
        (["--triple", "vax-dec-ultrix"], "unknown cpu 'vax-dec-ultrix'"),
        (["--triple", "aarch64-linux-gnu", "--cpu", "native"], "the cpu is one of"),
    ],
)
def test_processors_of_another_architecture_are_diagnosed(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "program.cvm"
    source.write_text(program("small"))
    assert cli.main(["build", str(source), *arguments, "-o", str(tmp_path / "program.o")]) == 2
    assert message in capsys.readouterr().err
