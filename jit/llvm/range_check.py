"""Check by vectors that the elements of an array lie in a declared range:

    furthest = 0;  for i by 8 { furthest = max(furthest, x[i..] - low) }
    return all of furthest <= high - low

Differences are of unsigned integers; floats are compared with both ends, so that NaN lies in no
range.
"""

from collections.abc import Hashable, Mapping, Sequence

from ...dialect.ir.function import Function
from ...dialect.types.tensor_types import BF16, F16, F32, UI16, ElementType, Type
from ...lowering.processor import processor
from . import ir_builder as ll
from .float_functions import half_to_float

# cost model: vectors in flight, none of which waits for another; tuned by hand (Zen 4, Zen 5)
TOGETHER = 4
BEYOND = -1  # the status of a call with arguments that are not in their ranges


def checked_text(
    ranges: Mapping[int, tuple[Type, tuple[float, float]]], atoms: Sequence[Hashable]
) -> ll.Module:
    """`i32 @checked(pointers, sizes, workspace)`: the entry, or status BEYOND where an argument
    leaves its range.
    """
    from .addresses import size_value  # and with it analyzes, which recalled functions do without

    alone = processor().tuning.parallel_checked_bytes
    few = {
        k
        for k, (t, _) in ranges.items()
        if isinstance(t.size, int) and t.size * t.element.bytes <= alone
    }
    many = ranges.keys() - few
    b = ll.IRBuilder()
    beyond = ll.Block("beyond")
    pointers, given_sizes, workspace = (
        ll.Value(f"%{n}", ll.POINTER) for n in ("pointers", "sizes", "workspace")
    )
    sizes: dict[object, ll.Value] = {
        a: b.load_at(ll.WORD, given_sizes, n, "") for n, a in enumerate(atoms)
    }
    for k, (type, _) in ranges.items():
        array = b.load_at(ll.POINTER, pointers, k, "")
        size = size_value(b, type.size, sizes)
        following = b.new_block()
        within = ll.Declaration(ll.BIT, f"{'all_' * (k in many)}within_{k}", (ll.POINTER, ll.WORD))
        b.do(ll.branch_if(b.add(ll.call(within, array, size)), following, beyond))
        b.start(following)
    b.do(
        ll.returned(
            b.add(ll.call(ll.ENTRY, pointers, given_sizes, workspace)._replace(opcode="tail call"))
        )
    )
    b.start(beyond)
    b.do(ll.returned(ll.Constant(str(BEYOND), ll.STATUS)))
    functions = [
        within_text(f"within_{k}", type.element, bounds) for k, (type, bounds) in ranges.items()
    ]
    functions += [_by_threads(k, ranges[k][0].element) for k in sorted(many)]
    parameters = "ptr %pointers, ptr %sizes, ptr %workspace"
    functions.append(f"define i32 @checked({parameters}) nounwind {{\nentry:\n{b.body()}\n}}\n")
    return ll.Module((ll.PARALLEL,) if many else (), "".join(functions))


def _by_threads(k: int, element: ElementType) -> str:
    """`i1 @all_within_k(ptr array, i64 count)`: the same of all threads, which take blocks of
    elements.
    """
    block_bytes = processor().tuning.checked_bytes
    block = block_bytes // element.bytes
    alone = processor().tuning.parallel_checked_bytes // block_bytes  # blocks of a single thread
    arguments = f"ptr @blocks_within_{k}, ptr %context, i64 %blocks, i64 {alone}"
    return f"""
define internal void @blocks_within_{k}(ptr %context, i64 %first, i64 %last) nounwind {{
  %count.at = getelementptr i8, ptr %context, i64 8
  %beyond.at = getelementptr i8, ptr %context, i64 16
  %array = load ptr, ptr %context
  %count = load i64, ptr %count.at
  %begin = mul i64 %first, {block}
  %whole = mul i64 %last, {block}
  %cut = icmp slt i64 %count, %whole
  %end = select i1 %cut, i64 %count, i64 %whole
  %size = sub i64 %end, %begin
  %offset = mul i64 %first, {block_bytes}
  %start = getelementptr i8, ptr %array, i64 %offset
  %good = call i1 @within_{k}(ptr %start, i64 %size)
  br i1 %good, label %done, label %bad
bad:
  store atomic i64 1, ptr %beyond.at monotonic, align 8
  br label %done
done:
  ret void
}}
define internal i1 @all_within_{k}(ptr %array, i64 %count) nounwind alwaysinline {{
  %context = alloca [3 x i64]
  %count.at = getelementptr i8, ptr %context, i64 8
  %beyond.at = getelementptr i8, ptr %context, i64 16
  store ptr %array, ptr %context
  store i64 %count, ptr %count.at
  store i64 0, ptr %beyond.at
  %more = add i64 %count, {block - 1}
  %blocks = sdiv i64 %more, {block}
  %stopped = call i32 @parallel({arguments})
  %beyond = load atomic i64, ptr %beyond.at monotonic, align 8
  %wide = zext i32 %stopped to i64
  %either = or i64 %beyond, %wide
  %good = icmp eq i64 %either, 0
  ret i1 %good
}}
"""


def declared(function: Function) -> dict[int, tuple[Type, tuple[float, float]]]:
    """The arguments that have a declared range, by position: their types, and the ranges."""
    return {
        k: (a.known_type.with_element(a.known_type.element.storage), r)
        for k, a in enumerate(function.arguments)
        if (r := a.range)
    }


