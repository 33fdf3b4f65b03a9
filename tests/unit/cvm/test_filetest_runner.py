"""The filetest runner itself: blessing twice changes nothing, and it fails on whatever is not as
the file says.
"""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from cvm.jit.targets import find_target

from cvm import cli
from cvm.cli import main
from cvm.testing import checks, commands
from cvm.testing.checks import Check, Mismatch, check_text
from cvm.testing.commands import Skipped, perform
from cvm.testing.filetest import Failure, Filetest

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "tests" / "filetests"

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
    return "".join(
        line for line in text.splitlines(keepends=True) if not line.startswith(("//>", "//="))
    )


def test_blessing_twice_changes_nothing(file: Path) -> None:
    file.write_text(LAYER)
    once = bless(file)
    verify(file)
    assert bless(file) == once != LAYER
    assert without_golden(once) == LAYER, "the author's lines stay"
    assert (
        once.count("//= loops\n//> kernel @layer.0(") == 1
        and once.count("//= graph\n//> func @main(") == 1
    )


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
        for command in test.golden_commands:
            assert test.with_golden(command, test.golden(command)) == test.text


@pytest.mark.parametrize(
    ("command", "was", "becomes", "said"),
    [
        ("loops", "//> kernel @layer.0", "//> kernel @other.0", "lines; `cvm test --bless` or"),
        ("loops", "//= loops", "//= formulas", "there are none yet; `cvm test --bless`"),
        ("graph", "  %y = cvm.negative %x", "  %y = cvm.abs %x", "lines; `cvm test --bless` or"),
        (
            "run",
            "== [-1, 2]",
            "== [-1, 3]",
            "layer.cvm:39: cpu: @main([1, -2]) == [-1, 3]\n    at [1] it is 2, not 3",
        ),
        ("run", "== [-1, 2]", "== [-1, 2, 0]", "the shape is (2,), not (3,)"),
        ("run", "== [-1, 2]", "== [-1, 2], [0]", "there are 1 results, not 2"),
        ("run", "== [-1, 2]", "error: call.argument: no", "it did not fail"),
        ("run", "@main([1, -2])", "@main([1, -2, 3])", "the call failed: "),
        ("run", "// run: @main", "// ran: @main", "there is no `// run:` line"),
        (
            "check",
            "call @layer(%x)",
            "call @layer(%x) // error: call.type: a",
            "not found: call.type: a",
        ),
        ("check", "cvm.negative %x", "cvm.negative %q", "layer.cvm:7: not expected: "),
        (
            "check",
            "cvm.negative %x",
            "cvm.negative %q // error: value.undefined: no such",
            "layer.cvm:7: not expected: ",
        ),
        ("loop", "// test run", "// test run", "unknown command 'loop'; did you mean loops"),
        ("loops seed=1", "// test run", "// test loops seed=1", "seed= is for digest"),
        ("schedule N=4", "// test run", "// test schedule N=4", "no argument has a size ?N"),
        ("loops N=x", "// test run", "// test loops N=x", "or a size, NAME=number"),
        (
            "loops quickly",
            "// test run",
            "// test loops quickly",
            "expected options such as cpu=x86-64-v3, got 'quickly'",
        ),
        ("asm cpu=x87", "// test run", "// test asm cpu=x87", "unknown cpu"),
        ("run target=tpu", "// test run", "// test run target=tpu", "unknown target 'tpu'"),
        ("opt fuze", "// test run", "// test opt fuze", "there is no pass fuze; did you mean fuse"),
        ("asm", "// test run", "// test asm", "there is no `// check:` line"),
        (
            "asm",
            "// test run",
            "// test asm\n// check: no such instruction",
            "layer.cvm:4: check: 'no such instruction' does not follow in",
        ),
        (
            "asm",
            "// test run",
            "// test asm\n// check: entry\n// check-not: ret",
            "'ret' stands in",
        ),
    ],
)
def test_fails_on(file: Path, command: str, was: str, becomes: str, said: str) -> None:
    file.write_text(LAYER)
    bless(file)
    text = file.read_text()
    assert was in text
    golden = [line for line in text.splitlines() if line.startswith("//>")]
    file.write_text(
        text.replace(was, becomes)
        if was.startswith("//")
        else _first_not_golden(text, was, becomes)
    )
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
    kernel += (
        "  for %i in 0..1 {\n    for %j in 0..8 {\n      %y[%i, %j] = %x[%i, %j] // 2\n    }\n"
        "  }\n}\n"
    )
    file.write_text(f"// test collapse\n\n{kernel}")
    once = bless(file)
    verify(file)
    assert bless(file) == once and without_golden(once) == f"// test collapse\n\n{kernel}"
    assert "//>   for %j in 0..8 {\n//>     %y[0, %j] = %x[0, %j] // 2\n" in once


