"""`cvm new dialect NAME`: the skeleton of a package with operators, a type, a pattern, a lowering,
a pass, typed functions and their golden tests.
"""

import re
from argparse import Namespace
from importlib.resources import files
from pathlib import Path

from cvm.dialect.spec.operator import DIALECTS
from cvm.dialect.support.files import write_file
from cvm.terminal.usage import Usage


def new(options: Namespace) -> int:
    name = options.name
    if re.fullmatch(r"[a-z][a-z0-9]*", name) is None:
        raise Usage(f"{name}: expected a name of small letters and digits, such as my")
    if name in DIALECTS:
        raise Usage(f"{name} is a dialect of cvm")
    if (folder := Path(options.output or f"{name}_dialect")).exists() and any(folder.iterdir()):
        raise Usage(f"{folder} is there already, and not empty")
    for path, text in skeleton(name).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_file(folder / path, text.encode())
    print(f"{folder}: pip install -e {folder}, then python -m pytest {folder}, or cvm ops {name}")
    return 0


def skeleton(name: str) -> dict[str, str]:
    """The files of the package by their paths. The templates' dialect is called NAME."""
    text = files("cvm").joinpath("commands/new_dialect.txt").read_text("utf-8")
    text = text.replace("NAME", name).replace("Name", name.capitalize())
    parts = re.split(r"(?m)^==== (.*) ====\n", text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
