"""Packages that extend cvm: examples/my_dialect through entry points, by --load, from a wheel
alone, and with mistakes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cvm.dialect.support import entry_points
from example_projects import ROOT, environment, said
from own_patterns import own_patterns

import cvm.cli
import cvm.extending
from cvm.commands.new import skeleton

__all__ = ["environment"]  # a fixture
CVM = [sys.executable, "-m", "cvm"]
PYTEST = [
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-p",
    "cvm.testing.pytest_plugin",
    "-p",
    "no:cacheprovider",
    "--color=no",
]
LOAD = ["--load", "my_dialect.operators", "--load", "my_dialect.square_products"]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The example as pip leaves it: the package, and its entry points beside it."""
    for path, text in skeleton("my").items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, "utf-8")
    (tmp_path / "my_dialect" / "more.py").write_text(
        "import cvm\nfrom cvm.extending import Target, lower, register_importer, register_target\n"
        "from cvm.jit.functions.reference_function import ReferenceFunction\n\n"
        "register_target(Target('slow', load=ReferenceFunction, stages={'mine': lambda "
        "source, options: 'mine!'}))\n\n\n"
        "@register_importer('.mine')\n"
        "def read(path):\n"
        "    return cvm.parse(path.read_text().replace('DOUBLE', 'cvm.elemwise_add %x, "
        "%x'))\n"
    )
    info = tmp_path / "my_dialect-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-dialect\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(
        "[cvm.dialects]\nmy = my_dialect.operators\n[cvm.passes]\n"
        "square_products = my_dialect.square_products\n"
        "[cvm.targets]\nslow = my_dialect.more\n[cvm.importers]\nmine = my_dialect.more\n"
    )
    return tmp_path