def texts(file: Path, program: str) -> list[str]:
    file.write_text(program)
    return [f"{n}: {said}" for n, said in Filetest.load(file).problems()]


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        ("// tset loops", "1: expected `// test loops`, got `// tset loops`"),
        ("// test: loops", "1: expected `// test loops`, got `// test: loops`"),
        ("//test loops", "1: expected `// test loops`, got `//test loops`"),
        ("// TEST loops cpu=x86-64-v3", "1: expected `// test loops`, got "),
        ("// rnu: @main([1]) == [1]", "1: expected `// run:`, got "),
        ("// run @main([1]) == [1]", "1: expected `// run: @`, got "),
        ("// CHECK: ret", "1: expected `// check:`, got "),
        ("// check-nxt: ret", "1: expected `// check-next:`, got "),
        ("// check-not : ret", "1: expected `// check-not:`, got "),
        ("// eror: parse.syntax", "1: expected `// error:`, got "),
        ("// run: @main([1]) == [1]", "1: `// run:` without `// test run`: nothing looks at it"),
        ("// error: a.b", "1: `// error:` without `// test check`: nothing looks at it"),
        ("// check: ret", "1: `// check:` without a `// test` line of a stage or a pass"),
        (
            "//> kernel @main",
            "1: golden line that no command of this file has written; blessing removes it",
        ),
        ("// test run\n// test run", "2: `// test run` stands in the file twice"),
    ],
)
def test_comments_that_test_nothing_are_found(file: Path, comment: str, said: str) -> None:
    found = texts(
        file, f"{comment}\nfunc @main(%x: tensor<2xi32>) -> tensor<2xi32> {{\n  return %x\n}}\n"
    )
    assert len(found) == 1 and found[0].startswith(said), found


def test_prose_is_left_alone(file: Path) -> None:
    prose = (
        "// best effort\n// a test of loops\n// text follows here\n// rest\n// Note: run it\n"
        "// the checks: none\n"
    )
    assert texts(file, prose + "func @main() {\n  return\n}\n") == []
    assert not Filetest.load(file).is_test()
    for path in [*(ROOT / "examples").rglob("*.cvm"), *FOLDER.rglob("*.cvm")]:
        assert not [*Filetest.load(path).problems()], path


