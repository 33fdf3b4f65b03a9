"""Common parts of the schemes: quantized values, the walk over a float graph, and the proof that
sums stay in their accumulators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from cvm.dialect.builtin import Const, Data
from cvm.dialect.ir.builder import Builder, Node
from cvm.dialect.ir.function import Function, Operation, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.verify import verify
from cvm.dialect.types.tensor_types import BY_DTYPE, ElementType, TensorType

from .float_graph import FloatGraph, Key, Path, Unquantizable, refuse, scalar_function

ACCUMULATOR = 2**31 - 1  # of i32


@dataclass(frozen=True)
class Parameters:
    """The numbers that integers stand for: (q - zero_point) * scale, q in [low, high]."""

    scale: float
    zero_point: int
    low: int
    high: int

    def integers(self, x: object) -> np.ndarray:
        """The integers nearest to numbers, halves to even, within the limits."""
        q = (
            np.rint(np.nan_to_num(np.asarray(x, np.float64) / self.scale, nan=0.0))
            + self.zero_point
        )
        return np.clip(q, self.low, self.high).astype(np.int64)

    def numbers(self, q: Any) -> np.ndarray:
        return (np.asarray(q, np.float64) - self.zero_point) * self.scale

    @property
    def bits(self) -> int:
        return self.high.bit_length() + 1

    @property
    def magnitude(self) -> int:
        """The largest of |q - zero_point|."""
        return max(self.high - self.zero_point, self.zero_point - self.low)


@dataclass(frozen=True)
class Quantized:
    """A value of the integer program, which notes its scale."""

    node: Node
    parameters: Parameters

    def __post_init__(self) -> None:
        p = self.parameters
        known = self.node.value.attributes
        self.node.value.attributes = {"scale": p.scale, "zero_point": p.zero_point, **known}


@dataclass(frozen=True)
class Layer:
    """A layer with its weights and bias in f64."""

    operation: Operation
    x: Quantized
    w: np.ndarray
    b: np.ndarray


@dataclass(frozen=True)
class Table:
    """A function as a table: the largest error of an entry, in units of the result's scale."""

    name: str
    entries: int
    error: float


