"""The documents: what they show is what happens, their links lead somewhere, and their tables are complete."""

from __future__ import annotations

import re
import runpy
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import samples
from cvm.dialect.spec.op import OPERATORS
from cvm.jit.targets import TARGETS, all_stages, register
from cvm.parser.format import format_text
from filetest_runner import GOLDENS, Filetest, perform
from finite_differences import check
from loop_interpreter import by_formula
from operator_checks import assert_same, references
from samples import SAMPLES

import cvm
from cvm import cli
from cvm.commands.ops import by_dialect

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language in a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_ci_uses_the_commands_of_the_readme() -> None:
    first, second = blocks(README, "sh")[:2]
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert first in script and second in script


def test_readme_shows_what_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = next(b for b in blocks(README, "cvm") if b.startswith("// layer.cvm"))
    narrow = re.sub(r"(\[-?\d+, -?\d+), -?\d+\]", r"\1]", program).replace("tensor<4x3xi32>", "tensor<4x2xi32>")
    (tmp_path / "layer.cvm").write_text(program, "utf-8")
    (tmp_path / "wrong.cvm").write_text(narrow.replace("layer.cvm", "wrong.cvm"), "utf-8")
    monkeypatch.chdir(tmp_path)
    for block in blocks(README, "console"):
        command, _, shown = block.partition("\n")
        cli.main(command.removeprefix("$ cvm ").split())
        said = capsys.readouterr()
        assert said.err + said.out == shown


def test_status_lists_every_operator() -> None:
    listed = re.findall(r"^\| `([\w.]+)` \|", README, re.MULTILINE)
    assert listed == [op.name for ops in by_dialect().values() for op in ops if op.dialect != "builtin"], (
        "python docs/status.py brings the table up to date"
    )


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} points at {target}"


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_programs_in_pages_are_programs(page: Path) -> None:
    """A block of language `cvm` is a whole program, in the usual layout."""
    for block in blocks(page.read_text("utf-8"), "cvm"):
        cvm.parse(block, page.name)
        assert format_text(block) == block


def test_python_in_pages_runs() -> None:
    """The Python of docs/derivatives.md runs."""
    (block,) = blocks((ROOT / "docs" / "derivatives.md").read_text("utf-8"), "python")
    found: dict[str, Any] = {}
    exec(compile(block, "docs/derivatives.md", "exec"), found)
    assert set(found["gradient"]) == {"scale", "shift"}
    x, scale = found["x"], found["w"]["scale"]
    np.testing.assert_allclose(found["gradient"]["scale"], (2 * x * (x * scale + 0.5)).sum(0))
    np.testing.assert_allclose(found["tangent"], np.exp(x))
    np.testing.assert_allclose(found["cotangent"], np.cos(x))


def test_a_graph_from_python_and_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The counter of docs/clocked.md runs from Python and from the command line."""
    page = (ROOT / "docs" / "clocked.md").read_text("utf-8")
    (program,), (block,), (commands,) = (blocks(page, language) for language in ("cvm", "python", "sh"))
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {"text": program}
    exec(compile(block, "docs/clocked.md", "exec"), found)
    assert found["g"].time() == 1 and found["g"].read("next") == 11
    Path("counter.cvm").write_text(program, "utf-8")
    Path("life.cvm").write_bytes((ROOT / "examples" / "life" / "life.cvm").read_bytes())
    np.save("start.npy", np.ones((512, 512), np.float32))
    for command in commands.splitlines():
        command, _, _ = command.partition(" --plot")  # which needs matplotlib
        assert cli.main(command.removeprefix("cvm ").split()) == 0
    assert "1002.75" in capsys.readouterr().out and np.load("state.npz")["state.n"] == 1002.75


def test_stages_of_a_convolution() -> None:
    """The stages that docs/lowering.md shows are those that are printed."""
    page = (ROOT / "docs" / "lowering.md").read_text("utf-8")
    (program,) = blocks(page, "cvm")
    compiled = cvm.compile(cvm.parse(program))
    for stage, count in (("formulas", 1), ("loops", 1), ("schedule", 3)):
        shown = blocks(page, stage)
        assert len(shown) == count
        for block in shown:
            assert block in compiled.lower(stage)
    for name in re.findall(r"`((?:lowering|jit|dialect)/[\w/]+\.py)`", page):
        assert (ROOT / name).exists(), name


def test_worked_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator of docs/operators.md can be added as it stands, and passes its tests."""
    page = (ROOT / "docs" / "operators.md").read_text("utf-8")
    definition, generator = blocks(page, "python")
    module = ModuleType("cvm.dialect.cvm.worked")
    module.__package__ = "cvm.dialect.cvm"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(SAMPLES, "cvm.weigh_rows", None)
    exec(compile(definition, "docs/operators.md", "exec"), module.__dict__)
    try:
        for n, text in enumerate(blocks(page, "cvm-test")):
            path = tmp_path / f"{n}.cvm"
            path.write_text(text, "utf-8")
            for command in Filetest.load(path).commands:
                perform(Filetest.load(path), command, update=command in GOLDENS)
        exec(compile(generator, "docs/operators.md", "exec"), {**vars(samples), "nn": module})
        for seed in range(10):
            op = SAMPLES["cvm.weigh_rows"](np.random.default_rng(seed))
            for unknown_sizes in (False, True):
                assert_same(by_formula(op, unknown_sizes)[0], references(op)[0], 0, f"seed {seed}: {op}")
            check(op.map(lambda a: a / 2**31), np.random.default_rng(seed))
    finally:
        OPERATORS._known.pop("cvm.weigh_rows", None)


