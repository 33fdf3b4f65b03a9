"""Verify formulas and nests of other packages' operators, and of kernels that programs hold, as
kernels that are given as text are.
"""

from typing import Any

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.formulas import Formula, Nest
from ...dialect.spec.foreign_operators import fault, source_place
from ...dialect.support.diagnostics import Diagnostic, VerifyError
from ..analysis.verify_kernel import LoweringError, unproved_accesses
from ..analysis.written import unwritten_in
from .build_loops import build_nest, sorted_tensors
from .guard_accesses import guarded
from .zero_fill import fill


def verified(step: Formula | Nest, operator: Any) -> Formula | Nest:
    """Verify how an operator computes its results; raise if that is not legal. Accesses that are
    not proved to be inside their arrays get guards, in the nest of a formula if it is one; elements
    that are not proved to be written, zeros.
    """
    is_formula = isinstance(step, Formula)
    place = source_place(operator.element if is_formula else operator.nest)
    told = f"`{'element' if is_formula else 'nest'}` is not legal"
    if isinstance(step, Formula):
        kernel = build_nest(step, operator.name)
    else:
        parameters = (*sorted_tensors({*step.operands} - {*step.tensors}), *step.tensors)
        kernel = ir.Kernel(operator.name, parameters, step.body, len(step.tensors), step.span)
    try:
        unproved = unproved_accesses(kernel, strict=True, certain=not operator.is_given)
    except LoweringError as e:
        at = str(e).removeprefix(e.message).strip()
        where = f"{e.message}{at and f', in `{at}`'}"
        if operator.is_given:
            text = f"the kernel is not legal: {where}"
            raise VerifyError(Diagnostic(text, step.span, "operator")) from None
        raise fault(operator, f"{told}: {where}", place) from None
    missing = [] if is_formula else unwritten_in(kernel, kernel.outputs)
    for u in (u for u in missing if u.sure and not operator.is_given):
        raise fault(operator, f"{told}: {u.message}", place)
    if not missing and not unproved.places:
        return step
    body = guarded(fill(kernel, {u.tensor for u in missing}), unproved).body
    return Nest(kernel.outputs, kernel.parameters[: -len(kernel.outputs)], body, step.span)
