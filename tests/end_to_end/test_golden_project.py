"""The pytest plugin and `cvm test`, on the project of examples/golden_project: from the checkout,
and from a wheel alone; and the commands that look into a program, from a wheel alone.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from example_projects import ROOT, environment, said

__all__ = ["environment"]  # a fixture
PLUGIN = [
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-p",
    "cvm.testing.pytest_plugin",
    "-p",
    "no:cacheprovider",
]
COUNT = 10  # `// test` lines of the project


def copied(project: str, to: Path) -> Path:
    folder = to / project
    shutil.copytree(ROOT / "examples" / project, folder)
    return folder


def break_it(folder: Path) -> str:
    """Another program and another comment; the text of the program before."""
    file = folder / "tests" / "classifier.cvm"
    before = file.read_text("utf-8")
    file.write_text(
        before.replace("%y = cvm.relu", "%y = cvm.negative").replace("// test run\n", ""), "utf-8"
    )
    plain = folder / "tests" / "plain.cvm"
    plain.write_text(plain.read_text("utf-8") + "// tset run\n", "utf-8")
    return before


def use(run: list[str], bless: list[str], folder: Path, path: Path | None, **more: str) -> None:
    """The project passes; broken, it fails and says where; blessed, it shows what changed; mended,
    it passes.
    """
    assert f"{COUNT} passed" in said(run, folder, 0, path, **more)
    before = break_it(folder)
    text = said(run, folder, 1, path, **more)
    assert "classifier.cvm:10: `loops` of @main prints something else than its golden lines" in text
    assert (
        "\n-      %y[%i, %j] = max(%acc0 + %b[%j], 0)\n+      %y[%i, %j] = -(%acc0 + %b[%j])\n"
        in text
    )
    assert "classifier.cvm:24: `// run:` without `// test run`: nothing looks at it" in text
    assert "plain.cvm:6: expected `// test run`, got `// tset run`" in text
    text = said(bless, folder, 1, path, **more)
    assert (
        "\n-//>       %y[%i, %j] = max(%acc0 + %b[%j], 0)\n"
        "+//>       %y[%i, %j] = -(%acc0 + %b[%j])\n" in text
    )
    (folder / "tests" / "plain.cvm").unlink()
    (folder / "tests" / "classifier.cvm").write_text(before, "utf-8")
    assert f"{COUNT} passed" in said(bless, folder, 0, path, **more)
    assert (folder / "tests" / "classifier.cvm").read_text("utf-8") == before
    assert not list(folder.rglob(".*.lock")) and not list(folder.rglob(".*.new"))


@pytest.mark.slow
def test_with_pytest(tmp_path: Path) -> None:
    use(
        [*PLUGIN, "--color=no"],
        [*PLUGIN, "--cvm-bless", "--color=no"],
        copied("golden_project", tmp_path),
        ROOT,
    )


@pytest.mark.slow
def test_with_several_workers(tmp_path: Path) -> None:
    """Workers bless the commands of one file at the same time, and none undoes what another
    wrote.
    """
    pytest.importorskip("xdist")
    folder = copied("golden_project", tmp_path)
    file = folder / "tests" / "classifier.cvm"
    before = file.read_text("utf-8")
    file.write_text(
        "".join(line for line in before.splitlines(True) if not line.startswith(("//>", "//="))),
        "utf-8",
    )
    assert f"{COUNT} passed" in said([*PLUGIN, "-n", "3"], folder, 0, CVM_BLESS="1")
    assert file.read_text("utf-8") == before


def test_without_pytest(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cvm", "test", "tests"]
    use(command, [*command, "--bless"], copied("golden_project", tmp_path), ROOT)


@pytest.mark.slow
def test_colours_on_a_terminal(tmp_path: Path) -> None:
    folder = copied("golden_project", tmp_path)
    break_it(folder)
    assert "\x1b[32m+      %y[%i, %j] = -(%acc0 + %b[%j])\x1b[0m" in said(
        [*PLUGIN, "--color=yes"], folder, 1
    )


@pytest.mark.slow
def test_from_a_wheel_alone(tmp_path: Path, environment: Path) -> None:
    """An environment with the wheel and pytest, and nothing of the checkout."""
    pytest_alone = [str(environment / "bin" / "python"), "-m", "pytest", "-q", "--color=no"]
    folder = copied("golden_project", tmp_path)
    use(pytest_alone, [*pytest_alone, "--cvm-bless"], folder, None)
    assert f"{COUNT} passed" in said(
        [str(environment / "bin" / "cvm"), "test", "tests"], folder, 0, None
    )


LAYER = """func @main(%x: tensor<?N x 8 x i32>, %w: tensor<5x8xi32>) -> tensor<?N x 5 x i32> {
  %h = cvm.dense %x, %w
  %y = cvm.relu %h
  return %y
}
"""
SCAN = """func @add(%c: tensor<f32>, %x: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %y = dali.add %c, %x
  return %y, %y
}

func @main(%c: tensor<f32>, %x: tensor<6xf32>) -> (tensor<f32>, tensor<6xf32>) {
  %last, %sums = builtin.scan @add(%c, %x) {carry = 1, scan = 1}
  return %last, %sums
}
"""
BROKEN = """from cvm.extending import Kernel, register_pass


@register_pass()
def drop_body(kernel: Kernel) -> Kernel:
    \"\"\"Drop the body.\"\"\"
    raise RuntimeError("no such body")
