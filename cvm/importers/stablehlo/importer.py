"""The operations of a StableHLO module while they are imported, region by region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.support.diagnostics import Source, Span
from cvm.dialect.support.limits import LIMITS, excess
from cvm.dialect.types.sizes import Dim, Size, same_size
from cvm.dialect.types.tensor_types import I1, ElementType, TensorType
from cvm.importers.exactness import EXACT, Exactness
from cvm.importers.graph import importer as graph
from cvm.importers.graph.elementwise import ufunc
from cvm.importers.graph.importer import MAX_DEPTH, GraphNode, Importer
from cvm.importers.graph.rules import Because, ImportRule, Items, Parameter, Unsupported, table

from .text import Block, Operation, Wrong, typed

RULES: dict[str, ImportRule] = {}
rule = table(RULES)
OUTSIDE = "it needs more than one device, or effects in an order"
REFUSED = {
    **dict.fromkeys(
        (
            *("after_all", "all_gather", "all_reduce", "all_to_all", "async_done", "async_start"),
            *("collective_broadcast", "collective_permute", "create_token", "infeed", "outfeed"),
            *("partition_id", "recv", "reduce_scatter", "replica_id", "send"),
        ),
        OUTSIDE,
    ),
    **dict.fromkeys(("uniform_quantize", "uniform_dequantize"), "quantized types are not imported"),
    "rng": "its numbers are not reproducible; rng_bit_generator's are",
}
SIZES = {  # operators that compute on sizes, which may be unknown
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "convert": lambda x: x,
}


@dataclass
class Reader(Importer):
    """The program so far."""

    functions: Mapping[str, Operation] = field(default_factory=dict)
    source: Source = field(default_factory=lambda: Source("", ""))
    count: int = 0  # of operations, those of a region once for each time that it is taken

    def block(
        self, block: Block, arguments: Sequence[Any], values: Mapping[str, Any], lift: int = 0
    ) -> list[Any]:
        """The results of a region for these arguments; it sees the values around it. With `lift`,
        rank 0 stands for elements of tensors of that rank.
        """
        if self.depth > MAX_DEPTH:
            raise Unsupported(f"a region or call more than {MAX_DEPTH} deep in others")
        if not block.operations:
            raise Unsupported("a region without operations")
        *body, last = block.operations
        if last.name.rpartition(".")[2] != "return":
            raise Unsupported("a region that does not return")
        if len(arguments) != len(block.arguments):
            raise ValueError(
                f"a region of {len(block.arguments)} arguments is given {len(arguments)}"
            )
        self.count += len(body)
        if self.count > LIMITS.get().operations:
            raise Because(excess("operations", self.count))
        inside = {**values}
        for (name, _), x in zip(block.arguments, arguments, strict=True):
            inside[name] = x
        span, self.depth = self.builder.span, self.depth + 1
        try:
            for o in body:
                line = str(self.source.place(o.head.start)[0])
                name = o.name.removeprefix("stablehlo.")
                self.builder.span = Span(self.source, o.head.start, o.head.end)
                self.add(At(self, GraphNode(name, o.operands, o.results), inside, line, o, lift))
        finally:
            self.builder.span, self.depth = span, self.depth - 1
        missing = [n for n in last.operands if n not in inside]
        if missing:
            raise ValueError(f"{missing[0]} is nowhere defined")
        return [inside[n] for n in last.operands]


@dataclass
class At(graph.At):
    """An operation while it is imported."""

    importer: Reader
    operation: Operation
    lift: int = 0  # the rank of the tensors of which a region computes elements; 0 outside of such
    rule_exactness: Exactness | None = field(default=EXACT, kw_only=True)
    rules, refused = RULES, REFUSED

    def run(self) -> Any:
        if undefined := [n for n in self.graph_node.inputs if n not in self.values]:
            raise ValueError(f"{undefined[0]} is nowhere defined")
        inputs = [self.values[n] for n in self.graph_node.inputs]
        arrays = all(isinstance(v, np.ndarray) for v in inputs)
        if self.op in SIZES and arrays and any(_is_sizes(v) for v in inputs):
            return SIZES[self.op](*(v.astype(object) for v in inputs))
        try:
            result = super().run()
            results = [result] if isinstance(result, (Node, np.ndarray, Items)) else list(result)
            if len(results) != len(self.graph_node.outputs):
                raise ValueError(f"it has {len(results)} results")
            return (
                [
                    self.agreed(x, t)
                    for x, t in zip(results, self.operation.result_types, strict=False)
                ]
                if self.operation.result_types
                else results
            )
        except Wrong as e:
            raise Because(e.args[0]) from None

    def agreed(self, x: Any, token: Any) -> Any:
        """A result, which has the type that the module says."""
        if isinstance(x, Items) or token.text.startswith(("tuple", "!")):
            return x
        stated = typed(token)
        if isinstance(x, np.ndarray) and x.dtype == object:
            return x
        x = self.node(x)
        sizes = zip(x.shape, stated.shape, strict=False)
        differ = not self.lift and (
            x.rank != stated.rank
            or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in sizes)
        )
        if differ or x.element is not stated.element:
            raise Because(f"its result is {x.array_type}, the module says {stated}")
        return x

    def convert(self, parameter: Parameter, value: Any) -> Any:
        if parameter.kind == "Node" and isinstance(value, (np.ndarray, Node)):
            node = self.node(value)
            if _is_sizes(value):
                place = next(
                    k for k, n in enumerate(self.graph_node.inputs) if self.values[n] is value
                )
                node = node.cast(self.operand_type(place).element)
            if self.lift and not node.rank:
                node = node.dimshuffle(["x"] * self.lift)
            return node
        return super().convert(parameter, value)

    def operand_type(self, place: int) -> TensorType:
        types = self.operation.types
        return typed(types[min(place, len(types) - 1)])

    @property
    def type(self) -> TensorType:
        """The type of the first result."""
        if not self.operation.result_types:
            raise ValueError("it has no type")
        return typed(self.operation.result_types[0])

    @property
    def element(self) -> ElementType:
        return self.type.element

    # Attributes

    def has(self, name: str) -> bool:
        return name in self.operation.attributes

    def attribute(self, *names: str, default: Any = None) -> Any:
        """An attribute by its name in the generic form, or in the pretty one."""
        for name in names:
            if name in self.operation.attributes:
                return self.operation.attributes[name]
        if default is None:
            raise ValueError(f"it has no attribute {names[0]}")
        return default

    def ints(self, *names: str, default: Any = None) -> tuple[int, ...]:
        value = self.attribute(*names, default=default)
        found = np.asarray(value).reshape(-1).tolist() if len(np.shape(value)) else [value]
        if not all(isinstance(n, int) for n in found):
            raise ValueError(f"{names[0]} holds integers, got {value!r}")
        return tuple(map(int, found))

    def demand(self, number: int, said: str, holds: bool, got: object) -> None:
        """A constraint of the specification, by its number there."""
        if not holds:
            raise Because(f"stablehlo.{self.op}.C{number}: expected {said}, got {got}")

    # Regions

    def region(self, number: int, arguments: Sequence[Any] = (), lift: int = 0) -> list[Any]:
        if number >= len(self.operation.regions):
            raise ValueError(f"it has {len(self.operation.regions)} regions")
        return self.importer.block(
            self.operation.regions[number], arguments, self.values, lift or self.lift
        )

    def called(self, name: str, arguments: Sequence[object]) -> list[Any]:
        """The results of a function of the module."""
        if (function := self.importer.functions.get(name)) is None:
            raise Because(f"{name} is no function of the module")
        return self.importer.block(function.regions[0], arguments, {}, self.lift)

    def reads(self) -> set[Any]:
        """The keys of the values on which the node depends, those that its regions see as well."""
        found = set(self.graph_node.inputs)
        waiting = [*self.operation.regions]
        while waiting:
            for o in waiting.pop().operations:
                found.update(o.operands)
                waiting += o.regions
        return found


def _is_sizes(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object


def spread(at: At, x: Node, shape: Sequence[Dim]) -> Node:
    """A value repeated to a shape: of rank 0, or of the same rank with sizes of 1."""
    if not x.rank:
        x = x.dimshuffle(["x"] * len(shape))
    if all(same_size(n, m) for n, m in zip(x.shape, shape, strict=True)):
        return x
    array = at.importer.builder.constants.get(x.value)
    if array is not None and array.size == 1 and not any(isinstance(n, Size) for n in shape):
        return at.node(np.broadcast_to(array.reshape(()), shape))  # type: ignore[arg-type]
    if x.element is I1:
        return ufunc("logical_or", at.like(shape), x)
    return at.like(shape).scalar("second", x).cast(x.element)


def scalar_like(x: Node, value: complex) -> Node:
    """A number of rank 0 in a value's type."""
    return x.constant(np.array(value).astype(x.element.dtype))


def choose(condition: Node, a: Node, b: Node) -> Node:
    """Elements of two values of one type."""
    return ufunc("where", condition, a, b)
