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
    Tensor,
    Var,
    as_index,
    both,
    constant,
)
from ...dialect.kernel_ir.integer_interval import Interval, whole
from ...dialect.kernel_ir.kernel_printer import Names, expression_text, size_text
from ...dialect.kernel_ir.traverse import children, walk
from ...dialect.types.sizes import Dim
from ...dialect.types.tensor_types import I64
from ..analysis.integer_ranges import intervals
from ..pass_context import Context
from ..passes import scheduled_kernel_pass

LONGEST = 60  # characters of an expression in a message


@scheduled_kernel_pass
def sanitize(kernel: ir.Kernel, context: Context) -> ir.Kernel:
    return kernel.with_body(_Checks(kernel, context).block(kernel.body))


class _Checks:
    def __init__(self, kernel: ir.Kernel, context: Context) -> None:
        self.kernel, self.ranges, self.names = kernel, context.ranges, Names()
        self.inside: set[tuple[Expr, Dim]] = (
            set()
        )  # the indices that checks before have found inside of a size
        self.interval: Callable[[Expr], Interval | None] = intervals(
            context.ranges, context.constants
        )
        for parameter in kernel.parameters:
            self.names.of(parameter)

    def block(self, block: ir.Block) -> ir.Block:
        """The block with the checks of each statement before it."""
        statements: list[ir.Statement] = []
        outer = self.inside
        self.inside = {*self.inside}
        for s in block:
            seen: set[int] = set()
            if not isinstance(s, (ir.Alloc, ir.Prefetch)):
                for e in ir.expressions(s):
                    self.expression(e, statements, seen)
            if isinstance(s, ir.For) and not all(
                isinstance(n, (Const, Index, Extent))
                or (isinstance(n, Apply) and n.function in ("add", "sub", "mul"))
                for e in (s.start, s.end)
                for n in walk(e)
            ):
                index = self.names.of(s.index)
                extent = size_text(s.index.extent, self.names)
                inside = (s.start >= 0) & (s.end <= as_index(s.index.extent))
                message = f"the loop over {index} begins below 0, or ends beyond {extent}"
                self.require((s.start >= s.end) | inside, message, statements)
            if isinstance(s, ir.Store):
                self.access(s.tensor, s.indices, statements)
                self.stored(s, statements)
            statements.append(ir.map_blocks(s, self.block))
        self.inside = outer
        return tuple(statements)

    def expression(self, e: Expr, statements: list[ir.Statement], seen: set[int]) -> None:
        """Append the checks of an expression, those of its operands first."""
        if id(e) in seen:
            return
        seen.add(id(e))
        for operand in children(e):
            self.expression(operand, statements, seen)
        if isinstance(e, Read):
            self.access(e.tensor, e.indices, statements)
        elif isinstance(e, (Apply, Cast)) and e.type.is_integer and not _is_index(e):
            self.within(
                e, self.interval(e), f"{self.text(e)} leaves its proven interval", statements
            )

    def access(self, tensor: Tensor, at: tuple[Expr, ...], statements: list[ir.Statement]) -> None:
        for axis, (i, size) in enumerate(zip(at, tensor.shape, strict=True)):
            if (isinstance(i, Const) and isinstance(size, int) and 0 <= i.value < size) or (
                i,
                size,
            ) in self.inside:
                continue
            if _is_index(i):
                self.inside.add((i, size))
            inside = (i >= 0) & (i < as_index(size))
            shown = f"index {self.text(i)} of {self.names.of(tensor)} is outside of axis {axis}"
            self.require(
                inside, f"{shown}, whose size is {size_text(size, self.names)}", statements
            )

    def stored(self, s: ir.Store, statements: list[ir.Statement]) -> None:
        """Append the check that a stored number lies in the interval of its array, before it is
        narrowed to that.
        """
        proven = self.ranges.get(s.tensor)
        value = s.value
        if proven is not None and not whole(s.tensor.element).within(proven):
            if isinstance(value, Cast) and value.operand.type.is_integer:
                value = value.operand
            self.within(
                value,
                proven,
                f"what {self.names.of(s.tensor)} holds leaves its proven interval",
                statements,
            )

    def within(
        self, e: Expr, interval: Interval | None, message: str, statements: list[ir.Statement]
    ) -> None:
        low, high = e.type.limits
        if interval is not None and not isinstance(e, Const):
            lower = e >= constant(interval.low, e.type) if interval.low > low else True
            upper = e <= constant(interval.high, e.type) if interval.high < high else True
            if not isinstance(inside := both(lower, upper), bool):
                self.require(inside, f"{message}, {interval}", statements)

    def require(self, condition: Expr, message: str, statements: list[ir.Statement]) -> None:
        statements.append(
            ir.Guard(
                condition, f"sanitize: {message} (kernel @{self.kernel.name})", self.kernel.span
            )
        )

    def text(self, e: Expr) -> str:
        shown = expression_text(e, self.names, e.type)
        return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}..."


def _is_index(e: Expr) -> bool:
    """Test whether an expression is index arithmetic, whose bounds come from loops."""
    return e.type is I64 and not any(isinstance(n, (Read, Var)) for n in walk(e))
