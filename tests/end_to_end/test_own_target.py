"""The target of examples/my_target gives what the reference gives, and its text has mma."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from cvm.dialect.support.entry_points import PLACED
from cvm.jit.targets import TARGETS
from cvm.lowering.contraction.strategies import STRATEGIES

import cvm
from cvm.cli import main
from cvm.testing.command_names import names

EXAMPLE = Path(__file__).parents[2] / "examples" / "my_target"
DENSE = """func @main(%x: tensor<{}x{}x{}>, %w: tensor<{}x{}x{}>) {{
  %y = cvm.dense %x, %w
  %z = cvm.elemwise_add %y, %y
  %r = cvm.relu %z
  return %r, %y
}}
"""


@pytest.fixture(scope="module", autouse=True)
def npu() -> Iterator[None]:
    strategies, placed = [*STRATEGIES], [*PLACED]
    assert "npu" not in names()  # of which nothing is kept
    sys.path.insert(0, str(EXAMPLE))
    try:
        import_module("npu_target.target")
        yield
    finally:
        sys.path.remove(str(EXAMPLE))
        STRATEGIES[:], PLACED[:] = strategies, placed
        TARGETS.pop("npu", None)
        for name in [n for n in sys.modules if n.startswith("npu_target")]:
            del sys.modules[name]


def dense(rows: int, columns: int, terms: int, element: str = "i32") -> str:
    return DENSE.format(rows, terms, element, columns, terms, element)


@pytest.mark.parametrize(
    ("sizes", "optimize", "tiled"),
    [
        ((32, 48, 32), 2, True),
        ((16, 16, 64), 2, True),  # one tile of rows and of columns
        ((48, 32, 16), 2, True),  # one tile of terms
        ((32, 48, 32), 0, False),
    ],
)
def test_products_wrap_as_the_reference(
    sizes: tuple[int, int, int], optimize: int, tiled: bool
) -> None:
    rows, columns, terms = sizes
    reference = cvm.compile(dense(*sizes), target="reference")
    f = cvm.compile(dense(*sizes), target="npu", optimize=optimize)
    random = np.random.default_rng(1)
    x, w = (random.integers(-(2**31), 2**31, (n, terms), np.int32) for n in (rows, columns))
    for given, wanted in zip(f(x, w), reference(x, w), strict=True):
        np.testing.assert_array_equal(given, wanted, strict=True)
    assert ("mma(" in f.lower("npu")) is tiled


def test_golden_tests_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", str(EXAMPLE / "tests")]) == 0
    assert capsys.readouterr().out == "1 passed\n"


def test_other_targets_do_without_the_strategy() -> None:
    listed = cvm.compile(dense(32, 48, 32)).lower("strategies")
    assert "it is for the target npu" in listed


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (dense(32, 48, 32, "f32"), "arrays of f32 are not supported"),
        ("func @main(%x: tensor<?xi32>) {\n  return %x\n}\n", "unknown sizes"),
    ],
)
def test_what_the_machine_lacks_is_said(program: str, message: str) -> None:
    with pytest.raises(cvm.TargetError, match=message):
        cvm.compile(program, target="npu")