CHECKED = """\
// test graph
// check: func @main(%[[a:[a-z]+]]: tensor<{{[0-9]+}}xi32>)
// check-next: %[[b:.*]] = cvm.negative %[[a]]
// check-dag: cvm.relu   %[[b]]
// check-dag: cvm.abs %[[b]]
// check-not: cvm.negative
// check: return
func @main(%x: tensor<2xi32>) -> tensor<2xi32> {
  %y = cvm.negative %x
  %v = cvm.abs %y
  %w = cvm.relu %y
  %z = cvm.elemwise_add %v, %w
  return %z
}
"""


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ("", "", ""),
        (
            "check-next: %[[b:.*]]",
            "check-next: %[[b:z]]",
            ":3: check-next: '%[[b:z]] = cvm.negative %[[a]]' does not follow",
        ),
        (
            "check-next: %[[b:.*]] = cvm.negative",
            "check-next: %[[b:.*]] = cvm.abs",
            "does not follow",
        ),
        (
            "check-next: %[[b:.*]] = cvm.negative %[[a]]",
            "check-next: return [[b:.*]]",
            "is not on the next line",
        ),
        (
            "check-not: cvm.negative",
            "check-not: cvm.{{.*}}_add",
            ":6: check-not: 'cvm.{{.*}}_add' stands in",
        ),
        ("relu   %[[b]]", "relu %[[a]]", ":4: check-dag: 'cvm.relu %[[a]]' does not follow in"),
        ("abs %[[b]]", "abs %[[c]]", ":5: [[c]] has not been captured before"),
        ("{{[0-9]+}}", "{{[0-9}}", "is no regular expression"),
    ],
)
def test_checks_are_those_of_filecheck(file: Path, was: str, becomes: str, said: str) -> None:
    file.write_text(CHECKED.replace(was, becomes) if was else CHECKED)
    assert not [*Filetest.load(file).problems()]
    if not said:
        return verify(file)
    with pytest.raises(Failure) as failure:
        verify(file)
    assert said in str(failure.value)
    return None


def test_a_mismatch_is_a_diff_with_the_lines_of_the_file(file: Path) -> None:
    file.write_text(LAYER)
    once = bless(file)
    line = once[: once.index("//>   for %i0 in 0..2")].count("\n") + 1
    file.write_text(once.replace("//>   for %i0 in 0..2", "//>   for %i0 in 0..3", 1))
    with pytest.raises(Failure) as failure:
        perform(Filetest.load(file), "loops")
    assert f"@@ -{line - 1}," in str(failure.value)
    assert "\n-  for %i0 in 0..3 {\n+  for %i0 in 0..2 {\n" in str(failure.value)


def test_options_of_commands(file: Path) -> None:
    """Sizes, processors, targets, pipelines and seeds; each command has golden lines of its own."""
    file.write_text(
        "// test loops N=4\n// test schedule cpu=x86-64-v3 N=64\n"
        "// test digest N=3 seed=7 target=cpu,reference\n"
        "// test opt canonicalize,build_formulas,fuse,build_loops\n// test cuda\n"
        "// test opt target=cuda\n// test run target=reference\n"
        "func @main(%x: tensor<?N x i32>) -> tensor<?N x i32> {\n  %y = cvm.relu %x\n"
        "  return %y\n}\n"
        "// run: @main([1, -1]) == [1, 0]\n"
    )
    once = bless(file)
    verify(file)
    assert "//= loops N=4\n//> kernel @main.0(%x: tensor<4xi32>)" in once
    assert "vector 8" in once and "vector 16" not in once.partition("//= opt")[0]
    assert "//= digest N=3 seed=7 target=cpu,reference\n//> %y sha256 " in once
    assert "__global__" in once and "//= opt target=cuda\n//> kernel @main.0" in once
    file.write_text(once.replace("cvm.relu", "cvm.negative"))
    with pytest.raises(Failure, match="digest"):
        perform(Filetest.load(file), "digest N=3 seed=7 target=cpu,reference")


KERNELS = """\
// test run
// test loops
// test schedule
// test llvm
// test digest
// test check

kernel @double(%x: tensor<?N x i32>) -> (%t: tensor<?N x i32>) {
  for %i in 0..?N {
    %t[%i] = %x[%i] * 2
  }
}
kernel @next(%t: tensor<?N x i32>) -> (%y: tensor<?N x i32>) {
  for %i in 0..?N {
    %y[%i] = %t[%i] + 1
  }
}
// run: @kernels([1, 2, -3]) == [2, 4, -6], [3, 5, -5]
"""


