"""Operators with state: SVDF, LSTM and variables."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import I8, I16, I32, I64, ElementType
from cvm.importers.exactness import SUMS
from cvm.importers.graph.loops import iterated
from cvm.importers.graph.movement import FAR, cut
from cvm.importers.graph.rules import Items, static

from .arithmetic import activated
from .fixed_point import divide_by_power, logistic_16, tanh_16
from .quantization import activation_range, clipped, requantized
from .rules import ROUNDED, At, Known, Tensor, Unsupported, rule

STATE_INPUT = 4


@rule("SVDF", exact=SUMS, floats=ROUNDED)
def svdf(at: At, x: Node, features: Node, times: Node, bias: Node | None, state: Node) -> Known:
    """The state, of the last rows of features in time, is an argument and a result."""
    rank = at["rank"]
    batch, filters, memory = static(x, "rows", (0,))[0], *static(times, "weights")
    if rank < 1 or filters % rank:
        raise ValueError(f"{filters} filters of rank {rank}")
    if not (quantised := at.x.is_quantised) and at.input(1).is_quantised:
        raise Unsupported("a hybrid operator, floats times quantised weights,")
    weights, clock, memory_tensor = at.input(1), at.input(2), at.input(STATE_INPUT)
    if quantised:
        factor = float(at.x.scale * weights.scale / memory_tensor.scale)
        newest = requantized(at, dense(at, x, at.x.zero_point, features), factor, state.element)
    else:
        newest = at.apply("cvm.dense", x, features)
    rows = at.apply("cvm.reshape", state, target_shape=(batch, filters, memory))
    rows = at.apply(
        "cvm.concatenate",
        cut(at, rows, [0, 0, 1], [FAR] * 3, [1] * 3),
        newest.with_ones((2,)),
        axis=2,
    )
    at.values[at.graph_node.inputs[STATE_INPUT]] = at.apply(
        "cvm.reshape", rows, target_shape=tuple(state.shape)
    )
    products = (rows.cast(I32) if quantised else rows) * (
        times.cast(I32) if quantised else times
    ).with_ones((0,))
    element = products.element
    terms = products.sum((2,), dtype=element, acc_dtype=element)
    parts = at.apply("cvm.reshape", terms, target_shape=(batch, filters // rank, rank))
    sums = parts.sum((2,), dtype=element, acc_dtype=element)
    if bias is not None:
        sums = sums + bias.with_ones((0,))
    if not quantised:
        return activated(at, sums)
    factor = float(memory_tensor.scale * clock.scale / at.y.scale)
    return requantized(at, sums, factor, at.y.element, at.y.zero_point, activation_range(at, at.y))


def dense(at: At, x: Node, zero_point: int, w: Any, bias: Node | None = None) -> Node:
    """Sums of products of numbers less their zero point and weights without one."""
    zeros = [np.array(z, np.int32) for z in (zero_point, 0)]
    return at.apply("quant.dense", x, w, *zeros, *(() if bias is None else (bias,)))


# a recurrent layer's inputs, the first of four for gates: input, forget, cell and output; the
# cell's has no peephole
WEIGHTS, RECURRENT, BIASES, PROJECTION, OUTPUT, CELL, NORMALISATION = 1, 5, 12, 16, 18, 19, 20
PEEPHOLES = {0: 9, 1: 10, 3: 11}
GATE_SCALE = np.float32(2.0**-12)


@rule("UNIDIRECTIONAL_SEQUENCE_LSTM", exact=SUMS)
def lstm(at: At, x: Node, *more: Node | None) -> Known:
    """Take i8, and no layer normalization. The state, of the last output and the cell, is an
    argument and a result.
    """
    inputs = [x, *more, *[None] * (23 - len(more))]
    if at.x.type != "INT8" or any(v is not None for v in inputs[NORMALISATION:]):
        raise Unsupported(
            "layer normalisation" if at.x.type == "INT8" else f"a layer of {x.element}"
        )
    x = x if at["time_major"] else x.dimshuffle((1, 0, 2))
    steps, batch, _ = static(x, "a sequence")
    out, cell, hidden = at.input(OUTPUT), at.input(CELL), at.tensors[at.operator.intermediates[4]]
    if inputs[PEEPHOLES[3]] is not None and cell.shape[-1] != out.shape[-1]:
        raise Unsupported(
            "a projection beside peepholes, which the kernel then adds to other cells,"
        )
    exponent = round(math.log2(cell.scale))
    if not (-15 <= exponent <= -9 and cell.scale == 2.0**exponent):
        raise Unsupported(f"a cell of scale {cell.scale}")
    numbers = np.arange(-(1 << 15), 1 << 15)
    sigmoid, tanh, tanh_of_cell = (
        at.node(t.astype(np.int16))
        for t in (logistic_16(numbers), tanh_16(numbers, 3), tanh_16(numbers, 15 + exponent))
    )
    # the kernel takes what it projects to have the zero point with the other sign
    zero = hidden.zero_point if inputs[PROJECTION] is None else -hidden.zero_point

    def product(
        x: Node, t: Tensor, weights: int, to: ElementType, bias: Node | None = None
    ) -> Node:
        factor = float(at.input(weights).scale * t.scale / GATE_SCALE)
        return requantized(at, dense(at, x, t.zero_point, inputs[weights], bias), factor, to)

    def total(gate: int, into: Node, h: Node, c: Node, table: Node) -> Node:
        sums = clipped(into.cast(I32) + product(h, out, RECURRENT + gate, I32), *I16.limits, I32)
        if (peephole := inputs[PEEPHOLES[gate]] if gate in PEEPHOLES else None) is not None:
            factor = np.float32(
                float(cell.scale) * float(at.input(PEEPHOLES[gate]).scale) / float(GATE_SCALE)
            )
            sums = sums + requantized(at, c.cast(I32) * peephole.cast(I32), float(factor), I32)
        return at.apply("quant.table", clipped(sums, *I16.limits, I16), table).cast(I64)

    def cut_off(x: Node, name: str, tensor: Tensor) -> Node:
        most = int(min(float(np.float32(at[name]) / tensor.scale), tensor.element.limits[1]))
        return clipped(x, -most, most, tensor.element) if most > 0 else x

    def step(values: list[Node]) -> list[Node]:
        (h, c), into = values[:2], dict(zip(gates, values[2:], strict=True))
        forget, new = total(1, into[1], h, c, sigmoid), total(2, into[2], h, c, tanh)
        enter = total(0, into[0], h, c, sigmoid) if 0 in into else 32767 - forget
        retained, added = (
            divide_by_power(forget * c.cast(I64), 15),
            divide_by_power(enter * new, 30 + exponent),
        )
        after = cut_off(clipped(retained + added, *I16.limits, I16), "cell_clip", cell)
        gated = total(3, into[3], h, after, sigmoid) * at.apply(
            "quant.table", after, tanh_of_cell
        ).cast(I64)
        y = requantized(
            at, gated.cast(I32), float(np.float32(2.0**-30 / float(hidden.scale))), I8, zero
        )
        if inputs[PROJECTION] is not None:
            sums = dense(at, y, zero, inputs[PROJECTION], inputs[PROJECTION + 1])
            factor = float(at.input(PROJECTION).scale * hidden.scale / out.scale)
            y = cut_off(requantized(at, sums, factor, I8, out.zero_point), "proj_clip", at.y)
        return [y, after, y]

    def reshape(x: Node, *shape: int) -> Node:
        return at.apply("cvm.reshape", x, target_shape=shape)

    gates, rows = range(inputs[WEIGHTS] is None, 4), reshape(x, steps * batch, -1)
    gate_inputs = [
        reshape(product(rows, at.x, WEIGHTS + k, I16, inputs[BIASES + k]), steps, batch, -1)
        for k in gates
    ]
    *last, y = iterated(
        at,
        [reshape(at.node(inputs[n]), batch, -1) for n in (OUTPUT, CELL)],
        gate_inputs,
        step,
        steps,
    )
    for n, state in zip((OUTPUT, CELL), last, strict=True):
        at.values[at.graph_node.inputs[n]] = reshape(state, *at.input(n).shape)
    return y if at["time_major"] else y.dimshuffle((1, 0, 2))


# Variables


@rule("VAR_HANDLE")
def var_handle(at: At) -> Known:
    """A variable becomes an argument and a result."""
    return Items((at["shared_name"] or "variable",))  # type: ignore[return-value]


@rule("READ_VARIABLE")
def read_variable(at: At, handle: Items) -> Known:
    return at.model.state(handle[0], at.y)


@rule("ASSIGN_VARIABLE")
def assign_variable(at: At, handle: Items, x: Node) -> Any:
    at.model.state(handle[0], at.input(1))
    at.model.assign(handle[0], x)
    return []


@rule("CALL_ONCE")
def call_once(at: At) -> Any:
    """The constants that its graph assigns to variables are their initial state."""
    at.model.initialise(at["init_subgraph_index"])
    return []
