"""Store results in the arguments that they destroy (XLA's buffer donation, MLIR's in-place
bufferization).

    y[i] = f(x[i])  =>  x[i] = f(x[i])

Legal if the kernel reads the argument only at the index it writes, and no later kernel reads it; or
else callers copy.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from operator import is_

from ...dialect.kernel_ir.execution_plan import Loop, Plan, viewed
from ...dialect.kernel_ir.expressions import Const, Tensor, Var
from ...dialect.kernel_ir.loops import Block, For, Kernel, Store, redirect
from ..analysis.accesses import accesses, with_tensors
from ..pass_context import Context
from ..passes import plan_pass


@plan_pass
def in_place(plan: Plan, context: Context) -> Plan:
    """The plan with the results of `context.overwritten` stored in the arguments that it maps them
    to, where legal.
    """
    kernels = plan.kernels
    results = plan.results
    arguments = plan.arguments
    views = plan.views
    uses = [_Uses(kernel) for kernel in kernels]
    writers = Counter(t for u in uses for t in u.results)
    writer = {t: n for n, u in enumerate(uses) for t in u.results}
    last = {t: n for n, kernel in enumerate(kernels) for t in kernel.parameters}
    seen: dict[Tensor, int] = {}  # the last kernel with a view of the array as a parameter
    for t in views:
        root = viewed(t, views)
        seen[root] = max(last.get(t, -1), seen.get(root, -1))
    times = Counter(results)
    taken = set[Tensor]()
    names: dict[Tensor, Tensor] = {}
    found, given = list(results), set(arguments)
    for n, k in context.overwritten.items():
        result, argument = results[n], arguments[k]
        alone = (
            writers[result] == 1
            and times[result] == 1
            and result not in given
            and argument not in taken
        )
        if not alone or result in seen or not seen.get(argument, -1) < writer[result]:
            continue
        if last.get(argument, -1) <= writer[result] and uses[writer[result]].allow(
            result, argument
        ):
            names[result] = found[n] = argument
            taken.add(argument)
    ranges = {
        t: r for t, r in plan.ranges.items() if t not in taken
    }  # an argument holds a result in the end
    renamed = tuple(_renamed(kernel, names) for kernel in kernels)
    return replace(plan, kernels=renamed, results=tuple(found), ranges=ranges)


def overwriting(kernels: Sequence[Kernel], own: Collection[Tensor]) -> list[Kernel]:
    """Kernels with those of their results that are their own in the place of others that are read
    for the last time, where legal.
    """
    last = {t: n for n, kernel in enumerate(kernels) for t in kernel.inputs if t in own}
    names: dict[Tensor, Tensor] = {}
    for n, kernel in enumerate(kernels):
        uses = _Uses(kernel)
        free = [t for t in kernel.inputs if last.get(t) == n]
        for y in kernel.outputs:
            for x in free:
                if (x.shape, x.element) == (y.shape, y.element) and y in last and uses.allow(y, x):
                    names[y] = names.get(x, x)
                    free.remove(x)
                    break
    return [_renamed(kernel, names) for kernel in kernels]


class _Uses:
    """The reads and stores of each array by a kernel, and the results stored after the last
    read.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.results = kernel.outputs
        self.reads, self.stores = accesses(kernel.body)
        self.last = set(self.results) if kernel.results == 1 else _stored_last(kernel.body)

    def allow(self, result: Tensor, argument: Tensor) -> bool:
        """Test whether the kernel may store a result in the argument's storage."""
        if len(self.stores.get(result, ())) != 1 or result in self.reads or result not in self.last:
            return False
        (at,) = self.stores[result]
        return all(
            len(place) == len(at) and all(map(is_, place, at))
            for place in self.reads.get(argument, ())
        )


def _stored_last(block: Block) -> set[Tensor]:
    """The tensors that the innermost block of a nest stores, as variables and constants, after its
    other statements.
    """
    while len(block) == 1 and isinstance(block[0], For):
        block = block[0].body
    found: set[Tensor] = set()
    for s in reversed(block):
        if not isinstance(s, Store) or not isinstance(s.value, (Var, Const)):
            break
        found.add(s.tensor)
    return found


def _renamed(kernel: Kernel, names: Mapping[Tensor, Tensor]) -> Kernel:
    """The kernel over other arrays."""
    if not any(p in names for p in kernel.parameters):
        return kernel
    if isinstance(kernel, Loop):
        return replace(kernel, parameters=tuple(names.get(p, p) for p in kernel.parameters))

    body = redirect(
        kernel.body, lambda tensor, at: (names[tensor], at) if tensor in names else None
    )
    return with_tensors(kernel, body, lambda tensor: names.get(tensor, tensor))
