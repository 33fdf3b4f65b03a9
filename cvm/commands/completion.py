"""`cvm completion SHELL`: a script that completes commands and flags, made by shtab."""

from argparse import Namespace

from cvm.terminal.command_line import parser
from cvm.terminal.usage import Usage


def completion(options: Namespace) -> int:
    try:
        import shtab  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise Usage("completion needs shtab: pip install 'cvm-lang[completion]'") from None
    print(shtab.complete(parser(), options.shell))
    return 0
