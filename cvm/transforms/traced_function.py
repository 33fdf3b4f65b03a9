"""Trace and compile a Python function once for each signature it is called with."""

import importlib
import inspect
import pickle
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache, partial, update_wrapper
from html import escape
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, overload

import numpy as np

from cvm.dialect.ir.module import Module
from cvm.dialect.ir.overwritten_arguments import donate
from cvm.dialect.support.compilation_context import USER_TRACEBACK, compiling
from cvm.dialect.support.diagnostics import CallError, Error, TraceError, VerifyError
from cvm.dialect.support.fp_environment import DefaultFpEnvironment
from cvm.dialect.support.masked_arrays import masked
from cvm.dialect.types.sizes import Dim, Size
from cvm.dialect.types.tensor_types import BY_DTYPE, TensorType
from cvm.jit.calls import fastcall
from cvm.jit.calls.arguments import array_in, like_arguments, samples_of
from cvm.jit.calls.dispatch_table import DispatchEntry
from cvm.jit.compile import compile_function, prepared
from cvm.jit.functions.compiled_function import CompiledFunction
from cvm.jit.functions.native_function import NativeFunction
from cvm.jit.options import DEFAULT as PLAIN_OPTIONS, CompileOptions, Stage
from cvm.jit.targets import TARGETS

from ..numpy.ufuncs import RULES
from ..tracing.diagnose import caller
from ..tracing.trace import PYTHON_NUMBERS, TracedArray, Tracer, within

if TYPE_CHECKING:
    from cvm.lowering.analysis.count_operations import Cost

P = ParamSpec("P")
R = TypeVar("R")
Signature = tuple[object, ...]
METHODS = "compiled methods"  # the attribute of an instance that holds them
MOST_NESTED = 100  # containers in each other, far below Python's limit of 1,000 nested calls
MANY_SHAPES = 8  # signatures of one structure after which sizes are compiled as unknown


@dataclass(frozen=True)
class TraceOptions:
    """The options of `cvm.compile` for a Python function. Without `rules` NumPy's hold, and a
    warning says where they are new.
    """

    target: str = "cpu"
    compile: CompileOptions = PLAIN_OPTIONS
    rules: str | None = None
    static_argnums: int | Sequence[int] = ()
    static_argnames: str | Sequence[str] = ()
    donate_argnums: int | Sequence[int] = ()
    donate_argnames: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.rules not in (None, *RULES):
            raise Error(f"rules are {' or '.join(RULES)}, got {self.rules!r}")

    def named(
        self, parameters: inspect.Signature, kind: Literal["static", "donate"]
    ) -> frozenset[str]:
        """The parameters that are static, or donated; raises Error for names and numbers that are
        none.
        """
        listed = [*parameters.parameters]
        names, numbers = {
            "static": (self.static_argnames, self.static_argnums),
            "donate": (self.donate_argnames, self.donate_argnums),
        }[kind]
        names = (names,) if isinstance(names, str) else names
        numbers = (numbers,) if isinstance(numbers, int) else numbers
        for name in names:
            if name not in listed:
                raise Error(
                    f"{kind}_argnames names the parameters {', '.join(listed)}, got {name!r}"
                )
        for n in numbers:
            if not -len(listed) <= n < len(listed):
                raise Error(f"{kind}_argnums counts the {len(listed)} parameters from 0, got {n}")
        return frozenset((*names, *(listed[n] for n in numbers)))


DEFAULT = TraceOptions()


class Trace:
    """A program recorded for a signature, and the structure of its results. It is compiled when it
    is first called or lowered.
    """

    def __init__(self, module: Module, form: object, options: TraceOptions) -> None:
        self._recorded = module
        self._entry = next(iter(module.functions))
        self.form = form
        self.options = options
        self._compiled: CompiledFunction | None = None

    @cached_property
    def module(self) -> Module:
        """The program with its derivatives expanded, as it is compiled."""
        with compiling():
            return prepared(self._recorded, self._entry)[0]

    def compile(self) -> CompiledFunction:
        """Return the function compiled for the target."""
        if self._compiled is None:
            self._compiled = compile_function(
                self.module, self._entry, self.options.target, self.options.compile
            )
        return self._compiled


