"""Trace Python functions to programs: called with `TracedArray`s, a function records operations.

Operators and NumPy's functions mean what they mean in NumPy, or what the dali dialect says
(`ufunc_rules`); `apply` reaches every operator. Each operation is verified as it is made, so a
mistake is a diagnostic at its line of Python.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, NoReturn

import numpy as np

from cvm.dialect.builtin import Const, Data, owned
from cvm.dialect.ir.builder import Builder
from cvm.dialect.ir.function import Function, Literal, Operation, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.verify import verify
from cvm.dialect.spec.operator import OPERATORS, Field, Operator
from cvm.dialect.support.diagnostics import NOWHERE, Diagnostic, Span, TraceError
from cvm.dialect.support.masked_arrays import masked
from cvm.dialect.types.attributes import conform
from cvm.dialect.types.cast_arrays import with_plain_truths
from cvm.dialect.types.literal_types import literal_type
from cvm.dialect.types.sizes import Size
from cvm.dialect.types.tensor_types import BY_DTYPE, ElementType, TensorType, Type

from .array_types import ArrayLike, BinaryMethod, UnaryMethod
from .diagnose import (
    UNROLLED,
    caller,
    fail,
    fail_unknown,
    instead_of_branch,
    warn_of_unrolling,
)
from .element_methods import ElementMethods
from .numpy_table import (
    NUMPY_FUNCTIONS,
    UFUNC_RULES,
    fail_no_counterpart,
    function_named,
    name_of,
)
from .reduction_methods import ReductionMethods
from .shape_methods import ShapeMethods

POWERS = {
    2: "square",
    -1: "reciprocal",
    0.5: "sqrt",
}  # ufuncs that NumPy takes for an exponent that is one number
PYTHON_NUMBERS = (int, float, complex)
COMPARED = 1 << 20  # bytes at once of a captured array, which needs no more memory then
_running = threading.local()


def running_tracer() -> Tracer | None:
    """The tracer of the function that is being traced in this thread, the innermost one."""
    return getattr(_running, "tracer", None)


class Tracer:
    """The function being recorded: its arguments and operations so far. Used as a context manager
    while Python runs it.

    The body of a loop has a tracer of its own inside of another; what it uses of `outer` ones
    becomes arguments.
    """

    def __init__(self, name: str, rules: str, outer: Tracer | None = None) -> None:
        self.name = name
        self.rules = rules
        self.outer = outer
        self.captured: dict[Value, Value] = {}  # an argument for each value of the outer function
        self.functions: dict[str, Function] = (
            outer.functions if outer else {}
        )  # of the program, besides this one
        self.frozen: dict[int, tuple[np.ndarray, Data]] = outer.frozen if outer else {}  # by id
        self.arguments: list[Value] = []
        self.parameters: dict[str, str] = {}  # of the Python function, by the names of their arrays
        self.operations: list[Operation] = []
        # by their places: what a loop of Python records again and again
        self.recorded: dict[Span, Counter[str]] = {}
        self.span = NOWHERE
        self.before: list[Tracer | None] = []  # what ran outside, for each time it is entered

    def __enter__(self) -> Tracer:
        self.before.append(running_tracer())
        _running.tracer = self
        return self

    def __exit__(self, *_: object) -> None:
        _running.tracer = self.before.pop()

    def contains(self, tracer: Tracer | None) -> bool:
        """Test whether a tracer is this one, or that of a body inside of it."""
        return tracer is self or (tracer is not None and self.contains(tracer.outer))

    def seen(self, given: TracedArray, span: Span) -> Value:
        """The value of an array of this function or of an outer one."""
        if given.memory is not None:
            given.memory.check(span)
        if given.tracer is self:
            return given.value
        if self.outer is None:
            fail(
                "an array of another compiled function, or kept from an earlier trace, is used "
                "here",
                span,
            )
        if isinstance(value := self.outer.seen(given, span), Literal):
            return value
        return self.captured.setdefault(
            value, Value(f"outer{len(self.captured)}", value.known_type, span)
        )

    def argument(
        self, name: str, type: TensorType, weak: Any = None, is_scalar: bool | None = None
    ) -> TracedArray:
        """An argument; `weak` is the Python type of one that was given as a number, which makes it
        a scalar.
        """
        value = Value(name, type, self.span)
        self.arguments.append(value)
        found = TracedArray(self, value, weak)
        if not found.is_scalar or not (bool(weak) if is_scalar is None else is_scalar):
            found.is_scalar, found.memory = False, Memory(found, is_argument=True)
        return found

    def add(self, operator: Operator[Value], span: Span) -> tuple[TracedArray, ...]:
        """Record an operation; raises VerifyError at the caller's line if it breaks a
        constraint.
        """
        counts = self.recorded.setdefault(span, Counter())
        counts[operator.name] += 1
        if counts[operator.name] > UNROLLED:
            warn_of_unrolling(span, min(counts.values()))
        return tuple(
            TracedArray(self, r) for r in Builder(self.operations, span, prefix="").add(operator)
        )

    def constant(self, array: np.ndarray, span: Span | None = None) -> TracedArray:
        type = TensorType(array.shape, element_of(array.dtype, span))
        return self.add(Const(data=self._data(array), type=type), span or caller())[0]

    def _data(self, array: np.ndarray) -> Data:
        """The elements as they are now: one copy of an array that is used several times, unless it
        changes in between.
        """
        given, data = self.frozen.get(id(array), (None, None))
        if given is not array or data is None or not _same_bytes(array, data.array):
            copy = np.array(array, order="C").reshape(array.shape)
            data = Data(owned(with_plain_truths(copy)))
            self.frozen[id(array)] = array, data
        return data

    def array(self, given: Any, dialect: str = "numpy") -> TracedArray:
        """A traced array as it is, and one of a number or of NumPy data, which stay as they are."""
        if isinstance(given, TracedArray):
            return given
        found = TracedArray(self, self.operand(given, dialect))
        found.is_read_only = True
        return found

    def operand(self, given: Any, dialect: str, span: Span | None = None) -> Value:
        """The value of an operand: a traced array, a Python number (a literal) or NumPy data (a
        constant).
        """
        span = span or caller()
        if isinstance(given, TracedArray):
            return self.seen(given, span)
        if isinstance(given, (bool, int, float, complex)) and not isinstance(given, np.generic):
            try:
                return Literal(given, literal_type(dialect, given), span)  # type: ignore[arg-type]
            except ValueError as e:
                fail(str(e), span)
        if said := masked(given):
            fail(f"expected an array of values, got {said}", span)
        if isinstance(given, (np.generic, np.ndarray, list, tuple)):
            try:
                array = np.asarray(given)
            except ValueError as e:  # of lists of different lengths
                fail(f"expected an array or a number, got a {type(given).__name__}: {e}", span)
            return self.constant(array, span).value
        fail(f"expected an array or a number, got {type(given).__name__}", span)

    def linear(self, number: TracedArray) -> tuple[dict[Value, int], int]:
        """An integer as a sum of values times factors, and a number: of `i + 3` it is i, and 3."""
        definitions = {r: o.operator for o in self.operations for r in o.results}

        def sum_of(value: Value) -> tuple[dict[Value, int], int]:
            operator = definitions.get(value)
            if isinstance(value, Literal):
                return {}, int(value.value)
            if isinstance(operator, Const):
                return {}, int(operator.data.array)
            if operator is None or operator.name != "numpy.elementwise":
                return {value: 1}, 0
            ufunc = getattr(operator, "ufunc", "")
            if ufunc not in ("add", "subtract"):
                return {value: 1}, 0
            (a, m), (b, n) = (sum_of(v) for _, v in operator.operands())
            sign = 1 if ufunc == "add" else -1
            both = {v: a.get(v, 0) + sign * b.get(v, 0) for v in {**a, **b}}
            return {v: k for v, k in both.items() if k}, m + sign * n

        return sum_of(self.seen(number, self.span))

    def finish(self, results: list[Any]) -> Module:
        """The recorded program, whose first function is this one."""
        return verify(
            Module({self.name: self.function(results), **self.functions}, self.span.source.filename)
        )

    def function(self, results: list[Any]) -> Function:
        values = tuple(self.operand(r, self.rules, self.span) for r in results)
        arguments = (*self.arguments, *self.captured.values())
        return Function(self.name, arguments, tuple(self.operations), values, span=self.span)


def _same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    """Test whether both have the same elements, bit for bit; False for an array with gaps."""
    if a.shape != b.shape or a.dtype != b.dtype or not a.flags.c_contiguous:
        return False
    x, y = (z.reshape(-1).view(np.uint8) for z in (a, b))
    parts = (slice(n, n + COMPARED) for n in range(0, x.size, COMPARED))
    return all(np.array_equal(x[part], y[part]) for part in parts)


def apply(name: str, *operands: Any, **attributes: Any) -> Any:
    """An operator applied to traced arrays, numbers and NumPy data; a tuple where it has several
    results.
    """
    span = caller()
    if (operator := OPERATORS.get(name)) is None:
        fail(f"there is no operator {name}", span)
    if (tracer := tracer_of(operands)) is None:
        fail(
            f"{name} works on the arrays of a function compiled with cvm.compile; none was given",
            span,
        )
    results = tracer.add(
        operator(**_bind(tracer, operator, list(operands), attributes, span)), span
    )
    return results[0] if len(results) == 1 else results


def element_of(dtype: Any, span: Span | None = None) -> ElementType:
    try:
        found = dtype if isinstance(dtype, ElementType) else BY_DTYPE.get(np.dtype(dtype))
    except TypeError as e:
        fail(str(e), span)
    return found or fail(f"no element type holds NumPy's {np.dtype(dtype)}", span)


def tracer_of(operands: object) -> Tracer | None:
    """The tracer that records what is done with these operands; None where none of them is
    traced.
    """
    found = next((o.tracer for o in within(operands) if isinstance(o, TracedArray)), None)
    running = running_tracer()
    return running if found is not None and found.contains(running) else found


def within(value: Any, opened: bool = False) -> Iterator[Any]:
    """A value and what it holds, in order, each tuple, list and dictionary once; `opened` goes into
    data classes, too.
    """
    left, entered = [value], dict[int, Any]()  # by id: values made here stay alive
    while left:
        yield (found := left.pop())
        if id(found) in entered:
            continue
        if isinstance(found, dict):
            left += reversed(found.values())
        elif isinstance(found, (tuple, list)):
            left += reversed(found)
        elif opened and hasattr(type(found), "__dataclass_fields__"):
            left += [getattr(found, f.name) for f in reversed(fields(found))]
        else:
            continue
        entered[id(found)] = found


def _bind(
    tracer: Tracer,
    operator: type[Operator[object]],
    given: list[object],
    attributes: dict[str, object],
    span: Span,
) -> dict[str, Any]:
    """The operator's fields from positional operands and keyword attributes (an operand may be
    given by name too).
    """
    values = {}
    fields = {f.name: f for f in operator.fields}
    for f in operator.fields:
        if f.kind == "variadic":
            several = (
                given
                if len(given) != 1 or not isinstance(given[0], (list, tuple))
                else list(given[0])
            )
            values[f.name] = tuple(tracer.operand(g, operator.dialect, span) for g in several)
            given = []
        elif f.is_operand and (given or attributes.get(f.name) is not None):
            value = given.pop(0) if given else attributes.pop(f.name)
            if value is not None or f.required:
                values[f.name] = tracer.operand(value, operator.dialect, span)
    if given:
        count = sum(f.is_operand for f in operator.fields)
        fail(f"{operator.name} takes {count} operands, got {len(given)} more", span)
    for name, value in attributes.items():
        if name not in fields:
            known = ", ".join(f.name for f in fields.values() if not f.is_operand) or "none"
            fail(f"{operator.name} has no attribute {name}; it has {known}", span)
        values[name] = _attribute(operator, fields[name], value, span)
    for f in fields.values():
        if f.required and f.name not in values:
            fail(
                f"{operator.name} wants the {'operand' if f.is_operand else 'attribute'} {f.name}",
                span,
            )
    return values


def _attribute(operator: type[Operator[object]], field: Field, value: Any, span: Span) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if field.annotation is ElementType and not isinstance(value, ElementType):
        value = BY_DTYPE.get(np.dtype(value), value)
    try:
        return conform(value, field.annotation)
    except ValueError as e:
        fail(f"{operator.name}: attribute {field.name}: {e}", span)


class NoSuchAttribute(TraceError, AttributeError):
    """An attribute that a traced array does not have."""


def _of_dtype(ufunc: np.ufunc, inputs: Any, dtype: Any) -> list[Any]:
    """The operands in the element types of the loop that has this result."""
    arrays = [x if isinstance(x, TracedArray) else np.asarray(x) for x in inputs]
    kinds = [weak_kind(x) or a.dtype for x, a in zip(inputs, arrays, strict=True)]
    signature = (*(None,) * ufunc.nin, *(np.dtype(dtype),) * ufunc.nout)
    try:
        dtypes = ufunc.resolve_dtypes(
            (*kinds, *(None,) * ufunc.nout), signature=signature, casting="same_kind"
        )
    except TypeError as e:
        fail(str(e))
    whole = all(
        isinstance(k, type) for k in kinds
    )  # the ufunc converts Python numbers beside arrays
    given = zip(inputs, arrays, kinds, dtypes, strict=False)
    return [x if isinstance(k, type) and not whole else a.astype(t) for x, a, k, t in given]


def weak_kind(given: object) -> type | None:
    """int, float or complex for a Python number, or a traced argument that was one."""
    if isinstance(given, TracedArray):
        return given.weak
    return type(given) if type(given) in PYTHON_NUMBERS else None


def into(out: Any, found: Any) -> Any:
    """Gives an array that the function made new elements, as `out` and operators in place do."""
    if isinstance(out, tuple):
        return into(out[0], found) if len(out) == 1 else tuple(map(into, out, found))
    if not isinstance(out, TracedArray):
        fail(
            "traced values change traced arrays only: make out of traced ones, as by np.zeros_like"
        )
    out.change_in_place("leave out to get a new array")
    if found.shape != out.shape:
        fail(f"an array of shape {out.shape} cannot hold a result of shape {found.shape}")
    if not np.can_cast(found.dtype, out.dtype, "same_kind"):
        fail(f"an array of {out.dtype} cannot hold a result of {found.dtype}: use astype")
    out.take_value(found.astype(out.dtype))
    return out


class Memory:
    """The elements that an array and its views share in NumPy: each has a change of another when it
    is used next.

    A view that has changed is written to the elements when another array is read. Where NumPy's
    layout decides whether an array is a view or a copy, the two have memories of their own that are
    `related`: a change of one closes the others.
    """

    __slots__ = ("changed_in", "elements", "is_argument", "newest", "related", "version")

    def __init__(self, owner: TracedArray, is_argument: bool = False) -> None:
        self.elements = owner.copied()  # of the array that made them
        self.is_argument = is_argument
        self.changed_in: Span | None = None  # where a related array was changed
        self.newest: TracedArray | None = None  # the view whose elements are newer than these
        self.related = [self]
        self.version = owner.version

    def read(self, array: TracedArray) -> Value:
        """The elements of one of the arrays, recorded by the function that made the memory."""
        self.check(caller())
        with self.elements.tracer:
            if (view := self.newest) is not None:
                self.newest = None
                of, key = view.origin or (array, None)
                if of.origin is None and key is not None:  # a subscript of the array itself
                    self.elements = self.elements.at[key].set(view.copied())
                    return array.move(self.elements).value
                flat = apply("cvm.flatten", self.elements), apply("cvm.flatten", view.copied())
                places = apply("cvm.flatten", view.move(element_numbers(self.elements)))
                found = apply("builtin.scatter", *flat, [places], axes=(0,))
                self.elements = apply("cvm.reshape", found, target_shape=self.elements.shape)
            return array.move(self.elements).value

    def check(self, span: Span) -> None:
        """Refuse arrays whose elements depend on NumPy's layout."""
        if self.changed_in is not None:
            line = self.changed_in.line
            why = f"this array may share memory with another one, which line {line} changes"
            fail(f"{why}, as NumPy lays them out: use np.copy before", span)

    def write(self, array: TracedArray, new: TracedArray) -> None:
        """Give one of the arrays other elements."""
        if self.changed_in is not None or (self.newest is not None and self.newest is not array):
            self.read(array)
        self.version += 1
        array.hold(new.value, self.version)
        if array.origin is None:
            self.elements, self.newest = array.copied(), None
        else:
            self.newest = array
        for other in self.related:
            if other is not self:
                other.changed_in = caller()
                other.version += 1
        self.related = [self]


