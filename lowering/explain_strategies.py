"""Explain the choice of strategy for each contraction and reduction of a program: candidates,
costs, and the one taken.

    producers
      fused   %t into %y: each element is read once
    contraction @main.0: 64 rows, 1024 columns, 1024 terms of i32
      taken   pairdot       8,388,608
      not     mul_i32      25,165,824  costs more
      not     winograd_4x4             no windows of 3 x 3 that move by one ...

A producer is an operation's formula that others read: `fuse` chooses by what it costs at each read.
Costs are in vector instructions of the processor that is compiled for. A candidate that is exact
only under a condition is taken where that holds, and the next one elsewhere. Products whose rows
are tiled together are explained for a tile. A reduction is taken by the first pass of the pipeline
that is legal and pays by its own thresholds. Its cost, and that of each other pass, is counted in
the loops that the pipeline makes with this reduction pass alone; work that threads share counts
whole.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import inf, isfinite
from typing import Any

from ..dialect.ir.function import Function
from ..dialect.ir.module import Module
from ..dialect.kernel_ir.execution_plan import Plan
from ..dialect.kernel_ir.expressions import ZERO, Const, Expr, Extent, Index, Read, as_index
from ..dialect.kernel_ir.kernel_printer import statement_text
from ..dialect.kernel_ir.loops import (
    Block,
    For,
    If,
    Kernel,
    Store,
    expressions,
    reshaped_parameters,
    statements,
)
from ..dialect.kernel_ir.traverse import rewrite, walk
from . import pipeline
from .analysis.cost import operations
from .contraction.channel_vectorized_window import match_channel_lanes
from .contraction.contraction_problem import Problem
from .contraction.strategies import Choice, lower_by_strategy
from .contraction.tile_and_fuse import tile_and_fuse
from .formulas.fuse import Fusion, fuse
from .loops.collapse import collapsed
from .loops.vectorize import vectorize
from .pass_context import Context
from .passes import Pass, placed, plan_pass, run_passes
from .processor import processor
from .reductions.blocked_sums import blocked_sums, reduction_accumulators
from .reductions.column_reduction import column_reduction
from .reductions.lane_reduction import lane_reduction
from .reductions.partition_reduction import partition_reduction
from .reductions.promote_bools import promote_bools
from .reductions.split_reduction import split_reduction
from .reductions.widen_in_steps import widen_in_steps

# the reduction passes in the order of the pipeline, and what each requires
REDUCTIONS = {
    partition_reduction: "needs many rows, reduced in any order, for threads to share",
    split_reduction: "needs few results, each of many terms, for threads to share",
    promote_bools: "needs truth values reduced by and, or, xor",
    column_reduction: "needs a reduction over rows that lie apart in memory",
    vectorize: "needs results that lie side by side in memory",
    widen_in_steps: "needs sums of narrow integers that a type between holds",
    blocked_sums: "needs float sums of 262,144 terms or more",
    lane_reduction: "needs terms that lie side by side in memory",
}
FUSED = (*pipeline.GRAPH, *pipeline.TO_FORMULAS)  # the passes up to the fusion of formulas
IN_ORDER = "in order"  # of the terms: no pass
# cost model: iterations of a loop whose number only a call tells; tuned by hand (Zen 4, Zen 5)
UNKNOWN_TRIPS = 64


def strategies_text(module: Module, function: Function) -> str:
    """The candidates for each contraction and reduction of a function, and the choice."""
    plan = pipeline.nests(module, function)
    producers: list[Fusion] = []
    formulas = [fuse.with_options(explained=producers) if p is fuse else p for p in FUSED]
    run_passes(placed(formulas), function, pipeline.context_of(module, function))
    tiled = dict[str, list[str]]()

    @plan_pass
    def explain_tile(tile: Plan) -> Plan:
        chain = [k.name.removesuffix(".rows") for k in tile.kernels]
        head = [
            f"kernels @{chain[0]} to @{chain[-1]}",
            "  taken tile_and_fuse  tiles of rows stay in the caches",
        ]
        tiled[chain[0]] = [*head, *_explained(tile)]
        return tile

    fused: Plan = run_passes(
        placed([tile_and_fuse.with_options(body=(explain_tile, *pipeline.TILE))]), plan, Context()
    )
    lines = [*_producers(producers)]
    for kernel in plan.kernels:
        if kernel in fused.kernels:
            lines += _explained(replace(plan, kernels=(kernel,)))
        elif kernel.name in tiled:
            lines += tiled[kernel.name]
    return "\n".join([f"// {_described()}", *lines]) + "\n"


def _producers(choices: list[Fusion]) -> Iterator[str]:
    """The producers that are fused into their readers, and those that are stored."""
    if choices:
        yield "producers"
    for c in sorted(choices, key=lambda c: not c.fused):
        readers = ", ".join(f"%{t.name}" for t in c.readers)
        yield f"  {'fused  ' if c.fused else 'stored '} %{c.tensor.name} into {readers}: {c.why}"


def _explained(plan: Plan) -> Iterator[str]:
    """The candidates for each kernel of a plan."""
    for kernel in plan.kernels:
        contractions, taken = contractions_of(plan, kernel)
        for problem, choices in contractions:
            if problem.c is not None or taken or match_channel_lanes(problem.kernel) is not None:
                yield from _contraction(problem, choices)
        if not taken and any(
            isinstance(s, For) and reduction_accumulators(s)
            for s in statements(collapsed(kernel).body)
        ):
            yield from _reduction(plan, kernel)


def contractions_of(plan: Plan, kernel: Kernel) -> tuple[list[tuple[Problem, list[Choice]]], bool]:
    """The candidates for each contraction of a kernel, and whether one is taken."""
    context = Context(constants=dict(plan.constants), ranges=dict(plan.ranges))
    plain = collapsed(kernel)
    explained: list[tuple[Problem, list[Choice]]] = []
    made = lower_by_strategy(plain, *context.seen(reshaped_parameters(kernel, plain)), explained)
    return explained, made is not None


def _described() -> str:
    """The processor that costs are estimated for."""
    p = processor()
    width = p.tile_vector_bytes
    products = (
        ", ".join(d.mnemonic for d in p.dot_products if d.vector_bytes == width)
        or "no dot products"
    )
    tiles = ", matrix tiles" if p.matrix_tiles else ""
    vectors = f"{p.vector_registers} vectors of {width} bytes"
    return f"{p.cpu or 'any processor'}: {vectors}, {products}{tiles}"


def _contraction(problem: Problem, choices: list[Choice]) -> Iterator[str]:
    if (c := problem.c) is None:
        yield f"windows @{problem.kernel.name}: each over one array"
    else:
        columns = " x ".join(str(i.extent) for i in (c.window, c.column) if i is not None)
        terms = " x ".join(str(i.extent) for i in c.reduction_axes)
        sizes = f"{c.row.extent} rows, {columns} columns, {terms} terms of {problem.element}"
        yield f"contraction @{problem.kernel.name}: {sizes}"
    width = max(len(choice.strategy.name) for choice in choices)
    several = sum(choice.taken is not None for choice in choices) > 1
    for choice in sorted(choices, key=lambda choice: (choice.taken is None, choice.cost)):
        cost = f"{choice.cost:15,.0f}" if isfinite(choice.cost) else " " * 15
        yield (
            "  "
            f"{'not' if choice.taken is None else 'taken':6}{choice.strategy.name:{width}}{cost} "
            f" {_why(choice, several)}".rstrip()
        )


def _why(choice: Choice, several: bool) -> str:
    if choice.why_not:
        return choice.why_not
    if isinstance(choice.taken, Expr):
        return (
            f"where {statement_text(If(choice.taken, ())).partition('if ')[2].partition(' {')[0]}"
        )
    if choice.taken is not None:
        if several:
            return "elsewhere"
        if choice.cost:
            return "costs least"
        return ""
    return "costs more"


def _reduction(plan: Plan, kernel: Kernel) -> Iterator[str]:
    """The passes that a reduction could take, the one taken first, then by cost."""
    yield f"reduction @{kernel.name}"
    passes = [p for p in pipeline.CPU_SCHEDULE if p.unit is Kernel]
    alone = replace(plan, kernels=(kernel,))
    candidates = [*REDUCTIONS]
    costs: dict[str, float] = {}
    for candidate in REDUCTIONS:
        own = [
            p for p in passes if p.name in (candidate.name, vectorize.name) or p not in candidates
        ]
        changed, instructions = _after(own, alone)
        if candidate.name in changed:
            costs[candidate.name] = instructions
        if candidate is vectorize:
            costs.setdefault(IN_ORDER, instructions)
    changed, _ = _after(passes, alone)
    taken = next((p.name for p in REDUCTIONS if p.name in changed), IN_ORDER)
    if vectorize.name in costs:
        del costs[IN_ORDER]
    needs = {p.name: why for p, why in REDUCTIONS.items()} | {IN_ORDER: ""}
    least = min(costs.values())
    for name in sorted(needs, key=lambda name: (name != taken, costs.get(name, inf))):
        if name in costs:
            if name != taken:
                why = f"{taken} comes first"
            elif costs[name] == least:
                why = "costs least"
            else:
                why = "comes first"
            yield f"  {'taken' if name == taken else 'not':6}{name:20}{costs[name]:15,.0f}  {why}"
        elif needs[name]:
            yield f"  {'not':6}{name:20}{'':15}  {needs[name]}"


def _after(passes: list[Pass[..., Any]], plan: Plan) -> tuple[set[str], float]:
    """The passes that change a plan, and the instructions of what it becomes."""
    changed: set[str] = set()

    def watch(done: Pass[..., object], before: object, after: object) -> None:
        if after is not before:
            changed.add(done.name)

    return changed, sum(
        _instructions(k.body) for k in run_passes(passes, plan, Context(), watch=watch).kernels
    )


def _instructions(block: Block) -> float:
    """The instructions of a block, one for the lanes of a vector."""
    count: float = 0
    for s in block:
        match s:
            case For(index, body, start, _):
                length = rewrite(
                    s.end - start, _guessed
                )  # in the first iteration of the loops around
                extent = index.extent if isinstance(index.extent, int) else UNKNOWN_TRIPS
                trips = length.value if isinstance(length, Const) else extent
                count += -(-trips // (s.width if s.kind == "vector" else 1)) * _instructions(body)
            case If(_, then, otherwise):
                count += 1 + max(_instructions(then), _instructions(otherwise))
            case _:
                found = {e for top in expressions(s) for e in walk(top)}
                reads = sum(isinstance(e, Read) and e.tensor.space != "register" for e in found)
                count += reads + sum(map(operations, expressions(s))) + isinstance(s, Store)
    return count


def _guessed(e: Expr) -> Expr | None:
    if isinstance(e, Index):
        return ZERO
    if isinstance(e, Extent):
        return as_index(UNKNOWN_TRIPS)
    return None
