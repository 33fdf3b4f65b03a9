"""Writes docs/tosa.md: what the importer does with each operator of TOSA, from its tables.

python docs/tosa_operators.py
"""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))

from cvm.importers.exactness import EXACT  # noqa: E402
from cvm.importers.tosa.rules import EXACTNESS, RULES  # noqa: E402
from cvm.importers.tosa.schema import OPERATORS  # noqa: E402

HEAD = """# TOSA operators

`cvm.from_tosa(model)` and `cvm import MODEL.tosa` take graphs of integers with the operators that this table, written by
`docs/tosa_operators.py`, says are imported. The last column says how results compare with the specification's
([exactness.md](exactness.md)); `tosa_reference_model` computes those.

| operator | | |
|---|---|---|
"""


def page() -> str:
    rows = [f"| {op} | {'imported' if op in RULES else 'refused'} | {EXACTNESS.get(op, EXACT) if op in RULES else ''} |\n"
            for op in sorted(OPERATORS[1:])]  # fmt: skip
    return HEAD + "".join(rows)


if __name__ == "__main__":
    (FOLDER / "tosa.md").write_text(page(), "utf-8")
