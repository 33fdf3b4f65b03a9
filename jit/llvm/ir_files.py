"""Fixed machine code in files of LLVM IR, each a module of its own, and modules joined from several
of them.
"""

import re
from functools import cache
from pathlib import Path

_JIT = Path(__file__).parents[1]
_DEFINED = re.compile(r"^define [^\n]*?@([\w.]+)\(", re.MULTILINE)
_EXTERNAL = re.compile(
    r"^(?:declare [^\n]*?@([\w.]+)\(|@([\w.]+) = external )[^\n]*\n", re.MULTILINE
)


@cache
def read_ir(name: str) -> str:
    """The text of a file, by its path under `jit`."""
    return (_JIT / name).read_text("utf-8")


def definitions(text: str) -> str:
    """A module without what it declares."""
    return _EXTERNAL.sub("", text)


def join_ir(*modules: str) -> str:
    """Join the text of modules: what one declares, another may define, and is declared once
    otherwise.
    """
    text = "\n".join(modules)
    known = set(_DEFINED.findall(text))

    def once(line: re.Match[str]) -> str:
        name = line[1] or line[2]
        if name in known:
            return ""
        known.add(name)
        return line[0]

    return _EXTERNAL.sub(once, text)
