"""Packages that cannot be imported, and packages that offer one name, harm nobody else."""

from __future__ import annotations

import sys
import warnings
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from cvm.dialect.spec.operator import OPERATORS
from cvm.dialect.support import entry_points
from cvm.dialect.support.entry_points import load_offered

import cvm
from cvm.terminal.run_pipeline import check_pass_name

OPERATOR = """from cvm.extending import Operator, T, operator


@operator
class {name}(Operator[T]):
    dialect = "isolated"
    x: T

    def infer(self):
        return self.x

    def reference(self):
        return self.x

    def element(self, y):
        raise NotImplementedError
"""
PROGRAM = "func @main(%x: tensor<4xi32>) {{\n  %y = {name} %x\n  return %y\n}}\n"


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages: one is broken, two offer one dialect, and one is right."""
    (tmp_path / "broken_package.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "one_package.py").write_text(OPERATOR.format(name="One"))
    (tmp_path / "other_package.py").write_text(OPERATOR.format(name="Other"))
    made = [
        EntryPoint("broken", "broken_package", "cvm.dialects"),
        EntryPoint("twin", "twin_one", "cvm.dialects"),
        EntryPoint("twin", "twin_two", "cvm.dialects"),
        EntryPoint("isolated", "one_package", "cvm.dialects"),
        EntryPoint("wrong_pass", "broken_package", "cvm.passes"),
    ]
    monkeypatch.setattr(
        entry_points, "offered", lambda group: tuple(e for e in made if e.group == group)
    )
    monkeypatch.setattr(entry_points, "FAILED", {})
    monkeypatch.setattr(OPERATORS, "modules", dict(OPERATORS.modules))
    monkeypatch.setattr(OPERATORS, "_known", dict(OPERATORS._known))
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("one_package", "other_package"):
        monkeypatch.delitem(sys.modules, module, raising=False)


def test_a_broken_package_is_one_warning_and_an_error_where_it_is_needed(group: None) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(cvm.Error, match="did you mean"):
            cvm.parse(PROGRAM.format(name="cvm.rellu"))
        assert "isolated.one" in [*OPERATORS] and "isolated.one" in [*OPERATORS]
    said = sorted(str(w.message) for w in caught)
    assert len(said) == 2 and said[0] == (
        "cvm.dialects broken, of the package broken_package: broken_package cannot be "
        "imported: ModuleNotFoundError: No module named 'nothing_of_this_name'"
    )
    assert "cvm.dialects twin: it is offered by twin_one and twin_two; uninstall one" in said[1]
    cvm.parse(PROGRAM.format(name="isolated.one"))
    cvm.parse(PROGRAM.format(name="cvm.relu"))
    for _ in range(2):
        with pytest.raises(cvm.Error, match="broken_package cannot be imported"):
            cvm.parse(PROGRAM.format(name="broken.anything"))
        with pytest.raises(cvm.Error, match="it is offered by twin_one and twin_two"):
            cvm.parse(PROGRAM.format(name="twin.anything"))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_pass_that_is_needed_is_an_error(group: None) -> None:
    check_pass_name("cse")
    with pytest.raises(cvm.Error, match="wrong_pass, of the package broken_package: "):
        check_pass_name("wrong_pass")


def test_a_dialect_is_of_one_package(group: None) -> None:
    assert load_offered("cvm.dialects", "isolated")
    with pytest.raises(cvm.Error, match="one_package and other_package both have a dialect isol"):
        entry_points.load_module("other_package")
