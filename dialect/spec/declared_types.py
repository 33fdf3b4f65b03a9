"""Element types that packages declare, such as `!ff.elem<17>`: parameters, constraints, and how
elements are stored.

The storage is one builtin element type, which NumPy, formulas and loops see. Only operators that
take any element, and those of other packages, take such elements (`dialect.ir.verify`).
"""

import inspect
import math
import typing
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from ..support.suggest import did_you_mean
from ..types.attributes import attribute_text, conform
from ..types.literal_types import fit, literal_text
from ..types.tensor_types import ElementType
from .foreign_operators import check_package, fault, guarded
from .operator import DIALECTS, OPERATORS, C, violated

U = TypeVar("U", bound="type[DeclaredElement]")


class DeclaredElement(ElementType):
    """The base class of element types of other packages.

    A subclass names itself, `ff.elem`, and annotates its parameters: integers, numbers, truth
    values, strings or element types. Equal parameters give one object, `Elem(17) is Elem(17)`.
    """

    type_name: ClassVar[str] = ""
    storage: ClassVar[ElementType]  # type: ignore[assignment]
    parameters: ClassVar[dict[str, Any]] = {}  # their annotations, by name
    constraints: ClassVar[tuple[C, ...]] = ()  # of a type, over its parameters
    tangent: ClassVar[ElementType | None] = None  # type: ignore[assignment] # of derivatives
    low: Any = -math.inf  # the least and the greatest element, as stored
    high: Any = math.inf
    _made: ClassVar[dict[tuple[object, ...], "DeclaredElement"]] = {}

    def __new__(cls, *values: object, **named: object) -> Any:
        given = cls._given(values, named)
        if (known := cls._made.get((cls, *given.items()))) is not None:
            return known
        made = object.__new__(cls)
        text = ", ".join(map(attribute_text, given.values()))
        name = f"!{cls.type_name}<{text}>" if given else f"!{cls.type_name}"
        fields = {"name": name, "kind": "declared", "bits": cls.storage.bits, **given}
        for field, value in fields.items():
            object.__setattr__(made, field, value)
        broken, _ = violated(typing.cast(Any, made), cls.constraints)
        if broken is not None:
            values_of = ", ".join(f"{n} = {attribute_text(v)}" for n, v in given.items())
            raise ValueError(f"{broken.text}, but {values_of} in {name}")
        low, high = cls.storage.limits if cls.storage.is_discrete else (-math.inf, math.inf)
        ends = max(made.low, low), min(made.high, high)
        bounds = None if ends == (low, high) else ends
        object.__setattr__(made, "_range", bounds)
        return cls._made.setdefault((cls, *given.items()), made)

    def __init__(self, *values: object, **named: object) -> None:
        """Take the parameters of the type; ValueError for those that break a constraint."""

    @classmethod
    def _given(cls, values: tuple[object, ...], named: dict[str, object]) -> dict[str, Any]:
        """The values of the parameters by name."""
        names = [*cls.parameters]
        given = {**dict(zip(names, values, strict=False)), **named}
        if len(values) > len(names) or {*given} != {*names}:
            said = ", ".join(names) or "none"
            raise ValueError(
                f"!{cls.type_name} has the parameters ({said}), got {len(values) + len(named)}"
            )
        try:
            return {n: conform(given[n], a) for n, a in cls.parameters.items()}
        except ValueError as e:
            raise ValueError(f"!{cls.type_name}: {e}") from None

    @property
    def range(self) -> tuple[Any, Any] | None:  # type: ignore[override]
        return typing.cast(Any, self)._range

    @property
    def dtype(self) -> np.dtype:
        return self.storage.dtype

    @property
    def values(self) -> tuple[Any, ...]:
        """The values of the parameters."""
        return tuple(getattr(self, n) for n in self.parameters)

    def valid(self, array: np.ndarray) -> Any:
        """The truth of whether each stored value is an element, within `low` and `high` already."""
        return np.ones(array.shape, bool)

    @property
    def needs_check(self) -> bool:  # type: ignore[override]
        return type(self).valid is not DeclaredElement.valid

    def fit(self, value: object) -> Any:
        """The stored value of a constant; ValueError where it is no element."""
        stored = fit(value, self.storage)
        if said := self.invalid(np.asarray(stored, self.dtype)):
            raise ValueError(said)
        return stored

    def invalid(self, array: np.ndarray) -> str:
        """A message about the first stored value that is no element; empty if there is none."""
        good = np.ones(array.shape, bool)
        if self.range is not None:
            good = (array >= self.range[0]) & (array <= self.range[1])
        if self.needs_check:
            good &= np.asarray(self.valid(np.where(good, array, self._some(array, good))), bool)
        if good.all():
            return ""
        place = np.unravel_index(np.argmin(good), array.shape)
        where = f" at [{', '.join(map(str, place))}]" if place else ""
        bounds = "" if self.range is None else f" from {self.range[0]} to {self.range[1]}"
        got = literal_text(array[place].item())
        return f"{self} holds elements{bounds}, got {got}{where}"

    @staticmethod
    def _some(array: np.ndarray, good: Any) -> Any:
        """A value within the bounds, in the place of those that are not."""
        return array[good].flat[0] if good.any() else array.dtype.type(0)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.values


