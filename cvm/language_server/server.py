"""The language server: answers an editor's requests, each from the Document of the text as it
stands there.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import lsprotocol.types as lsp  # pyright: ignore[reportMissingImports]
from pygls.exceptions import JsonRpcInvalidParams  # pyright: ignore[reportMissingImports]
from pygls.lsp.server import LanguageServer  # pyright: ignore[reportMissingImports]

import cvm
from cvm.dialect.support.diagnostics import Diagnostic
from cvm.language_server.document import Document
from cvm.parser.format import format_text
from cvm.parser.recovery import KIND_OF_TOKEN
from cvm.parser.syntax_tree import Token
from cvm.terminal.operator_pages import summary, usage

SHOWN = ("formulas", "loops", "schedule", "llvm")  # stages that a function's code lens shows
COLORS = list(dict.fromkeys(("parameter", *KIND_OF_TOKEN.values())))
MOST_FILES = 2000  # that a search for symbols reads
DECLARED = re.compile(r"\s*(?:func|graph|rewrite|kernel)\s+(@[\w.$]+)")
TESTED = re.compile(r"^\s*// test\b.*", re.MULTILINE)
KINDS = {
    "value": lsp.CompletionItemKind.Variable,
    "function": lsp.CompletionItemKind.Function,
    "type": lsp.CompletionItemKind.TypeParameter,
    "attribute": lsp.CompletionItemKind.Property,
    "operator": lsp.CompletionItemKind.Method,
}
SEVERITIES = {"error": lsp.DiagnosticSeverity.Error, "warning": lsp.DiagnosticSeverity.Warning}
server = LanguageServer("cvm", cvm.__version__)
ended = False  # by the request shutdown
documents: dict[str, Document] = {}  # by address, as last seen


def main() -> int:
    """Serve on standard input and output until the editor ends it; 0 if it did so in order, else 1,
    as the protocol says.
    """
    with open(os.dup(sys.stdout.fileno()), "wb") as output:  # which pygls closes
        server.start_io(stdout=output)
    return 0 if ended else 1


@server.feature(lsp.SHUTDOWN)
def shut_down(*_: object) -> None:
    global ended
    ended = True


def of(uri: str) -> Document:
    """The document of an address; a text that changed is read again."""
    text = server.workspace.get_text_document(uri).source
    if uri not in documents or documents[uri].source.text != text:
        path = Path(unquote(urlparse(uri).path))
        documents[uri] = Document(text, str(path), path.parent)
    return documents[uri]


def place(document: Document, offset: int) -> lsp.Position:
    """The line, and the column in UTF-16 units, of an offset."""
    line, column = document.source.place(offset)
    return lsp.Position(
        line - 1, len(document.source.line(line)[: column - 1].encode("utf-16-le")) // 2
    )


def stretch(document: Document, start: int, end: int) -> lsp.Range:
    return lsp.Range(place(document, start), place(document, end))


def offset(document: Document, position: lsp.Position) -> int:
    """The offset of a line and a column in UTF-16 units; beyond the end of a line, its end."""
    if position.line >= len(starts := document.source.line_starts):
        return len(document.source.text)
    units = document.source.line(position.line + 1).encode("utf-16-le")[: 2 * position.character]
    return starts[position.line] + len(units.decode("utf-16-le", "ignore"))


def pointed(params: Any) -> tuple[Document, int | None]:
    """The document of a request, and the number of the token that it points at."""
    document = of(params.text_document.uri)
    return document, document.index(offset(document, params.position))


def location(document: Document, uri: str, token: Token) -> lsp.Location:
    return lsp.Location(uri, stretch(document, token.start, token.end))


@server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
@server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
def publish(params: lsp.DidOpenTextDocumentParams | lsp.DidChangeTextDocumentParams) -> None:
    """Send the mistakes and warnings of a text that was opened or changed."""
    uri = params.text_document.uri
    document = of(uri)
    diagnostics = [_diagnostic(document, uri, d) for d in (*document.mistakes, *document.warnings)]
    server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, diagnostics))


def _diagnostic(document: Document, uri: str, d: Diagnostic) -> lsp.Diagnostic:
    ends = [(n.span.start, n.span.end) if n.span else (0, 0) for n in d.notes]
    places = [lsp.Location(uri, stretch(document, *e)) for e in ends]
    notes = [
        lsp.DiagnosticRelatedInformation(p, n.message) for p, n in zip(places, d.notes, strict=True)
    ]
    where, severity = (
        stretch(document, d.span.start, max(d.span.end, d.span.start + 1)),
        SEVERITIES[d.severity],
    )
    return lsp.Diagnostic(
        where, d.message, severity, d.code, source="cvm", related_information=notes or None
    )


@server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
def forget(params: lsp.DidCloseTextDocumentParams) -> None:
    documents.pop(params.text_document.uri, None)


@server.feature(lsp.TEXT_DOCUMENT_HOVER)
def hover(params: lsp.HoverParams) -> lsp.Hover | None:
    """The type and range of a value, the head of a function, the page of an operator."""
    document, index = pointed(params)
    text = document.describe(index)
    return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text)) if text else None


@server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
def definition(params: lsp.DefinitionParams) -> lsp.Location | None:
    document, index = pointed(params)
    tokens = document.occurrences(index)
    return location(document, params.text_document.uri, tokens[0]) if tokens else None


@server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
def references(params: lsp.ReferenceParams) -> list[lsp.Location]:
    document, index = pointed(params)
    tokens = document.occurrences(index)[0 if params.context.include_declaration else 1 :]
    return [location(document, params.text_document.uri, t) for t in tokens]


@server.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
def prepare_rename(params: lsp.PrepareRenameParams) -> lsp.Range | None:
    document, index = pointed(params)
    if index is None or not document.occurrences(index):
        return None
    token = document.tokens[index]
    return stretch(document, token.start + 1, token.end)


@server.feature(lsp.TEXT_DOCUMENT_RENAME)
def rename(params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
    """Rename a value in its function, or a function with its calls; a name that is taken or none is
    refused.
    """
    document, index = pointed(params)
    if not (tokens := document.occurrences(index)):
        return None
    name = params.new_name.lstrip("%@")
    sigil = tokens[0].text[0]
    first, last = document.scope(index or 0) if sigil == "%" else (0, len(document.tokens))
    if not re.fullmatch(r"[A-Za-z0-9_.$]+", name):
        message = f"a name has letters, digits, _, . and $, not {params.new_name!r}"
        raise JsonRpcInvalidParams(message)
    if any(t.text == sigil + name for t in document.tokens[first:last]):
        raise JsonRpcInvalidParams(f"{sigil}{name} is there already")
    edits = [lsp.TextEdit(stretch(document, t.start + 1, t.end), name) for t in tokens]
    return lsp.WorkspaceEdit({params.text_document.uri: edits})


@server.feature(
    lsp.TEXT_DOCUMENT_COMPLETION,
    lsp.CompletionOptions(trigger_characters=["%", "@", ".", "{", "<"]),
)
def complete(params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
    document = of(params.text_document.uri)
    at = offset(document, params.position)
    word, words = stretch(document, at - len(document.word(at)), at), document.completions(at)
    return [
        lsp.CompletionItem(n, kind=KINDS[k], detail=d, text_edit=lsp.TextEdit(word, n))
        for n, k, d in words
    ]


@server.feature(
    lsp.TEXT_DOCUMENT_CODE_ACTION,
    lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix]),
)
def quick_fixes(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    """The replacements that mistakes within a range suggest."""
    uri = params.text_document.uri
    document, actions = of(uri), list[lsp.CodeAction]()
    for d in (*document.mistakes, *document.warnings):
        shown = _diagnostic(document, uri, d)
        apart = shown.range.end < params.range.start or params.range.end < shown.range.start
        if apart or (fix := document.fix(d)) is None:
            continue
        start, end, word = fix
        edit = lsp.TextEdit(stretch(document, start, end), word)
        actions.append(
            lsp.CodeAction(
                f"Change to {word}",
                lsp.CodeActionKind.QuickFix,
                [shown],
                is_preferred=True,
                edit=lsp.WorkspaceEdit({uri: [edit]}),
            )
        )
    return actions


@server.feature(
    lsp.TEXT_DOCUMENT_SIGNATURE_HELP, lsp.SignatureHelpOptions(trigger_characters=[" ", ",", "{"])
)
def signature(params: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
    """The operands and attributes of the operator at the cursor."""
    document = of(params.text_document.uri)
    if (found := document.operand(offset(document, params.position))) is None:
        return None
    op, written = found
    label = usage(op)
    names = {f.name: f"%{f.name}" if f.is_operand else f"{f.name} = ..." for f in op.fields}
    shown = {name: text for name, text in names.items() if text in label}
    parts = [lsp.ParameterInformation(text) for text in shown.values()]
    place = [*shown].index(written) if written in shown else None
    return lsp.SignatureHelp([lsp.SignatureInformation(label, summary(op), parts, place)], 0, place)


@server.feature(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, lsp.SemanticTokensLegend(COLORS, []))
def colors(params: lsp.SemanticTokensParams) -> lsp.SemanticTokens:
    """The kind of each token, from its place in the program."""
    document = of(params.text_document.uri)
    data, before = list[int](), lsp.Position(0, 0)
    for token, kind in document.colors():
        at = place(document, token.start)
        lines = at.line - before.line
        columns = at.character - (0 if lines else before.character)
        length = len(token.text.encode("utf-16-le")) // 2
        data += [lines, columns, length, COLORS.index(kind), 0]
        before = at
    return lsp.SemanticTokens(data)


@server.feature(lsp.WORKSPACE_SYMBOL)
def find_symbols(params: lsp.WorkspaceSymbolParams) -> list[lsp.WorkspaceSymbol]:
    """The functions and kernels of the folders' files whose names contain the query."""
    folders = [Path(unquote(urlparse(uri).path)) for uri in server.workspace.folders]
    found: list[lsp.WorkspaceSymbol] = []
    for path in islice((p for f in folders for p in _programs(f)), MOST_FILES):
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeError):
            continue
        for n, line in enumerate(text.splitlines()):
            head = DECLARED.match(line)
            if head and params.query.casefold() in head[1].casefold():
                where = lsp.Range(lsp.Position(n, head.start(1)), lsp.Position(n, head.end(1)))
                location = lsp.Location(path.as_uri(), where)
                found.append(lsp.WorkspaceSymbol(location, head[1], lsp.SymbolKind.Function))
    return found


