"""ONNX models with mistakes in them: a program or a diagnostic, never anything else, and soon."""

from __future__ import annotations

import random
from typing import Any

import pytest
import tiers

pytest.importorskip("onnx")

import onnx
from onnx import helper
from onnx_node_tests import node_tests

import cvm

NUMBERS = (-1, 0, 1, 2, 3, -2, 7, 1 << 31, 1 << 40, 1 << 62, -(1 << 62))
ELEMENTS = (1, 6, 7, 9, 10, 11, 2, 3)
TIMES = 600 if tiers.everything else 200


def mutate(chance: random.Random, model: Any) -> None:
    """Changes an attribute, or the type of an input, or the inputs of a node."""
    node = chance.choice(model.graph.node)
    inputs = [v.type.tensor_type for v in model.graph.input]
    attribute = chance.choice(node.attribute) if node.attribute else None
    match chance.randrange(6):
        case 0 if attribute is not None:
            match attribute.type:
                case onnx.AttributeProto.INT:
                    attribute.i = chance.choice(NUMBERS)
                case onnx.AttributeProto.INTS if attribute.ints:
                    attribute.ints[chance.randrange(len(attribute.ints))] = chance.choice(NUMBERS)
                case onnx.AttributeProto.FLOAT:
                    attribute.f = chance.choice((0.0, -1.0, float("nan"), 1e30))
                case onnx.AttributeProto.STRING:
                    attribute.s += b"x"
        case 1 if attribute is not None:
            node.attribute.remove(attribute)
        case 2 if attribute is not None and attribute.type == onnx.AttributeProto.INTS:
            attribute.ints.append(chance.choice(NUMBERS))
        case 3 if inputs and (shape := chance.choice(inputs).shape).dim:
            dim = chance.choice(shape.dim)
            if chance.random() < 0.5:
                dim.dim_value = chance.choice((0, 1, 2, 5, 1 << 20, 1 << 33))
            else:
                dim.dim_param = chance.choice("NM")
        case 4 if inputs:
            chance.choice(inputs).elem_type = chance.choice(ELEMENTS)
        case 5 if len(node.input) > 1:
            first, second = chance.sample(range(len(node.input)), 2)
            node.input[first], node.input[second] = node.input[second], node.input[first]


def test_mutated_models() -> None:
    chance = random.Random(0)
    models = [case.model for case in node_tests()]
    imported = refused = 0
    for _ in range(TIMES):
        model = onnx.ModelProto()
        model.CopyFrom(chance.choice(models))
        for _ in range(chance.randint(1, 3)):
            mutate(chance, model)
        try:
            cvm.from_onnx(model)
            imported += 1
        except cvm.ParseError as e:
            assert e.diagnostics[0].message
            refused += 1
    assert imported > TIMES / 5 and refused > TIMES / 5


def test_a_constant_with_other_than_its_elements() -> None:
    """The checker of the package takes two elements for a scalar, if they do not stand in the raw
    data.
    """
    tensor = helper.make_tensor("c", onnx.TensorProto.FLOAT, [2], [1.0, 2.0])
    del tensor.dims[:]
    info = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [])
    graph = helper.make_graph([helper.make_node("Neg", ["c"], ["y"])], "g", [], [info], [tensor])
    with pytest.raises(cvm.Error, match=r"the model cannot be imported: .*2 into shape"):
        cvm.from_onnx(helper.make_model(graph))
