"""Compile ahead of time: functions to an object file for C code to link, with constants inside, and its C header.

    int32_t model_main(const int32_t *in_x, int32_t *out_y);        0, or a status that model_message explains

A wrapper around the entry of `jit.llvm` builds its table of pointers, allocates memory for intermediate arrays and
checks declared ranges. Parallel loops run on the caller's thread. Unknown sizes are bound here. Characters that C does
not allow in names are replaced, so no text of a program reaches the header unchecked.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from ..dialect.ir.compilation_context import compiling
from ..dialect.ir.diagnostics import Diagnostic, Note, Span, TargetError
from ..dialect.ir.sizes import Dim, Size, product
from ..dialect.ir.unify import with_sizes
from ..dialect.notation.plan import Plan
from ..dialect.program.function import Function, Graph, Value
from ..dialect.program.module import Module
from ..dialect.program.overwritten_arguments import contents_after
from ..dialect.program.verify import verify
from ..lowering.pipeline import lower
from ..lowering.processor import processor
from ..lowering.storage.place_buffers import ALIGNMENT
from .compile import find, prepared
from .llvm import native_code
from .llvm.emit import emit
from .llvm.ir_builder import PARALLEL
from .llvm.ir_builder import Module as IRModule
from .llvm.python_to_ir import ir_text
from .llvm.range_check import declared, within_text
from .options import DEFAULT, CompileOptions
from .runtime.fp_environment import declarations, in_default_environment, register_of
from .runtime.thread_pool import SERIAL

OUT_OF_MEMORY = -1
C_TYPES = {
    "i1": "uint8_t", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
    "ui8": "uint8_t", "ui16": "uint16_t", "ui32": "uint32_t", "ui64": "uint64_t",
    "f16": "uint16_t", "f32": "float", "f64": "double", "complex<f32>": "float", "complex<f64>": "double",
}  # fmt: skip


@dataclass(frozen=True)
class Built:
    """An object file, and the C header that declares its functions."""

    image: bytes
    header: str


@compiling()
def build(
    module: Module, entries: Sequence[str], prefix: str, sizes: Mapping[str, int] = MappingProxyType({}),
    options: CompileOptions = DEFAULT,
) -> Built:  # fmt: skip
    """The functions of a verified module, each as `prefix_name`, with these values of named sizes.

    TargetError where one cannot be called from C, VerifyError where it cannot have these sizes.
    """
    functions, plans = [], []
    for name in entries:
        found = settled(module, find(module, name), sizes)
        _callable(module, found)
        module = module.with_functions({**module.functions, name: found})
        module, function = prepared(module, name)
        functions.append(function)
        plans.append(lower(module, function, optimize=options.optimize, checks=options.sanitize))
    text = emit(*plans, optimize=options.optimize > 0, linkage="internal ")
    prefix = identifier(prefix if prefix[:1].isalpha() and prefix.isascii() else f"cvm_{prefix}")
    symbols = _distinct(f"{prefix}_{identifier(f.name)}" for f in functions)
    parts = enumerate(zip(functions, plans, symbols, strict=True))
    wrappers = [_Wrapper(function, plan, symbol, f"entry{n or ''}") for n, (function, plan, symbol) in parts]
    requirements = [*text.requirements]
    pieces = [
        text.module.definitions,
        ir_text(SERIAL.replace("@export", "")),
        "declare ptr @malloc(i64)\ndeclare void @free(ptr)",
        declarations(register_of(_machine())),
        *(wrapper.text(requirements) for wrapper in wrappers),
        _messages([f"{span.line}: {message}" for message, span in requirements], f"{prefix}_message"),
    ]
    declared = tuple(d for d in text.module.declarations if d != PARALLEL)  # it is one of the pieces
    image = native_code.object_file(IRModule(declared, "\n".join(pieces)), options.optimize > 0)
    return Built(image, _header(functions, symbols, prefix, module.filename))


def settled(module: Module, function: Function, sizes: Mapping[str, int]) -> Function:
    """The function with named sizes bound, verified for them."""
    if isinstance(function, Graph) or all(a.known_type.is_static for a in function.arguments):
        return function
    bound: dict[Any, Dim] = {Size.named(name).terms[0][0]: n for name, n in sizes.items()}
    new = {a: Value(a.name, with_sizes(a.known_type, bound), a.span, a.attributes) for a in function.arguments}
    known: dict[Value, Value] = dict(new)
    operations = []
    for operation in function.operations:
        results = tuple(Value(r.name, None, r.span) for r in operation.results)
        known.update(zip(operation.results, results, strict=True))
        operator = operation.operator.map(lambda v: known.get(v, v))
        operations.append(replace(operation, operator=operator, results=results, declared=None, declared_operands=None))
    arguments, results = tuple(new.values()), tuple(known.get(r, r) for r in function.results)
    again = replace(function, arguments=arguments, operations=tuple(operations), results=results, declared=None)
    return verify(module.with_functions({**module.functions, function.name: again})).functions[function.name]


def _callable(module: Module, function: Function) -> None:
    """Raise TargetError if no C function of pointers can represent this function."""
    where = function.span
    if isinstance(function, Graph):
        raise TargetError(Diagnostic(f"@{function.name} is a graph; functions are built ahead of time", where, "build"))
    for value in (*function.arguments, *function.results):
        if not value.known_type.is_static:
            open = ", ".join(str(d) for d in value.known_type.array_shape if isinstance(d, Size))
            message = f"%{value.name} is {value.type}, but what is built ahead of time has known sizes; settle {open}"
            names = [str(d)[1:] for d in value.known_type.array_shape if isinstance(d, Size) and d.name]
            help = f"--size {names[0]}=16, or sizes={{'{names[0]}': 16}} in Python" if names else "name the size, as ?N"
            raise TargetError(Diagnostic(message, value.span, "build", (Note(help),)))
    if contents_after(module, function):
        raise TargetError(Diagnostic(f"@{function.name} overwrites an argument; built code does not", where, "build"))


# The wrapper


@dataclass(frozen=True)
class _Wrapper:
    """The C function around an entry."""

    function: Function
    plan: Plan
    symbol: str
    entry: str

    def text(self, requirements: list[tuple[str, Span]]) -> str:
        """Its IR, and that of its constants; the requirements get those of its declared ranges."""
        plan, constant = self.plan, f"{self.entry}_constant"
        arrays = [*plan.arguments, *plan.results]
        pointers = [*(f"%a{n}" for n in range(len(arrays))), *(f"@{constant}{n}" for n in range(len(plan.data)))]
        assert isinstance(plan.workspace, int)
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
        if plan.workspace:
            lines += [
                f"  %memory = call ptr @malloc(i64 {plan.workspace + ALIGNMENT})",
                "  %none = icmp eq ptr %memory, null",
                "  br i1 %none, label %fail, label %run",
                "run:",
                "  %start = ptrtoint ptr %memory to i64",
                f"  %past = add i64 %start, {ALIGNMENT - 1}",
                f"  %aligned = and i64 %past, {-ALIGNMENT}",
                "  %workspace = inttoptr i64 %aligned to ptr",
            ]
        work = "%workspace" if plan.workspace else "null"
        lines.append(f"  %status = call i32 @{self.entry}(ptr %table, ptr null, ptr {work})")
        lines += ["  call void @free(ptr %memory)"] if plan.workspace else []
        lines.append("  ret i32 %status")
        lines += ["fail:", f"  ret i32 {OUT_OF_MEMORY}"] if plan.workspace else []
        parameters = ", ".join(f"ptr %a{n}" for n in range(len(arrays)))
        data = [_bytes(np.ascontiguousarray(array).tobytes()) for array in plan.data.values()]
        constants = [f"@{constant}{n} = private constant {text}, align {ALIGNMENT}" for n, text in enumerate(data)]
        looks = [within_text(f"{self.entry}_within{n}", t.element, bounds) for n, (t, bounds) in ranges.items()]
        run = f"@{self.entry}_run"
        head = f"define internal i32 {run}({parameters}) noinline nounwind {{"
        exported = in_default_environment(
            f"i32 @{self.symbol}({parameters}) nounwind", run, parameters.split(", "), register_of(_machine())
        )
        return "\n".join([*constants, *looks, head, *lines, "}", exported])


def _machine() -> str:
    """The architecture that is compiled for, empty for this machine's."""
    return processor().triple.partition("-")[0]


