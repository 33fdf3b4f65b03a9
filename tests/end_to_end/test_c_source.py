"""C99 of integer programs, compiled by the system's C compiler, gives the bits of the reference."""

from __future__ import annotations

import ctypes
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cortex_m import BARE, LINKED
from cvm.dialect.ir.module import Module
from cvm.dialect.kernel_ir.execution_plan import Plan
from cvm.dialect.kernel_ir.expressions import Cast, Index, Tensor, apply, constant, select
from cvm.dialect.kernel_ir.loops import (
    Alloc,
    Block,
    Break,
    Continue,
    Fail,
    For,
    If,
    Kernel,
    Store,
    While,
    accumulator,
    assign,
)
from cvm.dialect.kernel_ir.scalar_functions import SCALARS
from cvm.dialect.types.tensor_types import (
    I1,
    I8,
    I16,
    I32,
    I64,
    UI8,
    UI16,
    UI32,
    UI64,
    ElementType,
)
from cvm.jit.aot.c_source import c_source
from cvm.jit.c.c99 import C99
from cvm.jit.c.emit import File

import cvm
from cvm import cli

ROOT = Path(__file__).parents[2]
STRICT = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror")
compiled = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
PROGRAM = """\
func @main(%x: tensor<1x2x6x6xi32> {range = [-128, 127]}) -> (tensor<1x5xi32>, tensor<1x3x3x3xi32>) {
  %w = const dense<WEIGHTS> : tensor<3x2x3x3xi32>
  %v = const dense<OTHERS> : tensor<5x27xi32>
  %sum = cvm.conv2d %x, %w {padding = [1, 1]}
  %short = cvm.cvm_right_shift %sum {precision = 8, shift_bit = 6}
  %int = cvm.relu %short
  %for = cvm.max_pool2d %int {pool_size = [2, 2], strides = [2, 2]}
  %rows = cvm.reshape %for {target_shape = [1, 27]}
  %y = cvm.dense %rows, %v
  return %y, %for
}

func @divide.by(%int8_t: tensor<4xi32>, %max_i32: tensor<4xi32>) -> tensor<4xi32> {
  %status = dali.floordiv %int8_t, %max_i32
  %r = dali.mod %status, 7
  return %r
}

func @half(%x: tensor<4xi32>) -> tensor<4xi1> {
  %h = dali.mul %x, 2
  %f = dali.mul %h, 0.5
  %y = dali.lt %f, 3
  return %y
}

func @t(%x: tensor<4xi32>) { return %x }
func @i32(%x: tensor<4xi32>) { return %x }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    random = np.random.default_rng(0)
    weights, others = (
        random.integers(-128, 128, shape).tolist() for shape in ((3, 2, 3, 3), (5, 27))
    )
    text = PROGRAM.replace("WEIGHTS", str(weights)).replace("OTHERS", str(others))
    monkeypatch.chdir(tmp_path)
    Path("p.cvm").write_text(text)
    return tmp_path


def library(folder: Path, source: str, *flags: str) -> ctypes.CDLL:
    command = ["cc", *STRICT, *flags, "-shared", "-fPIC", "-o", "lib.so", source]
    subprocess.run(command, check=True, cwd=folder)
    return ctypes.CDLL(str(folder / "lib.so"))


def pointers(*arrays: np.ndarray) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(a.ctypes.data) for a in arrays]


@compiled
@pytest.mark.parametrize("arena", [[], ["--arena"]])
def test_a_network_gives_the_bits_of_the_reference(
    folder: Path, arena: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    entries = ["--entry", "main", "--entry", "divide.by"]
    assert cli.main(["build", "p.cvm", *entries, "--emit", "c", "-o", "net.c", *arena]) == 0
    assert re.match(
        r"net.c: RAM: \d+ bytes of static buffers; flash: 189 bytes", capsys.readouterr().out
    )
    built = library(folder, "net.c", "-O2")
    x = np.random.default_rng(1).integers(-128, 128, (1, 2, 6, 6), np.int32)
    y, z = np.empty((1, 5), np.int32), np.empty((1, 3, 3, 3), np.int32)
    for _ in range(2):  # buffers keep nothing
        assert built.net_main(*pointers(x, y, z)) == 0
        for found, wanted in zip(
            (y, z), cvm.compile(cvm.load("p.cvm"), target="reference")(x), strict=True
        ):
            np.testing.assert_array_equal(found, wanted)
    built.net_message.restype = ctypes.c_char_p
    x[0, 1, 2, 3] = 128
    status = built.net_main(*pointers(x, y, z))
    assert built.net_message(status) == b"1: argument %x: expected values from -128 to 127"
    a, b, q = (np.array(v, np.int32) for v in ([8, -9, 10, -(2**31)], [1, 2, 0, -1], [0] * 4))
    status = built.net_divide_by(*pointers(a, b, q))
    assert b"zero" in built.net_message(status) and built.net_message(0) == b""
    b[2] = 5
    assert built.net_divide_by(*pointers(a, b, q)) == 0
    wanted = cvm.compile(cvm.load("p.cvm"), "divide.by", target="reference")(a, b)
    np.testing.assert_array_equal(q, wanted)


@compiled
def test_an_int8_model_gives_the_bits_of_the_reference(tmp_path: Path) -> None:
    """TensorFlow Lite's sine model at each of its inputs; its scales are integers."""
    module = cvm.from_tflite(ROOT / "tests" / "models" / "tflite" / "hello_world_int8.tflite")
    source = c_source(module, ["main"], "sine")
    assert "quant.dense" in source.text
    (tmp_path / "sine.c").write_text(source.text)
    built, reference = library(tmp_path, "sine.c"), cvm.compile(module, target="reference")
    for n in range(-128, 128):
        x, y = np.full((1, 1), n, np.int8), np.empty((1, 1), np.int8)
        assert built.sine_main(*pointers(x, y)) == 0 and y == reference(x)


