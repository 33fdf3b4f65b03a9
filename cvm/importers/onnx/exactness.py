"""The exactness of ONNX's operators beside onnxruntime's kernels: exact on integers, and of those that are named, on floats."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cvm.dialect.ir.types import UI8
from cvm.importers.exactness import EXACT, ROUNDED, SUMS, Exactness

_ON_FLOATS = """
Abs Add ArgMax ArgMin BitCast Cast CastLike Ceil Clip Compress Concat Constant ConstantOfShape DepthToSpace DequantizeLinear Div
Dropout DynamicQuantizeLinear Equal Expand EyeLike Flatten Floor Gather GatherElements GatherND GlobalMaxPool Greater GreaterOrEqual
Identity IsInf IsNaN Less LessOrEqual Max MaxPool MaxUnpool Min Mul Neg NonZero OneHot PRelu Pad QuantizeLinear Range ReduceMax
ReduceMin Relu Reshape ReverseSequence Round ScatterElements ScatterND Shape Sign Size Slice SpaceToDepth Split Sqrt Squeeze Sub
ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze Where
"""
EXACT_ON_FLOATS = frozenset(_ON_FLOATS.split())
# the number of the input
WEIGHTS = {"ConvInteger": 1, "MatMulInteger": 1, "QLinearConv": 3, "QLinearMatMul": 3, "QGemm": 3}
SATURATING = 64  # numbers beyond these may saturate a sum of two products of bytes in 16 bits
PAIRS = Exactness(
    "onnxruntime's processor has byte dot products (VNNI), without which it saturates sums of pairs, and "
    + SUMS.condition
)
TABLE = Exactness(bound="within 1: an entry of its table may be rounded otherwise")


def of_operator(op: str, floats: bool, inputs: Sequence[Any] = ()) -> Exactness:
    """The exactness of an operator; weights of 7 bits do not saturate on any processor."""
    if op in WEIGHTS:
        weights = inputs[WEIGHTS[op]] if inputs else None
        narrow = (
            isinstance(weights, np.ndarray)
            and np.abs(weights.astype(np.int64)).max(initial=0) <= SATURATING
        )
        unsigned = (
            getattr(weights, "element", None) is UI8 or getattr(weights, "dtype", None) == np.uint8
        )
        return SUMS if narrow or unsigned else PAIRS
    if op in ("QLinearSigmoid", "QLinearSoftmax"):
        return TABLE
    return ROUNDED if floats and op not in EXACT_ON_FLOATS else EXACT
