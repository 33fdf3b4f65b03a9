"""Link kernels that were read from text to one plan: arrays of one name are one array.

    kernel @a(%x) -> (%t), kernel @b(%t) -> (%y)  =>  a plan from %x to %t and %y

An array is an argument if a kernel reads it before any writes it, and a result if a kernel writes
it, unless the text declares what is. One that is both is updated in place.
"""

from collections.abc import Mapping, Sequence

from ..dialect.kernel_ir.execution_plan import Loop, Plan, reads_and_writes
from ..dialect.kernel_ir.expressions import Extent, Tensor
from ..dialect.kernel_ir.kernel_printer import Names, tensor_text
from ..dialect.kernel_ir.loops import Alloc, Kernel, nodes, statements
from ..dialect.support.diagnostics import NOWHERE, Diagnostic, Span, VerifyError
from ..dialect.types.sizes import atoms_of, in_order, may_be_same, product


def link_kernels(
    kernels: Sequence[Kernel],
    declared: Mapping[Tensor, Tensor],
    sides: Sequence[Sequence[Tensor]] = ((), ()),
    at: Span = NOWHERE,
) -> Plan:
    """The plan of kernels in order, with `declared` views; an array on whose type kernels disagree
    is several. `sides` are the arguments and results, if the text declares them, as it does in the
    body of a loop, `at` its name.
    """
    known: dict[str, Tensor] = {}
    views: dict[Tensor, Tensor] = {}
    conflicting: list[Tensor] = []

    def link(array: Tensor, t: Tensor) -> Tensor:
        first = known.setdefault(array.name, array)
        if not _agree(first, t):
            conflicting.append(t)
            return t
        if first is not t:
            views[t] = first
        return first

    declares, (arguments, results) = (
        any(sides),
        (tuple(dict.fromkeys(link(t, t) for t in side)) for side in sides),
    )
    for kernel in kernels:
        pairs = zip(kernel.parameters, map(declared.get, kernel.parameters), strict=True)
        for t, home in sorted(pairs, key=lambda p: p[1] is not None and p[1].name != p[0].name):
            link(home or t, t)
    read, written = reads_and_writes(kernels, views, declares)
    if not declares:
        arguments = tuple(t for t in (*known.values(), *conflicting) if t in read)
        results = tuple(written)
    plan = Plan("kernels", arguments, results, {}, tuple(kernels), views)
    if declares:
        check_names(plan)
    for t in (
        *(t for t in results if t not in written and t not in arguments),
        *(t for t in read if t not in arguments),
    ):
        raise VerifyError(
            Diagnostic(f"no kernel has written %{t.name} where it is read", at, "kernel.array")
        )
    return plan


def check_names(plan: Plan) -> None:
    """Raise VerifyError if two arrays have one name, since a call could not distinguish them."""
    own = [t for k in plan.kernels for t in k.parameters if t not in plan.views]
    own = [
        *(t for t in (*plan.arguments, *plan.results) if t not in own),
        *plan.views.values(),
        *own,
    ]
    for kernel in plan.kernels:
        if isinstance(kernel, Loop):
            check_names(kernel.plan)
        for t in (p for p in kernel.parameters if p not in plan.views):
            first = next(p for p in own if p.name == t.name)
            if not _agree(first, t):
                texts = [tensor_text(x, Names()).partition(": ")[2] for x in (first, t)]
                where = f"{texts[0]} in a kernel before @{kernel.name} and {texts[1]} in it"
                raise VerifyError(
                    Diagnostic(f"%{t.name} is one array, but {where}", kernel.span, "kernel.array")
                )


def check_sizes(plan: Plan) -> None:
    """Raise VerifyError if a kernel reads a size that no argument has."""
    bound = atoms_of(d for t in plan.arguments for d in t.shape)
    for kernel in plan.all_kernels:
        read = (e.size for e in nodes(kernel.body) if isinstance(e, Extent))
        allocated = (
            d for s in statements(kernel.body) if isinstance(s, Alloc) for d in s.tensor.shape
        )
        if unbound := sorted(atoms_of((*read, *allocated)) - bound, key=in_order):
            name = f"?{unbound[0][0]}" if len(unbound[0]) == 1 else "a size that is read"
            message = f"kernel @{kernel.name}: {name} is the size of no argument"
            raise VerifyError(Diagnostic(message, kernel.span, "kernel.illegal"))


def _agree(first: Tensor, again: Tensor) -> bool:
    return first.element is again.element and may_be_same(
        product(first.shape), product(again.shape)
    )
