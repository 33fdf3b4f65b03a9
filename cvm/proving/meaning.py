"""The meaning of formulas in z3: each element of a result as a term over the elements of arguments.

    y[i] = max(x[i] + 1, 0)  =>  If(x!i + 1 > 0, x!i + 1, 0)

A read of a computed tensor is replaced by its formula at that place, so that nothing depends on
which formulas are fused. Sums over few terms are written out; of others, two are equal where they
are written alike. Hand-written nests and loops have no term (`Unsupported`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import product
from math import inf, prod
from time import monotonic
from typing import Any

import numpy as np
import z3

from cvm.dialect.kernel_ir import expressions as ex
from cvm.dialect.kernel_ir.formulas import Formula, Formulas, View
from cvm.dialect.kernel_ir.loops import identity
from cvm.dialect.types.sizes import Dim, Size, key_of
from cvm.dialect.types.tensor_types import ElementType

from .bit_vectors import Arithmetic, Term, Unsupported, folded, is_index, variables
from .division import divided

MAX_TERMS = 64  # of a sum that is written out; bounds the size of a query (by hand)
MAX_LISTED = 256  # elements of a constant that are told apart by their index (by hand)
MAX_NODES = (
    20_000  # of the terms of an element of each result; bounds the time before z3 begins (by hand)
)

OUTER = "i!"  # begins the names of the indices of results
INNER = "k!"  # begins the names of the indices of sums
SIZES: Mapping[str, Any] = {
    "*": lambda a, b: a * b,
    "//": lambda a, b: z3.If(z3.IntVal(b) if isinstance(b, int) else b == 0, 0, a / b),
    "max": lambda a, b: z3.If(a > b, a, b),
    "min": lambda a, b: z3.If(a < b, a, b),
}


@dataclass(frozen=True)
class Meaning:
    """The value of an expression, and the condition under which no check in it fails."""

    value: Term
    defined: Term


@dataclass
class Element:
    """An element of an argument: its place, and the symbol of its value."""

    argument: int
    indices: tuple[Term, ...]
    value: Term
    type: ElementType


@dataclass
class Symbols:
    """The symbols of two programs: the sizes and the elements of their arguments, and facts about
    these.
    """

    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    facts: list[Term] = field(default_factory=list)
    sizes: dict[Any, Term] = field(default_factory=dict)
    elements: dict[tuple[Any, ...], Element] = field(default_factory=dict)
    # by array, those that an element at known (True) or any other indices may be the same as
    others: dict[tuple[Any, bool], list[Element]] = field(default_factory=dict)
    sums: dict[tuple[Any, ...], Meaning] = field(default_factory=dict)
    most: dict[int, int] = field(
        default_factory=dict
    )  # values of elements that have no sign, by id
    deadline: float = inf  # of time.monotonic(), when terms are to be written
    kept: list[Term] = field(default_factory=list)  # terms whose ids are keys

    def size(self, dim: Dim, bound: Mapping[Any, Dim]) -> Term:
        """A size; `bound` has the sizes of the other program for those of this one."""
        if isinstance(dim, int):
            return z3.IntVal(int(dim))
        terms = {a: self.size_of(bound.get(a, Size.of_atom(a))) for a in dim.atoms()}
        return dim.evaluate(terms, SIZES)

    def size_of(self, dim: Dim) -> Term:
        if isinstance(dim, int) or not dim.is_atom:
            return self.size(dim, {})
        atom = key_of(dim.terms[0][0])
        if atom not in self.sizes:
            self.sizes[atom] = z3.Int(f"?{'.'.join(map(str, atom))}")
            self.facts.append(self.sizes[atom] >= 0)
        return self.sizes[atom]

    def element(
        self, array: Any, type: ElementType, at: Sequence[Term], limits: tuple[int, int] | None
    ) -> Term:
        """The symbol for an element of an array: that of an argument, by its number, or of a
        constant, by its content.
        """
        at = tuple(z3.simplify(i) for i in at)
        key = (array, *(i.get_id() for i in at))
        if key not in self.elements:
            value = z3.FreshConst(self.arithmetic.sort(type), f"x{array}")
            known = all(map(z3.is_int_value, at))
            for other in self.others.setdefault((array, known), []):
                same = [i == j for i, j in zip(at, other.indices, strict=True)]
                self.facts.append(z3.Implies(z3.And(*same), value == other.value))
            if limits is not None and type.is_integer:
                number = self.arithmetic.number
                low, high = (number(n, type) for n in limits)
                inside = (low <= value, value <= high)
                if limits[0] >= 0:
                    self.most[value.get_id()] = limits[1]
                self.facts += inside if type.signed else (z3.ULE(low, value), z3.ULE(value, high))
            self.elements[key] = element = Element(array, at, value, type)
            for kind in (False,) if known else (False, True):  # numbers differ from each other
                self.others.setdefault((array, kind), []).append(element)
        return self.elements[key].value


class IndexValues:
    """The values of the indices at one place of a formula, and the meanings found there."""

    def __init__(self, indices: Mapping[ex.Expr, Term]) -> None:
        self.indices = dict(indices)
        self.known: dict[ex.Expr, Meaning] = {}


TRUE = z3.BoolVal(True)


class Translation:
    """The terms of one program's formulas. `bound` has the other program's sizes for its own, and
    `limits` the declared ranges of arguments, by their numbers.
    """

    max_nodes = MAX_NODES

    def __init__(
        self,
        formulas: Formulas,
        symbols: Symbols,
        bound: Mapping[object, Dim],
        limits: Mapping[int, tuple[int, int]],
    ) -> None:
        self.formulas, self.symbols, self.bound, self.limits = formulas, symbols, bound, limits
        self.arithmetic = symbols.arithmetic
        self.arguments = {t: n for n, t in enumerate(formulas.arguments)}
        self.steps: dict[ex.Tensor, Formula] = {}
        self.known: dict[tuple[Any, ...], Meaning] = {}
        self.nodes = 0
        for step in formulas.steps:
            if isinstance(step, (Formula, View)):
                self.steps[step.tensor] = step if isinstance(step, Formula) else step.formula

    def result(self, number: int, at: Sequence[Term]) -> Meaning:
        """The meaning of an element of a result."""
        tensor = self.formulas.results[number]
        found = self.read(tensor, at)
        return Meaning(self.arithmetic.data(found.value, tensor.element), found.defined)

    def shape(self, tensor: ex.Tensor) -> tuple[Term, ...]:
        return tuple(self.symbols.size(d, self.bound) for d in tensor.shape)

    def read(self, tensor: ex.Tensor, at: Sequence[Term]) -> Meaning:
        if tensor in self.arguments:
            n = self.arguments[tensor]
            value = self.symbols.element(n, tensor.element, at, self.limits.get(n))
            return Meaning(value, TRUE)
        if tensor in self.formulas.constants:
            return Meaning(self.constant(tensor, self.formulas.constants[tensor], at), TRUE)
        if tensor not in self.steps:
            raise Unsupported(f"%{tensor.name}, which loops compute")
        at = [z3.simplify(i) for i in at]
        key = (tensor, *(i.get_id() for i in at))
        if key not in self.known:
            self.symbols.kept += at
            formula = self.steps[tensor]
            scope = IndexValues(dict(zip(formula.indices, at, strict=True)))
            found = self.of(formula.value, scope)
            if not is_index(found.value):
                found = Meaning(self.arithmetic.data(found.value, tensor.element), found.defined)
            self.known[key] = found
        return self.known[key]

    def constant(self, tensor: ex.Tensor, array: np.ndarray, at: Sequence[Term]) -> Term:
        def number(value: Any) -> Term:
            return self.arithmetic.data(
                self.arithmetic.constant(value, tensor.element), tensor.element
            )

        array = array.reshape([int(d) for d in tensor.shape])
        at = [z3.simplify(i) for i in at]
        if all(map(z3.is_int_value, at)):
            return number(array[tuple(i.as_long() for i in at)])
        if array.size and (array == array.flat[0]).all():
            return number(array.flat[0])
        if array.size > MAX_LISTED:
            limits = (int(array.min()), int(array.max())) if tensor.element.is_integer else None
            digest = sha256(array.tobytes()).hexdigest()
            return self.symbols.element(digest, tensor.element, at, limits)
        found = number(array.flat[0]) if array.size else number(0)
        for place in np.ndindex(array.shape):
            here = z3.And(*(i == n for i, n in zip(at, place, strict=True)))
            found = z3.If(here, number(array[place]), found)
        return found

    def of(self, e: ex.Expr, scope: IndexValues) -> Meaning:
        if e not in scope.known:
            self.nodes += 1
            if self.nodes > self.max_nodes:
                raise Unsupported(f"more than {self.max_nodes} operations")
            if monotonic() > self.symbols.deadline:
                raise Unsupported("terms that take so long to write")
            scope.known[e] = self.found(e, scope)
        return scope.known[e]

    def found(self, e: ex.Expr, scope: IndexValues) -> Meaning:
        match e:
            case ex.Const(value, type):
                return Meaning(self.arithmetic.constant(value, type), TRUE)
            case ex.Index() | ex.Var():
                return Meaning(scope.indices[e], TRUE)
            case ex.Misalignment():
                return Meaning(z3.IntVal(0), TRUE)
            case ex.Extent(size):
                return Meaning(self.symbols.size(size, self.bound), TRUE)
            case ex.Read(tensor, indices):
                at = [self.of(i, scope) for i in indices]
                found = self.read(tensor, [_place(i.value) for i in at])
                return Meaning(found.value, _all(found, *at))
            case ex.Apply(function, operands, type):
                if (known := folded(e)) is not None:
                    return Meaning(self.arithmetic.constant(known, type), TRUE)
                parts = [self.of(o, scope) for o in operands]
                xs, types = [p.value for p in parts], [o.type for o in operands]
                value = None
                if type.is_integer and len(xs) == 2 and not self.arithmetic.narrow:
                    if not all(map(is_index, xs)):
                        xs = [self.arithmetic.data(x, type) for x in xs]
                    value = divided(function, xs[0], xs[1], type, self.symbols.most)
                if value is None:
                    value = self.arithmetic.apply(function, xs, types)
                return Meaning(value, _all(*parts))
            case ex.Cast(operand, type):
                part = self.of(operand, scope)
                return Meaning(self.arithmetic.cast(part.value, operand.type, type), part.defined)
            case ex.Bitcast(operand, type):
                part = self.of(operand, scope)
                return Meaning(self.arithmetic.data(part.value, operand.type), part.defined)
            case ex.When(condition, then, otherwise):
                test, a, b = (self.of(part, scope) for part in (condition, then, otherwise))
                value = self.arithmetic.apply(
                    "select", [test.value, a.value, b.value], [condition.type, e.type, e.type]
                )
                chosen = z3.If(test.value, a.defined, b.defined)
                return Meaning(value, _all(test, Meaning(value, z3.simplify(chosen))))
            case ex.Check(condition, value, _, _):
                test, part = self.of(condition, scope), self.of(value, scope)
                return Meaning(part.value, _all(test, part, Meaning(value, test.value)))
            case ex.Reduce():
                return self.reduced(e, scope)
        raise Unsupported(f"{e.__class__.__name__} in a formula")

    def reduced(self, e: ex.Reduce, scope: IndexValues) -> Meaning:
        """A sum, written out where it has few terms."""
        extents = [i.extent for i in e.indices]
        if all(isinstance(n, int) for n in extents) and prod(map(int, extents)) <= MAX_TERMS:
            parts = list(self.terms(e, scope))
            total = self.of(identity(e.function, e.type), scope).value
            for part in parts:
                total = self.arithmetic.apply(e.function, [total, part.value], [e.type, e.type])
            return Meaning(total, _all(*parts))
        sizes = [self.symbols.size(n, self.bound) for n in extents]
        names = [v for i in scope.indices.values() for v in variables(i) if v.startswith(INNER)]
        depth = max((int(v.removeprefix(INNER)) + 1 for v in names), default=0)
        inner = [z3.Int(f"{INNER}{depth + n}") for n in range(len(sizes))]
        body = self.of(
            e.body, IndexValues({**scope.indices, **dict(zip(e.indices, inner, strict=True))})
        )
        value = z3.simplify(self.arithmetic.data(body.value, e.type), som=True)
        parts = [value, z3.simplify(body.defined), *map(z3.simplify, sizes)]
        self.symbols.kept += parts
        key = (e.function, e.type.name, *(p.get_id() for p in parts))
        if key not in self.symbols.sums:
            name = SUMS.get(e.function, e.function)
            self.arithmetic.abstract[f"a {name} over {' x '.join(map(str, extents))}"] = None
            sort = self.arithmetic.sort(e.type)
            total = Meaning(z3.FreshConst(sort, "total"), z3.FreshConst(z3.BoolSort(), "defined"))
            if z3.is_true(parts[1]):
                total = Meaning(total.value, TRUE)
            self.symbols.sums[key] = total
        return self.symbols.sums[key]

    def terms(self, e: ex.Reduce, scope: IndexValues) -> Iterator[Meaning]:
        for point in product(*(range(int(i.extent)) for i in e.indices)):  # type: ignore[arg-type]
            at = dict(zip(e.indices, map(z3.IntVal, point), strict=True))
            yield self.of(e.body, IndexValues({**scope.indices, **at}))


SUMS = {"add": "sum", "mul": "product", "max": "maximum", "min": "minimum"}


def _place(index: Term) -> Term:
    """An index that data says, as the unbounded integer that it is."""
    return index if is_index(index) else z3.BV2Int(index, is_signed=True)


def _all(*parts: Meaning) -> Term:
    conditions = [p.defined for p in parts if not z3.is_true(p.defined)]
    return z3.And(*conditions) if len(conditions) > 1 else conditions[0] if conditions else TRUE
