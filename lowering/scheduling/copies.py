"""Steps that compute an array again where it is read, or in copies: inline, privatize.

    inline{array=h}
    for i { h[i] = A(i) }; for j { y[j] = B(h[j], h[j + 1]) }
    =>  for j { y[j] = B(A(j), A(j + 1)) }
    privatize{array=h loop=i}
    for i { h[x[i]] = h[x[i]] + 1 }
    =>  for i, b { c[i, b] = 0 }; for i { c[i, x[i]] = c[i, x[i]] + 1 }
        for i, b { h[b] = h[b] + c[i, b] }

An array is inlined that one nest stores whole, of arrays that the kernel does not write. Copies are
for updates that commute exactly, those of integers. A tile that `stage` has made of an array which
is inlined then is computed in place of copied, so tiles that overlap compute what they share twice.
"""

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.expressions import Expr, Read, Tensor, apply, axes
from ...dialect.kernel_ir.scalar_functions import SCALARS
from ...dialect.kernel_ir.traverse import rewrite, substitute, walk
from ..analysis.accesses import allocated, every_access, stores
from .find_loops import find_array, put, runs_whole, serial_loop
from .legality import update_of
from .steps import Refused, step

SUFFIX = ".copies"  # of an array's name: accesses that depend on data are as legal as before


@step
def inline(kernel: ir.Kernel, array: str) -> ir.Kernel:
    """Compute the elements of an array where they are read, and not before."""
    tensor = find_array(kernel, array)
    nest, store = _producer(kernel, tensor)
    written = {s.tensor for s in stores(kernel.body)}
    if late := [n for n in walk(store.value) if isinstance(n, Read) and n.tensor in written]:
        raise Refused(f"inline: %{array} depends on %{late[0].tensor.name}, which is written too")

    def computed(e: Expr) -> Expr | None:
        if not (isinstance(e, Read) and e.tensor is tensor):
            return None
        at: dict[Expr, Expr] = dict(
            zip(store.indices, (rewrite(i, computed) for i in e.indices), strict=True)
        )
        return substitute(store.value, at)

    def without(s: ir.Statement) -> ir.Block | None:
        is_old = s is nest or (isinstance(s, ir.Alloc) and s.tensor is tensor)
        return () if is_old and tensor not in kernel.parameters else None

    body = ir.rewrite_block(kernel.body, without)
    return kernel.with_body(ir.map_expressions(body, lambda e: rewrite(e, computed)))


def _producer(kernel: ir.Kernel, tensor: Tensor) -> tuple[ir.Statement, ir.Store]:
    """The nest of the kernel that stores an array whole, before all that reads it, and its
    store.
    """
    accessing = [s for s in kernel.body if any(t is tensor for t, _ in every_access((s,)))]
    stored = [s for s in stores(kernel.body) if s.tensor is tensor]
    if len(stored) == 1 and accessing and isinstance(nest := accessing[0], ir.For):
        loops: dict[Expr, ir.For] = {s.index: s for s in ir.perfect_nest(nest)}
        (store,) = stored
        whole = [
            i in loops and runs_whole(loops[i], d)
            for i, d in zip(store.indices, tensor.shape, strict=True)
        ]
        innermost = [*loops.values()][-1].body
        if innermost == (store,) and {*store.indices} == {*loops} and all(whole):
            return nest, store
    raise Refused(f"inline: no nest stores %{tensor.name} whole, before all else that accesses it")


@step
def privatize(kernel: ir.Kernel, array: str, loop: str) -> ir.Kernel:
    """Update a copy of an array for each iteration of a loop, and combine the copies after it."""
    s = serial_loop(kernel, loop)
    tensor = find_array(kernel, array)
    if s not in kernel.body or not runs_whole(s):
        raise Refused(f"privatize: {loop} is inside another loop, or does not run from 0 to a size")
    if tensor in allocated(s.body):
        raise Refused(f"privatize: %{array} is a buffer of an iteration of {loop} already")
    updates = [t for t in stores(s.body) if t.tensor is tensor]
    functions = {update_of(t, False) for t in updates}
    function = functions.pop() if len(functions) == 1 else None
    reads = sum(t is tensor for t, _ in every_access(s.body)) - len(updates)
    if function is None or reads != len(updates) or SCALARS[function].identity is None:
        said = "not all accesses are updates by one function that commutes exactly"
        raise Refused(f"privatize: of %{array} in {loop}, {said}")
    made = Tensor(f"{tensor.name}{SUFFIX}", (s.index.extent, *tensor.shape), tensor.element, "heap")
    first, last = axes(made.shape), axes(made.shape)
    zero = ir.Store(made, first, ir.identity(function, tensor.element))
    joined = apply(function, tensor[last[1:]], made[last])
    body = ir.redirect(s.body, lambda t, at: (made, (s.index, *at)) if t is tensor else None)
    combined = ir.nested(last, (ir.Store(tensor, last[1:], joined),))
    block = (ir.Alloc(made), *ir.nested(first, (zero,)), ir.replace(s, body=body), *combined)
    return put(kernel, s, block)