"""
REDUCED = """func @main(%x: tensor<?N x 1 x i32>, %w: tensor<1x1xi32>) -> tensor<?N x 1 x i32> {
  %h = cvm.dense %x, %w
  return %h
}
"""


@pytest.mark.slow
def test_every_command_from_a_wheel_alone(tmp_path: Path, environment: Path) -> None:
    """Run each level from a wheel: passes are watched; diff, reduce, report, viz and cost do what
    their pages say.
    """

    def cvm(*arguments: str, status: int = 0, start: Sequence[str] = ()) -> str:
        command = [*start, str(environment / "bin" / "cvm"), *arguments]
        return said(command, tmp_path, status, None, CVM_CACHE_DIR=str(tmp_path))

    with_errors = ("sh", "-c", 'exec "$@" 2>&1', "sh")

    (tmp_path / "p.cvm").write_text(LAYER)
    (tmp_path / "q.cvm").write_text(LAYER.replace("relu", "negative"))
    wanted = cvm(
        "run", "p.cvm", "--random-inputs", "1", "--output", "saved.npz", "--digest", "--profile"
    )
    assert "sha256" in wanted and "GB/s" in wanted
    for stage in ("formulas", "loops", "schedule"):
        cvm("lower", "p.cvm", "--to", stage, "-o", stage)
        assert cvm("check", stage).startswith(f"{stage}: ok")
        assert "%y: tensor<4x5xi32>" in cvm("run", stage, "--random-inputs", "1")
        assert "define i32 @entry" in cvm("lower", stage, "--to", "llvm")
        assert "kernel @" in cvm("opt", stage, "--pipeline", "unroll{factor=4}", "--verify-each")
    passes = "fuse,vectorize,unroll{factor=4}"
    watched = cvm(
        "opt",
        "p.cvm",
        "--pipeline",
        passes,
        "--print-after-all",
        "--print-changed",
        "--timing",
        start=with_errors,
    )
    assert all(
        mark in watched
        for mark in ("// after vectorize", "+++ after build_formulas", "+kernel @main.0", " ms")
    )
    (tmp_path / "broken.py").write_text(BROKEN)
    cvm("opt", "p.cvm", "--load", "broken", "--pipeline", "build_loops,drop_body", status=1)
    assert "no such body" in cvm(
        "opt",
        "--load",
        "broken",
        "--run-reproducer",
        "p.reproducer.cvm",
        status=1,
        start=with_errors,
    )
    (tmp_path / "scan.cvm").write_text(SCAN)
    cvm("lower", "scan.cvm", "--to", "loops", "-o", "scan.loops")
    for program in ("scan.cvm", "scan.loops"):
        assert "[1, 3, 6, 10, 15, 21]" in cvm(
            "run", program, "--input", "c=0", "--input", "x=[1,2,3,4,5,6]"
        )
    assert (
        json.loads(cvm("cost", "p.cvm", "--json", "--size", "N=4"))["operation"]["operations"]
        == 4 * 5 * 17
    )
    cvm("cost", "p.cvm", "-o", "roofline.svg")
    cvm("viz", "p.cvm", "-o", "drawing.svg")
    cvm("report", "p.cvm", "-o", "report.html")
    for page, mark in (
        ("roofline.svg", "op/s"),
        ("drawing.svg", "cvm.dense"),
        ("report.html", "contraction @main.0"),
    ):
        assert mark in (tmp_path / page).read_text("utf-8")
    assert "all 2 values are the same" in cvm("diff", "p.cvm")
    assert "values are the same" in cvm(
        "diff", "p.cvm", "--pipeline", "fuse", "--pipeline", "vectorize"
    )
    found = cvm("diff", "p.cvm", "q.cvm", status=1)
    assert (
        found.startswith("p.cvm:3:8: %y of cvm.relu differs at [")
        and "%x: tensor<1x8xi32>" in found
    )
    assert "%y of cvm.negative differs" in cvm(
        "diff", "q.cvm", "saved.npz", "--random-inputs", "1", status=1
    )
    (tmp_path / "test.py").write_text(
        "import sys\nsys.exit('cvm.dense' in open(sys.argv[1]).read())\n"
    )
    assert cvm("reduce", "q.cvm", "--test", f"{environment}/bin/python test.py") == REDUCED


WITHOUT_SIMULATOR = """
from types import SimpleNamespace
from cvm.testing import commands

find = commands.find_target
absent = SimpleNamespace(missing=lambda: "not here")
commands.find_target = lambda name: absent if name.startswith("cuda") else find(name)
"""


def test_the_plugin_runs_the_targets_that_can_run(tmp_path: Path) -> None:
    """Targets that cannot run here are skipped one by one, and hide no wrong result of another."""
    (tmp_path / "conftest.py").write_text(WITHOUT_SIMULATOR)
    program = (
        "// test run target=cuda,cpu,cuda-sim\nfunc @main(%x: tensor<1xi32>) { return %x }\n"
        "// run: @main([1]) == "
    )
    (tmp_path / "wrong.cvm").write_text(f"{program}[2]\n")
    (tmp_path / "right.cvm").write_text(f"{program}[1]\n")
    text = said([*PLUGIN, "-rs", "--color=no"], tmp_path, 1, ROOT)
    assert "1 failed, 1 passed, 4 skipped" in text
    assert "wrong.cvm:3: cpu: @main([1]) == [2]" in text
    assert "target cuda-sim: not here" in text and "target cuda: not here" in text
