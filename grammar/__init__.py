"""The language's grammar, for anything that reads it: the text of `cvm.lark`."""

from __future__ import annotations

from importlib import resources


def read() -> str:
    """The grammar as Lark takes it."""
    return resources.files(__name__).joinpath("cvm.lark").read_text("utf-8")
