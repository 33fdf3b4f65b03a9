"""Certificates hold of the programs that they name: recorded cases, and random ones."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiers

onnx = pytest.importorskip("onnx")

from certificates import REFERENCES, installed, same_bits  # noqa: E402
from cvm.jit.host_processor import host_name  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402

import cvm  # noqa: E402
from cvm.importers.exactness import REFERENCES as PROGRAMS, ROUNDED, verdicts  # noqa: E402

ROOT = Path(__file__).parents[2]
INF, NAN, F32_MAX = np.inf, np.nan, float(np.finfo("f4").max)
LARGE = 2**62 + 1
TIMES = 300 if tiers.everything else 30


@dataclass
class Recorded:
    """A node, and the result of onnxruntime 1.32.0; `ours` where the verdict says that cvm
    differs.
    """

    op: str
    inputs: list[Any]
    wanted: Any
    verdict: str
    attributes: dict[str, Any] = field(default_factory=dict)
    opset: int = 21
    constants: int = 1  # the first of the inputs that are constants
    output: int = 0  # of several
    ours: Any = None


def f4(*values: Any) -> np.ndarray:
    return np.array(values, "f4")


def i8(*values: Any) -> np.ndarray:
    return np.array(values, "i8")


def i4(*values: Any) -> np.ndarray:
    return np.array(values, "i4")


NONE = f4()
TEN, FIVE = f4(*range(10)), f4(*range(5))
POOLED = "exact if no element is NaN, -0.0 or -infinity"
ORDERED = "exact if no element is NaN or -0.0"
WITHIN = "exact if every element, rounded toward zero, is within the type that it is cast to"
SUM, PRODUCT = (f"exact if no {what} overflows or reaches 2^53" for what in ("sum", "product"))
SAME = "unlike onnxruntime, whose SAME padding omits dilations and may be negative"
NEAREST = {
    "mode": "nearest",
    "coordinate_transformation_mode": "asymmetric",
    "nearest_mode": "floor",
}
COPIES = "unlike onnxruntime, which copies what keeps its sizes"
CORNERS = "unlike onnxruntime, which aligns the corners of whole elements"
WINDOW = {"kernel_shape": [2]}
CASES = [
    Recorded("Relu", [f4(-0.0, -1, 2)], f4(-0.0, 0, 2), "exact if no element is -0.0",
             ours=f4(0, 0, 2)),
    Recorded("Sign", [f4(-0.0, -3, NAN)], f4(0.0, -1, NAN), "exact"),
    Recorded("Clip", [f4(INF, -INF, 1)], f4(F32_MAX, -F32_MAX, 1), ORDERED),
    Recorded("Clip", [f4(INF, -INF, 1), f4(0).reshape(())], f4(F32_MAX, 0, 1), ORDERED),
    Recorded("Cast", [f4(-1.5, 3e9)], i4(-1, -(2**31)), WITHIN, {"to": 6},
             ours=i4(-1, int(3e9) - 2**32)),
    Recorded("ReduceMean", [i8(LARGE, LARGE)], i8(2**62), SUM, ours=i8(-(2**62) + 1)),
    Recorded("ReduceMean", [i8(-7, 0), i8(0)], i8(-3), SUM),
    Recorded("ReduceSumSquare", [i4(50_000)], i4(2**31 - 1), SUM, ours=i4(-1_794_967_296)),
    Recorded("ReduceProd", [i4(65_536, 65_536)], i4(2**31 - 1), PRODUCT, ours=i4(0)),
    Recorded("Slice", [f4(1, 2, 3), i8(-9), i8(-8), i8(0), i8(-2)], f4(1), "exact"),
    Recorded("MaxPool", [f4(1, 2, 3, 4).reshape(1, 1, 4)], f4(2, 3, 4).reshape(1, 1, 3), SAME,
             {**WINDOW, "dilations": [2], "auto_pad": "SAME_LOWER"},
             ours=f4(2, 3, 4, 3).reshape(1, 1, 4)),
    Recorded("MaxPool", [f4(-0.0, 0.0).reshape(1, 1, 2)], f4(-0.0).reshape(1, 1, 1), POOLED,
             WINDOW, ours=f4(0.0).reshape(1, 1, 1)),
    Recorded("MaxPool", [f4(-INF, 1).reshape(1, 1, 2)], i8(0, 1, 1).reshape(1, 1, 3), POOLED,
             {**WINDOW, "pads": [1, 1]}, output=1),
    Recorded("ReduceMax", [f4(-0.0, 0.0)], f4(-0.0), ORDERED, ours=f4(0.0)),
    Recorded("ArgMax", [f4(1, NAN, 2)], i8(2), "exact if no element is NaN", ours=i8(1)),
    Recorded("DynamicQuantizeLinear", [f4(0, 0)], np.float32(1),
             "exact if every element is finite, and so is the scale, which is not zero", output=1,
             ours=np.float32(0)),
    Recorded("Resize", [TEN, NONE, f4(0.7)], f4(0, 1, 2, 4, 5, 7, 8), "exact", NEAREST),
    Recorded("Resize", [FIVE, NONE, f4(2.6)], f4(0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4), "exact",
             NEAREST),
    Recorded("Resize", [FIVE, NONE, f4(1.1)], FIVE, COPIES, NEAREST, ours=f4(0, 0, 1, 2, 3)),
    Recorded("Resize", [TEN, NONE, f4(0.35)], f4(0, 4, 9), CORNERS,
             {**NEAREST, "coordinate_transformation_mode": "align_corners"}, ours=f4(0, 3, 7)),
    Recorded("Range", [np.array(v) for v in (0.0, 2.0, 0.3)], np.add.accumulate([0, *[0.3] * 6]),
             "exact", constants=0),
    Recorded("Pad", [f4(1, 2, 3), i8(-1, 3)], f4(2, 3, 2, 3, 2), "exact", {"mode": "wrap"}),
    Recorded("Squeeze", [f4(1).reshape(1, 1), i8()], f4(1).reshape(()),
             "unlike onnxruntime, which takes no axes for all of them", ours=f4(1).reshape(1, 1)),
    Recorded("Dropout", [f4(1)], np.array([False]),
             "unlike onnxruntime, whose mask of these opsets is false",
             opset=11, output=1, ours=np.array([True])),
    Recorded("AffineGrid", [f4([[1, 2, 3], [4, 5, 6]]), i8(1, 1, 1, 2)],
             f4([[[4, 7], [6, 15]]]), ROUNDED.bound, {"align_corners": 1}),
    Recorded("ReduceMin", [f4(2, 1), i8()], f4(2, 1), ORDERED,
             {"keepdims": 0, "noop_with_empty_axes": 1}),
]  # fmt: skip
IDS = [f"{n}-{c.op}" for n, c in enumerate(CASES)]


def kind_of(x: Any) -> int:
    return helper.np_dtype_to_tensor_dtype(np.asarray(x).dtype)


def model_of(c: Recorded) -> tuple[Any, dict[str, np.ndarray]]:
    """The model of a case, and its inputs."""
    arrays = {f"x{n}": np.asarray(x) for n, x in enumerate(c.inputs)}
    feed = dict(list(arrays.items())[: c.constants])
    outputs = [f"y{n}" for n in range(c.output + 1)]
    if c.op == "DynamicQuantizeLinear":
        outputs = ["y0", "y1", "y2"]
    node = helper.make_node(c.op, list(arrays), outputs, **c.attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, kind_of(x), x.shape) for n, x in feed.items()],
        [
            helper.make_tensor_value_info(
                outputs[c.output], kind_of(c.wanted), [None] * np.ndim(c.wanted)
            )
        ],
        [numpy_helper.from_array(x, n) for n, x in arrays.items() if n not in feed],
    )
    opsets = [helper.make_opsetid("", c.opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), feed


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_verdicts_on_what_onnxruntime_computes_its_own_way(case: Recorded) -> None:
    model, feed = model_of(case)
    module = cvm.from_onnx(model)
    (v,) = verdicts(module, "onnxruntime")
    assert (
        f"exact if {v.said}" if v.verdict == "exact if" else v.said or v.verdict
    ) == case.verdict
    wanted = case.wanted if case.ours is None else case.ours
    for target in ("reference", "cpu"):
        found: Any = cvm.compile(module, target=target)(*feed.values())
        assert same_bits(np.asarray(found), np.asarray(wanted)), (found, wanted)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_what_onnxruntime_computes_is_as_recorded(case: Recorded) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    here = f"onnxruntime {onnxruntime.__version__} on x86-64, {host_name()}"
    if here != PROGRAMS["onnxruntime"]:
        pytest.skip(f"recorded with {PROGRAMS['onnxruntime']}, here is {here}")
    model, feed = model_of(case)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (found,) = session.run(None, feed)
    assert same_bits(np.asarray(found), np.asarray(case.wanted)), (found, case.wanted)


def test_ranges_decide_whether_sums_of_integers_overflow() -> None:
    def verdict(kind: int) -> str:
        nodes = [
            helper.make_node("Cast", ["x"], ["wide"], to=onnx.TensorProto.INT32),
            helper.make_node("ReduceSum", ["wide"], ["y"]),
        ]
        x = helper.make_tensor_value_info("x", kind, [100])
        y = helper.make_tensor_value_info("y", onnx.TensorProto.INT32, [1])
        graph = helper.make_graph(nodes, "g", [x], [y])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
        return verdicts(cvm.from_onnx(model), "onnxruntime")[1].verdict

    assert verdict(onnx.TensorProto.INT16) == "exact"
    assert verdict(onnx.TensorProto.INT32) == "exact if"


def test_sizes_that_are_cast_have_the_type_that_the_model_states() -> None:
    nodes = [
        helper.make_node("Size", ["x"], ["n"]),
        helper.make_node("Cast", ["n"], ["y"], to=onnx.TensorProto.INT16),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N"])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.INT16, [])
    graph = helper.make_graph(nodes, "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    found: Any = cvm.compile(cvm.from_onnx(model))(np.zeros(7, "f4"))
    assert found.dtype == np.int16 and found == 7


@pytest.mark.parametrize("name", REFERENCES)
def test_random_cases_are_as_certified(name: str) -> None:
    reference = REFERENCES[name]
    if not reference.is_installed():
        pytest.skip(f"{reference.package} is not installed")
    outcomes = [reference.outcome(seed).partition(":")[0] for seed in range(TIMES)]
    assert sum(o in ("exact", "exact if") for o in outcomes) > TIMES // 3


def test_the_attack_says_which_packages_it_lacks() -> None:
    """Cover the absence of all three programs, and of some of them."""
    command = [sys.executable, "-m", "tests.fuzz", "--attack", "certificates", "--times", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == (0 if installed() else 2)
    for package, module in (("onnxruntime", "onnxruntime"), ("ai-edge-litert", "ai_edge_litert")):
        assert (package in done.stdout) == (importlib.util.find_spec(module) is None)
