"""Mistakes in the text of kernels: each is reported once, at its place, with what was expected."""

from __future__ import annotations

import numpy as np
import pytest
from cvm.dialect.kernel_ir.kernel_printer import plan_text
from cvm.parser.kernel_syntax_errors import REREAD

import cvm
from cvm.terminal.read_program import compiled, read_kernels, warnings_of

GOOD = """\
// two kernels
kernel @a(%x: tensor<4xi32>) -> (%t: tensor<4xi32>) {
  for %i in 0..4 vector 4 {
    if %x[%i] > 0 {
      %t[%i] = %x[%i]
    } else {
      %t[%i] = 0
    }
  }
}

kernel @b(%t: tensor<4xi32>) -> (%y: tensor<4xi32>) {
  for %i in 0..4 {
    let %a: i32 = %t[%i] + 1
    %y[%i] = %a // 2
  }
}
"""
GOOD = GOOD.replace(" vector 4", "")
KINDS = "serial, parallel, vector, unrolled, block, thread, matrix, intrinsic"


def mistakes(text: str) -> list[str]:
    with pytest.raises(cvm.Error) as raised:
        compiled(read_kernels(text, "k.loops"), "kernels")
    return [f"{d.line}:{d.column} {d.code}: {d.message}" for d in raised.value.diagnostics]


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        (
            "0..4 {\n    if",
            "0..4 vectr 4 {\n    if",
            f"3:18 parse.kernel: expected a kind of loop, {KINDS}, got vectr; did you mean vector",
        ),
        (
            "0..4 {\n    if",
            "0..4 vector {\n    if",
            "3:18 parse.kernel: a vector loop has a width, as in vector 8",
        ),
        (
            "0..4 {\n    if",
            "0..4 parallel 4 {\n    if",
            "3:27 parse.kernel: parallel loops have no width",
        ),
        (
            "    }\n  }\n}\n\n",
            "    }\n}\n\n",
            "3:18 parse.kernel: expected } to close the { of line 3, got the end of the kernel",
        ),
        (
            "      %t[%i] = 0\n    }\n",
            "      %t[%i] = 0\n",
            "6:12 parse.kernel: expected } to close the { of line 6, got the end of the kernel",
        ),
        (
            "  }\n}\n\nkernel",
            "  }\n\nkernel",
            "2:53 parse.kernel: expected } to close the { of line 2, got the end of the kernel",
        ),
        (
            "  }\n}\n\nkernel",
            "  }\n}\n}\n\nkernel",
            "11:1 parse.kernel: expected kernel, loop or plan, got }",
        ),
        (
            "%t[%i] + 1",
            "%t[%i] + ",
            "15:12 parse.kernel: expected a statement, an operator or }, got =",
        ),
        ("%t[%i] + 1", "%t[%i] +* 1", "14:27 parse.kernel: expected an expression, got *"),
        ("%t[%i] + 1", "%t[%i 1", "14:25 parse.kernel: expected an operator, ,, [ or ], got 1"),
        (
            "    let",
            "    lett",
            "14:5 parse.kernel: expected a statement or }, got lett; did you mean let",
        ),
        (
            "if %x[%i] > 0",
            "if %i < ?Z",
            "2:8 kernel.illegal: kernel @a: ?Z is the size of no argument",
        ),
        (
            "%y[%i] = %a // 2",
            "%y[%i] = i32([2 * ?0 + 1])",
            "12:8 kernel.illegal: kernel @b: a size that is read is the size of no argument",
        ),
        ("%a // 2", "%b // 2", "15:14 parse.kernel: there is no value %b"),
        (
            "let %a: i32",
            "let %a: i3",
            "14:13 parse.kernel: there is no element type i3; did you mean i32",
        ),
        (
            "%t[%i] + 1",
            "%t[%i] § 1",
            "14:26 parse.kernel: no word or mark of the loop language begins with '§'",
        ),
        (
            "%y[%i] = %a // 2",
            "%y[%i] = %a // 2 < 1",
            "15:5 kernel.illegal: kernel @b: %y is i32, the value i1",
        ),
        ("%y[%i] = %a // 2", "%z[%i] = %a // 2", "15:5 parse.kernel: there is no buffer %z"),
        (
            "%t[%i] + 1",
            "%t[%i + 1] + 1",
            "14:5 kernel.illegal: kernel @b: an index of %t may be beyond 4",
        ),
        (
            "(%t: tensor<4xi32>) -> (%y",
            "(%t: tensor<4xi64>) -> (%y",
            "14:19 parse.kernel: + does not take (i64, i32)",
        ),
        (
            "kernel @b(%t: tensor<4xi32>)",
            "kernel @b(%t: tensor<5xi32>)",
            "12:8 kernel.array: %t is one array, but tensor<4xi32> in a kernel before @b "
            "and tensor<5xi32> in it",
        ),
        (
            "@b(%t: tensor<4xi32>",
            "@b(%t: tensor<4xi32>, %v: tensor<2x2xi32> view of %s",
            "12:58 parse.kernel: there is no array %s",
        ),
        (
            "@b(%t: tensor<4xi32>",
            "@b(%t: tensor<4xi32>, %v: tensor<2x2xi32> view of %v",
            "12:58 parse.kernel: there is no array %v",
        ),
        (
            "@b(%t: tensor<4xi32>",
            "@b(%t: tensor<4xi32>, %v: tensor<5xi32> view of %t",
            "12:56 parse.kernel: %t has other elements than a view of it",
        ),
        (
            "@b(%t: tensor<4xi32>",
            "@b(%t: tensor<4xi32> view of tensor<2xi32>",
            "12:37 parse.kernel: tensor<2xi32> has other elements than a view of it",
        ),
        (
            "@b(%t: tensor<4xi32>",
            "@b(%t: tensor<4xi32> view of tensor<4xi3>",
            "12:37 parse.kernel: there is no type tensor<4xi3>",
        ),
        (
            "@b(%t: tensor<4xi32>",
            "@b(%t: tensor<4xi32> view",
            "12:33 parse.kernel: expected of, got )",
        ),
    ],
)
def test_one_mistake_is_reported_once(was: str, becomes: str, said: str) -> None:
    assert GOOD.count(was) == 1 and compiled(read_kernels(GOOD, "k.loops"), "kernels")
    found = mistakes(GOOD.replace(was, becomes))
    assert len(found) == 1 and found[0].startswith(said), found


