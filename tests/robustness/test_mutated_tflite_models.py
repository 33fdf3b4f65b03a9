"""TensorFlow Lite models with mistakes in them that mutations by the schema found: a diagnostic,
soon, in little memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cvm
from cvm.importers.tflite.writer import Operator, Tensor, model

MOST = 2**31 - 1


@pytest.mark.parametrize(
    ("op", "options"),
    [("RESIZE_BILINEAR", {}), ("RESIZE_NEAREST_NEIGHBOR", {"align_corners": True})],
)
def test_an_image_of_billions_of_rows(op: str, options: dict[str, Any]) -> None:
    size = Tensor((2,), "INT32", data=np.array([MOST, 3], np.int32))
    tensors = [Tensor((1, 2, 2, 1), "INT8", 0.5), size, Tensor((1, MOST, 3, 1), "INT8", 0.5)]
    with pytest.raises(cvm.Error) as caught:
        cvm.from_tflite(model(tensors, [Operator(op, [0, 1], [2], options)], [0], [2]))
    assert f"a constant of {MOST} numbers is not supported" in str(caught.value)


def test_packed_tensors_of_unequal_ranks() -> None:
    tensors = [Tensor((2, 3), "INT32"), Tensor((), "INT32"), Tensor((2, 2, 3), "INT32")]
    packed = Operator("PACK", [0, 1], [2], {"values_count": 2, "axis": 2})
    with pytest.raises(cvm.Error, match="1 operator of the model cannot be imported"):
        cvm.from_tflite(model(tensors, [packed], [0, 1], [2]))


def test_a_variable_that_is_too_large_for_numpy() -> None:
    tensors = [
        Tensor((2,), "INT8", 0.5),
        Tensor((0, MOST, MOST, 8), "INT8", 0.5, variable=True),
        Tensor((2,), "INT8", 0.5),
    ]
    with pytest.raises(cvm.Error, match="the model cannot be read: "):
        cvm.from_tflite(model(tensors, [Operator("RELU", [0], [2])], [0], [2]))
