"""Declare what a library exports: a C header, a C++ header of spans, a Rust module of arrays."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

from ...dialect.ir.function import Function, Value
from ...dialect.types.sizes import product

ELEMENTS = {  # in C and in Rust; complex numbers are pairs
    "i1": ("uint8_t", "u8"),
    "i8": ("int8_t", "i8"),
    "i16": ("int16_t", "i16"),
    "i32": ("int32_t", "i32"),
    "i64": ("int64_t", "i64"),
    "ui8": ("uint8_t", "u8"),
    "ui16": ("uint16_t", "u16"),
    "ui32": ("uint32_t", "u32"),
    "ui64": ("uint64_t", "u64"),
    "f16": ("uint16_t", "u16"),
    "bf16": ("uint16_t", "u16"),
    "f32": ("float", "f32"),
    "f64": ("double", "f64"),
    "complex<f32>": ("float", "f32"),
    "complex<f64>": ("double", "f64"),
}


class Parameter(NamedTuple):
    """An array of a C function."""

    name: str
    c: str
    rust: str
    numbers: int  # in memory
    given: bool  # and not a result
    described: str


@dataclass(frozen=True)
class Interface:
    """The C functions of a library: symbols, parameters, bytes of workspace. The `memory` for that
    is allocated on the heap in a call, given by the caller, or static.
    """

    prefix: str
    processor: str
    memory: Literal["heap", "caller", "static"]
    functions: tuple[tuple[str, tuple[Parameter, ...], int], ...]

    @property
    def freestanding(self) -> bool:
        """Test whether functions take their workspace from their caller."""
        return self.memory == "caller"


def parameters(
    function: Function, updated: Mapping[int, int] = MappingProxyType({})
) -> tuple[Parameter, ...]:
    """The arrays of a function: arguments, then results that do not lie in one; `updated` are the
    arguments in which results do, by the results' numbers.
    """
    results = [r for n, r in enumerate(function.results) if n not in updated]
    values = [*function.arguments, *results]
    given = [n not in updated.values() for n in range(len(function.arguments))]
    given += [False] * len(results)
    kinds = ["in" if g else "inout" for g in given[: len(function.arguments)]]
    kinds += ["out"] * len(results)
    names = distinct(f"{kind}_{identifier(v.name)}" for kind, v in zip(kinds, values, strict=True))
    types = [v.known_type for v in values]
    numbers = [int(product(t.array_shape)) * (1 + (t.element.kind == "complex")) for t in types]
    arrays = zip(names, types, numbers, given, map(_described, values), strict=True)
    return tuple(
        Parameter(name, *ELEMENTS[t.element.storage.name], n, g, said)
        for name, t, n, g, said in arrays
    )


def identifier(name: str) -> str:
    """A name as C takes it after another letter."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name)


def distinct(names: Iterable[str]) -> list[str]:
    """The names, each with a number where it was there before."""
    found: list[str] = []
    for name in names:
        plain, n = name, 2
        while name in found:
            name, n = f"{plain}_{n}", n + 1
        found.append(name)
    return found


def _described(value: Value) -> str:
    stored = value.known_type.element.storage  # the names of packages' types enter no C
    type = value.known_type.with_element(stored)
    size = product(type.array_shape)
    notes = {"bool": ", each 0 or 1", "complex": ", pairs of real and imaginary part"}.get(
        type.element.kind, ""
    )
    bounds = value.range
    declared = "" if bounds is None else f", from {bounds[0]} to {bounds[1]}"
    if (scale := value.attributes.get("scale")) is not None:
        zero = value.attributes.get("zero_point", 0)
        declared += f", q is for {f'(q - {zero})' if zero else 'q'} * {scale}"
    return f"{type}, {size} element{'' if size == 1 else 's'}{notes}{declared}"


