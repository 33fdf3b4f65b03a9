"""Folding while importing: which operations, and when one element stands for a whole constant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cvm.dialect.builtin import Const
from cvm.dialect.ir.builder import Node
from cvm.dialect.ir.function import Operation, Value
from cvm.dialect.spec.operator import OPERATORS
from cvm.dialect.types.tensor_types import F32, I32, TensorType
from numpy.lib.stride_tricks import as_strided

from cvm.importers.graph import folding
from cvm.importers.graph.folding import FoldingBuilder, is_cheap

LINE = np.arange(3, dtype=np.int32)
ARRAYS: dict[str, tuple[Any, bool]] = {
    "repeated along both axes": (np.broadcast_to(np.int32(5), (2, 3)), True),
    "repeated along an axis beside one of size 1": (as_strided(LINE[1:2], (1, 4), (8, 0)), True),
    "repeated along one of two axes": (np.broadcast_to(LINE, (2, 3)), False),
    "repeated along the other": (np.broadcast_to(LINE[:2, None], (2, 3)), False),
    "equal elements of their own": (np.full((2, 3), 5, np.int32), False),
    "one element": (np.full((1, 1), 5, np.int32), False),
    "one element of no strides": (np.broadcast_to(np.int32(5), (1, 1)), False),
    "a number": (np.array(5, np.int32), False),
    "none": (np.broadcast_to(np.int32(5), (0, 3)), False),
    "transposed": (np.arange(6, dtype=np.int32).reshape(2, 3).T, False),
    "reversed": (LINE[::-1], False),
    "of another type": (np.broadcast_to(np.float32(0.5), (2,)), True),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_a_constant_is_a_splat_where_its_memory_is_one_element(name: str) -> None:
    array, splat = ARRAYS[name]
    builder = FoldingBuilder()
    node = builder.constant(array)
    (operation,) = builder.operations
    assert isinstance(operation.operator, Const)
    data = operation.operator.data
    assert data.splat is splat
    np.testing.assert_array_equal(data.array, array, strict=True)
    assert builder.constants[node.value] is data.array
    if splat:  # nothing is written out
        assert not any(s for s, n in zip(data.array.strides, array.shape, strict=True) if n > 1)
        assert data.text == f"dense<{array.flat[0]}>"
    else:
        assert data.array.flags.c_contiguous
        assert array.size < 2 or data.text.count(",") == array.size - 1
    assert str(node.value.type) == str(
        TensorType(array.shape, {"i": I32, "f": F32}[array.dtype.kind])
    )


def added(builder: FoldingBuilder, x: Node, y: Node) -> Value:
    elemwise: Any = OPERATORS["theano.elemwise"]
    return builder.add(elemwise((x.value, y.value), scalar_op="add"))[0]


def test_operations_on_constants_are_computed() -> None:
    builder = FoldingBuilder()
    one, many = builder.constant(np.int32([[1, 2]])), builder.constant(np.int32([[3, 4]]))
    found = added(builder, one, many)
    assert [o.operator.name for o in builder.operations] == ["const"] * 3
    np.testing.assert_array_equal(builder.constants[found], np.int32([[4, 6]]), strict=True)


def test_operations_on_arguments_are_not() -> None:
    builder = FoldingBuilder()
    one, argument = builder.constant(np.int32([[1, 2]])), Value("x", TensorType((1, 2), I32))
    found = added(builder, one, builder.node(argument))
    assert [o.operator.name for o in builder.operations] == ["const", "theano.elemwise"]
    assert found not in builder.constants


@pytest.mark.parametrize(
    ("name", "options", "operands", "limit"),
    [
        ("cvm.transpose", {}, 1, folding.MAX_MOVED),
        ("cvm.flatten", {}, 1, folding.MAX_MOVED),  # a view
        ("theano.elemwise", {"scalar_op": "add"}, 2, folding.MAX_MOVED),
        ("theano.elemwise", {"scalar_op": "exp"}, 1, folding.MAX_COMPUTED),
        ("cvm.relu", {}, 1, folding.MAX_COMPUTED),
    ],
)
def test_the_work_that_importing_may_take(
    name: str, options: dict[str, Any], operands: int, limit: int
) -> None:
    """Count the elements of operands and results together."""
    element = F32 if options.get("scalar_op") == "exp" else I32
    for elements, cheap in ((limit // (operands + 1), True), (limit // (operands + 1) + 1, False)):
        type = TensorType((elements,), element)
        values = tuple(Value(f"x{n}", type) for n in range(operands))
        operator: Any = OPERATORS[name]
        operator = operator(values, **options) if name == "theano.elemwise" else operator(values[0])
        assert is_cheap(Operation(operator, (Value("y", type),))) is cheap