def element_type(cls: U) -> U:
    """Declare a class as an element type of its package's dialect, `type_name = "ff.elem"`.

    `storage` is the builtin element type of the stored elements. The class's constraints are over
    its parameters; `low`, `high` and `valid` say which stored values are elements. Raises Error for
    a class that declares none of a dialect of its own.
    """
    owner: Any = cls
    dialect, _, inside = cls.type_name.partition(".")
    owner.name = cls.type_name or cls.__name__
    owner.dialect = dialect
    wrong = _wrong(cls, dialect, inside)
    if wrong:
        raise fault(owner, wrong)
    hints = typing.get_type_hints(cls)
    inherited = typing.get_type_hints(DeclaredElement)
    cls.parameters = {n: a for n, a in hints.items() if n not in inherited}
    cls.constraints = tuple(
        replace(c, holds=guarded(owner, f"constraint C{c.number}", c.holds))
        for c in cls.constraints
    )
    if "valid" in cls.__dict__:
        owner.valid = guarded(owner, "`valid`", cls.valid)
    check_package(owner, OPERATORS.modules.setdefault(dialect, cls.__module__))
    TYPES[cls.type_name] = cls
    return cls


EVERY = ("name", "kind", "bits", "dtype", "range", "values")  # element types have these fields


def _wrong(cls: type[DeclaredElement], dialect: str, inside: str) -> str:
    """A message about how a type is declared; empty if it is right."""
    if not inside.isidentifier() or not dialect.isidentifier() or not cls.type_name.islower():
        return 'a type is named by its dialect and itself, type_name = "ff.elem"'
    if dialect in DIALECTS:
        return f"a type of another package has a dialect of its own; {dialect} is one of cvm"
    if cls.type_name in TYPES:
        return "there is a type of this name already"
    if not isinstance(getattr(cls, "storage", None), ElementType):
        return "its storage is a builtin element type, as in storage = UI32"
    if taken := [n for n in inspect.get_annotations(cls) if n in EVERY]:
        return f"every element type has {taken[0]}, which is no name of a parameter"
    if getattr(cls.tangent, "kind", "float") not in ("float", "complex"):
        return "its tangent is a builtin type of floats, as in tangent = F32, or None"
    return ""


TYPES: dict[str, type[DeclaredElement]] = {}


def declared(name: str) -> type[DeclaredElement] | None:
    """The type of a name, `ff.elem`, whose package is imported; None where there is none."""
    if name not in TYPES:
        OPERATORS.load(name.partition(".")[0])
    return TYPES.get(name)


def unknown_type(name: str) -> str:
    """A message about a name of no type."""
    known = [f"!{n}" for n in (*TYPES, "cog.field")]
    return f"there is no type !{name[:80]}{did_you_mean(f'!{name}', known)}"