def test_every_kernel_is_checked() -> None:
    broken = GOOD.replace("%t[%i] = 0", "%t[%i] = ").replace("%t[%i] + 1", "%u[%i] + 1")
    assert [m.partition(":")[0] for m in mistakes(broken)] == ["8", "14"]
    broken = GOOD.replace("%t[%i] = 0", "%t[%i - 1] = 0").replace("%t[%i] + 1", "%t[%i + 1] + 1")
    assert [m.partition(":")[0] for m in mistakes(broken)] == ["7", "14"]


def test_the_end_of_a_kernel_that_is_not_closed_is_noted() -> None:
    with pytest.raises(cvm.ParseError) as raised:
        read_kernels(GOOD.replace("  }\n}\n\nkernel", "  }\n\nkernel"), "k.loops")
    (note,) = raised.value.diagnostics[0].notes
    assert note.message == "the kernel ends here" and note.span is not None and note.span.line == 9


def test_statements_keep_their_places() -> None:
    from cvm.parser.kernels import read_kernels as parse

    plan, places = parse(GOOD)
    assert plan.kernels[1].span.text == "@b" and places[plan.kernels[1].body[0]].line == 13


LOOP = """\
loop @sums(%start: tensor<f32>, %xs: tensor<?T x f32>) -> (%last: tensor<f32>, %all: tensor<?T x f32>) steps ?T carry 1 scan 1 of (%start, %xs) {
  plan (%total: tensor<f32>, %x: tensor<f32>) -> (%next: tensor<f32>, %y: tensor<f32>)

  kernel @add(%total: tensor<f32>, %x: tensor<f32>) -> (%next: tensor<f32>) {
    %next[] = %total[] + %x[]
  }

  kernel @copy(%next: tensor<f32>) -> (%y: tensor<f32>) {
    %y[] = %next[]
  }
}
"""


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        (
            "of (%start, %xs)",
            "of (%start)",
            "1:6 parse.kernel: the body takes 2 arrays and gives 2, got 1 and 2",
        ),
        (
            "of (%start, %xs)",
            "of (%xs, %start)",
            "1:6 parse.kernel: %xs is tensor<f32> by the body of the loop, got tensor<?T x f32>",
        ),
        (
            "of (%start, %xs)",
            "of (%start, %x)",
            "1:140 parse.kernel: there is no array %x; did you mean %xs",
        ),
        (
            "steps ?T",
            "steps 0",
            "1:110 parse.kernel: a loop takes between 1 and 1099511627776 steps, got 0",
        ),
        (
            "steps ?T",
            "stesp ?T",
            "1:104 parse.kernel: expected steps or while, got stesp; did you mean steps",
        ),
        (
            "steps ?T",
            "steps ?S",
            "1:6 parse.kernel: %xs is tensor<?S x f32> by the body of the loop, got "
            "tensor<?T x f32>",
        ),
        (
            "%y: tensor<f32>)\n\n",
            "%z: tensor<f32>)\n\n",
            "1:6 kernel.array: no kernel has written %z where it is read",
        ),
        (
            "(%total: tensor<f32>, %x: tensor<f32>) -> (%next: tensor<f32>, ",
            "(%sum: tensor<f32>, %x: tensor<f32>) -> (%next: tensor<f32>, ",
            "1:6 kernel.array: no kernel has written %total where it is read",
        ),
        ("  plan (", "  plann (", "2:3 parse.kernel: expected plan, got plann; did you mean plan"),
        ("%total[] + %x[]", "%total[] + %w[]", "5:26 parse.kernel: there is no value %w"),
        ("%total[] + %x[]", "%total[] + ", "6:3 parse.kernel: expected an expression, got }"),
        (
            "@copy(%next: tensor<f32>)",
            "@copy(%next: tensor<f64>)",
            "8:10 kernel.array: %next is one array, but tensor<f32> in a kernel before "
            "@copy and tensor<f64> in it",
        ),
        (
            "    %y[] = %next[]\n  }\n}",
            "    %y[] = %next[]\n  }\n",
            "1:145 parse.kernel: expected } to close the { of line 1, got the end of the kernel",
        ),
    ],
)
def test_a_mistake_in_a_loop_is_reported_once(was: str, becomes: str, said: str) -> None:
    assert LOOP.count(was) == 1 and compiled(read_kernels(LOOP, "k.loops"), "kernels")
    assert mistakes(LOOP.replace(was, becomes)) == [said]