def test_kernels_have_every_command_below_the_graph(file: Path) -> None:
    file.write_text(KERNELS)
    once = bless(file)
    verify(file)
    assert "define " in once and "vector" in once and "sha256" in once
    file.write_text(once.replace("[3, 5, -5]", "[3, 5, -6]"))
    with pytest.raises(Failure, match=r"result 1: at \[2\] it is -5, not -6"):
        verify(file)


TARGETS = """// test run target=TARGETS

func @main(%x: tensor<2xi32>) -> tensor<2xi32> {
  %y = cvm.negative %x
  return %y
}
// run: @main([1, -2]) == RESULT
"""


@pytest.fixture
def without_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which cuda and cuda-sim cannot run."""

    def find(name: str) -> object:
        absent = SimpleNamespace(missing=lambda: f"no {name} here")
        return absent if name.startswith("cuda") else find_target(name)

    monkeypatch.setattr(commands, "find_target", find)


@pytest.mark.usefixtures("without_simulator")
@pytest.mark.parametrize(
    ("targets", "result", "counts"),
    [
        ("cpu,cuda-sim", "[-1, 2]", "1 passed, 1 skipped"),
        ("cuda,cpu,cuda-sim", "[-1, 2]", "1 passed, 2 skipped"),
        ("cpu,cuda-sim", "[7, 7]", "1 failed, 1 skipped"),
        ("cuda,cuda-sim", "[7, 7]", "2 skipped"),
    ],
)
def test_a_target_that_is_missing_hides_no_other(
    file: Path, capsys: pytest.CaptureFixture[str], targets: str, result: str, counts: str
) -> None:
    file.write_text(TARGETS.replace("TARGETS", targets).replace("RESULT", result))
    assert main(["test", str(file)]) == ("failed" in counts)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == counts
    assert [line.partition("skipped: ")[2] for line in lines if "skipped: " in line] == [
        f"target {t}: no {t} here" for t in targets.split(",") if t != "cpu"
    ]
    if result == "[7, 7]":
        with pytest.raises(Failure if "cpu" in targets else Skipped):
            perform(Filetest.load(file), f"run target={targets}")


@pytest.mark.usefixtures("without_simulator")
def test_digests_are_of_the_targets_that_can_run(file: Path) -> None:
    file.write_text(
        TARGETS.partition("// run:")[0].replace("run target=TARGETS", "digest target=cuda-sim,cpu")
    )
    assert "//> %y sha256 " in bless(file)
    verify(file)


@pytest.mark.parametrize("name", [".", "a.cvm", "empty"])
def test_a_place_without_tests_is_a_wrong_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.cvm").write_text(TARGETS.partition("\n")[2].partition("// run:")[0])
    (tmp_path / "empty").mkdir()
    assert main(["test", name]) == 2
    assert (
        capsys.readouterr().err
        == f"cvm: {name} holds no tests: no `// test` line in a .cvm or .loops file\n"
    )


@pytest.mark.parametrize("pattern", ["{{(x+x+)+y}}", "[[a:(x|x)*y]]"])
def test_a_regular_expression_that_takes_exponential_time_is_ended(
    file: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    monkeypatch.setattr(checks, "SECONDS", 1)
    text = LAYER.partition("func")
    name = "x" * 50
    program = "".join(text[1:]).replace("@layer", f"@{name}")
    file.write_text(f"// test graph\n// check: func\n// check-next: {pattern}\n{program}")
    with pytest.raises(Failure) as caught:
        perform(Filetest.load(file), "graph")
    assert str(caught.value) == f"{file}:3: {pattern!r} takes more than 1 s to match"


def test_a_long_run_of_blanks_in_an_expectation_is_read_in_time(file: Path) -> None:
    blanks = " " * 200_000
    file.write_text(
        f"// test run\n{TARGETS.partition(chr(10))[2]}".replace("RESULT", f"{blanks}x{blanks}y")
    )
    began = time.process_time()
    with pytest.raises(Failure, match="expected numbers"):
        perform(Filetest.load(file), "run")
    file.write_text(f"// test graph\n// check: a{blanks}b\n{LAYER.partition('check')[2]}")
    with pytest.raises(Failure, match="does not follow"):
        perform(Filetest.load(file), "graph")
    assert time.process_time() - began < 30  # it took hours


def test_a_match_on_the_same_line() -> None:
    text = "%a = add %x, %y\n%b = mul %a, %a\n"
    check_text(text, [Check("check", "%a =", 1), Check("check-same", "%y", 2)])
    with pytest.raises(Mismatch, match="is not on the same line"):
        check_text(text, [Check("check", "%a = add", 1), Check("check-same", "mul", 2)])


def test_labels_divide_a_text() -> None:
    text = "@f {\n  add\n}\n@g {\n  mul\n  mul\n}\n"
    f, g = Check("check-label", "@f", 1), Check("check-label", "@g", 3)
    check_text(text, [f, Check("check", "add", 2), g, Check("check", "mul", 4)])
    check_text(text, [f, Check("check-not", "mul", 2), g])
    with pytest.raises(Mismatch, match="does not follow") as caught:
        check_text(text, [f, Check("check", "mul", 2), g])
    assert "add" in caught.value.args[1] and "mul\n" not in caught.value.args[1]
    with pytest.raises(Mismatch, match="check-label: '@f' does not follow"):
        check_text(text, [g, f])


def test_matches_are_counted() -> None:
    text = "mul\nmul\nadd\n"
    check_text(text, [Check("check-count-2", "mul", 1), Check("check", "add", 2)])
    for wrong in (Check("check-count-3", "mul", 1), Check("check-count-999999999", "mul", 1)):
        with pytest.raises(Mismatch, match="does not follow"):
            check_text(text, [wrong])


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("check-count: x", "check-count-N:"),
        ("chekc-count-3: x", "check-count-3:"),
        ("check-lable: x", "check-label:"),
    ],
)
def test_what_is_nearly_a_check_is_named(comment: str, expected: str, file: Path) -> None:
    file.write_text(f"// test graph\n// {comment}\n{LAYER.partition('check')[2]}")
    said = [message for _, message in Filetest.load(file).problems()]
    assert f"expected `// {expected}`, got `// {comment}`" in said


def test_files_run_in_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, result in (("a", 1), ("b", 2)):
        (tmp_path / f"{name}.cvm").write_text(
            "// test run\n\nfunc @main(%x: tensor<1xi32>) {\n  return %x\n}\n"
            f"// run: @main([1]) == [{result}]\n",
            "utf-8",
        )
    printed = set()
    for jobs in ("1", "2"):
        assert cli.main(["test", str(tmp_path), "-j", jobs]) == 1
        printed.add(capsys.readouterr().out)
    assert len(printed) == 1 and "1 passed, 1 failed" in printed.pop()
    assert cli.main(["test", str(tmp_path), "-j", "0"]) == 2


def test_some_tests_are_listed_and_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = "func @main(%x: tensor<2xi32>) {\n  return %x\n}\n"
    calls = "// run: @main([1, 2]) == [1, 2]\n"
    (tmp_path / "a.cvm").write_text(f"// test run\n// test check\n\n{program}{calls}", "utf-8")
    (tmp_path / "b.cvm").write_text(f"// test check\n\n{program}", "utf-8")
    assert cli.main(["test", str(tmp_path), "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.rpartition("/")[2] for line in listed] == [
        "a.cvm: run",
        "a.cvm: check",
        "b.cvm: check",
    ]
    assert cli.main(["test", str(tmp_path), "-k", ": check"]) == 0
    assert "2 passed" in capsys.readouterr().out
    assert cli.main(["test", str(tmp_path), "-k", "absent"]) == 2
    assert cli.main(["test", str(tmp_path), "-k", "run", "--bless"]) == 2
