"""Programs that campaigns of tests/fuzz found, and on which targets differed."""

from __future__ import annotations

import numpy as np
import pytest
from available_targets import HERE
from child_process import run_script

import cvm
from cvm.terminal.read_program import read_level


@pytest.mark.parametrize("target", HERE)
def test_an_index_outside_of_its_axis_is_reported_with_its_line(target: str) -> None:
    program = (
        "func @main(%x: tensor<4xi32>, %u: tensor<2xi32>, %i: tensor<2xi32>) -> tensor<4xi32> "
        "{\n  %y = builtin.scatter %x, %u, %i {axes = [0]}\n  return %y\n}\n"
    )
    with pytest.raises(cvm.CallError, match="an index is outside of its axis") as e:
        cvm.compile(program, target=target)(
            np.zeros(4, np.int32), np.ones(2, np.int32), np.array([1, 9], np.int32)
        )
    assert e.value.diagnostics[0].line == 2


@pytest.mark.parametrize("target", HERE)
def test_an_index_that_chooses_no_element_may_be_anything(target: str) -> None:
    program = (
        "func @main(%x: tensor<2x0xf32>, %i: tensor<2xi64>) -> tensor<2x0xf32> {\n"
        "  %y = builtin.gather %x, %i {axes = [0]}\n  return %y\n}\n"
    )
    assert cvm.compile(program, target=target)(
        np.zeros((2, 0), np.float32), np.array([1, 9])
    ).shape == (2, 0)


def test_sizes_of_kernels_that_differ_in_one_part_are_told_apart() -> None:
    kernel = (
        "kernel @k(%a: tensor<?P x f32>) -> (%y: tensor<[max(?P, ?Q)] x f32>) {\n"
        "  for %i in 0..[max(?R, ?Q)] {\n    %y[%i] = %a[0]\n  }\n}\n"
    )
    assert "[max(?R, ?Q)]" in str(read_level("fuzz.cvm", kernel).kernels[0])


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize(
    "program",
    [
        "func @main(%x: tensor<1x4xi32>, %i: tensor<i8>) { %r = cvm.repeat %x {axis = 0, "
        "repeats = 2} %y = builtin.gather %r, %i {axes = [0]} return %y }",
        "func @main(%x: tensor<1x4xi32>, %i: tensor<i8>) { %c = const dense<7> : "
        "tensor<2x1xi32> %y = builtin.gather %c, %i {axes = [0]} return %x, %y }",
    ],
)
def test_an_index_is_checked_where_all_elements_are_one(target: str, program: str) -> None:
    f = cvm.compile(program, target=target)
    f(np.zeros((1, 4), np.int32), np.int8(-2))
    with pytest.raises(cvm.CallError, match="an index is outside of its axis"):
        f(np.zeros((1, 4), np.int32), np.int8(2))


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("operation", ["max_pool2d", "avg_pool2d"])
def test_pooling_of_no_rows_or_columns_is_refused(target: str, operation: str) -> None:
    program = (
        f"func @main(%x: tensor<1x?x?x1xui8>) {{ %y = quant.{operation} %x {{pool_size = [3, "
        f"2], padding = [1, 1, 0, 1]}} return %y }}"
    )
    f = cvm.compile(program, target=target)
    for shape in ((1, 3, 0, 1), (1, 0, 3, 1)):
        with pytest.raises(cvm.VerifyError, match=r"H >= 1 and W >= 1|fits the padded"):
            f(np.zeros(shape, np.uint8))


def test_one_parameter_of_unknown_size_does_not_hide_the_rank_of_another() -> None:
    program = (
        "func @main(%m: tensor<?xi32>, %s: tensor<?x2xi32>, %x: tensor<?x3xi32>) { %y = "
        "quant.requantize %x, %m, %s return %y }"
    )
    with pytest.raises(cvm.VerifyError, match=r"quant\.requantize\.C5"):
        cvm.parse(program)


