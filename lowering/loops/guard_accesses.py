"""Guard the accesses that are not proved to be inside their arrays.

    y[i] = x[j[i]]
    =>  if !(j[i] >= 0 & j[i] < 8) { fail "index ..." };  y[i] = x[j[i]]

Legal always: the kernel ends with an error at the first access that is out of bounds. Needed where
a person wrote the kernel; cvm's own accesses depend on data only behind tests of their own. Cf. the
bounds checks of Rust and of Java. `sanitize` checks every access, for debugging.
"""

from dataclasses import replace

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.execution_plan import Loop, Plan
from ...dialect.kernel_ir.expressions import TRUE, Expr, Read, Tensor, apply, as_index
from ...dialect.kernel_ir.kernel_printer import Names, expression_text, size_text
from ...dialect.kernel_ir.traverse import children
from ...dialect.types.sizes import Dim
from ..analysis.verify_kernel import Unproved, unproved_accesses
from ..pass_context import Context
from .kernel_condition_to_branch import kernel_condition_to_branch

LONGEST = 60  # characters of an expression in a message


def guard_accesses(plan: Plan) -> Plan:
    """Guard the unproved accesses of all kernels."""
    kernels = []
    for k in plan.kernels:
        if isinstance(k, Loop):
            kernels.append(k.with_plan(guard_accesses(k.plan)))
            continue
        unproved = unproved_accesses(k, home=plan.home)
        if unproved.places and k.condition is not None:
            k = kernel_condition_to_branch.run(k, Context())
        kernels.append(guarded(k, unproved))
    return replace(plan, kernels=tuple(kernels))


def guarded(kernel: ir.Kernel, unproved: Unproved) -> ir.Kernel:
    """The kernel with a guard before each statement that has unproved accesses."""
    if not unproved.places:
        return kernel
    return kernel.with_body(Guards(kernel, unproved).block(kernel.body))


class Guards:
    """Insert guards before the statements of a kernel."""

    def __init__(self, kernel: ir.Kernel, unproved: Unproved) -> None:
        self.kernel, self.unproved, self.names = kernel, unproved, Names()
        self.lanes = False  # in a loop whose lanes or threads end together
        for parameter in kernel.parameters:
            self.names.of(parameter)

    def block(self, block: ir.Block) -> ir.Block:
        statements: list[ir.Statement] = []
        for s in block:
            seen: set[int] = set()
            guards: list[ir.Statement] = []
            if not isinstance(s, (ir.Alloc, ir.Prefetch)):
                for e in ir.expressions(s):
                    self.expression(e, guards, seen)
            if isinstance(s, ir.For) and self.may_leave_extent(s):
                self.loop(s, guards)
            if isinstance(s, ir.Store):
                self.access(s.tensor, s.indices, guards)
                self.stored(s, guards)
            inner = self.inside(s)
            if isinstance(inner, ir.While) and guards:  # the condition is evaluated many times
                leave = ir.If(apply("not", inner.condition), (ir.Break(),))
                inner = ir.While(TRUE, (*guards, leave, *inner.body))
                guards = []
            statements += [*guards, inner]
        return tuple(statements)

    def inside(self, s: ir.Statement) -> ir.Statement:
        """The statement with guards in its blocks."""
        outer = self.lanes
        self.lanes |= isinstance(s, ir.For) and s.kind in ("vector", "thread")
        try:
            return ir.map_blocks(s, self.block)
        finally:
            self.lanes = outer

    def expression(self, e: Expr, guards: list[ir.Statement], seen: set[int]) -> None:
        """Append the guards of an expression, those of its operands first."""
        if id(e) in seen:
            return
        seen.add(id(e))
        for operand in children(e):
            self.expression(operand, guards, seen)
        if isinstance(e, Read):
            self.access(e.tensor, e.indices, guards)

    def access(self, tensor: Tensor, at: tuple[Expr, ...], guards: list[ir.Statement]) -> None:
        for axis, (i, size) in enumerate(zip(at, tensor.shape, strict=True)):
            if self.is_inside(i, size):
                continue
            shown = f"index {self.text(i)} of {self.names.of(tensor)} is outside of axis {axis}"
            message = f"{shown}, whose size is {size_text(size, self.names)}"
            self.require((i >= 0) & (i < as_index(size)), message, guards)

    def is_inside(self, i: Expr, size: Dim) -> bool:
        return (i, size) not in self.unproved.indices

    def may_leave_extent(self, s: ir.For) -> bool:
        return s.index in self.unproved.ranges

    def loop(self, s: ir.For, guards: list[ir.Statement]) -> None:
        index, extent = self.names.of(s.index), size_text(s.index.extent, self.names)
        inside = (s.start >= 0) & (s.end <= as_index(s.index.extent))
        message = f"the loop over {index} begins below 0, or ends beyond {extent}"
        self.require((s.start >= s.end) | inside, message, guards)

    def stored(self, s: ir.Store, guards: list[ir.Statement]) -> None:
        """Append guards of a stored value; there are none."""

    def require(self, condition: Expr, message: str, guards: list[ir.Statement]) -> None:
        message, span = f"{message} (kernel @{self.kernel.name})", self.kernel.span
        if self.lanes:
            guards.append(ir.Guard(condition, message, span))
        else:
            guards.append(ir.If(apply("not", condition), (ir.Fail(message, span),)))

    def text(self, e: Expr) -> str:
        shown = expression_text(e, self.names, e.type)
        return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}..."
