"""`cvm doctor --measure`: costs of this machine, timed and kept.

Each strategy that applies to some contractions is compiled and timed. Factors of their costs are
then chosen by which the cheapest strategy is the fastest as often as they can make it. Results of
all strategies of a contraction are compared, and one that differs takes no part.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf, log
from typing import Any

import numpy as np

import cvm
from cvm.commands.cost import seconds_of_sums
from cvm.commands.run import progress
from cvm.dialect.ir.module import Module
from cvm.jit.cache import disk_cache
from cvm.jit.cache.measured_costs import Costs, keep
from cvm.jit.compile import compile_function, find
from cvm.jit.host_processor import host_processor
from cvm.jit.options import CompileOptions
from cvm.lowering import pipeline
from cvm.lowering.explain_strategies import contractions_of
from cvm.lowering.processor import Processor, compiling_for
from cvm.terminal.display import columns, duration, timed
from cvm.terminal.usage import Usage

PADDED = "cvm.conv2d %x, %w {padding = [1, 1]}"
HALVING = "cvm.conv2d %x, %w {padding = [1, 1], stride = [2, 2]}"
# contractions of common networks: the sizes of an operand and of weights, and the operation
CONTRACTIONS = {
    "dense, 1 row": ((1, 1024), (1024, 1024), "cvm.dense %x, %w"),
    "dense, 16 rows": ((16, 768), (768, 768), "cvm.dense %x, %w"),
    "dense, 64 rows": ((64, 512), (512, 512), "cvm.dense %x, %w"),
    "dense, 256 rows": ((256, 256), (256, 256), "cvm.dense %x, %w"),
    "1 x 1, many pixels": ((1, 64, 56, 56), (64, 64, 1, 1), "cvm.conv2d %x, %w"),
    "1 x 1": ((1, 256, 14, 14), (256, 256, 1, 1), "cvm.conv2d %x, %w"),
    "1 x 1, few pixels": ((1, 512, 7, 7), (512, 512, 1, 1), "cvm.conv2d %x, %w"),
    "3 x 3, many pixels": ((1, 32, 56, 56), (32, 32, 3, 3), PADDED),
    "3 x 3": ((1, 128, 14, 14), (128, 128, 3, 3), PADDED),
    "3 x 3, few pixels": ((1, 256, 7, 7), (256, 256, 3, 3), PADDED),
    "3 x 3, stride 2": ((1, 64, 28, 28), (128, 64, 3, 3), HALVING),
    "3 x 3, an image": ((1, 3, 64, 64), (32, 3, 3, 3), HALVING),
}
KINDS = {"f32": "", "i32": " {range = [-127, 127]}"}  # integers of eight bits
ROUNDS = 25  # of which the fastest counts
SECONDS = 0.004  # of a round, at least
FACTORS = [2 ** (n / 4) for n in range(-8, 9)]  # of a strategy's cost
PREFERENCE = 0.02  # log of the ratio of times for which a factor moves by a factor of e
WAKES = [1 << n for n in range(12, 21)]  # operations
LENGTHS = [1 << n for n in range(11, 19)]  # of f32 arrays that threads share
SLOWER = 1.05  # ratio of times that no contraction may have
SERIAL = 1 << 60  # operations: no thread is woken
PAYS = 0.95  # ratio of times from which sharing pays


@dataclass(frozen=True)
class Timed:
    """A contraction: the cost and the seconds of each strategy."""

    name: str
    costs: dict[str, float]
    seconds: dict[str, float]

    def choice(self, factors: dict[str, float]) -> str:
        return min(self.costs, key=lambda name: self.costs[name] * factors.get(name, 1))

    def loss(self, factors: dict[str, float]) -> float:
        """The log of the ratio of the choice's time to that by tables; one that is clearly slower
        is no choice.
        """
        ratio = self.seconds[self.choice(factors)] / self.seconds[self.choice({})]
        return log(ratio) if ratio < SLOWER else inf


def measure() -> Iterator[str]:
    """Measure this machine and keep the costs; the lines of a report."""
    if disk_cache.folder() is None:
        raise Usage("--measure keeps what it finds in the disk cache, which is off (CVM_CACHE_DIR)")
    names = [*product(KINDS, CONTRACTIONS)]
    with progress(len(names) + 2, " measurements") as advance:
        here = replace(host_processor(), fma_bytes=_fma_bytes(host_processor()))
        advance(1)
        here = replace(here, wake_operations=_wake_operations(here))
        advance(1)
        found: list[Timed] = []
        for kind, name in names:
            found += _timed_strategies(f"{name} of {kind}", _module(kind, name), here)
            advance(1)
    factors = fitted(found)
    costs = Costs(here.fma_bytes, here.wake_operations, factors)
    keep(costs)
    rows = [("contraction", "by tables", "", "measured", "", "ratio")]
    for t in found:
        old, new = t.choice({}), t.choice(factors)
        seconds = t.seconds[old], t.seconds[new]
        ratio = f"{seconds[0] / seconds[1]:.2f}"
        rows.append((t.name, old, duration(seconds[0]), new, duration(seconds[1]), ratio))
    yield from columns(rows, "<<><>>")
    yield from described(costs)


def described(costs: Costs) -> Iterator[str]:
    """The lines of `cvm doctor` on measured costs."""
    yield f"multiply-add units take {costs.fma_bytes} bytes a cycle"
    yield f"waking a thread takes as long as {costs.wake_operations:,} operations"
    for name, factor in costs.strategies.items():
        yield f"{name} costs {factor:.2f} of its estimate"


def fitted(found: Sequence[Timed]) -> dict[str, float]:
    """Factors of costs by which the cheapest strategies take the least time together; one that
    gains nothing is left out. No contraction is slower than by tables.
    """
    names = sorted({name for t in found for name in t.costs})
    factors = dict.fromkeys(names, 1.0)

    def loss(name: str, factor: float) -> float:
        changed = factors | {name: factor}
        moved = sum(abs(log(f)) for f in changed.values())
        return sum(t.loss(changed) for t in found) + PREFERENCE * moved

    before = dict[str, float]()
    while before != factors:
        before = dict(factors)
        for name in names:
            best = min(FACTORS, key=lambda f: (loss(name, f), abs(log(f))))
            if loss(name, best) < loss(name, factors[name]):
                factors[name] = best
    return {name: factor for name, factor in factors.items() if factor != 1}


def _module(kind: str, name: str) -> Module:
    shape, kernel, operation = CONTRACTIONS[name]
    weights = np.random.default_rng(0).integers(-63, 64, kernel).tolist()
    types = ["x".join(map(str, (*sizes, kind))) for sizes in (shape, kernel)]
    return cvm.parse(
        f"func @main(%x: tensor<{types[0]}>{KINDS[kind]}) {{\n"
        f"  %w = const dense<{weights}> : tensor<{types[1]}>\n"
        f"  %y = {operation}\n  return %y\n}}\n"
    )


def _compiled(module: Module, described: Processor) -> Any:
    return compile_function(module, "main", "cpu", CompileOptions(cpu=described))


def _timed_strategies(name: str, module: Module, here: Processor) -> Iterator[Timed]:
    """The times of a contraction, where there is a choice."""
    function: Any = find(module, "main")
    with compiling_for(here):
        plan = pipeline.nests(module, function)
        costs = {
            choice.strategy.name: choice.cost
            for kernel in plan.kernels
            for _, choices in contractions_of(plan, kernel)[0]
            for choice in choices
            if not choice.why_not
        }
    if len(costs) < 2:
        return
    calls: dict[str, Any] = {}
    for strategy in costs:
        tuning = replace(here.tuning, strategy_costs=((strategy, 0),))
        calls[strategy] = _compiled(module, replace(here, tuning=tuning))
    (type_,) = function.argument_types
    x = np.random.default_rng(1).integers(-63, 64, type_.shape).astype(type_.element.dtype)
    wanted = calls[min(costs, key=costs.__getitem__)](x).tobytes()
    for strategy in [s for s, call in calls.items() if call(x).tobytes() != wanted]:
        print(f"{name}: {strategy} has other results and is left out", file=sys.stderr)
        del calls[strategy], costs[strategy]
    yield Timed(name, costs, dict(zip(calls, _seconds([*calls.values()], x), strict=True)))


def _seconds(calls: Sequence[Any], x: np.ndarray) -> list[float]:
    """The least seconds of calls that take turns."""
    out = calls[0](x)
    times = [max(1, round(SECONDS / min(timed(c, x, out=out)[1] for _ in range(3)))) for c in calls]
    rounds = [
        [timed(_repeated, call, n, x, out)[1] / n for call, n in zip(calls, times, strict=True)]
        for _ in range(ROUNDS)
    ]
    return [min(of_call) for of_call in zip(*rounds, strict=True)]


def _repeated(call: Any, times: int, x: np.ndarray, out: np.ndarray) -> None:
    for _ in range(times):
        call(x, out=out)


def _fma_bytes(here: Processor) -> int:
    """The bytes that a unit takes in a cycle: all of a vector, or half."""
    widest = here.tile_vector_bytes
    if widest <= 32:
        return here.fma_bytes
    whole, half = (seconds_of_sums(n // 4) for n in (widest, widest // 2))
    return widest if whole < half * 1.4 else widest // 2


def _wake_operations(here: Processor) -> int:
    """The operations from which threads gain: the most for which the shortest array that gains is
    shared.
    """
    if cvm.get_num_threads() == 1:
        return here.wake_operations
    shortest = 0
    for n in reversed(LENGTHS):
        module = _elementwise(n)
        both = [_compiled(module, replace(here, wake_operations=w)) for w in (1, SERIAL)]
        shared, alone = _seconds(both, np.ones(n, np.float32))
        if shared > PAYS * alone:
            break
        shortest = n
    if not shortest:
        return WAKES[-1]
    module = _elementwise(shortest)
    return max(
        (w for w in WAKES if _shares(module, replace(here, wake_operations=w))), default=WAKES[0]
    )


def _elementwise(n: int) -> Module:
    return cvm.parse(
        f'func @main(%x: tensor<{n}xf32>) {{\n  %e = theano.elemwise %x {{scalar_op = "exp"}}\n'
        '  %y = theano.elemwise %e, %x {scalar_op = "mul"}\n  return %y\n}\n'
    )


def _shares(module: Module, described: Processor) -> bool:
    return " parallel" in _compiled(module, described).lower("schedule")
