"""TOSA graphs, read from flatbuffers, compute what the specification says: on every target here,
and as Arm's model does.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tosa_graphs import CASES, MODEL, TEXTS, by_reference_model, make, spoiled, text_of

import cvm
from cvm.importers.flatbuffer import Damaged
from cvm.importers.tosa.flatbuffer import read
from cvm.importers.tosa.rules import REFUSED, RULES
from cvm.importers.tosa.schema import OPERATORS, Operator, unpacked
from cvm.importers.tosa.writer import packed, write

SEEDS = range(len(CASES))
IDS = list(CASES)


@pytest.mark.parametrize("seed", SEEDS, ids=IDS)
def test_targets_agree(seed: int) -> None:
    _, made = make(seed)
    module = cvm.from_tosa(write(made.graph))
    wanted = cvm.compile(module, target="reference")(*made.feed.values())
    for optimize in (0, 2):
        np.testing.assert_array_equal(
            cvm.compile(module, optimize=optimize)(*made.feed.values()), wanted, strict=True
        )


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
            assert all(graph.operators[-1].op in n.message for n in e.diagnostics[0].notes), (
                name,
                rule,
            )
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
    ("type", "values"),
    [("INT4", [-7, 7, -1]), ("INT48", [-(1 << 47), (1 << 47) - 1, -1]), ("BOOL", [True, False])],
)
def test_narrow_constants(type: str, values: list[int]) -> None:
    array = np.array(values)
    np.testing.assert_array_equal(
        unpacked(np.frombuffer(packed(array, type), np.uint8), type, array.shape), array
    )


def test_all_refusals_are_said_at_once() -> None:
    _, made = make(IDS.index("IDENTITY"))
    (x,) = made.graph.inputs
    made.graph.operators += [
        Operator("ERF", {}, (x,), ("a",)),
        Operator("CUSTOM", {}, (x,), ("b",)),
        Operator("ERF", {}, (x,), ("c",)),
    ]
    with pytest.raises(
        cvm.ParseError, match="3 operators of the model cannot be imported"
    ) as error:
        cvm.from_tosa(write(made.graph))
    notes = [n.message for n in error.value.diagnostics[0].notes]
    assert notes == [
        "2 x ERF: it computes on floats (operators 1, 3)",
        "1 x CUSTOM: the specification does not say what it computes (operator 2)",
    ]


def test_control_flow_and_variables_are_refused_by_name() -> None:
    _, made = make(IDS.index("IDENTITY"))
    (x,) = made.graph.inputs
    names = ("COND_IF", "WHILE_LOOP", "VARIABLE_WRITE", "VARIABLE_READ", "CONV3D")
    made.graph.operators += [Operator(op, {}, (x,), (f"r{n}",)) for n, op in enumerate(names)]
    with pytest.raises(
        cvm.ParseError, match="5 operators of the model cannot be imported"
    ) as error:
        cvm.from_tosa(write(made.graph))
    found = [n.message for n in error.value.diagnostics[0].notes]
    assert all(f"1 x {op}: {REFUSED[op]}" in note for op, note in zip(names, found, strict=True))


def test_every_operator_has_a_rule_or_a_reason() -> None:
    assert {*OPERATORS[1:]} == {*RULES, *REFUSED} and not RULES.keys() & REFUSED.keys()


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


# The text that tosa-opt prints

PRINTED = json.loads(TEXTS.read_text("utf-8"))
CONVOLUTION = """\
func.func @main(%x: tensor<1x8x8x3xi8>, %w: tensor<4x3x3x3xi8>) -> tensor<1x8x8x4xi32> {
  %b = "tosa.const"() <{values = dense<[1, 2, 3, 4]> : tensor<4xi32>}> : () -> tensor<4xi32>
  %z = "tosa.const"() <{values = dense<-128> : tensor<1xi8>}> : () -> tensor<1xi8>
  %y = tosa.conv2d %x, %w, %b, %z, %z {acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 1, 1>} : (tensor<1x8x8x3xi8>, tensor<4x3x3x3xi8>, tensor<4xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x8x8x4xi32>
  return %y : tensor<1x8x8x4xi32>
}
"""


def equal_programs(text: str, seed: int) -> None:
    _, made = make(seed)
    programs = cvm.from_tosa(text.encode()), cvm.from_tosa(write(made.graph))
    results = [cvm.compile(p, target="reference")(*made.feed.values()) for p in programs]
    np.testing.assert_array_equal(*results, strict=True)


@pytest.mark.parametrize("seed", SEEDS, ids=IDS)
def test_a_text_is_the_graph_of_its_flatbuffer(seed: int) -> None:
    equal_programs(PRINTED[IDS[seed]], seed)


@pytest.mark.skipif(MODEL is None, reason="tosa-opt is not installed")
@pytest.mark.parametrize("seed", SEEDS, ids=IDS)
def test_tosa_opt_prints_what_was_recorded(seed: int, tmp_path: Path) -> None:
    graph = make(seed)[1].graph
    assert text_of(graph, tmp_path) == PRINTED[IDS[seed]]
    equal_programs(text_of(graph, tmp_path, "--mlir-print-op-generic"), seed)


@pytest.mark.parametrize(
    ("type", "array"),
    [
        ("i8", np.arange(-60, 60)),
        ("i4", np.arange(120) % 15 - 7),
        ("i16", np.arange(120) * 200 - 9000),
        ("i32", np.arange(120) << 20),
        ("i48", np.arange(120) << 38),
        ("i1", np.arange(120) % 3 == 0),
    ],
)
def test_constants_in_hexadecimal_digits(type: str, array: np.ndarray) -> None:
    bits = int(type[1:])
    raw = (
        np.packbits(array, bitorder="little")
        if bits == 1
        else array.astype("<i8").view("u1").reshape(-1, 8)[:, : -(-bits // 8)]
    )
    whole = f"tensor<120x{type}>"
    text = f"""func.func @main() -> {whole} {{
      %0 = "tosa.const"() <{{values = dense<"0x{raw.tobytes().hex().upper()}"> : {whole}}}> : () -> {whole}
      return %0 : {whole}
    }}"""
    np.testing.assert_array_equal(
        cvm.compile(cvm.from_tosa(text.encode()), target="reference")(), array
    )


@pytest.mark.parametrize(
    ("old", "new", "marked", "said"),
    [
        (
            "tosa.conv2d %x",
            "tosa.conv2d ?x",
            "?x,",
            "expected a TOSA graph as tosa-opt prints it, got '?x,'",
        ),
        ("return %y : tensor<1x8x8x4xi32>\n}\n", "", "", "got 'its end'"),
        ("%z = ", "%b = ", '%b = "tosa.const"() <{values = dense<-', "%b is defined twice"),
        (
            "(%x: tensor<1x8x8x3xi8>",
            "(%x: tensor<?x8x8x3xi8>",
            "%x",
            "expected a tensor of known sizes, got tensor<?x8x8x3xi8>",
        ),
        (
            "dense<[1, 2, 3, 4]>",
            "dense<[1, 2, 3]>",
            "dense<[1",
            "expected elements of INT32 in the shape (4,)",
        ),
        ("dense<-128>", "dense<-129>", "dense<-129", "expected elements of INT8 in the shape (1,)"),
        ("dense<-128>", "dense_resource<z>", "<z>", "got '<z>'"),
    ],
)
def test_mistakes_in_a_text_are_shown(old: str, new: str, marked: str, said: str) -> None:
    cvm.from_tosa(CONVOLUTION.encode())
    assert old in CONVOLUTION
    text = CONVOLUTION.replace(old, new)
    with pytest.raises(cvm.ParseError) as refused:
        cvm.from_tosa(text.encode())
    (d,) = refused.value.diagnostics
    assert d.span.start == (text.index(marked) if marked else len(text)) and said in d.message
    assert str(d).splitlines()[-1].strip().startswith("^")


def window(pad: int) -> str:
    """A graph of a window of 2 x 2 that moves by two."""
    pool = (
        f'tosa.max_pool2d"(%x) <{{kernel = array<i64: 2, 2>, pad = array<i64: {pad}, 0, 0, 0>, '
        f"stride = array<i64: 2, 2>}}>"
    )
    return f"""func.func @main(%x: tensor<1x4x4x1xi8>) -> tensor<1x2x2x1xi8> {{
      %0 = "{pool} : (tensor<1x4x4x1xi8>) -> tensor<1x2x2x1xi8>
      return %0 : tensor<1x2x2x1xi8>
    }}"""


def difference(a: str, b: str) -> str:
    return f"""func.func @main(%a: tensor<{a}xi32>, %b: tensor<{b}xi32>) -> tensor<{a}xi32> {{
      %0 = tosa.sub %a, %b : (tensor<{a}xi32>, tensor<{b}xi32>) -> tensor<{a}xi32>
      return %0 : tensor<{a}xi32>
    }}"""


def reordered(axes: str) -> str:
    return f"""func.func @main(%a: tensor<4x1x2xi32>) -> tensor<4x1x2xi32> {{
      %0 = tosa.transpose %a {{perms = array<i32: {axes}>}} : (tensor<4x1x2xi32>) -> tensor<4x1x2xi32>
      return %0 : tensor<4x1x2xi32>
    }}"""


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        (reordered("0, 1, 2"), reordered("0, 1, -1"), "perms (0, 1, -1) of 3 dimensions"),
        (window(0), window(1), "a stride that leaves a rest"),
        (
            CONVOLUTION,
            CONVOLUTION.replace("stride = array<i64: 1, 1>", "stride = array<i64: 2, 2>"),
            "a stride that leaves a rest",
        ),
        (difference("3x3", "1x3"), difference("3x3", "3"), "ranks [1, 2]"),
        (
            difference("1x1x1x1x1x2", "1x1x1x1x1x2"),
            difference("1x1x1x1x1x1x2", "1x1x1x1x1x1x2"),
            "at most 6",
        ),
    ],
)
def test_ranks_axes_and_rests_are_refused(good: str, bad: str, said: str) -> None:
    cvm.from_tosa(good.encode())
    assert good != bad
    with pytest.raises(cvm.ParseError, match="cannot be imported") as refused:
        cvm.from_tosa(bad.encode())
    assert said in refused.value.diagnostics[0].notes[0].message


def test_refusals_of_a_text_are_said_at_once_with_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from cvm.cli import main

    path, x = tmp_path / "graph.mlir", "tensor<4xi32>"
    signature = f": ({x}) -> {x}"
    path.write_text(
        f"""func.func @main(%x: {x}) -> {x} {{
  %0 = tosa.erf %x {signature}
  %1 = tosa.custom %9 {{operator_name = "a"}} {signature}
  %2 = tosa.clamp %x {{max_val = 5000000000 : i32, min_val = 0 : i32}} {signature}
  return %x : {x}
}}
""",
        "utf-8",
    )
    assert main(["import", str(path)]) == 1
    said = capsys.readouterr().err
    assert "3 operators of the model cannot be imported" in said
    for line, op in ((2, "ERF"), (3, "CUSTOM"), (4, "CLAMP")):
        assert f"{path}:{line}:8: note: 1 x {op}: " in said
    path.write_text(CONVOLUTION, "utf-8")
    assert main(["import", str(path), "-o", str(tmp_path / "graph.cvm")]) == 0
    assert main(["check", "--exact-as", "tosa", "-o", str(tmp_path / "c.json"), str(path)]) == 0
    assert main(["verify", str(tmp_path / "c.json"), str(path)]) == 0
