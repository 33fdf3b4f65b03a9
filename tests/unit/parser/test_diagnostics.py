"""Diagnostics of broken programs: all mistakes in one run, at the right place, as a cvm.Error."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.program_printer import print_module
from cvm.dialect.support import diagnostics
from cvm.dialect.support.diagnostics import Error, ParseError, VerifyError
from cvm.dialect.support.limits import limited
from cvm.parser import check, parse, read
from cvm.parser.error_examples import snippets
from cvm.parser.format import format_text
from cvm.parser.recovery import friendly, stops_at
from hypothesis import given, settings, strategies as st
from random_programs import modules

ROOT = Path(__file__).parents[3]
TABLE = Path(__file__).parents[2] / "support" / "syntax_error_messages.txt"
BLOCKS = TABLE.read_text("utf-8").split("----\n")


def said(program: str | bytes) -> list[str]:
    return [f"{d.line}:{d.column} {d.code}: {d.message}" for d in check(program)[1]]


def with_messages(block: str) -> str:
    """A block of the table with what is said about its program."""
    text, title, name = block.partition("\n# ")
    program = "\n".join(line for line in text.rstrip().splitlines() if not line.startswith("> "))
    if not program:
        return block
    lines = [program, *(f"> {message}" for message in said(program))]
    return "\n".join([*lines, f"{title}{name}"]) if title else "\n".join([*lines, ""])


def test_the_table_is_written_anew(update_golden: bool) -> None:
    if update_golden:
        TABLE.write_text("----\n".join(map(with_messages, BLOCKS)), "utf-8")


@pytest.mark.parametrize("block", BLOCKS[1:], ids=lambda block: block.partition("\n")[0][:60])
def test_mistakes(block: str) -> None:
    assert with_messages(block) == block


@pytest.mark.parametrize(
    ("program", "messages"),
    [
        (
            "func @f(%x: tensor<f32>)\0 { return %x }",
            [
                "1:25 parse.character: expected a character of the language, got U+0000 (a "
                "control character)"
            ],
        ),
        ("\ufefffunc @f() { return }", []),
        (
            "func @f() {\n  return\u00a0\n}",
            [
                "2:9 parse.character: expected a character of the language, got U+00A0 "
                "(no-break space)"
            ],
        ),
        (
            b"// \xe9t\xe9\nfunc @f() { retrun }",
            [
                "1:4 parse.encoding: the text is UTF-8, but holds the byte 0xe9 and 1 "
                "other; save it as UTF-8",
                "2:13 parse.statement: expected a statement, as in %y = cvm.relu %x, got "
                "retrun; did you mean return",
            ],
        ),
        (
            "func @f() { return } // \ud800",
            ["1:25 parse.encoding: the text has no half of a surrogate pair, got U+D800"],
        ),
        (
            b"\xff" * 100,
            [
                "1:1 parse.encoding: the text is UTF-8, but holds the byte 0xff and 99 "
                "others; save it as UTF-8"
            ],
        ),
        *(
            (
                text,
                [
                    "1:1 parse.encoding: the text is UTF-8, but this file is UTF-16; save "
                    "it as UTF-8"
                ],
            )
            for text in (
                "func".encode("utf-16"),
                "func".encode("utf-16-le"),
                "func".encode("utf-16-be"),
            )
        ),
        (b"\xef\xbb\xbffunc @f() { return }", []),
        ("// one line\rfunc @f() { return }\r// another", []),
        (
            "func @f(%\u00e9: tensor<f32>) -> tensor<f32> {\n  %y = cvm.relu %\u00e9\n"
            "  %z = cvm.relu %\u00e9\n  return %y\n}",
            [
                "1:10 parse.character: expected a character of the language, got '\u00e9' "
                "(U+00E9, latin small letter e with"
                " acute); a name is of ASCII letters, digits and _"
            ],
        ),
    ],
    ids=[
        "nul",
        "byte order mark",
        "no-break space",
        "latin-1",
        "surrogate",
        "bytes",
        "utf-16",
        "utf-16-le",
        "utf-16-be",
        "utf-8 with a mark",
        "carriage returns",
        "a name",
    ],
)
def test_characters(program: str | bytes, messages: list[str]) -> None:
    assert said(program) == messages


CONFLICT = """func @f(%x: tensor<4xi32>) -> tensor<4xi32> {
<<<<<<< ours
  %y = cvm.relu %x
||||||| base
  %y = cvm.abs %x
=======
  %y = cvm.negative %x
>>>>>>> theirs
  return %z
}
"""


def test_conflicts_of_a_merge() -> None:
    assert said(CONFLICT) == [
        "2:1 parse.conflict: a conflict of a merge is not resolved",
        "9:10 value.undefined: there is no value %z",
    ]
    assert said(CONFLICT.replace("\n", "\r\n")) == said(CONFLICT)
    other = "func @g() {\n  %a = cvm.rleu 1\n  return %a\n}\n"
    for line, place in (("<<<<<<< ours", "3:1"), (">>>>>>> theirs", "2:1")):
        assert said(CONFLICT.replace(f"{line}\n", "") + other) == [
            f"{place} parse.conflict: a conflict of a merge is not resolved"
        ]
    twice = CONFLICT.replace(">>>>>>> theirs\n", "") + CONFLICT
    assert said(twice) == ["2:1 parse.conflict: a conflict of a merge is not resolved"]


def notes(program: str) -> list[str]:
    return [f"{n.span}: {n.message}" for d in check(program)[1] for n in d.notes]


@pytest.mark.parametrize(
    ("program", "message", "note"),
    [
        (
            "func @f(%x: tensor<4xi32> -> tensor<4xi32> {\n  return %x\n}",
            "1:27 parse.argument: expected ',' or ')' after an argument, got '->'",
            "<text>:1:8: the '(' that is not closed",
        ),
        (
            "func @g() {\n  return\n}\nfunc @f(%x: tensor<4xi32> {\n  %y = cvm.abs %x\n"
            "  return %y\n}",
            "4:27 parse.argument: expected ',' or ')' after an argument, got '{'",
            "<text>:4:8: the '(' that is not closed",
        ),
        (
            "func @f(%a: tensor<4xi32>, %x: tensor<4xi32> {\n  return %x\n}",
            "1:46 parse.argument: expected ',' or ')' after an argument, got '{'",
            "<text>:1:8: the '(' that is not closed",
        ),
        (
            "func @f(%x: tensor<4xi32>) {\n  %y = cvm.clip %x {a_min = 0, a_max = 8\n  return %y\n}",
            "3:3 parse.attribute: expected ',' or '}' after an attribute, got return",
            "<text>:2:20: the '{' that is not closed",
        ),
        *(
            (
                f"func @f(%x: tensor<4xi32>) {{\n  %y = cvm.relu %x {{{rest}",
                f"3:{column} parse.attribute: {said}, got {got}",
                "<text>:2:20: the '{' that is not closed",
            )
            for rest, column, said, got in (
                ("\n  return %y\n}", 3, "expected the name of an attribute", "return"),
                (
                    "a = 1,\n  return %y\n}\nfunc @g() { return }",
                    3,
                    "expected the name of an attribute",
                    "return",
                ),
                (
                    "a =\n  return %y\n}",
                    3,
                    "expected the value of an attribute after '='",
                    "return",
                ),
                ("\nfunc @g() { return }", 1, "expected the name of an attribute", "func"),
                ("\n", 1, "expected the name of an attribute", "the end of the text"),
            )
        ),
        (
            "func @f() {\n  %y = const dense<[1, 2] : tensor<2xi32>\n  return %y\n}",
            "2:27 parse.constant: expected ',' or '>' after an element of dense<...>, got ':'",
            "<text>:2:19: the '<' that is not closed",
        ),
    ],
)
def test_brackets_that_are_not_closed(program: str, message: str, note: str) -> None:
    assert said(program) == [message]
    assert notes(program) == [note]


@pytest.mark.parametrize(
    ("operation", "operands"),
    [
        ("cvm.conv2d %x, %w {stride = [0, 1]}", []),
        ("cvm.max_pool2d %x {pool_size = [2, 2], padding = [2, 2]}", []),
        ("cvm.tile %x {reps = []}", []),
        ("cvm.sum %x {axes = [4]}", ["x is %x"]),
        ("cvm.conv2d %x, %w {groups = 5}", ["x is %x"]),
        ("cvm.conv2d %x, %w, %w {groups = 1}", ["w is %w", "b is %w"]),
        ("cvm.concatenate %x, %w {axis = 4}", ["xs[0] is %x", "xs[1] is %w"]),
        ("cvm.dense %x, %w", ["x is %x", "w is %w"]),
    ],
)
def test_operands_are_noted_where_the_rule_is_about_them(
    operation: str, operands: list[str]
) -> None:
    program = (
        f"func @f(%x: tensor<1x4x8x8xi32>, %w: tensor<4x4x3x3xi32>) {{\n  %y = {operation}\n"
        f"  return %y\n}}"
    )
    assert len(said(program)) == 1
    assert [note.split(": ")[1].strip() for note in notes(program)] == operands


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("%y = dali.add %x, 0x10", "1:68 parse.number: an integer is decimal, as in 16, got 0x10"),
        (
            '%y = theano.elemwise %x {scalar_op = "expp"}',
            "1:87 theano.elemwise.C1: scalar_op is a scalar operation of Theano, but"
            ' scalar_op = "expp"; did you mean exp',
        ),
        (
            "%y = cvm.furlongs %x",
            "1:55 op.unknown: the cvm dialect has no operator furlongs; `cvm ops cvm` lists them",
        ),
        (
            '%y = theano.elemwise %x {scalar_op = "tahn"}',
            "1:87 theano.elemwise.C1: scalar_op is a scalar operation of Theano, but "
            'scalar_op = "tahn"; did you mean tanh',
        ),
        (
            "%y = theano.elemwise %x {scalar_op = abs}",
            "1:87 parse.word: expected a value, got abs; a string stands in quotes",
        ),
        (
            "%y = cvm.acosh %x",
            "1:55 op.unknown: the cvm dialect has no operator acosh; there is dali.acosh",
        ),
        (
            "%y = cvm.reshape %x {shape = [2, 2]}",
            "1:71 cvm.reshape.attributes: cvm.reshape has the attributes target_shape, got "
            "shape; did you mean target_shape",
        ),
    ],
)
def test_what_may_be_meant(body: str, message: str) -> None:
    program = "func @main(%x: tensor<4xi32>) -> tensor<4xi32> { " + body + "\n return %y }"
    assert said(program) == [message]
    assert notes(program) == []  # no operand has to do with it


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (
            ": cog.field<[], f32>\n%m = cog.add %n, 1\ncog.feedback %n, %m",
            "2:36 parse.type: the type of a field is written !cog.field<[4], f32>, got cog",
        ),
        (
            ': !cog.field<[], f32>\n%m = cog.add %n, 1\ncog.feedback %n %m\ncog.probe "m" %m',
            "4:17 parse.operand: expected ',' before an operand, got %m",
        ),
        (
            ": !cog.field<[], i32>\n%m = cog.add %n, 1\ncog.feedback %n, %m",
            "2:36 cog.field.C1: type: a field of f32 or complex<f32> of known sizes, of at "
            "most 3 dimensions, of"
            " tensors of order at most 2, but type = !cog.field<[], i32>",
        ),
    ],
)
def test_a_broken_field_is_no_mistake_of_its_feedback(statements: str, message: str) -> None:
    assert said(f'graph @g {{\n%n = cog.field "n" init dense<0> {statements}\n}}') == [message]


def test_names_without_their_marks() -> None:
    assert said(
        "graph @g {\n%n = cog.field n init dense<0> : !cog.field<[], f32>\n%m = cog.add %n, 1\n}"
    ) == [
        '2:18 parse.statement: the name of a field stands in quotes, as in cog.field "n" '
        "init dense<0> : type"
    ]
    assert said(
        "func @f(%x: tensor<4xi32>) {\n  y = cvm.relu %x\n  %z = cvm.relu %y\n  return %z\n}"
    ) == ["2:3 parse.statement: the name of a result begins with %, got y"]
    assert said("func @f(%x: tensor<4xi32>) {\n  %y = cvm.relu %x\n  return y\n}") == [
        "3:10 parse.word: the name of a value begins with %, got y; did you mean %y"
    ]
    assert said("func @f(%x: tensor<Nx3xi32>) {\n  return %x\n}") == [
        "1:20 parse.type: an unknown size is written ? or ?N, got Nx3xi32"
    ]


def test_a_broken_argument_is_no_mistake_of_callers() -> None:
    program = (
        "func @g(%x: tensor<i32>, %y) { return %x }\n"
        "func @f(%x: tensor<i32>) { %y = call @g(%x, %x)\n return %y }"
    )
    assert said(program) == [
        "1:28 parse.argument: expected ':' and a type after the name of an argument, got ')'"
    ]


def test_a_result_size_is_one_of_an_argument() -> None:
    program = "func @f(%x: tensor<?N x i32>) -> {} {{ return %x }}"
    assert said(program.replace("{} {{", "tensor<?N x i32> {").replace("}}", "}")) == []
    assert said(program.replace("{} {{", "tensor<?M x i32> {").replace("}}", "}")) == [
        "1:60 func.size: a named size of a result is one of an argument, but ?M of "
        "tensor<?M x i32> is of none"
    ]


def test_integers_of_8_bits_are_told_how_they_are_written() -> None:
    program = (
        "func @f(%x: tensor<1x3x8x8xi8>, %w: tensor<4x3x3x3xi8>) { %y = cvm.conv2d %x, %w "
        "return %y }"
    )
    (mistake,) = check(program)[1]
    assert mistake.code == "cvm.conv2d.C0" and "quant.conv2d" in mistake.notes[-1].message
    (mistake,) = check(program.replace("xi8>", "xf16>"))[1]
    assert mistake.code == "cvm.conv2d.C0" and len(mistake.notes) == 2


def test_every_mistake_is_told_in_one_run() -> None:
    program = """
