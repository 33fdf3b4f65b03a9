"""`cvm run` of graphs: ticks, readings, states in files, sensors from files, and pictures of graphs
and functions.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cvm
from cvm.cli import main

PROGRAM = """
graph @counter {
  %n = cog.field "n" init dense<2.75> : !cog.field<[], f32>
  %next = cog.add %n, 1
  cog.feedback %n, %next
  cog.probe "next" %next
}

graph @wave {
  %x = cog.field "x" init dense<[[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]> : !cog.field<[2, 3], f32>
  %y = cog.shift_cyclic %x {amount = [0, 1]}
  cog.feedback %x, %y
}

graph @sum {
  %in = cog.sensor "in" : !cog.field<[2], f32>
  %total = cog.field "total" : !cog.field<[2], f32>
  %next = cog.add %total, %in
  cog.feedback %total, %next
  cog.probe "next" %next
}

graph @trimmed {
  %a = cog.field "a" : !cog.field<[1], f32>
  %b = cog.field "b" : !cog.field<[2], f32>
  cog.feedback %a, %b
}

func @image(%x: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %y = dali.mul %x, 2.0
  return %y
}
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.cvm"
    path.write_text(PROGRAM)
    return str(path)


def run(program: str, entry: str, *options: object) -> int:
    return main(["run", program, "--entry", entry, *map(str, options)])


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_readings_after_the_last_tick(program, capsys, target):
    assert run(program, "counter", "--steps", 1000, "--target", target) == 0
    out = capsys.readouterr().out.split()
    assert out == [
        "tick",
        "1000",
        '"n":',
        "tensor<f32>",
        "1002.75",
        '"next":',
        "tensor<f32>",
        "1003.75",
    ]


@pytest.mark.parametrize("optimize", [0, 2])
def test_kernels_of_a_tick_are_timed(program, capsys, optimize):
    """The state is what it would be without."""
    for entry in ("counter", "wave"):
        assert run(program, entry, "--steps", 7, "--profile", "-O", optimize) == 0
        said = capsys.readouterr().out
        assert "G op/s" in said and " in 1 kernel, " in said and f"{entry}.advance.0" in said
        assert run(program, entry, "--steps", 7, "-O", optimize) == 0
        assert said.startswith(capsys.readouterr().out)
    assert run(program, "counter", "--profile", "--target", "reference") == 2


def test_readings_on_the_way(program, capsys):
    assert run(program, "counter", "--steps", 25, "--read", "n", "--every", 10) == 0
    out = capsys.readouterr().out.split()
    assert out[1::5] == ["0", "10", "20", "25"]
    assert out[4::5] == ["2.75", "12.75", "22.75", "27.75"]


def test_state_in_files(program, capsys, tmp_path):
    state = tmp_path / "state.npz"
    assert run(program, "counter", "--steps", 7, "--save-state", state) == 0
    assert run(program, "counter", "--steps", 0, "--load-state", state) == 0
    assert capsys.readouterr().out.split()[-8:-3] == ["tick", "7", '"n":', "tensor<f32>", "9.75"]
    assert run(program, "wave", "--load-state", state) == 1
    assert "does not hold the state of @wave" in capsys.readouterr().err


def test_readings_in_a_file(program, tmp_path):
    path = tmp_path / "readings.npz"
    assert run(program, "counter", "--steps", 4, "--every", 2, "--output", path) == 0
    with np.load(path) as found:
        assert found["n"].tolist() == [2.75, 4.75, 6.75]
    assert run(program, "wave", "--steps", 1, "--output", path) == 0
    with np.load(path) as found:
        assert found["x"].tolist() == [[0, 1, 0], [0, 0, 0]]


def test_a_sensor_takes_an_array_for_each_tick(program, tmp_path):
    path, out = tmp_path / "in.npy", tmp_path / "out.npz"
    np.save(path, np.array([[1, 10], [2, 20], [3, 30]], np.float32))
    assert (
        run(program, "sum", "--steps", 3, "--input", f"in={path}", "--every", 1, "--output", out)
        == 0
    )
    with np.load(out) as found:
        assert found["next"][:, 0].tolist() == [1, 3, 6, 9]  # the last one stays
    np.save(path, np.array([5, 6], np.float32))
    assert run(program, "sum", "--steps", 2, "--input", f"in={path}", "--output", out) == 0
    with np.load(out) as found:
        assert found["total"].tolist() == [10, 12]


def test_the_only_graph_needs_no_name(program, tmp_path, capsys):
    text = Path(program).read_text().partition("graph @wave")[0]
    (path := tmp_path / "one.cvm").write_text(text)
    assert [function.name for function in cvm.load(path).functions.values()] == ["counter"]
    for arguments in (
        ("run", path, "--steps", 3),
        ("lower", path, "--to", "loops"),
        ("cost", path),
    ):
        assert main([*map(str, arguments)]) == 0
    assert "5.75" in capsys.readouterr().out
    assert main(["run", str(program), "--steps", "3"]) == 1
    assert (
        "the program has no function @main; it has @counter, @wave, @sum" in capsys.readouterr().err
    )
    g = cvm.compile(path)
    g.step(2)
    assert g.read("n") == 4.75


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--steps", "-1"], 2, "--steps -1: expected a number of ticks of at least 0"),
        (["--every", "0"], 2, "--every 0: expected a number of ticks of at least 1"),
        (["--read", "m"], 1, 'nothing to read named "m": it has n, next'),
        (
            ["--load-state", "none.npz"],
            1,
            "the state cannot be read from none.npz: no such file or directory",
        ),
        (
            ["--save-state", "none/state"],
            1,
            "the state cannot be written to none/state: no such file or directory",
        ),
        (["--random-inputs", "1"], 2, "--random-inputs is for functions, and @counter is a graph"),
        (["--input", "n"], 2, "expected NAME=FILE or NAME=NUMBERS"),
        (["--target", "tpu"], 2, "unknown target"),
    ],
)
def test_mistakes(program, capsys, options, status, message):
    assert run(program, "counter", *options) == status
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said


