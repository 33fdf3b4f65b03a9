"""Element types, sizes (known and unknown) and the types of values. Nothing here knows an operator."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

Kind = Literal["bool", "int", "uint", "float", "complex"]


@dataclass(frozen=True, slots=True)
class ElementType:
    """The type of one element: its name in the language, its kind and its width in bits."""

    name: str
    kind: Kind
    bits: int
    dtype: np.dtype

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_discrete(self) -> bool:
        return self.kind in ("bool", "int", "uint")

    @property
    def signed(self) -> bool:
        return self.kind == "int"

    @property
    def bytes(self) -> int:
        return self.dtype.itemsize

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest value of a discrete type."""
        if self.kind == "int":
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, ...]:
        return element_type, (self.name,)


_ROWS: tuple[tuple[str, Kind, int, str], ...] = (
    ("i1", "bool", 1, "bool"),
    ("i8", "int", 8, "int8"),
    ("i16", "int", 16, "int16"),
    ("i32", "int", 32, "int32"),
    ("i64", "int", 64, "int64"),
    ("ui8", "uint", 8, "uint8"),
    ("ui16", "uint", 16, "uint16"),
    ("ui32", "uint", 32, "uint32"),
    ("ui64", "uint", 64, "uint64"),
    ("f16", "float", 16, "float16"),
    ("f32", "float", 32, "float32"),
    ("f64", "float", 64, "float64"),
    ("complex<f32>", "complex", 64, "complex64"),
    ("complex<f64>", "complex", 128, "complex128"),
)
ELEMENT_TYPES: dict[str, ElementType] = {n: ElementType(n, k, b, np.dtype(d)) for n, k, b, d in _ROWS}


def element_type(name: str) -> ElementType:
    """The element type of this name."""
    return ELEMENT_TYPES[name]


I1, I8, I16, I32, I64, UI8, UI16, UI32, UI64, F16, F32, F64, C64, C128 = ELEMENT_TYPES.values()
BY_DTYPE: dict[np.dtype, ElementType] = {e.dtype: e for e in ELEMENT_TYPES.values()}


class Undecided(Exception):
    """A comparison of sizes that are not known before the program is called."""


_fresh = itertools.count()
_Atom: TypeAlias = tuple


