"""The documents: what they show is what happens, their links lead somewhere, and their tables are
complete.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import samples
from cvm.dialect.kernel_ir.expressions import Read
from cvm.dialect.kernel_ir.kernel_printer import kernels_text
from cvm.dialect.spec.operator import OPERATORS
from cvm.jit.cuda import nvrtc
from cvm.lowering.analysis.verify_kernel import LoweringError, check_kernel
from cvm.lowering.pipeline import PIPELINES, to_formulas
from cvm.lowering.processor import GENERIC
from cvm.parser.format import format_text
from cvm.parser.kernels import read_kernels
from finite_differences import check
from loop_interpreter import by_formula, execute
from operator_checks import assert_same, references
from own_patterns import own_patterns
from pages import BLOCK, run_page
from samples import SAMPLES

import cvm
from cvm import cli, extending
from cvm.terminal.operator_pages import by_dialect
from cvm.terminal.run_pipeline import all_passes, text_after
from cvm.testing.commands import perform
from cvm.testing.filetest import Filetest

ROOT = Path(__file__).parents[2]
MODEL = "hello_world_int8.tflite"  # of docs/migrating/tflite.md
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [
    ROOT / "README.md",
    *(p for d in ("docs", "examples", "editors") for p in sorted((ROOT / d).rglob("*.md"))),
]


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language in a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_ci_uses_the_commands_of_the_readme() -> None:
    """As they stand there, with nothing else installed into their environment, before or
    afterwards.
    """
    first, second = blocks(README, "sh")[:2]
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    before, between, after = re.split(f"{re.escape(first)}|{re.escape(second)}", script)
    assert "rm -rf .venv" in before and "pip install" not in before + between
    assert (
        "\n.venv/bin/pip" not in after and "-m venv" in after and "pytest -q -n auto --all" in after
    )


def test_readme_shows_what_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = next(b for b in blocks(README, "cvm") if b.startswith("// layer.cvm"))
    narrow = re.sub(r"(\[-?\d+, -?\d+), -?\d+\]", r"\1]", program).replace(
        "tensor<4x3xi32>", "tensor<4x2xi32>"
    )
    assert (ROOT / "examples" / "layer.cvm").read_text("utf-8") == program
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "layer.cvm").write_text(program, "utf-8")
    (tmp_path / "wrong.cvm").write_text(narrow, "utf-8")
    monkeypatch.chdir(tmp_path)
    for block in blocks(README, "console"):
        command, _, shown = block.partition("\n")
        cli.main(command.removeprefix("$ cvm ").split())
        said = capsys.readouterr()
        assert said.err + said.out == shown


def test_python_of_the_readme_runs_as_pasted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, block = blocks(README, "python")  # tests/end_to_end/test_exactness.py runs the first
    monkeypatch.chdir(ROOT)
    exec(compile(block, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert said.startswith("[[4 0 0 3]\n [4 0 0 4]]\nTrue\nkernel @main.0") and said.endswith(
        "\n(1000, 3)\n"
    )


def test_the_first_picture_is_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "front_page.py"))
    assert made["PICTURE"].read_text("utf-8") == made["picture"](), (
        "python docs/front_page.py draws it"
    )


def test_a_release_has_absolute_links_and_urls() -> None:
    made = runpy.run_path(str(ROOT / ".ci" / "release_metadata.py"))
    page = made["absolute"](README, "https://example.org/cvm", "v1")
    assert "](https://example.org/cvm/raw/v1/docs/front_page.svg)" in page
    assert not [t for t in re.findall(r"\]\(([^)]+)\)", page) if not t.startswith("https://")]
    project = tomllib.loads(
        made["with_urls"]((ROOT / "pyproject.toml").read_text("utf-8"), "https://example.org/cvm")
    )
    assert project["project"]["urls"]["Source"] == "https://example.org/cvm"


def test_status_lists_every_operator() -> None:
    page = (ROOT / "docs" / "status.md").read_text("utf-8")
    listed = re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE)
    assert listed == [
        op.name for ops in by_dialect().values() for op in ops if op.dialect != "builtin"
    ], "python docs/status.py brings the table up to date"


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


def test_fine_tuning_of_the_quantization_page() -> None:
    """The loss of docs/quantised.md falls, though its weights are rounded to 4 bits."""
    (block,) = blocks((ROOT / "docs" / "quantised.md").read_text("utf-8"), "python")
    found: dict[str, Any] = {}
    exec(compile(block, "docs/quantised.md", "exec"), found)
    x, y, w = (found[name] for name in ("x", "y", "w"))
    first = np.random.default_rng(0)
    first.normal(size=(100, 8))
    loss = cvm.compile(found["loss"])
    assert loss(w, x, y) < 0.1 * loss(first.normal(size=(8, 3)), x, y)


def test_a_graph_from_python_and_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The counter of docs/clocked.md runs from Python and from the command line."""
    page = (ROOT / "docs" / "clocked.md").read_text("utf-8")
    (program,), (block,), (commands,) = (
        blocks(page, language) for language in ("cvm", "python", "sh")
    )
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
    compiled = cvm.compile(cvm.parse(program), cpu=GENERIC)
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
                perform(Filetest.load(path), command, update=True)
        exec(compile(generator, "docs/operators.md", "exec"), {**vars(samples), "nn": module})
        for seed in range(10):
            op = SAMPLES["cvm.weigh_rows"](np.random.default_rng(seed))
            for unknown_sizes in (False, True):
                assert_same(
                    by_formula(op, unknown_sizes)[0], references(op)[0], 0, f"seed {seed}: {op}"
                )
            check(op.map(lambda a: a / 2**31), np.random.default_rng(seed))
    finally:
        OPERATORS._known.pop("cvm.weigh_rows", None)


