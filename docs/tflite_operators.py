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

`cvm.from_tflite(model)` and `cvm import MODEL.tflite` accept the builtin operators as listed in this table.
`docs/tflite_operators.py` generates it from the importer's table of rules. The file is read directly from its schema: neither
TensorFlow nor the `flatbuffers` package is needed. Operators become operations of the `quant` dialect ([Quantized
models](quantised.md)) and other dialects, which compute the same results as LiteRT's reference kernels
(`OpResolverType.BUILTIN_REF`), with the same roundings. The last columns state how results compare with those kernels, for integers
and for floats: *exact* means equal bytes for every input ([Exactness](exactness.md)).

- Supported element types are `int8`, `uint8`, `int16` (with 64-bit sums), `int4` for weights, plain integers, `bool` and floats.
  Weights have one scale, or one for each channel. Float operators with quantized weights (hybrid) are refused.
- If a model is refused, one error lists all operators that cannot be imported.
- State (`VAR_HANDLE`, the state of `SVDF` and of recurrent layers) becomes arguments after the inputs and results after the outputs:
  pass the last results of a call to the next call. `module.state` contains the initial arrays by argument name: the model's initial
  values, or otherwise the zero point for i8 and zero for other state.

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
