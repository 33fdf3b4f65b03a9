"""Writes docs/tosa.md: what the importer does with each operator of TOSA, from its tables.

python docs/tosa_operators.py
"""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))

from cvm.importers.exactness import EXACT  # noqa: E402
from cvm.importers.tosa.rules import EXACTNESS, REFUSED, RULES  # noqa: E402
from cvm.importers.tosa.schema import OPERATORS  # noqa: E402

HEAD = """# TOSA operators

`cvm.from_tosa(model)`, `cvm import MODEL.tosa` and `cvm import MODEL.mlir` take graphs of integers with the operators that this table,
written by `docs/tosa_operators.py`, says are imported. The last column says how results compare with the specification's
([exactness.md](exactness.md)), which `tosa_reference_model` computes, or why the operator is refused.

A model is a flatbuffer, or the text that `tosa-opt` prints: one function, whose operators are in MLIR's short or generic form
(`--mlir-print-op-generic`), with sizes that are known. The text is read by a grammar of its own, [tosa.lark](../grammar/tosa.lark):
xDSL's parser has the short forms of a few operators of TOSA only. Operators with regions (`tosa.cond_if`) and variables are mistakes of
syntax; every other refusal is said at once, with its line.

| operator | | |
|---|---|---|
"""


def page() -> str:
    rows = [
        f"| {op} | {'imported' if op in RULES else 'refused'} | "
        f"{EXACTNESS.get(op, EXACT) if op in RULES else REFUSED[op]} |\n"
        for op in sorted(OPERATORS[1:])
    ]
    return HEAD + "".join(rows)


if __name__ == "__main__":
    (FOLDER / "tosa.md").write_text(page(), "utf-8")
