"""`cvm report`: one page, complete in itself, whose lines are linked from the source to machine
code.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cvm import cli

PROGRAM = """func @main(%x: tensor<?N x 8 x f32>, %w: tensor<5x8xf32>) {
  %h = cvm.dense %x, %w
  %y = cvm.relu %h
  %z = cvm.sum %y {axes = [0]}
  return %y, %z
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("p.cvm").write_text(PROGRAM.replace("f32", "i32"))
    return tmp_path


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1].replace("<\\/", "</"))


def lines_with(stage: dict[str, Any], key: str) -> list[str]:
    return [
        line
        for line, n in zip(stage["lines"], stage["of"], strict=False)
        if key in stage["sets"][n]
    ]


def test_a_page_of_a_function(folder: Path) -> None:
    assert cli.main(["report", "p.cvm", "-o", "r.html"]) == 0
    page = Path("r.html").read_text("utf-8")
    assert not re.search(r'(src|href)="', page) and set(re.findall(r"https?://[^\"\s]*", page)) == {
        "http://www.w3.org/2000/svg"
    }
    assert "TITLE" not in page and "DRAWING" not in page and page.count("<svg") == 2
    data = data_of(page)
    assert [*data["stages"]][:7] == [
        "source",
        "graph",
        "formulas",
        "loops",
        "schedule",
        "llvm",
        "asm",
    ]
    assert {t["kernel"] for t in data["times"]} == set(data["kernels"]) and all(
        t["seconds"] > 0 for t in data["times"]
    )
    assert data["sizes"] == {"N": 4} and data["costs"]["operation"]["parts"][0]["functions"] == {
        "mul": 160,
        "add": 160,
    }
    kinds = {b["name"]: b["kind"] for b in data["memory"]}
    assert kinds["%x"] == "argument" and kinds["%y"] == kinds["%z"] == "result"
    assert [r[0] for r in data["ranges"]] == ["%x", "%w", "%h", "%y", "%z"] or "%h" in [
        r[0] for r in data["ranges"]
    ]
    assert "contraction @main.0" in data["strategies"]


def test_lines_are_linked(folder: Path) -> None:
    assert cli.main(["report", "p.cvm", "-o", "r.html"]) == 0
    stages = data_of(Path("r.html").read_text("utf-8"))["stages"]
    assert (
        lines_with(stages["source"], "l3")
        == ["  %y = cvm.relu %h"]
        == lines_with(stages["graph"], "l3")
    )
    (formula,) = lines_with(stages["formulas"], "l2")[:1]
    assert formula.startswith("  %y[%i, %j]: ") and formula in lines_with(stages["formulas"], "l3")
    first = stages["schedule"]["lines"][0]
    assert first in lines_with(stages["schedule"], "k0") and first in lines_with(
        stages["schedule"], "l2"
    )
    for name, head in (("llvm", "@kernel_0("), ("asm", "kernel_0:")):
        (line,) = [
            line
            for line in stages[name]["lines"]
            if head in line and "call" not in line and not line.startswith(" ")
        ]
        assert line in lines_with(stages[name], "k0") and line in lines_with(stages[name], "l2")
        assert not [line for line in lines_with(stages[name], "k0") if "kernel_1:" in line]


def test_a_page_of_a_graph(folder: Path) -> None:
    Path("g.cvm").write_text(
        "graph @main {\n"
        '  %n = cog.field "</script>" init dense<0.0> : !cog.field<[6], f32>\n'
        "  %m = cog.add %n, 1\n"
        "  cog.feedback %n, %m\n}\n"
    )
    assert cli.main(["report", "g.cvm", "-o", "g.html"]) == 0
    data = data_of(Path("g.html").read_text("utf-8"))
    assert data["tick"] > 0 and "schedule" in data["stages"]
    assert [t["kernel"] for t in data["times"]] == data["kernels"] and all(
        t["seconds"] > 0 for t in data["times"]
    )
    assert any("</script>" in line for line in data["stages"]["source"]["lines"])


def test_wrong_command_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "p.cvm", "-o", "r.pdf"]) == 2
    assert cli.main(["report", "p.cvm", "--entry", "f", "-o", "r.html"]) == 1
    assert cli.main(["report", "p.cvm", "--size", "K=3", "-o", "r.html"]) == 2
    assert "no argument has a size ?K" in capsys.readouterr().err


def test_a_page_of_a_schedule(folder: Path) -> None:
    Path("k.loops").write_text(
        "kernel @k(%x: tensor<?N x f32>) -> (%y: tensor<?N x f32>) {"
        " for %i in 0..?N { %y[%i] = %x[%i] + %x[%i] } }"
    )
    Path("k.schedule").write_text("vectorize{loop=i by=8}  // <b>\n")
    options = ["--schedule", "k.schedule", "--size", "N=64", "-o", "r.html"]
    assert cli.main(["report", "k.loops", *options]) == 0
    page = Path("r.html").read_text("utf-8")
    data = data_of(page)
    assert [*data["stages"]] == ["before", "after", "llvm", "asm"]
    before, after = ("\n".join(data["stages"][s]["lines"]) for s in ("before", "after"))
    assert "vector 8" in after and "vector 8" not in before and "for %i in 0..?N {" in before
    assert (
        "vectorize{loop=i by=8}  // &lt;b&gt;" in page
        and data["costs"]["kernel"]["operations"] == 64
    )
    Path("p.schedule").write_text("split{loop=q by=8}\n")
    assert cli.main(["report", "k.loops", "--schedule", "p.schedule", "-o", "r.html"]) == 1
