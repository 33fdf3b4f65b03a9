"""The command line: what it prints, where, and its exit status."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from cvm.lowering.clocked_plan import StepPlan
from cvm.lowering.pipeline import PASSES, PIPELINES, TARGETS

import cvm
from cvm import cli
from cvm.terminal.diagnostics import SHOWN

ROOT = Path(__file__).parents[2]

ADD = """\
func @main(%x: tensor<2x3xi32>, %y: tensor<2x3xi32>) -> tensor<2x3xi32> {
  %sum = cvm.elemwise_add %x, %y
  return %sum
}
"""
OPEN = """\
func @main(%x: tensor<?N x 2 x i32> {range = [5, 6]}, %y: tensor<?N x 2 x i32>) {
  %sum = cvm.elemwise_add %x, %y
  return %sum, %x
}
"""
WRONG = """\
func @main(%x: tensor<2xi32>) {
  %y = cvm.relux %x
  %z = cvm.relu %q
  return %y
}
"""


class Said(NamedTuple):
    status: int
    out: str
    err: str


Command = Callable[..., Said]


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Runs `cvm` in an empty folder; `stdin` is its standard input."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, stdin: str | bytes = "") -> Said:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return Said(cli.main(arguments), *capsys.readouterr())

    Path("add.cvm").write_text(ADD)
    Path("open.cvm").write_text(OPEN)
    Path("wrong.cvm").write_text(WRONG)
    return run


def arrays() -> None:
    np.save("x.npy", np.arange(6, dtype=np.int32).reshape(2, 3))
    np.savez("xy.npz", x=np.ones((2, 3), np.int32), y=np.full((2, 3), 7, np.int32))


def test_run_takes_arrays_by_name(command: Command) -> None:
    arrays()
    said = command(
        "run", "add.cvm", "--inputs", "xy.npz", "--input", "x=x.npy", "--output", "out.npz"
    )
    assert said == (0, "%sum: tensor<2x3xi32>\n  [[7, 8, 9],\n   [10, 11, 12]]\n", "")
    with np.load("out.npz") as out:
        assert out.files == ["sum"]
        assert out["sum"].dtype == np.int32 and out["sum"].tolist() == [[7, 8, 9], [10, 11, 12]]


def test_a_constant_of_one_number_is_written_as_that_number(command: Command) -> None:
    for numbers, written in (("[7, 7, 7]", "dense<7>"), ("[7, 8, 7]", "dense<[7, 8, 7]>")):
        constant = f"%c = const dense<{numbers}> : tensor<3xi32>"
        program = (
            f"func @main(%x: tensor<3xi32>) {{\n{constant}\n%y = cvm.broadcast_add %x, %c\n"
            f"return %y\n}}\n"
        )
        said = command("lower", "-", "--to", "linalg", stdin=program)
        assert said.status == 0 and f"{written} : tensor<3xi32>" in said.out


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_random_inputs_are_those_of_their_seed(command: Command, target: str) -> None:
    first, again, other = (
        command("run", "open.cvm", "--random-inputs", seed, "--target", target) for seed in "112"
    )
    assert first == again and first.out != other.out
    assert first.err == "sizes of %x left open, here ?N = 4\n"
    assert "%x: tensor<4x2xi32>" in first.out and set(first.out.partition("%x:")[2]) <= set(
        "56tensor<4x2xi32> [],\n"
    )


def test_given_arrays_settle_sizes_of_random_ones(command: Command) -> None:
    arrays()
    np.save("tall.npy", np.full((9, 2), 5, np.int32))
    said = command("run", "open.cvm", "--input", "x=tall.npy", "--random-inputs", "0")
    assert said.status == 0 and "%sum: tensor<9x2xi32>" in said.out and said.err == ""


def test_digest_is_of_type_and_elements(command: Command) -> None:
    import hashlib

    arrays()
    said = command("run", "add.cvm", "--inputs", "xy.npz", "--digest")
    elements = np.full((2, 3), 8, "<i4").tobytes()
    assert hashlib.sha256(b"tensor<2x3xi32>\n" + elements).hexdigest() in said.out


def test_run_says_how_long_it_took(command: Command) -> None:
    assert "compiled in " in command("run", "add.cvm", "--random-inputs", "0", "--time").out


def test_profile_lists_the_kernels(command: Command) -> None:
    said = command("run", "open.cvm", "--random-inputs", "0", "--profile")
    heading, kernel, total = said.out.splitlines()[-3:]
    assert heading.split() == ["time", "share", "GB/s", "G", "op/s", "kernel", "writes"]
    assert "100.0%" in kernel and "%sum: 8xi32" in kernel and " in 1 kernel, " in total
    refused = command(
        "run", "open.cvm", "--random-inputs", "0", "--profile", "--target", "reference"
    )
    assert refused.status == 2 and "--profile is for the target cpu" in refused.err


def test_results_to_standard_output(command: Command) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "cvm",
            "run",
            str(Path("add.cvm").resolve()),
            "--random-inputs",
            "3",
            "--output",
            "-",
        ],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    with np.load(io.BytesIO(done.stdout)) as out:
        assert out["sum"].shape == (2, 3)
    assert b"%sum: tensor<2x3xi32>" in done.stderr


def test_large_results_are_shown_by_their_first_elements(command: Command) -> None:
    text = "func @main(%x: tensor<8x9xi32> {range = [4, 4]}) {\n  return %x\n}\n"
    assert command("run", "-", "--random-inputs", "0", stdin=text).out == (
        "%x: tensor<8x9xi32>\n  4, 4, 4, 4, 4, 4, 4, 4, ... (72 values, from 4 to 4)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("run add.cvm", "no array for %x, %y: it takes %x: tensor<2x3xi32>, %y: tensor<2x3xi32>"),
        ("run add.cvm --inputs x.npy", "x.npy holds one array"),
        ("run add.cvm --input x=xy.npz", "xy.npz holds several arrays"),
        ("run add.cvm --input x=none.npy", "none.npy cannot be read: no such file or directory"),
        ("run add.cvm --input x=add.cvm", "add.cvm cannot be read: not an .npy or .npz file"),
        ("run add.cvm --input z=x.npy", "@main has no argument %z; it takes %x: tensor<2x3xi32>"),
        ("run add.cvm --input x.npy", "expected NAME=FILE or NAME=NUMBERS"),
        ("run add.cvm --input x=x.npy --input %x=x.npy", "--input %x=x.npy: x is given twice"),
        ("run add.cvm --random-inputs -1", "expected a seed of at least 0, got -1"),
        (
            "run add.cvm --random-inputs 0 --output no/folder.npz",
            "no/folder.npz cannot be written: no such file or directory",
        ),
        ("run add.cvm --threads 0", "--threads 0: "),
        ("run add.cvm --target tpu", "unknown target 'tpu'; the targets are cpu, "),
        (
            "lower add.cvm --to loops --ranges",
            "--ranges shows the ranges of a program's values: it goes with --to graph",
        ),
        (
            "lower add.cvm --to wasm",
            "unknown stage 'wasm'; the stages are graph, mlir, linalg, formulas, loops, ",
        ),
        ("run add.cvm -O1", "invalid choice: 1 (choose from 0, 2)"),
        ("ops cvm.conv2", "no dialect or operator cvm.conv2; did you mean cvm.conv2d"),
        ("frobnicate", "invalid choice"),
        ("check add.cvm --jsn", "unrecognized arguments: --jsn; did you mean --json"),
        (
            "run add.cvm --random-inputs 0 --limits memory=x",
            "--limits memory=x: a limit is a number",
        ),
        ("build add.cvm -o m.o --triple foo", "--triple: unknown cpu 'foo'"),
        ("build add.cvm -o m.o --cpu foo", "--cpu: unknown cpu 'foo'"),
        ("test none", "there is no file or folder none"),
        ("", "required"),
    ],
)
def test_a_wrong_command_line_is_status_2(command: Command, arguments: str, said: str) -> None:
    arrays()
    found = command(*arguments.split())
    assert found.status == 2 and said in found.err and found.out == ""


def test_a_program_that_fails_is_status_1(command: Command) -> None:
    np.save("wide.npy", np.zeros((2, 4), np.int32))
    for arguments, said in {
        "run no.cvm": "no.cvm",
        "run add.cvm --random-inputs 0 --entry other": "no function @other; it has @main",
        "import add.cvm": "a model is .onnx, .tflite, .tosa or else CVM-Runtime's graph in JSON",
        "run add.cvm --random-inputs 0 --input x=wide.npy": (
            "add.cvm:1:12: error[call.argument]: argument %x: expected tensor<2x3xi32>, "
            "got tensor<2x4xi32>"
        ),
    }.items():
        found = command(*arguments.split())
        assert (
            found.status == 1
            and said in found.err
            and found.err.endswith("1 error\n")
            and found.out == ""
        )


def test_check_warns_of_overflows(command: Command) -> None:
    Path("open.cvm").write_text(OPEN.replace("elemwise_add %x, %y", "elemwise_add %x, %x"))
    assert command("check", "--overflow", "open.cvm") == (
        0,
        "open.cvm: ok, 1 function, 1 operation\n",
        "",
    )
    found = command("check", "--overflow", "add.cvm", "open.cvm")
    assert found.status == 1 and found.out.count(": ok, ") == 2
    assert found.err.splitlines() == [
        "add.cvm:2:10: warning[cvm.elemwise_add.overflow]: the sum fits i32, [-2147483648, "
        "2147483647], "
        "but it may reach [-4294967296, 4294967294]",
        "    %sum = cvm.elemwise_add %x, %y",
        "           ^~~~~~~~~~~~~~~~",
        "1 possible overflow",
    ]


def test_lower_shows_ranges(command: Command) -> None:
    Path("open.cvm").write_text(OPEN.replace("elemwise_add %x, %y", "elemwise_add %x, %x"))
    found = command("lower", "open.cvm", "--to", "graph", "--ranges")
    assert found.status == 0 and "  %sum = cvm.elemwise_add %x, %x  // [10, 12]\n" in found.out
    assert command("lower", "-", "--to", "graph", "--ranges", stdin=found.out) == found
    assert command("lower", "-", "--to", "graph", stdin=found.out) == command(
        "lower", "open.cvm", "--to", "graph"
    )


def test_check_says_every_mistake_and_their_count(command: Command) -> None:
    found = command("check", "wrong.cvm", "add.cvm")
    assert found.status == 1 and found.out == "add.cvm: ok, 1 function, 1 operation\n"
    assert (
        "wrong.cvm:2:8: error[op.unknown]" in found.err
        and "wrong.cvm:3:17: error[value.undefined]" in found.err
    )
    assert found.err.endswith("\n2 errors\n")


def test_many_mistakes_are_cut_short(command: Command) -> None:
    Path("many.cvm").write_text("func @main() {\n" + "  %y = cvm.relu %x\n" * 300 + "  return\n}\n")
    found = command("check", "many.cvm")
    assert found.err.count("error[") == SHOWN and found.err.endswith(
        f"errors, the first {SHOWN} shown\n"
    )


def test_every_stage_is_shown(command: Command) -> None:
    marks = {
        "graph": "cvm.elemwise_add",
        "formulas": "%x[%i0, %i1] + %y[%i0, %i1]",
        "loops": "for %i0",
        "llvm": "define",
        "llvm-opt": "define",
        "asm": ".text",
    }
    for stage, mark in marks.items():
        found = command("lower", "add.cvm", "--to", stage, "-o", "out.txt")
        assert found == (0, "", "") and mark in Path("out.txt").read_text()


SQUARES = """\
func @main(%x: tensor<64xi32>) -> tensor<64xi32> {
  %y = cvm.elemwise_add %x, %x
  %z = cvm.relu %y
  return %z
}
"""


def test_without_optimization_there_is_a_scalar_nest_for_each_operation(command: Command) -> None:
    Path("two.cvm").write_text(SQUARES)
    for stage in ("loops", "schedule"):
        shown = command("lower", "two.cvm", "--to", stage, "-O0").out
        assert shown.count("kernel @") == 2 and "vector" not in shown
    assert "x i32>" not in command("lower", "two.cvm", "--to", "llvm-opt", "-O0").out
    assert "x i32>" in command("lower", "two.cvm", "--to", "llvm-opt", "-O", "2").out
    plain, optimized = (
        command("run", "two.cvm", "--random-inputs", "3", "-O", level) for level in "02"
    )
    assert plain == optimized and plain.status == 0
    assert (
        " in 2 kernels, "
        in command("run", "two.cvm", "--random-inputs", "3", "-O0", "--profile").out
    )


TWICE = """\
func @main(%x: tensor<4xi32>) -> tensor<4xi32> {
  %a = cvm.relu %x
  %b = cvm.relu %x
  %c = cvm.elemwise_add %a, %b
  return %c
}
"""


def test_opt_applies_passes_by_name(command: Command) -> None:
    said = command("opt", "-", stdin=TWICE)
    assert said == (0, TWICE, "")
    said = command(
        "opt", "-", "--pipeline", "cse, dce", "--print-after", "cse", "--timing", stdin=TWICE
    )
    assert said.status == 0 and "%b" not in said.out and "cvm.elemwise_add %a, %a" in said.out
    assert said.err.startswith("// after cse\nfunc @main") and re.search(
        r"^ *\S+ (µs|ms) +\d+%  +dce$", said.err, re.M
    )


def test_opt_goes_down_the_levels(command: Command) -> None:
    said = command("opt", "-", "--pipeline", "cse,fuse", stdin=TWICE)
    assert said.status == 0 and "%c[%i0]: tensor<4xi32> = %t0 + %t0" in said.out
    loops = command("opt", "-", "--pipeline", "cse,fuse,inline_lets", stdin=TWICE).out
    assert loops.startswith("kernel @main.0(")
    assert command("opt", "-", "--pipeline", "unroll,vectorize", stdin=loops) == command(
        "opt", "-", "--pipeline", "cse,fuse,inline_lets,unroll,vectorize", stdin=TWICE
    )


def test_every_pass_of_opt_is_listed_and_runs(command: Command) -> None:
    listed = command("opt", "--list").out
    for name in (*PASSES, *PIPELINES):
        assert re.search(rf"^  {name} +\S", listed, re.M), name
        pipeline = (
            f"pack_state,{name}" if name in PASSES and PASSES[name].unit is StepPlan else name
        )
        said = command("opt", "-", "--pipeline", pipeline, stdin=TWICE)
        assert said.status == 0 and said.out, name


CONVOLUTION = """\
func @main(%x: tensor<1x16x32x32xi32> {range = [0, 255]}, %w: tensor<32x16x3x3xi32> {range = [-127, 127]}) -> tensor<1x32x16x16xi32> {
  %sum = cvm.conv2d %x, %w {padding = [1, 1], stride = [2, 2]}
  %y = cvm.cvm_right_shift %sum {precision = 8, shift_bit = 9}
  return %y
}
"""


@pytest.mark.parametrize(
    ("target", "stage", "steps"),
    [
        (
            "cpu",
            "schedule",
            ("fuse", "build_loops", "lower_contraction", "collapse", "vectorize", "unroll"),
        ),
        ("cuda", None, ("fuse", "build_loops", "mma", "shared_memory_transpose", "map_to_grid")),
    ],
)
def test_opt_shows_every_transformation_by_its_name(
    command: Command, target: str, stage: str | None, steps: tuple[str, ...]
) -> None:
    said = command("opt", "-", "--target", target, "--print-after-all", stdin=CONVOLUTION)
    shown = re.findall(r"^// after (\w+)(: no change of @\S+)?$", said.err, re.M)
    assert {name for name, _ in shown} <= {p.name for p in TARGETS[target]} and len(
        shown
    ) == said.err.count("// after")
    for name in steps:
        assert (name, "") in shown, name
    first = said.err.index(
        "// after unroll: no change of @main.0.rows"
        if target == "cpu"
        else "// after map_to_grid\n"
    )
    assert first < said.err.rindex(
        "// after collapse" if target == "cpu" else "// after loop_fission"
    )  # kernel by kernel
    if stage:
        assert said.out == command("lower", "-", "--to", stage, stdin=CONVOLUTION).out
    alone = command("opt", "-", "--target", target, "--print-after", steps[-1], stdin=CONVOLUTION)
    assert alone.out == said.out and set(re.findall(r"// after (\w+)", alone.err)) == {steps[-1]}


def test_fields_of_a_kernel_that_passes_read_are_text(command: Command) -> None:
    kernel = """\
