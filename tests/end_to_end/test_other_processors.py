"""Code for other processors: byte dot products of 64-bit Arm, and, under emulators, the bytes that
this machine gives.

Needs `ziglang` and `wasmtime` (the extra `interop`), and of Debian's packages `qemu-user` and
`qemu-system-arm`.
"""

from __future__ import annotations

import platform
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cortex_m import BARE, LINKED
from cvm.lowering.processor import ARM, TRIPLES, named
from run_wasm import in_wasmtime

import cvm
from cvm import cli

ROOT = Path(__file__).parents[2]
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
MAIN = """#include "program.h"
#include "arrays.h"
#if FREE
static _Alignas(64) char workspace[PROGRAM_MAIN_WORKSPACE + 1];
#define CALL program_main((void *)x, (void *)a, (void *)b, (void *)y, (void *)z, workspace)
#else
#define CALL program_main((void *)x, (void *)a, (void *)b, (void *)y, (void *)z)
#endif
static int differ(void) {
  static _Alignas(64) unsigned char y[sizeof wanted_y], z[sizeof wanted_z];
  if (CALL) return 1;
  for (unsigned n = 0; n < sizeof y; ++n) if (y[n] != wanted_y[n]) return 2;
  for (unsigned n = 0; n < sizeof z; ++n) if (z[n] != wanted_z[n]) return 3;
  return 0;
}
"""
HOSTED = """#include <stdio.h>
int main(void) { int status = differ(); puts(status ? "differ" : "same"); return status; }
"""
VECTOR_UNIT = ",v=true,vlen=256,vext_spec=v1.0"
MACHINES = {  # the triple, the system that zig links for, the flags that it needs, and the emulator
    "cortex-a53": ("aarch64-linux-gnu", "aarch64-linux-musl", (), ("qemu-aarch64",)),
    "cortex-a76": ("aarch64-linux-gnu", "aarch64-linux-musl", (), ("qemu-aarch64",)),
    "cortex-a53,cortex-a76,neoverse-v1": (
        "aarch64-linux-gnu",
        "aarch64-linux-musl",
        (),
        ("qemu-aarch64",),
    ),
    "rv64gc": ("riscv64-linux-gnu", "riscv64-linux-musl", (), ("qemu-riscv64",)),
    "rv64gcv": (
        "riscv64-linux-gnu",
        "riscv64-linux-musl",
        (),
        ("qemu-riscv64", "-cpu", f"rv64{VECTOR_UNIT}"),
    ),
    "cortex-m4": (
        "thumbv7em-none-eabihf",
        "thumb-freestanding-eabihf",
        ("-mcpu=cortex_m4",),
        ("qemu-system-arm", "-M", "mps2-an386"),
    ),
    "cortex-m7": (
        "thumbv7em-none-eabihf",
        "thumb-freestanding-eabihf",
        ("-mcpu=cortex_m7",),
        ("qemu-system-arm", "-M", "mps2-an500"),
    ),
    "wasm32": ("wasm32-wasi", "wasm32-wasi", (), ("wasmtime",)),
}
RANGES = {"signed": (-128, 127), "without a sign": (0, 255), "small": (0, 127)}


def program(ends: str) -> str:
    low, high = RANGES[ends]
    weights = np.random.default_rng(0).integers(-127, 128, (17, 20, 3, 3)).tolist()
    return PROGRAM.format(low=low, high=high, weights=weights)


