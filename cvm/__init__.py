"""cvm: a compiler toolkit for tensor programs. The public API, complete.

    module = cvm.load("model.cvm")              a verified program
    f = cvm.compile(module)                     a function of NumPy arrays, compiled for the host
    y = f(x)

Errors derive from `cvm.Error`; each has `.diagnostics` with file, line, column, message and
code.
"""

from __future__ import annotations

import os as _os
import re as _re
import sys as _sys
from importlib.machinery import ModuleSpec as _ModuleSpec, PathFinder as _PathFinder
from pathlib import Path as _Path
from typing import TYPE_CHECKING, cast as _cast, overload as _overload

_HERE = _Path(__file__).parent
_ROOMS = ("dialect", "grammar", "jit", "lowering", "parser")


class _Rooms:
    """Find the packages that are beside this folder in a checkout; `__path__` would find all that
    is there, this folder too.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> _ModuleSpec | None:
        package, _, room = name.rpartition(".")
        is_room = package == __name__ and room in _ROOMS
        return _PathFinder.find_spec(name, [str(_HERE.parent)]) if is_room else None


if not (_HERE / "dialect").is_dir():  # in a wheel the packages are inside this folder
    _sys.meta_path.insert(0, _cast("_Any", _Rooms))

from cvm.dialect.support.compilation_context import USER_TRACEBACK as _USER_TRACEBACK  # noqa: E402
from cvm.dialect.support.diagnostics import (  # noqa: E402
    CallError,
    Diagnostic,
    Error,
    Note,
    ParseError,
    TargetError,
    TraceError,
    VerifyError,
    read_bytes as _read_bytes,
)
from cvm.dialect.support.limits import Limits as _Limits, limited as _limited  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable as _Callable, Sequence as _Sequence
    from contextlib import AbstractContextManager as _AbstractContextManager
    from typing import (
        Any as _Any,
        Literal as _Literal,
        ParamSpec as _ParamSpec,
        TypeVar as _TypeVar,
    )

    from cvm.dialect.ir.module import Module
    from cvm.dialect.kernel_ir.execution_plan import Plan
    from cvm.dialect.kernel_ir.formulas import Formulas
    from cvm.jit.functions.clocked_program import CompiledGraph
    from cvm.jit.functions.compiled_function import CompiledFunction
    from cvm.jit.options import CompileOptions, TargetName
    from cvm.jit.runtime.thread_pool import get_num_threads, set_num_threads
    from cvm.lowering.processor import Processor

    from .importers.mlir_text import from_mlir
    from .importers.onnx import from_onnx
    from .importers.onnx.torch_modules import from_torch
    from .importers.stablehlo import from_jax, from_stablehlo
    from .importers.tflite import from_tflite
    from .importers.tosa import from_tosa
    from .kernels import fma, kernel, prange
    from .quantization import quantize
    from .scheduling import Schedule, schedule
    from .transforms.control_flow import cond, fori_loop, scan, while_loop
    from .transforms.derivatives import grad, jvp, stop_gradient, value_and_grad, vjp
    from .transforms.traced_function import TracedFunction, register_pytree
    from .transforms.vmap import vmap

    Reference = _Literal["tflite-reference", "tosa", "onnxruntime"]
    Rules = _Literal["numpy", "dali"]
    _P = _ParamSpec("_P")
    _R = _TypeVar("_R")

    class Compiled(CompiledFunction, CompiledGraph):
        """A compiled function or clocked program: the program decides which. Only for type
        checkers, to which it is both; never instantiated.
        """


__version__ = "0.1.0"
# the first word of kernels and formulas; all other texts are programs of functions
_FIRST_WORD = r"(?:\s|//[^\n]*\n)*(?:(?P<formulas>formulas)|(?P<kernels>kernel|loop|plan))\b"
_OF_TEXT = _re.compile("\N{ZERO WIDTH NO-BREAK SPACE}?" + _FIRST_WORD, _re.ASCII)
_OF_BYTES = _re.compile("(?:\N{ZERO WIDTH NO-BREAK SPACE})?".encode() + _FIRST_WORD.encode())
_PLACES = {  # of functions whose modules are loaded when they are asked for
    **dict.fromkeys(
        ("grad", "jvp", "stop_gradient", "value_and_grad", "vjp"), "transforms.derivatives"
    ),
    **dict.fromkeys(("cond", "fori_loop", "scan", "while_loop"), "transforms.control_flow"),
    **dict.fromkeys(("get_num_threads", "set_num_threads"), "jit.runtime.thread_pool"),
    **{f"from_{system}": f"importers.{system}" for system in ("onnx", "tflite", "tosa")},
    "from_mlir": "importers.mlir_text",
    "from_torch": "importers.onnx.torch_modules",
    **dict.fromkeys(("from_jax", "from_stablehlo"), "importers.stablehlo"),
    "quantize": "quantization",
    "vmap": "transforms.vmap",
    "register_pytree": "transforms.traced_function",
    **dict.fromkeys(("fma", "kernel", "prange"), "kernels"),
    **dict.fromkeys(("Schedule", "schedule"), "scheduling"),
}

__all__ = [
    "CallError",
    "Diagnostic",
    "Error",
    "Note",
    "ParseError",
    "Schedule",
    "TargetError",
    "TraceError",
    "VerifyError",
    "compile",
    "cond",
    "fma",
    "fori_loop",
    "from_jax",
    "from_mlir",
    "from_onnx",
    "from_stablehlo",
    "from_tflite",
    "from_torch",
    "from_tosa",
    "get_num_threads",
    "grad",
    "jvp",
    "kernel",
    "limits",
    "load",
    "parse",
    "prange",
    "quantize",
    "register_pytree",
    "scan",
    "schedule",
    "set_num_threads",
    "stop_gradient",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]


@_USER_TRACEBACK
def parse(text: str | bytes, filename: str = "<text>") -> Module:
    """Parse a program's text into a verified module; a text of kernels or formulas gives their
    plan.

    Constants from files need a folder: use `load`.

    Args:
        text: The program, as a string or as bytes in UTF-8.
        filename: The name that diagnostics give for it.

    Raises:
        ParseError: The text is not a program. All errors are reported together.
        VerifyError: The program breaks a constraint of an operator, or a rule of types.
    """
    from cvm.parser import parse as parse_text

    if not isinstance(text, (str, bytes)):
        raise ParseError(f"expected a program's text, got {type(text).__name__}")
    return _cast("Module | None", _kernels(text, filename)) or parse_text(text, filename)


def _level_below_functions(text: str | bytes) -> str | None:
    """The level of a text, "formulas" or "kernels"; None for programs of functions."""
    m = _OF_TEXT.match(text) if isinstance(text, str) else _OF_BYTES.match(text)
    return m and m.lastgroup


def _kernels(text: str | bytes, filename: str) -> Plan | Formulas | None:
    """The verified kernels or formulas of a text, None if it is a program of functions."""
    if not _level_below_functions(text):
        return None
    from .terminal.read_program import read_level

    return _cast("Plan | Formulas", read_level(filename, text))


@_USER_TRACEBACK
def load(path: str | _os.PathLike[str], *, allow_outside: bool = False) -> Module:
    """Load the program in a file as a verified module; a file of kernels or formulas gives their
    plan.

    Args:
        path: The file. `file(...)` constants of the program are read from its folder.
        allow_outside: Let the paths of constants leave that folder.

    Raises:
        ParseError: The file cannot be read, or is not a program.
        VerifyError: The program breaks a constraint of an operator, or a rule of types.
    """
    from cvm.parser import parse as parse_text

    if not isinstance(path, (str, _os.PathLike)):
        raise ParseError(f"expected the path of a program, got {type(path).__name__}")
    data, name = _read_bytes(_Path(path)), str(path)
    kernels = _cast("Module | None", _kernels(data, name))
    return kernels or parse_text(data, name, _Path(path).parent, allow_outside)


@_overload
def compile(
    program: Module | str | bytes | _os.PathLike[str],
    entry: str = "main",
    target: TargetName = "cpu",
    *,
    optimize: int = 2,
    cpu: str | Processor | None = None,
    require_exact: Reference | None = None,
    convert: bool = False,
    like: _Literal["numpy"] | None = None,
    sanitize: bool = False,
) -> Compiled: ...
@_overload
def compile(
    program: _Callable[_P, _R],
    *,
    target: TargetName = "cpu",
    optimize: int = 2,
    cpu: str | Processor | None = None,
    rules: Rules | None = None,
    static_argnums: int | _Sequence[int] = (),
    static_argnames: str | _Sequence[str] = (),
    donate_argnums: int | _Sequence[int] = (),
    donate_argnames: str | _Sequence[str] = (),
    like: _Literal["numpy"] | None = None,
    sanitize: bool = False,
) -> TracedFunction[_P, _R]: ...
@_overload
def compile(
    *,
    target: TargetName = "cpu",
    optimize: int = 2,
    cpu: str | Processor | None = None,
    rules: Rules | None = None,
    static_argnums: int | _Sequence[int] = (),
    static_argnames: str | _Sequence[str] = (),
    donate_argnums: int | _Sequence[int] = (),
    donate_argnames: str | _Sequence[str] = (),
    like: _Literal["numpy"] | None = None,
    sanitize: bool = False,
) -> _Callable[[_Callable[_P, _R]], TracedFunction[_P, _R]]: ...
@_USER_TRACEBACK
def compile(
    program: Module | str | bytes | _os.PathLike[str] | _Callable[..., _Any] | None = None,
    entry: str = "main",
    target: TargetName = "cpu",
    *,
    optimize: int = 2,
    cpu: str | Processor | None = None,
    rules: Rules | None = None,
    static_argnums: int | _Sequence[int] = (),
    static_argnames: str | _Sequence[str] = (),
    donate_argnums: int | _Sequence[int] = (),
    donate_argnames: str | _Sequence[str] = (),
    require_exact: Reference | None = None,
    convert: bool = False,
    like: _Literal["numpy"] | None = None,
    sanitize: bool = False,
) -> _Any:
    """Compile a program or a Python function into a function of arrays, or a graph into a clocked
    program.

    A program gives a `CompiledFunction`, or a `CompiledGraph` if the entry is a graph. A Python
    function gives a `TracedFunction`, which is traced and compiled for each signature it is called
    with; without a program, `compile` is a decorator with options. A traced function means what
    NumPy 2 means for the same arrays. Results are arrays of the library that arguments come from,
    through DLPack, or NumPy's.

    Args:
        program: A module, a program's text, a path to one, or a Python function.
        entry: The function or graph to compile.
        target: `"cpu"` (machine code), `"cuda"` (a GPU, through PyCUDA), `"cuda-sim"` (the same
            kernels on an emulated GPU) or `"reference"` (each operator's definition, in NumPy).
        optimize: 0 compiles one scalar loop nest for each operation. Integers stay the same bit for
            bit; float sums are added in the order of their indices.
        cpu: The processor that the code is for, such as `"x86-64-v3"`; by default this machine's.
        rules: The meaning of Python's operators in a traced function: `"numpy"`, or `"dali"` for
            the dali dialect's.
        static_argnums: Positions of arguments that are Python values and part of the signature.
        static_argnames: Names of such arguments.
        donate_argnums: Positions of arguments whose arrays the function may overwrite by results of
            the same shapes and element types, which saves allocating and copying them. Go on with
            the results; what the arrays hold after an error is unspecified.
        donate_argnames: Names of such arguments.
        require_exact: The reference that every operator of an imported model has to equal:
            `"tflite-reference"`, `"tosa"` or `"onnxruntime"`.
        convert: Take arrays of other element types if every value fits; only for programs.
        like: `"numpy"` returns NumPy arrays, whatever the arguments are.
        sanitize: Check every access to an array, and every interval of integers that the compiler
            relies on. A failed check raises CallError with the operation's line.

    Raises:
        ParseError: The text is not a program.
        VerifyError: The program is wrong, or is not exact as `require_exact` requires.
        TargetError: The target cannot be used on this machine, or cannot run the program.
        Error: An option has an unknown value.
    """
    from cvm.jit.options import CompileOptions

    options = CompileOptions(
        optimize,
        **({} if cpu is None else {"cpu": _processor(cpu)}),
        convert=convert,
        like=like,
        sanitize=sanitize,
    )
    if require_exact is not None:
        _require_exact(program, require_exact)
    chosen = static_argnums, static_argnames, donate_argnums, donate_argnames
    if callable(program) or program is None:
        if convert:
            raise Error(
                "convert is for programs, whose arguments have declared types; a Python "
                "function takes any"
            )
        from .transforms.traced_function import TraceOptions, traced

        traces = TraceOptions(target, options, rules, *chosen)
        return (
            (lambda function: traced(function, traces))
            if program is None
            else traced(program, traces)
        )
    if (rules, *chosen) != (None, (), (), (), ()) or not isinstance(entry, str):
        raise _misused(entry)
    if isinstance(program, (str, bytes, _os.PathLike)):
        return _cast("Compiled", _compile_text(program, entry, target, options))
    from cvm.dialect.ir.module import Module
    from cvm.jit.compile import compile_program

    if not isinstance(program, Module):
        return _compile_kernels(program, target, options)
    return _cast("Compiled", compile_program(program, entry, target, options))


def _compile_text(
    program: str | bytes | _os.PathLike[str], entry: str, target: str, options: CompileOptions
) -> CompiledFunction | CompiledGraph:
    """Compile a program given as text; a function in the disk cache is returned without parsing the
    text.
    """
    if isinstance(program, bytes) or (isinstance(program, str) and not _is_path(program)):
        text, filename, folder = program, "<text>", None
    else:
        path = _Path(program)
        text, filename, folder = _read_bytes(path), str(path), path.parent

    if _level_below_functions(text):
        return _compile_kernels(_kernels(text, filename), target, options)

    def read() -> Module:
        from cvm.parser import parse as parse_text

        return parse_text(text, filename, folder)

    from cvm.jit.targets import find_target

    if (recall := find_target(target).compile_text) is not None:
        return recall(text, filename, folder, read, entry, options)
    from cvm.jit.compile import compile_program

    return compile_program(read(), entry, target, options)


def _misused(entry: object) -> Error:
    if isinstance(entry, str):
        return Error(
            "rules, static_argnums, static_argnames, donate_argnums and donate_argnames are "
            "options for Python functions, not for programs"
        )
    return Error(f"entry is the name of a function or a graph, got {entry!r}")


def _processor(cpu: str | Processor) -> Processor | None:
    from cvm.jit.host_processor import resolve

    return resolve(cpu)


def _require_exact(program: _Any, reference: Reference) -> None:
    from .importers.exactness import require

    require(program, reference)


def _compile_kernels(kernels: object, target: str, options: CompileOptions) -> CompiledFunction:
    """Compile kernels, which run as they are, or formulas."""
    from cvm.dialect.kernel_ir.execution_plan import Plan
    from cvm.dialect.kernel_ir.formulas import Formulas

    from .terminal.read_program import compiled

    if not isinstance(kernels, (Plan, Formulas)):
        raise Error(
            "expected a module, a program's text or path, or a Python function, got "
            f"{type(kernels).__name__}"
        )
    return compiled(kernels, kernels.name, target, options)


def _is_path(text: str) -> bool:
    """Test whether a string is a file name: one line without braces."""
    return bool(text.strip()) and "\n" not in text and "{" not in text


def limits(
    *,
    compile_seconds: float | None = None,
    memory: int | None = None,
    operations: int | None = None,
    constant_bytes: int | None = None,
    diagnostics: int | None = None,
    text_bytes: int | None = None,
) -> _AbstractContextManager[_Limits]:
    """Return a context manager that sets limits on programs for this thread; others stay as they
    are.

    A program that exceeds a limit is an error whose code is `limit.` and the name of the limit.
    Functions keep the limits that they were compiled under.

    Args:
        compile_seconds: Time for reading and compiling a program, in seconds.
        memory: Bytes of the results and the workspace of a call.
        operations: Operations of a function, with those of the functions it calls.
        constant_bytes: Bytes of the constants of a function.
        diagnostics: The number of errors that are reported.
        text_bytes: The length of a program's file, in bytes.

    Raises:
        Error: A limit is not a positive number.
    """
    try:
        return _limited(**dict(locals()))
    except ValueError as e:
        raise Error(str(e)) from None


def __getattr__(name: str) -> _Any:
    """Readers of models, derivatives, loops, and the operators as functions for traced Python:
    `cvm.sqrt`, `cvm.where`, ...

    `cvm.theano` and `cvm.dali` are modules of their own, with these dialects' operators, and
    `cvm.dask` is one for Dask arrays. `cvm.ops` has the operators of all dialects.
    """
    import importlib

    if (place := _PLACES.get(name)) is not None:
        return getattr(importlib.import_module(f".{place}", __name__), name)
    if name in ("theano", "dali", "dask", "ops", "random"):
        return importlib.import_module(f".{name}", __name__)
    near = ""
    if not name.startswith("_") and not _is_module(name):
        from .numpy.operator_functions import function

        if (found := function(name)) is not None:
            return found
        from difflib import get_close_matches

        near = "".join(f". Did you mean: {n!r}?" for n in get_close_matches(name, __dir__(), 1))
    raise AttributeError(f"module 'cvm' has no attribute {name!r}{near}")


def _is_module(name: str) -> bool:
    """Test whether a module of the package has this name; `from cvm import name` asks for the
    attribute before it is loaded.
    """
    return name in _ROOMS or any(
        (_HERE / n).exists() for n in (f"{name}.py", f"{name}/__init__.py")
    )


def __dir__() -> list[str]:
    """The public names: those of `__all__`, the operators as functions, and the modules of
    dialects.
    """
    from .numpy.operator_functions import names

    return sorted({*__all__, *names(), "dali", "random", "theano"})