def carried(x: Any) -> Any:
    return cvm.fori_loop(0, 5, lambda i, c: (c[1] + i, c[0] * 3), (x, x - 3))


def updated(x: Any) -> Any:
    return cvm.fori_loop(0, 5, lambda i, c: c.at[i].add(i * 2), x)


def repeated(x: Any) -> Any:
    return cvm.while_loop(lambda c: c.sum() < 1000, lambda c: c * 2 + 1, x)


def scanned(x: Any) -> Any:
    return cvm.scan(lambda c, v: (c * 2 + v, (c - v).max()), x, x.reshape(8, 1) + x)


@compiled
def test_loops_over_programs(tmp_path: Path) -> None:
    x = np.arange(8, dtype=np.int32)
    modules = [cvm.compile(f).trace(x) for f in (carried, updated, repeated, scanned)]
    sources = [
        c_source(module, [*module.functions][:1], f"p{n}", arena=True)
        for n, module in enumerate(modules)
    ]
    for n, source in enumerate(sources):
        (tmp_path / f"p{n}.c").write_text(source.text)
    built = library(tmp_path, "p0.c", "p1.c", "p2.c", "p3.c")
    for module, source in zip(modules, sources, strict=True):
        wanted = cvm.compile(module, next(iter(module.functions)), target="reference")(x)
        results = [np.asarray(w) for w in (wanted if isinstance(wanted, tuple) else (wanted,))]
        found = [np.full_like(w, -1) for w in results]
        assert getattr(built, source.interface.functions[0][0])(*pointers(x, *found)) == 0
        for one, other in zip(found, results, strict=True):
            np.testing.assert_array_equal(one, other)


def test_an_arena_takes_less_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = str(ROOT / "examples" / "digits" / "digits.cvm")
    sizes = []
    for more in ([], ["--arena"]):
        arguments = ["--size", "N=1", "--emit", "c", "-o", "net.c", *more]
        assert cli.main(["build", program, *arguments]) == 0
        sizes.append(int(re.findall(r"RAM: (\d+) byte", Path("net.c").read_text())[0]))
    assert sizes == [1024 + 2048 + 512, 1024 + 2048]


