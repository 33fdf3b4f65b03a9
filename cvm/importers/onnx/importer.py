"""A graph of ONNX to operations, node by node: by a rule of the table, else by the function that
ONNX defines the operator as.

Integers that stem from `Shape` are followed as sizes, known or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cvm.dialect.ir.builder import Node
from cvm.dialect.ir.function import Value
from cvm.dialect.types.sizes import Undecided
from cvm.importers.exactness import Exactness
from cvm.importers.graph import importer as graph
from cvm.importers.graph.importer import MAX_DEPTH, GraphNode, Missing, Values
from cvm.importers.graph.rules import Because, ImportRule, Known, Made, Unsupported, real_axes

from .elements import to_array
from .exactness import of_operator
from .functions import function_body
from .rules import find_rule

# operators that keep strings as they are
MOVING = frozenset(("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))
TAKES_LABELS = MOVING | {"ai.onnx.ml.LabelEncoder"}


@dataclass
class Importer(graph.Importer):
    """The program so far."""

    system: str = "ONNX"
    unit: str = "node"
    functions: Mapping[tuple[str, str], Any] = field(
        default_factory=dict
    )  # those that the model defines
    labels: dict[Value, tuple[str, ...]] = field(
        default_factory=dict
    )  # the strings that these values are indices of

    def graph(
        self,
        nodes: Sequence[Any],
        values: Values,
        opsets: Mapping[str, int],
        kept: Set[str] = frozenset(),
    ) -> None:
        """Import nodes in their order; their outputs become values. Of the model itself, constants
        that no later node reads are released, but for those in `kept`.
        """
        if self.depth > MAX_DEPTH:
            raise Unsupported(f"functions and graphs nested more than {MAX_DEPTH} deep")
        self.depth += 1
        try:
            steps = [self.at(number, node, values, opsets) for number, node in enumerate(nodes)]
            last = {name: at for at in steps for name in at.reads()}
            for number, at in enumerate(steps):
                if self.depth == 1:
                    self.builder.span = self.places[number]
                self.add(at)
                if self.depth == 1:
                    for name in at.reads() - kept:
                        if last[name] is at and isinstance(values.get(name), np.ndarray):
                            del values[name]
        finally:
            self.depth -= 1

    def at(self, number: int, node: Any, values: Values, opsets: Mapping[str, int]) -> At:
        where = f"{node.name!r}" if node.name else f"number {number}"
        return At(self, graph_node(node), values, where, node, opsets)


@dataclass
class At(graph.At):
    """A node of the model, while it is imported."""

    importer: Importer
    node_proto: Any  # a NodeProto, of a package that is imported where it is used
    opsets: Mapping[str, int]

    def __post_init__(self) -> None:
        super().__post_init__()
        domain = self.node_proto.domain
        self.opset = self.opsets.get(domain, self.opsets.get("ai.onnx" if domain == "" else "", 1))
        self.protos = {a.name: a for a in self.node_proto.attribute}
        self.seen: set[str] = set()
        self._schema: Any = None

    @property
    def schema(self) -> Any:
        """ONNX's description of the operator in this opset; None where there is none."""
        if self._schema is None:
            import onnx

            try:
                self._schema = onnx.defs.get_schema(self.op, self.opset, self.graph_node.domain)
            except Exception:  # of an extension's own kind
                return None
        return self._schema

    def __getitem__(self, name: str) -> Any:
        """An attribute as a Python value: as given, else the schema's default, else None."""
        import onnx

        self.seen.add(name)
        if (
            (attribute := self.protos.get(name)) is None
            and self.schema is not None
            and name in self.schema.attributes
        ):
            default = self.schema.attributes[name].default_value
            attribute = default if default.name else None
        if attribute is None:
            return None
        if isinstance(value := onnx.helper.get_attribute_value(attribute), list):
            return [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value]
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def axis(self, x: Known) -> int:
        """The attribute `axis`, counted from the front."""
        return real_axes((self["axis"] or 0,), len(x.shape))[0]

    def reads(self) -> set[str]:
        """The names of values on which the node depends, those of its graphs among them."""
        names = set(self.graph_node.inputs)
        return names.union(*(reads(g) for a in self.node_proto.attribute for g in (a.g, *a.graphs)))

    def graph(self, attribute: str, *inputs: Known) -> list[Known]:
        """The outputs of a graph that is an attribute, imported where the node stands."""
        body = self[attribute]
        inner = {**self.values, **read_initializers(body)}
        inner.update(zip((v.name for v in body.input), inputs, strict=True))
        self.importer.graph(body.node, inner, self.opsets)
        outputs = [inner[v.name] for v in body.output]
        if any(isinstance(v, Missing) for v in outputs):
            raise Unsupported(f"what is in its graph {attribute}")
        return outputs

    # How it is imported

    def exactness(self) -> Exactness:
        return self.rule_exactness or of_operator(
            self.op, self.has_floats(), [self.values.get(name) for name in self.graph_node.inputs]
        )

    def run(self) -> Any:
        rule = find_rule(self.name, self.opset)
        if (self.node_proto.domain, self.op) in self.importer.functions:
            rule = None
        if rule is None:
            return self.expand()
        inputs = [self.values[name] if name else None for name in self.graph_node.inputs]
        while inputs and inputs[-1] is None:
            inputs.pop()
        arrays = all(x is None or isinstance(x, np.ndarray) for x in inputs)
        if (
            rule.symbolic is not None
            and arrays
            and any(x is not None and x.dtype == object for x in inputs)
        ):
            with suppress(Undecided):  # the rule may know what to do where a size is compared
                return as_sizes(rule.symbolic(self, *inputs))
        return self.call(rule, inputs)

    def overlooked(self) -> str:
        """An attribute that is not the default and that the rule has not looked at: it might mean
        something.
        """
        for name, attribute in self.protos.items():
            declared = self.schema.attributes.get(name) if self.schema is not None else None
            if name not in self.seen and (declared is None or declared.default_value != attribute):
                return name
        return ""

    def labels_of(self, x: object) -> tuple[str, ...] | None:
        """The strings whose indices a value holds, if it does."""
        return self.importer.labels.get(x.value) if isinstance(x, Node) else None

    def call(self, rule: ImportRule, inputs: Sequence[Any]) -> Made:
        labels = next(filter(None, map(self.labels_of, inputs)), None)
        if labels is not None and self.name not in TAKES_LABELS:
            raise Unsupported("strings")
        results = super().call(rule, inputs)
        if labels is not None and isinstance(results, Node) and self.op in MOVING:
            self.importer.labels[results.value] = labels
        if name := self.overlooked():
            raise Unsupported(f"its attribute {name}")
        return results

    def expand(self) -> Any:
        """The operations of the function that the operator is defined as: by the model, or by
        ONNX.
        """
        own = self.importer.functions.get((self.node_proto.domain, self.op))
        body, opsets = function_body(self.node_proto, self.opset, self.schema, self.values, own)
        inner = dict(
            zip(
                body.input,
                (self.values[n] if n else None for n in self.graph_node.inputs),
                strict=False,
            )
        )
        inner |= dict.fromkeys(body.input[len(self.graph_node.inputs) :])
        inner[""] = None
        before = len(self.importer.refusals)
        self.importer.graph(body.node, inner, opsets)
        if new := self.importer.refusals[before:]:
            del self.importer.refusals[before:]
            raise Because(f"its function needs {new[0].op}: {new[0].reason}")
        outputs = [inner.get(name) for name in body.output[: len(self.graph_node.outputs)]]
        for k, output in enumerate(outputs):
            if output is None and self.wants(k):
                raise Unsupported(f"output {self.graph_node.outputs[k]!r}")
        return outputs


def reads(graph: Any) -> set[str]:
    """The names of values that the nodes of a graph read, and those of the graphs in them."""
    names = {name for node in graph.node for name in node.input}
    inner = (g for node in graph.node for a in node.attribute for g in (a.g, *a.graphs))
    return names.union(*map(reads, inner))


def as_sizes(values: Any) -> Any:
    """Arrays of integers and sizes; what has become known is plain integers."""
    if isinstance(values, Node):
        return values
    if isinstance(values, (tuple, list)):
        return [as_sizes(f) for f in values]
    array = np.asarray(values)
    if array.dtype == object and all(isinstance(v, (int, np.integer)) for v in array.flat):
        return array.astype(np.int64)
    return array


def read_initializers(graph: Any, read: Mapping[int, np.ndarray] = {}) -> Values:
    """The constants of a graph by name, of which some were read before."""
    return {t.name: read[n] if n in read else to_array(t) for n, t in enumerate(graph.initializer)}


def graph_node(proto: Any) -> GraphNode:
    """A node as the importer reads it; ONNX's own domain has two names."""
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    return GraphNode(proto.op_type, proto.input, proto.output, domain)
