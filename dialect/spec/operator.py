"""The form of operators: fields, numbered constraints, result types, reference and index formula in
one class.

Everything that applies to all operators (parse, print, verify, lower, document) is generic over
this form. An operator is a frozen dataclass, generic in the representation of a tensor: a Value in
a program, a type for the verifier, a Tensor of index notation for the lowering, an array for the
reference.
"""

import dataclasses
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from operator import is_not
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, dataclass_transform

from ..kernel_ir.expressions import Element, Tensor
from ..types.attributes import attribute_text
from ..types.sizes import Undecided
from ..types.tensor_types import Type

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Nodes, Tangents

T = TypeVar("T", covariant=True)
U = TypeVar("U")


@dataclass(frozen=True)
class C:
    """A constraint: its number, the specification's words, and the predicate over an operator of
    types.

    The text is also the message: `rank(x)`, `shape(x)`, `dim(x, 1)`, `element(x)`, attribute names
    and the operator's `symbols` in it are reported with their actual values. Where `plainly` gives
    the mistake in plain words, these are the message, and the text is a note. `at` names the field
    that the caret marks, `words` are what a misspelt one may mean, and `help` says what to write
    instead. Later constraints may assume earlier ones.
    """

    number: int
    text: str
    holds: Callable[..., Any]
    at: str | None = None
    words: Iterable[str] = ()
    help: Callable[..., str] = lambda _: ""
    plainly: Callable[..., str] | None = None

    def operands(self, op: "Operator[Any]") -> list[str]:
        """The operands that the text names, or its symbols take to compute; all of them where no
        field is named.
        """
        words = set(re.findall(r"\w+", self.text))
        operands = [f.name for f in op.fields if f.is_operand]
        named = [
            name
            for name in operands
            if name in words or _is_taken(op, name, words & set(op.symbols))
        ]
        return named if named or self.at else operands


def _is_taken(op: "Operator[object]", operand: str, symbols: Iterable[str]) -> bool:
    """Test whether some of an operator's symbols cannot be computed without an operand."""
    without = dataclasses.replace(op, **{operand: None})  # type: ignore[type-var]
    try:
        for name in symbols:
            op.symbols[name](without)
    except (AttributeError, TypeError):
        return True
    return False


REQUIRED: object = type(
    "Required", (), {"__repr__": lambda _: "REQUIRED"}
)()  # marks a field without a default


@dataclass(frozen=True)
class Field:
    """A declared field of an operator: an operand (one, optional or variadic) or an attribute."""

    name: str
    kind: typing.Literal["operand", "optional", "variadic", "attribute"]
    annotation: Any = None
    default: Any = REQUIRED

    @property
    def required(self) -> bool:
        return self.default is REQUIRED and self.kind in ("operand", "attribute")

    @property
    def is_operand(self) -> bool:
        return self.kind != "attribute"


MOST_FOLDED = 4096  # elements of the largest result of constant folding


class NoRule:
    """The cotangent of an operand by which an operator is not differentiated."""


