"""Explain the choice of strategy for each contraction and reduction of a program: candidates, costs, and the one taken.

    contraction @main.0: 64 rows, 1024 columns, 1024 terms of i32
      taken   pairdot       8,388,608
      not     mul_i32      25,165,824  costs more
      not     winograd_4x4             no windows of 3 x 3 that move by one ...

Costs are in vector instructions of the processor that is compiled for. A candidate that is exact only under a condition is
taken where that holds, and the next one elsewhere. Reductions have no cost model: a pass takes one if it is legal and pays by
its own thresholds, in the order of the pipeline, so that the first that changes the loops is the one taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any

from ..dialect.notation.expressions import Expr, Index
from ..dialect.notation.loops import For, If, Kernel, statements
from ..dialect.notation.printer import statement_text
from ..dialect.program.function import Function
from ..dialect.program.module import Module
from .contraction.channel_lanes import match_channel_lanes
from .contraction.strategies import Choice, Problem, lower_by_strategy
from .loops.collapse import collapsed
from .loops.vectorize import vectorize
from .passes import Pass
from .pipeline import nests
from .processor import processor
from .reductions.blocked_sums import blocked_sums, reduction_accumulators
from .reductions.bool_reduction import bool_reduction
from .reductions.column_reduction import column_reduction
from .reductions.lane_reduction import lane_reduction
from .reductions.partition_reduction import partition_reduction
from .reductions.split_reduction import split_reduction
from .reductions.widen_in_steps import widen_in_steps

# the reduction passes in the order of the pipeline, and what each requires
REDUCTIONS: tuple[tuple[Pass[Any, Any], str], ...] = (
    (partition_reduction, "needs many rows, reduced in any order, for threads to share"),
    (split_reduction, "needs few results, each of many terms, for threads to share"),
    (bool_reduction, "needs truth values reduced by and, or, xor"),
    (column_reduction, "needs a reduction over rows that lie apart in memory"),
    (vectorize, "needs results that lie side by side in memory"),
    (widen_in_steps, "needs sums of narrow integers that a type between holds"),
    (blocked_sums, "needs float sums of 262,144 terms or more"),
    (lane_reduction, "needs terms that lie side by side in memory"),
)


def strategies_text(module: Module, function: Function) -> str:
    """The candidates for each contraction and reduction of a function, and the choice."""
    plan = nests(module, function)
    constants, ranges = dict(plan.constants), dict(plan.ranges)
    lines: list[str] = []
    for kernel in plan.kernels:
        plain = collapsed(kernel)
        shapes = {new: old for old, new in zip(kernel.parameters, plain.parameters, strict=True)}
        known = {new: constants[old] for new, old in shapes.items() if old in constants}
        found = {new: ranges[old] for new, old in shapes.items() if old in ranges}
        explained: list[tuple[Problem, list[Choice]]] = []
        made = lower_by_strategy(plain, known, found, explained=explained)
        for problem, choices in explained:
            if problem.c is not None or made is not None or match_channel_lanes(problem.kernel) is not None:
                lines += _contraction(problem, choices)
        if made is None and any(isinstance(s, For) and reduction_accumulators(s) for s in statements(plain.body)):
            lines += _reduction(plain)
    return "\n".join([f"// {_described()}", *lines]) + "\n"


def _described() -> str:
    """The processor that costs are estimated for."""
    p = processor()
    width = p.tile_vector_bytes
    products = ", ".join(d.mnemonic for d in p.dot_products if d.vector_bytes == width) or "no dot products"
    return f"{p.cpu or 'any processor'}: {p.vector_registers} vectors of {width} bytes, {products}"


def _contraction(problem: Problem, choices: list[Choice]) -> Iterator[str]:
    c = problem.c
    if c is None:
        yield f"windows @{problem.kernel.name}: each over one array"
    else:
        columns = " x ".join(_size(i) for i in (c.window, c.column) if i is not None)
        terms = " x ".join(_size(i) for i in c.folds)
        yield f"contraction @{problem.kernel.name}: {_size(c.row)} rows, {columns} columns, {terms} terms of {problem.element}"
    width = max(len(choice.strategy.name) for choice in choices)
    taken = [choice for choice in choices if choice.taken is not None]
    several = len(taken) > 1
    for choice in sorted(choices, key=lambda choice: (choice.taken is None, choice.cost)):
        cost = f"{choice.cost:15,.0f}" if isfinite(choice.cost) else " " * 15
        yield f"  {'not' if choice.taken is None else 'taken':6}{choice.strategy.name:{width}}{cost}  {_why(choice, several)}".rstrip()


def _why(choice: Choice, several: bool) -> str:
    """The reason why a candidate is taken, or not."""
    if choice.why_not:
        return choice.why_not
    if isinstance(choice.taken, Expr):
        return f"where {_condition(choice.taken)}"
    if choice.taken is not None:
        return "elsewhere" if several else "costs least" if choice.cost else ""
    return "costs more"


def _condition(e: Expr) -> str:
    return statement_text(If(e, ())).partition("if ")[2].partition(" {")[0]


def _size(index: Index) -> str:
    return str(index.extent)


def _reduction(kernel: Kernel) -> Iterator[str]:
    yield f"reduction @{kernel.name}"
    taken = ""
    for reduce, needs in REDUCTIONS:
        changed = reduce(kernel) not in (None, kernel)
        why = "" if changed and not taken else f"{taken} comes first" if changed else needs
        yield f"  {'taken' if changed and not taken else 'not':6}{reduce.name:20}{why}".rstrip()
        taken = taken or (reduce.name if changed else "")
    if not taken:
        yield "  taken in the order of its terms"