func @layer(%x: tensor<?N x 4xi32>, %w tensor<4x4xi32>, %b: tensor<4xi33>) -> tensor<?N x 4 x i32> {
  %sum = cvm.dense %x, %w, %b
  %y = cvm.rleu %sum
  return %y
}

func @main(%x: tensor<2x4xi32>) -> tensor<2x3xi32> {
  %w = const dense<[[1, 2, 3, 4], [1, 2, 3]]> : tensor<2x4xi32>
  %h = call @lyer(%x, %w)
  %a = cvm.relu %h {alpha = 1}
  %b = cvm.clip %a {a_mni = 1, a_max = 300}
  %c = cvm.broadcast_add %b %a
  %d = cvm.broadcast_add %c, 1.5
  %e = cvm.dense %x, %x, %d
  %f = cvm.dense %x, %g
  return %x
"""
    assert said(program) == [
        "2:40 parse.argument: expected ':' and a type after the name of an argument, got "
        "tensor<4x4xi32>",
        "2:70 parse.type: expected an element type, got i33; did you mean i32",
        "4:8 op.unknown: the cvm dialect has no operator rleu; did you mean cvm.relu",
        "9:43 const.shape: expected 4 elements in dimension 1, got 3",
        "10:13 func.unknown: there is no function @lyer; did you mean @layer",
        "11:21 cvm.relu.attributes: cvm.relu has no attributes, got alpha",
        "12:21 cvm.clip.attributes: cvm.clip has the attributes a_min, a_max, got a_mni; "
        "did you mean a_min",
        "13:29 parse.operand: expected ',' before an operand, got %a",
        "14:30 cvm.broadcast_add.literal: a literal operand of cvm is an integer, i32, got 1.5",
        "16:22 value.undefined: there is no value %g",
        "17:10 func.type: @main returns tensor<2x4xi32>, but its type says tensor<2x3xi32>",
        "18:1 parse.brace: expected '}', got the end of the text",
    ]


def test_a_diagnostic_reads_as_documented() -> None:
    program = (
        "func @main(%x: tensor<1x3x8x8xi32>) {\n"
        "  %w = const dense<1> : tensor<4x2x3x3xi32>\n"
        "  %y = cvm.conv2d %x, %w {padding = [1, 1]}\n"
        "  return %y\n"
        "}\n"
    )
    with pytest.raises(VerifyError) as caught:
        parse(program, "model.cvm")
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.file, diagnostic.line, diagnostic.column) == ("model.cvm", 3, 8)
    assert str(diagnostic).startswith(
        f"model.cvm:3:8: error[{diagnostic.code}]: {diagnostic.message}"
    )
    assert str(diagnostic).splitlines()[1:] == [
        "    %y = cvm.conv2d %x, %w {padding = [1, 1]}",
        "         ^~~~~~~~~~",
        "model.cvm:1:12: note: x is %x : tensor<1x3x8x8xi32>",
        "  func @main(%x: tensor<1x3x8x8xi32>) {",
        "             ^~",
        "model.cvm:2:3: note: w is %w : tensor<4x2x3x3xi32>",
        "    %w = const dense<1> : tensor<4x2x3x3xi32>",
        "    ^~",
    ]


def test_what_is_no_program_is_a_parse_error() -> None:
    with pytest.raises(ParseError):
        parse("func @f() { %y = relu }")
    with pytest.raises(VerifyError):
        parse("func @f() { return %y }")
    with pytest.raises(ParseError) as caught:  # all the mistakes, those of verification included
        parse("func @f(%x: tensor<i32>) -> tensor<f32> { %y = relu\n return %x }")
    assert [d.code for d in caught.value.diagnostics] == ["parse.operator", "func.type"]


@pytest.mark.parametrize(
    ("message", "text"), [(s.message, t) for s, t, _ in snippets()], ids=lambda x: x[:50]
)
def test_snippets_have_their_own_messages(message: str, text: str) -> None:
    state, token = stops_at(text)
    assert friendly()[state, token.type].message == message


# Files


def refusal(
    folder: Path, reference: str, type: str = "tensor<2xi32>", outside: bool = False
) -> str:
    text = f"func @f() {{\n  %c = const file({reference}) : {type}\n  return %c\n}}"
    try:
        parse(text, folder=folder, allow_outside=outside)
    except Error as e:
        (diagnostic,) = e.diagnostics
        assert diagnostic.line == 2
        return f"{diagnostic.code}: {diagnostic.message}"
    return ""


def test_file_constants_are_refused_with_a_reason(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    for folder in (tmp_path, inside):
        np.savez(
            folder / "a.npz",
            w=np.arange(2, dtype=np.int32),
            f=np.array([0.5, 1]),
            o=np.array([0, 1], np.int8),
        )
    np.save(inside / "p.npy", np.array([{}], object), allow_pickle=True)
    (inside / "t.npz").write_bytes((inside / "a.npz").read_bytes()[:-40])
    (inside / "t.txt").write_text("1 2")
    (inside / "d.npy").mkdir()
    assert refusal(inside, '"a.npz", "w"') == refusal(inside, '"a.npz", "o"') == ""
    assert (
        refusal(inside, '"a.npz", "v"')
        == 'const.file: the file holds no array "v"; it holds f, o, w'
    )
    assert refusal(inside, '"a.npz", "f"').startswith(
        "const.file: the constant has element type i32, but the file holds float64"
    )
    assert refusal(inside, '"a.npz", "w"', "tensor<3xi32>").startswith(
        "const.file: the constant is tensor<3xi32>, but"
    )
    assert refusal(inside, '"b.npz"') == 'const.file: there is no file "b.npz" beside the program'
    assert refusal(inside, '"d.npy"') == 'const.file: there is no file "d.npy" beside the program'
    assert (
        refusal(inside, '"../a.npz", "w"')
        == 'const.file: "../a.npz" lies outside the program\'s folder'
    )
    assert refusal(inside, '"../a.npz", "w"', outside=True) == ""
    assert refusal(inside, f'"{tmp_path}/a.npz", "w"').endswith("lies outside the program's folder")
    assert refusal(inside, '"t.txt"') == 'const.file: "t.txt": expected .npz, .npy or .safetensors'
    for broken in ('"t.npz", "w"', '"p.npy"', r'"a\u{0}.npz"', f'"{"x" * 5000}.npz"'):
        assert refusal(inside, broken).startswith("const.file: ")
    (inside / "link.npz").symlink_to(tmp_path / "a.npz")
    assert refusal(inside, '"link.npz", "w"').endswith("lies outside the program's folder")


def test_a_program_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.cvm", tmp_path, tmp_path / "a\0b"):
        with pytest.raises(ParseError) as caught:
            read(path)
        (diagnostic,) = caught.value.diagnostics
        assert diagnostic.code == "parse.file" and diagnostic.file == str(path)
        assert str(diagnostic).count("\n") == 0


def test_a_program_that_has_no_end(tmp_path: Path) -> None:
    with limited(text_bytes=100):
        for size, wanted in ((100, {"parse.character"}), (101, {"parse.file"})):
            (tmp_path / "long.cvm").write_bytes(bytes(size))
            with pytest.raises(ParseError) as caught:
                read(tmp_path / "long.cvm")
            assert {d.code for d in caught.value.diagnostics} == wanted
        with (
            open("/dev/zero", "rb") as endless,
            pytest.raises(ParseError, match="the limit text_bytes is 100"),
        ):
            diagnostics.read_bytes("<stdin>", endless)


# Absurd texts: an answer, soon


HEAD = "func @f(%x: tensor<4xi32>) -> tensor<4xi32> {\n"


ABSURD = {
    "closing braces": ("}" * 20_000, "parse.brace"),
    "opening braces": ("{" * 20_000, "parse.item"),
    "parentheses": ("(" * 20_000, "parse.item"),
    "functions": ("func " * 5_000, "parse.syntax"),
    "open functions": ("func @f() {\n" * 5_000, "parse.brace"),
    "arrays": (
        HEAD + "%y = cvm.sum %x {axes = " + "[" * 5_000 + "]" * 5_000 + "}\nreturn %y }",
        "parse.depth",
    ),
    "open arrays": (HEAD + "%y = cvm.sum %x {axes = " + "[" * 20_000, "parse.array"),
    "dictionaries": (HEAD + "%y = cvm.sum %x {a = " + "{a = " * 5_000, "parse.syntax"),
    "lists": (
        HEAD + "%y = const dense<" + "[" * 5_000 + "]" * 5_000 + "> : tensor<4xi32>\nreturn %y }",
        "const.shape",
    ),
    "open constants": (HEAD + "%y = const dense<1, 2\n" * 2_000, "parse.constant"),
    "types": (HEAD + "%y = const dense<1> : " + "tensor<" * 5_000, "parse.syntax"),
    "sizes": (
        HEAD + "%y = const dense<1> : tensor<" + "2x" * 5_000 + "f32>\nreturn %x }",
        "parse.type",
    ),
    "fields": (HEAD + "%y = const dense<1> : " + "!cog.field<[1], " * 5_000, "parse.syntax"),
    "an integer": (
        HEAD + f"%y = cvm.broadcast_add %x, {'9' * 10_000}\nreturn %y }}",
        "parse.integer",
    ),
    "a float": (
        HEAD + f"%y = cvm.broadcast_add %x, 1.{'9' * 10_000}e99999\nreturn %y }}",
        "parse.float",
    ),
    "an element": (
        HEAD + f"%y = const dense<{'9' * 10_000}> : tensor<4xi32>\nreturn %y }}",
        "const.range",
    ),
    "a size": (f"func @f(%x: tensor<{'9' * 10_000}xi32>) {{ return }}", "parse.type"),
    "a name": (HEAD + f"%y = cvm.{'a' * 100_000} %x\nreturn %x }}", "op.unknown"),
    "quotes": ('"' * 20_001, "parse.syntax"),
    "backslashes": ('"' + "\\" * 20_000, "parse.character"),
    "zeros": ("\0" * 20_000, "parse.character"),
    "unknown values": (
        HEAD + "".join(f"%v{n} = cvm.relu %u{n}\n" for n in range(3_000)) + "return %x }",
        "value.undefined",
    ),
    "unknown operators": (
        HEAD + "".join(f"%v{n} = cvm.a{n} %x\n" for n in range(3_000)) + "return %x }",
        "op.unknown",
    ),
    "mistakes": (
        HEAD + "%v = cvm.relu %x {a = = 1}\n" * 3_000 + "return %x }",
        "limit.diagnostics",
    ),
    "one line": (HEAD + "%v = cvm.relu %x ; " * 3_000, "parse.character"),
    "one name": ("func @f() { return }\n" * 3_000, "func.redefined"),
    "a circle": (
        "".join(
            f"func @f{n}(%x: tensor<i32>) {{ %y = call @f{(n + 1) % 500}(%x)\nreturn %y }}\n"
            for n in range(500)
        ),
        "call.cycle",
    ),
    "attributes": (
        HEAD
        + "%y = cvm.relu %x {"
        + ", ".join(f"a{n} = 1" for n in range(5_000))
        + "}\nreturn %y }",
        "cvm.relu.attributes",
    ),
    "results": (
        HEAD + ", ".join(f"%y{n}" for n in range(5_000)) + " = cvm.relu %x\nreturn %x }",
        "cvm.relu.results",
    ),
}


@pytest.mark.parametrize("name", ABSURD)
def test_absurd_texts(name: str) -> None:
    program, code = ABSURD[name]
    with pytest.raises(Error) as caught:
        parse(program)
    assert code in {d.code for d in caught.value.diagnostics}
    assert all(str(d) for d in caught.value.diagnostics[:100])


def test_deep_and_wide_calls() -> None:
    """Every function is verified once for the types it is called with, and none of them
    recursively; what they amount to is too much.
    """
    sizes = "tensor<?N x ?M x i32>"
    chain = "".join(
        f"func @f{n}(%x: {sizes}) {{\n  %t = cvm.transpose %x\n  %y = call @f{n + 1}(%x)\n"
        f"  %z = call @f{n + 1}(%t)\n  return %z\n}}\n"
        for n in range(1000)
    )
    module, diagnostics = check(f"{chain}func @f1000(%x: {sizes}) {{ return %x }}")
    assert [d.code for d in diagnostics] == ["limit.operations"]
    assert str(module.functions["f0"].results[0].type) == "tensor<?N x ?M x i32>"


def test_sizes_found_in_a_callee_are_not_mixed_up() -> None:
    program = """
        func @f(%x: tensor<?N x 2xi32>) {
          %y = cvm.reshape %x {target_shape = [-1]}
          return %y
        }
        func @main(%a: tensor<?N x 2xi32>, %b: tensor<?M x 2xi32>, %c: tensor<3x2xi32>) {
          %x = call @f(%a)
          %y = call @f(%b)
          %z = call @f(%c)
          return %x, %y, %z
        }
    """
    x, y, z = (r.known_type.array_shape[0] for r in parse(program).functions["main"].results)
    assert repr(x) == "2*N" and repr(y) == "2*M" and z == 6


# Random texts


WORDS = [
    "%x",
    "%y",
    "=",
    "%y",
    "@f",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "=",
    "->",
    "-",
    "1",
    "-1",
    "1.5",
    "nan",
    "none",
    "i32",
    ":",
    "i64",
    "tensor<4xi32>",
    "tensor<?N",
    "x",
    "f32>",
    "!cog.field<[2],",
    "f32>",
    "func",
    "return",
    "const",
    "dense<[1,",
    "2]>",
    "dense<1>",
    "file",
    "module",
    "graph",
    "call",
    "cvm.relu",
    "cvm.add",
    "cvm.sum",
    "dali.expr",
    "axes",
    "=",
    "[0]",
    "+",
    "*",
    '"s"',
    "//",
    "\n",
]


def never_fails(text: str | bytes) -> None:
    """Gives a program or says what is wrong with it; what is a program is printed and formatted."""
    try:
        module = parse(text)
        assert print_module(parse(print_module(module))) == print_module(module)
        assert print_module(module, generic=True)
        assert format_text(format_text(text)) == format_text(text)
    except Error as e:
        for diagnostic in e.diagnostics:
            assert diagnostic.code and diagnostic.message and str(diagnostic)
        places = [(d.span.start, d.span.end) for d in e.diagnostics]
        assert places == sorted(places)


@pytest.mark.parametrize(
    "text", ["tensor<4xi32 {", "tensor<?N x {", "!cog.field<[2], tensor<3xf32> {"]
)
def test_types_without_an_end_are_not_formatted(text: str) -> None:
    program = f"func @main(%x: tensor<4xi32>) -> {text}\n  return %x\n}}\n"
    with pytest.raises(Error) as e:
        format_text(program)
    assert [d.code for d in e.value.diagnostics] == ["parse.type"]


def test_an_attribute_may_be_bf16() -> None:
    text = """func @main(%x: tensor<3xf32>) -> tensor<3xbf16> {
  %y = theano.elemwise %x {scalar_op = "cast", dtype = bf16}
  return %y
}
"""
    assert print_module(parse(text)) == text == format_text(text)


@settings(deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=60))
def test_random_words(words: list[str]) -> None:
    never_fails("func @f(%x: tensor<4xi32>) {\n" + " ".join(words))
    never_fails(" ".join(words))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    never_fails(data)


@settings(deadline=None)
@given(modules(), st.randoms(use_true_random=False))
def test_damaged_programs(module: Module, chance: random.Random) -> None:
    text = bytearray(print_module(module).encode())
    for _ in range(chance.choice([1, 1, 2, 5])):
        at = chance.randrange(len(text) + 1)
        match chance.randrange(5):
            case 0:
                del text[at:]
            case 1:
                del text[at : at + chance.choice([1, 1, 3, 20])]
            case 2:
                text[at:at] = chance.choice(WORDS).encode()
            case 3:
                text[at:at] = bytes([chance.randrange(256)])
            case 4:
                text[at:at] = text[chance.randrange(len(text) + 1) :][:30]
    never_fails(bytes(text))


FILES = sorted((ROOT / "tests" / "filetests").rglob("*.cvm")) + sorted(
    p for p in (ROOT / "examples").rglob("*.cvm") if p.parts[-2] not in ("tests", "passes")
)


def test_damaged_files() -> None:
    chance = random.Random(0)
    for path in FILES:
        data = bytearray(path.read_bytes())
        at = chance.randrange(len(data))
        never_fails(bytes(data[:at]))
        data[at : at + chance.randrange(4)] = chance.choice(WORDS).encode()
        never_fails(bytes(data))


def test_sizes_that_one_call_makes_wrong_are_reported_there():
    text = """func @layer(%x: tensor<?N x ?K x i32>, %w: tensor<?M x ?K x i32>) -> tensor<?N x ?M x i32> {
  %y = cvm.relu %x
  return %y
}
func @main(%x: tensor<?N x 8xi32>, %w: tensor<4x8xi32>) {
  %y = call @layer(%x, %w)
  return %y
}
"""
    with pytest.raises(VerifyError) as e:
        parse(text)
    (diagnostic,) = e.value.diagnostics
    assert (diagnostic.code, diagnostic.line) == ("func.type", 3)
    (_, note) = diagnostic.notes
    assert (note.message, note.span.line) == ("called here", 6)


@pytest.mark.parametrize("last", [", -", ", ", ",", ", -1e", ", x"])
@pytest.mark.parametrize("element", ["i32", "f32"])
def test_the_last_number_of_a_long_constant(last: str, element: str) -> None:
    numbers = ", ".join(["12345"] * 15) + last
    program = (
        f"func @f() -> tensor<16x{element}> {{\n"
        f"  %c = const dense<[{numbers}]> : tensor<16x{element}>\n  return %c\n}}\n"
    )
    assert len(said(program)) == 1, said(program)
