"""ONNX's operators with graphs inside, and recurrent layers, which become loops of the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import cvm
from cvm.dialect.ir.builder import Node
from cvm.importers.graph.contractions import matmul
from cvm.importers.graph.elementwise import clipped, number
from cvm.importers.graph.loops import branch, iterated, while_loop
from cvm.importers.graph.movement import FAR, at_step, cut, part, stacked
from cvm.importers.graph.rules import Because, Known, Unsupported, known_size, numbers

from .elementwise import ACTIVATIONS
from .importer import At
from .rules import rule

MAX_STEPS = 1024  # of a loop, each of which is imported


@rule("If")
def if_(at: At, condition: Known) -> Any:
    """An If: a constant condition selects one graph; otherwise the results of both have the same
    types.
    """
    if isinstance(condition, np.ndarray) and condition.dtype != object:
        at.seen |= {"then_branch", "else_branch"}
        return at.graph("then_branch" if condition.reshape(()) else "else_branch")
    flag = at.node(condition).dimshuffle([])
    found: list[list[Node]] = []

    def graph(name: str) -> list[Node]:
        found.append([at.node(v) for v in at.graph(name)])
        for a, b in zip(found[0], found[-1], strict=True):
            if a.array_type.key != b.array_type.key:
                which = f"{a.array_type} and {b.array_type}"
                raise Unsupported(f"a condition that is not a constant, between {which},")
        return found[-1]

    return branch(
        at.importer, "if", flag, [partial(graph, n) for n in ("then_branch", "else_branch")]
    )


@rule("Loop")
def loop(at: At, trips: Known | None, condition: Known | None = None, *carried: Known) -> Any:
    """Steps whose number is known; steps whose number depends on data may have no outputs that grow
    with it.
    """
    at.seen.add("body")
    growing = len(at["body"].output) - 1 - len(carried)
    is_constant = [
        v is None or (isinstance(v, np.ndarray) and v.dtype != object) for v in (trips, condition)
    ]
    most = int(trips.reshape(())) if isinstance(trips, np.ndarray) and is_constant[0] else None
    going = np.array(True) if condition is None else condition
    attempts: list[Callable[[], Any]] = [lambda: uncounted(at, trips, condition, carried, growing)]
    if all(is_constant):  # a body may need to know the number of the step
        attempts.insert(0, lambda: unrolled(at, most, going, carried, growing))
    if (
        isinstance(going, np.ndarray)
        and going.reshape(())
        and most is not None
        and most > at.importer.unrolled_steps
    ):
        attempts.insert(0, lambda: counted(at, most, carried))
    refusals = len(at.importer.refusals)
    for attempt in attempts[:-1]:
        try:
            return attempt()
        except (Unsupported, cvm.Error):
            del at.importer.refusals[refusals:]
    return attempts[-1]()


def counted(at: At, trips: int, carried: Sequence[Known]) -> list[Node]:
    """A loop of the program over a known number of steps."""

    def step(values: list[Node]) -> list[Known]:
        *states, number = values
        going, *outputs = at.graph("body", number, np.array(True), *states)
        if not (isinstance(going, np.ndarray) and going.reshape(())):
            raise Unsupported("a condition that is not a constant", going)
        return outputs

    return iterated(at, carried, [at.node(numbers(trips))], step, trips)


def uncounted(
    at: At, trips: Any, condition: Any, carried: Sequence[Known], growing: int
) -> list[Node]:
    """A loop of the program while a condition holds."""
    if growing:
        of = trips if isinstance(trips, Node) else condition
        raise Because(
            "how much it gives depends on the data, and so does the shape of its output", of
        )
    limit = None if trips is None else at.node(trips)
    start = at.node(np.array(0, np.int64))

    def holds(going: Known, number: Node) -> Node:
        flag = at.node(going).dimshuffle([])
        return (
            flag
            if limit is None
            else flag.scalar("and_", number.scalar("lt", limit.dimshuffle([])))
        )

    def step(values: list[Node]) -> list[Known]:
        number, *states = values
        going, *outputs = at.graph("body", number, np.array(True), *states)
        following = number.scalar("add", at.node(np.array(1, np.int64)))
        return [holds(going, following), following, *outputs]

    first = holds(np.array(True) if condition is None else condition, start)
    return while_loop(at.importer, "loop", first, [start, *map(at.node, carried)], step)[1:]


def unrolled(
    at: At, most: int | None, going: Any, carried: Sequence[Known], growing: int
) -> list[Known]:
    """The steps one after the other, each of which is imported."""
    values, scanned, step = list(carried), [], 0
    while most is None or step < most:
        if not isinstance(going, np.ndarray):
            raise Unsupported("a condition that is not a constant", going)
        if not going.reshape(()):
            break
        if step >= MAX_STEPS:
            raise Unsupported(f"a loop of more than {MAX_STEPS} steps")
        going, *outputs = at.graph("body", np.array(step, np.int64), going, *values)
        values, parts = outputs[: len(values)], outputs[len(values) :]
        scanned.append(parts)
        step += 1
    if growing and not scanned:
        raise Unsupported("a loop without a step, whose outputs have no shape,")
    return [*values, *(stacked(at, [parts[k] for parts in scanned]) for k in range(growing))]


@rule("Scan", since=9)
def scan_(at: At, *inputs: Known) -> Any:
    """Over slices."""
    operands = [at.node(x) for x in inputs]
    count = at["num_scan_inputs"]
    body, states, slices = (
        at["body"],
        operands[: len(operands) - count],
        operands[len(operands) - count :],
    )
    outputs = len(body.output) - len(states)
    into = [a % x.rank for a, x in zip(at["scan_input_axes"] or [0] * count, slices, strict=True)]
    backward = at["scan_input_directions"] or [0] * count
    axes, reverse = (
        at["scan_output_axes"] or [0] * outputs,
        at["scan_output_directions"] or [0] * outputs,
    )
    if isinstance(steps := slices[0].shape[into[0]], int) and steps == 0:
        raise Unsupported("a scan of 0 steps")
    slices = [
        x.dimshuffle([a, *(j for j in range(x.rank) if j != a)])
        for x, a in zip(slices, into, strict=True)
    ]
    slices = [flipped(at, x) if b else x for x, b in zip(slices, backward, strict=True)]
    yielded = iterated(at, states, slices, lambda values: at.graph("body", *values), steps)
    results = yielded[: len(states)]
    for y, axis, backwards in zip(yielded[len(states) :], axes, reverse, strict=True):
        y = flipped(at, y) if backwards else y
        order = [*range(1, y.rank)]
        order.insert(axis % y.rank, 0)
        results.append(y.dimshuffle(order))
    return results


def flipped(at: At, x: Node) -> Node:
    """The value with its slices along the first axis in reverse order."""
    trailing = x.rank - 1
    return cut(at, x, [FAR, *[0] * trailing], [-FAR, *[FAR] * trailing], [-1, *[1] * trailing])


# Recurrent layers

# gates, activations
LAYERS = {
    "RNN": (1, ["Tanh"]),
    "GRU": (3, ["Sigmoid", "Tanh"]),
    "LSTM": (4, ["Sigmoid", "Tanh", "Tanh"]),
}
Squash = Callable[[Node], Node]
SQUASHING: dict[str, Callable[[Node, Any], Node]] = {
    **{
        n.lower(): ACTIVATIONS[n]
        for n in ("Elu", "HardSigmoid", "LeakyRelu", "Softsign", "ThresholdedRelu")
    },
    "affine": lambda x, at: x * at["alpha"] + at["beta"],
    "relu": lambda x, at: x.scalar("maximum", 0.0),
    "scaledtanh": lambda x, at: (x * at["beta"]).scalar("tanh") * at["alpha"],
    **{n: lambda x, at, n=n: x.scalar(n) for n in ("sigmoid", "softplus", "tanh")},
}
ALPHA, BETA = (
    {"hardsigmoid": 0.2, "leakyrelu": 0.01},
    {"hardsigmoid": 0.5, "scaledtanh": 1.0},
)  # others are 1 and 0


def squashing(at: At, name: str, number: int) -> Squash:
    """A function that a recurrent layer applies, the so many-th, of a number that is clipped."""
    key, limit = name.lower(), at["clip"]
    if key not in SQUASHING:
        raise Unsupported(f"the activation {name}")
    alpha, beta = ((at[f"activation_{k}"] or [])[number : number + 1] for k in ("alpha", "beta"))
    parameters = {"alpha": [*alpha, ALPHA.get(key, 1.0)][0], "beta": [*beta, BETA.get(key, 0.0)][0]}
    return lambda x: SQUASHING[key](clipped(x, -limit, limit) if limit else x, parameters)


@rule("RNN", "GRU", "LSTM")
def recurrent(
    at: At,
    x: Node,
    w: Node,
    r: Node,
    b: Node | None = None,
    lengths: Node | None = None,
    start: Node | None = None,
    cell: Node | None = None,
    peepholes: Node | None = None,
) -> Any:
    if batch_first := bool(at["layout"]):
        x = x.dimshuffle((1, 0, 2))
    if (hidden := at["hidden_size"] or known_size(r.shape[2], "a hidden state")) != r.shape[2]:
        raise ValueError(f"hidden_size is {hidden}, the weights are of {r.shape[2]}")
    if at["input_forget"]:
        raise Unsupported("input_forget")
    if isinstance(x.shape[0], int) and x.shape[0] == 0:
        raise Unsupported("a sequence of 0 steps")
    directions = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[
        at["direction"]
    ]
    names = at["activations"] or LAYERS[at.op][1] * len(directions)
    per_direction = len(names) // len(directions)
    sides: list[list[Node]] = []
    for d, backward in enumerate(directions):
        functions = [
            squashing(at, names[k], k) for k in range(d * per_direction, (d + 1) * per_direction)
        ]
        weights = [None if v is None else at_step(at, v, 0, d) for v in (w, r, b, peepholes)]
        states = [None if v is None else at_step(at, v, int(batch_first), d) for v in (start, cell)]
        sides.append(run_direction(at, x, weights, states, lengths, hidden, functions, backward))
    outputs = [stacked(at, parts, int(n == 0)) for n, parts in enumerate(zip(*sides, strict=True))]
    if batch_first:
        outputs = [
            outputs[0].dimshuffle((2, 0, 1, 3)),
            *(v.dimshuffle((1, 0, 2)) for v in outputs[1:]),
        ]
    return outputs


def run_direction(
    at: At,
    x: Node,
    weights: Sequence[Node | None],
    initial: Sequence[Node | None],
    lengths: Node | None,
    hidden: int,
    functions: Sequence[Squash],
    backward: bool,
) -> list[Node]:
    """The outputs of all steps in one direction, and the last states."""
    w, r, b, p = weights
    assert w is not None and r is not None
    width = LAYERS[at.op][0] * hidden
    zeros = at.apply(
        "builtin.strided_slice_like",
        np.zeros((1, 1), x.element.dtype),
        at_step(at, x, 0, 0),
        axes=(0,),
    )
    zeros = zeros.scalar("mul", at.node(np.zeros(hidden, x.element.dtype)))
    states = [zeros if v is None else v for v in initial[: 1 + (at.op == "LSTM")]]
    wb, rb = (None if b is None else part(at, b, 0, k * width, (k + 1) * width) for k in range(2))
    slices = [plus(matmul(at, x, w.dimshuffle((1, 0))), wb)]  # of all steps at once
    if lengths is not None:  # beyond a sequence's end its state stays, and its outputs are 0
        slices.append(
            cut(
                at, at.apply("builtin.iota_like", x, axis=0), [0] * 3, [FAR, 1, 1], [1] * 3
            ).dimshuffle([0])
        )
    count = None if lengths is None else lengths.with_ones((1,))
    recurrence = r.dimshuffle((1, 0))

    def step(values: list[Node]) -> list[Node]:
        before, (into, *counter) = values[: len(states)], values[len(states) :]
        after = STEPS[at.op](at, into, before, recurrence, rb, p, hidden, functions)
        if count is None:
            return [*after, after[0]]
        is_running = count.scalar("gt", counter[0])
        states_after = [
            is_running.scalar("switch", new, old) for new, old in zip(after, before, strict=True)
        ]
        return [*states_after, is_running.scalar("switch", after[0], number(after[0], 0))]

    *last, y = iterated(at, states, slices, step, x.shape[0], backward)
    return [y, *last]


def plus(x: Node, more: Node | None) -> Node:
    return x if more is None else x + more


def gates(at: At, x: Node, first: int, last: int, hidden: int) -> Node:
    """The gates from one to before another of a row of them."""
    return part(at, x, x.rank - 1, first * hidden, last * hidden)


def gru_step(
    at: At, into: Node, before: Any, r: Node, rb: Any, p: Any, hidden: int, f: Sequence[Squash]
) -> list[Node]:
    (h,) = before
    r_zr, r_new = (gates(at, r, *span, hidden) for span in ((0, 2), (2, 3)))
    b_zr, b_new = (
        None if rb is None else gates(at, rb, *span, hidden) for span in ((0, 2), (2, 3))
    )
    z_r = plus(gates(at, into, 0, 2, hidden) + matmul(at, h, r_zr), b_zr)
    z, reset = (f[0](gates(at, z_r, k, k + 1, hidden)) for k in range(2))
    if at["linear_before_reset"]:
        inner = reset * plus(matmul(at, h, r_new), b_new)
    else:
        inner = plus(matmul(at, reset * h, r_new), b_new)
    return [(1.0 - z) * f[1](gates(at, into, 2, 3, hidden) + inner) + z * h]


def lstm_step(
    at: At, x: Node, before: Any, r: Node, rb: Any, p: Any, hidden: int, f: Sequence[Squash]
) -> list[Node]:
    h, c = before
    total = plus(x + matmul(at, h, r), rb)
    i, o, forget, new = (gates(at, total, k, k + 1, hidden) for k in range(4))
    if p is not None:
        i, forget = i + gates(at, p, 0, 1, hidden) * c, forget + gates(at, p, 2, 3, hidden) * c
    cell = f[0](forget) * c + f[0](i) * f[1](new)
    o = o if p is None else o + gates(at, p, 1, 2, hidden) * cell
    return [f[0](o) * f[2](cell), cell]


STEPS: dict[str, Any] = {
    "RNN": lambda at, into, before, r, rb, p, hidden, f: [
        f[0](plus(into + matmul(at, before[0], r), rb))
    ],
    "GRU": gru_step,
    "LSTM": lstm_step,
}
