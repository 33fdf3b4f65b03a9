"""Compile functions to object files for C code to link, with constants inside.

    int32_t model_main(const int32_t *in_x, int32_t *out_y);   /* 0, or model_message explains */

A wrapper around the entry of `jit.llvm` builds its table of pointers, allocates memory for
intermediate arrays, or takes it from the caller where there is no operating system, and checks
declared ranges. Parallel loops run on the caller's thread. Unknown sizes are bound here. Characters
that C does not allow in names are replaced, so no text of a program reaches a header unchecked.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias

import llvmlite.binding as llvm
import numpy as np

from ...dialect.ir.function import Function, Graph
from ...dialect.ir.module import Module
from ...dialect.ir.overwritten_arguments import contents_after
from ...dialect.ir.verify import instantiated
from ...dialect.kernel_ir.execution_plan import Plan
from ...dialect.kernel_ir.loops import For, statements
from ...dialect.support.compilation_context import compiling
from ...dialect.support.diagnostics import Diagnostic, Note, Span, TargetError
from ...dialect.types.sizes import Dim, Size
from ...dialect.types.unify import with_sizes
from ...lowering.analysis.intrinsics import INTRINSICS
from ...lowering.pipeline import lower
from ...lowering.processor import Processor, compiling_for, freestanding, processor
from ...lowering.storage.place_buffers import ALIGNMENT
from ..compile import find, prepared
from ..llvm import native_code
from ..llvm.emit import emit_plans
from ..llvm.ir_builder import PARALLEL, Module as IRModule
from ..llvm.range_check import declared, within_text
from ..options import DEFAULT, CompileOptions
from ..runtime.fp_environment_ir import declarations, in_default_environment, register_of
from ..runtime.thread_pool import serial_loops
from .cpu_dispatch import dispatch, several, version_symbol
from .interfaces import Interface, Parameter, distinct, identifier, parameters

OUT_OF_MEMORY = -1
Lowered: TypeAlias = tuple[Function, Plan]


@dataclass(frozen=True)
class Built:
    """Object files, the symbols that each defines for others, and the declarations of the
    functions.
    """

    objects: tuple[bytes, ...]
    symbols: tuple[tuple[str, ...], ...]
    interface: Interface


@compiling()
def build(
    module: Module,
    entries: Sequence[str],
    prefix: str,
    sizes: Mapping[str, int] = MappingProxyType({}),
    options: CompileOptions = DEFAULT,
    processors: Sequence[Processor | None] = (None,),
) -> Built:
    """The functions of a verified module, each as `prefix_name`, with these values of named sizes.
    Several processors make as many versions of it, and another object file that chooses among them
    when it is loaded.

    Programs that link it need not ask for matrix tiles: none uses them.

    TargetError where one cannot be called from C, VerifyError where it cannot have these sizes.
    """
    module, functions, prefix, symbols = exported_names(module, entries, prefix, sizes)

    def lowered(described: Processor | None) -> Iterator[Lowered]:
        for f in functions:
            own, function = prepared(module, f.name)
            yield function, lower(own, function, optimize=options.optimize, checks=options.sanitize)

    arrays = [parameters(f) for f in functions]
    return _built(lowered, arrays, prefix, symbols, options, processors)


@compiling()
def build_kernels(
    compiled: Callable[[CompileOptions], Any],
    prefix: str,
    options: CompileOptions = DEFAULT,
    processors: Sequence[Processor | None] = (None,),
) -> Built:
    """Kernels that were given as text, which `compiled` makes a `KernelFunction` of for options, as
    one function: `prefix_kernel`, by the name of the only kernel, or `prefix_main`. It updates the
    arrays of arguments that kernels store into.
    """
    found = compiled(options)
    _callable(found.module, found.head)
    kernels = [k.name for k in found.given.kernels]
    prefix, symbols = _symbols(prefix, [kernels[0] if len(kernels) == 1 else "main"])

    def lowered(described: Processor | None) -> Iterator[Lowered]:
        function = compiled(replace(options, cpu=described))
        yield function.head, function.plan

    arrays = [parameters(found.head, found.overwritten)]
    return _built(lowered, arrays, prefix, symbols, options, processors, in_place=True)


def _built(
    lowered: Callable[[Processor | None], Iterable[Lowered]],
    arrays: Sequence[tuple[Parameter, ...]],
    prefix: str,
    exports: Sequence[str],
    options: CompileOptions,
    processors: Sequence[Processor | None],
    in_place: bool = False,
) -> Built:
    """The object files of functions, which are `lowered` for each processor."""
    message, version, *symbols = exports
    processors = [None if p is None else p.without_matrix_tiles for p in processors]
    versions = several(processors)
    with compiling_for(processors[0]):
        free, name = freestanding(processor().triple), processor().cpu or llvm.get_host_cpu_name()
    exported, images, workspaces = [], [], [0] * len(symbols)
    for n, described in enumerate(processors):
        names = [version_symbol(s, n) if versions else s for s in (*symbols, message)]
        with compiling_for(described):
            visibility = "hidden " if versions else ""
            made = [*lowered(described)]
            image, asked = _version(made, names, visibility, options, in_place)
        images.append(image)
        exported.append(tuple(names))
        workspaces = list(map(max, workspaces, asked))
    if versions:
        types = {s: ("i32", len(a) + free) for s, a in zip(symbols, arrays, strict=True)}
        with compiling_for(versions[0]):
            llvm.initialize_native_asmparser()
            text = dispatch(versions, {**types, message: ("ptr", -1)}, version)
            images.append(native_code.object_file(IRModule((), text)))
        exported.append((*symbols, message, version))
        name = f"{', '.join(p.cpu for p in versions)}, whichever is the last that this machine has"
    declared = tuple(zip(symbols, arrays, workspaces, strict=True))
    return Built(
        tuple(images),
        tuple(exported),
        Interface(prefix, name, "caller" if free else "heap", declared),
    )


def exported_names(
    module: Module, entries: Sequence[str], prefix: str, sizes: Mapping[str, int]
) -> tuple[Module, list[Function], str, list[str]]:
    """The module and its functions for these sizes, the prefix as C takes it, and the symbols: of
    the messages, of the version, and of each function.

    TargetError where one cannot be called from C, VerifyError where it cannot have these sizes.
    """
    functions = [settled(module, find(module, name), sizes) for name in entries]
    for function in functions:
        _callable(module, function)
    module = module.with_functions({**module.functions, **{f.name: f for f in functions}})
    return module, functions, *_symbols(prefix, [f.name for f in functions])


def _symbols(prefix: str, names: Iterable[str]) -> tuple[str, list[str]]:
    """The prefix as C takes it, and the symbols of functions of these names."""
    prefix = identifier(prefix if prefix[:1].isalpha() and prefix.isascii() else f"cvm_{prefix}")
    own = [f"{prefix}_message", f"{prefix}_version"]
    return prefix, distinct([*own, *(f"{prefix}_{identifier(n)}" for n in names)])


def _version(
    lowered: Sequence[Lowered],
    symbols: Sequence[str],
    visibility: str,
    options: CompileOptions,
    in_place: bool,
) -> tuple[bytes, list[int]]:
    """The object file for one processor, with the message function, and the bytes of each
    function's workspace.
    """
    plans = [plan for _, plan in lowered]
    for s in (s for p in plans for k in p.all_kernels for s in statements(k.body)):
        known = INTRINSICS.get(s.by) if isinstance(s, For) else None
        if known is not None and not known.portable:
            raise TargetError(f"the intrinsic {known.kernel.name} is of a library of C, not IR")
    text = emit_plans(*plans, optimize=options.optimize > 0, linkage="internal ")
    wrappers = [
        _Wrapper(f, plan, visibility, symbol, f"entry{n or ''}", in_place)
        for n, ((f, plan), symbol) in enumerate(zip(lowered, symbols[:-1], strict=True))
    ]
    requirements = [*text.requirements]
    pieces = [
        text.module.definitions,
        serial_loops().replace("define ", "define internal "),
        f"declare ptr @malloc({_size_type()})\ndeclare void @free(ptr)",
        declarations(register_of(_machine())),
        *(wrapper.text(requirements) for wrapper in wrappers),
        _messages(
            [f"{span.line}: {message}" for message, span in requirements],
            f"{visibility}ptr @{symbols[-1]}",
        ),
    ]
    declared = tuple(
        d for d in text.module.declarations if d != PARALLEL
    )  # it is one of the pieces
    image = native_code.object_file(IRModule(declared, "\n".join(pieces)), options.optimize > 0)
    return image, [wrapper.workspace for wrapper in wrappers]


def settled(module: Module, function: Function, sizes: Mapping[str, int]) -> Function:
    """The function with named sizes bound, verified for them."""
    if isinstance(function, Graph) or all(a.known_type.is_static for a in function.arguments):
        return function
    bound: dict[object, Dim] = {Size.named(name).terms[0][0]: n for name, n in sizes.items()}
    head = instantiated(module, function, [with_sizes(t, bound) for t in function.argument_types])
    operations = tuple(replace(o, declared=None, declared_operands=None) for o in head.operations)
    return replace(head, operations=operations, declared=None)


def _callable(module: Module, function: Function) -> None:
    """Raise TargetError if no C function of pointers can represent this function."""
    where = function.span
    if isinstance(function, Graph):
        raise TargetError(
            Diagnostic(
                f"@{function.name} is a graph; functions are built ahead of time", where, "build"
            )
        )
    for value in (*function.arguments, *function.results):
        if not value.known_type.is_static:
            open = ", ".join(str(d) for d in value.known_type.array_shape if isinstance(d, Size))
            message = (
                f"%{value.name} is {value.type}, but what is built ahead of time has known "
                f"sizes; settle {open}"
            )
            names = [
                str(d)[1:] for d in value.known_type.array_shape if isinstance(d, Size) and d.name
            ]
            help = (
                f"--size {names[0]}=16, or sizes={{'{names[0]}': 16}} in Python"
                if names
                else "name the size, as ?N"
            )
            raise TargetError(Diagnostic(message, value.span, "build", (Note(help),)))
    if contents_after(module, function):
        raise TargetError(
            Diagnostic(
                f"@{function.name} overwrites an argument; built code does not", where, "build"
            )
        )


# The wrapper


@dataclass(frozen=True)
class _Wrapper:
    """The C function around an entry."""

    function: Function
    plan: Plan
    visibility: str
    symbol: str
    entry: str
    in_place: bool  # results that are arguments lie in their arrays

    @property
    def workspace(self) -> int:
        """The bytes for intermediate arrays, and to align them where the caller does not."""
        assert isinstance(self.plan.workspace, int)
        return self.plan.workspace and self.plan.workspace + (
            0 if freestanding(processor().triple) else ALIGNMENT
        )

    def text(self, requirements: list[tuple[str, Span]]) -> str:
        """Its IR, and that of its constants; the requirements get those of its declared ranges."""
        plan, constant = self.plan, f"{self.entry}_constant"
        places = [*range(count := len(plan.arguments))]  # of the table, in the C function
        for t in plan.results:
            shared = self.in_place and t in plan.arguments
            places.append(plan.arguments.index(t) if shared else count)
            count += not shared
        pointers = [
            *(f"%a{n}" for n in places),
            *(f"@{constant}{n}" for n in range(len(plan.data))),
        ]
        ranges = declared(self.function)
        lines = []
        for n, (asked, bounds) in ranges.items():
            argument = self.function.arguments[n]
            message = f"argument %{argument.name}: expected values from {bounds[0]} to {bounds[1]}"
            requirements.append((message, argument.span))
            lines += [
                f"  %within{n} = call i1 @{self.entry}_within{n}(ptr %a{n}, i64 {asked.size})",
                f"  br i1 %within{n}, label %good{n}, label %beyond{n}",
                f"beyond{n}:",
                f"  ret i32 {len(requirements)}",
                f"good{n}:",
            ]
        lines.append(f"  %table = alloca [{max(1, len(pointers))} x ptr]")
        for n, pointer in enumerate(pointers):
            lines.append(f"  %t{n} = getelementptr inbounds ptr, ptr %table, i64 {n}")
            lines.append(f"  store ptr {pointer}, ptr %t{n}")
        if allocates := self.workspace > 0 and not freestanding(processor().triple):
            lines += [
                f"  %memory = call ptr @malloc({_size_type()} {self.workspace})",
                "  %none = icmp eq ptr %memory, null",
                "  br i1 %none, label %fail, label %run",
                "run:",
                "  %start = ptrtoint ptr %memory to i64",
                f"  %past = add i64 %start, {ALIGNMENT - 1}",
                f"  %aligned = and i64 %past, {-ALIGNMENT}",
                "  %workspace = inttoptr i64 %aligned to ptr",
            ]
        work = "%workspace" if self.workspace else "null"
        lines.append(f"  %status = call i32 @{self.entry}(ptr %table, ptr null, ptr {work})")
        lines += ["  call void @free(ptr %memory)"] if allocates else []
        lines.append("  ret i32 %status")
        lines += ["fail:", f"  ret i32 {OUT_OF_MEMORY}"] if allocates else []
        work = ["ptr %workspace"] * freestanding(processor().triple)
        parameters = ", ".join([*(f"ptr %a{n}" for n in range(count)), *work])
        data = [_bytes(np.ascontiguousarray(array).tobytes()) for array in plan.data.values()]
        constants = [
            f"@{constant}{n} = private constant {text}, align {ALIGNMENT}"
            for n, text in enumerate(data)
        ]
        looks = [
            within_text(f"{self.entry}_within{n}", t.element, bounds)
            for n, (t, bounds) in ranges.items()
        ]
        run = f"@{self.entry}_run"
        head = f"define internal i32 {run}({parameters}) noinline nounwind {{"
        symbol, register = (
            f"{self.visibility}i32 @{self.symbol}({parameters}) nounwind",
            register_of(_machine()),
        )
        exported = in_default_environment(symbol, run, parameters.split(", "), register)
        return "\n".join([*constants, *looks, head, *lines, "}", exported])


def _machine() -> str:
    """The architecture that is compiled for, empty for this machine's."""
    return processor().triple.partition("-")[0]


def _size_type() -> str:
    return "i32" if _machine().startswith(native_code.POINTERS_OF_4_BYTES) else "i64"


def _bytes(data: bytes) -> str:
    return f'[{len(data)} x i8] c"' + re.sub("..", r"\\\g<0>", data.hex()) + '"'


def _messages(messages: Sequence[str], symbol: str) -> str:
    """The function that explains a status."""
    known = {0: "", OUT_OF_MEMORY: "out of memory", **dict(enumerate(messages, 1))}
    texts = [
        f"@message{n} = private constant {_bytes(m.encode() + bytes(1))}"
        for n, m in enumerate(known.values())
    ]
    cases = " ".join(f"i32 {status}, label %case{n}" for n, status in enumerate(known))
    blocks = [f"case{n}:\n  ret ptr @message{n}" for n in range(len(known))]
    head = (
        f"define {symbol}(i32 %status) nounwind {{\n  switch i32 %status, label %case0 [ {cases} ]"
    )
    return "\n".join([*texts, head, *blocks, "}"])
