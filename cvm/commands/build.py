"""`cvm build`: functions of a program to an object file or a library, and its declarations for C,
C++ and Rust.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cvm
from cvm.dialect.ir.module import Module
from cvm.dialect.kernel_ir.execution_plan import Plan
from cvm.dialect.support.files import write_file
from cvm.dialect.types.sizes import Size
from cvm.importers.exactness import require
from cvm.jit.compile import find
from cvm.jit.options import CompileOptions
from cvm.terminal.files import read, shown, write
from cvm.terminal.read_program import (
    check_size_names,
    compiled,
    parsed_sizes,
    read_kernels,
    read_level,
)
from cvm.terminal.usage import Usage, named_processor

if TYPE_CHECKING:
    from cvm.dialect.kernel_ir.formulas import Formulas
    from cvm.jit.aot.build import Built
    from cvm.jit.aot.interfaces import Interface
    from cvm.lowering.processor import Processor

SHARED = (".so", ".dylib")
LINKERS = ("cc", "gcc", "clang", "ld.lld", "ld")


def build(options: Namespace) -> int:
    from cvm.jit.aot.c_source import c_source
    from cvm.jit.aot.interfaces import HEADERS

    path, in_c = Path(options.output), options.emit == "c"
    if path.suffix not in ((".c",) if in_c else (".o", ".a", *SHARED)):
        kinds = (
            f"an object file, .o, a static library, .a, or a shared library, {' or '.join(SHARED)}"
        )
        raise Usage(
            f"-o is {'a file of C, .c' if in_c else kinds}; got {options.output}"
            + "; --emit c writes C" * (path.suffix == ".c")
        )
    if in_c and (options.cpus or options.triple):
        raise Usage("--cpu, --triple: the C of --emit c is for any processor")
    if options.arena and not in_c:
        raise Usage("--arena: only C has static buffers; --emit c writes it")
    for header in options.header:
        if Path(header).suffix not in HEADERS:
            raise Usage(
                f"--header is a file for C, .h, for C++, .hpp, or for Rust, .rs; got {header}"
            )
    sizes, prefix = parsed_sizes(options.size), path.stem.removeprefix("lib")
    level = CompileOptions(options.optimize)
    module = read_level(options.program, data := read(options.program))
    if not isinstance(module, Module):
        return _build_kernels(module, data, sizes, prefix, level, options)
    entries = options.entry or [find(module, "main").name]
    if options.require_exact:
        require(module, options.require_exact)
    arguments = [
        a for name in entries if name in module.functions for a in module.functions[name].arguments
    ]
    known = [d.name for a in arguments for d in a.known_type.array_shape if isinstance(d, Size)]
    if arguments:
        check_size_names(sizes, dict.fromkeys(known), f"@{', @'.join(entries)}")
    if in_c:
        source = c_source(module, entries, prefix, sizes, level, options.arena)
        write(options.output, source.text.encode())
        print(f"{path}: {source.sizes}")
        interface = source.interface
    else:
        interface = _compiled(module, entries, prefix, sizes, level, options)
    return _headers(interface, options)


def _headers(interface: Interface, options: Namespace) -> int:
    from cvm.jit.aot.interfaces import HEADERS

    for header in options.header:
        write(header, HEADERS[Path(header).suffix](interface).encode())
    return 0


def _build_kernels(
    program: Plan | Formulas,
    data: bytes,
    sizes: dict[str, int],
    prefix: str,
    level: CompileOptions,
    options: Namespace,
) -> int:
    """Build the kernels, or formulas, of a text as one function."""
    from cvm.jit.aot.build import build_kernels

    for name, given in (("--emit c", options.emit == "c"), ("--entry", options.entry)):
        if given:
            raise Usage(f"{name}: kernels are built together, as objects and libraries")
    known = [d.name for t in program.arguments for d in t.shape if isinstance(d, Size) and d.name]
    check_size_names(sizes, dict.fromkeys(known), "the kernels")
    if sizes and isinstance(program, Plan):
        text = data.decode("utf-8-sig", "replace")
        program = read_kernels(text, shown(options.program), sizes)

    def kernels(chosen: CompileOptions) -> Any:
        return compiled(program, program.name, "cpu", chosen)

    processors = _processors(options)
    return _headers(_written(build_kernels(kernels, prefix, level, processors), options), options)


def _compiled(
    module: Module,
    entries: list[str],
    prefix: str,
    sizes: dict[str, int],
    level: CompileOptions,
    options: Namespace,
) -> Interface:
    from cvm.jit.aot.build import build as built

    processors = _processors(options)
    return _written(built(module, entries, prefix, sizes, level, processors), options)


def _processors(options: Namespace) -> list[Processor | None]:
    processors = [named_processor(name, options.triple) for name in options.cpus.split(",")]
    if len(processors) > 1 and Path(options.output).suffix == ".o":
        raise Usage(
            "--cpu: several processors make several object files; -o makes a library of "
            "them, .a or .so"
        )
    return processors


def _written(program: Built, options: Namespace) -> Interface:
    """Write an object file or a library, and return what it exports."""
    from cvm.jit.aot.archive import archive

    path = Path(options.output)
    if path.suffix == ".o":
        write(options.output, program.objects[0])
    elif path.suffix == ".a":
        write(options.output, archive(program.objects, program.symbols))
    else:
        _link(program.objects, path)
    return program.interface


def _link(images: Sequence[bytes], path: Path) -> None:
    """Link object files to a shared library, with a linker of this machine."""
    if (linker := next(filter(None, map(shutil.which, LINKERS)), None)) is None:
        raise cvm.Error(
            f"a shared library needs a linker, and none of {', '.join(LINKERS)} is there; "
            f"-o {path.with_suffix('.a')} makes a static library without one"
        )
    with tempfile.TemporaryDirectory() as folder:
        sources, target = (
            [Path(folder, f"{n}.o") for n in range(len(images))],
            Path(folder, "program.so"),
        )
        for source, image in zip(sources, images, strict=True):
            write_file(source, image)
        done = subprocess.run(
            [linker, "-shared", "-o", target, *sources], capture_output=True, text=True
        )
        if done.returncode:
            raise cvm.Error(f"{linker} cannot make {path.name}:\n{done.stderr.rstrip()}")
        write(str(path), target.read_bytes())