class TracedFunction(Generic[P, R]):
    """A Python function of arrays, traced and compiled for each signature that it is called with.

    Arrays may come in tuples, lists, dictionaries, named tuples, data classes and classes under
    `cvm.register_pytree`, and are returned in them.

    A signature is the structure of the arguments with each array's element type and shape; after
    eight shapes, and for batches, sizes are compiled as unknown. Strings, None, other hashable
    values and static arguments are part of the signature. Python numbers are scalars: by NumPy's
    rules i64, f64 or complex<f64> whose type gives way to that of arrays, by those of the dali
    dialect i32 and f32.
    """

    def __init__(self, function: Callable[P, R], options: TraceOptions = DEFAULT) -> None:
        self.function = function
        self.options = options
        self.target = options.target
        self.rules = options.rules or "numpy"
        self._parameters = signature_of(function)
        self._traces: dict[Signature, Trace] = {}
        self._shapes = Counter[Signature]()
        positional = all(
            p.kind is p.POSITIONAL_OR_KEYWORD for p in self._parameters.parameters.values()
        )
        self._names = tuple(self._parameters.parameters) if positional else ()
        self._static = options.named(self._parameters, "static")
        self._donated = options.named(self._parameters, "donate")
        self._defaults = {
            n: p.default for n, p in self._parameters.parameters.items() if p.default is not p.empty
        }
        self._ways: dict[
            CompiledFunction, DispatchEntry
        ] = {}  # kept with the traces: a call may be on any of them
        self._direct: set[CompiledFunction] = (
            set()
        )  # called directly now, the rest going to `__call__`
        self._last: Trace | None = None
        self._elsewhere: dict[int, dict[TracedFunction, TracedFunction]] = {}
        update_wrapper(self, function)
        self.__name__: str = getattr(function, "__name__", type(function).__name__)
        if _is_direct(self):
            self._slow = MethodType(TracedFunction.__call__, weakref.proxy(self))
            self._way = self._fallback = DispatchEntry(self._slow)
            self._way.serve(self)

    def __get__(self, instance: Any, owner: Any = None) -> "TracedFunction[..., R]":
        """Bind as a method: one compiled function per instance, stored in it."""
        if instance is None:
            return self
        if not isinstance(own := getattr(instance, "__dict__", None), dict):
            methods = self._elsewhere.setdefault(id(instance), {})
        else:
            if not isinstance(kept := own.get(METHODS), _Methods) or kept.instance != id(instance):
                own[METHODS] = kept = _Methods(id(instance))
            methods = kept.functions
        if self not in methods:
            methods[self] = traced(self.function.__get__(instance, owner), self.options)
        return methods[self]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by name, as Python's functions are: by its own where it took the function's, or
        else with the function's.
        """
        try:
            module, name = self.function.__module__, self.function.__qualname__
            decorated = _named(module, name) is self
        except (ImportError, AttributeError):
            return traced, (
                self.function,
                self.options,
            )  # pickling the function says what is wrong with its name
        # joblib's or Dask's pickler of functions by their code, for workers that do not run this
        # process's main module
        by_value = sys.modules.get("joblib.externals.cloudpickle") or sys.modules.get("cloudpickle")
        if decorated and module == "__main__" and by_value is not None:
            return _of_main, (name, by_value.dumps((self.function, self.options)))
        return (_named, (module, name)) if decorated else (traced, (self.function, self.options))

    def __repr__(self) -> str:
        return f"<cvm function {self.__name__}{self._parameters} on {self.target}>"

    def _repr_html_(self) -> str:
        """The function in a notebook: that of the latest signature, or the name alone."""
        return f"<pre>{escape(repr(self))}</pre>" + (
            "" if self._last is None else self._last.compile()._repr_html_()
        )

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def __call__(self, *args: object, out: object, **kwargs: object) -> Any: ...
    def __call__(self, *args: Any, out: object = None, **kwargs: Any) -> Any:
        """Call the function; the first call with a signature traces and compiles it.

        Args:
            args: Arrays, Python numbers, and tuples, lists and dictionaries of these.
            out: An array, or a tuple of arrays in the order of the results, to write into.
            kwargs: Arguments by name.

        Raises:
            TraceError: The function does something with arrays that cannot be traced; the error has
                the
                line.
            CallError: The arguments do not fit the function's parameters.
        """
        with USER_TRACEBACK:
            given = (*args, *kwargs.values())
            if any(isinstance(v, TracedArray) for v in within(given)):
                return self.function(*args, **kwargs)  # of another function that is being traced
            with DefaultFpEnvironment():
                structure, arrays, trace = self._prepared(args, kwargs)
            compiled, form = trace.compile(), trace.form
            try:
                answer = _result(compiled, form, arrays, out, (args, kwargs))
            except VerifyError:
                # of sizes that were unknown while compiling: what is empty of them has another
                # program
                compiled, form = self._compiled(structure, arrays, unknown=None)
                answer = _result(compiled, form, arrays, out, (args, kwargs))
            if (
                compiled not in self._direct
                and not kwargs
                and len(args) == len(self._names)
                and _is_direct(self)
            ):
                self._call_directly(compiled, form, [part for _, part in structure])
            return answer

    def _call_directly(
        self, compiled: CompiledFunction, form: Any, structure: list[object]
    ) -> None:
        """Serve calls of this form by machine code, if they return what the compiled function
        returns.
        """
        several = form[0] == "tuple" and len(form[1]) > 1 and set(form[1]) == {("array",)}
        if not isinstance(compiled, NativeFunction) or compiled.table is None:
            return
        build = None if several or form == ("array",) else partial(_built, form)
        if "'node'" in repr(structure) or any(
            kind for part in structure for _, kind in leaves(part, "")
        ):
            return  # machine code takes arrays, which a Python number is not by its type
        if len(self._direct) >= 2 * MANY_SHAPES:
            self._direct.clear()
            self._way = self._fallback
        if (way := self._ways.get(compiled)) is None:
            way = DispatchEntry(self._slow, compiled.table, structure, build)
            self._ways[compiled] = way
        way.follow(self._way)
        self._direct.add(compiled)
        self._way = way
        way.serve(self)

    def batch(self, *samples: Sequence[object]) -> list[Any]:
        """Call the function on each sample; return the list of results, equal to those of single
        calls.

        One kernel serves all shapes that are alike in which sizes are equal and which are 0 or 1.

        Args:
            samples: For each argument a list of arrays of one rank, whose shapes may differ; an
                argument
                that is not a list is the same for every sample.
        """
        results = []
        for sample in samples_of(samples):
            _, arrays, trace = self._prepared(sample, {}, unknown=True)
            results.append(_result(trace.compile(), trace.form, arrays, None, sample))
        return results

    def lower(self, stage: Stage = "loops") -> str:
        """Return the program of the latest signature at a stage of its lowering, as text.

        Args:
            stage: As for `CompiledFunction.lower`.

        Raises:
            TraceError: The function has been neither called nor traced.
        """
        return self._latest().compile().lower(stage)

    def cost(self, by: str = "kernel", **sizes: int) -> "Cost":
        """Count the operations and bytes of a call with the latest signature, exactly.

        Args:
            by: As for `CompiledFunction.cost`.
            sizes: Sizes that are compiled as unknown; others count as 1.

        Raises:
            TraceError: The function has been neither called nor traced.
        """
        return self._latest().compile().cost(by, **sizes)

    def program(self) -> Module:
        """Return the program of the latest signature, to print, save or compile for another target.

        Raises:
            TraceError: The function has been neither called nor traced.
        """
        return self._latest().module

    def trace(self, *args: object, **kwargs: object) -> Module:
        """Record the program for these arguments, without compiling or running it.

        Args:
            args: Arguments as for a call.
            kwargs: Arguments by name.
        """
        return self._prepared(args, kwargs, compiles=False)[2].module

    def _latest(self) -> Trace:
        if self._last is None:
            raise TraceError(
                f"{self.__name__} has not been traced: call it, or trace(...) it, with "
                "arguments first"
            )
        return self._last

    def _flatten(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[Any, list[np.ndarray]]:
        arrays: list[np.ndarray] = []
        leaf, fixed = partial(argument_leaf, arrays, self.rules == "numpy"), self._static
        given = self._bind(args, kwargs).items()
        return tuple(
            [(n, static(v, n) if n in fixed else flatten(v, leaf, n)) for n, v in given]
        ), arrays

    def _prepared(
        self, args: Any, kwargs: Any, unknown: bool = False, compiles: bool = True
    ) -> tuple[Any, list[np.ndarray], Trace]:
        """Return the structure of a call, its arrays, and the trace for them. Numbers with defaults
        are static once one has to be known.
        """
        structure, arrays = self._flatten(args, kwargs)
        try:
            return structure, arrays, self._traced(structure, arrays, unknown, compiles)
        except TraceError as e:
            if not e.static_names or not e.static_names <= self._defaults.keys():
                raise
            self._static |= e.static_names
        return self._prepared(args, kwargs, unknown, compiles)

    def _bind(self, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, Any]:
        """The value of each parameter."""
        given = dict(zip(self._names, args, strict=False))
        if len(given) == len(args):
            rest = self._names[len(args) :]
            known = {**self._defaults, **kwargs}
            given |= {n: known[n] for n in rest if n in known}
            if len(given) == len(self._names) and all(n in rest for n in kwargs):
                return given
        try:
            bound = self._parameters.bind(*args, **kwargs)
        except TypeError as e:
            raise CallError(f"{self.__name__}: {e}") from None
        bound.apply_defaults()
        return bound.arguments

    def _compiled(
        self, structure: object, arrays: list[np.ndarray], unknown: bool | None = False
    ) -> tuple[CompiledFunction, Any]:
        """Return the compiled function for a signature, and the structure of its results."""
        trace = self._traced(structure, arrays, unknown, compiles=True)
        return trace.compile(), trace.form

    def _traced(
        self, structure: object, arrays: list[np.ndarray], unknown: bool | None, compiles: bool
    ) -> Trace:
        """Return the trace for a signature, whose sizes are unknown after many shapes, always or,
        if None, never.
        """
        dtypes = tuple(a.dtype.str for a in arrays)
        shapes: list[tuple[Dim, ...]] = [a.shape for a in arrays]
        signature: Signature = structure, dtypes, tuple(shapes)
        if (trace := None if unknown else self._traces.get(signature)) is None:
            ranks = structure, dtypes, tuple(map(len, shapes))
            if unknown or (unknown is False and self._shapes[ranks] >= MANY_SHAPES):
                general = pattern(shapes)
                kept: Signature = structure, dtypes, repr(general)
                try:
                    found = self._traces.get(kept) or self._trace(structure, arrays, general)
                    if compiles:
                        found.compile()
                    trace = self._traces[kept] = found
                except Exception:
                    if unknown:
                        raise
                    self._shapes[ranks] = -sys.maxsize  # the function needs sizes
            if trace is None:
                self._shapes[ranks] += 1
                trace = self._trace(structure, arrays, shapes)
                if compiles:
                    trace.compile()
                self._traces[signature] = trace
        self._last = trace
        return trace

    def _trace(
        self, structure: Any, arrays: list[np.ndarray], shapes: Sequence[tuple[Dim, ...]]
    ) -> Trace:
        name = (
            "".join(c if c.isascii() and c.isalnum() else "_" for c in self.__name__).strip("_")
            or "main"
        )
        tracer = Tracer(name, self.rules)
        tracer.span = caller()
        parameters = (p for p, part in structure for _ in leaves(part, p))
        tracer.parameters = dict(zip(named_leaves(structure), parameters, strict=True))
        given = zip(named_leaves(structure).items(), arrays, shapes, strict=True)
        arguments = iter(
            [
                tracer.argument(
                    n,
                    TensorType(s, BY_DTYPE[a.dtype]),
                    None if k is np.generic else k,
                    is_scalar=k is not None,
                )
                for (n, k), a, s in given
            ]
        )
        call = self._parameters.bind_partial()
        for parameter, part in structure:
            call.arguments[parameter] = unflatten(part, arguments)
        try:
            with tracer:
                returned = self.function(*call.args, **call.kwargs)
        except Exception as e:
            if isinstance(e.__cause__, Error):  # which NumPy has made another error of
                raise e.__cause__.with_traceback(e.__traceback__) from None
            raise
        form, results = flatten_results(returned)
        if not results:
            raise TraceError(f"{self.__name__} returns no array")
        module = tracer.finish(results)
        donated = [k for k, p in enumerate(tracer.parameters.values()) if p in self._donated]
        if donated and (kept := donate(module.functions[name], donated)) is not None:
            raise TraceError(
                f"argument {kept.name} of {self.__name__} is donated, but no further result is a "
                f"{kept.type} that could be stored there"
            )
        return Trace(module, form, self.options)


@dataclass(eq=False)
class _Methods:
    """The compiled methods of one instance, which lie in its `__dict__`; a copy of it, and one
    unpickled, has its own.
    """

    instance: int = 0
    functions: dict[TracedFunction, TracedFunction] = field(
        default_factory=dict[TracedFunction, TracedFunction]
    )

    def __reduce__(self) -> tuple[Any, ...]:
        return _Methods, ()


def traced(function: Callable[..., object], options: TraceOptions = DEFAULT) -> TracedFunction:
    """The function, compiled for each signature it is called with."""
    target = TARGETS.get(options.target)
    direct = (
        target is not None
        and target.is_direct
        and options.compile.optimize > 0
        and fastcall.usable()
    )
    kind: type[TracedFunction] = fastcall.direct(TracedFunction) if direct else TracedFunction
    return kind(function, options)


def signature_of(function: Callable[..., object]) -> inspect.Signature:
    """The parameters of a function that can be traced; raises TraceError for any other object."""
    if isinstance(getattr(function, "module", None), Module):
        raise TraceError(f"expected a Python function, got {function!r}, which is compiled already")
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError) as e:
        raise TraceError(f"expected a Python function that says what it takes: {e}") from None
    if isinstance(
        getattr(function, "func", function), np.ufunc
    ):  # arrays alone: the rest says how NumPy goes about it
        return found.replace(
            parameters=[p for p in found.parameters.values() if p.default is p.empty]
        )
    return found


def _is_direct(called: TracedFunction) -> bool:
    return fastcall.usable() and isinstance(called, fastcall.direct_base())


def _named(module: str, name: str) -> Any:
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


@lru_cache(maxsize=256)
def _of_main(name: str, value: bytes) -> Any:
    """A traced function of the main module, or, where that has none of the name, one of its
    code.
    """
    with suppress(AttributeError):
        if isinstance(found := _named("__main__", name), TracedFunction):
            return found
    return traced(*pickle.loads(value))


def _result(
    compiled: CompiledFunction, form: Any, arrays: Sequence[np.ndarray], out: Any, given: Any
) -> Any:
    if out is not None:
        return compiled(*arrays, out=out)
    found = compiled(*arrays)
    found = like_arguments(
        found if isinstance(found, tuple) else (found,), given, compiled.options.like
    )
    return unflatten(form, iter(found))


def _built(form: Any, found: Any) -> Any:
    return unflatten(form, iter(found if isinstance(found, tuple) else (found,)))


def pattern(shapes: Sequence[tuple[Dim, ...]]) -> list[tuple[Dim, ...]]:
    """The shapes with sizes left unknown: equal ones share a name, and 0 and 1 stay."""
    names: dict[Dim, Size] = {}
    return [
        tuple(d if d in (0, 1) else names.setdefault(d, Size.named(f"N{len(names)}")) for d in s)
        for s in shapes
    ]


# Structures: ("array",), ("weak", type) of Python's numbers and NumPy's scalars, ("tuple", parts),
# ("list", parts), ("dict", keys, parts) and ("static", value)


def static(
    value: object, name: str, requirement: str = " is static, so it has to be hashable"
) -> Any:
    """The structure of an argument that is part of the signature."""
    try:
        hash(value)
    except (TypeError, RecursionError):
        raise CallError(f"argument {name}{requirement}, got {type(value).__name__}") from None
    return "static", value


def flatten(
    value: Any, leaf: Callable[[Any, str], Any], name: str = "", around: tuple[Any, ...] = ()
) -> Any:
    """The structure of a value, whose place is `name`, inside of the values `around`; `leaf` gives
    that of anything but a tuple, list or dictionary, from it and its place.
    """
    if any(value is a for a in around):
        raise CallError(
            f"{name} is the {type(value).__name__} that it is in: no argument or result may "
            "contain itself"
        )
    if len(around) > MOST_NESTED:
        top = name.replace(".", "[").partition("[")[0]
        raise CallError(f"{top} is nested more than {MOST_NESTED} deep")
    around = (*around, value)
    if (node := _node_of(value)) is not None:
        names, children, context = node
        parts = tuple(
            flatten(v, leaf, f"{name}.{n}", around) for n, v in zip(names, children, strict=True)
        )
        return "node", (type(value), context), names, parts
    match value:
        case tuple() | list():
            parts = tuple(flatten(v, leaf, f"{name}[{n}]", around) for n, v in enumerate(value))
            return ("tuple" if isinstance(value, tuple) else "list"), parts
        case dict():
            return (
                "dict",
                tuple(value),
                tuple(flatten(v, leaf, f"{name}[{k!r}]", around) for k, v in value.items()),
            )
    return leaf(value, name)


Children = tuple[Sequence[Any], Any]
_REGISTERED: dict[type, tuple[Callable[[Any], Children], Callable[[Any, Any], Any]]] = {}


def register_pytree(
    cls: type, flatten: Callable[[Any], Children], unflatten: Callable[[Any, Sequence[Any]], Any]
) -> None:
    """Let instances of a class be arguments and results of traced functions.

    Named tuples, and data classes that hold arrays, need no registration.

    Args:
        cls: The class; its subclasses are classes of their own.
        flatten: A function of an instance that returns a pair: the parts that hold arrays, and a
            hashable value that holds everything else and is compiled for.
        unflatten: A function of that value and the parts that returns an instance.

    Raises:
        Error: The first argument is not a class, or the others are not functions.
    """
    if not isinstance(cls, type) or not callable(flatten) or not callable(unflatten):
        raise Error("register_pytree takes a class, and two functions of its instances")
    _REGISTERED[cls] = flatten, unflatten


def _node_of(value: Any) -> tuple[tuple[Any, ...], Sequence[Any], Any] | None:
    """The names and the values of the parts of an instance, and everything else; None for what has
    no parts, or is a plain tuple, list or dictionary.
    """
    cls: Any = type(value)
    if cls in _REGISTERED:
        try:
            children, context = _REGISTERED[cls][0](value)
            hash(context)
        except (TypeError, ValueError):
            message = "a pair: a sequence of parts, and a value that can be hashed"
            raise Error(f"the function that takes {cls.__name__} apart returns {message}") from None
        return tuple(range(len(children))), children, context
    if isinstance(value, tuple) and hasattr(cls, "_fields"):
        return cls._fields, value, None
    if hasattr(cls, "__dataclass_fields__") and _holds_arrays(value):
        held = {f.name: getattr(value, f.name) for f in fields(cls)}
        plain = {n: v for n, v in held.items() if v is None or isinstance(v, (str, type))}
        names = tuple(n for n in held if n not in plain)
        return names, [held[n] for n in names], tuple(plain.items())
    return None


def _holds_arrays(value: object) -> bool:
    """Test whether a data class has to be taken apart; one of numbers alone that can be hashed is
    compiled for.
    """
    return any(
        isinstance(v, TracedArray)
        or hasattr(v, "__dlpack__")
        or (hasattr(type(v), "__dataclass_fields__") and type(v).__hash__ is None)
        for v in within(value, opened=True)
    )


def _instance(cls: Any, context: Any, names: Sequence[str], parts: Sequence[object]) -> Any:
    """The instance of these parts; a data class's own checks are not run, since its parts may be
    traced.
    """
    if cls in _REGISTERED:
        return _REGISTERED[cls][1](context, parts)
    if context is None:
        return cls._make(parts)
    made = object.__new__(cls)
    for name, part in (*context, *zip(names, parts, strict=True)):
        object.__setattr__(made, name, part)
    return made


def argument_leaf(arrays: list[np.ndarray], weak: bool, value: object, name: str) -> Any:
    """The structure of an array, which is appended, or of a static value. `weak` keeps the kind of
    numbers.
    """
    if weak and type(value) in PYTHON_NUMBERS:
        try:
            arrays.append(
                np.array(
                    value, {int: np.int64, float: np.float64, complex: np.complex128}[type(value)]
                )
            )
        except OverflowError:
            raise CallError(
                f"argument {name}: a Python integer is an i64 here, got {value}"
            ) from None
        return "weak", type(value)
    requirement = ": expected arrays, numbers or hashable values"
    try:
        array = as_array(value)
    except CallError:
        raise
    except Exception as e:  # raised by the value's own conversion to an array
        raise CallError(f"argument {name}{requirement}, got {type(value).__name__} ({e})") from None
    if array is None:
        return static(value, name, requirement)
    if array.dtype not in BY_DTYPE:
        raise CallError(f"argument {name}: no element type holds {array.dtype}")
    arrays.append(array)
    return ("weak", np.generic) if weak and isinstance(value, np.generic) else ("array",)


def as_array(value: object) -> np.ndarray | None:
    """The value as an array, without a copy if it is one already; None if it is no array."""
    if said := masked(value):
        raise CallError(f"expected an array of values, got {said}")
    if isinstance(value, (np.ndarray, str, bytes, type)):
        return value if isinstance(value, np.ndarray) else None
    if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
        dtype = (
            np.bool_
            if isinstance(value, bool)
            else np.int32
            if isinstance(value, int)
            else np.float32
        )
        try:
            return np.array(value, dtype)
        except OverflowError:
            raise CallError(f"a Python integer is an i32 here, got {value}") from None
    return array_in(value)


def flatten_results(value: object) -> tuple[Any, list[Any]]:
    """The structure of what a traced function returns, and its arrays and numbers."""
    results = []

    def leaf(value: object, _: str) -> Any:
        if value is None:
            return "static", None
        if not isinstance(value, (TracedArray, bool, int, float, np.ndarray, np.generic)):
            raise TraceError(f"a compiled function returns arrays, got {type(value).__name__}")
        results.append(value)
        return ("array",)

    return flatten(value, leaf, "value"), results


def unflatten(structure: Any, leaves: Any) -> Any:
    match structure:
        case ("array",) | ("weak", _):
            return next(leaves)
        case ("static", value):
            return value
        case ("dict", keys, parts):
            return {k: unflatten(p, leaves) for k, p in zip(keys, parts, strict=True)}
        case ("node", (cls, context), names, parts):
            return _instance(cls, context, names, [unflatten(p, leaves) for p in parts])
        case (kind, parts):
            values = [unflatten(p, leaves) for p in parts]
            return tuple(values) if kind == "tuple" else values
    raise TypeError(structure)


def named_leaves(structure: Any) -> dict[str, type | None]:
    """A name for each array, the parameter's with its place inside it, and the Python type of what
    was a number.
    """
    found: dict[str, type | None] = {}
    for parameter, part in structure:
        for name, kind in leaves(part, parameter):
            while name in found:
                name += "_"
            found[name] = kind
    return found


def leaves(part: Any, name: str) -> Iterator[tuple[str, type | None]]:
    """The arrays of a structure: a name by the place in it, and the Python type of what was a
    number.
    """
    kind, *rest = part
    if kind in ("array", "weak"):
        yield name, rest[0] if rest else None
    elif kind != "static":
        for key, inner in zip(
            rest[-2] if kind in ("dict", "node") else range(len(rest[-1])), rest[-1], strict=True
        ):
            plain = "".join(c if c.isalnum() and c.isascii() else "_" for c in str(key))
            yield from leaves(inner, f"{name}_{plain}")
