"""Common parts of the writers of models: the walk over a program of integers, and the tensors of
each value by the order of its axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np

import cvm
from cvm.dialect.builtin import Const
from cvm.dialect.ir.builder import Node
from cvm.dialect.ir.function import Function, Literal, Operation, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.support.diagnostics import Diagnostic

from .float_graph import MOVES, named, scalar_function

Order = tuple[int, ...]  # of a value's axes in a tensor


class Unstated(Exception):
    """An operation that no operator of a model states."""


class ModelWriter:
    """A model while it is written; its tensors are numbered. A subclass adds tensors and has a rule
    for each operator, by its name.
    """

    suffix: ClassVar[str] = ""
    rules: ClassVar[Mapping[str, Callable[[Any, Value, Any], None]]] = {}

    def __init__(self, module: Module, entry: str = "main") -> None:
        if (function := module.functions.get(entry)) is None:
            raise cvm.Error(f"the program has no function @{entry}")
        self.function: Function = function
        self.made = {r: o for o in self.function.operations for r in o.results}
        self.laid: dict[Value, dict[Order, int]] = {}  # the tensors of a value
        self.names: dict[int, str] = {}  # of tensors

    def walk(self) -> tuple[list[int], list[int]]:
        """Write all operations; the tensors of the arguments and of the results."""
        function, inputs, outputs = self.function, list[int](), list[int]()
        for a in function.arguments:
            try:
                inputs.append(self.argument(a))
            except Unstated as e:
                self.refuse(f"%{a.name}", str(e), a.span)
            self.give(a, inputs[-1])
        for operation in function.operations:
            function_name = scalar_function(operation) or ""
            rule = self.rules.get(operation.operator.name) or self.rules.get(function_name)
            if rule is None:
                continue  # refused where it is read, unless an operator states it with others
            try:
                rule(self, operation.results[0], operation.operator)
            except Unstated as e:
                self.refuse(named(operation), str(e), operation.at("op"))
        for value in function.results:
            try:
                outputs.append(self.tensor(value))
            except Unstated as e:
                self.refuse(f"the result %{value.name}", str(e), value.span)
        return inputs, outputs

    def refuse(self, what: str, reason: str, span: Any) -> NoReturn:
        said = f"{what} cannot be written to {self.suffix}: {reason}"
        raise cvm.Error(Diagnostic(said, span, "quantize")) from None

    @staticmethod
    def check(given: Any, expected: Any, what: str) -> None:
        if given != expected:
            raise Unstated(f"{what} is {given}, and by the scales {expected}")

    # What a format defines

    def argument(self, value: Value) -> int:
        """The tensor of an argument."""
        raise NotImplementedError

    def constant(self, value: Value, array: np.ndarray) -> int:
        """The tensor of a constant of the program."""
        raise NotImplementedError

    def transposed(self, index: int, order: Sequence[int]) -> int:
        raise NotImplementedError

    def shaped(self, index: int, y: Value) -> int:
        """A tensor in the shape of a value, whose scale it has."""
        raise NotImplementedError

    def sliced(self, index: int, begin: Sequence[int], shape: Sequence[int]) -> int:
        raise NotImplementedError

    def padded(self, index: int, before: Sequence[int], after: Sequence[int], fill: int) -> int:
        raise NotImplementedError

    def joined(self, inputs: Sequence[int], axis: int, shape: Sequence[int]) -> int:
        raise NotImplementedError

    # Tensors

    def array(self, value: Value) -> np.ndarray:
        """The elements of a constant."""
        if isinstance(value, Literal):
            return np.asarray(value.array)
        made = self.made.get(value)
        if made is None or not isinstance(made.operator, Const):
            raise Unstated(f"%{value.name} is no constant")
        return np.asarray(made.operator.data.array)

    def factors(self, o: Any) -> list[tuple[int, int]]:
        """The multipliers and shifts of a requantization."""
        m, s = (self.array(v).reshape(-1) for v in (o.multiplier, o.shift))
        return [(int(a), int(b)) for a, b in zip(m, s, strict=True)]

    def tensor(self, value: Value, order: Order | None = None) -> int:
        """A tensor of a value, with its axes in this order; by default as they are."""
        order = order or natural(value)
        known = self.laid.setdefault(value, {})
        if not known:
            made = self.made.get(value)
            if made is None or not isinstance(made.operator, Const):
                raise Unstated(f"no operator states {named(made)}" if made else "it is a literal")
            known[order] = self.constant(value, np.array(made.operator.data.array).transpose(order))
        if order not in known:
            before, index = next(iter(known.items()))
            known[order] = self.transposed(index, [before.index(a) for a in order])
        return known[order]

    def is_readable(self, value: Value) -> bool:
        """Test whether a value has a tensor, or is a constant."""
        made = self.made.get(value)
        return value in self.laid or (made is not None and isinstance(made.operator, Const))

    def layout(self, value: Value) -> Order:
        """The order of the axes that a value has been computed in."""
        return next(iter(self.laid.get(value, ())), natural(value))

    def common_layout(self, y: Value, values: Sequence[Value]) -> Order:
        """An order of the axes for values of one rank that are combined."""
        orders = [p for v in values if (p := self.layout(v)) != natural(y)]
        same = {v.known_type.rank for v in values} == {len(natural(y))}  # type: ignore[union-attr]
        return orders[0] if orders and same else natural(y)

    def give(self, value: Value, index: int, order: Order | None = None) -> None:
        """Let a tensor be that of a value, whose name it takes."""
        self.names.setdefault(index, value.name)
        self.laid[value] = {order or natural(value): index}

    def unique_names(self, count: int) -> list[str]:
        """The names of tensors, each once."""
        names, taken = list[str](), set[str]()
        for index in range(count):
            name = self.names.get(index, f"t{index}")
            while name in taken:
                name = f"{name}.{index}"
            names.append(name)
            taken.add(name)
        return names

    def summed(self, sums: Any) -> tuple[Value, list[int], Any]:
        """The value of i8 that a sum is of, its axes, and the windows that it is over."""
        cast = self.made.get(sums.x)
        if cast is None or scalar_function(cast) != "cast" or getattr(sums, "exclude", False):
            raise Unstated("it is a sum of products, or of others than numbers of i8")
        (_, x), *_ = cast.operator.operands()
        rank = x.known_type.rank  # type: ignore[union-attr]
        along = getattr(sums, "axis", None) or getattr(sums, "axes", None) or range(rank)
        along = sorted(a % rank for a in along)
        patches = self.made.get(x)
        if patches is None or patches.operator.name != "builtin.windows":
            return x, along, None
        windows: Any = patches.operator
        if windows.axes != (2, 3) or windows.x.known_type.rank != 4 or along != [4, 5]:
            raise Unstated("it is no sum of windows over the rows and columns of NCHW")
        return windows.x, along, windows


def natural(value: Value) -> Order:
    return tuple(range(value.known_type.rank))  # type: ignore[union-attr]


def sizes_of(value: Value, order: Order | None = None) -> list[int]:
    """The sizes, with -1 for unknown ones."""
    sizes = value.known_type.array_shape  # type: ignore[union-attr]
    return [n if isinstance(n, int) else -1 for n in (sizes[a] for a in order or natural(value))]


def same(value: Value, again: Node, made: Mapping[Value, Operation]) -> bool:
    """Test whether a value is computed by the operations that are emitted again."""
    emitted = {r: o for o in again.builder.operations for r in o.results}
    pending, seen = [(value, again.value)], set[tuple[Value, Value]]()
    while pending:
        a, b = pair = pending.pop()
        if a is b or pair in seen:
            continue
        seen.add(pair)
        if isinstance(a, Literal) and isinstance(b, Literal):
            if a.type != b.type or a.array.tobytes() != b.array.tobytes():
                return False
            continue
        p, q = made.get(a), emitted.get(b)
        if p is None or q is None or type(p.operator) is not type(q.operator):
            return False
        x, z = p.operator, q.operator
        if isinstance(x, Const) and isinstance(z, Const):
            if x.type != z.type or not np.array_equal(x.data.array, z.data.array):
                return False
            continue
        attributes = [{f.name: v for f, v in o.attributes()} for o in (x, z)]
        operands = [[v for _, v in o.operands()] for o in (x, z)]
        if attributes[0] != attributes[1] or len(operands[0]) != len(operands[1]):
            return False
        pending += zip(*operands, strict=True)
    return True


# Rules that the formats share


def pad(to: ModelWriter, y: Value, o: Any) -> None:
    order = to.layout(o.x)
    index = to.tensor(o.x, order)
    before, after = ([sides[a] for a in order] for sides in (o.before, o.after))
    to.give(y, to.padded(index, before, after, int(to.array(o.value))), order)


def concatenate(to: ModelWriter, y: Value, o: Any) -> None:
    order = to.common_layout(y, o.xs)
    inputs = [to.tensor(v, order) for v in o.xs]
    axis = order.index(o.axis % len(order))
    to.give(y, to.joined(inputs, axis, sizes_of(y, order)), order)


def move(to: ModelWriter, y: Value, o: Any) -> None:
    """Operators that move elements: to another shape, another order of axes, or a slice."""
    if o.x not in to.laid:
        return  # not of quantized numbers, or refused where it is read
    if o.name == "cvm.slice":
        order = to.layout(o.x)
        cuts = o.clipped(o.x.known_type.array_shape)
        if any(n < 0 for n in sizes_of(o.x)) or any(step != 1 for _, _, step in cuts):
            raise Unstated("it is a slice of an unknown size, or with a stride")
        begin = [int(cuts[a][0]) for a in order]
        to.give(y, to.sliced(to.tensor(o.x, order), begin, sizes_of(y, order)), order)
        return
    index = to.tensor(o.x)
    if o.name in ("theano.dimshuffle", "cvm.transpose"):
        rank = o.x.known_type.rank
        order = getattr(o, "new_order", None)
        order = (o.axes or range(rank)[::-1]) if order is None else order
        kept = [a % rank for a in order if a != "x"]
        index = to.transposed(index, [*kept, *(a for a in range(rank) if a not in kept)])
    to.give(y, to.shaped(index, y))


SHARED: dict[str, Callable[[Any, Value, Any], None]] = {
    "quant.pad": pad,
    "cvm.concatenate": concatenate,
    **dict.fromkeys(MOVES, move),
}
