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

`cvm.from_tosa(model)`, `cvm import MODEL.tosa` and `cvm import MODEL.mlir` accept integer graphs with the operators that this table
lists as imported. `docs/tosa_operators.py` generates the table. The last column states how results compare with those of the
specification ([Exactness](exactness.md)), which `tosa_reference_model` computes, or why the operator is refused.

A model is a flatbuffer, or the text that `tosa-opt` prints: one function, with known sizes, whose operators are in MLIR's short or
generic form (`--mlir-print-op-generic`). cvm parses the text with its own grammar, [tosa.lark](../grammar/tosa.lark), because xDSL's
parser supports the short forms of only a few TOSA operators. Operators with regions (`tosa.cond_if`) and variables are syntax errors;
all other refusals are reported together, with their lines.

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