def within_text(name: str, element: ElementType, bounds: tuple[float, float]) -> str:
    """The function, `i1 @name(ptr array, i64 count)`, for arrays of integers or floats; it is part
    of who calls it, once.
    """
    look = _Look(element, *bounds)
    if look.low > look.high:  # the type holds none of them
        return (
            f"define internal i1 @{name}(ptr %array, i64 %count) nounwind alwaysinline {{\n"
            f"  %none = icmp eq i64 %count, 0\n  ret i1 %none\n}}\n"
        )
    lanes = processor().vector_bytes // element.bytes
    b = look.b
    i, furthest = look.turns(ll.index(0), lanes, [look.nothing(lanes)] * TOGETHER)
    i, furthest = look.turns(i, lanes, [look.both(furthest)])
    many = look.inside(furthest[0])
    _, furthest = look.turns(i, 1, [look.nothing(1)])
    b.do(ll.returned(b.add(ll.binary("and", many, look.inside(furthest[0])))))
    return (
        f"define internal i1 @{name}(ptr %array, i64 %count) nounwind alwaysinline {{\nentry:\n"
        f"{b.body()}\n}}\n"
    )


class _Look:
    """The instructions of such a function: the greatest difference from the least value, or if
    floats are inside.
    """

    def __init__(self, element: ElementType, low: float, high: float) -> None:
        self.b = ll.IRBuilder()
        self.element, self.word = element, ll.ir_type(f"i{element.bits}")
        self.low, self.high = low, high

    def turns(
        self, start: ll.Value, lanes: int, before: Sequence[ll.Value]
    ) -> tuple[ll.Value, list[ll.Value]]:
        """Emit a loop from a place on while a whole vector remains, and return where it ends and
        the values then.
        """
        b = self.b
        kind = self.word.of(lanes)
        stored = ll.value_type(UI16 if self.element is BF16 else self.element)
        entry = b.block
        head = b.new_block()
        body = b.new_block()
        after = b.new_block()
        phis = [(b.fresh(kind), b.fresh(kind)) for _ in before]
        i, following = b.fresh(ll.WORD), b.fresh(ll.WORD)
        b.do(ll.branch(head))
        b.start(head)
        b.define(i, ll.phi((start, entry), (following, body)))
        for (now, later), first in zip(phis, before, strict=True):
            b.define(now, ll.phi((first, entry), (later, body)))
        b.define(following, ll.binary("add", i, ll.index(lanes * len(before))))
        b.do(
            ll.branch_if(
                b.add(ll.compare("sle", following, ll.Value("%count", ll.WORD))), body, after
            )
        )
        b.start(body)
        for n, (now, later) in enumerate(phis):
            at = b.add(ll.binary("add", i, ll.index(n * lanes)))
            place = b.add(ll.element_pointer(stored, ll.Value("%array", ll.POINTER), at, flags=""))
            x = b.add(ll.load(stored.of(lanes), place, "align 1"))
            b.define(later, self.reduced(now, self.judged(x)))
        b.do(ll.branch(head))
        b.start(after)
        return i, [now for now, _ in phis]

    def nothing(self, lanes: int) -> ll.Value:
        return ll.splat_constant(
            ll.Constant("0" if self.element.is_integer else "-1", self.word), lanes
        )

    def judged(self, x: ll.Value) -> ll.Value:
        """The check of a vector."""
        ends = self.low, self.high
        if (element := self.element) is BF16:  # in f32, of which it has the upper half
            x = self.b.add(ll.cast("zext", x, ll.STATUS.of(x.lanes)))
            x = self.b.add(
                ll.binary("shl", x, ll.splat_constant(ll.Constant("16", ll.STATUS), x.lanes))
            )
            x = self.b.add(ll.cast("bitcast", x, ll.value_type(F32, x.lanes)))
            element = F32
        elif element is F16:
            x = half_to_float(self.b, x)
            element = F32
            ends = tuple(float(F16.dtype.type(v)) for v in ends)
        low, high = (ll.splat_constant(ll.number(v, element), x.lanes) for v in ends)
        if self.element.is_integer:
            return self.b.add(ll.binary("sub", x, low))
        above, below = (
            self.b.add(ll.compare(test, x, end)) for test, end in (("oge", low), ("ole", high))
        )
        return self.b.add(
            ll.cast("sext", self.b.add(ll.binary("and", above, below)), self.word.of(x.lanes))
        )

    def reduced(self, x: ll.Value, y: ll.Value) -> ll.Instruction:
        """The check of two vectors."""
        if self.element.is_integer:
            return ll.select(self.b.add(ll.compare("ugt", x, y)), x, y)
        return ll.binary("and", x, y)

    def both(self, checks: Sequence[ll.Value]) -> ll.Value:
        """The check of several vectors."""
        result, *rest = checks
        for check in rest:
            both = self.b.fresh(result.type)
            self.b.define(both, self.reduced(result, check))
            result = both
        return result

    def inside(self, check: ll.Value) -> ll.Value:
        """Test whether all elements are inside the range."""
        test, end = ("ule", self.high - self.low) if self.element.is_integer else ("slt", 0)
        good = self.b.add(
            ll.compare(
                test, check, ll.splat_constant(ll.Constant(str(end), self.word), check.lanes)
            )
        )
        bits = self.b.add(ll.cast("bitcast", good, ll.ir_type(f"i{check.lanes}")))
        return self.b.add(ll.compare("eq", bits, ll.Constant("-1", bits.type)))
