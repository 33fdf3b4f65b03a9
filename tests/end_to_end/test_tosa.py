"""TOSA graphs, read from flatbuffers, compute what the specification says: on every target here, and as Arm's model does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tosa_graphs import CASES, MODEL, by_reference_model, make, spoiled
from tosa_models import packed, write

import cvm
from cvm.importers.flatbuffer import Damaged
from cvm.importers.tosa.flatbuffer import read
from cvm.importers.tosa.schema import Operator, unpacked

SEEDS = range(len(CASES))
IDS = list(CASES)


@pytest.mark.parametrize("seed", SEEDS, ids=IDS)
def test_targets_agree(seed: int) -> None:
    _, made = make(seed)
    module = cvm.from_tosa(write(made.graph))
    wanted = cvm.compile(module, target="reference")(*made.feed.values())
    for optimize in (0, 2):
        np.testing.assert_array_equal(cvm.compile(module, optimize=optimize)(*made.feed.values()), wanted, strict=True)


@pytest.mark.skipif(MODEL is None, reason="tosa_reference_model is not installed")
@pytest.mark.parametrize("seed", SEEDS, ids=IDS)
def test_agrees_with_the_reference_model(seed: int, tmp_path: Path) -> None:
    _, made = make(seed)
    wanted = by_reference_model(made, tmp_path)
    assert wanted is not None, "the model finds the graph unpredictable"
    found = cvm.compile(cvm.from_tosa(write(made.graph)))(*made.feed.values())
    np.testing.assert_array_equal(found.astype(wanted.dtype), wanted, strict=True)


@pytest.mark.parametrize("seed", [s + k * len(IDS) for k in range(2) for s in SEEDS])
def test_what_breaks_a_rule_is_refused(seed: int) -> None:
    """A graph that Arm's reference model rejects as wrong is refused, with the operator named."""
    name, made = make(seed)
    for rule, graph in spoiled(made.graph):
        try:
            cvm.from_tosa(write(graph))
        except cvm.ParseError as e:
            assert all(graph.operators[-1].op in n.message for n in e.diagnostics[0].notes), (name, rule)
        else:
            pytest.fail(f"{name}: {rule} is accepted")


def test_a_file_reads_as_it_was_written() -> None:
    _, made = make(0)
    again = read(write(made.graph))
    assert [o.op for o in again.operators] == [o.op for o in made.graph.operators]
    assert again.inputs == made.graph.inputs and again.outputs == made.graph.outputs
    for name, t in made.graph.tensors.items():
        other = again.tensors[name]
        assert other.shape == t.shape and other.type == t.type
        np.testing.assert_array_equal(other.data, t.data)


@pytest.mark.parametrize(
    ("type", "values"), [("INT4", [-7, 7, -1]), ("INT48", [-(1 << 47), (1 << 47) - 1, -1]), ("BOOL", [True, False])]
)
def test_narrow_constants(type: str, values: list[int]) -> None:
    array = np.array(values)
    np.testing.assert_array_equal(unpacked(np.frombuffer(packed(array, type), np.uint8), type, array.shape), array)


def test_all_refusals_are_said_at_once() -> None:
    _, made = make(IDS.index("IDENTITY"))
    (x,) = made.graph.inputs
    made.graph.operators += [
        Operator("ERF", {}, (x,), ("a",)),
        Operator("CUSTOM", {}, (x,), ("b",)),
        Operator("ERF", {}, (x,), ("c",)),
    ]
    with pytest.raises(cvm.ParseError, match="3 operators of the model cannot be imported") as error:
        cvm.from_tosa(write(made.graph))
    notes = [n.message for n in error.value.diagnostics[0].notes]
    assert notes == ["2 x ERF: it has no rule (operators 1, 3)", "1 x CUSTOM: it has no rule (operator 2)"]


@pytest.mark.parametrize("seed", range(60))
def test_damaged_files_are_refused(seed: int) -> None:
    """Bytes changed at random give an error, or another program, but never a crash."""
    _, made = make(seed % 3)
    data, random = bytearray(write(made.graph)), np.random.default_rng(seed)
    for at in random.integers(0, len(data), 3):
        data[at] = random.integers(256)
    try:
        cvm.from_tosa(bytes(data[: random.integers(1, len(data) + 1)] if seed % 4 == 0 else data))
    except cvm.Error as e:
        assert e.diagnostics


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(cvm.ParseError, match="identifier"):
        cvm.from_tosa(b"no model at all")
    with pytest.raises(cvm.ParseError, match="no such file"):
        cvm.from_tosa(tmp_path / "none.tosa")
    with pytest.raises(Damaged):
        read(b"\x10\0\0\0TOSA")
