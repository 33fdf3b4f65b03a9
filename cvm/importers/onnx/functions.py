"""The functions that operators without a rule are defined as: the model's own, and those of ONNX's
specification.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.types.tensor_types import BY_DTYPE
from cvm.importers.graph.rules import REFUSED, Because, Unsupported

from .elements import I64, code_of

if TYPE_CHECKING:
    from cvm.importers.graph.importer import At


def function_body(at: At) -> tuple[Any, Mapping[str, int]]:
    """The function of a node's operator, its attributes filled in, and the opsets that it is
    written for.
    """
    import onnx

    if (own := at.importer.functions.get((at.node_proto.domain, at.op))) is not None:
        return with_attributes(own, at), {o.domain: o.version for o in own.opset_import}
    if at.schema is None or at.node_proto.domain not in ("", "ai.onnx"):
        raise Because("it is not an operator of ONNX" if at.schema is None else "it has no rule")
    body = onnx.FunctionProto()
    if versions := at.schema.function_opset_versions:
        version = closest(versions, at.opset)
        data: Any = at.schema.get_function_with_opset_version(version)
    elif versions := at.schema.context_dependent_function_opset_versions:
        version = closest(versions, at.opset)
        types = [
            type_proto(at.values[n]).SerializeToString() if n else b"" for n in at.node_proto.input
        ]
        node = at.node_proto.SerializeToString()
        data = at.schema.get_context_dependent_function_with_opset_version(version, node, types)
    else:
        raise Because(REFUSED.get(at.op, "it has no rule"))
    body.ParseFromString(data if isinstance(data, bytes) else data.SerializeToString())
    return with_attributes(body, at), {
        "": version,
        **{o.domain: o.version for o in body.opset_import},
    }


def closest(versions: list[int], opset: int) -> int:
    """The latest version up to an opset, or the first one: a later body of an unchanged operator
    means the same.
    """
    return max((v for v in versions if v <= opset), default=min(versions))


def type_proto(value: Any) -> Any:
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


def with_attributes(body: Any, at: At) -> Any:
    """The function with the values of its attributes in place of references to them."""
    import onnx

    function = onnx.FunctionProto()
    function.CopyFrom(body)
    attributes = {a.name: a for a in at.node_proto.attribute}
    for a in body.attribute_proto:
        attributes.setdefault(a.name, a)
    if at.schema is not None:
        for name, a in at.schema.attributes.items():
            if a.default_value.name:
                attributes.setdefault(name, a.default_value)

    def fill(nodes: Any) -> None:
        for node in nodes:
            for k in reversed(range(len(node.attribute))):
                a = node.attribute[k]
                if a.ref_attr_name and a.ref_attr_name in attributes:
                    name = a.name
                    a.CopyFrom(attributes[a.ref_attr_name])
                    a.name = name
                elif a.ref_attr_name:
                    del node.attribute[k]
                elif a.type == onnx.AttributeProto.GRAPH:
                    fill(a.g.node)

    fill(function.node)
    return function