class Operator(Generic[T]):
    """The specification of one operator."""

    name: ClassVar[str] = ""
    dialect: ClassVar[str] = ""
    fields: ClassVar[tuple[Field, ...]] = ()
    slots: ClassVar[
        tuple[tuple[str, bool], ...]
    ] = ()  # the operands' fields, each with whether it is variadic
    constraints: ClassVar[tuple[C, ...]] = ()
    placement: ClassVar[tuple[C, ...]] = ()  # constraints on an operation's place in its function
    afterwards: ClassVar[
        tuple[C, ...]
    ] = ()  # such constraints that are checked after those on types
    is_expanded: ClassVar[bool] = False  # a call, or an operator that only a lowering states
    # what its reference does beside its results, which are its first operands
    has_effect: ClassVar[bool] = False
    is_given: ClassVar[bool] = False  # its nest is the user's, and verified as such
    labelled: ClassVar[bool] = False  # the field `label` is written in quotes before the operands
    symbols: ClassVar[dict[str, Callable[[Any], Any]]] = {}
    view: ClassVar[bool] = False  # the result is the operand's elements in the same row-major order
    rearranges: ClassVar[bool] = (
        False  # the result shows elements of the first operand, reordered or fewer
    )
    any_element: ClassVar[bool] = False  # it moves elements, also those of types of packages
    results: ClassVar[tuple[str, ...]] = ("y",)
    example: ClassVar[Any] = ""  # a program, or the arguments of `example_program`
    version: ClassVar[int] = 1  # part of the compile cache's key

    @property
    def callees(self) -> tuple[tuple[str, str], ...]:
        """The names of the functions of the module that it calls, each with its field."""
        return ()

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self.name,), self.__dict__

    def infer(self: "Operator[Any]") -> Type | tuple[Type, ...]:
        """The result type or types, given operand types that satisfy the constraints; by default
        that of the first operand.
        """
        return self.operands()[0][1]

    def reference(self) -> Any:
        """The result, or results, by the formal definition, in plain NumPy, whose floating-point
        warnings the caller ignores.
        """
        raise NotImplementedError(self.name)

    def element(self: "Operator[Any]", y: Tensor) -> Element:
        """The index formula; an irregular operator has `nest` instead."""
        raise NotImplementedError(self.name)

    def nest(self, *results: Tensor) -> Any:
        """The statements of an irregular operator, in the loop language's builder
        (`dialect.nest`).
        """
        raise NotImplementedError(self.name)

    def pullback(self, results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        """The cotangents of the operands, in order, from those of the results; None is zero (JAX:
        the transposed JVP).

        All values are `Node`s of `dialect.ir.builder`. A cotangent has its value's shape, of a
        float its type.
        """
        raise NotImplementedError(self.name)

    def pushforward(self, results: "Nodes", tangents: "Tangents") -> "Tangents":
        """The tangents of the results from those of the operands; by default the transpose of
        `pullback`.
        """
        raise NotImplementedError(self.name)

    def destroys(self) -> tuple[Any, ...]:
        """The operands in whose storage the results are stored."""
        return ()

    def constant_folding(self: "Operator[Any]") -> bool:
        """Test whether the reference may compute the results of constants; the operator is over
        types here.
        """
        return all(
            t.size <= MOST_FOLDED for t in (*(t for _, t in self.operands()), *self.result_types())
        )

    def simplified(self, definition: "Callable[[object], Operator[object] | None]") -> Any:
        """An existing value that equals the result, or a simpler operator for it; None if there is
        neither.

        `definition` maps an operand to the operator that made it. The identity is exact for every
        value of the type.
        """
        return None

    @classmethod
    def has_nest(cls) -> bool:
        return cls.nest is not Operator.nest

    def operands(self) -> list[tuple[str, T]]:
        """Each operand that is there with its name: x, or xs[0], xs[1], ... of a variadic field."""
        found: list[tuple[str, T]] = []
        for name, many in self.slots:
            value = getattr(self, name)
            if many:
                found += [(f"{name}[{n}]", v) for n, v in enumerate(value)]
            elif value is not None:
                found.append((name, value))
        return found

    def attributes(self) -> Iterator[tuple[Field, Any]]:
        """Each attribute with its value."""
        return ((f, getattr(self, f.name)) for f in self.fields if f.kind == "attribute")

    def map(self, change: Callable[[T], U]) -> "Operator[U]":
        """Replace the operands; the same object if they are unchanged."""
        new = {}
        same, made = True, None
        for name, many in self.slots:
            value = getattr(self, name)
            if many:
                new[name] = made = tuple([change(v) for v in value])
                same = same and not any(map(is_not, made, value))
            elif value is not None:
                new[name] = made = change(value)
                same = same and made is value
        if same:
            return typing.cast(Any, self)
        mapped = object.__new__(type(self))
        mapped.__dict__.update(self.__dict__, **new)
        if not isinstance(getattr(made, "type", made), Type):
            mapped.__dict__["_before"] = self  # which knows the types
        return typing.cast(Any, mapped)

    @property
    def types(self) -> Mapping[str, Type]:
        """The types of the operands by name, also for an operator over arrays or tensors of index
        notation.
        """
        found = {name: getattr(v, "type", v) for name, v in self.operands()}
        if all(isinstance(t, Type) for t in found.values()):
            return typing.cast(Mapping[str, Type], found)
        before: Operator[Any] | None = getattr(self, "_before", None)
        return {} if before is None else before.types

    def result_types(self) -> tuple[Type, ...]:
        found = self.infer()
        return found if isinstance(found, tuple) else (found,)


DIALECTS = ("builtin", "cvm", "dali", "theano", "cog", "numpy", "quant")
BUILTIN = (
    "shape_like pad_slice_reshape gather_scatter insert_slice along_axis sliding_window "
    "tree_ensemble control_flow effects run_kernel"
)
MODULES = {"builtin": ("..builtin", *(f"..builtin.{module}" for module in BUILTIN.split()))}


class Operators(Mapping[str, type[Operator[Any]]]):
    """The operators by name. The first use of an operator loads its dialect, iteration loads
    all.
    """

    def __init__(self) -> None:
        self._known: dict[str, type[Operator[object]]] = {}
        self.modules: dict[
            str, str
        ] = {}  # of dialects of other packages: the module that describes each

    def declare(self, made: type[Operator[object]]) -> None:
        assert made.name not in self._known, f"{made.name} is declared twice"
        self._known[made.name] = made

    def load(self, dialect: str) -> None:
        """Declare the operators of a dialect, if it exists."""
        if dialect in DIALECTS:
            for module in MODULES.get(dialect, (f"..{dialect}",)):
                import_module(module, __package__)
        elif dialect not in self.modules:
            self.dialects(dialect)

    def dialects(self, wanted: str | None = None) -> tuple[str, ...]:
        """The names of all dialects, those of other packages last; of these the one wanted is
        loaded, or all.
        """
        from ..support.entry_points import load_offered

        load_offered("cvm.dialects", wanted)
        return (*DIALECTS, *self.modules)

    def __getitem__(self, name: str) -> type[Operator[Any]]:
        if (known := self._known.get(name)) is not None:
            return known
        dialect, _, inside = name.partition(".")
        if inside:
            self.load(dialect)
        else:
            import_module(MODULES["builtin"][0], __package__)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        for dialect in self.dialects():
            self.load(dialect)
        return iter(self._known)

    def __len__(self) -> int:
        return sum(1 for _ in self)


OPERATORS = Operators()


def _restored(name: str) -> Any:
    """An operator without its fields, for pickle: not every class is an attribute of its module."""
    return object.__new__(OPERATORS[name])


def example_program(
    operator: type[Operator[object]], operands: str, types: str, result: str = ""
) -> str:
    """An example of one operation as a program. Types are those of tensors, without `tensor<>`, or
    other types in full.

    `operands` has the attributes too, and names the results if they are not called what
    `Operator.results` says.
    """

    def full(type: str) -> str:
        return type if type.startswith(("!", "(")) else f"tensor<{type}>"

    given = ", ".join(
        f"{name}: {full(type)}"
        for name, type in (a.split(": ") for a in re.split(", (?=%)", types))
    )
    arrow = f" -> {full(result)}" if result else ""
    named, _, operands = (
        operands.partition(" = ") if re.match(r"%\w+ = ", operands) else ("", "", operands)
    )
    named = named or ", ".join(f"%{r}" for r in operator.results)
    return (
        f"func @main({given}){arrow} {{\n  {named} = {operator.name} {operands}\n"
        f"  return {named}\n}}\n"
    )


@dataclass_transform(frozen_default=True)
def operator(cls: type[U]) -> type[U]:
    """Declare an operator: its annotations are its operands and attributes; its dialect is that of
    its module.
    """
    made = typing.cast(Any, dataclass(frozen=True, eq=False)(cls))
    made.dialect = made.dialect or _dialect(cls.__module__)
    if "name" not in cls.__dict__:
        made.name = f"{made.dialect}.{snake_case(cls.__name__)}"
    if isinstance(made.example, tuple):
        made.example = example_program(made, *made.example)
    hints = typing.get_type_hints(cls)
    made.fields = tuple(_field(f, hints[f.name]) for f in dataclasses.fields(made))
    made.slots = tuple((f.name, f.kind == "variadic") for f in made.fields if f.is_operand)
    numbers = [c.number for c in (*made.placement, *made.constraints, *made.afterwards)]
    assert len(set(numbers)) == len(numbers), f"{made.name}: constraint numbers repeat"
    if not cls.__module__.startswith(OURS):
        from .foreign_operators import check_package, guard

        guard(made, DIALECTS)
        first = OPERATORS.modules.setdefault(made.dialect, cls.__module__)
        check_package(made, first)
    OPERATORS.declare(made)
    return made


def declare(name: str, family: type[object], doc: str, **members: object) -> type[Any]:
    """Declare an operator of a family by the attributes in which it differs."""
    return operator(
        type(name, (family,), {"__doc__": doc, "__module__": family.__module__, **members})
    )


OURS = f"{__name__.rpartition('.spec.')[0]}."  # begins the modules of cvm's own dialects


def _dialect(module: str) -> str:
    """The dialect of an operator that names none: ours is that of its folder."""
    return module.removeprefix(OURS).partition(".")[0] if module.startswith(OURS) else ""


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _field(field: dataclasses.Field[object], hint: object) -> Field:
    default = REQUIRED if field.default is dataclasses.MISSING else field.default
    if hint is T:
        return Field(field.name, "operand")
    if T in typing.get_args(hint):
        return Field(
            field.name,
            "variadic" if typing.get_origin(hint) is tuple else "optional",
            default=default,
        )
    return Field(field.name, "attribute", hint, default)


# Constraint messages

_TERM = re.compile(r"(rank|shape|element|dim|type)\((\w+)(\[\w+\])?(?:, (\w+))?\)|[A-Za-z_]\w*")


def actual_values(op: Operator[object], text: str) -> list[tuple[str, str]]:
    """The terms of a constraint's text with their values, in order of appearance."""
    attributes = {f.name: v for f, v in op.attributes()}
    terms = {match[0]: match for match in _TERM.finditer(text)}
    found = ((term, _term_value(op, match, attributes)) for term, match in terms.items())
    return [(term, value) for term, value in found if value is not None]


def _term_value(
    op: Operator[object], match: re.Match[str], attributes: dict[str, object]
) -> str | None:
    what, name, subscript, argument = match.groups()
    try:
        if what is None:
            if match[0] in op.symbols:
                return size_text(op.symbols[match[0]](op))
            return attribute_text(attributes[match[0]]) if match[0] in attributes else None
        if isinstance(operand := getattr(op, name, None), tuple) and subscript is not None:
            if subscript[1:-1].isdigit():
                return _about(operand[int(subscript[1:-1])], what, argument)
            # xs[i]: of every one
            return f"({', '.join(str(_about(x, what, argument)) for x in operand)})"
        return (
            None
            if operand is None or isinstance(operand, tuple)
            else _about(operand, what, argument)
        )
    except (Undecided, LookupError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        return None


def _about(operand: Type, what: str, argument: str | None) -> str | None:
    if what == "dim":
        return (
            size_text(operand.shape[int(argument)])
            if argument is not None and argument.isdigit()
            else None
        )
    return str(operand) if what == "type" else size_text(getattr(operand, what))


def size_text(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(size_text, value))}{',' if len(value) == 1 else ''})"
    return (
        attribute_text(value)
        if isinstance(value, (bool, float, str, list, dict)) or value is None
        else str(value)
    )


def violated(op: Operator[object], constraints: Iterable[C]) -> tuple[C | None, bool]:
    """The first constraint that does not hold, and whether some are undecided until sizes are
    known.
    """
    deferred = False
    for constraint in constraints:
        try:
            if not constraint.holds(op):
                return constraint, deferred
        except Undecided:
            deferred = True
    return None, deferred
