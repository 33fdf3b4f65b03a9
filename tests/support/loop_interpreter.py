"""Evaluates index notation and the loop language over NumPy arrays, one element at a time, slowly
and obviously.

The tests hold an operator's `element` (or `nest`) against its `reference` with it, and kernels
before and after a pass, without a compiler. Every access is checked: its bounds, that what is
read has been written, and that iterations which may run at once neither read what another writes
nor write different values to one element.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cvm.dialect.kernel_ir.expressions import (
    Apply,
    Bitcast,
    Cast,
    Check,
    Const,
    Element,
    Expr,
    Extent,
    Index,
    Misalignment,
    Read,
    Reduce,
    Tensor,
    Var,
    When,
)
from cvm.dialect.kernel_ir.loops import Alloc, Assert, Block, For, If, Kernel, Let, Store
from cvm.dialect.kernel_ir.scalar_functions import SCALARS
from cvm.dialect.spec.operator import Operator
from cvm.dialect.types.sizes import Dim, Shape, Size, evaluate
from cvm.dialect.types.tensor_types import BY_DTYPE, ElementType, TensorType
from cvm.lowering.analysis.accesses import allocated

Place = tuple[Tensor, tuple[int, ...]]


AT_ONCE = "parallel", "vector", "block", "thread"


@dataclass
class Iterations:
    """The elements that iterations of a loop read and write that may run at once, and which one is
    running.
    """

    private: set[Tensor]
    running: int = 0
    written: dict[Place, dict[int, bytes]] = field(default_factory=dict)
    read: dict[Place, set[int]] = field(default_factory=dict)

    def check(self) -> None:
        for place, values in self.written.items():
            name = f"{place[0]}{list(place[1])}"
            others = self.read.get(place, set()) - (values.keys() if len(values) == 1 else set())
            assert not others, f"a race: iterations write {name}, and others read it"
            assert len({*values.values()}) == 1, f"a race: iterations write {name} differently"


class Machine:
    """Arrays by tensor, scalars by index and variable, unknown sizes by atom, and the messages
    reported so far.
    """

    def __init__(self) -> None:
        self.arrays: dict[Tensor, np.ndarray] = {}
        self.written: dict[Tensor, np.ndarray] = {}
        self.scalars: dict[Expr, Any] = {}
        self.sizes: dict[tuple[Any, ...], int] = {}
        self.reports: list[str] = []
        self.known: dict[Expr, Any] = {}  # shared parts of the expression being evaluated
        self.depth = 0
        self.at_once: list[Iterations] = []

    def give(self, tensor: Tensor, array: np.ndarray) -> None:
        """An operand: its array, and what that says about unknown sizes."""
        assert array.dtype == tensor.element.dtype, (
            f"{tensor} is {tensor.element}, got {array.dtype}"
        )
        for dim, size in zip(tensor.shape, array.shape, strict=True):
            if isinstance(dim, Size) and dim.is_atom:
                self.sizes[dim.terms[0][0]] = size
        assert self.shape(tensor.shape) == array.shape, (
            f"{tensor} has shape {tensor.shape}, got {array.shape}"
        )
        self.arrays[tensor] = array
        self.written[tensor] = np.ones(array.shape, bool)

    def allocate(self, tensor: Tensor) -> np.ndarray:
        """A buffer in which nothing has been written."""
        shape = self.shape(tensor.shape)
        self.arrays[tensor] = np.zeros(shape, tensor.element.dtype)
        self.written[tensor] = np.zeros(shape, bool)
        return self.arrays[tensor]

    def result(self, tensor: Tensor) -> np.ndarray:
        assert self.written[tensor].all(), (
            f"{tensor}{np.argwhere(~self.written[tensor])[0].tolist()} is not written"
        )
        return self.arrays[tensor]

    def shape(self, shape: Shape) -> tuple[int, ...]:
        return tuple(self.size(d) for d in shape)

    def size(self, dim: Dim) -> int:
        return evaluate(dim, self.sizes)

    # Expressions

    def value(self, expr: Expr) -> Any:
        """The value of an expression, as a NumPy scalar of its type."""
        if expr in self.known:
            return self.known[expr]
        self.depth += 1
        with np.errstate(all="ignore"):
            found = self._value(expr)
        self.depth -= 1
        self.known[expr] = found
        if not self.depth:
            self.known.clear()
        assert np.shape(found) == () and found.dtype == expr.type.dtype, (
            f"{expr} gave {found!r}, not {expr.type}"
        )
        return found

    def _value(self, expr: Expr) -> Any:
        match expr:
            case Const(value, type):
                return type.dtype.type(value)
            case Index() | Var():
                return self.scalars[expr]
            case Extent(size):
                return np.int64(self.size(size))
            case Misalignment(tensor, line):
                return np.int64(tensor.element.bytes * 5 % line)
            case Read(tensor, at):
                place = self.place(tensor, at)
                assert self.written[tensor][place], (
                    f"{tensor}{list(place)} is read before it is written"
                )
                for loop in self.watching(tensor):
                    loop.read.setdefault((tensor, place), set()).add(loop.running)
                return self.arrays[tensor][place]
            case Apply(function, operands, type):
                parts = [self.value(o) for o in operands]
                return np.asarray(SCALARS[function].numpy(*parts))[()]
            case Cast(operand, type):
                return converted(self.value(operand), type)
            case Bitcast(operand, type):
                return np.asarray(self.value(operand)).view(type.dtype)[()]
            case When(condition, then, otherwise):
                return self.value(then if self.value(condition) else otherwise)
            case Reduce(function, over, body):
                return self._fold(function, over, body)
            case Check(condition, value, message):
                if not self.value(condition):
                    self.reports.append(message)
                return self.value(value)
        raise TypeError(f"{type(expr).__name__} is no expression")

    def _fold(self, function: str, over: tuple[Index, ...], body: Expr) -> Any:
        row = SCALARS[function]
        assert row.identity is not None, f"{function} has no identity"
        total = body.type.dtype.type(row.identity(body.type))
        for _ in self.points(over):
            total = np.asarray(row.numpy(total, self.value(body)))[()]
        return total

    def points(self, over: Sequence[Index]) -> Iterator[tuple[int, ...]]:
        """All values of the indices in row-major order, each in turn being the indices' value."""
        for point in itertools.product(*(range(self.size(i.extent)) for i in over)):
            self.scalars.update(zip(over, map(np.int64, point), strict=True))
            self.known.clear()
            yield point

    def place(self, tensor: Tensor, at: tuple[Expr, ...]) -> tuple[int, ...]:
        place = tuple(int(self.value(i)) for i in at)
        shape = self.arrays[tensor].shape
        assert len(place) == len(shape), f"{tensor} has {len(shape)} axes, got {list(place)}"
        assert all(0 <= i < n for i, n in zip(place, shape, strict=True)), (
            f"{tensor}{list(place)} is outside {shape}"
        )
        return place

    def watching(self, tensor: Tensor) -> Iterator[Iterations]:
        """The loops at work whose iterations share an array."""
        return (loop for loop in self.at_once if tensor not in loop.private)

    # Statements

    def run(self, block: Block) -> None:
        for statement in block:
            match statement:
                case For(index, body, start, _, kind, width):
                    first, stop = int(self.value(start)), int(self.value(statement.end))
                    streams = any(isinstance(s, Store) and s.streaming for s in body)
                    whole = kind != "vector" or (stop - first) % width == 0 or streams
                    assert whole, f"{stop - first} is no multiple of {width}"
                    iterations = Iterations(allocated(body))
                    self.at_once += [iterations] if kind in AT_ONCE else []
                    for i in range(first, stop):
                        self.scalars[index] = np.int64(i)
                        iterations.running = i
                        self.run(body)
                    if kind in AT_ONCE:
                        self.at_once.pop().check()
                case If(condition, then, otherwise):
                    self.run(then if self.value(condition) else otherwise)
                case Let(var, value):
                    self.scalars[var] = self.value(value)
                case Alloc(tensor):
                    self.allocate(tensor)
                case Store(tensor, at, value):
                    place = self.place(tensor, at)
                    assert value.type is tensor.element, (
                        f"{tensor} is {tensor.element}, got {value.type}"
                    )
                    self.arrays[tensor][place] = self.value(value)
                    self.written[tensor][place] = True
                    bits = self.arrays[tensor][place].tobytes()
                    for loop in self.watching(tensor):
                        loop.written.setdefault((tensor, place), {})[loop.running] = bits
                case Assert(condition, message):
                    if not self.value(condition):
                        self.reports.append(message)


