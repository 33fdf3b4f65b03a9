"""IR that looks whether the elements of an array lie in a declared range, by vectors:

    furthest = 0;  for i by 8 { furthest = max(furthest, x[i..] - low) };  all of furthest <= high - low

Differences are of unsigned integers; floats are compared with both ends, so that NaN lies in no range.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from ...dialect.ir.types import ElementType, Type
from ...dialect.program.function import Function
from ...lowering.processor import processor
from .ir_writer import IRWriter, number_text, type_text

TOGETHER = 4  # vectors of a turn, none of which waits for another
BLOCK, WORTH = 1 << 14, 1 << 17  # bytes that a thread looks at together, and at least, if it is not alone
BEYOND = -1  # the status of a call with arguments that are not in their ranges


def checked_text(ranges: Mapping[int, tuple[Type, tuple[float, float]]], atoms: Sequence[Hashable]) -> str:
    """`i32 @checked(ptr pointers, ptr sizes, ptr workspace)`: the entry, where the arguments at some positions lie in their
    ranges, else the status BEYOND. `atoms` are the sizes in their order. Large arrays are looked at by all threads."""
    few = {k for k, (t, _) in ranges.items() if isinstance(t.size, int) and t.size * t.element.bytes <= WORTH}
    many = ranges.keys() - few
    f = IRWriter()
    sizes: dict[object, str] = {}
    for n, atom in enumerate(atoms):
        sizes[atom] = f.add(f"load i64, ptr {f.add(f'getelementptr i64, ptr %sizes, i64 {n}')}")
    for k, (type, _) in ranges.items():
        array = f.add(f"load ptr, ptr {f.add(f'getelementptr ptr, ptr %pointers, i64 {k}')}")
        size, next_one = f.dim(type.size, sizes), f.label()
        good = f.add(f"call i1 @{'all_' * (k in many)}within_{k}(ptr {array}, i64 {size})")
        f.raw(f"br i1 {good}, label %{next_one}, label %beyond")
        f.start(next_one)
    f.raw(f"ret i32 {f.add('tail call i32 @entry(ptr %pointers, ptr %sizes, ptr %workspace)')}")
    f.start("beyond")
    f.raw(f"ret i32 {BEYOND}")
    functions = [within_text(f"within_{k}", type.element, bounds) for k, (type, bounds) in ranges.items()]
    functions += [_by_threads(k, BLOCK // ranges[k][0].element.bytes) for k in sorted(many)]
    parameters = "ptr %pointers, ptr %sizes, ptr %workspace"
    return "".join([*functions, f"define i32 @checked({parameters}) nounwind {{\nentry:\n{f.text()}\n}}\n"])


def _by_threads(k: int, block: int) -> str:
    """`i1 @all_within_k(ptr array, i64 count)`: the same of all threads, which take blocks of so many elements."""
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
  %offset = mul i64 %first, {BLOCK}
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
  call void @parallel(ptr @blocks_within_{k}, ptr %context, i64 %blocks, i64 {WORTH // BLOCK})
  %beyond = load atomic i64, ptr %beyond.at monotonic, align 8
  %good = icmp eq i64 %beyond, 0
  ret i1 %good
}}
"""


def declared(function: Function) -> dict[int, tuple[Type, tuple[float, float]]]:
    """The arguments that have a declared range, by position: their types, and the ranges."""
    return {
        k: (a.known_type, a.attributes["range"]) for k, a in enumerate(function.arguments) if "range" in a.attributes
    }


def within_text(name: str, element: ElementType, bounds: tuple[float, float]) -> str:
    """The function, `i1 @name(ptr array, i64 count)`, for arrays of integers or floats; it is part of who calls it, once."""
    look = _Look(element, *bounds)
    if look.low > look.high:  # the type holds none of them
        return f"define internal i1 @{name}(ptr %array, i64 %count) nounwind alwaysinline {{\n  %none = icmp eq i64 %count, 0\n  ret i1 %none\n}}\n"
    lanes = processor().vector_bytes // element.bytes
    i, furthest = look.turns("0", lanes, [look.nothing(lanes)] * TOGETHER)
    i, furthest = look.turns(i, lanes, [look.both(lanes, furthest)])
    many = look.inside(lanes, furthest[0])
    _, furthest = look.turns(i, 1, [look.nothing(1)])
    good = look.f.add(f"and i1 {many}, {look.inside(1, furthest[0])}")
    look.f.raw(f"ret i1 {good}")
    return f"define internal i1 @{name}(ptr %array, i64 %count) nounwind alwaysinline {{\nentry:\n{look.f.text()}\n}}\n"


