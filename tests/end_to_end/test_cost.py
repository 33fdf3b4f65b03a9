"""`cvm cost`: counts as a table, in JSON, and against the roofline of the machine."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
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
    rows = {line.split("  ")[-1].strip(): line.split() for line in capsys.readouterr().out.splitlines() if line}
    assert rows["%h = cvm.dense %x, %w"][:4] == ["320", "288", "80", "0.87"]
    assert rows["%y = cvm.elemwise_add %h, %h"][:4] == ["20", "80", "80", "0.125"]
    assert rows["main.0"][:5] == ["340", "288", "80", "0.924", "memory"]
    assert cli.main(["cost", "p.cvm", "--size", "N=4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kernel"]["parts"][0]["functions"] == {"fma": 160, "add": 20} and found["kernel"]["memory"] == 368
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
        'graph @main {\n  %n = cog.field "n" init dense<0.0> : !cog.field<[6], f32>\n  %m = cog.add %n, 1\n'
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
    root = ElementTree.fromstring(svg(roof, [Point("a<b", 5), Point("timed", 50, 2e9), Point("moves", 0)]))
    circles = [e for e in root.iter() if e.tag.endswith("circle")]
    assert [c.get("class") for c in circles] == ["limit", "timed"]
    tops = [float(c.get("cy", "0")) for c in circles]
    assert tops[0] < tops[1], "5e9 operations a second at most lie above 2e9 measured"