kernel @k(%n: tensor<1xi32>, %x: tensor<8xf32>) -> (%y: tensor<1xf32>) where %n[0] >= 3 sums terms scheduled {
  alloc %acc: f32
  %acc = 0.0
  for %i in 0..8 {
    %acc = %acc + %x[%i]
  }
  %y[0] = %acc
}
"""
    assert command("opt", "-", stdin=kernel) == (0, kernel, "")
    assert command("opt", "-", "--pipeline", "collapse,lane_reduction", stdin=kernel).out == kernel
    lowered = command(
        "opt", "-", "--pipeline", "unroll,kernel_condition_to_branch", stdin=kernel
    ).out
    assert (
        "-> (%y: tensor<1xf32>) {\n  if %n[0] >= 3 {\n" in lowered and "in 0..8 unrolled" in lowered
    )
    said = command("opt", "-", stdin=kernel.replace("%n[0]", "%n[1]"))
    assert said.status == 1 and "an index of %n may be beyond 1" in said.err
    said = command("opt", "-", stdin=kernel.replace("terms", "halves"))
    assert said.status == 1 and "expected sums terms or sums blocks, got sums halves" in said.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--pipeline", "fuse,cse"),
            "cse works on the graph, but after fuse there are only formulas",
        ),
        (
            ("--pipeline", "cse", "--print-after", "fold_constants,"),
            "there is no pass fold_constants,; did you mean fold_constants; opt --list "
            "names them all",
        ),
        (
            ("--pipeline", "cse,dce", "--print-after", "fuse"),
            "--print-after fuse: the pipeline is cse,dce",
        ),
        (("--print-after", "cse"), "--print-after cse: the pipeline is empty"),
        (
            ("--pipeline", "fuze"),
            "there is no pass fuze; did you mean fuse; opt --list names them all",
        ),
        (("--pipeline", "slp_vectorize"), "slp_vectorize works on the loops that pack_state gives"),
        (("--pipeline", "pack_state,pack_state"), "pack_state works on plain loops"),
        (
            ("--pipeline", "fuse", "--generic"),
            "--generic is a form of the graph, and this pipeline ends below it",
        ),
    ],
)
def test_opt_says_why_a_pipeline_cannot_be(
    command: Command, arguments: tuple[str, ...], said: str
) -> None:
    assert command("opt", "-", *arguments, stdin=TWICE) == (2, "", f"cvm: {said}\n")


def test_opt_of_kernels_that_are_none(command: Command) -> None:
    said = command("opt", "-", stdin="kernel @x() -> (%y: tensor<3xi32>) {\n  for\n}\n")
    assert (
        said.status == 1 and "<stdin>:3:1: error[parse.kernel]: expected %name, got }" in said.err
    )
    kernel = "kernel @x() -> (%y: tensor<3xi32>) {\n  for %i in 0..3 {\n    %y[%i] = 1\n  }\n}\n"
    assert command("opt", "-", stdin=kernel) == (0, kernel, "")
    said = command("opt", "-", "--pipeline", "cse", stdin=kernel)
    assert said == (2, "", "cvm: cse works on the graph, but the program holds loops\n")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("%y[%i] = %z[%i]", "there is no value %z"),
        ("%z[%i] = 1", "there is no buffer %z"),
        ("%i = 1", "%i is no buffer that could be stored to"),
        ("%y[%i] = 1.5", "expected a literal of type i32, got 1.5"),
        ("%y[%i] = largest(1, 2)", "there is no function largest"),
        ("%y[%i] = max(1)", "max takes 2 operands, got 1"),
        ("%y[%i] = max(1, i32)", "expected an operand, got the name i32"),
        ("%y[%i] = bitcast(%x[%i])", "expected bitcast(value, type)"),
        (
            "%y[%i] = i32(misalignment(%x[%i], 4))",
            "expected misalignment(tensor, elements of a line)",
        ),
        ("%y[%i] = i32(misalignment(%i, 4))", "expected misalignment(tensor, elements of a line)"),
        ("%y[%i] = i32(misalignment(%x, 0))", "expected misalignment(tensor, elements of a line)"),
        ("%y[%i] = i32(1)", "the type of this literal is not known; (1 : i32) says it"),
        ("let %a: i33 = 1", "there is no element type i33"),
        ("alloc stack %a: tensor<3xi33>", "there is no type tensor<3xi33>"),
        ("%y[%i + 1] = 1", "kernel @k: "),
        ("%y[%i] = %x[%i] < 1", "kernel @k: "),
    ],
)
def test_opt_says_what_is_wrong_with_a_kernel(command: Command, statement: str, said: str) -> None:
    kernel = (
        "kernel @k(%x: tensor<3xi32>) -> (%y: tensor<3xi32>) {{\n  for %i in 0..3 {{\n    {}\n"
        "  }}\n}}\n"
    )
    assert command("opt", "-", stdin=kernel.format("%y[%i] = %x[%i]")).status == 0
    found = command("opt", "-", stdin=kernel.format(statement))
    assert found.status == 1 and said in found.err and "internal error" not in found.err


def test_generic_form_of_a_whole_module(command: Command) -> None:
    said = command("opt", "-", "--generic", stdin=TWICE)
    assert said == command("lower", "-", "--to", "mlir", stdin=TWICE)
    assert (
        '"cvm.elemwise_add"(%a, %b) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>' in said.out
    )
    assert (
        cvm.parse(said.out).functions["main"].result_types
        == cvm.parse(TWICE).functions["main"].result_types
    )


def test_fmt_rewrites_in_place_and_filters(command: Command) -> None:
    Path("loose.cvm").write_text(ADD.replace(" = ", "=").replace("  ", "        "))
    assert command("fmt", "--check", "loose.cvm", "add.cvm") == (1, "", "loose.cvm: would change\n")
    assert command("fmt", "loose.cvm") == (0, "", "")
    assert Path("loose.cvm").read_text() == ADD
    assert command("fmt", "--check", "loose.cvm") == (0, "", "")
    assert command("fmt", "no.cvm").status == 1
    assert command("fmt", "wrong.cvm").status in (0, 1)
    assert command("fmt", "-", stdin=b"\xff\x00").status == 1


def test_fmt_of_standard_input(command: Command) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cvm", "fmt", "-"],
        input=ADD.encode(),
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    assert done.stdout == ADD.encode()


def test_no_traceback_unless_asked_for(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(cvm.terminal.read_program, "read", broken)
    found = command("check", "add.cvm")
    assert (
        found.status == 1
        and "internal error: RuntimeError: a bug" in found.err
        and "CVM_TRACEBACK=1" in found.err
    )
    monkeypatch.setenv("CVM_TRACEBACK", "1")
    with pytest.raises(RuntimeError):
        command("check", "add.cvm")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError("Unable to allocate 8 TiB")])
def test_ends_by_force(
    command: Command, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def end(*_: object) -> None:
        raise error

    monkeypatch.setattr(cvm.terminal.read_program, "read", end)
    found = command("check", "add.cvm")
    assert found.status == 1 and found.err.startswith("cvm: ") and found.err.count("\n") == 1


def test_a_closed_pipe_is_quiet() -> None:
    read, write = os.pipe()
    os.close(read)
    ops = subprocess.run(
        [sys.executable, "-m", "cvm", "ops"], cwd=ROOT, stdout=write, stderr=subprocess.PIPE
    )
    os.close(write)
    assert (ops.returncode, ops.stderr) == (1, b"")


def test_closed_streams() -> None:
    """Output that nobody takes is no reason to fail, and input that is not there is one to say
    so.
    """

    def closed(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            f"exec {sys.executable} -m cvm {command}",
            shell=True,
            cwd=ROOT,
            capture_output=True,
            text=True,
        )

    unheard = closed("ops cvm.relu >&-")
    assert (unheard.returncode, unheard.stdout, unheard.stderr) == (0, "", "")
    for command in ("check -", "fmt -", "run - --random-inputs 1"):
        nothing = closed(f"{command} <&-")
        assert (nothing.returncode, nothing.stdout, nothing.stderr) == (
            2,
            "",
            "cvm: -: standard input is closed\n",
        )


def test_fmt_says_once_what_is_no_text(command: Command) -> None:
    for text in (b"\xff\xfe\x00", b"\xff" + ADD.encode()):
        for options in (("check", "-"), ("fmt", "-")):
            said = command(*options, stdin=text).err
            assert "error[parse.encoding]" in said and "error[parse.character]" not in said


def test_bad_bytes_are_diagnostics(command: Command) -> None:
    for text in (b"\xff\xfe", b"func @main(\x00", b"", b"(" * 5000):
        found = command("check", "-", stdin=text)
        assert found.status in (0, 1) and "internal" not in found.err


UNUSED = (
    "func @main(%x: tensor<4xi32>) -> tensor<4xi32> {\n  %u = dali.sub %x, %x\n  return %x\n}\n"
)


def test_check_warns_of_unused_values(command: Command) -> None:
    found = command("check", "-", stdin=UNUSED)
    assert (found.status, found.out) == (0, "<stdin>: ok, 1 function, 1 operation\n")
    assert "<stdin>:2:3: warning[value.unused]: nothing uses %u" in found.err
    assert command("check", "-", "--werror", stdin=UNUSED).status == 1
    assert command("check", "-", "--werror", stdin=UNUSED.replace("%u", "%_u")).status == 0


@pytest.mark.parametrize("text", ["", "// nothing\n", "module {}"])
def test_check_refuses_a_program_without_functions(command: Command, text: str) -> None:
    found = command("check", "-", stdin=text)
    assert (
        found.status == 1 and "<stdin>:1:1: error[program.empty]: expected a function" in found.err
    )


def test_diagnostics_for_tools(command: Command) -> None:
    wrong = UNUSED.replace("dali.sub", "dali.sbu")
    assert command("check", "-", "--json", stdin=wrong) == command(
        "check", "-", "--format", "json", stdin=wrong
    )
    found = json.loads(command("check", "-", "--json", stdin=wrong).out)
    assert found[0]["code"] == "op.unknown" and found[0]["severity"] == "error"
    assert (found[0]["file"], found[0]["line"], found[0]["column"], found[0]["end_column"]) == (
        "<stdin>",
        2,
        8,
        16,
    )
    log = json.loads(command("check", "-", "--sarif", stdin=UNUSED).out)
    assert log["version"] == "2.1.0" and log["runs"][0]["tool"]["driver"]["rules"] == [
        {"id": "value.unused"}
    ]
    (result,) = log["runs"][0]["results"]
    assert result["level"] == "warning"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 2


def test_colours(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = UNUSED.replace("dali.sub", "dali.sbu")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    plain = command("check", "-", stdin=broken).err
    assert "\033" not in plain
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = command("check", "-", stdin=broken).err
    assert "\033[1;31merror" in shown and re.sub(r"\033\[[0-9;]*m", "", shown) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert command("check", "-", stdin=broken).err == plain


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("chek x.cvm", "check"),
        ("run x.cvm --inptu x=x.npy", "--input"),
        ("lower x.cvm --tto llvm", "--to"),
        ("check x.cvm --format jsn", "json"),
        ("--verison", "--version"),
        ("run --inptu=3", "--input"),
    ],
)
def test_misspelt_commands_and_flags(command: Command, line: str, meant: str) -> None:
    found = command(*line.split())
    assert found.status == 2 and f"did you mean {meant}" in found.err


def test_flags_of_other_commands_are_not_suggested(command: Command) -> None:
    found = command("fmt", "x.cvm", "--json")  # a flag of `cvm cost`
    assert found.status == 2 and found.err.startswith("usage: cvm fmt ")
    assert found.err.endswith("cvm fmt: error: unrecognized arguments: --json\n")


ADD3 = (
    "func @main(%x: tensor<?N x 3 x i32>) -> tensor<?N x 3 x i32> {\n  %y = dali.add %x, 1\n"
    "  return %y\n}\n"
)


def test_inputs_and_outputs_by_suffix(command: Command, tmp_path: Path) -> None:
    table, array, archive = (str(tmp_path / f"y.{s}") for s in ("csv", "npy", "npz"))
    found = command("run", "-", "--input", "x=[[1,2,3],[-4,5,6]]", "--output", table, stdin=ADD3)
    assert found.status == 0 and Path(table).read_text() == "2,3,4\n-3,6,7\n"
    assert command("run", "-", "--input", f"x={table}", "--output", array, stdin=ADD3).status == 0
    assert np.load(array).tolist() == [[3, 4, 5], [-2, 7, 8]] and np.load(array).dtype == np.int32
    assert command("run", "-", "--input", f"x={array}", "--output", archive, stdin=ADD3).status == 0
    assert np.load(archive)["y"].tolist() == [[4, 5, 6], [-1, 8, 9]]


def test_pictures_as_inputs_and_outputs(command: Command, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    image.fromarray(pixels).save(tmp_path / "in.png")
    program = (
        "func @main(%x: tensor<2x4x3xui8>) -> tensor<2x4x3xui8> {\n  %y = dali.bitor %x, 1\n"
        "  return %y\n}\n"
    )
    program = program.replace("dali.bitor %x, 1", "dali.or %x, %x")
    out = tmp_path / "out.png"
    found = command(
        "run", "-", "--input", f"x={tmp_path / 'in.png'}", "--output", str(out), stdin=program
    )
    assert found.status == 0, found.err
    assert np.array_equal(np.asarray(image.open(out)), pixels)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("x=[[1.5,2,3]]", "holds what i32 does not"),
        ("x=[[3000000000,2,3]]", "holds what i32 does not"),
        ("x=[[1,2],[3]]", "--input x: [[1,2],[3]] is no array: rows differ in length"),
        ("x=[['a']]", "is no array: expected numbers\n"),
        ("x=[1,", "cvm: --input x: [1, is no array: expected numbers in lists"),
        ("x=__import__('os')", "cannot be read"),
        ("x=[__import__('os')]", "is no array"),
        ("x=no.csv", "cvm: --input x: no.csv cannot be read: no such file or directory"),
        ("x=no.png", "no.png cannot be read"),
        ("x=cell.csv", "--input x: cell.csv:2: expected a number, got 'x'\n"),
        ("x=row.csv", "--input x: row.csv:3: a row of 2 numbers, and the first row 3\n"),
        ("x=rows.csv", "no such file or directory; did you mean row.csv\n"),
        (
            "x=cut.npy",
            "cut.npy cannot be read: its header states 3 elements of 4 bytes, but 8 bytes follow",
        ),
    ],
)
def test_arrays_that_are_none(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cell.csv").write_text("1,2,3\n4,x,6\n")
    Path("row.csv").write_text("1,2,3\n\n4,5\n")
    np.save("whole.npy", np.arange(3, dtype=np.int32))
    Path("cut.npy").write_bytes(Path("whole.npy").read_bytes()[:-4])
    found = command("run", "-", "--input", given, stdin=ADD3)
    assert found.status == 2 and said in found.err and "Traceback" not in found.err


def test_open_sizes_and_conversions(command: Command, tmp_path: Path) -> None:
    text = "func @main(%x: tensor<?N x i32>) {\n  return %x\n}\n"
    run = ("run", "-", "--random-inputs", "0", "--size")
    assert command(*run, "N=7", stdin=text).out.startswith("%x: tensor<7xi32>\n")
    found = command(*run, "M=7", stdin=text)
    assert found.status == 2 and "no argument of @main has a size ?M: they have ?N" in found.err
    np.save(path := tmp_path / "x.npy", np.arange(3))
    given = ("run", "-", "--input", f"x={path}")
    found = command(*given, stdin=text)
    assert found.status == 1 and "--convert of cvm run" in found.err
    assert command(*given, "--convert", stdin=text).out == "%x: tensor<3xi32>\n  [0, 1, 2]\n"
    np.save(path, np.array([1 << 40]))
    assert command(*given, "--convert", stdin=text).status == 1


def test_outputs_that_cannot_be_written(command: Command, tmp_path: Path) -> None:
    for name, said in (("y.txt", ".npz, .npy, .csv, .png"), ("y.png", "a picture is ui8")):
        found = command(
            "run", "-", "--input", "x=[[1,2,3]]", "--output", str(tmp_path / name), stdin=ADD3
        )
        assert found.status == 2 and said in found.err and not (tmp_path / name).exists()


def test_doctor_and_cache(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CVM_CACHE_DIR", str(tmp_path / "cache"))
    assert command("run", "-", "--random-inputs", "0", stdin=ADD3).status == 0
    told = command("cache", "info").out
    assert told.startswith(f"{tmp_path / 'cache'} (CVM_CACHE_DIR)\n") and "\n0 entries" not in told
    assert told.endswith(" MiB; above 256 MiB the least recently used are evicted\n")
    (tmp_path / "cache" / "mine.txt").write_text("not an entry")
    assert command("cache", "clear").out.startswith("removed ")
    assert [p.name for p in (tmp_path / "cache").iterdir()] == ["mine.txt"]
    said = command("doctor").out
    assert f"cvm {cvm.__version__}" in said and "reference: ready" in said
    offered = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    listed = {
        line.strip().partition(":")[0] for line in said.partition("\nextras\n")[2].splitlines()
    }
    assert listed == offered.keys() - {
        "test",
        "test-models",
        "lint",
        "train",
        "fuzz",
        "docs",
    }  # of those who work on it
    monkeypatch.setenv("CVM_CACHE_DIR", "")
    assert command("cache", "info").out == "off: CVM_CACHE_DIR is empty\n"


def test_completion(command: Command) -> None:
    pytest.importorskip("shtab")
    assert "--random-inputs" in command("completion", "bash").out


def test_lower_shows_the_formulas_by_default(command: Command) -> None:
    assert (
        command("lower", "-", stdin=ADD3).out
        == command("lower", "-", "--to", "formulas", stdin=ADD3).out
    )


def test_an_open_size_names_the_flag(command: Command, tmp_path: Path) -> None:
    found = command("build", "-", "-o", str(tmp_path / "f.so"), stdin=ADD3)
    assert found.status == 1 and "note: --size N=16" in found.err
