"""Reduce booleans as bytes, which vectors hold side by side.

    acc = true; for k { acc = acc & x[k] }; y[] = acc
    =>  acc = 1; for k { acc = acc & ui8(x[k]) }; y[] = acc != 0

Legal always; pays since vectors of bits would be unpacked for each element.
"""

from dataclasses import replace

from ...dialect.kernel_ir.expressions import Apply, Cast, Const, Expr, Read
from ...dialect.kernel_ir.loops import (
    Alloc,
    Block,
    Kernel,
    Statement,
    Store,
    map_expressions,
    rewrite_block,
)
from ...dialect.kernel_ir.traverse import rewrite, walk
from ...dialect.types.tensor_types import I1, UI8
from ..analysis.accesses import stores
from ..passes import kernel_pass

FUNCTIONS = ("and", "or", "xor")


@kernel_pass
def promote_bools(kernel: Kernel) -> Kernel:
    updates = [s for s in stores(kernel.body) if _is_update(s)]
    assigned = {
        s.tensor for s in stores(kernel.body) if s not in updates and not isinstance(s.value, Const)
    }
    if not (bytes := {t: replace(t, element=UI8) for t in {s.tensor for s in updates} - assigned}):
        return kernel

    def read(e: Expr) -> Expr | None:
        return Cast(bytes[e.tensor][()], I1) if isinstance(e, Read) and e.tensor in bytes else None

    def change(s: Statement) -> Block | None:
        match s:
            case Alloc(tensor) if tensor in bytes:
                return (Alloc(bytes[tensor]),)
            case Store(tensor, (), Const(value)) if tensor in bytes:
                return (Store(bytes[tensor], (), Const(int(value), UI8)),)
            case Store(tensor, (), Apply(function, (_, operand), _)) if tensor in bytes:
                new = Cast(rewrite(operand, read), UI8)
                return (Store(bytes[tensor], (), Apply(function, (bytes[tensor][()], new), UI8)),)
        return None

    return kernel.with_body(
        map_expressions(rewrite_block(kernel.body, change), lambda e: rewrite(e, read))
    )


def _is_update(s: Store) -> bool:
    """Test whether a statement reduces a boolean into an accumulator."""
    match s:
        case Store(tensor, (), Apply(function, (Read(again, ()), value), _)) if (
            tensor.element is I1
        ):
            own = tensor.space == "register" and again is tensor and function in FUNCTIONS
            return own and not any(isinstance(e, Read) and e.tensor is tensor for e in walk(value))
    return False