def test_what_a_graph_does_not_have(program, capsys, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(2, np.float32))
    assert run(program, "counter", "--input", f"x={tmp_path / 'x.npy'}") == 2
    assert 'no field or sensor "x": it has n' in capsys.readouterr().err
    assert run(program, "image", "--random-inputs", 0, "--steps", 3) == 2
    assert "--steps is for graphs" in capsys.readouterr().err


def test_warnings_are_shown(program, capsys):
    assert run(program, "trimmed") == 0
    assert "warning[cog.feedback.trimmed]" in capsys.readouterr().err
    assert main(["check", program]) == 0
    assert "warning[cog.feedback.trimmed]" in capsys.readouterr().err


def test_pictures(program, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    assert run(program, "image", "--random-inputs", 0, "--plot", tmp_path / "function.png") == 0
    assert image.open(tmp_path / "function.png").size == (
        500,
        400,
    )  # a small matrix: axes, scale and values
    assert run(program, "counter", "--steps", 100, "--plot", tmp_path / "curves.png") == 0
    assert image.open(tmp_path / "curves.png").size[0] > 300
    assert run(program, "wave", "--steps", 3, "--plot", tmp_path / "moving.gif") == 0
    assert image.open(tmp_path / "moving.gif").n_frames == 4
    assert run(program, "counter", "--plot", tmp_path / "none.gif") == 1
    assert "no reading is like an image" in capsys.readouterr().err
    assert run(program, "wave", "--plot", tmp_path / "picture.unknown") == 1
    assert "cannot be written" in capsys.readouterr().err


def test_opt_shows_what_a_graph_computes(program, capsys):
    assert main(["opt", program, "--pipeline", "cse,fuse"]) == 0
    formulas = capsys.readouterr().out
    assert (
        "formulas @counter.advance(%n: tensor<f32>) {\n  %next[]: tensor<f32> = %n[] + 1.0\n"
        in formulas
    )
    assert "formulas @counter.observe(" in formulas
    assert main(["opt", program, "--pipeline", "schedule"]) == 0
    assert "kernel @counter.advance.0(" in capsys.readouterr().out
