"""`cvm fmt`: rewrite programs in the usual layout, in place; `-` is a filter."""

import sys
from argparse import Namespace

import cvm
from cvm.parser.format import format_text
from cvm.terminal.files import read, shown, write


def fmt(options: Namespace) -> int:
    mistakes: list[cvm.Diagnostic] = []
    changes = 0
    for name in options.programs:
        try:
            before = read(name)
            after = format_text(before, shown(name)).encode()
        except cvm.Error as e:
            mistakes += e.diagnostics
            continue
        changes += before != after
        if options.check:
            print(f"{shown(name)}: would change", file=sys.stderr) if before != after else None
        elif before != after or name == "-":
            write(name, after)
    if mistakes:
        raise cvm.Error(mistakes)
    return 1 if options.check and changes else 0
