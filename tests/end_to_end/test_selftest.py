"""`cvm selftest`: values that depend on their names alone, digests in which all NaNs are one, and
what the command says.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from cvm.dialect.spec.operator import OPERATORS
from cvm.dialect.types import tensor_types
from cvm.dialect.types.tensor_types import ELEMENT_TYPES

from cvm import cli
from cvm.commands import selftest
from cvm.testing.selftest_values import EDGES, TAME, WIDE, bits, elements

BITS = ["3dd661bccc3e551a", "57df189ae6c0508a", "116210a6a4e4b27a"]
FLOATS = [-0.2584475874900818, -0.07837605476379395, -0.4320974349975586, 0.6650862693786621]
PARTS = ("selftest", "--only", "cvm.re*")


def test_values_are_those_of_their_names() -> None:
    assert [f"{b:016x}" for b in bits("x", 3).tolist()] == BITS
    for element in ("i1", "i8", "ui16", "i32", "i64", "ui64", "f16", "f32", "f64", "complex<f32>"):
        for kind in (TAME, WIDE, EDGES):
            found = elements("x", ELEMENT_TYPES[element], (40, 5), kind)
            assert found.dtype == ELEMENT_TYPES[element].dtype and found.shape == (40, 5)
            assert len(np.unique(found)) > 1
            assert kind == EDGES or np.isfinite(found).all()
    bounded = elements("x", ELEMENT_TYPES["i32"], (500,), WIDE, (-3, 4))
    assert {*bounded.tolist()} == {*range(-3, 5)}
    assert elements("x", ELEMENT_TYPES["f32"], (4,), TAME).tolist() == FLOATS


def test_all_nans_are_one_in_a_digest() -> None:
    one, other = np.array([0x7FC00000, 0xFFC00001], np.uint32).view(np.float32)
    alike = [[np.array([x, -0.0], np.float32)] for x in (one, other)]
    assert selftest.digest(alike[0]) == selftest.digest(alike[1])
    assert selftest.digest([np.float32([0.0])]) != selftest.digest([np.float32([-0.0])])
    assert selftest.digest([np.float32([0.0])]) != selftest.digest([np.int32([0])])


@pytest.mark.parametrize(
    "options", [(), ("--threads", "2"), ("--target", "reference"), ("-O", "0")]
)
def test_some_parts_are_equal(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*PARTS, *options, "--report"]) == 0
    *lines, exact, verdict = capsys.readouterr().out.splitlines()
    assert [line.split()[1:] for line in lines] == [
        ["exact", name] for name in ("cvm.relu", "cvm.repeat", "cvm.reshape")
    ]
    assert exact.startswith("exact ") and exact.endswith(" (3 parts)") and verdict == "equal"


def test_a_part_that_differs_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = selftest.recorded()
    known["cvm.relu"] = replace(known["cvm.relu"], digest="0" * 16)
    monkeypatch.setattr(selftest, "recorded", lambda: known)
    assert cli.main([*PARTS]) == 1
    _, named, verdict = capsys.readouterr().out.splitlines()
    assert named.startswith("differs: ") and named.endswith(f"cvm.relu, recorded {'0' * 16}")
    assert verdict == "differs"


def test_a_pattern_without_parts_is_a_wrong_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["selftest", "--only", "nothing"]) == 2
    assert "no part has such a name" in capsys.readouterr().err


def test_no_part_needs_optional_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install cvm-lang` is enough: clocked programs look their element types up without
    bf16's.
    """
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    tensor_types._bfloat16.cache_clear()
    assert cli.main(["selftest", "--target", "reference", "--only", "cog.probe"]) == 0


def test_operators_of_other_packages_are_no_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [p.name for p in selftest.parts()]
    own = OPERATORS["cvm.relu"]
    monkeypatch.setattr(own, "__module__", "other_package")
    assert [n for n in names if n != "cvm.relu"] == [p.name for p in selftest.parts()]
