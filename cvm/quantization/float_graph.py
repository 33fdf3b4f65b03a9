"""A float program as quantization sees it: layers with constant weights, reductions, and between
them functions of one value, whatever operations they are written with.

    conv2d, mul, add, maximum, minimum  =>  a layer whose weights hold the batch normalization, and
                                            the function clamp of its result
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import cvm
from cvm.dialect.builtin import Calling, Const, Data
from cvm.dialect.cvm.broadcast import Broadcast
from cvm.dialect.cvm.cvm_operator import Pointwise
from cvm.dialect.ir.function import Function, Graph, Literal, Operation, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.verify import verify
from cvm.dialect.spec.operator import OPERATORS
from cvm.dialect.support.diagnostics import Diagnostic
from cvm.dialect.types.tensor_types import BY_DTYPE, TensorType
from cvm.lowering.graph.dce import dce
from cvm.lowering.graph.inline import inline
from cvm.lowering.pass_context import Context
from cvm.lowering.passes import run_passes

LAYERS = ("cvm.conv2d", "cvm.dense")
MOVES = {  # operators of one operand that only move elements
    "builtin.reshape",
    "cvm.expand_dims",
    "cvm.flatten",
    "cvm.reshape",
    "cvm.slice",
    "cvm.squeeze",
    "cvm.transpose",
    "theano.dimshuffle",
}
UFUNCS = {"multiply": "mul", "subtract": "sub", "divide": "true_div", "true_divide": "true_div"}
HOMOGENEOUS = ("relu",)  # f(s * x) = s * f(x) for s > 0


class Unquantizable(Exception):
    """An operation that quantization has no rule for."""


def scalar_function(operation: Operation) -> str | None:
    """The name of the function that an elementwise operation applies; None for other operations."""
    operator: Any = operation.operator
    if operator.name == "theano.elemwise":
        return str(operator.scalar_op)
    if operator.name == "numpy.elementwise":
        return UFUNCS.get(operator.ufunc, str(operator.ufunc))
    dialect, _, name = operator.name.partition(".")
    if dialect == "dali" or isinstance(operator, (Pointwise, Broadcast)):
        return name.removeprefix("elemwise_").removeprefix("broadcast_").removesuffix("_")
    return None


@dataclass(frozen=True)
class Path:
    """The way from a root to a value: the functions of one value that are applied, in order, and
    the operations that move elements, before, between or after these.
    """

    root: Value
    functions: tuple[Operation, ...] = ()
    moves: tuple[Operation, ...] = ()

    @property
    def key(self) -> Key:
        return self.root, self.functions


Key = tuple[Value, tuple[Operation, ...]]


@dataclass(frozen=True)
class Merged:
    """Operations that are emitted as one, the last: a softmax along the last axis of a value, or
    the sum of the products of two.
    """

    kind: str  # softmax, or contraction
    operands: list[Value]


@dataclass(eq=False)
class FloatGraph:
    """A function of floats without its constants, which are arrays by their values."""

    function: Function
    operations: list[Operation] = field(default_factory=list)
    constants: dict[Value, np.ndarray] = field(default_factory=dict)
    live: list[Operation] = field(default_factory=list)
    merged: dict[Operation, Merged] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for operation in self.function.operations:
            operator = operation.operator
            if isinstance(operator, Const):
                self.constants[operation.results[0]] = np.array(operator.data.array)
            elif self._is_constant(operation):
                with np.errstate(all="ignore"):
                    found = operator.map(self.array).reference()
                arrays = found if isinstance(found, tuple) else (found,)
                self.constants.update(zip(operation.results, map(np.array, arrays), strict=True))
            else:
                self.operations.append(operation)
        self._find_products()
        self._fold_into_layers()
        self._find_softmaxes()
        self._find_contractions()
        self._multiply_by_reciprocals()
        self._keep_live()

    @property
    def filename(self) -> str:
        return self.function.span.source.filename

    def array(self, value: Value) -> np.ndarray | None:
        """The elements of a constant or a literal; None of another value."""
        return value.array if isinstance(value, Literal) else self.constants.get(value)

    def _is_constant(self, operation: Operation) -> bool:
        operands = [v for _, v in operation.operator.operands()]
        return (
            bool(operands)
            and not isinstance(operation.operator, Calling)
            and all(self.array(v) is not None for v in operands)
        )

    def operands(self, operation: Operation) -> list[Value]:
        """The operands that are no constants."""
        if operation in self.merged:
            return self.merged[operation].operands
        return [v for _, v in operation.operator.operands() if self.array(v) is None]

    def uses(self) -> Counter[Value]:
        """The number of times that each value is read, or returned."""
        read = (v for o in self.operations for _, v in o.operator.operands())
        return Counter([*read, *self.function.results])

    def definitions(self) -> dict[Value, Operation]:
        return {r: o for o in self.operations for r in o.results}

    def constant(self, array: np.ndarray, name: str) -> Value:
        value = Value(name, TensorType(array.shape, BY_DTYPE[array.dtype]))
        self.constants[value] = array
        return value

    # Rewrites

    def _find_products(self) -> None:
        """Make dense layers of sums of products with a constant matrix, as `@` of traced functions
        is recorded.
        """
        made = self.definitions()
        for n, operation in enumerate(self.operations):
            o: Any = operation.operator
            if o.name not in ("theano.sum", "cvm.sum") or tuple(getattr(o, "axis", ()) or ()) != (
                1,
            ):
                continue
            product = made.get(o.x)
            if product is None or scalar_function(product) != "mul":
                continue
            factors = [v for _, v in product.operator.operands()]
            rows = next((made[v] for v in factors if v in made), None)
            held = next((a for v in factors if (a := self.array(v)) is not None), None)
            order = getattr(rows and rows.operator, "new_order", None)
            if rows is None or held is None or order != (0, 1, "x") or held.ndim != 3:
                continue
            if held.shape[0] != 1:
                continue
            w = self.constant(
                np.ascontiguousarray(held[0].T), f"{operation.results[0].name}.weight"
            )
            dense = OPERATORS["cvm.dense"](x=rows.operator.x, w=w, b=None)  # type: ignore[attr-defined, call-arg]
            self.operations[n] = replace(operation, operator=dense, declared=None)

    def _fold_into_layers(self) -> None:
        """Put factors and terms of each channel, such as those of a batch normalization, into the
        weights and biases of the layer before.
        """
        made, uses = self.definitions(), self.uses()
        kept: list[Operation] = []
        for operation in self.operations:
            operands = [v for _, v in operation.operator.operands()]
            layer = next((made[v] for v in operands if v in made), None)
            name = scalar_function(operation)
            kept.append(operation)
            if layer is None or layer.operator.name not in LAYERS or len(operands) != 2:
                continue
            (y,) = layer.results
            held = next((a for v in operands if (a := self.array(v)) is not None), None)
            channels = None if held is None else self._by_channel(held, layer)
            fits = name in ("mul", "add") or (name in ("sub", "true_div") and operands[0] is y)
            if (
                channels is None
                or not fits
                or uses[y] != 1
                or not self._weights_are_constant(layer)
            ):
                continue
            with np.errstate(all="ignore"):
                scale = {"mul": channels, "true_div": 1 / channels}.get(name or "")
            term = {"add": channels, "sub": -channels}.get(name or "", 0.0)
            new = replace(self._scaled(layer, scale, term), results=operation.results)
            made[operation.results[0]] = kept[kept.index(layer)] = new
            kept.pop()
        self.operations = kept

    def _weights_are_constant(self, layer: Operation) -> bool:
        o: Any = layer.operator
        return self.array(o.w) is not None and (o.b is None or self.array(o.b) is not None)

    @staticmethod
    def _by_channel(held: np.ndarray, layer: Operation) -> np.ndarray | None:
        """A constant as one number for each of the layer's channels, in f64."""
        o: Any = layer.operator
        channels = o.w.known_type.shape[0]
        shape = (1,) * (layer.results[0].known_type.rank - held.ndim) + held.shape
        rest = shape[:1] + shape[2:]
        if len(shape) != layer.results[0].known_type.rank or any(n != 1 for n in rest):
            return None
        if shape[1] not in (1, channels):
            return None
        return np.broadcast_to(held.reshape(-1).astype(np.float64), (channels,))

    def _scaled(self, layer: Operation, scale: np.ndarray | None, term: Any) -> Operation:
        """The layer with its channels times a factor, and a term added."""
        o: Any = layer.operator
        w = np.asarray(self.array(o.w))
        b = np.zeros(len(w)) if o.b is None else np.asarray(self.array(o.b), np.float64)
        factor = np.ones(len(w)) if scale is None else scale
        name = layer.results[0].name
        new_w = (w * factor.reshape(-1, *(1,) * (w.ndim - 1))).astype(w.dtype)
        new_b = (b * factor + term).astype(w.dtype)
        weights = {
            "w": self.constant(new_w, f"{name}.weight"),
            "b": self.constant(new_b, f"{name}.bias"),
        }
        return replace(layer, operator=replace(o, **weights))

    def _find_softmaxes(self) -> None:
        made, uses = self.definitions(), self.uses()

        def step(value: Value, *names: str) -> Operation | None:
            found = made.get(value)
            known = found is not None and (scalar_function(found) or found.operator.name) in names
            return found if known else None

        def unmoved(value: Value) -> Operation | None:
            """The operation behind axes of size 1 that are inserted."""
            while (found := made.get(value)) is not None and found.operator.name in MOVES:
                value = found.operator.operands()[0][1]
            return found

        for operation in self.operations:
            if scalar_function(operation) != "true_div":
                continue
            powers, sums = (v for _, v in operation.operator.operands())
            exp, total = step(powers, "exp"), unmoved(sums)
            if exp is None or total is None or total.operator.operands()[0][1] is not powers:
                continue
            below = step(exp.operator.operands()[0][1], "sub")
            if below is None or uses[powers] != 2 or not total.operator.name.endswith(".sum"):
                continue
            x, largest = (v for _, v in below.operator.operands())
            most = unmoved(largest)
            if most is None or not most.operator.name.endswith(".max"):
                continue
            rank = x.known_type.rank
            axes = {
                tuple(
                    a % rank
                    for a in getattr(o.operator, "axis", None) or getattr(o.operator, "axes", ())
                )
                for o in (most, total)
            }
            if most.operator.operands()[0][1] is x and axes == {(rank - 1,)}:
                self.merged[operation] = Merged("softmax", [x])

    def _find_contractions(self) -> None:
        """Merge sums with the products of two values that they are of."""
        made, uses = self.definitions(), self.uses()
        for operation in self.operations:
            if operation.operator.name not in ("theano.sum", "cvm.sum"):
                continue
            (_, x), *_ = operation.operator.operands()
            if uses[x] != 1 or (product := made.get(x)) is None:
                continue
            factors = [v for _, v in product.operator.operands() if self.array(v) is None]
            if scalar_function(product) == "mul" and len(factors) == 2:
                self.merged[operation] = Merged("contraction", factors)

    def _multiply_by_reciprocals(self) -> None:
        """Make quotients of two values products with the reciprocal, a function of one value."""
        kept: list[Operation] = []
        for operation in self.operations:
            values = [v for _, v in operation.operator.operands()]
            quotient = scalar_function(operation) == "true_div" and operation not in self.merged
            if (
                quotient
                and all(self.array(v) is None for v in values)
                and values[0] is not values[1]
            ):
                inverse = Value(f"{values[1].name}.reciprocal", values[1].type, values[1].span)
                made = OPERATORS["theano.elemwise"](xs=(values[1],), scalar_op="inv")  # type: ignore[call-arg]
                kept.append(replace(operation, operator=made, results=(inverse,), declared=None))
                product = OPERATORS["theano.elemwise"](xs=(values[0], inverse), scalar_op="mul")  # type: ignore[call-arg]
                operation = replace(operation, operator=product, declared=None)
            kept.append(operation)
        self.operations = kept

    def _keep_live(self) -> None:
        """Keep the operations that results depend on, a softmax as its last one."""
        needed = set(self.function.results)
        kept: list[Operation] = []
        for operation in reversed(self.operations):
            if needed.intersection(operation.results):
                kept.append(operation)
                needed.update(self.operands(operation))
        self.live = kept[::-1]

    # Paths

    def paths(self) -> dict[Value, Path]:
        """The path of every live value."""
        found: dict[Value, Path] = {}
        for argument in self.function.arguments:
            found[argument] = Path(argument)
        for operation in self.live:
            operands = self.operands(operation)
            for result in operation.results:
                found[result] = Path(result)
            if len(operation.results) != 1 or not operands or operation in self.merged:
                continue
            (result,) = operation.results
            before = [found[v] for v in operands]
            if operation.operator.name in MOVES:
                found[result] = replace(before[0], moves=(*before[0].moves, operation))
            elif self.is_function_of_one(operation, before):
                found[result] = replace(before[0], functions=self._joined(operation, before))
        return found

    def is_function_of_one(self, operation: Operation, before: Sequence[Path]) -> bool:
        """Test whether each element of a result is a function of the element of one root beside
        it.
        """
        first, before_rank = before[0], self.operands(operation)[0].known_type.rank
        held = (a for _, v in operation.operator.operands() if (a := self.array(v)) is not None)
        return (
            scalar_function(operation) is not None
            and operation.results[0].known_type.rank == before_rank
            and all(p.root is first.root and p.moves == first.moves for p in before)
            and all(a.size == 1 for a in held)
        )

    @staticmethod
    def _joined(operation: Operation, before: Sequence[Path]) -> tuple[Operation, ...]:
        """The functions of all operands, each once, and the operation."""
        return tuple(dict.fromkeys([*(o for p in before for o in p.functions), operation]))

    def clamp(self, functions: Iterable[Operation]) -> tuple[float, float] | None:
        """The limits that functions set together; None if they do more."""
        low, high = -math.inf, math.inf
        for operation in functions:
            name = scalar_function(operation)
            held = [a for _, v in operation.operator.operands() if (a := self.array(v)) is not None]
            limit = float(held[0].reshape(-1)[0]) if held else 0.0
            if name == "relu" or (name in ("maximum", "fmax", "max") and held):
                low, high = max(low, limit), max(high, limit)
            elif name in ("minimum", "fmin", "min") and held:
                low, high = min(low, limit), min(high, limit)
            elif not (name == "cast" and operation.results[0].known_type.element.kind == "float"):
                return None
        return low, high

    def factor(self, functions: Iterable[Operation]) -> float | None:
        """The positive number by which functions multiply together; None if they do more."""
        product = 1.0
        for operation in functions:
            name = scalar_function(operation)
            operands = [v for _, v in operation.operator.operands()]
            held = [float(a.reshape(-1)[0]) for v in operands if (a := self.array(v)) is not None]
            if len(held) != 1 or len(operands) != 2 or not 0 < held[0] < math.inf:
                return None
            if name == "true_div" and self.array(operands[0]) is None:
                product /= held[0]
            elif name == "mul":
                product *= held[0]
            else:
                return None
        return product

    def evaluated(self, key: Key, elements: np.ndarray) -> np.ndarray:
        """The function of one value at these elements, by the definitions of its operations."""
        root, functions = key
        shape = (1,) * max(root.known_type.rank - 1, 0) + (-1,)
        made, known = self.definitions(), dict[Value, np.ndarray]()
        start = elements.astype(root.known_type.element.dtype).reshape(shape)

        def array(value: Value) -> np.ndarray:
            if (held := self.array(value)) is not None:
                return held.reshape(-1)[0]
            while value not in known and value is not root:
                value = made[value].operator.operands()[0][1]  # of a move
            return known.get(value, start)

        with np.errstate(all="ignore"):
            for operation in functions:
                operator = operation.operator.map(array)
                known[operation.results[0]] = np.asarray(operator.reference())
        return known[functions[-1].results[0]].reshape(-1) if functions else start.reshape(-1)

    # The float program

    def program(self, results: Sequence[Value], parameters: Sequence[Value] = ()) -> Module:
        """The float program with these values for results, and these constants for arguments."""
        consts = tuple(
            Operation(Const(Data(a), TensorType(a.shape, BY_DTYPE[a.dtype])), (v,))
            for v, a in self.constants.items()
            if v not in parameters
        )
        arguments = (*self.function.arguments, *parameters)
        operations = (*consts, *self.operations)
        function = Function("main", arguments, operations, tuple(results))
        return verify(Module({"main": dce(function, Context())}))


def float_graph(module: Module, entry: str) -> FloatGraph:
    """The graph of a function, with its calls expanded."""
    if (function := module.functions.get(entry)) is None:
        raise cvm.Error(f"the program has no function @{entry}")
    if isinstance(function, Graph):
        raise cvm.Error(Diagnostic(f"@{entry} is a clocked program", function.span, "quantize"))
    inlined = run_passes([inline], function, Context(module))
    return FloatGraph(inlined)


def refuse(refused: Mapping[Operation, str]) -> None:
    """Raise Error with each operation that cannot be quantized, and its line."""
    if refused:
        raise cvm.Error(
            [
                Diagnostic(
                    f"{named(operation)} cannot be quantized: {reason}",
                    operation.at("op"),
                    "quantize",
                )
                for operation, reason in refused.items()
            ]
        )


def named(operation: Operation) -> str:
    name, function = operation.operator.name, scalar_function(operation)
    said = name if function is None or name.endswith(function) else f"{name} {function}"
    return f"{said} (%{operation.results[0].name})" if operation.results else said
