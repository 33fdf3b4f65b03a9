"""A printed program parses back to the same program; the formatter keeps what it does not lay
out.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from cvm.dialect.builtin import Const
from cvm.dialect.ir.function import Function, Operation, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.program_printer import WIDTH, print_function, print_module
from cvm.dialect.spec.operator import OPERATORS
from cvm.dialect.support.diagnostics import ParseError
from cvm.dialect.types.tensor_types import I32, TensorType
from cvm.parser import parse, read
from cvm.parser.format import format_text
from hypothesis import given, settings
from operator_checks import program
from program_equality import same_program
from random_programs import modules
from samples import SAMPLES

import cvm

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(
    p for p in (ROOT / "examples").rglob("*.cvm") if p.parts[-2] not in ("tests", "passes")
)


@settings(deadline=None)
@given(modules())
def test_random_programs_parse_back(module: Module) -> None:
    text = print_module(module)
    again = parse(text)
    assert same_program(module, again), text
    assert print_module(again) == text


@pytest.mark.parametrize("path", EXAMPLES, ids=[p.stem for p in EXAMPLES])
def test_examples_parse_back(path: Path) -> None:
    module = read(path)
    text = print_module(module)
    assert same_program(module, parse(text, folder=path.parent))
    generic = print_module(module, generic=True)
    assert print_module(parse(generic), generic=True) == generic
    assert same_program(module, parse(format_text(path.read_bytes()), folder=path.parent))


@pytest.mark.parametrize("dialect", ["cvm", "dali", "theano", "cog"])
def test_conformance_programs_parse_back(dialect: str) -> None:
    lines = (ROOT / "tests" / "conformance" / f"{dialect}.jsonl").read_text("utf-8").splitlines()
    cases = [json.loads(line) for line in lines]
    for case in [c for c in cases if c["valid"]][::41]:
        module = parse(case["program"])
        text = print_module(module)
        assert same_program(module, parse(text)), text
        generic = print_module(module, generic=True)
        assert print_module(parse(generic), generic=True) == generic, generic
        assert format_text(format_text(text)) == format_text(text)


def test_a_head_that_fits_a_line_stands_in_one() -> None:
    for n in range(30, 60):
        text = f"func @{'f' * n}(%x: tensor<3xi32>, %y: tensor<3xi32>) -> tensor<3xi32> {{"
        found = print_module(parse(f"{text}\n  return %x\n}}\n")).splitlines()
        assert (found[0] == text) == (len(text) <= WIDTH)
        assert len(text) <= WIDTH or [line.strip() for line in found[:3]] == [
            f"func @{'f' * n}(%x: tensor<3xi32>,",
            "%y: tensor<3xi32>)",
            "-> tensor<3xi32> {",
        ]


def test_graphs_of_the_generic_form_are_graphs() -> None:
    module = parse(GRAPHS)
    again = parse(print_module(module, generic=True))
    assert print_module(parse(print_module(again))) == print_module(again)
    for name in module.functions:
        one, other = cvm.compile(module, name), cvm.compile(again, name)
        for n in (0, 1, 2):
            one.step(n)
            other.step(n)
            assert [one.read(r).tolist() for r in one.names] == [
                other.read(r).tolist() for r in other.names
            ]


GRAPHS = """
graph @counter {
  %n = cog.field "n" init dense<2.75> : !cog.field<[], f32>
  %next = cog.add %n, 1
  cog.feedback %n, %next
  cog.probe "the next" %next
}
graph @vectors {
  %x = cog.sensor "x" : !cog.field<[2], tensor<3xf32>>
  %v = cog.field "v" init dense<[[1.0, 2.0, inf], [4.0, 5.0, 6.0]]> : !cog.field<[2], tensor<3xf32>>
  %w = cog.field "w" init dense<0.5> : !cog.field<[2], tensor<3xf32>>
  %z = cog.field "z" init dense<(1.0, -2.0)> : !cog.field<[2], complex<f32>>
  %y = cog.add %v, %x
  %u = cog.mul %y, %w
  cog.feedback %v, %u
  cog.actuator "out" %u init dense<7.0> : !cog.field<[2], tensor<3xf32>>
  cog.actuator "later" %z
}
"""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ('"cog.graph"', '"cog.grid"'),
            'a function in the generic form is "func.func", and a graph "cog.graph", got "cog.grid"',
        ),
        (("^bb0:", "^bb0(%x: tensor<2xf32>):"), "a graph has no arguments, got 1"),
        (
            ('sym_name = "counter"', 'sym_name = "counter", arg_attrs = []'),
            "has the attribute sym_name, got arg_attrs",
        ),
        (
            ('sym_name = "counter"', "sym_name = 3"),
            'a graph in the generic form has its name as sym_name = "name"',
        ),
    ],
)
def test_graphs_of_the_generic_form_that_are_none(change: tuple[str, str], said: str) -> None:
    text = print_module(parse(GRAPHS), generic=True)
    with pytest.raises(ParseError) as caught:
        parse(text.replace(*change, 1))
    assert said in caught.value.diagnostics[0].message


def test_same_program_sees_differences() -> None:
    program = """
        func @f(%x: tensor<?N x 3xi32>) {
          %c = const dense<[1, 2, 3]> : tensor<3xi32>
          %y = cvm.broadcast_add %x, %c
          %z = cvm.clip %y {a_min = -1, a_max = 5}
          %u = cvm.broadcast_add %z, 7
          return %u, %z
        }
    """
    module = parse(program)
    assert same_program(
        module, parse(program.replace("%y", "%renamed").replace("{a_min", "\n {a_min"))
    )
    for old, new in [
        ("@f", "@g"),
        ("?N", "?M"),
        ("?N", "4"),
        ("3xi32>)", "?xi32>)"),
        ("1, 2, 3", "1, 2, 4"),
        ("%x, %c", "%c, %x"),
        ("-1", "-2"),
        ("%z, 7", "%z, 8"),
        ("return %u, %z", "return %z, %u"),
        ("return %u, %z", "return %u"),
        ("cvm.broadcast_add %z", "cvm.broadcast_sub %z"),
        ("[1, 2, 3]", "1"),
        ("i32>)", "i32> {range = [0, 1]})"),
    ]:
        assert old in program
        assert not same_program(module, parse(program.replace(old, new))), f"{old} became {new}"


def test_values_of_one_name_are_told_apart() -> None:
    x = Value("x", TensorType((2,), I32))
    y, z, odd = Value("x", x.type), Value("x", x.type), Value("a b", x.type)
    operations = tuple(
        Operation(OPERATORS["cvm.relu"](a), (b,)) for a, b in [(x, y), (y, z), (z, odd)]
    )
    module = Module({"f": Function("f", (x,), operations, (y, z, odd))})
    text = print_module(module)
    assert (
        "%x_1 = cvm.relu %x\n" in text
        and "%x_2 = cvm.relu %x_1\n" in text
        and "%a_b = cvm.relu %x_2\n" in text
    )
    assert same_program(parse(text), module)


def test_many_values_of_one_name_are_printed_quickly() -> None:
    values = [Value("x", TensorType((), I32)) for _ in range(20_000)]
    operations = tuple(Operation(OPERATORS["cvm.relu"](a), (b,)) for a, b in pairwise(values))
    assert "%x_19999 = cvm.relu %x_19998" in print_function(
        Function("f", (values[0],), operations, (values[-1],))
    )


@pytest.mark.parametrize(
    "written",
    [
        "dense<[[1, -2], [3, 4]]> : tensor<2x2xi32>",
        "dense<7> : tensor<8x8xi32>",
        "dense<7> : tensor<i64>",
        "dense<> : tensor<0x3xf32>",
        "dense<[true, false]> : tensor<2xi1>",
        "dense<[0.1, -0.0, nan, inf, -inf, 1.0e+30, 1.6777216e+07]> : tensor<7xf32>",
        "dense<[0.1, 1.0e-300, 5.0e-324, 1.7976931348623157e+308]> : tensor<4xf64>",
        "dense<[0.1, 6.55e+04]> : tensor<2xf16>",
        "dense<[18446744073709551615, 9223372036854775808]> : tensor<2xui64>",
        "dense<[-9223372036854775808, 9223372036854775807]> : tensor<2xi64>",
        "dense<[(0.5, -1.25), (nan, -inf)]> : tensor<2xcomplex<f32>>",
        "dense<(0.1, 2.0)> : tensor<3xcomplex<f64>>",
        "dense<[[[[[1, 2]]]]]> : tensor<1x1x1x1x2xui8>",
    ],
)
def test_constants_are_printed_as_written(written: str) -> None:
    text = (
        f"func @f() -> {written.partition(' : ')[2]} {{\n  %c = const {written}\n  return %c\n}}\n"
    )
    assert print_module(parse(text)) == text


def test_a_huge_splat_is_not_filled() -> None:
    text = (
        "func @f() -> tensor<1000000x1000000xf32> {\n"
        "  %c = const dense<1.5> : tensor<1000000x1000000xf32>\n  return %c\n}\n"
    )
    module = parse(text)
    (operation,) = module.functions["f"].operations
    assert isinstance(operation.operator, Const) and operation.operator.data.array.strides == (0, 0)
    assert print_module(module) == text


def test_a_file_constant_keeps_its_reference(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", w=np.arange(6, dtype=np.int8).reshape(2, 3))
    text = (
        'func @f() -> tensor<2x3xi32> {\n  %c = const file("a.npz", "w") : tensor<2x3xi32>\n'
        "  return %c\n}\n"
    )
    module = parse(text, folder=tmp_path)
    assert print_module(module) == text
    (operation,) = module.functions["f"].operations
    assert isinstance(operation.operator, Const) and operation.operator.data.array.tolist() == [
        [0, 1, 2],
        [3, 4, 5],
    ]


# MLIR's generic form


def test_generic_form() -> None:
    program = """
        func @f(%x: tensor<?N x 2xi32> {range = [-1, 1]}) -> tensor<?N x 2xi32> {
          %c = const dense<[1, 2]> : tensor<2xi32>
          %y = cvm.broadcast_add %x, %c
          %z = cvm.broadcast_add %y, -3
          return %z
        }
        func @main(%x: tensor<4x2xi32>) {
          %y = call @f(%x)
          return %y, %x
        }
    """
    assert (
        print_module(parse(program), generic=True)
        == """\
