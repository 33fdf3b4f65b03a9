"""Names of the package: what completion offers, what is meant by a wrong one, and Python's own
kinds of errors.
"""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest

import cvm


def test_dir_has_public_names_only() -> None:
    names = dir(cvm)
    assert {*cvm.__all__, "where", "conv2d", "theano", "dali"} <= {*names}
    assert not [n for n in names if n.startswith("_") or not hasattr(cvm, n)]


@pytest.mark.parametrize(
    ("module", "some"), [(cvm.dali, {"div", "sqrt"}), (cvm.theano, {"sum", "sigmoid", "dot"})]
)
def test_modules_of_dialects_show_their_functions_only(module: ModuleType, some: set[str]) -> None:
    assert some <= {*dir(module)}
    assert all(callable(getattr(module, n)) for n in dir(module))
    assert not {"OPERATORS", "OperatorFunction", "apply"} & {*dir(module)}


def test_a_wrong_name_is_told_the_right_one() -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'wher'\. Did you mean: 'where'\?"):
        _ = cvm.wher  # type: ignore[attr-defined]


def test_importing_a_module_loads_no_dialect() -> None:
    code = (
        "import sys; from cvm.terminal import plot; assert not [m for m in sys.modules if "
        "m.startswith('cvm.dialect.theano')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_errors_are_pythons_too() -> None:
    with pytest.raises(TypeError) as caught:
        cvm.compile(lambda x: x + 1)(np.ones(3), np.ones(3))
    assert isinstance(caught.value, cvm.CallError)
    with pytest.raises(FileNotFoundError) as missing:
        cvm.load("no such file.cvm")
    assert (
        isinstance(missing.value, cvm.ParseError)
        and missing.value.diagnostics[0].code == "parse.file"
    )
