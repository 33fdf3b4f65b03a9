"""Expand functions of kernels from outside that back ends lack: a libm in primitives, and rare
values as branches.

    y[i] = exp(x[i])  =>  y[i] = ... fma(...) ...
    y[i] = rarely(c, a, b)
    =>  alloc acc; acc = b; if any(c) { acc = select(c, a, acc) }; y[i] = acc

Legal always: formulas go through the same expansions when they are lowered, and each function is
evaluated where it stands.
"""

from collections.abc import Callable

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.kernel_ir.traverse import rewrite, walk
from ...dialect.types.tensor_types import I32
from ..formulas.share_subexpressions import share_subexpressions
from ..math import FUNCTIONS, in_primitives
from ..passes import scheduled_kernel_pass
from .build_loops import StatementLowering


@scheduled_kernel_pass
def expand_functions(kernel: ir.Kernel, words: bool = False) -> ir.Kernel:
    """Expand also functions of packed `words`, as for a GPU."""
    expanded = WORDS if words else RARE_WORDS

    def expands(e: ex.Expr) -> bool:
        known = {"rarely", *FUNCTIONS, *expanded}
        return isinstance(e, ex.Apply) and e.function in known

    def plain(e: ex.Expr) -> ex.Expr | None:
        if isinstance(e, ex.Apply) and e.function in expanded:
            a, b = (rewrite(o, plain) for o in e.operands)
            return expanded[e.function](a, b)
        return None

    def expand(s: ir.Statement) -> ir.Block | None:
        if not any(expands(n) for e in ir.expressions(s) for n in walk(e)):
            return None
        before: list[ir.Statement] = []
        inner = iter([ir.rewrite_block(b, expand) for b in ir.blocks(s)])
        (new,) = ir.map_expressions(
            (ir.map_blocks(s, lambda _: ()),),
            lambda e: lower.value(in_primitives(rewrite(e, plain)), before, {}),
        )
        return (*before, ir.map_blocks(new, lambda _: next(inner)))

    lower = StatementLowering()
    if not any(map(expands, ir.nodes(kernel.body))):
        return kernel
    return share_subexpressions(kernel.with_body(ir.rewrite_block(kernel.body, expand)))


def _quads(first_signed: bool, second_signed: bool) -> Callable[[ex.Expr, ex.Expr], ex.Expr]:
    """The sum of products of bytes of two words."""

    def sum(a: ex.Expr, b: ex.Expr) -> ex.Expr:
        products = [
            _part(a, place, 8, first_signed) * _part(b, place, 8, second_signed)
            for place in (0, 8, 16, 24)
        ]
        return products[0] + products[1] + products[2] + products[3]

    return sum


def _part(word: ex.Expr, place: int, bits: int, signed: bool) -> ex.Expr:
    """The bits of an i32 from a place on, as a number."""
    if signed:
        high = ex.apply("shl", word, ex.constant(32 - bits - place, I32))
        return ex.apply("shr", high, ex.constant(32 - bits, I32))
    return ex.apply("shr", word, ex.constant(place, I32)) & ex.constant((1 << bits) - 1, I32)


def _pairdot(a: ex.Expr, b: ex.Expr) -> ex.Expr:
    low, high = (_part(a, n, 16, True) * _part(b, n, 16, True) for n in (0, 16))
    return low + high


def _bytepairs(a: ex.Expr, b: ex.Expr) -> ex.Expr:
    products = [_part(a, n, 8, False) * _part(b, n, 8, True) for n in (0, 8, 16, 24)]
    least, greatest = (ex.constant(n, I32) for n in (-(1 << 15), (1 << 15) - 1))
    sums = (products[0] + products[1], products[2] + products[3])
    return _joined(*(ex.apply("min", ex.apply("max", s, least), greatest) for s in sums))


def _joined(low: ex.Expr, high: ex.Expr) -> ex.Expr:
    upper = ex.apply("shl", high, ex.constant(16, I32))
    return ex.apply("or", upper, _part(low, 0, 16, False))


def _halves(function: str) -> Callable[[ex.Expr, ex.Expr], ex.Expr]:
    return lambda a, b: _joined(
        ex.apply(function, a, b), ex.apply(function, _part(a, 16, 16, True), _part(b, 16, 16, True))
    )


RARE_WORDS = {"quaddot_uu": _quads(False, False), "quaddot_su": _quads(True, False)}
WORDS = RARE_WORDS | {  # functions of words of bytes or halves, which GPUs lack
    "pairdot": _pairdot,
    "bytepairs": _bytepairs,
    "quaddot": _quads(True, True),
    "quaddot_us": _quads(False, True),
    "addhalves": _halves("add"),
    "subhalves": _halves("sub"),
}
