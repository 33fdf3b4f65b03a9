"""Loops over plans to LLVM IR: a loop that calls the function of the plan with pointers to the
arrays of each step.
"""

from collections.abc import Mapping

from ...dialect.kernel_ir.execution_plan import Loop
from ...dialect.kernel_ir.expressions import Tensor
from . import ir_builder as ll
from .addresses import size_value
from .kernels import NO_WORK, STATUS_POINTER, STOPPED, stop_if

LOOKS = 16  # steps between two looks for signals; tuned by hand (Zen 4, Zen 5)


def emit_loop(
    b: ll.IRBuilder,
    loop: Loop,
    step: str,
    pointers: Mapping[Tensor, ll.Value],
    sizes: Mapping[object, ll.Value],
) -> None:
    """Calls `step`, the function of the loop's plan, in a loop; a step that fails is the last."""
    plan = loop.plan
    trips = loop.steps.trips
    passed = (*plan.arguments, *plan.results, *plan.data)
    table = b.add(ll.alloca(ll.array_type(len(passed), ll.POINTER)))
    slots = [b.add(ll.element_pointer(ll.POINTER, table, ll.index(n))) for n in range(len(passed))]
    for slot, tensor in zip(slots[len(passed) - len(plan.data) :], plan.data, strict=True):
        b.do(ll.store(pointers[tensor], slot))
    inputs = [pointers[loop.parameters[n]] for n in loop.operands]
    results, (*spares, workspace) = (
        [pointers[t] for t in loop.outputs],
        [pointers[t] for t in loop.scratch],
    )
    body, latch, failed, look, following, after = (b.new_block() for _ in range(6))
    counter = b.add(ll.alloca(ll.WORD))
    b.do(ll.store(ll.ZERO, counter))
    if trips is None:
        stored = [*spares]
        for n in loop.in_place:
            stored[n + 1] = results[n]
        for slot, pointer in zip(slots, (*results, *inputs[1:], *stored), strict=False):
            b.do(ll.store(pointer, slot))
        b.do(ll.branch_if(_holds(b, inputs[0]), body, after))
        b.start(body)
    else:
        b.do(ll.branch(body))
        b.start(body)
        _point(b, loop, (inputs, results, spares), slots, b.add(ll.load(ll.WORD, counter)), sizes)
    status = b.add(
        ll.call(ll.ENTRY._replace(name=step), table, ll.Value("%sizes", ll.POINTER), workspace)
    )
    b.do(ll.branch_if(b.add(ll.compare("eq", status, ll.Constant("0", ll.STATUS))), latch, failed))
    b.start(failed)
    stop_if(b, "eq", status, STOPPED)
    b.do(ll.atomic_umax(STATUS_POINTER, status))
    b.do(ll.branch(after))
    b.start(latch)
    done = b.add(ll.binary("add", b.add(ll.load(ll.WORD, counter)), ll.ONE, "nsw"))
    b.do(ll.store(done, counter))
    several = b.add(ll.binary("and", done, ll.index(LOOKS - 1)))
    b.do(ll.branch_if(b.add(ll.compare("eq", several, ll.ZERO)), look, following))
    b.start(look)
    stop_if(b, "ne", b.add(ll.call(ll.PARALLEL, *NO_WORK)), ll.Constant("0", ll.STATUS))
    b.do(ll.branch(following))
    b.start(following)
    again = (
        _holds(b, spares[0])
        if trips is None
        else b.add(ll.compare("slt", done, size_value(b, trips, sizes)))
    )
    b.do(ll.branch_if(again, body, after))
    b.start(after)


def _holds(b: ll.IRBuilder, pointer: ll.Value) -> ll.Value:
    return b.add(ll.compare("ne", b.add(ll.load(ll.BYTE, pointer)), ll.Constant("0", ll.BYTE)))


def _point(
    b: ll.IRBuilder,
    loop: Loop,
    memory: tuple[list[ll.Value], list[ll.Value], list[ll.Value]],
    slots: list[ll.Value],
    k: ll.Value,
    sizes: Mapping[object, ll.Value],
) -> None:
    """Stores pointers to the arguments and results of the k-th step of a known number."""
    steps, plan, (inputs, results, spares) = loop.steps, loop.plan, memory
    assert steps.trips is not None
    out = slots[len(plan.arguments) :]
    left = b.add(
        ll.binary("sub", b.linear("add", size_value(b, steps.trips, sizes), ll.index(-1)), k, "nsw")
    )
    # as the last step does, this one leaves the results
    last = b.add(ll.compare("eq", b.add(ll.binary("and", left, ll.ONE)), ll.ZERO))
    begin = b.add(ll.compare("eq", k, ll.ZERO))

    def slice(pointer: ll.Value, of: Tensor) -> ll.Value:
        at = b.linear("mul", left if steps.reverse else k, size_value(b, of.bytes, sizes))
        return b.add(ll.element_pointer(ll.BYTE, pointer, at))

    for n, (result, spare) in enumerate(zip(results, spares, strict=False)):
        if n in loop.in_place:
            b.do(ll.store(result, slots[n]))
            b.do(ll.store(result, out[n]))
            continue
        b.do(
            ll.store(
                b.add(ll.select(begin, inputs[n], b.add(ll.select(last, spare, result)))), slots[n]
            )
        )
        b.do(ll.store(b.add(ll.select(last, result, spare)), out[n]))
    for n in range(steps.carry, len(plan.arguments)):
        b.do(
            ll.store(
                slice(inputs[n], plan.arguments[n]) if n < steps.carry + steps.scan else inputs[n],
                slots[n],
            )
        )
    for n in range(steps.carry, len(results)):
        b.do(ll.store(slice(results[n], plan.results[n]), out[n]))
