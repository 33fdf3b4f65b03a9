"""`cvm cost`: counts as a table, in JSON, and against the roofline of the machine."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from cvm.jit.cuda.gpu_cost_model import CLOCK, LAUNCH, MEMORY, resources
from emulated_kernels import needs_nvrtc

from cvm import cli
from cvm.commands.cost import Point, Roofline, svg

PROGRAM = """func @main(%x: tensor<?N x 8 x f32>, %w: tensor<5x8xf32>) -> tensor<?N x 5 x f32> {
  %h = cvm.dense %x, %w
  %y = cvm.elemwise_add %h, %h
  return %y
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("p.cvm").write_text(PROGRAM)
    return tmp_path


def test_counts_in_a_table_and_in_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cost", "p.cvm", "--size", "N=4"]) == 0
    rows = {
        line.split("  ")[-1].strip(): line.split()
        for line in capsys.readouterr().out.splitlines()
        if line
    }
    assert rows["%h = cvm.dense %x, %w"][:4] == ["320", "288", "80", "0.87"]
    assert rows["%y = cvm.elemwise_add %h, %h"][:4] == ["20", "80", "80", "0.125"]
    assert rows["main.0"][:5] == ["340", "288", "80", "0.924", "memory"]
    assert cli.main(["cost", "p.cvm", "--size", "N=4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (
        found["kernel"]["parts"][0]["functions"] == {"fma": 160, "add": 20}
        and found["kernel"]["memory"] == 368
    )
    assert found["roofline"]["operations"] > 1e8 and found["roofline"]["bytes"] > 1e8
    assert cli.main(["cost", "p.cvm", "--size", "K=4"]) == 1
    assert "no argument has a size ?K" in capsys.readouterr().err
    for wrong in (["--size", "N"], ["-o", "p.pdf"], ["-o", "p"]):
        assert cli.main(["cost", "p.cvm", *wrong]) == 2


def test_kernels_and_graphs_have_costs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lower", "p.cvm", "--to", "loops", "-o", "k.loops"]) == 0
    assert cli.main(["cost", "k.loops", "--size", "N=4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernel"]["operations"] == 340
    Path("g.cvm").write_text(
        'graph @main {\n  %n = cog.field "n" init dense<0.0> : !cog.field<[6], f32>\n'
        "  %m = cog.add %n, 1\n"
        "  cog.feedback %n, %m\n}\n"
    )
    assert cli.main(["cost", "g.cvm", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operation"]["operations"] == 6


def test_the_roofline_is_drawn(folder: Path) -> None:
    assert cli.main(["cost", "p.cvm", "-o", "p.svg"]) == 0
    assert ElementTree.parse("p.svg").getroot().tag.endswith("svg")
    assert cli.main(["cost", "p.cvm", "-o", "p.html"]) == 0
    assert "cvm.dense" in Path("p.html").read_text()
    roof = Roofline("a machine", 1, 1e10, 1e9)
    assert roof.ridge == 10 and roof.attainable(5) == 5e9 and roof.attainable(50) == 1e10
    root = ElementTree.fromstring(
        svg(roof, [Point("a<b", 5), Point("timed", 50, 2e9), Point("moves", 0)])
    )
    circles = [e for e in root.iter() if e.tag.endswith("circle")]
    assert [c.get("class") for c in circles] == ["limit", "timed"]
    tops = [float(c.get("cy", "0")) for c in circles]
    assert tops[0] < tops[1], "5e9 operations a second at most lie above 2e9 measured"


# A model of a GPU

WHILE = """func @double(%x: tensor<3xf32>) -> (tensor<i1>, tensor<3xf32>) {
  %y = theano.elemwise %x, %x {scalar_op = "add"}
  %sum = theano.sum %y {axis = [0]}
  %go = theano.elemwise %sum, 100 {scalar_op = "lt"}
  return %go, %y
}

func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %zero = dali.mul %x, 0
  %one = dali.add %zero, 1
  %sum = theano.sum %one {axis = [0]}
  %go = theano.elemwise %sum, 100 {scalar_op = "lt"}
  %y = builtin.while @double(%go, %one) {carry = 1}
  return %y
}
"""


def predicted(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert cli.main(["cost", *arguments, "--target", "cuda", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@needs_nvrtc
@pytest.mark.parametrize("name", ["copy", "transposition"])
def test_a_copy_takes_its_bytes_by_the_bandwidth(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Both read and write each byte once; the rows are counted by a part of the blocks."""
    line = {"copy": "dali.add %x, 1", "transposition": "theano.dimshuffle %x {new_order = [1, 0]}"}[
        name
    ]
    result = "?N x 2048" if name == "copy" else "2048 x ?N"
    text = (
        f"func @main(%x: tensor<?N x 2048 x f32>) -> tensor<{result} x f32> {{\n  %y = {line}\n"
        f"  return %y\n}}\n"
    )
    Path("copy.cvm").write_text(text)
    found = predicted(capsys, "copy.cvm", "--size", "N=4096")
    (kernel,), moved = found["kernels"], 2 * 4 * 4096 * 2048
    assert found["checked"] is False
    assert (
        kernel["bytes"] == kernel["counts"]["load bytes"] + kernel["counts"]["store bytes"] == moved
    )
    for device, bandwidth in MEMORY.items():
        busy = kernel["resources"][device]
        assert max(busy, key=busy.get) == "HBM"
        assert kernel["seconds"][device] == pytest.approx(moved / bandwidth + LAUNCH)


@needs_nvrtc
def test_costs_on_a_gpu_in_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cost", "p.cvm", "--size", "N=64", "--target", "cuda"]) == 0
    head, kernel, note = capsys.readouterr().out.splitlines()
    assert (
        head.split("  ")[-1] == "kernel"
        and kernel.endswith("main.0")
        and "not checked on a device" in note
    )
    assert cli.main(["cost", "p.cvm", "--size", "K=4", "--target", "cuda"]) == 1
    assert "no argument has a size ?K" in capsys.readouterr().err
    for wrong in (["--target", "cuda", "-o", "p.svg"], ["--target", "h100"]):
        assert cli.main(["cost", "p.cvm", *wrong]) == 2


@needs_nvrtc
def test_what_is_read_again_moves_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every block of a product reads the weights, which are no more bytes of HBM than they have."""
    (kernel,) = predicted(capsys, "p.cvm", "--size", "N=65536")["kernels"]
    assert kernel["bytes"] == 4 * (65536 * 8 + 8 * 5 + 65536 * 5) < kernel["counts"]["load bytes"]


@needs_nvrtc
def test_launches_of_a_loop_are_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tick of a graph, and the steps of a loop, which are launches of one kernel."""
    Path("g.cvm").write_text(
        'graph @main {\n  %n = cog.field "n" init dense<0.0> : !cog.field<[6], f32>\n'
        "  %m = cog.add %n, 1\n"
        "  cog.feedback %n, %m\n}\n"
    )
    (kernel,) = predicted(capsys, "g.cvm")["kernels"]
    assert kernel["launches"] == 1 and kernel["counts"]["store bytes"] == 24
    Path("w.cvm").write_text(WHILE)
    kernels = predicted(capsys, "w.cvm")["kernels"]
    assert max(k["launches"] for k in kernels) == 6, "3 is doubled until it is 192"


def test_what_limits_a_kernel() -> None:
    """The most of the times of all resources; blocks are shared out to whole multiprocessors."""
    counts = Counter({"shared answers": 1000})
    slow = counts + Counter({"bank conflicts": 3000})
    time = resources(counts, 0, 132, "H100")["L1 and shared"]
    assert time == pytest.approx(1000 / 132 / CLOCK)
    assert resources(slow, 0, 132, "H100")["L1 and shared"] == pytest.approx(4 * time)
    assert resources(counts, 0, 133, "H100")["L1 and shared"] == pytest.approx(2 * 132 / 133 * time)
    issued = Counter(
        {
            "issued.mma.sync.s32": 10**6,
            "issued.add.rn.f32": 10**6,
            "issued.mov.u32": 9,
            "issued.ld.param.u64": 9,
        }
    )
    busy = resources(issued, 10**6, 132 * 4, "H200")
    assert busy["tensor"] == pytest.approx(10**6 * 8192 / (8192 * 132 * CLOCK))
    assert busy["f32"] == busy["issue"] / 2 == pytest.approx(10**6 * 32 / 128 / 132 / CLOCK)
    assert busy["HBM"] == pytest.approx(10**6 / 4.8e12) and set(busy) == {
        "HBM",
        "L2",
        "L1 and shared",
        "tensor",
        "f32",
        "issue",
    }