module {
  "func.func"() ({
  ^bb0(%x: tensor<?x2xi32>):
    %c = "cvm.builtin.const"() {value = dense<[1, 2]> : tensor<2xi32>} : () -> tensor<2xi32>
    %y = "cvm.broadcast_add"(%x, %c) : (tensor<?x2xi32>, tensor<2xi32>) -> tensor<?x2xi32>
    %literal = "cvm.builtin.const"() {value = dense<-3> : tensor<i32>} : () -> tensor<i32>
    %z = "cvm.broadcast_add"(%y, %literal) : (tensor<?x2xi32>, tensor<i32>) -> tensor<?x2xi32>
    "func.return"(%z) : (tensor<?x2xi32>) -> ()
  }) {sym_name = "f", function_type = (tensor<?x2xi32>) -> tensor<?x2xi32>, arg_attrs = [{cvm.range = [-1, 1]}]} : () -> ()
  "func.func"() ({
  ^bb0(%x: tensor<4x2xi32>):
    %y = "cvm.builtin.call"(%x) {callee = @f} : (tensor<4x2xi32>) -> tensor<4x2xi32>
    "func.return"(%y, %x) : (tensor<4x2xi32>, tensor<4x2xi32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4x2xi32>) -> (tensor<4x2xi32>, tensor<4x2xi32>)} : () -> ()
}
"""
    )


@settings(deadline=None)
@given(modules())
def test_the_generic_form_parses_back(module: Module) -> None:
    """Literals have become constants, and sizes have lost their names; all else is the same."""
    text = print_module(module, generic=True)
    assert print_module(parse(text), generic=True) == text


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_each_operator_parses_back(name: str) -> None:
    for seed in range(3):
        module, _ = program(SAMPLES[name](np.random.default_rng(seed)), unknown_sizes=False)
        assert same_program(module, parse(print_module(module)))
        text = print_module(module, generic=True)
        assert print_module(parse(text), generic=True) == text


# The formatter


def test_formatter_lays_out_everything() -> None:
    text = """
// top


module {
// about f
func @f(%a:tensor< 2 x 3xi32>{range=[ -1,2 ],inplace} , %b : tensor<?N x 3xi32>,
 // on b
   %c: tensor<f32>)->tensor<2x3xi32>{
 %c = const dense<[[1,2,3],  // first
      // second
  [4,5,-6]]>:tensor<2x3xi32> // end
 %long_name = cvm.relu   %c // aligned



 %d , %e = "cvm.get_valid_count"( %c,(0.5,-1.25), 3:i64,-inf ){a={0=1},b="x // y",
    c=[1,
2]}:(tensor<2xi32>)->(tensor<2xi32>,
  tensor<2xi32>)


 // last
 return %d,
   %e // done
   // really
}
func @g(){return}
graph @h { cog.probe "next" %n
 %n = cog.field "n" init dense<0.0>:!cog.field<[ 2,3],tensor<3 x f32>>
}
}
// bottom
"""
    assert (
        format_text(text)
        == """\
// top

module {
  // about f
  func @f(%a: tensor<2x3xi32> {range = [-1, 2], inplace}, %b: tensor<?N x 3 x i32>,
          // on b
          %c: tensor<f32>) -> tensor<2x3xi32> {
    %c = const dense<[[1, 2, 3],  // first
                      // second
                      [4, 5, -6]]> : tensor<2x3xi32>  // end
    %long_name = cvm.relu %c                          // aligned

    %d, %e = "cvm.get_valid_count"(%c, (0.5, -1.25), 3 : i64, -inf) {a = {0 = 1}, b = "x // y",
                                                                     c = [1,
                                                                          2]} : (tensor<2xi32>) -> (tensor<2xi32>,
                                                                                                    tensor<2xi32>)

    // last
    return %d,
        %e  // done
    // really
  }

  func @g() {
    return
  }

  graph @h {
    cog.probe "next" %n
    %n = cog.field "n" init dense<0.0> : !cog.field<[2, 3], tensor<3xf32>>
  }
}
// bottom
"""
    )


@settings(deadline=None)
@given(modules())
def test_formatting_a_printed_program_changes_only_long_lines(module: Module) -> None:
    text = print_module(module)
    once = format_text(text)
    assert once.split() == text.split()
    assert format_text(once) == once


def test_formatter_keeps_every_word_and_comment() -> None:
    for path in sorted((ROOT / "tests" / "filetests").rglob("*.cvm")):
        try:
            once = format_text(path.read_bytes())
        except ParseError:
            continue
        assert format_text(once) == once
        assert re.sub(r"\s", "", once) == re.sub(r"\s", "", path.read_text("utf-8"))


def test_formatter_rejects_what_is_not_the_language() -> None:
    with pytest.raises(ParseError) as caught:
        format_text("func @f() { %y = cvm.relu(%x) }\n", "a.cvm")
    assert [d.code for d in caught.value.diagnostics] == ["parse.operand"]


def test_formatter_handles_empty_texts() -> None:
    assert format_text("") == ""
    assert format_text("\n\n  // only a comment") == "// only a comment\n"
