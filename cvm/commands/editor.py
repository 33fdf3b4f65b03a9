"""`cvm lsp`: the language server, on standard input and output. `cvm completion SHELL`: a script that completes commands and
flags, made by shtab."""

from argparse import Namespace

from cvm.cli import Usage, parser


def lsp(options: Namespace) -> int:
    try:
        from cvm.language_server.server import main
    except ImportError as e:
        raise Usage(f"the language server needs pygls, as in pip install 'cvm-lang[editor]' ({e})") from None
    main()
    return 0


def completion(options: Namespace) -> int:
    try:
        import shtab  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise Usage("completion needs shtab: pip install 'cvm-lang[completion]'") from None
    print(shtab.complete(parser(), options.shell))
    return 0
