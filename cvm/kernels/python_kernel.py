"""Kernels as Python calls them: a version for each kind of arguments, compiled when called."""

from __future__ import annotations

import ast
import ctypes
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, cast

import numpy as np

from cvm.dialect.kernel_ir import expressions as ex
from cvm.dialect.kernel_ir.execution_plan import Plan
from cvm.dialect.kernel_ir.kernel_printer import plan_text
from cvm.dialect.kernel_ir.scalar_functions import SCALARS
from cvm.dialect.support.compilation_context import compiling
from cvm.dialect.support.diagnostics import CallError, Diagnostic, Error, TargetError
from cvm.dialect.support.fp_environment import DefaultFpEnvironment
from cvm.dialect.types.sizes import evaluate
from cvm.dialect.types.tensor_types import BY_DTYPE, I64
from cvm.jit.options import CompileOptions
from cvm.lowering.scheduling.apply_steps import apply_steps
from cvm.lowering.scheduling.steps import Step

from .arrays import Made
from .blocks import FAULT
from .build import ArrayType, Built, IntegerType, build
from .numbers import NumberType, of_python
from .source import FunctionSource, read_source

P = ParamSpec("P")
R = TypeVar("R")

LARGEST = 1 << 40  # sizes and integers up to this have index arithmetic without overflow
TARGETS = ("cpu", "reference")


