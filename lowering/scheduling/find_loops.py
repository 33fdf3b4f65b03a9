"""Find the loops of a kernel by name, and replace them.

A loop's name is that of its index. Loops of one name are `i#0`, `i#1`, in the order of the text.
"""

from collections.abc import Sequence
from itertools import pairwise

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.affine import affine
from ...dialect.kernel_ir.expressions import ZERO, Tensor, as_index
from ...dialect.support.suggest import did_you_mean
from ...dialect.types.sizes import Dim
from ..analysis.accesses import every_access
from .steps import Refused


def loops_by_name(kernel: ir.Kernel) -> dict[str, ir.For]:
    """The loops of a kernel by name, in the order of the text."""
    named: dict[str, list[ir.For]] = {}
    for s in ir.statements(kernel.body):
        if isinstance(s, ir.For):
            named.setdefault(s.index.name, []).append(s)
    return {
        name if len(loops) == 1 else f"{name}#{n}": loop
        for name, loops in named.items()
        for n, loop in enumerate(loops)
    }


def find_loop(kernel: ir.Kernel, name: str) -> ir.For:
    loops = loops_by_name(kernel)
    if name not in loops:
        if f"{name}#0" in loops:
            several = [n for n in loops if n.rpartition("#")[0] == name]
            raise Refused(f"{name} is the name of {len(several)} loops: {', '.join(several)}")
        listed = f"the kernel has {', '.join(loops)}" if loops else "the kernel has no loops"
        raise Refused(f"there is no loop {name}{did_you_mean(name, loops)}: {listed}")
    return loops[name]


def serial_loop(kernel: ir.Kernel, name: str) -> ir.For:
    """The loop of a name, whose iterations run one after the other."""
    loop = find_loop(kernel, name)
    if loop.kind != "serial":
        raise Refused(f"the loop {name} is {loop.kind} already; change it before that step")
    if ir.may_jump(loop.body):
        raise Refused(f"the loop {name} has a jump, or a loop whose end no bounds tell")
    return loop


def runs_whole(s: ir.For, size: Dim | None = None) -> bool:
    """Test whether a serial loop runs from 0 to a size, by default the extent of its index."""
    left = affine(s.end) - affine(as_index(s.index.extent if size is None else size))
    return s.kind == "serial" and s.start is ZERO and not left.terms and not left.constant


def find_array(kernel: ir.Kernel, name: str) -> Tensor:
    """The array of a name that the kernel reads or writes; of two, the one that it writes."""
    found = {t.name: t for t, _ in reversed([*every_access(kernel.body)])}
    for known in (f"{name}.out", name):
        if known in found:
            return found[known]
    raise Refused(f"there is no array {name}{did_you_mean(name, found)}")


def put(kernel: ir.Kernel, loop: ir.Statement, block: ir.Block) -> ir.Kernel:
    """The kernel with a block in place of a statement."""
    return kernel.with_body(ir.rewrite_block(kernel.body, lambda s: block if s is loop else None))


def chain(kernel: ir.Kernel, names: Sequence[str]) -> list[ir.For]:
    """The loops of these names from the outermost in; each is alone in the one around it."""
    if len({*names}) < len(names):
        raise Refused(f"a loop is named twice: {', '.join(names)}")
    wanted = {find_loop(kernel, name): name for name in names}
    loops = [s for s in ir.statements(kernel.body) if isinstance(s, ir.For) and s in wanted]
    for outer, inner in pairwise(loops):
        match outer.body:
            case (only,) if only is inner:
                pass
            case (ir.For() as only,):
                raise Refused(
                    f"the loop {only.index.name} stands between {wanted[outer]} and the others: "
                    "name it too"
                )
            case _:
                raise Refused(
                    f"the loop {wanted[outer]} has {len(outer.body)} statements: "
                    f"distribute{{loop={wanted[outer]}}} gives each a loop of its own"
                )
    return loops


def loops_around(kernel: ir.Kernel, loop: ir.For) -> list[ir.For]:
    """The loops around a loop, and itself, the outermost first."""
    around = [s for s in ir.statements(kernel.body) if isinstance(s, ir.For)]
    return [s for s in around if s is loop or loop in ir.statements(s.body)]
