"""Narrow clamped numbers before the clamp, by a saturating conversion.

    i8(max(min(x, 100), 0))  =>  max(min(i8(max(min(x, 127), -128)), 100), 0)

Legal where the clamp lies within the narrow type. Pays since processors saturate and narrow by one
instruction (x86: packs), and the clamp then handles more lanes per vector.
"""

from dataclasses import replace

from ...dialect.kernel_ir.expressions import Apply, Cast, Expr, cast, constant, maximum, minimum
from ...dialect.kernel_ir.loops import Kernel, map_expressions, nodes
from ...dialect.kernel_ir.traverse import rewrite
from ...dialect.types.tensor_types import I8, I16, I32, UI8, UI16
from ..analysis.integer_ranges import clamped
from ..passes import scheduled_kernel_pass

NARROWED = {(I32, I8), (I32, UI8), (I32, I16), (I32, UI16), (I16, I8), (I16, UI8)}


@scheduled_kernel_pass
def saturating_narrow(kernel: Kernel) -> Kernel:
    """The kernel with clamped numbers narrowed before the clamp."""
    if not any(isinstance(e, Cast) for e in nodes(kernel.body)):
        return kernel
    return replace(kernel, body=map_expressions(kernel.body, lambda e: rewrite(e, _narrowed)))


def _narrowed(e: Expr) -> Expr | None:
    match e:
        case Cast(Apply("min" | "max") as operand, type) if (operand.type, type) in NARROWED:
            x, low, high = clamped(operand)
            least, most = type.limits
            if least <= low <= high <= most and (low, high) != (least, most):
                x = rewrite(x, _narrowed)
                narrow = cast(
                    minimum(maximum(x, constant(least, x.type)), constant(most, x.type)), type
                )
                narrow = narrow if low == least else maximum(narrow, constant(int(low), type))
                return narrow if high == most else minimum(narrow, constant(int(high), type))
    return None