class Kernel(Generic[P, R]):
    """A Python function with loops, compiled from its source. `py_func` is the function itself."""

    def __init__(
        self, function: Callable[P, R], target: str, options: CompileOptions, checks: bool
    ) -> None:
        if target not in TARGETS:
            raise TargetError(
                f"kernels from Python run on the targets {' and '.join(TARGETS)}, got {target!r}"
            )
        update_wrapper(self, function)
        self.py_func = function
        self.target, self.options, self.checks = target, options, checks
        self.steps: tuple[Step, ...] = ()
        self._versions: dict[object, Version] = {}
        self._latest: Version | None = None
        self._lock = threading.Lock()
        self._source: FunctionSource | None = None
        if target == "cpu":
            self._source = read_source(function)
            _check_parameters(self._source)
        self.signature = inspect.signature(function)

    def __call__(self, *given: P.args, **named: P.kwargs) -> R:
        if self._source is None:
            return self.py_func(*given, **named)
        if named or len(given) != len(self.signature.parameters):
            try:
                bound = self.signature.bind(*given, **named)
            except TypeError as e:
                message = f"{self.py_func.__name__}: {e}"
                raise CallError(Diagnostic(message, self._place, "call.arguments")) from None
            bound.apply_defaults()
            given = bound.args  # type: ignore[assignment]
        key, values = self._arguments(given)
        version = self._versions.get(key)
        if version is None:
            version = self._compiled(key)
        self._latest = version
        return cast("R", version.call(values))

    @property
    def _place(self) -> Any:
        assert self._source is not None
        return self._source.span(self._source.tree)

    def _arguments(self, given: Sequence[Any]) -> tuple[tuple[object, ...], list[Any]]:
        """The types of arguments, a key of versions, and what the version takes."""
        kinds: list[object] = []
        values: list[Any] = []
        arrays: list[np.ndarray] = []
        for name, value in zip(self.signature.parameters, given, strict=True):
            if type(value) is np.ndarray and value.ndim:
                kinds.append(self._array(name, value))
                arrays.append(value)
            elif (number := of_python(value)) is not None:
                small = number.element is I64 and -LARGEST <= number.constant <= LARGEST
                kinds.append((IntegerType if small else NumberType)(number.element, number.weak))
                value = number.constant
            else:
                raise self._refused(name, _refusal(value))
            values.append(value)
        return (tuple(kinds), _overlap(arrays)), values

    def _array(self, name: str, value: np.ndarray) -> ArrayType:
        element = BY_DTYPE.get(value.dtype) if value.dtype.isnative else None
        if element is None:
            kind = "foreign byte order" if not value.dtype.isnative else "elements of type"
            raise self._refused(name, f"an array of {kind} {value.dtype} is not taken by kernels")
        if element.kind == "complex" or element.name == "bf16":
            raise self._refused(name, f"an array of {value.dtype} is not taken by kernels")
        if max(value.shape) > LARGEST:
            raise self._refused(name, f"an axis of {max(value.shape)} elements is too long")
        if value.flags.c_contiguous:
            if not value.flags.aligned:
                raise self._refused(name, "an array that is not aligned is not taken by kernels")
            return ArrayType(element, value.ndim)
        if not value.flags.aligned or any(s % value.itemsize for s in value.strides):
            raise self._refused(name, "an array that is not aligned is not taken by kernels")
        return ArrayType(element, value.ndim, False)

    def _refused(self, name: str, message: str) -> CallError:
        assert self._source is not None
        found = next(a for a in ast.walk(self._source.tree) if getattr(a, "arg", "") == name)
        return CallError(
            Diagnostic(f"argument {name}: {message}", self._source.span(found), "call.argument")
        )

    @compiling()
    def _compiled(self, key: tuple[object, ...]) -> Version:
        assert self._source is not None
        with self._lock:
            if (version := self._versions.get(key)) is None:
                kinds, overlap = key
                names = dict(zip(self.signature.parameters, cast("Any", kinds), strict=True))
                built = build(self._source, names, self.checks)
                kernel = built.kernel
                if overlap:  # accesses stay in their order
                    kernel = replace(kernel, aliasing=True)
                else:
                    kernel = apply_steps(kernel, self.steps)
                built = replace(built, kernel=kernel)
                version = self._versions[key] = Version(built, self._source, self.options, [*names])
        return version

    def lower(self, stage: str = "loops", *arguments: Any) -> str:
        """The text of the version of the latest call, or for these arguments: loops, llvm, llvm-opt
        or asm.
        """
        return self.version(*arguments).lower(stage)

    def version(self, *arguments: Any) -> Version:
        """The version of the latest call, or for these arguments."""
        if self._source is None:
            raise TargetError("the target reference runs the Python function, which has no stages")
        version = self._latest
        if arguments:
            key, _ = self._arguments(arguments)
            version = self._versions.get(key) or self._compiled(key)
        if version is None:
            raise TargetError("a kernel is compiled when it is called: call it, or give arguments")
        return version

    def scheduled(self, steps: Sequence[Step], **options: Any) -> Kernel[P, R]:
        """The kernel whose versions have these steps of a schedule; of arguments that overlap,
        without them.
        """
        made = Kernel(self.py_func, self.target, replace(self.options, **options), self.checks)
        made.steps = (*self.steps, *steps)
        return made

    def __reduce__(self) -> tuple[object, ...]:
        return _recreated, (self.py_func.__module__, self.py_func.__qualname__)

    def __repr__(self) -> str:
        return f"<kernel {self.py_func.__qualname__} for {self.target}>"


def _recreated(module: str, name: str) -> Any:
    """The kernel of this name in a module: kernels are pickled by reference, as functions are."""
    import importlib

    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _check_parameters(source: FunctionSource) -> None:
    parameters = source.tree.args
    if unusual := parameters.vararg or parameters.kwarg:
        raise source.mistake("kernels take a fixed number of arguments, without * and **", unusual)


def _refusal(value: object) -> str:
    if isinstance(value, np.ndarray):
        return (
            "an array of rank 0, or of a class of its own, is not taken: pass a number or an array"
        )
    if isinstance(value, int):
        return f"{value} does not fit into 64 bits"
    return f"a {type(value).__name__} is not taken: kernels take numbers and NumPy arrays"


def _overlap(arrays: Sequence[np.ndarray]) -> bool:
    """Test whether arrays may share memory with each other, or elements of one with themselves."""
    for n, a in enumerate(arrays):
        if not a.flags.c_contiguous and a.size and 0 in a.strides:
            return True
        if any(np.may_share_memory(a, b) for b in arrays[:n]):
            return True
    return False


