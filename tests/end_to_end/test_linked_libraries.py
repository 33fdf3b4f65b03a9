"""Libraries for other processors, linked with the C libraries of these and run under emulators:
floats, and an int8 model.

Needs of Debian's packages `gcc-arm-none-eabi`, `libnewlib-arm-none-eabi`,
`gcc-riscv64-unknown-elf`, `picolibc-riscv64-unknown-elf`, `gcc-aarch64-linux-gnu`, `lld`,
`qemu-user` and `qemu-system-arm`, and `ziglang` and `wasmtime`.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from cvm.lowering.processor import CORTEX_M
from object_symbols import undefined
from run_wasm import in_wasmtime

import cvm
from cvm import cli

MODEL = Path(__file__).parents[1] / "models" / "tflite" / "micro_speech_quantized.tflite"
FLOATS = """func @main(%x: tensor<37xf32>, %d: tensor<37xf64>) -> (tensor<37xf32>, tensor<37xf64>) {
  %0 = theano.elemwise %x {scalar_op = "exp"}
  %1 = theano.elemwise %0 {scalar_op = "sqrt"}
  %2 = theano.elemwise %x {scalar_op = "floor"}
  %3 = theano.elemwise %1, %2 {scalar_op = "maximum"}
  %4 = theano.elemwise %x {scalar_op = "tanh"}
  %5 = theano.elemwise %3, %4 {scalar_op = "sub"}
  %6 = theano.elemwise %x {scalar_op = "round_half_to_even"}
  %7 = dali.mod %6, %1
  %y = theano.elemwise %5, %7 {scalar_op = "add"}
  %8 = theano.elemwise %d {scalar_op = "exp"}
  %9 = theano.elemwise %8 {scalar_op = "sqrt"}
  %10 = theano.elemwise %d {scalar_op = "ceil"}
  %11 = theano.elemwise %9, %10 {scalar_op = "minimum"}
  %12 = theano.elemwise %d {scalar_op = "sin"}
  %13 = theano.elemwise %11, %12 {scalar_op = "sub"}
  %14 = theano.elemwise %d {scalar_op = "round_half_to_even"}
  %15 = dali.mod %14, %9
  %z = theano.elemwise %13, %15 {scalar_op = "add"}
  return %y, %z
}
"""
ROUNDED = """func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %y = theano.elemwise %x {scalar_op = "floor"}
  return %y
}
"""
CALLS = """#include <string.h>
#include "floats.h"
#include "speech.h"
#include "arrays.h"
#define SIZE (FLOATS_MAIN_WORKSPACE > SPEECH_MAIN_WORKSPACE ? FLOATS_MAIN_WORKSPACE : SPEECH_MAIN_WORKSPACE)
static _Alignas(64) unsigned char y[sizeof wanted_y], z[sizeof wanted_z], labels[sizeof wanted_labels];
#if FREE
static _Alignas(64) unsigned char workspace[SIZE + 1];
#define LAST , workspace
#else
#define LAST
#endif
static const char *compared(void) {
  if (floats_main((void *)x, (void *)d, (void *)y, (void *)z LAST)) return "no floats";
  if (speech_main((void *)signal, (void *)labels LAST)) return "no labels";
  if (memcmp(y, wanted_y, sizeof y)) return "other f32";
  if (memcmp(z, wanted_z, sizeof z)) return "other f64";
  return memcmp(labels, wanted_labels, sizeof labels) ? "other labels" : "same";
}
"""
HOSTED = (
    '#include <stdio.h>\nint main(void) { puts(compared()); return strcmp(compared(), "same"); }\n'
)
CORTEX = """int semihosting(int operation, const void *block);
__asm__(".thumb\\n.thumb_func\\n.global semihosting\\nsemihosting:\\n bkpt 0xab\\n bx lr\\n");
extern char stack_top[];
void _start(void);
__attribute__((section(".vectors"), used)) static void *const vectors[2] = {stack_top, (void *)_start};
void _start(void) {
#ifdef __ARM_FP
  *(volatile unsigned *)0xe000ed88 = 0xf << 20;  /* floating-point registers may be used */
  __asm__ volatile("dsb\\n isb");
#endif
  semihosting(4, compared());
  semihosting(0x18, (void *)0x20026);
}
"""
RISCV = """static long ask(long what, long a, long b, long c) {  /* the emulator, as programs do Linux */
  register long a0 __asm__("a0") = a, a1 __asm__("a1") = b, a2 __asm__("a2") = c, a7 __asm__("a7") = what;
  __asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a7) : "memory");
  return a0;
}
void _start(void) {
  const char *text = compared();
  ask(64, 1, (long)text, strlen(text));
  ask(93, 0, 0, 0);
}
"""
SECTIONS = """ENTRY(_start)
SECTIONS {{
  . = {code}; .vectors : {{ KEEP(*(.vectors)) }} .text : {{ *(.text*) *(.rodata*) *(.srodata*) }} .ARM.exidx : {{ *(.ARM.exidx*) }}
  . = {data}; .data : {{ *(.data*) *(.sdata*) }} .bss : {{ *(.bss*) *(.sbss*) *(COMMON) }}
  stack_top = {data} + {size}; end = .;
}}
"""


class Tools(NamedTuple):
    """A compiler with its flags, an emulator with its, and a board's addresses: of code and data,
    and the data's bytes.
    """

    compiler: tuple[str, ...]
    emulator: tuple[str, ...]
    board: tuple[int, int, int] = (0, 0, 0)


def cortex(cpu: str, machine: str, *board: int) -> Tools:
    abi = "hard" if CORTEX_M[cpu].endswith("hf") else "soft"
    flags = (f"-mcpu={cpu}", f"-mfloat-abi={abi}", "-nostartfiles", "--specs=nosys.specs")
    emulator = ("qemu-system-arm", "-M", machine, "-nographic", "-semihosting", "-kernel")
    code, data, size = board
    return Tools(("arm-none-eabi-gcc", *flags), emulator, (code, data, size))


def riscv(march: str, abi: str, emulator: str) -> Tools:
    flags = (f"-march={march}", f"-mabi={abi}", "-mcmodel=medany", "-nostartfiles")
    further = ("--specs=picolibc.specs", "-Wl,--no-relax")
    board = 0x100000, 0x200000, 0x100000  # an address space of Linux
    return Tools(("riscv64-unknown-elf-gcc", *flags, *further), (emulator,), board)


def zig(system: str, *emulator: str) -> Tools:
    return Tools((sys.executable, "-m", "ziglang", "cc", "-target", system), emulator)


VECTORS = ("-cpu", "rv64,v=true,vlen=256,vext_spec=v1.0")
M4 = cortex("cortex-m4", "mps2-an386", 0, 0x20000000, 0x300000)
MACHINES = {
    ("thumbv6m-none-eabi", "cortex-m0"): cortex("cortex-m0", "microbit", 0, 0x20000000, 0x4000),
    ("thumbv7m-none-eabi", "cortex-m3"): cortex("cortex-m3", "mps2-an385", 0, 0x20000000, 0x300000),
    ("thumbv7em-none-eabihf", "cortex-m4"): M4,
    ("thumbv7em-none-eabihf", "cortex-m4 by lld"): M4,
    ("thumbv7em-none-eabi", "cortex-m4"): M4,
    ("thumbv7em-none-eabihf", "cortex-m7"): cortex(
        "cortex-m7", "mps2-an500", 0, 0x20000000, 0x300000
    ),
    ("thumbv8m.main-none-eabihf", "cortex-m33"): cortex(
        "cortex-m33", "mps2-an505", 0x10000000, 0x38000000, 0x300000
    ),
    ("thumbv8.1m.main-none-eabihf", "cortex-m55"): cortex(
        "cortex-m55", "mps3-an547", 0x10000000, 0x30000000, 0x80000
    ),
    ("riscv32-unknown-elf", "rv32imac"): riscv("rv32imac", "ilp32", "qemu-riscv32"),
    ("riscv32-unknown-elf", "rv32gc"): riscv("rv32gc", "ilp32d", "qemu-riscv32"),
    ("riscv64-unknown-elf", "rv64gc"): riscv("rv64gc", "lp64d", "qemu-riscv64"),
    ("riscv64-linux-gnu", "rv64gcv"): zig("riscv64-linux-musl", "qemu-riscv64", *VECTORS),
    ("aarch64-linux-gnu", "cortex-a53"): Tools(
        ("aarch64-linux-gnu-gcc", "-static"), ("qemu-aarch64",)
    ),
    ("x86_64-linux-gnu", "x86-64"): Tools(("gcc",), ()),
    ("wasm32-wasi", "wasm32"): zig("wasm32-wasi", "wasmtime"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("triple", "cpu"), MACHINES)
def test_results_are_those_of_this_machine(triple: str, cpu: str, tmp_path: Path) -> None:
    tools = MACHINES[triple, cpu]
    cpu, _, linker = cpu.partition(" by ")
    folder = _linker(tmp_path, linker) if linker else None
    _check(tools)
    random = np.random.default_rng(0)
    x = 4 * random.normal(size=37).astype(np.float32)
    d, signal = 4 * random.normal(size=37), random.integers(-128, 128, (1, 1960), np.int8)
    y, z = map(np.asarray, cvm.compile(FLOATS)(x, d))
    labels = np.asarray(cvm.compile(cvm.from_tflite(MODEL))(signal))
    (tmp_path / "floats.cvm").write_text(FLOATS)
    sources = {"floats": tmp_path / "floats.cvm", "speech": MODEL}
    for name, source in sources.items():
        target, header = (str(tmp_path / f"{name}.{end}") for end in ("a", "h"))
        command = ["build", str(source), "--triple", triple, "--cpu", cpu, "-o", target]
        assert cli.main([*command, "--header", header]) == 0
    arrays = {
        "x": x,
        "d": d,
        "signal": signal,
        "wanted_y": y,
        "wanted_z": z,
        "wanted_labels": labels,
    }
    text = [
        f"static const _Alignas(64) unsigned char {n}[] = {{{', '.join(map(str, v.tobytes()))}}};"
        for n, v in arrays.items()
    ]
    (tmp_path / "arrays.h").write_text("\n".join(text))
    code, data, size = tools.board
    is_bare = "none" in triple or "elf" in triple
    start = HOSTED if not is_bare else CORTEX if "eabi" in triple else RISCV
    (tmp_path / "main.c").write_text(f"#define FREE {int(is_bare)}\n{CALLS}{start}")
    (tmp_path / "link.ld").write_text(SECTIONS.format(code=code, data=data, size=size))
    command = [*tools.compiler, "-O1", "-w", "main.c", "floats.a", "speech.a", "-o", "run"]
    if triple.endswith("eabi"):
        command = [c.replace("=hard", "=soft") for c in command]
    command += ["-T", "link.ld"] * bool(size) + (["-B", f"{folder}/"] if folder else [])
    subprocess.run(command, check=True, timeout=300, cwd=tmp_path)
    if tools.emulator[:1] == ("wasmtime",):
        assert in_wasmtime(tmp_path / "run") == 0
        return
    done = subprocess.run(
        [*tools.emulator, str(tmp_path / "run")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.stdout + done.stderr).strip() == "same", done


def _check(tools: Tools) -> None:
    """Skip where a tool is missing."""
    if "ziglang" in tools.compiler:
        pytest.importorskip("ziglang")
    if tools.emulator[:1] == ("wasmtime",):
        pytest.importorskip("wasmtime")
    for tool in (tools.compiler[0], *tools.emulator[:1]):
        if tool != "wasmtime" and shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")


def _linker(folder: Path, name: str) -> Path:
    """A folder where compilers find another linker."""
    if (found := shutil.which(f"ld.{name}")) is None:
        pytest.skip(f"needs ld.{name}")
    (folder / "linker").mkdir()
    (folder / "linker" / "ld").symlink_to(found)
    return folder / "linker"


TAG_ABI_VFP_ARGS = 28
STRINGS = (4, 5)  # tags of strings, as are all odd ones from 33 on
SECTION_OF_ATTRIBUTES = 0x70000003


def attributes(image: bytes) -> dict[int, int]:
    """The numbers among the build attributes of an object file for Arm."""
    (start,) = struct.unpack_from("<I", image, 32)
    size, count = struct.unpack_from("<HH", image, 46)
    headers = [struct.unpack_from("<6I", image, start + n * size) for n in range(count)]
    at, length = next((h[4], h[5]) for h in headers if h[1] == SECTION_OF_ATTRIBUTES)
    place, end = (
        image.index(b"\0", at) + 1 + 5,
        at + length,
    )  # behind the vendor, and the file's tag and size
    found: dict[int, int] = {}
    while place < end:
        tag = image[place]  # tags and numbers are below 128
        if tag in STRINGS or (tag > 32 and tag % 2):
            place = image.index(b"\0", place) + 1
        else:
            found[tag] = image[place + 1]
            place += 2
    return found


@pytest.mark.parametrize("name", ["hello_world_int8", "simple_add_model", "micro_speech_quantized"])
@pytest.mark.parametrize("cpu", ["cortex-m0", "cortex-m4", "rv32imac"])
def test_an_int8_model_calls_no_floats(cpu: str, name: str, tmp_path: Path) -> None:
    target = tmp_path / "model.o"
    assert cli.main(["build", str(MODEL.with_stem(name)), "--cpu", cpu, "-o", str(target)]) == 0
    called = undefined(target.read_bytes())
    integers = {"__aeabi_lmul", "__aeabi_lasr", "__aeabi_llsl", "__aeabi_llsr", "__clzsi2"}
    assert called <= integers | {
        "__aeabi_uldivmod",
        "__aeabi_uidiv",
        "__aeabi_idiv",
        "memcpy",
        "memset",
    }


@pytest.mark.parametrize(
    ("triple", "cpu", "in_registers"),
    [
        ("thumbv7em-none-eabihf", "cortex-m4", True),
        ("thumbv7em-none-eabi", "cortex-m4", False),
        ("thumbv8m.main-none-eabihf", "cortex-m33", True),
        ("thumbv7m-none-eabi", "cortex-m3", False),
    ],
)
def test_objects_say_how_floats_are_passed(
    triple: str, cpu: str, in_registers: bool, tmp_path: Path
) -> None:
    source, target = tmp_path / "floats.cvm", tmp_path / "floats.o"
    source.write_text(ROUNDED)
    command = ["build", str(source), "--triple", triple, "--cpu", cpu, "-o", str(target)]
    assert cli.main(command) == 0
    assert (attributes(target.read_bytes()).get(TAG_ABI_VFP_ARGS) == 1) is in_registers


def test_registers_for_floats_have_to_be_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "floats.cvm"
    source.write_text(ROUNDED)
    command = [
        "build",
        str(source),
        "--triple",
        "thumbv7m-none-eabihf",
        "-o",
        str(tmp_path / "f.o"),
    ]
    assert cli.main(command) == 2
    said = capsys.readouterr().err
    assert "cortex-m3 does not have" in said and "'thumbv7m-none-eabi' passes them" in said
