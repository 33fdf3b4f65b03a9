"""Steps that join loops and take them apart: fuse, distribute, expand.

    fuse{loops=i#0,i#1}
    for i { A(i) }; for i { B(i) }  =>  for i { A(i); B(i) }
    distribute{loop=i}
    for i { A(i); B(i) }  =>  for i { A(i) }; for i { B(i) }
    expand{array=t loop=i}
    for i in 0..n { t = A(i); B(i, t) }  =>  for i in 0..n { t[i] = A(i); B(i, t[i]) }

Legal where no statement uses what the other computes in an iteration that would come later.
"""

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.affine import affine
from ...dialect.kernel_ir.expressions import Expr, Index, Read, Tensor, Var
from ...dialect.kernel_ir.traverse import walk
from ..analysis.accesses import allocated, every_access
from .find_loops import find_array, put, serial_loop
from .legality import check_separate
from .steps import Refused, step

# bytes of an expanded buffer on the stack, at most; bounds the stack of a thread (by hand)
MAX_STACK = 1 << 16


@step
def fuse(kernel: ir.Kernel, loops: tuple[str, ...], into: str | None = None) -> ir.Kernel:
    """Make two loops of equal bounds, one directly after the other, one loop."""
    if len(loops) != 2:
        raise Refused(f"fuse takes 2 loops, got {len(loops)}: {','.join(loops)}")
    first, second = (serial_loop(kernel, name) for name in loops)
    block = next(b for b in _blocks(kernel) if first in b)
    if second not in block or block.index(second) != block.index(first) + 1:
        raise Refused(f"fuse: the loop {loops[1]} does not stand directly after {loops[0]}")
    for a, b in ((first.start, second.start), (first.end, second.end)):
        gap = affine(a) - affine(b)
        if gap.terms or gap.constant:
            raise Refused(f"fuse: {loops[0]} and {loops[1]} have different bounds")
    check_separate(kernel, first, second, first.body, second.body)
    index = Index(into or first.index.name, first.index.extent)
    bodies = [ir.substitute_block(s.body, {s.index: index}) for s in (first, second)]
    fused = ir.replace(first, index=index, body=(*bodies[0], *bodies[1]))
    return put(put(kernel, second, ()), first, (fused,))


def _blocks(kernel: ir.Kernel) -> list[ir.Block]:
    return [kernel.body, *(b for s in ir.statements(kernel.body) for b in ir.blocks(s))]


@step
def distribute(kernel: ir.Kernel, loop: str) -> ir.Kernel:
    """Give each statement of a loop's body a loop of its own."""
    s = serial_loop(kernel, loop)
    parts = _parts(s, loop)
    for n in range(1, len(parts)):
        before = tuple(t for part in parts[:n] for t in part)
        after = tuple(t for part in parts[n:] for t in part)
        check_separate(kernel, s, s, before, after)
    loops: list[ir.For] = []
    for part in parts:
        index = Index(s.index.name, s.index.extent)
        body = ir.substitute_block(part, {s.index: index})
        loops.append(ir.replace(s, index=index, body=body))
    return put(kernel, s, tuple(loops))


def _parts(s: ir.For, loop: str) -> list[ir.Block]:
    """The statements of a loop's body, each with the variables and buffers that it alone uses."""
    named = [t for t in s.body if isinstance(t, (ir.Let, ir.Alloc))]
    others = [t for t in s.body if t not in named]
    if len(others) < 2:
        raise Refused(f"distribute: the loop {loop} has one statement")
    parts: list[list[ir.Statement]] = [[t] for t in others]
    for one in reversed(named):
        what: Var | Tensor = one.var if isinstance(one, ir.Let) else one.tensor
        users = [part for part in parts if _uses(tuple(part), what)]
        if len(users) != 1:
            hint = f": expand{{array={what.name} loop={loop}}}" if isinstance(what, Tensor) else ""
            raise Refused(f"distribute: {len(users)} statements of {loop} use %{what.name}{hint}")
        users[0].insert(0, one)
    return [tuple(part) for part in parts]


def _uses(block: ir.Block, what: Var | Tensor) -> bool:
    if isinstance(what, Tensor):
        return any(t is what for t, _ in every_access(block))
    return any(n is what for e in ir.nodes(block) for n in walk(e))


@step
def expand(kernel: ir.Kernel, array: str, loop: str) -> ir.Kernel:
    """Give a buffer an element, or a part, for each iteration of a loop (scalar expansion)."""
    s = serial_loop(kernel, loop)
    tensor = find_array(kernel, array)
    if tensor in kernel.parameters:
        raise Refused(f"expand: %{array} is no buffer of the kernel")
    if tensor not in allocated(s.body) and not _private(kernel, s, tensor):
        raise Refused(f"expand: an iteration of {loop} may use what another has stored in %{array}")
    extent = s.index.extent
    shape = (extent, *tensor.shape)
    made = Tensor(tensor.name, shape, tensor.element, "stack")
    if not isinstance(size := made.bytes, int) or size > MAX_STACK:
        made = Tensor(tensor.name, shape, tensor.element, "heap")

    def move(t: Tensor, at: tuple[Expr, ...]) -> tuple[Tensor, tuple[Expr, ...]] | None:
        return (made, (s.index, *at)) if t is tensor else None

    def without_old(t: ir.Statement) -> ir.Block | None:
        return () if isinstance(t, (ir.Alloc, ir.Store)) and t.tensor is tensor else None

    kernel = put(kernel, s, (ir.Alloc(made), ir.replace(s, body=ir.redirect(s.body, move))))
    return kernel.with_body(ir.rewrite_block(kernel.body, without_old))


def _private(kernel: ir.Kernel, s: ir.For, tensor: Tensor) -> bool:
    """Test whether each iteration stores a scalar before it reads it, and nothing after the loop
    does.
    """
    reads = [e for e in ir.nodes(kernel.body) if isinstance(e, Read) and e.tensor is tensor]
    inside = [e for e in ir.nodes(s.body) if isinstance(e, Read) and e.tensor is tensor]
    if tensor.rank or len(reads) != len(inside):
        return False
    for t in s.body:
        if isinstance(t, ir.Store) and t.tensor is tensor:
            return all(e.tensor is not tensor for e in walk(t.value) if isinstance(e, Read))
        if any(e.tensor is tensor for e in ir.nodes((t,)) if isinstance(e, Read)):
            return False
    return False