@dataclass
class Version:
    """A kernel for arguments of some types."""

    built: Built
    source: FunctionSource
    options: CompileOptions
    names: list[str]

    @cached_property
    def plan(self) -> Plan:
        from cvm.lowering.loops.expand_functions import expand_functions
        from cvm.lowering.loops.legalize_types import legalize_types
        from cvm.lowering.pass_context import Context
        from cvm.lowering.passes import run_passes
        from cvm.lowering.storage.place_buffers import place_buffers

        return run_passes((expand_functions, legalize_types, place_buffers), self.given, Context())

    @cached_property
    def given(self) -> Plan:
        built = self.built
        views = {
            t: home
            for t in built.results
            for home in built.inputs
            if t.name == f"{home.name}.out" and t.shape == home.shape
        }
        results = tuple(views.get(t, t) for t in built.results)
        return Plan(built.kernel.name, built.inputs, results, {}, (built.kernel,), views)

    @cached_property
    def text(self) -> Any:
        from cvm.jit.llvm.emit import emit_plans
        from cvm.lowering.processor import compiling_for

        with compiling_for(self.options.cpu):
            return emit_plans(self.plan, optimize=self.options.optimize > 0)

    @cached_property
    def library(self) -> Any:
        from cvm.jit.functions.native_function import ENTRY
        from cvm.jit.host_processor import check_runs_here
        from cvm.jit.llvm.native_code import Library
        from cvm.jit.runtime.thread_pool import imports
        from cvm.lowering.processor import compiling_for

        check_runs_here(self.options.cpu)
        with compiling_for(self.options.cpu):
            module = self.text.module
            return Library(module, {"entry": ENTRY}, (), imports() if module.is_parallel else {})

    @cached_property
    def _captured(self) -> dict[str, np.ndarray]:
        return {name: array for name, array in self.built.captured.items()}

    def lower(self, stage: str) -> str:
        if stage == "loops":
            return plan_text(self.given)
        from cvm.jit.targets import find_target
        from cvm.lowering.processor import compiling_for

        stages = find_target("cpu").stages
        if stage not in stages:
            raise TargetError(f"the stages of a kernel are loops, {', '.join(stages)}")
        with compiling_for(self.options.cpu):
            return stages[stage](self.text, self.options)

    @DefaultFpEnvironment()
    def call(self, values: Sequence[Any]) -> Any:
        built = self.built
        named = dict(zip(self.names, values, strict=True))
        arrays: dict[str, np.ndarray] = {
            n: a for n, a in {**named, **self._captured}.items() if isinstance(a, np.ndarray)
        }
        for name in self.names:
            if name in built.written and not arrays[name].flags.writeable:
                place = self.source.span(self.source.tree)
                message = f"argument {name} is stored into, but the array is read-only"
                raise failure("ValueError", Diagnostic(message, place, "call.argument"))
        sizes: dict[tuple[object, ...], int] = {}
        for name, array in arrays.items():
            _bind(sizes, built.arrays[name].tensor, array)
        for made in built.made:
            arrays[made.tensor.name] = self._make(made, named, sizes)
        pointers: list[int] = []
        outputs: dict[str, np.ndarray] = {}
        kept: list[np.ndarray] = []
        for t in (*built.inputs, *built.results):
            if (home := t.name.removesuffix(".out")) in arrays:
                pointers.append(arrays[home].ctypes.data)
                continue
            if t in built.results:
                cell = outputs[t.name] = np.zeros(cast("Any", t.shape), t.element.dtype)
            else:
                cell = np.array(_number(t.name, named, arrays), t.element.dtype)
            kept.append(cell)
            pointers.append(cell.ctypes.data)
        known = (ctypes.c_int64 * len(self.text.sizes))(*(sizes[a] for a in self.text.sizes))
        table = (ctypes.c_void_p * len(pointers))(*pointers)
        if needed := evaluate(self.plan.workspace, sizes):
            from cvm.jit.functions.native_function import aligned_memory

            kept.append(aligned_memory(needed))
        workspace = kept[-1].ctypes.data if needed else None
        try:
            status = self.library.functions["entry"](table, known, workspace)
        except SystemError as e:
            cause, e.__cause__, e.__context__ = e.__cause__, None, None
            raise cause or e from None
        if status:
            self._report(status, outputs[FAULT.name])
        return _given(built.returned, "return", outputs, arrays)

    def _make(
        self, made: Made, named: Mapping[str, Any], sizes: dict[tuple[object, ...], int]
    ) -> np.ndarray:
        built = self.built
        numbers = {var: named[name] for name, var in built.numbers.items()}
        shape = tuple(max(0, _evaluated(e, numbers, sizes)) for e in made.sizes)
        place = self.source.span(made.node)
        try:
            if max(shape, default=0) > LARGEST:
                raise MemoryError
            array = np.zeros(shape, made.tensor.element.dtype)
        except (MemoryError, ValueError):
            message = f"memory does not suffice for an array of shape {shape}"
            raise failure("MemoryError", Diagnostic(message, place, "run")) from None
        _bind(sizes, made.tensor, array)
        return array

    def _report(self, status: int, values: np.ndarray) -> None:
        message, span = self.text.requirements[status - 1]
        kind, _, template = message.partition(": ")
        text = template.format(*values.tolist()) or kind
        raise failure(kind, Diagnostic(text, span, "run"))