def test_worked_example_of_a_pass() -> None:
    """Each version of the pass of docs/passes.md gives its golden, and changes no result."""
    page = (ROOT / "docs" / "passes.md").read_text("utf-8")
    (file, change), goldens = blocks(page, "python"), blocks(page, "cvm-kernel")
    module = ModuleType("cvm.lowering.loops.shift_products")
    module.__package__ = "cvm.lowering.loops"
    exec(compile(file, "docs/passes.md", "exec"), module.__dict__)
    module.__dict__["Read"] = Read
    for version, text in zip(("", change), goldens, strict=True):
        exec(
            compile(f"from __future__ import annotations\n{version}", "docs/passes.md", "exec"),
            module.__dict__,
        )
        (kernel,) = read_kernels(
            "".join(line for line in text.splitlines(True) if not line.startswith("//"))
        )[0].kernels
        made = module.__dict__["shift_products"](kernel)
        with (
            nullcontext()
            if version
            else pytest.raises(LoweringError, match="an index of %x may be below 0")
        ):
            check_kernel(made)
        assert kernels_text([made]).splitlines() == re.findall(r"^//> (.*)$", text, re.MULTILINE)
        x = np.random.default_rng(0).integers(-(2**31), 2**31, 100).astype(np.int32)
        for each in (kernel, made):
            np.testing.assert_array_equal(execute(each, x)[0], x[::2] * np.int32(8) + np.int32(1))


@pytest.mark.parametrize("name", ["operators", "passes"])
def test_tests_that_pages_list_exist(name: str) -> None:
    """Every test that docs/operators.md or docs/passes.md lists is there."""
    page = (ROOT / "docs" / f"{name}.md").read_text("utf-8")
    listed = re.findall(r"^\| `(tests/[\w/]+(?:\.py)?/?)` \|", page, re.MULTILINE)
    assert listed and all((ROOT / name).exists() for name in listed)