DROPPED = {
    "only its shape is read": "%y = cvm.slice_like %x, %v {axes = [0]}",
    "through another operation": "%w = dali.min %v, %x\n  %y = cvm.slice_like %x, %w {axes = [0]}",
    "it is the shape of a fill": '%y = theano.elemwise %v, %x {scalar_op = "second"}',
    "both choices are one": "%b = dali.gt %v, 0\n"
    "  %y = theano.elemwise %b, %x, %x "
    '{scalar_op = "switch"}',
    "the other choice is made": "%b = const dense<true> : tensor<i1>\n"
    '  %y = theano.elemwise %b, %x, %v {scalar_op = "switch"}',
    "any index is the only one": "%c = const dense<3> : tensor<1xi32>\n"
    "  %y = cvm.take %c, %v {axis = 0}",
    "multiplied by zero": "%y = dali.mul %v, 0",
    "other elements are read": "%y = cvm.slice %v {begin = [0], end = [1]}",
}


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("size", ["4", "?"])
@pytest.mark.parametrize("reader", DROPPED)
def test_an_error_is_reported_where_a_result_depends_on_the_operation(
    reader: str, size: str, target: str
) -> None:
    """Dependence is that of the text, whatever the simplified program computes; an unused operation
    reports none.
    """
    program = (
        f"func @main(%x: tensor<{size}xi32>, %z: tensor<{size}xi32>) {{\n"
        f"  %v = dali.floordiv %x, %z\n  {DROPPED[reader]}\n  return %y\n}}\n"
    )
    x, z = np.ones(4, np.int32), np.array([1, 1, 0, 1], np.int32)
    f = cvm.compile(program, target=target)
    f(x, x)
    with pytest.raises(cvm.CallError, match="integer division by zero") as e:
        f(x, z)
    assert e.value.diagnostics[0].line == 2
    cvm.compile(program.replace("return %y", "return %x"), target=target)(x, z)


@pytest.mark.parametrize("target", HERE)
def test_a_slice_that_begins_before_an_array_of_unknown_size_reads_nothing_there(
    target: str,
) -> None:
    program = (
        "func @main(%a: tensor<?xi32>, %b: tensor<1xi32>) { %y = builtin.strided_slice_like "
        "%a, %b {axes = [0], begin = [-8], strides = [-1]} return %y }"
    )
    f = cvm.compile(program, target=target)
    for n, first in ((1, 0), (7, 0), (8, 0), (9, 1)):
        assert f(np.arange(n, dtype=np.int32), np.zeros(1, np.int32)) == [0 if n < 9 else first]


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("columns", [1, 3])
def test_sizes_are_equal_only_where_the_result_of_an_earlier_operation_is_as_large(
    target: str, columns: int
) -> None:
    program = """func @main(%a: tensor<?x3x1x?xi8>, %b: tensor<1x?x1x?xui32>, %z: tensor<1xui8>, %c: tensor<1x3xf64>) {
      %low = dali.min %a, %b
      %m = quant.add %a, %z {zero_points = [0, 0, -25], multipliers = [1, 1, 1], shifts = [9, 9, 9], left_shift = 9}
      %s = dali.add %c, %low
      %y = dali.clamp %m, %b, %low
      return %s, %y
    }"""
    a, b = (
        np.arange(-4, 5, dtype=np.int8).reshape(1, 3, 1, 3),
        np.arange(1, 3 * columns + 1, dtype=np.uint32),
    )
    b = b.reshape(1, 3, 1, columns)
    _, y = cvm.compile(program, target=target)(a, b, np.zeros(1, np.uint8), np.zeros((1, 3)))
    np.testing.assert_array_equal(y, np.minimum(a, b))


@pytest.mark.parametrize("weights", ["tensor<?x?x?x?xui8>", "tensor<2x1x2x2xui8>"])
def test_a_constant_that_grouped_convolutions_read_by_two_axes(weights: str) -> None:
    program = f"""func @main(%x: tensor<1x2x3x3xi8>, %w: {weights}, %z: tensor<i8>) {{
      %m = const dense<[77, 194]> : tensor<2xi32>
      %y = quant.conv2d %x, %w, %z, %m, %m {{padding = [1, 1, 1, 1], layout = "NCHW", groups = 2}}
      return %y
    }}"""
    x, w = (
        np.arange(-9, 9, dtype=np.int8).reshape(1, 2, 3, 3),
        np.arange(8, dtype=np.uint8).reshape(2, 1, 2, 2),
    )
    found, wanted = (cvm.compile(program, target=t)(x, w, np.int8(3)) for t in ("cpu", "reference"))
    np.testing.assert_array_equal(found, wanted)


