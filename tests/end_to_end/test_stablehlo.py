"""Modules of StableHLO: their text, each kind of operator against NumPy, and refusals."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvm

PAGE = Path(__file__).parents[2] / "docs" / "jax.md"
X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


def run(arguments: str, body: str, *given: Any, more: str = "") -> Any:
    module = cvm.from_stablehlo(
        f"module {{\nfunc.func @main({arguments}) {{\n{body}\n}}\n{more}\n}}"
    )
    return cvm.compile(module, target="reference")(*given)


def test_the_program_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    exec(block, {})
    assert capsys.readouterr().out == "[3.4641016 3.4641016]\n"


def test_the_generic_form_is_the_pretty_one() -> None:
    pretty = """func.func @main(%arg0: tensor<3x4xf32> loc("x")) -> (tensor<4xf32> {jax.result_info = "y"}) {
      %cst = stablehlo.constant dense<0xFF800000> : tensor<f32> loc(#loc1)
      %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [0]
        : (tensor<3x4xf32>, tensor<f32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    #loc1 = loc("a.py":1:2)"""
    generic = """"builtin.module"() ({
      "func.func"() <{function_type = (tensor<3x4xf32>) -> tensor<4xf32>, sym_name = "main"}> ({
      ^bb0(%arg0: tensor<3x4xf32>):
        %cst = "stablehlo.constant"() <{value = dense<0xFF800000> : tensor<f32>}> : () -> tensor<f32>
        %0 = "stablehlo.reduce"(%arg0, %cst) <{dimensions = array<i64: 0>}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %1 = "stablehlo.maximum"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
          "stablehlo.return"(%1) : (tensor<f32>) -> ()
        }) : (tensor<3x4xf32>, tensor<f32>) -> tensor<4xf32>
        "func.return"(%0) : (tensor<4xf32>) -> ()
      }) : () -> ()
    }) : () -> ()"""
    one, other = (cvm.from_stablehlo(text) for text in (pretty, generic))
    assert str(one) == str(other)
    assert cvm.compile(one)(X).tolist() == X.max(0).tolist()


def test_a_reduction_of_several_values_and_a_loop() -> None:
    body = """
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %places = stablehlo.iota dim = 1 : tensor<3x4xi32>
    %top:2 = stablehlo.reduce(%x init: %low), (%places init: %zero) across dimensions = [1]
      : (tensor<3x4xf32>, tensor<3x4xi32>, tensor<f32>, tensor<i32>) -> (tensor<3xf32>, tensor<3xi32>)
     reducer(%a: tensor<f32>, %b: tensor<f32>) (%i: tensor<i32>, %j: tensor<i32>) {
      %more = stablehlo.compare GE, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %value = stablehlo.select %more, %a, %b : tensor<i1>, tensor<f32>
      %place = stablehlo.select %more, %i, %j : tensor<i1>, tensor<i32>
      stablehlo.return %value, %place : tensor<f32>, tensor<i32>
    }
    %sum:2 = stablehlo.while(%k = %zero, %v = %x) : tensor<i32>, tensor<3x4xf32>
    cond {
      %ten = stablehlo.constant dense<10> : tensor<i32>
      %go = stablehlo.compare LT, %k, %ten, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %next = func.call @more(%v) : (tensor<3x4xf32>) -> tensor<3x4xf32>
      %l = stablehlo.add %k, %one : tensor<i32>
      stablehlo.return %l, %next : tensor<i32>, tensor<3x4xf32>
    }
    return %top#1, %sum#1 : tensor<3xi32>, tensor<3x4xf32>"""
    more = """func.func private @more(%v: tensor<3x4xf32>) -> tensor<3x4xf32> {
      %0 = stablehlo.add %v, %v : tensor<3x4xf32>
      return %0 : tensor<3x4xf32>
    }"""
    text = f"module {{ func.func @main(%x: tensor<3x4xf32>) {{ {body} }} {more} }}"
    module = cvm.from_stablehlo(text)
    assert "builtin.scan" in str(module) and "builtin.while" not in str(module)
    values = X * [[1, -1, 1, -1]]
    places, doubled = cvm.compile(module)(values.astype(np.float32))
    assert places.tolist() == values.argmax(1).tolist()
    assert doubled.tolist() == (values * 1024).tolist()


GATHER = """
    %y = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
      collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
      slice_sizes = array<i64: 1, 4>}> : (tensor<3x4xf32>, tensor<2x1xi32>) -> tensor<2x4xf32>"""


def test_places_outside_are_clamped_when_read_and_left_out_when_written() -> None:
    body = (
        GATHER
        + """
    %u = stablehlo.constant dense<1.0> : tensor<2x4xf32>
    %z = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
      update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
      index_vector_dim = 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<3x4xf32>, tensor<2x1xi32>, tensor<2x4xf32>) -> tensor<3x4xf32>
    return %y, %z : tensor<2x4xf32>, tensor<3x4xf32>"""
    )
    places = np.array([[1], [7]], np.int32)
    y, z = run("%x: tensor<3x4xf32>, %i: tensor<2x1xi32>", body, X, places)
    assert y.tolist() == X[[1, 2]].tolist()
    assert z.tolist() == (X + np.array([[0], [1], [0]])).tolist()


def test_a_sort_by_a_key_and_by_two() -> None:
    def sorting(comparison: str) -> str:
        return f"""
        %s:2 = "stablehlo.sort"(%k, %v) <{{dimension = 0 : i64, is_stable = true}}> ({{
        ^bb0(%a: tensor<i32>, %b: tensor<i32>, %c: tensor<i32>, %d: tensor<i32>):
          {comparison}
        }}) : (tensor<6xi32>, tensor<6xi32>) -> (tensor<6xi32>, tensor<6xi32>)
        return %s#0, %s#1 : tensor<6xi32>, tensor<6xi32>"""

    keys, values = np.array([[2, 1, 2, 0, 1, 2], [3, 5, 1, 0, 4, 2]], np.int32)
    scalars = ": (tensor<i32>, tensor<i32>) -> tensor<i1>"
    arguments = "%k: tensor<6xi32>, %v: tensor<6xi32>"
    one = f"%0 = stablehlo.compare GT, %a, %b, SIGNED {scalars} stablehlo.return %0 : tensor<i1>"
    order = np.argsort(-keys, kind="stable")
    found = run(arguments, sorting(one), keys, values)
    assert [y.tolist() for y in found] == [keys[order].tolist(), values[order].tolist()]
    two = f"""%0 = stablehlo.compare LT, %a, %b {scalars} %1 = stablehlo.compare EQ, %a, %b {scalars}
      %2 = stablehlo.compare LT, %c, %d {scalars} %3 = stablehlo.and %1, %2 : tensor<i1>
      %4 = stablehlo.or %0, %3 : tensor<i1> stablehlo.return %4 : tensor<i1>"""
    order = np.lexsort((values, keys))
    found = run(arguments, sorting(two), keys, values)
    assert [y.tolist() for y in found] == [keys[order].tolist(), values[order].tolist()]


def test_a_convolution_between_spread_elements() -> None:
    body = """
    %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
      window = {stride = [2], pad = [[1, -1]], lhs_dilate = [3], rhs_dilate = [2], reverse = [true]}
      {batch_group_count = 1 : i64, feature_group_count = 2 : i64}
      : (tensor<1x5x2xf64>, tensor<2x1x2xf64>) -> tensor<1x6x2xf64>
    return %y : tensor<1x6x2xf64>"""
    x, w = np.arange(10.0).reshape(1, 5, 2) + 1, np.array([[[2.0, 3]], [[5, 7]]])
    wide = np.zeros((14, 2))
    wide[1::3] = x[0]
    wide = wide[:13]
    places = range(0, 11, 2)
    expected = [wide[p] * w[1, 0] + wide[p + 2] * w[0, 0] for p in places]
    found = run("%x: tensor<1x5x2xf64>, %w: tensor<2x1x2xf64>", body, x, w)
    assert found[0].tolist() == np.array(expected).tolist()


def test_integers_by_zero_and_long_shifts() -> None:
    body = """
    %q = stablehlo.divide %a, %b : tensor<4xi32>
    %r = stablehlo.remainder %a, %b : tensor<4xi32>
    %s = stablehlo.shift_right_arithmetic %a, %n : tensor<4xi32>
    %t = stablehlo.shift_right_logical %a, %n : tensor<4xi32>
    return %q, %r, %s, %t : tensor<4xi32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>"""
    a, b, n = np.array([[7, -7, -7, -(2**31)], [0, 2, 0, -1], [1, 40, -1, 31]], np.int32)
    arguments = ", ".join(f"%{name}: tensor<4xi32>" for name in "abn")
    assert [y.tolist() for y in run(arguments, body, a, b, n)] == [
        [-1, -3, -1, -(2**31)],
        [7, -1, -7, 0],
        [3, -1, -1, -1],
        [3, 0, 0, 1],
    ]


@pytest.mark.parametrize(
    ("algorithm", "bits"),
    [
        ("THREE_FRY", [3491445528, 127327539, 2447815779]),
        ("PHILOX", [3743192318, 359737254, 4242654944]),
    ],
)
def test_random_bits_are_those_of_jaxlib(algorithm: str, bits: list[int]) -> None:
    """Numbers and the counter as jaxlib 0.10.2 gives them on its CPU."""
    body = f"""
    %s, %y = stablehlo.rng_bit_generator %x, algorithm = {algorithm}
      : (tensor<2xui64>) -> (tensor<2xui64>, tensor<3xui32>)
    return %s, %y : tensor<2xui64>, tensor<3xui32>"""
    state = np.array([5 + (6 << 32), 7 + (8 << 32)], np.uint64)
    after, found = run("%x: tensor<2xui64>", body, state)
    steps = 2 if algorithm == "THREE_FRY" else 1
    assert (after - state).tolist() == [0, steps] and found.tolist() == bits


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        (
            '%y = "stablehlo.reverse"(%x) {dimensions = array<i64: 2>} : (tensor<3x4xf32>) -> tensor<3x4xf32>',
            "stablehlo.reverse.C2: expected dimensions in [0, 2), each once, got [2]",
        ),
        (
            "%y = stablehlo.custom_call @mine(%x) : (tensor<3x4xf32>) -> tensor<3x4xf32>",
            "nothing is known of @mine",
        ),
        ("%y = stablehlo.after_all : !stablehlo.token", "it needs more than one device"),
        ("%y = stablehlo.mystery %x : tensor<3x4xf32>", "mystery: it has no rule"),
        ("%y = stablehlo.add %x, %z : tensor<3x4xf32>", "%z is nowhere defined"),
        ("%y = stablehlo.abs %x : tensor<4x3xf32>", "the module says tensor<4x3xf32>"),
        ("%y = stablehlo.iota dim = 0 : tensor<3xf8E4M3FN>", "tensor<3xf8E4M3FN> is not supported"),
        ("%y = stablehlo.constant dense<[1, 2]> : tensor<3xi32>", "expected the elements"),
        ("%y = stablehlo.add %x, : }", "expected StableHLO in MLIR's text"),
        (
            "%y = stablehlo.while(%a = %x) : tensor<3x4xf32>, tensor<3x4xf32> "
            "cond { return %x : tensor<3x4xf32> } do { return %x : tensor<3x4xf32> }",
            "a loop of 1 values and 2 types",
        ),
        ("return ?", "? is no word of StableHLO"),
        ("return [%x] : tensor<3x4xf32>", "expected a return of values, each with its type"),
        ("%y = stablehlo.add %x, %x 3 : tensor<3x4xf32>", "expected an operand or an attribute"),
        ("%y = stablehlo.add %x, ?, %x : tensor<3x4xf32>", "? is no word of StableHLO"),
    ],
)
def test_refusals_name_the_operator_and_the_line(operation: str, said: str) -> None:
    text = (
        f"func.func @main(%x: tensor<3x4xf32>) {{\n  {operation}\n  return %y : tensor<3x4xf32>\n}}"
    )
    with pytest.raises(cvm.ParseError) as raised:
        cvm.from_stablehlo(text)
    assert said in str(raised.value) and ":2:" in str(raised.value)


def test_text_is_known_by_its_contents_and_bytecode_refused(tmp_path: Path) -> None:
    text = "func.func @main(%x: tensor<3xf32>) { return %x : tensor<3xf32> } // stablehlo.add"
    assert cvm.from_mlir(text.encode()).functions["main"].results
    file = tmp_path / "f.mlir"
    file.write_bytes(b"ML\xefR\x0dStableHLO_v1.0.0")
    with pytest.raises(cvm.ParseError, match="bytecode"):
        cvm.from_stablehlo(file)