SESSIONS = [
    p
    for p in PAGES
    if p.parent.name in ("docs", "migrating")
    and re.search("^```(console|pycon)$", p.read_text("utf-8"), re.M)
]
PEERS = {  # of the pages docs/migrating: the module that the other half needs, and its command
    "numba": ("numba", "with_numba.py"),
    "jax": ("jax", "with_jax.py"),
    "mlir": ("xdsl", "with_mlir.mlir"),
    "tflite": ("ai_edge_litert", "with_litert.py"),
}
BY_OTHERS = {  # what runs the blocks of a language in a page
    ("README.md", "sh"): "test_exactness.py::test_the_model_of_the_readme",
    ("README.md", "console"): "test_docs.py::test_readme_shows_what_happens",
    ("README.md", "python"): "test_docs.py::test_python_of_the_readme_runs_as_pasted",
    (
        "docs/clocked.md",
        "python",
    ): "test_docs.py::test_a_graph_from_python_and_from_the_command_line",
    ("docs/clocked.md", "sh"): "test_docs.py::test_a_graph_from_python_and_from_the_command_line",
    ("docs/command_line.md", "sh"): "test_levels.py::test_constants_that_the_text_leaves_out",
    ("docs/promises.md", "sh"): "test_selftest.py::test_some_parts_are_equal",
    **{
        ("docs/deploy.md", language): "test_c_source.py::test_the_programs_of_the_page"
        for language in ("sh", "c", "cpp", "rust")
    },
    ("docs/derivatives.md", "python"): "test_docs.py::test_python_in_pages_runs",
    ("docs/exactness.md", "sh"): "test_exactness.py::test_the_commands_of_the_page",
    ("docs/extending.md", "python"): "test_docs.py::test_patterns_and_pass_of_the_extending_page",
    ("docs/extending.md", "toml"): "test_extensions.py::test_by_entry_points",
    ("docs/gpu.md", "sh"): "test_docs.py::test_files_of_commands_exist",
    ("docs/install.md", "sh"): "test_docs.py::test_the_commands_of_the_install_page",
    ("docs/migrating/tflite.md", "sh"): "test_docs.py::test_the_commands_of_the_tflite_page",
    (
        "docs/language.md",
        "python",
    ): "../unit/cvm/test_array_methods.py::test_the_example_of_the_language_page",
    ("docs/kernels.md", "python"): "../unit/cvm/test_kernels.py::test_the_page_of_kernels",
    ("docs/schedules.md", "python"): "../property/test_schedules.py::test_the_page_of_schedules",
    (
        "docs/schedules.md",
        "schedule",
    ): "../property/test_schedules.py::test_the_examples_of_the_page_keep_every_bit",
    ("docs/lowering.md", "formulas"): "test_docs.py::test_stages_of_a_convolution",
    ("docs/lowering.md", "loops"): "test_docs.py::test_stages_of_a_convolution",
    ("docs/lowering.md", "schedule"): "test_docs.py::test_stages_of_a_convolution",
    ("docs/lowering.md", "asm"): "test_docs.py::test_machine_code_of_a_convolution",
    ("examples/language_model/README.md", "sh"): "test_language_model.py::test_the_commands",
    ("docs/jax.md", "python"): "test_stablehlo.py::test_the_program_of_the_page",
    ("docs/mlir.md", "sh"): "test_linalg.py::test_the_commands_of_the_page",
    ("docs/random.md", "python"): "../unit/cvm/test_random.py::test_the_page",
    ("docs/pytorch.md", "python"): "test_torch_exports.py::test_the_program_of_the_page",
    ("docs/operators.md", "python"): "test_docs.py::test_worked_example",
    ("docs/passes.md", "python"): "test_docs.py::test_worked_example_of_a_pass",
    ("docs/passes.md", "cvm-kernel"): "test_docs.py::test_worked_example_of_a_pass",
    ("docs/performance.md", "sh"): "test_docs.py::test_files_of_commands_exist",
    ("docs/processors.md", "sh"): "test_other_processors.py::test_the_commands_of_the_page",
    ("docs/quantised.md", "python"): "test_docs.py::test_fine_tuning_of_the_quantization_page",
    ("docs/quantised.md", "sh"): "test_quantization.py::test_the_command",
    ("docs/spine.md", "python"): "test_docs.py::test_the_program_of_the_spine",
    ("docs/targets.md", "python"): "test_target_in_c.py::test_a_target_of_ones_own",
    ("docs/testing.md", "sh"): "test_docs.py::test_files_of_commands_exist",
    ("examples/golden_project/README.md", "sh"): "test_golden_project.py::test_from_a_wheel_alone",
    ("examples/finite_fields/README.md", "sh"): (
        "../unit/dialect/test_declared_types.py::test_the_commands_of_the_page"
    ),
    ("examples/my_dialect/README.md", "sh"): "test_extensions.py::test_from_a_wheel_alone",
    ("editors/README.md", "sh"): "test_docs.py::test_files_of_commands_exist",
}