def _bind(sizes: dict[tuple[object, ...], int], tensor: ex.Tensor, array: np.ndarray) -> None:
    for axis, dim in enumerate(tensor.shape):
        if not isinstance(dim, int):
            sizes[dim.terms[0][0]] = array.shape[axis] if tensor.rank == array.ndim else array.size


def _number(name: str, named: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    """A number that a kernel takes: an argument, or a size or a stride of one."""
    if name in named:
        return named[name]
    array, _, what = name.rpartition(".")
    axis = int(what.lstrip("sizetrd"))
    found = arrays[array]
    return found.shape[axis] if what.startswith("size") else found.strides[axis] // found.itemsize


def _evaluated(
    e: ex.Expr, numbers: Mapping[Any, Any], sizes: Mapping[tuple[object, ...], int]
) -> int:
    """The value of an expression of sizes and integer arguments."""
    match e:
        case ex.Const(value, _):
            return value
        case ex.Var():
            return numbers[e]
        case ex.Extent(size):
            return size.evaluate(sizes)
        case ex.Cast(operand, element):
            return element.dtype.type(_evaluated(operand, numbers, sizes))
        case ex.Apply(function, operands, _):
            with np.errstate(all="ignore"):
                given = [np.asarray(_evaluated(o, numbers, sizes), o.type.dtype) for o in operands]
                return SCALARS[function].numpy(*given).item()
    raise TypeError(type(e).__name__)


def _given(
    shape: object, name: str, outputs: Mapping[str, np.ndarray], arrays: Mapping[str, np.ndarray]
) -> Any:
    match shape:
        case None:
            return None
        case NumberType():
            cell = outputs[name]
            return cell.item() if shape.weak else cell[()]
        case str():
            return arrays[shape]
        case tuple():
            parts = enumerate(shape)
            return tuple(_given(s, f"{name}.{n}", outputs, arrays) for n, s in parts)
    raise TypeError(type(shape).__name__)


_FAILURES: dict[str, type[CallError]] = {}


def failure(kind: str, diagnostic: Diagnostic) -> Error:
    """An error of a call that is also one of Python's exceptions."""
    import builtins

    if kind not in _FAILURES:
        base = getattr(builtins, kind)
        _FAILURES[kind] = type(kind, (CallError, base), {"__module__": "cvm"})
    return _FAILURES[kind](diagnostic)