def test_every_kernel_of_a_loop_is_checked() -> None:
    broken = LOOP.replace("%total[] + %x[]", "%u[] + %x[]").replace("= %next[]", "= %v[]")
    assert [m.partition(":")[0] for m in mistakes(broken)] == ["5", "9"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"%total[] + %x[]": "%total[] +* %x[]", "= %next[]": "= = %next[]"}, ["5:25 *", "9:12 ="]),
        (
            {"%total[] + %x[]": "%total[] +\n    %next[] = ( %x[]", "= %next[]": "= ]"},
            ["6:13 =", "7:3 }", "10:12 ]"],
        ),
        (
            {"kernel @add(": "kernel @add((", "kernel @copy": "kernel", "= %next[]": "="},
            ["4:15 (", "8:9 (", "10:3 }"],
        ),
        ({"  plan (": "  plan ", "%total[] + %x[]": "+"}, ["2:8 %total", "5:15 +"]),
        ({" steps ?T": " step ?T", "= %next[]": "= %next["}, ["1:104 step", "10:3 }"]),
    ],
)
def test_each_syntax_error_of_a_loop_is_reported(changes: dict[str, str], said: list[str]) -> None:
    text = LOOP
    for was, becomes in changes.items():
        text = text.replace(was, becomes, 1)
    found = [
        (m.partition(" ")[0], m.rpartition(", got ")[2].partition(";")[0]) for m in mistakes(text)
    ]
    assert [" ".join(parts) for parts in found] == said


def test_a_long_kernel_is_not_read_again_after_each_of_its_mistakes() -> None:
    text = "kernel @k() -> (%y: tensor<i32>) {\n" + "  %y[] = = 1\n" * 5000 + "}\n"
    assert len(mistakes(text)) == 1 + REREAD // len(text)


def test_a_loop_takes_at_least_one_step() -> None:
    f = compiled(read_kernels(LOOP, "k.loops"), "kernels", "cpu")
    assert [y.tolist() for y in f(np.float32(1), np.arange(3, dtype=np.float32))] == [4, [1, 2, 4]]
    with pytest.raises(cvm.CallError, match="@sums takes between 1 and 1099511627776 steps, got 0"):
        f(np.float32(1), np.zeros(0, np.float32))


def test_arguments_may_be_declared() -> None:
    kernel = (
        "kernel @k(%y: tensor<?N x i32>) -> (%z: tensor<?N x i32>) {\n  for %i in 0..?N {\n"
        "    %z[%i] = %y[%i]\n  }\n}\n"
    )
    text = (
        "plan (%like: tensor<?N x f32>, %y: tensor<?N x i32>) -> (%z: tensor<?N x i32>)\n\n"
        + kernel
    )
    f = compiled(read_kernels(text, "k.loops"), "kernels", "cpu")
    assert [a.name for a in f.function.arguments] == ["like", "y"] and f.lower("loops") == text
    assert f(np.zeros(2, np.float32), np.array([3, 4], np.int32)).tolist() == [3, 4]
    assert mistakes(text.replace("%z: tensor<?N x i32>)\n\n", "%w: tensor<?N x i32>)\n\n")) == [
        "1:1 kernel.array: no kernel has written %w where it is read"
    ]


def test_sizes_are_not_divided_by_a_mark() -> None:
    text = GOOD.replace("0..4 {\n    let", "0..[8 // 2] {\n    let")
    assert mistakes(text) == ["13:19 parse.kernel: sizes are joined by +, - and *, got //"]


@pytest.mark.parametrize(
    ("was", "becomes"), [("// 2\n", "// 2\n// halves\n"), ("\n", "\r\n")], ids=["comment", "crlf"]
)
def test_comments_and_ends_of_lines_may_stand_anywhere(was: str, becomes: str) -> None:
    plan = read_kernels(GOOD.replace(was, becomes), "k.loops")
    assert plan_text(plan) == plan_text(read_kernels(GOOD, "k.loops"))


def test_kernels_that_cannot_be_called_together_are_a_warning() -> None:
    text = GOOD.replace("@b(%t: tensor<4xi32>)", "@b(%t: tensor<5xi32>)")
    (found,) = warnings_of(read_kernels(text, "k.loops"))
    assert found.severity == "warning" and found.code == "kernel.array"
    assert warnings_of(read_kernels(GOOD, "k.loops")) == []