def test_every_block_is_run() -> None:
    """Every block of code in a page is run by some test; configuration of editors is for them."""
    by_all = {"cvm", "cvm-test", "text"}
    found = set()
    for page in PAGES:
        sessions = page in SESSIONS or page.parent.name == "tutorial"
        for _, language, title, _ in BLOCK.findall(page.read_text("utf-8")):
            if language not in by_all and not (
                sessions and (title or language in ("console", "pycon"))
            ):
                found.add((str(page.relative_to(ROOT)), language))
    assert found - {
        ("editors/README.md", "lua"),
        ("editors/README.md", "toml"),
        ("docs/gpu.md", "yaml"),
    } == set(BY_OTHERS)
    for test in BY_OTHERS.values():
        file, _, name = test.partition("::")
        assert f"def {name}(" in (Path(__file__).parent / file).read_text("utf-8"), test


@pytest.mark.parametrize("page", SESSIONS, ids=[p.stem for p in SESSIONS])
def test_sessions_in_pages(page: Path, tmp_path: Path) -> None:
    for module in ("dask.array", "zarr", "tqdm", "joblib") if page.stem == "scale" else ():
        pytest.importorskip(module)
    if page.stem == "gpu" and nvrtc.missing():
        pytest.skip("NVRTC is not installed")
    if page.stem == "tflite":
        shutil.copy(ROOT / "tests" / "models" / "tflite" / MODEL, tmp_path)
    _, wrong = run_page(page.read_text("utf-8"), tmp_path)
    assert not wrong, f"python tests/support/pages.py {page} brings it up to date:\n" + "\n".join(
        wrong
    )


@pytest.mark.parametrize("name", PEERS)
def test_both_programs_of_a_migration_page_print_the_same(name: str, tmp_path: Path) -> None:
    module, peer = PEERS[name]
    pytest.importorskip(module)
    if name == "tflite":
        shutil.copy(ROOT / "tests" / "models" / "tflite" / MODEL, tmp_path)
    page = (ROOT / "docs" / "migrating" / f"{name}.md").read_text("utf-8")
    ours = "with_cvm" + Path(peer).suffix.replace("mlir", "cvm")
    printed = []
    for file in (peer, ours):
        (program,) = re.findall(
            rf'^```\w+ title="{file}"\n(.*?)^```', page, re.MULTILINE | re.DOTALL
        )
        (tmp_path / file).write_text(program, "utf-8")
        command = ["-m", "cvm", "run", file, "--random-inputs", "1"]
        command = [file] if file.endswith(".py") else command
        env = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        printed.append(re.sub(r"^%\w+:", "%y:", done.stdout))  # whatever the value is called
    assert printed[0] == printed[1]


def test_filetests_in_pages(tmp_path: Path) -> None:
    for page in PAGES:
        for n, text in enumerate(blocks(page.read_text("utf-8"), "cvm-test")):
            if page.name != "operators.md":  # whose operator is the page's
                path = tmp_path / f"{page.stem}{n}.cvm"
                path.write_text(text, "utf-8")
                for command in Filetest.load(path).commands:
                    perform(Filetest.load(path), command, update=True)


def test_files_of_commands_exist() -> None:
    """Commands that install, need a GPU or take an hour name files that are there."""
    for page in ("docs/gpu.md", "docs/performance.md", "docs/testing.md", "editors/README.md"):
        for block in blocks((ROOT / page).read_text("utf-8"), "sh"):
            named = re.findall(r"(?<=\s)[\w.]+/[\w./]+", block)
            assert all((ROOT / name).exists() for name in named), block