VALUES = {
    e: np.array([*e.limits, 0, 1, 2, 3, 5, 7, 100, e.limits[1] - 1, e.limits[0] // 2], e.dtype)
    for e in (I8, I16, I32, I64, UI8, UI16, UI32, UI64)
}
SHIFTS = ("shl", "shr")


@compiled
def test_scalar_functions_are_those_of_the_table(tmp_path: Path) -> None:
    """Every function of every type on ends of their ranges, with undefined behavior trapped."""
    plans, wanted = [], []
    for (function, kind), element in ((k, e) for k in C99.rows for e in VALUES):
        if element.kind != kind or function == "select":
            continue
        values, row = VALUES[element], SCALARS[function]
        a, b = (v.ravel() for v in np.meshgrid(values, values))
        b = b % element.dtype.type(element.bits) if function in SHIFTS else b
        arrays = [np.ascontiguousarray(v) for v in (a, b)][: row.arity]
        with np.errstate(all="ignore"):
            result = np.asarray(row.numpy(*arrays))
        plans.append(pointwise(function, element, a.size, row.arity))
        wanted.append((arrays, result))
    for source in VALUES:
        for target in (*VALUES, I1):
            plans.append(pointwise("", source, VALUES[source].size, 1, target))
            wanted.append(([VALUES[source]], VALUES[source].astype(target.dtype)))
    file = File(Module({}), plans, [], arena=False)
    for n, plan in enumerate(plans):
        arrays = dict(zip((*plan.arguments, *plan.results), "abc", strict=False))
        types = [C99.memory_type(t.element) for t in arrays]
        parameters = ", ".join(f"{t} *{name}" for t, name in zip(types, "abc", strict=False))
        file.define(plan, f"int32_t f{n}({parameters});\nint32_t f{n}({parameters})", arrays)
    (tmp_path / "f.c").write_text(file.text())
    traps = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
    built = library(tmp_path, "f.c", *traps, "-w")
    for n, (arrays, result) in enumerate(wanted):
        found = np.empty(result.shape, result.dtype)
        assert getattr(built, f"f{n}")(*pointers(*arrays, found)) == 0
        np.testing.assert_array_equal(found, result, plans[n].name)


def pointwise(
    function: str, element: ElementType, size: int, arity: int, to: ElementType = I1
) -> Plan:
    """A plan of one kernel: a function of each element of arrays, or their conversion."""
    i = Index("i", size)
    inputs = [Tensor(name, (size,), element) for name in "xz"[:arity]]
    value = apply(function, *(t[i] for t in inputs)) if function else Cast(inputs[0][i], to)
    y = Tensor("y", (size,), value.type)
    name = f"{function or 'to'}_{to if not function else ''}_{element}"
    kernel = Kernel(name, (*inputs, y), (For(i, (Store(y, (i,), value),)),))
    return Plan(name, tuple(inputs), (y,), {}, (kernel,))


@compiled
def test_jumps_and_loops_without_bounds(tmp_path: Path) -> None:
    """The lengths of Collatz sequences: negative numbers are left out, 77 is an error."""
    i, x, y = Index("i", 6), Tensor("x", (6,), I32), Tensor("y", (6,), I32)
    n, length = accumulator("n", I32), accumulator("length", I32)
    following = select(apply("floormod", n[()], constant(2, I32)).eq(0), n[()] >> 1, n[()] * 3 + 1)
    steps: Block = (
        If(length[()] > 50, (Break(),)),
        assign(n, following),
        assign(length, length[()] + 1),
    )
    body: Block = (
        If(x[i] < 0, (Continue(),)),
        If(x[i].eq(77), (Fail("77 is seen"),)),
        *(s for t, v in ((n, x[i]), (length, constant(0, I32))) for s in (Alloc(t), assign(t, v))),
        While(n[()].ne(1), steps),
        Store(y, (i,), length[()]),
    )
    plan = Plan("k", (x,), (y,), {}, (Kernel("k", (x, y), (For(i, body),)),))
    file = File(Module({}), [plan], [], arena=False)
    head = "int32_t f(int32_t *a, int32_t *b)"
    file.define(plan, f"{head};\n{head}", {x: "a", y: "b"})
    (tmp_path / "f.c").write_text(file.text())
    built = library(tmp_path, "f.c")
    given, found = np.array([1, 7, -3, 27, 8, 3], np.int32), np.full(6, -1, np.int32)
    assert built.f(*pointers(given, found)) == 0 and found.tolist() == [0, 16, -1, 51, 3, 7]
    given[2:4], found[:] = 77, -1
    assert built.f(*pointers(given, found)) == 1 and found.tolist() == [0, 16, -1, -1, -1, -1]


def test_floats_are_refused_where_they_are_computed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["build", "p.cvm", "--entry", "half", "--emit", "c", "-o", "net.c"]) == 1
    said = capsys.readouterr().err
    assert (
        "p.cvm:21:8: error[build]: dali.mul computes in f32" in said and not Path("net.c").exists()
    )
    Path("f.cvm").write_text(
        "func @main(%x: tensor<2xi32>) {\n  %c = const dense<[0.5, 1.5]> : tensor<2xf32>\n"
        '  %y = theano.elemwise %x, %c {scalar_op = "lt"}\n  return %y\n}'
    )
    assert cli.main(["build", "f.cvm", "--emit", "c", "-o", "net.c"]) == 1
    assert "f.cvm:3:8: error[build]: theano.elemwise computes in f" in capsys.readouterr().err
    Path("f.cvm").write_text("func @main(%x: tensor<4xf32>) { return %x }")
    assert cli.main(["build", "f.cvm", "--emit", "c", "-o", "net.c"]) == 1
    assert "%x is tensor<4xf32>; C is emitted for integers alone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--emit c -o net.o", "-o is a file of C, .c; got net.o"),
        ("-o net.c", "got net.c; --emit c writes C"),
        ("--emit c --cpu native -o net.c", "--cpu, --triple: the C of --emit c is for any"),
        ("--arena -o net.o", "--arena: only C has static buffers"),
        ("--emit c --entry t -o int32.c", "@t would be int32_t, a name of C"),
        ("--emit c --entry t -o max.c --entry i32", "@i32 would be max_i32, a name of C"),
    ],
)
def test_what_the_command_refuses(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: str, said: str
) -> None:
    assert cli.main(["build", "p.cvm", *arguments.split()]) == (1 if "@" in said else 2)
    assert said in capsys.readouterr().err