def c_header(library: Interface) -> str:
    """Declarations for C, which C++ takes, too."""
    guard = f"{library.prefix}_H".upper()
    users = {
        "heap": "allocates while it runs, and nothing else",
        "caller": "takes, at a multiple of 64, from its caller",
        "static": "has in static buffers",
    }
    static = library.memory == "static"
    calls = "One call runs at a time." if static else "Any threads may call at the same time."
    lines = [
        f"/* Compiled by cvm for {library.processor}. Arrays are contiguous, the last "
        "index fastest; results do not overlap",
        f"   arguments. A function gives 0, or a number that the message is for. {calls}",
        "   WORKSPACE is the number of bytes that a function "
        f"{users[library.memory]}. */\n#ifndef {guard}\n#define {guard}",
        '#include <stdint.h>\n#ifdef __cplusplus\nextern "C" {\n#endif',
    ]
    for symbol, arrays, workspace in library.functions:
        declared = [f"{'const ' * a.given}{a.c} *{a.name}" for a in arrays] + [
            "void *workspace"
        ] * library.freestanding
        lines += ["", *(f"/* {a.name}: {a.described} */" for a in arrays)]
        lines.append(f"#define {symbol.upper()}_WORKSPACE {workspace}")
        lines.append(f"int32_t {symbol}({', '.join(declared) or 'void'});")
    lines.append(
        f"\nconst char *{library.prefix}_message(int32_t status);\n\n#ifdef __cplusplus\n"
        f"}}\n#endif\n#endif\n"
    )
    return "\n".join(lines)


def cpp_header(library: Interface) -> str:
    """Functions of a namespace that take spans of fixed extents: std::array and arrays of C convert
    to them (C++20).
    """
    lines = ["#pragma once", "#include <span>", c_header(library), f"namespace {library.prefix} {{"]
    for symbol, arrays, _ in library.functions:
        declared = [f"std::span<{'const ' * a.given}{a.c}, {a.numbers}> {a.name}" for a in arrays]
        passed = [f"{a.name}.data()" for a in arrays] + ["workspace"] * library.freestanding
        declared += ["void *workspace"] * library.freestanding
        name = symbol.removeprefix(f"{library.prefix}_")
        call = f"::{symbol}({', '.join(passed)})"
        lines.append(
            f"[[nodiscard]] inline int32_t {name}({', '.join(declared)}) {{ return {call}; }}"
        )
    lines.append(
        f"inline const char *message(int32_t status) {{ return "
        f"::{library.prefix}_message(status); }}"
    )
    return "\n".join([*lines, "}", ""])


def rust_module(library: Interface) -> str:
    """Functions that take references to arrays, and give the message of a status that is not 0 as
    an error.
    """
    head = (
        f"//! Compiled by cvm for {library.processor}: arrays are contiguous, the last index "
        "fastest."
    )
    lines = [head, '\nmod ffi {\n    unsafe extern "C" {']
    safe: list[str] = []
    for symbol, arrays, workspace in library.functions:
        name = symbol.removeprefix(f"{library.prefix}_")
        raw = [f"{a.name}: *{'const' if a.given else 'mut'} {a.rust}" for a in arrays]
        held = [f"{a.name}: &{'' if a.given else 'mut '}[{a.rust}; {a.numbers}]" for a in arrays]
        passed = [f"{a.name}.as_{'' if a.given else 'mut_'}ptr()" for a in arrays]
        if library.freestanding:
            raw.append("workspace: *mut u8")
            held.append(f"workspace: &mut Workspace<{workspace}>")
            passed.append("workspace.0.as_mut_ptr()")
        lines.append(f"        pub fn {symbol}({', '.join(raw)}) -> i32;")
        safe += ["", *(f"/// {a.name}: {a.described}" for a in arrays)]
        safe.append(f"pub fn {name}({', '.join(held)}) -> Result<(), &'static core::ffi::CStr> {{")
        safe += [f"    result(unsafe {{ ffi::{symbol}({', '.join(passed)}) }})", "}"]
    lines.append(
        f"        pub fn {library.prefix}_message(status: i32) -> *const "
        f"core::ffi::c_char;\n    }}\n}}"
    )
    lines.append(RUST_RESULT.replace("MESSAGE", f"ffi::{library.prefix}_message"))
    if library.freestanding:
        lines.append(
            "\n#[repr(align(64))]\npub struct Workspace<const BYTES: usize>(pub [u8; BYTES]);"
        )
    return "\n".join([*lines, *safe, ""])


RUST_RESULT = """
fn result(status: i32) -> Result<(), &'static core::ffi::CStr> {
    if status == 0 { Ok(()) } else { Err(unsafe { core::ffi::CStr::from_ptr(MESSAGE(status)) }) }
}"""
HEADERS: dict[str, Callable[[Interface], str]] = {
    ".h": c_header,
    ".hpp": cpp_header,
    ".rs": rust_module,
}
