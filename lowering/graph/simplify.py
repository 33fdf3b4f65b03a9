"""Simplify operations by identities that are exact for the element type (MLIR's canonicalize).

    x * 1 => x,  -(-x) => x,  transpose(transpose(x)) => x, ...

Each operator defines its identities, packages and programs add patterns. Float sums are not
reordered; an identity that fails for NaN, infinity or -0.0 is applied to integers only.
"""

from ...dialect.ir.function import Function
from ..pass_context import Context
from ..passes import graph_pass
from .patterns import PATTERNS
from .rewrite import rewritten


@graph_pass
def simplify(function: Function, context: Context) -> Function:
    """The function with operations replaced by simpler ones, or by existing values."""
    return rewritten(function, [*PATTERNS.values()], is_called=context.function is not None)
