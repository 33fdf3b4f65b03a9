"""Find the unknown sizes of a function that calls check to be equal."""

from typing import Any

from ...dialect.builtin import Calling
from ...dialect.ir.function import Function
from ...dialect.types.sizes import Dim, Size, Undecided
from ...dialect.types.unify import put


def equal_sizes(function: Function) -> dict[Any, Dim]:
    """The size to write for each that a constraint requires to be equal to another, which calls
    check.
    """
    pairs: list[tuple[Dim, Dim]] = []
    for operator in (
        o.operator for o in function.operations if not isinstance(o.operator, Calling)
    ):
        typed = operator.map(lambda v: v.known_type)
        for constraint in typed.constraints:
            try:
                constraint.holds(typed)
            except Undecided as e:
                pairs += e.args
    equal: dict[Any, Dim] = {}
    for sides in (s for p in pairs for s in (p, p[::-1])):
        kept, dropped = (put(d, equal) for d in sides)
        atoms = kept.atoms() if isinstance(kept, Size) else set()
        if isinstance(dropped, Size) and dropped.is_atom and not dropped.atoms() & atoms:
            now = dict.fromkeys(dropped.atoms(), kept)
            equal = {a: put(d, now) for a, d in equal.items()} | now
    return equal
