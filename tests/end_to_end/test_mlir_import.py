"""`cvm.from_mlir`: what `cvm lower --to linalg` writes reads back with the same bytes, MLIR of
others computes what NumPy does.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from cvm.dialect.ir.function import Function, Graph
from cvm.dialect.spec.operator import OPERATORS
from outcomes import arguments
from pages import ROOT
from tiers import some

import cvm

pytest.importorskip("xdsl")

UNREAD = (  # why MLIR of ours is not read back
    "math.fma: it has no rule",  # of functions that no operation of IEEE 754 is
    "a size that depends on data",
)
RNG = np.random.default_rng(0)


def results(module: cvm.Module, given: list[np.ndarray], target: Any) -> list[np.ndarray]:
    found = cvm.compile(module, next(iter(module.functions)), target)(*[x.copy() for x in given])
    return [*found] if isinstance(found, tuple) else [found]


def fitting(module: cvm.Module, function: Function) -> list[np.ndarray]:
    """Arguments whose sizes the function takes, drawn until they do."""
    random, refused = np.random.default_rng(0), ""
    for _ in range(100):
        given = arguments(function, random)
        try:
            cvm.compile(module, function.name, "reference")(*[x.copy() for x in given])
        except cvm.VerifyError as e:
            refused = str(e)
        else:
            return given
    raise AssertionError(f"no arguments fit: {refused}")


def assert_reads_back(program: str) -> bool:
    """Compares the bytes of results with those of the program that was lowered; False where that is
    refused.
    """
    module = cvm.parse(program)
    (function,) = [f for f in module.functions.values() if f.name == "main"]
    assert not isinstance(function, Graph)
    try:
        text = cvm.compile(module, "main", "reference").lower("linalg")
    except cvm.TargetError:
        return False
    try:
        again = cvm.from_mlir(text.encode())
    except cvm.ParseError as e:
        assert any(r in str(e) for r in UNREAD), e
        return False
    given = fitting(module, function)
    signed = [x.view(f"i{x.itemsize}") if x.dtype.kind == "u" else x for x in given]
    for target in ("cpu", "reference"):
        wanted = cvm.compile(module, "main", target)(*[x.copy() for x in given])
        for got, want in zip(
            results(again, signed, target),
            wanted if isinstance(wanted, tuple) else [wanted],
            strict=True,
        ):
            assert (got.shape, got.dtype.itemsize) == (want.shape, want.dtype.itemsize)
            assert got.tobytes() == want.tobytes(), target
    return True


PROGRAMS = {
    "chain": "%x: tensor<3x4xi32>, %y: tensor<4xi32>|%a = dali.mul %x, %y|%b = cvm.relu %a|%z = "
    "dali.shr %b, 3",
    "division": "%x: tensor<50xi8>, %y: tensor<50xi8>|%e = dali.or %y, 1|%z = dali.floordiv %x, %e",
    "unsigned": "%x: tensor<50xui8>, %y: tensor<50xui8>|%d = dali.or %y, 1|%a = dali.floordiv %x, "
    "%d|%z = dali.lt %a, %y",
    "floats": "%x: tensor<2x5xf32>, %y: tensor<2x1xf32>|%a = "
    "dali.div %x, %y|%b = dali.sqrt %a|%z = "
    "dali.floor %b",
    "halves": "%x: tensor<2x5xf16>, %y: tensor<5xf16>|%a = theano.elemwise %x, %y {scalar_op = "
    '"mul"}|%z = theano.sum %a {axis = [0]}',
    "minimum": "%x: tensor<40xf64>, %y: tensor<40xf64>|%z = theano.elemwise %x, %y {scalar_op = "
    '"minimum"}',
    "casts": '%x: tensor<40xf32>|%a = theano.elemwise %x {scalar_op = "cast", dtype = i16}|%z = '
    "dali.mul %a, 1.5",
    "matrix": "%x: tensor<?x7xi32>, %w: tensor<5x7xi32>|%z = cvm.dense %x, %w",
    "float matrix": "%x: tensor<6x7xf32>, %w: tensor<5x7xf32>|%z = cvm.dense %x, %w",
    "row maxima": "%x: tensor<6x7xui16>|%z = theano.max %x {axis = [1]}",
    "products": "%x: tensor<3x4x5xf32>|%z = theano.prod %x {axis = [2, 0]}",
    "every": "%x: tensor<6x7xi32>|%a = dali.gt %x, 0|%z = theano.all %a {axis = [0]}",
    "convolution": "%x: tensor<1x2x6x5xi32>, %w: "
    "tensor<3x2x3x3xi32>|%z = cvm.conv2d %x, %w "
    "{padding = "
    "[1, 1]}",
    "movement": "%x: tensor<2x3x4xi32>|%a = cvm.transpose %x "
    "{axes = [2, 0, 1]}|%z = cvm.reshape %a "
    "{target_shape = [8, 3]}",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_reads_back(name: str) -> None:
    head, *lines = PROGRAMS[name].split("|")
    assert assert_reads_back("\n".join([f"func @main({head}) {{", *lines, "return %z", "}"]))


def functions() -> list[str]:
    """The operators whose page has an example that is a function."""
    return sorted(
        n
        for n, op in OPERATORS.items()
        if op.example and "func @main" in op.example and "graph @" not in op.example
    )


@pytest.mark.parametrize("name", some(functions(), 24))
def test_an_operator_reads_back(name: str) -> None:
    if not assert_reads_back(dedent(OPERATORS[name].example).strip()):
        pytest.skip("it has no formula, or one that is not read back")


def test_the_digits_network_reads_back() -> None:
    network = cvm.load(ROOT / "examples" / "digits" / "digits.cvm")
    x = np.load(ROOT / "examples" / "digits" / "test.npz")["images"][:4].astype(np.int32)
    (found,) = results(cvm.from_mlir(cvm.compile(network).lower("linalg").encode()), [x], "cpu")
    np.testing.assert_array_equal(found, cvm.compile(network)(x))


def called(text: str, *given: np.ndarray) -> list[np.ndarray]:
    """The results of MLIR, alike on the CPU and by the reference."""
    module = cvm.from_mlir(dedent(text).encode())
    found, reference = (results(module, [*given], target) for target in ("cpu", "reference"))
    for a, b in zip(found, reference, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5 if a.dtype.kind == "f" else 0)
    return found


def body(text: str, type: str = "f32", count: int = 2) -> str:
    """The region of a named operation."""
    names = ", ".join(f"%{c}: {type}" for c in "abc"[:count])
    return f"({{ ^bb0({names}): {text} }})"


MULTIPLY_ADD = body(
    '%p = "arith.mulf"(%a, %b) : (f32, f32) -> f32  %q = "arith.addf"(%c, %p) : (f32, f32) -> f32 '
    '"linalg.yield"(%q) : (f32) -> ()',
    count=3,
)
F = "tensor<{}xf32>".format
a, b = RNG.normal(size=(2, 4, 8)).astype(np.float32), RNG.normal(size=(2, 8, 5)).astype(np.float32)
image, kernel = (
    RNG.normal(size=(1, 2, 8, 9)).astype(np.float32),
    RNG.normal(size=(3, 2, 3, 2)).astype(np.float32),
)


def convolved() -> np.ndarray:
    """With strides 1 and 2, and dilations 2 and 1."""
    found = np.zeros((1, 3, 4, 4), np.float32)
    for i, j in np.ndindex(3, 2):
        found += np.einsum(
            "nchw,fc->nfhw", image[:, :, 2 * i : 2 * i + 4, j : j + 7 : 2], kernel[:, :, i, j]
        )
    return found


NAMED = {
    "batch_matmul": (
        f'"linalg.batch_matmul"(%0, %1, %2) <{{indexing_maps = [affine_map<(b, m, n, k) -> '
        "(b, m, k)>, "
        "affine_map<(b, m, n, k) -> (b, k, n)>, affine_map<(b, m, n, k) -> (b, m, n)>], "
        f"operandSegmentSizes = array<i32: 2, 1>}}> "
        f"{MULTIPLY_ADD} : ({F('2x4x8')}, {F('2x8x5')}, {F('2x4x5')}) -> {F('2x4x5')}",
        [a, b, np.ones((2, 4, 5), np.float32)],
        lambda: 1 + a @ b,
    ),
    "conv_2d_nchw_fchw": (
        f'"linalg.conv_2d_nchw_fchw"(%0, %1, %2) <{{dilations = dense<[2, 1]> : vector<2xi64>, '
        "strides = dense<[1, 2]> : vector<2xi64>, operandSegmentSizes = array<i32: 2, "
        f"1>}}> {MULTIPLY_ADD} "
        f"{{linalg.memoized_indexing_maps = [affine_map<(n, f, h, w, c, x, y) -> (n, c, h "
        "+ x * 2, w * 2 + y)>, "
        "affine_map<(n, f, h, w, c, x, y) -> (f, c, x, y)>, affine_map<(n, f, h, w, c, x, "
        f"y) -> (n, f, h, w)>]}} : "
        f"({F('1x2x8x9')}, {F('3x2x3x2')}, {F('1x3x4x4')}) -> {F('1x3x4x4')}",
        [image, kernel, np.zeros((1, 3, 4, 4), np.float32)],
        convolved,
    ),
    "transpose": (
        f'"linalg.transpose"(%0, %1) <{{permutation = array<i64: 1, 2, 0>}}> '
        f"{body(chr(34) + 'linalg.yield' + chr(34) + '(%a) : (f32) -> ()')}"
        f" : ({F('2x4x8')}, {F('4x8x2')}) -> {F('4x8x2')}",
        [a, np.zeros((4, 8, 2), np.float32)],
        lambda: a.transpose(1, 2, 0),
    ),
    "broadcast": (
        f'"linalg.broadcast"(%0, %1) <{{dimensions = array<i64: 1>}}> '
        f"{body(chr(34) + 'linalg.yield' + chr(34) + '(%a) : (f32) -> ()')}"
        f" : ({F('2x4x8')}, {F('2x3x4x8')}) -> {F('2x3x4x8')}",
        [a, np.zeros((2, 3, 4, 8), np.float32)],
        lambda: np.repeat(a[:, None], 3, 1),
    ),
    "reduce": (
        '"linalg.reduce"(%0, %1) <{dimensions = array<i64: 0, 2>}> '
        + body('%m = "arith.maximumf"(%b, %a) : (f32, f32) -> f32 "linalg.yield"(%m) : (f32) -> ()')
        + f" : ({F('2x4x8')}, {F('4')}) -> {F('4')}",
        [a, np.full(4, 0.5, np.float32)],
        lambda: np.maximum(a.max((0, 2)), np.float32(0.5)),
    ),
    "map": (
        '"linalg.map"(%0, %1, %2) '
        + body(
            '%m = "arith.remf"(%a, %b) : (f32, f32) -> f32 "linalg.yield"(%m) : (f32) -> ()',
            count=3,
        )
        + f" : ({F('2x4x8')}, {F('2x4x8')}, {F('2x4x8')}) -> {F('2x4x8')}",
        [a, a + 3, a],
        lambda: np.fmod(a, a + 3),
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_named_operations(name: str) -> None:
    """In the generic form, as MLIR prints them."""
    operation, given, wanted = NAMED[name]
    types = [F("x".join(map(str, x.shape))) for x in given]
    result = operation.rpartition("-> ")[2]
    arguments = ", ".join(f"%{n}: {t}" for n, t in enumerate(types))
    text = (
        f'"builtin.module"() ({{ "func.func"() <{{function_type = ({", ".join(types)}) -> '
        f'{result}, sym_name = "f"}}> ({{\n'
        f"^bb0({arguments}):\n %r = {operation}\n"
        f' "func.return"(%r) : ({result}) -> () }}) : () -> () }}) : () -> ()'
    )
    (found,) = called(text, *given)
    np.testing.assert_allclose(found, wanted(), rtol=1e-5, atol=1e-5)


def test_tensors() -> None:
    text = """
        func.func @f(%x: tensor<4x6xi32>, %i: index, %c: i1)
            -> (tensor<2x3xi32>, tensor<4x6xi32>, tensor<6x7xi32>, tensor<2x2x6xi32>, tensor<24xi32>, i32, tensor<8x6xi32>, tensor<4x6xi32>) {
          %seven = arith.constant 7 : i32
          %one = arith.constant 1 : index
          %y = arith.addi %x, %x : tensor<4x6xi32>
          %part = tensor.extract_slice %y[1, 0][2, 3][2, 2] : tensor<4x6xi32> to tensor<2x3xi32>
          %into = tensor.insert_slice %part into %x[1, 1][2, 3][1, 2] : tensor<2x3xi32> into tensor<4x6xi32>
          %padded = tensor.pad %x low[1, 1] high[1, 0] {
          ^bb0(%a: index, %b: index):
            tensor.yield %seven : i32
          } : tensor<4x6xi32> to tensor<6x7xi32>
          %split = tensor.expand_shape %x [[0, 1], [2]] output_shape [2, 2, 6] : tensor<4x6xi32> into tensor<2x2x6xi32>
          %flat = tensor.collapse_shape %x [[0, 1]] : tensor<4x6xi32> into tensor<24xi32>
          %e = tensor.extract %x[%i, %one] : tensor<4x6xi32>
          %joined = tensor.concat dim(0) %x, %y : (tensor<4x6xi32>, tensor<4x6xi32>) -> tensor<8x6xi32>
          %either = scf.if %c -> (tensor<4x6xi32>) {
            scf.yield %x : tensor<4x6xi32>
          } else {
            scf.yield %y : tensor<4x6xi32>
          }
          return %part, %into, %padded, %split, %flat, %e, %joined, %either : tensor<2x3xi32>, tensor<4x6xi32>, tensor<6x7xi32>,
            tensor<2x2x6xi32>, tensor<24xi32>, i32, tensor<8x6xi32>, tensor<4x6xi32>
        }"""
    x = RNG.integers(-99, 99, (4, 6), np.int32)
    into = x.copy()
    into[1:3, 1:6:2] = 2 * x[1:4:2, 0:6:2]
    wanted = [2 * x[1:4:2, 0:6:2], into, np.pad(x, ((1, 1), (1, 0)), constant_values=7),
     x.reshape(2, 2, 6), x.reshape(24),
              x[3, 1], np.concatenate([x, 2 * x]), 2 * x]  # fmt: skip
    for found, want in zip(called(text, x, np.array(3), np.array(False)), wanted, strict=True):
        np.testing.assert_array_equal(found, want, strict=True)


def test_numbers_are_taken_out_of_tensors() -> None:
    text = """
        func.func @f(%x: tensor<3xf32>, %s: tensor<f32>) -> tensor<3xf32> {
          %init = tensor.empty() : tensor<3xf32>
          %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
              ins(%x : tensor<3xf32>) outs(%init : tensor<3xf32>) {
          ^bb0(%a: f32, %out: f32):
            %n = tensor.extract %s[] : tensor<f32>
            %p = arith.mulf %a, %n : f32
            linalg.yield %p : f32
          } -> tensor<3xf32>
          return %y : tensor<3xf32>
        }"""
    x = np.array([1, 2, 3], np.float32)
    (y,) = called(text, x, np.array(2, np.float32))
    assert y.tolist() == [2, 4, 6]


def test_generic_operations() -> None:
    """Two results, one of them transposed; a reduction over a dimension that its value does not
    have, with an initial value.
    """
    text = """
        #ij = affine_map<(i, j) -> (i, j)>
        #ji = affine_map<(i, j) -> (j, i)>
        #i = affine_map<(i, j) -> (i)>
        #twice = affine_map<(i, j) -> (i * 2 + 1)>
        func.func @f(%x: tensor<?x3xi32>, %r: tensor<4xi32>, %s: tensor<10xi32>) -> (tensor<?x3xi32>, tensor<3x?xi32>, tensor<4xi32>) {
          %zero = arith.constant 0 : index
          %n = tensor.dim %x, %zero : tensor<?x3xi32>
          %a = tensor.empty(%n) : tensor<?x3xi32>
          %b = tensor.empty(%n) : tensor<3x?xi32>
          %y:2 = "linalg.generic"(%x, %a, %b) <{indexing_maps = [#ij, #ij, #ji], operandSegmentSizes = array<i32: 1, 2>,
              iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>]}> ({
          ^bb0(%e: i32, %p: i32, %q: i32):
            %j = linalg.index 1 : index
            %k = arith.index_cast %j : index to i32
            %f = arith.addi %e, %k : i32
            linalg.yield %f, %e : i32, i32
          }) : (tensor<?x3xi32>, tensor<?x3xi32>, tensor<3x?xi32>) -> (tensor<?x3xi32>, tensor<3x?xi32>)
          %t = tensor.empty() : tensor<4x3xi1>
          %z = linalg.generic {indexing_maps = [#twice, #ij, #i], iterator_types = ["parallel", "reduction"]}
              ins(%s, %t : tensor<10xi32>, tensor<4x3xi1>) outs(%r : tensor<4xi32>) {
          ^bb0(%e: i32, %u: i1, %o: i32):
            %g = arith.addi %e, %o : i32
            linalg.yield %g : i32
          } -> tensor<4xi32>
          return %y#0, %y#1, %z : tensor<?x3xi32>, tensor<3x?xi32>, tensor<4xi32>
        }"""
    x, r, s = (RNG.integers(-99, 99, shape, np.int32) for shape in ((5, 3), 4, 10))
    found = called(text, x, r, s)
    for y, want in zip(
        found, [x + np.arange(3, dtype=np.int32), x.T, r + 3 * s[1:9:2]], strict=True
    ):
        np.testing.assert_array_equal(y, want, strict=True)


def test_calls_and_loops() -> None:
    """A private function that is called twice, once with what a loop has added up; branches that
    are constants.
    """
    text = """
        func.func private @twice(%a: tensor<3xi32>) -> tensor<3xi32> {
          %b = arith.addi %a, %a : tensor<3xi32>
          return %b : tensor<3xi32>
        }
        func.func @f(%x: tensor<4x3xi32>, %c: i1) -> (tensor<3xi32>, i32, tensor<3xi32>) {
          %zero = arith.constant 0 : index
          %two = arith.constant 2 : index
          %four = arith.constant 4 : index
          %n = arith.constant 5 : i32
          %r = arith.constant dense<[1, 2, 3]> : tensor<3xi32>
          %s = arith.constant dense<[4, 5, 6]> : tensor<3xi32>
          %chosen = scf.if %c -> (tensor<3xi32>) {
            scf.yield %r : tensor<3xi32>
          } else {
            scf.yield %s : tensor<3xi32>
          }
          %sum, %count = scf.for %i = %zero to %four step %two iter_args(%so_far = %chosen, %m = %n) -> (tensor<3xi32>, i32) {
            %row = tensor.extract_slice %x[0, 0][1, 3][1, 1] : tensor<4x3xi32> to tensor<3xi32>
            %e = tensor.extract %x[%i, %two] : tensor<4x3xi32>
            %k = arith.addi %m, %e : i32
            %t = arith.addi %so_far, %row : tensor<3xi32>
            scf.yield %t, %k : tensor<3xi32>, i32
          }
          %y = func.call @twice(%sum) : (tensor<3xi32>) -> tensor<3xi32>
          %z = func.call @twice(%y) : (tensor<3xi32>) -> tensor<3xi32>
          return %z, %count, %y : tensor<3xi32>, i32, tensor<3xi32>
        }"""
    x = RNG.integers(-99, 99, (4, 3), np.int32)
    for holds, chosen in ((True, [1, 2, 3]), (False, [4, 5, 6])):
        total = np.array(chosen, np.int32) + 2 * x[0]
        wanted = [4 * total, 5 + x[0, 2] + x[2, 2], 2 * total]
        for found, want in zip(called(text, x, np.array(holds)), wanted, strict=True):
            np.testing.assert_array_equal(found, want, strict=True)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_leading_zeros(bits: int) -> None:
    text = (
        f"func.func @f(%x: tensor<7xi{bits}>) -> tensor<7xi{bits}> {{\n"
        f"%y = math.ctlz %x : tensor<7xi{bits}>\nreturn %y : tensor<7xi{bits}> }}"
    )
    x = np.array([0, 1, -1, 5, 100, 1 << (bits - 2), -(1 << (bits - 1))], f"i{bits // 8}")
    wanted = [bits, bits - 1, 0, bits - 3, bits - 7, 1, 0]
    np.testing.assert_array_equal(called(text, x)[0], np.array(wanted, x.dtype), strict=True)


def test_the_remainder_of_floats_reads_back() -> None:
    program = (
        "func @main(%x: tensor<40xf32>, %y: tensor<40xf32>) {\n"
        '%z = numpy.elementwise %x, %y {ufunc = "fmod"}\nreturn %z\n}'
    )
    assert "arith.remf" in cvm.compile(program).lower("linalg") and assert_reads_back(program)


def test_flags_of_a_narrowing() -> None:
    """MLIR prints them; xDSL does not know them."""
    text = """
        func.func @f(%x: tensor<5xi32>) -> tensor<5xi8> {
          %e = tensor.empty() : tensor<5xi8>
          %y = "linalg.map"(%x, %e) ({
          ^bb0(%a: i32, %b: i8):
            %t = "arith.trunci"(%a) <{overflowFlags = #arith.overflow<none>}> : (i32) -> i8
            linalg.yield %t : i8
          }) : (tensor<5xi32>, tensor<5xi8>) -> tensor<5xi8>
          return %y : tensor<5xi8>
        }"""
    x = np.array([-129, -1, 0, 128, 300], np.int32)
    np.testing.assert_array_equal(called(text, x)[0], x.astype(np.int8), strict=True)


INTEGERS = np.array([-128, -127, -7, -1, 0, 1, 2, 7, 126, 127], np.int8)
PAIRS = [p.reshape(-1) for p in np.meshgrid(INTEGERS, INTEGERS[INTEGERS != 0])]
FLOATS = np.array([-np.inf, -2.5, -1, -0.0, 0, 1, 1.5, np.inf, np.nan], np.float32)
FLOAT_PAIRS = [p.reshape(-1) for p in np.meshgrid(FLOATS, FLOATS)]


def truncated(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.trunc(x.astype(int) / y.astype(int)).astype(np.int8)


def as_unsigned(f: Any) -> Any:
    return lambda x, y: f(x.view(np.uint8), y.view(np.uint8)).view(np.int8)


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        ("addi", np.add),
        ("muli", np.multiply),
        ("divsi", truncated),
        ("floordivsi", np.floor_divide),
        ("remsi", np.fmod),
        ("divui", as_unsigned(np.floor_divide)),
        ("remui", as_unsigned(np.fmod)),
        ("maxsi", np.maximum),
        ("maxui", as_unsigned(np.maximum)),
        ("minui", as_unsigned(np.minimum)),
        ("xori", np.bitwise_xor),
    ],
)
def test_integers(op: str, wanted: Any) -> None:
    x, y = PAIRS
    with np.errstate(all="ignore"):
        want = wanted(x, y)
    inside = (x != -128) | (y != -1)  # beyond, a quotient is undefined
    (found,) = called(
        f"func.func @f(%x: tensor<90xi8>, %y: tensor<90xi8>) -> tensor<90xi8> {{\n"
        f"%z = arith.{op} %x, %y : tensor<90xi8>\nreturn %z : tensor<90xi8> }}",
        x,
        y,
    )
    np.testing.assert_array_equal(found[inside], want[inside])


@pytest.mark.parametrize("op", ["maximumf", "minimumf", "maxnumf", "minnumf"])
def test_extremes_of_floats(op: str) -> None:
    """NaN stays or is left out; -0.0 is below 0.0 where that is defined."""
    x, y = FLOAT_PAIRS
    (found,) = called(
        f"func.func @f(%x: tensor<81xf32>, %y: tensor<81xf32>) -> tensor<81xf32> {{\n"
        f"%z = arith.{op} %x, %y : tensor<81xf32>\nreturn %z : tensor<81xf32> }}",
        x,
        y,
    )
    nan, (low, high) = np.isnan(x) | np.isnan(y), (np.minimum(x, y), np.maximum(x, y))
    other = np.where(np.isnan(x), y, x)
    want = np.where(nan, np.nan if "imum" in op else other, high if "max" in op else low)
    np.testing.assert_array_equal(found, want)
    if "imum" in op:
        zeros = (x == 0) & (y == 0)
        signs = np.signbit(x) & np.signbit(y) if "max" in op else np.signbit(x) | np.signbit(y)
        np.testing.assert_array_equal(np.signbit(found)[zeros], signs[zeros])


def compared(comparison: str, x: np.ndarray, y: np.ndarray, type: str) -> np.ndarray:
    """A comparison in a body: xDSL has none of tensors."""
    tensor, bools = f"tensor<{len(x)}x{type}>", f"tensor<{len(x)}xi1>"
    text = f"""
        func.func @f(%x: {tensor}, %y: {tensor}) -> {bools} {{
          %e = tensor.empty() : {bools}
          %z = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
              iterator_types = ["parallel"]}} ins(%x, %y : {tensor}, {tensor}) outs(%e : {bools}) {{
          ^bb0(%a: {type}, %b: {type}, %c: i1):
            %d = {comparison}, %a, %b : {type}
            linalg.yield %d : i1
          }} -> {bools}
          return %z : {bools}
        }}"""
    return called(text, x, y)[0]


COMPARED = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@pytest.mark.parametrize(
    "predicate",
    [
        "oeq",
        "ogt",
        "oge",
        "olt",
        "ole",
        "one",
        "ord",
        "ueq",
        "ugt",
        "uge",
        "ult",
        "ule",
        "une",
        "uno",
    ],
)
def test_comparisons_of_floats(predicate: str) -> None:
    x, y = FLOAT_PAIRS
    unordered = np.isnan(x) | np.isnan(y)
    want = {"ord": ~unordered, "uno": unordered}.get(predicate)
    if want is None:
        holds = COMPARED[predicate[1:]](x, y)
        want = holds | unordered if predicate[0] == "u" else holds & ~unordered
    np.testing.assert_array_equal(compared(f"arith.cmpf {predicate}", x, y, "f32"), want)


@pytest.mark.parametrize(
    "predicate", ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"]
)
def test_comparisons_of_integers(predicate: str) -> None:
    x, y = (p.view(np.uint8) if predicate[0] == "u" else p for p in PAIRS)
    np.testing.assert_array_equal(
        compared(f"arith.cmpi {predicate}", PAIRS[0], PAIRS[1], "i8"),
        COMPARED[predicate[-2:]](x, y),
    )


@pytest.mark.parametrize(
    ("a", "b", "c", "said"),
    [
        ("2x4x8", "2x9x5", "2x4x5", "one dimension has sizes 8 and 9"),
        ("2x4x1", "2x8x5", "2x4x5", "one dimension has sizes 1 and 8"),
        ("2x4x8", "2x8x5", "2x4x6", "one dimension has sizes 5 and 6"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(a: str, b: str, c: str, said: str) -> None:
    operation = NAMED["batch_matmul"][0].rpartition(" : (")[0]
    text = (
        f"func.func @f(%0: {F(a)}, %1: {F(b)}, %2: {F(c)}) -> {F(c)} {{\n"
        f"%y = {operation} : ({F(a)}, {F(b)}, {F(c)}) -> {F(c)}\n"
    )
    text += f"return %y : {F(c)} }}"
    with pytest.raises(cvm.ParseError) as error:
        cvm.from_mlir(text.encode())
    assert f"1 x linalg.batch_matmul: it is not as MLIR defines it: {said}" in str(error.value)


def test_all_refusals_are_said_at_once() -> None:
    text = """
        func.func @f(%x: tensor<4xf32>, %m: tensor<4xi1>) -> (tensor<4xf32>, tensor<f32>, tensor<4xi1>) {
          %a = math.fma %x, %x, %x : tensor<4xf32>
          %b = math.fma %a, %x, %x : tensor<4xf32>
          %c = math.fma %x, %x, %x : tensor<4xf32>
          %d = "other.thing"(%x) : (tensor<4xf32>) -> tensor<4xf32>
          %e = arith.addi %m, %m : tensor<4xi1>
          %o = tensor.empty() : tensor<f32>
          %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>], iterator_types = ["reduction"]}
              ins(%x : tensor<4xf32>) outs(%o : tensor<f32>) {
          ^bb0(%p: f32, %q: f32):
            %s = arith.divf %q, %p : f32
            linalg.yield %s : f32
          } -> tensor<f32>
          return %b, %r, %e : tensor<4xf32>, tensor<f32>, tensor<4xi1>
        }"""
    with pytest.raises(cvm.ParseError, match="5 lines of the model cannot be imported") as error:
        cvm.from_mlir(text.encode())
    assert [n.message for n in error.value.diagnostics[0].notes] == [
        "2 x math.fma: it has no rule (lines 3, 5)",
        "1 x other.thing: it has no rule (line 6)",
        "1 x arith.addi: arithmetic of i1 is not supported (line 7)",
        "1 x linalg.generic: a reduction that is no sum, product, maximum, minimum or "
        "operation of bits is not supported (line 9)",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("func.func @f() -> i32 {", "xDSL cannot read this"),
        ("\xff\xfe", "xDSL cannot read this"),
        (
            "module { }",
            "expected a module of functions, one of them @main or the only public one, got none",
        ),
        (
            "func.func @a() { return }\nfunc.func @b() { return }",
            "one of them @main or the only public one, got func.func, func.func",
        ),
        ("func.func private @main(i32) -> i32", "expected a module of functions"),
        ("func.func @f() {}", "expected a module of functions"),
        (
            'func.func @f() { "cf.br"()[^bb1] : () -> ()\n^bb1:\n return }',
            "a region that is not one block, which returns or yields",
        ),
        (
            '"func.func"() <{function_type = () -> (), sym_name = "f"}> ({ "other.end"() : '
            "() -> () }) : () -> ()",
            "a region that is not one block",
        ),
        (
            'func.func @f() {\n "a.b"() {c = "d} : () -> ()\n return }',
            "error[import]: a string that does not end",
        ),
        ("func.func @f() {\n return // it's \"\n}\n }", "xDSL cannot read this"),
        (
            "func.func @f(%x: i1) {" + "scf.if %x {" * 300 + "}" * 300 + "return }",
            "xDSL cannot read this: maximum recursion depth",
        ),
        (
            "func.func @f(%x: memref<4xf32>) { return }",
            "a value of type memref<4xf32> is not supported",
        ),
        ("func.func @f(%x: i7) -> i7 { return %x : i7 }", "a value of type i7 is not supported"),
        (
            "func.func @f(%x: i32) -> i32 {\n %y = func.call @f(%x) : (i32) -> i32\n"
            " return %y : i32 }",
            "1 x func.call: a region or call more than 32 deep in others is not supported (line 2)",
        ),
        (
            "func.func @f(%x: i32) -> i32 {\n %y = func.call @g(%x) : (i32) -> i32\n"
            " return %y : i32 }\nfunc.func private @g(i32) -> i32",
            "1 x func.call: @g is no function with a body (line 2)",
        ),
        (
            "func.func @f() -> f32 {\n %m = memref.alloc() : memref<f32>\n"
            " %y = memref.load %m[] : memref<f32>\n return %y : f32 }",
            "1 x memref.alloc: it has no rule (line 2)",
        ),
        (
            "func.func @f(%n: index) {\n %0 = arith.constant 0 : index\n"
            " %1 = arith.constant 1 : index\n scf.for %i = %0 to %n step %1 { }\n"
            "return }",
            "1 x scf.for: stop that is not a constant is not supported (line 4)",
        ),
        (
            "func.func @f() {\n %0 = arith.constant 0 : index\n"
            " %1 = arith.constant 1 : index\n %n = arith.constant 1000000000000 : index\n"
            "scf.for %i = %0 to %n step %1 { }\n return }",
            "but the limit operations is 100000",
        ),
        (
            '"ml.global"() : () -> ()\nfunc.func @f(%x: i32) -> i32 { return %x : i32 }',
            "got ml.global, func.func",
        ),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(cvm.ParseError) as error:
        cvm.from_mlir(text.encode("latin-1"))
    assert said in str(error.value)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xdsl.context", None)
    with pytest.raises(cvm.Error, match=r"pip install 'cvm-lang\[interop\]'"):
        cvm.from_mlir(b"module { }")


@pytest.mark.parametrize("seed", range(40))
def test_damaged_texts_are_refused(seed: int) -> None:
    """A text of which lines are dropped or characters changed gives an error, or another program,
    but never a crash.
    """
    program = (
        "func @main(%x: tensor<3x4xi32>, %w: tensor<5x4xi32>) {\n%y = cvm.dense %x, %w\n"
        "%z = cvm.relu %y\nreturn %z\n}"
    )
    rng, text = (
        np.random.default_rng(seed),
        bytearray(cvm.compile(program, target="reference").lower("linalg").encode()),
    )
    for at in rng.integers(0, len(text), 1 + seed % 3):
        text[at] = rng.choice([*b"%0(){}<>x, 9fi", int(rng.integers(256))])
    try:
        cvm.from_mlir(bytes(text))
    except cvm.Error as e:
        assert e.diagnostics


def test_the_command(tmp_path: Path) -> None:
    program = (
        "func @main(%x: tensor<3x4xi32>, %w: tensor<5x4xi32>) {\n%y = cvm.dense %x, %w\n"
        "return %y\n}"
    )
    (tmp_path / "a.mlir").write_text(cvm.compile(program, target="reference").lower("linalg"))
    command = [sys.executable, "-m", "cvm", "import", tmp_path / "a.mlir", "-o", tmp_path / "a.cvm"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    x, w = RNG.integers(-9, 9, (3, 4), np.int32), RNG.integers(-9, 9, (5, 4), np.int32)
    np.testing.assert_array_equal(cvm.compile(tmp_path / "a.cvm")(x, w), x @ w.T)
