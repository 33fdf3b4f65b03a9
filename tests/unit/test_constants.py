"""Each number that decides how programs are compiled says what it counts, and where it is from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "lowering").rglob("*.py"), *(ROOT / "jit" / "llvm").rglob("*.py")])
# a bound or a share of work, by its name, has a source: measured, counted, estimated or by hand
CHOSEN = re.compile(r"^(MAX|MIN|MOST|LEAST|FEW|MANY|LARGEST|LOADS|WORDS|AHEAD|GROUPS|PIECES)(_|$)")
SOURCE = re.compile(
    r"by hand|counted|measured|estimated|by the (time|manuals)|bounds|at most|:|decide"
)


def is_number(e: ast.expr) -> bool:
    match e:
        case ast.Constant(value):
            return type(value) in (int, float)
        case ast.BinOp(a, _, b):
            return is_number(a) and is_number(b)
        case ast.UnaryOp(_, a):
            return is_number(a)
        case ast.Tuple(parts):
            return bool(parts) and all(map(is_number, parts))
    return False


def numbers(path: Path) -> Iterator[tuple[str, str]]:
    """The names of constants in upper case of a module, and the comment of each."""
    text = path.read_text("utf-8")
    lines = text.splitlines()
    for node in ast.parse(text).body:
        match node:
            case ast.Assign([target], value) if is_number(value):
                pass
            case ast.AnnAssign(target, _, ast.expr() as value) if is_number(value):
                pass
            case _:
                continue
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        first = node.lineno - 1
        while lines[first - 1].startswith("#"):
            first -= 1
        comment = " ".join(
            line.partition("#")[2].strip() for line in lines[first : node.end_lineno]
        )
        yield from (
            (n.id, comment.strip()) for n in names if isinstance(n, ast.Name) and n.id.isupper()
        )


def test_numbers_are_explained() -> None:
    bare, unfounded = [], []
    for path in FILES:
        if path.parent.name == "math":  # docs/coefficients.py proves these
            continue
        for name, comment in numbers(path):
            place = f"{path.relative_to(ROOT)}: {name}"
            if not comment:
                bare.append(place)
            elif CHOSEN.match(name) and not SOURCE.search(comment):
                unfounded.append(f"{place}: {comment}")
    assert not bare, "comments say what a number counts"
    assert not unfounded, "comments say where a number is from"