def _bytes(data: bytes) -> str:
    return f'[{len(data)} x i8] c"' + re.sub("..", r"\\\g<0>", data.hex()) + '"'


def _messages(messages: Sequence[str], symbol: str) -> str:
    """The function that explains a status."""
    known = {0: "", OUT_OF_MEMORY: "out of memory", **dict(enumerate(messages, 1))}
    texts = [f"@message{n} = private constant {_bytes(m.encode() + bytes(1))}" for n, m in enumerate(known.values())]
    cases = " ".join(f"i32 {status}, label %case{n}" for n, status in enumerate(known))
    blocks = [f"case{n}:\n  ret ptr @message{n}" for n in range(len(known))]
    head = f"define ptr @{symbol}(i32 %status) nounwind {{\n  switch i32 %status, label %case0 [ {cases} ]"
    return "\n".join([*texts, head, *blocks, "}"])


# The header


def identifier(name: str) -> str:
    """A name as C takes it after another letter."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def _distinct(names: Iterable[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        plain, n = name, 2
        while name in found:
            name, n = f"{plain}_{n}", n + 1
        found.append(name)
    return found


def _header(functions: Sequence[Function], symbols: Sequence[str], prefix: str, filename: str) -> str:
    guard = f"{prefix}_H".upper()
    lines = [
        f"/* Compiled by cvm for {processor().cpu or llvm.get_host_cpu_name()}. Arrays are contiguous, the last index fastest; results do not overlap",
        "   arguments. A function gives 0, or a number that the message is for. Any threads may call at the same time. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "#include <stdint.h>",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
    ]
    for function, symbol in zip(functions, symbols, strict=True):
        values = [*function.arguments, *function.results]
        way = ["in"] * len(function.arguments) + ["out"] * len(function.results)
        names = _distinct(f"{w}_{identifier(v.name)}" for w, v in zip(way, values, strict=True))
        const = ["const " * (w == "in") for w in way]
        types = [C_TYPES[v.known_type.element.name] for v in values]
        declared = [f"{c}{t} *{name}" for c, t, name in zip(const, types, names, strict=True)]
        lines += ["", *(f"/* {name}: {_described(v)} */" for v, name in zip(values, names, strict=True))]
        lines.append(f"int32_t {symbol}({', '.join(declared) or 'void'});")
    lines += ["", f"const char *{prefix}_message(int32_t status);", "", "#ifdef __cplusplus", "}", "#endif", "#endif"]
    return "\n".join(lines) + "\n"


def _described(value: Value) -> str:
    type = value.known_type
    size = product(type.array_shape)
    notes = {"bool": ", each 0 or 1", "complex": ", pairs of real and imaginary part"}.get(type.element.kind, "")
    bounds = value.attributes.get("range")
    declared = "" if bounds is None else f", from {bounds[0]} to {bounds[1]}"
    return f"{type}, {size} element{'' if size == 1 else 's'}{notes}{declared}"
