"""MkDocs hooks: pages that come from the code (operators, grammar, API, environment variables), and
links that leave docs/.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from html import escape, unescape
from pathlib import Path
from textwrap import dedent
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from pygments.lexers.shell import BashSessionLexer

ROOT = Path(__file__).parents[1]
PICTURE = (
    r'<picture><source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)"><img '
    r'alt="([^"]+)" src="([^"]+)"></picture>'
)
FROM_OUTSIDE = {  # pages of the site from files outside docs/
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "editors/README.md": "reference/editors.md",
}
FORMULA = re.compile(r"\w+\[[^\]]*\](, \w+\[[^\]]*\])* = |[a-zA-Z]\w* = ")  # how one begins
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import mathml  # noqa: E402
from cvm.dialect.kernel_ir.formulas import Formulas  # noqa: E402
from cvm.dialect.spec.operator import Operator  # noqa: E402
from cvm.lowering.formulas.formula_printer import formulas_text  # noqa: E402
from cvm.lowering.passes import LEVELS  # noqa: E402
from cvm.lowering.pipeline import to_formulas  # noqa: E402

import cvm  # noqa: E402
from cvm.commands import opt  # noqa: E402
from cvm.terminal import operator_pages as ops  # noqa: E402


def on_startup(**_: Any) -> None:
    """Lay the package out as it is installed, for mkdocstrings to read: `cvm.dialect` lies beside
    `cvm` in a checkout.
    """
    package = ROOT / "build" / "api" / "cvm"
    shutil.rmtree(package, ignore_errors=True)
    for room in ("cvm", "dialect", "parser", "lowering", "jit", "grammar"):
        shutil.copytree(ROOT / room, package if room == "cvm" else package / room)
    BashSessionLexer._ps1rgx = re.compile(
        r"^(\$ )(.*\n?)"
    )  # a result `%y` is no prompt, as Pygments takes it for


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made from the code."""
    pages = {
        "reference/grammar.md": grammar(),
        "reference/operators.md": index(),
        "reference/passes.md": passes(),
        "reference/environment.md": environment(),
    }
    pages |= {
        f"reference/operators/{d}.md": dialect(d, known) for d, known in ops.by_dialect().items()
    }
    pages |= {page: (ROOT / file).read_text("utf-8") for file, page in FROM_OUTSIDE.items()}
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Make links to files outside docs/ lead to their pages or to the repository; where its address
    is not known, they become plain text.
    """
    here = page.file.src_uri
    source = next((f for f, p in FROM_OUTSIDE.items() if p == here), f"docs/{here}")

    def link(match: re.Match[str]) -> str:
        address, mark, part = match[2].partition("#")
        target = (ROOT / source).parent.joinpath(address).resolve()
        if "://" in address or not address or not target.exists():
            return match[0]
        path = target.relative_to(ROOT).as_posix()
        inside = FROM_OUTSIDE.get(path, path.removeprefix("docs/"))
        if inside != path:
            shown = os.path.relpath(inside, os.path.dirname(here) or ".")
            return f"[{match[1]}]({shown}{mark}{part})"
        return f"[{match[1]}]({config.repo_url}/blob/main/{path})" if config.repo_url else match[1]

    markdown = re.sub(
        PICTURE, r"![\2](\3#only-light)![\2](\1#only-dark)", markdown
    )  # as the theme knows them
    return re.sub(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)", link, markdown)


def on_post_build(config: Any) -> None:
    """Refuse a site with pictures or links that lead nowhere: those in HTML are not checked by
    MkDocs.
    """
    site = Path(config.site_dir)
    lost = [
        f"{p.relative_to(site)}: {target}"
        for p in sorted(site.rglob("*/index.html"))
        for target in missing(p, site)
    ]
    if lost:
        raise PluginError("links that lead nowhere:\n" + "\n".join(lost))


def missing(page: Path, site: Path) -> Iterator[str]:
    """The targets of a page's pictures and links that are not part of the site."""
    for target in re.findall(r'(?:src|srcset|href)="([^"#?]+)', page.read_text("utf-8")):
        if ":" not in target and not target.startswith("//"):
            path = (
                site / target.lstrip("/")
                if target.startswith("/")
                else page.parent / unescape(target)
            )
            if not path.exists():
                yield target


