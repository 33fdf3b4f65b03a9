"""The moves of a search for schedules: random steps that a kernel may take, and an estimate of the
cycles of its nests, by which candidates are ranked before some are measured.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.affine import key
from ...dialect.kernel_ir.expressions import Expr, Read, Tensor
from ...dialect.kernel_ir.traverse import walk
from ...dialect.types.sizes import evaluate, strides
from ..analysis.accesses import allocated, every_access
from ..analysis.cost import operations
from ..analysis.evaluate_expressions import Evaluation
from ..processor import processor
from .find_loops import loops_by_name
from .steps import Step, read_step

SIZES = (2, 4, 8, 16, 32, 64)  # of tiles: powers of two, as vectors and cache lines are
COPIES = (2, 4, 8)  # of an unrolled body
# cost model, in cycles, by hand (Zen 4, Zen 5): an update waits for the one before; an access
# moves to another cache line, or page, in each iteration; a loop whose end only data tells
LATENCY, LINE, PAGE, UNKNOWN_TURNS = 4, 2, 6, 64


def random_step(rng: random.Random, kernel: ir.Kernel) -> Step:
    """A step over loops that are there; only applying it tells whether it is legal."""
    loops = loops_by_name(kernel)
    names = [*loops]
    name = rng.choice(names)
    loop, place = loops[name], names.index(name)
    chain = [n for n in names[place:] if loops[n] in ir.perfect_nest(loop)]
    arrays = sorted({t.name for t, _ in every_access(kernel.body)})
    buffers = sorted({t.name for t in allocated(kernel.body)})
    widths = processor().vector_bytes, processor().tile_vector_bytes
    lanes = max(2, rng.choice(widths) // rng.choice(kernel.outputs).element.bytes)
    order = rng.sample(chain, len(chain))
    by = rng.choice(SIZES)
    tail = rng.choice(("guard", "peel"))
    nests = (
        f"tile{{loops={','.join(chain[:2])} by={by},{by}}}",
        f"reorder{{loops={','.join(order)}}}",
        f"reorder{{loops={','.join(reversed(chain))}}}",
    )
    return read_step(
        rng.choice(
            (
                f"split{{loop={name} by={by} tail={tail}}}",
                f"split{{loop={name} by={lanes * rng.choice((1, 2, 4))} tail={tail}}}",
                *(nests if len(chain) > 1 else ()),
                f"distribute{{loop={name}}}",
                f"expand{{array={rng.choice(buffers or arrays)} loop={name}}}",
                f"fuse{{loops={','.join(rng.sample(names, min(2, len(names))))}}}",
                f"peel{{loop={name}}}",
                f"unroll{{loop={name}}}",
                f"unroll{{loop={name} by={rng.choice(COPIES)}}}",
                f"unroll_and_jam{{loop={name} by={rng.choice(COPIES)}}}",
                f"parallelize{{loop={names[0]}}}",
                f"stage{{array={rng.choice(arrays)} at={name}}}",
                *[f"vectorize{{loop={name} by={lanes}}}"] * 3,
                *[f"vectorize{{loop={names[-1]} by={lanes}}}"] * 3,
            )
        )
    )


def estimated_cycles(kernel: ir.Kernel, sizes: Mapping[Any, int], threads: int) -> float:
    """Roughly the cycles of a kernel for these sizes: an iteration in the middle of each loop
    counts for all.
    """
    return _Cycles(sizes, threads).block(kernel.body, {}, ())


class _Cycles:
    def __init__(self, sizes: Mapping[Any, int], threads: int) -> None:
        self.sizes, self.threads = sizes, threads
        self.evaluation = Evaluation(sizes=sizes)

    def block(
        self, block: ir.Block, at: Mapping[Expr, Any], around: Sequence[tuple[ir.For, int]]
    ) -> float:
        return sum(self.statement(s, at, around) for s in block)

    def statement(
        self, s: ir.Statement, at: Mapping[Expr, Any], around: Sequence[tuple[ir.For, int]]
    ) -> float:
        match s:
            case ir.For():
                first, end = self.number(s.start, at), self.number(s.end, at)
                turns = max(end - first, 0)
                inside = {**at, s.index: first + turns // 2}
                body = self.block(s.body, inside, (*around, (s, turns)))
                shared = min(self.threads, max(turns, 1)) if s.kind == "parallel" else 1
                return -(-turns // s.width) * (body + (s.kind != "unrolled")) / shared
            case ir.If(_, then, otherwise):
                return 1 + max(self.block(b, at, around) for b in (then, otherwise))
            case ir.While(_, body):
                return UNKNOWN_TURNS * self.block(body, at, around)
            case ir.Let(_, value):
                return operations(value)
            case ir.Store(tensor, where, value):
                return self.store(tensor, where, value, at, around)
            case _:
                return 0

    def store(
        self,
        tensor: Tensor,
        where: tuple[Expr, ...],
        value: Expr,
        at: Mapping[Expr, Any],
        around: Sequence[tuple[ir.For, int]],
    ) -> float:
        lanes = next((s for s, _ in around if s.kind == "vector"), None)
        width = 1 if lanes is None else lanes.width
        turning = next((s for s, _ in reversed(around) if s.kind in ("serial", "parallel")), None)
        reads = {
            (r.tensor, tuple(map(key, r.indices))): r for r in walk(value) if isinstance(r, Read)
        }
        vectors = max(1, width * tensor.element.bytes / processor().vector_bytes)
        moved = [(tensor, where, True), *((r.tensor, r.indices, False) for r in reads.values())]
        memory = 0.0
        for t, i, stored in moved:
            if t.space == "register":
                continue
            far = self.distance(t, i, turning, at)
            if far == 0 and not stored and t is not tensor:
                continue  # loaded before the loop
            step = self.distance(t, i, lanes, at)
            memory += vectors if step in (0, t.element.bytes) or lanes is None else width
            memory += PAGE if far >= processor().page_bytes else LINE if far >= 64 else 0
        again = (tensor, tuple(map(key, where))) in reads
        copies = 1
        for s, turns in around:
            copies *= max(turns, 1) if s.kind == "unrolled" else 1
        waits = again and self.distance(tensor, where, turning, at) == 0
        return max(operations(value) * vectors, memory, LATENCY / copies if waits else 0)

    def distance(
        self, tensor: Tensor, where: tuple[Expr, ...], loop: ir.For | None, at: Mapping[Expr, Any]
    ) -> int:
        """The bytes by which an access moves from one iteration of a loop to the next."""
        if loop is None:
            return 0
        steps = [evaluate(n, self.sizes) for n in strides(tensor.shape)]
        places = (at, {**at, loop.index: at[loop.index] + 1})
        here, there = (
            sum(self.number(e, p) * n for e, n in zip(where, steps, strict=True)) for p in places
        )
        return abs(there - here) * tensor.element.bytes

    def number(self, e: Expr, at: Mapping[Expr, Any]) -> int:
        try:
            return int(self.evaluation.values(e, at))
        except KeyError:  # it reads an array, or a variable
            return UNKNOWN_TURNS
