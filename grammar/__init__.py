"""The grammars, for anything that reads them: `cvm.lark` of programs, `loops.lark` of printed
kernels.
"""

from __future__ import annotations

from importlib import resources


def read(name: str = "cvm.lark") -> str:
    """A grammar as Lark takes it."""
    return resources.files(__name__).joinpath(name).read_text("utf-8")
