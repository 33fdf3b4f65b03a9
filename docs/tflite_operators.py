"""Writes docs/tflite.md: what the importer does with each operator of TensorFlow Lite, from its
table of rules.

python docs/tflite_operators.py
"""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))

import cvm.importers.tflite  # noqa: E402,F401
from cvm.importers.tflite.rules import REFUSED, RULES  # noqa: E402
from cvm.importers.tflite.schema import OPERATORS  # noqa: E402

HEAD = """# TensorFlow Lite (LiteRT) operators

`cvm.from_tflite(model)` and `cvm import MODEL.tflite` take the builtin operators as this table says; it is written by
`docs/tflite_operators.py` from the importer's table of rules. The file is read by its schema alone: neither TensorFlow nor the
`flatbuffers` package is needed. Operators become operations of the `quant` dialect ([quantised.md](quantised.md)) and others, which
compute what LiteRT's reference kernels do (`OpResolverType.BUILTIN_REF`), with the same roundings. The last columns say how results
compare with those, of integers and where there are floats: *exact* is equal bytes for every input ([exactness.md](exactness.md)).

- Elements are `int8`, `uint8`, `int16` (with 64-bit sums), `int4` weights, plain integers, `bool` and floats; weights have one scale,
  or one for each channel. Float operators with quantised weights (hybrid) are refused.
- A model that is refused names all operators that cannot be imported at once.
- State (`VAR_HANDLE`, the state of `SVDF` and of recurrent layers) becomes arguments after the inputs and results after the outputs:
  pass a call's last results to the next call. `module.state` has the arrays that it begins with, by the names of arguments: what the
  model initialises it to, else its zero point for i8 and zero for other state.

| operator | | | integers | floats |
|---|---|---|---|---|
"""


def page() -> str:
    rows: list[str] = []
    for op in sorted(OPERATORS):
        if (found := RULES.get(op)) is not None:
            fixed = [p.name for p in found.parameters if p.kind in ("Array", "Ints")]
            notes = [
                " ".join((found.function.__doc__ or "").split()),
                f"Constant: {', '.join(fixed)}." if fixed else "",
            ]
            exact = " | ".join(map(str, found.exact))
            rows.append(f"| {op} | imported | {' '.join(n for n in notes if n)} | {exact} |\n")
        else:
            reason = REFUSED.get(op, "it has no rule")
            rows.append(f"| {op} | refused | {reason[0].upper()}{reason[1:]}. | | |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    (FOLDER / "tflite.md").write_text(page(), "utf-8")
