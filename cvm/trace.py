"""Trace Python functions to programs: called with `TracedArray`s, a function records its operations.

Operators and NumPy's functions mean what they mean in NumPy, or what the dali dialect says (`ufunc_rules`); `apply` reaches
every operator. Each operation is verified as it is made, so a mistake is a diagnostic at its line of Python."""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable
from difflib import get_close_matches
from functools import partialmethod
from typing import Any, NoReturn

import numpy as np

from cvm.dialect.builtin import Const, Data
from cvm.dialect.ir.attributes import conform
from cvm.dialect.ir.cast_arrays import with_plain_truths
from cvm.dialect.ir.diagnostics import NOWHERE, Diagnostic, Source, Span, TraceError
from cvm.dialect.ir.literal_types import literal_type
from cvm.dialect.ir.masked_array_error import masked
from cvm.dialect.ir.sizes import Size
from cvm.dialect.ir.types import BY_DTYPE, ElementType, TensorType, Type
from cvm.dialect.program.builder import Builder
from cvm.dialect.program.function import Function, Literal, Operation, Value
from cvm.dialect.program.module import Module
from cvm.dialect.program.verify import verify
from cvm.dialect.spec.op import OPERATORS, Field, Operator

_PACKAGE = __name__.partition(".")[0]
RULES = ("numpy", "dali")
POWERS = {
    2: "square",
    -1: "reciprocal",
    0.5: "sqrt",
}  # ufuncs that NumPy takes for an exponent that is one number
PYTHON_NUMBERS = (int, float, complex)
_running = threading.local()


def running_tracer() -> Tracer | None:
    """The tracer of the function that is being traced in this thread, the innermost one."""
    return getattr(_running, "tracer", None)


class Tracer:
    """The function being recorded: its arguments and operations so far. Used as a context manager while Python runs it.

    The body of a loop has a tracer of its own inside of another; what it uses of `outer` ones becomes arguments."""

    def __init__(
        self, name: str, rules: str, notes_differences: bool = False, outer: Tracer | None = None
    ) -> None:
        self.name = name
        self.rules = rules
        self.outer = outer
        self.captured: dict[Value, Value] = {}  # an argument for each value of the outer function
        self.functions: dict[str, Function] = (
            outer.functions if outer else {}
        )  # of the program, besides this one
        self.notes_differences = notes_differences
        self.differences: list[
            tuple[str, Span]
        ] = []  # between the rules, by ufunc, at most one of each
        self.arguments: list[Value] = []
        self.parameters: dict[str, str] = {}  # of the Python function, by the names of their arrays
        self.operations: list[Operation] = []
        self.span = NOWHERE

    def __enter__(self) -> Tracer:
        self.before, _running.tracer = running_tracer(), self
        return self

    def __exit__(self, *_: object) -> None:
        _running.tracer = self.before

    def contains(self, tracer: Tracer | None) -> bool:
        """Test whether a tracer is this one, or that of a body inside of it."""
        return tracer is self or (tracer is not None and self.contains(tracer.outer))

    def seen(self, given: TracedArray, span: Span) -> Value:
        """The value of an array of this function or of an outer one."""
        changed = None if given.memory is None else given.memory.changed
        if changed is not None and changed is not given:
            fail(
                "this array shares memory with another one, which was changed: use np.copy before, or that one",
                span,
            )
        if given.tracer is self:
            return given.value
        if self.outer is None:
            fail(
                "an array of another compiled function, or kept from an earlier trace, is used here",
                span,
            )
        if isinstance(value := self.outer.seen(given, span), Literal):
            return value
        return self.captured.setdefault(
            value, Value(f"outer{len(self.captured)}", value.known_type, span)
        )

    def argument(self, name: str, type: TensorType, weak: Any = None) -> TracedArray:
        """An argument; `weak` is the Python type of one that was given as a number."""
        value = Value(name, type, self.span)
        self.arguments.append(value)
        return TracedArray(self, value, weak)

    def note_difference(self, differs: Callable[[], bool], name: str) -> None:
        """Keeps a place where the rules of NumPy and of the dali dialect differ."""
        if (
            self.notes_differences
            and all(name != known for known, _ in self.differences)
            and differs()
        ):
            self.differences.append((name, caller()))

    def add(self, operator: Operator[Value], span: Span) -> tuple[TracedArray, ...]:
        """Record an operation; raises VerifyError at the caller's line if it breaks a constraint."""
        return tuple(
            TracedArray(self, r) for r in Builder(self.operations, span, prefix="").add(operator)
        )

    def constant(self, array: np.ndarray, span: Span | None = None) -> TracedArray:
        type = TensorType(array.shape, element_of(array.dtype, span))
        data = with_plain_truths(np.ascontiguousarray(array).reshape(array.shape))
        return self.add(Const(data=Data(data), type=type), span or caller())[0]

    def array(self, given: Any, dialect: str = "numpy") -> TracedArray:
        """A traced array as it is, and one of a number or of NumPy data."""
        return (
            given
            if isinstance(given, TracedArray)
            else TracedArray(self, self.operand(given, dialect))
        )

    def operand(self, given: Any, dialect: str, span: Span | None = None) -> Value:
        """The value of an operand: a traced array, a Python number (a literal) or NumPy data (a constant)."""
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
            return self.constant(np.asarray(given), span).value
        fail(f"expected an array or a number, got {type(given).__name__}", span)

    def finish(self, results: list[Any]) -> Module:
        """The recorded program, whose first function is this one."""
        return verify(
            Module({self.name: self.function(results), **self.functions}, self.span.source.filename)
        )

    def function(self, results: list[Any]) -> Function:
        values = tuple(self.operand(r, self.rules, self.span) for r in results)
        arguments = (*self.arguments, *self.captured.values())
        return Function(self.name, arguments, tuple(self.operations), values, span=self.span)


