"""Fast-forward counters: advance a constant increment by many ticks at once.

    s[0] = s[0] + 1.0
    =>  if s[0] is whole, and |s[0]| + 1024 <= 2^24 { s[0] = s[0] + 1024.0 }
        else if s[0] + 1.0 != s[0] { for t { s[0] = s[0] + 1.0 } }

Legal where every intermediate sum is exact: the state is a multiple of the increment's unit (the
largest power of two that divides it) and small enough. One addition then gives the same bits. A
step that changes nothing is a fixed point: no later one does.
"""

import math
from collections.abc import Mapping
from functools import reduce
from operator import and_, or_

import numpy as np

from ...dialect.kernel_ir.affine import key
from ...dialect.kernel_ir.expressions import Apply, Const, Expr, Index, Read, Var, apply, constant
from ...dialect.kernel_ir.loops import For, If, Kernel, Let, Store
from ...dialect.types.tensor_types import F32
from ..clocked_plan import StepPlan
from ..passes import step_pass
from ..processor import processor

WHOLE = 2.0**24  # all integers up to here are f32 numbers


@step_pass
def fast_forward(step: StepPlan) -> StepPlan | None:
    leap = None if step.only_kernel is None else leaping(step.only_kernel)
    return None if leap is None else step.with_several(leap, processor().tuning.ticks_at_once)


def leaping(kernel: Kernel) -> Kernel | None:
    """The kernel of one tick as one of `ticks_at_once`; None if it does more than count, or no such
    sum would be exact.
    """
    ticks = processor().tuning.ticks_at_once
    exact: list[Expr] = []
    leaps: list[Store] = []
    values = {s.var: s.value for s in kernel.body if isinstance(s, Let)}
    for s in kernel.body:
        if isinstance(s, Let):
            continue
        if (
            not isinstance(s, Store)
            or s.tensor.element is not F32
            or (step := _step(s, values)) is None
        ):
            return None
        before = Read(s.tensor, s.indices)
        if not (conditions := _exact(before, step)):
            return None
        exact += conditions
        leaps.append(Store(s.tensor, s.indices, before + constant(ticks * step, F32)))
    if not leaps:
        return None
    one_by_one = For(Index("t", ticks), kernel.body)
    stores = (s for s in kernel.body if isinstance(s, Store))
    moving = reduce(or_, (_value(s, values).ne(Read(s.tensor, s.indices)) for s in stores))
    return kernel.with_body((If(reduce(and_, exact), tuple(leaps), (If(moving, (one_by_one,)),)),))


def _value(s: Store, values: Mapping[Var, Expr]) -> Expr:
    return values.get(s.value, s.value) if isinstance(s.value, Var) else s.value


def _step(s: Store, values: Mapping[Var, Expr]) -> float | None:
    """The constant that a store adds to the element it writes."""
    match _value(s, values):
        case Apply("add", (Read() as x, Const(step))) | Apply("add", (Const(step), Read() as x)):
            sign = 1
        case Apply("sub", (Read() as x, Const(step))):
            sign = -1
        case _:
            return None
    return sign * float(step) if key(x) == key(Read(s.tensor, s.indices)) else None


def _exact(x: Expr, step: float) -> list[Expr]:
    """The conditions under which the steps from x are exact; empty if they never are."""
    if not math.isfinite(step) or not step:
        return []
    over, _ = step.as_integer_ratio()
    odd = over // (over & -over)
    unit = step / odd
    most = WHOLE - processor().tuning.ticks_at_once * abs(odd)
    largest = float(np.finfo(F32.dtype).max)
    if most < 0 or unit > largest / WHOLE or 1 / unit > largest:
        return []
    units = x * constant(1 / unit, F32)
    return [
        apply("floor", units).eq(units),
        (units * constant(unit, F32)).eq(x),  # the product was not rounded by underflow
        apply("abs", units) <= constant(most, F32),
    ]
