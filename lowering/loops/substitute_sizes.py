"""Specialize a kernel to known sizes (shape specialization).

for i in 0..n { y[i] = x[i] } with n = 8  =>  for i in 0..8 { y[i] = x[i] }, x and y of 8 elements
"""

from collections.abc import Callable
from dataclasses import replace
from operator import is_not

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.expressions import ZERO, Apply, Const, Expr, Extent, Index, as_index
from ...dialect.kernel_ir.traverse import rewrite
from ...dialect.types.sizes import Dim, same_size
from ..analysis.accesses import allocated


def substitute_sizes(kernel: ir.Kernel, size: Callable[[Dim], Dim]) -> ir.Kernel:
    """The kernel with every size replaced by `size` of it."""
    indices: dict[Index, Index] = {}

    def bind(s: ir.Statement) -> ir.Block | None:
        if not isinstance(s, ir.For):
            return None
        # loops may share an index
        index = indices.setdefault(s.index, replace(s.index, extent=size(s.index.extent)))
        return (ir.rewrite_within(replace(s, index=index), bind),)

    def sized(e: Expr) -> Expr | None:
        match e:
            case Extent(n):
                return as_index(size(n))
            case Apply(
                "select", (Apply("lt", (Index() as i, Extent(n)), _), again, Const(0)), _
            ) if again is i:
                if same_size(n := size(n), 1):
                    return ZERO
                if same_size(n, i.extent):
                    return i
                return None
        return None

    shapes = {t: tuple(map(size, t.shape)) for t in (*kernel.parameters, *allocated(kernel.body))}
    arrays = {
        t: replace(t, shape=shape)
        for t, shape in shapes.items()
        if any(map(is_not, shape, t.shape))
    }
    body = ir.replace_arrays(ir.rewrite_block(kernel.body, bind), arrays)
    body = ir.map_expressions(ir.substitute_block(body, {**indices}), lambda e: rewrite(e, sized))
    return replace(kernel, body=body, parameters=tuple(arrays.get(p, p) for p in kernel.parameters))