def test_tests_of_operators_exist() -> None:
    """Every test that docs/operators.md lists is there."""
    page = (ROOT / "docs" / "operators.md").read_text("utf-8")
    listed = re.findall(r"^\| `(tests/[\w/]+\.py)` \|", page, re.MULTILINE)
    assert listed and all((ROOT / name).exists() for name in listed)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_target_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The target of docs/targets.md can be registered as it stands, and gives what the reference gives."""
    (block,) = blocks((ROOT / "docs" / "targets.md").read_text("utf-8"), "python")
    exec(compile(block, "docs/targets.md", "exec"), {"__name__": "c_target"})
    try:
        for program in IN_C:
            reference, f = (cvm.compile(program, target=target) for target in ("reference", "c"))
            shapes = [(a.known_type.array_shape, a.known_type.element.dtype) for a in f.function.arguments]
            given = [(np.arange(-9, np.prod(s) - 9) * 3 / 2).astype(t).reshape(s) for s, t in shapes]
            np.testing.assert_array_equal(f(*given), reference(*given), strict=True)
            assert f.lower("c").startswith("#include") and f.plan.kernels
        with pytest.raises(cvm.CallError) as error:
            cvm.compile(IN_C[1], target="c")(np.ones((2, 3), np.int32), np.zeros((2, 3), np.int32))
        assert error.value.diagnostics[0].span.line == 2
        for program, message in NOT_IN_C:
            with pytest.raises(cvm.TargetError, match=message):
                cvm.compile(program, target="c")
        graph = cvm.compile(GRAPH, "g", "c")
        assert graph.step(3) == 3 and graph.read("n") == 8
        (tmp_path / "p.cvm").write_text(IN_C[0], "utf-8")
        assert cli.main(["run", str(tmp_path / "p.cvm"), "--target", "c", "--random-inputs", "1"]) == 0
        assert cli.main(["lower", str(tmp_path / "p.cvm"), "--to", "c"]) == 0
        assert "int run(void **arrays, char *workspace) {" in capsys.readouterr().out
        with pytest.raises(cvm.TargetError, match="target 'c' is registered already"):
            register(TARGETS["c"])
        with pytest.raises(cvm.TargetError, match="another target has the stage 'llvm'"):
            register(replace(TARGETS["cpu"], name="cpu2"))
    finally:
        TARGETS.pop("c", None)
    assert "c" not in all_stages()


IN_C = (
    """func @main(%x: tensor<4x5xf32>, %w: tensor<3x5xf32>, %b: tensor<3xf32>) {
  %y = cvm.dense %x, %w, %b
  %z = dali.tanh %y
  return %z
}
""",
    """func @main(%a: tensor<2x3xi32>, %b: tensor<2x3xi32>) {
  %q = dali.floordiv %a, %b
  %s = cvm.sum %q {axes = [0]}
  return %s
}
""",
    """func @main(%x: tensor<1x2x7x6xi32>, %w: tensor<3x2x3x3xi32>) {
  %y = cvm.conv2d %x, %w {padding = [1, 1]}
  %r = cvm.relu %y
  %p = cvm.max_pool2d %r {pool_size = [2, 2], strides = [2, 2]}
  %c = cvm.cvm_right_shift %p {precision = 8, shift_bit = 2}
  return %c
}
""",
)
GRAPH = """graph @g {
  %n = cog.field "n" init dense<1.0> : !cog.field<[], f32>
  %m = cog.add %n, %n
  cog.feedback %n, %m
}
"""
NOT_IN_C = (
    ("func @main(%x: tensor<?xi32>) {\n  %y = cvm.abs %x\n  return %y\n}\n", "all sizes have to be known"),
    ("func @main(%x: tensor<3xf64>) {\n  %y = dali.log %x\n  return %y\n}\n", "log_factor is not supported"),
    ("func @main(%x: tensor<3xf16>) {\n  return %x\n}\n", "f16 is not supported"),
)


def test_the_table_of_numpy_functions_is_up_to_date() -> None:
    page = (ROOT / "docs" / "numpy.md").read_text("utf-8")
    made = runpy.run_path(str(ROOT / "docs" / "numpy_table.py"))
    assert made["page"](page) == page, "python docs/numpy_table.py brings it up to date"


def test_the_examples_of_numpy_functions_run() -> None:
    known: dict[str, Any] = {}
    for code in blocks((ROOT / "docs" / "numpy.md").read_text("utf-8"), "python"):
        exec(compile(code, "docs/numpy.md", "exec"), known)
    image = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20
    for found, wanted in zip(known["normalise"](image, 1.5), known["normalise"].function(image, 1.5), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
        assert found.dtype == wanted.dtype
    assert known["spread"](image, axis=1).tolist() == [60, 60, 60]
