"""The filetest runner itself: blessing twice changes nothing, and it fails on whatever is not as the file says."""

from __future__ import annotations

from pathlib import Path

import pytest
from filetest_runner import GOLDENS, Filetest, perform

FOLDER = Path(__file__).parents[1] / "filetests"

LAYER = """\
// test loops
// test graph
// test run
// test check

func @layer(%x: tensor<2xi32>) -> tensor<2xi32> {
  %y = cvm.negative %x
  return %y
}

// a comment of the author's

func @main(%x: tensor<2xi32>) -> tensor<2xi32> {
  %y = call @layer(%x)
  return %y
}
// run: @main([1, -2]) == [-1, 2]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "layer.cvm"


def bless(path: Path) -> str:
    for command in Filetest.load(path).commands:
        perform(Filetest.load(path), command, update=True)
    return path.read_text()


def verify(path: Path) -> None:
    for command in Filetest.load(path).commands:
        perform(Filetest.load(path), command)


def without_golden(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(("//>", "//=")))


def test_blessing_twice_changes_nothing(file: Path) -> None:
    file.write_text(LAYER)
    once = bless(file)
    verify(file)
    assert bless(file) == once != LAYER
    assert without_golden(once) == LAYER, "the author's lines stay"
    assert once.count("//= loops\n//> kernel @layer.0(") == 1 and once.count("//= graph\n//> func @main(") == 1


def test_blessing_writes_golden_lines_anew(file: Path) -> None:
    file.write_text(LAYER)
    once = bless(file)
    file.write_text(once.replace("//> ", "//> not ").replace("//= graph", "//= llvm"))
    assert bless(file) == once


def test_one_golden_command_needs_no_header(file: Path) -> None:
    file.write_text(LAYER.replace("// test graph\n", ""))
    assert "//=" not in bless(file)
    verify(file)


def test_every_file_is_as_blessed() -> None:
    """Writing back the golden lines that a file has gives the file."""
    for path in FOLDER.rglob("*.cvm"):
        test = Filetest.load(path)
        for command in set(test.commands) & GOLDENS.keys():
            assert test.with_golden(command, test.golden(command)) == test.text


@pytest.mark.parametrize(
    ("command", "was", "becomes", "said"),
    [
        ("loops", "//> kernel @layer.0", "//> kernel @other.0", "--update-golden accepts"),
        ("loops", "//= loops", "//= formulas", "golden lines of formulas stand after @layer"),
        ("graph", "  %y = cvm.negative %x", "  %y = cvm.abs %x", "--update-golden accepts"),
        ("run", "== [-1, 2]", "== [-1, 3]", "cpu: @main([1, -2]) == [-1, 3]\n    at [1] it is 2, not 3"),
        ("run", "== [-1, 2]", "== [-1, 2, 0]", "the shape is (2,), not (3,)"),
        ("run", "== [-1, 2]", "== [-1, 2], [0]", "there are 1 results, not 2"),
        ("run", "== [-1, 2]", "error: call.argument: no", "it did not fail"),
        ("run", "@main([1, -2])", "@main([1, -2, 3])", "the call failed: "),
        ("run", "// run: @main", "// ran: @main", "there is no `// run:` line"),
        ("check", "call @layer(%x)", "call @layer(%x) // error: call.type: a", "not found: call.type: a"),
        ("check", "cvm.negative %x", "cvm.negative %q", "not expected: line 7: "),
        ("check", "cvm.negative %x", "cvm.negative %q // error: value.undefined: no such", "not expected: line 7: "),
        ("loop", "// test run", "// test run", "unknown command 'loop'"),
        ("asm", "// test run", "// test asm", "there is no `// check:` line"),
        (
            "asm",
            "// test run",
            "// test asm\n// check: no such instruction",
            "'no such instruction' does not follow in",
        ),
        ("asm", "// test run", "// test asm\n// check: entry\n// check-not: ret", "'ret' stands in"),
    ],
)
def test_fails_on(file: Path, command: str, was: str, becomes: str, said: str) -> None:
    file.write_text(LAYER)
    bless(file)
    text = file.read_text()
    assert was in text
    golden = [line for line in text.splitlines() if line.startswith("//>")]
    file.write_text(text.replace(was, becomes) if was.startswith("//") else _first_not_golden(text, was, becomes))
    with pytest.raises(AssertionError) as failure:
        perform(Filetest.load(file), command)
    assert said in str(failure.value)
    assert golden


def _first_not_golden(text: str, was: str, becomes: str) -> str:
    lines = text.splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if was in line and not line.startswith("//>"))
    return "".join([*lines[:at], lines[at].replace(was, becomes), *lines[at + 1 :]])


def test_accepts_expected_errors(file: Path) -> None:
    file.write_text(
        "// test check\n"
        "func @main(%x: tensor<2xi32>) -> tensor<3xi32> {\n"
        "  %y = cvm.negative %q  // error: value.undefined\n"
        "  %z = cvm.dense %x, %x  // error: cvm.dense.C1: rank(x)\n"
        "  return %x  // error: func.type:\n"
        "}\n"
    )
    verify(file)


def test_calls_may_fail_as_expected(file: Path) -> None:
    file.write_text(
        "// test run\n"
        "func @main(%x: tensor<?N x f32>, %y: tensor<2xf32>) {\n  return %x, %y\n}\n"
        "// run: @main([1.5, nan,\n"
        "//         -inf], [-0.0, 1e3]) ==\n"
        "//     [1.5, nan, -inf], [-0.0, 1000]\n"
        "// run: @main([], [0, 0]) == [], [0.0, 0.0]\n"
        "// run: @main([1], [1, 2, 3]) error: call.argument: argument %y: expected tensor<2xf32>\n"
    )
    verify(file)
    file.write_text(file.read_text().replace("[0.0, 0.0]", "[-0.0, 0.0]"))
    with pytest.raises(AssertionError, match=r"at \[0\] it is 0.0, not -0.0"):
        verify(file)


def test_kernels_may_be_the_input(file: Path) -> None:
    """A pass over kernels has its golden lines after the last of them; comments are whole lines."""
    kernel = "kernel @k(%x: tensor<1x8xi32>) -> (%y: tensor<1x8xi32>) {\n"
    kernel += "  for %i in 0..1 {\n    for %j in 0..8 {\n      %y[%i, %j] = %x[%i, %j] // 2\n    }\n  }\n}\n"
    file.write_text(f"// test collapse\n\n{kernel}")
    once = bless(file)
    verify(file)
    assert bless(file) == once and without_golden(once) == f"// test collapse\n\n{kernel}"
    assert "//>   for %j in 0..8 {\n//>     %y[0, %j] = %x[0, %j] // 2\n" in once