class _Look:
    """The instructions of such a function. What is known of a vector's elements is their greatest difference from the least
    value, or of floats, whether they are inside."""

    def __init__(self, element: ElementType, low: float, high: float) -> None:
        self.f = IRWriter()
        self.element, self.width = element, f"i{element.bits}"
        if element.is_integer:
            low, high = max(low, element.limits[0]), min(high, element.limits[1])
        self.low, self.high = low, high

    def turns(self, start: str, lanes: int, before: Sequence[str]) -> tuple[str, list[str]]:
        """A loop from a place on while there are as many vectors left; where it ends, and what is known then."""
        entry, head, body, after = self.f.block, self.f.label(), self.f.label(), self.f.label()
        known = [(self.f.fresh(), self.f.fresh()) for _ in before]
        i, following = self.f.fresh(), self.f.fresh()
        self.f.raw(f"br label %{head}")
        self.f.start(head)
        self.f.raw(f"{i} = phi i64 [ {start}, %{entry} ], [ {following}, %{body} ]")
        for (now, later), first in zip(known, before, strict=True):
            self.f.raw(f"{now} = phi {_many(self.width, lanes)} [ {first}, %{entry} ], [ {later}, %{body} ]")
        self.f.raw(f"{following} = add i64 {i}, {lanes * len(before)}")
        self.f.raw(f"br i1 {self.f.add(f'icmp sle i64 {following}, %count')}, label %{body}, label %{after}")
        self.f.start(body)
        for n, (now, later) in enumerate(known):
            at = self.f.add(f"add i64 {i}, {n * lanes}")
            place = self.f.add(f"getelementptr {type_text(self.element)}, ptr %array, i64 {at}")
            x = self.f.add(f"load {type_text(self.element, lanes)}, ptr {place}, align 1")
            self.fold(lanes, later, now, self.judged(lanes, x))
        self.f.raw(f"br label %{head}")
        self.f.start(after)
        return i, [now for now, _ in known]

    def nothing(self, lanes: int) -> str:
        return self.splat(0 if self.element.is_integer else -1, self.width, lanes)

    def judged(self, lanes: int, x: str) -> str:
        """The check of a vector."""
        kind = type_text(self.element, lanes)
        low, high = (
            self.splat(number_text(v, self.element), type_text(self.element), lanes) for v in (self.low, self.high)
        )
        if self.element.is_integer:
            return self.f.add(f"sub {kind} {x}, {low}")
        above, below = (self.f.add(f"fcmp {test} {kind} {x}, {b}") for test, b in (("oge", low), ("ole", high)))
        inside = self.f.add(f"and {_many('i1', lanes)} {above}, {below}")
        return self.f.add(f"sext {_many('i1', lanes)} {inside} to {_many(self.width, lanes)}")

    def fold(self, lanes: int, name: str, a: str, b: str) -> None:
        kind = _many(self.width, lanes)
        if self.element.is_integer:
            self.f.raw(
                f"{name} = select {_many('i1', lanes)} {self.f.add(f'icmp ugt {kind} {a}, {b}')}, {kind} {a}, {kind} {b}"
            )
        else:
            self.f.raw(f"{name} = and {kind} {a}, {b}")

    def both(self, lanes: int, known: Sequence[str]) -> str:
        """The check of several vectors."""
        found, *rest = known
        for other in rest:
            name = self.f.fresh()
            self.fold(lanes, name, found, other)
            found = name
        return found

    def inside(self, lanes: int, known: str) -> str:
        """Test whether all elements are inside the range."""
        kind = _many(self.width, lanes)
        if not self.element.is_integer:
            good = self.f.add(f"icmp slt {kind} {known}, {self.splat(0, self.width, lanes)}")
        else:
            good = self.f.add(f"icmp ule {kind} {known}, {self.splat(self.high - self.low, self.width, lanes)}")
        bits = self.f.add(f"bitcast {_many('i1', lanes)} {good} to i{lanes}")
        return self.f.add(f"icmp eq i{lanes} {bits}, -1")

    def splat(self, value: object, kind: str, lanes: int) -> str:
        return str(value) if lanes == 1 else f"<{', '.join([f'{kind} {value}'] * lanes)}>"


def _many(kind: str, lanes: int) -> str:
    return kind if lanes == 1 else f"<{lanes} x {kind}>"
