"""`cvm lsp`: the language server, on standard input and output."""

from argparse import Namespace

from cvm.terminal.usage import Usage


def lsp(options: Namespace) -> int:
    try:
        from cvm.language_server.server import main
    except ImportError as e:
        raise Usage(
            f"the language server needs pygls, as in pip install 'cvm-lang[editor]' ({e})"
        ) from None
    return main()
