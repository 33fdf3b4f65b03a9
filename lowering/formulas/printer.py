"""Print formulas for people to read. Their text does not parse back."""

from __future__ import annotations

from collections.abc import Iterable

from ...dialect.notation.expressions import Tensor
from ...dialect.notation.formulas import Formulas, LoopNest, Nest, View
from ...dialect.notation.printer import Names, expression_text, size_text, tensor_text
from .share_subexpressions import named


def formulas_text(program: Formulas) -> str:
    """Index notation: a line for each array, and one for each subexpression that is used twice."""
    names = Names()

    def declared(tensors: Iterable[Tensor]) -> str:
        return ", ".join(tensor_text(t, names) for t in tensors)

    lines = [f"// @{program.name}({declared(program.arguments)})"]
    lines += [f"{tensor_text(t, names)} = constant" for t in program.constants]
    for step in program.steps:
        match step:
            case LoopNest(tensors, operands) if isinstance(step.program, Formulas):
                callee = step.program.name
                lines.append(f"{declared(tensors)} = loop of @{callee}({', '.join(map(names.of, operands))})")
                inner = [f"  {line}" for line in formulas_text(step.program).splitlines()]
                lines += inner
            case Nest(tensors, operands, _):
                lines.append(f"{declared(tensors)} = nest({', '.join(map(names.of, operands))})")
            case View(tensor, of, _):
                lines.append(f"{tensor_text(tensor, names)} = view of {names.of(of)}")
            case _:
                local = Names()
                local.given, local.used = dict(names.given), set(names.used)
                shape = "x".join([*(size_text(d, names) for d in step.tensor.shape), step.tensor.element.name])
                head = f"{names.of(step.tensor)}[{', '.join(local.of(i) for i in step.indices)}]: {shape}"
                lets, value = named(step.value)
                lines.append(f"{head} = {expression_text(value, local, step.tensor.element)}")
                for let in lets:
                    lines.append(f"  where {local.of(let.var)} = {expression_text(let.value, local, let.var.type)}")
    lines.append(f"return {', '.join(map(names.of, program.results))}")
    return "\n".join(lines) + "\n"