def test_names_become_identifiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of C, names of helpers, and names that end comments or strings."""
    monkeypatch.chdir(tmp_path)
    text = "func @long(%while: tensor<4xi32>, %x.$: tensor<4xi32>) -> tensor<4xi32> {\n"
    text += "  %within_i32 = dali.mul %while, %x.$\n  %INT8_MAX = cvm.relu %within_i32\n"
    text += "  %unix = dali.max %INT8_MAX, %while\n  return %unix\n}\n"
    name = '*" ??' + chr(47) + "n.cvm"
    folder = tmp_path / '*"'
    folder.mkdir()
    (folder / "p.cvm").write_text(text)
    assert cli.main(["build", str(folder / "p.cvm"), "--emit", "c", "-o", "2;int.c"]) == 0
    found = Path("2;int.c").read_text()
    assert "int32_t cvm_2_int_long(const int32_t *in_while, const int32_t *in_x__" in found
    assert '*"' not in found and name not in found
    if shutil.which("cc"):
        subprocess.run(["cc", *STRICT, "-c", "2;int.c", "-o", "n.o"], check=True)


@pytest.mark.parametrize(
    ("language", "file"), [("c", "main.c"), ("cpp", "main.cpp"), ("rust", "main.rs")]
)
def test_the_programs_of_the_page(
    language: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The programs of docs/deploy.md call the network as it is built there, and the kernel that it
    shows is that.
    """
    linker = {"c": "cc", "cpp": "c++", "rust": "rustc"}[language]
    if shutil.which(linker) is None or shutil.which("cc") is None:
        pytest.skip(f"needs {linker}")
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    (commands,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    program, *excerpts = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    Path(file).write_text(program)
    command, compiling, running = commands.splitlines()
    more = [f"--header=digits{end}" for end in (".hpp", ".rs")]
    assert cli.main([*shlex.split(command)[1:], *more]) == 0
    assert all(e in Path("digits.c").read_text() for e in excerpts)
    if language == "c":
        subprocess.run(shlex.split(compiling), check=True)
    else:
        subprocess.run(["cc", "-O1", "-c", "digits.c"], check=True)
        flags = {"cpp": ("-std=c++20", "-Wall", "digits.o"), "rust": ("-C", "link-arg=digits.o")}
        subprocess.run([linker, *flags[language], file, "-o", "main"], check=True)
    image = np.zeros((1, 1, 8, 8), np.int32)
    if language == "c":
        image.reshape(-1)[10:51:8] = 127
    done = subprocess.run(running, check=True, capture_output=True, text=True)
    wanted = cvm.compile(cvm.load(ROOT / "examples" / "digits" / "digits.cvm"), target="reference")
    assert [*map(int, done.stdout.split())] == np.asarray(wanted(image)).ravel().tolist()


CALL = """#include "digits.h"
#include "arrays.h"
static int differ(void) {
  static int32_t y[10];
  if (digits_main((const int32_t *)x, y)) return 1;
  for (unsigned n = 0; n < sizeof y; ++n) if (((unsigned char *)y)[n] != wanted[n]) return 2;
  return 0;
}
void *memset(void *to, int byte, unsigned n) { for (char volatile *p = to; n--; ) *p++ = byte; return to; }
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_digits_on_a_microcontroller(
    level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network of examples/digits on qemu's Cortex-M4, in less than 30 kB of code."""
    for tool in ("arm-none-eabi-gcc", "qemu-system-arm"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    monkeypatch.chdir(tmp_path)
    program = str(ROOT / "examples" / "digits" / "digits.cvm")
    arguments = [
        "--size",
        "N=1",
        "--emit",
        "c",
        "--arena",
        "-o",
        "digits.c",
        "--header",
        "digits.h",
    ]
    assert cli.main(["build", program, *arguments]) == 0
    with np.load(ROOT / "examples" / "digits" / "test.npz") as held_back:
        x = held_back["images"][:1].reshape(1, 1, 8, 8).astype(np.int32)
    wanted = np.asarray(cvm.compile(cvm.load(program), target="reference")(x))
    text = [
        f"static const _Alignas(8) unsigned char {n}[] = {{{', '.join(map(str, v.tobytes()))}}};"
        for n, v in (("x", x), ("wanted", wanted))
    ]
    Path("arrays.h").write_text("\n".join(text))
    Path("main.c").write_text(CALL + BARE)
    Path("link.ld").write_text(LINKED)
    compiler = ["arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", level]
    subprocess.run([*compiler, *STRICT, "-c", "digits.c"], check=True)
    sizes = subprocess.run(
        ["arm-none-eabi-size", "digits.o"], check=True, capture_output=True, text=True
    )
    constants = int(re.findall(r"flash: (\d+)", Path("digits.c").read_text())[0])
    assert int(sizes.stdout.splitlines()[1].split()[0]) - constants < 30_000
    link = ["-w", "-nostdlib", "-T", "link.ld", "main.c", "digits.o", "-lgcc", "-o", "run"]
    subprocess.run([*compiler, *link], check=True)
    emulator = [
        "qemu-system-arm",
        "-M",
        "mps2-an386",
        "-nographic",
        "-semihosting",
        "-kernel",
        "run",
    ]
    done = subprocess.run(
        emulator, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100
    )
    assert (done.stdout + done.stderr).strip() == "same", done
