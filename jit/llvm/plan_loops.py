"""Loops over plans to LLVM IR: a loop that calls the function of the plan with pointers to the arrays of each step."""

from __future__ import annotations

from collections.abc import Mapping

from ...dialect.ir.sizes import Dim, product
from ...dialect.notation.expressions import Tensor
from ...dialect.notation.loops import Loop
from .addresses import size_value
from .ir_builder import (
    BYTE,
    ONE,
    POINTER,
    STATUS,
    WORD,
    ZERO,
    Constant,
    Declaration,
    IRBuilder,
    Value,
    alloca,
    array_type,
    atomic_umax,
    binary,
    branch,
    branch_if,
    call,
    compare,
    element_pointer,
    index,
    load,
    select,
    store,
)
from .kernels import STATUS_POINTER


def emit_loop(
    b: IRBuilder, loop: Loop, step: str, pointers: Mapping[Tensor, Value], sizes: Mapping[object, Value]
) -> None:
    """Calls `step`, the function of the loop's plan, in a loop; a step that fails is the last."""
    plan, trips = loop.plan, loop.steps.trips
    passed = (*plan.arguments, *plan.results, *plan.data)
    table = b.add(alloca(array_type(len(passed), POINTER)))
    slots = [b.add(element_pointer(POINTER, table, index(n))) for n in range(len(passed))]
    for slot, tensor in zip(slots[len(passed) - len(plan.data) :], plan.data, strict=True):
        b.do(store(pointers[tensor], slot))
    given = [pointers[loop.parameters[n]] for n in loop.operands]
    results, (*spares, workspace) = [pointers[t] for t in loop.outputs], [pointers[t] for t in loop.scratch]
    body, latch, failed, after = (b.new_block() for _ in range(4))
    counter = b.add(alloca(WORD))
    b.do(store(ZERO, counter))
    if trips is None:
        for slot, pointer in zip(slots, (*results, *given[1:], *spares), strict=False):
            b.do(store(pointer, slot))
        b.do(branch_if(_holds(b, given[0]), body, after))
        b.start(body)
    else:
        b.do(branch(body))
        b.start(body)
        k = b.add(load(WORD, counter))
        _point(b, loop, (given, results, spares), slots, k, sizes)
        b.do(store(b.add(binary("add", k, ONE, "nsw")), counter))
    function = Declaration(STATUS, step, (POINTER, POINTER, POINTER))
    found = b.add(call(function, table, Value("%sizes", POINTER), workspace))
    b.do(branch_if(b.add(compare("eq", found, Constant("0", STATUS))), latch, failed))
    b.start(failed)
    b.do(atomic_umax(STATUS_POINTER, found))
    b.do(branch(after))
    b.start(latch)
    done = b.add(load(WORD, counter))
    again = _holds(b, spares[0]) if trips is None else b.add(compare("slt", done, size_value(b, trips, sizes)))
    b.do(branch_if(again, body, after))
    b.start(after)


def _holds(b: IRBuilder, pointer: Value) -> Value:
    return b.add(compare("ne", b.add(load(BYTE, pointer)), Constant("0", BYTE)))


def _point(
    b: IRBuilder,
    loop: Loop,
    memory: tuple[list[Value], list[Value], list[Value]],
    slots: list[Value],
    k: Value,
    sizes: Mapping[object, Value],
) -> None:
    """Stores pointers to the arguments and results of the k-th step of a known number."""
    steps, plan, (given, results, spares) = loop.steps, loop.plan, memory
    assert steps.trips is not None
    out = slots[len(plan.arguments) :]
    left = b.add(binary("sub", b.linear("add", size_value(b, steps.trips, sizes), index(-1)), k, "nsw"))
    last = b.add(
        compare("eq", b.add(binary("and", left, ONE)), ZERO)
    )  # as the last step does, this one leaves the results
    begin = b.add(compare("eq", k, ZERO))

    def slice(pointer: Value, of: Tensor) -> Value:
        size: Dim = product(of.shape) * of.element.bytes
        at = b.linear("mul", left if steps.reverse else k, size_value(b, size, sizes))
        return b.add(element_pointer(BYTE, pointer, at))

    for n, (result, spare) in enumerate(zip(results, spares, strict=False)):
        before = b.add(select(last, spare, result))
        b.do(store(b.add(select(begin, given[n], before)), slots[n]))
        b.do(store(b.add(select(last, result, spare)), out[n]))
    for n in range(steps.carry, len(plan.arguments)):
        scanned = n < steps.carry + steps.scan
        b.do(store(slice(given[n], plan.arguments[n]) if scanned else given[n], slots[n]))
    for n in range(steps.carry, len(results)):
        b.do(store(slice(results[n], plan.results[n]), out[n]))
