"""Rewrite rounding shifts to add half before the shift.

    (x >> n) + ((x >> n - 1) & 1)  =>  (x + (1 << n - 1)) >> n

Legal where the range of x shows that the sum stays within its type. Pays always: two operations in
place of four.
"""

from dataclasses import replace

from ...dialect.kernel_ir.expressions import Apply, Const, Expr, Reduce
from ...dialect.kernel_ir.formulas import Formula, Formulas
from ...dialect.kernel_ir.traverse import rewrite, walk
from ..analysis.integer_ranges import interval
from ..passes import formula_pass


@formula_pass
def rounding_shift(program: Formulas) -> Formulas:
    """The formulas with rounding shifts rewritten."""

    def change(e: Expr) -> Expr | None:
        if (rounding := _rounding(e)) is None:
            return None
        x, bits = rounding
        half = 1 << (bits - 1)
        if interval(x, program.ranges, program.constants).high + half > x.type.limits[1]:
            return None
        return _added(rewrite(x, change), half) >> bits

    steps = tuple(
        replace(s, value=rewrite(s.value, change)) if isinstance(s, Formula) else s
        for s in program.steps
    )
    return replace(program, steps=steps)


def _added(x: Expr, half: int) -> Expr:
    """The sum of x and half; the constant is added to a term that is no reduction, if there is
    one.
    """
    match x:
        case Apply("add", (a, b), _) if any(isinstance(n, Reduce) for n in walk(a)):
            return a + (b + half)
        case Apply("add", (a, b), _):
            return (a + half) + b
    return x + half


def _rounding(e: Expr) -> tuple[Expr, int] | None:
    """The shifted operand and the shift distance of a rounding shift."""
    match e:
        case Apply("add", (Apply("shr", (x, Const(bits))), Apply("and", (low, Const(1))))) if (
            x.type.signed
        ):
            match low:
                case Apply("shr", (same, Const(fewer))) if same is x and fewer == bits - 1:
                    return x, int(bits)
            return (x, 1) if low is x and bits == 1 else None
    return None
