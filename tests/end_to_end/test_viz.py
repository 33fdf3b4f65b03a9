"""Programs as pictures: what is drawn, and where."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from cvm.dialect.ir.diagram import MARGIN, html, svg
from cvm.dialect.ir.diagram_layout import GAP, Box, place

import cvm
from cvm import cli

PROGRAM = """\
func @main(%x: tensor<1x2x4x4xi32>, %unused: tensor<f32>) {
  %w = const dense<1> : tensor<3x2x3x3xi32>
  %y = cvm.conv2d %x, %w {padding = [1, 1]}
  %z = cvm.relu %y
  %s = cvm.elemwise_add %y, %z
  return %s, %s
}

graph @count {
  %n = cog.field "a < b & c" init dense<0.0> : !cog.field<[], f32>
  %m = cog.add %n, 1
  cog.feedback %n, %m
}
"""
SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> list[list[str]]:
    """The lines of every box."""
    root = ElementTree.fromstring(picture)
    groups = [g for g in root.iter(f"{SVG}g") if "box" in g.get("class", "").split()]
    return [[t.text or "" for t in g.iter(f"{SVG}text")] for g in groups]


def test_every_operation_is_a_box_and_every_use_an_edge() -> None:
    module = cvm.parse(PROGRAM)
    drawn = texts(svg(module, [module.functions["main"]]))
    assert [lines[0] for lines in drawn] == [
        "%x",
        "%unused",
        "cvm.conv2d",
        "cvm.relu",
        "cvm.elemwise_add",
        "return %s",
        "return %s",
    ]
    assert drawn[2][1:] == ["padding = [1, 1]", "%w: const tensor<3x2x3x3xi32>"]
    root = ElementTree.fromstring(svg(module, [module.functions["main"]]))
    assert len([p for p in root.iter(f"{SVG}path") if p.get("class") is None]) == 6


def test_functions_stand_one_below_the_other() -> None:
    """Boxes of one function end a margin above the title of the next, the last ones above the lower
    edge.
    """
    module = cvm.parse(PROGRAM + PROGRAM.replace("@main", "@other").replace("@count", "@again"))
    root = ElementTree.fromstring(svg(module, module.functions.values()))
    tops, ends = [], []
    for group in root.findall(f"{SVG}g"):
        (below,) = group.findall(f"{SVG}g")
        top, inner = (float(g.get("transform", "").split()[-1].rstrip(")")) for g in (group, below))
        tops.append(top)
        lows = [
            float(r.get("y", "")) + float(r.get("height", "")) for r in below.iter(f"{SVG}rect")
        ]
        ends.append(top + inner + max(lows))
    assert len(tops) == len(module.functions) == 4
    assert all(
        end + MARGIN <= top
        for end, top in zip(ends, [*tops[1:], float(root.get("height", ""))], strict=True)
    )


def test_feedback_goes_back_and_text_is_escaped() -> None:
    module = cvm.parse(PROGRAM)
    picture = svg(module, module.functions.values())
    root = ElementTree.fromstring(picture)
    assert len([p for p in root.iter(f"{SVG}path") if p.get("class") == "fed"]) == 1
    assert 'label = "a < b & c"' in next(
        lines for lines in texts(picture) if lines[0] == "cog.field"
    )
    whole = html(module, [*module.functions.values()], "<script>")
    assert "<pre>&lt;script&gt;</pre>" in whole and picture.partition("</style>")[2] in whole


def test_a_notebook_shows_signature_sizes_and_drawing() -> None:
    f = cvm.compile(PROGRAM)
    for shown in (f._repr_html_(), f.module._repr_html_()):
        assert (
            "@main(" in shown
            and "4 operations, 216 bytes of constants" in shown
            and "<svg" in shown
        )
        assert "<style>.cvm-drawing {" in shown  # rules for this drawing alone
    traced = cvm.compile(lambda x: x + x)
    assert "<svg" not in traced._repr_html_()
    traced(np.ones(3, np.float32))
    assert (
        "1 operations, 0 bytes of constants" in traced._repr_html_()
        and "<svg" in traced._repr_html_()
    )


@pytest.mark.parametrize("seed", range(10))
def test_boxes_do_not_overlap_and_edges_go_down(seed: int) -> None:
    rng = np.random.default_rng(seed)
    boxes = [Box(float(rng.integers(20, 200)), float(rng.integers(20, 90))) for _ in range(30)]
    edges = [
        (boxes[a], boxes[b]) for a in range(30) for b in range(a + 1, 30) if rng.random() < 0.08
    ]
    width, height, routes = place(boxes, edges)
    for a, b in combinations(boxes, 2):
        apart = (
            abs(a.y - b.y) >= (a.height + b.height) / 2
            or abs(a.x - b.x) >= (a.width + b.width) / 2 + GAP - 1e-6
        )
        assert apart
    for box in boxes:
        assert box.x - box.width / 2 >= -1e-6 and box.x + box.width / 2 <= width + 1e-6
        assert box.y - box.height / 2 >= -1e-6 and box.y + box.height / 2 <= height + 1e-6
    for (a, b), route in zip(edges, routes, strict=True):
        assert route[0] == (a.x, a.y + a.height / 2) and route[-1] == (b.x, b.y - b.height / 2)
        assert all(first[1] < second[1] for first, second in pairwise(route))


def test_nothing_to_place() -> None:
    assert place([], []) == (0.0, 0.0, [])


def test_viz_writes_a_picture_or_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.cvm").write_text(PROGRAM)
    assert cli.main(["viz", "p.cvm", "-o", "p.svg"]) == 0
    assert ElementTree.parse("p.svg").getroot().tag == f"{SVG}svg"
    assert cli.main(["viz", "p.cvm", "-o", "p.html", "--entry", "count"]) == 0
    assert Path("p.html").read_text().startswith("<!doctype html>")
    assert cli.main(["viz", "p.cvm", "-o", "p.gif"]) == 2
    assert cli.main(["viz", "p.cvm", "-o", "p.svg", "--entry", "none"]) == 1
    assert "the program has no function @none" in capsys.readouterr().err


def layers(times: int, other: int = -1) -> str:
    """A chain of layers, of which one may have another operator."""
    text, x = "", "x"
    for n in range(times):
        activation = "cvm.abs" if n == other else "cvm.relu"
        text += f"  %w{n} = const dense<{n}> : tensor<4x4xi32>\n  %a{n} = cvm.dense %{x}, %w{n}\n"
        text += f"  %b{n} = {activation} %a{n}\n  %c{n} = cvm.elemwise_add %b{n}, %{x}\n"
        x = f"c{n}"
    return f"func @main(%x: tensor<2x4xi32>) {{\n{text}  return %{x}, %b1\n}}\n"


def names(program: str, collapsed: bool) -> list[str]:
    module = cvm.parse(program)
    return [lines[0] for lines in texts(svg(module, [module.functions["main"]], collapsed))]


def test_blocks_that_repeat_are_one_box() -> None:
    layer = ["cvm.dense", "cvm.relu", "cvm.elemwise_add"]
    end = ["return %c9", "return %b1"]
    assert names(layers(10), collapsed=False) == ["%x", *10 * layer, *end]
    # the first layer takes the argument, so it is not like the others
    assert names(layers(10), collapsed=True) == ["%x", *layer, "9 times", *end]
    module = cvm.parse(layers(10))
    box = texts(svg(module, [module.functions["main"]], collapsed=True))[4]
    assert box == ["9 times", *layer]
    assert names(layers(10, other=1), collapsed=True).count("8 times") == 1
    few = layers(4)
    assert names(few, collapsed=True) == names(few, collapsed=False)


@pytest.mark.parametrize("kind", ["png", "pdf"])
def test_other_kinds_of_pictures(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    program = tmp_path / "a.cvm"
    program.write_text(PROGRAM.replace("a < b & c", "$x_1^{$"), "utf-8")
    written = []
    for flags in ([], ["--whole"]):
        assert cli.main(["viz", str(program), *flags, "-o", str(tmp_path / f"a.{kind}")]) == 0
        written.append((tmp_path / f"a.{kind}").read_bytes())
    assert written[0] == written[1] and written[0][:5] in (b"\x89PNG\r", b"%PDF-")
