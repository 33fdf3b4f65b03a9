"""ONNX models to programs: networks of floats, such as convolutional ones for images, operation by operation.

The rules for operators are in `onnx_elements`, `onnx_layers` and `onnx_shapes`. Reading files is the `onnx` package's work.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

import cvm
from cvm.dialect.ir.sizes import Dim, Size
from cvm.dialect.ir.types import BY_DTYPE, TensorType
from cvm.dialect.program.builder import Node
from cvm.dialect.program.module import Function, Module, Value
from cvm.dialect.program.verify import verify
from cvm.lowering.graph.dce import dce

from . import onnx_elements, onnx_layers, onnx_shapes, refuse
from .onnx_rules import OPERATIONS, Importer, Unsupported

RULES = onnx_elements, onnx_layers, onnx_shapes  # which enter theirs in OPERATIONS


def import_onnx(path: Path, archive: str | None) -> tuple[Module, dict[str, np.ndarray]]:
    """The model as a function @main, and the constants that it reads from the archive; without one they are in the text."""
    try:
        import onnx
    except ImportError:
        raise cvm.Error("ONNX models need the onnx package: pip install 'cvm-lang[onnx]'") from None
    try:
        model = onnx.load(str(path))
        onnx.checker.check_model(model)
    except OSError as e:
        refuse(str(path), f"the model cannot be read: {(e.strerror or str(e)).lower()}")
    except Exception as e:  # whatever the package finds wrong with a file
        said = str(e).strip().splitlines() or [type(e).__name__]
        refuse(str(path), f"the model cannot be read: {said[0]}")
    missing = sorted(
        {n.op_type for n in model.graph.node if n.domain not in ("", "ai.onnx") or n.op_type not in OPERATIONS}
    )
    if missing:
        refuse(str(path), f"the model has operators that are not taken: {', '.join(missing)}")
    to = Importer(archive)
    to.values |= {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    arguments = [_argument(path, v) for v in model.graph.input if v.name not in to.values]
    to.values |= {v.name: to.builder.node(v) for v in arguments}
    for number, node in enumerate(model.graph.node):
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        given = [to.values[name] if name else None for name in node.input]
        where = f"node {number}, {node.op_type} {node.name!r}"
        try:
            found = OPERATIONS[node.op_type](to, given, {**attributes, "op_type": node.op_type})
        except (Unsupported, NotImplementedError) as e:
            refuse(str(path), f"{where}: {e} is not taken")
        except cvm.Error as e:
            refuse(str(path), f"{where}: {e.diagnostics[0].message}")
        except (ValueError, TypeError, KeyError, IndexError, OverflowError) as e:
            refuse(str(path), f"{where} is not as ONNX defines it: {e}")
        if any(node.output[1:]):
            refuse(str(path), f"{where}: further outputs are not taken")
        if isinstance(found, Node) and not any(found is g for g in given):
            found.value.name = _name(node.output[0])
        to.values[node.output[0]] = found
    results = [to.node(to.values[v.name]).value for v in model.graph.output]
    function = dce(Function("main", tuple(arguments), tuple(to.builder.operations), tuple(results)))
    return verify(Module({"main": function}, str(path))), to.constants


def _name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", name)[:60] or "v"


def _argument(path: Path, given: Any) -> Value:
    import onnx

    tensor = given.type.tensor_type
    try:
        element = BY_DTYPE[np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))]
    except (KeyError, TypeError):
        refuse(str(path), f"the elements of input {given.name!r} are of a type that is not taken")
    shape: list[Dim] = []
    for d in tensor.shape.dim:
        known_name = re.sub(r"[^A-Z0-9_]", "", d.dim_param.upper())
        shape.append(
            d.dim_value
            if d.HasField("dim_value")
            else Size.named(known_name)
            if known_name[:1].isalpha()
            else Size.unknown()
        )
    return Value(_name(given.name), TensorType(tuple(shape), element))