@dataclass(frozen=True, eq=False)
class Size:
    """A size known only when the program is called: a sum of atoms with integer factors, plus a constant.

    An atom is a named size `("N",)`, an anonymous one `("?", number)`, or an operation that is not linear, such as
    `("//", a, b)`. Sizes are never negative. Comparing two sizes answers when the answer holds for every call and raises
    `Undecided` otherwise.
    """

    terms: tuple[tuple[_Atom, int], ...]
    constant: int = 0

    @staticmethod
    def named(name: str) -> Size:
        return Size((((name,), 1),))

    @staticmethod
    def unknown() -> Size:
        return Size(((("?", next(_fresh)), 1),))

    @cached_property
    def key(self) -> tuple[object, ...]:
        """How the size is written, which can be compared without deciding anything about its value."""
        return tuple((_atom_key(a), f) for a, f in self.terms), self.constant

    @property
    def name(self) -> str | None:
        """The name, where this is just a named size."""
        match self.terms:
            case (((str(name),), 1),) if self.constant == 0:
                return name
        return None

    @property
    def is_atom(self) -> bool:
        return len(self.terms) == 1 and self.terms[0][1] == 1 and self.constant == 0 and len(self.terms[0][0]) < 3

    def atoms(self) -> set[_Atom]:
        """The named and anonymous sizes this one depends on."""
        found: set[_Atom] = set()
        for atom, _ in self.terms:
            if len(atom) < 3:
                found.add(atom)
            else:
                for part in atom[1:]:
                    if isinstance(part, Size):
                        found |= part.atoms()
        return found

    def evaluate(self, known: Mapping[_Atom, int]) -> int:
        total = self.constant
        for atom, factor in self.terms:
            if len(atom) < 3:
                value = known[atom]
            else:
                operation, *parts = atom
                value = OPERATIONS[operation](*(p.evaluate(known) if isinstance(p, Size) else p for p in parts))
            total += factor * value
        return total

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (int, Size)):
            return NotImplemented
        low, high = _range(self - other)
        if low == high == 0:
            return True
        if low > 0 or high < 0:
            return False
        raise Undecided

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Dim) -> bool:
        return _below_zero(self - other)

    def __gt__(self, other: Dim) -> bool:
        return _below_zero(other - self)

    def __le__(self, other: Dim) -> bool:
        return not self > other

    def __ge__(self, other: Dim) -> bool:
        return not self < other

    def __add__(self, other: Dim) -> Dim:
        terms, constant = (other.terms, other.constant) if isinstance(other, Size) else ((), other)
        factors = dict(self.terms)
        for atom, factor in terms:
            factors[atom] = factors.get(atom, 0) + factor
        kept = tuple(sorted(((a, f) for a, f in factors.items() if f), key=repr))
        return Size(kept, self.constant + constant) if kept else self.constant + constant

    __radd__ = __add__

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            return Size(tuple((a, f * other) for a, f in self.terms), self.constant * other) if other else 0
        return _opaque("*", *sorted((self, other), key=repr))

    __rmul__ = __mul__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + -other

    def __rsub__(self, other: Dim) -> Dim:
        return -self + other

    def __floordiv__(self, other: Dim) -> Dim:
        if other is self or (isinstance(other, Size) and other.key == self.key):
            return 1
        if isinstance(other, int) and other and all(f % other == 0 for _, f in self.terms):
            return Size(tuple((a, f // other) for a, f in self.terms), self.constant // other)
        return _opaque("//", self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return _opaque("//", other, self)

    def __mod__(self, other: Dim) -> Dim:
        return self - (self // other) * other

    def __bool__(self) -> bool:
        return self != 0

    def __index__(self) -> int:
        raise Undecided

    def __str__(self) -> str:
        return f"?{self.name}" if self.name else "?"

    def __repr__(self) -> str:
        parts = [("" if f == 1 else f"{f}*") + _atom_text(a) for a, f in self.terms]
        if self.constant:
            parts.append(str(self.constant))
        return " + ".join(parts)


Dim: TypeAlias = int | Size


class Given(int):
    """A size that was not known when the program was verified, as it is in one call. What is computed from it is one too."""

    __slots__ = ()


def _given(operation: Callable[[int, int], int]) -> Callable[[Given, Dim], Dim]:
    def compute(self: Given, other: Dim) -> Dim:
        return Given(operation(int(self), int(other))) if isinstance(other, int) else NotImplemented

    return compute


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    _operation = getattr(operator, _name)
    setattr(Given, f"__{_name}__", _given(_operation))
    setattr(Given, f"__r{_name}__", _given(lambda a, b, f=_operation: f(b, a)))
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b if b else 0,
    "max": max,
    "min": min,
}


def _atom_key(atom: _Atom) -> tuple[object, ...]:
    return tuple(p.key if isinstance(p, Size) else p for p in atom)


def _atom_text(atom: _Atom) -> str:
    if len(atom) == 1:
        return atom[0]
    if len(atom) == 2:
        return f"?{atom[1]}"
    return f"{atom[0]}({', '.join(map(repr, atom[1:]))})"


def _opaque(operation: str, *parts: Dim) -> Size:
    return Size((((operation, *parts), 1),))


def _range(value: Dim) -> tuple[float, float]:
    """Bounds of a difference of sizes, all atoms being non-negative."""
    if isinstance(value, int):
        return value, value
    low = -math.inf if any(f < 0 for _, f in value.terms) else value.constant
    high = math.inf if any(f > 0 for _, f in value.terms) else value.constant
    return low, high


def _below_zero(value: Dim) -> bool:
    low, high = _range(value)
    if high < 0:
        return True
    if low >= 0:
        return False
    raise Undecided


def same_size(a: Dim, b: Dim) -> bool:
    """Whether two sizes are written alike: true only if they are equal in every call."""
    return (
        a == b
        if isinstance(a, int) and isinstance(b, int)
        else isinstance(a, Size) and isinstance(b, Size) and a.key == b.key
    )


def larger(a: Dim, b: Dim) -> Dim:
    """The maximum of two sizes, symbolic where it has to be."""
    try:
        return a if a >= b else b
    except Undecided:
        return _opaque("max", *sorted((a, b), key=repr))


def smaller(a: Dim, b: Dim) -> Dim:
    """The minimum of two sizes, symbolic where it has to be."""
    try:
        return a if a <= b else b
    except Undecided:
        return _opaque("min", *sorted((a, b), key=repr))


def evaluate(dim: Dim, known: Mapping[_Atom, int]) -> int:
    return dim if isinstance(dim, int) else dim.evaluate(known)


Shape: TypeAlias = tuple[Dim, ...]


@dataclass(frozen=True, eq=False)
class TensorType:
    """A dense row-major array: its shape and the type of its elements."""

    shape: Shape
    element: ElementType

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Dim:
        return product(self.shape)

    @property
    def array_shape(self) -> Shape:
        """The shape of the array that holds such a value."""
        return self.shape

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in self.shape)

    def with_shape(self, *shape: Dim) -> TensorType:
        return TensorType(shape, self.element)

    def with_element(self, element: ElementType) -> TensorType:
        return TensorType(self.shape, element)

    def with_array_shape(self, shape: Shape) -> TensorType:
        return TensorType(shape, self.element)

    @property
    def key(self) -> tuple[object, ...]:
        return "tensor", tuple(d if isinstance(d, int) else d.key for d in self.shape), self.element.name

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, (TensorType, FieldType)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        if any(isinstance(d, Size) and d.name for d in self.shape):
            return f"tensor<{' x '.join([*map(str, self.shape), self.element.name])}>"
        return f"tensor<{'x'.join([*map(str, self.shape), self.element.name])}>"


@dataclass(frozen=True, eq=False)
class FieldType:
    """A Cog field: a grid of up to three dimensions whose points are tensors of order up to two."""

    shape: Shape
    tensor: TensorType

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def element(self) -> ElementType:
        return self.tensor.element

    @property
    def array_shape(self) -> Shape:
        return (*self.shape, *self.tensor.shape)

    @property
    def size(self) -> Dim:
        return product(self.array_shape)

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in self.array_shape)

    def with_element(self, element: ElementType) -> FieldType:
        return FieldType(self.shape, self.tensor.with_element(element))

    def with_array_shape(self, shape: Shape) -> FieldType:
        return FieldType(shape[: self.rank], TensorType(shape[self.rank :], self.element))

    @property
    def key(self) -> tuple[object, ...]:
        return "field", tuple(d if isinstance(d, int) else d.key for d in self.shape), self.tensor.key

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, (TensorType, FieldType)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        point = self.tensor if self.tensor.rank else self.tensor.element
        return f"!cog.field<[{', '.join(map(str, self.shape))}], {point}>"


Type: TypeAlias = TensorType | FieldType

MAX_RANK = 32  # dimensions of an array
MAX_SIZE = 1 << 40  # elements of an array, and the bound of a size


def excess(type: Type) -> str | None:
    """Which bound of the language a type breaks, in words; None if it breaks none that is known yet."""
    shape = type.array_shape
    if len(shape) > MAX_RANK:
        return f"a value has at most {MAX_RANK} dimensions, but this one has {len(shape)}"
    known = [d for d in shape if isinstance(d, int)]
    if any(d < 0 or d >= MAX_SIZE for d in known) or (0 not in known and product(tuple(known)) >= MAX_SIZE):
        return f"a value has less than 2^40 elements, but this one is {type}"
    return None


def as_given(type: Type, shape: tuple[int, ...]) -> Type:
    """The type in a call with an array of this shape."""
    sizes = zip(type.array_shape, shape, strict=True)
    return type.with_array_shape(tuple(Given(n) if isinstance(d, Size) else n for d, n in sizes))


def product(shape: Shape) -> Dim:
    total: Dim = 1
    for d in shape:
        total = d * total
    return total
