"""Parsing: every form of the language, as the resulting program."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cvm.dialect.builtin import Call, Const, Elements
from cvm.dialect.ir.function import Function, Literal, Operation
from cvm.dialect.ir.program_printer import print_module
from cvm.dialect.spec.operator import OPERATORS
from cvm.dialect.support.diagnostics import VerifyError
from cvm.dialect.types.attributes import Symbol
from cvm.dialect.types.tensor_types import C64, F32, FieldType, TensorType
from cvm.parser import check, parse, read
from cvm.parser.decode import decode
from cvm.parser.lex import Scanner
from cvm.parser.recovery import Reader, scanner
from cvm.parser.syntax_tree import AttributeNode, FunctionNode, OperationNode, Token
from program_equality import same_program

ROOT = Path(__file__).parents[3]


def function(text: str) -> Function:
    return next(iter(parse(text).functions.values()))


def operations(*statements: str, arguments: str = "%x: tensor<2x3xi32>") -> list[Operation]:
    body = "\n".join(statements)
    return list(function(f"func @f({arguments}) {{\n{body}\nreturn\n}}").operations)


def attributes(text: str) -> dict[str, Any]:
    """The values of a dictionary of attributes, before any operator is asked."""
    source, _ = decode(f"func @f() {{ cvm.f {text} return }}", "<text>")
    (node,) = Reader(source).read().items
    assert isinstance(node, FunctionNode)
    operation = node.body[0]
    assert isinstance(operation, OperationNode)
    return {
        a.name.text: a.value.value for a in operation.attributes if isinstance(a, AttributeNode)
    }


# Programs


def test_the_empty_program() -> None:
    assert (
        parse("").functions
        == {}
        == parse("module {}").functions
        == parse(" // nothing\n").functions
    )


def test_functions_inside_a_module() -> None:
    inner = "func @a() { return } func @b(%x: tensor<i32>) -> tensor<i32> { return %x }"
    for text in (inner, f"module {{ {inner} }}", f"module @name {{\n{inner}\n}}\n// end"):
        assert list(parse(text).functions) == ["a", "b"]


def test_heads() -> None:
    f = function(
        "func @f.1(%x: tensor<2xi32> {range = [-1, 7], inplace}, %0: tensor<f32>) -> "
        "(tensor<f32>, tensor<2xi32>) { return %0, %x }"
    )
    assert f.name == "f.1" and [a.name for a in f.arguments] == ["x", "0"]
    assert (
        f.arguments[0].attributes == {"range": (-1, 7), "inplace": True}
        and not f.arguments[1].attributes
    )
    assert [str(t) for t in f.declared or ()] == ["tensor<f32>", "tensor<2xi32>"]
    assert function("func @f() { return }").declared is None
    assert function("func @f() -> () { return }").declared == ()
    assert (
        len(function("func @f(%x: tensor<f32>) -> tensor<f32> { return %x }").declared or ()) == 1
    )


def test_spans_place_every_part() -> None:
    text = (
        "func @main(%x: tensor<2x3xi32>) {\n"
        "  %y = cvm.sum %x {axes = [1]} : (tensor<2x3xi32>) -> tensor<2xi32>\n  return %y\n}"
    )
    (operation,) = function(text).operations
    shown = {name: (span.line, span.column, span.text) for name, span in operation.spans.items()}
    assert shown == {
        "op": (2, 8, "cvm.sum"),
        "x": (2, 16, "%x"),
        "axes": (2, 27, "[1]"),
        "types": (2, 55, "tensor<2xi32>"),
        "results": (2, 3, "%y"),
    }
    assert str(operation.span) == "<text>:2:8"


# Statements


def test_forms_of_an_operation() -> None:
    forms = [
        "%y = cvm.sum %x {axes = [1], keepdims = true}",
        "%y = cvm.sum %x {axes = [1], keepdims = true} : (tensor<2x3xi32>) -> tensor<2x1xi32>",
        '%y = "cvm.sum"(%x) {axes = [1], keepdims = true} : (tensor<2x3xi32>) -> tensor<2x1xi32>',
        '%y = "cvm.sum"(%x) {keepdims = true, axes = [1]}',
        "%y=cvm.sum%x{axes=[1],keepdims=true}",
        "%y = // a comment\n cvm.sum\n\n%x { // another\n axes = [ 1 ] , keepdims = true }",
    ]
    for text in forms:
        (operation,) = operations(text)
        assert isinstance(operation.operator, OPERATORS["cvm.sum"])
        assert dict((f.name, v) for f, v in operation.operator.attributes()) == {
            "axes": (1,),
            "keepdims": True,
            "exclude": False,
        }
        assert str(operation.results[0].type) == "tensor<2x1xi32>"


def test_operands_fill_the_fields_in_order() -> None:
    arguments = "%x: tensor<1x1x4x4xi32>, %w: tensor<1x1x2x2xi32>, %b: tensor<1xi32>"
    plain, full = operations(
        "%y = cvm.conv2d %x, %w", "%z = cvm.conv2d %x, %w, %b", arguments=arguments
    )
    assert [name for name, _ in plain.operator.operands()] == ["x", "w"]
    assert [name for name, _ in full.operator.operands()][:2] == ["x", "w"] and len(
        [*full.operator.operands()]
    ) == 3
    (many,) = operations("%y = cvm.concatenate %x, %x, %x {axis = 0}")
    assert (
        len(next(iter(many.operator.map(str).operands()))) and len([*many.operator.operands()]) == 3
    )


def test_several_results() -> None:
    (operation,) = operations(
        "%count, %boxes = cvm.get_valid_count %x {score_threshold = 10}",
        arguments="%x: tensor<1x4x6xi32>",
    )
    assert [str(r.type) for r in operation.results] == ["tensor<1xi32>", "tensor<1x4x6xi32>"]


def test_calls() -> None:
    module = parse(
        "func @g(%x: tensor<?N x i32>) { return %x, %x } func @f(%x: tensor<3xi32>) { %a, "
        "%b = call @g(%x)\n return %b }"
    )
    (call,) = module.functions["f"].operations
    assert isinstance(call.operator, Call) and call.operator.callee == Symbol("g")
    assert [str(r.type) for r in call.results] == ["tensor<3xi32>"] * 2


def test_a_statement_needs_no_line_of_its_own() -> None:
    f = function(
        "func @f(%x: tensor<i32>) { %y = cvm.relu %x %z = cvm.relu %y %u, %v = "
        "cvm.get_valid_count %w return %z }".replace("%u, %v = cvm.get_valid_count %w ", "")
    )
    assert len(f.operations) == 2


@pytest.mark.parametrize(
    ("operator", "literal", "type"),
    [
        ("cvm.broadcast_add", "3", "tensor<i32>"),
        ("cvm.broadcast_add", "-2147483648", "tensor<i32>"),
        ("dali.add", "3", "tensor<i32>"),
        ("dali.add", "1.5", "tensor<f32>"),
        ("dali.add", "true", "tensor<i1>"),
        ("dali.add", "nan", "tensor<f32>"),
        ("dali.add", "-inf", "tensor<f32>"),
        ("dali.add", "3 : i64", "tensor<i64>"),
        ("dali.add", "3 : f64", "tensor<f64>"),
        ("dali.add", "-1.5e-3 : f64", "tensor<f64>"),
        ("dali.add", "255 : ui8", "tensor<ui8>"),
    ],
)
def test_types_of_literals(operator: str, literal: str, type: str) -> None:
    (operation,) = operations(f"%y = {operator} %x, {literal}")
    value = [v for _, v in operation.operator.operands()][1]
    assert isinstance(value, Literal) and str(value.type) == type
    assert value.explicit == (":" in literal)


def test_literals_of_theano_and_cog() -> None:
    """A Theano literal has the smallest type that holds it; a Cog literal is a single point,
    complex if it has two parts.
    """
    for text, type in [
        ("1", "i8"),
        ("127", "i8"),
        ("128", "i16"),
        ("-129", "i16"),
        ("40000", "i32"),
        ("3000000000", "i64"),
        ("9223372036854775808", "ui64"),
        ("0.5", "f32"),
        ("0.1", "f64"),
        ("1e300", "f64"),
        ("nan", "f32"),
        ("true", "i1"),
    ]:
        (operation,) = operations(f'%y = theano.elemwise %x, {text} {{scalar_op = "eq"}}')
        assert str([v.type for _, v in operation.operator.operands()][1]) == f"tensor<{type}>", text
    for text, element in [("1", F32), ("0.1", F32), ("(0.5, -1.25)", C64), ("(-inf, 1)", C64)]:
        (operation,) = operations(f"%y = cog.add %x, {text}", arguments="%x: !cog.field<[2], f32>")
        assert [v.type for _, v in operation.operator.operands()][1] == FieldType(
            (), TensorType((), element)
        )


# Types


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("tensor<2x3xi32>", None),
        ("tensor<f32>", None),
        ("tensor<0xf16>", None),
        ("tensor<2x?x3xui64>", None),
        ("tensor<complex<f32>>", None),
        ("tensor<3xcomplex<f64>>", None),
        ("tensor<?N x ?C x f32>", None),
        ("tensor<?N x 2 x i1>", None),
        ("tensor < 2 x 3 x i32 >", "tensor<2x3xi32>"),
        ("tensor<?Nx?Cxf32>", "tensor<?N x ?C x f32>"),
        ("tensor<\n2\nx\ni8\n>", "tensor<2xi8>"),
        ("tensor<? N x i8>", "tensor<?N x i8>"),
        ("tensor<2x complex < f32 > >", "tensor<2xcomplex<f32>>"),
        ("!cog.field<[], f32>", None),
        ("!cog.field<[2, 3], tensor<3xf32>>", None),
        ("!cog.field<[4], tensor<2xcomplex<f32>>>", None),
        ("!cog.field< [ 2,3 ] , complex<f32> >", "!cog.field<[2, 3], complex<f32>>"),
        ("!cog.field<[1, 2, 3], tensor<2x2xf32>>", None),
    ],
)
def test_types(written: str, printed: str | None) -> None:
    f = function(f"func @f(%x: {written}) {{ return %x }}")
    assert str(f.arguments[0].type) == (printed or written)


def test_named_sizes_are_equal_and_others_are_not() -> None:
    parse(
        "func @f(%x: tensor<?N x i32>, %y: tensor<?N x i32>) { %z = cvm.elemwise_add %x, "
        "%y\n return %z }"
    )
    f = function("func @f(%x: tensor<?x?xi32>, %y: tensor<?xi32>) { return }")
    sizes = [d for a in f.arguments for d in a.known_type.array_shape]
    assert len({repr(d) for d in sizes}) == 3


# Attributes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-1", -1),
        ("0", 0),
        ("18446744073709551615", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        ("1.5", 1.5),
        ("-1.5e3", -1500.0),
        ("1e-3", 0.001),
        ("2.", 2.0),
        ("1E+2", 100.0),
        ("-0.0", -0.0),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("true", True),
        ("false", False),
        ("none", None),
        ('""', ""),
        ('"a b"', "a b"),
        (r'"\"\\\n\t\r\u{1F600}é"', '"\\\n\t\r\N{GRINNING FACE}é'),
        ('"// no comment"', "// no comment"),
        ("[]", ()),
        ("[1, -1]", (1, -1)),
        ('[[1], [], [2.5, "x", none]]', ((1,), (), (2.5, "x", None))),
        ("{}", {}),
        ("{0 = 1}", {0: 1}),
        ('{0 = 1, a = [2], "7" = 3, "b c" = {d = 4}}', {0: 1, "a": (2,), 7: 3, "b c": {"d": 4}}),
        ("1 : i64", 1),
        ("-2.5 : f32", -2.5),
        ("0xFFF0000000000000 : f64", -math.inf),
        ("@f", Symbol("f")),
        ("[@f, @g.h]", (Symbol("f"), Symbol("g.h"))),
    ],
)
def test_attribute_values(text: str, value: object) -> None:
    found = attributes(f"{{a = {text}}}")["a"]
    assert found == value and type(found) is type(value) and repr(found) == repr(value)


def test_attributes_that_are_types_units_and_constants() -> None:
    found = attributes(
        "{a = f64, b = complex<f32>, c = tensor<2x?N x i8>, d, e = !cog.field<[2], f32>, f "
        "= nan, func = 1, file = 2}"
    )
    assert [str(found[k]) for k in "abce"] == [
        "f64",
        "complex<f32>",
        "tensor<2 x ?N x i8>",
        "!cog.field<[2], f32>",
    ]
    assert (
        found["d"] is True and math.isnan(found["f"]) and found["func"] == 1 and found["file"] == 2
    )
    module, _ = check(
        'graph @g { %n = cog.field "n" init dense<[1.0, 2.0]> : !cog.field<[2], f32> }'
    )
    (field,) = module.functions["g"].operations
    (initial,) = [v for f, v in field.operator.attributes() if isinstance(v, Elements)]
    assert initial.data.array.tolist() == [1.0, 2.0]


# Constants


def constant(text: str) -> np.ndarray:
    (operation,) = operations(f"%c = const {text}")
    assert isinstance(operation.operator, Const)
    return operation.operator.data.array


@pytest.mark.parametrize(
    ("text", "value", "dtype"),
    [
        ("dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>", [[1, 2], [3, 4]], "int32"),
        ("dense<-7> : tensor<2x1xi8>", [[-7], [-7]], "int8"),
        ("dense<7> : tensor<ui16>", 7, "uint16"),
        ("dense<[true, false, 1, 0]> : tensor<4xi1>", [True, False, True, False], "bool"),
        (
            "dense<[1, 2.5, -0.0, inf, -inf]> : tensor<5xf32>",
            [1, 2.5, -0.0, np.inf, -np.inf],
            "float32",
        ),
        (
            "dense<[(0.5, -1.25), (nan, 0), 3]> : tensor<3xcomplex<f32>>",
            [0.5 - 1.25j, complex(np.nan, 0), 3],
            "complex64",
        ),
        ("dense<(-0.0, -2.0)> : tensor<complex<f64>>", complex(-0.0, -2.0), "complex128"),
        ("dense<[]> : tensor<0xi32>", [], "int32"),
        ("dense<[[], []]> : tensor<2x0xf64>", [[], []], "float64"),
        ("dense<> : tensor<3x0xf64>", np.empty((3, 0)), "float64"),
        ("dense<[ // first\n 1, // second\n 2]> : tensor<2xi64>", [1, 2], "int64"),
        ("dense<[0x7F800000, 0xBFC00000]> : tensor<2xf32>", [np.inf, -1.5], "float32"),
        ("dense<1.5> : !cog.field<[2], tensor<3xf32>>", np.full((2, 3), 1.5), "float32"),
    ],
)
def test_constants(text: str, value: object, dtype: str) -> None:
    found, wanted = constant(text), np.array(value, dtype)
    assert (
        found.dtype == wanted.dtype
        and found.shape == wanted.shape
        and found.tobytes() == wanted.tobytes()
    )


@pytest.mark.parametrize(
    "name", ["i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64", "f16", "f32", "f64"]
)
def test_long_constants_are_read_like_short_ones(name: str) -> None:
    dtype = np.dtype(
        name.replace("ui", "uint")
        if "u" in name
        else name.replace("i", "int").replace("f", "float")
    )
    random = np.random.default_rng(0)
    if dtype.kind == "f":
        values = (random.standard_normal((6, 10)) * 10.0 ** random.integers(-4, 4, (6, 10))).astype(
            dtype
        )
    else:
        values = random.integers(
            np.iinfo(dtype).min, np.iinfo(dtype).max, (6, 10), dtype, endpoint=True
        )
    text = ", ".join("[" + ", ".join(str(v) for v in row) + "]" for row in values)
    assert constant(f"dense<[{text}]> : tensor<6x10x{name}>").tobytes() == values.tobytes()


def test_files_of_constants(tmp_path: Path) -> None:
    array = np.array([[1, 2, 3], [4, 5, 6]], np.int16)
    np.savez(tmp_path / "a.npz", w=array)
    np.save(tmp_path / "a.npy", array)
    header = b'{"w": {"dtype": "I16", "shape": [2, 3], "data_offsets": [0, 12]}}'
    (tmp_path / "a.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + array.tobytes()
    )
    for reference in ('"a.npz", "w"', '"a.npz"', '"a.npy"', '"a.safetensors", "w"'):
        text = f"func @f() {{ %c = const file({reference}) : tensor<2x3xi32>\nreturn %c }}"
        (tmp_path / "p.cvm").write_text(text)
        for module in (parse(text, folder=tmp_path), read(tmp_path / "p.cvm")):
            (operation,) = module.functions["f"].operations
            assert isinstance(operation.operator, Const)
            assert operation.operator.data.array.dtype == np.int32
            assert np.array_equal(operation.operator.data.array, array)


# The generic form of functions


def test_a_module_in_the_generic_form() -> None:
    generic = """
        module {
          "func.func"() ({
          ^bb0(%x: tensor<?x2xi32>):
            %c = "const"() {value = dense<[1, 2]> : tensor<2xi32>} : () -> tensor<2xi32>
            %y = "cvm.broadcast_add"(%x, %c) : (tensor<?x2xi32>, tensor<2xi32>) -> tensor<?x2xi32>
            "func.return"(%y) : (tensor<?x2xi32>) -> ()
          }) {sym_name = "f", function_type = (tensor<?x2xi32>) -> tensor<?x2xi32>, arg_attrs = [{cvm.range = [-1, 1]}]} : () -> ()
        }
    """
    short = """
        func @f(%x: tensor<?x2xi32> {range = [-1, 1]}) {
          %c = const dense<[1, 2]> : tensor<2xi32>
          %y = cvm.broadcast_add %x, %c : (tensor<?x2xi32>, tensor<2xi32>) -> tensor<?x2xi32>
          return %y
        }
    """
    found = parse(generic)
    assert found.functions["f"].arguments[0].attributes == {"range": (-1, 1)}
    assert print_module(found, generic=True) == print_module(parse(short), generic=True)
    with pytest.raises(VerifyError):
        parse(
            generic.replace(
                "dense<[1, 2]> : tensor<2xi32>} : () -> tensor<2xi32>",
                "dense<[1, 2]> : tensor<2xi32>} : () -> tensor<3xi32>",
            )
        )


# Texts


def test_bytes_line_ends_and_tabs() -> None:
    text = "func @f(%x: tensor<i32>) {\r\n\t%y = cvm.relu %x // é\r\n\treturn %y\r\n}"
    assert same_program(parse(text), parse(text.encode()))
    assert same_program(parse(text), parse(text.replace("\r\n", "\n").replace("\t", "\f")))


def test_every_character_belongs_to_a_token() -> None:
    for path in sorted(
        p for p in (ROOT / "examples").rglob("*.cvm") if p.parts[-2] not in ("tests", "passes")
    ):
        text = path.read_text("utf-8")
        assert "".join(t.text for t in scanner().tokens(text, keep=True)) == text
    junk = "".join(map(chr, range(0x250)))
    tokens: list[Token] = [*scanner().tokens(junk, keep=True)]
    assert "".join(t.text for t in tokens) == junk and isinstance(scanner(), Scanner)


def test_importing_cvm_imports_no_parser() -> None:
    code = "import sys, cvm; assert 'lark' not in sys.modules and 'cvm.parser' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# Time


def long_program(count: int) -> str:
    kinds = (
        "cvm.relu %{0}",
        "cvm.clip %{0} {{a_min = -5, a_max = 7}}",
        "cvm.broadcast_add %{0}, 3",
        "cvm.elemwise_add %{0}, %0",
    )
    lines = [f"  %{n + 1} = " + kinds[n % 4].format(n) for n in range(count)]
    return "\n".join(
        [
            "func @f(%0: tensor<?N x 8xi32>) -> tensor<?N x 8xi32> {",
            *lines,
            f"  return %{count}",
            "}",
        ]
    )


def cost(text: str) -> float:
    start = time.process_time()
    parse(text)
    return time.process_time() - start


def test_time_is_linear() -> None:
    """Four times the operations in about four times the time; the bound is loose, for machines that
    do other things too.
    """
    short, long = long_program(1_000), long_program(4_000)
    cost(short)
    assert min(cost(long) for _ in range(3)) < 8 * min(cost(short) for _ in range(3))


def test_time_of_a_long_constant() -> None:
    """A constant of a megabyte is read in a few passes, not number by number."""
    numbers = ", ".join(["-123"] * 200_000)
    text = f"func @f() {{ %c = const dense<[{numbers}]> : tensor<200000xi32>\nreturn }}"
    cost("")
    assert min(cost(text) for _ in range(3)) < 1.0
