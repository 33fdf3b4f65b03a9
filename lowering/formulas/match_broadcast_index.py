"""Indices of operands that broadcasting may repeat: `select(i < n, i, 0)`, along an axis of unknown
size n.
"""

from ...dialect.kernel_ir.expressions import Apply, Const, Expr, Extent
from ...dialect.types.sizes import Size


def repeated(e: Expr) -> tuple[Expr, Size] | None:
    """The i and n of select(i < n, i, 0)."""
    match e:
        case Apply("select", (Apply("lt", (a, Extent(size)), _), b, Const(0)), _) if a is b:
            return a, size
    return None


def unrepeated(e: Expr) -> Expr:
    """The index of an operand that may be repeated, without the select; any other index
    unchanged.
    """
    while (place := repeated(e)) is not None:
        e = place[0]
    return e