def converted(value: Any, element: ElementType) -> Any:
    """A scalar in another element type, as `Cast` defines it."""
    source = np.asarray(value)
    if element.kind == "bool":
        return np.bool_(value != 0)
    if source.dtype.kind == "f" and element.is_integer:
        low, high = element.limits
        if np.isnan(value):
            return element.dtype.type(0)
        return element.dtype.type(low if value <= low else high if value >= high else int(value))
    return source.astype(element.dtype)[()]


def by_formula(op: Operator[np.ndarray], unknown_sizes: bool = False) -> tuple[np.ndarray, ...]:
    """The results of an operator over arrays by its `element`, or by its `nest`.

    With `unknown_sizes` every size of the operands is a name of its own, as if it were known only
    at the call.
    """
    machine = Machine()

    def declare(array: np.ndarray) -> Tensor:
        name = f"x{len(machine.arrays)}"
        shape = tuple(
            Size.named(f"{name.upper()}N{n}") if unknown_sizes else d
            for n, d in enumerate(array.shape)
        )
        tensor = Tensor(name, shape, BY_DTYPE[array.dtype])
        machine.give(tensor, array)
        return tensor

    tensors = op.map(declare)
    fields = iter(op.types.values())
    types = tensors.map(
        lambda t: next(fields, None) or TensorType(t.shape, t.element)
    ).result_types()
    results = [Tensor(n, t.array_shape, t.element) for n, t in zip(op.results, types, strict=True)]
    for result in results:
        machine.allocate(result)
    if op.has_nest():
        machine.run(tensors.nest(*results))
    else:
        (y,) = results
        store(machine, y, tensors.element(y))
    return tuple(machine.result(r) for r in results)


def store(machine: Machine, y: Tensor, element: Element) -> None:
    """Every element of a result by its formula."""
    for point in machine.points(element.indices):
        place = machine.place(y, element.indices)
        assert place == point
        machine.arrays[y][place] = machine.value(element.value)
        machine.written[y][place] = True


def execute(kernel: Kernel, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
    """The results of a kernel of the loop language."""
    machine = Machine()
    inputs = kernel.inputs
    outputs = kernel.outputs
    for tensor, array in zip(inputs, operands, strict=True):
        machine.give(tensor, array)
    for tensor in outputs:
        machine.allocate(tensor)
    machine.run(kernel.body)
    return tuple(machine.result(t) for t in outputs)