NO_ELEMENTS = """
import sys
import numpy as np
import cvm
f = cvm.compile("func @main(%x: tensor<?x?x?xi64>) {"
    " %c = const dense<> : tensor<1x0x0xi1> %y = builtin.sum_like %x, %c return %y }", target=sys.argv[1])
print(f(np.zeros((2, 0, 0), np.int64)).shape)
"""


@pytest.mark.parametrize("target", HERE)
def test_sums_of_no_elements_of_unknown_size_end(target: str) -> None:
    """A size that was divided by 0 was any."""
    assert run_script(NO_ELEMENTS, target, timeout=60) == "(1, 0, 0)"


TWO_LOOPS = """
import numpy as np
import cvm
graph = cvm.compile('''graph @main {
  %x = cog.field "s" : !cog.field<[4, 9], tensor<2xf32>>
  %m = cog.shift_cyclic %x {amount = [-1, -3]}
  %f = cog.subfield %m {begin = [1, 0], end = [3, 5]}
  %e = cog.expand %f {shape = [4, 9], border = "zero"}
  cog.feedback %x, %x
  cog.probe "p" %e
}''', target=sys.argv[1])
x = np.arange(72, dtype=np.float32).reshape(4, 9, 2)
graph.write("s", x)
graph.step()
expected = np.zeros_like(x)
expected[:2, :5] = np.roll(x, (-1, -3), (0, 1))[1:3, :5]
print(np.array_equal(graph.read("p"), expected))
"""


@pytest.mark.parametrize("target", HERE)
def test_llvm_ends_numbering_values_of_loops_one_after_the_other(target: str) -> None:
    """Its NewGVN goes back and forth between the counters of such loops, and a check of its own
    aborts the process.
    """
    assert run_script("import sys" + TWO_LOOPS, target, CVM_CACHE_DIR="") == "True"


@pytest.mark.parametrize("target", HERE)
def test_a_table_of_operands_of_which_one_is_repeated(target: str) -> None:
    """Its read was taken for that of one operand, whole or repeated, and the other operand's first
    element was read for all.
    """
    f = cvm.compile(
        """func @main(%x: tensor<?x?xui8>, %y: tensor<?x?xui8>, %t: tensor<256xi8>) {
  %n = dali.xor %x, %y
  %z = quant.table %n, %t
  return %z
}""",
        target=target,
    )
    random = np.random.default_rng(0)
    table = random.integers(-128, 128, 256).astype(np.int8)
    for x, y in (
        ((2, 40), (2, 1)),
        ((2, 1), (2, 40)),
        ((1, 3), (2, 1)),
        ((2, 3), (2, 3)),
        ((2, 1), (1, 1)),
    ):
        arrays = [random.integers(0, 256, s).astype(np.uint8) for s in (x, y)]
        np.testing.assert_array_equal(
            f(*arrays, table), table[np.bitwise_xor(*arrays)], f"{x} and {y}"
        )


@pytest.mark.parametrize("target", HERE)
def test_a_slice_of_an_operand_that_is_repeated(target: str) -> None:
    """Rows beyond the first of an operand with one row were read, where the columns of both were as
    many.
    """
    f = cvm.compile(
        """func @main(%x: tensor<?x?xi32>, %y: tensor<3x?xi32>) {
  %m = cvm.broadcast_max %x, %y
  %z = cvm.slice %m {begin = [-2], strides = [1]}
  return %z
}""",
        target=target,
    )
    y = np.full((3, 5), -1, np.int32)
    for x in ((1, 5), (3, 5), (1, 1), (3, 1)):
        np.testing.assert_array_equal(
            f(np.zeros(x, np.int32), y), np.zeros((2, 5), np.int32), f"{x}"
        )


def test_a_slice_of_open_size_beside_an_empty_axis() -> None:
    """It was the whole axis once sizes were compiled as open, after eight shapes."""
    f = cvm.compile(lambda x: x[..., ::2])
    for n in range(2, 24):
        assert f(np.zeros((0, n), np.int32)).shape == (0, -(-n // 2))
