"""Loops over plans to LLVM IR: a loop that calls the function of the plan with pointers to the arrays of each step."""

from __future__ import annotations

from collections.abc import Mapping

from ...dialect.ir.sizes import Dim, product
from ...dialect.notation.expressions import Tensor
from ...dialect.notation.loops import Loop
from .ir_writer import IRWriter


def emit_loop(f: IRWriter, loop: Loop, step: str, pointers: Mapping[Tensor, str], sizes: Mapping[object, str]) -> None:
    """Calls `step`, the function of the loop's plan, in a loop; a step that fails is the last."""
    plan, trips = loop.plan, loop.steps.trips
    passed = (*plan.arguments, *plan.results, *plan.data)
    table = f.add(f"alloca [{len(passed)} x ptr]")
    slots = [f.add(f"getelementptr inbounds ptr, ptr {table}, i64 {n}") for n in range(len(passed))]
    for slot, tensor in zip(slots[len(passed) - len(plan.data) :], plan.data, strict=True):
        f.raw(f"store ptr {pointers[tensor]}, ptr {slot}")
    given = [pointers[loop.parameters[n]] for n in loop.operands]
    results, (*spares, workspace) = [pointers[t] for t in loop.outputs], [pointers[t] for t in loop.scratch]
    body, latch, failed, after = (f.label() for _ in range(4))
    counter = f.add("alloca i64")
    f.raw(f"store i64 0, ptr {counter}")
    if trips is None:
        for slot, pointer in zip(slots, (*results, *given[1:], *spares), strict=False):
            f.raw(f"store ptr {pointer}, ptr {slot}")
        f.raw(f"br i1 {_holds(f, given[0])}, label %{body}, label %{after}")
        f.start(body)
    else:
        f.raw(f"br label %{body}")
        f.start(body)
        k = f.add(f"load i64, ptr {counter}")
        _point(f, loop, (given, results, spares), slots, k, sizes)
        more = f.add(f"add nsw i64 {k}, 1")
        f.raw(f"store i64 {more}, ptr {counter}")
    found = f.add(f"call i32 @{step}(ptr {table}, ptr %sizes, ptr {workspace})")
    f.raw(f"br i1 {f.add(f'icmp eq i32 {found}, 0')}, label %{latch}, label %{failed}")
    f.start(failed)
    f.raw(f"atomicrmw umax ptr %status, i32 {found} monotonic")
    f.raw(f"br label %{after}")
    f.start(latch)
    done = f.add(f"load i64, ptr {counter}")
    again = _holds(f, spares[0]) if trips is None else f.add(f"icmp slt i64 {done}, {f.dim(trips, sizes)}")
    f.raw(f"br i1 {again}, label %{body}, label %{after}")
    f.start(after)


def _holds(f: IRWriter, pointer: str) -> str:
    return f.add(f"icmp ne i8 {f.add(f'load i8, ptr {pointer}')}, 0")


def _point(
    f: IRWriter,
    loop: Loop,
    memory: tuple[list[str], list[str], list[str]],
    slots: list[str],
    k: str,
    sizes: Mapping[object, str],
) -> None:
    """Stores pointers to the arguments and results of the k-th step of a known number."""
    steps, plan, (given, results, spares) = loop.steps, loop.plan, memory
    assert steps.trips is not None
    out = slots[len(plan.arguments) :]
    left = f.add(f"sub nsw i64 {f.linear('add', f.dim(steps.trips, sizes), '-1')}, {k}")
    last = f.add(f"icmp eq i64 {f.add(f'and i64 {left}, 1')}, 0")  # as the last step does, this one leaves the results
    begin = f.add(f"icmp eq i64 {k}, 0")

    def put(slot: str, pointer: str) -> None:
        f.raw(f"store ptr {pointer}, ptr {slot}")

    def slice(pointer: str, of: Tensor) -> str:
        size: Dim = product(of.shape) * of.element.bytes
        at = f.linear("mul", left if steps.reverse else k, f.dim(size, sizes))
        return f.add(f"getelementptr inbounds i8, ptr {pointer}, i64 {at}")

    for n, (result, spare) in enumerate(zip(results, spares, strict=False)):
        before = f.add(f"select i1 {last}, ptr {spare}, ptr {result}")
        put(slots[n], f.add(f"select i1 {begin}, ptr {given[n]}, ptr {before}"))
        put(out[n], f.add(f"select i1 {last}, ptr {result}, ptr {spare}"))
    for n in range(steps.carry, len(plan.arguments)):
        put(slots[n], slice(given[n], plan.arguments[n]) if n < steps.carry + steps.scan else given[n])
    for n in range(steps.carry, len(results)):
        put(out[n], slice(results[n], plan.results[n]))