def fail(message: str, span: Span | None = None) -> NoReturn:
    raise TraceError(Diagnostic(message, span or caller(), "trace"))


def fail_unknown(x: TracedArray, why: str) -> NoReturn:
    """Raise for a value that is needed while compiling; where it depends on numbers alone, their names are those to make static."""
    made = {r: operation.operator for operation in x.tracer.operations for r in operation.results}
    behind = [x.value]
    for value in behind:  # which grows
        behind += [v for _, v in made[value].operands() if v not in behind] if value in made else []
    values = [v for v in behind if v not in made and not isinstance(v, Literal)]
    parameters = x.tracer.parameters
    if not values or any(v.name not in parameters or v.known_type.array_shape for v in values):
        fail(why)
    names = sorted({parameters[v.name] for v in values})
    error = TraceError(
        Diagnostic(f"{why}, or give cvm.compile static_argnames={names}", caller(), "trace")
    )
    error.static_names = frozenset(names)
    raise error


_sources: dict[str, Source] = {}


def caller() -> Span:
    """The user's line of Python that is running: the innermost frame outside this package and NumPy."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in (
        _PACKAGE,
        "numpy",
    ):
        frame = frame.f_back
    filename = frame.f_code.co_filename
    text = "".join(linecache.getlines(filename, frame.f_globals))
    if (source := _sources.get(filename)) is None or source.text != text:
        source = _sources[filename] = Source(filename, text)
    line, end_line, column, end_column = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    if line is None or line > len(source.line_starts):
        return Span(source, 0, 0)
    start = source.line_starts[line - 1] + (column or 0)
    length = end_column - (column or 0) if end_column is not None and end_line == line else 1
    return Span(source, start, start + length)


def apply(name: str, *operands: Any, **attributes: Any) -> Any:
    """An operator applied to traced arrays, numbers and NumPy data; a tuple where it has several results."""
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


def tracer_of(operands: Any) -> Tracer | None:
    """The tracer that records what is done with these operands; None where none of them is traced."""
    found = next((o.tracer for o in _flat(operands) if isinstance(o, TracedArray)), None)
    running = running_tracer()
    return running if found is not None and found.contains(running) else found


def _flat(operands: Any) -> list[Any]:
    return [x for o in operands for x in (_flat(o) if isinstance(o, (list, tuple)) else [o])]


def _bind(
    tracer: Tracer,
    operator: type[Operator[Any]],
    given: list[Any],
    attributes: dict[str, Any],
    span: Span,
) -> dict[str, Any]:
    """The operator's fields from positional operands and keyword attributes (an operand may be given by name too)."""
    values: dict[str, Any] = {}
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


