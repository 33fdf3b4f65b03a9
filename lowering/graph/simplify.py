"""Simplify operations by identities that are exact for the element type (MLIR's canonicalize).

    x * 1 => x,  -(-x) => x,  transpose(transpose(x)) => x, ...

Each operator defines its identities, packages and programs add patterns. Float sums are not
reordered; an identity that fails for NaN, infinity or -0.0 is applied to integers only.
"""

from ...dialect.ir.function import Function
from ..pass_context import Context
from ..passes import graph_pass
from .match_programs import pattern_of
from .patterns import PATTERNS
from .rewrite import rewritten


@graph_pass
def simplify(function: Function, context: Context) -> Function:
    """The function with operations replaced by simpler ones, or by existing values."""
    patterns = [*PATTERNS.values(), *map(pattern_of, context.module.rewrites.values())]
    return rewritten(function, patterns, is_called=context.function is not None)
