"""The exactness of ONNX's operators beside onnxruntime's kernels, of integers and of floats.

Of what the ONNX specification leaves open, or onnxruntime computes otherwise, the tables name the
condition under which results are equal. A rule that decides this by the attributes of a node sets
`at.rule_exactness`.
"""

from collections.abc import Sequence

import numpy as np

from cvm.dialect.types.tensor_types import BY_DTYPE, F16, UI8
from cvm.importers.exactness import ANY, EXACT, HALF, ROUNDED, SUMS, Exactness

_ON_FLOATS = """
Abs Add BitCast Cast CastLike Ceil Compress Concat Constant ConstantOfShape DepthToSpace
DequantizeLinear Div Dropout Equal Expand EyeLike Flatten Floor Gather GatherElements GatherND
Greater GreaterOrEqual Identity IsInf IsNaN Less LessOrEqual MaxUnpool Mul Neg NonZero OneHot Pad
Range Reshape ReverseSequence Round ScatterElements ScatterND Shape Sign Size Slice SpaceToDepth
Split Sqrt Squeeze Sub ThresholdedRelu Tile Transpose Trilu Unsqueeze Where
ArrayFeatureExtractor Binarizer FeatureVectorizer Imputer LabelEncoder OneHotEncoder Scaler ZipMap
"""
EXACT_ON_FLOATS = frozenset(_ON_FLOATS.split())
NOT_NAN = Exactness("no element is NaN")
ORDERED = Exactness("no element is NaN or -0.0")  # of which a choice depends on the order
POOLED = "no element is NaN, -0.0 or -infinity"
CONDITIONS_ON_FLOATS = {
    **dict.fromkeys(("ArgMax", "ArgMin", "QuantizeLinear", "TopK", "Unique"), NOT_NAN),
    **dict.fromkeys(["Clip", "Max", "Min", "ReduceMax", "ReduceMin"], ORDERED),
    "Relu": Exactness("no element is -0.0"),
    "DynamicQuantizeLinear": Exactness(
        "every element is finite, and so is the scale, which is not zero"
    ),
    "PRelu": Exactness("no element is NaN or zero"),
    **dict.fromkeys(("GlobalMaxPool", "MaxPool"), Exactness(POOLED)),
}
# onnxruntime has few kernels of f16, and keeps f32 between operators that have none
ROUNDING = ("Add", "Div", "Mul", "Sqrt", "Sub")
# onnxruntime reduces integers in doubles
REDUCED: dict[str, str] = {
    **dict.fromkeys(["Einsum", "ReduceL1", "ReduceMean", "ReduceSum", "ReduceSumSquare"], "sum"),
    "ReduceProd": "product",
}


def reduced(op: str) -> str:
    """The condition under which a reduction of integers in doubles is exact."""
    return f"no {REDUCED[op]} overflows or reaches 2^53"


ROOTS = Exactness(bound="within 1, where sums are not negative and squares are below 2^53")
CONDITIONS_ON_INTEGERS = {
    **dict.fromkeys(("ReduceL2", "ReduceLogSum", "ReduceLogSumExp"), ROOTS),
    **dict.fromkeys(("Div", "Mod"), Exactness("no divisor is zero and no quotient overflows")),
    "Pow": Exactness("no exponent is negative and every power is within its type, below 2^53"),
    "Shrink": Exactness("every element is below 2^24 in magnitude"),
}
# the number of the input
WEIGHTS = {"ConvInteger": 1, "MatMulInteger": 1, "QLinearConv": 3, "QLinearMatMul": 3, "QGemm": 3}
SATURATING = 64  # numbers beyond these may saturate a sum of two products of bytes in 16 bits
PAIRS = Exactness(
    "onnxruntime's processor has byte dot products (VNNI), without which it saturates sums "
    "of pairs, and " + SUMS.condition
)
TABLE = Exactness(bound="within 1: an entry of its table may be rounded otherwise")


def of_operator(op: str, floats: bool, inputs: Sequence[object] = ()) -> Exactness:
    """The exactness of an operator; weights of 7 bits do not saturate on any processor."""
    if op in WEIGHTS:
        weights = inputs[WEIGHTS[op]] if inputs else None
        narrow = (
            isinstance(weights, np.ndarray)
            and weights.min(initial=0) >= -SATURATING
            and weights.max(initial=0) <= SATURATING
        )
        unsigned = (
            getattr(weights, "element", None) is UI8 or getattr(weights, "dtype", None) == np.uint8
        )
        return SUMS if narrow or unsigned else PAIRS
    if op in ("QLinearSigmoid", "QLinearSoftmax"):
        return TABLE
    first = inputs[0] if inputs else None
    if isinstance(first, np.ndarray):
        element = BY_DTYPE.get(first.dtype)
    else:
        element = getattr(first, "element", None)
    if floats:
        if element is F16 and op in ROUNDING:
            return HALF
        if element is F16 and op in ("Clip", "PRelu"):
            return ROUNDED
        return CONDITIONS_ON_FLOATS.get(op, EXACT if op in EXACT_ON_FLOATS else ROUNDED)
    if op in REDUCED:
        is_wide = element is None or element.bits == 64  # what its ranges show is not enough
        return Exactness(reduced(op), sums=() if is_wide else (ANY,))
    if op in ("Div", "Mod") and isinstance(by := inputs[1] if inputs else None, np.ndarray):
        return EXACT if not np.isin(by, (0, -1)).any() else CONDITIONS_ON_INTEGERS[op]
    return CONDITIONS_ON_INTEGERS.get(op, EXACT)
