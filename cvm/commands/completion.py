"""`cvm completion SHELL`: a script that completes commands and flags, made by shtab."""

from argparse import ArgumentParser, Namespace, _SubParsersAction

from cvm.jit.targets import target_names
from cvm.terminal.command_line import parser
from cvm.terminal.usage import Usage


def completion(options: Namespace) -> int:
    try:
        import shtab  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise Usage("completion needs shtab: pip install 'cvm-lang[completion]'") from None
    made = parser()
    _complete_targets(made)
    print(shtab.complete(made, options.shell))
    return 0


def _complete_targets(made: ArgumentParser) -> None:
    """Have `--target` of every command complete the names of targets, installed ones among them."""
    for action in made._actions:
        if isinstance(action, _SubParsersAction):
            for inner in {id(p): p for p in action.choices.values()}.values():
                _complete_targets(inner)
        elif action.dest == "target" and action.choices is None:
            action.choices = target_names()
