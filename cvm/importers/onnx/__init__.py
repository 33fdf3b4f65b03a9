"""ONNX models to programs. Reading files is the `onnx` package's work; a model is never
executed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import accumulate, count
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cvm.dialect.ir.function import Value
from cvm.dialect.support.compilation_context import USER_TRACEBACK
from cvm.dialect.support.diagnostics import Source, Span
from cvm.dialect.types.sizes import Dim, Size
from cvm.dialect.types.tensor_types import BY_DTYPE, TensorType
from cvm.importers import printable, refuse
from cvm.importers.exactness import Imported
from cvm.importers.graph.rules import Because, Unsupported

from .elements import element_of
from .importer import Importer, read_initializers
from .qdq import fuse_qdq
from .reading import read_model

# the modules that fill the table of rules
RULES = """
control_flow_and_recurrence elementwise gather_scatter_topk linear_models matmul_conv_pool microsoft
movement preprocessing quantized reductions_and_normalization resize sequences signal
support_vectors transformers tree_ensembles
"""
for _module in RULES.split():
    import_module(f".{_module}", __name__)

INT64 = 7  # the number of the type that sizes have in ONNX
Sizes = Mapping[str, "int | Sequence[int | str]"]
Constants = Mapping[str, ArrayLike]


@USER_TRACEBACK
def from_onnx(
    model: str | PathLike[str] | bytes | object,
    sizes: Sizes | None = None,
    constants: Constants | None = None,
    *,
    mmap: bool = False,
) -> Imported:
    """Import an ONNX model as a verified module, whose function is `main`.

    The model is not executed; its data is read from its own folder only. Labels that are strings
    become their i64 indices; the strings are in the module's `labels`, by the name of the output.

    Args:
        model: A path, a file's bytes, or a model of the `onnx` package.
        sizes: Sizes of inputs that the model leaves open, by the name of a dimension (`{"N": 1}`)
            or by the name of an input (`{"image": [1, 3, 224, 224]}`).
        constants: Values of inputs that become constants of the program.
        mmap: Map weights in files beside the model instead of reading them: they take memory as
            they are used, and must not change while the module exists.

    Raises:
        ParseError: A node cannot be imported; the message names every such node.
    """
    return imported(model, sizes or {}, constants or {}, mmap=mmap)[0]


def imported(
    model: Any,
    sizes: Sizes,
    constants: Constants,
    unrolled_steps: int = Importer.unrolled_steps,
    mmap: bool = False,
    named: str = "",
) -> tuple[Imported, dict[str, str]]:
    """The program, and ONNX's names of values by those that they have in it, where these differ;
    diagnostics name the file, or another source.
    """
    filename, proto, arrays = read_model(model, mmap)
    filename = named or filename
    to = Importer(
        functions={(f.domain, f.name): f for f in proto.functions}, unrolled_steps=unrolled_steps
    )
    opsets = {o.domain: o.version for o in proto.opset_import}
    try:
        values = read_initializers(proto.graph, arrays)
        arrays.clear()  # the values keep them as long as they are read
        dims = Dimensions(proto.graph, sizes)
        input_constants = given_constants(proto.graph, constants)
        for v in proto.graph.input:
            if v.name in input_constants:
                values[v.name] = input_constants[v.name]
            elif v.name not in values:
                values[v.name] = to.argument(v.name, dims.type_of(v))
    except (
        Unsupported,
        ValueError,
    ) as e:  # of a tensor whose elements are not as many as its shape says
        refuse(filename, f"the model cannot be imported: {e}")
    nodes = fuse_qdq(proto.graph, values, opsets.get("", 1))
    to.places = listed(nodes, filename)
    to.graph(nodes, values, opsets, {v.name for v in proto.graph.output})
    to.check(filename)
    results: list[Value] = []
    for v in proto.graph.output:
        value = values.get(v.name)
        if isinstance(value, np.ndarray) and value.dtype == object:  # sizes, of whatever type
            element = element_of(v.type.tensor_type.elem_type or INT64)
            value = to.node(value).cast(element)
        results.append(to.result(filename, v.name, value))
        to.names.setdefault(results[-1], v.name)
    labels = {
        v.name: to.labels[value]
        for v, value in zip(proto.graph.output, results, strict=True)
        if value in to.labels
    }
    module, renamed = to.imported(filename, results, "onnxruntime")
    return replace(module, labels=labels), renamed


def listed(nodes: Sequence[Any], filename: str) -> list[Span]:
    """The places of nodes in a text of a line for each, for diagnostics and profiles."""
    outputs = [", ".join(n.output) for n in nodes]
    texts = [f"{n.op_type}({', '.join(n.input)})  // {n.op_type}" for n in nodes]
    lines = [
        printable(f"{out} = {text} {n.name or out}")
        for out, text, n in zip(outputs, texts, nodes, strict=True)
    ]
    source, ends = (
        Source(filename, "\n".join(lines)),
        list(accumulate(len(line) + 1 for line in lines)),
    )
    return [
        Span(source, end - len(line) - 1, end - 1) for line, end in zip(lines, ends, strict=True)
    ]


class Dimensions:
    """The sizes of inputs: as the model states them, as the caller gives them by name or by input,
    or not known.
    """

    def __init__(self, graph: Any, sizes: Sizes) -> None:
        self.sizes = dict(sizes)
        self.symbols: dict[str, Size] = {}
        stated = {
            d.dim_param for v in graph.input for d in v.type.tensor_type.shape.dim if d.dim_param
        }
        named = sorted(stated | {v.name for v in graph.input})
        if unused := sorted(set(sizes).difference(named)):
            raise Because(
                f"a size is of an input or a dimension of one, {', '.join(named)}, got "
                f"{unused[0]!r}"
            )

    def type_of(self, info: Any) -> TensorType:
        if (kind := info.type.WhichOneof("value")) != "tensor_type":
            raise Unsupported(f"input {info.name!r}, a {str(kind).removesuffix('_type')},")
        tensor = info.type.tensor_type
        element = element_of(tensor.elem_type)
        sizes = self.sizes.get(info.name)
        stated = list(tensor.shape.dim)
        if isinstance(sizes, Sequence) and not isinstance(sizes, str):
            if tensor.HasField("shape") and len(sizes) != len(stated):
                raise Unsupported(
                    f"{len(sizes)} sizes for input {info.name!r} of {len(stated)} dimensions"
                )
            return TensorType(tuple(self.caller_size(info.name, n) for n in sizes), element)
        if not tensor.HasField("shape"):
            raise Because(f"its input {info.name!r} has no shape; give its sizes")
        return TensorType(tuple(map(self.size, stated)), element)

    def caller_size(self, name: str, n: object) -> Dim:
        if isinstance(n, str):
            return self.named(n)
        if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < -1:
            raise Unsupported(f"a size {n!r} of input {name!r}")
        return int(n) if n >= 0 else Size.unknown()

    def size(self, d: Any) -> Dim:
        if any(c.isalnum() for c in d.dim_param):
            return self.named(d.dim_param)
        return d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else Size.unknown()

    def named(self, name: str) -> Dim:
        if (n := self.sizes.get(name)) is not None:
            return self.caller_size(name, n)
        if name not in self.symbols:
            plain = re.sub(r"[^A-Z0-9_]", "_", name.upper())
            plain = plain if plain[:1].isalpha() else f"N{plain}"
            used = {s.name for s in self.symbols.values()}
            free = next(p for k in count() if (p := plain if not k else f"{plain}_{k}") not in used)
            self.symbols[name] = Size.named(free)
        return self.symbols[name]


def given_constants(graph: Any, constants: Constants) -> dict[str, np.ndarray]:
    """The inputs that are constants, in the types that the model states of them."""
    inputs = {v.name: v.type.tensor_type for v in graph.input}
    arrays: dict[str, np.ndarray] = {}
    for name, value in constants.items():
        if name not in inputs:
            raise Unsupported(f"a constant {name!r}, which is no input of the model,")
        array = np.asarray(value)
        element = element_of(inputs[name].elem_type)
        if array.dtype not in BY_DTYPE or not np.can_cast(array.dtype, element.dtype, "same_kind"):
            raise Unsupported(f"a constant {name!r} of {array.dtype} for {element}")
        arrays[name] = array.astype(element.dtype)
    return arrays


__all__ = ["from_onnx", "imported"]
