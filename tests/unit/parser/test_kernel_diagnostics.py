"""Mistakes in the text of kernels: each is reported once, at its place, with what was expected."""

from __future__ import annotations

import pytest
import cvm
from cvm.commands.read_level import compiled, read_kernels

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
KINDS = "serial, parallel, vector, unrolled, block, thread, matrix"


def mistakes(text: str) -> list[str]:
    with pytest.raises(cvm.Error) as raised:
        compiled(read_kernels(text, "k.loops"), "kernels")
    return [f"{d.line}:{d.column} {d.code}: {d.message}" for d in raised.value.diagnostics]


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ("0..4 {\n    if", "0..4 vectr 4 {\n    if", f"3:18 parse.kernel: expected a kind of loop, {KINDS}, got vectr; did you mean vector"),
        ("0..4 {\n    if", "0..4 vector {\n    if", "3:18 parse.kernel: a vector loop has a width, as in vector 8"),
        ("0..4 {\n    if", "0..4 parallel 4 {\n    if", "3:27 parse.kernel: a parallel loop has no width"),
        ("    }\n  }\n}\n\n", "    }\n}\n\n", "3:18 parse.kernel: expected } to close the { of line 3, got the end of the kernel"),
        ("      %t[%i] = 0\n    }\n", "      %t[%i] = 0\n", "6:12 parse.kernel: expected } to close the { of line 6, got the end of the kernel"),
        ("  }\n}\n\nkernel", "  }\n\nkernel", "2:53 parse.kernel: expected } to close the { of line 2, got the end of the kernel"),
        ("  }\n}\n\nkernel", "  }\n}\n}\n\nkernel", "11:1 parse.kernel: expected kernel, got }"),
        ("%t[%i] + 1", "%t[%i] + ", "15:12 parse.kernel: expected a statement, an operator or }, got ="),
        ("%t[%i] + 1", "%t[%i] +* 1", "14:27 parse.kernel: expected an expression, got *"),
        ("%t[%i] + 1", "%t[%i 1", "14:25 parse.kernel: expected an operator, ,, [ or ], got 1"),
        ("    let", "    lett", "14:5 parse.kernel: expected a statement or }, got lett; did you mean let"),
        ("%a // 2", "%b // 2", "15:14 parse.kernel: there is no value %b"),
        ("let %a: i32", "let %a: i3", "14:13 parse.kernel: there is no element type i3; did you mean i32"),
        ("%t[%i] + 1", "%t[%i] § 1", "14:26 parse.kernel: no word or mark of the loop language begins with '§'"),
        ("%y[%i] = %a // 2", "%y[%i] = %a // 2 < 1", "15:5 kernel.illegal: kernel @b: %y is i32, the value i1"),
        ("%y[%i] = %a // 2", "%z[%i] = %a // 2", "15:5 parse.kernel: there is no buffer %z"),
        ("%t[%i] + 1", "%t[%i + 1] + 1", "14:5 kernel.illegal: kernel @b: an index of %t may be beyond 4"),
        ("(%t: tensor<4xi32>) -> (%y", "(%t: tensor<4xi64>) -> (%y", "14:19 parse.kernel: + does not take (i64, i32)"),
        ("kernel @b(%t: tensor<4xi32>)", "kernel @b(%t: tensor<5xi32>)", "12:8 kernel.array: %t is one array, but tensor<4xi32> in a kernel before @b and tensor<5xi32> in it"),
        ("@b(%t: tensor<4xi32>", "@b(%t: tensor<4xi32>, %v: tensor<2x2xi32> view of %s", "12:58 parse.kernel: there is no array %s"),
        ("@b(%t: tensor<4xi32>", "@b(%t: tensor<4xi32>, %v: tensor<2x2xi32> view of %v", "12:58 parse.kernel: there is no array %v"),
        ("@b(%t: tensor<4xi32>", "@b(%t: tensor<4xi32>, %v: tensor<5xi32> view of %t", "12:56 parse.kernel: %t has other elements than a view of it"),
        ("@b(%t: tensor<4xi32>", "@b(%t: tensor<4xi32> view of tensor<2xi32>", "12:37 parse.kernel: tensor<2xi32> has other elements than a view of it"),
        ("@b(%t: tensor<4xi32>", "@b(%t: tensor<4xi32> view of tensor<4xi3>", "12:37 parse.kernel: there is no type tensor<4xi3>"),
        ("@b(%t: tensor<4xi32>", "@b(%t: tensor<4xi32> view", "12:33 parse.kernel: expected of, got )"),
    ],
)  # fmt: skip
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

    kernels, places, _ = parse(GOOD)
    assert kernels[1].span.text == "@b" and places[kernels[1].body[0]].line == 13
