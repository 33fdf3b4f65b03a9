"""`cvm lsp`, driven over its standard input and output by a client of the protocol, and the
grammars of editors.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pygls")
import lsprotocol.types as lsp  # pyright: ignore[reportMissingImports]
from pygls.lsp.client import LanguageClient  # pyright: ignore[reportMissingImports]

ROOT = Path(__file__).parents[2]
TEXT = """// größer 😀
func @main(%x: tensor<?N x 4xi32> {range = [-5, 5]}, %w: tensor<3x4xi32>) -> tensor<?N x 3xi32> {
  %s = cvm.dense %x, %w
  %t = dali.expr(%s + 1)
  %r = call @half(%t)
  return %r
}
func @half(%a: tensor<?N x 3xi32>) -> tensor<?N x 3xi32> {
  %s = cvm.cvm_right_shift %a {precision = 31, shift_bit = 1}
  return %s
}
"""
URI = "file:///tmp/layer.cvm"


def drive(
    text: str, ask: Callable[[Any, list[Any]], Awaitable[None]], folder: Path = Path("/tmp/none")
) -> None:
    """Opens a text in a new server and asks it."""

    async def session() -> None:
        client = LanguageClient("test", "1")
        told: list[Any] = []
        arrived = asyncio.Event()

        @client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params: lsp.PublishDiagnosticsParams) -> None:
            told[:] = params.diagnostics
            arrived.set()

        client.arrived = arrived
        await client.start_io(sys.executable, "-m", "cvm", "lsp")
        began = await client.initialize_async(
            lsp.InitializeParams(
                capabilities=lsp.ClientCapabilities(),
                workspace_folders=[lsp.WorkspaceFolder(folder.as_uri(), "")],
            )
        )
        client.colors = began.capabilities.semantic_tokens_provider.legend.token_types
        client.initialized(lsp.InitializedParams())
        client.text_document_did_open(
            lsp.DidOpenTextDocumentParams(lsp.TextDocumentItem(URI, "cvm", 1, text))
        )
        await arrived.wait()
        await ask(client, told)
        await client.shutdown_async(None)
        client.exit(None)

    asyncio.run(asyncio.wait_for(session(), 600))


def at(text: str, part: str, within: int = 0) -> dict[str, Any]:
    """The parameters that point into the first place of a part of the text."""
    offset = text.index(part) + within
    line = text.count("\n", 0, offset)
    before = text[text.rfind("\n", 0, offset) + 1 : offset]
    return {
        "text_document": lsp.TextDocumentIdentifier(URI),
        "position": lsp.Position(line, len(before.encode("utf-16-le")) // 2),
    }


def where(found: Any) -> list[tuple[int, int, int]]:
    return sorted(
        (f.range.start.line, f.range.start.character, f.range.end.character) for f in found
    )


def test_names_types_and_pages() -> None:
    async def ask(client: Any, told: list[Any]) -> None:
        assert told == []
        hover = await client.text_document_hover_async(lsp.HoverParams(**at(TEXT, "%s + 1", 1)))
        assert (
            "%s: tensor<?N x 3 x i32>" in hover.contents.value
            and "values in [" in hover.contents.value
        )
        hover = await client.text_document_hover_async(lsp.HoverParams(**at(TEXT, "%x", 1)))
        assert (
            "{range = [-5, 5]}" in hover.contents.value
            and "values in [-5, 5]" in hover.contents.value
        )
        hover = await client.text_document_hover_async(lsp.HoverParams(**at(TEXT, "cvm.dense", 3)))
        assert "A fully connected layer" in hover.contents.value and "C1" in hover.contents.value
        hover = await client.text_document_hover_async(lsp.HoverParams(**at(TEXT, "@half(%t)", 3)))
        assert (
            "func @half(%a: tensor<?N x 3 x i32>) -> (tensor<?N x 3 x i32>)" in hover.contents.value
        )
        found = await client.text_document_definition_async(
            lsp.DefinitionParams(**at(TEXT, "%s + 1", 1))
        )
        assert where([found]) == [(2, 2, 4)]
        found = await client.text_document_definition_async(
            lsp.DefinitionParams(**at(TEXT, "@half(%t)", 1))
        )
        assert where([found]) == [(7, 5, 10)]
        context = lsp.ReferenceContext(include_declaration=True)
        found = await client.text_document_references_async(
            lsp.ReferenceParams(context=context, **at(TEXT, "%s + 1"))
        )
        assert where(found) == [(2, 2, 4), (3, 17, 19)]  # and not that of @half
        symbols = await client.text_document_document_symbol_async(
            lsp.DocumentSymbolParams(lsp.TextDocumentIdentifier(URI))
        )
        assert [s.name for s in symbols] == ["@main", "@half"]

    drive(TEXT, ask)


def test_editing() -> None:
    async def ask(client: Any, told: list[Any]) -> None:
        edit = await client.text_document_rename_async(
            lsp.RenameParams(new_name="%sum", **at(TEXT, "%s + 1", 1))
        )
        assert (
            where(edit.changes[URI]) == [(2, 3, 4), (3, 18, 19)]
            and edit.changes[URI][0].new_text == "sum"
        )
        edit = await client.text_document_rename_async(
            lsp.RenameParams(new_name="halve", **at(TEXT, "@half", 1))
        )
        assert where(edit.changes[URI]) == [(4, 13, 17), (7, 6, 10)]
        for name, why in (("%t", "%t is there already"), ("a b", "a name has letters")):
            with pytest.raises(Exception, match=why):
                await client.text_document_rename_async(
                    lsp.RenameParams(new_name=name, **at(TEXT, "%s + 1", 1))
                )
        document = lsp.TextDocumentIdentifier(URI)
        everything = lsp.Range(lsp.Position(0, 0), lsp.Position(99, 0))
        hints = await client.text_document_inlay_hint_async(
            lsp.InlayHintParams(document, everything)
        )
        assert [(h.position.line, h.label) for h in hints] == [
            (2, ": tensor<?N x 3 x i32>"),
            (3, ": tensor<?N x 3 x i32>"),
            (4, ": tensor<?N x 3 x i32>"),
            (8, ": tensor<?N x 3 x i32>"),
        ]
        options = lsp.FormattingOptions(tab_size=2, insert_spaces=True)
        (edit,) = await client.text_document_formatting_async(
            lsp.DocumentFormattingParams(document, options)
        )
        assert edit.new_text == TEXT.replace(" x 3xi32", " x 3 x i32").replace(
            " x 4xi32", " x 4 x i32"
        ).replace("}\nfunc", "}\n\nfunc")
        for part, within, word, about in (
            ("%s + 1", 1, "%w", "tensor<3x4xi32>"),
            ("@half(%t)", 1, "@half", "func @half"),
            ("cvm.dense", 5, "cvm.dense", "fully connected"),
            ("{precision", 1, "shift_bit", ""),
            ("3x4xi32", 4, "f32", "element type"),
        ):
            items = await client.text_document_completion_async(
                lsp.CompletionParams(**at(TEXT, part, within))
            )
            found = {i.label: i.detail for i in items}
            if word != "shift_bit":
                assert about in found[word]
            else:
                assert set(found) == set()  # both are there
        lenses = await client.text_document_code_lens_async(lsp.CodeLensParams(document))
        assert [lens.command.title for lens in lenses] == [
            "formulas",
            "loops",
            "schedule",
            "llvm",
        ] * 2
        for stage, part in (
            ("formulas", "%s[%i0, %i1]"),
            ("loops", "kernel @"),
            ("llvm", "define"),
        ):
            given = lsp.ExecuteCommandParams("cvm.lower", [URI, "half", stage])
            assert part in await client.workspace_execute_command_async(given), stage

    drive(TEXT, ask)


def test_mistakes_as_you_type() -> None:
    async def ask(client: Any, told: list[Any]) -> None:
        (first,) = told
        assert (first.severity, first.code) == (lsp.DiagnosticSeverity.Error, "value.undefined")
        assert first.message == "there is no value %y" and where([first]) == [(1, 20, 22)]
        client.arrived.clear()
        change = lsp.TextDocumentContentChangePartial(
            range=lsp.Range(lsp.Position(1, 21), lsp.Position(1, 22)), text="x"
        )
        version = lsp.VersionedTextDocumentIdentifier(uri=URI, version=2)
        client.text_document_did_change(lsp.DidChangeTextDocumentParams(version, [change]))
        await client.arrived.wait()
        assert [(d.severity, d.code) for d in told] == [
            (lsp.DiagnosticSeverity.Warning, "value.unused")
        ], told

    drive(
        "func @main(%x: tensor<4xi32>) -> tensor<4xi32> {\n  %z = dali.add %x, %y\n  return %x\n}\n",
        ask,
    )


def test_the_grammar_of_editors_knows_the_words() -> None:
    grammar = json.loads((ROOT / "editors/vscode/syntaxes/cvm.tmLanguage.json").read_text("utf-8"))
    rules = [
        r
        for r in (*grammar["patterns"], *grammar["repository"]["numbers"]["patterns"])
        if "match" in r or "begin" in r
    ]

    def scope(text: str, at: str) -> str:
        position = text.index(at)
        found = (
            (m.start(), r["name"])
            for r in rules
            for m in re.finditer(r.get("match") or r["begin"], text)
            if m.start() <= position < m.end()
        )
        return min(found, key=lambda f: f[0], default=(0, ""))[1].split(".")[0]

    line = "func @f(%x: tensor<?N x 3 x f32>) { %y = cvm.conv2d %x {strides = [2, 2]} // tensor"
    expected = {
        "func": "keyword",
        "@f": "entity",
        "%x": "variable",
        "tensor<": "storage",
        "cvm.conv2d": "support",
    }
    expected |= {"strides": "entity", "2, 2": "constant", "// t": "comment"}
    assert {word: scope(line, word) for word in expected} == expected
    keywords = re.findall(
        r'^[A-Z]+(?:\.\d+)?: "([a-z]+)"',
        (ROOT / "grammar/cvm.lark").read_text("utf-8"),
        re.MULTILINE,
    )
    assert keywords
    assert {word: scope(f"{word} ", word) for word in keywords if word != "dense"} == {
        k: "keyword" for k in keywords if k != "dense"
    }
    vim = (ROOT / "editors/vim/syntax/cvm.vim").read_text("utf-8")
    rows = dict(re.findall(r"^syntax keyword (\w+) (.*)$", vim, re.MULTILINE))
    assert {*keywords} - {"dense"} == {*rows["cvmKeyword"].split()}
    groups = {*re.findall(r"^syntax \w+ (\w+)", vim, re.MULTILINE)}
    assert groups == {*re.findall(r"^highlight default link (\w+)", vim, re.MULTILINE)}


def test_pygments_gives_the_text_back() -> None:
    from pygments import lex
    from pygments.token import Error

    from cvm.highlight import CvmLexer
    from cvm.terminal.read_program import read_kernels, reader_of

    for path in sorted((ROOT / "examples").rglob("*.cvm")):
        text = path.read_text("utf-8")
        if reader_of(text.encode()) is read_kernels:
            continue
        tokens = list(lex(text, CvmLexer(stripnl=False)))
        assert "".join(t for _, t in tokens) == text and Error not in {k for k, _ in tokens}, path


def message(content: dict[str, Any]) -> bytes:
    text = json.dumps({"jsonrpc": "2.0", **content}).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(text), text)


@pytest.mark.parametrize(
    ("methods", "status"),
    [(("shutdown", "exit"), 0), (("shutdown",), 0), (("exit",), 1), ((), 1)],
)
def test_the_exit_status_says_whether_the_session_ended_in_order(
    methods: tuple[str, ...], status: int
) -> None:
    """As the protocol says: 0 after the request shutdown, else 1. The editor then closes the pipe,
    or has.
    """
    begin = {"processId": None, "rootUri": None, "capabilities": {}}
    sent = message({"id": 1, "method": "initialize", "params": begin})
    for method in methods:
        sent += message({"method": method, **({"id": 2} if method == "shutdown" else {})})
    done = subprocess.run([sys.executable, "-m", "cvm", "lsp"], input=sent, capture_output=True)
    assert (done.returncode, done.stderr) == (status, b"")


def test_what_stands_in_a_text_of_kernels() -> None:
    from cvm.language_server.document import Document

    text = (
        "kernel @half(%x: tensor<?N x f64>) -> (%y: tensor<?N x f64>) {\n"
        "  for %i in 0..?N {\n    %y[%i] = sqrt(%x[%i])\n  }\n}\n\n"
        "kernel @main(%x: tensor<?M x f64>) -> (%z: tensor<?M x f64>) {\n"
        "  call @half(%x) -> (%z)\n  let %v: f64 = %z[0]\n}\n"
    )
    document = Document(text, "k.loops")
    assert not document.mistakes and not document.warnings

    def described(part: str, within: int = 0) -> str:
        return document.describe(document.index(text.index(part) + within))

    assert "%x: tensor<?N x f64>" in described("%x[")
    assert "%i: i64, the index of a loop" in described("%i]")
    assert "%z: tensor<?M x f64>" in described("%z[0]")
    assert "a function of 1 operands" in described("sqrt")
    assert "kernel @half(%x" in described("call @half", 6)
    names = document.occurrences(document.index(text.index("%x) -> (%z)")))
    assert [n.start for n in names] == [text.index("%x: tensor<?M"), text.index("%x) -> (%z)")]
    assert ("exp", "operator") in [c[:2] for c in document.completions(text.index("sqrt"))]
    assert ("@half", "function", "a kernel") in document.completions(text.index("@half(%x) ->") + 1)
    mistaken = Document(text.replace("sqrt", "squirt"), "k.loops").mistakes
    assert "there is no function squirt" in mistaken[0].message


WRONG = """func @main(%first: tensor<2x2xi32>) -> tensor<2x2xi23> {
  %s = cvm.elemwise_ad %first, %first
  %t = cvm.clip %frist {a_mni = -3, a_max = 5}
  %r = call @mian(%t)
  return %r
}
"""


def test_quick_fixes() -> None:
    async def ask(client: Any, told: list[Any]) -> None:
        whole = lsp.Range(lsp.Position(0, 0), lsp.Position(9, 0))
        found = await client.text_document_code_action_async(
            lsp.CodeActionParams(
                lsp.TextDocumentIdentifier(URI), whole, lsp.CodeActionContext(told)
            )
        )
        edits = {a.title: a.edit.changes[URI][0] for a in found}
        lines = WRONG.splitlines()
        replaced = {
            title: lines[e.range.start.line][e.range.start.character : e.range.end.character]
            for title, e in edits.items()
        }
        assert replaced["Change to cvm.elemwise_add"] == "cvm.elemwise_ad"
        assert replaced["Change to %first"] == "%frist"
        for title, written in replaced.items():
            assert title.removeprefix("Change to ") != written
        first = lsp.Range(lsp.Position(1, 0), lsp.Position(1, 4))
        assert not await client.text_document_code_action_async(
            lsp.CodeActionParams(
                lsp.TextDocumentIdentifier(URI), first, lsp.CodeActionContext(told)
            )
        )

    drive(WRONG, ask)


def test_signatures_attributes_types_and_colors() -> None:
    text = TEXT.replace("%t = dali.expr(%s + 1)", "%t = cvm.clip %s {a_min = 0, a_max = 9}")

    async def ask(client: Any, told: list[Any]) -> None:
        for part, within, written in (
            ("cvm.dense %x, %w", 11, "%x"),
            ("cvm.dense %x, %w", 15, "%w"),
            ("{a_min = 0, a", 13, "a_max = ..."),
        ):
            help = await client.text_document_signature_help_async(
                lsp.SignatureHelpParams(**at(text, part, within))
            )
            (signature,) = help.signatures
            assert signature.parameters[help.active_parameter].label == written
        assert not await client.text_document_signature_help_async(
            lsp.SignatureHelpParams(**at(text, "return %r", 8))
        )
        hover = await client.text_document_hover_async(lsp.HoverParams(**at(text, "a_min", 2)))
        assert hover.contents.value.startswith("`a_min`: an integer")
        hover = await client.text_document_hover_async(lsp.HoverParams(**at(text, "3x4xi32", 2)))
        assert "a signed integer of 32 bits from -2147483648 to 2147483647" in hover.contents.value
        found = await client.text_document_semantic_tokens_full_async(
            lsp.SemanticTokensParams(lsp.TextDocumentIdentifier(URI))
        )
        kinds = client.colors
        lines, line, column, colored = text.splitlines(), 0, 0, dict[str, set[str]]()
        for n in range(0, len(found.data), 5):
            down, right, length, kind, _ = found.data[n : n + 5]
            line, column = line + down, right if down else column + right
            units = lines[line].encode("utf-16-le")[2 * column : 2 * (column + length)]
            colored.setdefault(kinds[kind], set()).add(units.decode("utf-16-le"))
        assert {"%x", "%w", "%a"} <= colored["parameter"] and "%s" in colored["variable"]
        assert {"cvm.dense", "cvm.clip"} <= colored["method"] and "@half" in colored["function"]
        assert {"func", "return", "call"} <= colored["keyword"] and "a_max" in colored["property"]

    drive(text, ask)


def test_symbols_of_a_folder_and_tests(tmp_path: Path) -> None:
    path = tmp_path / "tested.cvm"
    path.write_text(f"// test run\n{TEXT}")
    (tmp_path / "broken.cvm").write_bytes(b"func @\xff")
    (tmp_path / "k.loops").write_text("kernel @halves() {\n}\n")

    async def ask(client: Any, told: list[Any]) -> None:
        found = await client.workspace_symbol_async(lsp.WorkspaceSymbolParams("HAL"))
        assert sorted(s.name for s in found) == ["@half", "@halves"]
        lenses = await client.text_document_code_lens_async(
            lsp.CodeLensParams(lsp.TextDocumentIdentifier(URI))
        )
        commands = [x.command for x in lenses if x.command.command == "cvm.test"]
        assert [c.title for c in commands] == ["Run tests", "Accept output"]
        said = await client.workspace_execute_command_async(
            lsp.ExecuteCommandParams("cvm.test", [path.as_uri(), False])
        )
        assert "tested.cvm" in said

    drive(path.read_text(), ask, tmp_path)
