"""Models of TensorFlow Lite (LiteRT) to programs. The file is read by its schema; a model is never
executed.

Every operator becomes operations that compute what the reference kernels do
(`OpResolverType.BUILTIN_REF`). State (variables, and the state of SVDF) becomes arguments after the
inputs, and results after the outputs: the next call's arguments. The module has its initial
value.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

import cvm
from cvm.dialect.ir.builder import Node
from cvm.dialect.ir.function import Value
from cvm.dialect.support.compilation_context import USER_TRACEBACK
from cvm.dialect.types.sizes import Size
from cvm.dialect.types.tensor_types import TensorType
from cvm.importers import refuse, unreadable
from cvm.importers.exactness import Imported
from cvm.importers.flatbuffer import Damaged, Table, contents, options, root
from cvm.importers.graph.importer import GraphNode, Importer

from . import arithmetic, contractions, movement, softmax, state, unary
from .rules import At, Tensor, Unsupported
from .schema import OPERATORS, SCHEMA, TYPES
from .sparsity import in_place

RULES_OF = (
    arithmetic,
    contractions,
    movement,
    softmax,
    state,
    unary,
)  # which enter their rules in the table
ROUNDINGS = ("tflite_double", "single")

Sizes = Mapping[str, "Sequence[int]"]


@USER_TRACEBACK
def from_tflite(
    model: str | PathLike[str] | bytes, sizes: Sizes | None = None, rounding: str = "tflite_double"
) -> Imported:
    """Import a TensorFlow Lite (LiteRT) model as a verified module, whose function is `main`.

    The operations compute the results of LiteRT's reference kernels. State becomes further
    arguments and results; the module's `state` has its initial values. The model is not executed.

    Args:
        model: A path, or a file's bytes.
        sizes: Sizes of inputs by name, with -1 for an unknown size; by default the file's.
        rounding: `"single"` for kernels built with single rounding.

    Raises:
        ParseError: An operator cannot be imported; the message names every such operator.
    """
    return imported(model, sizes or {}, rounding)[0]


def imported(
    model: object, sizes: Sizes, rounding: str = "tflite_double"
) -> tuple[Imported, dict[str, str]]:
    """The program, and the model's names of values by those that they have in it, where these
    differ.
    """
    if rounding not in ROUNDINGS:
        raise cvm.Error(f"rounding is one of {', '.join(ROUNDINGS)}, got {rounding!r}")
    filename, data = contents(model, "<tflite>")
    try:
        return Model(filename, root(data, b"TFL3", SCHEMA, "Model"), rounding).program(sizes)
    except (ValueError, OverflowError, MemoryError) as e:
        unreadable(filename, str(e))


class Model:
    """A model while it is read."""

    def __init__(self, filename: str, model: Table, rounding: str) -> None:
        self.filename, self.model, self.rounding = filename, model, rounding
        self.to = Importer("TensorFlow Lite", "operator")
        self.states: dict[
            str, tuple[Node, Any]
        ] = {}  # by name: an argument, and its value after the call
        self.initial: dict[str, np.ndarray] = {}  # by the name of a variable
        if not model.subgraphs:
            raise Damaged("it has no graph")

    def program(self, sizes: Sizes) -> tuple[Imported, dict[str, str]]:
        graph = self.model.subgraphs[0]
        tensors = [self.tensor(t) for t in graph.tensors]
        taken: set[str] = set()
        for n, t in enumerate(tensors):  # states are told apart by their names
            if t.is_variable and t.name in taken:
                tensors[n] = replace(t, name=f"{t.name}_{n}")
            taken.add(t.name)
        values = {
            str(n): a
            for n, t in enumerate(graph.tensors)
            if (a := self.constant(t, tensors[n])) is not None
        }
        self.arguments(graph, tensors, values, sizes)
        self.operators(graph, tensors, values)
        self.to.check(self.filename)
        results = [
            self.result(values.get(str(n)), tensors[n])
            for n in self.indices(graph.outputs, tensors)
        ]
        for name, (_, after) in self.states.items():
            results.append(self.to.node(after).value)
            self.to.names[results[-1]] = name
        reference = "tflite-reference" if self.rounding == ROUNDINGS[0] else ""
        state = {node.value.name: self.initial[name] for name, (node, _) in self.states.items()}
        return self.to.imported(self.filename, results, reference, state)

    def tensor(self, t: Table) -> Tensor:
        q = t.quantization
        scales = q.scale if q is not None else np.zeros(0, np.float32)
        zeros = q.zero_point if q is not None else np.zeros(0, np.int64)
        if not 0 <= t.type < len(TYPES):
            raise Damaged(f"tensor {t.name!r} has elements of type number {t.type}")
        shape = tuple(int(n) for n in t.shape)
        if any(n < 0 for n in shape) or len(zeros) not in (0, 1, len(scales)):
            raise Damaged(
                f"tensor {t.name!r} has shape {shape}, {len(scales)} scales and "
                f"{len(zeros)} zero points"
            )
        zeros = np.broadcast_to(zeros, len(scales)) if len(zeros) == 1 else zeros
        axis = q.quantized_dimension if q is not None else 0
        return Tensor(
            t.name or f"tensor_{t.buffer}", shape, TYPES[t.type], scales, zeros, axis, t.is_variable
        )

    def constant(self, t: Table, tensor: Tensor) -> np.ndarray | None:
        """The elements of a tensor with data; None where it has none."""
        if t.buffer >= len(self.model.buffers):
            raise Damaged(
                f"tensor {tensor.name!r} refers to buffer {t.buffer} of {len(self.model.buffers)}"
            )
        buffer = self.model.buffers[t.buffer]
        data = buffer.data
        if buffer.offset > 1:  # the elements of a large model follow the flatbuffer
            data = buffer._file.numbers("u8", buffer.offset, buffer.size)
        if not (t.buffer and data.size) or tensor.type in ("STRING", "RESOURCE", "VARIANT"):
            return None
        count = int(np.prod(tensor.shape, dtype=object))
        dtype = tensor.element.dtype
        if tensor.type == "INT4":
            data = (np.stack([data << 4, data], -1).astype(np.int8) >> 4).reshape(-1)[
                : count or None
            ]
        if t.sparsity is not None and not data.nbytes % dtype.itemsize:
            elements = np.frombuffer(data.tobytes(), dtype)
            return in_place(t.sparsity, tensor.shape, elements)
        if data.nbytes != count * dtype.itemsize:
            raise Damaged(f"tensor {tensor.name!r} of shape {tensor.shape} has {data.nbytes} bytes")
        return np.frombuffer(data.tobytes(), dtype).reshape(tensor.shape)

    def indices(self, numbers: np.ndarray, tensors: Sequence[Tensor]) -> list[int]:
        if any(not 0 <= n < len(tensors) for n in numbers):
            raise Damaged(f"tensors {numbers.tolist()} of {len(tensors)}")
        return [int(n) for n in numbers]

    def arguments(
        self, graph: Table, tensors: Sequence[Tensor], values: dict[str, Any], sizes: Sizes
    ) -> None:
        inputs = self.indices(graph.inputs, tensors)
        if unknown := set(sizes) - {tensors[n].name for n in inputs}:
            refuse(
                self.filename,
                f"sizes are given of {sorted(unknown)[0]!r}, which is no input of the model",
            )
        for n in inputs:
            t = tensors[n]
            dims = sizes.get(t.name, t.shape)
            if len(dims) != len(t.shape) or not all(isinstance(d, int) and d >= -1 for d in dims):
                subject = f"input {t.name!r}, which has {len(t.shape)} dimensions"
                refuse(self.filename, f"the sizes {list(dims)} of {subject}")
            try:
                shape = tuple(Size.unknown() if d < 0 else d for d in dims)
                values[str(n)] = self.to.argument(t.name, TensorType(shape, t.element))
            except Unsupported as e:
                refuse(self.filename, f"the model cannot be imported: input {t.name!r}, of {e}")
        for n, t in enumerate(tensors):
            if t.is_variable and n not in inputs:
                values[str(n)] = self.state(t.name, t)

    def state(self, name: str, tensor: Tensor) -> Node:
        """The value before the call of a state, which becomes an argument where it is first
        read.
        """
        if name not in self.states:
            node = self.to.argument(name, TensorType(tensor.shape, tensor.element))
            self.states[name] = node, node
            zero = tensor.zero_point if tensor.type == "INT8" else 0
            self.initial.setdefault(name, np.full(tensor.shape, zero, tensor.element.dtype))
        return self.states[name][1]

    def assign(self, name: str, value: Any) -> None:
        self.states[name] = self.states[name][0], value

    def initialise(self, number: int) -> None:
        """Read the constants that a graph assigns to variables."""
        graph, handles = self.model.subgraphs[number], dict[int, str]()
        for operator, op, _ in self.kinds(graph):
            if op == "VAR_HANDLE":
                handles[operator.outputs[0]] = (
                    options(operator.builtin_options, op, SCHEMA).shared_name or "variable"
                )
                continue
            value = graph.tensors[operator.inputs[-1]] if op == "ASSIGN_VARIABLE" else None
            if (
                array := None if value is None else self.constant(value, self.tensor(value))
            ) is None:
                raise Unsupported(f"initial state that {op} computes")
            self.initial[handles[operator.inputs[0]]] = array

    def kinds(self, graph: Table) -> Iterator[tuple[Table, str, str]]:
        """The operators of a graph, each with its name and that of a custom one."""
        codes = self.model.operator_codes
        for number, operator in enumerate(graph.operators):
            if operator.opcode_index >= len(codes):
                raise Damaged(f"operator {number} has code {operator.opcode_index} of {len(codes)}")
            code = codes[operator.opcode_index]
            builtin = max(code.builtin_code, code.deprecated_builtin_code)
            op = OPERATORS[builtin] if 0 <= builtin < len(OPERATORS) else f"number {builtin}"
            yield operator, op, code.custom_code or "" if op == "CUSTOM" else ""

    def operators(self, graph: Table, tensors: Sequence[Tensor], values: dict[str, Any]) -> None:
        for number, (operator, op, name) in enumerate(self.kinds(graph)):
            ends = operator.inputs, operator.outputs
            inputs, outputs = (["" if n == -1 else str(n) for n in numbers] for numbers in ends)
            self.indices(np.array([int(n) for n in (*inputs, *outputs) if n], np.int64), tensors)
            node = GraphNode(op, inputs, outputs, domain=name)
            missing = [
                n for n in inputs if n and n not in values and tensors[int(n)].type != "RESOURCE"
            ]
            if missing:
                raise Damaged(f"operator {number} reads tensor {missing[0]} before it is computed")
            self.to.add(
                At(self.to, node, values, str(number), tensors, operator, self.rounding, self)
            )
            for n in inputs:
                if (
                    n
                    and tensors[int(n)].is_variable
                    and (name := tensors[int(n)].name) in self.states
                ):
                    self.assign(name, values[n])

    def result(self, value: Any, tensor: Tensor) -> Value:
        output = self.to.result(self.filename, tensor.name, value)
        if all(a.value is not output for a in self.to.arguments):
            self.to.names[output] = tensor.name  # in the place of its number
        return output


__all__ = ["from_tflite", "imported"]
