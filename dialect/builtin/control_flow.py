"""Loops and branches over functions of the module: `builtin.scan` takes a known number of steps,
`builtin.while` tests a condition before each step, `builtin.if` selects one of two functions.

A body is compiled once, however many steps there are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..kernel_ir.loops import MAX_STEPS, Steps
from ..spec.broadcasting import all_equal, all_of
from ..spec.operator import C, T, operator
from ..types.attributes import Symbol
from ..types.tensor_types import I1, TensorType, Type
from .call import Calling

Step = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]


def same_types(stated: Sequence[Any], found: Sequence[Any]) -> bool:
    """Test whether types are equal; Undecided where that depends on unknown sizes."""
    pairs = zip(stated, found, strict=True)
    return all_equal(p for a, b in pairs for p in zip(a.array_shape, b.array_shape, strict=True))


def alike(stated: Sequence[Any], found: Sequence[Any]) -> bool:
    """Test whether types have the same elements and ranks."""
    return len(stated) == len(found) and all(
        type(a) is type(b) and a.element is b.element and a.rank == b.rank
        for a, b in zip(stated, found, strict=True)
    )


def is_condition(type: Any) -> bool:
    return isinstance(type, TensorType) and type.rank == 0 and type.element is I1


@dataclass(frozen=True, eq=False)
class Loop(Calling[T]):
    """The family of loops over `callee`, which `carry` of its values enter and leave at every
    step.
    """

    carry: int

    symbols: ClassVar[dict[str, Callable[[Any], Any]]] = {
        "operands": lambda o: len(o.arguments),
        "results": lambda o: len(o.signature[1]),
        "T": lambda o: o.count,
    }

    @property
    def carried(self) -> tuple[Any, ...]:
        return self.arguments[: self.carry]


@operator
class Scan(Loop[T]):
    """T steps of callee: (C', Y[t]) = callee(C, X[t], K), where C' is the C of the next step.
    (jax.lax.scan, ONNX Scan)

    The operands are `carry` carried values C, `scan` values X of T slices along their first axes,
    and values K, the same at every step. The results are the last C and, with T slices along a new
    first axis, each Y. T is `trips` where nothing is scanned. `reverse` takes the slices from the
    last to the first; Y[t] still belongs to X[t].
    """

    scan: int = 0
    trips: int | None = None
    reverse: bool = False

    constraints = (
        C(
            1,
            "carry >= 0, scan >= 0 and carry + scan <= operands",
            lambda o: o.carry >= 0 <= o.scan and o.carry + o.scan <= len(o.arguments),
            at="carry",
        ),
        C(
            2,
            "trips is given if and only if scan = 0",
            lambda o: (o.trips is None) == (o.scan > 0),
            at="trips",
        ),
        C(
            3,
            "the scanned values have a first axis",
            lambda o: all(isinstance(x, TensorType) and x.rank for x in o.scanned),
        ),
        C(
            4,
            "the first axes of the scanned values have one size T",
            lambda o: all_of((lambda x=x: x.shape[0] == o.count) for x in o.scanned),
        ),
        C(
            5,
            "T in [1, 2^40]",
            lambda o: all_of((lambda: o.count >= 1, lambda: o.count <= MAX_STEPS)),
            at="trips",
        ),
        C(
            6,
            "callee has results, the first carry of them of the carried values' elements and ranks",
            lambda o: o.signature[1] and alike(o.carried, o.signature[1][: o.carry]),
            at="callee",
        ),
        C(
            7,
            "callee leaves the carried values' shapes as they are",
            lambda o: same_types(o.carried, o.signature[1][: o.carry]),
            at="callee",
        ),
        C(
            8,
            "callee gives tensors",
            lambda o: all(isinstance(y, TensorType) for y in o.signature[1]),
            at="callee",
        ),
    )
    example = """
        func @step(%total: tensor<3xf32>, %x: tensor<3xf32>, %decay: tensor<f32>)
            -> (tensor<3xf32>, tensor<f32>) {
          %kept = theano.elemwise %total, %decay {scalar_op = "mul"}
          %next = theano.elemwise %kept, %x {scalar_op = "add"}
          %sum = theano.sum %next {axis = [0]}
          return %next, %sum
        }

        func @main(%start: tensor<3xf32>, %xs: tensor<?T x 3 x f32>, %decay: tensor<f32>)
            -> (tensor<3xf32>, tensor<?T x f32>) {
          %last, %sums = builtin.scan @step(%start, %xs, %decay) {carry = 1, scan = 1}
          return %last, %sums
        }
    """

    @property
    def scanned(self) -> tuple[Any, ...]:
        return self.arguments[self.carry : self.carry + self.scan]

    @property
    def count(self) -> Any:
        return self.trips if self.trips is not None else self.scanned[0].shape[0]

    @classmethod
    def implied(cls, operands: int, attributes: Mapping[str, Any]) -> dict[str, Any]:
        return {"carry": operands - attributes.get("scan", 0)}

    def steps(self) -> Steps:
        return Steps(self.carry, self.scan, self.count, self.reverse)

    def passed(self, count: int) -> tuple[Any, ...]:
        """The types that the callee takes: slices of the scanned operands."""
        return tuple(
            TensorType(x.shape[1:], x.element)
            if isinstance(x, TensorType) and self.carry <= n < self.carry + self.scan
            else x
            for n, x in enumerate(self.arguments)
        )

    def infer(self: "Scan[TensorType]") -> tuple[Type, ...]:
        collected = self.signature[1][self.carry :]
        return (*self.carried, *(TensorType((self.count, *y.shape), y.element) for y in collected))

    def run(self: "Scan[Any]", *callees: Step) -> tuple[np.ndarray, ...]:
        carried = list(self.carried)
        rows = []
        shared = self.arguments[self.carry + self.scan :]
        for t in range(self.count)[:: -1 if self.reverse else 1]:
            results = callees[0]([*carried, *(np.asarray(x[t]) for x in self.scanned), *shared])
            carried = list(results[: self.carry])
            rows.append(results[self.carry :])
        return (*carried, *map(np.stack, zip(*(rows[::-1] if self.reverse else rows), strict=True)))


@operator
class While(Loop[T]):
    """Steps of callee while a condition holds: while go { (go, C) = callee(C, K) }.
    (jax.lax.while_loop)

    The operands are the condition before the first step, a truth value; `carry` carried values C;
    and values K, the same at every step. The first result of callee is the next condition, the
    others are the next C. The results are the last C.
    """

    constraints = (
        C(
            1,
            "carry >= 1 and carry + 1 <= operands",
            lambda o: 1 <= o.carry < len(o.arguments),
            at="carry",
        ),
        C(
            2,
            "the condition is a tensor<i1>",
            lambda o: is_condition(o.arguments[0]),
        ),
        C(
            3,
            "callee has carry + 1 results: a tensor<i1>, and values of the carried ones' "
            "elements and ranks",
            lambda o: alike((o.arguments[0], *o.carried), o.signature[1]),
            at="callee",
        ),
        C(
            4,
            "callee leaves the carried values' shapes as they are",
            lambda o: same_types(o.carried, o.signature[1][1:]),
            at="callee",
        ),
    )
    example = """
        func @double(%x: tensor<f32>, %limit: tensor<f32>) -> (tensor<i1>, tensor<f32>) {
          %y = theano.elemwise %x, %x {scalar_op = "add"}
          %go = theano.elemwise %y, %limit {scalar_op = "lt"}
          return %go, %y
        }

        func @main(%x: tensor<f32>, %limit: tensor<f32>) -> tensor<f32> {
          %go = theano.elemwise %x, %limit {scalar_op = "lt"}
          %y = builtin.while @double(%go, %x, %limit) {carry = 1}
          return %y
        }
    """

    @property
    def carried(self) -> tuple[Any, ...]:
        return self.arguments[1 : 1 + self.carry]

    @classmethod
    def implied(cls, operands: int, attributes: Mapping[str, object]) -> dict[str, Any]:
        return {"carry": operands - 1}

    def steps(self) -> Steps:
        return Steps(self.carry)

    def passed(self, count: int) -> tuple[Any, ...]:
        return self.arguments[1:]

    def infer(self: "While[TensorType]") -> tuple[Type, ...]:
        return self.carried

    def run(self: "While[Any]", *callees: Step) -> tuple[np.ndarray, ...]:
        go = self.arguments[0]
        carried = self.carried
        while go:
            go, *carried = callees[0]([*carried, *self.arguments[1 + self.carry :]])
        return tuple(carried)


@operator
class If(Calling[T]):
    """The results of callee where a condition holds, else those of otherwise:
    Y = callee(K) if C else otherwise(K). Only the function whose results are taken runs.
    (jax.lax.cond, stablehlo.if, ONNX If)

    The operands are the condition C, a truth value, and values K, which both functions take.
    """

    otherwise: Symbol

    constraints = (
        C(
            1,
            "the first operand is a condition, a tensor<i1>",
            lambda o: bool(o.arguments) and is_condition(o.arguments[0]),
        ),
        C(
            2,
            "callee and otherwise have as many results, of the same elements and ranks",
            lambda o: alike(*o.signature[1:]),
            at="otherwise",
            plainly=lambda o: o.found(),
        ),
        C(
            3,
            "callee and otherwise have results of the same shapes",
            lambda o: same_types(*o.signature[1:]),
            at="otherwise",
            plainly=lambda o: o.found(),
        ),
        C(
            4,
            "callee gives tensors",
            lambda o: all(isinstance(y, TensorType) for y in o.signature[1]),
            at="callee",
        ),
    )
    example = """
        func @main(%c: tensor<i1>, %x: tensor<3xf32>) -> tensor<3xf32> {
          %y = builtin.if %c {
            %twice = theano.elemwise %x, %x {scalar_op = "add"}
            yield %twice
          } else {
            yield %x
          }
          return %y
        }
    """

    def found(self) -> str:
        """The types of the results, for messages."""
        taken, other = (", ".join(map(str, types)) for types in self.signature[1:])
        return f"one function has results ({taken}), the other ({other})"

    def passed(self, count: int) -> tuple[Any, ...]:
        return self.arguments[1:]

    def infer(self: "If[TensorType]") -> tuple[Type, ...]:
        return self.signature[1]

    def run(self: "If[Any]", *callees: Step) -> Sequence[np.ndarray]:
        return callees[0 if self.arguments[0] else 1](self.arguments[1:])
