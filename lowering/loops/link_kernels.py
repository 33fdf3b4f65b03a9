"""Link kernels that were read from text to one plan: arrays of one name are one array.

    kernel @a(%x) -> (%t), kernel @b(%t) -> (%y)  =>  a plan from %x to %t and %y

An array is an argument if a kernel reads it before any writes it, and a result if a kernel writes it. One that is both is
updated in place."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...dialect.ir.diagnostics import Diagnostic, VerifyError
from ...dialect.ir.sizes import Dim, Size, may_be_same, product
from ...dialect.ir.unify import put
from ...dialect.notation.expressions import Read, Tensor
from ...dialect.notation.loops import Kernel, Store, expressions, statements
from ...dialect.notation.plan import Plan
from ...dialect.notation.printer import Names, tensor_text
from ...dialect.notation.traverse import walk
from .substitute_sizes import substitute_sizes


def link_kernels(kernels: Sequence[Kernel], declared: Mapping[Tensor, Tensor]) -> Plan:
    """The plan of kernels in order, with `declared` views; an array on whose type kernels disagree is several."""
    arrays: dict[str, Tensor] = {}
    conflicting: list[Tensor] = []
    views: dict[Tensor, Tensor] = {}
    arguments: list[Tensor] = []
    results: list[Tensor] = []
    linked: list[Kernel] = []
    for kernel in kernels:
        homes = [declared.get(t) for t in kernel.parameters]
        sizes: dict[Any, Dim] = {}
        for t in (t for t in kernel.parameters if t not in declared):
            for d, n in zip(t.shape, arrays.get(t.name, t).shape, strict=False):
                if isinstance(d, Size) and d.is_atom and d.name is None:
                    sizes.setdefault(d.terms[0][0], n)
        if sizes:
            kernel = substitute_sizes(kernel, lambda d, sizes=sizes: put(d, sizes))
        pairs = zip(kernel.parameters, homes, strict=True)
        for t, home in sorted(pairs, key=lambda p: p[1] is not None and p[1].name != p[0].name):
            array = t if home is None else replace(home, shape=tuple(put(d, sizes) for d in home.shape))
            first = arrays.setdefault(array.name, array)
            if not _agree(first, t):
                conflicting.append(t)
            elif first is not t:
                views[t] = first
        for t, writes in _accesses(kernel):
            home = views.get(t, t)
            if writes and home not in results:
                results.append(home)
            elif not writes and home not in results and home not in arguments:
                arguments.append(home)
        linked.append(kernel)
    inputs = tuple(t for t in (*arrays.values(), *conflicting) if t in arguments or t not in results)
    return Plan("kernels", inputs, tuple(results), {}, tuple(linked), views)


def check_names(plan: Plan) -> None:
    """Raise VerifyError if a name is that of two arrays, so that a call could not tell them apart."""
    own = [t for k in plan.kernels for t in k.parameters if t not in plan.views]
    for kernel in plan.kernels:
        for t in (p for p in kernel.parameters if p not in plan.views):
            first = next(p for p in (*plan.views.values(), *own) if p.name == t.name)
            if not _agree(first, t):
                texts = [tensor_text(x, Names()).partition(": ")[2] for x in (first, t)]
                where = f"{texts[0]} in a kernel before @{kernel.name} and {texts[1]} in it"
                raise VerifyError(Diagnostic(f"%{t.name} is one array, but {where}", kernel.span, "kernel.array"))


def _agree(first: Tensor, again: Tensor) -> bool:
    return first.element is again.element and may_be_same(product(first.shape), product(again.shape))


def _accesses(kernel: Kernel) -> Iterator[tuple[Tensor, bool]]:
    """The parameters in the order of the text's accesses, each with whether it is written; then those of the head."""
    parameters = set(kernel.parameters)
    tops = [] if kernel.condition is None else [kernel.condition]
    for s in statements(kernel.body):
        for e in (n for top in (*tops, *expressions(s)) for n in walk(top)):
            if isinstance(e, Read) and e.tensor in parameters:
                yield e.tensor, False
        tops = []
        if isinstance(s, Store) and s.tensor in parameters:
            yield s.tensor, True
    yield from ((t, True) for t in kernel.outputs)
