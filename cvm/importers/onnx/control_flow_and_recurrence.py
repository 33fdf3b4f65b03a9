"""ONNX's operators with graphs inside, and recurrent layers: their steps one after the other, where their number is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cvm.dialect.program.builder import Node

from .elementwise import number
from .matmul_conv_pool import product
from .movement import FAR, cut
from .rules import Known, Unsupported, known_size, rule

if TYPE_CHECKING:
    from .importer import At

MAX_STEPS = 1024  # of a loop, each of which is imported


@rule("If")
def branch(at: At, condition: Known) -> Any:
    """An If: a constant condition selects one branch; otherwise both are computed, and their results have the same
    shapes.
    """
    if isinstance(condition, np.ndarray) and condition.dtype != object:
        at.seen |= {"then_branch", "else_branch"}
        return at.graph("then_branch" if condition.reshape(()) else "else_branch")
    then, otherwise = at.graph("then_branch"), at.graph("else_branch")
    flag = at.node(condition)
    flag = flag if flag.rank == 0 else flag.dimshuffle([])
    found: list[Known] = []
    for a, b in zip(map(at.node, then), map(at.node, otherwise), strict=True):
        if a.array_type.key != b.array_type.key:
            raise Unsupported(f"a condition that is not a constant, between {a.array_type} and {b.array_type},")
        found.append(flag.scalar("switch", a, b))
    return found


def stacked(at: At, parts: Sequence[Known], axis: int = 0) -> Node:
    """Values of one shape as slices along a new axis."""
    rows = [at.node(p) for p in parts]
    rows = [r.with_ones((axis,)) for r in rows]
    return at.apply("cvm.concatenate", *rows, axis=axis) if len(rows) > 1 else rows[0]


@rule("Loop")
def loop(at: At, trips: Known | None, condition: Known | None = None, *carried: Known) -> Any:
    """Steps whose number is known: the condition is a constant at each of them."""
    if trips is not None and (not isinstance(trips, np.ndarray) or trips.dtype == object):
        raise Unsupported("a number of steps that is not a constant", trips)
    most = int(trips.reshape(())) if trips is not None else MAX_STEPS + 1
    going: Any = np.array(True) if condition is None else condition
    values, scanned, step = list(carried), [], 0
    while step < most:
        if not isinstance(going, np.ndarray):
            raise Unsupported("a condition that is not a constant", going)
        if not going.reshape(()):
            break
        if step >= MAX_STEPS:
            raise Unsupported(f"a loop of more than {MAX_STEPS} steps")
        going, *found = at.graph("body", np.array(step, np.int64), going, *values)
        values, parts = found[: len(values)], found[len(values) :]
        scanned.append(parts)
        step += 1
    at.seen.add("body")
    count = len(at["body"].output) - 1 - len(values)
    if count and not scanned:
        raise Unsupported("a loop without a step, whose outputs have no shape,")
    return [*values, *(stacked(at, [parts[k] for parts in scanned]) for k in range(count))]


@rule("Scan", since=9)
def scan(at: At, *inputs: Known) -> Any:
    """Over a known number of slices."""
    given = [at.node(x) for x in inputs]
    count = at["num_scan_inputs"]
    body, states = at["body"], list(inputs[: len(inputs) - count])
    slices = given[len(states) :]
    outputs = len(body.output) - len(states)
    into = [a % x.rank for a, x in zip(at["scan_input_axes"] or [0] * count, slices, strict=True)]
    backward = at["scan_input_directions"] or [0] * count
    steps = known_size(slices[0].shape[into[0]], "a scan over an axis")
    if not 0 < steps <= MAX_STEPS:
        raise Unsupported(f"a scan of {steps} steps")
    scanned: list[list[Known]] = []
    for t in range(steps):
        now = [at_step(at, x, a, steps - 1 - t if b else t) for x, a, b in zip(slices, into, backward, strict=True)]
        found = at.graph("body", *states, *now)
        states, parts = found[: len(states)], found[len(states) :]
        scanned.append(parts)
    axes, reverse = at["scan_output_axes"] or [0] * outputs, at["scan_output_directions"] or [0] * outputs
    results: list[Known] = []
    for k in range(outputs):
        parts = [p[k] for p in scanned]
        rank = at.node(parts[0]).rank
        results.append(stacked(at, parts[::-1] if reverse[k] else parts, axes[k] % (rank + 1)))
    return [*states, *results]


def at_step(at: At, x: Node, axis: int, t: int) -> Node:
    """The slice of a value at a place along an axis, without that axis."""
    begin, end = [0] * x.rank, [FAR] * x.rank
    begin[axis], end[axis] = t, t + 1
    return cut(at, x, begin, end, [1] * x.rank).dimshuffle([j for j in range(x.rank) if j != axis])


# Recurrent layers

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
SIGMOID, TANH = "Sigmoid", "Tanh"
DEFAULTS = {"RNN": [TANH], "GRU": [SIGMOID, TANH], "LSTM": [SIGMOID, TANH, TANH]}
Squash = Callable[[Node], Node]


def squashing(name: str, alpha: float | None, beta: float | None) -> Squash:
    """A function that recurrent layers apply, by name."""

    def either(value: float | None, default: float) -> float:
        return default if value is None else value

    plain = {"sigmoid": "sigmoid", "tanh": "tanh", "softplus": "softplus"}
    key = name.lower()
    if key in plain:
        return lambda x: x.scalar(plain[key])
    if key == "relu":
        return lambda x: x.scalar("maximum", 0.0)
    if key == "affine":
        return lambda x: x * either(alpha, 1.0) + either(beta, 0.0)
    if key == "leakyrelu":
        return lambda x: x.scalar("lt", 0.0).scalar("switch", x * either(alpha, 0.01), x)
    if key == "thresholdedrelu":
        return lambda x: x.scalar("gt", either(alpha, 1.0)).scalar("switch", x, number(x, 0))
    if key == "scaledtanh":
        return lambda x: (x * either(beta, 1.0)).scalar("tanh") * either(alpha, 1.0)
    if key == "hardsigmoid":
        return lambda x: (x * either(alpha, 0.2) + either(beta, 0.5)).scalar("maximum", 0.0).scalar("minimum", 1.0)
    if key == "elu":
        return lambda x: x.scalar("lt", 0.0).scalar("switch", x.scalar("expm1") * either(alpha, 1.0), x)
    if key == "softsign":
        return lambda x: x / (x.scalar("abs_") + 1.0)
    raise Unsupported(f"the activation {name}")


@rule("RNN", "GRU", "LSTM")
def recurrent(
    at: At, x: Node, w: Node, r: Node, b: Node | None = None, lengths: Node | None = None, start: Node | None = None,
    cell: Node | None = None, peepholes: Node | None = None,
) -> Any:  # fmt: skip
    """Over a known number of steps."""
    batch_first = bool(at["layout"])
    if batch_first:
        x = x.dimshuffle((1, 0, 2))
    hidden = at["hidden_size"] or known_size(r.shape[2], "a hidden state")
    if hidden != r.shape[2]:
        raise ValueError(f"hidden_size is {hidden}, the weights are of {r.shape[2]}")
    if at["input_forget"]:
        raise Unsupported("input_forget")
    limit = at["clip"]
    directions = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[at["direction"]]
    names = at["activations"] or DEFAULTS[at.op] * len(directions)
    alphas, betas = at["activation_alpha"] or [], at["activation_beta"] or []
    each = len(names) // len(directions)
    outputs: list[Node] = []
    last: list[Node] = []
    cells: list[Node] = []
    steps = known_size(x.shape[0], "a sequence")
    if not 0 < steps <= MAX_STEPS:
        raise Unsupported(f"a sequence of {steps} steps")
    for d, backward in enumerate(directions):
        functions = [
            squashing(n, *(v[d * each + k] if d * each + k < len(v) else None for v in (alphas, betas)))
            for k, n in enumerate(names[d * each : (d + 1) * each])
        ]
        functions = [clipped(f, limit) for f in functions] if limit else functions
        of = [None if v is None else at_step(at, v, 0, d) for v in (w, r, b, peepholes)]
        states = [None if v is None else at_step(at, v, 1 if batch_first else 0, d) for v in (start, cell)]
        y, h, c = run_direction(at, x, of, states, lengths, hidden, functions, backward, steps)
        outputs.append(y)
        last.append(h)
        cells += [] if c is None else [c]
    whole = stacked(at, outputs, 1)
    found = [whole, stacked(at, last), *([stacked(at, cells)] if cells else [])]
    if batch_first:
        found = [found[0].dimshuffle((2, 0, 1, 3)), *(v.dimshuffle((1, 0, 2)) for v in found[1:])]
    return found


def clipped(function: Squash, limit: float) -> Squash:
    return lambda x: function(x.scalar("maximum", -limit).scalar("minimum", limit))


def run_direction(
    at: At, x: Node, of: Sequence[Node | None], states: Sequence[Node | None], lengths: Node | None, hidden: int,
    functions: Sequence[Squash], backward: bool, steps: int,
) -> tuple[Node, Node, Node | None]:  # fmt: skip
    """The outputs of all steps in one direction, and the last states."""
    w, r, b, p = of
    assert w is not None and r is not None
    gates = GATES[at.op]
    zeros = at.apply(
        "builtin.strided_slice_like", at.node(np.zeros((1, 1), x.element.dtype)), at_step(at, x, 0, 0), axes=(0,)
    )
    zeros = zeros.scalar("mul", at.node(np.zeros(hidden, x.element.dtype)))
    h = zeros if states[0] is None else states[0]
    c = (zeros if states[1] is None else states[1]) if at.op == "LSTM" else None
    wb, rb = (None, None) if b is None else (piece(at, b, k, gates * hidden) for k in range(2))
    from_input = product(at, x, w.dimshuffle((1, 0)))  # of all steps at once
    from_input = from_input if wb is None else from_input + wb
    turned = r.dimshuffle((1, 0))
    found: list[Node] = [h] * steps
    n = None if lengths is None else lengths.with_ones((1,))
    for t in range(steps)[:: -1 if backward else 1]:
        into = at_step(at, from_input, 0, t)
        new, cell = STEPS[at.op](at, into, h, c, turned, rb, p, hidden, functions)
        if n is not None:  # beyond a sequence's end its state stays, and its outputs are 0
            there = n.scalar("gt", number(n, t))
            found[t] = there.scalar("switch", new, number(new, 0))
            new = there.scalar("switch", new, h)
            cell = None if cell is None or c is None else there.scalar("switch", cell, c)
        else:
            found[t] = new
        h, c = new, cell
    return stacked(at, found), h, c


def piece(at: At, x: Node, k: int, size: int) -> Node:
    """The k-th piece of so many elements along the last axis."""
    begin, end = [0] * x.rank, [FAR] * x.rank
    begin[-1], end[-1] = k * size, (k + 1) * size
    return cut(at, x, begin, end, [1] * x.rank)


def rnn_step(at: At, into: Node, h: Node, c: Any, r: Node, rb: Any, p: Any, hidden: int, f: Sequence[Squash]) -> Any:
    total = into + product(at, h, r)
    return f[0](total if rb is None else total + rb), None


def gru_step(at: At, into: Node, h: Node, c: Any, r: Node, rb: Any, p: Any, hidden: int, f: Sequence[Squash]) -> Any:
    z_r = piece(at, into, 0, 2 * hidden) + product(at, h, piece(at, r, 0, 2 * hidden))
    z_r = z_r if rb is None else z_r + piece(at, rb, 0, 2 * hidden)
    z, reset = (f[0](piece(at, z_r, k, hidden)) for k in range(2))
    matrix, bias = piece(at, r, 2, hidden), None if rb is None else piece(at, rb, 2, hidden)
    if at["linear_before_reset"]:
        inner = product(at, h, matrix)
        inner = reset * (inner if bias is None else inner + bias)
    else:
        inner = product(at, reset * h, matrix)
        inner = inner if bias is None else inner + bias
    new = f[1](piece(at, into, 2, hidden) + inner)
    return (1.0 - z) * new + z * h, None


def lstm_step(at: At, into: Node, h: Node, c: Node, r: Node, rb: Any, p: Any, hidden: int, f: Sequence[Squash]) -> Any:
    total = into + product(at, h, r)
    total = total if rb is None else total + rb
    i, o, forget, new = (piece(at, total, k, hidden) for k in range(4))
    if p is not None:
        of_i, of_o, of_forget = (piece(at, p, k, hidden) for k in range(3))
        i, forget = i + of_i * c, forget + of_forget * c
    else:
        of_o = None
    cell = f[0](forget) * c + f[0](i) * f[1](new)
    o = o if of_o is None else o + of_o * cell
    return f[0](o) * f[2](cell), cell


STEPS: dict[str, Any] = {"RNN": rnn_step, "GRU": gru_step, "LSTM": lstm_step}
