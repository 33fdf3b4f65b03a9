"""Code built ahead of time: called from C, it gives what the compiled function gives."""

from __future__ import annotations

import ctypes
import platform
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cvm.jit.aot.interfaces import HEADERS
from cvm.jit.host_processor import host_features
from cvm.lowering.processor import LEVELS, named

import cvm
from cvm import cli
from cvm.commands import build

LINKER = next(filter(shutil.which, build.LINKERS), None)
linked = pytest.mark.skipif(LINKER is None, reason="nothing here links a shared library")

PROGRAM = """\
func @main(%x: tensor<?N x 3 x i32> {range = [-9, 9]}, %flags: tensor<?N x i1>) -> (tensor<?N x 2 x i32>, tensor<f32>) {
  %w = const dense<[[1, 0, 2], [0, 1, -1]]> : tensor<2x3xi32>
  %dense = cvm.dense %x, %w
  %y = cvm.relu %dense
  %mean = dali.div %y, 2.5
  %total = theano.sum %mean {dtype = f32}
  %seen = theano.sum %flags {dtype = f32}
  %t = dali.add %total, %seen
  return %y, %t
}

func @divide.by_2$(%int: tensor<4xi32>, %float: tensor<4xi32>) -> tensor<4xi32> {
  %q = dali.floordiv %int, %float
  %r = dali.mod %q, 7
  return %r
}

func @blur(%x: tensor<8x64x64xf32>) -> tensor<8x64x64xf32> {
  %m = theano.sum %x {axis = [2]}
  %s = theano.dimshuffle %m {new_order = [0, 1, "x"]}
  %y = dali.sub %x, %s
  %n = theano.sum %y {axis = [1]}
  %u = theano.dimshuffle %n {new_order = [0, "x", 1]}
  %z = dali.mul %u, %y
  return %z
}

graph @clock {
  %n = cog.field "n" init dense<0.0> : !cog.field<[], f32>
  %m = cog.add %n, 1
  cog.feedback %n, %m
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("p.cvm").write_text(PROGRAM)
    return tmp_path


def library(folder: Path, *arguments: str) -> ctypes.CDLL:
    """The library that `cvm build` made of the program."""
    assert cli.main(["build", "p.cvm", "-o", "libmodel.so", "--header", "model.h", *arguments]) == 0
    found = ctypes.CDLL(str(folder / "libmodel.so"))
    found.model_message.restype = ctypes.c_char_p
    return found


def pointers(*arrays: np.ndarray) -> list[ctypes.c_void_p]:
    assert all(a.flags.c_contiguous for a in arrays)
    return [ctypes.c_void_p(a.ctypes.data) for a in arrays]


@linked
@pytest.mark.parametrize("level", [0, 2])
def test_results_are_those_of_the_compiled_function(folder: Path, level: int) -> None:
    built = library(folder, "--entry", "main", "--entry", "blur", "--size", "N=5", f"-O{level}")
    rng = np.random.default_rng(0)
    x, flags = rng.integers(-9, 10, (5, 3), dtype=np.int32), rng.integers(0, 2, 5) == 1
    y, t = np.empty((5, 2), np.int32), np.empty((), np.float32)
    assert built.model_main(*pointers(x, flags, y, t)) == 0
    wanted = cvm.compile(PROGRAM, optimize=level)(x, flags)
    np.testing.assert_array_equal(y, wanted[0])
    assert t == wanted[1]
    image = rng.standard_normal((8, 64, 64), dtype=np.float32)
    blurred = np.empty_like(image)
    assert built.model_blur(*pointers(image, blurred)) == 0
    np.testing.assert_array_equal(blurred, cvm.compile(PROGRAM, "blur", optimize=level)(image))


@linked
def test_what_does_not_hold_is_a_status_with_a_message(folder: Path) -> None:
    built = library(folder, "--entry", "main", "--entry", "divide.by_2$", "--size", "?N=1")
    y, t = np.empty((1, 2), np.int32), np.empty((), np.float32)
    given = [np.array([[1, 10, 2]], np.int32), np.array([True]), y, t]
    status = built.model_main(*pointers(*given))
    assert built.model_message(status) == b"1: argument %x: expected values from -9 to 9"
    a, b, q = (
        np.array([8, 9, 10, 11], np.int32),
        np.array([1, 2, 0, 4], np.int32),
        np.empty(4, np.int32),
    )
    status = built.model_divide_by_2_(*pointers(a, b, q))
    assert (
        status > 0
        and built.model_message(status).startswith(b"13: ")
        and b"zero" in built.model_message(status)
    )
    b[2] = 5
    assert built.model_divide_by_2_(*pointers(a, b, q)) == 0 and q.tolist() == [1, 4, 2, 2]
    assert built.model_message(0) == b"" and built.model_message(-1) == b"out of memory"


@linked
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_c_program_takes_header_and_object(folder: Path) -> None:
    assert (
        cli.main(["build", "p.cvm", "-o", "d.o", "--header", "d.h", "--entry", "divide.by_2$"]) == 0
    )
    Path("main.c").write_text(
        '#include <stdio.h>\n#include "d.h"\n'
        "int main(void) {\n  int32_t a[] = {8, 9, 10, 11}, b[] = {1, 2, 5, 4}, q[4];\n"
        "  int32_t status = d_divide_by_2_(a, b, q);\n"
        '  printf("%d %d %d %d %s", q[0], q[1], q[2], q[3], d_message(status));\n}\n'
    )
    subprocess.run(
        [
            "cc",
            "-std=c99",
            "-Wall",
            "-Wextra",
            "-pedantic",
            "-Werror",
            "main.c",
            "d.o",
            "-o",
            "main",
        ],
        check=True,
    )
    assert subprocess.run(["./main"], capture_output=True, check=True).stdout == b"1 4 2 2 "


VERSIONS = "x86-64,x86-64-v2,haswell,x86-64-v4,cascadelake,znver5"


@linked
@pytest.mark.skipif(platform.machine() != "x86_64", reason="code for x86-64")
def test_the_version_of_this_processor_is_chosen_when_a_library_is_loaded(folder: Path) -> None:
    """The last whose features are there; all give the same."""
    built = library(folder, "--entry", "divide.by_2$", "--entry", "blur", "--cpu", VERSIONS)
    described = [named(name) for name in VERSIONS.split(",")]
    runs = [
        n for n, p in enumerate(described) if p and {*LEVELS[p.cpu], *p.features} <= host_features()
    ]
    assert ctypes.c_int32.in_dll(built, "model_version").value == max(runs)
    image = np.random.default_rng(0).standard_normal((8, 64, 64), dtype=np.float32)
    blurred = np.empty_like(image)
    assert built.model_blur(*pointers(image, blurred)) == 0
    np.testing.assert_array_equal(blurred, cvm.compile(PROGRAM, "blur")(image))
    a, b, q = (
        np.array([8, 9, 10, 11], np.int32),
        np.array([1, 2, 0, 4], np.int32),
        np.empty(4, np.int32),
    )
    status = built.model_divide_by_2_(*pointers(a, b, q))
    assert b"zero" in built.model_message(status)


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_a_cpp_program_takes_header_and_static_library(folder: Path) -> None:
    assert (
        cli.main(["build", "p.cvm", "-o", "libd.a", "--header", "d.hpp", "--entry", "divide.by_2$"])
        == 0
    )
    Path("main.cpp").write_text(
        '#include <array>\n#include <cstdio>\n#include "d.hpp"\n'
        "int main() {\n  std::array<int32_t, 4> a{8, 9, 10, 11}, q{};\n  int32_t b[]{1, 2, 5, 4};\n"
        "  int32_t status = d::divide_by_2_(a, b, q);\n"
        '  std::printf("%d %d %d %d %s", q[0], q[1], q[2], q[3], d::message(status));\n}\n'
    )
    subprocess.run(
        ["c++", "-std=c++20", "-Wall", "-Werror", "main.cpp", "-L.", "-ld", "-o", "main"],
        check=True,
    )
    assert subprocess.run(["./main"], capture_output=True, check=True).stdout == b"1 4 2 2 "


RUST = """mod d;
fn main() {
    let mut q = [0; 4];
    let status = d::divide_by_2_(&[8, 9, 10, 11], &[1, 2, 5, 4], &mut q);
    println!("{:?} {:?} {:?}", q, status, d::divide_by_2_(&[8; 4], &[0; 4], &mut [0; 4]));
}
"""


@pytest.mark.skipif(shutil.which("rustc") is None, reason="no Rust compiler")
def test_a_rust_program_takes_module_and_static_library(folder: Path) -> None:
    assert (
        cli.main(["build", "p.cvm", "-o", "libd.a", "--header", "d.rs", "--entry", "divide.by_2$"])
        == 0
    )
    Path("main.rs").write_text(RUST)
    subprocess.run(
        ["rustc", "-D", "warnings", "main.rs", "-L", ".", "-l", "static=d", "-o", "main"],
        check=True,
    )
    done = subprocess.run(["./main"], capture_output=True, check=True, text=True)
    assert done.stdout.startswith("[1, 4, 2, 2] Ok(()) Err(") and "zero" in done.stdout


def test_the_caller_gives_the_workspace_where_there_is_no_system(folder: Path) -> None:
    known = ["--entry", "blur", "--triple", "thumbv7em-none-eabihf", "-o", "m.o"]
    assert cli.main(["build", "p.cvm", *known, *(f"--header=m{end}" for end in HEADERS)]) == 0
    (size,) = re.findall("#define M_BLUR_WORKSPACE ([0-9]+)", Path("m.h").read_text())
    assert int(size) >= 8 * 64 * 4
    assert (
        "int32_t m_blur(const float *in_x, float *out_z, void *workspace);"
        in Path("m.h").read_text()
    )
    spans = "std::span<const float, 32768> in_x, std::span<float, 32768> out_z, void *workspace"
    assert f"inline int32_t blur({spans})" in Path("m.hpp").read_text()
    assert f"workspace: &mut Workspace<{size}>" in Path("m.rs").read_text()


def test_a_header_takes_no_name_as_it_stands(folder: Path) -> None:
    assert cli.main(["build", "p.cvm", "-o", "2 */int.o", "--entry", "blur"]) == 2  # no such folder
    assert (
        cli.main(["build", "p.cvm", "-o", "int x;.o", "--header", "h.h", "--entry", "divide.by_2$"])
        == 0
    )
    text = Path("h.h").read_text()
    assert (
        "int32_t int_x__divide_by_2_(const int32_t *in_int, const int32_t *in_float, "
        "int32_t *out_r);" in text
    )


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (
            "-o m.o",
            1,
            "error[build]: %x is tensor<?N x 3 x i32>, but what is built ahead of time has "
            "known sizes; settle ?N",
        ),
        ("-o m.o --entry clock", 1, "@clock is a graph; functions are built ahead of time"),
        ("-o m.o --entry none", 1, "the program has no function @none"),
        (
            "-o m.exe --entry blur",
            2,
            "-o is an object file, .o, a static library, .a, or a shared library",
        ),
        (
            "-o m.o --entry blur --header m.txt",
            2,
            "--header is a file for C, .h, for C++, .hpp, or for Rust, .rs; got m.txt",
        ),
        (
            "-o m.o --entry blur --cpu x86-64-v2,x86-64-v3",
            2,
            "several processors make several object files; -o makes a library",
        ),
        (
            "-o m.a --entry blur --cpu x86-64-v2,native",
            1,
            "cannot be chosen when a library is loaded",
        ),
        ("-o m.a --entry blur --cpu x86-64-v2,cortex-a53", 1, "are of aarch64 and of x86_64"),
        ("-o m.o --size N", 2, "--size N: expected NAME=NUMBER, such as N=16"),
        (f"-o m.o --size N={'9' * 5000}", 2, "expected NAME=NUMBER, such as N=16"),
        ("-o m.o --size N=4 --size ?N=5", 2, "--size ?N=5: ?N is given twice"),
        ("-o m.o --size N=4 --size M=5", 2, "--size M=5: no argument of @main has a size ?M"),
    ],
)
def test_what_cannot_be_built(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: str, status: int, said: str
) -> None:
    assert cli.main(["build", "p.cvm", *arguments.split()]) == status
    assert said in capsys.readouterr().err


def test_a_library_needs_a_linker(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    assert cli.main(["build", "p.cvm", "-o", "m.so", "--entry", "blur"]) == 1
    said = capsys.readouterr().err
    assert (
        f"none of {', '.join(build.LINKERS)} is there; -o m.a makes a static library without one"
        in said
    )


KERNELS = """kernel @scaled(%x: tensor<f64>, %by: tensor<f64>) -> (%y: tensor<f64>) {
  %y = %x * %by
}

