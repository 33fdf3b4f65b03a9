"""Check at run time, for debugging, that accesses lie in their arrays and integers in the intervals
that passes rely on.

    y[i + 1] = f(x[i])
    =>  assert i >= 0 & i < 8, "...";  assert i + 1 >= 0 & i + 1 < 8, "...";  y[i + 1] = f(x[i])

Legal always, as the last pass over kernels: nothing that it checks is inferred from loop bounds. A
kernel ends at the first check that fails. Pays where a bug in the compiler is looked for. Cf.
AddressSanitizer and Halide's bounds assertions.
"""

from collections.abc import Callable

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.expressions import (
    Apply,
    Cast,
    Const,
    Expr,
    Extent,
    Index,
    Read,
    Var,
    both,
    constant,
)
from ...dialect.kernel_ir.integer_interval import Interval, whole
from ...dialect.kernel_ir.traverse import walk
from ...dialect.types.sizes import Dim
from ...dialect.types.tensor_types import I64
from ..analysis.integer_ranges import intervals
from ..analysis.verify_kernel import Unproved
from ..pass_context import Context
from ..passes import scheduled_kernel_pass
from .guard_accesses import Guards


@scheduled_kernel_pass
def sanitize(kernel: ir.Kernel, context: Context) -> ir.Kernel:
    return kernel.with_body(_Checks(kernel, context).block(kernel.body))


class _Checks(Guards):
    """Insert checks of all accesses, and of the intervals of integers."""

    def __init__(self, kernel: ir.Kernel, context: Context) -> None:
        super().__init__(kernel, Unproved())
        self.ranges = context.ranges
        self.checked: set[tuple[Expr, Dim]] = set()  # indices that earlier checks are about
        self.interval: Callable[[Expr], Interval | None] = intervals(
            context.ranges, context.constants
        )

    def block(self, block: ir.Block) -> ir.Block:
        outer = self.checked
        self.checked = {*outer}
        checked = super().block(block)
        self.checked = outer
        return checked

    def expression(self, e: Expr, guards: list[ir.Statement], seen: set[int]) -> None:
        known = id(e) in seen
        super().expression(e, guards, seen)
        if not known and isinstance(e, (Apply, Cast)) and e.type.is_integer and not _is_index(e):
            self.within(e, self.interval(e), f"{self.text(e)} leaves its proven interval", guards)

    def is_inside(self, i: Expr, size: Dim) -> bool:
        if (i, size) in self.checked:
            return True
        if _is_index(i):
            self.checked.add((i, size))
        return isinstance(i, Const) and isinstance(size, int) and 0 <= i.value < size

    def may_leave_extent(self, s: ir.For) -> bool:
        return not all(
            isinstance(n, (Const, Index, Extent))
            or (isinstance(n, Apply) and n.function in ("add", "sub", "mul"))
            for e in (s.start, s.end)
            for n in walk(e)
        )

    def stored(self, s: ir.Store, guards: list[ir.Statement]) -> None:
        """Append the check that a stored number lies in the interval of its array, before it is
        narrowed to that.
        """
        proven = self.ranges.get(s.tensor)
        value = s.value
        if proven is not None and not whole(s.tensor.element).within(proven):
            if isinstance(value, Cast) and value.operand.type.is_integer:
                value = value.operand
            name = self.names.of(s.tensor)
            self.within(value, proven, f"what {name} holds leaves its proven interval", guards)

    def within(
        self, e: Expr, interval: Interval | None, message: str, guards: list[ir.Statement]
    ) -> None:
        low, high = e.type.limits
        if interval is not None and not isinstance(e, Const):
            lower = e >= constant(interval.low, e.type) if interval.low > low else True
            upper = e <= constant(interval.high, e.type) if interval.high < high else True
            if not isinstance(inside := both(lower, upper), bool):
                self.require(inside, f"{message}, {interval}", guards)

    def require(self, condition: Expr, message: str, guards: list[ir.Statement]) -> None:
        said = f"sanitize: {message} (kernel @{self.kernel.name})"
        guards.append(ir.Guard(condition, said, self.kernel.span))


def _is_index(e: Expr) -> bool:
    """Test whether an expression is index arithmetic, whose bounds come from loops."""
    return e.type is I64 and not any(isinstance(n, (Read, Var)) for n in walk(e))