def _attribute(operator: type[Operator[Any]], field: Field, value: Any, span: Span) -> Any:
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


NUMPY_FUNCTIONS: dict[
    str, Callable[..., Any]
] = {}  # by name, such as sum, linalg.norm, add.reduce and add.at
UFUNC_RULES: dict[str, Callable[[str, Any], Any]] = {}  # the ufuncs by the name of the rules


def _function(name: str) -> Callable[..., Any]:
    return NUMPY_FUNCTIONS.get(name) or _no_counterpart(name)


def _no_counterpart(name: str) -> NoReturn:
    near = get_close_matches(
        name, [n for n in NUMPY_FUNCTIONS if not n.endswith((".reduce", ".at"))], 4, 0.5
    )
    also = f"near it are {', '.join(f'np.{n}' for n in near)}; " if near else ""
    fail(
        f"np.{name} has no counterpart for traced arrays; {also}docs/numpy.md lists those that have one"
    )


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


def weak_kind(given: Any) -> type | None:
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
    """The memory that an array and its views share in NumPy: whether it is an argument's, and the array that was changed last."""

    __slots__ = ("changed", "is_argument")

    def __init__(self, is_argument: bool) -> None:
        self.is_argument = is_argument
        self.changed: TracedArray | None = (
            None  # the others, which NumPy changes with it, are refused from then on
        )


class TracedArray:
    """Stands for an array while a Python function is traced. Its operators follow the rules of the trace."""

    __slots__ = ("memory", "origin", "tracer", "value", "weak")
    __array_priority__ = 1000

    def __init__(self, tracer: Tracer, value: Value, weak: type | None = None) -> None:
        self.tracer = tracer
        self.value = value
        self.weak = (
            weak  # int, float or complex for a Python number, whose element type gives way (NEP 50)
        )
        self.memory: Memory | None = None  # of a view, in NumPy, and of an array with views
        self.origin: tuple[TracedArray, Any] | None = None  # the array and the subscript of a view

    @property
    def type(self) -> Type:
        return self.value.known_type

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
        why = "the elements of an array are not known while compiling, so Python cannot branch on them"
        fail_unknown(self, f"{why}: use np.where(condition, a, b)")

    def __iter__(self) -> Any:
        return (self[n] for n in range(len(self)))  # type: ignore[index]

    def viewed(self, found: TracedArray, key: Any = None) -> TracedArray:
        """An array as one that shares this array's memory in NumPy."""
        self.memory = found.memory = self.memory or Memory(self.value in self.tracer.arguments)
        found.origin = self, key
        return found

    def change_in_place(self, instead: str) -> None:
        """Refuses to change an argument, or the memory of one, and an array of the function around the body of a loop."""
        if self.value in self.tracer.arguments or (
            self.memory is not None and self.memory.is_argument
        ):
            fail(f"a compiled function leaves its arguments as they are: {instead}")
        if tracer_of([self]) is not self.tracer:
            fail(
                f"the body of a loop leaves arrays of the function around it as they are, carry them: {instead}"
            )

    def take_value(self, new: TracedArray) -> None:
        """Take the elements of another array; those that share this one's memory are not used after it."""
        self.value = new.value
        if self.memory is not None:
            self.memory.changed, self.memory = self, Memory(False)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # a protocol that Python or NumPy asks for
            raise AttributeError(name)
        public = ", ".join(
            n for n in dir(type(self)) if n[0] != "_" and (n == "at" or hasattr(np.ndarray, n))
        )
        message = f"traced arrays have no {name}; they have {public}, and cvm's functions take them"
        raise NoSuchAttribute(Diagnostic(message, caller(), "trace"))

    def _number(self) -> NoReturn:
        why = "so they cannot become Python numbers, nor elements of NumPy's arrays: make those of traced ones"
        fail_unknown(
            self,
            f"the elements of an array are not known while compiling, {why}, as by np.zeros_like",
        )

    __int__ = __float__ = __index__ = __complex__ = _number

    def __format__(self, form: str) -> str:
        return repr(self) if not form else self._number()

    def __round__(self, digits: int = 0) -> NoReturn:
        fail(
            "Python's round gives a number, and elements are not known while compiling: use np.rint"
        )

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        how = "use cvm's functions or NumPy's ufuncs on it, and use np.stack for several of them"
        fail_unknown(
            self, f"NumPy cannot compute with an array that is not known while compiling; {how}"
        )

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "outer":
            a, b = (x if isinstance(x, TracedArray) else np.asarray(x) for x in inputs)
            return ufunc(np.expand_dims(a, tuple(range(a.ndim, a.ndim + b.ndim))), b, **options)
        if method != "__call__":
            return _function(f"{ufunc.__name__}.{method}")(*inputs, **options)
        out, dtype, mask = (options.pop(name, None) for name in ("out", "dtype", "where"))
        inputs = inputs if dtype is None else tuple(_of_dtype(ufunc, inputs, dtype))
        if ufunc.__name__ in NUMPY_FUNCTIONS:
            found = NUMPY_FUNCTIONS[ufunc.__name__](*inputs, **options)
        elif given := [o for o, value in options.items() if value is not None]:
            fail(
                f"np.{ufunc.__name__} takes operands, out, dtype and where here, got {', '.join(given)}"
            )
        else:
            found = ufunc_of_trace(ufunc.__name__, *inputs)
        if mask is not None and mask is not True:
            if out is None:
                why = "leaves the elements open that where does not choose"
                fail(f"np.{ufunc.__name__} {why}: give out, or use np.where")
            found = NUMPY_FUNCTIONS["where"](mask, found, out[0])
        return found if out is None else into(out, found)

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        room = function.__module__.partition(".")[2]
        name = f"{room}.{function.__name__}" if room in ("linalg", "fft") else function.__name__
        return _function(name)(*args, **kwargs)

    __hash__ = object.__hash__


