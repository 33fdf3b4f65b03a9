"""Narrow intermediate integer arrays and constants to the smallest type that holds their range.

    t: tensor<8xi32> in [-127, 127];  t[i] = f(x[i]);  y[i] = g(t[i])
    =>  t: tensor<8xi8>;  t[i] = i8(f(x[i]));  y[i] = g(i32(t[i]))

Legal where interval analysis bounds the elements. Arguments and results keep their types;
arithmetic keeps its width, only memory is narrower. Pays for arrays of at least MIN_BYTES, which
leave the cache, unless a kernel reads an element more than `narrow_reads` times. A contraction
packs its operands, so its reads do not count.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.execution_plan import Loop, Plan, scratch_buffers
from ...dialect.kernel_ir.expressions import Cast, Expr, Read, Tensor, cast
from ...dialect.kernel_ir.integer_interval import Interval
from ...dialect.kernel_ir.traverse import rewrite, walk
from ...dialect.types.sizes import evaluate, product
from ...dialect.types.tensor_types import I8, I16, I32, UI8, UI16, UI32, ElementType
from ..analysis.cost import UNKNOWN
from ..contraction.match_contraction import match_contraction, windowed
from ..loops.collapse import collapsed
from ..passes import plan_pass
from ..processor import processor

NARROW = (I8, UI8, I16, UI16, I32, UI32)


@plan_pass
def narrow_storage(plan: Plan) -> Plan:
    """The plan with narrower arrays in its workspace."""
    scratch = {t for k in plan.kernels for t in scratch_buffers(k)}
    owned = {*plan.arguments, *plan.results}
    types: dict[Tensor, ElementType] = {}  # new types of the arrays with storage of their own
    for tensor, home in plan.home.items():
        small = isinstance(size := home.bytes, int) and size <= processor().l2_bytes // 2
        large = home in plan.constants or not (home in owned or small)
        if large and home not in scratch and tensor in plan.ranges and tensor.rank:
            found = narrowest(plan.ranges[tensor], tensor.element)
            if home not in types or found.bits < types[home].bits:
                types[home] = found
    narrower = {home for home, found in types.items() if found is not home.element}
    users = [k for k in plan.kernels if any(plan.home[p] in narrower for p in k.parameters)]
    kept = {
        plan.home[t]
        for k in users
        for t in (k.parameters if isinstance(k, Loop) else read_often(k))
    }
    types = {home: found for home, found in types.items() if home not in kept}
    same = {t: types[h] for t, h in plan.home.items() if h in types and h.element is t.element}
    narrowed = {
        t: replace(t, element=element) for t, element in same.items() if element is not t.element
    }
    if not narrowed:
        return plan
    views = {narrowed.get(t, t): narrowed.get(h, h) for t, h in plan.views.items()}
    kernels = tuple(_compacted(k, narrowed) for k in plan.kernels)
    ranges = {narrowed.get(t, t): r for t, r in plan.ranges.items()}
    constants = {
        narrowed.get(t, t): a.astype(types.get(t, t.element).dtype)
        for t, a in plan.constants.items()
    }
    return replace(plan, constants=constants, kernels=kernels, views=views, ranges=ranges)


def narrowest(values: Interval, element: ElementType) -> ElementType:
    """The narrowest integer type that holds an interval."""
    if not element.is_integer:
        return element
    return next((e for e in NARROW if e.bits < element.bits and values.within(e)), element)


def read_often(kernel: ir.Kernel) -> set[Tensor]:
    """The parameters whose elements a kernel reads more than `narrow_reads` times, as far as sizes
    are known.
    """
    counts: Counter[Tensor] = Counter()

    def count(block: ir.Block, times: int) -> None:
        for s in block:
            for e in ir.expressions(s):
                counts.update({n.tensor: times for n in walk(e) if isinstance(n, Read)})
            inside = times * evaluate(s.index.extent, UNKNOWN) if isinstance(s, ir.For) else times
            for inner in ir.blocks(s):
                count(inner, inside)

    count(kernel.body, 1)
    most = {
        p: processor().tuning.narrow_reads * evaluate(product(p.shape), UNKNOWN)
        for p in kernel.parameters
    }
    if not (often := {p for p in kernel.parameters if counts[p] > most[p]}):
        return often
    plain = collapsed(kernel)
    return often if match_contraction(plain) is None and windowed(plain) is None else set()


def _compacted(kernel: ir.Kernel, narrowed: Mapping[Tensor, Tensor]) -> ir.Kernel:
    if not any(p in narrowed for p in kernel.parameters):
        return kernel

    def read(e: Expr) -> Expr | None:
        if isinstance(e, Read) and e.tensor in narrowed:
            return Cast(
                Read(narrowed[e.tensor], tuple(rewrite(i, read) for i in e.indices)), e.type
            )
        return None

    def store(s: ir.Statement) -> ir.Block | None:
        if isinstance(s, ir.Store) and s.tensor in narrowed:
            t = narrowed[s.tensor]
            return (replace(s, tensor=t, value=cast(s.value, t.element)),)
        return None

    body = ir.rewrite_block(ir.map_expressions(kernel.body, lambda e: rewrite(e, read)), store)
    return replace(
        kernel, parameters=tuple(narrowed.get(p, p) for p in kernel.parameters), body=body
    )