def _programs(folder: Path) -> Iterable[Path]:
    for path in folder.rglob("*"):
        if path.suffix in (".cvm", ".loops") and path.is_file():
            yield path


@server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
def formatting(params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
    """The whole text in the usual layout; nothing while it cannot be parsed."""
    document = of(params.text_document.uri)
    text = document.source.text
    try:
        after = format_text(text, document.source.filename)
    except cvm.Error:
        return []
    return [lsp.TextEdit(stretch(document, 0, len(text)), after)] if after != text else []


@server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
def inlay_hints(params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
    """The inferred types of results, within the lines that are shown."""
    document = of(params.text_document.uri)
    lines = range(params.range.start.line, params.range.end.line + 1)
    hints = [
        lsp.InlayHint(place(document, at), text, lsp.InlayHintKind.Type)
        for at, text in document.hints()
    ]
    return [h for h in hints if h.position.line in lines]


@server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
def symbols(params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
    document = of(params.text_document.uri)
    items = []
    for head, name, last in _heads(document):
        whole, own = (
            stretch(document, head.start, last.end),
            stretch(document, name.start, name.end),
        )
        items.append(lsp.DocumentSymbol(name.text, lsp.SymbolKind.Function, whole, own))
    return items


def _heads(document: Document) -> Iterable[tuple[Token, Token, Token]]:
    """The first token of each function, its name and its last token."""
    for index in document.heads:
        if (
            len(tokens := document.tokens[index : document.scope(index)[1]]) > 1
            and tokens[1].type == "SYMBOL"
        ):
            yield tokens[0], tokens[1], tokens[-1]


@server.feature(lsp.TEXT_DOCUMENT_CODE_LENS)
def lenses(params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
    """Above each function without mistakes its stages of compilation; above the first test line,
    to run the file's tests or accept their output.
    """
    document = of(params.text_document.uri)
    items, uri = [], params.text_document.uri
    if (line := TESTED.search(document.source.text)) is not None:
        where = stretch(document, line.start(), line.end())
        for title, bless in (("Run tests", False), ("Accept output", True)):
            command = lsp.Command(title, "cvm.test", arguments=[uri, bless])
            items.append(lsp.CodeLens(where, command))
    for head, name, _ in () if document.mistakes else _heads(document):
        if name.name in document.module.functions:
            where = stretch(document, head.start, name.end)
            commands = [lsp.Command(s, "cvm.lower", arguments=[uri, name.name, s]) for s in SHOWN]
            items += [lsp.CodeLens(where, c) for c in commands]
    return items


@server.command("cvm.lower")
def lower(uri: str, entry: str, stage: str) -> str:
    """The text of a function at a stage of compilation; the editor shows it beside the program."""
    document = of(uri)
    if stage not in SHOWN or document.mistakes:
        return ""
    try:
        return cvm.compile(document.module, entry=entry, target="cpu").lower(stage)
    except cvm.Error as e:
        return str(e)


@server.command("cvm.test")
@server.thread()
def test(uri: str, bless: bool) -> str:
    """Run `cvm test` on the file as saved, and return its output."""
    path = unquote(urlparse(uri).path)
    command = [sys.executable, "-m", "cvm", "test", *(["--bless"] if bless else []), path]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.stdout + done.stderr