def element_numbers(x: TracedArray) -> TracedArray:
    """The number of each element, in row-major order."""
    found = np.zeros((), np.int64)
    for axis in range(x.ndim):
        if not isinstance(x.shape[axis], int):
            fail("elements are changed in arrays whose sizes are known while compiling")
        found = found * np.int64(x.shape[axis]) + apply("builtin.iota_like", x, axis=axis)
    return x.tracer.array(found)


SIGNS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "floor_divide": "//",
    "remainder": "%",
    "power": "**",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "left_shift": "<<",
    "right_shift": ">>",
}  # the ufuncs of operators


def _arithmetic(name: str) -> tuple[BinaryMethod, BinaryMethod, BinaryMethod]:
    """Return the methods of an operator: from the left, from the right, and in place."""

    def left(self: TracedArray, other: Any, *modulus: Any) -> Any:
        if modulus:
            fail("arrays have no powers modulo a number")
        return _binary(self, name, other)

    def right(self: TracedArray, other: object) -> Any:
        return _operator(name, other, self)

    def in_place(self: TracedArray, other: object) -> Any:
        if self.is_scalar:
            return _binary(self, name, other)
        self.change_in_place(
            f"write x = x {SIGNS[name]} other, or x.at[...].add(values) for some elements"
        )
        return into(self, _binary(self, name, other))

    return left, right, in_place


