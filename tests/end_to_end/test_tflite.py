"""Models of TensorFlow Lite: equal to LiteRT's reference kernels in every byte, on every target;
damaged files are diagnosed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_cases import (
    CASES,
    EXPECTED,
    FOLDER,
    SAMPLES,
    Draw,
    digest,
    inputs,
    models,
    of_litert,
    one,
)

import cvm
from cvm.importers.tflite.rules import RULES
from cvm.importers.tflite.schema import OPERATORS
from cvm.importers.tflite.writer import Operator, Tensor, model

RECORDED = json.loads(EXPECTED.read_text("utf-8"))
MODELS = {name: (data, count) for name, data, count in models()}
PUBLISHED = [name for name in MODELS if name not in CASES]
TARGETS: list[dict[str, Any]] = [
    {"target": "cpu"},
    {"target": "cpu", "cpu": "x86-64-v2"},
    {"target": "cpu", "cpu": "x86-64-v3"},
    {"target": "cpu", "optimize": 0},
    {"target": "cuda-sim"},
]


def outputs(name: str, count: int, **how: Any) -> list[list[np.ndarray]]:
    """The outputs of calls in turn; state is passed on."""
    data = MODELS[name][0]
    module = cvm.from_tflite(data)
    main = module.functions["main"]
    f = cvm.compile(module, **how)
    states = [module.state[a.name] for a in main.arguments if a.name in module.state]
    details = [
        (a.known_type.array_shape, a.known_type.element.dtype)
        for a in main.arguments
        if a.name not in module.state
    ]
    rows: list[list[np.ndarray]] = []
    for sample in inputs(name, details, count):  # type: ignore[arg-type]
        found = f(*sample, *states)
        found = list(found) if isinstance(found, tuple) else [found]
        states = found[len(found) - len(states) :]
        rows.append(found[: len(found) - len(states)])
    return rows


@pytest.mark.sample(70)
@pytest.mark.parametrize("name", CASES)
def test_an_operator_equals_the_reference_kernel(name: str) -> None:
    count = MODELS[name][1]
    found = outputs(name, count, target="reference" if count == SAMPLES else "cpu")
    assert digest(found) == RECORDED[name]
    if count > SAMPLES:
        assert digest(outputs(name, SAMPLES, target="reference")) == digest(found[:SAMPLES])


@pytest.mark.parametrize("how", TARGETS, ids=lambda how: "-".join(map(str, how.values())))
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_equals_the_reference_kernels(name: str, how: dict[str, Any]) -> None:
    if how["target"] == "cuda-sim":
        few = outputs(name, 2, **how)
        for got, expected in zip(few, outputs(name, 2), strict=True):
            assert all(map(np.array_equal, got, expected))
    else:
        assert digest(outputs(name, MODELS[name][1], **how)) == RECORDED[name]


def test_bytes_do_not_depend_on_threads() -> None:
    before = cvm.get_num_threads()
    try:
        for n in (1, 2):
            cvm.set_num_threads(n)
            assert digest(outputs(PUBLISHED[1], MODELS[PUBLISHED[1]][1])) == RECORDED[PUBLISHED[1]]
    finally:
        cvm.set_num_threads(before)


@pytest.mark.parametrize("name", MODELS)
def test_litert_gives_what_was_recorded(name: str) -> None:
    litert = pytest.importorskip("ai_edge_litert")
    if litert.__version__ != RECORDED["ai-edge-litert"]:
        pytest.skip(f"recorded with {RECORDED['ai-edge-litert']}")
    assert of_litert(name, *MODELS[name]) == RECORDED[name]


def test_damaged_files_are_diagnosed() -> None:
    data = (FOLDER / "hello_world_int8.tflite").read_bytes()
    random = np.random.default_rng(0)
    for n in range(300):
        broken = bytearray(data if n % 3 else data[: int(random.integers(0, len(data)))])
        for at in random.integers(8, max(len(broken), 9), 1 + n % 7):
            if at < len(broken):
                broken[at] = random.integers(256)
        try:
            cvm.from_tflite(bytes(broken))
        except cvm.ParseError as e:
            assert e.diagnostics[0].message.startswith(
                ("the model", "1 operator", "2 operator", "3 operator")
            )
    for wrong, said in (
        (b"", "identifier"),
        (b"\0" * 64, "identifier"),
        (b"\xff\xff\xff\x7fTFL3", "refers to bytes"),
    ):
        with pytest.raises(cvm.ParseError, match=said):
            cvm.from_tflite(wrong)
    with pytest.raises(cvm.ParseError, match="no such file"):
        cvm.from_tflite("nowhere.tflite")


def test_all_refusals_at_once() -> None:
    x, y = (Tensor((2, 3), "FLOAT32") for _ in range(2))
    nodes = [
        Operator("WHERE", [0], [1]),
        Operator("HASHTABLE_SIZE", [0], [1]),
        Operator("HASHTABLE_SIZE", [0], [1]),
    ]
    nodes.append(Operator("MULTINOMIAL", [0], [1]))
    with pytest.raises(cvm.ParseError) as refused:
        cvm.from_tflite(model([x, y], nodes, [0], [1]))
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.message == "4 operators of the model cannot be imported"
    assert [n.message for n in diagnostic.notes] == [
        "2 x HASHTABLE_SIZE: the language has no tables of strings (operators 1, 2)",
        "1 x WHERE: its output's shape depends on the data (operator 0)",
        "1 x MULTINOMIAL: it draws random numbers (operator 3)",
    ]


# of a 4 x 6 matrix, the stored elements of which are 2 x 2 blocks, two in the first row of blocks
# and one in the second
BLOCKS = {
    "traversal_order": [0, 1, 2, 3],
    "block_map": [0, 1],
    "dim_metadata": [
        {"format": 0, "dense_size": 2},
        {
            "format": 1,
            "array_segments_type": 3,
            "array_segments": ("Uint8Vector", {"values": [0, 2, 3]}),
            "array_indices_type": 2,
            "array_indices": ("Uint16Vector", {"values": [0, 2, 1]}),
        },
        {"format": 0, "dense_size": 2},
        {"format": 0, "dense_size": 2},
    ],
}


def with_sparse(sparsity: dict[str, Any], count: int = 12, densify: bool = True) -> bytes:
    stored = np.arange(1, count + 1, dtype=np.float32)
    tensors = [
        Tensor((1, 6), "FLOAT32"),
        Tensor((4, 6), "FLOAT32", data=stored, sparsity=sparsity),
        Tensor((4, 6), "FLOAT32"),
        Tensor((1, 4), "FLOAT32"),
    ]
    nodes = [Operator("DENSIFY", [1], [2])] if densify else []
    nodes.append(Operator("FULLY_CONNECTED", [0, 2 if densify else 1, -1], [3]))
    return model(tensors, nodes, [0], [3])


@pytest.mark.parametrize("densify", (True, False))
def test_sparse_constants_are_put_in_their_places(densify: bool) -> None:
    f = cvm.compile(cvm.from_tflite(with_sparse(BLOCKS, densify=densify)))
    w = np.array(
        [[1, 2, 0, 0, 5, 6], [3, 4, 0, 0, 7, 8], [0, 0, 9, 10, 0, 0], [0, 0, 11, 12, 0, 0]]
    )
    for n in range(6):
        assert f(np.eye(6, dtype=np.float32)[n : n + 1]).tolist() == [w[:, n].tolist()]


@pytest.mark.parametrize(
    ("change", "count", "said"),
    (
        ({}, 11, "12 elements has 11"),
        ({"traversal_order": [0, 1, 2, 2]}, 12, "4 levels of 4"),
        ({"block_map": [0, 2]}, 12, "4 levels"),
        ({"dim_metadata": BLOCKS["dim_metadata"][:3]}, 12, "3 levels of 4"),
        (
            {"dim_metadata": [{"format": 0, "dense_size": 3}, *BLOCKS["dim_metadata"][1:]]},
            12,
            "3 pl",
        ),
        ({"traversal_order": [1, 0, 2, 3]}, 12, "sparse tensor of shape"),
        ({"dim_metadata": [BLOCKS["dim_metadata"][n] for n in (1, 0, 2, 3)]}, 12, "beyond it"),
    ),
)
def test_damaged_sparse_constants_are_diagnosed(
    change: dict[str, Any], count: int, said: str
) -> None:
    with pytest.raises(cvm.ParseError, match=said):
        cvm.from_tflite(with_sparse({**BLOCKS, **change}, count))


def test_states_of_one_name_are_told_apart() -> None:
    tensors = [Tensor((1, 3), "FLOAT32"), Tensor((2, 3), "FLOAT32", data=np.eye(2, 3))]
    tensors += [Tensor((2, 4), "FLOAT32", data=np.ones((2, 4)))]
    tensors += [Tensor((1, 8), "FLOAT32", variable=True, name="state"), Tensor((1, 2), "FLOAT32")]
    tensors += [Tensor((3, 2), "FLOAT32", data=np.ones((3, 2)))]
    tensors += [Tensor((3, 5), "FLOAT32", data=np.ones((3, 5)))]
    tensors += [Tensor((1, 15), "FLOAT32", variable=True, name="state"), Tensor((1, 3), "FLOAT32")]
    nodes = [
        Operator("SVDF", [0, 1, 2, -1, 3], [4], {"rank": 1}),
        Operator("SVDF", [4, 5, 6, -1, 7], [8], {"rank": 1}),
    ]
    module = cvm.from_tflite(model(tensors, nodes, [0], [8]))
    assert [a.shape for a in module.state.values()] == [(1, 8), (1, 15)]
    y, *state = cvm.compile(module)(np.ones((1, 3), np.float32), *module.state.values())
    assert y.tolist() == [[2, 2, 2]] and [s.sum() for s in state] == [2, 6]


def test_hybrid_operators_are_refused() -> None:
    d = Draw("hybrid")
    with pytest.raises(cvm.ParseError) as refused:
        cvm.from_tflite(
            one(
                "FULLY_CONNECTED",
                [Tensor((3, 20), "FLOAT32"), d.weights((7, 20), scale=0.1)],
                [Tensor((3, 7), "FLOAT32")],
            )
        )
    assert "hybrid" in refused.value.diagnostics[0].notes[0].message


def recurrent(**change: Any) -> bytes:
    """A layer of 3 cells; its tensors by name are changed, or put at an input that it does not
    have.
    """
    w, b = (
        Tensor((3, 3), "INT8", 0.01, data=np.ones((3, 3))),
        Tensor((3,), "INT32", 1e-4, data=np.zeros(3)),
    )
    named = {
        "x": Tensor((2, 1, 3), "INT8", 0.02),
        "h": Tensor((1, 3), "INT8", 0.01, variable=True, name="h"),
        "c": Tensor((1, 3), "INT16", 2.0**-11, variable=True, name="c"),
        "hidden": Tensor((), "INT8", 0.01),
        "y": Tensor((2, 1, 3), "INT8", 0.01),
        "w": w,
        "b": b,
    } | {k: v for k, v in change.items() if not k.startswith("at_")}
    inputs = [0, *[5] * 8, *[-1] * 3, *[6] * 4, -1, -1, 1, 2, *[-1] * 4]
    for k in (k for k in change if k.startswith("at_")):
        inputs[int(k[3:])] = -1 if change[k] is None else 6
    more = {"intermediates": change.get("intermediates", [3] * 5)}
    node = Operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [4], {"time_major": True}, 3, more)
    return model([v for k, v in named.items() if k != "intermediates"], [node], [0], [4])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"at_21": True}, "layer normalisation is not supported"),
        ({"x": Tensor((2, 1, 3), "FLOAT32")}, "a layer of f32 is not supported"),
        ({"c": Tensor((1, 3), "INT16", 0.001, variable=True, name="c")}, "a cell of scale 0.001"),
        ({"x": Tensor((2, 1, 4), "INT8", 0.02)}, "dim(x, 1) = dim(w, 1)"),
        ({"at_2": None}, "input 2 is absent"),
        ({"at_18": None}, "input 18 is absent"),
        ({"intermediates": []}, "it is not as TensorFlow Lite defines it"),
        ({"w": Tensor((3, 3), "INT8", None, data=np.ones((3, 3)))}, "0 scales of"),
    ],
)
def test_recurrent_layers_that_are_refused(change: dict[str, Any], said: str) -> None:
    cvm.from_tflite(recurrent())
    with pytest.raises(cvm.ParseError) as refused:
        cvm.from_tflite(recurrent(**change))
    assert said in refused.value.diagnostics[0].notes[0].message


def test_sizes_of_inputs() -> None:
    module = cvm.from_tflite(
        MODELS["hello_world_int8.tflite"][0], sizes={"serving_default_dense_input:0": [-1, 1]}
    )
    x = np.arange(-128, 128).astype(np.int8).reshape(-1, 1)
    alone = cvm.compile(cvm.from_tflite(MODELS["hello_world_int8.tflite"][0]))
    assert np.array_equal(cvm.compile(module)(x), np.concatenate([alone(row[None]) for row in x]))
    with pytest.raises(cvm.ParseError, match="no input"):
        cvm.from_tflite(MODELS["hello_world_int8.tflite"][0], sizes={"x": [1, 1]})


def test_import_by_the_command_line(tmp_path: Path) -> None:
    from cvm.cli import main

    program = tmp_path / "micro.cvm"
    assert main(["import", str(FOLDER / "micro_speech_quantized.tflite"), "-o", str(program)]) == 0
    x = inputs("x", [((1, 1960), np.dtype("i1"))], 1)[0][0]
    assert np.array_equal(
        cvm.compile(program)(x),
        cvm.compile(cvm.from_tflite(FOLDER / "micro_speech_quantized.tflite"))(x),
    )


def test_the_table_of_rules_names_operators() -> None:
    assert set(RULES) <= set(OPERATORS)
