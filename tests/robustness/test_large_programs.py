"""Reading, verifying and rewriting take time that grows as programs do: executed lines are counted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from cvm.lowering.passes import run_passes
from cvm.lowering.pipeline import context_of

import cvm
from cvm.terminal.run_pipeline import all_passes

SMALL = 120  # operations; twice as many take less than 2.3 times the lines


def chain(n: int) -> str:
    body = [f"  %{k + 1} = cvm.elemwise_add %{k}, %x" for k in range(n)]
    return text("%x: tensor<4xi32>", ["  %0 = cvm.relu %x", *body], f"%{n}")


def turned(n: int) -> str:
    """Views of views, which cancel in pairs."""
    body = [f"  %{k + 1} = theano.dimshuffle %{k} {{new_order = [1, 0]}}" for k in range(n)]
    return text("%0: tensor<4x4xf32>", body, f"%{n}")


def constants(n: int) -> str:
    body = [
        line
        for k in range(n // 2)
        for line in (
            f"  %c{k} = const dense<[1, 2, 3, {k}]> : tensor<4xi32>",
            f"  %{k + 1} = cvm.elemwise_add %{k}, %c{k}",
        )
    ]
    return text("%0: tensor<4xi32>", body, f"%{n // 2}")


def equal(n: int) -> str:
    """Equal operations, added in a tree."""
    body, level = [f"  %0_{k} = cvm.relu %x" for k in range(n // 2)], 0
    count = n // 2
    while count > 1:
        body += [
            f"  %{level + 1}_{k} = cvm.elemwise_add %{level}_{2 * k}, %{level}_{2 * k + 1}"
            for k in range(count // 2)
        ]
        level, count = level + 1, count // 2
    return text("%x: tensor<4xi32>", [b.replace("%", "%v") for b in body], f"%v{level}_0").replace(
        "%vx", "%x"
    )


def folded(n: int) -> str:
    """Operations on constants alone."""
    body = ["  %0 = const dense<1> : tensor<4xi32>"]
    body += [f"  %{k + 1} = cvm.relu %{k}" for k in range(n)]
    return text("%x: tensor<4xi32>", [*body, f"  %y = cvm.elemwise_add %x, %{n}"], "%y")


def text(arguments: str, body: list[str], result: str) -> str:
    return "\n".join([f"func @main({arguments}) {{", *body, f"  return {result}", "}"])


def lines_of(work: Callable[[], object]) -> int:
    """The lines of Python that run."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def rewritten(name: str) -> Callable[[str], Callable[[], object]]:
    def of(program: str) -> Callable[[], object]:
        module = cvm.parse(program)
        function = module.functions["main"]
        context = context_of(module, function)
        return lambda: run_passes((all_passes()[name],), function, context)

    return of


WORK: dict[str, Callable[[str], Callable[[], object]]] = {
    "parse": lambda program: lambda: cvm.parse(program),
    "print": lambda program: cvm.parse(program).__str__,
    **{name: rewritten(name) for name in ("simplify", "cse", "dce", "fold_constants")},
}


@pytest.mark.parametrize("make", [chain, turned, constants, equal, folded])
@pytest.mark.parametrize("work", WORK)
def test_lines_grow_as_programs_do(work: str, make: Callable[[int], str]) -> None:
    WORK[work](make(8))()  # what is made once
    small, large = (lines_of(WORK[work](make(n))) for n in (SMALL, 2 * SMALL))
    assert large < 2.3 * small
