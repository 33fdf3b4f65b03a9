"""ONNX's recurrent layers and loops become loops of the program, which give what their steps one
after the other give.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvm
from cvm import cli

onnx = pytest.importorskip("onnx")

from onnx_node_tests import node_tests, results  # noqa: E402

from cvm.importers.onnx import imported  # noqa: E402

helper, numpy_helper = onnx.helper, onnx.numpy_helper
F, I64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
info = helper.make_tensor_value_info


def recurrent(op: str, steps: Any, direction: str = "forward", lengths: bool = False) -> Any:
    random = np.random.default_rng(0)
    gates, turns = {"RNN": 1, "GRU": 3, "LSTM": 4}[op], 1 + (direction == "bidirectional")
    shapes = {"w": (turns, gates * 6, 5), "r": (turns, gates * 6, 6), "b": (turns, 2 * gates * 6)}
    given = [
        numpy_helper.from_array(random.normal(size=s).astype(np.float32), n)
        for n, s in shapes.items()
    ]
    inputs = ["x", "w", "r", "b", *(["n"] if lengths else [])]
    node = helper.make_node(op, inputs, ["y", "h"], hidden_size=6, direction=direction)
    arguments = [
        info("x", F, [steps, 2, 5]),
        *([info("n", onnx.TensorProto.INT32, [2])] if lengths else []),
    ]
    results = [info("y", F, ["T", "D", 2, 6]), info("h", F, ["D", 2, 6])]
    return helper.make_model(
        helper.make_graph([node], "g", arguments, results, given),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )


def without_unrolling(model: Any, sizes: Any, constants: Any) -> Any:
    return imported(model, sizes, constants, unrolled_steps=0)[0]


@pytest.mark.slow
def test_node_tests_as_loops() -> None:
    found = list(results(node_tests(), "cpu", "lstm|gru|rnn|scan|loop", without_unrolling))
    assert [r for r in found if r.outcome in ("wrong", "failed")] == []
    assert sum(r.outcome == "right" for r in found) >= 20


@pytest.mark.sample(3)
@pytest.mark.parametrize("lengths", [False, True], ids=["whole", "lengths"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers(op: str, direction: str, lengths: bool) -> None:
    x = np.random.default_rng(1).normal(size=(9, 2, 5)).astype(np.float32)
    given = [x, np.array([4, 9], np.int32)] if lengths else [x]
    module = cvm.from_onnx(recurrent(op, 9, direction, lengths))
    assert sum(len(f.operations) for f in module.functions.values()) < 120
    found = cvm.compile(module)(*given)
    of_any_length = cvm.compile(cvm.from_onnx(recurrent(op, "T", direction, lengths)))(*given)
    unrolled, _ = imported(recurrent(op, 9, direction, lengths), {}, {}, unrolled_steps=100)
    wanted = cvm.compile(unrolled)(*given)
    for got, other, exact in zip(found, of_any_length, wanted, strict=True):
        np.testing.assert_array_equal(got, exact)
        np.testing.assert_allclose(other, exact, atol=1e-6)


def looped(body: list[Any], outputs: list[str], trips: Any = None) -> Any:
    """A Loop from x, of bodies that give `going` and `next` and further outputs."""
    names = ["going", "next", *(f"out{n}" for n in range(len(outputs)))]
    graph = helper.make_graph(
        body,
        "body",
        [info("i", I64, []), info("cond", BOOL, []), info("v", F, [3])],
        [info("going", BOOL, []), info("next", F, [3]), *(info(n, F, [3]) for n in outputs)],
    )
    node = helper.make_node(
        "Loop", ["trips" if trips is not None else "", "", "x"], ["last", *names[2:]], body=graph
    )
    given = [
        numpy_helper.from_array(np.array(n, dtype), k)
        for k, n, dtype in (
            ("one", 1, np.float32),
            ("limit", 100, np.float32),
            ("two", 2, np.float32),
        )
    ]
    given += (
        [numpy_helper.from_array(np.array(trips, np.int64), "trips")]
        if isinstance(trips, int)
        else []
    )
    inputs = [info("x", F, [3]), *([info("trips", I64, [])] if trips == "argument" else [])]
    graph = helper.make_graph(
        [node],
        "g",
        inputs,
        [info("last", F, [3]), *(info(n, F, ["T", 3]) for n in names[2:])],
        given,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


DOUBLE = [helper.make_node("Mul", ["v", "two"], ["next"])]
BELOW = [
    helper.make_node("ReduceMax", ["next"], ["most"], keepdims=0),
    helper.make_node("Less", ["most", "limit"], ["going"]),
]
ALWAYS = [helper.make_node("Identity", ["cond"], ["going"])]
X = np.array([1, 2, 3], np.float32)


def test_steps_while_data_says_so() -> None:
    np.testing.assert_array_equal(
        cvm.compile(cvm.from_onnx(looped([*DOUBLE, *BELOW], [])))(X), X * 64
    )
    model = looped([*DOUBLE, *BELOW], ["next"])
    with pytest.raises(cvm.Error, match="how much it gives depends on the data"):
        cvm.from_onnx(model)


def test_as_many_steps_as_an_argument_says() -> None:
    f = cvm.compile(cvm.from_onnx(looped([*DOUBLE, *BELOW], [], "argument")))
    for trips, wanted in ((0, 1), (1, 2), (3, 8), (50, 64)):
        np.testing.assert_array_equal(f(X, np.array(trips, np.int64)), X * wanted)


def test_a_known_number_of_steps(tmp_path: Path) -> None:
    counted = [
        *DOUBLE,
        *ALWAYS,
        helper.make_node("Cast", ["i"], ["number"], to=F),
        helper.make_node("Add", ["v", "number"], ["out"]),
    ]
    model = looped(counted, ["out"], 20)
    module = cvm.from_onnx(model)
    assert len(module.functions) == 2
    last, all_of_them = cvm.compile(module)(X)
    np.testing.assert_array_equal(last, X * 2**20)
    np.testing.assert_array_equal(
        all_of_them, np.arange(20, dtype=np.float32)[:, None] + X * 2.0 ** np.arange(20)[:, None]
    )
    path, program = tmp_path / "model.onnx", tmp_path / "model.cvm"
    path.write_bytes(model.SerializeToString())
    assert cli.main(["import", str(path), "-o", str(program)]) == 0
    np.testing.assert_array_equal(cvm.compile(program)(X)[1], all_of_them)


def test_steps_that_need_their_number_are_imported_one_by_one() -> None:
    """A slice whose bounds depend on the number of the step."""
    body = [
        *ALWAYS,
        helper.make_node("Mod", ["i", "three"], ["at"]),
        helper.make_node("Add", ["at", "ones"], ["end"]),
        helper.make_node("Mul", ["at", "ones"], ["begin"]),
        helper.make_node("Slice", ["v", "begin", "end"], ["part"]),
        helper.make_node("Add", ["v", "part"], ["next"]),
    ]
    made = looped(body, [], 7)
    for name, value in (("three", 3), ("ones", [1])):
        made.graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
    wanted = X.copy()
    for i in range(7):
        wanted = wanted + wanted[i % 3]
    np.testing.assert_array_equal(cvm.compile(cvm.from_onnx(made))(X), wanted)
