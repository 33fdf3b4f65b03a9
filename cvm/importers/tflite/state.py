"""Operators with state: SVDF and variables."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvm.dialect.ir.types import I32
from cvm.dialect.program.builder import Node
from cvm.importers.exactness import SUMS
from cvm.importers.onnx.movement import FAR, cut
from cvm.importers.onnx.rules import Items, static

from .arithmetic import activated
from .quantization import activation_range, requantized
from .rules import ROUNDED, At, Known, Unsupported, rule

STATE_INPUT = 4


@rule("SVDF", exact=SUMS, floats=ROUNDED)
def svdf(at: At, x: Node, features: Node, times: Node, bias: Node | None, state: Node) -> Known:
    """The state, of the last rows of features in time, is an argument and a result."""
    rank = at["rank"]
    batch, filters, memory = static(x, "rows", (0,))[0], *static(times, "weights")
    if rank < 1 or filters % rank:
        raise ValueError(f"{filters} filters of rank {rank}")
    quantised = at.x.is_quantised
    if not quantised and at.input(1).is_quantised:
        raise Unsupported("a hybrid operator, floats times quantised weights,")
    weights, clock, kept = at.input(1), at.input(2), at.input(STATE_INPUT)
    if quantised:
        sums = at.apply("quant.dense", x, features, *[at.node(np.array(z, np.int32)) for z in (at.x.zero_point, 0)])
        factor = float(at.x.scale * weights.scale / kept.scale)
        newest = requantized(at, sums, factor, state.element)
    else:
        newest = at.apply("cvm.dense", x, features)
    rows = at.apply("cvm.reshape", state, target_shape=(batch, filters, memory))
    rows = at.apply("cvm.concatenate", cut(at, rows, [0, 0, 1], [FAR] * 3, [1] * 3), newest.with_ones((2,)), axis=2)
    at.values[at.node_proto.input[STATE_INPUT]] = at.apply("cvm.reshape", rows, target_shape=tuple(state.shape))
    wide = rows.cast(I32) if quantised else rows
    products = wide * (times.cast(I32) if quantised else times).with_ones((0,))
    element = products.element
    terms = products.sum((2,), dtype=element, acc_dtype=element)
    parts = at.apply("cvm.reshape", terms, target_shape=(batch, filters // rank, rank))
    sums = parts.sum((2,), dtype=element, acc_dtype=element)
    if bias is not None:
        sums = sums + bias.with_ones((0,))
    if not quantised:
        return activated(at, sums)
    factor = float(kept.scale * clock.scale / at.y.scale)
    return requantized(at, sums, factor, at.y.element, at.y.zero_point, activation_range(at, at.y))


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