@dataclass(eq=False)
class Scheme:
    """The walk over a float graph that emits an integer program; a subclass emits each kind of
    operation.
    """

    graph: FloatGraph
    parameters: Mapping[Key, Parameters]  # of the values that have some of their own
    fused: Mapping[Value, Key]  # the clamp that a root is emitted with
    paths: Mapping[Value, Path]
    means: Mapping[Value, np.ndarray] = field(default_factory=dict)  # of a layer's input channels
    weight_bits: Mapping[Value, int] = field(default_factory=dict)  # of a layer's result; others 8
    builder: Builder = field(default_factory=lambda: Builder(prefix="q"))
    arguments: tuple[Value, ...] = ()
    made: dict[Key, Quantized] = field(default_factory=dict)
    moved: dict[Value, Quantized] = field(default_factory=dict)
    sums: dict[Operation, int] = field(default_factory=dict)  # the largest magnitude of each
    tables: dict[Operation, Table] = field(default_factory=dict)

    name: ClassVar[str] = ""
    element: ClassVar[ElementType]
    widths: ClassVar[tuple[int, ...]] = (8, 16)  # of values, in bits
    rules: ClassVar[Mapping[str, str]] = {  # the method for each operation, by its name
        "cvm.conv2d": "weighted",
        "cvm.dense": "weighted",
        "cvm.max_pool2d": "pooled",
        "theano.sum": "total",
        "cvm.sum": "total",
        "add": "sum",
        "sub": "sum",
        "mul": "product",
        "cvm.concatenate": "joined",
        "softmax": "softmax",
        "contraction": "contracted",
    }

    # What a scheme defines: parameters(low, high), weights and the methods of `rules`

    def table(self, x: Quantized, entries: np.ndarray, y: Parameters) -> Node:
        raise NotImplementedError

    def move(self, operation: Operation, x: Quantized) -> Node:
        raise NotImplementedError

    # The walk

    def program(self, float_io: bool) -> Module:
        """The integer program, verified."""
        roots = [o for o in self.graph.live if self.paths[o.results[0]].root is o.results[0]]
        refuse({o: f"the scheme {self.name} has no rule for it" for o in roots if not self.rule(o)})
        arguments = [self.argument(a, float_io) for a in self.graph.function.arguments]
        results: list[Value] = []
        for operation in [*roots, None]:
            try:
                if operation is None:
                    results = [self.result(r, float_io) for r in self.graph.function.results]
                else:
                    self.builder.span = operation.at("op")
                    self.made[operation.results[0], ()] = self.emitted(operation)
            except Unquantizable as e:
                refuse({operation or self.graph.live[-1]: str(e)})
        self.arguments, operations = tuple(arguments), tuple(self.builder.operations)
        function = Function("main", self.arguments, operations, tuple(results))
        return verify(Module({"main": function}, self.graph.filename))

    @classmethod
    def rule_name(cls, graph: FloatGraph, operation: Operation) -> str | None:
        """The method that emits an operation; None where there is none."""
        merged = graph.merged.get(operation)
        kind = merged.kind if merged else scalar_function(operation)
        return cls.rules.get(kind or operation.operator.name)

    def rule(self, operation: Operation) -> Callable[[Operation], Quantized] | None:
        name = self.rule_name(self.graph, operation)
        return None if name is None else getattr(self, name)

    def emitted(self, operation: Operation) -> Quantized:
        rule = self.rule(operation)
        assert rule is not None
        made = rule(operation)
        made.node.value.name = operation.results[0].name
        return made

    def argument(self, float_argument: Value, float_io: bool) -> Value:
        """The argument of the program for one of the float program."""
        p = self.parameters[float_argument, ()]
        type = float_argument.known_type
        assert isinstance(type, TensorType)
        if float_io:
            argument = Value(float_argument.name, type, float_argument.span)
            node = self.quantized(Node(self.builder, argument), p)
        else:
            element = self.element_of(p)
            held = {"range": (p.low, p.high)} if (p.low, p.high) != element.limits else {}
            argument = Value(
                float_argument.name,
                type.with_element(element),
                float_argument.span,
                {**held, "scale": p.scale, "zero_point": p.zero_point},
            )
            node = Node(self.builder, argument)
        self.made[float_argument, ()] = Quantized(node, p)
        return argument

    def quantized(self, x: Node, p: Parameters) -> Node:
        """Numbers as integers: to the nearest, halves to even, within the limits."""
        low, high = (np.float32(n - p.zero_point) for n in (p.low, p.high))
        units = (x / float(np.float32(p.scale))).scalar("round_half_to_even")
        held = units.scalar("maximum", float(low)).scalar("minimum", float(high))
        wide = held.scalar("cast", dtype=BY_DTYPE[np.dtype(np.int32)])
        return (wide + wide.constant(np.array(p.zero_point, np.int32))).cast(self.element_of(p))

    def result(self, value: Value, float_io: bool) -> Value:
        q = self.value(value)
        p = q.parameters
        node = q.node
        if float_io:
            wide = node.cast(BY_DTYPE[np.dtype(np.int32)])
            wide = wide - wide.constant(np.array(p.zero_point, np.int32))
            node = wide.cast(value.known_type.element) * float(np.float32(p.scale))
            node.value.name = f"{value.name}.float"
        else:
            node.value.attributes = {
                **node.value.attributes,
                "scale": p.scale,
                "zero_point": p.zero_point,
            }
        return node.value

    # Values

    def value(self, value: Value) -> Quantized:
        """A value of the float program in integers, emitted where it is first wanted."""
        if (found := self.moved.get(value)) is not None:
            return found
        if (array := self.graph.array(value)) is not None:
            p = self.chosen(float(array.min(initial=0)), float(array.max(initial=0)))
            return Quantized(self.constant(p.integers(array).astype(self.element_of(p).dtype)), p)
        path = self.paths[value]
        q = self.function(path)
        for operation in path.moves:
            (y,) = operation.results
            if (found := self.moved.get(y)) is None or self.paths[y].key != path.key:
                node = self.move(operation, q)
                node.value.name = y.name
                found = Quantized(node, q.parameters)
                if self.paths[y].key == path.key:
                    self.moved[y] = found
            q = found
        self.moved[value] = q
        return q

    def function(self, path: Path) -> Quantized:
        """The function of one value at the root of a path, as a table unless it is a clamp that the
        root has, or a factor.
        """
        if (found := self.made.get(path.key)) is not None:
            return found
        root = self.made[path.root, ()]
        if self.fused.get(path.root) == path.key:
            made = root
        elif (factor := self.graph.factor(path.functions)) is not None and self.is_scale(factor):
            made = self.times(root, factor)
        else:
            made = self.tabulated(path, root)
        self.made[path.key] = made
        return made

    def times(self, x: Quantized, factor: float) -> Quantized:
        """The same integers with a scale times a factor."""
        return Quantized(x.node, replace(x.parameters, scale=x.parameters.scale * factor))

    def is_scale(self, factor: float) -> bool:
        """Test whether a scale may be multiplied by a factor."""
        return True

    def tabulated(self, path: Path, root: Quantized) -> Quantized:
        last = path.functions[-1]
        p = self.parameters[path.key]
        q = np.arange(root.parameters.low, root.parameters.high + 1)
        exact = self.graph.evaluated(path.key, root.parameters.numbers(q)).astype(np.float64)
        if np.isnan(exact).any():
            exact = np.where(np.isnan(exact), 0.0, exact)
        entries = p.integers(exact)
        inside = (exact >= p.numbers(p.low)) & (exact <= p.numbers(p.high))
        errors = np.abs(p.numbers(entries) - exact)[inside] / p.scale
        name = "*".join(
            dict.fromkeys(scalar_function(o) or o.operator.name for o in path.functions)
        )
        self.tables[last] = Table(name, len(q), float(errors.max(initial=0.0)))
        self.builder.span = last.at("op")
        node = self.table(root, entries, p)
        node.value.name = last.results[0].name
        return Quantized(node, p)

    def own(self, operation: Operation) -> Parameters:
        """The parameters of an operation's result, or of its clamp."""
        (y,) = operation.results
        return self.parameters[self.fused.get(y, (y, ()))]

    def limits(self, operation: Operation) -> tuple[int, int]:
        """The least and the largest integer of a result, with the clamp that is fused to it."""
        p = self.own(operation)
        key = self.fused.get(operation.results[0])
        found = None if key is None else self.graph.clamp(key[1])
        low, high = found or (-math.inf, math.inf)
        ends = p.integers([max(low, -3e38), min(high, 3e38)])
        return int(ends[0]), int(ends[1])

    @classmethod
    def element_of(cls, p: Parameters) -> ElementType:
        """The type of integers with these parameters."""
        return cls.element

    @staticmethod
    def chosen(low: float, high: float, bits: int = 8) -> Parameters:
        """The parameters of integers for numbers of a range."""
        raise NotImplementedError

    @staticmethod
    def rounded(w: np.ndarray, bits: int) -> np.ndarray:
        """Weights of a layer as integers of this width stand for them."""
        raise NotImplementedError

    def bits_of_weights(self, layer: Layer) -> int:
        return self.weight_bits.get(layer.operation.results[0], 8)

    @staticmethod
    def widened(p: Parameters) -> Parameters:
        """The parameters of a result that no operation reads."""
        return p

    def layer(self, operation: Operation) -> Layer:
        o: Any = operation.operator
        w, b = self.graph.array(o.w), None if o.b is None else self.graph.array(o.b)
        if w is None or (o.b is not None and b is None):
            raise Unquantizable("its weights are no constants")
        if not np.isfinite(w).all() or (b is not None and not np.isfinite(b).all()):
            raise Unquantizable("its weights are not finite")
        bias = np.zeros(len(w)) if b is None else b.astype(np.float64)
        return Layer(operation, self.value(o.x), w.astype(np.float64), bias)

    def correction(self, layer: Layer, error: np.ndarray) -> np.ndarray:
        """The numbers that errors of the weights add to each channel of a result in the mean."""
        o: Any = layer.operation.operator
        if (mean := self.means.get(o.x)) is None:
            return np.zeros(len(error))
        by_input = error.reshape(*error.shape[:2], -1).sum(2)
        groups = getattr(o, "groups", 1)
        means = mean.reshape(groups, -1).repeat(len(error) // groups, 0)
        return np.asarray((by_input * means).sum(1))

    def prove(self, operation: Operation, bound: int) -> None:
        """Note the largest magnitude of a sum, which has to be in the accumulator."""
        if bound > ACCUMULATOR:
            raise Unquantizable(
                f"its sums may reach {bound}, beyond i32; fewer bits keep them within"
            )
        self.sums[operation] = bound

    def constant(self, array: np.ndarray, name: str | None = None) -> Node:
        type = TensorType(array.shape, BY_DTYPE[array.dtype])
        data = Data(np.ascontiguousarray(array).reshape(array.shape))
        (value,) = self.builder.add(Const(data, type))
        value.name = name or value.name
        return self.builder.node(value)

    def apply(self, name: str, *operands: Node, **attributes: Any) -> Node:
        return self.builder.apply(name, *operands, **attributes)

    def mapped(self, operation: Operation, x: Node, **changes: object) -> Node:
        """An operation applied to another operand."""
        operator = replace(operation.operator.map(lambda _: x.value), **changes)  # type: ignore[type-var]
        return self.builder.node(self.builder.add(operator)[0])

    def pair(self, operation: Operation) -> tuple[Quantized, Quantized]:
        """The two operands of an operation."""
        merged = self.graph.merged.get(operation)
        operands = merged.operands if merged else [v for _, v in operation.operator.operands()]
        if len(operands) != 2:
            raise Unquantizable(f"it has {len(operands)} operands")
        x, z = map(self.value, operands)
        return x, z

    def count(self, operation: Operation) -> int:
        """The number of elements that each element of a reduction's result is made of."""
        o: Any = operation.operator
        shape = o.x.known_type.array_shape
        axes = getattr(o, "axis", None) or getattr(o, "axes", None) or range(len(shape))
        sizes = [shape[a] for a in axes]
        if not all(isinstance(n, int) for n in sizes) or getattr(o, "exclude", False):
            raise Unquantizable("it is a sum of an unknown number of elements")
        return int(np.prod(sizes))


def rounded_bias(b: np.ndarray, scale: object) -> np.ndarray:
    return np.clip(np.rint(b / scale), -(2.0**30), 2.0**30).astype(np.int64)


def bound_of(w: np.ndarray, x: Parameters, bias: np.ndarray) -> int:
    """The largest magnitude that a channel's sum may have."""
    rows = (
        np.abs(w.reshape(len(w), -1)).sum(1, dtype=np.int64)
        if w.size
        else np.zeros(len(w), np.int64)
    )
    return int((rows * x.magnitude + np.abs(bias)).max(initial=0))
