"""Specialize a kernel to known sizes (shape specialization).

for i in 0..n { y[i] = x[i] } with n = 8  =>  for i in 0..8 { y[i] = x[i] }, x and y of 8 elements
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...dialect.ir.sizes import Dim, same_size
from ...dialect.notation import loops as ir
from ...dialect.notation.expressions import ZERO, Apply, Const, Expr, Extent, Index, Read, Tensor, as_index
from ...dialect.notation.traverse import rewrite


def substitute_sizes(kernel: ir.Kernel, size: Callable[[Dim], Dim]) -> ir.Kernel:
    """The kernel with every size replaced by `size` of it."""
    return _Resizing(size).kernel(kernel)


class _Resizing:
    def __init__(self, size: Callable[[Dim], Dim]) -> None:
        self.size = size
        self.tensors: dict[Tensor, Tensor] = {}

    def kernel(self, kernel: ir.Kernel) -> ir.Kernel:
        loops = [s for s in ir.statements(kernel.body) if isinstance(s, ir.For)]
        indices: dict[Expr, Expr] = {s.index: replace(s.index, extent=self.size(s.index.extent)) for s in loops}
        body = ir.rewrite_block(kernel.body, lambda s: self.statement(s, indices))
        body = ir.map_expressions(ir.substitute_block(body, indices), lambda e: rewrite(e, self.read))
        return replace(kernel, body=body, parameters=tuple(map(self.tensor, kernel.parameters)))

    def statement(self, s: ir.Statement, indices: dict[Expr, Expr]) -> ir.Block | None:
        match s:
            case ir.For(index):
                new = indices[index]
                assert isinstance(new, Index)
                return (ir.rewrite_within(replace(s, index=new), lambda b: self.statement(b, indices)),)
            case ir.Store(tensor):
                return (replace(s, tensor=self.tensor(tensor)),)
            case ir.Alloc(tensor):
                return (ir.Alloc(self.tensor(tensor)),)
        return None

    def read(self, e: Expr) -> Expr | None:
        match e:
            case Read(tensor, at):
                return Read(self.tensor(tensor), tuple(rewrite(i, self.read) for i in at))
            case Extent(size):
                return as_index(self.size(size))
            case Apply("select", (Apply("lt", (Index() as i, Extent(size)), _), again, Const(0)), _) if again is i:
                return ZERO if same_size(n := self.size(size), 1) else i if same_size(n, i.extent) else None
        return None

    def tensor(self, t: Tensor) -> Tensor:
        if t not in self.tensors:
            shape = tuple(map(self.size, t.shape))
            changed = any(a is not b for a, b in zip(shape, t.shape, strict=True))
            self.tensors[t] = replace(t, shape=shape) if changed else t
        return self.tensors[t]
