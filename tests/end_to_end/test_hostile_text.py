"""Names and texts that are meant to be obeyed: by terminals, and by browsers."""

from __future__ import annotations

import html.parser
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cvm.dialect.support.diagnostics import Diagnostic, Note, Source, Span, printable

from cvm.cli import main

ROOT = Path(__file__).parents[2]
HOSTILE = "\x1b[2J\x9b\x7f\u202e\u2066\b"
ESCAPED = "\\u001b[2J\\u009b\\u007f\\u202e\\u2066\\u0008"
PROGRAM = """func @main(%x: tensor<2xi32>) -> tensor<2xi32> {
  %y = cvm.relu %x
  return %y
}
"""
SCRIPTS = "<!-- <script> </script> <!-- ]]> \u2028 <script>alert(1)</script>"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("check",), PROGRAM),
        (("check",), "func"),
        (("check", "--json"), "func"),
        (("fmt", "--check"), PROGRAM.replace("  %y", "%y")),
        (("test",), f"// test graph\n{PROGRAM}"),
        (("test",), f"// test run\n{PROGRAM}// run: @main([1, 2]) == [2, 2]\n"),
        (("test",), f"// test llvm\n// check: {HOSTILE}\n{PROGRAM}"),
        (("run", "--input", "x=[1,2]"), PROGRAM),
        (("run", "--unknown"), PROGRAM),
        (("lower", "-o", f"no{HOSTILE}folder/a"), PROGRAM),
        (("fmt", f"no{HOSTILE}file"), PROGRAM),
        (("opt", "--pipeline", HOSTILE), PROGRAM),
    ],
)
def test_terminals_obey_no_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    text: str,
) -> None:
    """Neither the names of files nor what the files hold reaches the terminal with control
    characters.
    """
    (tmp_path / (name := f"a{HOSTILE}.cvm")).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    main([*arguments, name])
    captured = capsys.readouterr()
    said = captured.out + captured.err
    assert said and printable(said) == said
    if "--json" in arguments:
        assert [d["file"] for d in json.loads(captured.out)] == [name]
    elif arguments[0] in ("check", "fmt"):
        assert ESCAPED in said


def test_a_program_shown_on_a_terminal_is_not_obeyed(tmp_path: Path) -> None:
    """A terminal gets the text with escapes, and with the colors of cvm."""
    program = f"// {HOSTILE}\n{PROGRAM}"
    (tmp_path / "b.cvm").write_text(f"// {HOSTILE}\nfunc", "utf-8")
    shown = ""
    for command in (("fmt", "-"), ("check", "b.cvm")):
        leader, follower = pty.openpty()
        subprocess.run(
            [sys.executable, "-m", "cvm", *command],
            input=program.encode(),
            cwd=tmp_path,
            stdout=follower,
            stderr=follower,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"},
        )
        os.close(follower)
        shown += os.read(leader, 1 << 16).decode()
        os.close(leader)
    own = re.sub("\x1b\\[[0-9;]*m|\r\n", "", shown)
    assert "\x1b[1;31merror" in shown and ESCAPED in shown and printable(own) == own


def test_diagnostics_are_escaped() -> None:
    """Messages keep their lines; a line break in a file's name would begin a diagnostic of its
    own.
    """
    span = Span(Source(f"a\n{HOSTILE}", "text"), 0, 4)
    said = str(Diagnostic(f"one\ntwo {HOSTILE}", span, notes=(Note(HOSTILE), Note(HOSTILE, span))))
    place = f"a\\u000a{ESCAPED}:1:1"
    snippet = "  text\n  ^~~~"
    assert said == "\n".join(
        [
            f"{place}: error: one\ntwo {ESCAPED}",
            snippet,
            f"  note: {ESCAPED}",
            f"{place}: note: {ESCAPED}",
            snippet,
        ]
    )


class Page(html.parser.HTMLParser):
    """Collects the elements of a page, and the texts of its scripts, as browsers find them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)

    def handle_data(self, data: str) -> None:
        if self.elements[-1:] == ["script"]:
            self.scripts.append(data)


@pytest.mark.parametrize("command", ["report", "viz", "cost"])
def test_pages_keep_comments_and_strings_of_programs_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A comment or a string of a program that looks like HTML adds no element, and hides none."""
    monkeypatch.chdir(tmp_path)
    pages = []
    for name, text in (("plain", "plain"), ("<script>alert(1)<script>", SCRIPTS)):
        (tmp_path / f"{name}.cvm").write_text(f"// {text}\n{PROGRAM}// {text}\n", "utf-8")
        assert main([command, f"{name}.cvm", "-o", "a.html"]) == 0
        pages.append((tmp_path / "a.html").read_text("utf-8"))
    plain, hostile = map(Page, pages)
    # a report has as many lines of measurements as took long enough
    assert {*plain.elements} == {*hostile.elements}
    assert plain.elements.count("script") == hostile.elements.count("script")
    if command == "report":
        (data,) = (s for s in hostile.scripts if s.startswith("{"))
        assert "<" not in data  # after <!-- <script> a browser takes </script> for text
        shown = json.loads(data)["stages"]["source"]["lines"]
        assert f"// {SCRIPTS.partition(chr(0x2028))[0]}" in "\n".join(shown)
