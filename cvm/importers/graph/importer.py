"""The import of a model's graph to operations of a program, node by node, by a table of rules.

Each format fills the nodes, and says how values are named. Operations on constants are evaluated by
the reference. Arrays of objects hold sizes, of which some are not known. Nodes that cannot be
imported are collected, and reported together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from operator import mul
from typing import Any, ClassVar

import numpy as np

import cvm
from cvm.dialect.ir.builder import Node
from cvm.dialect.ir.function import Function, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.verify import verify
from cvm.dialect.support.diagnostics import Note, Span
from cvm.dialect.support.limits import LIMITS, excess
from cvm.dialect.types.sizes import Dim, Size, Undecided, same_size
from cvm.dialect.types.tensor_types import BY_DTYPE, I32, I64, MAX_SIZE, TensorType, kind_of
from cvm.importers import Names, refuse
from cvm.importers.exactness import Exactness, Imported, ImportedOperator, live
from cvm.lowering.graph.dce import dce
from cvm.lowering.graph.inline import reached
from cvm.lowering.pass_context import Context

from .folding import FoldingBuilder
from .rules import (
    Array,
    Because,
    ImportRule,
    Items,
    Known,
    Made,
    Parameter,
    Unsupported,
)

MAX_DEPTH = 32  # of functions and graphs inside each other
SHOWN = 5  # operators of one kind that are refused


class Missing:
    """The value of a node that cannot be imported; nodes that need it are not looked at."""


MISSING = Missing()
Values = dict[str, Any]


@dataclass(frozen=True)
class Refusal:
    """The reason why a node cannot be imported."""

    op: str
    reason: str
    node: str
    span: Span | None = None


@dataclass
class Importer:
    """The program so far."""

    system: str
    unit: str  # what the system calls an operator of a model
    used: Names = field(default_factory=Names)
    builder: FoldingBuilder = field(default_factory=lambda: FoldingBuilder(prefix="v"))
    refusals: list[Refusal] = field(default_factory=list)
    needed: set[str] = field(default_factory=set)  # inputs that would have to be constants
    names: dict[Any, str] = field(default_factory=dict)  # the model's names of values
    arguments: list[Node] = field(default_factory=list)
    constants: dict[int, tuple[Array, Node]] = field(default_factory=dict)
    bodies: dict[str, Function] = field(default_factory=dict)  # of loops
    places: Sequence[Span] = ()  # of the graph's nodes, in a text that lists them
    unrolled_steps: int = (
        4  # of a loop, at most: a few copies of its body are smaller and faster than a loop over it
    )
    depth: int = 0
    operators: list[ImportedOperator] = field(default_factory=list)

    def node(self, value: Known) -> Node:
        """The value as one of the program; a constant becomes an operation."""
        if isinstance(value, Node):
            return value
        if not isinstance(value, np.ndarray):
            raise Unsupported("a sequence, or nothing, in the place of a tensor")
        if id(value) in self.constants:
            return self.constants[id(value)][1]
        if value.dtype == object and not all(isinstance(v, int) for v in value.flat):
            return self._sizes(value)
        array = value.astype(np.int64) if value.dtype == object else value
        if array.dtype not in BY_DTYPE:
            raise Unsupported(f"elements of type {array.dtype}")
        node = self.builder.constant(array)
        self.constants[id(value)] = value, node
        return node

    def _sizes(self, value: Array) -> Node:
        """Sizes as elements: how many there are along an axis of something that long, counted."""
        counts = [
            self.node(np.array(v, np.int64)) if isinstance(v, int) else self._count(v)
            for v in value.flat
        ]
        rows = [n.dimshuffle(["x"]) for n in counts]
        joined = self.builder.apply("cvm.concatenate", *rows, axis=0) if len(rows) > 1 else rows[0]
        if value.shape:
            return self.builder.apply("cvm.reshape", joined, target_shape=value.shape)
        return self.builder.apply("cvm.squeeze", joined)

    def _count(self, size: Size) -> Node:
        """A size as an i64 number, computed of the sizes that it depends on."""
        known = {atom: self._elements(Size.of_atom(atom)) for atom in size.atoms()}
        extremes = {"max": self._extreme("maximum"), "min": self._extreme("minimum")}
        return size.evaluate(known, {"*": mul, "//": self._floordiv, **extremes})

    def _extreme(self, name: str) -> Callable[..., Node]:
        """The larger or the smaller one of two sizes."""
        return lambda a, b: self.node(np.array(a, object) if isinstance(a, int) else a).scalar(
            name, b
        )

    def _elements(self, size: Size) -> Node:
        """The elements along an axis of an argument, counted."""
        ones = self.like((size,)).scalar("second", 1).cast(I64)
        return ones.sum((0,), dtype=I64, acc_dtype=I64)

    def _floordiv(self, a: int | Node, b: int | Node) -> Node:
        """The quotient of sizes, 0 of what is divided by 0."""
        x, y = (self.node(np.array(n, np.int64)) if isinstance(n, int) else n for n in (a, b))
        if isinstance(b, int) and b > 0:
            return self.builder.apply("dali.floordiv", x, y).cast(I64)
        whole = self.builder.apply("dali.floordiv", x, y.scalar("maximum", 1)).cast(I64)
        return y.scalar("eq", 0).scalar("switch", y.scalar("second", 0).cast(I64), whole)

    def like(self, shape: Sequence[Dim]) -> Node:
        """Something of this shape, of which only the shape matters."""
        static_shape = tuple(n for n in shape if isinstance(n, int))
        if len(static_shape) == len(shape):
            return self.builder.constant(np.broadcast_to(np.zeros((), bool), static_shape))
        rank = len(shape)
        rows = (
            self._row(n).dimshuffle([*["x"] * axis, 0, *["x"] * (rank - axis - 1)])
            for axis, n in enumerate(shape)
        )
        return reduce(lambda found, row: found.scalar("or_", row), rows)

    def _row(self, n: Dim) -> Node:
        """As many zeros as a size says, which is a sum of sizes of arguments, of their products,
        and of their quotients by numbers.
        """
        if isinstance(n, int):
            return self.node(np.zeros(n, bool))
        for x in self.arguments:
            for axis, m in enumerate(x.shape):
                if same_size(m, n):
                    unit = self.node(np.zeros((1,) * x.rank, bool))
                    row = self.builder.apply("builtin.strided_slice_like", unit, x, axes=(axis,))
                    return row.dimshuffle([axis]) if x.rank > 1 else row
        if n.constant:
            return self.builder.apply(
                "builtin.pad", self._row(n - n.constant), before=(0,), after=(n.constant,)
            )
        parts = [(Size(((atom, 1),)), factor) for atom, factor in n.terms]
        if all(f > 0 for _, f in parts) and (len(parts) > 1 or parts[0][1] > 1):
            rows = [self._row(atom) for atom, _ in parts]
            rows = [
                self.builder.apply("cvm.tile", r, reps=(f,))
                for r, (_, f) in zip(rows, parts, strict=True)
            ]
            return (
                rows[0] if len(rows) == 1 else self.builder.apply("cvm.concatenate", *rows, axis=0)
            )
        match n.terms:
            case ((("*", a, b), 1),):
                return self.builder.apply("builtin.reshape", self.like((a, b)), merge=(2,))
            case ((("//", a, int(b)), 1),) if b > 0:
                every = {"begin": (b - 1,), "end": (MAX_SIZE,), "strides": (b,)}
                return self.builder.apply("cvm.slice", self._row(a), **every)
            case (((("min", int(c), a) | ("min", a, int(c))), 1),) if c >= MAX_SIZE:
                return self._row(a)  # of a slice to the end
        less: Dim = 0
        for atom, f in parts:
            less = less + atom * -f if f < 0 else less
        if less and any(f > 0 for _, f in parts):
            # how many windows as long as the smaller part there are in the larger one
            whole, window = (self.like((1, 1, 1, size + 1)).cast(I32) for size in (n + less, less))
            windows = self.builder.apply("cvm.conv2d", whole, window)
            row = self.builder.apply("builtin.pad", windows, before=(0,) * 4, after=(0, 0, 0, -1))
            return row.dimshuffle([3]).scalar("neq", 0)
        raise Unsupported("a size that is computed of unknown ones")

    def inputs_of(self, node: Node) -> set[str]:
        """The names of the model's inputs on which a value depends."""
        needed = {node.value}
        for operation in reversed(self.builder.operations):
            if needed.intersection(operation.results):
                needed.update(v for _, v in operation.operator.operands())
        return {self.names[a.value] for a in self.arguments if a.value in needed}

    def argument(self, name: str, type: TensorType) -> Node:
        """The next argument of the program, of this name in the model."""
        argument = Value(self.used.of(name), type)
        self.names[argument] = name
        self.arguments.append(self.builder.node(argument))
        return self.arguments[-1]

    def check(self, filename: str) -> None:
        """Refuse the model with all that cannot be imported: a note for each kind of it."""
        kinds: dict[tuple[str, str], list[Refusal]] = {}
        for r in self.refusals:
            kinds.setdefault((r.op, r.reason), []).append(r)
        notes: list[Note] = []
        for (op, reason), group in sorted(kinds.items(), key=lambda kind: -len(kind[1])):
            places = [*dict.fromkeys(r.node for r in group)]
            more = f", and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
            where = f"{self.unit}{'s' * (len(places) > 1)} {', '.join(places[:SHOWN])}{more}"
            notes.append(Note(f"{len(group)} x {op}: {reason} ({where})", group[0].span))
        if self.needed:
            notes.append(
                Note(f"these inputs could be given as constants: {', '.join(sorted(self.needed))}")
            )
        if any("unknown" in reason for _, reason in kinds):
            notes.append(
                Note("sizes are given by `cvm import --size NAME=N`, in Python by sizes={NAME: N}")
            )
        if count := len(self.refusals):
            refuse(
                filename,
                f"{count} {self.unit}{'s' * (count > 1)} of the model cannot be imported",
                *notes,
            )

    def result(self, filename: str, name: str, value: Any) -> Value:
        """The value of an output of the model, which is a tensor."""
        if value is None or isinstance(value, (Missing, Items)):
            said = "is a sequence" if isinstance(value, Items) else "is nowhere computed"
            refuse(filename, f"the model's output {name!r} {said}")
        try:
            return self.node(value).value
        except Unsupported as e:
            refuse(filename, f"the model's output {name!r}: {e}")

    def imported(
        self,
        filename: str,
        results: Sequence[Value],
        reference: str,
        state: Mapping[str, np.ndarray] | None = None,
    ) -> tuple[Imported, dict[str, str]]:
        """The program with these results, and the model's names of its values, where it has
        others.
        """
        operations = tuple(self.builder.operations)
        function = dce(
            Function("main", tuple(a.value for a in self.arguments), operations, tuple(results)),
            Context(),
        )
        self.name_values(function, self.used)
        functions = reached(Module({"main": function, **self.bodies}), function)
        for body in functions[1:]:
            self.name_values(body, Names())
        renamed = {
            v.name: self.names[v] for v in function.values() if self.names.get(v, v.name) != v.name
        }
        module = verify(Module({f.name: f for f in reversed(functions)}, filename))
        return Imported(
            module.functions, filename, {}, reference, live(self.operators, function), state or {}
        ), renamed

    def name_values(self, function: Function, names: Names) -> None:
        """Names the values of a function after the model's, as far as there are such."""
        arguments = {a.value for a in self.arguments}
        for value in function.values():
            if value not in arguments:
                value.name = (
                    names.of(self.names[value]) if value in self.names else names.fresh("v")
                )

    def add(self, at: At) -> None:
        """Import an operator; its outputs become values."""
        node = at.graph_node
        outputs: Sequence[Any] = [MISSING] * len(node.outputs)
        before, held = len(self.builder.operations), len(self.constants)
        if not any(isinstance(at.values.get(name), Missing) for name in at.reads()):
            try:
                result = at.run()
                results = (
                    result
                    if isinstance(result, (tuple, list)) and not isinstance(result, Items)
                    else [result]
                )
                if any(node.outputs[len(results) :]):
                    raise Unsupported(f"output {node.outputs[len(results)]!r}")
                if (count := len(self.builder.operations)) > LIMITS.get().operations:
                    raise Unsupported(excess("operations", count))
                outputs = results
            except (Unsupported, NotImplementedError) as e:
                self.refuse(at, str(e) if isinstance(e, Unsupported) else f"{e} is not supported")
                if isinstance(e, Unsupported) and e.of is not None:
                    self.needed |= self.inputs_of(e.of)
            except Undecided:
                self.refuse(at, "what it does depends on unknown sizes")
            except cvm.Error as e:
                self.refuse(at, e.diagnostics[0].message)
            except MemoryError:
                self.refuse(at, "it takes more memory than there is")
            except (ValueError, TypeError, LookupError, ArithmeticError, AssertionError) as e:
                self.refuse(at, f"it is not as {self.system} defines it: {e}")
        for name, value in zip(node.outputs, outputs, strict=False):
            if name:
                if isinstance(value, Node):
                    value = self.builder.constants.get(value.value, value)
                at.values[name] = value
                if isinstance(value, Node) and not any(
                    value is at.values.get(n) for n in node.inputs
                ):
                    self.names.setdefault(value.value, name)
        if self.depth <= 1 and not self.refusals:
            is_folded = any(isinstance(at.values.get(n), np.ndarray) for n in node.outputs)
            made = () if is_folded else self.builder.operations[before:]
            computed = frozenset(r for o in made for r in o.results)
            self.operators.append(ImportedOperator(at.op, at.where, at.exactness(), computed))
        if self.depth <= 1:
            dropped = self.builder.release(before)
            recent = islice(reversed(self.constants.items()), len(self.constants) - held)
            for key in [key for key, (_, node) in recent if node.value in dropped]:
                del self.constants[key]

    def refuse(self, at: At, reason: str) -> None:
        self.refusals.append(
            Refusal(at.name, reason, at.where, None if self.places else self.builder.span)
        )