def _comparison(name: str) -> BinaryMethod:
    def compare(self: TracedArray, other: object) -> Any:
        return _binary(self, name, other)

    return compare


def _unary(name: str) -> UnaryMethod:
    def compute(self: TracedArray) -> Any:
        return _operator(name, self)

    return compute


class TracedArray(ReductionMethods, ShapeMethods, ElementMethods):
    """Stands for an array while a Python function is traced. Its operators follow the rules of the
    trace.

    One of rank 0 is an array or a scalar, as in NumPy. Scalars do not change: `s += 1` binds `s` to
    another.
    """

    __slots__ = (
        "_value",
        "is_read_only",
        "is_scalar",
        "memory",
        "origin",
        "step",
        "tracer",
        "version",
        "weak",
    )
    __array_priority__ = 1000

    def __init__(self, tracer: Tracer, value: Value, weak: type | None = None) -> None:
        self.tracer = tracer
        self._value = value
        self.weak = (
            weak  # int, float or complex for a Python number, whose element type gives way (NEP 50)
        )
        self.is_scalar = not value.known_type.array_shape
        self.is_read_only = False
        self.memory: Memory | None = None  # of a view, in NumPy, and of an array with views
        self.version = 0  # of the memory, when the value was read
        self.origin: tuple[TracedArray, object] | None = (
            None  # the array and the subscript of a view
        )
        self.step: Callable[[TracedArray], TracedArray] | None = None  # from that array to the view

    @property
    def value(self) -> Value:
        memory = self.memory
        if memory is not None and memory.version != self.version:
            self.hold(memory.read(self), memory.version)
        return self._value

    def hold(self, value: Value, version: int) -> None:
        self._value, self.version = value, version

    @property
    def type(self) -> Type:
        return self._value.known_type

    @property
    def shape(self) -> tuple[int | Size, ...]:
        """The sizes; one that is not known while compiling cannot be used as a number."""
        return self.type.array_shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int | Size:
        return self.type.size

    @property
    def dtype(self) -> np.dtype:
        return self.type.element.dtype

    def __repr__(self) -> str:
        return f"<traced {self.type}>"

    def __len__(self) -> int:
        if not self.shape:
            self._number()
        if not isinstance(self.shape[0], int):
            fail("the length of this array is not known while compiling")
        return self.shape[0]

    def __bool__(self) -> bool:
        why = (
            "the elements of an array are not known while compiling, so Python cannot branch "
            "on them"
        )
        fail_unknown(self, f"{why}: use {instead_of_branch(caller())}")

    def __iter__(self) -> Iterator[TracedArray]:
        return (self[n] for n in range(len(self)))

    def copied(self) -> TracedArray:
        """An array of the same elements with memory of its own, or a scalar."""
        return TracedArray(self.tracer, self.value, self.weak)

    def __copy__(self, _: object = None) -> TracedArray:
        return self if self.is_scalar else self.as_array(self.copied())

    __deepcopy__ = __copy__

    @staticmethod
    def as_array(found: TracedArray) -> TracedArray:
        """Mark a result as an array, also where its rank is 0."""
        found.is_scalar = False
        return found

    def viewed(
        self,
        step: Callable[[TracedArray], TracedArray],
        key: object = None,
        *,
        found: TracedArray | None = None,
        read_only: bool = False,
        certain: bool = True,
    ) -> TracedArray:
        """An array whose elements `step` takes from this one's, as one that shares memory with it.

        It is not `certain` where NumPy makes a copy of some layouts.
        """
        found = step(self) if found is None else found
        if self.is_scalar or (found is self and not read_only):
            return found
        if self.memory is None:
            self.memory = Memory(self)
        found = self.as_array(found.copied() if found.memory is not None else found)
        found.is_read_only = certain and (read_only or self.is_read_only)
        if certain:
            found.memory, found.version = self.memory, self.memory.version
            found.origin, found.step = (self, key), step
        else:
            found.memory = Memory(found, self.memory.is_argument)
            found.memory.related = self.memory.related
            found.memory.related.append(found.memory)
        return found

    def move(self, elements: TracedArray) -> TracedArray:
        """Take this array's part of all elements of its memory."""
        if self.origin is None or self.step is None:
            return elements
        return self.step(self.origin[0].move(elements))

    def change_in_place(self, instead: str) -> None:
        """Refuse to change scalars, arguments, arrays that NumPy gives read-only, and those of the
        function around a body.
        """
        if self.is_scalar:
            fail("NumPy's scalars cannot be changed in place: write s = other, or use np.copy")
        if self.memory is not None and self.memory.is_argument:
            copy = "or begin with a copy (x = x.copy()), or use @cvm.kernel"
            fail(f"a compiled function leaves its arguments as they are: {instead}, {copy}")
        if self.is_read_only:
            fail("this array is read-only, or not one of a traced function: use np.copy")
        owner = self.tracer if self.memory is None else self.memory.elements.tracer
        if tracer_of([self]) is not owner:
            fail(
                "the body of a loop leaves arrays of the function around it as they are, "
                f"carry them: {instead}"
            )

    def take_value(self, new: TracedArray) -> None:
        """Take the elements of another array."""
        if self.memory is None:
            self._value = new.value
        else:
            self.memory.write(self, new)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # a protocol that Python or NumPy asks for
            raise AttributeError(name)
        public = ", ".join(
            n for n in dir(type(self)) if n[0] != "_" and (n == "at" or hasattr(np.ndarray, n))
        )
        message = f"traced arrays have no {name}; they have {public}, and cvm's functions take them"
        raise NoSuchAttribute(Diagnostic(message, caller(), "trace"))

    def _number(self) -> NoReturn:
        why = (
            "so they cannot become Python numbers, nor elements of NumPy's arrays: make those "
            "of traced ones, as by np.zeros_like(x, shape=...), or use @cvm.kernel"
        )
        fail_unknown(self, f"the elements of an array are not known while compiling, {why}")

    __int__ = __float__ = __index__ = __complex__ = _number

    def __format__(self, form: str) -> str:
        return repr(self) if not form else self._number()

    def __round__(self, digits: int = 0) -> NoReturn:
        fail(
            "Python's round gives a number, and elements are not known while compiling: use np.rint"
        )

    def __array__(self, *_: object, **__: object) -> NoReturn:
        how = "use cvm's functions or NumPy's ufuncs on it, and use np.stack for several of them"
        fail_unknown(
            self, f"NumPy cannot compute with an array that is not known while compiling; {how}"
        )

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "outer":
            a, b = (x if isinstance(x, TracedArray) else np.asarray(x) for x in inputs)
            return ufunc(np.expand_dims(a, tuple(range(a.ndim, a.ndim + b.ndim))), b, **options)
        if method != "__call__":
            return function_named(f"{ufunc.__name__}.{method}")(*inputs, **options)
        out, dtype, mask = (options.pop(name, None) for name in ("out", "dtype", "where"))
        inputs = inputs if dtype is None else tuple(_of_dtype(ufunc, inputs, dtype))
        if tracer_of(inputs) is None:
            found = self.tracer.array(ufunc(*inputs, **options))  # of numbers, into `out`
        elif ufunc.__name__ in NUMPY_FUNCTIONS:
            found = NUMPY_FUNCTIONS[ufunc.__name__](*inputs, **options)
        elif given := [o for o, value in options.items() if value is not None]:
            fail(
                f"np.{ufunc.__name__} takes operands, out, dtype and where here, got "
                f"{', '.join(given)}"
            )
        else:
            found = ufunc_of_trace(ufunc.__name__, *inputs)
        if mask is not None and mask is not True:
            if out is None:
                why = "leaves the elements open that where does not choose"
                fail(f"np.{ufunc.__name__} {why}: give out, or use np.where")
            found = NUMPY_FUNCTIONS["where"](mask, found, out[0])
        if out is not None and len(out) == 1 and np.shape(out[0]) != found.shape:
            found = NUMPY_FUNCTIONS["broadcast_to"](found, np.shape(out[0]))
        return found if out is None else into(out, found)

    def __array_function__(
        self, function: Callable[..., Any], types: object, args: Any, kwargs: Any
    ) -> Any:
        return function_named(name_of(function))(*args, **kwargs)

    __hash__ = object.__hash__

    def conjugate(self) -> TracedArray:
        """Conjugate complex numbers; other arrays are returned as they are."""
        return ufunc_of_trace("conjugate", self) if self.dtype.kind == "c" else self

    conj = conjugate

    def __matmul__(self, other: ArrayLike) -> TracedArray:
        return NUMPY_FUNCTIONS["matmul"](self, other)

    def __rmatmul__(self, other: ArrayLike) -> TracedArray:
        return NUMPY_FUNCTIONS["matmul"](other, self)

    def __imatmul__(self, other: ArrayLike) -> TracedArray:
        return into(self, self @ other)

    __add__, __radd__, __iadd__ = _arithmetic("add")
    __sub__, __rsub__, __isub__ = _arithmetic("subtract")
    __mul__, __rmul__, __imul__ = _arithmetic("multiply")
    __truediv__, __rtruediv__, __itruediv__ = _arithmetic("divide")
    __floordiv__, __rfloordiv__, __ifloordiv__ = _arithmetic("floor_divide")
    __mod__, __rmod__, __imod__ = _arithmetic("remainder")
    __pow__, __rpow__, __ipow__ = _arithmetic("power")
    __and__, __rand__, __iand__ = _arithmetic("bitwise_and")
    __or__, __ror__, __ior__ = _arithmetic("bitwise_or")
    __xor__, __rxor__, __ixor__ = _arithmetic("bitwise_xor")
    __lshift__, __rlshift__, __ilshift__ = _arithmetic("left_shift")
    __rshift__, __rrshift__, __irshift__ = _arithmetic("right_shift")
    __divmod__, __rdivmod__ = _arithmetic("divmod")[:2]
    __eq__ = _comparison("equal")  # type: ignore[assignment]
    __ne__ = _comparison("not_equal")  # type: ignore[assignment]
    __lt__ = _comparison("less")
    __le__ = _comparison("less_equal")
    __gt__ = _comparison("greater")
    __ge__ = _comparison("greater_equal")
    __neg__ = _unary("negative")
    __pos__ = _unary("positive")
    __abs__ = _unary("absolute")
    __invert__ = _unary("invert")


