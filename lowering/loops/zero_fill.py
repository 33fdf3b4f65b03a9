"""Fill elements with zeros that are not proved to be written before they are read or returned.

    kernel k -> y { for i { if f { y[i] = g } } }
    =>  kernel k -> y { for i { y[i] = 0 }; for i { if f { y[i] = g } } }

A result of a kernel with a condition, or of one mapped to a grid, is filled by a kernel of its own
before it: such a kernel may not run, and its body is one loop over the blocks of the grid.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.kernel_ir.execution_plan import Loop, Plan
from ...dialect.types.sizes import product
from ..analysis.parallel_loops import block_threads, serialized
from ..analysis.written import unwritten


def filled(plan: Plan) -> Plan:
    """Fill elements that are not proved to be written, after loops marked for a grid that do not
    have the form of one are made serial.
    """
    plan = _each(plan, serialized)
    missing: dict[ir.Kernel, dict[ex.Tensor, None]] = {}
    for u in unwritten(plan):
        missing.setdefault(u.kernel, {})[u.tensor] = None
    return _filled(plan, missing) if missing else plan


def _each(plan: Plan, change: Callable[[ir.Kernel], ir.Kernel]) -> Plan:
    kernels = (
        k.with_plan(_each(k.plan, change)) if isinstance(k, Loop) else change(k)
        for k in plan.kernels
    )
    return replace(plan, kernels=tuple(kernels))


def _filled(plan: Plan, missing: dict[ir.Kernel, dict[ex.Tensor, None]]) -> Plan:
    kernels: list[ir.Kernel] = []
    for k in plan.kernels:
        if isinstance(k, Loop):
            kernels.append(k.with_plan(_filled(k.plan, missing)))
            continue
        tensors = missing.get(k, {})
        on_grid = block_threads(k) is not None
        if on_grid or k.condition is not None:
            kernels += [_zeros_kernel(k, t, on_grid) for t in k.outputs if t in tensors]
            tensors = {t: None for t in tensors if t not in k.outputs}
        kernels.append(fill(k, tensors))
    return replace(plan, kernels=tuple(kernels))


def _zeros_kernel(kernel: ir.Kernel, result: ex.Tensor, on_grid: bool) -> ir.Kernel:
    """A kernel that fills a result of another one, on a grid by a thread for each element."""
    body = ir.zeros(result)
    if on_grid and result.rank:
        p = ex.Index("p", product(result.shape))
        body = (ir.For(p, (_zero(result, ex.unflatten(p, result.shape)),), kind="parallel"),)
    return ir.Kernel(f"{kernel.name}.{result.name}.zeros", (result,), body, span=kernel.span)


def _zero(tensor: ex.Tensor, at: tuple[ex.Expr, ...]) -> ir.Store:
    return ir.Store(tensor, at, ex.Const(tensor.element.dtype.type(0).item(), tensor.element))


def fill(kernel: ir.Kernel, tensors: Collection[ex.Tensor]) -> ir.Kernel:
    """The kernel with zeros in these results and buffers before anything else is stored there."""
    if not tensors:
        return kernel
    threads = block_threads(kernel)
    private = {
        a.tensor
        for s in ir.statements(kernel.body)
        if isinstance(s, ir.For) and s.kind == "thread"
        for a in ir.statements(s.body)
        if isinstance(a, ir.Alloc)
    }

    def after(s: ir.Statement) -> ir.Block | None:
        if isinstance(s, ir.Alloc) and s.tensor in tensors:
            if threads is None or s.tensor in private:
                return (s, *ir.zeros(s.tensor))
            return (s, *_by_threads(s.tensor, threads))
        return None

    results = (s for t in kernel.outputs if t in tensors for s in ir.zeros(t))
    return kernel.with_body((*results, *ir.rewrite_block(kernel.body, after)))


def _by_threads(tensor: ex.Tensor, threads: int) -> ir.Block:
    """Zeros by the threads of a block: in what each has of a register, or in a part of a buffer
    that they share.
    """
    thread = ex.Index("t", threads)
    if tensor.space == "register":
        rest = ex.axes(tensor.shape[1:])
        body = ir.nested(rest, (_zero(tensor, (thread, *rest)),))
        return (ir.For(thread, body, kind="thread"),)
    size = product(tensor.shape)
    assert isinstance(size, int)
    turn = ex.Index("k", -(-size // threads))
    place = turn * threads + thread
    body = (_zero(tensor, ex.unflatten(place, tensor.shape)),)
    if size % threads:
        body = (ir.If(place < size, body),)
    return ir.nested([turn], (ir.For(thread, body, kind="thread"),))