kernel @update(%a: tensor<f64>, %x: tensor<?N x f64>, %z: tensor<[2 * ?N] x f64>)
    -> (%y: tensor<?N x f64> view of %x, %s: tensor<f64>) {
  for %i in 0..?N {
    alloc %by: f64
    call @scaled(%z[%i], %a) -> (%by)
    %y[%i] = %y[%i] + %by * f64(?N)
  }
  %s = %y[2]
}
"""


@pytest.mark.skipif(LINKER is None, reason="no linker")
def test_kernels_in_text_for_c(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kernels are one function of C, which updates what they do; sizes are settled."""
    program, header = tmp_path / "k.loops", tmp_path / "k.h"
    program.write_text(KERNELS)
    output = ["-o", str(tmp_path / "libmodel.so"), "--header", str(header)]
    assert cli.main(["build", str(program), *output, "--size", "N=3"]) == 0
    declared = "double *in_a, double *inout_x, const double *in_z, double *out_s)"
    assert f"int32_t model_update(const {declared};" in header.read_text()
    update = ctypes.CDLL(str(tmp_path / "libmodel.so")).model_update
    a, x, z, s = np.array(2.0), np.arange(3.0), np.arange(6.0), np.zeros(())
    assert update(*pointers(a, x, z, s)) == 0
    assert x.tolist() == [0.0, 7.0, 14.0] and s == 14.0
    for wrong, said in (
        ([], "settle ?N"),
        (["--size", "M=3"], "?M"),
        (["--size", "N=3", "--entry", "update"], "--entry: kernels are built together"),
        (["--size", "N=3", "--emit", "c"], "-o is a file of C"),
    ):
        assert cli.main(["build", str(program), *output, *wrong]) in (1, 2)
        assert said in capsys.readouterr().err
