"""The functions that operators without a rule are defined as: the model's own, and those of ONNX's
specification.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import BY_DTYPE
from cvm.importers.graph.rules import Because, Unsupported

from .elements import I64, code_of
from .rules import REFUSED


def function_body(
    node: Any, opset: int, schema: Any, values: Mapping[str, Any], own: Any = None
) -> tuple[Any, Mapping[str, int]]:
    """The function of a node's operator, its attributes filled in, and the opsets that it is
    written for; `own` is the one that the model defines.
    """
    import onnx

    if own is not None:
        return with_attributes(own, node, schema), {o.domain: o.version for o in own.opset_import}
    if schema is None or node.domain not in ("", "ai.onnx"):
        is_known = schema is not None
        reason = REFUSED.get(node.op_type, "it has no rule")
        raise Because(reason if is_known else "it is not an operator of ONNX")
    body = onnx.FunctionProto()
    if versions := schema.function_opset_versions:
        version = closest(versions, opset)
        data: Any = schema.get_function_with_opset_version(version)
    elif versions := schema.context_dependent_function_opset_versions:
        version = closest(versions, opset)
        types = [type_proto(values[n]).SerializeToString() if n else b"" for n in node.input]
        data = schema.get_context_dependent_function_with_opset_version(
            version, node.SerializeToString(), types
        )
    else:
        raise Because(REFUSED.get(node.op_type, "it has no rule"))
    body.ParseFromString(data if isinstance(data, bytes) else data.SerializeToString())
    return with_attributes(body, node, schema), {
        "": version,
        **{o.domain: o.version for o in body.opset_import},
    }


def closest(versions: list[int], opset: int) -> int:
    """The latest version up to an opset, or the first one: a later body of an unchanged operator
    means the same.
    """
    return max((v for v in versions if v <= opset), default=min(versions))


def type_proto(value: object) -> Any:
    import onnx

    if not isinstance(value, (Node, np.ndarray)):
        raise Unsupported("a sequence")
    element = (
        value.element
        if isinstance(value, Node)
        else I64
        if value.dtype == object
        else BY_DTYPE[value.dtype]
    )
    shape = [n if isinstance(n, int) else None for n in value.shape]
    return onnx.helper.make_tensor_type_proto(code_of(element), shape)


def with_attributes(body: Any, node: Any, schema: Any) -> Any:
    """The function with the values of its attributes in place of references to them."""
    import onnx

    function = onnx.FunctionProto()
    function.CopyFrom(body)
    attributes = {a.name: a for a in node.attribute}
    for a in body.attribute_proto:
        attributes.setdefault(a.name, a)
    if schema is not None:
        for name, a in schema.attributes.items():
            if a.default_value.name:
                attributes.setdefault(name, a.default_value)

    def fill(nodes: Any) -> None:
        for inner in nodes:
            for k in reversed(range(len(inner.attribute))):
                a = inner.attribute[k]
                if a.ref_attr_name and a.ref_attr_name in attributes:
                    name = a.name
                    a.CopyFrom(attributes[a.ref_attr_name])
                    a.name = name
                elif a.ref_attr_name:
                    del inner.attribute[k]
                elif a.type == onnx.AttributeProto.GRAPH:
                    fill(a.g.node)

    fill(function.node)
    return function
