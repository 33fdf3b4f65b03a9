"""Print formulas as text that parses back (`parser.formulas`): a line for each array, and one for
each subexpression that is used twice. Of a constant with many elements the values are not part of
it.
"""

from collections.abc import Iterable, Iterator

from ...dialect.builtin import Data
from ...dialect.kernel_ir.expressions import Tensor
from ...dialect.kernel_ir.formulas import Formulas, LoopNest, Nest, View
from ...dialect.kernel_ir.kernel_printer import (
    Names,
    block_lines,
    expression_text,
    steps_text,
    tensor_text,
)
from ...dialect.support.diagnostics import Span
from .share_subexpressions import named

# elements of a constant whose values are in the text, at most; chosen by hand, to be readable
MOST_ELEMENTS = 64


def formulas_text(program: Formulas) -> str:
    return "".join(f"{line}\n" for line, _ in formula_lines(program))


def formula_lines(program: Formulas) -> Iterator[tuple[str, tuple[Span, ...]]]:
    """The lines of the text, each with the places of the operations that it is computed for."""
    names = Names()

    def declared(tensors: Iterable[Tensor]) -> str:
        return ", ".join(tensor_text(t, names) for t in tensors)

    yield f"formulas @{program.name}({declared(program.arguments)}) {{", ()
    for t, array in program.constants.items():
        yield (
            f"  {tensor_text(t, names)} = "
            f"constant{f' {Data(array).text}' if array.size <= MOST_ELEMENTS else ''}",
            (),
        )
    for step in program.steps:
        match step:
            case Nest(tensors, operands, body, span):
                given = ", ".join(map(names.of, operands))
                results = declared(tensors)
                if isinstance(step, LoopNest) and isinstance(step.program, Formulas):
                    yield (
                        f"  {results} = loop {steps_text(step.steps, names)} of ({given})",
                        (span,),
                    )
                    yield from ((f"    {line}", (span,)) for line, _ in formula_lines(step.program))
                else:
                    yield f"  {results} = nest({given}) {{", (span,)
                    yield from ((line, (span,)) for line in block_lines(body, names, 2))
                    yield "  }", (span,)
            case View(tensor, of, formula):
                yield f"  {tensor_text(tensor, names)} = view of {names.of(of)}", (formula.span,)
            case _:
                tensor = tensor_text(step.tensor, names).partition(": ")
                spans = step.spans or (step.span,)
                with names.scope():
                    head = f"{tensor[0]}[{', '.join(map(names.of, step.indices))}]: {tensor[2]}"
                    lets, value = named(step.value)
                    yield f"  {head} = {expression_text(value, names, step.tensor.element)}", spans
                    for let in lets:
                        text = expression_text(let.value, names, let.var.type)
                        yield f"    where {names.of(let.var)}: {let.var.type} = {text}", spans
    yield f"  return {', '.join(map(names.of, program.results))}", ()
    yield "}", ()
