"""Element types of ONNX, and its tensors as arrays."""

from typing import Any

import numpy as np

from cvm.dialect.types.tensor_types import ELEMENT_TYPES, ElementType
from cvm.importers.graph.rules import Unsupported

CODES = {
    "FLOAT": "f32",
    "DOUBLE": "f64",
    "FLOAT16": "f16",
    "BFLOAT16": "bf16",
    "BOOL": "i1",
    "INT8": "i8",
    "INT16": "i16",
    "INT32": "i32",
    "INT64": "i64",
    "UINT8": "ui8",
    "UINT16": "ui16",
    "UINT32": "ui32",
    "UINT64": "ui64",
    "COMPLEX64": "complex<f32>",
    "COMPLEX128": "complex<f64>",
}
I64 = ELEMENT_TYPES["i64"]
STRING = 8  # TensorProto.STRING


def element_of(code: int) -> ElementType:
    """The element type of a number of ONNX's TensorProto.DataType."""
    import onnx

    if (
        name := next(
            (n for n, c in onnx.TensorProto.DataType.items() if c == code), f"number {code}"
        )
    ) not in CODES:
        raise Unsupported(f"elements of type {name}")
    return ELEMENT_TYPES[CODES[name]]


def code_of(element: ElementType) -> int:
    import onnx

    return onnx.TensorProto.DataType.Value(next(n for n, e in CODES.items() if e == element.name))


def to_array(tensor: Any) -> np.ndarray:
    """A tensor of a model, its elements of a type that the language has, or strings."""
    import onnx

    if tensor.data_type == STRING:
        texts = [s.decode("utf-8", "replace") for s in tensor.string_data]
        return np.array(texts, np.str_).reshape(tuple(tensor.dims))
    return np.asarray(onnx.numpy_helper.to_array(tensor), element_of(tensor.data_type).dtype)
