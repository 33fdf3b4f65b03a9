"""`cvm opt` around passes: their options, what is shown before and after each, times, verification,
reproducers.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cvm.dialect.kernel_ir.loops import Kernel, statements
from cvm.lowering import pipeline
from cvm.lowering.passes import Pass

from cvm import cli
from cvm.terminal import run_pipeline

PROGRAM = """func @main(%x: tensor<4x4xi32>, %w: tensor<8x4xi32>) -> tensor<4x8xi32> {
  %h = cvm.dense %x, %w
  %y = cvm.relu %h
  %unused = cvm.negative %y
  return %y
}
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "program.cvm"
    path.write_text(PROGRAM)
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> tuple[str, str]:
    found = cli.main(["opt", *arguments])
    said = capsys.readouterr()
    assert found == status, said.err
    return said.out, said.err


def test_options_of_passes(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unrolled = run(capsys, "program.cvm", "--pipeline", "build_loops,unroll")[0]
    assert "in 0..4 unrolled" in unrolled
    assert (
        "unrolled"
        not in run(capsys, "program.cvm", "--pipeline", "build_loops,unroll{factor=3}")[0]
    )
    assert (
        run(capsys, "program.cvm", "--pipeline", "build_loops, unroll{factor=4}")[0].count(
            "unrolled"
        )
        == 1
    )
    assert "{factor=8}" in run(capsys, "--list")[0]
    for bad, said in {
        "unroll{facto=4}": "unroll has no option facto; did you mean factor; its options: factor",
        "unroll{factor=four}": "unroll{factor}: expected a whole number, got 'four'",
        "unroll{factor=-4}": "unroll{factor}: expected a whole number, got '-4'",
        "unroll{factor=4": "--pipeline unroll{factor=4: expected } to "
        "close the { before the options of a pass",
        "split_reduction{grid=1}": "split_reduction{grid}: expected true or false, got '1'",
        "cse{a=1}": "cse has no option a; its options: none",
        "schedule{a=1}": "schedule is a pipeline; options are those of passes",
    }.items():
        assert said in run(capsys, "program.cvm", "--pipeline", bad, status=2)[1]


def test_variants_of_a_target(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two passes have another form for a GPU: with --target, beside passes for a GPU, or by their
    options.
    """
    kernel = (
        "kernel @k(%x: tensor<1000000xi32>) -> (%y: tensor<1xi32>) {\n  alloc %a: i32\n  %a = 0\n"
    )
    kernel += "  for %i in 0..1000000 {\n    %a = %a + %x[%i]\n  }\n  %y[0] = %a\n}\n"
    Path("k.loops").write_text(kernel)
    texts = {
        name: run(capsys, "k.loops", "--pipeline", pipeline, *more)[0]
        for name, pipeline, more in [
            ("cpu", "split_reduction", ()),
            ("option", "split_reduction{grid=true}", ()),
            ("target", "split_reduction", ("--target", "cuda")),
            ("cpu again", "split_reduction", ("--target", "cpu")),
        ]
    }
    assert texts["cpu"] == texts["cpu again"] != texts["option"] == texts["target"]
    chosen = {p.name: p.options for p in run_pipeline._chosen("split_reduction,map_to_grid")}
    assert chosen["split_reduction"] == {"grid": True}


def test_passes_of_a_tick_update_in_place(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The passes down to pack_state are those of the pipeline for a tick."""
    text = (
        Path(__file__).parents[2] / "tests" / "filetests" / "passes" / "fast_forward.cvm"
    ).read_text("utf-8")
    program.write_text(text)
    made = run(capsys, "program.cvm", "--pipeline", "pack_state,fast_forward")[0]
    names = [p.name for p in pipeline.STEP]
    wanted = run(
        capsys,
        "program.cvm",
        "--pipeline",
        ",".join([*names[: names.index("pack_state") + 1], "fast_forward"]),
    )[0]
    assert made == wanted and "if " in made


def test_what_is_shown(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = run(
        capsys,
        "program.cvm",
        "--pipeline",
        "dce,cse",
        "--print-before",
        "dce",
        "--print-after",
        "cse",
    )
    assert err.startswith("// before dce\nfunc @main") and "// after cse: no change of @main" in err
    assert err.count("// before") == 1
    assert (
        run(capsys, "program.cvm", "--pipeline", "dce,cse", "--print-before-all")[1].count(
            "// before "
        )
        == 2
    )
    _, err = run(capsys, "program.cvm", "--pipeline", "dce,cse", "--print-changed")
    assert (
        "--- @main before dce\n+++ after dce\n" in err and "\n-  %unused = cvm.negative %y\n" in err
    )
    assert "cse" not in err
    assert (
        "--print-before fuse: the pipeline is cse"
        in run(capsys, "program.cvm", "--pipeline", "cse", "--print-before", "fuse", status=2)[1]
    )


def test_times_are_a_tree(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = run(capsys, "program.cvm", "--target", "cpu", "--timing")
    rows = [line.split("%  ")[1] for line in err.splitlines()]
    assert rows[:4] == ["all", "  @main", "    graph", "      differentiate"]
    tree = json.loads(run(capsys, "program.cvm", "--target", "cpu", "--timing=json")[1])
    (function,) = tree["children"]
    assert function["name"] == "@main" and [c["name"] for c in function["children"]] == [
        "graph",
        "formulas",
        "loops",
    ]
    assert tree["seconds"] == pytest.approx(sum(c["seconds"] for c in function["children"]))


def plant(monkeypatch: pytest.MonkeyPatch, run: Any) -> Pass:
    """A pass `unroll` that does something else."""
    planted = replace(pipeline.PASSES["unroll"], run=run)
    monkeypatch.setitem(pipeline.PASSES, "unroll", planted)
    return planted


def without_first(kernel: Kernel, _: Any) -> Kernel:
    return kernel.with_body(kernel.body[1:] or statements(kernel.body)[-1:])


def test_each_pass_is_verified(
    program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("program.cvm", "--pipeline", "build_loops,unroll")
    assert run(capsys, *arguments, "--verify-each")[0] == run(capsys, *arguments)[0]
    assert not Path("program.reproducer.cvm").exists()
    plant(monkeypatch, without_first)
    run(capsys, *arguments)
    err = run(capsys, *arguments, "--verify-each", status=1)[1]
    assert "error[pass.kernel]: pass unroll of cvm: kernel @main.0: %i" in err
    assert "is not bound" in err


def test_a_reproducer_fails_again(
    program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(kernel: Kernel, _: Any) -> Kernel:
        raise RuntimeError("no such loop")

    with monkeypatch.context() as patch:
        plant(patch, broken)
        err = run(
            capsys,
            "program.cvm",
            "--pipeline",
            "cse,build_loops,unroll",
            "--cpu",
            "x86-64-v3",
            status=1,
        )[1]
        assert (
            "the pass unroll fails; cvm opt --run-reproducer program.reproducer.cvm shows it again"
            in err
        )
        text = Path("program.reproducer.cvm").read_text()
        assert text.startswith("// the pass unroll fails: RuntimeError: no such loop\n// cvm ")
        assert "\n// pipeline: cse,build_loops,unroll\n// cpu: x86-64-v3\n\nfunc @main" in text
        assert (
            "no such loop" in run(capsys, "--run-reproducer", "program.reproducer.cvm", status=1)[1]
        )
    assert "unrolled" in run(capsys, "--run-reproducer", "program.reproducer.cvm")[0]
    assert (
        "program.cvm is no reproducer"
        in run(capsys, "--run-reproducer", "program.cvm", status=2)[1]
    )
