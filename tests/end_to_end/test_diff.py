"""`cvm diff`: the operation to blame, its line, index, values and a small input, for each pair of
things that may differ.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance_cases import cases, first_wrong
from cvm.dialect.kernel_ir import loops as ir
from cvm.jit.functions.reference_function import ReferenceFunction
from cvm.jit.targets import TARGETS, Target
from cvm.lowering import pipeline

import cvm
from cvm import cli
from cvm.testing.differences import distance

PROGRAM = """func @main(%x: tensor<?N x 4 x i32>, %w: tensor<3x4xi32>) -> tensor<?N x 3 x i32> {
  %h = cvm.dense %x, %w
  %c = cvm.clip %h {a_min = -50, a_max = 50}
  %y = cvm.negative %c
  return %y
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("a.cvm").write_text(PROGRAM)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 1) -> str:
    found = cli.main(["diff", *arguments])
    said = capsys.readouterr()
    assert found == status, said.out + said.err
    return said.out + said.err


class Wrong(ReferenceFunction):
    """A target on which clips give 51 for 50, and a function that returns a negative alone is
    wrong, too.
    """

    target = "wrong"

    def _run(self, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        super()._run(arrays, outputs)
        for result, output in zip(self.function.results, outputs, strict=True):
            if result.name == "c":
                output[output == 50] = 51
            if result.name == "y" and len(outputs) == 1:
                output[output == -50] = -51


def test_targets(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "a.cvm", status=0) == "cpu and reference: all 3 values are the same\n"
    monkeypatch.setitem(TARGETS, "wrong", Target("wrong", load=Wrong))
    said = run(capsys, "a.cvm", "--target", "wrong", "--target", "cpu")
    first, count, *shown = said.splitlines()
    assert first.startswith("a.cvm:3:8: %c of cvm.clip differs at [") or first.startswith(
        "a.cvm:3:3: %c of cvm.clip differs at ["
    )
    assert first.endswith(": 51 on wrong, 50 on cpu, 1 ulp apart")
    assert count == "1 of 3 elements differ; arguments that show it:"
    assert shown[0] == "%x: tensor<1x4xi32>" and shown[1].count("0") >= 3, (
        "one row, and as many zeros as there can be"
    )


def test_a_difference_that_shows_in_fused_code_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(TARGETS, "wrong", Target("wrong", load=Wrong))
    Path("a.cvm").write_text(PROGRAM.replace("%c", "%d"))
    assert "%y of cvm.negative differs at [" in run(
        capsys, "a.cvm", "--target", "wrong", "--target", "cpu"
    )


def test_programs_and_saved_arrays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("b.cvm").write_text(PROGRAM.replace("a_max = 50", "a_max = 49"))
    assert ": 50 on a.cvm, 49 on b.cvm, 1 ulp apart" in run(capsys, "a.cvm", "b.cvm")
    Path("b.cvm").write_text(
        "func @main(%x: tensor<?N x 4 x i32>, %w: tensor<3x4xi32>) {\n"
        "  %a = cvm.sum %x {axes = [1]}\n  return\n}\n"
    )
    said = run(capsys, "a.cvm", "b.cvm", status=2)
    assert "a.cvm and b.cvm have no value of one name, and other operations" in said
    module = cvm.load("a.cvm")
    np.savez("in.npz", x=np.arange(8, dtype=np.int32).reshape(2, 4), w=np.ones((3, 4), np.int32))
    with np.load("in.npz") as given:
        y = cvm.compile(module)(given["x"], given["w"])
    np.savez("y.npz", y=y)
    assert "all 1 values are the same" in run(
        capsys, "a.cvm", "y.npz", "--inputs", "in.npz", status=0
    )
    y[1, 2] += 3
    np.savez("y.npz", y=y)
    assert "%y of cvm.negative differs at [1, 2]: -22 on a.cvm, -19 on y.npz, 3 ulps apart" in run(
        capsys, "a.cvm", "y.npz", "--inputs", "in.npz"
    )


def test_pipelines(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipelines = ("--pipeline", "build_loops", "--pipeline", "build_loops,collapse,vectorize")
    assert "are the same" in run(capsys, "a.cvm", *pipelines, status=0)
    order_of_kernels = (
        "--pipeline",
        "fuse",
        "--pipeline",
        "vectorize",
    )  # in which %w comes before %x
    assert "are the same" in run(capsys, "a.cvm", *order_of_kernels, status=0)

    def wrong(kernel: Any, _: Any) -> Any:
        if kernel.outputs[0].name != "c":
            return kernel

        def doubled(store: ir.Store) -> ir.Store:
            return replace(store, value=store.value + store.value)

        return kernel.with_body(
            ir.rewrite_block(
                kernel.body, lambda s: (doubled(s),) if isinstance(s, ir.Store) else None
            )
        )

    monkeypatch.setitem(
        pipeline.PASSES, "collapse", replace(pipeline.PASSES["collapse"], run=wrong)
    )
    Path("a.cvm").write_text(
        PROGRAM.replace("?N x", "2x").replace("2x 4 x", "2x4x").replace("2x 3 x", "2x3x")
    )
    assert "%c differs at [" in run(capsys, "a.cvm", *pipelines)


def test_distances() -> None:
    one = np.array([1.0, 1.0, -0.0, np.nan, np.inf, 1.0], np.float32)
    other = np.array(
        [np.nextafter(np.float32(1), np.float32(2)), 1.0, 0.0, np.nan, np.inf, np.nan], np.float32
    )
    assert [int(d) for d in distance(one, other)] == [1, 0, 1, 0, 0, 2**63]
    assert int(distance(np.array([-(2**63)]), np.array([2**63 - 1]))[0]) == 2**64 - 1


def test_conformance_names_the_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "wrong", Target("wrong", load=Wrong))
    assert "cvm.clip" in cases()
    case = {"program": PROGRAM, "valid": True, "inputs": ["x", "w"]}
    known = {"x": np.full((1, 4), 20, np.int32), "w": np.ones((3, 4), np.int32)}
    assert "%c of cvm.clip differs at [0, 2]: 51 on wrong, 50 on reference" in first_wrong(
        case, "wrong", known
    )  # type: ignore[arg-type]
    assert first_wrong(case, "cpu", known) == ""  # type: ignore[arg-type]


RENAMED = """func @helper(%p: tensor<3xi32>) -> tensor<3xi32> {
  %q = cvm.negative %p
  return %q
}

func @main(%c: tensor<?M x 4 x i32>, %h: tensor<3x4xi32>) -> tensor<?M x 3 x i32> {
  %y = cvm.dense %c, %h
  %x = cvm.clip %y {a_min = -50, a_max = 50}
  %w = cvm.negative %x
  return %w
}
"""  # the names of PROGRAM, each for something else


def test_names_do_not_matter(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rename values, sizes, arguments and functions, and reorder functions."""
    for name in ("", "2"):
        text = RENAMED.replace("@main", f"@main{name}") if name else RENAMED
        Path("b.cvm").write_text(text)
        assert "a.cvm and b.cvm: all 3 values are the same" in run(
            capsys, "a.cvm", "b.cvm", status=0
        )
    Path("b.cvm").write_text(RENAMED.replace("a_max = 50", "a_max = 49"))
    said = run(capsys, "a.cvm", "b.cvm")
    assert "a.cvm:3:8: %c of cvm.clip, %x on b.cvm, differs at [" in said
    assert ": 50 on a.cvm, 49 on b.cvm, 1 ulp apart" in said and "\n%x: tensor<1x4xi32>" in said


def test_arguments_are_paired_by_position(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pair by name only where types require it, since a call passes arguments by position."""
    two = (
        "func @main(%a: tensor<3xi32>, %b: tensor<3xi32>) {\n"
        "  %y = cvm.elemwise_sub %a, %b\n  return %y\n}\n"
    )
    Path("a.cvm").write_text(two)
    Path("b.cvm").write_text(two.replace("%a", "%t").replace("%b", "%a").replace("%t", "%b"))
    assert "all 1 values are the same" in run(capsys, "a.cvm", "b.cvm", status=0)
    Path("b.cvm").write_text(two.replace("sub %a, %b", "sub %b, %a"))
    assert "%y of cvm.elemwise_sub differs at" in run(capsys, "a.cvm", "b.cvm")
    Path("a.cvm").write_text(PROGRAM)
    head = "%x: tensor<?N x 4 x i32>, %w: tensor<3x4xi32>"
    Path("b.cvm").write_text(PROGRAM.replace(head, ", ".join(head.split(", ")[::-1])))
    assert "all 3 values are the same" in run(capsys, "a.cvm", "b.cvm", status=0)
    Path("b.cvm").write_text(two)
    assert (
        "the arguments differ: (%x: tensor<?N x 4 x i32>, %w: tensor<3x4xi32>) on a.cvm, "
        "(%a: tensor<3xi32>, %b: tensor<3xi32>) on b.cvm"
    ) in run(capsys, "a.cvm", "b.cvm", status=2)


def test_operations_in_common_are_compared(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compare programs of different length under other names, and results in any case."""
    more = RENAMED.replace(
        "  %w = cvm.negative %x\n  return %w",
        "  %k = cvm.relu %x\n  %w = cvm.negative %x\n  return %w",
    )
    for name in "cyxw":
        more = more.replace(f"%{name}", f"%v_{name}")
    Path("b.cvm").write_text(more.replace("%h", "%v_h"))
    assert "all 3 values are the same" in run(capsys, "a.cvm", "b.cvm", status=0)
    Path("b.cvm").write_text(
        PROGRAM.replace("  return %y", "  %t = cvm.negative %y\n  return %t").replace("%y", "%r")
    )
    assert "%y of cvm.negative, %t on b.cvm, differs at" in run(capsys, "a.cvm", "b.cvm")