def run(package: Path, *command: str, status: int = 0) -> str:
    known = {
        "PYTHONPATH": f"{ROOT}:{package}",
        "PATH": "/usr/bin:/bin",
        "HOME": str(package),
        "CVM_TRACEBACK": "1",
    }
    known |= {
        "PYTHONDONTWRITEBYTECODE": "1"
    }  # tests change files within a second, which Python would not notice
    done = subprocess.run(
        [*CVM, *command], cwd=package, env=known, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_example_is_the_skeleton(tmp_path: Path) -> None:
    found = {
        str(p.relative_to(ROOT / "examples/my_dialect")): p
        for p in (ROOT / "examples/my_dialect").rglob("*.*")
    }
    found = {
        n: p
        for n, p in found.items()
        if p.is_file() and "__pycache__" not in n and "egg-info" not in n
    }
    assert {n: p.read_text("utf-8") for n, p in found.items()} == skeleton("my")
    run(tmp_path, "new", "dialect", "other")
    assert "cvm ops another" in run(tmp_path, "new", "dialect", "another", "-o", "here")
    assert "other_dialect is there already" in run(tmp_path, "new", "dialect", "other", status=2)
    assert "cvm is a dialect of cvm" in run(tmp_path, "new", "dialect", "cvm", status=2)
    assert "small letters" in run(tmp_path, "new", "dialect", "My-Own", status=2)
    text = run(
        tmp_path / "other_dialect",
        "test",
        "tests",
        "--load",
        "other_dialect.operators",
        "--load",
        "other_dialect.square_products",
    )
    assert text == "8 passed\n"


@pytest.mark.slow
def test_by_entry_points(package: Path) -> None:
    """Operators, passes, targets and importers are found without being named."""
    assert "8 passed" in said(PYTEST, package, 0, None, PYTHONPATH=f"{ROOT}:{package}")
    listed = run(package, "ops", "my")
    assert listed.startswith("my: Operators of the dialect my.") and "my.squared_distance" in listed
    assert "my.squared_distance" in run(package, "ops") and "C3  shape(a) = shape(b)" in run(
        package, "ops", "my.squared_distance"
    )
    assert re.search(r"^  square_products +Write the product", run(package, "opt", "--list"), re.M)
    (package / "p.cvm").write_text(
        "func @main(%a: tensor<3xf32>) {\n  %y = my.squared_distanc %a, %a\n  return\n}\n"
    )
    assert "did you mean my.squared_distance" in run(package, "check", "p.cvm", status=1)
    (package / "p.mine").write_text(
        "func @main(%x: tensor<3xi32>) -> tensor<3xi32> {\n  %y = DOUBLE\n  return %y\n}\n"
    )
    assert (
        "cvm.elemwise_add %x, %x"
        in run(package, "import", "p.mine", "-o", "q.cvm") + (package / "q.cvm").read_text()
    )
    assert "%y: tensor<3xi32>" in run(
        package, "run", "q.cvm", "--target", "slow", "--random-inputs", "1"
    )
    assert run(package, "lower", "q.cvm", "--to", "mine").strip() == "mine!"
    assert "slow: ready" in run(package, "doctor")
    (package / "slow.cvm").write_text(
        "// test run target=slow\n" + (package / "q.cvm").read_text() + "// run: @main([1, 2, 3]) "
        "== [2, 4, 6]\n"
    )
    assert run(package, "test", "slow.cvm") == "1 passed\n"
    assert "unknown target 'slo'; the targets are cpu, reference, cuda, cuda-sim, slow" in run(
        package, "run", "q.cvm", "--target", "slo", "--random-inputs", "1", status=2
    )


def test_by_load(package: Path) -> None:
    for file in (package / "my_dialect-0.1.0.dist-info").iterdir():
        file.unlink()
    assert run(package, "test", "tests", *LOAD) == "8 passed\n"
    assert "there is no dialect or operator my" in run(package, "ops", "my", status=2)
    assert "--load: nothing_here cannot be imported: ModuleNotFoundError" in run(
        package, "ops", "--load", "nothing_here", status=1
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("was", "becomes", "text"),
    [
        (
            "difference * difference)",
            "difference * diference)",
            "operators.py:43:9: error[operator]: my.squared_distance: `element` fails: NameError",
        ),
        (
            "o.a.shape == o.b.shape",
            "o.a.shap == o.b.shape",
            "operators.py:25:9: error[operator]: my.squared_distance: constraint C3 fails: "
            "AttributeError",
        ),
        (
            "return (self.a - self.b)",
            "return (self.a - self.c)",
            "operators.py:38:9: error[operator]: my.squared_distance: `reference` fails: "
            "AttributeError",
        ),
        (
            "        return self.a\n",
            "        return self.a.shape\n",
            "operators.py:34:5: error[operator]: my.squared_distance: `infer` gives tuple, "
            "not a type",
        ),
        (
            "    def infer(",
            "    def inferr(",
            "operators.py:15:1: error[operator]: my.squared_distance: it has no method `infer`",
        ),
        ("    def element(", "    def elemen(", "my.squared_distance has no method `element`"),
        (
            'dialect = "my"',
            'dialect = "cvm"',
            "cvm.squared_distance: an operator of another package has a dialect of its "
            "own; cvm is a dialect of cvm",
        ),
        ("difference * difference)", "difference + difference)", "its formula ("),
    ],
)
def test_mistakes_name_operator_file_and_line(
    package: Path, was: str, becomes: str, text: str
) -> None:
    file = package / "my_dialect" / "operators.py"
    before = file.read_text("utf-8")
    assert was in before
    file.write_text(before.replace(was, becomes), "utf-8")
    found = run(package, "ops", "my", "--check", status=1)
    assert text in found and "Traceback" not in found
    if text == "its formula (":
        assert re.search(
            r"my.squared_distance: its formula \(.*operators.py:40\), on cpu, and its "
            r"reference \(.*:37\) differ: at",
            found,
        )


@pytest.mark.slow
def test_code_of_another_package_is_not_kept(package: Path) -> None:
    """An operator may compute something else while the program's text stays."""
    file = package / "my_dialect" / "operators.py"
    assert "8 passed" in run(package, "test", "tests")
    file.write_text(file.read_text("utf-8").replace("* ", "+ "), "utf-8")
    assert "cpu: @main" in run(package, "test", "tests", status=1)


def test_the_interface_is_documented() -> None:
    page = (ROOT / "docs" / "extending.md").read_text("utf-8")
    listed = set(
        re.findall(r"`([A-Za-z]\w*)`", page.partition("## Version 2")[2].partition("\n## ")[0])
    )
    assert listed == set(cvm.extending.__all__)
    assert all(hasattr(cvm.extending, name) for name in cvm.extending.__all__)


@pytest.mark.slow
def test_from_a_wheel_alone(tmp_path: Path, environment: Path) -> None:
    python = str(environment / "bin" / "python")
    said([str(environment / "bin" / "cvm"), "new", "dialect", "fresh"], tmp_path, 0, None)
    said(
        [
            python,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-build-isolation",
            "--no-deps",
            "./fresh_dialect",
        ],
        tmp_path,
        0,
        None,
    )
    folder = tmp_path / "fresh_dialect"
    assert "8 passed" in said([python, "-m", "pytest", "-q", "--color=no"], folder, 0, None)
    assert "fresh.squared_distance" in said(
        [str(environment / "bin" / "cvm"), "ops", "fresh"], folder, 0, None
    )


PLACED = """from cvm.extending import Kernel, register_pass


@register_pass({declared})
def swapped(kernel: Kernel) -> Kernel:
    \"\"\"Report each kernel that it sees.\"\"\"
    print("swapped sees", kernel.name)
    return kernel
"""
LAYER = "func @main(%x: tensor<4xi32>) {\n  %y = cvm.relu %x\n  return %y\n}\n"


@pytest.mark.slow
def test_a_pass_takes_its_place_in_compilations(package: Path) -> None:
    (package / "p.cvm").write_text(LAYER)
    (package / "placed.py").write_text(PLACED.format(declared='after="collapse"'))
    inputs = ["--input", "x=[1, -2, 3, 4]"]
    for _ in range(2):  # nothing is recalled from the disk
        assert "swapped sees main.0" in run(package, "run", "--load", "placed", "p.cvm", *inputs)
    assert "swapped" not in run(package, "run", "p.cvm", *inputs)
    order = run(package, "opt", "--load", "placed", "p.cvm", "--target", "cpu", "--print-after-all")
    heads = [line.split(":")[0] for line in order.splitlines() if line.startswith("// after ")]
    assert heads[heads.index("// after collapse") + 1] == "// after swapped"
    assert "swapped sees" not in run(
        package, "opt", "--load", "placed", "p.cvm", "--pipeline", "collapse"
    )
    (package / "gpu.py").write_text(PLACED.format(declared='"gpu", after="collapse"'))
    assert "swapped sees" not in run(package, "run", "--load", "gpu", "p.cvm", *inputs)
    assert "swapped sees" in run(package, "lower", "--load", "gpu", "p.cvm", "--to", "cuda")


PATTERN = """from cvm.extending import OPERATORS, pattern


@pattern()
def twice(op: OPERATORS["cvm.relu"], b):
    print("twice sees", op.name)
    return b.cvm.elemwise_add(op.x, op.x)
"""


REWRITES = """rewrite @{name}(%a: tensor<?N x i32>) {{
  %y = cvm.relu %a
  return %y
}} => {{
  %y = cvm.elemwise_add %a, %a
  return %y
}}
"""


def test_rewrites_of_a_file(tmp_path: Path) -> None:
    """By the command line, and by a package that registers them."""
    with own_patterns():
        (tmp_path / "p.cvm").write_text(LAYER)
        (tmp_path / "r.cvm").write_text(REWRITES.format(name="double"))
        command = [str(tmp_path / "p.cvm"), "--pipeline", "simplify"]
        assert cvm.cli.main(["opt", *command, "--rewrites", str(tmp_path / "r.cvm")]) == 0
        assert [*entry_points.SOURCES] == [f"{tmp_path / 'r.cvm'}.double"]
        assert cvm.cli.main(["opt", *command, "--rewrites", str(tmp_path / "none.cvm")]) == 1
    with own_patterns():
        cvm.extending.register_rewrites(tmp_path / "r.cvm")
        f = cvm.compile(LAYER)
        assert f(np.array([1, -2, 3, 4], np.int32)).tolist() == [2, -4, 6, 8]
        (tmp_path / "s.cvm").write_text(REWRITES.format(name="wrong").replace("%a, %a", "%a"))
        with pytest.raises(cvm.Error, match="expected 2 operands"):
            cvm.extending.register_rewrites(tmp_path / "s.cvm")


@pytest.mark.slow
def test_a_pattern_acts_once_it_is_imported(package: Path) -> None:
    """Its code is kept under its source: the second run compiles nothing, one after a change does."""
    (package / "p.cvm").write_text(LAYER)
    (package / "rewriting.py").write_text(PATTERN)
    command = ["run", "p.cvm", "--input", "x=[1, -2, 3, 4]"]
    plain, doubled, tripled = "[1, 0, 3, 4]", "[2, -4, 6, 8]", "[3, -6, 9, 12]"
    load = ["--load", "rewriting"]
    first, second = run(package, *command, *load), run(package, *command, *load)
    assert "twice sees cvm.relu" in first and doubled in first
    assert "twice sees" not in second and doubled in second
    assert plain in run(package, *command)
    added = PATTERN.replace("op.x, op.x", "op.x, b.cvm.elemwise_add(op.x, op.x)")
    (package / "rewriting.py").write_text(added)
    assert tripled in run(package, *command, *load)
    assert plain in run(package, *command, *load, "--target", "reference")
    (package / "rewriting.py").write_text(PATTERN.replace("op.x, op.x", "op.y, op.x"))
    said = run(package, *command, *load, status=1)
    assert "rewriting.py:7:5: error[pattern.fails]: pattern twice of rewriting: it fails" in said
    assert "p.cvm:2:8: note: it rewrites this operation" in said and "Traceback" not in said


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("does", "said"),
    [
        (
            'raise ValueError("planted")',
            "placed.py:8:5: error[pass.fails]: pass swapped of placed: it fails: "
            "ValueError: planted",
        ),
        (
            'return "text"',
            "placed.py:4:1: error[pass.fails]: pass swapped of placed: it gives str, not a Kernel",
        ),
    ],
)
def test_a_wrong_pass_names_its_line(package: Path, does: str, said: str) -> None:
    (package / "p.cvm").write_text(LAYER)
    (package / "placed.py").write_text(PLACED.format(declared="").replace("return kernel", does))
    found = run(package, "opt", "--load", "placed", "p.cvm", "--pipeline", "swapped", status=1)
    assert (
        said in found
        and "cvm opt --load placed --run-reproducer p.reproducer.cvm shows it again" in found
    )
    again = run(
        package, "opt", "--load", "placed", "--run-reproducer", "p.reproducer.cvm", status=1
    )
    assert said in again and "Traceback" not in found + again


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("level", "after"), [("loops", "colapse"), ("graph", "collapse"), ("loops", "fuse")]
)
def test_a_pass_follows_one_of_its_level(package: Path, level: str, after: str) -> None:
    (package / "placed.py").write_text(PLACED.format(declared=f'"{level}", after="{after}"'))
    said = run(package, "opt", "--load", "placed", "--list", status=1)
    assert f"pass swapped: there is no pass {after} that it could follow" in said
    assert ("did you mean collapse" in said) == (after == "colapse")