@dataclass(frozen=True, eq=False)
class GraphNode:
    """A node of a model's graph: its operator, and the keys of its operands and results among the
    values.
    """

    op: str
    inputs: Sequence[Any]  # "" where an optional operand is absent
    outputs: Sequence[Any]
    domain: str = ""  # the name space of an operator that the format does not define


@dataclass
class At:
    """A node of the model, while it is imported."""

    importer: Importer
    graph_node: GraphNode
    values: Values
    where: str
    rule_exactness: Exactness | None = field(
        default=None, kw_only=True
    )  # where the rule decides it
    rules: ClassVar[Mapping[str, ImportRule]] = {}
    refused: ClassVar[
        Mapping[str, str]
    ] = {}  # why an operator has no rule, where there is more to say

    def __post_init__(self) -> None:
        self.op = self.graph_node.op
        domain = self.graph_node.domain
        self.name = f"{domain}.{self.op}" if domain else self.op  # in the table, and in messages

    def wants(self, output: int) -> bool:
        outputs = self.graph_node.outputs
        return len(outputs) > output and bool(outputs[output])

    def reads(self) -> set[Any]:
        """The keys of the values on which the node depends."""
        return set(filter(None, self.graph_node.inputs))

    # What rules make operations with

    def node(self, value: Known) -> Node:
        return self.importer.node(value)

    def apply(self, name: str, *operands: Known, **attributes: Any) -> Node:
        return self.importer.builder.apply(name, *map(self.node, operands), **attributes)

    def like(self, shape: Sequence[Dim]) -> Node:
        return self.importer.like(shape)

    # How it is imported

    def has_floats(self) -> bool:
        keys = (*self.graph_node.outputs, *self.graph_node.inputs[:1])
        return any(
            kind_of(v.element.dtype if isinstance(v, Node) else np.asarray(v).dtype) in "fc"
            for v in map(self.values.get, keys)
        )

    def exactness(self) -> Exactness:
        return self.rule_exactness or self.rules[self.op].exact[self.has_floats()]

    def run(self) -> Any:
        if (rule := self.rules.get(self.op)) is None:
            raise Because(self.refused.get(self.op, "it has no rule"))
        return self.call(rule, [self.values[k] if k else None for k in self.graph_node.inputs])

    def call(self, rule: ImportRule, inputs: Sequence[Any]) -> Made:
        if len(inputs) < sum(not (p.optional or p.variadic) for p in rule.parameters):
            raise ValueError(f"it has {len(inputs)} inputs")
        return rule.function(self, *map(self.convert, rule.inputs(len(inputs)), inputs))

    def convert(self, parameter: Parameter, value: Any) -> Any:
        if value is None:
            if not parameter.optional:
                raise ValueError(f"it needs its input {parameter.name}")
            return None
        if isinstance(value, Items) != (parameter.kind == "Items"):
            if parameter.kind == "Known":
                return value
            raise ValueError(
                f"{parameter.name} is {'a' if isinstance(value, Items) else 'no'} sequence"
            )
        if parameter.kind == "Node":
            return self.node(value)
        if parameter.kind in ("Array", "Ints") and not isinstance(value, np.ndarray):
            raise Unsupported(f"{parameter.name} that is not a constant", value)
        if parameter.kind == "Ints":
            return tuple(v if isinstance(v, Size) else int(v) for v in value.reshape(-1).tolist())
        if parameter.kind == "Array" and value.dtype == object:
            raise Unsupported(f"{parameter.name} that depends on unknown sizes")
        return value
