"""Programs that begin below the graph, on the command line: checked, run, timed, scheduled and
lowered.
"""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from available_targets import HERE
from cvm.jit.functions.kernel_function import KernelFunction
from cvm.jit.targets import find_target

import cvm
from cvm import cli

ROOT = Path(__file__).parents[2]

PROGRAM = """func @main(%x: tensor<?N x 8 x f32>, %w: tensor<5x8xf32>) -> tensor<?N x 5 x f32> {
  %h = cvm.dense %x, %w
  %y = cvm.relu %h
  return %y
}
"""
INPUTS = ["--input", "x=x.npy", "--input", "w=w.npy"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(1)
    Path("program.cvm").write_text(PROGRAM)
    np.save("x.npy", random.uniform(-1, 1, (6, 8)).astype(np.float32))
    np.save("w.npy", random.uniform(-1, 1, (5, 8)).astype(np.float32))
    return tmp_path


def results(*arguments: str) -> dict[str, np.ndarray]:
    assert cli.main(["run", *arguments, "--output", "y.npz"]) == 0
    with np.load("y.npz") as found:
        return {name: found[name] for name in found.files}


@pytest.mark.parametrize("stage", ["loops", "schedule"])
def test_printed_kernels_run(folder: Path, stage: str, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = results("program.cvm", *INPUTS)["y"]
    assert cli.main(["lower", "program.cvm", "--to", stage, "-o", "kernel.loops"]) == 0
    assert np.array_equal(results("kernel.loops", *INPUTS)["y"], wanted)
    assert (
        cli.main(["check", "kernel.loops"]) == 0 and "kernel.loops: ok, " in capsys.readouterr().out
    )
    assert cli.main(["run", "kernel.loops", *INPUTS, "--time", "--digest", "--profile"]) == 0
    said = capsys.readouterr().out
    assert (
        "%y: tensor<6x5xf32>" in said
        and "compiled in " in said
        and "sha256" in said
        and "GB/s" in said
    )
    for to, text in (
        ("llvm", "define i32 @entry"),
        ("asm", "entry:"),
        ("schedule", "kernel @"),
        ("loops", "kernel @"),
    ):
        assert (
            cli.main(["lower", "kernel.loops", "--to", to]) == 0 and text in capsys.readouterr().out
        )
    assert cli.main(["run", "kernel.loops", *INPUTS, "-O", "0"]) == 1
    assert "kernels run as they are; -O 0 is for programs of functions" in capsys.readouterr().err
    assert cli.main(["lower", "kernel.loops", "--to", "graph"]) == 1
    assert "graph is a stage of programs of functions; these are kernels" in capsys.readouterr().err


def test_kernels_update_in_place(folder: Path) -> None:
    Path("sum.loops").write_text(
        "kernel @sum(%x: tensor<?N x i32>) -> (%total: tensor<1xi32>) {\n"
        "  for %i in 0..?N {\n    %total[0] = %total[0] + %x[%i]\n  }\n}\n"
    )
    np.save("x.npy", np.arange(5, dtype=np.int32))
    np.save("total.npy", np.array([100], np.int32))
    assert results("sum.loops", "--input", "x=x.npy", "--input", "total=total.npy")[
        "total"
    ].tolist() == [110]
    assert cli.main(["run", "sum.loops", "--input", "x=x.npy"]) == 2


def test_sizes_of_a_call_are_checked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("k.loops").write_text(
        "kernel @k(%a: tensor<?N x f32>, %b: tensor<?N x f32>) -> (%y: tensor<?N x f32>) {\n"
        "  for %i in 0..?N {\n    %y[%i] = %a[%i] * %b[%i]\n  }\n}\n"
    )
    np.save("a.npy", np.ones(3, np.float32))
    np.save("b.npy", np.ones(4, np.float32))
    assert cli.main(["run", "k.loops", "--input", "a=a.npy", "--input", "b=b.npy"]) == 1
    assert (
        "argument %b: expected tensor<?N x f32> with ?N = 3, as in %a, got tensor<4xf32>"
        in capsys.readouterr().err
    )
    assert cli.main(["run", "k.loops", "--random-inputs", "1", "--target", "reference"]) == 1
    assert (
        "kernels run on the targets cpu, cuda, cuda-sim, not on reference"
        in capsys.readouterr().err
    )
    Path("k.loops").write_text(Path("k.loops").read_text().replace("y: tensor<?N", "y: tensor<?M"))
    assert cli.main(["run", "k.loops", "--random-inputs", "1"]) == 1
    assert "?M is the size of no argument of @kernels" in capsys.readouterr().err


@pytest.mark.skipif(find_target("cuda-sim").missing() != "", reason="needs NVRTC")
@pytest.mark.parametrize("stage", ["formulas", "loops", "schedule", "gpu"])
def test_every_level_runs_on_a_gpu(
    folder: Path, stage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kernels for a CPU are mapped to a grid, those for a GPU run as they are, and a CPU runs
    these, too.
    """
    lower = ["lower", "--to", stage] if stage != "gpu" else ["opt", "--target", "cuda"]
    assert cli.main([*lower, "program.cvm", "-o", "text"]) == 0
    wanted = results("text", *INPUTS)["y"]
    assert np.array_equal(results("text", *INPUTS, "--target", "cuda-sim")["y"], wanted)
    assert cli.main(["diff", "text", "--target", "cpu", "--target", "cuda-sim"]) == 0
    assert "cpu and cuda-sim: all 1 values are the same" in capsys.readouterr().out
    assert cli.main(["run", "text", *INPUTS, "--target", "cuda-sim", "-O", "0"]) == 1


@pytest.mark.skipif(find_target("cuda-sim").missing() != "", reason="needs NVRTC")
@pytest.mark.parametrize("target", ["cpu", "cuda-sim"])
def test_accesses_that_depend_on_data_are_checked(
    folder: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("k.loops").write_text(
        "kernel @k(%x: tensor<2 x ?N x i32>, %i: tensor<?N x i32>) -> (%y: tensor<?N x i32>) {\n"
        "  for %n in 0..?N {\n    %y[%n] = %x[0, i64(%i[%n])]\n  }\n}\n"
    )
    inputs = ["--input", "x=[[1, 2], [3, 4]]", "--target", target]
    assert results("k.loops", "--input", "i=[1, 0]", *inputs)["y"].tolist() == [2, 1]
    for index in (2, 200_000):  # within the array, and beyond
        assert cli.main(["run", "k.loops", "--input", f"i=[1, {index}]", *inputs]) == 1
        assert "outside of " in capsys.readouterr().err


@pytest.mark.parametrize("stage", ["formulas", "loops"])
def test_constants_that_the_text_leaves_out(
    folder: Path, stage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    digits = str(ROOT / "examples" / "digits" / "digits.cvm")
    images = [
        "--input",
        f"images={np.random.default_rng(1).integers(0, 17, (2, 1, 8, 8)).tolist()}",
    ]
    wanted = results(digits, *images)["scores"]
    assert (
        cli.main(["lower", digits, "--to", stage, "-o", "text", "--constants", "constants.npz"])
        == 0
    )
    assert np.array_equal(results("text", *images, "--inputs", "constants.npz")["scores"], wanted)
    assert cli.main(["run", "text", *images]) == 2 and "no array for %" in capsys.readouterr().err
    assert cli.main(["lower", digits, "--to", "llvm", "--constants", "constants.npz"]) == 2
    assert "go with --to formulas, loops or schedule" in capsys.readouterr().err


@pytest.mark.parametrize("extent, index", [("?R", "%i"), ("?Q", "i64(%r[%i])")])
def test_accesses_that_are_not_proven_are_checked(extent: str, index: str) -> None:
    from cvm.terminal.read_program import compiled, read_level

    text = (
        "kernel @k(%q: tensor<?Q x f32>, %r: tensor<?R x i32>) -> (%y: tensor<?Q x f32>) {\n"
        f"  for %i in 0..{extent} {{\n    %y[%i] = %q[{index}]\n  }}\n}}\n"
    )
    f = compiled(read_level("k.loops", text.encode()), "kernels", "cpu")
    assert f(np.ones(3, np.float32), np.array([2, 0, 1], np.int32)).tolist() == [1, 1, 1]
    with pytest.raises(cvm.CallError, match="is outside of axis 0"):
        f(np.ones(3, np.float32), np.full(10**6, 10**9, np.int32))


@pytest.mark.parametrize("target", [t for t in HERE if t != "reference"])
@pytest.mark.parametrize(
    "text, bad",
    [
        (  # the condition of a loop is evaluated again
            "kernel @k(%x: tensor<4xi64>) -> (%y: tensor<4xi64> zero) {\n"
            "  alloc %n: i64\n  %n = 0\n  while %x[%n] > 0 {\n    %n = %n + 1\n  }\n  %y[0] = %n\n}",
            [1, 1, 1, 1],
        ),
        (  # a second name of an array whose element is known to be below 4
            "kernel @k(%x: tensor<4xi64>) -> (%y: tensor<4xi64> view of %x, %z: tensor<4xi64> zero) {\n"
            "  if %x[0] >= 0 & %x[0] < 4 {\n    %y[0] = 9\n    %z[%x[0]] = 1\n  }\n}",
            [1, 0, 0, 0],
        ),
    ],
)
def test_loops_and_second_names_are_checked_again(target: str, text: str, bad: list[int]) -> None:
    from cvm.terminal.read_program import compiled, read_level

    f = compiled(read_level("k.loops", text.encode()), "kernels", target)
    f(np.array([-1, 1, 1, 1]))
    with pytest.raises(cvm.CallError, match="is outside of axis 0"):
        f(np.array(bad))


VIEWS = """func @main(%x: tensor<6x8xi32>, %w: tensor<8x8xi32>) {
  %h = cvm.dense %x, %w
  %a = cvm.reshape %h {target_shape = [1, 3, 4, 4]}
  %b = cvm.reshape %h {target_shape = [4, 3, 2, 2]}
  %z = cvm.conv2d %a, %b
  return %z
}
"""


@pytest.mark.parametrize("optimize", "02")
@pytest.mark.parametrize("stage", ["formulas", "loops", "schedule"])
def test_views_of_an_array_have_its_name(folder: Path, stage: str, optimize: str) -> None:
    """Kernels that view one array in several shapes, also at once, share it when their text is
    run.
    """
    Path("program.cvm").write_text(VIEWS)
    assert cli.main(["lower", "program.cvm", "--to", stage, "-O", optimize, "-o", "text"]) == 0
    viewed = "%h: tensor<1x3x4x4xi32>, %b: tensor<4x3x2x2xi32> view of %h)"
    assert (viewed in Path("text").read_text()) == (stage != "formulas")
    inputs = [
        "--input",
        f"x={np.arange(48).reshape(6, 8).tolist()}",
        "--input",
        f"w={np.eye(8, dtype=int).tolist()}",
    ]
    assert np.array_equal(results("text", *inputs)["z"], results("program.cvm", *inputs)["z"])
    if stage != "formulas":
        assert cli.main(["opt", "text", "-o", "again"]) == 0
        assert Path("again").read_text() == Path("text").read_text()


@pytest.mark.parametrize("space", ["stack", "register"])
def test_buffers_beyond_the_stack_are_refused(space: str) -> None:
    from cvm.terminal.read_program import compiled, read_level

    def kernel(n: int) -> bytes:
        body = f"for %i in 0..{n} {{\n    %b[%i] = %x[0]\n  }}\n  %y[0] = %b[{n - 1}]"
        return (
            f"kernel @k(%x: tensor<4xf32>) -> (%y: tensor<1xf32>) {{\n"
            f"  alloc {space} %b: tensor<{n}xf32>\n  {body}\n}}\n".encode()
        )

    assert compiled(read_level("k.loops", kernel(1000)), "kernels", "cpu")(
        np.ones(4, np.float32)
    ).tolist() == [1]
    with pytest.raises(cvm.Error, match="400000000 bytes on the stack, but the limit is 2097152"):
        read_level("k.loops", kernel(10**8))


@pytest.mark.parametrize("stage", ["loops", "schedule"])
def test_views_of_arguments_and_results_have_the_type_of_these(folder: Path, stage: str) -> None:
    """A call takes and gives arrays as the program does, of which the kernels have but views, with
    sizes of their own.
    """
    Path("program.cvm").write_text(
        "func @main(%x: tensor<?N x ?M x i32>) {\n  %y = cvm.flatten %x\n"
        "  %z = cvm.negative %x\n  return %y, %z\n}\n"
    )
    assert cli.main(["lower", "program.cvm", "--to", stage, "-o", "text"]) == 0
    assert ("> view of tensor<?N x ?M x i32>" in Path("text").read_text()) == (stage == "schedule")
    found = results("text", "--input", "x=[[1, 2, 3], [4, 5, 6]]")
    assert found["y.copy0"].tolist() == [1, 2, 3, 4, 5, 6] and found["z"].tolist() == [
        [-1, -2, -3],
        [-4, -5, -6],
    ]
    assert cli.main(["opt", "text", "-o", "again"]) == 0
    assert Path("again").read_text() == Path("text").read_text()


def test_kernel_functions_pickle(folder: Path) -> None:
    import pickle

    from cvm.terminal.read_program import compiled, read_kernels

    text = (
        "kernel @k(%a: tensor<3xi32>) -> (%y: tensor<3xi32>) {\n  for %i in 0..3 {\n"
        "    %y[%i] = %a[%i] + 1\n  }\n}\n"
    )
    f = pickle.loads(pickle.dumps(compiled(read_kernels(text, "k"), "kernels", "cpu")))
    assert f(np.array([1, 2, 3], np.int32)).tolist() == [2, 3, 4]
    with pytest.raises(cvm.CallError):
        f(np.array([1, 2], np.int32))


def test_threads_that_call_first_together_load_a_kernel_once(monkeypatch):
    """A second library would free the code of the first, which may run."""
    text = "kernel @k(%x: tensor<8xf64>) -> (%y: tensor<8xf64>) {\n"
    text += "  for %i in 0..8 {\n    %y[%i] = %x[%i] + 7.25\n  }\n}\n"
    f, served, results = cvm.compile(text), [], []
    together = threading.Barrier(4)
    real = KernelFunction._serve
    monkeypatch.setattr(KernelFunction, "_serve", lambda self, m: (served.append(m), real(self, m)))

    def call() -> None:
        together.wait()
        results.append(f(np.ones(8)).tolist())

    threads = [threading.Thread(target=call) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(served) == 1 and results == [[8.25] * 8] * 4