def is_scalar(given: object) -> bool:
    """Test for a traced scalar, as opposed to an array of rank 0."""
    return isinstance(given, TracedArray) and given.is_scalar


def ufunc_of_trace(name: str, *inputs: object) -> Any:
    tracer = tracer_of(inputs)
    found = NotImplemented if tracer is None else UFUNC_RULES[tracer.rules](name, inputs)
    return fail_no_counterpart(name) if found is NotImplemented else found


def _operator(name: str, *operands: object) -> Any:
    """The result of a Python operator; that of Python's numbers is one of them, and gives way to
    the types of arrays.
    """
    found = ufunc_of_trace(name, *operands)
    if all(map(weak_kind, operands)):
        for x in found if isinstance(found, tuple) else (found,):
            x.weak = {"i": int, "f": float, "c": complex}.get(x.dtype.kind)
    return found


def _binary(self: TracedArray, name: str, other: object) -> Any:
    """Compute the operator as NumPy's arrays do: some powers by other ufuncs."""
    known = (
        name == "power"
        and self.tracer.rules == "numpy"
        and type(other) in (int, float)
        and other in POWERS
    )
    if known and self.weak is None:
        squared = (
            other == 2 and type(other) is int and (self.ndim or self.dtype.kind != "b")
        )  # one bool becomes an i64
        if squared or self.dtype.kind in "fc":
            return ufunc_of_trace(POWERS[other], self)
    return _operator(name, self, other)
