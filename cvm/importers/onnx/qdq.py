"""Operators between DequantizeLinear and QuantizeLinear, replaced by the quantized operators that
onnxruntime fuses them to.

    DequantizeLinear(x), DequantizeLinear(w) -> Conv -> QuantizeLinear  =>  QLinearConv(x, w)

The result differs from the one of the floats by at most a rounding, and is that of onnxruntime's
kernels. What has several readers, or parameters that are computed, is left as it is.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .importer import reads

MICROSOFT = "com.microsoft"
# by operator: the quantized one, its domain, how many operands it needs, and the types that it
# takes
FUSED = {
    "Conv": ("QLinearConv", "", (2, 3), "bB"),
    "MatMul": ("QLinearMatMul", "", (2,), "bB"),
    "Gemm": ("QGemm", MICROSOFT, (2, 3), "bB"),
    "Add": ("QLinearAdd", MICROSOFT, (2,), "B"),
    "Mul": ("QLinearMul", MICROSOFT, (2,), "B"),
    "GlobalAveragePool": ("QLinearGlobalAveragePool", MICROSOFT, (1,), "bB"),
    "Softmax": ("QLinearSoftmax", MICROSOFT, (1,), "bB"),
    "Sigmoid": ("QLinearSigmoid", MICROSOFT, (1,), "bB"),
    "LeakyRelu": ("QLinearLeakyRelu", MICROSOFT, (1,), "bB"),
}
# the operators that only choose elements of their first operand or move them: the same on quantized
# values, where both sides have one scale and zero point
CHOOSING = {
    "DepthToSpace",
    "Expand",
    "Flatten",
    "Gather",
    "MaxPool",
    "Reshape",
    "Slice",
    "SpaceToDepth",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
}
LARGE = 1e36  # scales below, times the numbers of a byte, are finite in f32


def fuse_qdq(graph: Any, values: Mapping[str, Any], opset: int) -> Sequence[Any]:
    """The nodes of a graph, with the quantized operator in the place of each QuantizeLinear that
    ends such a pattern.
    """
    producers = {name: node for node in graph.node for name in node.output}
    readers: dict[str, list[Any]] = {}  # None is the caller
    pairs = [(name, node) for node in graph.node for name in node.input] + [
        (v.name, None) for v in graph.output
    ]
    for name, node in pairs:
        readers.setdefault(name, []).append(node)

    def fused(node: Any) -> Any:
        op = (
            producers.get(node.input[0])
            if node.op_type == "QuantizeLinear" and node.input
            else None
        )
        if (
            op is None
            or op.op_type not in {*FUSED, *CHOOSING}
            or op.domain not in ("", "ai.onnx")
            or len(readers[node.input[0]]) > 1
        ):
            return node
        if op.op_type in CHOOSING:
            return chosen(node, op, producers.get(op.input[0]), values) or node
        operands = [producers.get(name) for name in op.input]
        dequantizers = [d for d in operands if d is not None and d.op_type == "DequantizeLinear"]
        if len(dequantizers) < len(operands):
            return node
        read = [r.output[0] for r in readers.get(node.output[0], ()) if r is not None]
        ends = [dequantizers[0].input[0], dequantizers[0].output[0], node.output[0], *read]
        zero = values.get(node.input[2]) if len(node.input) > 2 else None
        is_signed = isinstance(zero, np.ndarray) and zero.dtype == np.int8
        if is_signed and any(len(readers.get(name, ())) > 1 for name in ends):
            return node  # which onnxruntime leaves as it is
        return quantised(node, op, dequantizers, values, opset) or node

    in_place = [(node, fused(node)) for node in graph.node]
    nodes = [new for _, new in in_place]
    replaced = {
        n for old, new in in_place if new is not old for n in producers[old.input[0]].output
    }
    read = {v.name for v in graph.output}
    read.update(
        n for node in nodes for a in node.attribute for g in [a.g, *a.graphs] for n in reads(g)
    )
    kept: list[Any] = []
    for node in reversed(nodes):  # what is fused is not computed by itself, too
        is_replaced = node.op_type == "DequantizeLinear" or not replaced.isdisjoint(node.output)
        if is_replaced and node.output and not read.intersection(node.output):
            continue
        read.update(node.input)
        kept.append(node)
    return kept[::-1]


def chosen(node: Any, op: Any, dequantizer: Any, values: Mapping[str, Any]) -> Any:
    """The operator on quantized values; None where the scales differ or are not constant."""
    if dequantizer is None or dequantizer.op_type != "DequantizeLinear" or len(op.output) != 1:
        return None
    scale, zero, *others = (values.get(n) for e in (dequantizer, node) for n in e.input[1:])
    arrays = [a for a in (scale, zero, *others) if isinstance(a, np.ndarray) and a.size == 1]
    if len(others) != 2 or len(arrays) != 4 or [a.dtype.char for a in arrays[::2]] != ["f", "f"]:
        return None
    first, last = ((a.dtype, a.item(), b.dtype, b.item()) for a, b in (arrays[:2], arrays[2:]))
    if first != last or arrays[1].dtype.char not in "bB" or not 0 < arrays[0].item() < LARGE:
        return None
    made = type(op)()
    made.CopyFrom(op)
    made.input[0], made.output[0] = dequantizer.input[0], node.output[0]
    return made


def quantised(
    node: Any, op: Any, dequantizers: Sequence[Any], values: Mapping[str, Any], opset: int
) -> Any:
    """The operator on the quantized values; None where onnxruntime has no such operator."""
    from onnx import helper

    name, domain, counts, kinds = FUSED[op.op_type]
    factors, bias = dequantizers[:2], dequantizers[2:]
    ends = [*factors, node]
    are_constant = all(isinstance(values.get(n), np.ndarray) for e in ends for n in e.input[1:])
    blocks = any(a.name == "block_size" and a.i for e in ends for a in e.attribute)
    if (
        len(dequantizers) not in counts
        or not are_constant
        or blocks
        or any(len(e.input) != 3 for e in ends)
    ):
        return None
    types = [values[e.input[2]].dtype for e in ends]
    if types[0] != types[-1] or any(t.char not in kinds for t in types):
        return None
    attributes = {a.name: helper.get_attribute_value(a) for a in op.attribute}
    if attributes.pop("beta", 1.0) != 1.0:
        return None
    if op.op_type == "Softmax":
        attributes["opset"] = opset
    inputs = [n for f in factors for n in f.input]
    of_result, biases = list(node.input[1:]), [b.input[0] for b in bias]
    inputs += [*biases, *of_result] if op.op_type == "Gemm" and biases else [*of_result, *biases]
    if op.op_type == "Gemm" and not biases:
        inputs[6:6] = [""]
    return helper.make_node(
        name, inputs, list(node.output), name=op.name, domain=domain, **attributes
    )
