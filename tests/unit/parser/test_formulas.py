"""Formulas in text: what is printed is read, checked and computed, and each mistake is reported
once, at its place.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cvm.dialect.ir.function import Graph
from cvm.dialect.ir.module import Module
from cvm.lowering.formulas.formula_printer import formulas_text
from cvm.parser.formulas import parse_formulas

import cvm
from cvm.terminal.arguments import random_arrays
from cvm.terminal.read_program import compiled, read_formulas, read_level

ROOT = Path(__file__).parents[3]
PROGRAMS = sorted(
    [
        *(ROOT / "examples").rglob("*.cvm"),
        *(ROOT / "tests/filetests/builtin").glob("control_flow.cvm"),
    ]
)
GOOD = """\
formulas @main(%x: tensor<?N x 3 x f32>, %w: tensor<4x3xf32>) {
  %b: tensor<4xf32> = constant
  %h[%i, %j]: tensor<?N x 4 x f32> = sum[%k in 0..3](%x[%i, %k] * %w[%j, %k]) + %b[%j]
  %y[%i, %j]: tensor<?N x 4 x f32> = when(%i > 0, %t0 + %h[%i - 1, %j], %t0)
    where %t0: f32 = max(%h[%i, %j], 0.0)
  %z: tensor<?N x 2 x 2 x f32> = view of %y
  return %z, %h
}
"""


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_printed_formulas_are_read(path: Path) -> None:
    try:
        module = read_level(str(path))
    except cvm.Error:  # another package's operators
        pytest.skip("needs a package")
    if not isinstance(module, Module):
        return
    for name, function in module.functions.items():
        if isinstance(function, Graph):
            continue
        text = cvm.compile(module, name, "reference").lower("formulas")
        again = parse_formulas(text)
        assert [t.name for t in again.arguments][: len(function.arguments)] == [
            a.name for a in function.arguments
        ]
        once = formulas_text(again)  # large constants are arguments now
        assert formulas_text(parse_formulas(once)) == once
        if " = constant\n" not in text:
            assert once == text


def run(text: str, target: str, arrays: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    found = compiled(read_formulas(text, "f"), "main", target)(*arrays)
    return found if isinstance(found, tuple) else (found,)


def test_formulas_run_on_the_cpu_and_the_reference() -> None:
    random = np.random.default_rng(1)
    x, w, b = (random.uniform(-1, 1, shape).astype(np.float32) for shape in ((5, 3), (4, 3), (4,)))
    h = x @ w.T + b
    y = np.maximum(h, 0)
    y[1:] += h[:-1]
    for target in ("cpu", "reference"):
        z, found = run(GOOD, target, [x, w, b])
        assert np.allclose(found, h, atol=1e-6) and np.allclose(z, y.reshape(5, 2, 2), atol=1e-6)


@pytest.mark.parametrize("name", ["totals", "numbers", "recur", "backwards", "largest", "length"])
def test_loops_run_as_their_program(name: str) -> None:
    f = cvm.compile(ROOT / "tests/filetests/builtin/control_flow.cvm", name)
    arrays = random_arrays(f.function, 0)
    found, wanted = run(f.lower("formulas"), "cpu", arrays), f(*arrays)
    for a, b in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert np.array_equal(a, b)


def test_constants_and_complex_numbers() -> None:
    text = (
        "formulas @main(%x: tensor<3xf32>, %z: tensor<3xcomplex<f32>>) {\n"
        "  %c: tensor<2xcomplex<f32>> = constant dense<[(1.0, 2.0), (0.0, -1.0)]>\n"
        "  %k: tensor<2x2xi32> = constant dense<[[1, 2], [3, 4]]>\n"
        "  %y[%i]: tensor<3xcomplex<f32>> = complex<f32>(%x[%i]) * %z[%i] - %c[%i // 2] + "
        "complex(%x[%i], 0.0)\n"
        "  %w[%i]: tensor<3xf32> = real(%z[%i]) + f32(%k[1, %i // 2])\n  return %y, %w\n}\n"
    )
    shown = text.replace("], 0.0", "], (0.0 : f32)")
    assert formulas_text(parse_formulas(text)) == shown == formulas_text(parse_formulas(shown))
    x, z = np.array([1, 2, 3], np.float32), np.array([1j, 2, 1 - 1j], np.complex64)
    for target in ("cpu", "reference"):
        y, w = run(text, target, [x, z])
        assert y.dtype == np.complex64 and np.array_equal(
            y, x * z - np.array([1 + 2j, 1 + 2j, -1j], np.complex64) + x
        )
        assert w.tolist() == [3, 5, 5]


def test_a_view_has_as_many_elements_at_the_call() -> None:
    text = (
        "formulas @main(%x: tensor<?N x ?M x i32>, %like: tensor<?K x f32>) {\n"
        "  %y: tensor<?K x i32> = view of %x\n  return %y\n}\n"
    )
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    for target in ("cpu", "reference"):
        assert run(text, target, [x, np.zeros(6, np.float32)])[0].tolist() == [0, 1, 2, 3, 4, 5]
        with pytest.raises(cvm.CallError, match="%y is a view of %x, and has 5 elements, not 6"):
            run(text, target, [x, np.zeros(5, np.float32)])


def test_nests_and_checks() -> None:
    tail = cvm.compile(ROOT / "examples" / "detection_tail.cvm")
    arrays = random_arrays(tail.function, 3)
    for a, b in zip(run(tail.lower("formulas"), "cpu", arrays), tail(*arrays), strict=True):
        assert np.array_equal(a, b)
    with pytest.raises(cvm.TargetError, match="loops and nests run on the target cpu"):
        run(tail.lower("formulas"), "reference", arrays)
    text = (
        "formulas @main(%x: tensor<3xi32>, %n: tensor<i32>) {\n"
        '  %y[%i]: tensor<3xi32> = check(%n[] != 0, %x[%i] / max(%n[], 1), "n is zero")\n'
        "  return %y\n}\n"
    )
    assert formulas_text(parse_formulas(text)) == text
    for target in ("cpu", "reference"):
        assert run(text, target, [np.array([4, 6, 8], np.int32), np.array(2, np.int32)])[
            0
        ].tolist() == [2, 3, 4]
        with pytest.raises(cvm.CallError, match=r"2:27.*n is zero"):
            run(text, target, [np.array([4, 6, 8], np.int32), np.array(0, np.int32)])


def mistakes(text: str) -> list[str]:
    with pytest.raises(cvm.Error) as raised:
        compiled(read_formulas(text, "f"), "main")
    return [f"{d.line}:{d.column} {d.code}: {d.message}" for d in raised.value.diagnostics]


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        (
            "= constant",
            "= constnt",
            "2:23 parse.kernel: expected constant, loop, nest or view, got constnt; did "
            "you mean constant",
        ),
        ("%w[%j, %k]", "%v[%j, %k]", "3:67 parse.kernel: there is no value %v"),
        ("%w[%j, %k]", "%w[%j]", "3:67 parse.kernel: %w has 2 axes, got 1 indices"),
        (
            "%w[%j, %k]",
            "%w[%k, %j]",
            "3:3 kernel.illegal: kernel @main.0: an index of %w may be beyond 3",
        ),
        ("sum[", "sums[", "3:38 parse.kernel: there is no reduction sums; did you mean sum"),
        ("sum[", "mean[", "3:38 parse.kernel: there is no reduction mean"),
        ("%h[%i, %j]: ", "%h[%i]: ", "3:3 parse.kernel: %h has 2 axes, got 1 indices"),
        (
            "  return",
            "  %y: tensor<4xf32> = constant\n  return",
            "7:3 parse.kernel: %y is defined twice",
        ),
        (
            "= constant",
            "= constant dense<[1, 2, 3]>",
            "2:46 const.shape: expected 4 elements in dimension 0, got 3",
        ),
        (
            "= constant",
            "= constant dense<[1, 2, x, 3]>",
            "2:45 const.syntax: expected a number, got x",
        ),
        (
            "tensor<4xf32> = constant",
            "tensor<?N x f32> = constant dense<0.0>",
            "2:35 parse.kernel: the sizes of a constant are known",
        ),
        (
            "%y[%i, %j]: tensor<?N x 4",
            "%y[%i, %j]: tensor<?M x 4",
            "4:15 parse.kernel: ?M is the size of no argument",
        ),
        (
            "max(%h[%i, %j], 0.0)",
            "max(%h[%i, %j], f32(?M))",
            "5:42 parse.kernel: ?M is the size of no argument",
        ),
        (
            "where %t0: f32",
            "where %t0: i1",
            "5:37 parse.kernel: expected a literal of type i1, got 0.0",
        ),
        ("when(%i > 0, ", "when(", "4:38 parse.kernel: expected when(condition, value, otherwise)"),
        (
            "when(%i > 0, %t0 + %h[%i - 1, %j], %t0)",
            "%i > 0",
            "4:3 parse.kernel: %y is f32, its value i1",
        ),
        (
            "x 2 x 2 x f32",
            "x 2 x 3 x f32",
            "6:42 parse.kernel: %y has other elements than a view of it",
        ),
        ("return %z, %h", "return %z, %g", "7:14 parse.kernel: there is no array %g"),
        (
            "return",
            "retrun",
            "7:3 parse.kernel: expected %name or return, got retrun; did you mean return",
        ),
        (
            "%h\n}",
            "%h\n",
            "1:63 parse.kernel: expected } to close the { of line 1, got the end of the kernel",
        ),
    ],
)
def test_a_mistake_is_said_once(was: str, becomes: str, said: str) -> None:
    assert was in GOOD
    assert mistakes(GOOD.replace(was, becomes, 1)) == [said]


def test_a_mistake_of_each_formula() -> None:
    text = GOOD.replace("%x[%i, %k]", "%q[%i, %k]").replace("%h[%i, %j], 0.0", "%h[%i], 0.0")
    assert [m.partition(" ")[0] for m in mistakes(text)] == ["3:54", "5:26"]
