"""Float programs to programs of integers: the operations, their error, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cvm.dialect.ir.module import Module
from cvm.lowering.formulas.overflow_warnings import possible_overflows
from random_networks import random_network
from tosa_graphs import MODEL as TOSA_MODEL, reference_model

import cvm
from cvm.commands.check import floats
from cvm.quantization import QuantizedModule, fake_quantize
from cvm.quantization.scheme import Parameters

ROOT = Path(__file__).parents[2]
SCHEMES = ("tflite", "cvm", "tosa")
READERS = {"tflite": cvm.from_tflite, "tosa": cvm.from_tosa, "qdq": cvm.from_onnx}  # of models
FORMATS = {"tflite": "tflite", "tosa": "tosa", "qdq": "onnx"}  # by scheme
NETWORK = """\
func @main(%x: tensor<?N x 2x6x6xf32>) -> tensor<?N x 4xf32> {
  %w1 = const file("w.npz", "w1") : tensor<4x2x3x3xf32>
  %b1 = const file("w.npz", "b1") : tensor<4xf32>
  %scale = const file("w.npz", "scale") : tensor<1x4x1x1xf32>
  %shift = const file("w.npz", "shift") : tensor<1x4x1x1xf32>
  %sums = cvm.conv2d %x, %w1, %b1 {padding = [1, 1]}
  %scaled = theano.elemwise %sums, %scale {scalar_op = "mul"}
  %normal = theano.elemwise %scaled, %shift {scalar_op = "add"}
  %a = cvm.relu %normal
  %w2 = const file("w.npz", "w2") : tensor<4x1x3x3xf32>
  %deep = cvm.conv2d %a, %w2 {padding = [1, 1], groups = 4}
  %gate = theano.elemwise %deep {scalar_op = "sigmoid"}
  %silu = theano.elemwise %deep, %gate {scalar_op = "mul"}
  %both = theano.elemwise %silu, %a {scalar_op = "add"}
  %less = theano.elemwise %both, %silu {scalar_op = "sub"}
  %pooled = cvm.max_pool2d %less {pool_size = [2, 2], strides = [2, 2], ceil_mode = true}
  %joined = cvm.concatenate %pooled, %pooled {axis = 1}
  %total = theano.sum %joined {axis = [2, 3], dtype = f32, acc_dtype = f32}
  %mean = theano.elemwise %total, 8.0 : f32 {scalar_op = "true_div"}
  %w3 = const file("w.npz", "w3") : tensor<4x8xf32>
  %scores = cvm.dense %mean, %w3
  %most = theano.max %scores {axis = [1]}
  %column = theano.dimshuffle %most {new_order = [0, "x"]}
  %below = theano.elemwise %scores, %column {scalar_op = "sub"}
  %powers = theano.elemwise %below {scalar_op = "exp"}
  %sum = theano.sum %powers {axis = [1], dtype = f32, acc_dtype = f32}
  %row = theano.dimshuffle %sum {new_order = [0, "x"]}
  %y = theano.elemwise %powers, %row {scalar_op = "true_div"}
  return %y
}
"""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    shapes = {
        "w1": (4, 2, 3, 3),
        "b1": (4,),
        "scale": (1, 4, 1, 1),
        "shift": (1, 4, 1, 1),
        "w2": (4, 1, 3, 3),
        "w3": (4, 8),
    }
    folder = tmp_path_factory.mktemp("network")
    weights = {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    np.savez(folder / "w.npz", **weights)
    (folder / "net.cvm").write_text(NETWORK)
    return folder / "net.cvm"


def images(count: int = 40) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((count, 2, 6, 6)).astype(np.float32)


@pytest.fixture(scope="module", params=SCHEMES)
def made(network: Path, request: Any) -> QuantizedModule:
    return cvm.quantize(network, images(), request.param)


def operators(module: Module) -> set[str]:
    return {o.operator.name for o in module.functions["main"].operations}


def test_a_program_of_integers_is_near_its_floats_and_equal_on_every_target(
    network: Path, made: QuantizedModule
) -> None:
    assert floats(made) == []
    warned = {d.code for d in possible_overflows(made)}
    assert warned <= {"quant.reciprocal.overflow"}  # which wraps by definition
    x, y = (
        v.attributes
        for v in (made.functions["main"].arguments[0], made.functions["main"].results[0])
    )
    if made.report.scheme == "cvm":
        assert {n.partition(".")[0] for n in operators(made)} == {"const", "cvm"}
    of_x = Parameters(x["scale"], x["zero_point"], *(-127, 127) if "range" in x else (-128, 127))
    element = made.functions["main"].arguments[0].known_type.element.dtype
    given = of_x.integers(images(8)).astype(element)
    q = cvm.compile(made)(given)
    for target in ("reference", "cuda-sim"):
        assert np.array_equal(cvm.compile(made, target=target)(given), q)
    exact = cvm.compile(network)(images(8))
    near = (q.astype(np.float64) - y["zero_point"]) * y["scale"]
    assert np.abs(near - exact).max() < 0.04  # the 8 bits of a share are steps of 1 / 128
    assert made.report.results[0].snr > 30


def test_the_text_of_a_quantized_program_is_the_program(made: QuantizedModule) -> None:
    assert str(cvm.parse(str(made))) == str(made)
    assert "scale = " in str(made).partition("->")[2].partition("{\n")[0]


def test_batch_normalization_and_clamps_are_in_the_layer_and_silu_is_one_table(
    made: QuantizedModule,
) -> None:
    rows = {r.name: r for r in made.report.rows}
    assert {"a", "silu", "total", "scores", "y"} <= {*rows}
    assert not {"sums", "scaled", "normal", "gate"} & {*rows}
    assert rows["silu"].operation == "table of sigmoid*mul"
    assert rows["silu"].table_error is not None and rows["silu"].table_error <= 0.5
    assert rows["a"].line == 9 and rows["a"].sum_bits is not None and rows["a"].sum_bits <= 32


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse"])
def test_ranges(network: Path, method: Any) -> None:
    report = cvm.quantize(network, images(), method=method).report
    assert all(r.low <= 0 <= r.high for r in report.rows)
    (x,) = (r for r in report.rows if r.name == "x")
    assert (x.saturated > 0) == (method == "mse")


def test_the_network_of_the_digits_example_is_that_of_the_command() -> None:
    """digits.cvm is float.cvm by `cvm quantize`; sums of floats may differ between processors in
    their last bit, and with these biases by 1.
    """
    folder = ROOT / "examples" / "digits"
    made = cvm.quantize(folder / "float.cvm", folder / "calibration.npz", "cvm")
    wanted = cvm.load(folder / "digits.cvm").functions["main"].operations
    (x,) = made.functions["main"].arguments
    assert x.attributes == {"scale": 0.125, "zero_point": 0, "range": (0, 127)}
    for a, b in zip(made.functions["main"].operations, wanted, strict=True):
        if a.operator.name == "const":
            found, expected = (np.asarray(o.operator.data.array) for o in (a, b))  # type: ignore[attr-defined]
            assert np.abs(found.astype(int) - expected).max() <= 1
        else:
            assert (a.operator.name, [*a.operator.attributes()]) == (
                b.operator.name,
                [*b.operator.attributes()],
            )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_weights_of_4_bits_in_some_layers(network: Path, scheme: Any) -> None:
    """Name a layer by its result, or by the clamp that is fused to it."""
    made = cvm.quantize(network, images(), scheme, weight_bits={"": 4, "a": 8})
    rows = {r.name: r for r in made.report.rows}
    assert [rows[n].weight_bits for n in ("a", "deep", "scores")] == [8, 4, 4]
    names = {r.name: o.operator for o in made.functions["main"].operations for r in o.results}
    most = {n: int(np.abs(o.data.array).max()) for n, o in names.items() if n.endswith(".weight")}  # type: ignore[attr-defined]
    assert 7 < most["normal.weight"] <= 127
    assert most["deep.weight"] <= 7 and most["scores.weight"] <= 7
    eight = cvm.quantize(network, images(), scheme)
    assert made.report.bytes < eight.report.bytes
    assert made.report.results[0].snr < eight.report.results[0].snr


@pytest.mark.parametrize("scheme", ["cvm", "tflite"])
def test_values_of_16_bits(network: Path, scheme: Any) -> None:
    """16 bits for all values, through every rule, and for some, beside values of 8."""
    made = cvm.quantize(network, images(), scheme, activation_bits=16)
    rows = {r.name: r for r in made.report.rows}
    assert {rows[n].bits for n in ("x", "a", "silu", "less", "total")} == {16}
    assert all(r.sum_bits is None or r.sum_bits <= 32 for r in made.report.rows)
    eight = cvm.quantize(network, images(), scheme).report
    assert rows["scores"].snr > {r.name: r for r in eight.rows}["scores"].snr + 3
    x = made.functions["main"].arguments[0]
    low, high = x.attributes.get("range", (-(2**15), 2**15 - 1))
    q = np.random.default_rng(0).integers(low, high + 1, (3, 2, 6, 6))
    q = q.astype(x.known_type.element.dtype)
    y = cvm.compile(made)(q)
    for target in ("reference", "cuda-sim"):
        assert np.array_equal(cvm.compile(made, target=target)(q), y)
    assert {d.code for d in possible_overflows(made)} <= {"quant.reciprocal.overflow"}
    some = cvm.quantize(network, images(), scheme, activation_bits={"both": 16, "total": 16})
    bits = {r.name: r.bits for r in some.report.rows}
    assert bits["both"] == bits["total"] == 16 and bits["a"] == bits["less"] == 8


@pytest.mark.parametrize("scheme", SCHEMES)
def test_mixed_precision_within_a_budget(network: Path, scheme: Any) -> None:
    exact, rough = (cvm.quantize(network, images(), scheme, within=w).report for w in (0.05, 0.99))
    assert exact.quality >= 0.95 and exact.bytes >= rough.bytes
    assert {r.bits for r in rough.ranking} == {4}
    assert [r.name for r in exact.ranking] == [r.name for r in rough.ranking]
    assert {r.weights for r in exact.ranking} == {72, 36, 32}
    total = cvm.parse(
        "func @main(%x: tensor<?N x 3xf32>) -> tensor<?N x f32> "
        "{ %y = theano.sum %x {axis = [1], dtype = f32, acc_dtype = f32} return %y }"
    )
    x = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    with pytest.raises(cvm.Error, match=r"less than the budget's 100\.00%"):
        cvm.quantize(total, x, scheme, within=0.0)


@pytest.mark.parametrize("zero_point", [0, 3])
def test_fake_quantization_is_exact_with_straight_through_derivatives(zero_point: int) -> None:
    x = np.random.default_rng(0).normal(size=10_000).astype(np.float32)
    x[:4] = 0.5, 1.5, -2.5, 1e9
    scale = np.float32(0.0137)
    units = np.rint(x / scale) + zero_point
    q = cvm.compile(lambda x: fake_quantize(x, scale, zero_point))(x)
    wanted = (np.clip(units, -128, 127) - zero_point).astype(np.float32) * scale
    np.testing.assert_array_equal(q, wanted)
    slope = cvm.grad(lambda x: fake_quantize(x, scale, zero_point).sum())(x)
    inside = (x / scale >= -128 - zero_point) & (x / scale <= 127 - zero_point)
    np.testing.assert_allclose(slope, inside, rtol=1e-6)
    assert not cvm.grad(lambda x: cvm.stop_gradient({"x": x * x})["x"].sum())(x).any()
    for bits, zero in ((1, 0), (4, 8)):
        with pytest.raises(cvm.Error, match="lie"):
            fake_quantize(x, scale, zero, bits)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_weights_that_are_fake_quantized_stay_as_they_are(scheme: Any) -> None:
    """Multiples of a scale for each channel, one for all of the scheme cvm, with 4 bits."""
    random = np.random.default_rng(0)
    q = random.integers(-7, 8, (4, 6))
    q[:, 0] = 7
    scale = np.full((4, 1), 0.125) if scheme == "cvm" else 2.0 ** -random.integers(1, 5, (4, 1))
    program = cvm.parse(
        f"func @main(%x: tensor<?N x 6xf32>) -> tensor<?N x 4xf32> {{"
        f" %w = const dense<{(q * scale).tolist()}> : tensor<4x6xf32> %y = cvm.dense %x, %w return %y }}"
    )
    x = random.normal(size=(50, 6)).astype(np.float32)
    made = cvm.quantize(program, x, scheme, weight_bits=4, equalized=False)
    names = {r.name: o.operator for o in made.functions["main"].operations for r in o.results}
    assert np.array_equal(names["y.weight"].data.array, q)  # type: ignore[attr-defined]


@pytest.mark.parametrize("low", [-128, -5])
def test_the_rounding_of_litert_at_the_ends_of_i32(low: int) -> None:
    """Every shift, with and without a minimum that is the zero point."""
    ends, random = np.iinfo(np.int32), np.random.default_rng(0)
    x = random.integers(ends.min, ends.max + 1, (1, 64, 50)).astype(np.int32)
    x[..., :6] = ends.min, ends.min + 1, ends.max, 0, -1, 1
    m = random.integers(0, ends.max, 64)
    m[::8] = ends.min
    text = (
        "func @main(%x: tensor<1x64x50xi32>) -> tensor<1x64x50xi8> {"
        f" %m = const dense<{m.tolist()}> : tensor<64xi32>"
        f" %s = const dense<{[*range(64)]}> : tensor<64xi32>"
        f' %y = quant.requantize %x, %m, %s {{rounding = "tflite_double", zero_point = -5,'
        f" min = {low}, axis = 1}} return %y }}"
    )
    found, wanted = (cvm.compile(cvm.parse(text), target=t)(x) for t in ("cpu", "reference"))
    np.testing.assert_array_equal(found, wanted)


def test_float_io(network: Path) -> None:
    made = cvm.quantize(network, images(), float_io=True)
    exact, near = cvm.compile(network)(images(8)), cvm.compile(made)(images(8))
    assert near.dtype == np.float32
    assert np.abs(near - exact).max() < 0.04


def test_data_of_all_kinds_gives_one_program(network: Path, tmp_path: Path) -> None:
    x = images(6)
    np.savez(tmp_path / "x.npz", x=x)
    folder = tmp_path / "samples"
    folder.mkdir()
    for n, sample in enumerate(x):
        np.save(folder / f"{n}.npy", sample)
    data: list[Any] = [x, {"x": x}, iter(x), [(s,) for s in x], tmp_path / "x.npz", str(folder)]
    programs = {str(cvm.quantize(network, d)) for d in data}
    assert len(programs) == 1


def test_data_that_cannot_be_read(network: Path, tmp_path: Path) -> None:
    (tmp_path / "samples").mkdir()
    with pytest.raises(cvm.Error, match="the folder has no files"):
        cvm.quantize(network, tmp_path / "samples")
    (tmp_path / "samples" / "x.txt").write_text("1 2 3")
    for path, said in (("samples", "not an .npy"), ("x.npy", "no such file"), ("x.npz", "no such")):
        with pytest.raises(cvm.Error, match=said):
            cvm.quantize(network, tmp_path / path)


def test_a_traced_function() -> None:
    random = np.random.default_rng(0)
    w, b, v = (random.standard_normal(s).astype(np.float32) for s in ((6, 16), (16,), (16, 3)))

    def f(x: Any) -> Any:
        return np.tanh(np.maximum(x @ w + b, 0) @ v)

    x = random.standard_normal((50, 6)).astype(np.float32)
    made = cvm.quantize(f, x)
    assert floats(made) == []
    assert {"quant.dense", "quant.table"} <= operators(made)
    assert made.report.results[0].snr > 30


ATTENTION = """\
func @main(%x: tensor<?N x 4x6xf64>) -> (tensor<?N x 4x6xf64>, tensor<?N x 4x4xf64>) {
  %total = theano.sum %x {axis = [2]}
  %mean = theano.elemwise %total, 6.0 : f64 {scalar_op = "true_div"}
  %means = theano.dimshuffle %mean {new_order = [0, 1, "x"]}
  %less = theano.elemwise %x, %means {scalar_op = "sub"}
  %squares = theano.elemwise %less, %less {scalar_op = "mul"}
  %energy = theano.sum %squares {axis = [2]}
  %variance = theano.elemwise %energy, 6.0 : f64 {scalar_op = "true_div"}
  %deviation = theano.elemwise %variance {scalar_op = "sqrt"}
  %deviations = theano.dimshuffle %deviation {new_order = [0, 1, "x"]}
  %normal = theano.elemwise %less, %deviations {scalar_op = "true_div"}
  %rows = theano.dimshuffle %normal {new_order = [0, 1, "x", 2]}
  %columns = theano.dimshuffle %normal {new_order = [0, "x", 1, 2]}
  %products = theano.elemwise %rows, %columns {scalar_op = "mul"}
  %scores = theano.sum %products {axis = [3]}
  %most = theano.max %scores {axis = [2]}
  %of_row = theano.dimshuffle %most {new_order = [0, 1, "x"]}
  %below = theano.elemwise %scores, %of_row {scalar_op = "sub"}
  %powers = theano.elemwise %below {scalar_op = "exp"}
  %sum = theano.sum %powers {axis = [2]}
  %sums = theano.dimshuffle %sum {new_order = [0, 1, "x"]}
  %shares = theano.elemwise %powers, %sums {scalar_op = "true_div"}
  %weights = theano.dimshuffle %shares {new_order = [0, 1, "x", 2]}
  %values = theano.dimshuffle %normal {new_order = [0, "x", 2, 1]}
  %weighted = theano.elemwise %weights, %values {scalar_op = "mul"}
  %y = theano.sum %weighted {axis = [3]}
  return %y, %scores
}
"""


@pytest.mark.parametrize("scheme", SCHEMES)
def test_normalization_and_attention(scheme: Any) -> None:
    x = np.random.default_rng(0).standard_normal((64, 4, 6))
    made = cvm.quantize(cvm.parse(ATTENTION), x, scheme, float_io=True)
    rows = {r.name: r for r in made.report.rows}
    assert not {"squares", "products", "weighted", "powers"} & {*rows}  # each is inside of a sum
    assert rows["deviations.reciprocal"].operation == "table of true_div*sqrt*inv"
    assert all(r.snr > 20 for r in made.report.results)
    y, _ = cvm.compile(made)(x[:2])
    assert y.dtype == np.float64


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_value_that_is_returned_and_read_by_a_table(scheme: Any) -> None:
    program = cvm.parse("""
        func @main(%x: tensor<?N x 3xf32>) -> (tensor<?N x 2xf32>, tensor<?N x 2xf32>) {
          %w = const dense<[[1.0, 2.0, -1.0], [0.5, 0.1, 3.0]]> : tensor<2x3xf32>
          %s = cvm.dense %x, %w
          %y = cvm.relu %s
          return %y, %s
        }""")
    x = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    assert all(r.snr > 35 for r in cvm.quantize(program, x, scheme).report.results)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_concatenation_that_is_a_result(scheme: Any) -> None:
    program = cvm.parse("""
        func @main(%x: tensor<?N x 3xf32>) -> tensor<?N x 6xf32> {
          %y = cvm.concatenate %x, %x {axis = 1}
          return %y
        }""")
    x = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    assert cvm.quantize(program, x, scheme).report.results[0].snr > 35


def refusal(program: str, data: Any, **options: Any) -> cvm.Error:
    with pytest.raises(cvm.Error) as caught:
        cvm.quantize(cvm.parse(program), data, **options)
    return caught.value


def test_what_has_no_rule_is_refused_with_its_line() -> None:
    error = refusal(
        """func @main(%x: tensor<2x3xf32>, %z: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %a = theano.elemwise %x, %z {scalar_op = "mod"}
  %b = theano.elemwise %a, %z {scalar_op = "pow"}
  return %b
}""",
        {"x": np.ones((2, 3)), "z": np.ones((2, 3))},
    )
    assert [(d.line, d.code) for d in error.diagnostics] == [(2, "quantize"), (3, "quantize")]
    assert "theano.elemwise mod (%a) cannot be quantized" in str(error)


ONE = "func @main(%x: tensor<?N x 3xf32>) -> tensor<?N x 3xf32> { %y = cvm.relu %x return %y }"


@pytest.mark.parametrize(
    ("program", "data", "options", "said"),
    [
        (
            ONE,
            np.array([[1, np.nan, 2]]),
            {},
            "%x cannot be quantized: on the data it is not finite",
        ),
        (ONE, np.zeros((0, 3)), {}, "expected samples along axis 0"),
        (ONE, {"y": np.zeros((1, 3))}, {}, "expected data for the arguments x, got y"),
        (ONE, np.array([["a", "b", "c"]]), {}, "expected numbers for x"),
        (ONE, [], {}, "the data has no samples"),
        (ONE, np.zeros((2, 3)), {"scheme": "int3"}, "scheme is one of tflite, cvm, tosa, qdq"),
        (ONE, np.zeros((2, 3)), {"method": "best"}, "method is one of minmax, percentile, mse"),
        (ONE, np.zeros((2, 3)), {"entry": "f"}, "no function @f"),
        (ONE, np.zeros((2, 3)), {"weight_bits": 3}, "weight_bits of the scheme tflite is 8 or 4"),
        (ONE, np.zeros((2, 3)), {"activation_bits": {"z": 8}}, "activation_bits is of x, y; got z"),
        (
            ONE,
            np.zeros((2, 3)),
            {"activation_bits": 16, "scheme": "tosa"},
            "activation_bits of the scheme tosa is 8, got 16",
        ),
        (ONE, np.zeros((2, 3)), {"within": 1.5}, "within is a share from 0 to 1"),
        (
            ONE.replace("f32", "i32"),
            np.zeros((2, 3)),
            {},
            "expected a program of floats, but %x is",
        ),
    ],
)
def test_bad_input_is_said(program: str, data: Any, options: Any, said: str) -> None:
    assert said in str(refusal(program, data, **options))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("value", [0.0, 1e-37, 1e30])
def test_constant_data_of_any_size(scheme: Any, value: float) -> None:
    made = cvm.quantize(cvm.parse(ONE), np.full((4, 3), value, np.float32), scheme, float_io=True)
    y = cvm.compile(made)(np.full((4, 3), value, np.float32))
    assert np.allclose(y, value, rtol=0.02, atol=1e-29)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ("scale = 0", "a scale is a positive number, got 0"),
        ("scale = true", "a scale is a positive number"),
        ("zero_point = 128", "a zero point of i8 lies within [-128, 127], got 128"),
        ("range = [0, 1]", "a result has the attributes scale and zero_point, got range"),
        ("scale = 1, scale = 2", "an attribute stands once"),
    ],
)
def test_attributes_of_results_are_checked(attributes: str, said: str) -> None:
    text = "func @main(%x: tensor<3xi8>) -> (tensor<3xi8> {ATTRIBUTES}) { %y = cvm.transpose %x return %y }"
    with pytest.raises(cvm.Error) as caught:
        cvm.parse(text.replace("ATTRIBUTES", attributes))
    assert said in str(caught.value)


def test_the_command(network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from cvm.cli import main

    np.save(tmp_path / "x.npy", images(8))
    out, page, report = (tmp_path / f"net.{s}" for s in ("cvm", "html", "json"))
    command = ["quantize", str(network), "--data", str(tmp_path / "x.npy"), "-o", str(out)]
    assert main([*command, "--report", str(report)]) == 0
    written = json.loads(report.read_text())
    assert written["samples"] == 8 and written["float_bytes"] == 4 * (72 + 4 + 36 + 32)
    assert written["float_operations"] > 8 * 6 * 6 * 4 * 2 * 9  # products of the first layer
    assert main([*command, "--report", str(page)]) == 0
    assert "<svg" in page.read_text() and "%silu" in page.read_text()
    capsys.readouterr()
    more = ["--weight-bits", "4", "--weight-bits", "deep=8", "--within", "90%", "--no-equalize"]
    assert main([*command, *more]) == 0
    assert "layers by the error of 4-bit weights" in capsys.readouterr().out
    assert main([*command, "--weight-bits", "deep=x"]) == 1
    assert main([*command, "--within", "much"]) == 1
    assert "--within is a share, such as 1% or 0.01; got much" in capsys.readouterr().err
    assert main(command) == 0
    assert main(["check", "--integers-only", str(out)]) == 0
    assert main(["check", "--integers-only", str(network)]) == 1
    assert (
        "net.cvm:1:12: error[check.float]: %x is tensor<?N x 2 x 6 x 6 x f32>"
        in capsys.readouterr().err
    )
    header = tmp_path / "net.h"
    built = ["build", str(out), "--size", "N=1", "--emit", "c", "-o", str(tmp_path / "net.c")]
    assert main([*built, "--header", str(header)]) == 0
    assert "q is for (q - -128) * 0.00390625" in header.read_text()


# Models


def written(seed: int, scheme: Any = "tflite") -> tuple[QuantizedModule, bytes, np.ndarray]:
    """A random network in integers, its model, and inputs."""
    random = np.random.default_rng(seed)
    module = cvm.parse(random_network(random))
    shape = module.functions["main"].arguments[0].known_type.shape  # type: ignore[union-attr]
    data = list(2 * random.normal(size=(3, *shape)).astype(np.float32))
    made = cvm.quantize(module, data, scheme)
    inputs = random.integers(-128, 128, (2, *shape)).astype(np.int8)
    model = getattr(made, f"to_{FORMATS[scheme]}")()
    return made, model, np.stack([*inputs, np.full(shape, -128, np.int8)])


@pytest.mark.parametrize("scheme", READERS)
@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(n, marks=pytest.mark.slow) for n in range(6, 60))]
)
def test_a_written_model_is_read_back_as_the_program(seed: int, scheme: str) -> None:
    made, data, inputs = written(seed, scheme)
    f, back = cvm.compile(made), cvm.compile(READERS[scheme](data))
    for x in inputs:
        np.testing.assert_array_equal(back(x), f(x))


@pytest.mark.parametrize("seed", range(8))
def test_litert_gives_the_bits_of_the_program(seed: int) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    made, data, inputs = written(seed)
    f = cvm.compile(made)
    kernels = litert.OpResolverType.BUILTIN_REF
    it = litert.Interpreter(model_content=data, experimental_op_resolver_type=kernels)
    it.allocate_tensors()
    (given,), (result,) = it.get_input_details(), it.get_output_details()
    for x in inputs:
        it.set_tensor(given["index"], x)
        it.invoke()
        np.testing.assert_array_equal(it.get_tensor(result["index"]), f(x))


@pytest.mark.skipif(TOSA_MODEL is None, reason="tosa_reference_model is not installed")
@pytest.mark.parametrize("seed", range(8))
def test_the_reference_model_of_tosa_gives_the_bits(seed: int, tmp_path: Path) -> None:
    made, data, inputs = written(seed, "tosa")
    (out,) = cvm.from_tosa(data).functions["main"].results
    wanted = reference_model(data, {"x": inputs[0]}, out.name, tmp_path)
    np.testing.assert_array_equal(cvm.compile(made)(inputs[0]), wanted)


def test_a_network_as_a_tflite_model_of_open_size(network: Path, tmp_path: Path) -> None:
    from cvm.cli import main

    np.save(tmp_path / "x.npy", images(8))
    out = tmp_path / "net.tflite"
    command = ["quantize", str(network), "--data", str(tmp_path / "x.npy"), "-o", str(out)]
    assert main(command) == 0
    back = cvm.from_tflite(out, sizes={"x": (-1, 2, 6, 6)})
    made = cvm.quantize(str(network), images(8))
    x = np.random.default_rng(0).integers(-128, 128, (5, 2, 6, 6)).astype(np.int8)
    np.testing.assert_array_equal(cvm.compile(back)(x), cvm.compile(made)(x))
    assert main([*command, "--scheme", "cvm"]) == 1


@pytest.mark.parametrize("seed", range(8))
def test_onnxruntime_gives_the_bits_of_the_program(seed: int) -> None:
    ort = pytest.importorskip("onnxruntime")
    made, data, inputs = written(seed, "qdq")
    f, options = cvm.compile(made), ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(data, options)
    for x in inputs:
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], f(x))


@pytest.mark.parametrize("scheme", ["tflite", "tosa", "qdq"])
def test_constants_and_repeated_results_in_models(scheme: Any) -> None:
    """A product of rows with a constant, twice, and the argument itself."""
    text = """func @main(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) {
      %c = const dense<[[1.0, -2.0, 3.0], [0.5, 0.25, 0.125]]> : tensor<2x3xf32>
      %y = theano.elemwise %x, %c {scalar_op = "mul"}
      %z = theano.elemwise %y, %c {scalar_op = "add"}
      return %z, %z, %x
    }"""
    data = [np.random.default_rng(n).normal(size=(2, 3)).astype(np.float32) for n in range(4)]
    made = cvm.quantize(cvm.parse(text), data, scheme)
    back = READERS[scheme](getattr(made, f"to_{FORMATS[scheme]}")())
    x = np.random.default_rng(9).integers(-128, 128, (2, 3)).astype(np.int8)
    found, wanted = cvm.compile(back)(x), cvm.compile(made)(x)
    for y, z in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(y, z)


def test_a_network_as_an_onnx_model_of_open_size(network: Path, tmp_path: Path) -> None:
    from cvm.cli import main

    np.save(tmp_path / "x.npy", images(8))
    out = str(tmp_path / "net.onnx")
    assert main(["quantize", str(network), "--data", str(tmp_path / "x.npy"), "-o", out]) == 0
    made = cvm.compile(cvm.quantize(str(network), images(8), "qdq"))
    x = np.random.default_rng(0).integers(-128, 128, (5, 2, 6, 6)).astype(np.int8)
    np.testing.assert_array_equal(cvm.compile(cvm.from_onnx(out))(x), made(x))


def test_a_network_as_a_tosa_model(network: Path, tmp_path: Path) -> None:
    from cvm.cli import main

    np.save(tmp_path / "x.npy", images(8))
    program, out = network.with_name("scores.cvm"), str(tmp_path / "net.tosa")
    program.write_text(NETWORK.replace("return %y", "return %scores"))
    command = ["quantize", str(program), "--data", str(tmp_path / "x.npy"), "-o", out]
    assert main(command) == 1  # of an unknown size
    assert main([*command, "--size", "N=4"]) == 0
    made = cvm.quantize(str(program), images(8), "tosa")
    x = np.random.default_rng(0).integers(-128, 128, (4, 2, 6, 6)).astype(np.int8)
    np.testing.assert_array_equal(cvm.compile(cvm.from_tosa(out))(x), cvm.compile(made)(x))


FACTORS = (
    '%t = theano.elemwise %x {scalar_op = "tanh"}\n%r = cvm.relu %x\n'
    "%s = cvm.reshape %r {target_shape = [4, 3, 1]}\n"
    "%q = cvm.reshape %t {target_shape = [4, 3, 1]}\n"
    '%p = theano.elemwise %s, %q {scalar_op = "mul"}\n'
    "%y = theano.sum %p {axis = [2], dtype = f32, acc_dtype = f32}"
)
REVERSED = "%a = cvm.slice %x {begin = [3, 0], end = [-5, 3], strides = [-1, 1]}\n%y = cvm.relu %a"
PART = "%a = cvm.slice %x {begin = [-3], end = [4]}\n%y = builtin.pad %a {before = [1, 0], after = [0, 0]}"
UNKNOWN = "tensor<?N x 3xf32>"


def made_of(body: str, type: str = "tensor<4x3xf32>", **options: Any) -> QuantizedModule:
    text = f"func @main(%x: {type}) -> {type} {{\n{body}\nreturn %y\n}}"
    data = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    return cvm.quantize(cvm.parse(text), data if type == UNKNOWN else [data], **options)


@pytest.mark.parametrize(
    ("model", "body", "options", "said"),
    [
        ("tflite", "%y = cvm.relu %x", {"float_io": True}, "%x is tensor<4x3xf32>, and not of i8"),
        ("tflite", "%y = cvm.relu %x", {"scheme": "cvm"}, "%x is tensor<4x3xi32>, and not of i8"),
        ("tflite", REVERSED, {}, "cvm.slice (%a) cannot be written to .tflite: it is a slice of"),
        ("tflite", FACTORS, {}, "it is a sum of products, or of others than numbers of i8"),
        (
            "onnx",
            FACTORS,
            {},
            "its rounding is tflite_double, and that of onnxruntime half_even_f32",
        ),
        ("onnx", "%y = cvm.relu %x", {"scheme": "qdq", "float_io": True}, "and not of i8"),
        ("tosa", REVERSED, {"scheme": "tosa"}, "cvm.slice (%a) cannot be written to .tosa"),
        ("tosa", FACTORS, {}, "its rounding is tflite_double, and that of TOSA single"),
        (
            "tosa",
            "%y = cvm.relu %x",
            {"scheme": "tosa", "type": UNKNOWN},
            "%x cannot be written to .tosa: its size is unknown",
        ),
    ],
)
def test_what_no_operator_of_a_model_states_is_refused(
    model: str, body: str, options: Any, said: str
) -> None:
    made = made_of(body, **options)
    with pytest.raises(cvm.Error) as caught:
        getattr(made, f"to_{model}")()
    assert said in str(caught.value)


@pytest.mark.parametrize(("scheme", "body"), [("tflite", PART), ("tosa", PART), ("tosa", FACTORS)])
def test_slices_and_products_in_models(scheme: Any, body: str) -> None:
    made = made_of(body, scheme=scheme)
    back = READERS[scheme](getattr(made, f"to_{FORMATS[scheme]}")())
    x = np.random.default_rng(1).integers(-128, 128, (4, 3)).astype(np.int8)
    np.testing.assert_array_equal(cvm.compile(back)(x), cvm.compile(made)(x))
