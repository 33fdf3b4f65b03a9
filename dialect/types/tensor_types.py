"""Element types and the types of values."""

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from ..support.diagnostics import Error
from .sizes import Dim, Given, Shape, Size, product

Kind = Literal["bool", "int", "uint", "float", "complex", "declared"]  # the last by a package


@dataclass(frozen=True, slots=True)
class ElementType:
    """The type of one element: its name in the language, its kind and its width in bits."""

    name: str
    kind: Kind
    bits: int

    # of a type of a package: the least and the greatest element, and whether there is a condition
    # on elements besides
    range: ClassVar[Any] = None
    needs_check: ClassVar[Any] = False

    @property
    def dtype(self) -> np.dtype:
        """NumPy's type of the element; that of bf16 is of the package ml_dtypes."""
        return _DTYPES.get(self.name) or _bfloat16()

    @property
    def storage(self) -> "ElementType":  # the builtin type of the stored elements
        return self

    @property
    def tangent(self) -> "ElementType | None":
        """The element type of derivatives by values of the type: f64 of integers, or None."""
        return F64 if self.is_discrete else self

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
        return max(self.bits // 8, 1)

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
    ("bf16", "float", 16, ""),
    ("f32", "float", 32, "float32"),
    ("f64", "float", 64, "float64"),
    ("complex<f32>", "complex", 64, "complex64"),
    ("complex<f64>", "complex", 128, "complex128"),
)
ELEMENT_TYPES: dict[str, ElementType] = {n: ElementType(n, k, b) for n, k, b, _ in _ROWS}
_DTYPES: dict[str, np.dtype] = {n: np.dtype(d) for n, _, _, d in _ROWS if d}


def element_type(name: str) -> ElementType:
    return ELEMENT_TYPES[name]


I1, I8, I16, I32, I64, UI8, UI16, UI32, UI64, F16, BF16, F32, F64, C64, C128 = (
    ELEMENT_TYPES.values()
)


class _ByDtype(dict[np.dtype, ElementType]):
    """Element types by their dtypes. That of bf16 is entered when it is first met."""

    def __missing__(self, dtype: np.dtype) -> ElementType:
        if dtype.name != "bfloat16":
            raise KeyError(dtype)
        return self.setdefault(dtype, BF16)

    def __contains__(self, dtype: object) -> bool:
        return super().__contains__(dtype) or getattr(dtype, "name", "") == "bfloat16"

    def get(self, dtype: np.dtype, default: Any = None) -> Any:
        return self[dtype] if self.__contains__(dtype) else default


BY_DTYPE = _ByDtype({d: ELEMENT_TYPES[n] for n, d in _DTYPES.items()})


@cache
def _bfloat16() -> np.dtype:
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        raise Error(
            'arrays of bf16 are those of ml_dtypes: pip install "cvm-lang[bfloat16]"'
        ) from None
    return np.dtype(bfloat16)


def kind_of(dtype: np.dtype) -> str:
    """NumPy's letter for the kind of number; bf16, which NumPy takes for bytes, is a float."""
    return "f" if dtype.kind == "V" and dtype in BY_DTYPE else dtype.kind


def promoted(a: ElementType, b: ElementType) -> ElementType:
    """The common type of two, NumPy's; bf16 has one with other types where f32 has it, but holds
    integers of 8 bits itself.
    """
    if BF16 in (a, b) and a is not b:
        other = b if a is BF16 else a
        a, b = (BF16, BF16) if other.bits <= 8 else (F32, other)
    return BY_DTYPE[np.promote_types(a.dtype, b.dtype)]


def compute_type(element: ElementType) -> ElementType:
    """The type in which operations are computed before they are rounded: f32 of f16 and bf16."""
    return F32 if element in (F16, BF16) else element


def element_of(x: Any) -> ElementType:
    """The type of the elements of an array, a type or a tensor of index notation."""
    return BY_DTYPE[x.dtype] if isinstance(x, np.ndarray) else x.element


@dataclass(frozen=True, eq=False)
class ShapedType:
    """The type of a value that an array holds."""

    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def array_shape(self) -> Shape:
        """The shape of the array that holds such a value."""
        return self.shape

    @property
    def size(self) -> Dim:
        return product(self.array_shape)

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in self.array_shape)

    @property
    def key(self) -> tuple[object, ...]:
        """A key of the type's structure, comparable without deciding sizes."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, ShapedType) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True, eq=False)
class TensorType(ShapedType):
    """A dense row-major array: its shape and the type of its elements."""

    element: ElementType

    def with_shape(self, *shape: Dim) -> "TensorType":
        return TensorType(shape, self.element)

    def with_element(self, element: ElementType) -> "TensorType":
        return TensorType(self.shape, element)

    def with_array_shape(self, shape: Shape) -> "TensorType":
        return TensorType(shape, self.element)

    @property
    def key(self) -> tuple[object, ...]:
        return (
            "tensor",
            tuple(d if isinstance(d, int) else d.key for d in self.shape),
            self.element.name,
        )

    def __str__(self) -> str:
        if any(isinstance(d, Size) and d.name for d in self.shape):
            return f"tensor<{' x '.join([*map(str, self.shape), self.element.name])}>"
        return f"tensor<{'x'.join([*map(str, self.shape), self.element.name])}>"


@dataclass(frozen=True, eq=False)
class FieldType(ShapedType):
    """A Cog field: a grid of up to three dimensions whose points are tensors of order up to two."""

    tensor: TensorType

    @property
    def element(self) -> ElementType:
        return self.tensor.element

    @property
    def array_shape(self) -> Shape:
        return (*self.shape, *self.tensor.shape)

    def with_element(self, element: ElementType) -> "FieldType":
        return FieldType(self.shape, self.tensor.with_element(element))

    def with_array_shape(self, shape: Shape) -> "FieldType":
        return FieldType(shape[: self.rank], TensorType(shape[self.rank :], self.element))

    @property
    def key(self) -> tuple[object, ...]:
        return (
            "field",
            tuple(d if isinstance(d, int) else d.key for d in self.shape),
            self.tensor.key,
        )

    def __str__(self) -> str:
        point = self.tensor if self.tensor.rank else self.tensor.element
        return f"!cog.field<[{', '.join(map(str, self.shape))}], {point}>"


Type: TypeAlias = TensorType | FieldType

MAX_RANK = 32  # dimensions of an array
MAX_SIZE = 1 << 40  # elements of an array, and the bound of a size


def size_limit_error(type: Type) -> str | None:
    """The size limit of the language that a type exceeds, in words; None if it is known to exceed
    none.
    """
    shape = type.array_shape
    if len(shape) > MAX_RANK:
        return f"a value has at most {MAX_RANK} dimensions, but this one has {len(shape)}"
    known = [d for d in shape if isinstance(d, int)]
    if (
        any(d < 0 or d >= MAX_SIZE for d in known)
        or product(tuple(d or 1 for d in known)) >= MAX_SIZE
    ):
        return (
            "a value has less than 2^40 elements, with sizes of 0 counted as 1, but this one "
            f"is {type}"
        )
    unknown = [d for d in shape if isinstance(d, Size)]
    if any(
        abs(n) >= MAX_SIZE
        for d in unknown
        for n in (d.constant, *(factor for _, factor in d.terms))
    ):
        return f"the numbers in a size are less than 2^40, but this one is {type}"
    return None


def as_given(type: Type, shape: tuple[int, ...]) -> Type:
    """The type of an argument in a call with an array of this shape."""
    sizes = zip(type.array_shape, shape, strict=True)
    return type.with_array_shape(tuple(Given(n) if isinstance(d, Size) else n for d, n in sizes))
