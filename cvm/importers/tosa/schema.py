"""A TOSA graph in memory, and the tables of its schema: element types, operators and their
attributes.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cvm.dialect.support.diagnostics import NOWHERE, Span
from cvm.dialect.types.tensor_types import F32, I1, I8, I16, I32, I64, ElementType

TYPES = (
    "UNKNOWN",
    "BOOL",
    "INT4",
    "INT8",
    "INT16",
    "INT32",
    "INT48",
    "FP32",
    "FP16",
    "BF16",
    "SHAPE",
)
ELEMENTS: dict[str, ElementType] = {
    "BOOL": I1,
    "INT4": I8,
    "INT8": I8,
    "INT16": I16,
    "INT32": I32,
    "INT48": I64,
    "FP32": F32,
    "SHAPE": I64,
}
_OPERATORS = """
UNKNOWN ARGMAX AVG_POOL2D CONV2D CONV3D DEPTHWISE_CONV2D FFT2D MATMUL MAX_POOL2D RFFT2D TRANSPOSE_CONV2D CLAMP ERF SIGMOID TANH
ADD ARITHMETIC_RIGHT_SHIFT BITWISE_AND BITWISE_OR BITWISE_XOR INTDIV LOGICAL_AND LOGICAL_LEFT_SHIFT LOGICAL_RIGHT_SHIFT
LOGICAL_OR LOGICAL_XOR MAXIMUM MINIMUM MUL POW SUB TABLE ABS BITWISE_NOT CEIL CLZ COS EXP FLOOR LOG LOGICAL_NOT NEGATE
RECIPROCAL RSQRT SIN SELECT EQUAL GREATER GREATER_EQUAL REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PRODUCT REDUCE_SUM
CONCAT PAD RESHAPE REVERSE SLICE TILE TRANSPOSE GATHER SCATTER RESIZE CAST RESCALE CONST IDENTITY CUSTOM COND_IF WHILE_LOOP
VARIABLE VARIABLE_WRITE VARIABLE_READ CONST_SHAPE
"""
OPERATORS = tuple(_OPERATORS.split())  # by their numbers
_WINDOW = "pad:[i32] stride:[i32] dilation:[i32] local_bound:bool acc_type:u32"
_AXIS = "axis:i32 nan_mode:u32"
ATTRIBUTES = {  # of the operators that have any, in the order of their slots
    "ARGMAX": _AXIS,
    "AVG_POOL2D": "kernel:[i32] stride:[i32] pad:[i32] acc_type:u32",
    "CONV2D": _WINDOW,
    "DEPTHWISE_CONV2D": _WINDOW,
    "MAX_POOL2D": "kernel:[i32] stride:[i32] pad:[i32] nan_mode:u32",
    "TRANSPOSE_CONV2D": "out_pad:[i32] stride:[i32] local_bound:bool acc_type:u32",
    "CLAMP": "min_val:[u8] max_val:[u8] nan_mode:u32",
    "ARITHMETIC_RIGHT_SHIFT": "round:bool",
    "MAXIMUM": "nan_mode:u32",
    "MINIMUM": "nan_mode:u32",
    **dict.fromkeys(
        ("REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_SUM", "CONCAT", "REVERSE"),
        _AXIS,
    ),
    "TRANSPOSE": "perms:[i32]",
    "RESIZE": "mode:u32",
    "RESCALE": "scale32:bool rounding_mode:u32 per_channel:bool input_unsigned:bool "
    "output_unsigned:bool",
}
SCHEMA = {
    "TosaGraph": "version:- regions:[TosaRegion]",
    "TosaRegion": "name:str blocks:[TosaBasicBlock]",
    "TosaBasicBlock": "name:str operators:[TosaOperator] "
    "tensors:[TosaTensor] inputs:[str] "
    "outputs:[str] "
    "shapes:[TosaShape]",
    "TosaTensor": "name:str shape:[i32] type:u32 data:[u8] variable:bool is_unranked:bool "
    "variable_name:str",
    "TosaShape": "name:str rank:u32 data:[u8]",
    "TosaOperator": "op:u32 attribute_type:u8 attribute:table inputs:[str] outputs:[str]",
    "Version": "_major:i32 _minor:i32 _patch:i32 _draft:bool",
    **ATTRIBUTES,
}


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of a graph: its shape, the name of its type, and its elements, if it is a
    constant.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    data: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Operator:
    """One operator: its name in the specification, and the names of its operands and results."""

    op: str
    attributes: dict[str, Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    span: Span = NOWHERE


@dataclass(eq=False)
class Graph:
    """The tensors by name, the operators in their order, and the names of what goes in and out."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    operators: list[Operator] = field(default_factory=list)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


def unpacked(data: np.ndarray, type: str, shape: tuple[int, ...]) -> np.ndarray:
    """The elements of a constant from the bytes of a file; raises ValueError if there are too
    few.
    """
    count, raw = int(np.prod(shape, dtype=object)), np.asarray(data, np.uint8)
    if type == "INT4":
        elements = (np.stack([raw << 4, raw], -1).astype(np.int8) >> 4).reshape(-1)
    elif type == "INT48":
        wide = np.zeros((len(raw) // 6, 8), np.uint8)
        wide[:, 2:] = raw[: len(wide) * 6].reshape(-1, 6)
        elements = wide.reshape(-1).view(np.int64) >> 16
    else:
        held = min(count, len(raw) // ELEMENTS[type].bytes)
        elements = raw[: held * ELEMENTS[type].bytes].view(ELEMENTS[type].dtype)
    if len(elements) < count:
        raise ValueError(f"{len(raw)} bytes for {count} elements of {type}")
    return elements[:count].reshape(shape)
