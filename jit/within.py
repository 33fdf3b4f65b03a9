"""IR that looks whether the elements of an array lie in a declared range, by vectors:

    held = -1;  for i by 8 { held = held & sext(x[i..] - low <= high - low) };  all of held are -1

Differences are of unsigned integers; floats are compared with both ends, so that NaN lies in no range.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..dialect.program import Function
from ..dialect.types import Type
from .lines import Lines, number_text, type_text

VECTOR_BYTES = 32


def declared(function: Function) -> dict[int, tuple[Type, tuple[float, float]]]:
    """The arguments that have a declared range and elements, by position: their types, and the ranges."""
    found = {
        k: (a.known_type, a.attributes["range"]) for k, a in enumerate(function.arguments) if "range" in a.attributes
    }
    return {k: asked for k, asked in found.items() if asked[0].size != 0}


def within_text(name: str, type: Type, bounds: tuple[float, float]) -> str:
    """The function, `i1 @name(ptr array)`, for arrays of a type of integers or floats, of known sizes that are not zero."""
    element, count = type.element, type.size
    assert isinstance(count, int) and count > 0
    low, high = bounds
    if element.is_integer:
        low, high = max(low, element.limits[0]), min(high, element.limits[1])
    if low > high:  # the type holds none of them
        return f"define internal i1 @{name}(ptr %array) nounwind {{\n  ret i1 false\n}}\n"
    lanes = min(VECTOR_BYTES // element.bytes, 1 << (count.bit_length() - 1))
    values, masks = f"<{lanes} x {type_text(element)}>", f"<{lanes} x i{element.bits}>"

    def splat(value: float) -> str:
        return f"<{', '.join([f'{type_text(element)} {number_text(value, element)}'] * lanes)}>"

    f = Lines()
    f.raw("br label %loop")
    f.start("loop")
    f.raw("%i = phi i64 [ 0, %entry ], [ %next, %loop ]")
    f.raw(f"%held = phi {masks} [ {_ones(lanes, element.bits)}, %entry ], [ %still, %loop ]")
    x = f.add(
        f"load {values}, ptr {f.add(f'getelementptr inbounds {type_text(element)}, ptr %array, i64 %i')}, align 1"
    )
    if element.is_integer:
        inside = f.add(f"icmp ule {values} {f.add(f'sub {values} {x}, {splat(low)}')}, {splat(high - low)}")
    else:
        above, below = (f.add(f"fcmp {test} {values} {x}, {splat(b)}") for test, b in (("oge", low), ("ole", high)))
        inside = f.add(f"and <{lanes} x i1> {above}, {below}")
    mask = f.add(f"sext <{lanes} x i1> {inside} to {masks}")
    f.raw(f"%still = and {masks} %held, {mask}")
    last = count - lanes  # where the last vector begins: it may overlap the one before
    after = f.add(f"add nuw nsw i64 %i, {lanes}")
    f.raw(f"%next = select i1 {f.add(f'icmp slt i64 {after}, {last}')}, i64 {after}, i64 {last}")
    f.raw(f"br i1 {f.add(f'icmp eq i64 %i, {last}')}, label %end, label %loop")
    f.start("end")
    same = f.add(f"icmp eq {masks} %still, {_ones(lanes, element.bits)}")
    bits = f.add(f"bitcast <{lanes} x i1> {same} to i{lanes}")
    f.raw(f"ret i1 {f.add(f'icmp eq i{lanes} {bits}, -1')}")
    return f"define internal i1 @{name}(ptr %array) nounwind {{\nentry:\n{f.text()}\n}}\n"


def all_within_text(ranges: Mapping[int, tuple[Type, tuple[float, float]]]) -> str:
    """The function, `i1 @within(ptr pointers)`, that looks at several arguments, given by their positions."""
    f = Lines()
    for k in ranges:
        place = f.add(f"getelementptr ptr, ptr %pointers, i64 {k}")
        good, next_one = f.add(f"call i1 @within_{k}(ptr {f.add(f'load ptr, ptr {place}')})"), f.label()
        f.raw(f"br i1 {good}, label %{next_one}, label %beyond")
        f.start(next_one)
    f.raw("ret i1 true")
    f.start("beyond")
    f.raw("ret i1 false")
    functions = [within_text(f"within_{k}", type, bounds) for k, (type, bounds) in ranges.items()]
    return "".join([*functions, f"define i1 @within(ptr %pointers) nounwind {{\nentry:\n{f.text()}\n}}\n"])


def _ones(lanes: int, bits: int) -> str:
    return f"<{', '.join([f'i{bits} -1'] * lanes)}>"
