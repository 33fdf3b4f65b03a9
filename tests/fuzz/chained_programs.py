"""Random programs of chained operators of all dialects: the operands of one are results of others
wherever its constraints hold.

A program may have unknown sizes, and a function of the cotangents of its inputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import samples_builtin  # noqa: F401  (these add to SAMPLES)
import samples_cog  # noqa: F401
import samples_dali  # noqa: F401
import samples_numpy  # noqa: F401
import samples_quant  # noqa: F401
import samples_theano  # noqa: F401
from cvm.dialect.builtin import Const, Data
from cvm.dialect.ir.function import Function, Operation, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.verify import type_operation, verify
from cvm.dialect.theano.grad_lop_rop import LOp
from cvm.dialect.types.attributes import Symbol
from cvm.dialect.types.sizes import Size
from cvm.dialect.types.tensor_types import BY_DTYPE, TensorType, Type
from finite_differences import declarable
from samples import SAMPLES

import cvm

ATTEMPTS = 12  # to find an operator for the values of a program
REUSED = 0.8  # the share of operands that are looked for among these


class ChainedProgram:
    """The module of a number, with an array for each argument of its functions."""

    def __init__(self, number: int) -> None:
        self.random = np.random.default_rng(number % 2**63)
        self.arguments: list[Value] = []
        self.arrays: list[np.ndarray] = []
        self.operations: list[Operation] = []
        self.values: list[Value] = []
        self.open = self.random.random() < 0.3
        names = sorted(SAMPLES)
        for _ in range(int(self.random.integers(1, 8))):
            for attempt in range(ATTEMPTS):
                if self.operation(str(self.random.choice(names)), chained=attempt < ATTEMPTS - 1):
                    break
        used = {v for o in self.operations for _, v in o.operator.operands()}
        results = [v for o in self.operations for v in o.results]
        last = [v for v in results if v not in used]
        main = Function("main", tuple(self.arguments), tuple(self.operations), tuple(last))
        self.module = cvm.parse(str(verify(Module({"main": main}))))  # with places in a text
        self.calls = {"main": self.arrays}
        if self.random.random() < 0.4:
            self.differentiate()

    def operation(self, name: str, chained: bool) -> bool:
        """Append an operation, perhaps only if one of its operands is a value of the program; tell
        whether it was.
        """
        known, state = {*self.values}, (self.arguments, self.arrays, self.operations, self.values)
        before = [len(items) for items in state]
        sample = SAMPLES[name](self.random)
        operation = Operation(sample.map(lambda a: self.operand(np.asarray(a))), ())
        try:
            types = type_operation(operation)
        except cvm.Error:
            types = None
        if types is None or (chained and not known & {v for _, v in operation.operator.operands()}):
            for items, count in zip(state, before, strict=True):
                del items[count:]
            return False
        made = tuple(Value(f"v{len(self.operations)}_{n}", t) for n, t in enumerate(types))
        self.operations.append(Operation(operation.operator, made))
        self.values += made
        return True

    def operand(self, array: np.ndarray) -> Value:
        among = [v for v in self.values if v.known_type.element.dtype == array.dtype]
        if among and self.random.random() < REUSED:
            alike = [v for v in among if len(v.known_type.array_shape) == array.ndim]
            return (alike or among)[int(self.random.integers(len(alike or among)))]
        type = TensorType(array.shape, BY_DTYPE[array.dtype])
        if self.random.random() < 0.3:
            made = Value(f"c{len(self.operations)}_{len(self.values)}", type)
            self.operations.append(Operation(Const(Data(array), type), (made,)))
        else:
            made = Value(f"a{len(self.arguments)}", self.opened(type))
            self.arguments.append(made)
            self.arrays.append(array)
        self.values.append(made)
        return made

    def opened(self, type: TensorType) -> Type:
        if not self.open:
            return type
        return TensorType(
            tuple(Size.unknown() if self.random.random() < 0.5 else d for d in type.shape),
            type.element,
        )

    def differentiate(self) -> None:
        """Add the cotangents of the inputs of the function, as far as these and its results are
        floats.
        """
        main = self.module.functions["main"]
        results = [v for v in main.results if v.known_type.element.kind in ("float", "complex")]
        floats = tuple(
            n
            for n, a in enumerate(main.arguments)
            if a.known_type.element.kind in ("float", "complex")
        )
        if not floats or not results:
            return
        part = Function("part", main.arguments, main.operations, tuple(results))
        inputs = tuple(Value(a.name, a.type) for a in main.arguments)
        seeds = tuple(Value(f"g{n}", declarable(v.known_type)) for n, v in enumerate(results))
        made = tuple(Value(f"d{n}", None) for n in floats)
        operator = LOp((*inputs, *seeds), Symbol("part"), wrt=floats)
        back = Function("back", (*inputs, *seeds), (Operation(operator, made),), made)
        try:
            module = cvm.parse(str(verify(Module({"main": main, "part": part, "back": back}))))
            given: Any = cvm.compile(module, "part", "reference")(*[a.copy() for a in self.arrays])
        except cvm.Error:
            return
        shapes = [g.shape for g in (given if isinstance(given, tuple) else (given,))]
        quarters = [
            np.asarray(self.random.integers(-8, 9, s) / 4).astype(v.known_type.element.dtype)
            for s, v in zip(shapes, results, strict=True)
        ]
        self.module, self.calls["back"] = module, [*self.arrays, *quarters]