@pytest.mark.parametrize("ends", RANGES)
@pytest.mark.parametrize("cpu", ARM)
def test_code_has_the_dot_product_of_the_processor(cpu: str, ends: str) -> None:
    described = named(cpu)
    assert (
        described is not None
        and described.tile_vector_bytes == 16
        and described.vector_registers == 32
    )
    code = cvm.compile(program(ends), target="reference", cpu=cpu).lower("asm")
    wanted = "usdot" if "i8mm" in ARM[cpu] else "sdot" if "dotprod" in ARM[cpu] else None
    found = set(re.findall(r"\b[us]+dot\b", code))
    assert wanted in found if wanted else not found
    assert re.search(r"fmla\s+v\d+\.4s", code), "float sums are by vectors"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cpu", "ends"),
    [(cpu, ends) for cpu in MACHINES for ends in RANGES if ends == "signed" or cpu in ARM],
)
def test_bytes_are_those_of_this_machine(cpu: str, ends: str, tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    triple, system, flags, emulator = MACHINES[cpu]
    if emulator[0] == "wasmtime":
        pytest.importorskip("wasmtime")
    elif shutil.which(emulator[0]) is None:
        pytest.skip(f"needs {emulator[0]}")
    source, target, header, run = (tmp_path / f"program.{end}" for end in ("cvm", "a", "h", "run"))
    source.write_text(program(ends))
    assert (
        cli.main(
            [
                "build",
                str(source),
                "--triple",
                triple,
                "--cpu",
                cpu,
                "-o",
                str(target),
                "--header",
                str(header),
            ]
        )
        == 0
    )
    random = np.random.default_rng(1)
    x = random.integers(*RANGES[ends], (1, 20, 9, 9), np.int32, endpoint=True)
    a, b = (random.normal(size=s).astype(np.float32) for s in ((9, 33), (33, 21)))
    y, z = map(np.asarray, cvm.compile(program(ends))(x, a, b))
    arrays = {"x": x, "a": a, "b": b, "wanted_y": y, "wanted_z": z}
    text = [
        f"static const _Alignas(64) unsigned char {n}[] = {{{', '.join(map(str, v.tobytes()))}}};"
        for n, v in arrays.items()
    ]
    (tmp_path / "arrays.h").write_text("\n".join(text))
    bare = "none" in triple
    (tmp_path / "main.c").write_text(f"#define FREE {int(bare)}\n{MAIN}{BARE if bare else HOSTED}")
    (tmp_path / "link.ld").write_text(LINKED)
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        system,
        *flags,
        "-O1",
        "-w",
        "main.c",
        target.name,
        "-o",
        run.name,
    ]
    subprocess.run([*command, *(["-T", "link.ld"] * bare)], check=True, timeout=300, cwd=tmp_path)
    if emulator[0] == "wasmtime":
        assert in_wasmtime(run) == 0
        return
    arguments = ["-nographic", "-semihosting", "-kernel", str(run)] if bare else [str(run)]
    done = subprocess.run(
        [*emulator, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.stdout + done.stderr).strip() == "same", done


def test_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(
        r"```sh\n(.*?)```", (ROOT / "docs" / "processors.md").read_text("utf-8"), re.DOTALL
    )
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for command in block.splitlines():
        assert cli.main(shlex.split(command)[1:]) == 0, command


@pytest.mark.parametrize("cpu", TRIPLES)
def test_code_for_another_processor_does_not_run_here(cpu: str) -> None:
    name = {"generic-rv64": "rv64gc", "generic-rv32": "rv32imac", "generic": "wasm32"}.get(cpu, cpu)
    with pytest.raises(cvm.TargetError, match=f"this machine (is of {platform.machine()}|lacks)"):
        cvm.compile(program("small"), cpu=name)


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


@pytest.mark.parametrize("triple", ["wasm32-wasi", "aarch64-linux-gnu", "riscv64-linux-gnu"])
def test_rounding_scaled_integers_calls_no_library(triple: str, tmp_path: Path) -> None:
    source, target = tmp_path / "program.cvm", tmp_path / "program.o"
    source.write_text("""func @main(%x: tensor<64xi8>) -> tensor<64xi8> {
  %y = quant.requantize %x, 0.5 {rounding = "half_even_f32"}
  return %y
}
""")
    assert cli.main(["build", str(source), "--triple", triple, "-o", str(target)]) == 0
    assert b"rint" not in target.read_bytes()