def grammar() -> str:
    text = (ROOT / "grammar" / "cvm.lark").read_text("utf-8")
    return (
        "# The grammar\n\n"
        "Of programs, in Lark's notation; the parser is generated from this file.\n\n```text\n"
        f"{text}```\n"
    )


def index() -> str:
    """The dialects, and a line for each operator."""
    parts = ["# Operators\n"]
    for name, known in ops.by_dialect().items():
        parts.append(f"## [{name}](operators/{name}.md)\n\n| operator | |\n|---|---|")
        for op in known:
            parts.append(
                f"| [`{op.name}`](operators/{name}.md#{anchor(op)}) | {inline(ops.summary(op))} |"
            )
        parts.append("")
    return "\n".join(parts)


def anchor(op: type[Operator[Any]]) -> str:
    return op.name.replace(".", "-")


def dialect(name: str, known: list[type[Operator[Any]]]) -> str:
    """The operators of a dialect, each with its formula, operands, attributes, constraints and
    example.
    """
    return f"# {name}\n\n" + "\n".join(line for op in known for line in section(op))


def section(op: type[Operator[Any]]) -> Iterator[str]:
    """An operator's page as Markdown."""
    yield f"## {op.name} {{ #{anchor(op)} }}\n"
    yield from prose(inspect.getdoc(op) or "")
    yield f"```cvm\n{ops.usage(op)}\n```\n"
    for title, rows in ops.tables(op).items():
        if rows:
            yield f"| {title} |{' |' * (len(rows[0]) - 1)}\n|{'---|' * len(rows[0])}"
            yield from (f"| {' | '.join(map(_cell, row))} |" for row in rows)
            yield ""
    if example := dedent(op.example).strip():
        yield f"**example**\n\n```cvm\n{example}\n```\n"
        if program := formulas(example):
            yield (
                f"which is\n\n{mathml.page(program)}\n\n``` {{ .text .wrapped }}\n"
                f"{formulas_text(program).strip()}\n```\n"
            )


def formulas(example: str) -> Formulas | None:
    """The formulas of an example; none of clocked programs and of operators with effects."""
    module = cvm.parse(example)
    with suppress(cvm.TargetError):
        for function in module.functions.values():
            return to_formulas(module, function)
    return None


def _cell(text: str) -> str:
    """Text as code in a table."""
    marks = re.sub(
        r"[\[\]*_|`]", lambda m: f"&#{ord(m[0])};", escape(text)
    )  # which Markdown would read
    return f"<code>{marks}</code>" if text else ""


def passes() -> str:
    """The page of all passes, level by level, by the docstrings of their files."""
    parts = [
        "# All passes\n\n"
        "In the order of the pipelines. `cvm opt --pipeline NAME,...` runs them by name.\n"
    ]
    known = opt.all_passes().values()
    for level in LEVELS:
        parts.append(f"## {level}\n")
        for p in (p for p in known if p.level == level):
            parts += [f"### {p.name}\n", *prose(p.function.__globals__["__doc__"] or p.summary)]
    return "\n".join(parts)


def prose(text: str) -> Iterator[str]:
    """The paragraphs of a docstring as Markdown, indented ones and formulas as code."""
    for part in text.strip().split("\n\n"):
        if part.startswith("    ") or FORMULA.match(part):
            yield f"``` {{ .text .wrapped }}\n{dedent(part)}\n```\n"
        else:
            yield inline(part) + "\n"


def inline(text: str) -> str:
    """Text as Markdown, in which only what stands between backticks is code."""
    return re.sub(r"(`[^`]*`)|([\\*_<>\[\]|&])", lambda m: m[1] or f"&#{ord(m[2])};", text)


def environment() -> str:
    """The environment variables that the code reads, as docs/command_line.md describes them."""
    page = (ROOT / "docs" / "command_line.md").read_text("utf-8")
    return (
        "# Environment variables\n"
        + page.partition("## Environment variables\n")[2].partition("\n## ")[0]
    )