def test_the_commands_of_the_install_page() -> None:
    """They name extras and the wheel as pyproject.toml does; .ci/packaging installs all ways."""
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (rows,) = re.findall(r"^\| extra \|.*?\n\n", page, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`([a-z\d-]+)`", "".join(re.findall(r"^\| (`.*?) \|", rows, re.M)))) == {
        *project["optional-dependencies"]
    }
    assert set(re.findall(r"cvm_lang-[\d.]+", page)) == {f"cvm_lang-{project['version']}"}


def test_the_commands_of_the_tflite_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(ROOT / "tests" / "models" / "tflite" / MODEL, tmp_path)
    monkeypatch.chdir(tmp_path)
    (commands,) = blocks((ROOT / "docs" / "migrating" / "tflite.md").read_text("utf-8"), "sh")
    for command in commands.splitlines():
        assert cli.main(shlex.split(command, comments=True)[1:]) == 0, command


def test_the_table_of_numpy_functions_is_up_to_date() -> None:
    page = (ROOT / "docs" / "numpy.md").read_text("utf-8")
    made = runpy.run_path(str(ROOT / "docs" / "numpy_table.py"))
    assert made["page"](page) == page, "python docs/numpy_table.py brings it up to date"


def test_patterns_and_pass_of_the_extending_page(monkeypatch: pytest.MonkeyPatch) -> None:
    patterns, fir, regions, nest, log, field, a_pass = blocks(
        (ROOT / "docs" / "extending.md").read_text("utf-8"), "python"
    )
    monkeypatch.setattr(extending, "REGISTERED", {})
    found: dict[str, Any] = {"_squared": lambda e: e}
    exec(compile(a_pass, "docs/extending.md", "exec"), found)
    (name, summary), *_ = [(n, p.summary) for n, p in extending.REGISTERED.items()]
    assert (name, summary) == ("square_products", found["square_products"].__doc__.rstrip("."))
    with own_patterns():
        exec(compile(patterns, "docs/extending.md", "exec"), {"__name__": "page"})
        text = """
            func @main(%x: tensor<?N x i32> {range = [0, 9]}, %y: tensor<?N x i32>) {
              %a = cvm.relu %x
              %b = cvm.negative %a
              %c = cvm.negative %y
              %d = cvm.broadcast_mul %b, %c
              return %d
            }
        """
        assert "%d = cvm.broadcast_mul %x, %y\n  return %d" in text_after(
            cvm.parse(text), "simplify"
        )
        page = ModuleType("page")
        monkeypatch.setitem(sys.modules, "page", page)  # where the hints of fields are looked up
        exec(compile(fir, "docs/extending.md", "exec"), page.__dict__)
        exec(compile(regions, "docs/extending.md", "exec"), page.__dict__)
        for target in ("cpu", "reference", "cuda-sim"):
            unless = cvm.compile(page.__dict__["Unless"].example, target=target)
            for condition, expected in ((True, [-1, 2, 3]), (False, [0, 2, 3])):
                given = np.array(condition), np.float32([-1, 2, 3])
                assert unless(*given).tolist() == expected
            repeat = cvm.compile(page.__dict__["Repeat"].example, target=target)
            assert repeat(np.int32([1, 2, 3]), np.int32([1, 10, 100])).tolist() == [4, 32, 303]
        wrong = "dsp.repeat %x { yield %y }"
        with pytest.raises(cvm.VerifyError, match=r"dsp\.repeat\.C2"):
            cvm.parse(
                f"func @f(%x: tensor<3xi32>, %y: tensor<2xi32>) {{\n  %z = {wrong}\n  return\n}}\n"
            )
        exec(compile(nest, "docs/extending.md", "exec"), page.__dict__)
        running = cvm.parse(page.__dict__["RunningMax"].example)
        for target in ("cpu", "reference"):
            found_max = cvm.compile(running, target=target)(np.float32([1, 3, 2, -1, 5]))
            assert found_max.tolist() == [1, 3, 3, 3, 5]
        exec(compile(log, "docs/extending.md", "exec"), page.__dict__)
        exec(compile(field, "docs/extending.md", "exec"), page.__dict__)
        elements = cvm.compile("func @main(%x: tensor<2x!ff.elem<17>>) { return %x }")
        with pytest.raises(cvm.CallError, match="from 0 to 16, got 17"):
            elements(np.uint32([1, 17]))
        logging = "func @main(%x: tensor<2xi32>) {\n  dsp.log %x\n  return %x\n}\n"
        assert cvm.compile(logging)(np.int32([1, 2])).tolist() == [1, 2]
        module = cvm.parse(page.__dict__["Fir"].example)
        assert "dsp." not in text_after(module, "convert{from=dsp to=cvm}")
        x, taps = np.arange(8, dtype=np.float32), np.float32([1, 10, 100])
        expected = np.correlate(x, taps, "valid")
        np.testing.assert_array_equal(cvm.compile(module)(x, taps), expected)
        np.testing.assert_array_equal(cvm.compile(module, target="reference")(x, taps), expected)


def test_machine_code_of_a_convolution() -> None:
    """The instructions that docs/lowering.md shows are those of AVX2, whatever registers they
    use.
    """
    page = (ROOT / "docs" / "lowering.md").read_text("utf-8")
    (program,), (shown,) = blocks(page, "cvm"), blocks(page, "asm")
    code = cvm.compile(program, cpu="x86-64-v3").lower("asm")
    shown, code = (
        " ".join(re.findall(r"^\t([a-z]\w*)", text, re.MULTILINE)) for text in (shown, code)
    )
    assert shown in code


def test_the_program_of_the_spine(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks((ROOT / "docs" / "spine.md").read_text("utf-8"), "python")
    x, w, b = (
        np.eye(2, 3, dtype=np.float32),
        np.ones((4, 3), np.float32),
        np.full(4, -0.5, np.float32),
    )
    found = {"cvm": cvm, "x": x, "w": w, "b": b}
    exec(compile(block, "docs/spine.md", "exec"), found)
    np.testing.assert_array_equal(found["y"], np.full((2, 4), 0.5))
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("formulas @main", "kernel @main.0", "define"))


def test_formulas_of_operators_are_drawn() -> None:
    """The formulas of each operator's example are MathML."""
    page = runpy.run_path(str(ROOT / "docs" / "mathml.py"))["page"]
    drawn = {}
    operators = [op for ops in by_dialect().values() for op in ops if not op.has_effect]
    for op in (op for op in operators if op.example):
        for function in (module := cvm.parse(op.example)).functions.values():
            drawn[op.name] = ElementTree.fromstring(
                f"<page>{page(to_formulas(module, function))}</page>"
            )
    assert sum(len(found) > 0 for found in drawn.values()) > 100
    assert "".join(drawn["cvm.clip"].itertext()) == "y[i0,i1]=min(max(x[i0,i1],0),255)i0<2i1<3"
    assert "".join(drawn["cvm.dense"].itertext()) == "y[i,j]=∑k<3x[i,k]·w[j,k]+b[j]i<2j<4"


def glossary(section: str) -> list[list[str]]:
    """The rows of a section's table in docs/glossary.md."""
    page = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in re.findall(r"^\|.*\|$", text, re.MULTILINE)
    ][2:]


@pytest.mark.parametrize("section", ["Programs", "Loops", "Contractions", "Code generation"])
def test_terms_of_the_glossary_are_those_of_the_code(section: str) -> None:
    """Each term occurs in the sources, under this name."""
    files = (
        p
        for room in ("cvm", "dialect", "lowering", "jit", "parser")
        for p in (ROOT / room).rglob("*.py")
    )
    words = " ".join(re.sub(r"[\s_-]+", " ", p.read_text("utf-8")).lower() for p in files)
    missing = [
        term
        for term, *_ in glossary(section)
        if not re.search(rf"\b{re.sub('[ -]', ' ', term.lower())}", words)
    ]
    assert not missing


def test_glossary_names_every_pass_and_package() -> None:
    named = re.findall(r"`(\w+)`", " ".join(row[0] for row in glossary("Passes")))
    assert len(named) == len(set(named)) and {*all_passes(), *PIPELINES} <= set(named)
    listed = set(re.findall(r"`([\w/]+)`", " ".join(row[0] for row in glossary("Packages"))))
    packages = {
        str(p.parent.relative_to(ROOT))
        for room in ("cvm", "dialect", "grammar", "jit", "lowering", "parser")
        for p in (ROOT / room).glob(
            "*/__init__.py" if room in ("dialect", "jit", "lowering") else "__init__.py"
        )
    }
    assert packages <= listed and all((ROOT / name).exists() for name in listed)
