"""Models that CVM-Runtime's own Python interface wrote, imported: they need no operator we do not
have.

A folder of `models/` holds a graph (`symbol`, JSON), its constants (`params`), an input and the
runtime's output.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvm
from cvm import cli
from cvm.importers.cvm_runtime import program_text, read_model, read_params

MODELS = sorted(p.parent for p in (Path(__file__).parents[1] / "models").glob("*/symbol"))
CONVNET = next(m for m in MODELS if m.name == "convnet")


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
def test_the_model_gives_what_the_runtime_gave(model: Path, target: str, tmp_path: Path) -> None:
    program = tmp_path / f"{model.name}.cvm"
    assert cli.main(["import", str(model), "-o", str(program)]) == 0
    got = cvm.compile(program, target=target)(np.load(model / "data.npy"))
    np.testing.assert_array_equal(got, np.load(model / "result_full_int32.npy"), strict=True)


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
def test_on_standard_output_the_program_is_whole(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["import", str(model / "symbol")]) == 0
    text = capsys.readouterr().out
    assert "file(" not in text
    got = cvm.compile(text)(np.load(model / "data.npy"))
    np.testing.assert_array_equal(got, np.load(model / "result_full_int32.npy"), strict=True)


def test_names_are_the_models_where_the_language_takes_them(tmp_path: Path) -> None:
    graph = json.loads((CONVNET / "symbol").read_text())
    graph["nodes"][3]["name"] = 'evil") {\n'
    text = program_text(read_model(changed(tmp_path, graph)), "w.npz")
    assert "%evil_____ = cvm.conv2d %data, %c1w, %c1b" in text
    assert 'const file("w.npz", "c1w") : tensor<' in text and "%data: tensor<" in text
    cvm.parse(program_text(read_model(tmp_path), None))


def changed(folder: Path, graph: Any, params: bytes | None = None) -> Path:
    """The convolutional model with another graph or other params."""
    shutil.copytree(CONVNET, folder, dirs_exist_ok=True)
    (folder / "symbol").write_text(graph if isinstance(graph, str) else json.dumps(graph))
    if params is not None:
        (folder / "params").write_bytes(params)
    return folder


Edit = Callable[[dict[str, Any]], Any]
EDITS: dict[str, tuple[Edit, str]] = {
    "no nodes": (lambda g: g.pop("nodes"), "the graph needs 'nodes'"),
    "another key": (
        lambda g: g.update(extra=1),
        "the graph has no 'extra'; it has arg_nodes, attrs, heads, ",
    ),
    "version": (
        lambda g: g.update(version="2"),
        "expected version cvm_1.0.0 or cvm_1.1.0, got '2'",
    ),
    "rows": (lambda g: g.update(node_row_ptr=[0]), "node_row_ptr is [0, 1, 2, 3,"),
    "arguments": (lambda g: g.update(arg_nodes=[0]), "arg_nodes is [0, 1, 2,"),
    "later node": (
        lambda g: g["nodes"][3]["inputs"].append([4, 0, 0]),
        "an input of node 3 is of an earlier node, got 4",
    ),
    "output": (
        lambda g: g["nodes"][3]["inputs"].append([0, 1, 0]),
        "an input of node 3: node 0 has no output 1",
    ),
    "entry": (
        lambda g: g["nodes"][3]["inputs"].append("x"),
        "an input of node 3 is [node, output], got 'x'",
    ),
    "kind": (
        lambda g: g["nodes"][0].update(op="tvm_op"),
        "node 0 is a null or a cvm_op, got 'tvm_op'",
    ),
    "function": (lambda g: g["nodes"][3]["attrs"].pop("func_name"), "node 3 needs a func_name"),
    "shape": (lambda g: g["attrs"]["shape"][1][1].append(2), "variable 'c1w' has shape"),
    "shapes": (lambda g: g["attrs"]["shape"][1].pop(), "shape has "),
    "attributes": (
        lambda g: g["attrs"]["op_attrs"][1].__setitem__(3, "[1]"),
        "the op_attrs of node 3 are an object of strings",
    ),
    "head": (lambda g: g.update(heads=[[99, 0, 0]]), "a head is of an earlier node, got 99"),
    "variable": (
        lambda g: g["nodes"][1].update(name="c2w"),
        "variable 'c2w' is not among the params",
    ),
    "twice": (lambda g: g["nodes"][1].update(name="c1b"), "the names of variables are distinct"),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_graph_that_is_none_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit, said = EDITS[name]
    graph = json.loads((CONVNET / "symbol").read_text())
    edit(graph)
    assert cli.main(["import", str(changed(tmp_path, graph))]) == 1
    assert f"symbol:1:1: error[import]: {said}" in capsys.readouterr().err


def test_an_operation_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = json.loads((CONVNET / "symbol").read_text())
    graph["nodes"][3]["attrs"]["func_name"] = "conv3d"
    assert cli.main(["import", str(changed(tmp_path, graph))]) == 1
    assert "cvm.conv3d" in capsys.readouterr().err


@pytest.mark.parametrize("cut", range(0, 1900, 97))
def test_params_that_end_early_are_refused(cut: int) -> None:
    data = (CONVNET / "params").read_bytes()
    whole = read_params(data)
    with pytest.raises(cvm.ParseError, match=r"the params end after|longer than the params|begin"):
        read_params(data[:cut])
    np.testing.assert_equal(read_params(data + b"tail"), whole)


def test_damaged_params_are_refused_or_read() -> None:
    data = (CONVNET / "params").read_bytes()
    for at in range(0, len(data), 7):
        with_damage = bytearray(data)
        with_damage[at] ^= 0xFF
        try:
            read_params(bytes(with_damage))
        except cvm.Error as e:
            assert e.diagnostics[0].code == "import"


@pytest.mark.parametrize(
    "symbol", ["", "[", "[]", "3", '{"nodes": 1, "heads": 2, "attrs": 3}', "[" * 100_000]
)
def test_what_is_no_graph_is_refused(
    symbol: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["import", str(changed(tmp_path, symbol))]) == 1
    assert "symbol:1:1: error[import]: " in capsys.readouterr().err


def test_a_missing_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("none", "none.onnx"):
        assert cli.main(["import", str(tmp_path / name)]) == 1
        assert (
            f"{name}:1:1: error[import]: the model cannot be read: no such file or directory"
            in capsys.readouterr().err
        )