def ufunc_of_trace(name: str, *inputs: Any) -> Any:
    tracer = tracer_of(inputs)
    found = NotImplemented if tracer is None else UFUNC_RULES[tracer.rules](name, inputs)
    return _no_counterpart(name) if found is NotImplemented else found


def _operator(name: str, *operands: Any) -> Any:
    """The result of a Python operator; that of Python's numbers is one of them, and gives way to the types of arrays."""
    found = ufunc_of_trace(name, *operands)
    if all(map(weak_kind, operands)):
        for x in found if isinstance(found, tuple) else (found,):
            x.weak = {"i": int, "f": float, "c": complex}.get(x.dtype.kind)
    return found


def _binary(self: TracedArray, name: str, other: Any, *modulus: Any) -> Any:
    """The operator as NumPy's arrays compute it: some powers by other ufuncs."""
    if modulus:
        fail("arrays have no powers modulo a number")
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


def _reflected(self: TracedArray, name: str, other: Any) -> Any:
    return _operator(name, other, self)


def _in_place(self: TracedArray, name: str, other: Any) -> Any:
    self.change_in_place(
        f"write x = x {SIGNS[name]} other, or x.at[...].add(values) for some elements"
    )
    return into(self, _binary(self, name, other))


_BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "power", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip
SIGNS = dict(
    zip(
        _BINARY.values(),
        ["+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>"],
        strict=True,
    )
)
for _python, _ufunc in _BINARY.items():
    setattr(TracedArray, f"__{_python}__", partialmethod(_binary, _ufunc))
    setattr(TracedArray, f"__r{_python}__", partialmethod(_reflected, _ufunc))
    setattr(TracedArray, f"__i{_python}__", partialmethod(_in_place, _ufunc))
for _python, _ufunc in {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}.items():  # fmt: skip
    setattr(TracedArray, f"__{_python}__", partialmethod(_binary, _ufunc))
for _python, _ufunc in {
    "neg": "negative",
    "pos": "positive",
    "abs": "absolute",
    "invert": "invert",
}.items():
    setattr(TracedArray, f"__{_python}__", lambda self, name=_ufunc: _operator(name, self))
TracedArray.__divmod__ = partialmethod(_binary, "divmod")  # type: ignore[attr-defined]
TracedArray.__rdivmod__ = partialmethod(_reflected, "divmod")  # type: ignore[attr-defined]
