"""Writes docs/onnx.md: what the importer does with each operator of ONNX, from its table of rules.

python docs/onnx_operators.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))

import onnx  # noqa: E402

import cvm.importers.onnx  # noqa: E402,F401
from cvm.importers.onnx.exactness import of_operator  # noqa: E402
from cvm.importers.onnx.rules import LATEST, REFUSED, RULES  # noqa: E402

HEAD = """# ONNX operators

`cvm.from_onnx(model)` and `cvm import MODEL.onnx` accept the operators of ONNX's default domain, and of `ai.onnx.ml` (scikit-learn, LightGBM and
XGBoost models), as listed in this table. `docs/onnx_operators.py` generates it from the importer's table of rules ({package} {version}, opset
{opset}).

- *Imported*: a rule converts the operator to operations of the language. The table names inputs that must be constants, in
  the model or passed as `constants`. Nodes whose inputs are all constants are computed while importing.
- *Expanded*: the operator is replaced by the function that defines it in ONNX or in the model.
- *Refused*: the table gives the reason. If a model is refused, one error lists all such nodes.

Supported element types are `bool`, signed and unsigned integers of 8 to 64 bits, `float16`, `bfloat16`, `float`, `double` and
complex numbers. The 8-bit floats, integers of less than 8 bits, sequences and optional values are refused, and the error names
them. Strings are also refused, except for class labels: if a model's result is a string, the program's result is its i64 index,
and `module.labels` maps the name of the model's output to the strings. A ZipMap returns the array of scores, with a column for
each class.

Weights are read once, one tensor at a time. With `cvm.from_onnx(model, mmap=True)`, weights in files beside the model are mapped
instead of read; those that importing rearranges are copied all the same.

The last columns state how integer and float results compare with onnxruntime's ([Exactness](exactness.md)).

| operator | | | integers | floats |
|---|---|---|---|---|
"""


ML = "ai.onnx.ml"


def full_name(schema: Any) -> str:
    """The operator's name in the table of rules."""
    return f"{schema.domain}.{schema.name}" if schema.domain else schema.name


def about(schema: Any) -> tuple[str, str]:
    """The support of an operator, with a remark."""
    rules = sorted(RULES.get(full_name(schema), ()), key=lambda r: r.since)
    if rules:
        notes: list[str] = []
        for r in rules:
            fixed = [p.name for p in r.parameters if p.kind in ("Array", "Ints")]
            doc = " ".join((r.function.__doc__ or "").split())
            said = (
                doc
                + (" " if doc and fixed else "")
                + (f"Constant: {', '.join(fixed)}." if fixed else "")
            )
            span = (
                f"from opset {r.since}"
                if r.until == LATEST
                else f"opset {r.since} to {r.until - 1}"
            )
            notes += [f"{span}: {said}" if len(rules) > 1 else said] if said else []
        return "imported", " ".join(notes)
    if schema.name in REFUSED:
        return "refused", f"{REFUSED[schema.name][0].upper()}{REFUSED[schema.name][1:]}."
    if schema.has_function or schema.has_context_dependent_function:
        return "expanded", ""
    return "refused", "It has no rule."


def exact(name: str, kind: str) -> str:
    """The exactness of results on integers and on floats."""
    return " | ".join(
        "" if kind == "refused" else str(of_operator(name, floats)) for floats in (False, True)
    )


def note_of(name: str) -> str:
    """The note of one of onnxruntime's own operators."""
    function = RULES[name][0].function
    if function.__module__.endswith("transformers"):
        return " ".join((function.__doc__ or "As onnxruntime computes it.").split())
    return "As onnxruntime computes it; scales and zero points are constants."


def page() -> str:
    latest: dict[str, Any] = {}
    for s in onnx.defs.get_all_schemas_with_history():
        name = full_name(s)
        if s.domain in ("", ML) and (
            name not in latest or latest[name].since_version < s.since_version
        ):
            latest[name] = s
    rows = [
        f"| {name} | {' | '.join(about(s))} | {exact(s.name, about(s)[0])} |\n"
        for name, s in sorted(latest.items())
    ]
    own = sorted(n for n in RULES if n.startswith("com.microsoft."))
    rows += [
        f"| {name} | imported | {note_of(name)} | {exact(name.rpartition('.')[2], 'imported')} |\n"
        for name in own
    ]
    head = HEAD.format(
        package="onnx", version=onnx.__version__, opset=onnx.defs.onnx_opset_version()
    )
    return head + "".join(rows)


if __name__ == "__main__":
    (FOLDER / "onnx.md").write_text(page(), "utf-8")
